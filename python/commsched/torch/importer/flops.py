# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Floating-point operations and memory traffic of ATen nodes, from the shapes alone.

PyTorch's own formulas (`torch.utils.flop_counter`) are used if they exist. On a build without CUDA they lack attention.
Sizes are integers: hints have replaced symbolic ones.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx
from torch.utils.flop_counter import flop_registry

from ..reporting import strict
from ..semantics.operators import hint

Shape = tuple[int, ...]


def _attention(matmuls: int) -> Callable[[Shape, Shape, Shape], int]:
    """The formula for attention over q[..., S, D], k[..., T, D], v[..., T, E] with `matmuls` products of S x T."""

    def flops(q: Shape, k: Shape, v: Shape) -> int:
        heads, rows, cols = math.prod(q[:-2]), q[-2], k[-2]
        inner = q[-1] * (matmuls - matmuls // 2) + v[-1] * (matmuls // 2)
        return 2 * heads * rows * cols * inner

    return flops


# The forward products are q x k and p x v. The backward products are q x k again and the gradients of q, k, v and p.
_FORWARD, _BACKWARD = _attention(2), _attention(5)
# Indexed by name: the position of q among the tensor arguments. k and v follow it.
ATTENTION_FORWARD = dict.fromkeys(
    (
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_fused_attention_overrideable",
        "_scaled_dot_product_attention_math",
        "flex_attention",
    ),
    0,
)
# The gradient of the output comes first, except in flex attention.
ATTENTION_BACKWARD = dict.fromkeys(
    (
        "_scaled_dot_product_flash_attention_for_cpu_backward",
        "_scaled_dot_product_flash_attention_backward",
        "_scaled_dot_product_efficient_attention_backward",
        "_scaled_dot_product_cudnn_attention_backward",
        "_scaled_dot_product_fused_attention_overrideable_backward",
    ),
    1,
) | {"flex_attention_backward": 0}
# Attention that computes all products and masks them afterwards.
WHOLE = {"_scaled_dot_product_attention_math"}
# Products of scaled operands, whose formula is that of a plain product.
SCALED = {"_scaled_mm", "_scaled_mm_v2"}
# Products by groups that share a dimension.
GROUPED = {"_grouped_mm", "_scaled_grouped_mm", "_scaled_grouped_mm_v2"}
# Products that gather the rows of their first factor, or sum and scatter those of their result, in the same operator.
# comm-opt prices the collective.
GATHERED = {"fused_all_gather_matmul", "fused_all_gather_scaled_matmul"}
SCATTERED = {"fused_matmul_reduce_scatter", "fused_scaled_matmul_reduce_scatter"}
# Operators that read some rows, or elements, of their first tensor argument: about as many as they give.
GATHERING = {"embedding", "index_select", "gather", "index", "_unsafe_index", "take", "nll_loss_forward"}
# Operators that read as many rows of their first tensor argument as their second one has elements, and add them up.
SUMMING_ROWS = {"_embedding_bag", "_embedding_bag_forward_only"}
# Operators that write their first tensor argument without reading it.
OVERWRITING = {"copy_", "fill_", "zero_"}
# Operators that allocate without touching memory, or read sizes only.
UNTOUCHED = {
    "empty",
    "empty_like",
    "new_empty",
    "empty_strided",
    "new_empty_strided",
    "empty_permuted",
    "sym_size",
    "sym_stride",
    "sym_numel",
    "sym_storage_offset",
}


def node_flops(packet: Any, name: str, shapes: list[Shape], node: fx.Node) -> int:
    """Floating-point operations of a node. `shapes` are those of its tensor arguments in order."""
    if name == "mm" or name in SCALED:
        (m, k), (_, n) = shapes[0], shapes[1]
        return 2 * m * k * n
    if name == "bmm":
        (b, m, k), (_, _, n) = shapes[0], shapes[1]
        return 2 * b * m * k * n
    if name == "addmm":
        (m, k), (_, n) = shapes[1], shapes[2]
        return 2 * m * k * n
    if name in GROUPED:
        return _grouped(shapes[0], shapes[1])
    if name in SCATTERED:
        rows, (_, n) = shapes[0], shapes[1]
        return 2 * math.prod(rows) * n
    if name in GATHERED:
        _, products = node.meta["val"]
        return 2 * shapes[0][-1] * sum(hint(product.numel()) for product in products)
    if name in ATTENTION_FORWARD or name in ATTENTION_BACKWARD:
        formula, at = (_FORWARD, 0) if name in ATTENTION_FORWARD else (_BACKWARD, ATTENTION_BACKWARD[name])
        query, key, value = shapes[at : at + 3]
        return round(formula(query, key, value) * _computed_part(name, node, query[-2], key[-2]))
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
    try:
        return hint(flop_registry[packet](*args, **kwargs, out_val=node.meta["val"]))
    except Exception as error:  # A formula of PyTorch may not know the call, and may assert or guard.
        if strict():
            raise
        if name not in _unknown:
            _unknown.add(name)
            warnings.warn(
                f"CommSched: PyTorch's count of floating-point operations does not know a call of {name}, which "
                f"counts by its bytes: {type(error).__name__}: {error}",
                stacklevel=2,
            )
        return 0


# Operators about which a warning was given.
_unknown: set[str] = set()


def _grouped(a: Shape, b: Shape) -> int:
    """Floating-point operations of a product by groups.

    A 2-d operand holds the rows, columns or inner parts of all groups. A 3-d operand holds one matrix for each group.
    """
    (*_, m, k), n = a, b[-1]
    return 2 * m * k * n * (a[0] if len(a) == len(b) == 3 else 1)


def _computed_part(name: str, node: fx.Node, rows: int, cols: int) -> float:
    """The part of its products that an attention kernel computes. It leaves out the blocks that its mask hides.

    The program may tell the part in PyTorch's way (`sparsity_hint`). A causal mask hides what is right of the diagonal.
    """
    told = (node.meta.get("custom") or {}).get("sparsity_hint")
    if told is not None:
        return 1 - max(0.0, min(1.0, told))
    if name not in WHOLE and rows and cols and (_causal_mask(node) if "flex" in name else _is_causal(node)):
        full = min(rows, cols)  # These rows see one more column each, and the rows after them see all columns.
        return (full * (full + 1) // 2 + (rows - full) * cols) / (rows * cols)
    return 1.0


def _is_causal(node: fx.Node) -> bool:
    """The argument `is_causal` of an attention operator."""
    schema = getattr(node.target, "_schema", None)
    names = [a.name for a in schema.arguments] if schema is not None else []
    if "is_causal" not in names:
        return False
    at = names.index("is_causal")
    return bool(node.args[at] if at < len(node.args) else node.kwargs.get("is_causal", False))


def _causal_mask(node: fx.Node) -> bool:
    """Whether the mask of a flex attention demands that a query's index is at least the key's.

    The mask is a graph over the batch, the head, the query's index and the key's. Its result is that comparison, or a
    conjunction that holds it.
    """
    owner = node.graph.owning_module
    masks = [
        getattr(owner, a.target)
        for arg in node.args
        if isinstance(arg, (tuple, list))
        for a in arg
        if isinstance(a, fx.Node) and a.op == "get_attr" and isinstance(getattr(owner, a.target, None), fx.GraphModule)
    ]
    return any(_demands_order(m.graph) for m in masks)


def _demands_order(mask: fx.Graph) -> bool:
    places = [n for n in mask.nodes if n.op == "placeholder"]
    if len(places) < 4:
        return False
    query, key = places[2:4]
    result = mask.output_node().args[0]
    left = [result[0] if isinstance(result, (tuple, list)) else result]
    while left:
        node = left.pop()
        if not isinstance(node, fx.Node) or not isinstance(node.target, torch._ops.OpOverload):
            continue
        name, args = node.target._schema.name.split("::")[1], node.args[:2]
        if name in ("ge", "gt") and args == (query, key) or name in ("le", "lt") and args == (key, query):
            return True
        if name in ("bitwise_and", "logical_and", "__and__"):
            left += args
    return False


def has_formula(packet: Any, name: str) -> bool:
    """Whether `node_flops` knows an operator."""
    return (
        name in ("mm", "bmm", "addmm")
        or name in SCALED
        or name in GATHERED
        or name in SCATTERED
        or name in ATTENTION_FORWARD
        or name in ATTENTION_BACKWARD
        or name in GROUPED
        or packet in flop_registry
    )
