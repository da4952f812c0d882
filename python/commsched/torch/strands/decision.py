# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Decides whether a graph is split into strands, and splits it.

comm-split-strands chooses a split in a module of single operations. The graph is split if the schedule of the split
graph, with the kernels that Inductor is going to fuse, is faster than that of the graph as it is, under the same limit.
Copies of the graph are scheduled to find out, so a refusal leaves the graph as it was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch.fx as fx

from ..importer.state import SplitRules
from ..options import Options, option_value
from ..ranks.agreement import shape_of, symbolic
from ..reporting import Unscheduled, log, strict
from ..solving import FUNCTION, imported
from .axes import draws_nothing, split_axes
from .recipe import Recipe, RecipeError, read_recipe
from .rewrite import split_nodes

Run = Callable[[fx.Graph, Options], dict]
PASS = "comm-split-strands"
RULES = SplitRules(split_axes, draws_nothing)
# Indexed by program: the program that splitting makes of it. None: it is not split.
_decided: dict[str, str | None] = {}


class Refused(Exception):
    """The graph is not split. The text says why, and `numbers` goes into the report."""

    def __init__(self, reason: str, **numbers: Any):
        super().__init__(reason)
        self.numbers = numbers


def in_strands(graph: fx.Graph, options: Options, run: Run) -> tuple[dict, Options]:
    """Splits `graph` in place if that makes its schedule faster.

    Args:
        run: what schedules a graph in place and returns its report.

    Returns:
        What the report says about strands, {} if the options leave them off; and the options with which the graph is to
        be scheduled: a split graph keeps the limit of the graph as it was.
    """
    if options.strands == "off":
        return {}, options
    try:
        recipe, numbers, options = _decided_split(graph, options, run)
        split_nodes(graph, recipe, {n.name: n for n in graph.nodes})
    except Refused as refusal:
        log.info("not split into strands: %s", refusal)
        return {"strands": {"parts": 1, "reason": str(refusal), **refusal.numbers}}, options
    return {"strands": numbers}, options


def _decided_split(graph: fx.Graph, options: Options, run: Run) -> tuple[Recipe, dict, Options]:
    """The split of a graph, what the report says of it, and the options with its limit.

    A program that was left whole once stays whole: all ranks and all graphs of a program have to issue the same
    collectives. One that was split has to become the same program again.

    Raises:
        Refused: the graph is not split.
    """
    if symbolic(graph):
        raise Refused("an input has a size that is a symbol")
    program = shape_of(graph, options).program()
    if _decided.get(program, program) is None:
        raise Refused("an earlier graph of this program was not split")
    try:
        recipe = recipe_of(graph, options)
        candidate = copied(graph, recipe)
        after = shape_of(candidate, options).program()
        if _decided.get(program, after) != after:
            raise Refused("an earlier graph of this program was split in another way")
        numbers, limit = _compare(graph, candidate, recipe, options, run)
    except Refused:
        _decided.setdefault(program, None)
        raise
    _decided[program] = after
    return recipe, numbers, limit


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
        module.run(options, lambda machine, _: passes or pipeline_of(options, machine))
        recipe = read_recipe(before, module.program.dataflow()[FUNCTION])
    except (Unscheduled, RecipeError) as error:
        raise Refused(str(error)) from error
    if recipe is None:
        raise Refused(_reason(module.program.messages()))
    return recipe


def pipeline_of(options: Options, machine: str | None = None) -> str:
    """The pass for these options. It merges nothing: parts must keep their names."""
    most = {} if options.strands == "auto" else {"max-strands": options.strands}
    given: dict[str, Any] = {
        "machine": option_value(machine or options.machine),
        "bucketing": "false",
        "collective-order": options.collective_order,
        **most,
        "memory-budget-ratio": options.memory_budget_ratio,
        "memory-limit-bytes": options.memory_limit_bytes,
        "effort": options.effort,
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
