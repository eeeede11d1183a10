# Claim: what README.md says of files, commands, variables, error codes and order is so.
# How: it is compared with config.cc's variables, error.h's codes, ./run's commands and the files there are.

import ast
import re

from tree import ROOT, read, report

README = read(ROOT / "README.md")
ORDER = [
    "What it protects, and from whom",
    "One command",
    "Install",
    "Five lines",
    "torchrun",
    "The job key",
    "Environment",
    "Operations, types, devices",
    "Numbers",
    "When something goes wrong",
    "Libraries, and why each is there",
]


def test_sections_stand_in_order():
    assert re.findall(r"^## (.*)$", README, re.MULTILINE) == ORDER


def test_variables_are_those_of_the_library():
    source = read(ROOT / "sealring" / "collective" / "config.cc")
    table = re.search(r"kVariables = \{(.*?)\};", source, re.DOTALL)
    assert table, "config.cc no longer lists kVariables"
    known = set(re.findall(r"SEALRING_\w+", table.group(1)))
    listed = set(re.findall(r"^\| `(SEALRING_\w+)` \|", README, re.MULTILINE))
    assert listed == known
    assert set(re.findall(r"SEALRING_[A-Z_]*[A-Z]", README)) == known


def test_python_knows_the_variables_and_flags_of_the_library():
    """python/sealring/_environment.py looks at them before the library is loaded."""
    source = read(ROOT / "sealring" / "collective" / "config.cc")
    module = ast.parse(read(ROOT / "python" / "sealring" / "_environment.py"))
    python = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in module.body
        if isinstance(node, ast.Assign)
    }
    table = re.search(r"kVariables = \{(.*?)\};", source, re.DOTALL)
    assert list(python["VARIABLES"]) == re.findall(r"SEALRING_\w+", table.group(1))
    flags = re.findall(r'key == "(\w+)"\) \{\s*SR_TRY\([\w.]+, parse_flag', source)
    assert flags and sorted(python["FLAGS"]) == sorted(f"SEALRING_{flag}" for flag in flags)


def test_codes_are_those_of_the_library():
    header = read(ROOT / "sealring" / "base" / "error.h")
    codes = {label.upper(): number for label, number in re.findall(r"\b([a-z]\w+) = (\d{3})\b", header)}
    section = README.split("## When something goes wrong")[1]
    listed = re.findall(r"\b(\d{3}) ([A-Z_]{4,})\b", section)
    assert len(listed) >= 15
    wrong = [f"{number} {label}" for number, label in listed if codes.get(label) != number]
    assert not wrong, report(wrong)
    assert len(set(codes.values())) == len(codes), "a number stands for two codes"


def test_commands_exist():
    commands = set(re.findall(r"^    (\w[\w-]*)(?: \| [^)]*)?\) ", read(ROOT / "run"), re.MULTILINE))
    assert {"study", "test", "build", "bundle", "help"} <= commands
    named = set(re.findall(r"\./run (?:--no-packages )?([\w-]+)", README + read(ROOT / "CONTRIBUTING.md")))
    assert named and named <= commands


def test_named_files_exist():
    named = set(re.findall(r"\]\(([^)#:]+)\)", README)) | set(re.findall(r"examples/\w+\.py", README))
    named |= set(re.findall(r"`((?:sealring|tests|docs|cli|python)(?:/[\w/]*)?)`", README))
    assert {"ARCHITECTURE.md", "examples/train_ddp.py"} <= named
    missing = sorted(path for path in named if not (ROOT / path).exists())
    assert not missing, report(missing)
