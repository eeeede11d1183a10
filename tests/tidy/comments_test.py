# Claim: a test file says what it claims and how it shows it; a header says what it is; each clause that
#   docs/wire-format.md lists is cited in the code that obeys it and in a test.
# How: the first lines of each file are read, and the citations are collected and compared.

import itertools
import re

import pytest
from tree import ROOT, files, name, read, report

CLAUSE = re.compile(r"RFC (\d+) §([\w.]*\w)")
DOCUMENT = ROOT / "docs" / "wire-format.md"


def head_of(path):
    """The comment (C++) or the docstring or comment (Python) that a file opens with, on one line."""
    text = read(path)
    if path.suffix == ".py" and (docstring := re.match(r'"""(.*?)"""', text, re.DOTALL)):
        return " ".join(docstring.group(1).split())
    mark = "//" if path.suffix == ".cc" else "#"
    comment = itertools.takewhile(lambda line: line.startswith(mark), text.splitlines())
    return " ".join(line.removeprefix(mark).strip() for line in comment)


@pytest.mark.parametrize("suffix", [".cc", ".py"])
def test_test_files_open_with_claim_and_means(suffix):
    tests = [path for path in files("tests", suffixes=(suffix,)) if path.stem.endswith("_test")]
    assert tests
    wrong = [
        f"{name(path)}: open with 'Claim: ...' and 'How: ...'"
        for path in tests
        if not re.match(r"Claim: \S.* How: \S", head_of(path))
    ]
    assert not wrong, report(wrong)


def test_headers_begin_with_a_comment():
    headers = files("sealring", "cli", "python", "tests", "fuzz", "bench", suffixes=(".h", ".cuh"))
    assert headers
    wrong = [
        f"{name(path)}: say in the first line what it is"
        for path in headers
        if not read(path).startswith("// ")
    ]
    wrong += [
        f"{name(path)}: #pragma once is missing" for path in headers if "#pragma once" not in read(path)
    ]
    assert not wrong, report(wrong)


def test_python_modules_begin_with_a_docstring_or_comment():
    modules = files("python", "examples", suffixes=(".py",))
    wrong = [name(path) for path in modules if not re.match(r'(#!.*\n)?("""|# )', read(path))]
    assert not wrong, report(wrong)


def clauses(paths):
    """The clauses cited in these files; a clause stands for those below it (§5.3.1 cites §5.3)."""
    found = set()
    for path in paths:
        for number, section in CLAUSE.findall(read(path)):
            parts = section.split(".")
            found.update(f"RFC {number} §{'.'.join(parts[:depth])}" for depth in range(1, len(parts) + 1))
    return found


def test_listed_clauses_are_cited_in_code_and_in_a_test():
    assert DOCUMENT.is_file(), "docs/wire-format.md is missing: it lists the clauses that the code obeys"
    listed = {f"RFC {number} §{section}" for number, section in CLAUSE.findall(read(DOCUMENT))}
    assert listed, "docs/wire-format.md lists no clause"
    in_code, in_tests = clauses(files("sealring")), clauses(files("tests"))
    wrong = [f"{clause}: cited nowhere in sealring/" for clause in sorted(listed - in_code)]
    wrong += [f"{clause}: cited in no test" for clause in sorted(listed - in_tests)]
    assert not wrong, report(wrong)
