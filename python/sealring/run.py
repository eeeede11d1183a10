"""Runs an unmodified training script with sealring as its only backend.

    python -m sealring.run script.py [arguments]
    python -m sealring.run -m module [arguments]
    torchrun --nproc-per-node 2 -m sealring.run script.py [arguments]

Whatever backend the script names ("gloo", "nccl", "cpu:gloo,cuda:nccl") becomes "sealring"; any other way to
make a process group raises.
"""

from __future__ import annotations

import os
import runpy
import sys


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] in ([], ["-h"], ["--help"]):
        print(__doc__, file=sys.stdout if arguments else sys.stderr)
        raise SystemExit(0 if arguments else 2)
    os.environ["SEALRING_REQUIRE"] = "1"
    os.environ["_SEALRING_RUN"] = "1"  # for ranks that the script starts itself
    from . import _require

    _require.require(map_backends=True)
    if arguments[0] == "-m":
        if len(arguments) < 2:
            print("sealring.run: -m needs a module", file=sys.stderr)
            raise SystemExit(2)
        sys.argv = arguments[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    script = arguments[0]
    if not os.path.exists(script):
        print(f"sealring.run: there is no {script}", file=sys.stderr)
        raise SystemExit(2)
    sys.argv = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
