# Claim: a function has at most 70 lines, a file 500 (a kernel file 600), a line 110 characters.
# How: every source is measured; the scanner that finds functions is itself tested on texts of known shape.

import pytest
from tree import bash_functions, cpp_functions, files, name, python_functions, read, report

FUNCTION_LINES, FILE_LINES, KERNEL_LINES, LINE_CHARACTERS = 70, 500, 600, 110
CPP_FILES = files("sealring", "cli", "python", "tests", "fuzz", "bench")
PYTHON_FILES = files("python", "tests", "examples", suffixes=(".py",))
BASH_FILES = [
    path for path in files(".", suffixes=("", ".sh")) if read(path).startswith("#!/usr/bin/env bash")
]
BUILD_FILES = [path for path in files(".", suffixes=(".txt", ".cmake")) if path.name != "LICENSE"]


def test_scanner_finds_functions_of_known_length():
    text = """namespace a {
struct S {
  int f() const { return 1; }  // {
  S(int x)
      : x_(x) {
  }
};
constexpr int kTable[] = {1, 2,
                          3};
template <class T>
T g(T x) {
  const char* brace = "{";
  auto h = [&](int y) {
    return y;
  };
  if (x) { return h(x); }
  return x;
}
#define M(x) { x
TEST(Suite, name) {
}
}
"""
    found = [(label.split("::")[-1], line, lines) for label, line, lines in cpp_functions(text)]
    assert found == [("f", 3, 1), ("S", 4, 3), ("g", 10, 9), ("TEST", 20, 2)]
    assert python_functions("def f():\n    return 1\n\nclass C:\n    def g(self):\n        pass\n") == [
        ("f", 1, 2),
        ("g", 5, 2),
    ]
    assert bash_functions("f() {\n  :\n}\n") == [("f", 1, 3)]


@pytest.mark.parametrize(
    "paths, scanner",
    [(CPP_FILES, cpp_functions), (PYTHON_FILES, python_functions), (BASH_FILES, bash_functions)],
    ids=["cpp", "python", "bash"],
)
def test_functions_are_short(paths, scanner):
    assert paths
    wrong = [
        f"{name(path)}:{line}: {label} has {lines} lines"
        for path in paths
        for label, line, lines in scanner(read(path))
        if lines > FUNCTION_LINES
    ]
    assert not wrong, report(wrong)


def test_files_are_short():
    wrong = []
    for path in CPP_FILES + PYTHON_FILES + BASH_FILES + BUILD_FILES:
        lines = read(path).count("\n")
        long_allowed = name(path).startswith("sealring/device/cuda/")
        if lines > (KERNEL_LINES if long_allowed else FILE_LINES):
            wrong.append(f"{name(path)}: {lines} lines")
    assert not wrong, report(wrong)


def test_lines_are_short():
    wrong = [
        f"{name(path)}:{number}: {len(line)} characters"
        for path in CPP_FILES + PYTHON_FILES + BASH_FILES + BUILD_FILES
        for number, line in enumerate(read(path).splitlines(), 1)
        if len(line) > LINE_CHARACTERS
    ]
    assert not wrong, report(wrong)
