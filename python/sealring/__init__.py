"""Sealed collectives for PyTorch: every message between ranks is encrypted and authenticated.

    import sealring
    torch.distributed.init_process_group("sealring")

Importing this package loads no native code: that happens when the first group is made. It has been built for
one version of PyTorch, which is compared before anything is loaded.
"""

from __future__ import annotations

import os as _os
import sys as _sys

try:
    from ._build_info import VERSION as __version__
except ImportError:  # the sources, not built
    __version__ = "unknown"

__all__ = ["counters", "describe", "predict", "require"]


def describe(group=None):
    """What protects a group (default: the world), as a dict whose str() is one line.

    backend, group, rank, ranks, global_ranks, suite, algorithm, segment_bytes, node_ranks (of the session; 0:
    not known), identity, key_fingerprint, transport, timeout_s, setup_s, epoch, and the totals of counters().
    """
    from ._groups import describe as implementation

    return implementation(group)


def counters(group=None):
    """Totals of a group (default: the world) since it was made, of this rank: a dict of integers.

    ops; seals, opens (crypto operations, one a record); sealed_segments, opened_segments; sealed_bytes,
    opened_bytes (payload); seal_ns, open_ns, wire_ns; epoch (the highest that any key has entered).
    """
    from ._groups import counters as implementation

    return implementation(group)


def predict(
    op, elements, element_bytes, world, rank, algorithm="auto", segment_bytes=256 * 1024, root=0, node_ranks=0
):
    """What an operation costs a rank by its schedule: seals, opens, bytes, segments (nothing is run).

    `elements` is of the tensor (all_reduce, broadcast, reduce), of the output (reduce_scatter, scatter), of
    the input (all_gather, gather), or of one piece (all_to_all). node_ranks: as SEALRING_NODE_RANKS.
    """
    from ._load import library

    return library().predict(
        op, elements, element_bytes, world, rank, algorithm, segment_bytes, root, node_ranks
    )


def require():
    """From now on this process makes no other process group: the attempt raises and names its line.

    The same as SEALRING_REQUIRE=1. It covers torch.distributed's Python interface (init_process_group,
    new_group, device meshes, the ProcessGroup classes, TORCH_DISTRIBUTED_DEBUG=DETAIL's helper group), not
    torch.distributed.rpc and not groups that other native code makes. Raises if such a group is already
    there.
    """
    from ._require import require as implementation

    implementation()


def _autoload():
    """The entry point of `torch.backends`, called inside `import torch`: pure Python, and never breaks it."""
    try:
        from .autoload import register

        register()
    except Exception as problem:
        # Whoever asked for SEALRING_REQUIRE, or nearly (SEALRING_REQUIRED, true), must not go on without it.
        asked = [name for name in _os.environ if name.startswith("SEALRING_REQ") or name == "_SEALRING_RUN"]
        if any(_os.environ[name] not in ("", "0") for name in asked):
            raise
        print(f"sealring: not registered with PyTorch: {problem!r}", file=_sys.stderr)


def _import_by_user():
    """`import sealring`: check the versions and register, unless `import torch` is what is going on."""
    torch = _sys.modules.get("torch")
    if torch is not None and getattr(torch.__spec__, "_initializing", False):
        return  # _autoload follows; an error here would break `import torch`, so the first group raises it
    import torch

    from ._load import version_problem
    from .autoload import register

    problem = version_problem()
    if problem is not None:
        raise ImportError(str(problem))
    register()


_import_by_user()
