"""Claim: groups come and go as PyTorch's do: subgroups, meshes, timeouts, forks, and many lives in one
process.

How: real ranks make, use and destroy groups; effective timeouts, descriptors and threads are read back and
compared.
"""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import threading

import pytest
import torch
import torch.distributed as dist

import sealring
from conftest import SLOW


def total_of(group=None, count=100):
    tensor = torch.full((count,), float(dist.get_rank()))
    dist.all_reduce(tensor, group=group)
    return tensor[0].item()


def subgroups_body(rank, world):
    dist.init_process_group("sealring")
    seen = {}
    for members in ([0, 1], [2, 3], [0, 2, 3], [1, 3], list(range(world))):
        group = dist.new_group(members)
        if rank not in members:
            continue
        assert total_of(group) == float(sum(members))
        d = sealring.describe(group)
        assert d["global_ranks"] == members and d["ranks"] == len(members)
        assert d["rank"] == members.index(rank) and d["backend"] == "sealring"
        assert d["ops"] == 1 and d["identity"] == "job key, not attested"
        data = torch.full((3,), float(rank))
        dist.broadcast(data, members[-1], group=group)
        assert data[0].item() == members[-1]
        seen[tuple(members)] = group
    # used in turn, and beside the world
    works = [dist.all_reduce(torch.ones(1000), group=group, async_op=True) for group in seen.values()]
    assert total_of() == float(sum(range(world)))
    for work, members in zip(works, seen):
        work.wait()
        assert work.result()[0][0].item() == len(members)
    for group in seen.values():
        dist.destroy_process_group(group)
    assert total_of() == float(sum(range(world)))


def test_subgroups(ranks):
    ranks.values(4, subgroups_body)


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def native_threads():
    return len(os.listdir("/proc/self/task"))


def many_groups_body(rank, world, rounds):
    dist.init_process_group("sealring")
    for _ in range(3):
        group = dist.new_group()
        assert total_of(group) == 1.0
        dist.destroy_process_group(group)
    del group
    before = descriptors(), native_threads()
    for _ in range(rounds):
        group = dist.new_group()
        assert total_of(group) == 1.0
        dist.destroy_process_group(group)
        del group
    after = descriptors(), native_threads()
    dist.barrier()
    return before, after


def test_groups_give_back_descriptors_and_threads(ranks):  # U27, smaller
    for before, after in ranks.values(2, many_groups_body, 30):
        assert after[0] <= before[0] + 2 and after[1] <= before[1] + 2, (before, after)


def lives_body(rank, world, rounds, init_method):
    store = None
    if init_method == "one store":
        store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, rank == 0)
    if init_method == "agent":  # torchrun's own store, which outlives the groups, as do their entries
        init_method = "env://"
    sums, before = [], None
    for i in range(rounds):
        options = {"init_method": init_method} if store is None else {"store": store}
        if init_method.startswith("file:"):
            options = {"init_method": f"{init_method}{i}"}  # FileStore wants a new file each time
        dist.init_process_group("sealring", rank=rank, world_size=world, **options)
        group = dist.new_group()
        sums.append(total_of(group) + total_of())
        dist.destroy_process_group()
        del group
        if i == 4:
            before = descriptors(), native_threads()
    return sums, before, (descriptors(), native_threads())


@pytest.mark.parametrize("method", ["agent", "file", "one store"])
def test_fifty_lives_in_one_process(ranks, tmp_path, method):
    """Not env:// alone: there rank 0 ends the store with each life, and PyTorch's own backends lose ranks
    too."""
    environment = {}
    if method == "file":
        method = f"file://{tmp_path}/rendezvous"
    if method == "agent":
        agent = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
        environment = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
        environment["MASTER_PORT"] = str(agent.port)
    for sums, before, after in ranks.values(2, lives_body, 50, method, env=environment):
        assert sums == [2.0] * 50
        assert after[0] <= before[0] + 4 and after[1] <= before[1] + 4, (before, after)


def timeouts_body(rank, world):  # U19
    dist.init_process_group("sealring", timeout=datetime.timedelta(hours=2))
    mesh = dist.init_device_mesh("cpu", (2, 1), mesh_dim_names=("a", "b"))
    groups = {
        "world": None,
        "new": dist.new_group(),
        "given": dist.new_group(timeout=datetime.timedelta(seconds=5)),
        "mesh": mesh.get_group("b"),
    }
    return {name: sealring.describe(group)["timeout_s"] for name, group in groups.items()}


def test_each_group_has_its_own_timeout(ranks):
    for timeouts in ranks.values(2, timeouts_body):
        assert timeouts == {"world": 7200.0, "new": 1800.0, "given": 5.0, "mesh": 1800.0}
    for timeouts in ranks.values(2, timeouts_body, env={"SEALRING_TIMEOUT_S": "77.5"}):
        assert timeouts == {"world": 7200.0, "new": 77.5, "given": 5.0, "mesh": 77.5}
    logs = ranks.run(2, timeouts_body)
    assert "timeout_ms=5000" in logs[0].log and "timeout_ms=7200000" in logs[0].log


def stalled_subgroup_body(rank, world):
    dist.init_process_group("sealring", timeout=datetime.timedelta(hours=2))
    group = dist.new_group(timeout=datetime.timedelta(seconds=1))
    dist.barrier()
    if rank == 0:
        total_of(group)
    else:
        with pytest.raises(RuntimeError, match="SR-E"):
            dist.recv(torch.empty(1), 0)  # waits in the world group, which dies with the session


def test_a_stalled_subgroup_ends_at_its_own_timeout(ranks):
    stalled, other = ranks.run(2, stalled_subgroup_body)
    assert "TIMEOUT" in stalled.error and "1000 ms" in stalled.error
    other.ok()


def strings_body(rank, world, text):  # U20
    dist.init_process_group(text)
    if "cpu" in text or ":" not in text:
        assert total_of() == 1.0
    return str(dist.get_backend_config())


@pytest.mark.parametrize(
    "text", ["sealring", "SEALRING", "cpu:sealring", "cuda:sealring", "cpu:sealring,cuda:sealring"]
)
def test_backend_strings(ranks, text):
    ranks.values(2, strings_body, text)


@pytest.mark.parametrize("text", ["cpu:gloo,cuda:sealring", "cpu:sealring,cuda:gloo"])
def test_mixed_strings_are_refused_with_the_fix(ranks, text):
    for outcome in ranks.run(2, strings_body, text):
        assert "SR-E114" in outcome.error and 'use "sealring" alone' in outcome.error
    for rank, outcome in enumerate(ranks.run(2, strings_body, text, env={"SEALRING_ALLOW_MIXED": "1"})):
        outcome.ok()
        assert f"rank {rank}: '{text}': what goes through gloo is sent in clear" in outcome.log


def mesh_body(rank, world):
    dist.init_process_group("sealring")
    line = dist.init_device_mesh("cpu", (world,))
    assert total_of(line.get_group()) == float(sum(range(world)))
    grid = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("row", "column"))
    assert total_of(grid.get_group("column")) == float({0: 0 + 1, 1: 2 + 3}[rank // 2])
    assert total_of(grid.get_group("row")) == float({0: 0 + 2, 1: 1 + 3}[rank % 2])
    assert sealring.describe(grid.get_group("row"))["ranks"] == 2
    with pytest.raises(RuntimeError, match="split"):
        dist.split_group(split_ranks=[[0, 1], [2, 3]])
    assert total_of() == float(sum(range(world)))
    # dtensors on the mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    whole = torch.arange(8.0)
    sharded = distribute_tensor(whole, line, [Shard(0)])
    assert torch.equal((sharded + sharded).full_tensor(), whole * 2)


def test_meshes(ranks):
    ranks.values(4, mesh_body)


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((32,), float(index))


def fork_body(rank, world):  # U28
    dist.init_process_group("sealring")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 2))
    loader = torch.utils.data.DataLoader(
        Numbers(), batch_size=8, num_workers=2, multiprocessing_context="fork"
    )
    for _ in range(2):
        for inputs in loader:
            model(inputs).sum().backward()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            dist.all_reduce(torch.ones(3))
            answer = "it was let through"
        except RuntimeError as problem:
            answer = str(problem)
        for use in (lambda: sealring.counters(), lambda: dist.barrier(), lambda: dist.new_group()):
            try:
                use()
                answer += " AND LET THROUGH"
            except RuntimeError as problem:
                answer += " AND LET THROUGH" if "SR-E110" not in str(problem) else ""
        os.write(writer, answer.encode())
        dist.destroy_process_group()  # must not end the parent's session
        import gc

        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    answer = os.read(reader, 4096).decode()
    assert total_of() == 1.0
    return answer


def test_forked_children_are_refused_and_do_no_harm(ranks):
    for answer in ranks.values(2, fork_body, timeout=60):
        assert (
            "SR-E110" in answer
            and "FORKED" in answer
            and "LET THROUGH" not in answer
            and "let through" not in answer
        )


def after_destroy_body(rank, world):
    dist.init_process_group("sealring")
    group = dist.new_group()
    backend = group._get_backend(torch.device("cpu"))
    dist.destroy_process_group(group)
    with pytest.raises(RuntimeError, match="SR-E604.*shut down"):
        backend.barrier().wait()
    assert total_of() == 1.0
    with pytest.raises(RuntimeError, match="SR-E101"):
        sealring.describe(dist.GroupMember.NON_GROUP_MEMBER)


def test_a_destroyed_group_is_refused(ranks):
    ranks.values(2, after_destroy_body)


def describe_body(rank, world):
    with pytest.raises(RuntimeError, match="SR-E101.*no process group"):
        sealring.counters()
    dist.init_process_group("sealring")
    total_of(count=1000)
    return dict(sealring.describe()), str(sealring.describe()), sealring.counters()


def nodes_body(rank, world):
    dist.init_process_group("sealring")
    assert sealring.describe()["node_ranks"] == 2
    count = 1 << 18
    wanted = sealring.predict("all_reduce", count, 4, world, rank, node_ranks=2)
    assert wanted["algorithm"] == "two-level"
    assert wanted["seals"] != sealring.predict("all_reduce", count, 4, world, rank)["seals"]
    total_of(count=count)
    counted = sealring.counters()
    assert all(counted[name] == wanted[name] for name in ("seals", "opens", "sealed_bytes", "opened_bytes"))
    uneven = dist.new_group([0, 1, 2])
    if rank < 3:
        assert total_of(uneven, count=count) == 3.0


def test_large_messages_go_by_nodes(ranks):
    ranks.values(4, nodes_body, env={"SEALRING_NODE_RANKS": "2"})


def no_group_body(rank, world):
    with pytest.raises(RuntimeError) as problem:
        dist.init_process_group("sealring")
    return str(problem.value)


def test_nodes_that_cannot_be_are_refused(ranks):
    for said in ranks.values(3, no_group_body, env={"SEALRING_NODE_RANKS": "2"}):
        assert "3 ranks do not lie on nodes of 2 ranks each" in said and "SEALRING_NODE_RANKS" in said
    for said in ranks.values(2, no_group_body, env_of={0: {"SEALRING_NODE_RANKS": "1"}}):
        assert "CONFIG" in said and "node_ranks" in said


def test_describe_counters_and_the_log_line(ranks):
    outcomes = ranks.run(3, describe_body)
    for rank, outcome in enumerate(outcomes):
        d, line, c = outcome.ok()
        assert d["rank"] == rank and d["ranks"] == 3 and d["suite"] == "aes-256-gcm" and d["epoch"] == 0
        assert d["identity"] == "job key, not attested" and d["transport"].startswith("tcp ")
        assert (
            c["ops"] == 1
            and c["sealed_bytes"] == sealring.predict("all_reduce", 1000, 4, 3, rank)["sealed_bytes"]
        )
        assert all(text in line for text in ("aes-256-gcm", "job key, not attested", "tcp "))
        assert d["key_fingerprint"] in outcome.log, "every rank logs the fingerprint of its key"
        assert ("group ready" in outcome.log) == (rank == 0)
    assert len({outcome.value[0]["key_fingerprint"] for outcome in outcomes}) == 1


def test_json_log(ranks):
    outcome = ranks.run(2, describe_body, env={"SEALRING_LOG": "json"})[0]
    lines = [json.loads(line) for line in outcome.log.splitlines() if line.startswith("{")]
    ready = [line for line in lines if line.get("event") == "group ready"]
    assert len(ready) == 1 and ready[0]["suite"] == "aes-256-gcm" and ready[0]["ranks"] in (2, "2")
    quiet = ranks.run(2, describe_body, env={"SEALRING_LOG": "off"})[0]
    assert "sealring" not in quiet.log


def no_destroy_body(rank, world):
    dist.init_process_group("sealring")
    total_of()


def test_the_process_ends_without_destroy(ranks, tmp_path):
    script = tmp_path / "no_destroy.py"
    script.write_text(
        "import torch, torch.distributed as dist, sealring\n"
        "dist.init_process_group('sealring')\n"
        "dist.all_reduce(torch.ones(3))\n"
        "print('done')\n"
    )
    from safety_test import spawn_script

    for process in spawn_script(script, 2, ranks.key):
        out, _ = process.communicate(timeout=60 * SLOW)
        assert process.returncode == 0 and b"done" in out, out


def threads_body(rank, world):
    """Several threads, each with a group of its own, at the same time."""
    dist.init_process_group("sealring")
    groups = [dist.new_group() for _ in range(3)]
    problems = []

    def work(group):
        try:
            for _ in range(30):
                assert total_of(group, 500) == 1.0
        except Exception as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems


def test_groups_of_several_threads(ranks):
    ranks.values(2, threads_body)


def gloo_world_body(rank, world):
    """Subgroups of sealring beside a Gloo world that the user allows: each pair has a session of its own."""
    dist.init_process_group("gloo")
    totals = []
    for members in ([0, 1], [1, 2], [0, 2], [0, 1]):
        group = dist.new_group(members, backend="sealring")
        if rank in members:
            totals.append((members, total_of(group)))
    return totals


def test_sealring_subgroups_of_another_world(ranks):
    for totals in ranks.values(3, gloo_world_body):
        for members, total in totals:
            assert total == float(sum(members))


def test_the_test_tree_is_the_one_built():
    assert (pathlib.Path(sealring.__file__).parent / "_build_info.py").exists()
