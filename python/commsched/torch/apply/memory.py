"""The peak of memory of an FX graph, counted from its nodes alone: a count that shares nothing with the schedule's model.

Memory is what nodes give that no schema says to be a view (`effects.Aliases`), from the node that gives it to its last reader. What
a collective reads is held until its wait. Copies that a bucket makes before its collective are one kernel, without memory
in between (`packs`). Arguments that live throughout are not counted, nor is what the graph holds by name.
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
    """A plan's graph needs `excess` bytes more than `limit`."""

    def __init__(self, peak: int, limit: int):
        super().__init__(f"the graph's nodes hold {peak} bytes at their peak, and the limit is {limit}")
        self.limit, self.excess = limit, peak - limit


def peak_bytes(graph: fx.Graph, donated: set[str], without: Sequence[fx.Node] = ()) -> int:
    """The most bytes that are live at any node. `donated` placeholders die after their last reader; the nodes `without`
    are about to be erased. Near-linear."""
    shared, packs = Aliases(graph), find_packs(graph)
    within = {n for p in packs.values() for n in p.parts} - packs.keys() | set(without)
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


def _peak(count: int, size: dict, first: dict, last: dict) -> int:
    change = [0] * (count + 2)
    for memory, bytes_ in size.items():
        change[first[memory]] += bytes_
        change[last[memory] + 1] -= bytes_
    live = peak = 0
    for delta in change:
        live += delta
        peak = max(peak, live)
    return peak
