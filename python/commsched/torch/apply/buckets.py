"""Merges collectives of an FX graph into one: writes the nodes that pack, start, wait and unpack.

The nodes are those that PyTorch's own bucketing makes (`torch._inductor.fx_passes.bucketing`), so that Inductor fuses
them alike. PyTorch traces its functions with fake tensors for every bucket. Here the nodes are written directly, and
their fake values are made from sizes, strides and storages, which takes some microseconds each.

All collectives here have static shapes, for the scheduler merges no others.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._mode_utils import no_dispatch

from ..semantics.operators import group_of, spec_of, storage_of
from .plan import Bucket, PlanError, wait_of

# Writes the nodes of a bucket; returns them, and the output of each member.
Write = Callable[["_Writer", "list[_Part]"], "tuple[Merged, list[fx.Node]]"]
aten, c10d = torch.ops.aten, torch.ops._c10d_functional
CASTS = (torch.ops.prims.convert_element_type.default, aten._to_copy.default)
# Types among which `cat` promotes without loss, so that a cast may follow it.
WIDENING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# The metadata that a new node inherits from the first collective of its bucket.
INHERITED = ("nn_module_stack", "fwd_nn_module_stack", "stack_trace", "custom", "seq_nr", "partitioner_tag")


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
class _Part:
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


class _Writer:
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

    def on(self, base: torch.Tensor, offset: int, shape: Sequence[int], stride: Sequence[int]) -> FakeTensor:
        """A view of `base`'s storage."""
        with no_dispatch():
            view = torch.empty(0, dtype=base.dtype, device="meta")
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


def _dense_order(val: torch.Tensor) -> list[int] | None:
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


class Merger:
    """Merges buckets of one graph such that everything can be undone.

    Replaced nodes stay in the graph without readers until `finish`.
    """

    def __init__(self, graph: fx.Graph, before: fx.Node):
        self.graph, self.before = graph, before
        self.replaced: list[fx.Node] = []  # Each reader is before the nodes that it reads.
        self._readers: list[tuple[fx.Node, tuple, dict]] = []
        self._values: list[tuple[fx.Node, Any]] = []
        self._made: list[fx.Node] = []

    def merge(self, bucket: Bucket) -> Merged:
        """Adds the nodes of the merged collective before `before`, and makes the readers of the members' waits read its
        outputs.

        Afterwards the graph's order is not topological.

        Raises:
            PlanError: members differ where they must agree.
        """
        parts = _parts(bucket)
        first = parts[0].start
        writer = _Writer(self.graph, self.before, first)
        try:
            merged, outputs = _KINDS[bucket.kind, bucket.packed](writer, parts)
        except KeyError:
            raise PlanError(f"a bucket of {bucket.kind} cannot be carried out") from None
        finally:
            self._made += writer.made
        for part, out in zip(parts, outputs):
            self._replace(writer, part.wait, out)
            self.replaced += [part.wait, part.start, *([part.cast] if part.cast else [])]
        return merged

    def _replace(self, writer: _Writer, old: fx.Node, new: fx.Node) -> None:
        self._readers += [(user, user.args, user.kwargs) for user in old.users]
        self._move_views(writer, old, new.meta["val"])
        old.replace_all_uses_with(new)

    def _move_views(self, writer: _Writer, old: fx.Node, new: torch.Tensor) -> None:
        """Gives the views of a wait their future storage, for later passes read aliases off it."""
        was = old.meta["val"]
        storage, shift = storage_of(was), new.storage_offset() - was.storage_offset()

        def moved(val: Any) -> Any:
            if isinstance(val, (list, tuple)):
                return type(val)(moved(v) for v in val)
            if not isinstance(val, torch.Tensor) or storage_of(val) != storage:
                return val
            if val.dtype != was.dtype:  # The offset counts elements of another size.
                scaled = shift * was.dtype.itemsize // val.dtype.itemsize
                view = writer.on(new, 0, (0,), (1,)).view(val.dtype)
                return writer.on(view, val.storage_offset() + scaled, val.shape, val.stride())
            return writer.on(new, val.storage_offset() + shift, val.shape, val.stride())

        stack, seen = list(old.users), set()
        while stack:
            node = stack.pop()
            val = node.meta.get("val")
            if node in seen or node.op != "call_function" or not _shares(val, storage):
                continue
            seen.add(node)
            self._values.append((node, val))
            node.meta["val"] = moved(val)
            stack.extend(node.users)

    def finish(self) -> None:
        """Erases the replaced nodes."""
        for node in self.replaced:
            self.graph.erase_node(node)

    def undo(self) -> None:
        """Undoes all merges, except for the order of nodes."""
        for node, val in self._values:
            node.meta["val"] = val
        for node, args, kwargs in reversed(self._readers):
            node.args, node.kwargs = args, kwargs
        for node in reversed(self._made):
            self.graph.erase_node(node)


def _shares(val: Any, storage: int) -> bool:
    if isinstance(val, (list, tuple)):
        return any(_shares(v, storage) for v in val)
    return isinstance(val, torch.Tensor) and storage_of(val) == storage


def _parts(bucket: Bucket) -> list[_Part]:
    first = bucket.members[0]
    keys = {(m.target, str(m.args[1:]), m.meta["val"].dtype, m.meta["val"].device) for m in bucket.members}
    if len(keys) != 1:
        raise PlanError(f"expected collectives of one kind, got others than {first.name} in its bucket")
    parts = []
    for m in bucket.members:
        cast = cast_of(bucket, m)
        source = m.args[0] if cast is None else cast.args[0]
        parts.append(_Part(m, wait_of(m), cast, source, tuple(m.args[0].meta["val"].shape), m.meta["val"]))
        if not all(type(d) is int for d in parts[-1].given):
            raise PlanError(f"expected a static shape of {m.name} in a bucket, got {parts[-1].given}")
    return parts


def cast_of(bucket: Bucket, member: fx.Node) -> fx.Node | None:
    """The cast that packing does itself: only a gather reads it, and both ways convert alike, to the bit."""
    node = member.args[0]
    if not bucket.packed or bucket.kind != "all_gather" or not isinstance(node, fx.Node):
        return None
    if node.target not in CASTS or len(node.users) != 1:
        return None
    old, new = node.args[0].meta["val"], node.meta["val"]
    exact = old.device == new.device and old.dtype in WIDENING and new.dtype in WIDENING
    return node if exact else None


def _numel(shape: Sequence[int]) -> int:
    return math.prod(shape)


def _elements(w: _Writer, merged: Merged, whole: fx.Node, sizes: list[int]) -> list[fx.Node]:
    """Consecutive pieces of a flat tensor, as elements of a list."""
    base, at, pieces = whole.meta["val"], 0, []
    for n in sizes:
        pieces.append(w.on(base, base.storage_offset() + at, (n,), (1,)))
        at += n
    split = w.call(merged.wait, aten.split_with_sizes.default, (whole, sizes), pieces)
    return [_element(w, [], split, i) for i in range(len(sizes))]


def _element(w: _Writer, into: list[fx.Node], source: fx.Node, i: int) -> fx.Node:
    return w.call(into, operator.getitem, (source, i), source.meta["val"][i])


def _start_and_wait(
    w: _Writer, merged: Merged, target: Any, args: tuple, val: torch.Tensor, kwargs: dict | None = None
) -> fx.Node:
    """Emits the merged collective and its wait; returns the wait."""
    start = w.call(merged.start, target, args, val, kwargs)
    landed = w.on(val, val.storage_offset(), val.shape, val.stride())
    return w.call(merged.wait, c10d.wait_tensor.default, (start,), landed)


def _packed_all_gather(w: _Writer, parts: list[_Part]) -> tuple[Merged, list[fx.Node]]:
    """A gather in place: every input goes into this rank's slice of the result.

    Afterwards, each column of pieces is copied out.
    """
    merged, first = Merged(), parts[0].start
    size, group = first.args[1], first.args[2]
    dtype, device = first.meta["val"].dtype, first.meta["val"].device
    rank = dist.get_rank(dist.distributed_c10d._resolve_process_group(group_of(first, spec_of(first))[0]))
    sizes = [_numel(p.given) for p in parts]
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
    flat = [w.reshaped(merged.pack, p.source, (n,)) for p, n in zip(parts, sizes)]
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
        piece = _element(w, chain, split, i)
        outputs.append(w.reshaped(chain, piece, (p.given[0] * size, *p.given[1:])))
        merged.outputs.append(chain)
    return merged, outputs


def _packed_reduce_scatter(w: _Writer, parts: list[_Part]) -> tuple[Merged, list[fx.Node]]:
    """Row r of the joined input holds what rank r gets from each member. Outputs are views."""
    merged, first = Merged(), parts[0].start
    _, reduction, size, group = first.args
    dtype = first.meta["val"].dtype
    sizes = [_numel(p.given) // size for p in parts]
    total = sum(sizes)
    rows = [w.reshaped(merged.pack, p.source, (size, n)) for p, n in zip(parts, sizes)]
    cat = w.call(merged.pack, aten.cat.default, (rows, 1), w.fresh((size, total), dtype))
    flat = w.reshaped(merged.pack, cat, (size * total,))
    wait = _start_and_wait(
        w, merged, c10d.reduce_scatter_tensor.default, (flat, reduction, size, group), w.fresh((total,), dtype)
    )
    return merged, _pieces(w, merged, wait, sizes, parts)


def _packed_all_reduce(w: _Writer, parts: list[_Part]) -> tuple[Merged, list[fx.Node]]:
    """Joins the inputs, each in its own order of memory, so that outputs keep their strides."""
    merged, first = Merged(), parts[0].start
    dtype = first.meta["val"].dtype
    sizes = [_numel(p.given) for p in parts]
    flat = []
    for p, n in zip(parts, sizes):
        source, order = p.source, None if p.result.is_contiguous() else _dense_order(p.result)
        if order:
            source = w.permuted(merged.pack, source, order)
        flat.append(w.reshaped(merged.pack, source, (n,)))
    cat = w.call(merged.pack, aten.cat.default, (flat,), w.fresh((sum(sizes),), dtype))
    wait = _start_and_wait(w, merged, c10d.all_reduce.default, (cat, *first.args[1:]), w.fresh((sum(sizes),), dtype))
    return merged, _pieces(w, merged, wait, sizes, parts)


def _pieces(w: _Writer, merged: Merged, wait: fx.Node, sizes: list[int], parts: list[_Part]) -> list[fx.Node]:
    """The members' outputs as views of the whole."""
    outputs = []
    for p, piece in zip(parts, _elements(w, merged, wait, sizes)):
        chain, shape = [piece], tuple(p.result.shape)
        order = None if p.result.is_contiguous() else _dense_order(p.result)
        if order:
            whole = w.reshaped(chain, piece, tuple(shape[i] for i in order))
            outputs.append(w.permuted(chain, whole, [order.index(i) for i in range(len(order))]))
        else:
            outputs.append(w.reshaped(chain, piece, shape))
        merged.outputs.append(chain)
    return outputs


def _coalesced(target: Any) -> Write:
    """One start over the members' own buffers, and one wait for each of them. Nothing is copied."""

    def write(w: _Writer, parts: list[_Part]) -> tuple[Merged, list[fx.Node]]:
        merged, first = Merged(), parts[0].start
        inputs = [p.source for p in parts]
        if target is c10d.reduce_scatter_tensor_coalesced.default:
            inputs = [w.reshaped(merged.pack, p.source, p.given) for p in parts]
        landed = [w.fresh(p.result.shape, p.result.dtype) if p.result.is_contiguous() else p.result for p in parts]
        start = w.call(merged.start, target, (inputs, *first.args[1:]), landed)
        outputs = []
        for i, val in enumerate(landed):
            flying = _element(w, merged.start, start, i)
            out = w.on(val, val.storage_offset(), val.shape, val.stride())
            outputs.append(w.call(merged.wait, c10d.wait_tensor.default, (flying,), out))
            merged.outputs.append([])
        return merged, outputs

    return write


_KINDS: dict[tuple[str, bool], Write] = {
    ("all_gather", True): _packed_all_gather,
    ("reduce_scatter", True): _packed_reduce_scatter,
    ("all_reduce", True): _packed_all_reduce,
    ("all_gather", False): _coalesced(c10d.all_gather_into_tensor_coalesced.default),
    ("reduce_scatter", False): _coalesced(c10d.reduce_scatter_tensor_coalesced.default),
    ("all_reduce", False): _coalesced(c10d.all_reduce_coalesced.default),
}
