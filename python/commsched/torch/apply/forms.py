# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The forms of merged collectives: the nodes that pack, start, wait and unpack, for each kind.

The nodes are those that PyTorch's own bucketing makes (`torch._inductor.fx_passes.bucketing`), so that Inductor fuses
them alike. All collectives here have static shapes, for the scheduler merges no others.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.fx as fx

from ..semantics.operators import group_of, spec_of
from .writer import Writer

# Writes the nodes of a bucket; returns them, and the output of each member.
Write = Callable[[Writer, "list[Part]"], "tuple[Merged, list[fx.Node]]"]
aten, c10d = torch.ops.aten, torch.ops._c10d_functional


@dataclasses.dataclass
class Merged:
    """The new nodes of a bucket in execution order.

    Args:
        pack: the nodes that fill the buffer.
        start: the collective.
        wait: its wait, and views of the whole.
        outputs: indexed by member: the nodes that make its output.
    """

    pack: list[fx.Node] = dataclasses.field(default_factory=list)
    start: list[fx.Node] = dataclasses.field(default_factory=list)
    wait: list[fx.Node] = dataclasses.field(default_factory=list)
    outputs: list[list[fx.Node]] = dataclasses.field(default_factory=list)

    def nodes(self) -> Iterator[fx.Node]:
        """All new nodes, each behind the nodes that it reads."""
        yield from self.pack
        yield from self.start
        yield from self.wait
        for chain in self.outputs:
            yield from chain


@dataclasses.dataclass
class Part:
    """A member of a bucket.

    Args:
        start: the collective.
        wait: its wait.
        cast: the cast that the pack takes over, if there is one.
        source: the input of the collective, or of the cast.
        given: the shape of the collective's input.
        result: the fake value of the collective's result.
    """

    start: fx.Node
    wait: fx.Node
    cast: fx.Node | None
    source: fx.Node
    given: tuple[int, ...]
    result: torch.Tensor


def _elements(w: Writer, merged: Merged, whole: fx.Node, sizes: list[int]) -> list[fx.Node]:
    """Consecutive pieces of a flat tensor, as elements of a list."""
    base, at, pieces = whole.meta["val"], 0, []
    for n in sizes:
        pieces.append(w.on(base, base.storage_offset() + at, (n,), (1,)))
        at += n
    split = w.call(merged.wait, aten.split_with_sizes.default, (whole, sizes), pieces)
    return [_element(w, [], split, i) for i in range(len(sizes))]


def _element(w: Writer, into: list[fx.Node], source: fx.Node, i: int) -> fx.Node:
    return w.call(into, operator.getitem, (source, i), source.meta["val"][i])


def _start_and_wait(
    w: Writer, merged: Merged, target: Any, args: tuple, val: torch.Tensor, kwargs: dict | None = None
) -> fx.Node:
    """Emits the merged collective and its wait; returns the wait."""
    start = w.call(merged.start, target, args, val, kwargs)
    landed = w.on(val, val.storage_offset(), val.shape, val.stride())
    return w.call(merged.wait, c10d.wait_tensor.default, (start,), landed)


def _packed_all_gather(w: Writer, parts: list[Part]) -> tuple[Merged, list[fx.Node]]:
    """A gather in place: every input goes into this rank's slice of the result.

    Afterwards, each column of pieces is copied out. Members of several element types travel as bytes.
    """
    merged, first = Merged(), parts[0].start
    size, group = first.args[1], first.args[2]
    as_bytes = len({_travelling(p) for p in parts}) > 1
    dtype, device = torch.uint8 if as_bytes else _travelling(parts[0]), first.meta["val"].device
    rank = dist.get_rank(dist.distributed_c10d._resolve_process_group(group_of(first, spec_of(first))[0]))
    sizes = [_elements_of(p) * _travelling(p).itemsize // dtype.itemsize for p in parts]
    total = sum(sizes)
    whole = w.fresh((total * size,), dtype)
    out = w.call(
        merged.pack,
        aten.empty.memory_format,
        ([total * size],),
        whole,
        {"dtype": dtype, "device": device, "pin_memory": False},
    )
    mine = w.on(whole, total * rank, (total,), (1,))
    own = w.call(merged.pack, aten.slice.Tensor, (out, 0, total * rank, total * (rank + 1)), mine)
    flat = [_flattened(w, merged.pack, p, as_bytes) for p in parts]
    joined = flat[0].meta["val"].dtype
    for f in flat[1:]:
        joined = torch.promote_types(joined, f.meta["val"].dtype)
    cat = w.call(merged.pack, aten.cat.default, (flat,), w.fresh((total,), joined))
    w.call(merged.pack, aten.copy_.default, (own, cat), w.on(mine, mine.storage_offset(), (total,), (1,)))
    landed = w.on(whole, 0, (total * size,), (1,))
    wait = _start_and_wait(w, merged, c10d.all_gather_into_tensor_out.default, (own, size, group), landed, {"out": out})
    rows = w.call(merged.wait, aten.view.default, (wait, [size, total]), w.on(landed, 0, (size, total), (total, 1)))
    at, columns = 0, []
    for n in sizes:
        columns.append(w.on(landed, at, (size, n), (total, 1)))
        at += n
    split = w.call(merged.wait, aten.split_with_sizes.default, (rows, sizes, 1), columns)
    outputs = []
    for i, p in enumerate(parts):
        chain: list[fx.Node] = []
        outputs.append(_unpacked(w, chain, p, _element(w, chain, split, i)))
        merged.outputs.append(chain)
    return merged, outputs


def _in_pairs(p: Part) -> bool:
    """Complex numbers travel as pairs: the operator that gathers into a given tensor takes real numbers alone."""
    return p.result.dtype.is_complex


def _travelling(p: Part) -> torch.dtype:
    """The element type of what is gathered."""
    return p.result.dtype.to_real() if _in_pairs(p) else p.result.dtype


def _elements_of(p: Part) -> int:
    """The number of elements of that type in one rank's piece."""
    return math.prod(p.given) * (2 if _in_pairs(p) else 1)


def _flattened(w: Writer, into: list[fx.Node], p: Part, as_bytes: bool) -> fx.Node:
    """A member's input in one dimension."""
    source = w.as_real(into, p.source) if _in_pairs(p) else p.source
    flat = w.reshaped(into, source, (_elements_of(p),))
    return w.retyped(into, flat, torch.uint8) if as_bytes else flat


def _unpacked(w: Writer, into: list[fx.Node], p: Part, column: fx.Node) -> fx.Node:
    """A member's result, from its column of the merged one."""
    size, given = column.meta["val"].shape[0], p.given
    if column.meta["val"].dtype != _travelling(p):
        # In a copy, the first element is where its type may be.
        piece = w.copied(into, column) if column.meta["val"].is_contiguous() else column
        flat = w.reshaped(into, piece, (piece.meta["val"].numel(),))
        column = w.retyped(into, flat, _travelling(p))
    out = w.reshaped(into, column, (given[0] * size, *given[1:], *((2,) if _in_pairs(p) else ())))
    return w.as_complex(into, out) if _in_pairs(p) else out


def _packed_reduce_scatter(w: Writer, parts: list[Part]) -> tuple[Merged, list[fx.Node]]:
    """Row r of the joined input holds what rank r gets from each member. Outputs are views."""
    merged, first = Merged(), parts[0].start
    _, reduction, size, group = first.args
    dtype = first.meta["val"].dtype
    sizes = [math.prod(p.given) // size for p in parts]
    total = sum(sizes)
    rows = [w.reshaped(merged.pack, p.source, (size, n)) for p, n in zip(parts, sizes)]
    cat = w.call(merged.pack, aten.cat.default, (rows, 1), w.fresh((size, total), dtype))
    flat = w.reshaped(merged.pack, cat, (size * total,))
    wait = _start_and_wait(
        w, merged, c10d.reduce_scatter_tensor.default, (flat, reduction, size, group), w.fresh((total,), dtype)
    )
    return merged, _pieces(w, merged, wait, sizes, parts)


def _packed_all_reduce(w: Writer, parts: list[Part]) -> tuple[Merged, list[fx.Node]]:
    """Joins the inputs, each in its own order of memory, so that outputs keep their strides."""
    merged, first = Merged(), parts[0].start
    dtype = first.meta["val"].dtype
    sizes = [math.prod(p.given) for p in parts]
    flat = []
    for p, n in zip(parts, sizes):
        source, order = p.source, None if p.result.is_contiguous() else dense_order(p.result)
        if order:
            source = w.permuted(merged.pack, source, order)
        flat.append(w.reshaped(merged.pack, source, (n,)))
    cat = w.call(merged.pack, aten.cat.default, (flat,), w.fresh((sum(sizes),), dtype))
    wait = _start_and_wait(w, merged, c10d.all_reduce.default, (cat, *first.args[1:]), w.fresh((sum(sizes),), dtype))
    return merged, _pieces(w, merged, wait, sizes, parts)


def _pieces(w: Writer, merged: Merged, wait: fx.Node, sizes: list[int], parts: list[Part]) -> list[fx.Node]:
    """The members' outputs as views of the whole."""
    outputs = []
    for p, piece in zip(parts, _elements(w, merged, wait, sizes)):
        chain, shape = [piece], tuple(p.result.shape)
        order = None if p.result.is_contiguous() else dense_order(p.result)
        if order:
            whole = w.reshaped(chain, piece, tuple(shape[i] for i in order))
            outputs.append(w.permuted(chain, whole, [order.index(i) for i in range(len(order))]))
        else:
            outputs.append(w.reshaped(chain, piece, shape))
        merged.outputs.append(chain)
    return outputs


def _coalesced(target: Any) -> Write:
    """One start over the members' own buffers, and one wait for each of them. Nothing is copied."""

    def write(w: Writer, parts: list[Part]) -> tuple[Merged, list[fx.Node]]:
        merged, first = Merged(), parts[0].start
        inputs = [p.source for p in parts]
        if target is not c10d.all_gather_into_tensor_coalesced.default:
            # A coalesced reduction gives the strides of what it takes; one by itself gives contiguous results.
            inputs = [
                w.reshaped(merged.pack, p.source, p.given) if p.result.is_contiguous() else p.source for p in parts
            ]
        landed = [w.fresh(p.result.shape, p.result.dtype) if p.result.is_contiguous() else p.result for p in parts]
        dtype = parts[0].result.dtype
        pairs = target is c10d.all_gather_into_tensor_coalesced.default and dtype.is_complex
        if pairs:  # As in the packed form.
            inputs = [w.as_real(merged.pack, source) for source in inputs]
            landed = [w.fresh((*p.result.shape, 2), dtype.to_real()) for p in parts]
        start = w.call(merged.start, target, (inputs, *first.args[1:]), landed)
        outputs = []
        for i, val in enumerate(landed):
            flying = _element(w, merged.start, start, i)
            out = w.on(val, val.storage_offset(), val.shape, val.stride())
            wait, chain = w.call(merged.wait, c10d.wait_tensor.default, (flying,), out), list[fx.Node]()
            outputs.append(w.as_complex(chain, wait) if pairs else wait)
            merged.outputs.append(chain)
        return merged, outputs

    return write


def dense_order(val: torch.Tensor) -> list[int] | None:
    """The order of dimensions in which the elements fill their range of memory, each once.

    None if the elements do not fill it.
    """
    order = sorted(range(val.dim()), key=lambda i: (-val.stride(i), i))
    step = 1
    for i in reversed(order):
        if val.shape[i] != 1 and val.stride(i) != step:
            return None
        step *= val.shape[i]
    return order


# Indexed by kind, and whether the members are packed into one buffer.
FORMS: dict[tuple[str, bool], Write] = {
    ("all_gather", True): _packed_all_gather,
    ("reduce_scatter", True): _packed_reduce_scatter,
    ("all_reduce", True): _packed_all_reduce,
    ("all_gather", False): _coalesced(c10d.all_gather_into_tensor_coalesced.default),
    ("reduce_scatter", False): _coalesced(c10d.reduce_scatter_tensor_coalesced.default),
    ("all_reduce", False): _coalesced(c10d.all_reduce_coalesced.default),
}
