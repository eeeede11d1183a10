"""Sealed data-parallel training.

sealring keygen job.key
SEALRING_JOB_KEY_FILE=job.key torchrun --nproc-per-node 2 examples/train_ddp.py
"""

import torch
import torch.distributed as dist

import sealring

dist.init_process_group("sealring")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    optimizer.zero_grad()
    loss = model(torch.randn(32, 64)).square().mean()
    loss.backward()
    optimizer.step()
print(f"rank {dist.get_rank()}: loss {loss.item():.4f}; {sealring.describe()}")
dist.destroy_process_group()
