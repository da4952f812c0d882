# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Carries a split out on an FX graph.

Each node of the recipe is replaced by its parts. An operand that is whole is sliced, which is a view; a collective or a
view that needs contiguous memory reads a copy of it. A node that others read whole is joined by a concatenation, which
has the strides of the node if these are dense. Every new node is computed on fake tensors, and its sizes are compared
with those of the recipe. So is every node that reads, directly or through others, a join with other strides.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
import torch.fx as fx

from ..apply.forms import dense_order
from ..apply.rewrite import relink
from ..apply.values import described
from ..semantics import effects
from ..semantics.operators import OF_MEMORY, nodes_in, spec_of
from .recipe import NodeSplit, Recipe, RecipeError

aten = torch.ops.aten
# Indexed by operator: the place of the sizes of its result among the arguments.
SIZES = {
    aten.view.default: 1,
    aten._unsafe_view.default: 1,
    aten.reshape.default: 1,
    aten.expand.default: 1,
}
# What a part does not take over from the metadata of its node: it speaks of the whole value.
OF_THE_WHOLE = ("val", "tensor_meta", "eager_input_vals", "example_value", "unbacked_bindings")


def split_nodes(graph: fx.Graph, recipe: Recipe, node_of: Mapping[str, fx.Node]) -> None:
    """Splits nodes of `graph` in place, and orders it as the recipe says. O(nodes x parts).

    Args:
        node_of: indexed by the recipe's names: the nodes of this graph.

    Raises:
        RecipeError: the recipe does not fit the graph, which may be half changed then.
    """
    _Splitter(graph, recipe, node_of).run()


def _shows_strides(node: fx.Node) -> bool:
    """Whether strides of what a node reads are seen from outside, or its value cannot be computed anew: the output, an
    operator that writes, and anything that is not an operator.
    """
    if node.target is operator.getitem:
        return False
    return not isinstance(node.target, torch._ops.OpOverload) or bool(spec_of(node).mutated)


class _Splitter:
    def __init__(self, graph: fx.Graph, recipe: Recipe, node_of: Mapping[str, fx.Node]):
        self.graph, self.count = graph, recipe.parts
        self.splits = {node_of[name]: split for name, split in recipe.nodes.items() if name in node_of}
        self.place = {(node_of[name], s): at for (name, s), at in recipe.place.items() if name in node_of}
        self.whole = list(graph.nodes)
        # Indexed by node: its parts. An element of a list has its own.
        self.parts: dict[fx.Node, list[fx.Node]] = {}
        # Indexed by node: the dimension of its parts, None for a sum; for a node of several results, one each.
        self.dims: dict[fx.Node, tuple[int | None, ...]] = {}
        self.slices: dict[tuple[fx.Node, int], list[fx.Node]] = {}
        self.joins: dict[fx.Node, fx.Node] = {}
        # Joins and their views; and nodes whose values have other strides than in the graph as it was.
        self.moved: set[fx.Node] = set()
        self.restrided: set[fx.Node] = set()
        # Indexed by call: the index of the operation that does its work.
        self.slots: dict[fx.Node, int] = {}
        missing = [name for name in recipe.nodes if name not in node_of and not name.startswith("commsched_")]
        missing += [n.name for n in self.splits if n.op != "call_function"]
        if missing:
            raise RecipeError(f"{missing[0]} was split, and is not a call")

    def run(self) -> None:
        for node in self.whole:
            if node in self.splits:
                self._split(node, self.splits[node])
            elif node.target is operator.getitem and node.args[0] in self.parts:
                self._element(node)
        replaced = set(self.parts)
        for node in self.whole:
            if node not in replaced:
                self._read_joins(node)
        for node in reversed(self.whole):
            if node in replaced:
                self.graph.erase_node(node)
        self._order()
        self.graph.lint()

    def _read_joins(self, node: fx.Node) -> None:
        """Lets a node that stays whole read joins, and computes its value anew if that may be another one: if the node
        gives a view of a join, or reads a value with other strides than before.
        """
        for source in [n for n in node.all_input_nodes if n in self.parts]:
            join = self._join(source)
            node.replace_input_with(source, join)
            self.moved.add(join)
            if described(join.meta["val"]) != described(source.meta["val"]):
                self.restrided.add(join)
        is_moved = not self.moved.isdisjoint(node.all_input_nodes)
        is_restrided = not self.restrided.isdisjoint(node.all_input_nodes)
        if not (is_moved or is_restrided):
            return
        if spec_of(node).op in (*OF_MEMORY, "sym_stride") or is_restrided and _shows_strides(node):
            raise RecipeError(f"{node.name} depends on the strides of what would be joined")
        is_view = node.target is operator.getitem or node.op == "call_function" and bool(effects.may_alias(node))
        if is_view and node.target is not operator.getitem and not isinstance(node.target, torch._ops.OpOverload):
            raise RecipeError(f"{node.name} may return memory of what would be joined")
        if node.op == "call_function" and (is_view or is_restrided):
            self._renew(node, is_view)

    def _renew(self, node: fx.Node, is_view: bool) -> None:
        """Computes the value of a node anew, and notes whether it is another one."""
        value = self._value(node, node)
        is_other = described(value) != described(node.meta["val"])
        if is_other:
            self.restrided.add(node)
        if is_view:
            self.moved.add(node)
        if is_other or is_view:
            node.meta = {**node.meta, "val": value}  # A copy of a graph shares it with the graph.

    # Parts

    def _split(self, node: fx.Node, split: NodeSplit) -> None:
        dims = self._operand_dims(node, split)
        parts = []
        for strand in range(self.count):
            replaced = {n: self._operand(node, n, d, strand) for n, d in dims.items()}
            args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n, r=replaced: r[n])
            if node.target in SIZES:
                at = SIZES[node.target]
                args = (*args[:at], list(split.shapes[0]), *args[at + 1 :])
            part = self._call(node, node.target, args, kwargs, node)
            self._check(node, part, split)
            self.slots[part] = self.place.get((node, strand), -1)
            parts.append(part)
        self.parts[node], self.dims[node] = parts, split.results

    def _operand_dims(self, node: fx.Node, split: NodeSplit) -> dict[fx.Node, int | None]:
        """Indexed by the nodes that a node reads: the dimension along which parts read it."""
        dims: dict[fx.Node, int | None] = {}
        position = 0
        for source in node.all_input_nodes:
            val = source.meta.get("val")
            flat = [val] if not isinstance(val, (list, tuple)) else None
            if flat is None or position >= len(split.operands):
                raise RecipeError(f"{node.name} reads {source.name}, which is a list")
            dims[source] = split.operands[position]
            position += 1
        return dims

    def _operand(self, node: fx.Node, source: fx.Node, dim: int | None, strand: int) -> fx.Node:
        if dim is None:
            return self._join(source) if source in self.parts else source
        if source in self.parts and self.dims[source] == (dim,):
            return self._for_start(node, self.parts[source][strand], source)
        whole = self._join(source) if source in self.parts else source
        cut = self.slices.setdefault((whole, dim), [])
        if not cut:
            with self.graph.inserting_before(node):
                cut.extend(self._slice(node, whole, dim))
        return self._for_start(node, cut[strand], source)

    def _slice(self, user: fx.Node, whole: fx.Node, dim: int) -> list[fx.Node]:
        size = whole.meta["val"].shape[dim] // self.count
        bounds = [(strand * size, (strand + 1) * size) for strand in range(self.count)]
        return [self._call(user, aten.slice.Tensor, (whole, dim, *bound), {}, whole) for bound in bounds]

    def _copy(self, user: fx.Node, node: fx.Node, like: fx.Node) -> fx.Node:
        return self._call(user, aten.clone.default, (node,), {"memory_format": torch.contiguous_format}, like)

    def _for_start(self, user: fx.Node, part: fx.Node, source: fx.Node) -> fx.Node:
        """`part`, or a copy if a collective or a view needs it contiguous as the whole was."""
        needs = spec_of(user).start is not None or user.target is aten.view.default
        if needs and not part.meta["val"].is_contiguous() and source.meta["val"].is_contiguous():
            return self._copy(user, part, source)
        return part

    def _element(self, node: fx.Node) -> None:
        """Splits an element of what a split node returns."""
        source, index = node.args
        val = source.meta["val"]
        if not isinstance(index, int) or any(isinstance(v, (list, tuple)) for v in val):
            raise RecipeError(f"{node.name} is an element of a nested list")
        position = sum(v is not None for v in val[:index])
        parts = []
        for part in self.parts[source]:
            element = self._call(node, operator.getitem, (part, index), {}, node)
            self.slots[element] = self.slots[part]
            parts.append(element)
        self.parts[node], self.dims[node] = parts, (self.dims[source][position],)

    def _join(self, node: fx.Node) -> fx.Node:
        """The concatenation of a node's parts, or their sum, directly after the last of them."""
        known = self.joins.get(node)
        if known is not None:
            return known
        if len(self.dims[node]) != 1 or spec_of(node).start is not None:
            raise RecipeError(f"{node.name} cannot be joined")
        parts = self.parts[node]
        after = parts[-1].next
        (dim,) = self.dims[node]
        if dim is None:
            return self._sum(node, after)
        joined = self._concatenation(node, dim, after)
        if joined.meta["val"].shape != node.meta["val"].shape:
            raise RecipeError(f"the strands of {node.name} have {tuple(joined.meta['val'].shape)} together")
        self.joins[node] = joined
        return joined

    def _concatenation(self, node: fx.Node, dim: int, after: fx.Node) -> fx.Node:
        """The parts of a node side by side. If the elements of the node fill their range of memory, they do so in the
        same order.
        """
        parts, val = self.parts[node], node.meta["val"]
        slot = max(self.slots[part] for part in parts)
        order = None if val.is_contiguous() else dense_order(val)

        def call(target: Any, *args: Any) -> fx.Node:
            made = self._call(after, target, args, {}, node)
            self.slots[made] = slot
            return made

        if order is None:
            return call(aten.cat.default, parts, dim)
        joined = call(aten.cat.default, [call(aten.permute.default, p, order) for p in parts], order.index(dim))
        return call(aten.permute.default, joined, [order.index(i) for i in range(len(order))])

    def _sum(self, node: fx.Node, after: fx.Node) -> fx.Node:
        """Each part is added as soon as it is there, so that one sum and one part are live."""
        total, *others = self.parts[node]
        for part in others:
            slot = max(self.slots[total], self.slots[part])
            total = self._call(after, aten.add.Tensor, (total, part), {}, node)
            self.slots[total] = slot
        val, whole = total.meta["val"], node.meta["val"]
        if val.shape != whole.shape or val.dtype != whole.dtype:
            raise RecipeError(f"the strands of {node.name} give {val.dtype} of {tuple(val.shape)}")
        self.joins[node] = total
        return total

    # New nodes

    def _call(self, before: fx.Node, target: Any, args: tuple, kwargs: dict, like: fx.Node) -> fx.Node:
        """Inserts a call, and computes its fake value."""
        with self.graph.inserting_before(before):
            made = self.graph.call_function(target, args, kwargs)
        made.meta.update({k: v for k, v in like.meta.items() if k not in OF_THE_WHOLE})
        made.meta["val"] = self._value(made, like)
        return made

    def _value(self, node: fx.Node, like: fx.Node) -> Any:
        """The fake value of a call, which works for the node `like`."""
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
        if node.target is operator.getitem:
            return args[0][args[1]]
        found = nodes_in([*node.args, *node.kwargs.values()])
        mode = next((m for n in found if (m := getattr(n.meta["val"], "fake_mode", None))), None)
        if mode is None:
            raise RecipeError(f"{like.name} has no fake tensor")
        try:
            with mode:
                return node.target(*args, **kwargs)
        except Exception as error:  # The operator refuses the sizes of a part.
            reason = str(error).split("\n")[0]
            raise RecipeError(f"{like.name} cannot be computed in parts: {type(error).__name__}: {reason}") from error

    def _check(self, node: fx.Node, part: fx.Node, split: NodeSplit) -> None:
        val, whole = part.meta["val"], node.meta["val"]
        vals = [v for v in val if v is not None] if isinstance(val, (list, tuple)) else [val]
        wholes = [v for v in whole if v is not None] if isinstance(whole, (list, tuple)) else [whole]
        if [tuple(v.shape) for v in vals] != list(split.shapes) or [v.dtype for v in vals] != [v.dtype for v in wholes]:
            raise RecipeError(f"a part of {node.name} has the sizes {[tuple(v.shape) for v in vals]}")

    # Order

    def _order(self) -> None:
        """Puts the nodes into the order of the recipe. What has no operation follows what it reads."""
        for node in self.graph.nodes:
            if node.op in ("placeholder", "get_attr", "output") or node in self.slots:
                continue
            at = self.place.get((node, 0))
            if at is None or node.target is operator.getitem:
                at = max((self.slots[n] for n in node.all_input_nodes if n in self.slots), default=-1)
            self.slots[node] = at
        for made in [n for cut in self.slices.values() for n in cut]:
            self._delay(made)
        # The library joins a view by a view of what is joined; here its parts are joined, which may be later.
        for node in self.graph.nodes:
            if node in self.slots:
                sources = [self.slots[n] for n in node.all_input_nodes if n in self.slots]
                self.slots[node] = max([self.slots[node], *sources])
        pairs = effects.edges(self.graph)
        relink(self.graph, self.slots)
        index = {n: i for i, n in enumerate(self.graph.nodes)}
        for before, after in pairs:
            if index[before] > index[after]:
                raise RecipeError(f"expected {after.name} behind {before.name}: one of them writes what the other uses")

    def _delay(self, node: fx.Node) -> None:
        """Moves a slice to its first reader."""
        first = min((self.slots[u] for u in node.users if u in self.slots), default=None)
        if first is None:
            return
        self.slots[node] = first
