# Claim: study and report refuse what they cannot do, and a report is written whole from good results only.
#   Nothing in the working folder is executed.
# How: presets, interpreters and results that are not there, damaged results, a full disk, modules named as
#   Python's own; slow: a whole short study.

import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import time

import pytest

GLOO_BENCH = "bench all_reduce --suite gloo,plain --ranks 2 -b 64 -e 64 -n 1".split()


def test_paper_preset_refuses_without_gpu(tool, tmp_path):
    got = tool("study", "--preset", "paper", "-o", tmp_path / "results.json")
    assert got.returncode == 1
    assert re.search(r"SR-E(120|102)", got.stderr) and "--preset laptop" in got.stderr
    assert not (tmp_path / "results.json").exists()


def test_study_without_interpreter(tool, tmp_path):
    got = tool("study", "-o", tmp_path / "results.json", "--python", "/no/such/python")
    assert got.returncode == 1 and "SR-E104" in got.stderr and "/no/such/python" in got.stderr


def test_study_with_an_interpreter_that_fails_shows_its_log(tool, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no torch here >&2\nexit 1\n")
    python.chmod(0o755)
    got = tool("study", "-o", tmp_path / "results.json", "--python", python)
    assert got.returncode == 1 and "SR-E603" in got.stderr and "rank 0 ends with" in got.stderr
    assert "no torch here" in got.stderr


def test_study_into_an_unwritable_place(tool, tmp_path):
    (tmp_path / "file").write_text("")
    got = tool("study", "-o", tmp_path / "file" / "results.json")
    assert got.returncode == 1 and "SR-E104" in got.stderr


def test_no_space_to_write(tool, tmp_path):
    def limit():  # SIGXFSZ is ignored in the tool's parent below, so that the write fails instead
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    bench = f"'{tool.path}' bench all_reduce --transport loopback -b 64 -e 64 -n 1 --json '{tmp_path}/x.json'"
    command = f"trap '' XFSZ; exec {bench}"
    got = subprocess.run(["sh", "-c", command], capture_output=True, text=True, preexec_fn=limit, timeout=60)
    assert got.returncode == 1 and re.search(r"SR-E10[45]", got.stderr)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="session")
def results(tool, tmp_path_factory):
    """The made-up study of tests/study (a real one does not fit into a quick test)."""
    path = tmp_path_factory.mktemp("results") / "results.json"
    golden = pathlib.Path(__file__).parents[1] / "study" / "golden" / "results.json"
    path.write_text(golden.read_text())
    return path


def test_report_writes_markdown_and_one_html_page(tool, results, tmp_path):
    got = tool("report", results, "-o", tmp_path / "out")
    assert got.returncode == 0, got.stderr
    markdown = (tmp_path / "out" / "report.md").read_text()
    for title in (
        "In short",
        "Slowdown",
        "Where the time goes",
        "The count law",
        "Published numbers",
        "What this protects",
    ):
        assert f"\n## {title}" in markdown
    if "no HTML" in got.stderr:
        pytest.skip("altair or vl-convert-python is not there: " + got.stderr)
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("<svg") >= 8  # two models: a picture each
    assert "slowdown left with 400 MB" in page and "n4-bucket-left" not in page
    assert ">small GPT-2<" in page and ">gpt2<" not in page
    assert not re.search(r"(src|href)=\"(https?:)?//", page) and "<script" not in page


def test_a_page_that_was_not_written_is_not_named(tool, results, tmp_path):
    got = tool("report", results, "-o", tmp_path, "--python", "/bin/true")
    assert got.returncode == 0 and "no HTML" in got.stderr and "report.html" not in got.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.md"]


def test_modules_of_the_working_folder_are_not_executed(tool, results, tmp_path):
    (tmp_path / "sealring").mkdir()
    for name in ("html.py", "random.py", "json.py", "altair.py", "sealring/__init__.py"):
        (tmp_path / name).write_text(f"open({str(tmp_path / 'executed')!r}, 'a').write(__name__)\n")
    tool("report", results, "-o", tmp_path / "out", cwd=tmp_path)
    tool(*GLOO_BENCH, cwd=tmp_path)
    assert not (tmp_path / "executed").exists()
    assert (tmp_path / "out" / "report.md").exists()


def test_every_verb_keeps_the_working_folder_out_of_the_interpreter(tool, results, tmp_path):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho \"$@\" >>'{tmp_path}/arguments'\nexit 1\n")
    python.chmod(0o755)
    for verb in (("report", results, "-o", tmp_path), ("study", "-o", tmp_path / "r.json"), GLOO_BENCH):
        tool(*verb, "--python", python)
        started = (tmp_path / "arguments").read_text().splitlines()
        assert started and all(line.startswith("-P -m sealring.") for line in started), (verb, started)
        (tmp_path / "arguments").unlink()


def test_report_without_python_keeps_the_markdown(tool, results, tmp_path):
    got = tool("report", results, "-o", tmp_path, "--python", "/no/such/python")
    assert got.returncode == 0 and "no HTML" in got.stderr
    assert (tmp_path / "report.md").read_text().startswith("# ")


@pytest.mark.parametrize("damage", ["truncated", "edited", "foreign", "empty", "absent"])
def test_damaged_results_are_refused(tool, results, tmp_path, damage):
    path, text = tmp_path / "results.json", results.read_text()
    if damage == "truncated":
        path.write_text(text[: len(text) // 2])
    if damage == "edited":
        data = json.loads(text)
        data["content"]["blocks"][0]["runs"][0]["iteration_ms"][0] *= 0.5
        path.write_text(json.dumps(data))
    if damage == "foreign":
        path.write_text("{}")
    if damage == "empty":
        path.write_text("")
    got = tool("report", path, "-o", tmp_path / "out")
    assert got.returncode == 1
    assert ("SR-E104" if damage == "absent" else "SR-E111") in got.stderr and "results.json" in got.stderr
    assert not (tmp_path / "out" / "report.md").exists()


def run_interrupted(tool, tmp_path, *arguments):
    """A study whose ranks never get ready, ended by Ctrl-C as from a terminal."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\ntouch $0.started\nexec sleep 60\n")
    python.chmod(0o755)
    run = subprocess.Popen(
        [tool.path, "study", *map(str, arguments), "--python", str(python)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 30
    while not (tmp_path / "python.started").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(run.pid, signal.SIGINT)
    out, err = run.communicate(timeout=30)
    return run.returncode, out, err


def test_an_interrupted_study_says_what_is_kept(tool, results, tmp_path):
    path = tmp_path / "results.json"
    code, out, err = run_interrupted(tool, tmp_path, "--iterations", 3, "--resume", results, "-o", path)
    assert code == 130 and out == ""
    assert f"sealring study: interrupted. The 12 blocks finished so far are kept in {path}" in err
    assert f"sealring study --resume {path} -o {path} --iterations 3" in err
    assert "SR-E" not in err and "rank=" not in err
    assert "starting 2 ranks" in err  # no terminal: lines instead of a bar
    assert tool("report", path, "-o", tmp_path, "--python", "/no/such/python").returncode == 0


def test_a_study_interrupted_before_its_first_block(tool, tmp_path):
    path = tmp_path / "results.json"
    code, _, err = run_interrupted(tool, tmp_path, "-o", path)
    assert code == 130 and "no block was finished" in err and "SR-E" not in err
    got = tool("report", path, "-o", tmp_path / "out", "--python", "/no/such/python")
    assert got.returncode == 0 and "no finished block" in got.stderr
    markdown = (tmp_path / "out" / "report.md").read_text()
    assert "no finished block" in markdown and "## Slowdown" not in markdown


@pytest.mark.slow
def test_a_short_study_end_to_end(tool, tmp_path):
    path = tmp_path / "results.json"
    got = tool("study", "--only", "gpt2", "--blocks", 1, "--iterations", 2, "-o", path, timeout=1500)
    assert got.returncode == 0, got.stderr
    content = json.loads(path.read_text())["content"]
    final = [run for block in content["blocks"] if block["stage"] == 2 for run in block["runs"]]
    assert len(final) >= 6
    assert (
        len({run["parameters_sha256"] for run in final}) == 1
    )  # sealed, plain and Gloo train the same bits at n = 2
    sealed = [run for run in final if "/sealed-" in run["case_id"]]
    assert all(run["sealed_bytes"] == sum(run["buckets_after"]) for run in sealed)
    again = tool(
        "study",
        "--only",
        "gpt2",
        "--blocks",
        2,
        "--iterations",
        2,
        "-o",
        path,
        "--resume",
        path,
        timeout=1500,
    )
    assert again.returncode == 0, again.stderr
    blocks = [block["stage"] for block in json.loads(path.read_text())["content"]["blocks"]]
    assert blocks == [1, 2, 2]
