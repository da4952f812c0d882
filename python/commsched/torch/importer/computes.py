# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Computation as the importer prints it: one opaque operation with a cost, aliases and writes."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.fx as fx

from ..options import to_ns
from ..semantics import effects, operators
from ..semantics.operators import argument_at, nodes_in
from . import flops
from .mlir_text import FREE, cost_attribute
from .state import ImportState
from .values import ELEMENT_TYPES, Value, flat_values


class ComputeImports(ImportState):
    """The part of the importer for everything except collectives."""

    def compute(
        self,
        node: fx.Node,
        spec: operators.Spec,
        sources: list[fx.Node] | None = None,
        parts: Sequence[fx.Node] | None = None,
    ) -> None:
        """Imports a node as an opaque operation.

        Args:
            sources: the nodes that the operation reads, if it does the work of several nodes.
            parts: the nodes whose work it does.
        """
        if sources is not None and spec.mutated:
            sources = [node.args[0], *sources]
        inputs = self.operands(node, sources)
        val = node.meta.get("val")
        if spec.same_as is not None:
            operators.unify_results(node, spec, self.canonical)
        result = self.bind(node, f"%{node.name}", val)
        if node in self.without_memory:
            result.type = f"tensor<0x{ELEMENT_TYPES[val.dtype]}>"
        results = flat_values(result) if isinstance(result, (list, dict)) else [] if val is None else [result]
        split = self._split_attribute(node, inputs, results)
        operands = len(inputs)
        views = self._aliases(results, inputs)
        attrs = []
        cost = self._cost(parts or [node], spec, inputs, results, views, self._mutated(node, spec, inputs))
        self._add_shadows(node, inputs, results)
        mutated = self._mutated(node, spec, inputs)
        if cost:
            attrs.append(f"comm.cost = {cost}")
        if split and len(inputs) == operands:
            attrs.append(split)
        if spec.hybrid and (group := self.groups.hybrid_group(node, spec)):
            attrs.append(f"comm.hybrid = {group}")
        if spec.ordered and not (self.split_rules and self.split_rules.draws_nothing(node)):
            attrs.append("comm.pinned")
        if any(v.dynamic for v in results):
            attrs.append(f"comm.bytes_hint = array<i64: {', '.join(str(v.bytes) for v in results)}>")
        clauses = ""
        if views is not None:
            clauses = f" aliases [{', '.join(map(str, views))}]"
        if mutated:
            clauses += f" mutates [{', '.join(map(str, mutated))}]"
        if spec.hybrid:
            clauses += " side_effects"
        types = f"({', '.join([v.type for v in inputs])}) -> {_result_types(results)}"
        name = f"{spec.name}{_device_change(val, inputs, node)}"
        self.printer.operation(
            node.name,
            len(results),
            f'comm.compute "{name}"',
            f"({', '.join([v.ssa for v in inputs])})",
            clauses,
            attrs,
            types,
            [n.name for n in parts] if parts else node.name,
        )
        self.values[node] = result
        self.own(results)

    def _split_attribute(self, node: fx.Node, inputs: list[Value], results: list[Value]) -> str:
        """`comm.split` of a call whose scalars decide how it can be split; empty for the library's table."""
        if self.split_rules is None or any(v.dynamic or not v.storage for v in (*inputs, *results)):
            return ""
        axes = self.split_rules.axes(node, [v.shape for v in inputs], [v.shape for v in results])
        if axes is None:
            return ""
        listed = ", ".join(f"array<i64: {', '.join(map(str, axis))}>" for axis in axes)
        return f"comm.split = [{listed}]"

    def _add_shadows(self, node: fx.Node, inputs: list[Value], results: list[Value]) -> None:
        """Makes readers of a function's result read the operands that the function may have returned.

        A function may return an operand although its fake tensor is a new one. This matters if either is written later.
        """
        inputs += self.shadows_of(inputs)
        if effects.is_function(node) and results and any(v.storage for v in results) and self.is_written(node):
            for v in results:
                self.shadows.setdefault(v.storage, []).extend(i for i in inputs if i.storage not in (0, v.storage))

    def _mutated(self, node: fx.Node, spec: operators.Spec, inputs: list[Value]) -> list[int]:
        """Positions of the operands whose storage the node writes, or may write under another name."""
        if not spec.mutated:
            return []
        if spec.mutated == ("all",):
            return [i for i, v in enumerate(inputs) if v.storage]
        storages: set[int] = set()
        for where in spec.mutated:
            for n in nodes_in(argument_at(node, where)):
                written = [v for v in flat_values(self.values.get(n)) if v.storage]
                storages.update(v.storage for v in (*written, *self.shadows_of(written)) if v.storage)
        return [i for i, v in enumerate(inputs) if v.storage in storages]

    def _aliases(self, results: list[Value], inputs: list[Value]) -> list[int] | None:
        """Indexed by result: the position of the operand with the same storage, or -1. None if all results are new.

        A storage that is older than the node, but is not that of an operand, joins the operands.
        """
        first: dict[int, int] = {}
        for i, v in enumerate(inputs):
            if v.storage:
                first.setdefault(v.storage, i)
        views, any_alias = [], False
        for v in results:
            i = first.get(v.storage, -1) if v.storage else -1
            if i < 0 and v.storage in self.owner:
                i = first[v.storage] = len(inputs)
                inputs.append(self.owner[v.storage])
            any_alias |= i >= 0
            views.append(i)
        return views if any_alias else None

    def _cost(
        self,
        parts: Sequence[fx.Node],
        spec: operators.Spec,
        inputs: list[Value],
        results: list[Value],
        views: list[int] | None,
        mutated: list[int],
    ) -> str:
        """The user's estimate. Without one, views are free, and all else costs its operations and bytes."""
        free = views is not None and not mutated and -1 not in views
        ns = self.estimated_ns(parts)
        if ns is not None and (ns or not free):
            return cost_attribute(None, None, ns)
        if free:
            return ""
        node = parts[-1]
        if spec.is_wait:
            return FREE
        if node in self.shares:
            return cost_attribute(None, self.shares[node], None) if self.shares[node] else FREE
        tensors = [v for v in inputs if v.storage]
        if not tensors and not any(v.storage for v in results):
            return FREE
        if spec.op in flops.UNTOUCHED:
            return FREE
        written = sum(v.bytes for i, v in enumerate(results) if views is None or views[i] < 0)
        written += sum(inputs[i].bytes for i in mutated)
        if spec.op in flops.OVERWRITING:  # The old value is not read.
            tensors = tensors[1:]
        if spec.op in flops.GATHERING and tensors:
            read = sum(v.traffic for v in tensors[1:]) + min(tensors[0].traffic, written)
        elif spec.op in flops.SUMMING_ROWS and len(tensors) > 1:
            rows, row = math.prod(tensors[1].shape), tensors[0].bytes // max(1, tensors[0].shape[0])
            read = sum(v.traffic for v in tensors[1:]) + min(tensors[0].traffic, rows * row)
        else:
            read = sum(v.traffic for v in tensors)
        count = 0
        if flops.has_formula(spec.packet, spec.op):
            count = flops.node_flops(spec.packet, spec.op, self._argument_shapes(node), node)
        return cost_attribute(count, read + written, None)

    def estimated_ns(self, nodes: Iterable[fx.Node]) -> int | None:
        """The user's estimate of the nodes together. None if the user has none."""
        if self.estimation is None:
            return None
        said = [ms for n in nodes if (ms := self.estimation(n)) is not None]
        return to_ns(sum(said)) if said else None

    def _argument_shapes(self, node: fx.Node) -> list[tuple[int, ...]]:
        """Shapes of the tensors among the positional arguments. An argument that comes twice counts twice."""
        values = [self.values.get(a) for a in node.args if isinstance(a, fx.Node)]
        return [v.shape for v in values if type(v) is Value and v.storage]

    def element(self, node: fx.Node) -> None:
        """Imports an element of a list or a dictionary. It becomes an operation only if the user says that it takes
        time.
        """
        source, index = node.args
        value = self.values.get(source)
        if (
            isinstance(value, list)
            and isinstance(index, int)
            and index < len(value)
            or (isinstance(value, dict) and index in value)
        ):
            value = self.values[node] = value[index]
            if type(value) is Value and value.storage and not value.waitable and self.estimated_ns([node]):
                self.compute(node, operators.Spec(operator.getitem))
        elif value is not None:
            self.compute(node, operators.Spec(operator.getitem))


def _device_change(val: Any, inputs: list[Value], node: fx.Node) -> str:
    """The suffix for the name of a copy to another device: a kernel cannot take it in, unlike a cast."""
    if isinstance(val, torch.Tensor) and len(inputs) == 1 and node.args and isinstance(node.args[0], fx.Node):
        source = node.args[0].meta.get("val")
        if isinstance(source, torch.Tensor) and source.device != val.device:
            return f"@{val.device}"
    return ""


def _result_types(results: list[Value]) -> str:
    if len(results) == 1:
        return results[0].type
    return f"({', '.join([v.type for v in results])})"
