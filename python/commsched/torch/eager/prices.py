# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Prices of operators that run eagerly, one kernel after the other, by the model of `schedule_overlap`.

Operators with equal operands have one price. Each kind becomes one node of a graph, which the importer turns into a
module, and the library writes the time of every operation into it.
"""

from __future__ import annotations

import operator
import re
from typing import Any

import torch
import torch.fx as fx
from torch.utils._pytree import tree_flatten, tree_map

from ...program import Program
from ..importer.export import import_graph, import_program
from ..importer.mlir_text import Printer
from ..options import option_value
from ..semantics.operators import spec_of
from ..stages import ALIGN_COSTS
from .timing import measured

_ALIGNMENT = 16  # The copy of a storage can be viewed as any element type.
_TIME = re.compile(r"#comm\.cost<[^>]*time = (\d+)")


class Prices:
    """Collects kinds of operators while a step is traced, and prices them afterwards."""

    def __init__(self) -> None:
        self._graph = fx.Graph()
        # Indexed by kind: the number of its node.
        self._kinds: dict[Any, int] = {}
        self._nodes: list[fx.Node] = []

    def kind(self, func: Any, args: tuple, kwargs: dict[str, Any], result: Any) -> int:
        """The number of the kind of a call, under a `FakeTensorMode`."""
        key = (func, _described((args, kwargs)), _described(result))
        known = self._kinds.get(key)
        if known is None:
            known = self._kinds[key] = len(self._nodes)
            self._nodes.append(self._noted(func, args, kwargs, result))
        return known

    def _noted(self, func: Any, args: tuple, kwargs: dict[str, Any], result: Any) -> fx.Node:
        """A node for the call, with copies of its fake tensors, so that no storage of the step stays alive."""
        copy = _Copies()
        made: dict[int, fx.Node] = {}

        def placed(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            if id(value) not in made:
                node = made[id(value)] = self._graph.placeholder(f"operand_{len(self._graph.nodes)}")
                node.meta["val"] = copy(value)
            return made[id(value)]

        new_args, new_kwargs = tree_map(placed, args), tree_map(placed, kwargs)
        node = self._graph.call_function(func, new_args, new_kwargs)
        node.meta["val"] = tree_map(lambda v: copy(v) if isinstance(v, torch.Tensor) else v, result)
        return node

    def times(self, machine: Any) -> list[int]:
        """Indexed by kind: the time of one call, ns. That of a collective is until it has ended."""
        if not self._nodes:
            return []
        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        for op in ("placeholder", "call_function"):
            for node in self._graph.nodes:
                if node.op == op:
                    copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(())
        _, _, importer = import_program(graph, donated=(), fusion=False)
        program = Program(_with_collective(importer.printer), "prices")
        program.set_gather(lambda own: own, 1)
        program.run(f"{ALIGN_COSTS}{{machine={option_value(machine)}}}")
        index = {copies[node].name: i for i, node in enumerate(self._nodes)}
        times = [_collective_ns(node, machine) if _starts(node) else 0 for node in self._nodes]
        places = dict(re.findall(r'(#loc\d+) = loc\("([^"]*)"\)', text := program.print(locations=True)))
        for line in text.splitlines():
            cost, place = _TIME.search(line), re.search(r"loc\((#loc\d+)\)$", line)
            name = places.get(place[1]) if place else None
            if cost and name in index:
                times[index[name]] += int(cost[1])
        return times


def _starts(node: fx.Node) -> bool:
    return spec_of(node).start is not None


def _collective_ns(node: fx.Node, machine: Any) -> int:
    """The time from the start of a collective to its end."""
    graph = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    for operand in node.all_input_nodes:
        copied[operand] = graph.placeholder(operand.name)
        copied[operand].meta = dict(operand.meta)
    start = graph.node_copy(node, copied.__getitem__)
    value = start.meta["val"]
    many = isinstance(value, (list, tuple))
    parts = [(graph.call_function(operator.getitem, (start, i)), v) for i, v in enumerate(value)] if many else []
    for part, meta in parts:
        part.meta["val"] = meta
    for part, meta in parts or [(start, value)]:
        wait = graph.call_function(torch.ops._c10d_functional.wait_tensor.default, (part,))
        wait.meta["val"] = meta
    graph.output(())
    text, _ = import_graph(graph, donated=(), fusion=False)
    (report,) = measured(text, machine)
    return int(report["makespan_ns"]["after"])


def _with_collective(printer: Printer) -> str:
    """The module with a collective in its block: the library aligns no costs of others."""
    if printer.groups:
        return printer.text()
    printer.group("prices", [0, 1], 2)
    printer.argument("%price_shard", "tensor<1xf32>", "price_shard", None, False, None)
    start = "%price_future = comm.all_gather %price_shard on @prices : (tensor<1xf32>) -> !comm.future<tensor<2xf32>>"
    printer.lines.insert(0, f"    {start}")
    return printer.text()


def _described(tree: Any) -> Any:
    """What tells two calls apart, hashable."""
    leaves, spec = tree_flatten(tree)
    storages: dict[int, int] = {}

    def one(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            alias = storages.setdefault(leaf.untyped_storage()._cdata, len(storages))
            return leaf.dtype, tuple(map(str, leaf.shape)), tuple(map(str, leaf.stride())), alias
        return repr(leaf)

    return str(spec), tuple(one(leaf) for leaf in leaves)


class _Copies:
    """Copies fake tensors of one call. Tensors that share memory have copies that do."""

    def __init__(self) -> None:
        self._storages: dict[int, torch.Tensor] = {}

    def __call__(self, t: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            storage = t.untyped_storage()
            base = self._storages.get(storage._cdata)
            if base is None:
                size = -(-int(storage.nbytes()) // _ALIGNMENT) * _ALIGNMENT
                base = self._storages[storage._cdata] = torch.empty(size, dtype=torch.uint8, device=t.device)
            return base.view(t.dtype).as_strided(t.shape, t.stride(), t.storage_offset())
