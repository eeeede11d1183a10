"""Claim: bad input and lost peers give a clear error on every rank within the timeout, and never a wrong
result.

How: wrong keys, environments, sizes and calls; ranks that are killed, stopped or absent; what each survivor
raises.
"""

from __future__ import annotations

import datetime
import os
import signal
import socket
import time

import pytest
import torch
import torch.distributed as dist

import sealring
from conftest import SLOW, write_key


def init(seconds=20.0, **options):
    dist.init_process_group("sealring", timeout=datetime.timedelta(seconds=seconds), **options)


def init_body(rank, world, seconds=20.0):
    init(seconds)
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    return tensor[0].item()


def errors(outcomes):
    for outcome in outcomes:
        assert outcome.error is not None, outcome.value
    return [outcome.error for outcome in outcomes]


# --- before any key is released ---


def test_no_job_key(ranks):
    for text in errors(ranks.run(2, init_body, env={"SEALRING_JOB_KEY_FILE": None})):
        assert "SR-E107" in text and "NO_IDENTITY" in text and "sealring keygen" in text


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o640, 0o604])
def test_mode_of_the_key_file(ranks, tmp_path, mode):
    key = write_key(tmp_path / "open.key", mode)
    for text in errors(ranks.run(1, init_body, env={"SEALRING_JOB_KEY_FILE": str(key)})):
        assert "SR-E106" in text and "chmod" in text


def test_unusable_key_files(ranks, tmp_path):
    link = tmp_path / "link.key"
    link.symlink_to(ranks.key)
    text = tmp_path / "text.key"
    text.write_text("not a key\n")
    text.chmod(0o600)
    for path in (link, text, tmp_path / "absent.key", tmp_path):
        (message,) = errors(ranks.run(1, init_body, env={"SEALRING_JOB_KEY_FILE": str(path)}))
        assert "SR-E106" in message, message


def test_key_of_another_world_size(ranks, tmp_path):
    key = write_key(tmp_path / "three.key", extra=" world=3")
    (message,) = errors(ranks.run(1, init_body, env={"SEALRING_JOB_KEY_FILE": str(key)}))
    assert "SR-E201" in message and "3 ranks" in message


def test_different_keys(ranks, tmp_path):
    other = write_key(tmp_path / "other.key")
    outcomes = ranks.run(2, init_body, 10.0, env_of={1: {"SEALRING_JOB_KEY_FILE": str(other)}})
    texts = errors(outcomes)
    assert any("JOB_KEY" in text or "JOB_ID" in text for text in texts), texts
    assert all("SR-E2" in text and "no key was released" in text for text in texts), texts
    # Each names its own fingerprint: in the error where it found the difference, and in the log.
    fingerprints = {outcome.log.split("key=")[1].split()[0] for outcome in outcomes}
    assert len(fingerprints) == 2, [outcome.log for outcome in outcomes]
    told = [text for text in texts if "SR-E210" in text]
    assert any(value in text for value in fingerprints for text in told), (fingerprints, texts)


def test_different_suites(ranks):
    texts = errors(ranks.run(2, init_body, 10.0, env_of={1: {"SEALRING_SUITE": "chacha20-poly1305"}}))
    assert any("SR-E205" in text and "SEALRING_SUITE" in text for text in texts), texts


def test_unknown_variable(ranks):
    for text in errors(ranks.run(1, init_body, env={"SEALRING_SUIT": "aes-256-gcm"})):
        assert "SR-E103" in text and "did you mean SEALRING_SUITE" in text


def test_bad_values(ranks):
    for name, value in {
        "SEALRING_SUITE": "none",
        "SEALRING_TIMEOUT_S": "soon",
        "SEALRING_LOG": "loud",
    }.items():
        (text,) = errors(ranks.run(1, init_body, env={name: value}))
        assert "SR-E103" in text and name in text


def test_interface_and_port(ranks):
    (text,) = errors(ranks.run(1, init_body, env={"SEALRING_SOCKET_IFNAME": "nonesuch9"}))
    assert "SR-E112" in text and "lo" in text
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (text,) = errors(ranks.run(1, init_body, env={"SEALRING_PORT_RANGE": str(port)}))
        assert "SR-E108" in text and str(port) in text


def missing_body(rank, world, path):
    init(3.0, init_method=f"file://{path}", rank=rank, world_size=world + 1)


def test_a_rank_that_never_comes_is_named(ranks, tmp_path):
    outcomes = ranks.run(2, missing_body, tmp_path / "store")
    texts = errors(outcomes)  # the first to give up names who is missing; it may tell the other by a note
    assert all("TIMEOUT" in text and "SR-E60" in text for text in texts), texts
    assert any("missing" in text and "2" in text for text in texts), texts
    assert max(outcome.seconds for outcome in outcomes) < 10 * SLOW


def duplicate_body(rank, world, path):
    init(5.0, init_method=f"file://{path}", rank=0, world_size=2)


def test_one_rank_twice(ranks, tmp_path):
    texts = errors(ranks.run(2, duplicate_body, tmp_path / "store"))
    assert all("SR-E" in text for text in texts), texts


def study_and_sealed_body(rank, world):
    if rank == 1:
        from sealring import study_backend

        study_backend.register(suite="aes-256-gcm", job_key_file=os.environ["SEALRING_JOB_KEY_FILE"])
        dist.init_process_group("sealring_study", timeout=datetime.timedelta(seconds=10))
    else:
        init(10.0)


def test_a_study_rank_cannot_join(ranks):
    sealed, study = errors(ranks.run(2, study_and_sealed_body))
    assert "SR-E206" in sealed + study and "no key was released" in sealed


# --- ranks that disagree ---


def mismatch_body(rank, world, kind):
    init(10.0)
    tensor = torch.ones(4096)
    other = rank == world - 1
    try:
        if kind == "numel":  # U03
            tensor = torch.ones(409_598 if other else 409_600)
            dist.all_reduce(tensor)
        elif kind == "rows":
            tensor = torch.ones((200 if other else 100), 2560)
            dist.all_reduce(tensor)
        elif kind == "dtype":
            tensor = torch.ones(4096, dtype=torch.bfloat16 if other else torch.float16)
            dist.all_reduce(tensor)
        elif kind == "redop":
            dist.all_reduce(tensor, dist.ReduceOp.MAX if other else dist.ReduceOp.SUM)
        elif kind == "op":
            dist.broadcast(tensor, 0) if other else dist.all_reduce(tensor)
        elif kind == "root":
            dist.broadcast(tensor, 1 if other else 0)
        elif kind == "gather size":
            dist.all_gather_into_tensor(
                torch.empty(world * (8 if other else 4)), torch.ones(8 if other else 4)
            )
        elif kind == "tag":
            dist.send(tensor, (rank + 1) % world, tag=1) if rank == 0 else None
            dist.recv(tensor, 0, tag=2) if rank == 1 else None
            dist.barrier()
        first = "nothing was raised"
    except RuntimeError as problem:
        first = str(problem)
    poisoned = bool(torch.isnan(tensor.float()).all())
    try:
        dist.barrier()
        later = "nothing was raised"
    except RuntimeError as problem:
        later = str(problem)
    return first, poisoned, later


@pytest.mark.parametrize("kind", ["numel", "rows", "dtype", "redop", "op", "root", "gather size", "tag"])
def test_ranks_that_disagree(ranks, kind):
    results = [outcome.ok() for outcome in ranks.run(3, mismatch_body, kind)]
    failed = [first for first, _, _ in results if first.startswith("SR-E6")]
    # Whoever needed a record that it did not get fails; the next operation fails everywhere.
    assert failed, results
    for first, poisoned, later in results:
        assert later.startswith("SR-E"), results
        assert first.startswith("SR-E") or first == "nothing was raised", results
        if first.startswith("SR-E") and kind in ("numel", "rows", "redop"):
            assert poisoned, results
    if kind in ("numel", "rows", "redop", "op"):
        assert all(first.startswith("SR-E") for first, _, _ in results), results


def pieces_body(rank, world):
    init(10.0)
    sizes = [[4, 4, 4], [4, 4, 5], [4, 4, 4]]  # rank 1's piece for rank 2 is longer than rank 2 expects
    outputs = [torch.ones(4) for _ in range(world)]
    try:
        dist.all_to_all(outputs, [torch.ones(size) for size in sizes[rank]])
        first = "nothing was raised"
    except RuntimeError as problem:
        first = str(problem)
    return first, [bool(torch.isnan(output).all()) for output in outputs]


def test_pieces_fail_as_one(ranks):
    first, poisoned = ranks.run(3, pieces_body)[2].ok()
    assert first.startswith("SR-E") and poisoned == [True, True, True], (first, poisoned)


def tags_body(rank, world):
    init(10.0)
    tensors = [torch.zeros(1), torch.zeros(1)]
    tags = (1, 2) if rank == 0 else (2, 1)
    move = dist.isend if rank == 0 else dist.irecv
    try:
        for work in [move(tensor, 1 - rank, tag=tag) for tensor, tag in zip(tensors, tags)]:
            work.wait()
        return "nothing was raised"
    except RuntimeError as problem:
        return str(problem)


def test_messages_out_of_order_are_explained(ranks):
    text = ranks.run(2, tags_body)[1].ok()
    assert "SR-E602" in text and "p2p tag 2" in text and "in the order in which they were sent" in text, text


# --- peers that are lost ---


def careless_body(rank, world, seconds):
    init(5.0)
    dist.barrier()
    if rank == 1:
        os._exit(7)
    try:
        dist.all_reduce(torch.ones(4))
    except RuntimeError:
        pass
    time.sleep(seconds)  # the program goes on as if nothing had been
    return "alive"


@pytest.mark.parametrize("choice", ["exit", "raise", "closed"])
def test_a_program_that_ignores_the_end_of_its_session(ranks, choice):
    """SEALRING_ON_ERROR=exit ends it after 10 s; not if it closes the session, nor with raise."""
    environment = {"SEALRING_ON_ERROR": "raise" if choice == "raise" else "exit"}
    body = closing_body if choice == "closed" else careless_body
    outcome = ranks.run(2, body, 13.0, env=environment)[0]
    if choice == "exit":
        assert outcome.exit_code == 1 and outcome.value is None, outcome
        assert "process ended" in outcome.log, outcome.log
    else:
        assert outcome.ok() == "alive"


def closing_body(rank, world, seconds):
    init(5.0)
    dist.barrier()
    if rank == 1:
        os._exit(7)
    with pytest.raises(RuntimeError):
        dist.all_reduce(torch.ones(4))
    dist.destroy_process_group()
    time.sleep(seconds)
    return "alive"


def killed_body(rank, world, path):
    init(20.0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 100))
    group = dist.new_group()
    for step in range(10_000):
        if step == 3 and rank == world - 1:
            path.write_text(str(time.monotonic()))
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            model(torch.ones(2, 100)).sum().backward()
            dist.all_reduce(torch.ones(10), group=group)
        except RuntimeError as problem:
            seconds = time.monotonic() - float(path.read_text())
            with pytest.raises(RuntimeError, match="SR-E"):
                dist.all_reduce(torch.ones(10), group=group)
            begin = time.monotonic()
            dist.destroy_process_group()
            return str(problem), seconds, time.monotonic() - begin
    return None


def test_a_killed_peer(ranks, tmp_path):  # U17
    *survivors, dead = ranks.run(3, killed_body, tmp_path / "time")
    assert dead.exit_code == -signal.SIGKILL
    for outcome in survivors:
        text, seconds, destroy_seconds = outcome.ok()
        assert "SR-E60" in text, text
        assert seconds < 5 * SLOW and destroy_seconds < 5 * SLOW, (seconds, destroy_seconds)
    assert any("peer=2" in outcome.value[0] or "rank 2" in outcome.value[0] for outcome in survivors)


def stopped_body(rank, world, path):
    init(3.0)
    dist.barrier()
    if rank == world - 1:
        path.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)
        return None
    begin = time.monotonic()
    tensor = torch.ones(1000)
    try:
        dist.all_reduce(tensor)
    except RuntimeError as problem:
        return str(problem), time.monotonic() - begin, bool(torch.isnan(tensor).all())


def test_a_stopped_peer(ranks, tmp_path):
    ranks.start(3, stopped_body, tmp_path / "pid")
    for process in ranks.processes[:-1]:
        process.join(25 * SLOW)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    outcomes = ranks.finish()
    for outcome in outcomes[:-1]:
        text, seconds, poisoned = outcome.ok()
        assert "TIMEOUT" in text or "ABORTED" in text, text
        assert 2.0 < seconds < 7 * SLOW and poisoned, (seconds, poisoned)
    assert any("TIMEOUT" in outcome.value[0] and "3000 ms" in outcome.value[0] for outcome in outcomes[:-1])


def abort_body(rank, world):
    init(20.0)
    groups = [dist.new_group(), dist.new_group()]
    if rank == 0:
        work = dist.all_reduce(torch.ones(10), group=groups[0], async_op=True)
        groups[1]._get_backend(torch.device("cpu")).abort()
        with pytest.raises(RuntimeError, match="SR-E604.*aborted"):
            work.wait()
    else:
        begin = time.monotonic()
        with pytest.raises(RuntimeError, match="SR-E60"):
            dist.recv(torch.ones(10), 0)
        assert time.monotonic() - begin < 5 * SLOW
    begin = time.monotonic()
    dist.destroy_process_group()
    return time.monotonic() - begin


def test_abort_ends_every_group_on_every_rank(ranks):
    assert max(ranks.values(2, abort_body)) < 5 * SLOW


def early_leaver_body(rank, world):
    init(4.0)
    dist.barrier()
    if rank == 1:
        dist.destroy_process_group()
        return None
    with pytest.raises(RuntimeError, match="SR-E60"):
        dist.all_reduce(torch.ones(3))
    return "raised"


def test_a_rank_that_left(ranks):
    assert ranks.values(2, early_leaver_body) == ["raised", None]


def last_operation_body(rank, world):
    """One rank leaves at once after the last operation, the other is late: nobody fails."""
    init(20.0)
    for _ in range(20):
        tensor = torch.ones(100_000)
        work = dist.all_reduce(tensor, async_op=True)
        if rank == 1:
            time.sleep(0.01)
        work.wait()
    dist.destroy_process_group()
    return tensor[-1].item()


def test_leaving_right_after_the_last_operation(ranks):
    assert ranks.values(2, last_operation_body) == [2.0, 2.0]


def wait_timeout_body(rank, world):
    init(20.0)
    if rank == 0:
        work = dist.irecv(torch.ones(3), 1)
        with pytest.raises(RuntimeError, match="SR-E601.*200 ms"):
            work.wait(datetime.timedelta(milliseconds=200))
        assert not work.is_completed()
        dist.barrier()
        work.wait()
    else:
        dist.barrier()
        dist.send(torch.ones(3), 0)
    return sealring.counters()["ops"]


def test_a_wait_with_a_timeout_of_its_own(ranks):
    assert ranks.values(2, wait_timeout_body) == [2, 2]
