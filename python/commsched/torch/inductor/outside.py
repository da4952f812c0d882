# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Graphs inside of wrappers that communicate in eager code, which no scheduler of graphs reaches."""

from __future__ import annotations

import sys
from typing import Any

from torch.distributed._composable_state import _module_state_mapping
from torch.nn.parallel import DistributedDataParallel

from .. import reporting


def note() -> None:
    """Notes the wrappers whose forward or backward pass is running while a graph is compiled."""
    try:
        if DistributedDataParallel._active_ddp_module is not None:
            reporting.communicates_outside("DistributedDataParallel")
        if any(map(_is_at_work, _states())):
            reporting.communicates_outside("fully_shard")
    except Exception as error:  # Only a line of the report is missing.
        reporting.survive("the report does not say which collectives are outside of graphs", error)


def _states() -> list[Any]:
    """The states of all modules on which `fully_shard` was called. Importing it takes time, so nobody does it here."""
    if (fsdp := sys.modules.get("torch.distributed.fsdp._fully_shard._fsdp_state")) is None:
        return []
    states = (reference() for reference in list(_module_state_mapping.values()))
    return [state for state in states if isinstance(state, fsdp.FSDPState)]


def _is_at_work(state: Any) -> bool:
    return state._training_state.name != "IDLE"
