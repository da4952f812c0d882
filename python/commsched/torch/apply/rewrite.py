# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Carries a schedule out on an FX graph: merges the buckets, moves the nodes, checks the result.

The checks do not trust the scheduler. The dependences are read off the graph once more (`effects.edges`), before
anything is touched, and compared with the place that the plan gives each node.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

import torch.fx as fx

from ..semantics import effects
from ..semantics.packs import CASTS, VIEWS
from . import buckets
from .plan import Bucket, Plan, PlanError

# The calls that a pack may take over. They become a part of its kernel.
COPIES = (*CASTS, *VIEWS)
# Takes a result, the nodes that are still to be erased, and indexed by bucket: its new nodes.
Accept = Callable[[fx.Graph, Sequence[fx.Node], "list[list[fx.Node]]"], None]


def apply_plan(
    graph: fx.Graph,
    plan: Plan,
    accept: Accept | None = None,
    aliases: effects.Aliases | None = None,
) -> None:
    """Reorders `graph` in place and merges the plan's buckets. Near-linear.

    Args:
        accept: is given the result, those of its nodes that are still to be erased, and indexed by bucket: its new
            nodes. If it raises, everything is undone, and what it raises is passed on.
        aliases: those of the graph, if somebody has read them already.

    Raises:
        PlanError: the plan breaks a dependence, or a bucket cannot be carried out. The graph is unchanged.
    """
    slots, aliases = _slots(graph, plan), aliases or effects.Aliases(graph)
    _keep_apart(plan, aliases)
    _check(graph, plan, slots, aliases)
    before = list(graph.nodes)
    merger, carried_out = buckets.Merger(graph, graph.output_node()), False
    try:
        made = [_merge(merger, bucket, slots) for bucket in plan.buckets]
        for node in merger.replaced:  # They have no readers any more, so they move to the end.
            slots[node] = plan.length
        relink(graph, slots)
        graph.lint()
        carried_out = True
        if accept is not None:
            accept(graph, merger.replaced, made)
    except Exception as error:  # Whatever happened, half a schedule must not stay.
        merger.undo()
        _restore_order(graph, before)
        if carried_out or isinstance(error, PlanError):
            raise
        raise PlanError(f"the schedule cannot be carried out: {type(error).__name__}: {error}") from error
    merger.finish()


def _restore_order(graph: fx.Graph, order: list[fx.Node]) -> None:
    output = graph.output_node()
    for node in order:
        if node is not output:
            output.prepend(node)


def _slots(graph: fx.Graph, plan: Plan) -> dict[fx.Node, int]:
    """Indexed by call: the index of the operation that does its work.

    A call without an operation follows the last of its operands. These are elements of lists, and calls that the passes
    found to be useless. A cast or view that a pack took over is with the pack: before it, only its source has memory.
    """
    slots: dict[fx.Node, int] = {}
    position = plan.position | _packed_inputs(plan)
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        at = position.get(node)
        if at is None or node.target is operator.getitem:
            at = max((slots[n] for n in node.all_input_nodes if n in slots), default=-1)
        slots[node] = at
    return slots


def _packed_inputs(plan: Plan) -> dict[fx.Node, int]:
    """The calls between the sources of packs and the members of their buckets. Indexed by call: the pack."""
    inputs: dict[fx.Node, int] = {}
    for bucket in plan.buckets:
        for member in bucket.members if bucket.packed else ():
            node = member.args[0]
            while isinstance(node, fx.Node) and node.target in COPIES and node not in plan.position:
                if len(node.users) != 1:
                    break
                inputs[node], node = bucket.pack, node.args[0]
    return inputs


def _keep_apart(plan: Plan, aliases: effects.Aliases) -> None:
    """Leaves a cast to its own operation, if it has one, when it reads memory that some node writes."""
    for bucket in plan.buckets:
        inputs = [m.args[0] for m in bucket.members if isinstance(m.args[0], fx.Node)]
        own = [n for n in inputs if plan.position.get(n, bucket.pack) != bucket.pack]
        written = aliases.written()
        bucket.apart = frozenset(n for n in own if not written.isdisjoint(aliases.of_all(n.all_input_nodes)))


def _check(graph: fx.Graph, plan: Plan, slots: dict[fx.Node, int], aliases: effects.Aliases) -> None:
    """Compares the slots with every dependence.

    A node occupies an interval [begin, end]. That of a bucket's member begins with the pack. What a pack has copied may
    be written behind it, though the collective has not landed.
    """
    begin, end = dict(slots), dict(slots)
    copied: dict[fx.Node, int] = {}  # Indexed by member of a packed bucket, and by its wait: the pack.
    index = {n: i for i, n in enumerate(graph.nodes)}
    bucket_of: dict[fx.Node, int] = {}
    for b, bucket in enumerate(plan.buckets):
        for member, unpack in zip(bucket.members, bucket.unpacks):
            wait = next(iter(member.users))
            begin[member], end[member] = bucket.pack, bucket.start
            begin[wait], end[wait] = bucket.wait, unpack
            bucket_of[member] = bucket_of[wait] = b
            if bucket.packed:
                copied[member] = copied[wait] = bucket.pack
            cast = buckets.cast_of(bucket, member)
            if cast is not None:
                begin[cast] = end[cast] = bucket.pack
                bucket_of[cast] = b

    def ordered(before: fx.Node, after: fx.Node) -> bool:
        if before not in end or after not in begin or end[before] < begin[after]:
            return True
        if before in bucket_of and bucket_of[before] == bucket_of.get(after):
            return True  # The bucket orders its own nodes.
        return end[before] == begin[after] and index[before] < index[after]

    for node in graph.nodes:
        from_here = begin.get(node)
        if from_here is None:
            continue
        for source in node.all_input_nodes:
            if source in end and end[source] >= from_here and not ordered(source, node):
                raise PlanError(f"expected {node.name} behind {source.name}, which it reads")
    for before, after in effects.edges(graph, aliases):
        if not ordered(before, after):
            if before in copied and copied[before] < begin[after] and _only_writes_operands(after, before, aliases):
                continue
            raise PlanError(f"expected {after.name} behind {before.name}: one of them writes what the other uses")


def _only_writes_operands(node: fx.Node, member: fx.Node, aliases: effects.Aliases) -> bool:
    """Whether a node has to follow a collective, or its wait, only because it writes what the collective reads."""
    touched = aliases.of_all([*node.all_input_nodes, node])
    return not effects.spec_of(node).hybrid and touched.isdisjoint(aliases.of(member))


def _merge(merger: buckets.Merger, bucket: Bucket, slots: dict[fx.Node, int]) -> list[fx.Node]:
    """Carries out a bucket. Its new nodes, which it returns, take the places of its parts."""
    merged = merger.merge(bucket)
    for nodes, at in ((merged.pack, bucket.pack), (merged.start, bucket.start), (merged.wait, bucket.wait)):
        slots.update((n, at) for n in nodes)
    for nodes, at in zip(merged.outputs, bucket.unpacks):
        slots.update((n, at) for n in nodes)
    return list(merged.nodes())


def relink(graph: fx.Graph, slots: dict[fx.Node, int]) -> None:
    """Puts the calls into the order of their slots.

    Within one slot they keep their order, but readers follow what they read.
    """
    calls = [n for n in graph.nodes if n in slots]
    calls.sort(key=slots.__getitem__)
    output = graph.output_node()
    placed: set[fx.Node] = set()
    for node in calls:
        if node not in placed:
            _place(node, slots, placed, output)


def _place(node: fx.Node, slots: dict[fx.Node, int], placed: set[fx.Node], output: fx.Node) -> None:
    """Places a node behind its operands of the same slot."""
    stack = [node]
    while stack:
        node = stack[-1]
        if node in placed:
            stack.pop()
            continue
        slot = slots[node]
        pending = [n for n in node.all_input_nodes if n not in placed and slots.get(n) == slot]
        if pending:
            stack.extend(pending)
            continue
        stack.pop()
        placed.add(node)
        output.prepend(node)
