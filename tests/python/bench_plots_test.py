# Claim: a picture of a bench's record names every suite and size, keeps to one place, draws bounds on thread
# blocks apart, and files that do not belong together are refused.
# How: made-up records, drawn as SVG and read as text; wrong files by the command line.

import json
import re
import subprocess
import sys

import pytest

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

from sealring import bench_plots  # noqa: E402


def row(suite, size, in_place=True, median=100.0):
    return {
        "suite": suite,
        "size_bytes": size,
        "in_place": in_place,
        "median_us": median,
        "busbw_gb_s": size / median / 1000,
        "samples_us": [median * (1 + i / 1000) for i in range(20)],
    }


def record(rows, op="all_reduce"):
    return {
        "schema": "sealring-bench-1",
        "origin": "measured",
        "date": "2026-01-02T03:04:05Z",
        "machine": {"gpus": ["Some GPU", "Some GPU"], "cpu": "Some CPU", "cc": "CC off"},
        "spec": {"op": op, "dtype": "fp32", "ranks": 2, "commit": "0123456789ab"},
        "rows": rows,
    }


def texts(svg):
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_every_suite_and_size_is_named():
    rows = [row(suite, size) for suite in ("nccl", "aes-256-gcm") for size in (1 << 16, 1 << 20, 3 << 30)]
    found = texts(bench_plots.picture([record(rows)], True))
    assert {"64 KiB", "1 MiB", "3 GiB", "NCCL, plain, as it comes", "aes-256-gcm, sealed"} <= set(found)
    head = "all_reduce fp32, 2 ranks, in place; 2 x Some GPU, CC off; measured, 2026-01-02"
    assert head + ", commit 0123456789ab" in found


def test_bounds_on_thread_blocks_are_drawn_apart_and_the_other_suites_beside_them():
    rows = [row("nccl", 1 << 28)] + [row(f"chacha20-poly1305:{c}", 1 << 28) for c in (16, 66, 396)]
    found = texts(bench_plots.picture([record(rows), record([row("nccl", 1 << 20)])], True))
    assert {"by size", "by thread blocks, 256 MiB", "16", "66", "396"} <= set(found)
    points = bench_plots.points_of(record(rows), True)
    assert [point["columns"] for point in points] == [None, 16, 66, 396]


def test_the_bar_holds_the_middle_of_the_samples():
    [point] = bench_plots.points_of(record([row("plain", 1 << 20)]), True)
    assert point["low"] < point["busbw"] <= point["high"]
    assert point["low"] == pytest.approx((1 << 20) / 100 / 1000 / 1.019)


def test_rows_of_the_other_place_are_left_out():
    assert bench_plots.points_of(record([row("nccl", 1 << 20, False)]), True) == []
    with pytest.raises(ValueError, match="no row of that place"):
        bench_plots.picture([record([row("nccl", 1 << 20, False)])], True)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ([record([row("nccl", 1)]), record([row("nccl", 1)], "all_gather")], "not of one operation"),
        ([{"schema": "something else"}], "is no record of `sealring bench`"),
    ],
)
def test_files_that_do_not_belong_are_refused(tmp_path, files, says):
    names = []
    for i, file in enumerate(files):
        names.append(str(tmp_path / f"{i}.json"))
        (tmp_path / f"{i}.json").write_text(json.dumps(file))
    out = tmp_path / "out.svg"
    command = [sys.executable, "-m", "sealring.bench_plots", *names, "-o", str(out)]
    got = subprocess.run(command, capture_output=True, text=True)
    assert got.returncode == 1 and says in got.stderr and not out.exists()
