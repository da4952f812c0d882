# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which nodes of a graph hold the values of the module that was imported from it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch.fx as fx

from ...program import Dataflow
from .graph import Importer
from .values import Value

_LEFT = re.compile(r"\s*%(\S+?)(?::(\d+))? = ")
# A node, and the place of a value in the list that it gives; None if the node gives the value itself.
Holder = tuple[fx.Node, "int | None"]


def holders_of(importer: Importer, flow: Dataflow) -> dict[int, list[Holder]]:
    """Indexed by value of the module: the nodes that hold it, in the order of the graph.

    Values that belong to no node, such as that of a wait that the importer added, have none.

    Args:
        flow: the module as it was imported.

    Raises:
        ValueError: the module is another one.
    """
    by_name: dict[str, list[Holder]] = {}
    for node, result in importer.values.items():
        for name, place in _named(result):
            by_name.setdefault(name, []).append((node, place))
    held = {}
    for number, name in enumerate(argument.split(":")[0] for argument in importer.printer.arguments):
        held[number] = by_name.get(name, [])
    if len(importer.printer.lines) != len(flow.operations) + 1:  # The last line is the return.
        raise ValueError("the module is not the one that was imported")
    for line, operation in zip(importer.printer.lines, flow.operations):
        left = _LEFT.match(line)
        for i, number in enumerate(operation.results):
            assert left is not None, line
            held[number] = by_name.get(f"%{left[1]}" if left[2] is None else f"%{left[1]}#{i}", [])
    return held


def _named(result: Any) -> Iterator[tuple[str, int | None]]:
    """The names of the values of a node's result, each with its place in a list."""
    if isinstance(result, Value):
        yield result.ssa, None
    elif isinstance(result, list):
        for i, value in enumerate(result):
            if isinstance(value, Value):
                yield value.ssa, i
