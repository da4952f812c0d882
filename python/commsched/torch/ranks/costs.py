# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Costs of all ranks: what the pass comm-align-costs gathers when it runs inside a PyTorch job."""

from __future__ import annotations

import torch.distributed as dist

from ...program import Gather
from .channel import gather_integers


def gather_costs(group: dist.ProcessGroup | None = None) -> Gather:
    """An all-gather of integers on `group`, the default group if it is None.

    All ranks of the group have to run the same passes, in the same order: each call waits for the others. A rank that
    does not come ends in the group's timeout.

    Raises:
        ValueError: there are no process groups.
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise ValueError("expected an initialized torch.distributed, got none")

    def gather(own: list[int]) -> list[int]:
        return gather_integers(own, group)

    return gather
