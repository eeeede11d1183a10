"""describe() and counters(): from a process group to the native backend behind it."""

from __future__ import annotations

from ._errors import error
from ._load import library


class Description(dict):
    """A dict that prints as the one line of the log."""

    def __str__(self) -> str:
        return self["line"]


def backend_of(group):
    import torch
    import torch.distributed as dist

    if group is None:
        if not dist.is_initialized():
            raise error(
                101, "describe", "there is no process group", 'call init_process_group("sealring") first'
            )
        group = dist.group.WORLD
    if group == dist.GroupMember.NON_GROUP_MEMBER:
        raise error(101, "describe", "this rank is not in the group", "ask a member")
    devices = sorted(str(device) for device in group._device_types)
    for device in devices:
        backend = group._get_backend(torch.device(device))
        # TORCH_DISTRIBUTED_DEBUG=DETAIL puts PyTorch's own checks in front.
        backend = getattr(backend, "wrapped_pg", backend)
        if backend.name().startswith("sealring"):
            return backend
    raise error(101, "describe", "the group is not one of sealring's", 'make it with backend "sealring"')


def describe(group):
    return Description(library().describe(backend_of(group)))


def counters(group):
    return library().counters(backend_of(group))
