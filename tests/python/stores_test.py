"""Claim: a store of PyTorch's that falls silent or miscounts ends the start, or new_group, with a clear error
in time.

How: a store written in Python, which stops answering or lies at a chosen key; what the rank raises, and when.
"""

from __future__ import annotations

import datetime
import time

import pytest
import torch
import torch.distributed as dist

from conftest import SLOW


kept = []  # PyTorch holds the C++ half alone


class AnyStore(dist.Store):
    """A HashStore, until a key holds `silent_at`: then it sleeps. A counter whose key holds `lies_at` is
    `count`."""

    def __init__(self, silent_at="\0", lies_at="\0", count=0):
        super().__init__()
        kept.append(self)
        self.inner = dist.HashStore()
        self.silent_at, self.lies_at, self.count = silent_at, lies_at, count

    def _reach(self, key):
        if self.silent_at in key:
            time.sleep(60)

    def set(self, key, value):
        self._reach(key)
        self.inner.set(key, value)

    def get(self, key):
        self._reach(key)
        return self.inner.get(key)

    def add(self, key, amount):
        self._reach(key)
        return self.count if self.lies_at in key else self.inner.add(key, amount)

    def check(self, keys):
        self._reach(keys[0])
        return self.inner.check(keys)

    def delete_key(self, key):
        return self.inner.delete_key(key)

    def wait(self, keys, timeout=None):
        self.inner.wait(keys, timeout or datetime.timedelta(seconds=20))


def alone(store, seconds=20.0, world=1):
    dist.init_process_group(
        "sealring", store=store, rank=0, world_size=world, timeout=datetime.timedelta(seconds=seconds)
    )


def answering_body(rank, world):
    alone(AnyStore())
    group = dist.new_group([0])
    tensor = torch.ones(4)
    dist.all_reduce(tensor, group=group)
    return tensor[0].item()


def test_a_store_written_in_python(ranks):
    assert ranks.values(1, answering_body) == [1.0]


def silent_body(rank, world, key):
    begin = time.monotonic()
    try:
        alone(AnyStore(silent_at=key), 3.0, world=2)
    except RuntimeError as problem:
        return str(problem), time.monotonic() - begin
    return "nothing was raised", 0.0


@pytest.mark.parametrize("key", ["sealring/arrivals", "hello/1", "note/1"])
def test_a_silent_store_at_the_start(ranks, key):
    ((text, seconds),) = ranks.values(1, silent_body, key)
    assert "SR-E601" in text and "PyTorch's store did not answer" in text and key in text, text
    assert "rank=0" in text, text
    assert 2.5 < seconds < 8 * SLOW, seconds


def silent_group_body(rank, world):
    alone(AnyStore(silent_at="sealring/split/"), 3.0)
    begin = time.monotonic()
    try:
        dist.new_group([0])
    except RuntimeError as problem:
        return str(problem), time.monotonic() - begin
    return "nothing was raised", 0.0


def test_a_silent_store_at_a_new_group(ranks):
    ((text, seconds),) = ranks.values(1, silent_group_body)
    assert "SR-E601" in text and "PyTorch's store did not answer" in text and "rank=0" in text, text
    assert 2.5 < seconds < 8 * SLOW, seconds


def miscounting_body(rank, world, count):
    alone(AnyStore(lies_at="sealring/split/arrivals", count=count))
    with pytest.raises(RuntimeError, match="SR-E109.*not a count"):
        dist.new_group([0])
    return True


@pytest.mark.parametrize("count", [0, -(2**63)])
def test_a_counter_that_is_none(ranks, count):
    assert ranks.values(1, miscounting_body, count) == [True]
