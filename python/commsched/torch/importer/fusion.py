# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Predicts which nodes of an FX graph Inductor is going to fuse into one kernel.

A compiled graph does not run node by node. A chain of pointwise nodes becomes one kernel, which reads what enters the
chain, writes what leaves it, and is launched once. A scheduler that does not know this hides communication behind work
that does not exist.

A region here is a set of nodes that Inductor lowers to loops over the same elements (`spaces`). It grows in the graph's
order, along data that one node hands to another, and between neighbours that read the same tensor. It never grows such
such that two regions, or a region and another node, would need each other's results. Which nodes become loops at all is
PyTorch's own rule (`torch._inductor.fx_passes.fusion_regions`). PyTorch's partition in the same file ends a region at
the next product or collective of the order, so it changes with the schedule, and looks at no sizes. For costs, regions
are found in an order that depends on the data alone (`in_levels`), and no schedule changes them.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Hashable, Iterable, Sequence

import torch
import torch.fx as fx
from torch._inductor.fx_passes.fusion_regions import is_fusible_node, is_view_node

from ..semantics.operators import hint, storage_of
from . import flops
from .spaces import Space, space_of, together
from .values import tensor_value

# Neighbours are fused only within this many nodes, as in Inductor's scheduler (`are_long_distant_nodes`).
NEIGHBOURHOOD = 64


@dataclasses.dataclass
class Region:
    """The nodes of one kernel.

    Args:
        members: all nodes, in the graph's order.
        computed: the members that are not views or elements.
        results: the members that are new tensors and needed outside, directly or through `views`.
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
        views = [n for n in members if n in needed and is_free(n) and not is_element(n)]
        tensors = [n for n in members if isinstance(n.meta["val"], torch.Tensor)]
        results = [n for n in tensors if n in needed and (not is_free(n) or is_element(n))]
        return Region(members, computed, results, views)


def is_free(node: fx.Node) -> bool:
    """Whether a node is a view or an element of a list."""
    return node.target is operator.getitem or is_view_node(node)


def is_element(node: fx.Node) -> bool:
    """Whether a node is an element of an operator's results: a tensor of its own, unless the operator is a view."""
    return node.target is operator.getitem and not is_view_node(node.args[0])


def loops(node: fx.Node) -> bool:
    """Whether Inductor makes a loop of the node, which other nodes can be fused with."""
    if not is_fusible_node(node):
        return False
    val = node.meta.get("val")
    results = val if isinstance(val, (list, tuple)) else [val]
    sources = [v for i in node.all_input_nodes if isinstance(v := i.meta.get("val"), torch.Tensor)]
    return bool(results) and all(
        isinstance(v, torch.Tensor) and v.device == results[0].device and all(type(d) is int for d in v.shape)
        for v in (*results, *sources)
    )


class _Group:
    """A region that is still growing.

    Args:
        kind: only groups of the same kind are joined.
        space: what the loops of its kernel run over.
        top: the depth of the deepest kernel that it reads.
        ready: the position of the last node outside of every region that it needs, directly or through regions.

    Other fields: `depth` is above that of all that it reads and below that of its readers. `until` is the position of
    the first node outside of every region that needs it. `pending` counts the readers that have not joined.
    """

    __slots__ = ("kind", "space", "members", "sources", "top", "depth", "ready", "until", "is_read", "pending", "into")

    def __init__(self, node: fx.Node, kind: Hashable, space: Space, top: int, ready: int):
        self.kind, self.space, self.members = kind, space, [node]
        self.sources: list[_Group] = []
        self.top, self.depth, self.ready, self.until = top, top + 1, ready, math.inf
        self.is_read, self.pending = False, len(node.users)
        self.into = self

    def root(self) -> _Group:
        """The group that this one has become a part of."""
        group = self
        while group.into is not group:
            group.into = group = group.into.into
        return group

    def read_by(self, reader: _Group) -> None:
        """Makes another group a reader, which is not joined with this one."""
        self.is_read = True
        reader.sources.append(self)
        reader.top, reader.ready = max(reader.top, self.depth), max(reader.ready, self.ready)
        self.needed(reader.until)

    def needed(self, position: float) -> None:
        """The group, and all that it reads, has to run before the node at `position`."""
        stack = [self]
        while stack:
            group = stack.pop().root()
            if group.until > position:
                group.until = position
                stack += group.sources

    def join(self, other: _Group, edges: int, others: Iterable[_Group]) -> _Group:
        """Both groups as one, if that is one kernel and needs none of its own results; else `other`.

        Args:
            edges: the number of readers of this group among the nodes of the other one.
            others: what the other group reads besides, and has not been counted in its `top` and `ready`.
        """
        space = None
        if self.kind == other.kind:
            only_reader = edges > 0 and self.pending == edges
            space = together(self.space, other.space, only_reader and not self.is_read, not self.is_read)
        if space is None:
            return other
        top = max([self.top, other.top, *(o.depth for o in others)])
        ready = max([self.ready, other.ready, *(o.ready for o in others)])
        read = [g for g in (self, other) if g.is_read]
        until = min(self.until, other.until)
        # A kernel between the two would be deeper than the one of them that it reads. And a group cannot become ready
        # later than its readers know.
        if ready >= until or any(top >= g.depth or ready > g.ready for g in read):
            return other
        for group in (self, other):
            group.needed(until)
        large, small = (self, other) if len(self.members) >= len(other.members) else (other, self)
        large.members += small.members
        large.sources += small.sources
        small.into, large.space, large.is_read = large, space, bool(read)
        large.pending = self.pending + other.pending - edges
        large.top, large.ready = max(self.top, other.top), max(self.ready, other.ready)
        large.depth = min([g.depth for g in read], default=large.top + 1)
        return large


class _Growth:
    """One walk over a graph that puts every loop into a group."""

    def __init__(self, nodes: Sequence[fx.Node], kind: Callable[[fx.Node], Hashable | None]):
        self.nodes, self.kind = nodes, kind
        self.group: dict[fx.Node, _Group] = {}
        # Indexed by node outside of every group: its position and its depth.
        self.position: dict[fx.Node, int] = {}
        self.depth: dict[fx.Node, int] = {}
        # Indexed by a tensor outside of every group: the last group that began by reading it, and its position.
        self.neighbours: dict[fx.Node, tuple[_Group, int]] = {}

    def groups(self) -> list[list[fx.Node]]:
        """The members of all groups. A group may be a single node."""
        order = {}
        for position, node in enumerate(self.nodes):
            order[node] = position
            sources = list(dict.fromkeys(self.group[n].root() for n in node.all_input_nodes if n in self.group))
            if node.op == "call_function" and (self._follows(node, sources) or self._grows(node, position, sources)):
                continue
            self.position[node] = position
            self.depth[node] = 1 + max([self._depth_of(n) for n in node.all_input_nodes], default=0)
            for source in sources:
                source.is_read = True
                source.needed(position)
        groups = dict.fromkeys(g.root() for g in self.group.values())
        return [sorted(g.members, key=order.__getitem__) for g in groups]

    def _depth_of(self, node: fx.Node) -> int:
        return self.group[node].root().depth if node in self.group else self.depth[node]

    def _follows(self, node: fx.Node, sources: list[_Group]) -> bool:
        """Puts a view, or an element, of what a group makes into that group."""
        if not is_free(node) or len(sources) != 1 or len(node.all_input_nodes) != 1:
            return False
        if not is_element(node) and self.kind(node) is None:
            return False
        group = self.group[node] = sources[0]
        group.members.append(node)
        group.pending += len(node.users) - 1
        return True

    def _grows(self, node: fx.Node, position: int, sources: list[_Group]) -> bool:
        """Puts a loop into a group of its own, and joins it with others."""
        if is_free(node) or not loops(node) or is_constant(node) or (kind := self.kind(node)) is None:
            return False
        outside = [n for n in node.all_input_nodes if n not in self.group]
        top, ready = (max([of[n] for n in outside], default=0) for of in (self.depth, self.position))
        group = self.group[node] = _Group(node, kind, space_of(node), top, ready)
        left = sorted(sources, key=lambda g: -max(_elements(n) for n in self._edges(node, g)))
        kept: list[_Group] = []
        while left:
            source = left.pop(0)
            joined = source.join(group, len(self._edges(node, source)), left + kept)
            if joined is group and source.root() is not group:
                kept.append(source)
            group = joined
        for source in kept:
            source.read_by(group)
        if not group.is_read:
            group.depth = group.top + 1
        largest = max(outside, key=_elements, default=None)
        if largest is not None and _elements(largest) > 1:
            self._meets_neighbour(_origin(largest), group, position)
        return True

    def _edges(self, node: fx.Node, group: _Group) -> list[fx.Node]:
        """What the node reads of a group."""
        return [n for n in node.all_input_nodes if n in self.group and self.group[n].root() is group]

    def _meets_neighbour(self, tensor: fx.Node, group: _Group, position: int) -> None:
        """Joins a group with the one that has read the same tensor shortly before."""
        neighbour, began = self.neighbours.get(tensor, (group, position))
        neighbour = neighbour.root()
        if neighbour is not group and position - began <= NEIGHBOURHOOD:
            group = neighbour.join(group, 0, ())
        self.neighbours[tensor] = group, position


def _elements(node: fx.Node) -> int:
    val = node.meta.get("val")
    return math.prod(map(hint, val.shape)) if isinstance(val, torch.Tensor) else 0


def _origin(node: fx.Node) -> fx.Node:
    """The tensor that a chain of views starts from."""
    while node.op == "call_function" and is_free(node) and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


def in_levels(graph: fx.Graph) -> list[fx.Node]:
    """The nodes in an order that depends on the data alone: by the longest path to them, then by name."""
    level: dict[fx.Node, int] = {}
    for node in graph.nodes:
        level[node] = 1 + max([level[n] for n in node.all_input_nodes], default=0)
    return sorted(level, key=lambda n: (level[n], n.name))


def find_regions(nodes: Sequence[fx.Node], kind: Callable[[fx.Node], Hashable | None]) -> dict[fx.Node, Region]:
    """The regions of at least two nodes that are not views. Indexed by node. Near-linear.

    Args:
        nodes: all nodes of a graph, each after what it reads. Every region can run as a whole in this order.
        kind: what only nodes of one region have in common. None if the node, or the view, must keep a place of its own,
            because its order shows or because it uses memory that is written.
    """
    regions: dict[fx.Node, Region] = {}
    for members in _Growth(nodes, kind).groups():
        if sum(not is_free(n) for n in members) > 1:
            regions.update(dict.fromkeys(members, Region.of(members)))
    return regions


def is_constant(node: fx.Node) -> bool:
    """Whether a loop makes its elements of nothing. Every kernel that reads it computes what it needs."""
    return not any(isinstance(n.meta.get("val"), torch.Tensor) for n in node.all_input_nodes)


def _is_made_in_place(node: fx.Node) -> bool:
    """Whether a node is a constant that loops make where they need it."""
    return node.op == "call_function" and is_constant(node) and loops(node)


def shares(regions: dict[fx.Node, Region], graph: fx.Graph) -> dict[fx.Node, int]:
    """The bytes that each node of a region moves. Indexed by node.

    A kernel reads once what enters the region, and writes what leaves it. Each result has its own bytes, and a part of
    what is read in proportion to them. All other nodes have 0. So the sum does not depend on the order of the nodes,
    and a reader of one result never finds it for free. A constant that only loops read has 0, too.
    """
    moved: dict[fx.Node, int] = {}
    for region in {id(r): r for r in regions.values()}.values():
        moved.update(dict.fromkeys(region.computed, 0))
        read, written = _bytes_read(region), [tensor_value("", n.meta["val"], 0).bytes for n in region.results]
        results = [n.args[0] if is_element(n) else n for n in region.results] or [region.computed[-1]]
        total, so_far, given = sum(written), 0, 0
        for node, size in zip(results, written or [0]):
            so_far += size
            part = read * so_far // total if total else read
            moved[node] += size + part - given
            given = part
    for node in graph.nodes:
        if _is_made_in_place(node) and all(u in regions or loops(u) for u in node.users):
            moved[node] = 0
    return moved


def _bytes_read(region: Region) -> int:
    """Bytes of what enters a region. Rows that are gathered count as far as they are used, and memory counts once."""
    inside, traffic = set(region.members), dict[int, dict[fx.Node, int]]()
    for node in region.computed:
        gathers = node.target._schema.name.split("::")[1] in flops.GATHERING
        for i, source in enumerate(node.all_input_nodes):
            val = source.meta.get("val")
            if source in inside or not isinstance(val, torch.Tensor) or _is_made_in_place(source):
                continue
            size = tensor_value("", val, 0).traffic
            if gathers and i == 0:
                size = min(size, tensor_value("", node.meta["val"], 0).bytes)
            views = traffic.setdefault(storage_of(val), {})
            views[source] = max(views.get(source, 0), size)
    return sum(min(sum(v.values()), max(n.meta["val"].untyped_storage().nbytes() for n in v)) for v in traffic.values())
