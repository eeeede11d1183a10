# Claim: bench measures right sums over tcp processes, loopback and launched ranks, keeps all samples,
#   and fails clearly.
# How: small runs of each kind, the JSON beside the table, thrown-away keys nowhere, a noisy limit,
#   killed and wrong ranks.

import json
import os
import signal
import socket
import subprocess
import time

import pytest

SMALL = ("-b", "1K", "-e", "64K", "-f", "8", "-n", "4", "-w", "1")


def test_two_processes_over_tcp(tool, tmp_path):
    path = tmp_path / "bench.json"
    got = tool("bench", "all_reduce", "--ranks", 2, *SMALL, "--suite", "all", "--json", path)
    assert got.returncode == 0, got.stderr
    assert "# 0 wrong elements" in got.stdout
    data = json.loads(path.read_text())
    assert data["schema"] == "sealring-bench-1" and data["origin"] == "measured" and data["machine"]["cpu"]
    assert len(data["rows"]) == 3 * 2 * 4  # sizes, places, suites
    assert all(len(row["samples_us"]) == 4 and row["wrong"] == 0 for row in data["rows"])
    sealed = [row for row in data["rows"] if row["suite"] == "aes-256-gcm"]
    assert all(row["seals"] == 1 and row["sealed_bytes"] == row["size_bytes"] for row in sealed)
    assert "identity job key, not attested" in got.stdout and "NOT CONFIDENTIAL" in got.stdout


@pytest.mark.parametrize(
    "op", ["reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all", "sendrecv"]
)
def test_every_operation(tool, op):
    got = tool("bench", op, "--transport", "loopback", "--ranks", 3, *SMALL)
    assert got.returncode == 0, got.stderr
    assert "# 0 wrong elements" in got.stdout


@pytest.mark.parametrize("op", ["all_reduce", "reduce_scatter", "all_gather"])
def test_pretended_nodes(tool, op, tmp_path):
    path = tmp_path / "bench.json"
    nodes = ("--ranks", 4, "--node-ranks", 2, "--algorithm", "one-hop,two-level", "--suite", "aes-256-gcm")
    got = tool("bench", op, "--transport", "loopback", *nodes, *SMALL, "--json", path)
    assert got.returncode == 0, got.stderr
    assert "# 0 wrong elements" in got.stdout
    data = json.loads(path.read_text())
    assert {row["algorithm"] for row in data["rows"]} == {"one-hop", "two-level"}
    assert "said to be 2 a node" in got.stdout.splitlines()[0]
    assert "pretended" in " ".join(tool("bench", "--help").stdout.split())


def test_noise_limit_is_exit_3(tool):
    got = tool("bench", "all_reduce", "--transport", "loopback", *SMALL, "--max-mad", "0.0000001")
    assert got.returncode == 3
    assert "SR-E130" in got.stderr and "NOISE" in got.stderr


def test_unwritable_json(tool, tmp_path):
    got = tool("bench", "all_reduce", "--transport", "loopback", *SMALL, "--json", tmp_path / "no" / "x.json")
    assert got.returncode == 1 and "SR-E104" in got.stderr


def launched(tool, key, port, ranks, world=2, extra=()):
    env = {**os.environ, "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    env.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    processes = []
    for rank, file in zip(ranks, key):
        one = {**env, "RANK": str(rank), "SEALRING_SOCKET_IFNAME": "lo"}
        if file:
            one["SEALRING_JOB_KEY_FILE"] = str(file)
        processes.append(
            subprocess.Popen(
                [tool.path, "bench", "all_reduce", *SMALL, "--timeout", "10", *extra],
                env=one,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    return [(process, *process.communicate(timeout=100)) for process in processes]


@pytest.fixture
def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_launched_ranks_meet(tool, tmp_path, port):
    key = tmp_path / "job.key"
    tool("keygen", key)
    (first, out, err), (second, out_1, err_1) = launched(tool, [key, key], port, [0, 1])
    assert first.returncode == 0, err
    assert second.returncode == 0, err_1
    assert "# 0 wrong elements" in out and out_1 == ""


def test_launched_ranks_with_different_keys(tool, tmp_path, port):
    keys = [tmp_path / "a.key", tmp_path / "b.key"]
    for key in keys:
        tool("keygen", key)
    start = time.monotonic()
    results = launched(tool, keys, port, [0, 1])
    assert time.monotonic() - start < 60
    assert all(process.returncode == 1 for process, _, _ in results)
    assert any("SR-E211" in err or "SR-E210" in err for _, _, err in results), [err for _, _, err in results]


def test_launched_rank_without_key_or_address(tool, tmp_path, port):
    got = tool(
        "bench",
        "all_reduce",
        env={"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
    )
    assert got.returncode == 1 and "SR-E107" in got.stderr and "sealring keygen" in got.stderr
    got = tool("bench", "all_reduce", env={"RANK": "0", "WORLD_SIZE": "2"})
    assert got.returncode == 1 and "SR-E103" in got.stderr and "MASTER_ADDR" in got.stderr
    got = tool("bench", "all_reduce", env={"RANK": "two", "WORLD_SIZE": "2"})
    assert got.returncode == 1 and "RANK" in got.stderr


def test_missing_rank_is_named_in_time(tool, tmp_path, port):
    key = tmp_path / "job.key"
    tool("keygen", key)
    start = time.monotonic()
    [(process, _, err)] = launched(tool, [key], port, [0])
    assert process.returncode == 1 and time.monotonic() - start < 60
    assert "SR-E601" in err and "1" in err


def children_of(pid):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout
    return [int(text) for text in found.split()]


def test_a_killed_rank_ends_the_run(tool):
    run = subprocess.Popen(
        [tool.path, "bench", "all_reduce", "--ranks", "3", "-b", "64K", "-e", "64K", "-n", "100000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 30
    while len(children_of(run.pid)) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1)
    os.kill(children_of(run.pid)[-1], signal.SIGKILL)
    start = time.monotonic()
    _, err = run.communicate(timeout=60)
    assert run.returncode == 1
    assert time.monotonic() - start < 30
    assert "was killed by signal 9" in err and "SR-E60" in err


@pytest.mark.parametrize("transport", ["tcp", "loopback"])
def test_an_interrupted_run_says_so_in_one_line(tool, transport):
    where = ("--transport", transport, "--ranks", "2", "-b", "64K", "-e", "64K", "-n", "100000")
    run = subprocess.Popen(
        [tool.path, "bench", "all_reduce", *where],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    run.stdout.readline()  # the head is printed when the ranks have met
    os.killpg(run.pid, signal.SIGINT)
    _, err = run.communicate(timeout=30)
    assert run.returncode == 130
    assert err.startswith("sealring bench: interrupted") and err.count("\n") == 1


def test_no_key_on_a_command_line_or_in_the_store(tool):
    run = subprocess.Popen(
        [tool.path, "bench", "all_reduce", "--ranks", "2", "-b", "64K", "-e", "64K", "-n", "100000"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 30
        while len(children_of(run.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        command = open(f"/proc/{children_of(run.pid)[0]}/cmdline", "rb").read().split(b"\0")
        directory = command[command.index(b"--directory") + 1].decode()
        assert not any(b"sealring-job-key" in part for part in command)
        assert os.stat(directory).st_mode & 0o777 == 0o700
        for folder, _, files in os.walk(directory):
            for name in files:
                assert b"sealring-job-key" not in open(os.path.join(folder, name), "rb").read()
    finally:
        run.terminate()
        run.wait(30)
    assert run.returncode == 128 + signal.SIGTERM
    assert not os.path.exists(directory)
