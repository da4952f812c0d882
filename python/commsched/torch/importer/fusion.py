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
from collections.abc import Callable, Hashable, Sequence
from operator import attrgetter

import torch.fx as fx

from ..semantics.operators import spec_of, storage_of
from ..semantics.packs import CASTS
from . import flops
from .facts import Facts, is_element, is_free
from .spaces import Space, space_of, together

__all__ = ["Region", "find_regions", "in_levels", "is_element", "is_free", "loops", "shares"]

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
    def of(members: list[fx.Node], facts: Facts) -> Region:
        """The region of these nodes, once all their readers are known."""
        inside, needed = set(members), set()
        for node in reversed(members):
            for user in node.users:
                if user not in inside or user in needed and facts[user].is_free:
                    needed.add(node)
                    break
        computed = [n for n in members if not facts[n].is_free]
        views = [n for n in members if n in needed and (f := facts[n]).is_free and not f.is_element]
        tensors = [n for n in members if n in needed and facts[n].tensor is not None]
        results = [n for n in tensors if not (f := facts[n]).is_free or f.is_element]
        return Region(members, computed, results, views)


def loops(node: fx.Node) -> bool:
    """Whether Inductor makes a loop of the node, which other nodes can be fused with."""
    return Facts().loops(node)


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

    def join(self, other: _Group, edges: int, others: Sequence[_Group]) -> _Group:
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
        top = max([self.top, other.top, *[o.depth for o in others]])
        ready = max([self.ready, other.ready, *[o.ready for o in others]])
        read = [g for g in (self, other) if g.is_read]
        until = min(self.until, other.until)
        # A kernel between the two would be deeper than the one of them that it reads. And a group cannot become ready
        # later than its readers know.
        if ready >= until:
            return other
        for group in read:
            if top >= group.depth or ready > group.ready:
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

    def __init__(self, nodes: Sequence[fx.Node], kind: Callable[[fx.Node], Hashable | None], facts: Facts):
        self.nodes, self.kind, self.facts = nodes, kind, facts
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
            # Indexed by group that the node reads: what it reads of it. And what it reads of no group.
            edges: dict[_Group, list[fx.Node]] = {}
            outside: list[fx.Node] = []
            for source in self.facts[node].inputs:
                group = self.group.get(source)
                if group is None:
                    outside.append(source)
                else:
                    edges.setdefault(group if group.into is group else group.root(), []).append(source)
            if node.op == "call_function":
                if self._follows(node, edges) or self._grows(node, position, edges, outside):
                    continue
            self.position[node] = position
            self.depth[node] = 1 + max([0, *[self.depth[n] for n in outside], *[g.depth for g in edges]])
            for group in edges:
                group.is_read = True
                group.needed(position)
        groups = dict.fromkeys([g.root() for g in self.group.values()])
        return [sorted(g.members, key=order.__getitem__) for g in groups]

    def _follows(self, node: fx.Node, edges: dict[_Group, list[fx.Node]]) -> bool:
        """Puts a view, or an element, of what a group makes into that group."""
        fact = self.facts[node]
        if not fact.is_free or len(edges) != 1 or len(fact.inputs) != 1:
            return False
        if not fact.is_element and self.kind(node) is None:
            return False
        (group,) = edges
        self.group[node] = group
        group.members.append(node)
        group.pending += len(node.users) - 1
        return True

    def _grows(self, node: fx.Node, position: int, edges: dict[_Group, list[fx.Node]], outside: list[fx.Node]) -> bool:
        """Puts a loop into a group of its own, and joins it with others.

        Args:
            edges: indexed by group that the node reads: what it reads of it.
            outside: what it reads of no group.
        """
        facts = self.facts
        if facts[node].is_free or not facts.loops(node) or facts.is_constant(node) or (kind := self.kind(node)) is None:
            return False
        top, ready = (max([of[n] for n in outside], default=0) for of in (self.depth, self.position))
        group = self.group[node] = _Group(node, kind, space_of(node), top, ready)
        left = list(edges)
        if len(left) > 1:
            left.sort(key=lambda g: -max(facts[n].elements for n in edges[g]))
        kept: list[_Group] = []
        while left:
            source = left.pop(0)
            joined = source.join(group, len(edges[source]), left + kept)
            if joined is group and source.root() is not group:
                kept.append(source)
            group = joined
        for source in kept:
            source.read_by(group)
        if not group.is_read:
            group.depth = group.top + 1
        largest = max(outside, key=lambda n: facts[n].elements, default=None)
        if largest is not None and facts[largest].elements > 1:
            self._meets_neighbour(self._origin(largest), group, position)
        return True

    def _origin(self, node: fx.Node) -> fx.Node:
        """The tensor that a chain of views starts from."""
        while node.op == "call_function" and self.facts[node].is_free and isinstance(node.args[0], fx.Node):
            node = node.args[0]
        return node

    def _meets_neighbour(self, tensor: fx.Node, group: _Group, position: int) -> None:
        """Joins a group with the one that has read the same tensor shortly before."""
        neighbour, began = self.neighbours.get(tensor, (group, position))
        neighbour = neighbour.root()
        if neighbour is not group and position - began <= NEIGHBOURHOOD:
            group = neighbour.join(group, 0, ())
        self.neighbours[tensor] = group, position


def in_levels(graph: fx.Graph, facts: Facts | None = None) -> list[fx.Node]:
    """The nodes in an order that depends on the data alone: by the longest path to them, then by name."""
    facts = Facts() if facts is None else facts
    level: dict[fx.Node, int] = {}
    levels: list[list[fx.Node]] = []
    for node in graph.nodes:
        at = level[node] = max([level[n] + 1 for n in facts[node].inputs], default=0)
        if at == len(levels):
            levels.append([])
        levels[at].append(node)
    for nodes in levels:
        nodes.sort(key=attrgetter("name"))
    return [n for nodes in levels for n in nodes]


def find_regions(
    nodes: Sequence[fx.Node], kind: Callable[[fx.Node], Hashable | None], facts: Facts | None = None
) -> dict[fx.Node, Region]:
    """The regions of at least two nodes that are not views. Indexed by node. Near-linear.

    Args:
        nodes: all nodes of a graph, each after what it reads. Every region can run as a whole in this order.
        kind: what only nodes of one region have in common. None if the node, or the view, must keep a place of its own,
            because its order shows or because it uses memory that is written.
        facts: those of the graph, if somebody has read them already.
    """
    facts = Facts() if facts is None else facts
    regions: dict[fx.Node, Region] = {}
    for members in _Growth(nodes, kind, facts).groups():
        if len(members) > 1 and sum(not facts[n].is_free for n in members) > 1:
            regions.update(dict.fromkeys(members, Region.of(members, facts)))
    return regions


def shares(regions: dict[fx.Node, Region], graph: fx.Graph, facts: Facts | None = None) -> dict[fx.Node, int]:
    """The bytes that each node of a region moves. Indexed by node.

    A kernel reads once what enters the region, and writes what leaves it. Each result has its own bytes, and a part of
    what is read in proportion to them. All other nodes have 0. So the sum does not depend on the order of the nodes,
    and a reader of one result never finds it for free. A constant that only loops read has 0, too. A cast that a
    collective reads leaves its share to the node of the region that makes what is cast: a pack may take over the cast,
    but not the kernel's other work.

    Args:
        facts: those of the graph, if somebody has read them already.
    """
    facts = Facts() if facts is None else facts
    moved: dict[fx.Node, int] = {}
    for region in {id(r): r for r in regions.values()}.values():
        moved.update(dict.fromkeys(region.computed, 0))
        inside = set(region.computed)
        read, written = _bytes_read(region, facts), [facts[n].bytes() for n in region.results]
        results = [_bearer(n, inside, facts) for n in region.results] or [region.computed[-1]]
        total, so_far, given = sum(written), 0, 0
        for node, size in zip(results, written or [0]):
            so_far += size
            part = read * so_far // total if total else read
            moved[node] += size + part - given
            given = part
    for node in graph.nodes:
        if facts.is_made_in_place(node) and all(u in regions or facts.loops(u) for u in node.users):
            moved[node] = 0
    return moved


def _bearer(result: fx.Node, inside: set[fx.Node], facts: Facts) -> fx.Node:
    """The node that the share of a result is counted for.

    Args:
        inside: the nodes of the region that are not views or elements.
    """
    if facts[result].is_element:
        return result.args[0]
    if result.target not in CASTS or not any(spec_of(u).start is not None for u in result.users):
        return result
    source = result.args[0]
    while facts[source].is_free and not facts[source].is_element:
        source = source.args[0]
    return source if source in inside else result


def _bytes_read(region: Region, facts: Facts) -> int:
    """Bytes of what enters a region. Rows that are gathered count as far as they are used, and memory counts once."""
    inside, traffic = set(region.members), dict[int, dict[fx.Node, int]]()
    for node in region.computed:
        gathers = spec_of(node).op in flops.GATHERING
        for i, source in enumerate(facts[node].inputs):
            given = facts[source]
            if source in inside or given.tensor is None or facts.is_made_in_place(source):
                continue
            size = given.traffic()
            if gathers and i == 0:
                size = min(size, facts[node].bytes())
            views = traffic.setdefault(storage_of(given.tensor), {})
            views[source] = max(views.get(source, 0), size)
    limits = [max(n.meta["val"].untyped_storage().nbytes() for n in views) for views in traffic.values()]
    return sum(min(sum(views.values()), limit) for views, limit in zip(traffic.values(), limits))
