# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Passes that rewrite operations, and functions of a `Program`: from a graph to a module, and back to the graph."""

from __future__ import annotations

import dataclasses
import re

import torch.fx as fx

from ..program import Dataflow, Error, MessageKind, Program
from .apply.casts import LOSSY
from .apply.operands import apply_rewrites
from .apply.plan import Plan, PlanError, read_plan, wait_of
from .apply.rewrite import apply_plan
from .apply.rewrites import Rewrites, read_rewrites
from .apply.snapshot import Snapshot
from .importer.correspondence import holders_of
from .options import Options
from .ranks.agreement import sequence, starts_of
from .ranks.consensus import Decision
from .reporting import Unscheduled, strict
from .solving import FUNCTION, imported
from .stages import Function, name_of

# Marks of operations, in the text of a program, that operators of PyTorch do not have: sums in one shot, symmetric
# memory and streams. Passes that write them are refused by name, but functions may run any pass.
_MARKS = re.compile(r"comm\.all_reduce [^{\n]* (one_shot)\b|\b(comm\.symmetric|comm\.stream) =")


@dataclasses.dataclass
class Rewritten:
    """What a pass or function did to a graph.

    Args:
        row: the numbers for the report, with what the pass says that it left alone.
        decision: the order of the collectives, and which of them are merged, by their places in the graph before.
    """

    row: dict
    decision: Decision


def rewrite_graph(graph: fx.Graph, entry: str | Function, options: Options, fused: bool) -> Rewritten:
    """Runs a pass or a function over the module of a graph, and carries what it did out on the graph.

    The order of the module becomes that of the graph, and its merged collectives are merged.

    Raises:
        Unscheduled: the pass failed, or did something that an FX graph cannot hold. The graph is unchanged.
    """
    module = imported(graph, options, fused)
    given = module.program.dataflow()[FUNCTION]
    holders = holders_of(module.importer, given)
    program = _run(module.program, entry)
    snapshot, starts = Snapshot(graph), starts_of(graph)
    try:
        if not isinstance(entry, str) and (mark := _MARKS.search(program.print())):
            raise PlanError(f"an FX graph cannot hold {mark[1] or mark[2]}")
        changed = program.dataflow()[FUNCTION]
        plan = read_plan(graph, changed.operations)
        rewrites = read_rewrites(graph, given, changed, holders, _bucketed(plan), _is_lossy(entry))
        decision = sequence(starts, plan)
        apply_rewrites(graph, rewrites)
        if plan.buckets or _order(given) != _order(changed):
            apply_plan(graph, plan)
    except Exception as error:
        snapshot.restore()
        if not isinstance(error, (PlanError, KeyError)) and strict():
            raise
        raise Unscheduled(f"{name_of(entry)}: {_reason(error)}") from error
    return Rewritten(_row(entry, program, rewrites, plan), decision)


def _run(program: Program, entry: str | Function) -> Program:
    """Runs a pass or a function over a module, and returns the module that came of it."""
    try:
        if isinstance(entry, str):
            program.run(entry)
            return program
        result = entry(program)
        if result is None:
            return program
        if isinstance(result, str):
            return Program(result, name_of(entry))
    except Error as error:
        raise Unscheduled(f"{name_of(entry)}: {error}") from error
    except Exception as error:
        if strict():
            raise
        raise Unscheduled(f"{name_of(entry)}: {type(error).__name__}: {error}") from error
    if not isinstance(result, Program):
        raise Unscheduled(f"{name_of(entry)}: expected a Program, its text or None, got {type(result).__name__}")
    return result


def _bucketed(plan: Plan) -> set[str]:
    """The names of merged collectives and of their waits, with the calls that their packs took over."""
    names = set()
    for bucket in plan.buckets:
        for member in bucket.members:
            names |= {member.name, wait_of(member).name}
            source = member.args[0]
            if bucket.packed and isinstance(source, fx.Node) and plan.position.get(source) in (None, bucket.pack):
                names.add(source.name)
    return names


def _is_lossy(entry: str | Function) -> bool:
    """Whether the user has allowed sums in fewer bits."""
    return isinstance(entry, str) and LOSSY in entry


def _order(flow: Dataflow) -> list[tuple[str, tuple[str, ...]]]:
    return [(op.opcode, op.names) for op in flow.operations]


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"expected the function {FUNCTION!r}, whose operations have the names of the graph's nodes"
    return str(error) if isinstance(error, PlanError) else f"{type(error).__name__}: {error}"


def _row(entry: str | Function, program: Program, rewrites: Rewrites, plan: Plan) -> dict:
    left = [m for m in program.messages() if m.kind == MessageKind.MISSED]
    return {
        "pass": name_of(entry),
        "replaced_operands": len(rewrites.replaced),
        "destinations": len(rewrites.destinations),
        "erased": len(rewrites.erased),
        "moved_casts": len(rewrites.moved),
        "merged": len(plan.buckets),
        "left_alone": [f"{m.location}: {m.text}" for m in left],
    }
