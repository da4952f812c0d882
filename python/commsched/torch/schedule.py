# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`schedule_overlap`: one FX graph, from import to the rewritten graph and its report."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import time
import warnings
from collections.abc import Callable, Iterator, Sequence

import torch.fx as fx
from typing_extensions import Unpack

from .apply.memory import OverLimit, peak_bytes
from .apply.plan import PlanError, read_plan
from .apply.rewrite import apply_plan
from .options import OptionArguments, Options
from .ranks.agreement import sequence, starts_of
from .ranks.consensus import Decision, Disagreed
from .reporting import Unscheduled, strict
from .solving import FUNCTION, imported
from .strands.decision import in_strands

# Takes a decision about a program.
Agree = Callable[[Decision], None]


@contextlib.contextmanager
def _collector_waits() -> Iterator[None]:
    """No garbage collection in this block.

    A graph has millions of objects, and all of them are alive. One look at them takes longer than the work done here.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_collector_waits()
def schedule_graph(graph: fx.Graph, options: Options, fused: bool = False, agree: Agree | None = None) -> dict:
    """Schedules `graph` in place and returns its report.

    The memory of the result is counted once more, from its nodes. If it is above the limit, the graph is scheduled
    again with a limit that is lower by the difference, and then without merging.

    Args:
        fused: Inductor is going to fuse nodes of the graph into kernels. They are scheduled as kernels, and their
            memory is
            counted on the kernels.
        agree: is told the decision before it is carried out, and may raise Disagreed. The graph is unchanged then.

    Raises:
        Unscheduled: the graph could not be scheduled. It is unchanged.
    """
    try:
        return _schedule_once(graph, options, fused, agree)
    except OverLimit as error:
        lower = dataclasses.replace(options, memory_limit_bytes=max(0, error.limit - error.excess))
        last = dataclasses.replace(options, bucketing=False)
    for again in (lower, last):
        try:
            return {**_schedule_once(graph, again, fused, agree), "recounted": True}
        except (OverLimit, Unscheduled) as error:
            reason = error
    raise Unscheduled(f"the schedule was refused: {reason}") from reason


def _schedule_once(graph: fx.Graph, options: Options, fused: bool, agree: Agree | None) -> dict:
    fused = fused and options.fusion
    module = imported(graph, options, fused)
    began = time.process_time_ns()
    report = module.run(options, options.pipeline)
    program, donated = module.program, module.donated
    solved = time.process_time_ns()
    starts = starts_of(graph)
    try:
        plan = read_plan(graph, program.operations()[FUNCTION])
        decision = sequence(starts, plan)
        if agree is not None:
            agree(decision)
        apply_plan(graph, plan, None if fused else _within(graph, donated, report))
    except (OverLimit, Disagreed):
        raise
    except PlanError as error:
        raise Unscheduled(f"the schedule was refused: {error}") from error
    except Exception as error:
        if strict():
            raise
        raise Unscheduled(f"the schedule cannot be read: {type(error).__name__}: {error}") from error
    report["signature"] = program.signatures()[FUNCTION] or report.get("signature", "")
    report["buckets"] = [[m.name for m in b.members] for b in plan.buckets]
    report["opaque"] = module.importer.opaque
    report["decision"] = decision
    report["import_ns"] = module.import_ns
    report["pipeline_ns"] = solved - began
    report["apply_ns"] = time.process_time_ns() - solved
    return report


def _within(graph: fx.Graph, donated: set[str], report: dict) -> Callable[[fx.Graph, Sequence[fx.Node]], None] | None:
    """A check that refuses a result above the memory limit. If the graph was above the limit, its own peak is the
    limit.
    """
    if "peak_bytes" not in report:
        return None
    limit = max(report["peak_bytes"]["limit"], peak_bytes(graph, donated))

    def accept(changed: fx.Graph, replaced: Sequence[fx.Node]) -> None:
        peak = peak_bytes(changed, donated, replaced)
        if peak > limit:
            raise OverLimit(peak, limit)

    return accept


def schedule_overlap(gm: fx.GraphModule, **options: Unpack[OptionArguments]) -> tuple[fx.GraphModule, dict]:
    """Hides the collectives of a post-AOT graph behind its computation, within a limit on memory.

    The graph is changed in place, as PyTorch's own `schedule_overlap_bucketing` does it. A graph that cannot be
    scheduled stays as it was: a warning and `report["error"]` say why.

    Args:
        gm: a post-AOT graph with fake-tensor metadata.
        machine: the name of a shipped machine profile, or the path of one. The default is "h100-sxm".
        memory_budget_ratio: how far the peak of memory may rise above that of the given order, as a fraction of it. The
            default is 0, and 0.2 if the solver is "inductor", as in PyTorch's passes.
        memory_limit_bytes: the limit on the peak in bytes, without the arguments that live throughout. It overrides
            `memory_budget_ratio`.
        bucketing: whether collectives may be merged. The default is True.
        bucket_cap_bytes: the largest merged collective, in bytes. By default, the library decides.
        collective_order: which collectives keep their order: none ("free", the default), those of one group ("group"),
            or
            all ("program").
        effort: how long to search, in steps of the solver. By default, the library decides.
        objective: what the solver minimizes: "makespan" (the default), or its "mean" or 95 % quantile ("p95") over
            scenarios in which durations vary.
        scenarios: the number of scenarios, of which the report gives the mean and the quantile. The default is 0: none,
            or 32 if the objective needs them.
        collective_spread_permille: by how much durations of collectives without an error bar vary: the standard
            deviation of their logarithm, in permille. The default is 300.
        compute_spread_permille: the same for all other operations. The default is 0.
        solver: "schedule" (the default), or "inductor" for the two peak-preserving passes of PyTorch Inductor.
        strands: "auto" splits activations into strands if the schedule of the split graph is faster (docs/Strands.md);
            a number is the same with at most that number of strands. The default is "off".
        allow_reassociation: whether strands may also split sums over the tokens, such as gradients of weights, whose terms
            are then added in another order. The default is False.
        passes: the passes to run in place of the solver, in order, with or without options, such as
            "comm-bucket{fsdp-only=true}".
        donated: names of the placeholders that are freed after their last use. The default, "auto", means all but the
            parameters in a backward graph, and none in a forward graph.
        runtime_estimation: `(node, override_bytes=None) -> milliseconds | None`, as PyTorch's scheduler takes it.
            Without
            it, and for an answer of None, the machine profile decides.
        fusion: whether nodes that Inductor fuses into one kernel cost together what that kernel does. The default is
            True. Use False for a graph that runs node by node.

    Returns:
        `gm`, and the report. The report holds the fields of a function in the JSON report of comm-opt, the buckets by
            name,
        and how long each step took. Its memory figures exclude the arguments that live throughout.

    Raises:
        ValueError: an option has no legal value, or `donated` names something that is not a placeholder.
    """
    settings = Options(**options)
    settings.refuse_tuning("schedule_overlap")
    try:
        strands, settings = in_strands(gm.graph, settings, schedule_graph)
        report = {**schedule_graph(gm.graph, settings), **strands}
    except Unscheduled as error:
        if strict():
            raise
        warnings.warn(f"CommSched left the graph as it was: {error}", stacklevel=2)
        return gm, {"error": str(error)}
    gm.recompile()
    return gm, report
