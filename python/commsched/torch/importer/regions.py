# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Regions as the importer prints them: what Inductor fuses into one kernel is one operation (`fusion`)."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.fx as fx

from ..semantics import operators
from .computes import ComputeImports
from .facts import Facts, is_element
from .fusion import Region, find_regions, in_levels, shares
from .mlir_text import FREE, cost_attribute


class RegionImports(ComputeImports):
    """The part of the importer for regions: what Inductor is going to fuse into one kernel."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # Indexed by node: the region that it is in.
        self.regions: dict[fx.Node, Region] = {}
        # The nodes outside of regions that have become operations.
        self.emitted: set[fx.Node] = set()

    def find_regions(self, packed: set[fx.Node], merged: bool) -> None:
        """Finds the regions of the graph, and the share that each node has in the work of its region.

        A region is moved as a whole. So a node whose order shows, or that uses memory that is written, is in none.
        Nodes with a user's estimate and nodes without one are not in the same region: what the user says is all that
        such a region costs.

        Args:
            packed: nodes of packs, which are in no region.
            merged: a region becomes one operation, at a place of the graph's order.
        """

        if not merged and self._is_all_estimated():
            return  # Nothing costs what its bytes say.
        facts, written, of = Facts(), self.aliases.written(), self.aliases.of

        def kind(node: fx.Node) -> bool | None:
            fact = facts[node]
            if node in packed or fact.is_free and self.estimated_ns([node]):
                return None
            if node.target is operator.getitem:
                return False
            spec = operators.spec_of(node)
            if spec.ordered or spec.mutated or spec.hybrid or spec.start or spec.is_wait:
                return None
            if written and not all(written.isdisjoint(of(n)) for n in (node, *fact.inputs)):
                return None
            return self._is_estimated(node)

        regions = find_regions(list(self.graph.nodes) if merged else in_levels(self.graph, facts), kind, facts)
        self.shares = shares(regions, self.graph, facts)
        self.regions = regions if merged else {}
        if merged and not self.split_rules:
            self.without_memory = {n for n in self.graph.nodes if self._is_repeated(n, facts, written)}

    def _is_repeated(self, node: fx.Node, facts: Facts, written: set[int]) -> bool:
        """Whether a node is a constant that every reader makes anew, a scatter included: it starts from a constant."""
        return (
            facts.is_made_in_place(node)
            and written.isdisjoint(self.aliases.of(node))
            and all(facts.loops(u) and not facts[u].is_free for u in node.users)
        )

    def _is_all_estimated(self) -> bool:
        """Whether the user says something of every call that may be part of a kernel."""
        if self.estimation is None:
            return False
        calls = [n for n in self.graph.nodes if n.op == "call_function" and n.target is not operator.getitem]
        return all(operators.spec_of(n).start is not None or self._is_estimated(n) for n in calls)

    def _is_estimated(self, node: fx.Node) -> bool:
        """Whether the user says something of a node, or of an element of its results."""
        if self.estimation is None:
            return False
        elements = [] if isinstance(node.meta.get("val"), torch.Tensor) else filter(is_element, node.users)
        return self.estimated_ns([node, *elements]) is not None

    def regions_before(self, node: fx.Node) -> None:
        """Emits the operations of the regions that `node` reads, and of what these read.

        A region may read a loop that is in no region and comes later in the graph's order. Such a loop is emitted
        before its turn.
        """
        stack = list(self._missing(node.all_input_nodes))
        while stack:
            unit = stack[-1]
            members = unit.members if isinstance(unit, Region) else [unit]
            pending = [m for n in members for m in self._missing(n.all_input_nodes) if m is not unit]
            if pending:
                stack.extend(pending)
                continue
            stack.pop()
            if isinstance(unit, Region):
                if not unit.done:
                    unit.done = True
                    self._region(unit)
            elif unit not in self.emitted:
                self.emitted.add(unit)
                self.call(unit)

    def _missing(self, nodes: Iterable[fx.Node]) -> Iterator[Region | fx.Node]:
        """The regions of some nodes, or the nodes themselves if they are in none, that have not been emitted."""
        for node in nodes:
            region = self.regions.get(node)
            if region is None and node not in self.emitted:
                yield node
            elif region is not None and not region.done:
                yield region

    def call(self, node: fx.Node) -> None:
        """Emits the operation of a call."""
        raise NotImplementedError

    def _region(self, region: Region) -> None:
        inside = set(region.members)
        sources = dict.fromkeys(n for m in region.members for n in m.all_input_nodes if n not in inside)
        inputs = self.operands(region.members[0], sources)
        count, first = len(region.results), region.computed[-1]
        ssa = self.printer.current = first.name
        results = [
            self.bind(n, f"%{ssa}#{i}" if count > 1 else f"%{ssa}", n.meta["val"]) for i, n in enumerate(region.results)
        ]
        types = results[0].type if count == 1 else f"({', '.join(v.type for v in results)})"
        attrs = [f"comm.cost = {self._region_cost(region)}"]
        self.printer.operation(
            ssa,
            count,
            'comm.compute "fused"',
            f"({', '.join(v.ssa for v in inputs)})",
            "",
            attrs,
            f"({', '.join(v.type for v in inputs)}) -> {types}",
            [n.name for n in region.members],
        )
        self.values.update(zip(region.results, results))
        self.own(results)
        for view in region.views:
            if view.target is operator.getitem:
                self.element(view)
            else:
                self.compute(view, operators.spec_of(view))

    def _region_cost(self, region: Region) -> str:
        """The cost of one launch that moves what enters and what leaves; or the sum of the user's estimates.

        The estimates of views that are needed outside are those of their own operations.
        """
        ns = self.estimated_ns([n for n in region.members if n not in region.views])
        if ns is not None and self._is_estimated(region.computed[0]):
            return cost_attribute(None, None, ns)
        moved = sum(self.shares[n] for n in region.computed)
        return cost_attribute(None, moved, None) if moved else FREE
