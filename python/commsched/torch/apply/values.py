# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Computes fake values of calls once more, to find those that are not what their operators give."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch
import torch.fx as fx

from ..semantics.operators import nodes_in, spec_of


def stale(nodes: Iterable[fx.Node]) -> fx.Node | None:
    """The first call whose operator fails, or gives other sizes, strides, offsets or types than the call's fake value.

    Strides of dimensions with one element do not count, nor do those of empty tensors. Calls with symbols are left out,
    for to compute them may add guards, and so are calls that write, for they may change fake tensors.
    """
    for node in nodes:
        if node.target is operator.getitem or not isinstance(node.target, torch._ops.OpOverload):
            continue
        if spec_of(node).mutated:
            continue
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
        given = [v for n in nodes_in([*node.args, *node.kwargs.values()]) for v in _flat(n.meta["val"])]
        mode = next((m for v in given if (m := getattr(v, "fake_mode", None))), None)
        if mode is None or any(map(_has_symbols, [*torch.utils._pytree.tree_leaves((args, kwargs)), *given])):
            continue
        try:
            with mode:
                value = node.target(*args, **kwargs)
        except Exception:  # The operator refuses what it would read.
            return node
        if described(value) != described(node.meta["val"]):
            return node
    return None


def _flat(val: Any) -> list[Any]:
    return list(val) if isinstance(val, (list, tuple)) else [val]


def _has_symbols(val: Any) -> bool:
    if isinstance(val, torch.Tensor):
        return val._has_symbolic_sizes_strides
    return isinstance(val, (torch.SymInt, torch.SymFloat, torch.SymBool))


def described(val: Any) -> list[tuple | None]:
    """The size, strides, offset, type and device of each tensor of a value. Other values have none.

    Strides of dimensions with one element do not count, nor do those of empty tensors.
    """
    return [_described(v) for v in _flat(val)]


def _described(val: Any) -> tuple | None:
    if not isinstance(val, torch.Tensor):
        return None
    strides = [s for s, d in zip(val.stride(), val.shape) if d > 1] if val.numel() else []
    return tuple(val.shape), strides, val.storage_offset(), val.dtype, val.device
