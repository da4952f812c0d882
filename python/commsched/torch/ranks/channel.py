# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Communication between ranks while they compile. Nothing else in the package may do that (test_channel.py).

Inductor compiles with the Python dispatcher on. A collective that is called there keeps Python's lock and waits for the
lock of gloo's process group. A thread of gloo holds that one while it drops the previous collective, and waits for
Python's lock, because a tensor of the previous collective belongs to Python. Both wait for ever. Fake tensor modes turn
the call into nothing. So a collective is called with both switched off. The store gives Python's lock back while it
waits, and knows no dispatcher.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import _disable_current_modes


def job_store() -> Any | None:
    """The store of the job's process groups. None if this process has nobody to talk to."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_backend() == "fake":
        return None
    return None if dist.get_world_size() == 1 else dist.distributed_c10d._get_default_store()


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Collectives of real tensors in this block run as they do outside of a compilation."""
    with _disable_current_modes(), torch._C._DisablePythonDispatcher():
        yield


def gather_integers(own: list[int], group: dist.ProcessGroup | None = None) -> list[int]:
    """The integers of all ranks of a group, one rank after the other. All of them call it, with lists of one length.

    A rank that does not come ends in the group's timeout.
    """
    device = dist.distributed_c10d._get_object_coll_device(group)  # where the group takes tensors
    with undisturbed():
        mine = torch.tensor(own, dtype=torch.int64, device=device)
        everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
        dist.all_gather(everyone, mine, group=group)
        return torch.cat(everyone).tolist()
