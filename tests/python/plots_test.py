# Claim: pictures have room for their names, show what was cut off or lost in noise, and one panel a model.
# How: made-up points with a far outlier and a row without exposed time, drawn as SVG and read as text.

import re

import pytest

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

from sealring import plots  # noqa: E402

LONG = "own plain, ring, again (A/A)"


def texts(svg):
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_names_are_whole_and_have_room():
    points = [{"label": LONG, "value": 2, "n": 4}, {"label": "tree", "value": 80, "n": 2}]
    [svg] = plots.chart_svgs("quoted", points)
    assert LONG in texts(svg) and "80" in texts(svg)
    frame = re.search(r"translate\((\d+),\d+\)\"><g class=\"mark-group role-frame", svg)
    assert int(frame.group(1)) >= 0.5 * plots.FONT_SIZE * len(LONG)


def test_a_far_outlier_is_cut_off_and_named():
    points = [
        {"model": "small GPT-2", "engine": engine, "cap": cap, "ms": ms}
        for engine, cap, ms in [("a", 1, 80), ("a", 5, 82), ("b", 1, 84), ("b", 5, 900)]
    ]
    [svg] = plots.chart_svgs("buckets", points)
    assert "900 ms" in texts(svg) and "small GPT-2" in texts(svg)
    ticks = [float(text) for text in texts(svg) if re.fullmatch(r"\d+(\.\d+)?", text)]
    assert max(ticks) < 100


def test_exposed_time_lost_in_noise_is_said():
    def part(model, name, ms, lost):
        both = {"engine": LONG, "total": 80, "origin": "measured"}
        return {"model": model, "part": name, "ms": ms, "lost": lost, **both}

    points = [part("one", name, 80 if name == plots.PARTS[0] else 0, True) for name in plots.PARTS]
    points += [part("two", name, 20, False) for name in plots.PARTS]
    one, two = plots.chart_svgs("breakdown", points)
    assert "exposed ~0" in texts(one) and "exposed ~0" not in texts(two)


def test_paragraphs_that_begin_with_a_dash_are_a_list():
    assert plots.paragraphs_html(["a", "- b", "- <c>", "d"]) == [
        "<p>a</p>",
        "<ul><li>b</li><li>&lt;c&gt;</li></ul>",
        "<p>d</p>",
    ]
