"""The study's second backend, "sealring_study": for measuring what sealing costs, never for training.

Only the study's workers register it. Its ranks have identity 0xF1, which a secured backend refuses, so a
study rank and a secured rank can never share a session; with suite "plain" nothing is protected. No option or
variable gives the backend "sealring" these settings.
"""

from __future__ import annotations

import sys

from ._errors import error

NAME = "sealring_study"
_settings: dict | None = None


def register(
    *,
    job_key_file: str,
    suite: str = "plain",
    algorithm: str = "auto",
    segment_bytes: int | None = None,
    emulate: tuple[float, float, str] | None = None,
) -> None:
    """Registers "sealring_study", or changes its settings for groups made from now on. Announces itself.

    job_key_file: the key that the study made for this run. suite: "plain", "chained-gmac" or a secured one.
    algorithm: "auto", "ring", "one-hop", "one-shot" or, with SEALRING_NODE_RANKS, "two-level". emulate:
    (a_us, b_ns_per_kib, "inline" | "offload"), a cost for each crypto operation of suite "plain".
    """
    global _settings
    import torch.distributed as dist

    from . import _require
    from ._load import library

    if _require._active:
        raise error(115, "study_backend", "sealring is required in this process", "run the study without it")
    library().check_study(suite, algorithm, segment_bytes, emulate)
    _settings = {
        "suite": suite,
        "algorithm": algorithm,
        "segment_bytes": segment_bytes,
        "emulate": emulate,
        "key_file": job_key_file,
    }
    if NAME.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
    _announce(f"registered: suite {suite}, algorithm {algorithm}, emulate {emulate}")


def _create(options, _pg_options=None):
    from ._load import library

    s = _settings
    if options.group_rank == 0:
        _announce(f"group '{options.group_id}' of {options.group_size} ranks, suite {s['suite']}")
    return library().create_study(
        options, s["suite"], s["algorithm"], s["segment_bytes"], s["emulate"], s["key_file"]
    )


def _announce(what: str) -> None:
    print(
        f"*** sealring_study: MEASUREMENT ONLY, DATA IS NOT PROTECTED *** {what}", file=sys.stderr, flush=True
    )
