# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The peak of memory of an FX graph, counted from its nodes alone, without the model of the schedule.

Memory is what nodes give unless a schema says that it is a view (`effects.Aliases`). It lives from the node that gives
it to its last reader. The operands of a collective are held until its wait. The copies that a bucket makes before its
collective are one kernel, without memory in between (`packs`). Arguments that live throughout do not count, nor do the
tensors that the graph holds by name.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch.fx as fx

from ..semantics.effects import Aliases, start_of
from ..semantics.operators import bytes_of, spec_of
from ..semantics.packs import find_packs
from .plan import PlanError


class OverLimit(PlanError):
    """The graph of a plan needs `excess` bytes more than `limit`."""

    def __init__(self, peak: int, limit: int):
        super().__init__(f"expected a peak within the limit of {limit} bytes, got {peak} bytes from the graph's nodes")
        self.limit, self.excess = limit, peak - limit


def peak_bytes(graph: fx.Graph, donated: set[str], without: Sequence[fx.Node] = ()) -> int:
    """The most bytes that are live at any node. Near-linear.

    Args:
        donated: placeholders that die after their last reader.
        without: nodes that are about to be erased.
    """
    erased = frozenset(without)
    shared, packs = Aliases(graph), find_packs(graph, erased)
    within = {n for p in packs.values() for n in p.parts} - packs.keys() | erased
    nodes = [n for n in graph.nodes if n not in within]
    size: dict[int, int] = {}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for at, node in enumerate(nodes):
        pack = packs.get(node)
        reads = shared.of_all(pack.sources if pack else list(node.all_input_nodes))
        if node.op == "call_function" and spec_of(node).is_wait:
            start = start_of(node)
            if isinstance(start, fx.Node):
                reads |= shared.of_all(list(start.all_input_nodes))
        gives = shared.of(node)
        for memory in reads | gives:
            last[memory] = len(nodes) if node.op == "output" else at
        throughout = node.op == "get_attr" or node.op == "placeholder" and node.name not in donated
        if node.target is not operator.getitem and node.op != "output":
            for memory, bytes_ in _sizes(node, shared):
                if memory not in first:
                    first[memory], size[memory] = at, 0 if throughout else bytes_
    return _peak(len(nodes), size, first, last)


def _sizes(node: fx.Node, shared: Aliases) -> list[tuple[int, int]]:
    """The memory that a node gives, with the bytes of its tensors."""
    return [(memory, bytes_of(val)) for memory, val in shared.pairs(node, node.meta.get("val"))]


def _peak(count: int, size: dict[int, int], first: dict[int, int], last: dict[int, int]) -> int:
    """The largest sum of sizes at one position.

    Args:
        count: the number of positions.
        size: indexed by memory: its bytes.
        first: indexed by memory: the position at which it is allocated.
        last: indexed by memory: the position after which it is freed.
    """
    change = [0] * (count + 2)
    for memory, bytes_ in size.items():
        change[first[memory]] += bytes_
        change[last[memory] + 1] -= bytes_
    live = peak = 0
    for delta in change:
        live += delta
        peak = max(peak, live)
    return peak
