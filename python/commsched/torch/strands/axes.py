# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Along which dimensions the work of an operator divides, for those whose scalars decide it.

The library's own table (docs/guide/Strands.md) sees tensors alone. Here the dimension of a softmax and the order of a
permutation are known. An operator that is not in `RULES` is left to that table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.fx as fx

from ..semantics.operators import argument, spec_of

Shape = tuple[int, ...]
# A dimension for each operand, or WHOLE, and one for each result, or SUM.
Axis = list[int]
Rule = Callable[[fx.Node, Sequence[Shape], Sequence[Shape]], "list[Axis]"]
WHOLE = -1
# Of a result: it is the sum of what the parts give.
SUM = -1


def split_axes(node: fx.Node, operands: Sequence[Shape], results: Sequence[Shape]) -> list[Axis] | None:
    """The axes of a call with operands and results of these sizes. None: the library's table decides."""
    spec = spec_of(node)
    if spec.name in BARRIERS:
        return []
    rule = RULES.get(spec.op) if spec.name.startswith("aten.") else None
    return None if rule is None else rule(node, operands, results)


def draws_nothing(node: fx.Node) -> bool:
    """Whether an operator that may draw random numbers does not: attention without dropout."""
    return spec_of(node).op in ATTENTION and not _given(node, "dropout_p", 0.0)


def _given(node: fx.Node, name: str, default: Any = None) -> Any:
    return argument(node, spec_of(node), name, default)


def _others(shape: Shape, dims: Sequence[int]) -> list[int]:
    """The dimensions of a shape that are not in `dims`, which may count from the end."""
    taken = {d % len(shape) for d in dims} if shape else set()
    return [d for d in range(len(shape)) if d not in taken]


def _everywhere(dims: Sequence[int], operands: Sequence[Shape], results: Sequence[Shape]) -> list[Axis]:
    """Axes that split all operands and results along the same dimension."""
    return [[d] * (len(operands) + len(results)) for d in dims]


def _along_rows(node: fx.Node, operands: Sequence[Shape], results: Sequence[Shape]) -> list[Axis]:
    """Operators that mix the elements along `dim`: softmax and its backward."""
    return _everywhere(_others(results[0], [_given(node, "dim")]), operands, results)


def _joined(node: fx.Node, operands: Sequence[Shape], results: Sequence[Shape]) -> list[Axis]:
    """Operators that cut or join along `dim`."""
    if any(len(shape) != len(results[0]) for shape in (*operands, *results)):
        return []
    return _everywhere(_others(results[0], [_given(node, "dim", 0)]), operands, results)


def _permuted(node: fx.Node, operands: Sequence[Shape], results: Sequence[Shape]) -> list[Axis]:
    rank = len(operands[0])
    return [[dim % rank, place] for place, dim in enumerate(_given(node, "dims"))]


def _transposed(node: fx.Node, operands: Sequence[Shape], results: Sequence[Shape]) -> list[Axis]:
    order = list(range(len(operands[0])))
    a, b = _given(node, "dim0"), _given(node, "dim1")
    order[a], order[b] = order[b], order[a]
    return [[dim, place] for place, dim in enumerate(order)]


def _padded(node: fx.Node, operands: Sequence[Shape], results: Sequence[Shape]) -> list[Axis]:
    """The pairs of widths are listed from the last dimension on. A dimension without padding is whole."""
    pad, rank = _given(node, "pad"), len(results[0])
    if len(operands) != 1 or any(type(width) is not int for width in pad):
        return []
    padded = [rank - 1 - place // 2 for place, width in enumerate(pad) if width]
    return _everywhere(_others(results[0], padded), operands, results)


def _selected(node: fx.Node, operands: Sequence[Shape], results: Sequence[Shape]) -> list[Axis]:
    kept = _others(operands[0], [_given(node, "dim", 0)])
    return [[dim, place] for place, dim in enumerate(kept)]


def _reduced(node: fx.Node, operands: Sequence[Shape], results: Sequence[Shape]) -> list[Axis]:
    dims = _given(node, "dim")
    if isinstance(dims, int):
        dims = [dims]
    if not dims or len(operands) != 1:
        return []  # A sum of everything.
    kept = _others(operands[0], dims)
    keeps = len(operands[0]) == len(results[0])
    return [[dim, *[dim if keeps else place] * len(results)] for place, dim in enumerate(kept)]


def _summed(node: fx.Node, operands: Sequence[Shape], results: Sequence[Shape]) -> list[Axis]:
    """Sums also divide along what they run over: everything if no dimension is given."""
    dims = _given(node, "dim")
    dims = [dims] if isinstance(dims, int) else dims or range(len(operands[0]))
    added = sorted({d % len(operands[0]) for d in dims} if operands[0] else ())
    return _reduced(node, operands, results) + [[d, *[SUM] * len(results)] for d in added]


def _rows_added(node: fx.Node, operands: Sequence[Shape], results: Sequence[Shape]) -> list[Axis]:
    """The gradient of a table: the gradients of its rows, added at the rows' numbers."""
    gradients, numbers = operands
    columns = [[len(numbers), WHOLE, 1]]
    if _given(node, "scale_grad_by_freq", False):
        return columns  # How often a number occurs in all tokens.
    return columns + [[d, d, SUM] for d in range(len(numbers))]


def _norm_backward(node: fx.Node, operands: Sequence[Shape], results: Sequence[Shape]) -> list[Axis]:
    """The backward of a norm: gradients of rows, and of weights and biases, which are sums over rows."""
    rowwise = 4 if spec_of(node).op == "native_layer_norm_backward" else 3  # Gradient, input, (mean,) deviation.
    leading = len(operands[0]) - len(_given(node, "normalized_shape"))
    arguments = [a for a in node.args if isinstance(a, fx.Node)]
    if not _given(node, "output_mask")[0] or len(arguments) != len(operands) or len(operands) < rowwise:
        return []
    if any(shape[:leading] != operands[0][:leading] for shape in (*operands[:rowwise], results[0])):
        return []
    others = [*[WHOLE] * (len(operands) - rowwise)], [*[SUM] * (len(results) - 1)]
    return [[*[d] * rowwise, *others[0], d, *others[1]] for d in range(leading)]


def _normalized(node: fx.Node, operands: Sequence[Shape], results: Sequence[Shape]) -> list[Axis]:
    """A norm of the last dimensions. Results are the normal tensor and numbers per row."""
    leading = len(operands[0]) - len(_given(node, "normalized_shape"))
    if any(shape[:leading] != operands[0][:leading] for shape in results):
        return []
    return [[dim, *[WHOLE] * (len(operands) - 1), *[dim] * len(results)] for dim in range(leading)]


def _attention(node: fx.Node, operands: Sequence[Shape], results: Sequence[Shape]) -> list[Axis]:
    """Batch and heads are independent. Rows of queries are, too, unless a causal mask depends on their place."""
    if len(operands) != 3 or any(len(shape) != 4 for shape in operands) or len(results) != 2:
        return []
    query = operands[0]
    if results[0][:3] != query[:3] or results[1] != query[:3]:
        return []
    dims = [d for d in (0, 1) if all(shape[d] == query[d] for shape in operands)]
    rows = [] if _given(node, "is_causal", False) else [[2, WHOLE, WHOLE, 2, 2]]
    return _everywhere(dims, operands, results) + rows


def _attention_backward(node: fx.Node, operands: Sequence[Shape], results: Sequence[Shape]) -> list[Axis]:
    if _given(node, "attn_mask") is not None or _given(node, "dropout_p", 0.0):
        return []
    first = operands[0]
    if any(len(shape) not in (3, 4) for shape in operands):
        return []
    return _everywhere(
        [d for d in (0, 1) if all(shape[d] == first[d] for shape in (*operands, *results))], operands, results
    )


def _barrier(node: fx.Node, operands: Sequence[Shape], results: Sequence[Shape]) -> list[Axis]:
    return []


# Names with overload of operators whose other overloads the library's table knows.
BARRIERS = {"aten.view.dtype", "aten.squeeze.default"}
# Attention that is random only with dropout.
ATTENTION = {"_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward"}
# Indexed by operator of aten without overload.
RULES: dict[str, Rule] = {
    "_softmax": _along_rows,
    "_log_softmax": _along_rows,
    "_softmax_backward_data": _along_rows,
    "_log_softmax_backward_data": _along_rows,
    "cat": _joined,
    "slice": _joined,
    "split_with_sizes": _joined,
    "constant_pad_nd": _padded,
    "permute": _permuted,
    "transpose": _transposed,
    "select": _selected,
    "sum": _summed,
    "mean": _reduced,
    "amax": _reduced,
    "amin": _reduced,
    "var": _reduced,
    "var_mean": _reduced,
    "native_layer_norm": _normalized,
    "_fused_rms_norm": _normalized,
    "native_layer_norm_backward": _norm_backward,
    "_fused_rms_norm_backward": _norm_backward,
    "embedding_dense_backward": _rows_added,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "prod": _barrier,
}
