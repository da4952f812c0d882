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
from collections.abc import Callable
from typing import Any

import torch.fx as fx

from ..importer.state import SplitRules
from ..options import Options, option_value
from ..ranks.agreement import shape_of, symbolic
from ..ranks.consensus import first_of
from ..reporting import Unscheduled, log, strict
from ..solving import FUNCTION, imported
from .axes import draws_nothing, split_axes
from .recipe import Recipe, RecipeError, read_recipe, recipe_for
from .rewrite import split_nodes

Run = Callable[[fx.Graph, Options], dict]
PASS = "comm-split-strands"
RULES = SplitRules(split_axes, draws_nothing)
# The decision not to split.
WHOLE: dict[str, Any] = {"parts": 1}
OTHER = "an earlier graph, or that of another rank,"
# Indexed by program: what was decided, as `Recipe.portable`.
_decided: dict[str, dict[str, Any]] = {}


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

    All ranks and all graphs of a program have to issue the same collectives. So the first graph of a program decides,
    and the first rank, which leaves its decision in the store of the process groups (`consensus`).

    Raises:
        Refused: the graph is not split.
    """
    program = _program(graph, options)
    question = f"strands/{program}"
    known = _decided.get(program) or first_of(question, None)
    if known is None:
        refusal, found = None, None
        try:
            found = _found(graph, options, run)
        except Refused as error:
            refusal = error
        mine = WHOLE if found is None else found[0].portable()
        known = first_of(question, mine)
        _decided[program] = known
        if known == mine:
            if found is None:
                raise refusal or Refused("")
            return found
    _decided[program] = known
    return _imposed(graph, known), {"parts": known["parts"], "nodes": len(known["nodes"]), "decided_by": OTHER}, options


def _program(graph: fx.Graph, options: Options) -> str:
    """A hash of the nodes of a graph and its collectives, without sizes. All ranks that run the program have it."""
    lines = [shape_of(graph, options).structure(), *(f"{n.op} {n.name} {n.target}" for n in graph.nodes)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


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
    """The split that was decided before.

    Raises:
        Refused: the graph was not to be split, or its sizes do not allow it.
    """
    if known == WHOLE:
        raise Refused(f"{OTHER} of this program was not split")
    try:
        recipe = recipe_for(graph, known)
    except RecipeError as error:
        raise Refused(f"{OTHER} was split otherwise: {error}") from error
    copied(graph, recipe)
    return recipe


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
