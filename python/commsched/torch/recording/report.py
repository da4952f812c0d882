# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`runtime_report`: all ranks' runs of the codes that record themselves."""

from __future__ import annotations

import json
from typing import Any

import torch.distributed as dist

from .analysis import compared, parts_of
from .page import write_page
from .stamps import recorders


def runtime_report(group: dist.ProcessGroup | None = None, page: str | None = None) -> list[dict]:
    """Compares what compiled steps did with what was predicted of them. A collective call of all ranks of `group`.

    Codes record themselves if they were compiled with the option `record=True`. The newest runs of each count, without
    the first.

    Args:
        page: an HTML file to write on this rank: the predicted and the measured timeline of each code.

    Raises:
        ValueError: no code has run twice on this rank, so that there is nothing to draw; or the page cannot be written.

    Returns:
        One report for each code that has run more than once on this rank. "predicted_ns" is the makespan by the model.
        "measured_ns" is the median of what was measured ("value"), with its 95 % interval ("lo", "hi") and the number
        of runs ("n"); a run takes as long as on its slowest rank. "error_percent" is by how much the prediction is too
        high. "sites" are the ten parts that are furthest off: kernels between two collectives, starts, and waits, each
        with "why". "text" is all of it as a table. Ranks whose codes differ are compared as far as they are equal.
    """
    own = {json.dumps(r.code, sort_keys=True): r.parts() for r in recorders() if r.runs}
    everyone: list[Any] = [own]
    if dist.is_available() and dist.is_initialized() and dist.get_backend(group) != "fake":
        everyone = [None] * dist.get_world_size(group)
        dist.all_gather_object(everyone, own, group=group)
    codes = [(json.loads(text), [ranks[text] for ranks in everyone if ranks.get(text)]) for text in own]
    if page is not None:
        write_page([(code, parts_of(code, runs)) for code, runs in codes], page)
    return [compared(code, runs) for code, runs in codes]
