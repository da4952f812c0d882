# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Finds and recomputes the fake values that contradict their operators.

A pass that rewrites a pattern may leave the fake tensors behind it as they were. The importer reads aliases off the
storages of fake tensors, so `refresh` brings them up to date first. `stale_nodes` finds them by comparing the storages
with the operators' schemas.
"""

from __future__ import annotations

import contextlib
import operator
from typing import Any

import torch
import torch.fx as fx

from .effects import may_alias
from .operators import Spec, nodes_in, spec_of, storage_of


def _storages(val: Any) -> list[int]:
    if isinstance(val, torch.Tensor):
        return [storage_of(val)]
    if isinstance(val, dict):
        val = list(val.values())
    return [s for v in val for s in _storages(v)] if isinstance(val, (list, tuple)) else []


def stale_nodes(graph: fx.Graph) -> list[fx.Node]:
    """Calls whose fake values cannot be trusted. O(nodes).

    Either a call that is read has no fake value, or the storages of its fake tensors contradict the operator: a view
    has memory of its own, or a new tensor lies in memory that was there before.
    """
    stale: list[fx.Node] = []
    seen: set[int] = set()
    for node in graph.nodes:
        val = node.meta.get("val")
        storages = _storages(val)
        if node.op == "call_function" and node.target is not operator.getitem:
            if val is None:
                if node.users and "val" not in node.meta:
                    stale.append(node)
                continue
            if isinstance(node.target, torch._ops.OpOverload) and _contradicts(node, spec_of(node), storages, seen):
                stale.append(node)
        seen.update(storages)
    return stale


def _contradicts(node: fx.Node, spec: Spec, storages: list[int], seen: set[int]) -> bool:
    if spec.start is not None or spec.is_wait or spec.same_as is not None or spec.hybrid:
        return False  # PyTorch gives them new fake tensors, whatever the operator does.
    arguments = may_alias(node)
    if not arguments:
        return not seen.isdisjoint(storages)
    sources = {s for a in arguments for n in nodes_in(a) for s in _storages(n.meta.get("val"))}
    if all(s in sources for s in storages):
        return False
    return not _may_copy(node.target) or not any(s in sources for s in storages) and _is_view_here(node)


def _may_copy(target: Any) -> bool:
    """Whether an operator gives a view if it can, and a copy if it cannot, such as reshape, contiguous and to."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), "CompositeImplicitAutograd")


def _is_view_here(node: fx.Node) -> bool:
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    mode = next((m for t in nodes_in(list(node.args)) if (m := getattr(t.meta["val"], "fake_mode", None))), None)
    with mode or contextlib.nullcontext():
        result = _storages(node.target(*args, **kwargs))
    return bool(set(result) & set(_storages(list(args))))


def refresh(graph: fx.Graph) -> int:
    """Computes the fake values that are missing or contradict their operators, and all values that follow from them.

    Returns how many values changed. A graph without stale values is only read.
    """
    stale = stale_nodes(graph)
    if not stale:
        return 0
    from torch._inductor.fx_utils import FakeTensorUpdater
    from torch._inductor.virtualized import V

    mode = next(m for n in graph.nodes if (m := getattr(n.meta.get("val"), "fake_mode", None)) is not None)
    updater = FakeTensorUpdater(graph.owning_module)
    for node in stale:
        updater.processed_hashes.discard(updater.hash_node(node))
    with V.set_fake_mode(mode):
        return updater.incremental_update()
