"""Carries a schedule out on an FX graph: merges the buckets, moves the nodes, checks the result.

The checks do not trust the scheduler: the dependences are read off the graph once more (`effects.edges`), before anything
is touched, and compared with where the plan puts each node.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

import torch.fx as fx

from ..semantics import effects
from . import buckets
from .plan import Bucket, Plan, PlanError


def apply_plan(
    graph: fx.Graph, plan: Plan, accept: Callable[[fx.Graph, Sequence[fx.Node]], None] | None = None
) -> None:
    """Reorders `graph` in place, with the plan's buckets. Near-linear. `accept` is given the result, and the nodes of it
    that are still to be erased; what it raises takes everything back.

    Raises:
        PlanError: the plan breaks a dependence, or a bucket cannot be carried out. The graph is unchanged then.
    """
    slots = _slots(graph, plan)
    _check(graph, plan, slots)
    before = list(graph.nodes)
    merger = buckets.Merger(graph, graph.output_node())
    try:
        for bucket in plan.buckets:
            _merge(merger, bucket, slots)
        for node in merger.replaced:  # they have no readers any more, and go to the end
            slots[node] = plan.length
        _relink(graph, slots)
        graph.lint()
        if accept is not None:
            accept(graph, merger.replaced)
    except Exception as error:  # Whatever it is, half a schedule must not stay.
        merger.undo()
        _restore_order(graph, before)
        if isinstance(error, PlanError):
            raise
        raise PlanError(f"the schedule cannot be carried out: {type(error).__name__}: {error}") from error
    merger.finish()


def _restore_order(graph: fx.Graph, order: list[fx.Node]) -> None:
    output = graph.output_node()
    for node in order:
        if node is not output:
            output.prepend(node)


def _slots(graph: fx.Graph, plan: Plan) -> dict[fx.Node, int]:
    """Where each call goes: its operation's index. What has no operation of its own goes with the last of what it
    reads: elements of a list, and what the passes found to be without use."""
    slots: dict[fx.Node, int] = {}
    position = plan.position
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        at = position.get(node)
        if at is None or node.target is operator.getitem:
            at = max((slots[n] for n in node.all_input_nodes if n in slots), default=-1)
        slots[node] = at
    return slots


def _check(graph: fx.Graph, plan: Plan, slots: dict[fx.Node, int]) -> None:
    """Compares the slots with every dependence. A node occupies [begin, end]: a member begins with the bucket's pack."""
    begin, end = dict(slots), dict(slots)
    index = {n: i for i, n in enumerate(graph.nodes)}
    bucket_of: dict[fx.Node, int] = {}
    for b, bucket in enumerate(plan.buckets):
        for member, unpack in zip(bucket.members, bucket.unpacks):
            wait = next(iter(member.users))
            begin[member], end[member] = bucket.pack, bucket.start
            begin[wait], end[wait] = bucket.wait, unpack
            bucket_of[member] = bucket_of[wait] = b
            cast = buckets.cast_of(bucket, member)
            if cast is not None:
                begin[cast] = end[cast] = bucket.pack
                bucket_of[cast] = b

    def ordered(before: fx.Node, after: fx.Node) -> bool:
        if before not in end or after not in begin or end[before] < begin[after]:
            return True
        if before in bucket_of and bucket_of[before] == bucket_of.get(after):
            return True  # inside of one bucket the order is its own
        return end[before] == begin[after] and index[before] < index[after]

    for node in graph.nodes:
        for source in node.all_input_nodes:
            if not ordered(source, node):
                raise PlanError(f"{node.name} would come before {source.name}, which it reads")
    for before, after in effects.edges(graph):
        if not ordered(before, after):
            raise PlanError(f"{after.name} would come before {before.name}, and one of them writes what the other uses")


def _merge(merger: buckets.Merger, bucket: Bucket, slots: dict[fx.Node, int]) -> None:
    """Carries out a bucket; its new nodes take the places of its parts."""
    merged = merger.merge(bucket)
    for nodes, at in ((merged.pack, bucket.pack), (merged.start, bucket.start), (merged.wait, bucket.wait)):
        slots.update((n, at) for n in nodes)
    for nodes, at in zip(merged.outputs, bucket.unpacks):
        slots.update((n, at) for n in nodes)


def _relink(graph: fx.Graph, slots: dict[fx.Node, int]) -> None:
    """Puts the calls into the order of their slots; within one slot they keep their order, but for readers of what the
    slot brings, which follow it."""
    calls = [n for n in graph.nodes if n in slots]
    calls.sort(key=slots.__getitem__)
    output = graph.output_node()
    placed: set[fx.Node] = set()
    for node in calls:
        if node not in placed:
            _place(node, slots, placed, output)


def _place(node: fx.Node, slots: dict[fx.Node, int], placed: set[fx.Node], output: fx.Node) -> None:
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
