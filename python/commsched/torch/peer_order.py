# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The order that somebody else's scheduler made of a graph, by the names of the nodes that the graph had before.

A scheduler that merges collectives takes starts and waits away, and adds nodes that pack, communicate and unpack. What
it merged is told by what the new collectives read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch.fx as fx

from .semantics import operators


def buckets_by_name(given: fx.Graph, scheduled: fx.Graph) -> dict[str, int]:
    """The names of nodes of `given`, as `scheduled` has them in its order.

    The value is the number of the bucket of a start that was merged, and -1 of all other nodes. Starts that were merged
    stand in the place of their bucket's start, and their waits in that of its wait. What `scheduled` took away besides
    is missing. O(N + uses).
    """
    own = {node.name: node for node in given.nodes}
    kept = {node.name for node in scheduled.nodes if node.name in own}
    merged = _Merged(node for node in given.nodes if node.name not in kept)
    order: dict[str, int] = {}
    buckets: dict[fx.Node, list[fx.Node]] = {}
    for node in scheduled.nodes:
        if node.name in own:
            order[node.name] = -1
        elif node.op != "call_function":
            continue
        elif operators.spec_of(node).start is not None:
            members = merged.take(node, own)
            order.update((member.name, len(buckets)) for member in members)
            buckets[node] = members
        elif operators.spec_of(node).is_wait:
            waited = [m for start in node.all_input_nodes for m in buckets.get(start, [])]
            order.update((user.name, -1) for m in waited for user in m.users if _waits(user))
    return order


class _Merged:
    """The starts that a scheduler took away."""

    def __init__(self, gone: Iterable[fx.Node]):
        self.by_operand: dict[str, list[fx.Node]] = defaultdict(list)
        names = set()
        for node in gone:
            names.add(node.name)
            if node.op != "call_function" or operators.spec_of(node).start is None or not node.all_input_nodes:
                continue
            operand = node.all_input_nodes[0]
            # A pack may cast, too: then it reads what the cast read.
            while operand.name in names and operand.all_input_nodes:
                operand = operand.all_input_nodes[0]
            self.by_operand[operand.name].append(node)

    def take(self, start: fx.Node, own: dict[str, fx.Node]) -> list[fx.Node]:
        """The starts that a new one stands for: those whose operands it reads through new nodes, each once."""
        members, seen = [], {start}
        stack = [start]
        while stack:
            for operand in stack.pop().all_input_nodes:
                if operand.name in own:
                    group = self.by_operand.get(operand.name, [])
                    match = next((m for m in group if _kind(m) == _kind(start)), None)
                    if match is not None:
                        group.remove(match)
                        members.append(match)
                elif operand not in seen:
                    seen.add(operand)
                    stack.append(operand)
        return members


def _waits(node: fx.Node) -> bool:
    return node.op == "call_function" and operators.spec_of(node).is_wait


def _kind(start: fx.Node) -> str | None:
    collective = operators.spec_of(start).start
    return None if collective is None else collective.kind
