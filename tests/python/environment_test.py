"""Claim: no group of any backend is made under an unknown SEALRING_* or a flag that is neither 0 nor 1; the
error is the library's; `import torch` works all the same, and nothing changes when no such variable is set.

How: scripts in processes of their own, also with the package as pip leaves it, damaged, or with warnings as
errors; the texts are compared with those of the command line tool.
"""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

import pytest

from conftest import SLOW, free_port
from safety_test import installed_copy, python

WRONG = [
    ("SEALRING_REQUIRE", "true"),
    ("SEALRING_REQUIRE", "yes"),
    ("SEALRING_REQUIRE", "on"),
    ("SEALRING_REQUIRE", "1 "),
    ("SEALRING_REQUIRE", "01"),
    ("SEALRING_REQUIRED", "1"),
    ("SEALRING_REQIURE", "1"),
    ("SEALRING_ALLOW_MIXED", "true"),
    ("SEALRING_HARDEN", "on"),
    ("SEALRING_BLOCKING_WAIT", "no"),
    ("SEALRING_KEY_FILE", "job.key"),
]

MAKE = """
import os, sys, torch, torch.distributed as dist
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1])
print("torch works", torch.ones(2).sum().item())
makers = {
    "gloo": lambda: dist.init_process_group("gloo"),
    "default": lambda: dist.init_process_group(),
    "sealring": lambda: dist.init_process_group("sealring"),
    "class": lambda: dist.ProcessGroupGloo(dist.HashStore(), 0, 1),
}
def attempt(name):
    try:
        makers[name]()
        print(name, "MADE")
        dist.destroy_process_group() if dist.is_initialized() else None
    except RuntimeError as problem:
        print(name, problem)
"""
ATTEMPTS = MAKE + "for name in makers: attempt(name)\n"


@pytest.mark.parametrize("name,value", WRONG)
def test_no_group_is_made_in_a_wrong_environment(tmp_path, name, value):
    folder = installed_copy(tmp_path / "site")
    result = python(ATTEMPTS, str(free_port()), PYTHONPATH=folder, **{name: value})
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "torch works 2.0" and len(lines) == 5
    for line in lines[1:]:
        assert "SR-E103" in line and "ENVIRONMENT" in line and name in line, line
    assert "RuntimeWarning" in result.stderr and name in result.stderr  # at the import


def test_the_nearest_name_is_offered(tmp_path):
    folder = installed_copy(tmp_path / "site")
    result = python(ATTEMPTS, str(free_port()), PYTHONPATH=folder, SEALRING_REQUIRED="1")
    assert "did you mean SEALRING_REQUIRE?" in result.stdout


@pytest.mark.parametrize("value", ["", "0", None])
def test_a_right_environment_changes_nothing(tmp_path, value):
    folder = installed_copy(tmp_path / "site")
    code = ATTEMPTS + "import sealring._environment\nprint('sealring._require' in sys.modules)\n"
    result = python(
        code, str(free_port()), PYTHONPATH=folder, SEALRING_REQUIRE=value, SEALRING_TORCH_INDEX="x"
    )
    lines = result.stdout.splitlines()
    assert lines[1:3] == ["gloo MADE", "default MADE"] and lines[4] == "class MADE", result.stderr
    assert lines[5] == "False" and "sealring:" not in result.stderr


def test_an_environment_that_is_put_right_is_obeyed(tmp_path):
    folder = installed_copy(tmp_path / "site")
    code = MAKE + (
        "attempt('gloo')\n"
        "os.environ['SEALRING_REQUIRE'] = '0'; attempt('gloo'); attempt('class')\n"
        "os.environ['SEALRING_REQUIRE'] = '1'; attempt('gloo'); attempt('class')\n"
    )
    result = python(code, str(free_port()), PYTHONPATH=folder, SEALRING_REQUIRE="true")
    found = [line.split(" stage")[0] for line in result.stdout.splitlines()[1:]]
    wanted = ["gloo SR-E103", "gloo MADE", "class MADE", "gloo SR-E115", "class SR-E115"]
    assert found == wanted, result.stdout + result.stderr


def test_a_group_that_is_already_there_is_refused():
    code = MAKE + "makers['gloo']()\nimport sealring\n"
    result = python(
        code, str(free_port()), TORCH_DEVICE_BACKEND_AUTOLOAD="0", SEALRING_REQUIRED="1", timeout=60 * SLOW
    )
    assert result.returncode == 1 and "SR-E103" in result.stderr, result.stderr


@pytest.mark.parametrize("variables", [{"SEALRING_REQUIRED": "1"}, {"SEALRING_REQUIRE": "true"}])
def test_a_broken_package_does_not_let_it_pass(tmp_path, variables):
    folder = installed_copy(tmp_path / "site")
    (folder / "sealring" / "_environment.py").write_text("raise ValueError('broken')\n")
    assert "torch works" in python("import torch; print('torch works')", PYTHONPATH=folder).stdout
    result = python("import torch; print('torch works')", PYTHONPATH=folder, **variables)
    assert result.returncode == 1 and "torch works" not in result.stdout


def test_warnings_as_errors_open_nothing(tmp_path):
    folder = installed_copy(tmp_path / "site")
    code = "import torch\n" + ATTEMPTS
    strict = {"PYTHONWARNINGS": "error::RuntimeWarning", "SEALRING_HARDEN": "on"}
    result = python(code, str(free_port()), PYTHONPATH=folder, **strict)
    assert "MADE" not in result.stdout and result.stdout.count("SR-E103") == 4, result.stdout + result.stderr


@pytest.mark.parametrize("name,value", [*WRONG, ("SEALRING_A\nSR-E0 b", "1"), ("SEALRING_HARDEN", "é" * 70)])
def test_the_error_is_the_librarys(name, value):
    beside = pathlib.Path(sys.executable).parent / "sealring"
    tool = str(beside) if beside.exists() else shutil.which("sealring")
    if tool is None:
        pytest.skip("the command line tool is not installed")
    library = subprocess.run([tool, "doctor"], env={name: value}, capture_output=True, text=True)
    assert library.returncode == 1
    result = python("from sealring import _environment; print(_environment.problem())", **{name: value})
    assert result.stdout == library.stderr


def test_an_error_is_one_line_whatever_it_quotes():
    code = "from sealring._errors import error; print(error(101, 'a', 'b\\nSR-E0 \\x1b[2J\\u2028é', 'c'))"
    assert python(code).stdout == r"SR-E101 stage=a: INVALID_ARGUMENT: b\nSR-E0 \x1b[2J\u2028é; c" + "\n"
