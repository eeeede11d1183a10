"""Claim: DDP trains as usual over sealring: same bits as the same schedule run plain, Gloo's loss, every byte
sealed.

How: a small network is trained by each backend from one seed; parameters are compared bit for bit, losses
with Gloo's within rounding, and the sealed bytes with what the schedules of DDP's own buckets predict.
"""

from __future__ import annotations

import hashlib
import os

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import sealring


def network(norm=False):
    torch.manual_seed(7)
    layers = [nn.Linear(32, 300), nn.ReLU(), nn.Linear(300, 301), nn.ReLU(), nn.Linear(301, 300), nn.ReLU()]
    if norm:
        layers.append(nn.BatchNorm1d(300))
    return nn.Sequential(*layers, nn.Linear(300, 10))


def batch(rank, step):
    generator = torch.Generator().manual_seed(step * 100 + rank)
    return torch.randn(16, 32, generator=generator), torch.randint(10, (16,), generator=generator)


def make_group(backend, suite="plain", **study):
    if backend == "sealring_study":
        from sealring import study_backend

        study_backend.register(suite=suite, job_key_file=os.environ["SEALRING_JOB_KEY_FILE"], **study)
    dist.init_process_group(backend)


def digest(model):
    out = hashlib.sha256()
    for name, value in model.named_parameters():
        out.update(name.encode() + value.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return out.hexdigest()


def step_of(model, optimizer, rank, step):
    inputs, targets = batch(rank, step)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


def train_body(rank, world, backend, options, study, norm, hook, steps):
    make_group(backend, **study)
    model = DistributedDataParallel(network(norm), **options)
    if hook == "fp16":
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        model.register_comm_hook(None, fp16_compress_hook)
    if hook == "power":
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=3)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = [step_of(model, optimizer, rank, step) for step in range(steps)]
    return digest(model.module), losses


def train(ranks, backend, *, world=2, options=None, study=None, norm=False, hook=None, steps=8):
    options = {"bucket_cap_mb": 0.3, **(options or {})}
    results = ranks.values(world, train_body, backend, options, study or {}, norm, hook, steps)
    assert len({parameters for parameters, _ in results}) == 1, "ranks have different parameters"
    return results[0][0], [losses for _, losses in results]


@pytest.mark.parametrize("world", [2, 3])
def test_bits_of_the_plain_schedule_and_loss_of_gloo(ranks, world):
    sealed, sealed_losses = train(ranks, "sealring", world=world)
    plain, plain_losses = train(ranks, "sealring_study", world=world)
    assert sealed == plain
    assert sealed_losses == plain_losses
    _, gloo_losses = train(ranks, "gloo", world=world)
    for ours, theirs in zip(sealed_losses, gloo_losses):
        assert ours == pytest.approx(theirs, rel=1e-5)
        assert ours[-1] != ours[0]


@pytest.mark.parametrize("algorithm", ["ring", "one-hop", "one-shot"])
def test_each_algorithm_gives_the_same_bits_plain_and_secured(ranks, algorithm):
    digests = {
        suite: train(ranks, "sealring_study", world=3, study={"suite": suite, "algorithm": algorithm})[0]
        for suite in ("plain", "aes-256-gcm", "aes-128-gcm", "chacha20-poly1305", "chained-gmac")
    }
    assert len(set(digests.values())) == 1, digests


def test_suite_of_the_environment_changes_no_bit(ranks):
    digests = set()
    for suite in ("aes-256-gcm", "aes-128-gcm", "chacha20-poly1305"):
        results = ranks.values(
            2,
            train_body,
            "sealring",
            {"bucket_cap_mb": 0.3},
            {},
            False,
            None,
            4,
            env={"SEALRING_SUITE": suite},
        )
        digests |= {parameters for parameters, _ in results}
    assert len(digests) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"gradient_as_bucket_view": True},
        {"find_unused_parameters": True},
        {"static_graph": True},
        {"bucket_cap_mb": 25},
        {"broadcast_buffers": True, "norm": True},
    ],
    ids=lambda options: "-".join(options),
)
def test_options_of_ddp(ranks, options):
    options = dict(options)
    norm = options.pop("norm", False)
    sealed, losses = train(ranks, "sealring", options=options, norm=norm)
    plain, _ = train(ranks, "sealring_study", options=options, norm=norm)
    _, gloo = train(ranks, "gloo", options=options, norm=norm)
    assert sealed == plain
    assert losses[0] == pytest.approx(gloo[0], rel=1e-4)


@pytest.mark.parametrize("hook,blocking", [("fp16", "0"), ("fp16", "1"), ("power", "1")])
def test_communication_hooks(ranks, hook, blocking):
    """PowerSGD's callbacks run collectives inside a Future's then(), and need them in one order on all
    ranks."""
    body = (train_body, "sealring", {"bucket_cap_mb": 0.3}, {}, False, hook, 6)
    results = ranks.values(2, *body, env={"SEALRING_BLOCKING_WAIT": blocking})
    assert results[0][0] == results[1][0]
    if hook == "fp16":
        _, gloo = train(ranks, "gloo", hook=hook, steps=6)
        assert results[0][1] == pytest.approx(gloo[0], rel=1e-2)
    assert results[0][1][-1] < results[0][1][0] + 1


BYTES_CASES = [
    (2, "ring"),
    (3, "ring"),
    (2, "one-hop"),
    (4, "one-hop"),
    (2, "one-shot"),
    (3, "one-shot"),
    (2, "auto"),
]


def bytes_body(rank, world, algorithm):
    make_group("sealring_study", suite="aes-256-gcm", algorithm=algorithm)
    model = DistributedDataParallel(network(), bucket_cap_mb=0.3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    marks = []
    for step in range(6):
        before = sealring.counters()
        step_of(model, optimizer, rank, step)
        after = sealring.counters()
        marks.append({name: after[name] - before[name] for name in after})
    logged = model._get_ddp_logging_data()
    sizes = [int(size) for size in logged["rebuilt_bucket_sizes"].split(",")]
    segment_bytes = sealring.describe()["segment_bytes"]
    costs = [
        sealring.predict("all_reduce", size // 4, 4, world, rank, algorithm, segment_bytes) for size in sizes
    ]
    wanted = {
        name: sum(cost[name] for cost in costs)
        for name in ("seals", "opens", "sealed_bytes", "opened_bytes", "sealed_segments", "opened_segments")
    }
    return marks[3:], wanted, len(sizes)


@pytest.mark.parametrize("world,algorithm", BYTES_CASES)
def test_sealed_bytes_are_those_of_the_schedule(ranks, world, algorithm):
    for marks, wanted, buckets in ranks.values(world, bytes_body, algorithm):
        assert buckets >= 3
        for mark in marks:
            assert mark["ops"] == buckets
            assert {name: mark[name] for name in wanted} == wanted
        if algorithm == "ring":
            assert wanted["seals"] == wanted["opens"] == 2 * (world - 1) * buckets


def rebuild_body(rank, world):
    dist.init_process_group("sealring")
    torch.manual_seed(1)

    class Backwards(nn.Module):  # used in another order than registered: the rebuild changes the buckets
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(200, 200) for _ in range(6)])

        def forward(self, x):
            for layer in reversed(self.layers):
                x = torch.relu(layer(x))
            return x

    model = DistributedDataParallel(Backwards(), bucket_cap_mb=0.2)
    for step in range(4):
        torch.manual_seed(step * 10 + rank)
        model(torch.randn(4, 200)).sum().backward()
    data = model._get_ddp_logging_data()
    grads = torch.cat([p.grad.flatten() for p in model.parameters()])
    return data["has_rebuilt_buckets"], hashlib.sha256(grads.numpy().tobytes()).hexdigest()


def test_bucket_rebuild(ranks):
    results = ranks.values(2, rebuild_body)
    assert all(rebuilt for rebuilt, _ in results)
    assert len({digest for _, digest in results}) == 1


def no_sync_body(rank, world):
    dist.init_process_group("sealring")
    model = DistributedDataParallel(network(), bucket_cap_mb=0.3)
    before = sealring.counters()["ops"]
    with model.no_sync():
        inputs, targets = batch(rank, 0)
        nn.functional.cross_entropy(model(inputs), targets).backward()
    assert sealring.counters()["ops"] == before
    inputs, targets = batch(rank, 1)
    nn.functional.cross_entropy(model(inputs), targets).backward()
    assert sealring.counters()["ops"] > before
    return hashlib.sha256(
        torch.cat([p.grad.flatten() for p in model.parameters()]).numpy().tobytes()
    ).hexdigest()


def test_no_sync(ranks):
    assert len(set(ranks.values(2, no_sync_body))) == 1


def fsdp_body(rank, world):
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("sealring")
    model = network()
    reference = network()
    fully_shard(model, mesh=dist.init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    plain = torch.optim.SGD(reference.parameters(), lr=0.05)
    for step in range(3):
        optimizer.zero_grad()
        inputs, targets = batch(rank, step)
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        plain.zero_grad()
        every = [batch(r, step) for r in range(world)]
        loss = nn.functional.cross_entropy(
            reference(torch.cat([i for i, _ in every])), torch.cat([t for _, t in every])
        )
        loss.backward()
        plain.step()
    for mine, wanted in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(mine.full_tensor(), wanted)


def test_fsdp2_on_cpu(ranks):
    ranks.values(2, fsdp_body)
