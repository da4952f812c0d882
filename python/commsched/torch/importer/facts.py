# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Facts about the nodes of a graph that fusion asks for, read off each node once.

Fake tensors answer slowly, and so does PyTorch's rule about which operators become loops.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
import torch.fx as fx
from torch._inductor.fx_passes.fusion_regions import is_fusible_node, is_view_node

from ..semantics.operators import hint
from .values import describe


def is_free(node: fx.Node) -> bool:
    """Whether a node is a view or an element of a list."""
    return node.target is operator.getitem or is_view_node(node)


def is_element(node: fx.Node) -> bool:
    """Whether a node is an element of an operator's results: a tensor of its own, unless the operator is a view."""
    return node.target is operator.getitem and not is_view_node(node.args[0])


class Fact:
    """One node.

    Args:
        node: the node that is read.

    Other fields: `inputs` are the nodes that it reads. `tensor` is its value if that is a tensor. `elements` counts the
    elements of that tensor, with hints for symbols. `is_static` says that the sizes of the tensor are known.
    """

    __slots__ = ("inputs", "val", "tensor", "is_free", "is_element", "is_static", "elements", "device")

    def __init__(self, node: fx.Node):
        self.inputs = node.all_input_nodes
        val = self.val = node.meta.get("val")
        is_view = is_view_node(node)
        self.is_free = is_view or node.target is operator.getitem
        self.is_element = self.is_free and not is_view and not is_view_node(node.args[0])
        self.tensor: torch.Tensor | None = None
        self.is_static, self.elements, self.device = False, 0, None
        if isinstance(val, torch.Tensor):
            self.tensor, self.device = val, val.device
            self.is_static = _is_static(val)
            self.elements = val.numel() if self.is_static else math.prod(map(hint, val.shape))

    def bytes(self) -> int:
        """The bytes of all elements of the tensor."""
        return describe(self.tensor)[2]

    def traffic(self) -> int:
        """The bytes that one reader of the tensor moves."""
        return describe(self.tensor)[3]


def _is_static(val: Any) -> bool:
    return not val._has_symbolic_sizes_strides or all(type(d) is int for d in val.shape)


class Facts(dict[fx.Node, Fact]):
    """The facts of a graph that does not change. Indexed by node, and read when they are first asked for."""

    def __init__(self) -> None:
        super().__init__()
        # Indexed by identity of a target: whether Inductor makes a loop of its calls.
        self._fusible: dict[int, bool] = {}
        self._loops: dict[fx.Node, bool] = {}

    def __missing__(self, node: fx.Node) -> Fact:
        fact = self[node] = Fact(node)
        return fact

    def loops(self, node: fx.Node) -> bool:
        """Whether Inductor makes a loop of the node, which other nodes can be fused with."""
        known = self._loops.get(node)
        if known is None:
            known = self._loops[node] = self._is_fusible(node) and self._is_loop(node)
        return known

    def is_constant(self, node: fx.Node) -> bool:
        """Whether a loop makes its elements of nothing. Every kernel that reads it computes what it needs."""
        return all(self[n].tensor is None for n in self[node].inputs)

    def is_made_in_place(self, node: fx.Node) -> bool:
        """Whether a node is a constant that loops make where they need it."""
        return node.op == "call_function" and self.is_constant(node) and self.loops(node)

    def _is_fusible(self, node: fx.Node) -> bool:
        """PyTorch's rule, which looks at the target alone, except for the number of inputs of `cat`."""
        target = node.target
        if target is torch.ops.aten.cat.default or node.op != "call_function":
            return is_fusible_node(node)
        known = self._fusible.get(id(target))
        if known is None:
            known = self._fusible[id(target)] = is_fusible_node(node)
        return known

    def _is_loop(self, node: fx.Node) -> bool:
        """Whether all tensors that a node reads and makes have known sizes and lie on one device."""
        fact = self[node]
        if fact.tensor is not None:
            device = fact.device
            if not fact.is_static:
                return False
        else:
            results = fact.val
            if not isinstance(results, (list, tuple)) or not results or not isinstance(results[0], torch.Tensor):
                return False
            device = results[0].device
            if not all(isinstance(v, torch.Tensor) and v.device == device and _is_static(v) for v in results):
                return False
        for source in fact.inputs:
            given = self[source]
            if given.tensor is not None and not (given.is_static and given.device == device):
                return False
        return True
