"""The tree as the tidy tests see it: its files, C++ without comments and strings, and the functions in it."""

import ast
import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CPP = (".h", ".cc", ".cu", ".cuh")
TEXT = CPP + (".py", ".md", ".txt", ".cmake", ".toml", ".json", ".sh", ".lock", ".in", "")
NOT_OURS = {"build", "out", "__pycache__", "results", "data", "corpus"}


def files(*folders, suffixes=CPP):
    """The files below these folders of the project ("." is all of it), but not what is built or recorded."""
    found = []
    for folder in folders:
        for at, below, names in os.walk(ROOT / folder):
            below[:] = [each for each in below if not each.startswith(".") or each == ".ci"]
            below[:] = [each for each in below if each not in NOT_OURS]
            paths = (Path(at) / each for each in names if not each.startswith("."))
            found += [path for path in paths if path.suffix in suffixes]
    return sorted(found)


def name(path):
    return path.relative_to(ROOT).as_posix()


def read(path):
    return path.read_text(encoding="utf-8")


_TOKENS = re.compile(
    r"//[^\n]*|/\*.*?\*/|"  # comments
    r'R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|'  # strings
    r"(?<!\w)'(?:\\.|[^'\\\n])+'",  # characters, but not the separators of a number
    re.DOTALL,
)


def code_of(text):
    """C++ with comments blanked and literals emptied; every line keeps its number."""

    def blank(match):
        token = match.group()
        lines = "\n" * token.count("\n")
        return lines if token.startswith("/") else '""' + lines

    return _TOKENS.sub(blank, text)


def _without_preprocessor(code):
    return re.sub(
        r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
        lambda match: "\n" * match.group().count("\n"),
        code,
        flags=re.MULTILINE,
    )


def _is_function(head):
    """Whether the text before a brace outside of any function opens a function's body."""
    if re.search(r"\b(namespace|extern)\b", head) or "(" not in head or re.search(r"=\s*$", head):
        return False
    return not re.match(r"(template\s*<[^()]*>\s*)?(class|struct|union|enum)\b[^()]*$", head)


def cpp_functions(text):
    """(name, first line, lines) of each function body that is not inside of another."""
    code = _without_preprocessor(code_of(text))
    found, scopes = [], []  # a scope is None, or (name, first line) of the function it is the body of
    head_begin = 0
    for mark in re.finditer(r"[{};]", code):
        if mark.group() == "{":
            head = code[head_begin : mark.start()].strip()
            if not any(scopes) and _is_function(head):
                label = re.search(r"([~\w:]+(?:\([^()]*\))?)\s*\(", head)
                first = re.compile(r"\S").search(code, head_begin).start()
                scopes.append((label.group(1) if label else head[:40], code.count("\n", 0, first) + 1))
            else:
                scopes.append(None)
        elif mark.group() == "}" and scopes and (closed := scopes.pop()):
            found.append((closed[0], closed[1], code.count("\n", 0, mark.start()) + 2 - closed[1]))
        head_begin = mark.end()
    return found


def python_functions(text):
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        (node.name, node.lineno, node.end_lineno - node.lineno + 1)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, kinds)
    ]


def bash_functions(text):
    found, begin = [], None
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r"(\w+)\(\) \{", line):
            begin = (match.group(1), number)
        elif line == "}" and begin:
            found.append((*begin, number - begin[1] + 1))
            begin = None
    return found


def includes(text):
    """(line number, included file, quoted) of each include."""
    pattern = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
    return [
        (number, match.group(2), match.group(1) == '"')
        for number, line in enumerate(text.splitlines(), 1)
        if (match := pattern.match(line))
    ]


def hits(pattern, paths, code_only=True):
    """ "file:line: text" wherever the pattern stands."""
    expression, found = re.compile(pattern), []
    for path in paths:
        text = read(path)
        searched = code_of(text) if code_only else text
        shown = text.splitlines()
        for number, line in enumerate(searched.splitlines(), 1):
            if expression.search(line):
                found.append(f"{name(path)}:{number}: {shown[number - 1].strip()}")
    return found


def report(found):
    """An assertion's message: one complaint a line."""
    return "\n" + "\n".join(found)
