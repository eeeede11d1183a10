"""Workers of `sealring study` and of the Gloo rows of `sealring bench`: they train, C++ drives.

Started by the tool, one process a rank; commands come as lines on standard input, answers leave as lines
on standard
output. `python3 -m sealring.train --help` names the options; there is no use for it by hand.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import hashlib
import json
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# --- models: plain torch, sized for 0.05 to 0.12 s an iteration on one core ----------------------------


class ResidualBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        same = stride == 1 and inputs == outputs
        self.skip = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        return torch.relu(self.body(x) + self.skip(x))


class SmallResNet(nn.Sequential):
    """A residual network for 16x16 pictures: few, wide stages, so that its gradients weigh something."""

    def __init__(self):
        stages = [
            ResidualBlock(48, 48, 1),
            ResidualBlock(48, 96, 2),
            ResidualBlock(96, 192, 2),
            ResidualBlock(192, 384, 2),
            ResidualBlock(384, 384, 1),
        ]
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(384, 100)]
        super().__init__(
            nn.Conv2d(3, 48, 3, 1, 1, bias=False), nn.BatchNorm2d(48), nn.ReLU(), *stages, *head
        )


class TransformerBlock(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm_2(x))


class SmallGpt2(nn.Module):
    """GPT-2's architecture with tied embeddings, small."""

    def __init__(self, layers=3, width=320, heads=5, vocabulary=4096, length=64):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads) for _ in range(layers)))
        self.norm, self.vocabulary = nn.LayerNorm(width), vocabulary

    def forward(self, tokens):
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        return nn.functional.linear(self.norm(self.blocks(x)), self.token.weight)


MODELS = {
    # name -> model, batch, what it is
    "resnet": (SmallResNet, 8, "residual network, 5 blocks, 16x16 pictures"),
    "gpt2": (SmallGpt2, 2, "GPT-2 architecture, 3 layers of width 320, 64 tokens, vocabulary 4096"),
}


def make_batch(model: str, batch: int, rank: int):
    source = torch.Generator().manual_seed(1000 + rank)
    if model == "resnet":
        return torch.randn(batch, 3, 16, 16, generator=source), torch.randint(
            100, (batch,), generator=source
        )
    tokens = torch.randint(4096, (batch, 65), generator=source)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def loss_of(logits, target):
    return nn.functional.cross_entropy(logits.flatten(0, -2), target.flatten())


# --- one case ----------------------------------------


def init_group(args, case: dict) -> None:
    """Makes the default process group anew, under a name that no other case uses."""
    backend = "gloo"
    if case["engine"] == "sealring":
        from sealring import study_backend

        emulate = case.get("emulate")
        study_backend.register(
            suite=case["suite"],
            algorithm=case["algorithm"],
            emulate=tuple(emulate) if emulate else None,
            job_key_file=args.key,
        )
        backend = "sealring_study"
    store = dist.PrefixStore(case["name"], dist.FileStore(args.store, args.world))
    dist.init_process_group(backend, store=store, rank=args.rank, world_size=args.world)


def read_counters(case: dict) -> dict:
    if case["engine"] != "sealring":
        return {}
    import sealring

    return sealring.counters()


def iterate(wrapped, optimizer, data, count: int, sync: bool = True) -> dict:
    """Trains `count` iterations on one batch; times of each in ms."""
    out = {"iteration_ms": [], "forward_ms": [], "backward_ms": [], "loss": 0.0}
    inputs, target = data
    with contextlib.nullcontext() if sync else wrapped.no_sync():
        for _ in range(count):
            start = time.perf_counter()
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(wrapped(inputs), target)
            forward = time.perf_counter()
            loss.backward()
            backward = time.perf_counter()
            optimizer.step()
            end = time.perf_counter()
            out["iteration_ms"].append(1e3 * (end - start))
            out["forward_ms"].append(1e3 * (forward - start))
            out["backward_ms"].append(1e3 * (backward - forward))
            out["loss"] = loss.item()
    return out


def bucket_sizes(wrapped) -> tuple[list[int], list[int]]:
    """Bytes of DDP's buckets before and after its rebuild, as DDP itself logs them."""
    log = wrapped._get_ddp_logging_data()

    def numbers(key):
        return [int(text) for text in str(log.get(key, "")).replace(",", " ").split()]

    before = numbers("bucket_sizes")
    return before, numbers("rebuilt_bucket_sizes") or before


def parameters_hash(model) -> str:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


def run_case(args, case: dict) -> dict:
    begin = time.perf_counter()
    init_group(args, case)
    try:
        torch.manual_seed(7)
        make, batch, _ = MODELS[case["model"]]
        model = make()
        wrapped = DistributedDataParallel(
            model, bucket_cap_mb=case["cap_mib"], gradient_as_bucket_view=True
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        data = make_batch(case["model"], batch, args.rank)
        setup_ms = 1e3 * (time.perf_counter() - begin)
        iterate(wrapped, optimizer, data, case["warmup"])
        before, cpu_before = read_counters(case), time.process_time()
        out = iterate(wrapped, optimizer, data, case["iterations"])
        cpu_ms, after = 1e3 * (time.process_time() - cpu_before), read_counters(case)
        out["parameters_sha256"] = parameters_hash(model)
        out["no_sync_ms"] = iterate(wrapped, optimizer, data, case["no_sync"], sync=False)[
            "iteration_ms"
        ]
        out["buckets_before"], out["buckets_after"] = bucket_sizes(wrapped)
        out["setup_ms"], out["cpu_ms"] = setup_ms, cpu_ms / case["iterations"]
        for key in ("seals", "opens", "sealed_bytes", "opened_bytes", "seal_ns", "open_ns", "wire_ns"):
            out[key] = (after.get(key, 0) - before.get(key, 0)) / case["iterations"]
        dist.barrier()  # no rank leaves the group while another still trains
        return out
    finally:
        dist.destroy_process_group()


# --- the two modes ----------------------------------------


def say(answer: dict) -> None:
    print(json.dumps(answer), flush=True)


def run_study(args) -> None:
    models = {}
    for name, (make, batch, description) in MODELS.items():
        parameters = sum(parameter.numel() for parameter in make().parameters())
        models[name] = {"parameters": parameters, "batch": batch, "description": description}
    say({"ready": True, "torch": torch.__version__, "python": sys.version.split()[0], "models": models})
    for line in sys.stdin:
        try:
            say(run_case(args, json.loads(line)))
        except Exception as problem:  # the driver prints it and ends the run
            say({"error": f"{type(problem).__name__}: {problem}"})
            return


def run_allreduce_bench(args) -> None:
    dist.init_process_group(
        "gloo", store=dist.FileStore(args.store, args.world), rank=args.rank, world_size=args.world
    )
    dtype = {
        "fp32": torch.float32,
        "fp64": torch.float64,
        "fp16": torch.float16,
        "bf16": torch.bfloat16,
        "int8": torch.int8,
        "int32": torch.int32,
        "int64": torch.int64,
        "uint8": torch.uint8,
    }[args.dtype]
    tensor = torch.zeros(0, dtype=dtype)
    print("ready", flush=True)
    for line in sys.stdin:
        _, size_bytes, calls = line.split()
        if tensor.nbytes != int(size_bytes):
            tensor = torch.zeros(int(size_bytes) // dtype.itemsize, dtype=dtype)
        dist.barrier()
        start, cpu_start = time.perf_counter_ns(), time.process_time_ns()
        for _ in range(int(calls)):
            dist.all_reduce(tensor)
        elapsed = time.perf_counter_ns() - start
        print(elapsed, time.process_time_ns() - cpu_start, flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python3 -m sealring.train", description=__doc__)
    parser.add_argument("--mode", choices=("study", "allreduce-bench"), required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--store", required=True, help="file through which the ranks meet")
    parser.add_argument("--key", default="", help="file with the throwaway job key of this run")
    parser.add_argument("--dtype", default="fp32")
    args = parser.parse_args()
    # Every engine gets the same threads: as many as this rank has CPUs.
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    faulthandler.register(signal.SIGUSR1)  # the driver asks where a rank stands that does not answer
    if args.mode == "study":
        run_study(args)
    else:
        run_allreduce_bench(args)


if __name__ == "__main__":
    main()
