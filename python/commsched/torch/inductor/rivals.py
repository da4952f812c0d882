# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What Inductor itself has against waiting: overlap schedulers, bucketing, and the pass `simple_overlap`.

Those of `RIVALS` change the FX graph before CommSched sees it, or the kernels behind it. They are off by default, and
off in every compilation that CommSched takes part in. `simple_overlap` is on by default since PyTorch 2.15. It runs
behind CommSched's last pass and moves starts up and waits down, without estimates. So it is off only for graphs whose
kernels have the order that CommSched decided; a graph that keeps PyTorch's order keeps `simple_overlap`, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

# PyTorch's own overlap schedulers and bucketing, with the values that switch them off. They would run after CommSched's
# passes and change what was decided.
RIVALS = {
    "aten_distributed_optimizations.enable_overlap_scheduling": False,
    "bucket_all_gathers_fx": "none",
    "bucket_reduce_scatters_fx": "none",
    "bucket_all_reduces_fx": "none",
    "reorder_for_compute_comm_overlap": False,
    # DistributedDataParallel switches it on for its Python reducer.
    "_fuse_ddp_communication": False,
}
SIMPLE_OVERLAP = "aten_distributed_optimizations.enable_simple_overlap"


def _config() -> Any:
    from torch._inductor import config

    return config


def value(name: str) -> Any:
    """A setting of Inductor's configuration. Raises AttributeError if this version has none of that name."""
    found = _config()
    for part in name.split("."):
        found = getattr(found, part)
    return found


def assign(values: dict[str, Any]) -> None:
    """Changes settings of Inductor's configuration."""
    for name, new in values.items():
        owner, _, last = name.rpartition(".")
        setattr(value(owner) if owner else _config(), last, new)


def simple_overlap() -> bool:
    """Whether Inductor would run `simple_overlap` now. Versions before 2.15 do not have it."""
    try:
        return bool(value(SIMPLE_OVERLAP))
    except AttributeError:
        return False


@contextlib.contextmanager
def simple_overlap_restored() -> Iterator[bool]:
    """A block in which `switch_simple_overlap` may be called. The value is whether `simple_overlap` is on before it."""
    given = simple_overlap()
    try:
        yield given
    finally:
        switch_simple_overlap(given)


def switch_simple_overlap(on: bool) -> None:
    """Switches `simple_overlap` on or off, if this version has it."""
    if simple_overlap() != on:
        assign({SIMPLE_OVERLAP: on})
