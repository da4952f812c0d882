# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Predicts which nodes of an FX graph Inductor is going to fuse into one kernel.

A compiled graph does not run node by node. A chain of pointwise nodes becomes one kernel, which reads what enters the
chain, writes what leaves it, and is launched once. A scheduler that does not know this hides communication behind work
that does not exist. A region here is a connected set of nodes that Inductor lowers to loops. It is closed at the first
node outside of it that needs one of its results: nothing can join its kernel from there on.
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
    """The nodes of one kernel.

    Args:
        members: all nodes, in the graph's order.
        computed: the members that are not views.
        results: the computed members that are needed outside, directly or through `views`.
        views: the views that are needed outside.
        done: the importer has emitted the operation.
    """

    members: list[fx.Node]
    computed: list[fx.Node]
    results: list[fx.Node]
    views: list[fx.Node]
    done: bool = False

    @staticmethod
    def of(members: list[fx.Node]) -> Region:
        """The region of these nodes, once all their readers are known."""
        inside, needed = set(members), set()
        for node in reversed(members):
            if any(u not in inside or u in needed and is_free(u) for u in node.users):
                needed.add(node)
        computed = [n for n in members if not is_free(n)]
        views = [n for n in members if n in needed and is_free(n)]
        return Region(members, computed, [n for n in computed if n in needed], views)


def is_free(node: fx.Node) -> bool:
    """Whether a node is a view or an element of a list."""
    return node.target is operator.getitem or is_view_node(node)


def _single_tensor(node: fx.Node) -> bool:
    val = node.meta.get("val")
    return isinstance(val, torch.Tensor) and all(type(d) is int for d in val.shape)


def _loops(node: fx.Node) -> bool:
    """Whether Inductor makes a loop of the node, which other nodes can be fused with."""
    if not is_fusible_node(node) or not _single_tensor(node):
        return False
    device = node.meta["val"].device
    return all(
        i.meta["val"].device == device for i in node.all_input_nodes if isinstance(i.meta.get("val"), torch.Tensor)
    )


def find_regions(graph: fx.Graph, stays_alone: Callable[[fx.Node], bool]) -> dict[fx.Node, Region]:
    """The regions of at least two nodes that are not views. Indexed by node. Near-linear.

    Args:
        stays_alone: tells of a node whether it must keep a place of its own, because its order shows or
            because it uses memory
            that is written.
    """
    # Union-find over the members of open and closed regions, and the roots of the closed ones.
    parent: dict[fx.Node, fx.Node] = {}
    closed: set[fx.Node] = set()

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
            regions.update(dict.fromkeys(nodes, Region.of(nodes)))
    return regions
