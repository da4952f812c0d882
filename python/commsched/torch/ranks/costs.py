# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Costs of all ranks: what the pass comm-align-costs gathers when it runs inside a PyTorch job."""

from __future__ import annotations

import torch
import torch.distributed as dist

from ...program import Gather

# The pass that gathers costs.
ALIGN_COSTS = "comm-align-costs"


def gather_costs(group: dist.ProcessGroup | None = None) -> Gather:
    """An all-gather of integers on `group`, the default group if it is None.

    All ranks of the group have to run the same passes, in the same order: each call waits for the others. A rank that
    does not come ends in the group's timeout.

    Raises:
        ValueError: there are no process groups.
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise ValueError("expected an initialized torch.distributed, got none")
    device = dist.distributed_c10d._get_object_coll_device(group)  # where the group takes tensors

    def gather(own: list[int]) -> list[int]:
        mine = torch.tensor(own, dtype=torch.int64, device=device)
        everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
        dist.all_gather(everyone, mine, group=group)
        return torch.cat(everyone).tolist()

    return gather
