# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Collectives with results whose readers look at more than the elements: at storage, offset or alignment.

Merging makes the results of all-reduces and reduce-scatters views into one buffer. Their elements, sizes, strides and
types stay, but they share a storage, begin anywhere in it, and at any address. Most operators do not notice. What is
not known not to look counts as looking, and so does whoever gets the outputs of a graph, with one exception: gradients.
Autograd itself hands out gradients that are views into larger tensors (those of a concatenation, for example), and so
does FSDP2, so that their readers rely on nothing else.
"""

from __future__ import annotations

import operator

import torch
import torch.fx as fx

from ..semantics.effects import may_alias
from ..semantics.operators import OF_MEMORY, nodes_in, spec_of

# Operators of aten and prims, without overload, that look at the storage or the offset of an operand, or refuse some
# addresses. All others of these two read elements alone, or give views, which count as what they are views of.
LOOKING = OF_MEMORY | {
    "view_as_complex",
    "view_as_complex_copy",
    "view_element_type",
    "view_of_dtype",
    "_grouped_mm",
    "_int_mm",
    "_lazy_clone",
    "_nested_view_from_buffer",
    "_nested_view_from_buffer_copy",
    "_resize_output",
    "_resize_output_",
    "_scaled_grouped_mm",
    "_scaled_grouped_mm_v2",
    "_scaled_mm",
    "_scaled_mm_v2",
}
# Parts of names of such operators: kernels for devices that load several elements at once from aligned addresses.
LOOKING_PARTS = ("attention", "cudnn", "int4pack", "int8pack", "sparse", "quantize")
# Views in another element type.
LOOKING_OVERLOADS = ("aten.view.dtype", "aten.view_copy.dtype")
# Operators of other namespaces that read elements alone.
KNOWN = {
    "fsdp::all_gather_copy_in",
    "fsdp::chunk_cat",
    "fsdp::split_with_sizes_copy",
    "inductor::accumulate_grad_",
}
# Kinds of collectives whose merged results are views.
MERGED_AS_VIEWS = ("all_reduce", "reduce_scatter")


def looks(node: fx.Node) -> bool:
    """Whether a call may look at the storage, the offset or the alignment of what it reads."""
    if node.target is operator.getitem:
        return False
    if not isinstance(node.target, torch._ops.OpOverload):
        return True
    spec = spec_of(node)
    if spec.start is not None or spec.is_wait:
        return not spec.packet._qualified_op_name.startswith("_c10d_functional::")
    name = node.target._schema.name
    if not name.startswith(("aten::", "prims::")):
        return name not in KNOWN
    for_processors = spec.op.endswith(("_for_cpu", "_for_cpu_backward"))
    by_part = any(part in spec.op for part in LOOKING_PARTS) and not for_processors
    return spec.op in LOOKING or spec.name in LOOKING_OVERLOADS or by_part


def who_looks(value: fx.Node, gradient: bool) -> fx.Node | None:
    """A node that may look at the storage of a value, directly or through views of it. None if there is none.

    Args:
        gradient: whether the value is a gradient if the graph returns it.
    """
    pending, seen = [value], {value}
    while pending:
        node = pending.pop()
        for user in node.users:
            if user.op == "output":
                if not gradient:
                    return user
            elif looks(user):
                return user
            elif user not in seen and (user.target is operator.getitem or node in nodes_in(may_alias(user))):
                seen.add(user)
                pending.append(user)
    return None


def is_backward(graph: fx.Graph) -> bool:
    """Whether AOT autograd made this graph as the backward graph of another one: what it returns are gradients."""
    return any(n.name.startswith("tangents_") for n in graph.find_nodes(op="placeholder"))


def in_compiled_autograd() -> bool:
    """Whether the graph of compiled autograd is compiled now: a whole backward pass, with the hooks of parameters."""
    identifier = torch._guards.CompileContext.current_compile_id()
    return getattr(identifier, "compiled_autograd_id", None) is not None


def returns_gradients(graph: fx.Graph) -> bool:
    """Whether what a graph returns are gradients."""
    return is_backward(graph) or in_compiled_autograd()


def is_gradient(value: fx.Node, backward: bool) -> bool:
    """Whether a value is a gradient if it is returned: it belongs to a backward graph, or was traced in one."""
    return backward or value.meta.get("autograd_backward", False)


def unmergeable(graph: fx.Graph) -> frozenset[str]:
    """The names of collectives that cannot be merged, or only with copies of their results.

    Somebody looks at the storage of a result, or somebody besides the wait reads the result of a start, or the result
    is a list. Lists of several tensors are merged collectives already, which nobody merges again.
    """
    backward, names = returns_gradients(graph), []
    for start in graph.nodes:
        kind = spec_of(start).start if start.op == "call_function" else None
        if kind is None:
            continue
        if kind.coalesced:
            if len(nodes_in(start.args[0])) == 1:
                names.append(start.name)
            continue
        wait = next(iter(start.users), None)
        if wait is None or len(start.users) != 1 or wait.op != "call_function" or not spec_of(wait).is_wait:
            names.append(start.name)
        elif kind.kind in MERGED_AS_VIEWS and who_looks(wait, is_gradient(wait, backward)) is not None:
            names.append(start.name)
    return frozenset(names)
