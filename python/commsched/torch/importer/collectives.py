# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Collectives and waits as the importer prints them."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.fx as fx

from ..options import to_ns
from ..semantics import operators
from ..semantics.effects import read_until
from ..semantics.operators import nodes_in, storage_of
from .computes import ComputeImports
from .mlir_text import FREE, cost_attribute
from .state import Result
from .values import Value, flat_values


class CollectiveImports(ComputeImports):
    """The part of the importer for collectives."""

    def start(self, node: fx.Node, spec: operators.Spec) -> bool:
        """Emits a start. Returns False if the dialect has no such collective, which is then opaque."""
        c = spec.collective
        clause = self._splits(node, spec) if c.kind == "all_to_all" else clauses(node, spec)
        if clause is None or isinstance(node.args[0], torch.fx.Node) and self.values.get(node.args[0]) is None:
            return False
        first = node.args[0]
        inputs = self.operands(node, nodes_in(first))
        dests = []
        if c.in_place:
            dests = inputs
        elif c.out:
            dests = self.operands(node, nodes_in(operators.argument(node, spec, "out")))
        shadows = self.shadows_of([*inputs, *dests])
        if any(not v.shape for v in inputs) and c.kind in ("all_gather", "reduce_scatter", "all_to_all"):
            return False
        if not (c.in_place or c.out):
            if "%" not in clause[1]:  # Otherwise its splits read the numbers.
                inputs = self._after_scalars(node, inputs)
        if shadows:
            inputs = [self.view_beside(inputs[0], shadows, "given", bool(dests)), *inputs[1:]]
            dests = inputs if c.in_place else dests
            self.shadowed[f"%{node.name}"] = shadows, bool(dests)
        val = node.meta.get("val")
        result = self.bind(node, f"%{node.name}", val)
        results = [] if c.kind == "send" else flat_values(result) if isinstance(result, list) else [result]
        types = ", ".join(v.type for v in results)
        future = f"!comm.future<{types}>"
        into = f" into {', '.join(v.ssa for v in dests)}" if dests else ""
        signature = f"({', '.join(v.type for v in inputs)})"
        if c.kind == "recv":
            signature = "()"
        prefix, suffix = clause
        names = "" if c.kind == "recv" else " " + ", ".join(v.ssa for v in inputs)
        attrs = []
        self._sample(node, spec, inputs, results)
        if self.estimation is not None:
            ms = self.estimation(node)
            if ms is not None:
                attrs.append(f"comm.cost = {cost_attribute(None, None, to_ns(ms))}")
        if any(v.dynamic for v in results):
            attrs.append(f"comm.bytes_hint = array<i64: {sum(v.bytes for v in results)}>")
        if node.name in self.apart:  # A unit of its own can be moved, but is not merged.
            attrs.append(f"comm.unit = {self.number()} : i64")
        self.printer.operation(
            node.name,
            1,
            f"comm.{c.kind}{prefix}",
            f"{names}{into} on {self.groups.group(node, spec)}",
            suffix,
            attrs,
            f"{signature} -> {future}",
            node.name,
        )
        self._fly(node, result, inputs, dests, future, c)
        return True

    def _after_scalars(self, node: fx.Node, inputs: list[Value]) -> list[Value]:
        """The inputs, the first one through a free view that also reads the numbers that the node takes.

        The numbers are sizes that only the run time knows. A start has no operands for them, but it must come after
        them.
        """
        scalars = [v for n in node.all_input_nodes if type(v := self.values.get(n)) is Value and not v.storage]
        if not scalars or not inputs:
            return inputs
        return [self.view_beside(inputs[0], scalars, "sized"), *inputs[1:]]

    def _fly(
        self,
        node: fx.Node,
        result: Result,
        inputs: list[Value],
        dests: list[Value],
        future: str,
        c: operators.Collective,
    ) -> None:
        """Remembers the future under the storages of its results.

        In place, these are the storages of the destinations. What is sent keeps its own storage.
        """
        values = flat_values(result) if isinstance(result, list) else [result]
        for v, d in zip(values, inputs if c.kind == "send" else dests):
            self.canonical[v.storage] = v.storage = d.storage
        entry = (f"%{node.name}", future, values if c.kind != "send" else [])
        for v in values:
            v.waitable = True
            self.in_flight[v.storage] = entry
            self.waited.pop(v.storage, None)
            self.landed.discard(v.storage)
        self.values[node] = result

    def exchanges(self) -> list[tuple[torch.Tensor, list]]:
        """The input of each all-to-all, and its splits in both directions."""
        found = []
        for node in self.graph.nodes:
            if (
                node.op == "call_function"
                and (spec := operators.spec_of(node)).start is not None
                and spec.start.kind == "all_to_all"
            ):
                splits = [
                    s
                    for a in ("input_split_sizes", "output_split_sizes")
                    for s in operators.argument(node, spec, a, ())
                ]
                splits = [s.meta.get("val") if isinstance(s, fx.Node) else s for s in splits]
                found.append((node.args[0].meta["val"], splits))
        return found

    def _splits(self, node: fx.Node, spec: operators.Spec) -> tuple[str, str] | None:
        """The clause for the pieces of an all-to-all: constants, or numbers that only the run time knows.

        None if the pieces do not fit the sizes of the input and the result.
        """
        given, result = node.args[0].meta["val"], node.meta["val"]
        ranks = len(operators.group_of(node, spec)[1])
        lists = [list(operators.argument(node, spec, a, ())) for a in ("input_split_sizes", "output_split_sizes")]
        known = [s for s in (*lists[0], *lists[1]) if type(s) is int]
        static = type(given.shape[0]) is int and type(result.shape[0]) is int if given.dim() else True
        equal = len(known) == len(lists[0]) + len(lists[1]) and len(set(known)) <= 1
        if equal and (not static or given.shape == result.shape and given.shape[0] % ranks == 0):
            return "", ""
        if any(len(x) != ranks for x in lists) or given.shape[1:] != result.shape[1:]:
            return None
        for pieces, val in zip(lists, (given, result)):
            if all(type(s) is int for s in pieces) and type(val.shape[0]) is int and sum(pieces) != val.shape[0]:
                return None
        printed = [[self._split(s) for s in pieces] for pieces in lists]
        given_to, taken_from = ([s for s in pieces if s is not None] for pieces in printed)
        if [len(given_to), len(taken_from)] != [len(pieces) for pieces in printed]:
            return None
        return "", f" input_splits [{', '.join(given_to)}] output_splits [{', '.join(taken_from)}]"

    def _split(self, s: Any) -> str | None:
        """One split as it is printed: a constant, or an index made from a node's number. None if that has no value."""
        if not isinstance(s, fx.Node):
            return str(int(s)) if isinstance(s, int) else None
        value = self.values.get(s)
        if not isinstance(value, Value) or value.type != "i64":
            return None
        known = self.indices.get(value.ssa)
        if known is None:
            known = self.indices[value.ssa] = f"%commsched_index_{self.number()}"
            self.printer.operation(
                known[1:],
                1,
                'comm.compute "commsched.index"',
                f"({value.ssa})",
                "",
                [f"comm.cost = {FREE}"],
                "(i64) -> index",
                known[1:],
            )
        return known

    def _sample(self, node: fx.Node, spec: operators.Spec, inputs: list[Value], results: list[Value]) -> None:
        """Notes the node as one to ask for estimates, and to measure. A list counts with all of its bytes."""
        elements = {v.type[v.type.rfind("x") + 1 : -1].removeprefix("tensor<") for v in inputs}
        if len(elements) == 1:
            element = elements.pop()
            size = max(sum(v.bytes for v in inputs), sum(v.bytes for v in results))
            self.samples.setdefault((spec.collective.kind, self.groups.group(node, spec), element), []).append(
                (node, size)
            )

    def wait_node(self, node: fx.Node) -> None:
        """Imports a wait. A wait for what another one has landed is a view of that.

        A view of what is in flight has landed: it reads a wait that was made for it.
        """
        source = self.values.get(node.args[0])
        val = node.meta.get("val")
        if isinstance(source, Value) and (
            source.storage in self.landed or not source.waitable and source.storage in self.waited
        ):
            self.canonical[storage_of(val)] = source.storage
            self.compute(node, operators.spec_of(node))
            return
        if not isinstance(source, Value) or (pending := self.in_flight.get(source.storage)) is None:
            self._wait_for_opaque(node, source)
            return
        future, type_, values = pending
        self.canonical[storage_of(val)] = source.storage
        self.values[node] = self.wait(f"%{node.name}", future, type_, source.storage, node.name)
        self.landed.add(source.storage)

    def _wait_for_opaque(self, node: fx.Node, source: Result) -> None:
        """Imports a wait for what an opaque operator started. The storage may be written until here, and the
        operator's operands may be read.
        """
        spec, sources = operators.spec_of(node), None
        if isinstance(source, Value) and source.storage:
            self.canonical[storage_of(node.meta["val"])] = source.storage
            self.landed.add(source.storage)
            spec = copy.copy(spec)
            spec.mutated = (0,)
            sources = read_until(node)
        self.compute(node, spec, sources)

    def shard_dim_all_to_all(self, node: fx.Node, spec: operators.Spec) -> bool:
        """Emits a start and its wait under one name: the operator waits for itself."""
        inputs = self.operands(node, [node.args[0]])
        gather, shard = (operators.argument(node, spec, a) for a in ("gather_dim", "shard_dim"))
        result = self.bind(node, f"%{node.name}", node.meta["val"])
        future = f"!comm.future<{result.type}>"
        start = f"commsched_start_{self.number()}"
        hints = [f"comm.bytes_hint = array<i64: {result.bytes}>"] if result.dynamic else []
        self.printer.operation(
            start,
            1,
            "comm.all_to_all",
            f" {inputs[0].ssa} on {self.groups.group(node, spec)}",
            f" split {shard} concat {gather}",
            hints,
            f"({inputs[0].type}) -> {future}",
            node.name,
        )
        self.printer.operation(node.name, 1, "comm.wait", f" %{start}", "", hints, future, node.name)
        self.values[node] = result
        self.own([result])
        return True


def clauses(node: fx.Node, spec: operators.Spec) -> tuple[str, str] | None:
    """The text before the inputs and the text after the group. None if the dialect cannot say it.

    An all-to-all has none: its clause needs values.
    """
    kind = spec.collective.kind
    if kind in ("all_reduce", "reduce_scatter"):
        reduction = operators.REDUCTIONS.get(str(operators.argument(node, spec, "reduce_op")).lower())
        return None if reduction is None else (f" {reduction}", "")
    if kind in ("broadcast", "send", "recv"):
        _, ranks, _ = operators.group_of(node, spec)
        peer = operators.argument(node, spec, {"broadcast": "src", "send": "dst", "recv": "src"}[kind])
        if not isinstance(peer, int) or not 0 <= peer < len(ranks):
            if peer not in ranks:
                return None
            peer = ranks.index(peer)
        if kind == "broadcast":
            return "", f" root {peer}"
        tag = operators.argument(node, spec, "tag", 0)
        return "", f" peer {peer}" + (f" tag {tag}" if tag else "")
    return "", ""
