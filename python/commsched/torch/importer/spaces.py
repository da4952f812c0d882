# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Iteration spaces of nodes, and which of their loops Inductor can put into one kernel.

The rules are those of `can_fuse` in `torch/_inductor/codegen/simd.py`, in numbers of elements: equal loops are fused,
reductions with what computes their elements, and with what uses their results for each row or each element.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.fx as fx

# Operators that write single elements of a copy of their first argument: nothing that reads the copy joins the kernel.
SCATTERING = {
    "_unsafe_index_put",
    "_unsafe_masked_index_put_accumulate",
    "embedding_dense_backward",
    "index_add",
    "index_copy",
    "index_put",
    "scatter",
    "scatter_add",
    "scatter_reduce",
}


class Space(NamedTuple):
    """The loops of a kernel.

    Args:
        rows: elements of the outer loops.
        inner: elements that one row reduces; 1 without a reduction.
        trailing: the reduced dimensions are the last ones, so that loops over all elements run in the same order.
        reduces: the kernel holds a reduction.
        ends: the kernel scatters. Its results are complete only when all of it has run.
    """

    rows: int
    inner: int = 1
    trailing: bool = True
    reduces: bool = False
    ends: bool = False


def space_of(node: fx.Node) -> Space:
    """The loops that Inductor makes of a node. The node has static sizes and reads a tensor."""
    val = node.meta["val"]
    elements = math.prod((val[0] if isinstance(val, (list, tuple)) else val).shape)
    if torch.Tag.reduction in node.target.tags:
        source = node.args[0]
        shape = source.meta["val"].shape if isinstance(source, fx.Node) else ()
        inner = math.prod(shape) // elements if elements else 1
        return Space(elements, inner, _trailing(shape, node), True)
    return Space(elements, ends=node.target._schema.name.split("::")[1] in SCATTERING)


def _trailing(shape: Any, node: fx.Node) -> bool:
    """Whether a reduction runs over the last dimensions. Dimensions of one element do not count."""
    names = [a.name for a in node.target._schema.arguments]
    at = names.index("dim") if "dim" in names else None
    dims = None if at is None else node.args[at] if at < len(node.args) else node.kwargs.get("dim")
    if dims is None:
        return True
    reduced = {d % len(shape) for d in ([dims] if isinstance(dims, int) else dims)} if shape else set()
    large = [i for i, size in enumerate(shape) if size != 1]
    return not reduced or all(i in reduced for i in large[len(large) - len(reduced.intersection(large)) :])


def together(producer: Space, consumer: Space, inlined: bool, is_fresh: bool) -> Space | None:
    """The loops of one kernel that does the work of both. None if there is no such kernel.

    Args:
        inlined: nobody else reads the producer, so the consumer can compute the elements that it needs.
        is_fresh: nobody has read the producer so far. A reduction that runs across the rows may compute its elements.
    """
    if producer.ends:
        return None
    if not producer.reduces:
        if not consumer.reduces:
            return consumer if inlined or producer.rows == consumer.rows else None
        is_whole = producer.rows == consumer.rows * consumer.inner and (consumer.trailing or is_fresh)
        return consumer if inlined or producer.rows == consumer.rows or is_whole else None
    if consumer.reduces:
        return producer if producer == consumer else None
    if consumer.rows == producer.rows or (producer.trailing and consumer.rows == producer.rows * producer.inner):
        return producer._replace(ends=consumer.ends)
    return None
