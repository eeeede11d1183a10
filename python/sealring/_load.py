"""Loads the native module, after everything that could go wrong with it has been looked at."""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import struct
import threading

from ._errors import error

_REINSTALL = "reinstall with: pip install --no-build-isolation --force-reinstall --no-deps ."
_lock = threading.Lock()
_library = None


def version_problem() -> RuntimeError | None:
    """An error if the module was built for another PyTorch than the one that is here."""
    import torch

    try:
        from ._build_info import TORCH_VERSION as built_for
    except ImportError:
        return error(116, "load", "the native module has not been built", _REINSTALL)
    found = str(torch.__version__)
    if found != built_for:
        return error(116, "load", f"built for torch {built_for}, found torch {found}", _REINSTALL)
    return None


def _module_file() -> str | None:
    folder = os.path.dirname(os.path.abspath(__file__))
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = os.path.join(folder, "_C" + suffix)
        if os.path.exists(path):
            return path
    return None


def _file_problem(path: str) -> str | None:
    """What is wrong with a file that the loader would crash on: it maps a cut one and dies of SIGBUS."""
    with open(path, "rb") as file:
        header = file.read(64)
        size = os.fstat(file.fileno()).st_size
    if len(header) < 64 or header[:5] != b"\x7fELF\x02":
        return "it is not a 64-bit ELF file"
    order = "<" if header[5] == 1 else ">"
    (section_table,) = struct.unpack_from(order + "Q", header, 0x28)
    entry_bytes, entries = struct.unpack_from(order + "HH", header, 0x3A)
    if section_table + entry_bytes * entries > size:
        return "it has been cut off"
    return None


def library():
    """The native module. Raises VERSION_MISMATCH, in one line, for whatever keeps it from loading."""
    global _library
    if _library is not None:
        return _library
    with _lock:
        if _library is None:
            _library = _load()
    return _library


def _load():
    problem = version_problem()
    if problem is not None:
        raise problem
    path = _module_file()
    if path is None:
        raise error(116, "load", "the native module is missing", _REINSTALL)
    reason = _file_problem(path)
    if reason is None:
        try:
            module = importlib.import_module("sealring._C")
        except Exception as caught:  # a damaged or foreign library, of whatever kind
            reason = " ".join(str(caught).split())[:300]
    if reason is not None:
        raise error(116, "load", f"cannot load {path}: {reason}", _REINSTALL)
    import atexit

    atexit.register(module.close_all)  # while Python is still there: the peers are told, threads end
    return module
