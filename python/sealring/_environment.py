"""The rules of SEALRING_* that hold before the library is loaded: which names there are, and what flags take.

sealring/collective/config.cc has the whole rules and applies them when a group of sealring is made. These are
looked at when the backend registers, so that SEALRING_REQUIRED=1 or SEALRING_REQUIRE=true lets no group of
another backend pass. tests/tidy compares the two lists.
"""

from __future__ import annotations

import os

from ._errors import error

PREFIX = "SEALRING_"
VARIABLES = (
    "SEALRING_ALLOW_MIXED",
    "SEALRING_BLOCKING_WAIT",
    "SEALRING_HARDEN",
    "SEALRING_JOB_KEY_FILE",
    "SEALRING_LOG",
    "SEALRING_NODE_RANKS",
    "SEALRING_ON_ERROR",
    "SEALRING_PATH",
    "SEALRING_PORT_RANGE",
    "SEALRING_REQUIRE",
    "SEALRING_SOCKET_IFNAME",
    "SEALRING_SUITE",
    "SEALRING_TIMEOUT_S",
    "SEALRING_TORCH_INDEX",
)
FLAGS = ("SEALRING_ALLOW_MIXED", "SEALRING_BLOCKING_WAIT", "SEALRING_HARDEN", "SEALRING_REQUIRE")


def problem() -> RuntimeError | None:
    """ENVIRONMENT for the first variable, by name, that is unknown or a flag with no flag's value."""
    for name, value in sorted(os.environ.items()):
        if not name.startswith(PREFIX):
            continue
        if name not in VARIABLES:
            near = nearest(name)
            what = f"unknown variable {_shown(name)}"
            if not near:
                next_step = "correct or unset the variable; the README lists all SEALRING_ variables"
                return error(103, "environment", what, next_step)
            next_step = f"did you mean {near}? Rename it or unset it"
            return error(103, "environment", what, next_step, expected=near)
        if name in FLAGS and value not in ("", "0", "1"):
            what = f"{name} has a value that it does not take"
            next_step = f"set {name} to 0 or 1, or unset it"
            return error(103, "environment", what, next_step, expected="0 or 1", got=_shown(value))
    return None


def nearest(name: str) -> str:
    """The variable that a mistyped one was most likely meant to be; empty when none is near.

    The rule of sealring/base/suggest.h.
    """
    word = name.removeprefix(PREFIX)
    allowed = 1 if len(word) <= 4 else 2 if len(word) <= 11 else 3
    best, best_distance = "", allowed + 1
    for known in VARIABLES:
        ending = known.removeprefix(PREFIX)
        part = len(word) > 3 and (ending.startswith(word) or ending.endswith(word))
        distance = 1 if part else _edit_distance(word, ending)
        if distance < best_distance:
            best, best_distance = known, distance
    return best


def _edit_distance(a: str, b: str) -> int:
    """Letters inserted, left out, replaced, or swapped with their neighbour, that make `b` of `a`."""
    two_above, above = [], list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        row = [i]
        for j, right in enumerate(b, 1):
            best = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (left != right))
            if i > 1 and j > 1 and left == b[j - 2] and a[i - 2] == right:
                best = min(best, two_above[j - 2] + 1)
            row.append(best)
        two_above, above = above, row
    return above[-1]


def _shown(text: str) -> str:
    """As the library shows a foreign value: printable, and not longer than a line."""
    raw = os.fsencode(text)
    out = "".join(chr(c) if 0x20 <= c < 0x7F else "?" for c in raw[:60])
    return out + "..." if len(raw) > 60 else out
