# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Inserts nodes into an FX graph, with their fake values.

PyTorch traces its functions with fake tensors. Here the fake values are made from sizes, strides and storages, which
takes some microseconds each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._mode_utils import no_dispatch

from .plan import PlanError

aten = torch.ops.aten
# The metadata that a new node inherits from the first collective of its bucket.
INHERITED = ("nn_module_stack", "fwd_nn_module_stack", "stack_trace", "custom", "seq_nr", "partitioner_tag")


class Writer:
    """Inserts nodes with their fake values before a node of the graph."""

    def __init__(self, graph: fx.Graph, before: fx.Node, like: fx.Node):
        val = like.meta["val"]
        if not isinstance(val, FakeTensor):
            raise PlanError(f"{like.name} has no fake tensor")
        self.graph, self.before = graph, before
        self.mode, self.device = val.fake_mode, val.device
        self.meta = {k: like.meta[k] for k in INHERITED if k in like.meta}
        self.made: list[fx.Node] = []

    def fresh(self, shape: Sequence[int], dtype: torch.dtype) -> FakeTensor:
        """A new contiguous tensor."""
        with no_dispatch():
            return FakeTensor(self.mode, torch.empty(shape, dtype=dtype, device="meta"), self.device)

    def on(
        self,
        base: torch.Tensor,
        offset: int,
        shape: Sequence[int],
        stride: Sequence[int],
        dtype: torch.dtype | None = None,
    ) -> FakeTensor:
        """A view of `base`'s storage, with elements of `dtype` if it is given."""
        with no_dispatch():
            view = torch.empty(0, dtype=dtype or base.dtype, device="meta")
            view.set_(base.untyped_storage(), offset, tuple(shape), tuple(stride))
            return FakeTensor(self.mode, view, self.device)

    def call(self, into: list[fx.Node], target: Any, args: tuple, val: Any, kwargs: dict | None = None) -> fx.Node:
        """Inserts a call and adds it to `into`."""
        with self.graph.inserting_before(self.before):
            node = self.graph.call_function(target, args, kwargs or {})
        node.meta.update(self.meta)
        node.meta["val"] = val
        into.append(node)
        self.made.append(node)
        return node

    def reshaped(self, into: list[fx.Node], node: fx.Node, shape: tuple[int, ...]) -> fx.Node:
        """`node` in another shape. It is copied first if it is not contiguous."""
        val = node.meta["val"]
        if not val.is_contiguous():
            val = self.fresh(val.shape, val.dtype)
            node = self.call(into, aten.clone.default, (node,), val, {"memory_format": torch.contiguous_format})
        if tuple(val.shape) == shape:
            return node
        view = self.on(val, val.storage_offset(), shape, _contiguous(shape))
        return self.call(into, aten.view.default, (node, list(shape)), view)

    def copied(self, into: list[fx.Node], node: fx.Node) -> fx.Node:
        """`node` in memory of its own. Its strides stay, for its elements fill their range of memory."""
        val = node.meta["val"]
        with no_dispatch():
            own = torch.empty_strided(val.shape, val.stride(), dtype=val.dtype, device="meta")
            own = FakeTensor(self.mode, own, self.device)
        return self.call(into, aten.clone.default, (node,), own)

    def as_real(self, into: list[fx.Node], node: fx.Node) -> fx.Node:
        """A complex tensor as one of pairs of real numbers."""
        val = node.meta["val"]
        if val.is_conj():
            val = self.fresh(val.shape, val.dtype)
            node = self.call(into, aten.resolve_conj.default, (node,), val)
        shape, stride = (*val.shape, 2), (*(2 * s for s in val.stride()), 1)
        pairs = self.on(val, 2 * val.storage_offset(), shape, stride, val.dtype.to_real())
        return self.call(into, aten.view_as_real.default, (node,), pairs)

    def as_complex(self, into: list[fx.Node], node: fx.Node) -> fx.Node:
        """A tensor of pairs of real numbers as a complex one."""
        val = node.meta["val"]
        shape, stride = val.shape[:-1], [s // 2 for s in val.stride()[:-1]]
        whole = self.on(val, val.storage_offset() // 2, shape, stride, val.dtype.to_complex())
        return self.call(into, aten.view_as_complex.default, (node,), whole)

    def retyped(self, into: list[fx.Node], node: fx.Node, dtype: torch.dtype) -> fx.Node:
        """The bytes of a contiguous tensor of one dimension as elements of another type."""
        val = node.meta["val"]
        if val.dtype == dtype:
            return node
        offset, count = (n * val.dtype.itemsize // dtype.itemsize for n in (val.storage_offset(), val.numel()))
        return self.call(into, aten.view.dtype, (node, dtype), self.on(val, offset, (count,), (1,), dtype))

    def permuted(self, into: list[fx.Node], node: fx.Node, order: list[int]) -> fx.Node:
        """`node` with its dimensions in another order."""
        val = node.meta["val"]
        view = self.on(val, val.storage_offset(), [val.shape[i] for i in order], [val.stride(i) for i in order])
        return self.call(into, aten.permute.default, (node, order), view)


def _contiguous(shape: Sequence[int]) -> list[int]:
    """The strides of a contiguous tensor."""
    strides, step = [], 1
    for d in reversed(shape):
        strides.append(step)
        step *= max(1, d)
    return strides[::-1]
