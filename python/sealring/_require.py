"""require(): no process group but sealring's can be made in this process.

The same guards refuse every group while the environment is wrong (_environment.problem()).
"""

from __future__ import annotations

import functools
import os
import sys
import traceback
import warnings

from . import _environment
from ._errors import error
from .autoload import NAME

_OTHER_GROUPS = (
    "ProcessGroupGloo",
    "ProcessGroupNCCL",
    "ProcessGroupMPI",
    "ProcessGroupUCC",
    "ProcessGroupXCCL",
    "FakeProcessGroup",
)
_active = False
_mapping = False
_guards_stand = False
_warned = False


def require(map_backends: bool = False) -> None:
    """Idempotent. With `map_backends` (sealring.run) another backend's group becomes sealring's instead."""
    global _active, _mapping
    import torch.distributed as dist
    import torch.distributed.distributed_c10d as c10d

    from .autoload import register

    _mapping = _mapping or map_backends
    if _active:
        return
    _active = True
    os.environ["SEALRING_REQUIRE"] = "1"  # for processes that this one starts
    register()
    _guard()
    existing = _existing_group(c10d)
    if existing:
        raise _refusal(existing)


def refuse_while_wrong(problem: RuntimeError) -> None:
    """Until the environment is right, no group of any backend is made; `problem` is what is wrong now.

    Raises it if a group of another backend is already there, otherwise warns: it may be `import torch` that
    is going on.
    """
    global _warned
    import torch.distributed.distributed_c10d as c10d

    _guard()
    if _existing_group(c10d):
        raise problem
    if not _warned:
        _warned = True
        warnings.warn(f"sealring: no process group will be made: {problem}", RuntimeWarning, stacklevel=2)


def _existing_group(c10d) -> str:
    for group, (backend, _) in c10d._world.pg_map.items():
        if _others(c10d.BackendConfig(backend)):
            return f"process group '{c10d._world.pg_names[group]}' of backend '{backend}' is already there"
    return ""


def _guard() -> None:
    """Idempotent: from now on every way to a group asks _check()."""
    global _guards_stand
    import torch.distributed as dist
    import torch.distributed.distributed_c10d as c10d

    if _guards_stand:
        return
    _guards_stand = True
    c10d._new_process_group_helper = _guarded(c10d._new_process_group_helper, c10d, dist)
    native = sys.modules["torch._C._distributed_c10d"]
    for name in _OTHER_GROUPS:
        kind = getattr(c10d, name, None) or getattr(native, name, None)
        if kind is not None:
            _close(kind, name)
    if hasattr(c10d, "_create_process_group_wrapper"):
        c10d._create_process_group_wrapper = _checked_wrapper(c10d._create_process_group_wrapper)


def _required() -> bool:
    """Whether sealring is required. Raises while the environment is wrong."""
    problem = _environment.problem()
    if problem is not None:
        raise problem
    if os.environ.get("SEALRING_REQUIRE") == "1":  # it may have been put right to this
        require()
    return _active


def _check(what: str) -> None:
    """Raises for a group that is not sealring's, if it must be."""
    if _required():
        raise _refusal(what)


def _others(config) -> list[str]:
    return sorted({str(b) for b in config.get_device_backend_map().values() if str(b) != NAME})


def _call_site() -> str:
    """The innermost line of the program that is neither PyTorch's nor ours."""
    ours = os.path.dirname(os.path.abspath(__file__))
    torch = os.path.dirname(os.path.abspath(sys.modules["torch"].__file__))
    for frame in reversed(traceback.extract_stack()):
        path = os.path.abspath(frame.filename)
        if not path.startswith((ours + os.sep, torch + os.sep, "<")) and not frame.filename.startswith("<"):
            return f"{frame.filename}:{frame.lineno}"
    return "an unknown line"


def _refusal(what: str) -> RuntimeError:
    return error(
        115,
        "require",
        f"{what} (at {_call_site()}), and sealring is required in this process",
        f'use backend "{NAME}" there, or run the script with `python -m sealring.run`, which does it; '
        "without SEALRING_REQUIRE=1 and sealring.require() it would pass",
    )


def _guarded(original, c10d, dist):
    """Every Python way to a process group leads through this function."""

    @functools.wraps(original)
    def new_process_group_helper(group_size, group_rank, global_ranks_in_group, backend, *args, **kwargs):
        if not _required():
            return original(group_size, group_rank, global_ranks_in_group, backend, *args, **kwargs)
        if dist.get_debug_level() == dist.DebugLevel.DETAIL:
            raise error(
                115,
                "require",
                "TORCH_DISTRIBUTED_DEBUG=DETAIL makes a helper group of Gloo, which sends shapes in clear",
                "unset TORCH_DISTRIBUTED_DEBUG (INFO is fine)",
            )
        others = _others(c10d.BackendConfig(backend))
        if others and not _mapping:
            raise _refusal(f"backend '{backend}' was asked for")
        if others:
            print(f"sealring.run: '{backend}' becomes '{NAME}' (at {_call_site()})", file=sys.stderr)
            backend = c10d.Backend(NAME)
            kwargs.pop("backend_options", None)  # they are the other backend's
            if args[2:3]:
                args = (*args[:2], None, *args[3:])
        if getattr(c10d, "_use_torchcomms_enabled", lambda: False)():
            raise _refusal("torchcomms is enabled, which makes communicators of its own")
        return original(group_size, group_rank, global_ranks_in_group, backend, *args, **kwargs)

    return new_process_group_helper


def _close(kind, name: str) -> None:
    def checked(original):
        @functools.wraps(original)
        def make(*args, **kwargs):
            _check(f"a {name} was made")
            return original(*args, **kwargs)

        return make

    kind.__init__ = checked(kind.__init__)
    if hasattr(kind, "create"):
        kind.create = staticmethod(checked(kind.create))


def _checked_wrapper(original):
    @functools.wraps(original)
    def make(*args, **kwargs):
        _check("a debugging wrapper with a helper group was made")
        return original(*args, **kwargs)

    return make
