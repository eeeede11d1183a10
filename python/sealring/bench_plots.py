"""Draws what `sealring bench --json FILE` measured: `python3 -m sealring.bench_plots FILE... -o bench.svg`.

Bus bandwidth by size, a line a suite; and by thread blocks (`--columns`) where a file has those rows. Rows of
several files of one operation, type and place are drawn together. Bars are the middle 95 % of the samples.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

import altair as alt
import vl_convert

from sealring.plots import COLOURS, FONT, FONT_SIZE, legend, number_axis

WIDTH, HEIGHT = 460, 260
NAMES = {
    "nccl": "NCCL, plain, as it comes",
    "nccl-windows": "NCCL, plain, registered windows",
    "nccl-blocks": "NCCL, plain, 32 thread blocks or more",
    "gloo": "Gloo, plain",
    "plain": "own plain",
}


def size_text(size_bytes: int) -> str:
    for unit, name in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:g} {name}iB"
    return f"{size_bytes} B"


def points_of(record: dict, in_place: bool) -> list[dict]:
    """The rows of a file as what is drawn: `columns` is None where a row has no bound on them."""
    out = []
    for row in record["rows"]:
        if row["in_place"] != in_place:
            continue
        suite, _, columns = row["suite"].partition(":")
        samples = sorted(row["samples_us"])
        cut = int(len(samples) * 0.025)
        per_us = row["busbw_gb_s"] * row["median_us"]
        out.append(
            {
                "suite": NAMES.get(suite, suite + ", sealed"),
                "columns": int(columns) if columns else None,
                "size": row["size_bytes"],
                "busbw": row["busbw_gb_s"],
                "low": per_us / samples[-1 - cut],
                "high": per_us / samples[cut],
            }
        )
    return out


def lines(points: list[dict], x, title: str):
    order = list(dict.fromkeys(point["suite"] for point in points))
    colour = alt.Color(
        "suite:N", title=None, sort=order, scale=alt.Scale(domain=order, range=COLOURS), legend=legend(1)
    )
    chart = alt.Chart(alt.Data(values=points))
    y = alt.Y("busbw:Q", title="bus bandwidth, GB/s", axis=number_axis())
    drawn = chart.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour)
    dots = chart.mark_point(filled=True, size=45, opacity=1).encode(x=x, y=y, color=colour)
    bars = chart.mark_rule(strokeWidth=2).encode(x=x, y="low:Q", y2="high:Q", color=colour)
    return alt.layer(drawn, bars, dots).properties(width=WIDTH, height=HEIGHT, title=title)


def by_size(points: list[dict]):
    sizes = sorted({point["size"] for point in points})
    axis = alt.Axis(
        values=sizes,
        labelExpr=" : ".join(f"datum.value == {size} ? '{size_text(size)}'" for size in sizes) + " : ''",
        labelAngle=-40,
    )
    x = alt.X(
        "size:Q", title="size, logarithmic", axis=axis, scale=alt.Scale(type="log", base=2, nice=False)
    )
    return lines(points, x, "by size")


def by_columns(points: list[dict]):
    """Suites without a bound are lines from side to side."""
    bounds = sorted({point["columns"] for point in points if point["columns"]})
    drawn = []
    for point in points:
        drawn += [{**point, "columns": c} for c in ([point["columns"]] if point["columns"] else bounds)]
    x = alt.X("columns:Q", title="thread blocks at most", axis=alt.Axis(values=bounds, labelOverlap=True))
    return lines(drawn, x, f"by thread blocks, {size_text(points[0]['size'])}")


def subject(record: dict, in_place: bool) -> str:
    spec, machine = record["spec"], record["machine"]
    gpus = machine.get("gpus") or []
    where = f"{len(gpus)} x {gpus[0]}" if gpus else machine["cpu"]
    place = "in place" if in_place else "out of place"
    return (
        f"{spec['op']} {spec['dtype']}, {spec['ranks']} ranks, {place}; {where}, {machine['cc']}; "
        f"{record['origin']}, {record['date'][:10]}, commit {spec['commit']}"
    )


def picture(records: list[dict], in_place: bool) -> str:
    """The SVG. Errors: ValueError (files that do not belong together, or without a row of that place)."""
    subjects = {(r["spec"]["op"], r["spec"]["dtype"], r["spec"]["ranks"]) for r in records}
    if len(subjects) != 1:
        raise ValueError("the files are not of one operation, type and number of ranks")
    points = [point for record in records for point in points_of(record, in_place)]
    if not points:
        raise ValueError("no row of that place")
    bounded = [p for record in records for p in points_of(record, in_place) if is_bounded(record)]
    free = [p for record in records for p in points_of(record, in_place) if not is_bounded(record)]
    charts = ([by_size(free)] if free else []) + ([by_columns(bounded)] if bounded else [])
    chart = (
        alt.hconcat(*charts, title=alt.Title(subject(records[0], in_place), fontSize=13, anchor="start"))
        .configure(font=FONT, padding={"left": 6, "right": 36, "top": 6, "bottom": 6}, background="white")
        .configure_view(stroke="#e4e4e7")
        .configure_axis(gridColor="#f0f0f2", labelFontSize=FONT_SIZE)
        .configure_legend(labelFontSize=FONT_SIZE)
    )
    return vl_convert.vegalite_to_svg(chart.to_dict())


def is_bounded(record: dict) -> bool:
    return any(":" in row["suite"] for row in record["rows"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m sealring.bench_plots", description=__doc__)
    parser.add_argument("files", nargs="+", help="what `sealring bench --json FILE` wrote")
    parser.add_argument("-o", "--output", required=True, help="the SVG file to write")
    parser.add_argument("--out-of-place", action="store_true", help="draw those rows (in place)")
    args = parser.parse_args()
    records = []
    for name in args.files:
        with open(name, encoding="utf-8") as source:
            records.append(json.load(source))
        if not str(records[-1].get("schema", "")).startswith("sealring-bench-"):
            print(f"sealring.bench_plots: {name} is no record of `sealring bench`", file=sys.stderr)
            return 1
    try:
        drawn = picture(records, not args.out_of_place)
    except ValueError as error:
        print(f"sealring.bench_plots: {error}", file=sys.stderr)
        return 1
    part = f"{args.output}.part"
    with open(part, "w", encoding="utf-8") as target:
        target.write(drawn)
    os.replace(part, args.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
