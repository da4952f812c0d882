# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Decides whether a graph is split into strands, and splits it.

comm-split-strands chooses a split in a module of single operations, each of which costs its share of the kernel that
Inductor is going to fuse it into. The graph is split if the schedule of the split graph, with these kernels, is faster
than that of the graph as it is, under the same limit.
Copies of the graph are scheduled to find out, so a refusal leaves the graph as it was.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx as fx

from ..importer.state import SplitRules
from ..options import Options, option_value
from ..ranks.agreement import shape_of, symbolic
from ..ranks.consensus import first_of
from ..ranks.weights import whole_parameters
from ..reporting import Unscheduled, log, strict
from ..semantics.operators import storage_of, subgraphs
from ..solving import FUNCTION, imported
from . import axes
from .recipe import Recipe, RecipeError, read_recipe, recipe_for
from .rewrite import split_nodes

Run = Callable[[fx.Graph, Options], dict]
PASS = "comm-split-strands"
RULES = SplitRules(axes.split_axes, axes.draws_nothing)
# The decision not to split.
WHOLE: dict[str, Any] = {"parts": 1}
OTHER = "an earlier graph, or that of another rank,"
# Indexed by program: what was decided, as `Recipe.portable`, with the memory limit in bytes of the graph as it was.
_decided: dict[str, dict[str, Any]] = {}


class Refused(Exception):
    """The graph is not split. The text says why, and `numbers` goes into the report."""

    def __init__(self, reason: str, **numbers: Any):
        super().__init__(reason)
        self.numbers = numbers


def in_strands(graph: fx.Graph, options: Options, run: Run) -> tuple[dict, Options, dict | None]:
    """Splits `graph` in place if that makes its schedule faster.

    Args:
        run: what schedules a graph in place and returns its report.

    Returns:
        What the report says about strands, {} if the options leave them off; the options with which the graph is to be
        scheduled: a split graph keeps the limit of the graph as it was; and the report of a graph that was split as it
        was given.
    """
    if options.strands == "off":
        return {}, options, None
    try:
        recipe, numbers, limited = _decided_split(graph, options, run)
        given = run(copied(graph), options.unchanged())
        split_nodes(graph, recipe, {n.name: n for n in graph.nodes})
    except Refused as refusal:
        log.info("not split into strands: %s", refusal)
        return {"strands": {"parts": 1, "reason": str(refusal), **refusal.numbers}}, options, None
    return {"strands": numbers}, limited, given


def _decided_split(graph: fx.Graph, options: Options, run: Run) -> tuple[Recipe, dict, Options]:
    """The split of a graph, what the report says of it, and the options with its limit.

    Equal graphs have to issue the same collectives on all ranks. So the first one decides, and the first rank, which
    leaves its decision in the store of the process groups (`consensus`). Everything that the decision says holds for
    the others: the limit, too, is that of the graph which was split.

    Raises:
        Refused: the graph is not split.
    """
    if whole_parameters().uneven:  # Their graphs differ, and with them what each would split.
        raise Refused("ranks have parts of a parameter that differ in size")
    program = program_of(graph, options)
    question = f"strands/{program}"
    known = _decided.get(program) or first_of(question, None)
    if known is None:
        refusal, found = None, None
        try:
            found = _found(graph, options, run)
        except Refused as error:
            refusal = error
        mine = WHOLE if found is None else {**found[0].portable(), "limit": found[2].memory_limit_bytes}
        known = first_of(question, mine)
        _decided[program] = known
        if known == mine:
            if found is None:
                raise refusal or Refused("")
            return found
    _decided[program] = known
    recipe = _imposed(graph, known)
    limited = dataclasses.replace(options, memory_limit_bytes=known["limit"])
    return recipe, {"parts": known["parts"], "nodes": len(known["nodes"]), "decided_by": OTHER}, limited


def program_of(graph: fx.Graph, options: Options) -> str:
    """A hash of everything that a split may depend on: the calls with all arguments, scalars included, and the sizes,
    strides and types of all values. Equal graphs have it in common on all ranks.
    """
    shape = shape_of(graph, options)
    groups = {name: number for number, name in enumerate(dict.fromkeys(shape.group))}
    text = "\n".join([shape.structure(), *_lines(graph, groups)])
    return hashlib.sha256(re.sub(" at 0x[0-9a-f]+", "", text).encode()).hexdigest()[:16]  # No addresses of objects.


def _lines(graph: fx.Graph, groups: dict[str, int]) -> Iterator[str]:
    """The nodes of a graph, and of the graphs that its calls take as arguments.

    Args:
        groups: the number of each process group by its name, which differs between ranks.
    """
    number: dict[int, int] = {}  # Indexed by storage: its number. Two arguments may be views of one tensor.

    def named(argument: Any) -> Any:
        return f"group {groups[argument]}" if isinstance(argument, str) and argument in groups else argument

    for node in graph.nodes:
        arguments = fx.node.map_aggregate((node.args, node.kwargs), named)
        yield f"{node.op} {node.name} {node.target} {arguments} {_described(node.meta.get('val'))}"
        if node.op == "placeholder" and isinstance(val := node.meta.get("val"), torch.Tensor):
            yield str(number.setdefault(storage_of(val), len(number)))
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            for inner in subgraphs(node):
                yield from _lines(inner, groups)


def _described(val: Any) -> str:
    if isinstance(val, torch.Tensor):
        strided = val.layout == torch.strided
        place = f"{tuple(val.stride())} {val.storage_offset()}" if strided else str(val.layout)
        return f"{tuple(val.shape)} {place} {val.dtype} {val.device}"
    if isinstance(val, (list, tuple)):
        return f"[{', '.join(map(_described, val))}]"
    return str(type(val))


def _found(graph: fx.Graph, options: Options, run: Run) -> tuple[Recipe, dict, Options]:
    """The best split of a graph, if it is faster than the graph as it is.

    Raises:
        Refused: the graph is not split.
    """
    if symbolic(graph):
        raise Refused("an input has a size that is a symbol")
    recipe = recipe_of(graph, options)
    return (recipe, *_compare(graph, copied(graph, recipe), recipe, options, run))


def _imposed(graph: fx.Graph, known: dict[str, Any]) -> Recipe:
    """The split that was decided before, if this graph allows it.

    Raises:
        Refused: the graph was not to be split, or it does not allow the split.
    """
    if known == WHOLE:
        raise Refused(f"{OTHER} of this program was not split")
    try:
        recipe = recipe_for(graph, known)
        _check_axes(graph, recipe)
    except RecipeError as error:
        raise Refused(f"{OTHER} was split otherwise: {error}") from error
    copied(graph, recipe)
    return recipe


def _check_axes(graph: fx.Graph, recipe: Recipe) -> None:
    """Asks the rules whether the calls of this graph, with their own scalars, divide as the recipe says.

    Raises:
        RecipeError: one of them does not.
    """
    for node in graph.nodes:
        split = recipe.nodes.get(node.name)
        if split is None:
            continue
        operands = [_sizes(n.meta.get("val")) for n in node.all_input_nodes]
        results = [_sizes(v) for v in _flat(node.meta.get("val")) if v is not None]
        known = axes.split_axes(node, operands, results)
        wanted = [axes.WHOLE if d is None else d for d in split.operands]
        wanted += [axes.SUM if d is None else d for d in split.results]
        if known is not None and wanted not in [list(axis) for axis in known]:
            raise RecipeError(f"{node.name} does not divide along the dimensions {wanted}")


def _flat(val: Any) -> list[Any]:
    return list(val) if isinstance(val, (list, tuple)) else [val]


def _sizes(val: Any) -> tuple[int, ...]:
    return tuple(val.shape) if isinstance(val, torch.Tensor) else ()


def recipe_of(graph: fx.Graph, options: Options, passes: str = "") -> Recipe:
    """What comm-split-strands splits.

    Args:
        passes: a pipeline to run in place of the one for these options.

    Raises:
        Refused: nothing, or something that cannot be carried out.
    """
    try:
        module = imported(graph, options, fused=False, split_rules=RULES)
        before = module.program.dataflow()[FUNCTION]
        module.run(options, passes or pipeline_of(options))
        recipe = read_recipe(before, module.program.dataflow()[FUNCTION])
    except (Unscheduled, RecipeError) as error:
        raise Refused(str(error)) from error
    if recipe is None:
        raise Refused(_reason(module.program.messages()))
    return recipe


def pipeline_of(options: Options) -> str:
    """The pass for these options. It merges nothing: parts must keep their names."""
    most = {} if options.strands == "auto" else {"max-strands": options.strands}
    given: dict[str, Any] = {
        "machine": option_value(options.machine),
        "bucketing": "false",
        "collective-order": options.collective_order,
        **most,
        "memory-budget-ratio": options.memory_budget_ratio,
        "memory-limit-bytes": options.memory_limit_bytes,
        "effort": options.effort,
        "allow-reassociation": "true" if options.allow_reassociation else None,
    }
    return f"{PASS}{{{' '.join(f'{name}={value}' for name, value in given.items() if value is not None)}}}"


def _reason(messages: list) -> str:
    """What the pass says about a block that it leaves whole."""
    said = [m.text for m in messages if m.category == PASS and m.name == "strands"]
    return said[-1].split("not split: ")[-1] if said else "no collective carries a dimension that can be split"


def copied(graph: fx.Graph, recipe: Recipe | None = None) -> fx.Graph:
    """A copy of a graph, split if a recipe is given.

    Raises:
        Refused: the recipe cannot be carried out.
    """
    copy, made = fx.Graph(owning_module=graph.owning_module), dict[fx.Node, fx.Node]()
    returned = copy.graph_copy(graph, made)
    output = graph.output_node()
    copy.output(returned).meta.update(output.meta)
    if recipe is None:
        return copy
    try:
        split_nodes(copy, recipe, {n.name: m for n, m in made.items()})
    except RecipeError as error:
        raise Refused(str(error)) from error
    except Exception as error:  # A graph may hold what this rewrite does not know.
        if strict():
            raise
        raise Refused(f"{type(error).__name__}: {error}") from error
    return copy


def _compare(graph: fx.Graph, candidate: fx.Graph, recipe: Recipe, options: Options, run: Run) -> tuple[dict, Options]:
    """The numbers of the split, and the options with the limit of the graph as it is.

    Raises:
        Refused: the split graph is not faster, not within the limit, or cannot be scheduled.
    """
    try:
        whole = run(copied(graph), options)
        limit = dataclasses.replace(options, memory_limit_bytes=whole["peak_bytes"]["limit"])
        split = run(candidate, limit)
    except Unscheduled as error:
        raise Refused(str(error)) from error
    times = {"whole": whole["makespan_ns"]["after"], "split": split["makespan_ns"]["after"]}
    if times["split"] >= times["whole"]:
        raise Refused(f"the best split in {recipe.parts} strands is not faster", makespan_ns=times)
    if split["peak_bytes"]["after"] > limit.memory_limit_bytes:
        raise Refused(f"the best split in {recipe.parts} strands is above the memory limit", makespan_ns=times)
    return {"parts": recipe.parts, "nodes": len(recipe.nodes), "makespan_ns": times}, limit
