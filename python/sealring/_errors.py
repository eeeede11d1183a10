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


def error(code: int, stage: str, what: str, next_step: str) -> RuntimeError:
    """A RuntimeError that says what, where and what to do; `sealring explain CODE` has more."""
    return RuntimeError(f"SR-E{code} stage={stage}: {_NAMES[code]}: {what}; {next_step}")
