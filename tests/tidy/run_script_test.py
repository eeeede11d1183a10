# Claim: ./run refuses what it cannot serve with status 2 and says what to do; help names every command.
# How: the script is run with wrong words and with the release file of an unknown distribution.

import os
import re
import subprocess

import pytest
from tree import ROOT, read


def run(*words, **environment):
    return subprocess.run(
        ["bash", str(ROOT / "run"), *words],
        cwd="/",
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_help_names_every_command():
    shown = run("help")
    assert shown.returncode == 0 and shown.stderr == ""
    commands = re.findall(r"^    (\w[\w-]*)(?: \| [^)]*)?\) ", read(ROOT / "run"), re.MULTILINE)
    assert len(commands) >= 5
    for command in commands:
        assert re.search(rf"^  {command} ", shown.stdout, re.MULTILINE), command
    assert run().stdout == shown.stdout


@pytest.mark.parametrize("words", [["nonsense"], ["test", "--everything"], ["study", "--preset"]])
def test_wrong_words_are_refused(words):
    refused = run(*words)
    assert refused.returncode == 2
    assert words[-1] in refused.stderr


@pytest.mark.parametrize("command", ["study", "test", "build"])
@pytest.mark.parametrize("release", ["ID=plan9\nVERSION_ID=4\n", "ID=debian\nVERSION_ID=11\n", ""])
def test_unknown_distribution_gets_the_list(tmp_path, command, release):
    (tmp_path / "os-release").write_text(release)
    refused = run(command, OS_RELEASE=str(tmp_path / "os-release"))
    assert refused.returncode == 2
    assert f"./run --no-packages {command}" in refused.stderr
    for package in ("g++", "cmake", "libssl-dev", "libexpected-dev", "python3-venv"):
        assert f"  {package}\n" in refused.stderr, package


@pytest.mark.parametrize("release, clang", [("debian 12", 14), ("debian 13", 19), ("ubuntu 24.04", 18)])
def test_known_distributions_have_packages(tmp_path, release, clang):
    """Of a known one, only what is missing is named: here with a dpkg-query that has nothing, and no sudo."""
    name, version = release.split()
    (tmp_path / "os-release").write_text(f'ID={name}\nVERSION_ID="{version}"\n')
    script = f"""
      set -- help
      source "{ROOT}/run" >/dev/null
      setup() {{ system_packages all "$(clang_version)" | missing_of; }}
      dpkg-query() {{ return 1; }}
      setup
    """
    listed = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "OS_RELEASE": str(tmp_path / "os-release")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert listed.returncode == 0, listed.stderr
    packages = listed.stdout.split()
    assert f"clang-{clang}" in packages and "libgtest-dev" in packages and len(packages) == len(set(packages))
