"""A script that knows nothing of sealring, and says "gloo".

Unedited, this seals it:
SEALRING_JOB_KEY_FILE=job.key torchrun --nproc-per-node 2 -m sealring.run examples/train_gloo.py
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    optimizer.zero_grad()
    loss = model(torch.randn(32, 64)).square().mean()
    loss.backward()
    optimizer.step()
print(f"rank {dist.get_rank()}: loss {loss.item():.4f}; backend {dist.get_backend()}")
dist.destroy_process_group()
