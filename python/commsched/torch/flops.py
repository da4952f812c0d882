"""Floating-point operations and memory traffic of ATen nodes, from the shapes alone.

PyTorch's own formulas (`torch.utils.flop_counter`) serve where they exist; on a build without CUDA they lack attention.
Sizes are integers: symbolic ones have been replaced by their hints.
"""

from __future__ import annotations

import torch
from torch.utils.flop_counter import flop_registry

from .values import hint

aten = torch.ops.aten


def _product(shape) -> int:
    n = 1
    for d in shape:
        n *= d
    return n


def _attention(matmuls: int):
    """Multiply-adds of attention over q[..., S, D], k[..., T, D], v[..., T, E]: `matmuls` products of S x T."""

    def flops(q, k, v):
        heads, rows, cols = _product(q[:-2]), q[-2], k[-2]
        inner = q[-1] * (matmuls - matmuls // 2) + v[-1] * (matmuls // 2)
        return 2 * heads * rows * cols * inner

    return flops


# Forward: q x k and p x v. Backward: those again but p x v, and the gradients of q, k, v, p: five products.
_FORWARD, _BACKWARD = _attention(2), _attention(5)
ATTENTION_FORWARD = {
    name: 0 for name in ("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
                         "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
                         "_scaled_dot_product_fused_attention_overrideable", "_scaled_dot_product_attention_math")}
# The gradient of the output comes first: q, k and v are arguments 1 to 3.
ATTENTION_BACKWARD = {
    name: 1 for name in ("_scaled_dot_product_flash_attention_for_cpu_backward",
                         "_scaled_dot_product_flash_attention_backward",
                         "_scaled_dot_product_efficient_attention_backward",
                         "_scaled_dot_product_cudnn_attention_backward",
                         "_scaled_dot_product_fused_attention_overrideable_backward")}
# Read rows of their first tensor argument, not all of it.
GATHERING = {"embedding", "index_select", "gather", "index", "_unsafe_index", "take"}
# Write their first tensor argument without reading it.
OVERWRITING = {"copy_", "fill_", "zero_"}
# Allocate without touching memory.
UNTOUCHED = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted", "sym_size",
             "sym_stride", "sym_numel", "sym_storage_offset"}


def node_flops(packet, name: str, shapes: list[tuple[int, ...]], node) -> int:
    """Floating-point operations of a node. `shapes` are those of its tensor arguments in order."""
    if name == "mm":
        (m, k), (_, n) = shapes[0], shapes[1]
        return 2 * m * k * n
    if name == "bmm":
        (b, m, k), (_, _, n) = shapes[0], shapes[1]
        return 2 * b * m * k * n
    if name == "addmm":
        (m, k), (_, n) = shapes[1], shapes[2]
        return 2 * m * k * n
    if name in ATTENTION_FORWARD:
        return _FORWARD(*shapes[:3])
    if name in ATTENTION_BACKWARD:
        return _BACKWARD(*shapes[1:4])
    formula = flop_registry.get(packet)
    if formula is None:
        return 0
    try:
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
        return hint(formula(*args, **kwargs, out_val=node.meta["val"]))
    except Exception:  # A formula that does not fit this call: the roofline of its bytes has to do.
        return 0


def has_formula(packet, name: str) -> bool:
    return (name in ("mm", "bmm", "addmm") or name in ATTENTION_FORWARD or name in ATTENTION_BACKWARD
            or packet in flop_registry)
