# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The console scripts of the tools: they become the executables that the wheel holds.

A package of its own, since importing `commsched` loads the library, which the executable is going to load, too.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import NoReturn

__all__ = [
    "comm_calibrate",
    "comm_lsp_server",
    "comm_opt",
    "comm_place",
    "comm_reduce",
    "comm_run",
    "comm_verify_spmd",
    "commsched_hlo",
    "find",
]


def find(tool: str) -> Path:
    """The executable: that of the wheel, or of the build tree of an editable installation. Raises FileNotFoundError."""
    spec = importlib.util.find_spec("commsched")
    package = Path(spec.origin).parent if spec and spec.origin else Path(__file__).parent
    places = [package / "bin" / tool, package.parents[1] / "build" / "bin" / tool]
    for place in places:
        if place.is_file():
            return place
    raise FileNotFoundError(f"expected {tool} at {' or '.join(map(str, places))}")


def become(tool: str) -> NoReturn:
    """Replaces this process by the tool, with this process's arguments."""
    try:
        path = find(tool)
    except FileNotFoundError as error:
        sys.exit(f"{tool}: {error}")
    machines = path.parents[1] / "machines"
    searched = [os.environ.get("COMMSCHED_MACHINE_PATH", ""), str(machines) if machines.is_dir() else ""]
    os.environ["COMMSCHED_MACHINE_PATH"] = ":".join(filter(None, searched))
    os.execv(path, [tool, *sys.argv[1:]])


def comm_calibrate() -> NoReturn:
    become("comm-calibrate")


def comm_lsp_server() -> NoReturn:
    become("comm-lsp-server")


def comm_opt() -> NoReturn:
    become("comm-opt")


def comm_place() -> NoReturn:
    become("comm-place")


def comm_reduce() -> NoReturn:
    become("comm-reduce")


def comm_run() -> NoReturn:
    become("comm-run")


def comm_verify_spmd() -> NoReturn:
    become("comm-verify-spmd")


def commsched_hlo() -> NoReturn:
    become("commsched-hlo")
