"""Which nodes of an FX graph Inductor is going to fuse into one kernel.

A graph that is compiled is not run node by node: a chain of pointwise nodes becomes one kernel, which reads what enters
the chain, writes what leaves it and is launched once. Without that knowledge a scheduler hides communication behind
work that does not exist. A region here is a connected set of nodes that Inductor lowers to loops, closed at the first
node outside of it that needs one of its results: from there on nothing can join its kernel.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable

import torch
import torch.fx as fx
from torch._inductor.fx_passes.fusion_regions import is_fusible_node, is_view_node


@dataclasses.dataclass
class Region:
    """Nodes of one kernel, in the graph's order. `computed` are the members that are no views; `results` those of them
    that are needed outside, directly or through `views`; `views` are the views that are needed outside."""

    members: list[fx.Node]
    computed: list[fx.Node] = dataclasses.field(default_factory=list)
    results: list[fx.Node] = dataclasses.field(default_factory=list)
    views: list[fx.Node] = dataclasses.field(default_factory=list)
    done: bool = False  # for the importer: its operation exists

    def _close(self) -> None:
        inside, needed = set(self.members), set()
        for node in reversed(self.members):
            if any(u not in inside or u in needed and is_free(u) for u in node.users):
                needed.add(node)
        self.computed = [n for n in self.members if not is_free(n)]
        self.results = [n for n in self.computed if n in needed]
        self.views = [n for n in self.members if n in needed and is_free(n)]


def is_free(node: fx.Node) -> bool:
    """Views, and elements of lists of them."""
    return node.target is operator.getitem or is_view_node(node)


def _single_tensor(node: fx.Node) -> bool:
    val = node.meta.get("val")
    return isinstance(val, torch.Tensor) and all(type(d) is int for d in val.shape)


def _loops(node: fx.Node) -> bool:
    """Whether Inductor makes a loop of the node that others can be fused with."""
    if not is_fusible_node(node) or not _single_tensor(node):
        return False
    device = node.meta["val"].device
    return all(
        i.meta["val"].device == device for i in node.all_input_nodes if isinstance(i.meta.get("val"), torch.Tensor)
    )


def find_regions(graph: fx.Graph, stays_alone: Callable[[fx.Node], bool]) -> dict[fx.Node, Region]:
    """The region of each node that is in one of at least two kernels' worth of nodes. Near-linear.

    Args:
        stays_alone: nodes that must keep a place of their own: their order shows, or what they use is written.
    """
    parent: dict[fx.Node, fx.Node] = {}  # union-find over members of open and closed regions
    closed: set[fx.Node] = set()  # roots

    def root(node: fx.Node) -> fx.Node:
        while parent[node] is not node:
            parent[node] = node = parent[parent[node]]
        return node

    for node in graph.nodes:
        sources = [r for n in node.all_input_nodes if n in parent and (r := root(n)) not in closed]
        free = node.op == "call_function" and is_free(node)
        if node.op == "call_function" and not stays_alone(node) and (sources if free else _loops(node)):
            parent[node] = node
            for r in sources:
                parent[root(r)] = node
        else:
            closed.update(sources)
    members: dict[fx.Node, list[fx.Node]] = {}
    for node in parent:
        members.setdefault(root(node), []).append(node)
    regions: dict[fx.Node, Region] = {}
    for nodes in members.values():
        if sum(not is_free(n) for n in nodes) > 1:
            region = Region(nodes)
            region._close()
            regions.update(dict.fromkeys(nodes, region))
    return regions
