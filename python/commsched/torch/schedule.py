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

from .apply.memory import OverLimit, peak_of
from .apply.plan import Bucket, Plan, PlanError, Unmergeable, read_plan
from .apply.readers import unmergeable
from .apply.rewrite import apply_plan
from .apply.snapshot import Snapshot
from .calibration.demand import measured
from .options import OptionArguments, Options
from .placement import compare_orders
from .ranks.agreement import changed_from, sequence, starts_of
from .ranks.comparison import compared_at_first_call
from .ranks.consensus import Decision, Disagreed
from .reporting import Unscheduled, list_overlap, strict
from .rewriting import rewrite_graph
from .semantics.landing import prepare
from .semantics.operators import guessed_sizes
from .solving import FUNCTION, Imported, imported
from .stages import Stage, name_of
from .strands.decision import in_strands

# How often the collectives of the largest buckets at a peak above the limit are kept apart. Each time costs a schedule.
MOST_APART = 3
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

    Each stage of the passes is carried out on the graph before the next one begins (`Options.stages`). The report is
    of all of them: its numbers behind are those of the last stage, or of the graph if that stage rewrites operations.

    Args:
        fused: Inductor is going to fuse nodes of the graph into kernels. They are scheduled as kernels, and their
            memory is
            counted on the kernels.
        agree: is told the decision before it is carried out, and may raise Disagreed. The graph is unchanged then.

    Raises:
        Unscheduled: the graph could not be scheduled. It is unchanged.
    """
    stages = options.stages()
    if not any(stage.rewrites for stage in stages):
        return _order_graph(graph, options, fused, agree)
    given = Snapshot(graph)
    try:
        return _in_stages(graph, options, stages, fused, agree)
    except Exception:
        given.restore()
        raise


def _in_stages(graph: fx.Graph, options: Options, stages: list[Stage], fused: bool, agree: Agree | None) -> dict:
    """Carries out the stages one after the other. If one fails, the graph is half changed.

    Raises:
        Disagreed, Unscheduled.
    """
    measure = options.unchanged()
    before = report = _order_graph(graph, measure, fused, None)
    decision: Decision = tuple(((i,), False) for i in range(len(starts_of(graph))))
    rows: list[dict] = []
    merged: list[list[str]] = []
    for stage in stages:
        names = [start.name for start in starts_of(graph)]
        if stage.rewrites:
            done = rewrite_graph(graph, stage.passes[0], options, fused)
            rows.append(done.row)
            own = done.decision
        else:
            report = _order_graph(graph, options.of_stage(stage), fused, None)
            own = report.get("decision", tuple(((i,), False) for i in range(len(names))))
        merged += [[names[i] for i in members] for members, _ in own if len(members) > 1]
        decision = _composed(decision, own)
    if stages[-1].rewrites:
        report = _order_graph(graph, measure, fused, None)
    if agree is not None:
        agree(decision)
    return {**changed_from(before, report), "rewrites": rows, "buckets": merged, "decision": decision}


def _composed(first: Decision, second: Decision) -> Decision:
    """One decision for two that follow each other. The places of the second one are those of the first one's result."""
    return tuple(
        (tuple(i for e in members for i in first[e][0]), packed or any(first[e][1] for e in members))
        for members, packed in second
    )


def _order_graph(graph: fx.Graph, options: Options, fused: bool, agree: Agree | None) -> dict:
    """Decides the order of `graph` and which collectives are merged, in place, and returns the report.

    Collectives whose results would need copies if they were merged are kept apart (`readers`). The memory of the
    result is counted once more, from its nodes. If it is above the limit, the graph is scheduled again in other ways
    (`_again`).

    Raises:
        Disagreed.
        Unscheduled: the graph could not be scheduled. It is unchanged.
    """
    apart = unmergeable(graph)
    while True:
        try:
            return _carried_out(graph, _solved(graph, options, fused, apart), agree)
        except Unmergeable as error:
            if error.merged <= apart:
                raise _refusal(error) from error
            apart |= error.merged
        except OverLimit as error:
            refused = error
            break
    reason: Exception = refused
    looking, alone = apart, _order_alone(graph, options, fused)
    for again in _again(options, refused):
        if again is options:
            if refused.merged <= apart:
                continue  # Nothing else can be kept apart.
            apart |= refused.merged
        try:
            solved = _solved(graph, again, fused, apart if again is options else looking)
            if alone is not None and alone.time < solved.time:
                try:
                    return {**_carried_out(graph, alone, agree), "recounted": True, "kept_apart": []}
                except OverLimit:
                    alone = None
            report = _carried_out(graph, solved, agree)
            return {**report, "recounted": True, "kept_apart": sorted(apart - looking) if again is options else []}
        except OverLimit as error:
            reason = refused = error
        except (Unmergeable, Unscheduled) as error:
            reason = error
    named = f" of {', '.join(map(name_of, options.passes))}" if options.passes else ""
    raise Unscheduled(f"the schedule{named} was refused: {reason}") from reason


def _again(options: Options, refused: OverLimit) -> list[Options]:
    """The options to schedule a graph again with, in order, when a result was above the limit.

    A limit that is lower by the difference costs little as long as it is not below the peak of the graph as it is.
    Otherwise, the collectives of the largest buckets at the peak are kept apart first: `options` itself stands for
    that. At last, nothing is merged. All of it follows from the graph and the options, so ranks with equal graphs do
    the same.
    """
    lowered = refused.limit - refused.excess
    lower = dataclasses.replace(options, memory_limit_bytes=max(0, lowered))
    apart, alone = [options] * MOST_APART, options.unmerged()
    return [lower, *apart, alone] if lowered >= refused.given else [*apart, lower, alone]


@dataclasses.dataclass
class _Solved:
    """A schedule of a graph that has not been carried out.

    Args:
        time: what the solver minimized, in ns.
        counted: whether the memory of the result is to be counted.
    """

    module: Imported
    options: Options
    report: dict
    plan: Plan
    decision: Decision
    time: int
    counted: bool


def _order_alone(graph: fx.Graph, options: Options, fused: bool) -> _Solved | None:
    """The schedule without merging. A schedule with fewer buckets than were wanted must not be slower than that.

    None if nothing was to be merged, or if something other than the search decides what is merged.
    """
    if not options.bucketing or options.passes:
        return None
    try:
        return _solved(graph, options.unmerged(), fused)
    except Unscheduled:
        return None


def _solved(graph: fx.Graph, options: Options, fused: bool, apart: frozenset[str] = frozenset()) -> _Solved:
    """The schedule of `graph`, which stays as it is.

    Args:
        apart: the names of collectives that are not merged.

    Raises:
        Unscheduled.
    """
    fused = fused and options.fusion
    module = imported(graph, options, fused, apart=apart, opines=True)
    began = time.process_time_ns()
    report = module.run(options)
    ended = time.process_time_ns()
    report["import_ns"], report["pipeline_ns"] = module.import_ns, ended - began
    try:
        plan = read_plan(graph, module.program.operations()[FUNCTION])
        decision = sequence(starts_of(graph), plan)
    except Exception as error:
        raise _refusal(error) from error
    report["apply_ns"] = time.process_time_ns() - ended
    return _Solved(module, options, report, plan, decision, _time(report), not fused)


def _time(report: dict) -> int:
    """The time that answers are compared by, in ns. 0 if there is nothing to schedule."""
    return report.get("makespan_ns", {}).get("after", 0)


def _refusal(error: Exception) -> Unscheduled:
    """What to raise after an error of reading a schedule or carrying it out. Raises the error itself if it is a fault
    and faults are to be raised.
    """
    if isinstance(error, PlanError):
        return Unscheduled(f"the schedule was refused: {error}")
    if strict():
        raise error
    return Unscheduled(f"the schedule cannot be read: {type(error).__name__}: {error}")


def _carried_out(graph: fx.Graph, solved: _Solved, agree: Agree | None) -> dict:
    """Carries out a schedule of `graph`, and returns its report.

    Raises:
        Disagreed, OverLimit, Unmergeable, Unscheduled. The graph is unchanged.
    """
    module, report, plan = solved.module, solved.report, solved.plan
    began = time.process_time_ns()
    try:
        with guessed_sizes(module.importer.exchanges()):  # The memory is counted with the sizes that were planned with.
            counted = report if solved.counted else None
            _carry_out(graph, plan, counted, module, lambda: agree and agree(solved.decision))
    except (OverLimit, Unmergeable, Disagreed):
        raise
    except Exception as error:
        raise _refusal(error) from error
    report["signature"] = module.program.signatures()[FUNCTION] or report.get("signature", "")
    report["buckets"] = [[m.name for m in b.members] for b in plan.buckets]
    report["opaque"] = module.importer.opaque
    report["decision"] = solved.decision
    report["apply_ns"] += time.process_time_ns() - began
    compare_orders(module, report, solved.options)
    list_overlap(module.listing)
    return report


def _largest(merged: Sequence[Bucket], held: Sequence[int], excess: int) -> list[str]:
    """The names of the collectives in the buckets that hold the most bytes, until these are as many as the excess."""
    names: list[str] = []
    for i in sorted(range(len(merged)), key=lambda i: -held[i]):
        if excess > 0 and held[i]:
            excess -= held[i]
            names += [m.name for m in merged[i].members]
    return names


def _carry_out(graph: fx.Graph, plan: Plan, report: dict | None, module: Imported, agree: Callable[[], object]) -> None:
    """Applies a plan, unless the memory of the result is above the limit.

    If the graph was above the limit, its own peak is the limit.

    Args:
        report: holds the limit. None: the memory is not counted.
        agree: is called when nothing stands against the result, before it is final.

    Raises:
        OverLimit: the result is above the limit. The graph is unchanged.
    """
    donated, aliases = module.donated, module.importer.aliases
    peaks = {} if report is None else report.get("peak_bytes", {})
    limit, before = peaks.get("limit"), peaks.get("before", 0)

    def accept(changed: fx.Graph, replaced: Sequence[fx.Node], made: list[list[fx.Node]]) -> None:
        if limit is not None:
            peak = peak_of(changed, donated, replaced)
            if peak.bytes > limit:
                held = [peak.held_by(nodes) for nodes in made]
                raise OverLimit(peak.bytes, limit, before, _largest(plan.buckets, held, peak.bytes - limit))
        agree()

    try:
        apply_plan(graph, plan, accept, aliases)
    except OverLimit as error:
        given = peak_of(graph, donated, aliases=aliases).bytes
        if given <= error.limit:
            raise
        if error.peak > given:
            raise OverLimit(error.peak, given, given, error.merged) from error
        limit = given
        apply_plan(graph, plan, accept, aliases)


def _prepare(graph: fx.Graph) -> None:
    """Gives a graph the form that scheduling expects.

    Raises:
        Unscheduled: it has none.
    """
    try:
        prepare(graph)
    except Exception as error:
        raise _refusal(error) from error


def schedule_overlap(gm: fx.GraphModule, **options: Unpack[OptionArguments]) -> tuple[fx.GraphModule, dict]:
    """Hides the collectives of a post-AOT graph behind its computation, within a limit on memory.

    The graph is changed in place, as PyTorch's own `schedule_overlap_bucketing` does it. A graph that cannot be
    scheduled stays as it was: a warning and `report["error"]` say why. Even then a graph that was not sorted is sorted,
    and waits for what has landed are taken out.

    Args:
        gm: a post-AOT graph with fake-tensor metadata.
        machine: the name of a shipped machine profile, the path of one, or `profile:FILE`: the trace of a profiler
            (`commsched.traces.machine_of`). "measure" or `measure:BASE`: all ranks of the job call this function for
            the same graph, measure its collectives together, and complete the profile BASE with them. The default is
            "h100-sxm".
        memory_budget_ratio: how far the peak of memory may rise above that of the given order, as a fraction of it. The
            default is that of the passes that run: 0, and 0.2 for Inductor's two peak-preserving passes.
        memory_limit_bytes: the limit on the peak in bytes, without the arguments that live throughout. It overrides
            `memory_budget_ratio`.
        bucketing: whether collectives may be merged. The default is True.
        bucket_cap_bytes: the largest merged collective, in bytes. By default, the library decides.
        collective_order: which collectives keep their order: none ("free", the default), those of one group ("group"),
            or
            all ("program").
        effort: how long to search, in steps of the solver. By default, the library decides.
        objective: what the solver minimizes: the makespan, and among answers within 0.1 % of it the regret if
            collectives take 0.75 to 2 times as long ("robust", the default); the "regret" alone; or the "makespan"
            alone.
        time_budget_ratio: if given, the schedule with the lowest peak is looked for among those that take at most this
            fraction longer than the fastest one.
        scenarios: the number of scenarios in which durations vary, of which the report gives the mean and the 95 %
            quantile of the makespan. The default is 0.
        collective_spread_permille: by how much durations of collectives without an error bar vary: the standard
            deviation of their logarithm, in permille. The default is 300.
        compute_spread_permille: the same for all other operations. The default is 0.
        strands: "auto" splits activations into strands if the schedule of the split graph is faster (Strands.md);
            a number is the same with at most that number of strands. The default is "off".
        allow_reassociation: whether strands may also split sums over the tokens, such as gradients of weights, whose
            terms are then added in another order. The default is False.
        passes: the passes to run in place of comm-schedule, in order, with or without options, such as
            "comm-bucket{fsdp-only=true}", and functions of a `Program`, which change it or return another one. A pass
            whose effect an FX graph cannot hold is refused.
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
    settings.refuse_memory_plan("schedule_overlap")
    try:
        _prepare(gm.graph)
        settings, facts = measured(gm.graph, settings)
        strands, settings, given = in_strands(gm.graph, settings, schedule_graph)
        with compared_at_first_call(gm, strands) as decided:
            own = schedule_graph(gm.graph, settings)
            decided.extend(own.get("decision", ()))
        report = {**changed_from(given, own), **strands, **facts}
    except Unscheduled as error:
        if strict():
            raise
        warnings.warn(f"CommSched left the graph as it was: {error}", stacklevel=2)
        return gm, {"error": str(error)}
    gm.recompile()
    return gm, report
