# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The rules of PyTorch Inductor's passes over collectives, written a second time, over the nodes of an FX graph.

They share nothing with CommSched. A node is one operation, a graph is a straight line, and no operation writes memory.
Everything is recomputed after each step, which takes cubic time and suits small graphs. Memory is no limit here.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Callable

import torch
import torch.fx as fx

aten, c10d, fsdp = torch.ops.aten, torch.ops._c10d_functional, torch.ops.fsdp
STARTS = {
    c10d.all_reduce.default,
    c10d.all_gather_into_tensor.default,
    c10d.all_gather_into_tensor_out.default,
    c10d.reduce_scatter_tensor.default,
    c10d.all_to_all_single.default,
}
Order = list[fx.Node]
Cost = Callable[[fx.Node], float]


def operations(graph: fx.Graph) -> Order:
    return [n for n in graph.nodes if n.op == "call_function"]


def is_start(node: fx.Node) -> bool:
    return node.target in STARTS


def is_wait(node: fx.Node) -> bool:
    return node.target is c10d.wait_tensor.default


def is_product(node: fx.Node) -> bool:
    """Whether Inductor calls an external kernel."""
    return node.target is aten.mm.default


def reads(node: fx.Node) -> set[fx.Node]:
    return {n for n in node.all_input_nodes if n.op == "call_function"}


# List scheduling: `sink_waits`, `raise_comms` and `reorder_compute_for_overlap`.


def list_schedule(
    order: Order,
    cost: Cost,
    *,
    raises: bool,
    sinks: bool,
    fills: bool,
    in_order: bool = False,
) -> Order:
    """`_schedule_for_comm`: always the ready node with the least score, and computation beside a start if `fills`.

    With `in_order`, each start depends on the one before (`decide_global_ordering_of_comms`).
    """
    starting = [n for n in order if is_start(n)]
    unmet = {n: reads(n) for n in order}
    for before, start in zip(starting, starting[1:]) if in_order else ():
        unmet[start].add(before)
    ancestors: dict[fx.Node, set[fx.Node]] = {}
    for node in order:
        ancestors[node] = set().union(*({n, *ancestors[n]} for n in unmet[node]))
    blocks, late = dict.fromkeys(order, math.inf), dict.fromkeys(order, 0)
    starts = 0
    for node in order:
        if raises and is_start(node):
            blocks[node] = starts
            for ancestor in ancestors[node]:
                blocks[ancestor] = min(blocks[ancestor], starts)
            starts += 1
        elif sinks and is_wait(node):
            late[node] = 1
    score = {node: (blocks[node], late[node], place) for place, node in enumerate(order)}
    ready = [(score[n], n.name) for n in order if not unmet[n]]
    named = {n.name: n for n in order}
    heapq.heapify(ready)
    result: Order = []

    def place(node: fx.Node) -> None:
        result.append(node)
        for other in order:
            if node in unmet[other]:
                unmet[other].remove(node)
                if not unmet[other]:
                    heapq.heappush(ready, (score[other], other.name))

    while ready:
        node = named[heapq.heappop(ready)[1]]
        place(node)
        left = cost(node) if fills and is_start(node) else 0
        while left > 0:
            beside = [entry for entry in ready if not is_start(named[entry[1]]) and not is_wait(named[entry[1]])]
            if not beside:
                break
            ready.remove(least := min(beside))
            heapq.heapify(ready)
            place(named[least[1]])
            left -= cost(named[least[1]])
    assert len(result) == len(order)
    return result


# Iterative passes: `reorder_communication_preserving_peak_memory` and `sink_waits_iterative`.


@dataclasses.dataclass
class Row:
    """What the tables of the two passes say of one start or wait."""

    moves: int = 0
    grouped: int = 0
    passed: list[str] = dataclasses.field(default_factory=list)
    factor: str = "end of the block"


def reorder_preserving_peak_memory(
    order: Order,
    *,
    safe: bool = False,
    with_collectives: bool = False,
    limit: int | None = None,
) -> tuple[Order, dict[str, Row]]:
    """Each start from the left moves up; what it depends on and may be taken along moves with it."""
    order, rows = list(order), {}
    for start in [n for n in order[:-1] if is_start(n)]:
        if limit is not None and len(rows) >= limit:
            break
        row = rows[start.name] = Row()
        head = tail = order.index(start)
        while head > 0:
            candidate, group = order[head - 1], order[head : tail + 1]
            needed = set().union(*map(reads, group)) - {*group}
            if safe and is_start(candidate):
                row.factor = f"collective order on {candidate.name}"
                break
            if candidate in needed:
                if is_start(candidate) and not with_collectives or is_product(candidate):
                    row.factor = f"data dependence on {candidate.name}"
                    break
                head -= 1
                row.grouped += 1
                continue
            order[head - 1 : tail + 1] = [*group, candidate]
            head, tail = head - 1, tail - 1
            row.moves += 1
            row.passed.append(candidate.name)
    return order, rows


def sink_waits_iterative(
    order: Order, *, safe: bool = False, swaps: bool = False, limit: int | None = None
) -> tuple[Order, dict[str, Row]]:
    """Each wait from the right moves down; what depends on it and may be taken along moves with it."""
    order, rows = list(order), {}
    for wait in [n for n in reversed(order) if is_wait(n)]:
        if limit is not None and len(rows) >= limit:
            break
        row = rows[wait.name] = Row()
        head = tail = order.index(wait)
        while tail + 1 < len(order):
            candidate, group = order[tail + 1], order[head : tail + 1]
            depends = bool(reads(candidate) & {*group})
            if not swaps and is_start(candidate):
                row.factor = f"collective order on {candidate.name}"
                break
            both = is_start(candidate) and any(map(is_start, group))
            if depends or both:
                if not is_wait(candidate) and not is_start(candidate) and not is_product(candidate):
                    tail += 1
                    row.grouped += 1
                    continue
                if depends or safe:
                    row.factor = f"{'data dependence' if depends else 'collective order'} on {candidate.name}"
                    break
            order[head : tail + 2] = [candidate, *group]
            head, tail = head + 1, tail + 1
            row.moves += 1
            row.passed.append(candidate.name)
    return order, rows


# Memory, counted anew.


def peak_bytes(order: Order, results: set[fx.Node]) -> int:
    """The largest sum of live tensors, without arguments.

    A tensor is live from the node that makes it to the last one that reads it. A collective reads its input and has
    its output until its wait, which makes nothing.
    """
    made: dict[fx.Node, fx.Node] = {n: n.args[0] if is_wait(n) else n for n in order}
    size = {n: n.meta["val"].numel() * n.meta["val"].element_size() for n in order if made[n] is n}
    last = {}
    for node in order:
        for value in [
            node,
            *reads(node),
            *(reads(node.args[0]) if is_wait(node) else ()),
        ]:
            last[made[value]] = node
    kept = {made[n] for n in results if n in made}
    peak, live = 0, 0
    for node in order:
        live += size.get(node, 0)
        peak = max(peak, live)
        live -= sum(size[value] for value in size if last[value] is node and value not in kept)
    return peak


# Texts: `visualize_overlap`.


def listing(order: Order) -> list[tuple[str, bool]]:
    """`visualize_overlap`: names, with a bar for what is between a collective and the next wait.

    There, a collective that starts while none is in flight has no line.
    """
    lines, flying = [], False
    for node in order:
        lines.append((node.name, flying and not is_start(node) and not is_wait(node)))
        flying = is_start(node) or flying and not is_wait(node)
    return lines


# Buckets: fsdp.py, and the greedy buckets that it asks for.


def is_fsdp_all_gather_wait(wait: fx.Node) -> bool:
    """The gather reads an argument, or exactly one conversion of one."""
    source = wait.args[0].args[0]
    cast = source.op == "call_function" and source.target is torch.ops.prims.convert_element_type.default
    return source.op == "placeholder" or cast and source.args[0].op == "placeholder"


def is_graph_output(node: fx.Node) -> bool:
    return all(user.op == "output" for user in node.users)


def is_fsdp_reduce_scatter_wait(wait: fx.Node) -> bool:
    """The sum is a result, or its only reader is a conversion that is one."""
    if is_graph_output(wait):
        return True
    readers = list(wait.users)
    return (
        len(readers) == 1
        and is_graph_output(readers[0])
        and readers[0].target is torch.ops.prims.convert_element_type.default
    )


def greedy_buckets(graph: fx.Graph, target, filter_wait: Callable[[fx.Node], bool], caps_mb: list[float]) -> list:
    """`bucket_all_gather_by_mb` and `bucket_reduce_scatter_by_mb`, whose members are none of each other's operands.

    Collectives of one group, element type and reduction fill buckets in the order of their waits. The caps are indexed
    by bucket, from 0 in each such list, and the last one holds for all later buckets.
    """
    alike: dict[tuple, Order] = {}
    for wait in operations(graph):
        if is_wait(wait) and wait.args[0].target is target and filter_wait(wait):
            start = wait.args[0]
            alike.setdefault((*start.args[1:], start.meta["val"].dtype), []).append(start)
    buckets: list[list[str]] = []
    for starts in alike.values():
        full, filled, number = [], 0, 0
        for start in starts:
            size = max(v.meta["val"].numel() * v.meta["val"].element_size() for v in (start, start.args[0]))
            if full and filled + size > caps_mb[min(number, len(caps_mb) - 1)] * 1024 * 1024:
                buckets.append(full)
                full, filled, number = [], 0, number + 1
            full.append(start.name)
            filled += size
        buckets.append(full)
    return [b for b in buckets if len(b) > 1]
