"""Registers the backend "sealring" with PyTorch; the native module is loaded when a group is made."""

from __future__ import annotations

import os
import sys
import warnings

from . import _environment
from ._errors import error

NAME = "sealring"


def register() -> None:
    """Idempotent. Also puts SEALRING_REQUIRE=1 into force, and what is wrong with the environment."""
    import torch.distributed as dist

    if not dist.is_available():
        return
    if NAME.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
    problem = _environment.problem()
    if problem is not None:
        # Whoever set it may have meant SEALRING_REQUIRE=1: no group is made until it is right.
        from . import _require

        _require.refuse_while_wrong(problem)
    if os.environ.get("SEALRING_REQUIRE") == "1" or os.environ.get("_SEALRING_RUN") == "1":
        from . import _require

        _require.require(map_backends=os.environ.get("_SEALRING_RUN") == "1")


def _create(options, _pg_options=None):
    """The creator: PyTorch calls it for each group (and device type) that names this backend."""
    refuse_mixed(_requested_backends())
    warn_of_debug()
    from ._load import library

    return library().create(options)


def warn_of_debug() -> None:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL makes PyTorch wrap each group with a helper group of Gloo."""
    if os.environ.get("TORCH_DISTRIBUTED_DEBUG", "").upper() != "DETAIL":
        return
    message = (
        "sealring: TORCH_DISTRIBUTED_DEBUG=DETAIL makes PyTorch add a helper group of Gloo, which sends "
        "shapes and operation names in clear; unset it, or set SEALRING_REQUIRE=1 to have it refused"
    )
    warnings.warn(message, stacklevel=2)


def _requested_backends() -> dict[str, str]:
    """Device type -> backend of the group that is being made, out of the frame that asked for it."""
    frame = sys._getframe(1)
    for _ in range(12):
        if frame is None:
            break
        config = frame.f_locals.get("backend_config")
        if hasattr(config, "get_device_backend_map"):
            return {device: str(backend) for device, backend in config.get_device_backend_map().items()}
        frame = frame.f_back
    return {}


def refuse_mixed(backends: dict[str, str]) -> None:
    """Raises MIXED_BACKEND when another backend serves some device type, unless SEALRING_ALLOW_MIXED=1."""
    others = sorted({backend for backend in backends.values() if backend != NAME})
    if not others:
        return
    text = ",".join(f"{device}:{backend}" for device, backend in backends.items())
    if os.environ.get("SEALRING_ALLOW_MIXED") == "1":
        rank = os.environ.get("RANK", "?")
        message = f"sealring: rank {rank}: '{text}': what goes through {', '.join(others)} is sent in clear"
        print(message, file=sys.stderr, flush=True)
        warnings.warn(message, stacklevel=2)
        return
    raise error(
        114,
        "init_process_group",
        f"'{text}' would send what goes through {', '.join(others)} in clear",
        'use "sealring" alone, which serves every device (SEALRING_ALLOW_MIXED=1 passes it with a warning)',
    )
