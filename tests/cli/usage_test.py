# Claim: every verb explains itself, wrong usage exits 2 and says what was probably meant, nothing is
#   half done. A message is one line, whatever the environment holds.
# How: the tool is run with each verb's help, with wrong words, flags and values, and with a hostile path.

import re

import pytest

VERBS = ("keygen", "bench", "study", "report", "doctor", "explain")


def test_help_lists_every_verb_and_no_hidden_one(tool):
    shown = tool("--help")
    assert shown.returncode == 0
    assert re.findall(
        r"^  (\w[\w-]*) ", shown.stdout.split("Subcommands:")[1].split("Start here")[0], re.M
    ) == list(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_examples(tool, verb):
    shown = tool(verb, "--help")
    assert shown.returncode == 0
    assert "Examples:" in shown.stdout and f"sealring {verb}" in shown.stdout


def test_bench_help_explains_every_column(tool):
    head = tool("bench", "all_reduce", "--transport", "loopback", "-b", "64", "-e", "64", "-n", "1").stdout
    columns = [line for line in head.splitlines() if line.startswith("#") and "time(us)" in line][0]
    text = tool("bench", "--help").stdout.split("Columns:")[1]
    for column in re.split(r"\s{1,}(?=\S)", columns[1:].strip().replace("x plain", "x_plain")):
        assert re.search(
            rf"^  {re.escape(column.replace('_', ' ') if column == 'x_plain' else column)} ", text, re.M
        ), column


@pytest.mark.parametrize(
    "arguments, said",
    [
        ((), "required"),
        (("benhc",), "did you mean bench?"),
        (("bench", "all_reduce", "--rank", "2"), "did you mean --ranks?"),
        (("bench", "all_reduce", "--suites", "plain"), "did you mean --suite?"),
        (("study", "--blokcs", "5"), "did you mean --blocks?"),
        (("bench", "all_redcue"), "did you mean all_reduce?"),
        (("bench", "all_reduce", "--suite", "aes-256-gmc"), "did you mean aes-256-gcm?"),
        (("bench", "all_reduce", "--dtype", "fp23"), "did you mean fp32?"),
        (("bench", "all_reduce", "--redop", "summ"), "did you mean sum?"),
        (("bench", "all_reduce", "--algorithm", "rinq"), "did you mean ring?"),
        (("bench", "broadcast", "--algorithm", "ring"), "no algorithm ring"),
        (("bench", "all_reduce", "--transport", "carrier"), "there is no transport"),
        (("bench", "all_reduce", "-b", "1Q"), "is no size"),
        (("bench", "all_reduce", "-b", "2M", "-e", "1M"), "must rise"),
        (("bench", "all_reduce", "-f", "1"), "must rise"),
        (("bench", "all_reduce", "--segment", "100"), "multiple of 64"),
        (("bench", "all_reduce", "--dtype", "int32", "--redop", "premul_sum"), "does not exist"),
        (("bench", "all_reduce", "--suite", "gloo"), "no comparison"),
        (("bench", "all_gather", "--suite", "gloo,plain"), "all_reduce only"),
        (("bench", "broadcast", "--ranks", "2", "--root", "5"), "must be a rank"),
        (("bench", "all_reduce", "--ranks", "1"), "--ranks"),
        (("bench", "all_reduce", "--ranks", "4", "--node-ranks", "3"), "do not lie on nodes"),
        (("bench", "all_reduce", "--ranks", "4", "--algorithm", "two-level"), "--node-ranks"),
        (("bench", "all_reduce", "--algorithm", "two-levle"), "did you mean two-level?"),
        (("explain", "DATA_TGA"), "did you mean DATA_TAG?"),
        (("explain", "9999"), "there is no code"),
        (("explain", "foo"), 'there is no code "foo"; --all lists them'),
        (("explain",), "give a code"),
        (("study", "--preset", "desktop"), "--preset"),
        (("report",), "RESULTS"),
        (("keygen",), "FILE"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_wrong_usage(tool, arguments, said):
    got = tool(*arguments)
    assert got.returncode == 2, got.stderr
    assert said in got.stderr
    assert got.stdout == ""


def test_unknown_environment_variable_names_the_nearest(tool):
    got = tool("doctor", env={"SEALRING_SUIT": "plain"})
    assert got.returncode == 1
    assert "SR-E103" in got.stderr and "SEALRING_SUITE" in got.stderr
    far = tool("doctor", env={"SEALRING_FOO": "1"})
    assert far.returncode == 1 and "SEALRING_FOO" in far.stderr and "did you mean" not in far.stderr


@pytest.mark.parametrize("word", ["602", "E602", "SR-E602", "data_tag"])
def test_explain_takes_a_code_in_every_form(tool, word):
    got = tool("explain", word)
    assert got.returncode == 0 and got.stdout.startswith("SR-E602  DATA_TAG")
    assert "What to do: make all ranks call" in got.stdout and "poisoned" in got.stdout


@pytest.mark.parametrize("verb", VERBS)
def test_help_shows_nothing_of_the_parser(tool, verb):
    text = tool(verb, "--help").stdout
    assert not re.search(r"\b(UINT|INT in|FLOAT)\b|\{", text), text
    assert "Start here" not in text


def test_version(tool):
    assert re.fullmatch(r"sealring \d+\.\d+\.\d+\n", tool("--version").stdout)


@pytest.mark.parametrize("there", [False, True])
def test_text_from_the_environment_forges_no_line(tool, tmp_path, there):
    path = f"{tmp_path}/a\nSR-E0 fine\x1b[2J"
    if there:
        assert tool("keygen", tmp_path / "b").returncode == 0
        (tmp_path / "b").rename(path)
    got = tool("doctor", env={"SEALRING_JOB_KEY_FILE": path})
    text = got.stdout + got.stderr
    assert r"a\nSR-E0 fine\x1b[2J" in text and "\x1b" not in text
    assert not re.search(r"^SR-E0", text, re.M)
