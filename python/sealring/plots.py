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
import statistics
import sys

import altair as alt
import vl_convert

COLOURS = ["#4c78a8", "#f58518", "#54a24b", "#b279a2", "#9d755d", "#72b7b2", "#e45756"]
PARTS = ["1 compute", "2 seal", "3 open and add", "4 wire and waiting"]
PART_COLOURS = ["#bab0ac", "#e45756", "#f58518", "#4c78a8"]

CLIPPED_ABOVE = 1.5  # medians: a bucket-size run beyond is not drawn to scale

# What the pictures' texts are measured with, and fonts of nearly the same widths where it is not there.
FONT = "Liberation Sans, Arial, Helvetica, Nimbus Sans, sans-serif"
FONT_SIZE = 12
LETTER_WIDTH = 0.56 * FONT_SIZE  # of a wide font: room for labels is reserved by it, whatever is at hand
PLOT_WIDTH = 300

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; color: #1d1d1f; background: #fff;
       max-width: 78rem; margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin: 2.4rem 0 .4rem; }
.subtitle { color: #66686c; margin-top: 0; }
nav { margin: 1rem 0; font-size: .9rem; } nav a { margin-right: 1rem; color: #4c78a8; text-decoration:
none; }
.short p { font-size: 1.02rem; border-left: 3px solid #4c78a8; padding-left: .8rem; }
ul { padding-left: 1.2rem; max-width: 60rem; } li { margin: .2rem 0; }
.scroll { overflow-x: auto; margin-top: 1rem; }
table { border-collapse: collapse; font-size: .82rem; font-variant-numeric: tabular-nums; }
th, td { padding: .28rem .48rem; text-align: right; border-bottom: 1px solid #e4e4e7; white-space: nowrap; }
th { font-weight: 600; border-bottom: 2px solid #c9c9ce; vertical-align: bottom; }
th, td.text { white-space: normal; }
th:first-child, td:first-child, td.text, th.text { text-align: left; }
tr:hover td { background: #f6f8fb; }
.note { color: #66686c; font-size: .8rem; max-width: 60rem; }
.tag { border-radius: .7rem; padding: 0 .5rem; font-size: .76rem; background: #e8eef6; }
.tag.emulated { background: #fdebd3; } .tag.quoted { background: #f0e6f2; } .tag.predicted { background:
#e9f3e8; }
figure { margin: 1rem 0; } figcaption { color: #66686c; font-size: .8rem; max-width: 60rem; }
.panels { display: flex; flex-wrap: wrap; gap: 1rem 2rem; overflow-x: auto; }
.panels svg { flex: none; }
@media (max-width: 62rem) {
  table { font-size: .76rem; } th, td { padding: .24rem .3rem; }
  td:first-child { white-space: normal; min-width: 8rem; }
}
"""


def by_model(data: list[dict]) -> list[str]:
    return list(dict.fromkeys(point["model"] for point in data))


def panels(draw, data: list[dict]) -> list:
    """One chart a model; the page sets them side by side, or below each other where it is narrow."""
    out = []
    for model in by_model(data):
        part = [point for point in data if point["model"] == model]
        out.append(draw(part).properties(title=model))
    return out


def label_axis(labels: list[str]):
    """An axis of names that has room for the longest of them."""
    room = LETTER_WIDTH * max(len(label) for label in labels) + 12
    return alt.Axis(labelLimit=0, minExtent=room, domain=False, ticks=False, labelPadding=8)


def number_axis(**more):
    return alt.Axis(tickCount=5, labelOverlap="greedy", labelSeparation=14, **more)


def legend(columns: int = 1):
    return alt.Legend(orient="bottom", columns=columns, columnPadding=44, labelLimit=0, symbolOffset=4)


def slowdown(data: list[dict]) -> list:
    """Dots with intervals. A preview has no interval, an emulated row is hollow, a noisy one is pale."""
    order = list(dict.fromkeys(point["engine"] for point in data))

    def one(part):
        y = alt.Y("engine:N", sort=order, title=None, axis=label_axis(order))
        colour = alt.Color("baseline:N", title=None, scale=alt.Scale(range=COLOURS), legend=legend(2))
        offset = alt.YOffset("baseline:N")
        x = alt.X(
            "ratio:Q", title="time over the baseline's", scale=alt.Scale(zero=False), axis=number_axis()
        )
        pale = alt.condition("datum.noisy", alt.value(0.45), alt.value(1))
        one_line = (
            alt.Chart(alt.Data(values=[{"x": 1}]))
            .mark_rule(strokeDash=[4, 4], color="#888")
            .encode(x="x:Q")
        )
        chart = alt.Chart(alt.Data(values=part))
        bars = chart.transform_filter("datum.low != null").mark_rule(strokeWidth=2)
        bars = bars.encode(y=y, yOffset=offset, x="low:Q", x2="high:Q", color=colour, opacity=pale)
        dots = chart.mark_point(size=75, filled=True, opacity=1)
        dots = dots.encode(y=y, yOffset=offset, x=x, color=colour, opacity=pale)
        holes = chart.transform_filter("datum.origin == 'emulated'")
        holes = holes.mark_point(size=28, filled=True, color="#fff", opacity=1)
        holes = holes.encode(y=y, yOffset=offset, x=x)
        return alt.layer(one_line, bars, dots, holes).properties(width=PLOT_WIDTH, height=34 * len(order))

    return panels(one, data)


def breakdown(data: list[dict]) -> list:
    order = list(dict.fromkeys(point["engine"] for point in data))

    def one(part):
        chart = alt.Chart(alt.Data(values=part))
        y = alt.Y("engine:N", sort=order, title=None, axis=label_axis(order))
        most = max(point["total"] for point in part)
        bars = chart.mark_bar().encode(
            y=y,
            x=alt.X(
                "ms:Q",
                stack="zero",
                title="ms an iteration",
                axis=number_axis(),
                scale=alt.Scale(domainMax=1.35 * most, nice=False),  # room for the text behind a bar
            ),
            color=alt.Color(
                "part:N",
                sort=PARTS,
                title=None,
                legend=legend(2),
                scale=alt.Scale(domain=PARTS, range=PART_COLOURS),
            ),
            order=alt.Order("part:N"),
            opacity=alt.condition("datum.origin == 'emulated'", alt.value(0.55), alt.value(1)),
        )
        lost = chart.transform_filter(f"datum.lost && datum.part == '{PARTS[0]}'")
        lost = lost.mark_text(align="left", dx=5, fontSize=11, color="#66686c")
        lost = lost.encode(y=y, x=alt.X("total:Q"), text=alt.value("exposed ~0"))
        return alt.layer(bars, lost).properties(width=PLOT_WIDTH, height=30 * len(order))

    return panels(one, data)


def buckets(data: list[dict]) -> list:
    """A run that was disturbed may lie far above all others: it is drawn as a triangle at the upper edge."""

    def one(part):
        middle = statistics.median(point["ms"] for point in part)
        edge = CLIPPED_ABOVE * middle
        inside = max([point["ms"] for point in part if point["ms"] <= edge])
        top = inside + 0.08 * inside
        drawn = [
            {
                **point,
                "shown": min(point["ms"], top),
                "clipped": point["ms"] > edge,
                "text": f"{point['ms']:.0f} ms",
            }
            for point in part
        ]
        chart = alt.Chart(alt.Data(values=drawn))
        x = alt.X(
            "cap:Q",
            scale=alt.Scale(type="log"),
            title="bucket cap, MiB (logarithmic)",
            axis=alt.Axis(values=sorted({point["cap"] for point in part}), format="~g"),
        )
        low = 0.97 * min(point["ms"] for point in part)
        y = alt.Y(
            "shown:Q",
            scale=alt.Scale(domain=[low, top], nice=False),
            title="ms an iteration (not from 0)",
            axis=number_axis(),
        )
        colour = alt.Color("engine:N", title=None, scale=alt.Scale(range=COLOURS), legend=legend(2))
        lines = chart.mark_line().encode(x=x, y=y, color=colour)
        dots = chart.transform_filter("!datum.clipped").mark_point(filled=True, size=45, opacity=1)
        dots = dots.encode(x=x, y=y, color=colour)
        far = chart.transform_filter("datum.clipped").mark_point(
            shape="triangle-up", filled=True, size=90, opacity=1
        )
        far = far.encode(x=x, y=y, color=colour)
        said = chart.transform_filter("datum.clipped").mark_text(align="left", dx=8, dy=4, fontSize=11)
        said = said.encode(x=x, y=y, text="text:N")
        return alt.layer(lines, dots, far, said).properties(width=PLOT_WIDTH + 60, height=230)

    return panels(one, data)


def counts(data: list[dict]) -> list:
    """The law is a dashed line that carries its own name: a legend would show a dot for it."""
    law = [{"ranks": n / 4, "operations": 20 * (n / 4 - 1)} for n in range(8, 33)]
    colour = alt.Color("series:N", title=None, scale=alt.Scale(range=COLOURS), legend=legend(2))
    x = alt.X("ranks:Q", title="ranks", axis=alt.Axis(values=[2, 3, 4, 8]))
    y = alt.Y("operations:Q", title="crypto operations of a rank, k = 5", axis=number_axis())
    line = alt.Chart(alt.Data(values=law)).mark_line(strokeDash=[4, 4], color="#888").encode(x=x, y=y)
    name = alt.Chart(alt.Data(values=[law[12]])).mark_text(align="right", dx=-10, color="#66686c")
    name = name.encode(x=x, y=y, text=alt.value("4k(n-1), predicted"))
    dots = alt.Chart(alt.Data(values=data)).mark_point(filled=True, size=70, opacity=1)
    dots = dots.encode(x=x, y=y, color=colour)
    return [alt.layer(line, name, dots).properties(width=380, height=240)]


def quoted(data: list[dict]) -> list:
    """A bar from 1 (no slowdown) to the factor: a logarithmic axis has no zero."""
    order = [point["label"] for point in data]
    values = alt.Data(values=[{**point, "one": 1, "text": f"{point['value']:g}"} for point in data])
    chart = alt.Chart(values, title="published factors (quoted; other GPUs, emulated)")
    y = alt.Y("label:N", sort=order, title=None, axis=label_axis(order))
    scale = alt.Scale(type="log", domain=[1, 200], nice=False)
    axis = alt.Axis(values=[1, 2, 5, 10, 20, 50, 100], format="~g")
    bars = chart.mark_bar(color="#b279a2", opacity=0.6).encode(
        y=y, x=alt.X("one:Q", title="factor (logarithmic)", scale=scale, axis=axis), x2="value:Q"
    )
    texts = chart.mark_text(align="left", dx=5, fontSize=11).encode(
        y=y, x=alt.X("value:Q", scale=scale), text="text:N"
    )
    return [alt.layer(bars, texts).properties(width=PLOT_WIDTH + 60, height=24 * len(order))]


CHARTS = {
    "slowdown": slowdown,
    "breakdown": breakdown,
    "buckets": buckets,
    "counts": counts,
    "quoted": quoted,
}
CAPTIONS = {
    "slowdown": "A dot is the ratio, its bar the 95 % interval; hollow: emulated; pale: noisy (*). An "
    "interval that crosses the dashed line holds 1, no effect.",
    "breakdown": "Pale: emulated. exposed ~0: the iteration without communication took no less time, so its "
    "share is lost in the noise.",
    "buckets": "One search block. A triangle at the upper edge is a run above 1.5 medians: it "
    "is not drawn to scale, its time stands beside it.",
    "counts": "Counted from real seals and opens; the dashed line is the law for the ring.",
    "quoted": "Quoted, none of it measured here; what each bar is, and its n, stands in the tables below.",
}
ORIGINS = ("measured", "emulated", "predicted", "quoted")


def chart_svgs(kind: str, data: list[dict]) -> list[str]:
    out = []
    for chart in CHARTS[kind](data):
        chart = (
            chart.configure(font=FONT, padding={"left": 6, "right": 36, "top": 6, "bottom": 6})
            .configure_view(stroke="#e4e4e7")
            .configure_axis(gridColor="#f0f0f2", labelFontSize=FONT_SIZE)
            .configure_legend(labelFontSize=FONT_SIZE)
        )
        out.append(vl_convert.vegalite_to_svg(chart.to_dict()))
    return out


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


def paragraphs_html(paragraphs: list[str]) -> list[str]:
    """Paragraphs that begin with "- " are items of a list."""
    out, items = [], []
    for text in [*paragraphs, ""]:
        if text.startswith("- "):
            items.append(f"<li>{html.escape(text[2:])}</li>")
            continue
        if items:
            out.append(f"<ul>{''.join(items)}</ul>")
            items = []
        if text:
            out.append(f"<p>{html.escape(text)}</p>")
    return out


def section_html(number: int, section: dict) -> str:
    out = [
        f'<section id="s{number}" class="{"short" if section["title"] == "In short" else ""}">'
        f"<h2>{html.escape(section['title'])}</h2>"
    ]
    out += paragraphs_html(section["paragraphs"])
    if section["chart"] in CHARTS and section["data"]:
        svgs = "".join(chart_svgs(section["chart"], section["data"]))
        caption = html.escape(CAPTIONS[section["chart"]])
        out.append(
            f'<figure><div class="panels">{svgs}</div><figcaption>{caption}</figcaption></figure>'
        )
    out += [table_html(table) for table in section["tables"]]
    out += paragraphs_html(section["remarks"])
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
