# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Sizes of the parameters of a graph.

Two models of one structure are two programs if their parameters have other sizes. Sizes of activations depend on the
batch, which may differ between ranks and from step to step, and say nothing about the program. So a program is named by
sizes that are equal on all ranks, whatever their batches and however parameters are cut: those of the parameters that
collectives carry, forward or as gradients, and those of whole parameters that are `DTensor`s, whether or not a
collective carries them.
"""

from __future__ import annotations

import hashlib
import math
import re
import sys
import weakref
from collections.abc import Collection
from typing import Any, NamedTuple

import torch
import torch.fx as fx

from ..apply.readers import is_backward
from ..semantics.operators import spec_of

# Sizes of one class differ by less than a factor of 2 ** (1 / CLASSES). Ranks of different groups whose shards are
# uneven have to agree, though they differ by a row here and there: that is a tiny part of the sum of all parameters.
CLASSES = 2
# Indexed by kind: whether the operand is what has one size on all ranks of a group. Otherwise, the result has.
OPERAND_IS_EQUAL = {"all_gather": False, "reduce_scatter": True, "all_reduce": True}
# Calls behind which a gradient is another part of the same values: shards are padded to be even, and cut again.
KEEPING = {"constant_pad_nd", "slice", "narrow", "split", "split_with_sizes", "unbind"}


class Whole(NamedTuple):
    """The parameters of a compilation that are DTensors, as all ranks see them.

    Args:
        sizes: a hash of their sizes. "" if there are none.
        uneven: whether ranks have parts of other sizes.
    """

    sizes: str = ""
    uneven: bool = False


# Indexed by compilation. PyTorch forgets the parameters before it compiles the backward graph.
_whole: weakref.WeakKeyDictionary[torch._guards.TracingContext, Whole] = weakref.WeakKeyDictionary()


def whole_parameters() -> Whole:
    """The parameters of the present compilation that are `DTensor`s.

    It has to be called in the compilation of the forward graph, even if its code is then found in a cache: for the
    backward graph, the answer is that of the forward graph.
    """
    context, distributed = torch._guards.TracingContext.try_get(), sys.modules.get("torch.distributed.tensor")
    if context is None or distributed is None:
        return Whole()
    if context not in _whole:
        tensors = [
            t
            for t in getattr(context, "tensor_to_context", None) or ()
            if isinstance(t, torch.nn.Parameter) and isinstance(t, distributed.DTensor)
        ]
        if not tensors:
            return Whole()
        sizes = repr(sorted(tuple(t.shape) for t in tensors))
        _whole[context] = Whole(hashlib.sha256(sizes.encode()).hexdigest()[:16], any(map(_is_uneven, tensors)))
    return _whole[context]


def _is_uneven(parameter: Any) -> bool:
    """Whether ranks have parts of a DTensor that differ in size."""
    parts: dict[int, int] = {}  # Indexed by dimension: into how many parts it is cut.
    for place, ranks in zip(parameter.placements, parameter.device_mesh.shape):
        if place.is_shard():
            parts[place.dim] = parts.get(place.dim, 1) * ranks
    return any(parameter.shape[dimension] % count for dimension, count in parts.items())


def class_of_weights(graph: fx.Graph, starts: Collection[fx.Node]) -> str:
    """The class of the number of elements that the collectives of parameters and of their gradients have in all.

    Ranks with uneven shards get one class: of an all-gather the result counts, and of a reduction the operand. "" if
    there are none. O(nodes).

    PyTorch tells which inputs of the forward graph are parameters while it compiles. Otherwise, there are none.
    """
    inputs, gradients = _parameters(graph)
    if not inputs and not gradients:
        return ""
    constant, returned = _made_of(graph, inputs), _returned_as(graph, gradients)
    carrying = [s for s in starts if _operands_in(s, constant) or any(w in returned for w in s.users)]
    total = sum(_equal_elements(s) for s in carrying)
    return str(round(CLASSES * math.log2(total))) if total else ""


def _parameters(graph: fx.Graph) -> tuple[set[fx.Node], set[fx.Node]]:
    """The inputs of a graph that are parameters, and the outputs that are gradients of parameters."""
    context = torch._guards.TracingContext.try_get()
    numbers = set(getattr(getattr(context, "fw_metadata", None), "static_input_indices", None) or ())
    backward = is_backward(graph)
    inputs, gradients = set(), set()
    for i, node in enumerate(graph.find_nodes(op="placeholder")):
        named = re.fullmatch(r"primals_(\d+)", node.name)
        if (int(named[1]) - 1 if named else -1 if backward else i) in numbers:
            inputs.add(node)
    if backward:
        returned = graph.output_node().args[0]
        values = returned if isinstance(returned, (list, tuple)) else [returned]
        gradients = {n for i, n in enumerate(values) if i in numbers and isinstance(n, fx.Node)}
    return inputs, gradients


def made_of_parameters(graph: fx.Graph) -> set[fx.Node]:
    """The nodes that are made of parameters and constants alone, parameters among them. Empty if nobody knows the
    parameters.
    """
    inputs, _ = _parameters(graph)
    return _made_of(graph, inputs) if inputs else set()


def _made_of(graph: fx.Graph, inputs: set[fx.Node]) -> set[fx.Node]:
    """The nodes that are made of these inputs and of constants alone."""
    made = set(inputs)
    for node in graph.nodes:
        if node.op == "get_attr" or node.op == "call_function" and made.issuperset(node.all_input_nodes):
            made.add(node)
    return made


def _returned_as(graph: fx.Graph, outputs: set[fx.Node]) -> set[fx.Node]:
    """The nodes that become one of these outputs, through calls that keep the number of elements, or cut or pad."""
    becoming = set(outputs)
    for node in reversed(graph.nodes):
        for user in node.users:
            if user in becoming and user.all_input_nodes == [node] and _keeps(user, node):
                becoming.add(node)
    return becoming


def _keeps(user: fx.Node, node: fx.Node) -> bool:
    return spec_of(user).op in KEEPING or _elements(user) == _elements(node)


def _operands_in(start: fx.Node, nodes: set[fx.Node]) -> bool:
    return bool(start.all_input_nodes) and nodes.issuperset(start.all_input_nodes)


def _elements(value: object) -> int | None:
    val = value.meta.get("val") if isinstance(value, fx.Node) else value
    if not isinstance(val, torch.Tensor) or not all(type(d) is int for d in val.shape):
        return None
    return val.numel()


def _equal_elements(start: fx.Node) -> int:
    """The elements of a collective, as all ranks of its group count them. Those of a list count together."""
    of_operand = OPERAND_IS_EQUAL.get(spec_of(start).collective.kind)
    if of_operand is None:
        return 0
    value = start.args[0] if of_operand else start.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else [value]
    return sum(_elements(v) or 0 for v in values)
