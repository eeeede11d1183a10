"""Ranks as real processes: a fork server that has imported torch once, so that a test costs milliseconds a
rank."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import multiprocessing
import os
import pathlib
import socket
import sys
import time
import traceback

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

SLOW = float(os.environ.get("SR_TEST_SLOW", "1"))  # multiplies every bound on time
_context = multiprocessing.get_context("forkserver")
# DDP imports torch._dynamo when it is made, which takes longer than all the rest.
_context.set_forkserver_preload(
    ["torch", "torch.distributed", "torch._dynamo", "numpy", "pytest", "sealring"]
)


@dataclasses.dataclass
class Outcome:
    """What became of a rank: its function's value, or the text of its exception, or neither if it was
    killed."""

    value: object = None
    error: str | None = None
    log: str = ""
    exit_code: int | None = None
    seconds: float = 0.0

    def ok(self):
        assert (
            self.error is None and self.exit_code == 0
        ), f"{self.error}\nexit {self.exit_code}\n{self.log[-4000:]}"
        return self.value


def write_key(path: pathlib.Path, mode: int = 0o600, extra: str = "") -> pathlib.Path:
    path.write_text(f"sealring-job-key-1 {base64.b64encode(os.urandom(32)).decode()}{extra}\n")
    path.chmod(mode)
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _child(function, rank, world, arguments, environment, log_path, pipe):
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for name in [name for name in os.environ if name.startswith("SEALRING_")]:
        del os.environ[name]
    os.environ.update({name: value for name, value in environment.items() if value is not None})
    import torch

    torch.set_num_threads(1)
    begin = time.monotonic()
    try:
        result = ("value", function(rank, world, *arguments))
    except BaseException as problem:
        traceback.print_exc()
        result = ("error", f"{type(problem).__name__}: {problem}")
    pipe.send((*result, time.monotonic() - begin))
    pipe.close()
    with contextlib.suppress(Exception):
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()


class Ranks:
    """Starts `world` processes of function(rank, world, *arguments) and collects their outcomes."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.runs = 0
        self.key = write_key(folder / "job.key")

    def start(self, world, function, *arguments, env=None, env_of=None):
        self.runs += 1
        self.logs = [self.folder / f"run{self.runs}-rank{rank}.log" for rank in range(world)]
        self.pipes, self.processes = [], []
        common = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "WORLD_SIZE": str(world),
            "LOCAL_WORLD_SIZE": str(world),
            "SEALRING_JOB_KEY_FILE": str(self.key),
            "TORCH_DISTRIBUTED_DEBUG": "OFF",
        }
        for rank in range(world):
            mine = {
                **common,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                **(env or {}),
                **((env_of or {}).get(rank, {})),
            }
            here, there = _context.Pipe(duplex=False)
            process = _context.Process(
                target=_child, args=(function, rank, world, arguments, mine, str(self.logs[rank]), there)
            )
            process.daemon = False  # a rank may have children: DataLoader's workers
            process.start()
            there.close()
            self.pipes.append(here)
            self.processes.append(process)
        return self

    def finish(self, timeout=30.0):
        deadline = time.monotonic() + timeout * SLOW
        outcomes = []
        for pipe, process, log in zip(self.pipes, self.processes, self.logs):
            outcome = Outcome()
            try:
                if pipe.poll(max(0.0, deadline - time.monotonic())):
                    kind, what, outcome.seconds = pipe.recv()
                    setattr(outcome, kind, what)
            except EOFError:
                pass
            process.join(max(0.1, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
                outcome.error = outcome.error or f"still running after {timeout} s"
            outcome.exit_code = process.exitcode
            outcome.log = log.read_text(errors="replace") if log.exists() else ""
            outcomes.append(outcome)
        return outcomes

    def run(self, world, function, *arguments, env=None, env_of=None, timeout=30.0):
        return self.start(world, function, *arguments, env=env, env_of=env_of).finish(timeout)

    def values(self, world, function, *arguments, **options):
        return [outcome.ok() for outcome in self.run(world, function, *arguments, **options)]


@pytest.fixture
def ranks(tmp_path):
    harness = Ranks(tmp_path)
    yield harness
    for process in getattr(harness, "processes", []):
        if process.is_alive():
            process.kill()


@pytest.fixture
def key_file(tmp_path):
    return write_key(tmp_path / "test.key")
