"""Draws a study's report as one self-contained HTML page: `python3 -m sealring.plots report.json -o
report.html`.

The input is what `sealring report` makes of a results file: sections of text, tables and charts. Charts
are Vega-Lite
pictures, turned into SVG inside the page, so that it needs neither network nor scripts.
"""

from __future__ import annotations

import argparse
import html
import json
import os
import sys

import altair as alt
import vl_convert

COLOURS = ["#4c78a8", "#f58518", "#54a24b", "#b279a2", "#9d755d", "#72b7b2", "#e45756"]
PARTS = ["1 compute", "2 seal", "3 open and add", "4 wire and waiting"]
PART_COLOURS = ["#bab0ac", "#e45756", "#f58518", "#4c78a8"]

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; color: #1d1d1f; background: #fff;
       max-width: 78rem; margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin: 2.4rem 0 .4rem; }
.subtitle { color: #66686c; margin-top: 0; }
nav { margin: 1rem 0; font-size: .9rem; } nav a { margin-right: 1rem; color: #4c78a8; text-decoration:
none; }
.short p { font-size: 1.02rem; border-left: 3px solid #4c78a8; padding-left: .8rem; }
.scroll { overflow-x: auto; margin-top: 1rem; }
table { border-collapse: collapse; font-size: .82rem; font-variant-numeric: tabular-nums; }
th, td { padding: .28rem .48rem; text-align: right; border-bottom: 1px solid #e4e4e7; white-space: nowrap; }
th { font-weight: 600; border-bottom: 2px solid #c9c9ce; }
th:first-child, td:first-child, td.text, th.text { text-align: left; } td.text { white-space: normal; }
tr:hover td { background: #f6f8fb; }
.note { color: #66686c; font-size: .8rem; max-width: 60rem; }
.tag { border-radius: .7rem; padding: 0 .5rem; font-size: .76rem; background: #e8eef6; }
.tag.emulated { background: #fdebd3; } .tag.quoted { background: #f0e6f2; } .tag.predicted { background:
#e9f3e8; }
figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; }
"""


def by_model(data: list[dict]) -> list[str]:
    return list(dict.fromkeys(point["model"] for point in data))


def facet(layers, data: list[dict], facets: list[str], field: str):
    """One small chart a value of `field`, side by side."""
    charts = []
    for value in facets:
        part = alt.Data(values=[point for point in data if point[field] == value])
        charts.append(layers(part).properties(title=value))
    return alt.hconcat(*charts, spacing=40)


def slowdown(data: list[dict]):
    """Dots with intervals. A preview has no interval, an emulated row is hollow, a noisy one is pale."""
    order = list(dict.fromkeys(point["engine"] for point in data))

    def one(part):
        y = alt.Y("engine:N", sort=order, title=None, axis=alt.Axis(labelLimit=260))
        colour = alt.Color(
            "baseline:N", title=None, scale=alt.Scale(range=COLOURS), legend=alt.Legend(orient="bottom")
        )
        offset = alt.YOffset("baseline:N")
        x = alt.X(
            "ratio:Q",
            title="time over the baseline's",
            scale=alt.Scale(zero=False),
            axis=alt.Axis(tickCount=4, labelSeparation=8, labelOverlap=True),
        )
        pale = alt.condition("datum.noisy", alt.value(0.45), alt.value(1))
        one_line = (
            alt.Chart(alt.Data(values=[{"x": 1}]))
            .mark_rule(strokeDash=[4, 4], color="#888")
            .encode(x="x:Q")
        )
        bars = alt.Chart(part).transform_filter("datum.low != null").mark_rule(strokeWidth=2)
        bars = bars.encode(y=y, yOffset=offset, x="low:Q", x2="high:Q", color=colour, opacity=pale)
        filled = alt.Fill("baseline:N", scale=alt.Scale(range=COLOURS), legend=None)
        hollow = alt.condition("datum.origin == 'emulated'", alt.value("#fff"), filled)
        dots = alt.Chart(part).mark_point(size=60, filled=False, strokeWidth=2)
        dots = dots.encode(y=y, yOffset=offset, x=x, color=colour, fill=hollow, opacity=pale)
        return alt.layer(one_line, bars, dots).properties(width=260, height=34 * len(order))

    return facet(one, data, by_model(data), "model")


def breakdown(data: list[dict]):
    order = list(dict.fromkeys(point["engine"] for point in data))

    def one(part):
        return (
            alt.Chart(part)
            .mark_bar()
            .encode(
                y=alt.Y("engine:N", sort=order, title=None, axis=alt.Axis(labelLimit=260)),
                x=alt.X("ms:Q", stack="zero", title="ms an iteration"),
                color=alt.Color(
                    "part:N",
                    sort=PARTS,
                    title=None,
                    legend=alt.Legend(orient="bottom"),
                    scale=alt.Scale(domain=PARTS, range=PART_COLOURS),
                ),
                order=alt.Order("part:N"),
                opacity=alt.condition("datum.origin == 'emulated'", alt.value(0.55), alt.value(1)),
            )
            .properties(width=260, height=30 * len(order))
        )

    return facet(one, data, by_model(data), "model")


def buckets(data: list[dict]):
    def one(part):
        return (
            alt.Chart(part)
            .mark_line(point=True)
            .encode(
                x=alt.X(
                    "cap:Q",
                    scale=alt.Scale(type="log"),
                    title="bucket cap, MiB",
                    axis=alt.Axis(values=sorted({point["cap"] for point in data}), format="~g"),
                ),
                y=alt.Y("ms:Q", scale=alt.Scale(zero=False), title="ms an iteration"),
                color=alt.Color(
                    "engine:N",
                    title=None,
                    scale=alt.Scale(range=COLOURS),
                    legend=alt.Legend(orient="bottom"),
                ),
            )
            .properties(width=300, height=220)
        )

    return facet(one, data, by_model(data), "model")


def counts(data: list[dict]):
    law = [
        {"ranks": n / 4, "series": "4k(n-1), predicted", "operations": 20 * (n / 4 - 1)}
        for n in range(8, 33)
    ]
    colour = alt.Color(
        "series:N", title=None, scale=alt.Scale(range=COLOURS), legend=alt.Legend(orient="bottom")
    )
    x = alt.X("ranks:Q", title="ranks", axis=alt.Axis(values=[2, 3, 4, 8]))
    y = alt.Y("operations:Q", title="crypto operations of a rank, k = 5")
    line = alt.Chart(alt.Data(values=law)).mark_line(strokeDash=[4, 4]).encode(x=x, y=y, color=colour)
    dots = (
        alt.Chart(alt.Data(values=data)).mark_point(filled=True, size=70).encode(x=x, y=y, color=colour)
    )
    return alt.layer(line, dots).properties(width=380, height=240)


def quoted(data: list[dict]):
    """A bar from 1 (no slowdown) to the factor: a logarithmic axis has no zero."""
    order = [point["label"] for point in data]
    values = alt.Data(values=[{**point, "one": 1} for point in data])
    return (
        alt.Chart(values, title="published factors (quoted; other GPUs, emulated)")
        .mark_bar(color="#b279a2", opacity=0.6)
        .encode(
            y=alt.Y("label:N", sort=order, title=None, axis=alt.Axis(labelLimit=260)),
            x=alt.X("one:Q", title="factor, logarithmic", scale=alt.Scale(type="log", domainMin=1)),
            x2="value:Q",
        )
        .properties(width=420, height=22 * len(order))
    )


CHARTS = {
    "slowdown": slowdown,
    "breakdown": breakdown,
    "buckets": buckets,
    "counts": counts,
    "quoted": quoted,
}
ORIGINS = ("measured", "emulated", "predicted", "quoted")


def chart_svg(kind: str, data: list[dict]) -> str:
    chart = (
        CHARTS[kind](data)
        .configure_view(stroke="#e4e4e7")
        .configure_axis(gridColor="#f0f0f2", labelFontSize=12)
    )
    return vl_convert.vegalite_to_svg(chart.to_dict())


def cell(text: str, wide: bool) -> str:
    if text in ORIGINS:
        return f'<td><span class="tag {text}">{text}</span></td>'
    return f'<td class="text">{html.escape(text)}</td>' if wide else f"<td>{html.escape(text)}</td>"


def is_prose(table: dict, column: int) -> bool:
    """A column whose cells are long or wordy is set flush left."""
    return any(len(row[column]) > 34 for row in table["rows"])


def table_html(table: dict) -> str:
    wide = [is_prose(table, column) for column in range(len(table["columns"]))]
    head = "".join(
        f"<th{' class=text' if w else ''}>{html.escape(c)}</th>" for c, w in zip(table["columns"], wide)
    )
    rows = "".join(
        "<tr>" + "".join(cell(c, w) for c, w in zip(row, wide)) + "</tr>" for row in table["rows"]
    )
    note = f'<p class="note">{html.escape(table["note"])}</p>' if table["note"] else ""
    body = f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    return f'<div class="scroll"><table>{body}</table></div>{note}'


def section_html(number: int, section: dict) -> str:
    out = [
        f'<section id="s{number}" class="{"short" if number == 0 else ""}">'
        f"<h2>{html.escape(section['title'])}</h2>"
    ]
    out += [f"<p>{html.escape(text)}</p>" for text in section["paragraphs"]]
    if section["chart"] in CHARTS and section["data"]:
        out.append(f"<figure>{chart_svg(section['chart'], section['data'])}</figure>")
    out += [table_html(table) for table in section["tables"]]
    return "\n".join(out) + "</section>"


def page(report: dict) -> str:
    titles = [html.escape(section["title"]) for section in report["sections"]]
    links = "".join(f'<a href="#s{i}">{title}</a>' for i, title in enumerate(titles))
    body = "\n".join(section_html(i, section) for i, section in enumerate(report["sections"]))
    title, subtitle = html.escape(report["title"]), html.escape(report["subtitle"])
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style>'
        f"</head><body>"
        f'<h1>{title}</h1><p class="subtitle">{subtitle}</p><nav>{links}</nav>\n{body}\n</body></html>\n'
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m sealring.plots", description=__doc__)
    parser.add_argument("report", help="report.json as `sealring report` passes it")
    parser.add_argument("-o", "--output", required=True, help="the HTML file to write")
    args = parser.parse_args()
    with open(args.report, encoding="utf-8") as source:
        report = json.load(source)
    if report.get("schema") != "sealring-report-1":
        print("sealring.plots: not a report of this version", file=sys.stderr)
        return 1
    part = f"{args.output}.part"
    with open(part, "w", encoding="utf-8") as target:
        target.write(page(report))
    os.replace(part, args.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
