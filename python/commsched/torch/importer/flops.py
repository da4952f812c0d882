"""Floating-point operations and memory traffic of ATen nodes, from the shapes alone.

PyTorch's own formulas (`torch.utils.flop_counter`) serve where they exist; on a build without CUDA they lack attention.
Sizes are integers: symbolic ones have been replaced by their hints.
"""

from __future__ import annotations

import warnings

import torch
from torch.utils.flop_counter import flop_registry

from ..reporting import strict
from ..semantics.operators import hint

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
# By name: which of the tensor arguments is q; k and v follow it.
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
# Of all but flex attention, the gradient of the output comes first.
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
# Products of which the groups share a dimension.
GROUPED = {"_grouped_mm", "_scaled_grouped_mm", "_scaled_grouped_mm_v2"}
# Read rows of their first tensor argument, not all of it.
GATHERING = {"embedding", "index_select", "gather", "index", "_unsafe_index", "take"}
# Write their first tensor argument without reading it.
OVERWRITING = {"copy_", "fill_", "zero_"}
# Allocate without touching memory.
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
    if name in GROUPED:
        return _grouped(shapes[0], shapes[1])
    if name in ATTENTION_FORWARD or name in ATTENTION_BACKWARD:
        formula, at = (_FORWARD, 0) if name in ATTENTION_FORWARD else (_BACKWARD, ATTENTION_BACKWARD[name])
        return round(formula(*shapes[at : at + 3]) * (1 - _sparsity(node)))
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
    try:
        return hint(flop_registry[packet](*args, **kwargs, out_val=node.meta["val"]))
    except Exception as error:  # PyTorch's formulas know the calls that PyTorch makes, and may assert or guard.
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


_unknown: set[str] = set()


def _grouped(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """Of a product by groups: 2-d operands hold all groups' rows, columns or inner parts, 3-d ones a matrix for each."""
    (*_, m, k), n = a, b[-1]
    return 2 * m * k * n * (a[0] if len(a) == len(b) == 3 else 1)


def _sparsity(node) -> float:
    """The part of an attention's blocks that its mask leaves out, where the program says it as PyTorch has it said."""
    return max(0.0, min(1.0, (node.meta.get("custom") or {}).get("sparsity_hint", 0.0)))


def has_formula(packet, name: str) -> bool:
    return (
        name in ("mm", "bmm", "addmm")
        or name in ATTENTION_FORWARD
        or name in ATTENTION_BACKWARD
        or name in GROUPED
        or packet in flop_registry
    )
