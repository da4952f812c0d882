# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Reads off two modules, one imported from a graph and one made of it by a pass, how the graph has to change.

Four changes can be carried out: an operand is replaced by another value, a collective gets a destination, an operation
is gone, and a cast is on the other side of a collective (`casts`). Operations are told apart by their names, their
locations, and their number among those of equal names and locations (`keys`). An operation that the graph does not have
is an error, unless it belongs to a bucket, which `plan.read_plan` reads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import torch.fx as fx

from ...program import Dataflow, DataflowOperation
from .casts import Move, read_crossings
from .keys import STARTS, Key, Keys, Value
from .plan import PACKS, UNPACKS, PlanError

# A node, and the place of a value in the list that it gives; None if the node gives the value itself.
Holder = tuple[fx.Node, "int | None"]


@dataclasses.dataclass
class Rewrites:
    """Changes of a graph.

    Args:
        replaced: readers, each with the holders of the value that it read and of the value that it reads now. A reader
            may be the output of the graph.
        destinations: collectives, each with the holders of the value that it writes now.
        erased: nodes whose operations are gone, in the order of the graph.
        moved: casts that changed sides with collectives, each with its nodes.
    """

    replaced: list[tuple[fx.Node, list[Holder], list[Holder]]] = dataclasses.field(default_factory=list)
    destinations: list[tuple[fx.Node, list[Holder]]] = dataclasses.field(default_factory=list)
    erased: list[fx.Node] = dataclasses.field(default_factory=list)
    moved: list[Move] = dataclasses.field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.replaced or self.destinations or self.erased or self.moved)


def read_rewrites(
    graph: fx.Graph,
    given: Dataflow,
    changed: Dataflow,
    holders: Mapping[int, list[Holder]],
    bucketed: Collection[str] = (),
    lossy: bool = False,
) -> Rewrites:
    """What a pass changed. O(nodes + operands).

    Args:
        given: the module that was imported from `graph`.
        changed: the module behind the pass.
        holders: indexed by value of `given`: the nodes that hold it.
        bucketed: the names of the nodes that `changed` merges, with the casts that it merges into packs.
        lossy: whether sums may be computed in fewer bits.

    Raises:
        PlanError: an FX graph cannot hold what the pass made.
    """
    return _Reader(graph, given, changed, holders, frozenset(bucketed), lossy).run()


class _Reader:
    def __init__(
        self,
        graph: fx.Graph,
        given: Dataflow,
        changed: Dataflow,
        holders: Mapping[int, list[Holder]],
        bucketed: frozenset[str],
        lossy: bool,
    ):
        self.graph, self.given, self.changed, self.holders = graph, given, changed, holders
        self.before, self.after = Keys(given), Keys(changed)
        self.crossings = read_crossings(self.before, self.after)
        self.crossed = {key for crossing in self.crossings for key in crossing.changed}
        self.renamed = {crossing.readers for crossing in self.crossings}
        self.lossy = lossy
        self.node = {n.name: n for n in graph.nodes}
        self.bucketed = bucketed
        self.rewrites = Rewrites()

    def run(self) -> Rewrites:
        if self.given.arguments != self.changed.arguments:
            raise PlanError("the arguments of the function changed")
        for key, op in self.after.operation.items():
            if self._in_bucket(op) or key in self.crossed:
                continue
            own = self.before.operation.get(key)
            if own is None:
                raise PlanError(f"an FX graph cannot hold the new operation {described(op)}")
            if own.attributes != op.attributes:
                raise PlanError(
                    f"an FX graph cannot hold other attributes of {described(op)}: {own.attributes or 'none'} before, "
                    f"{op.attributes or 'none'} behind it"
                )
            self._compare(self._node_of(op), op.opcode, own.operands, op.operands)
        self._compare(self.graph.output_node(), "return", self.given.returned, self.changed.returned)
        kept = {name for op in self.changed.operations for name in op.names} | self.bucketed
        gone = [op for key, op in self.before.operation.items() if key not in self.after.operation]
        for op in gone:
            if any(name in kept for name in op.names):
                if not self._in_bucket(op) and self.bucketed.isdisjoint(op.names):
                    raise PlanError(f"an FX graph cannot lose a part of a node: {described(op)}")
                continue
            self.rewrites.erased += [self.node[name] for name in op.names if name in self.node]
        self.rewrites.moved = [Move(crossing, self._node_at, self.lossy) for crossing in self.crossings]
        return self.rewrites

    def _node_at(self, key: Key) -> fx.Node | None:
        return self._node_of(self.after.operation[key])

    def _in_bucket(self, op: DataflowOperation) -> bool:
        kinds = (*PACKS, *UNPACKS, *STARTS, "comm.wait")
        return bool(op.names) and op.opcode in kinds and self.bucketed.issuperset(op.names)

    def _node_of(self, op: DataflowOperation) -> fx.Node | None:
        """The node that an operation stands for: the last one, if it does the work of several."""
        return self.node.get(op.names[-1]) if op.names else None

    def _compare(self, node: fx.Node | None, opcode: str, own: Sequence[int], now: Sequence[int]) -> None:
        """Notes how the operands of one operation changed."""
        if len(now) < len(own):
            raise PlanError(f"an FX graph cannot lose an operand of {opcode} at {node}")
        for old, new in zip(own, now):
            was, value = self.before.of(old), self.after.of(new)
            if was == value or (was, value) in self.renamed or self._from_bucket(value):
                continue
            if node is None:
                raise PlanError(f"an operand of {opcode} changed, which belongs to no node")
            self.rewrites.replaced.append((node, self.holders.get(old, []), self._holders_now(value)))
        for new in now[len(own) :]:
            if node is None or opcode not in STARTS:
                raise PlanError(f"an FX graph cannot hold another operand of {opcode} at {node}")
            self.rewrites.destinations.append((node, self._holders_now(self.after.of(new))))

    def _from_bucket(self, value: Value) -> bool:
        """Whether a value comes out of a bucket. Its readers follow the waits of the members by themselves."""
        return not isinstance(value[0], str) and self._in_bucket(self.after.operation[value[0]])

    def _holders_now(self, value: Value) -> list[Holder]:
        number = self.before.number.get(value)
        if number is None:
            raise PlanError("an operand became a value that the graph does not have")
        return self.holders.get(number, [])


def described(op: DataflowOperation) -> str:
    """An operation in words."""
    return f"{op.opcode} at {', '.join(op.names)}" if op.names else op.opcode
