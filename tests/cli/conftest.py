"""The tool under test: SR_TEST_CLI, else the `sealring` of PATH, else the newest one in a build folder."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def find_tool():
    candidates = [
        os.environ.get("SR_TEST_CLI"),
        shutil.which("sealring"),
        pathlib.Path(sys.executable).parent / "sealring",
    ]
    built = sorted(ROOT.glob("build/*/sealring"), key=lambda path: -path.stat().st_mtime)
    for candidate in [*candidates, *built]:
        if candidate and os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return str(candidate)
    return None


class Tool:
    def __init__(self, path):
        self.path = path

    def __call__(self, *arguments, env=None, timeout=120, **options):
        clean = {key: value for key, value in os.environ.items() if not key.startswith("SEALRING_")}
        for key in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            clean.pop(key, None)
        return subprocess.run(
            [self.path, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**clean, **(env or {})},
            stdin=subprocess.DEVNULL,
            **options,
        )


@pytest.fixture(scope="session")
def tool():
    path = find_tool()
    assert path, "no sealring tool: build it, or name it in SR_TEST_CLI"
    return Tool(path)


@pytest.fixture(scope="session")
def root():
    return ROOT
