"""Errors in the library's format, for what is refused before the library is loaded."""

from __future__ import annotations

_NAMES = {
    101: "INVALID_ARGUMENT",
    102: "UNSUPPORTED",
    103: "ENVIRONMENT",
    114: "MIXED_BACKEND",
    115: "REQUIRED",
    116: "VERSION_MISMATCH",
}


def error(
    code: int, stage: str, what: str, next_step: str, expected: str = "", got: str = ""
) -> RuntimeError:
    """A RuntimeError that says what, where and what to do; `sealring explain CODE` has more."""
    head = f"SR-E{code} stage={stage}"
    if expected:
        head += f" expected={expected}"
    if got:
        head += f" got={got}"
    return RuntimeError(displayed(f"{head}: {_NAMES[code]}: {what}; {next_step}"))


def displayed(text: str) -> str:
    """One line, in which nothing commands a terminal: the texts may quote variables and paths."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
