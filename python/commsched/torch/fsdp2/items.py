# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What FSDP2's runtime issues in a step, and the memory that it takes for that."""

from __future__ import annotations

import dataclasses
import enum


class Kind(enum.Enum):
    """What an item is."""

    COMPUTE = "compute"
    GATHER = "all_gather"
    COPY_OUT = "copy_out"
    COPY_IN = "copy_in"
    REDUCE = "reduce_scatter"
    ALL_REDUCE = "all_reduce"
    RESHARD = "reshard"
    AWAIT = "await"


# What does not run on the stream of computation.
COLLECTIVES = (Kind.GATHER, Kind.REDUCE, Kind.ALL_REDUCE)


@dataclasses.dataclass
class Item:
    """Something that the host issues.

    Args:
        group: the group that it is for; -1 for computation.
        name: for reports.
        cost_ns: the time of computation; 0 for others.
        nbytes: bytes of whole parameters or gradients that are gathered, copied or reduced. Of an all-reduce: bytes of
            the reduced shard. Of a reshard: bytes of the part that is kept.
        itemsize: bytes of an element of these.
        level: bytes of activations, temporaries and gradients that are live after the item.
        peak: the most such bytes in the item.
        of: of a copy-out, its gather; of an await, its reduction or all-reduce; of a reduction, its copy-in; of an
            all-reduce, its reduction. Indices of items.
        part: of a gather: the number of ranks that it is among, if these are only a part of those of a shard group.
        cast: bytes of gradients that the item makes, if they have another type than what was reduced.
        not_before: of a gather: the item on the stream of computation after which a device may begin it; -1 for none.
        backward: whether it belongs to the backward pass.
    """

    kind: Kind
    group: int = -1
    name: str = ""
    cost_ns: int = 0
    nbytes: int = 0
    itemsize: int = 1
    level: int = 0
    peak: int = 0
    of: int = -1
    part: int = 0
    cast: int = 0
    not_before: int = -1
    backward: bool = False


@dataclasses.dataclass
class Buffer:
    """Memory from one item to another one, both included. Indices of items."""

    nbytes: int
    born: int
    dies: int
