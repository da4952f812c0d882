# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The peak of memory of an FX graph, counted from its nodes alone, without the model of the schedule.

Memory is what nodes give unless a schema says that it is a view (`effects.Aliases`). It lives from the node that gives
it to its last reader. The operands of a collective are held until its wait. The copies that a bucket makes before its
collective are one kernel, without memory in between (`packs`). Arguments that live throughout do not count, nor do the
tensors that the graph holds by name.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Iterable, Sequence

import torch.fx as fx

from ..semantics.effects import Aliases, start_of
from ..semantics.operators import bytes_of, spec_of
from ..semantics.packs import find_packs
from .plan import PlanError


class OverLimit(PlanError):
    """The graph of a plan needs `excess` bytes more than `limit`.

    Args:
        peak: what it needs, in bytes.
        given: the peak of the graph before, in bytes.
        merged: the names of merged collectives whose buckets hold the most memory at the peak.
    """

    def __init__(self, peak: int, limit: int, given: int, merged: Iterable[str] = ()):
        super().__init__(f"expected a peak within the limit of {limit} bytes, got {peak} bytes from the graph's nodes")
        self.peak, self.limit, self.excess, self.given = peak, limit, peak - limit, given
        self.merged = frozenset(merged)


@dataclasses.dataclass
class Peak:
    """The first place of a graph at which the most bytes are live.

    Args:
        bytes: how many.
        live: indexed by memory that is live there, as `aliases` numbers it: its bytes.
    """

    bytes: int
    live: dict[int, int]
    aliases: Aliases

    def held_by(self, nodes: Iterable[fx.Node]) -> int:
        """The bytes of the results of these nodes that are live at the peak."""
        return sum(self.live.get(memory, 0) for memory in set().union(*map(self.aliases.of, nodes)))


def peak_bytes(
    graph: fx.Graph, donated: set[str], without: Sequence[fx.Node] = (), aliases: Aliases | None = None
) -> int:
    """The most bytes that are live at any node: `peak_of(...).bytes`."""
    return peak_of(graph, donated, without, aliases).bytes


def peak_of(
    graph: fx.Graph, donated: set[str], without: Sequence[fx.Node] = (), aliases: Aliases | None = None
) -> Peak:
    """Counts the bytes that are live at each node. Near-linear.

    Args:
        donated: placeholders that die after their last reader.
        without: nodes that are about to be erased.
        aliases: those of the graph, if somebody has read them already.
    """
    erased = frozenset(without)
    shared = aliases or Aliases(graph)
    packs = find_packs(graph, erased, shared)
    within = {n for p in packs.values() for n in p.parts} - packs.keys() | erased
    nodes = [n for n in graph.nodes if n not in within]
    size: dict[int, int] = {}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for at, node in enumerate(nodes):
        op, pack = node.op, packs.get(node)
        until = len(nodes) if op == "output" else at
        for source in pack.sources if pack else node.all_input_nodes:
            for memory in shared.of(source):
                last[memory] = until
        if op == "call_function" and spec_of(node).is_wait and isinstance(start := start_of(node), fx.Node):
            for memory in shared.of_all(start.all_input_nodes):
                last[memory] = until
        for memory in shared.of(node):
            last[memory] = until
        if node.target is operator.getitem or op == "output":
            continue
        throughout = op == "get_attr" or op == "placeholder" and node.name not in donated
        for memory, val in shared.pairs(node, node.meta.get("val")):
            if memory not in first:
                first[memory], size[memory] = at, 0 if throughout else bytes_of(val)
    most, at = _peak(len(nodes), size, first, last)
    return Peak(most, {m: bytes_ for m, bytes_ in size.items() if first[m] <= at <= last[m]}, shared)


def _peak(count: int, size: dict[int, int], first: dict[int, int], last: dict[int, int]) -> tuple[int, int]:
    """The largest sum of sizes at one position, and the first such position.

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
    sums = list(itertools.accumulate(change))
    most = max(sums)
    return most, sums.index(most)
