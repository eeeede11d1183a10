"""Claim: every collective gives exactly the right values, for every dtype, shape and alignment that PyTorch
passes.

How: inputs are small integers that each rank can regenerate for the others, so results are compared bit for
bit.
"""

from __future__ import annotations

import hashlib

import pytest
import torch
import torch.distributed as dist

import sealring

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
AS_BYTES = [
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.complex64,
    torch.complex128,
    torch.uint16,
    torch.uint32,
]
SIZES = [0, 1, 3, 17, 1000]


def values_of(rank, count, dtype, low=0):
    """Small integers, different on each rank; exact in every dtype, sums of four of them too."""
    return ((torch.arange(count) * (rank + 3) + rank) % 7 + low).to(dtype)


def init(**options):
    dist.init_process_group("sealring", **options)


def same(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, b.dtype, a.shape, b.shape)
    if a.dtype in AS_BYTES:
        a, b = (x.contiguous().view(torch.uint8) for x in (a, b))
    assert torch.equal(a, b), (a, b)


def all_reduce_body(rank, world):
    init()
    for dtype in FLOATS + INTEGERS:
        for count in SIZES:
            inputs = [values_of(r, count, dtype, low=1) for r in range(world)]
            stack = torch.stack(inputs).to(torch.float64)
            wanted = {
                dist.ReduceOp.SUM: stack.sum(0),
                dist.ReduceOp.MIN: stack.amin(0) if count else stack.sum(0),
                dist.ReduceOp.MAX: stack.amax(0) if count else stack.sum(0),
            }
            if dtype not in (torch.int8, torch.uint8, torch.float16, torch.bfloat16):
                wanted[dist.ReduceOp.PRODUCT] = stack.prod(0)
            if dtype in FLOATS and world in (2, 4):
                wanted[dist.ReduceOp.AVG] = (stack.sum(0) / world).to(dtype).to(torch.float64)
            for op, value in wanted.items():
                tensor = inputs[rank].clone()
                dist.all_reduce(tensor, op)
                same(tensor, value.to(dtype))
    flags = torch.tensor([rank == 0, True, False])
    dist.all_reduce(flags, dist.ReduceOp.MAX)
    same(flags, torch.tensor([True, True, False]))
    return sealring.counters()["ops"]


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_all_reduce(ranks, world):
    ops = ranks.values(world, all_reduce_body)
    assert len(set(ops)) == 1 and ops[0] > 100


def moves_body(rank, world):
    init()
    for dtype in FLOATS + INTEGERS + [torch.bool] + AS_BYTES:
        for count in (0, 1, 3, 257):
            inputs = [values_of(r, count, dtype) for r in range(world)]
            mine = inputs[rank]
            outputs = [torch.empty_like(mine) for _ in range(world)]
            dist.all_gather(outputs, mine)
            for output, wanted in zip(outputs, inputs):
                same(output, wanted)
            whole = torch.empty(world * count, dtype=dtype)
            dist.all_gather_into_tensor(whole, mine)
            same(whole, torch.cat(inputs))
            for root in range(world):
                data = mine.clone()
                dist.broadcast(data, root)
                same(data, inputs[root])
                gathered = [torch.empty_like(mine) for _ in range(world)] if rank == root else None
                dist.gather(mine, gathered, dst=root)
                if rank == root:
                    for output, wanted in zip(gathered, inputs):
                        same(output, wanted)
                out = torch.empty_like(mine)
                dist.scatter(out, [i.clone() for i in inputs] if rank == root else None, src=root)
                same(out, inputs[rank])
            exchanged = torch.empty(world * count, dtype=dtype)
            dist.all_to_all_single(exchanged, mine.repeat(world))
            same(exchanged, torch.cat(inputs))
            to = [torch.empty_like(mine) for _ in range(world)]
            dist.all_to_all(to, [mine.clone() for _ in range(world)])
            for output, wanted in zip(to, inputs):
                same(output, wanted)
    dist.barrier()


@pytest.mark.parametrize("world", [2, 3])
def test_moves_of_every_dtype(ranks, world):
    ranks.values(world, moves_body)


def reduce_scatter_body(rank, world):
    init()
    for dtype in FLOATS + INTEGERS:
        for count in (0, 1, 5, 300):
            inputs = [values_of(r, world * count, dtype) for r in range(world)]
            total = torch.stack(inputs).to(torch.float64).sum(0).to(dtype).view(world, count)
            out = torch.empty(count, dtype=dtype)
            dist.reduce_scatter_tensor(out, inputs[rank])
            same(out, total[rank])
            out = torch.empty(count, dtype=dtype)
            dist.reduce_scatter(out, [piece.clone() for piece in inputs[rank].view(world, count)])
            same(out, total[rank])
            for root in range(world):
                data = inputs[rank].clone()
                dist.reduce(data, root)
                if rank == root:
                    same(data.view(world, count), total)


@pytest.mark.parametrize("world", [2, 3])
def test_reduce_scatter_and_reduce(ranks, world):
    ranks.values(world, reduce_scatter_body)


def unequal_body(rank, world):
    init()
    outputs = [torch.empty(r + 1) for r in range(world)]
    dist.all_gather(outputs, torch.full((rank + 1,), float(rank)))
    for r, output in enumerate(outputs):
        same(output, torch.full((r + 1,), float(r)))
    pieces = [torch.full((r + 2,), float(rank + 1)) for r in range(world)]
    out = torch.empty(rank + 2)
    dist.reduce_scatter(out, pieces)
    same(out, torch.full((rank + 2,), float(sum(range(1, world + 1)))))
    # all_to_all with splits: rank r sends (r + peer) rows to peer; for rank 0 of 2 the splits may look equal
    sends = [rank + peer for peer in range(world)]
    receives = [peer + rank for peer in range(world)]
    source = torch.full((sum(sends), 2), float(rank))
    target = torch.empty(sum(receives), 2)
    dist.all_to_all_single(target, source, receives, sends)
    same(target, torch.cat([torch.full((peer + rank, 2), float(peer)) for peer in range(world)]))
    lists = [torch.full((rank + peer,), float(rank)) for peer in range(world)]
    got = [torch.empty(peer + rank) for peer in range(world)]
    dist.all_to_all(got, lists)
    for peer, piece in enumerate(got):
        same(piece, torch.full((peer + rank,), float(peer)))


@pytest.mark.parametrize("world", [2, 3])
def test_unequal_sizes(ranks, world):
    ranks.values(world, unequal_body)


def zero_elements_body(rank, world):  # U01
    init()
    for dtype in (torch.float32, torch.bfloat16):
        empty = torch.empty(1, 0, 2, dtype=dtype)
        dist.all_gather([torch.empty_like(empty) for _ in range(world)], empty)
        dist.all_reduce(empty)
        dist.broadcast(empty, 0)
        dist.reduce_scatter(torch.empty_like(empty), [torch.empty_like(empty) for _ in range(world)])
        dist.all_gather_into_tensor(torch.empty(world, 0, 2, dtype=dtype), empty)
        number = torch.ones(3, dtype=dtype)
        dist.all_reduce(number)
        same(number, torch.full((3,), float(world), dtype=dtype))
    return sealring.counters()["ops"]


def test_zero_elements(ranks):
    assert len(set(ranks.values(4, zero_elements_body))) == 1


def strided_body(rank, world):  # U05
    init()
    base = torch.full((2, 2), -1.0)
    column = base[:, 0]
    column.copy_(torch.tensor([rank + 1.0, rank + 2.0]))
    total = torch.tensor([sum(r + 1.0 for r in range(world)), sum(r + 2.0 for r in range(world))])
    dist.all_reduce(column)
    same(column.clone(), total)
    same(base[:, 1].clone(), torch.tensor([-1.0, -1.0]))
    dist.reduce(column, 0)
    if rank == 0:
        same(column.clone(), total * world)
    column.copy_(torch.tensor([rank * 10.0, rank * 10.0 + 1]))
    dist.broadcast(column, world - 1)
    same(column.clone(), torch.tensor([(world - 1) * 10.0, (world - 1) * 10.0 + 1]))
    gathered = [torch.full((2, 2), -1.0) for _ in range(world)] if rank == 0 else None
    column.copy_(torch.tensor([rank * 1.0, rank * 2.0]))
    dist.gather(column, [g[:, 1] for g in gathered] if rank == 0 else None, dst=0)
    for r, g in enumerate(gathered or []):
        same(g, torch.tensor([[-1.0, r * 1.0], [-1.0, r * 2.0]]))
    scattered = (
        [torch.tensor([[r * 3.0, -1.0], [r * 4.0, -1.0]])[:, 0] for r in range(world)] if rank == 0 else None
    )
    dist.scatter(column, scattered, src=0)
    same(base, torch.tensor([[rank * 3.0, -1.0], [rank * 4.0, -1.0]]))
    square = torch.arange(16.0).view(4, 4)
    if rank == 0:
        dist.send(square.t(), 1)
        dist.send(torch._neg_view(torch.ones(3)), 1)  # negated lazily: its memory holds +1
    if rank == 1:
        plain = torch.empty(4, 4)
        dist.recv(plain, 0)
        same(plain, square.t().contiguous())
        negated = torch.empty(3)
        dist.recv(negated, 0)
        same(negated, -torch.ones(3))
    with pytest.raises(RuntimeError, match="INVALID_ARGUMENT.*one place of memory"):
        dist.all_reduce(torch.ones(1).expand(4))
    dist.barrier()


def test_strided_tensors(ranks):
    ranks.values(2, strided_body)


def unaligned_body(rank, world):  # U07
    init()
    for dtype in (torch.bfloat16, torch.float32, torch.uint8):
        for count in range(1, 34):
            big = values_of(rank, count + 2, dtype)
            inputs = [values_of(r, count + 2, dtype)[1:-1] for r in range(world)]
            x = big[1:-1]
            dist.all_reduce(x)
            same(x.clone(), torch.stack(inputs).to(torch.float64).sum(0).to(dtype))
            same(big[0 :: count + 1].clone(), values_of(rank, count + 2, dtype)[0 :: count + 1])
            x.copy_(inputs[rank])
            whole = torch.empty(world * count + 1, dtype=dtype)[1:]
            dist.all_gather_into_tensor(whole, x)
            same(whole.clone(), torch.cat(inputs))
            dist.reduce_scatter_tensor(x, whole)
            same(x.clone(), (inputs[rank].to(torch.float64) * world).to(dtype))
            dist.broadcast(x, count % world)


def test_unaligned_pointers(ranks):
    ranks.values(2, unaligned_body)


def averages_body(rank, world):  # U13
    init()
    for dtype in (torch.float32, torch.bfloat16):
        tensor = torch.full((7,), float(rank + 1), dtype=dtype)
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        same(tensor, torch.full((7,), (world + 1) / 2, dtype=dtype))
    tensor = torch.full((5,), float(3 * (rank + 1)))
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(1 / 3))
    assert torch.allclose(tensor, torch.full((5,), float(sum(range(1, world + 1)))))
    quarter = torch.full((5,), float(4 * (rank + 1)), dtype=torch.bfloat16)
    dist.all_reduce(quarter, dist._make_nccl_premul_sum(torch.tensor(0.25)))
    same(quarter, torch.full((5,), float(sum(range(1, world + 1))), dtype=torch.bfloat16))
    # Near the largest bf16: each input is scaled before the sum, so nothing overflows.
    big = torch.full((5,), 2.0**127, dtype=torch.bfloat16)
    dist.all_reduce(big, dist._make_nccl_premul_sum(1 / (2 * world)))
    same(big, torch.full((5,), 2.0**126, dtype=torch.bfloat16))
    # Integers: the one documented rule is that the exact sum is divided and truncated toward zero.
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        whole = torch.tensor([rank + 1, -(rank + 1), 5], dtype=dtype)
        dist.all_reduce(whole, dist.ReduceOp.AVG)
        total = sum(range(1, world + 1))
        same(whole, torch.tensor([int(total / world), int(-total / world), 5], dtype=dtype))


def test_averages_and_scaled_sums(ranks):
    ranks.values(4, averages_body)


def refusals_body(rank, world):
    init()
    for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        with pytest.raises(RuntimeError, match="UNSUPPORTED.*bitwise.*use MIN"):
            dist.all_reduce(torch.ones(3, dtype=torch.int32), op)
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        with pytest.raises(RuntimeError, match="UNSUPPORTED.*Float8.*reduce in float32"):
            dist.all_reduce(torch.ones(64).to(dtype))
    with pytest.raises(RuntimeError, match="UNSUPPORTED.*to_dense"):
        dist.all_reduce(torch.eye(3).to_sparse())
    with pytest.raises(RuntimeError, match="INVALID_ARGUMENT"):
        dist.all_gather_into_tensor(torch.empty(world * 3 + 1), torch.empty(3))
    with pytest.raises(RuntimeError, match="INVALID_ARGUMENT.*Float"):
        dist.all_gather_into_tensor(torch.empty(world * 3, dtype=torch.int32), torch.empty(3))
    # A local refusal sends nothing: the group lives on.
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    same(tensor, torch.full((3,), float(world)))


def test_what_is_refused_locally_leaves_the_group_alive(ranks):
    ranks.values(2, refusals_body)


def same_bits_body(rank, world):  # U15
    init()
    generator = torch.Generator().manual_seed(1000 + rank)
    digest = hashlib.sha256()
    for i in range(330):
        for dtype in (torch.float16, torch.bfloat16, torch.float32):
            tensor = torch.randn(1 + (i * 37) % 2000, generator=generator).to(dtype)
            dist.all_reduce(tensor)
            digest.update(tensor.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("world", [2, 3, 4])
def test_all_ranks_get_the_same_bits_and_every_run_too(ranks, world):
    first = ranks.values(world, same_bits_body)
    again = ranks.values(world, same_bits_body)
    assert len(set(first + again)) == 1


def in_place_body(rank, world):
    """What FSDP2 does: the input is a slice of the output, several tensors are coalesced, dtypes go as
    bytes."""
    init()
    whole = torch.full((world * 5,), -1.0)
    piece = whole.narrow(0, rank * 5, 5)
    piece.copy_(values_of(rank, 5, torch.float32))
    dist.all_gather_into_tensor(whole, piece)
    same(whole, torch.cat([values_of(r, 5, torch.float32) for r in range(world)]))
    # the slice is somebody else's place: copied, not corrupted
    wrong = whole.narrow(0, ((rank + 1) % world) * 5, 5)
    wanted = torch.cat([whole.narrow(0, ((r + 1) % world) * 5, 5).clone() for r in range(world)])
    dist.all_gather_into_tensor(whole, wrong)
    same(whole, wanted)
    grads = values_of(rank, world * 5, torch.float32)
    shard = grads.narrow(0, rank * 5, 5)
    total = sum(values_of(r, world * 5, torch.float32) for r in range(world))
    dist.reduce_scatter_tensor(shard, grads, dist.ReduceOp.AVG)
    assert torch.allclose(shard, total.narrow(0, rank * 5, 5) / world)
    from torch.distributed.distributed_c10d import _coalescing_manager

    tensors = [torch.full((3,), float(rank + i)) for i in range(4)]
    with _coalescing_manager() as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    for i, tensor in enumerate(tensors):
        same(tensor, torch.full((3,), float(sum(r + i for r in range(world)))))
    outs = [torch.empty(world * 2) for _ in range(3)]
    with _coalescing_manager(async_ops=True) as manager:
        for i, out in enumerate(outs):
            dist.all_gather_into_tensor(out, torch.full((2,), float(rank * 10 + i)))
    manager.wait()
    for i, out in enumerate(outs):
        same(out, torch.cat([torch.full((2,), float(r * 10 + i)) for r in range(world)]))
    with _coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        dist.all_reduce(tensors[0])
        dist.broadcast(tensors[1], 0)
    manager.wait()
    mixed = torch.cat(
        [torch.ones(3).view(torch.uint8), torch.ones(2, dtype=torch.bfloat16).view(torch.uint8)]
    )
    both = torch.empty(world * mixed.numel(), dtype=torch.uint8)
    dist.all_gather_into_tensor(both, mixed)
    same(both, mixed.repeat(world))


@pytest.mark.parametrize("world", [2, 3])
def test_in_place_and_coalesced(ranks, world):
    ranks.values(world, in_place_body)


def p2p_body(rank, world):
    init()
    right, left = (rank + 1) % world, (rank - 1) % world
    out = torch.empty(100)
    requests = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, torch.full((100,), float(rank)), right), dist.P2POp(dist.irecv, out, left)]
    )
    for request in requests:
        request.wait()
    same(out, torch.full((100,), float(left)))
    if rank == 0:
        seen = set()
        for _ in range(world - 1):
            data = torch.empty(4)
            source = dist.recv(data, tag=5)
            same(data, torch.full((4,), float(source)))
            seen.add(source)
        assert seen == set(range(1, world))
    else:
        dist.send(torch.full((4,), float(rank)), 0, tag=5)
    many = [torch.empty(10) for _ in range(20)]
    if rank == 0:
        for work in [dist.isend(torch.full((10,), float(i)), 1) for i in range(20)]:
            work.wait()
    if rank == 1:
        for work in [dist.irecv(tensor, 0) for tensor in many]:
            work.wait()
        for i, tensor in enumerate(many):
            same(tensor, torch.full((10,), float(i)))
    with pytest.raises(RuntimeError, match="INVALID_ARGUMENT|Invalid|rank"):
        dist.send(torch.ones(1), world)
    dist.barrier()


@pytest.mark.parametrize("world", [2, 4])
def test_point_to_point(ranks, world):
    ranks.values(world, p2p_body)


def objects_body(rank, world):
    init()
    gathered = [None] * world
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * (rank * 100)})
    assert [g["rank"] for g in gathered] == list(range(world))
    shared = [{"from": 0}, "two"] if rank == 0 else [None, None]
    dist.broadcast_object_list(shared, 0)
    assert shared == [{"from": 0}, "two"]
    out = [None]
    dist.scatter_object_list(out, [f"for {r}" for r in range(world)] if rank == 0 else None, src=0)
    assert out == [f"for {rank}"]
    got = [None] * world if rank == 1 else None
    dist.gather_object(rank * rank, got, dst=1)
    assert rank != 1 or got == [r * r for r in range(world)]


def test_object_collectives(ranks):
    ranks.values(3, objects_body)


def async_body(rank, world):  # U22
    init()
    tensors = [torch.full((50_000,), float(rank + i)) for i in range(8)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for i, (work, tensor) in enumerate(zip(works, tensors)):
        assert work.wait() and work.is_completed() and work.is_success()
        same(tensor, torch.full((50_000,), float(sum(r + i for r in range(world)))))
        same(work.result()[0], tensor)
    # Futures: chained, completed late and early, and a callback that runs a collective and waits for it.
    tensor = torch.ones(10)

    def again(future):
        inner = future.value()[0] * 2
        return dist.all_reduce(inner, async_op=True).get_future().wait()[0]

    chained = dist.all_reduce(tensor, async_op=True).get_future().then(again)
    same(chained.wait(), torch.full((10,), 2.0 * world * world))
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    same(work.get_future().wait()[0], torch.full((10,), float(world * world)))
    assert dist.barrier(async_op=True).get_future().wait() == []


def test_asynchronous_work_and_futures(ranks):
    ranks.values(2, async_body)
