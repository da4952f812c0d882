# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Turns a post-AOT FX graph into a module of `comm` operations.

One walk visits the nodes in order, in near-linear time. A node becomes one operation whose location is the node's name,
and a `getitem` becomes none. A coalesced list, an FSDP copy and a collective that waits for itself may become two
operations with the same location. The importer does not decide which moves are legal. It prints operands, aliases
(equal storages), writes and the pinned order, and the dependence analysis reads them.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.fx as fx

from ..options import Estimation
from ..reporting import strict
from ..semantics import operators
from ..semantics.operators import guessed_sizes, storage_of
from ..semantics.packs import find_packs
from .fsdp import FsdpImports
from .regions import RegionImports
from .values import Value, flat_values, tensor_value


def donated_placeholders(graph: fx.Graph, donated: str | Iterable[str] | None) -> set[str]:
    """Names of the placeholders that die after their last use.

    Args:
        donated: the names, or "auto": all except parameters and inputs of the step in a backward graph (one
            with tangents), and
            none in a forward graph.

    Raises:
        ValueError: a name is not that of a placeholder.
    """
    names = [n.name for n in graph.nodes if n.op == "placeholder"]
    if donated == "auto":
        if not any(n.startswith("tangents_") for n in names):
            return set()
        return {n for n in names if not n.startswith("primals_")}
    wanted = set(donated or ())
    missing = wanted.difference(names)
    if missing:
        raise ValueError(f"donated: expected names of placeholders of the graph, got {sorted(missing)[0]!r}")
    return wanted


class Importer(FsdpImports, RegionImports):
    """Walks one graph. `run` returns the module's text.

    Args:
        graph: the graph to import.
        name: the symbol of the function.
        donated: placeholders that are freed after their last use.
        estimation: the user's estimates of single nodes, if there are any.
        world: the number of ranks of the job.
        opaque: nodes to import as opaque operations, each with the reason.
        fused: nodes that Inductor is going to fuse into one kernel become one operation.
        fusion: such nodes cost together what their kernel does. Otherwise, each costs as a kernel of its own.
    """

    def __init__(
        self,
        graph: fx.Graph,
        name: str,
        donated: set[str],
        estimation: Estimation | None,
        world: int,
        opaque: dict[str, str] | None = None,
        fused: bool = False,
        fusion: bool = True,
    ):
        super().__init__(graph, name, estimation, world, opaque)
        self.donated, self.fused, self.fusion = donated, fused, fusion

    def run(self) -> str:
        """The module's text."""
        with guessed_sizes(self.exchanges()):
            return self._run()

    def _run(self) -> str:
        waited = self._futures_that_enter()
        packs = find_packs(self.graph, aliases=self.aliases)
        packed = {n for pack in packs.values() for n in pack.parts}
        if self.fused or self.fusion:
            self.find_regions(packed, self.fused)
        for node in self.graph.nodes:
            if node in self.regions or node in self.emitted:
                continue  # A region becomes an operation when a node outside of it needs it.
            if self.regions:
                self.regions_before(node)
                self.emitted.add(node)
            if node in packed:
                if node in packs:
                    pack = packs[node]
                    self.compute(node, operators.spec_of(node), pack.sources, pack.parts)
                continue
            op = node.op
            if op == "call_function":
                self.call(node)
            elif op == "placeholder":
                self._placeholder(node, node in waited)
            elif op == "get_attr":
                self._constant(node)
            elif op == "output":
                self._output(node)
            else:  # call_module and call_method. AOT autograd leaves none behind.
                self.compute(node, operators.Spec(node.op))
        return self.printer.text()

    def call(self, node: fx.Node) -> None:
        """Imports a call. If that fails, the call becomes an opaque operation by itself."""
        length = len(self.printer.lines)
        self.printer.current = node.name
        if node.name not in self.opaque:
            try:
                self._known_call(node)
                return
            except Exception as error:  # A graph may hold what this importer does not know.
                if strict():
                    raise
                self.opaque[node.name] = f"{type(error).__name__}: {error}"
                self.printer.cut(length)
        self.compute(node, operators.spec_of(node).opaque())

    def _known_call(self, node: fx.Node) -> None:
        if node.target is operator.getitem:
            self.element(node)
            return
        spec = operators.spec_of(node)
        if spec.is_wait:
            self.wait_node(node)
        elif spec.start is not None:
            if (path := _module_of(node)) is not None:
                self.printer.modules[node.name] = path
            if not self.start(node, spec):
                self.opaque.setdefault(node.name, "the dialect has no such collective")
                self.compute(node, spec.opaque())
        else:
            handler = SPECIAL.get(spec.name)
            if handler is None or not handler(self, node, spec):
                self.compute(node, spec)

    def _futures_that_enter(self) -> set[fx.Node]:
        """Placeholders that are waited for: another graph started these collectives."""
        waits = self.graph.find_nodes(op="call_function", target=torch.ops._c10d_functional.wait_tensor.default)
        return {w.args[0] for w in waits if isinstance(w.args[0], fx.Node) and w.args[0].op == "placeholder"}

    def _placeholder(self, node: fx.Node, in_flight: bool) -> None:
        val, ssa = node.meta.get("val"), f"%{node.name}"
        origin = _parameter_name(node.meta.get("desc"))
        value = self.bind(node, ssa, val)
        if isinstance(value, list):  # A list of tensors is not an argument of a post-AOT graph.
            value = Value(ssa, "none")
        self.values[node] = value
        other = self.owner.get(value.storage) if value.storage else None
        if other is not None:  # This is a second view of a storage that came in already.
            self.printer.operation(
                node.name,
                1,
                'comm.compute "view"',
                f"({other.ssa})",
                " aliases [0]",
                ["comm.split = []"] if self.split_rules else [],  # A placeholder cannot be split.
                f"({other.type}) -> {value.type}",
                node.name,
            )
            return
        type_ = value.type
        if in_flight and value.storage:
            type_ = f"!comm.future<{value.type}>"
            self.in_flight[value.storage] = (ssa, type_, [value])
            value.waitable = True
        else:
            self.own([value])
        self.printer.argument(
            ssa, type_, node.name, origin, node.name in self.donated, value.bytes if value.dynamic else None
        )

    def _constant(self, node: fx.Node) -> None:
        """A tensor that the module holds is an argument that lives throughout. Subgraphs have no value."""
        owner = self.graph.owning_module
        attr = node.meta.get("val")
        if attr is None and owner is not None:
            attr = getattr(owner, node.target, None)
        if isinstance(attr, torch.Tensor):
            value = tensor_value(f"%{node.name}", attr, storage_of(attr))
            self.values[node] = value
            self.own([value])
            self.printer.argument(value.ssa, value.type, node.name, str(node.target), False, None)

    def _output(self, node: fx.Node) -> None:
        """The returned tensors. A collective that is still in flight leaves as its future."""
        results = []
        for n in node.all_input_nodes:
            for v in flat_values(self.values.get(n)):
                if v.waitable and v.storage not in self.waited:
                    future, type_, _ = self.in_flight[v.storage]
                    results.append((future, type_))
                else:  # A collective that was waited for has landed, even if the start's name leaves.
                    v = self.waited[v.storage] if v.waitable else v
                    results.append((v.ssa, v.type))
        self.printer.result_types = [t for _, t in results]
        names = ", ".join(n for n, _ in results)
        types = ", ".join(t for _, t in results)
        self.printer.lines.append(
            f'    return {names} : {types} loc("output")' if results else '    return loc("output")'
        )


def _module_of(node: fx.Node) -> str | None:
    """The path of the innermost module that a node works for ("layers.0"); in a backward graph, of its forward node."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not isinstance(stack, dict) or not stack:
        return None
    path = next(reversed(stack.values()))[0]  # "L['self'].layers.0" in dynamo's graphs, "layers.0" in exported ones.
    return re.sub(r"^L\[[^\]]*\]\.?", "", path) or None


def _parameter_name(desc: Any) -> str | None:
    """The path of a parameter or a module buffer ("layers.0.attn.wq.weight") in AOT autograd's description of it."""
    while hasattr(desc, "base"):
        desc = desc.base
    target = getattr(desc, "target", None)
    return target if isinstance(target, str) else None


# Indexed by operator: the method that imports it, which returns False if the dialect does not have that form.
SPECIAL: dict[str, Callable[[Importer, fx.Node, operators.Spec], bool]] = {
    "_dtensor.shard_dim_alltoall.default": Importer.shard_dim_all_to_all,
    "fsdp.all_gather_copy_in.default": Importer.all_gather_copy_in,
    "fsdp.split_with_sizes_copy.default": Importer.split_with_sizes_copy,
    "fsdp.chunk_cat.default": Importer.chunk_cat,
    "fsdp.copy_.default": Importer.fsdp_copy,
    "inductor.resize_storage_bytes_.default": Importer.resize_storage,
}
