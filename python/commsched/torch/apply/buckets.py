# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Merges collectives of an FX graph into one, such that everything can be undone."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx

from ..semantics.operators import storage_of
from .forms import FORMS, Merged, Part
from .plan import Bucket, PlanError, Unmergeable, wait_of
from .readers import is_gradient, returns_gradients, who_looks
from .values import stale
from .writer import Writer

aten = torch.ops.aten
CASTS = (torch.ops.prims.convert_element_type.default, torch.ops.aten._to_copy.default)
# Types among which `cat` promotes without loss, so that a cast may follow it.
WIDENING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


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
        self._backward = returns_gradients(graph)

    def merge(self, bucket: Bucket) -> Merged:
        """Adds the nodes of the merged collective before `before`, and makes the readers of the members' waits read its
        outputs.

        Afterwards the graph's order is not topological.

        An output that is a view into the merged buffer is copied if a reader may look at its storage.

        Raises:
            PlanError: members differ where they must agree, or a reader does not take the output for the member's.
        """
        parts = _parts(bucket)
        first = parts[0].start
        writer = Writer(self.graph, self.before, first)
        try:
            merged, outputs = FORMS[bucket.kind, bucket.packed](writer, parts)
        except KeyError:
            raise PlanError(f"a bucket of {bucket.kind} cannot be carried out") from None
        finally:
            self._made += writer.made
        for i, (part, out) in enumerate(zip(parts, outputs)):
            gradient = is_gradient(part.wait, self._backward)
            if _is_view(merged.outputs[i]) and who_looks(part.wait, gradient) is not None:
                outputs[i] = out = writer.copied(merged.outputs[i], out)
                self._made.append(out)
        moved = [self._replace(writer, part.wait, out) for part, out in zip(parts, outputs)]
        for part in parts:
            self.replaced += [part.wait, part.start, *([part.cast] if part.cast else [])]
        _check_values(parts, merged, moved)
        return merged

    def _replace(self, writer: Writer, old: fx.Node, new: fx.Node) -> list[fx.Node]:
        """Makes the readers of `old` read `new`. Returns the views of `old`, whose values have changed."""
        self._readers += [(user, user.args, user.kwargs) for user in old.users]
        moved = self._move_views(writer, old, new.meta["val"])
        old.replace_all_uses_with(new)
        return moved

    def _move_views(self, writer: Writer, old: fx.Node, new: torch.Tensor) -> list[fx.Node]:
        """Gives the views of a wait their future storage, for later passes read aliases off it. Returns them."""
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

        stack, seen = list(old.users), dict[fx.Node, None]()
        while stack:
            node = stack.pop()
            val = node.meta.get("val")
            if node in seen or node.op != "call_function" or not _shares(val, storage):
                continue
            seen[node] = None
            self._values.append((node, val))
            node.meta["val"] = moved(val)
            stack.extend(node.users)
        return list(seen)

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


def _check_values(parts: list[Part], merged: Merged, moved: list[list[fx.Node]]) -> None:
    """Computes the values of a bucket's nodes, and of the views of its outputs, once more.

    Args:
        moved: indexed by member: the views of its output.

    Raises:
        Unmergeable: a value is another one. The error names the member, or all of them if the bucket itself is wrong.
    """
    checked = [(parts, list(merged.nodes())), *(([part], views) for part, views in zip(parts, moved))]
    for members, nodes in checked:
        wrong = stale(nodes)
        if wrong is not None:
            raise Unmergeable(
                f"{wrong.name} would have another value behind the bucket of {parts[0].start.name}",
                [part.start.name for part in members],
            )


def _is_view(chain: list[fx.Node]) -> bool:
    """Whether the last of the nodes that make an output gives a view of the merged buffer."""
    return bool(chain) and all(node.target is not aten.clone.default for node in chain)


def _shares(val: Any, storage: int) -> bool:
    if isinstance(val, (list, tuple)):
        return any(_shares(v, storage) for v in val)
    return isinstance(val, torch.Tensor) and storage_of(val) == storage


def _parts(bucket: Bucket) -> list[Part]:
    first = bucket.members[0]
    types = {m.meta["val"].dtype for m in bucket.members}
    keys = {(m.target, str(m.args[1:]), m.meta["val"].device) for m in bucket.members}
    if len(keys) != 1 or len(types) != 1 and not _moves_bytes(bucket):
        raise PlanError(f"expected collectives of one kind, got others than {first.name} in its bucket")
    parts = []
    for m in bucket.members:
        cast = cast_of(bucket, m)
        source = m.args[0] if cast is None else cast.args[0]
        parts.append(Part(m, wait_of(m), cast, source, tuple(m.args[0].meta["val"].shape), m.meta["val"]))
        if not all(type(d) is int for d in parts[-1].given):
            raise PlanError(f"expected a static shape of {m.name} in a bucket, got {parts[-1].given}")
    return parts


def _moves_bytes(bucket: Bucket) -> bool:
    """Whether the form of a bucket may have members of several element types."""
    return bucket.packed and bucket.kind == "all_gather"


def cast_of(bucket: Bucket, member: fx.Node) -> fx.Node | None:
    """The cast that packing does itself: only a gather reads it, and both ways convert alike, to the bit.

    Bytes are not converted, so the casts of a bucket with members of several types stay.
    """
    node = member.args[0]
    if not _moves_bytes(bucket) or not isinstance(node, fx.Node):
        return None
    if len({m.meta["val"].dtype for m in bucket.members}) != 1:
        return None
    if node.target not in CASTS or len(node.users) != 1 or node in bucket.apart:
        return None
    old, new = node.args[0].meta["val"], node.meta["val"]
    exact = old.device == new.device and old.dtype in WIDENING and new.dtype in WIDENING
    return node if exact else None
