# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Reads a plan off a scheduled module: where each node moves, and which collectives are merged into one.

Every operation of the module holds, in its location, the names of the nodes that it stands for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch.fx as fx

from ...program import Operation
from ..semantics.operators import spec_of

PACKS = ("comm.fsdp.all_gather_copy_in", "comm.fsdp.chunk_cat")
UNPACKS = ("comm.fsdp.split_with_sizes_copy", "comm.fsdp.split_with_sizes")


class PlanError(ValueError):
    """The module does not place every node, or it contradicts the graph."""


class Unmergeable(PlanError):
    """Collectives whose merged results would not be what their readers expect. `merged` are their names."""

    def __init__(self, reason: str, merged: Sequence[str]):
        super().__init__(reason)
        self.merged = frozenset(merged)


@dataclasses.dataclass
class Bucket:
    """Collectives that are merged into one. Positions are indices into the sequence of operations.

    In the coalesced form, no operation packs, and `pack` is that of the start.

    Args:
        kind: the mnemonic of the dialect.
        members: the merged starts.
        packed: whether the members are packed into one buffer.
        unpacks: indexed by member: the position of its unpack, or of the wait.
        apart: inputs of members that the pack must not take over: their memory may be written before the pack.
    """

    kind: str
    members: list[fx.Node]
    packed: bool
    pack: int
    start: int
    wait: int
    unpacks: list[int]
    apart: frozenset[fx.Node] = frozenset()


@dataclasses.dataclass
class Plan:
    """A schedule of a graph.

    Args:
        position: indexed by node: the index of the operation that does its work. Nodes without an operation
            are not in it.
        buckets: the merged collectives.
        length: the number of operations.
    """

    position: dict[fx.Node, int]
    buckets: list[Bucket]
    length: int


def read_plan(graph: fx.Graph, operations: Sequence[Operation]) -> Plan:
    """Reads the plan off the operations of a scheduled function. O(nodes + operations).

    Raises:
        PlanError: an operation merges nodes that are not collectives, or a bucket has no wait.
    """
    by_name = {n.name: n for n in graph.nodes}
    starts = {n: s for n in graph.nodes if n.op == "call_function" and (s := spec_of(n)).start is not None}
    position: dict[fx.Node, int] = {}
    last: dict[fx.Node, int] = {}
    # Indexed by name: the operations that pack, and those that wait, for the node of that name.
    packs: dict[str, list[int]] = {}
    waits: dict[str, list[int]] = {}
    merged: list[int] = []
    for i, op in enumerate(operations):
        for name in op.names:
            if op.opcode in PACKS:
                packs.setdefault(name, []).append(i)
            elif op.opcode == "comm.wait":
                waits.setdefault(name, []).append(i)
            node = by_name.get(name)
            if node is not None:
                position.setdefault(node, i)
                last[node] = i
        if _is_start(op.opcode) and sum(by_name.get(n) in starts for n in op.names) > 1:
            merged.append(i)
    buckets = []
    for i in merged:
        members = [n for name in operations[i].names if (n := by_name.get(name)) is not None and n in starts]
        kind = operations[i].opcode.removeprefix("comm.")
        for m in members:
            if starts[m].collective.kind != kind or starts[m].collective.coalesced or len(m.users) != 1:
                raise PlanError(f"{m.name} is in a bucket that cannot be carried out")
        buckets.append(_bucket(i, kind, members, packs, waits, last))
    for bucket in buckets:
        for member, unpack in zip(bucket.members, bucket.unpacks):
            position[member] = bucket.start
            position[wait_of(member)] = unpack
    return Plan(position, buckets, len(operations))


def _bucket(
    i: int,
    kind: str,
    members: list[fx.Node],
    packs: dict[str, list[int]],
    waits: dict[str, list[int]],
    last: dict[fx.Node, int],
) -> Bucket:
    """The bucket that starts at operation `i`, with the nearest pack before it and the nearest wait behind it."""
    own = {m.name for m in members} | {m.args[0].name for m in members} | {wait_of(m).name for m in members}
    pack = max((j for name in own for j in packs.get(name, ()) if j < i), default=None)
    wait = min((j for name in own for j in waits.get(name, ()) if j > i), default=None)
    if wait is None:
        raise PlanError(f"the bucket of {members[0].name} has no wait")
    unpacks = [max(last.get(wait_of(m), wait), wait) for m in members]
    return Bucket(kind, members, pack is not None, i if pack is None else pack, i, wait, unpacks)


def _is_start(opcode: str) -> bool:
    return opcode in ("comm.all_gather", "comm.reduce_scatter", "comm.all_reduce", "comm.all_to_all", "comm.broadcast")


def wait_of(start: fx.Node) -> fx.Node:
    """The wait of a start that has one reader."""
    return next(iter(start.users))
