"""What a scheduled module says about the graph that it came from.

Every operation of the module carries the names of the nodes that it stands for, in its location. From the sequence of
operations this reads off where each node goes, and which collectives were merged into one.
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
    """The module does not say where every node goes, or says something that the graph does not allow."""


@dataclasses.dataclass
class Bucket:
    """Collectives merged into one. Positions are indices into the sequence of operations; `unpacks` has one per
    member. In the coalesced form there is no pack, and the unpack is the wait."""

    kind: str
    members: list[fx.Node]
    packed: bool
    pack: int
    start: int
    wait: int
    unpacks: list[int]


@dataclasses.dataclass
class Plan:
    """`position[node]`: index of the operation that does the node's work. Nodes without one are not in it."""

    position: dict[fx.Node, int]
    buckets: list[Bucket]
    length: int


def read_plan(graph: fx.Graph, operations: Sequence[Operation]) -> Plan:
    """Reads the plan off the operations of a scheduled function. O(nodes + operations).

    Raises:
        PlanError: an operation merges what is no collective, or a bucket's wait is missing.
    """
    by_name = {n.name: n for n in graph.nodes}
    starts = {n: s for n in graph.nodes if n.op == "call_function" and (s := spec_of(n)).start is not None}
    position: dict[fx.Node, int] = {}
    last: dict[fx.Node, int] = {}
    merged: list[int] = []
    for i, op in enumerate(operations):
        for name in op.names:
            node = by_name.get(name)
            if node is not None:
                position.setdefault(node, i)
                last[node] = i
        if _is_start(op.opcode) and sum(by_name.get(n) in starts for n in op.names) > 1:
            merged.append(i)
    buckets = [_bucket(i, operations, by_name, starts, last) for i in merged]
    for bucket in buckets:
        for member, unpack in zip(bucket.members, bucket.unpacks):
            position[member] = bucket.start
            position[wait_of(member)] = unpack
    return Plan(position, buckets, len(operations))


def _bucket(i: int, operations, by_name, starts, last) -> Bucket:
    members = [n for name in operations[i].names if (n := by_name.get(name)) in starts]
    kind = operations[i].opcode.removeprefix("comm.")
    for m in members:
        if starts[m].start.kind != kind or starts[m].start.coalesced or len(m.users) != 1:
            raise PlanError(f"{m.name} is in a bucket that cannot be carried out")
    own = {m.name for m in members} | {m.args[0].name for m in members} | {wait_of(m).name for m in members}
    pack = next(
        (j for j in range(i - 1, -1, -1) if operations[j].opcode in PACKS and own.intersection(operations[j].names)),
        None,
    )
    wait = next(
        (
            j
            for j in range(i + 1, len(operations))
            if operations[j].opcode == "comm.wait" and own.intersection(operations[j].names)
        ),
        None,
    )
    if wait is None:
        raise PlanError(f"the bucket of {members[0].name} has no wait")
    unpacks = [max(last.get(wait_of(m), wait), wait) for m in members]
    return Bucket(kind, members, pack is not None, i if pack is None else pack, i, wait, unpacks)


def _is_start(opcode: str) -> bool:
    return opcode in ("comm.all_gather", "comm.reduce_scatter", "comm.all_reduce", "comm.all_to_all", "comm.broadcast")


def wait_of(start: fx.Node) -> fx.Node:
    return next(iter(start.users))
