# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Waits for all results of a list at once, where gloo needs that.

gloo reduces and scatters a list of tensors by all-reduces into memory of its own. Each wait for one of the results
copies all of them out of that memory (torch/csrc/distributed/c10d/ProcessGroupGloo.cpp,
`reduce_scatter_tensor_coalesced`). If somebody writes one result before another one is waited for, the second wait
undoes the write. Inductor makes such writes: it orders waits by their readers, and lets operators write their operands.
So the waits for such a list stay together, at the place of the first one. This loses no overlap, because the first wait
waits for the whole list.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
import torch.fx as fx

from ..semantics.operators import spec_of

LIST = torch.ops._c10d_functional.reduce_scatter_tensor_coalesced.default


def _is_on_gloo(arguments: Iterable[Any]) -> bool:
    """Whether one of the arguments names a group of gloo."""
    for name in arguments:
        try:
            group = dist.distributed_c10d._resolve_process_group(name) if isinstance(name, str) else None
        except (RuntimeError, ValueError):  # It names the reduction, or a group of another process.
            continue
        if group is not None and "gloo" in dist.distributed_c10d.get_backend(group):
            return True
    return False


def join_waits(graph: fx.Graph) -> None:
    """Moves the waits for each list of gloo to the place of the first one. O(nodes of the graph)."""
    lists = [n for n in graph.find_nodes(op="call_function", target=LIST) if _is_on_gloo(n.args)]
    if not lists:
        return
    place = {n: i for i, n in enumerate(graph.nodes)}
    for start in lists:
        waits = sorted((w for e in start.users for w in e.users if spec_of(w).is_wait), key=place.__getitem__)
        for wait in reversed(waits[1:]):
            waits[0].append(wait)
            if place[wait.args[0]] > place[waits[0]]:
                waits[0].append(wait.args[0])


def with_waits_joined(order: list) -> list:
    """Returns an order of Inductor's scheduler nodes in which the waits for each list of gloo follow the first one.

    A wait inside a fused node stays where it is. O(nodes).
    """
    from torch._inductor import ir

    nodes = [s.node for s in order]
    lists = {
        n.get_name()
        for n in nodes
        if isinstance(n, ir._CollectiveKernel) and n.op_overload is LIST and _is_on_gloo(n.constant_args)
    }
    if not lists:
        return order
    # Indexed by the name of an element: the list's name.
    list_of = {
        n.get_name(): n.inputs[0].get_name()
        for n in nodes
        if isinstance(n, ir.MultiOutput) and n.inputs[0].get_name() in lists
    }
    # Indexed by list: the place of its first wait, and the elements and their first waits that stand behind it.
    first: dict[str, int] = {}
    late: dict[str, list] = {name: [] for name in lists}
    landed: set[str] = set()
    for i, (s, node) in enumerate(zip(order, nodes)):
        element = node.inputs[0].get_name() if isinstance(node, ir._WaitKernel) else None
        name = list_of.get(element or (node.get_name() if isinstance(node, ir.MultiOutput) else ""))
        if name is None or element in landed:  # A later wait is for a collective that wrote the element in place.
            continue
        if element is not None:
            landed.add(element)
        if name in first:
            late[name].append(s)
        elif element is not None:
            first[name] = i
    at = {i: late[name] for name, i in first.items()}
    moved = {id(s) for group in late.values() for s in group}
    return [n for i, s in enumerate(order) if id(s) not in moved for n in (s, *at.get(i, ()))]
