# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Reads off a module what comm-split-strands has split: which nodes, along which dimensions, and in which order.

Operations keep the names of their nodes, so a node that was split is one whose operations have parts of its sizes. The
dimensions follow from the sizes alone, before and after.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch.fx as fx

from ...program import Dataflow, DataflowOperation, Shape

# Operations on slices, joins and sums bear the name of the value that they cut, join or add to.
HELPERS = ("tensor.", "arith.", "linalg.")


class RecipeError(ValueError):
    """The module was changed in a way that has no counterpart in the graph."""


@dataclasses.dataclass(frozen=True)
class NodeSplit:
    """How one node is split.

    Args:
        operands: indexed by operand of its operation: the dimension, or None for an operand that all parts take whole.
        results: indexed by result: the dimension, or None for the sum of what the parts give.
        shapes: indexed by result: the sizes of a part.
    """

    operands: tuple[int | None, ...]
    results: tuple[int | None, ...]
    shapes: tuple[tuple[int, ...], ...]


@dataclasses.dataclass
class Recipe:
    """What was split.

    Args:
        parts: the number of strands.
        nodes: indexed by name of a node: how it is split.
        place: indexed by name and strand: the index of the operation that does that work. Whole nodes have strand 0.
    """

    parts: int
    nodes: dict[str, NodeSplit]
    place: dict[tuple[str, int], int]

    def portable(self) -> dict[str, Any]:
        """The recipe without sizes, for graphs of the same program on other ranks. JSON keeps it as it is."""
        return {
            "parts": self.parts,
            "nodes": {name: [list(split.operands), list(split.results)] for name, split in self.nodes.items()},
            "place": [[name, strand, at] for (name, strand), at in self.place.items()],
        }


def recipe_for(graph: fx.Graph, portable: dict[str, Any]) -> Recipe:
    """The recipe `portable` for the sizes of `graph`.

    Raises:
        RecipeError: the graph has no such nodes, or a size does not divide into the strands.
    """
    parts, by_name = portable["parts"], {n.name: n for n in graph.nodes}
    recipe = Recipe(parts, {}, {(name, strand): at for name, strand, at in portable["place"]})
    for name, (operands, results) in portable["nodes"].items():
        val = by_name[name].meta.get("val") if name in by_name else None
        wholes = [v for v in (val if isinstance(val, (list, tuple)) else [val]) if v is not None]
        if name in by_name and len(wholes) != len(results):
            raise RecipeError(f"{name} has {len(wholes)} results, and {len(results)} were split")
        shapes = []
        for whole, dim in zip(wholes, results):
            shape = list(whole.shape)
            if dim is None:
                shapes.append(tuple(shape))
                continue
            if dim >= len(shape) or type(shape[dim]) is not int or shape[dim] % parts:
                raise RecipeError(f"{name} does not divide into {parts} strands")
            shape[dim] //= parts
            shapes.append(tuple(shape))
        recipe.nodes[name] = NodeSplit(tuple(operands), tuple(results), tuple(shapes))
    return recipe


class _Function:
    """A function's operations by the names of their nodes, and the shapes of its values."""

    def __init__(self, dataflow: Dataflow):
        self.shape: dict[int, Shape] = dict(enumerate(dataflow.arguments))
        # Indexed by value: the strand whose part it is.
        self.strand: dict[int, int] = {}
        self.of_node: dict[str, list[tuple[int, DataflowOperation]]] = {}
        slices: dict[int, DataflowOperation] = {}
        for place, op in enumerate(dataflow.operations):
            self.shape.update(zip(op.results, op.shapes))
            if op.opcode == "tensor.extract_slice":
                slices[op.results[0]] = op
                self.strand[op.results[0]] = _strand_of_slice(op)
                continue
            source = slices.get(op.operands[0]) if op.operands else None
            is_copy = len(op.operands) == 1 and source is not None and source.names == op.names
            strands = {self.strand[v] for v in op.operands if v in self.strand}
            if op.opcode.startswith(HELPERS):
                continue
            if len(strands) > 1:
                raise RecipeError(f"an operation of {', '.join(op.names)} reads several strands")
            for strand in strands:
                self.strand.update(dict.fromkeys(op.results, strand))
            if not is_copy:
                for name in op.names:
                    self.of_node.setdefault(name, []).append((place, op))


def _strand_of_slice(op: DataflowOperation) -> int:
    """Strands are equal parts, so the offset tells the number."""
    shape = op.shapes[0]
    if shape is None:
        return 0
    return max((offset // size for offset, size in zip(op.offsets, shape) if size), default=0)


def read_recipe(before: Dataflow, after: Dataflow) -> Recipe | None:
    """What was split between two states of a function. None if nothing was. O(operations).

    Raises:
        RecipeError: the module was changed in another way.
    """
    old, new = _Function(before), _Function(after)
    recipe = Recipe(1, {}, {})
    for name, operations in old.of_node.items():
        found = new.of_node.get(name)
        if not found:
            raise RecipeError(f"{name} has no operation any more")
        if len(operations) == 1:
            # A view has parts, and may also be made of the joined parts of its source.
            parts = [(place, op) for place, op in found if op.shapes != operations[0][1].shapes]
            found = parts or found
        if len(found) == len(operations) and all(a.shapes == b.shapes for (_, a), (_, b) in zip(operations, found)):
            for strand, (place, _) in enumerate(found):
                recipe.place[name, strand] = place
            continue
        if len(operations) != 1 or len(found) < 2 or len(operations[0][1].names) != 1:
            raise RecipeError(f"{name} is not one operation")
        _read_node(name, operations[0][1], found, old, new, recipe)
    return recipe if recipe.nodes else None


def _read_node(
    name: str,
    whole: DataflowOperation,
    parts: list[tuple[int, DataflowOperation]],
    old: _Function,
    new: _Function,
    recipe: Recipe,
) -> None:
    if recipe.parts not in (1, len(parts)):
        raise RecipeError(f"{name} is in {len(parts)} strands, and others in {recipe.parts}")
    recipe.parts = len(parts)
    splits = set()
    for number, (place, part) in enumerate(parts):
        operands = tuple(
            _cut(old.shape[a], new.shape[b], recipe.parts, name) for a, b in zip(whole.operands, part.operands)
        )
        results = tuple(_cut(a, b, recipe.parts, name) for a, b in zip(whole.shapes, part.shapes))
        shapes = tuple(shape for shape in part.shapes if shape is not None)
        splits.add(NodeSplit(operands, results, shapes))
        strand = next((new.strand[v] for v in part.operands if v in new.strand), number)
        if (name, strand) in recipe.place:
            raise RecipeError(f"{name} has two parts in strand {strand}")
        recipe.place[name, strand] = place
    split = splits.pop()
    if splits or len(split.shapes) != len(whole.results):
        raise RecipeError(f"the parts of {name} differ")
    recipe.nodes[name] = split


def _cut(whole: Shape, part: Shape, parts: int, name: str) -> int | None:
    """The dimension in which a part is smaller. None if it is as large as the whole."""
    if whole == part:
        return None
    if whole is not None and part is not None and len(whole) == len(part):
        differ = [d for d, (a, b) in enumerate(zip(whole, part)) if a != b]
        if len(differ) == 1 and whole[differ[0]] == parts * part[differ[0]]:
            return differ[0]
    raise RecipeError(f"a part of {name} has the sizes {part}, of {whole} in {parts} strands")
