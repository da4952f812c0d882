# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Regions as the importer prints them: what Inductor fuses into one kernel is one operation (`fusion`)."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx as fx

from ..options import to_ns
from ..semantics import operators
from ..semantics.operators import bytes_of
from . import flops
from .computes import ComputeImports
from .fusion import Region, find_regions
from .mlir_text import FREE, cost_attribute
from .values import Value, flat_values


class RegionImports(ComputeImports):
    """The part of the importer for regions: what Inductor is going to fuse into one kernel."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # Indexed by node: the region that it is in.
        self.regions: dict[fx.Node, Region] = {}

    def find_regions(self, packed: set[fx.Node]) -> None:
        """Finds the regions of the graph.

        A region is moved as a whole. So a node whose order shows, or that uses memory that is written, is in none.
        """

        def stays_alone(node: fx.Node) -> bool:
            if node in packed:
                return True
            if node.target is operator.getitem:
                return False
            spec = operators.spec_of(node)
            if spec.ordered or spec.mutated or spec.hybrid or spec.start or spec.is_wait:
                return True
            return any(self.is_written(n) for n in (node, *node.all_input_nodes))

        self.regions = find_regions(self.graph, stays_alone)

    def regions_before(self, node: fx.Node) -> None:
        """Emits the operations of the regions that `node` reads."""
        stack = [r for n in node.all_input_nodes if (r := self.regions.get(n)) is not None and not r.done]
        while stack:
            region = stack[-1]
            pending = [
                r
                for m in region.members
                for n in m.all_input_nodes
                if (r := self.regions.get(n)) is not None and r is not region and not r.done
            ]
            if pending:
                stack.extend(pending)
                continue
            stack.pop()
            if not region.done:
                region.done = True
                self._region(region)

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
        attrs = [f"comm.cost = {self._region_cost(region, inside, results)}"]
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

    def _region_cost(self, region: Region, inside: set[fx.Node], results: list[Value]) -> str:
        """The cost of one launch that moves what enters and what leaves; or the sum of the user's estimates."""
        if self.estimation is not None:
            known = [ms for n in region.computed if (ms := self.estimation(n)) is not None]
            if known:
                return cost_attribute(None, None, to_ns(sum(known)))
        traffic: dict[str, int] = {}
        for node in region.members:
            gathers = node.target is not operator.getitem and operators.spec_of(node).op in flops.GATHERING
            for i, n in enumerate(node.all_input_nodes):
                for v in [] if n in inside else flat_values(self.values.get(n)):
                    moved = v.traffic
                    if gathers and i == 0:
                        moved = min(moved, _bytes_of_results(node))
                    traffic[v.ssa] = max(traffic.get(v.ssa, 0), moved)
        moved = sum(traffic.values()) + sum(v.bytes for v in results)
        return cost_attribute(None, moved, None) if moved else FREE


def _bytes_of_results(node: fx.Node) -> int:
    """Bytes of the tensors that a node gives."""
    leaves = torch.utils._pytree.tree_leaves(node.meta.get("val"))
    return sum(bytes_of(v) for v in leaves if isinstance(v, torch.Tensor))
