# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which collectives of a graph carry parameters or their gradients, and how large these are.

Two models of one structure are two programs if their parameters have other sizes. The sizes of all other collectives
depend on the batch, which may differ between ranks and from step to step, and say nothing about the program.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection

import torch
import torch.fx as fx

# Sizes of one class differ by less than a factor of 2 ** (1 / CLASSES). Ranks whose shards are uneven have to agree,
# though their parameters differ by a row. An edge of a class is not near a power of two, where such sizes often are.
CLASSES = 4


def classes_of_weights(graph: fx.Graph, starts: Collection[fx.Node]) -> list[str]:
    """Indexed by start: the class of its size if it carries parameters or gradients of parameters, else "". O(nodes).

    PyTorch tells which inputs of the forward graph are parameters while it compiles. Otherwise, there are none.
    """
    inputs, gradients = _parameters(graph)
    if not inputs and not gradients:
        return [""] * len(starts)
    constant, returned = _made_of(graph, inputs), _returned_as(graph, gradients)
    return [_class(s) if _operands_in(s, constant) or any(w in returned for w in s.users) else "" for s in starts]


def _parameters(graph: fx.Graph) -> tuple[set[fx.Node], set[fx.Node]]:
    """The inputs of a graph that are parameters, and the outputs that are gradients of parameters."""
    context = torch._guards.TracingContext.try_get()
    numbers = set(getattr(getattr(context, "fw_metadata", None), "static_input_indices", None) or ())
    placeholders = graph.find_nodes(op="placeholder")
    backward = any(n.name.startswith("tangents_") for n in placeholders)
    inputs, gradients = set(), set()
    for i, node in enumerate(placeholders):
        named = re.fullmatch(r"primals_(\d+)", node.name)
        if (int(named[1]) - 1 if named else -1 if backward else i) in numbers:
            inputs.add(node)
    if backward:
        returned = graph.output_node().args[0]
        values = returned if isinstance(returned, (list, tuple)) else [returned]
        gradients = {n for i, n in enumerate(values) if i in numbers and isinstance(n, fx.Node)}
    return inputs, gradients


def _made_of(graph: fx.Graph, inputs: set[fx.Node]) -> set[fx.Node]:
    """The nodes that are made of these inputs and of constants alone."""
    made = set(inputs)
    for node in graph.nodes:
        if node.op == "get_attr" or node.op == "call_function" and made.issuperset(node.all_input_nodes):
            made.add(node)
    return made


def _returned_as(graph: fx.Graph, outputs: set[fx.Node]) -> set[fx.Node]:
    """The nodes that become one of these outputs, through calls that keep the number of elements."""
    becoming = set(outputs)
    for node in reversed(graph.nodes):
        for user in node.users:
            if user in becoming and user.all_input_nodes == [node] and _elements(user) == _elements(node):
                becoming.add(node)
    return becoming


def _operands_in(start: fx.Node, nodes: set[fx.Node]) -> bool:
    return bool(start.all_input_nodes) and nodes.issuperset(start.all_input_nodes)


def _elements(node: fx.Node) -> int | None:
    val = node.meta.get("val")
    if not isinstance(val, torch.Tensor) or not all(type(d) is int for d in val.shape):
        return None
    return val.numel()


def _class(start: fx.Node) -> str:
    """The class of the size of a collective's result. Results of lists count together."""
    val = start.meta.get("val")
    values = val if isinstance(val, (list, tuple)) else [val]
    sizes = [v.numel() for v in values if isinstance(v, torch.Tensor) and all(type(d) is int for d in v.shape)]
    if len(sizes) != len(values):
        return ""
    return str(round(CLASSES * math.log2(sum(sizes)))) if sum(sizes) else "empty"
