"""`schedule_overlap`: one FX graph, from import to the rewritten graph and its report."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import pathlib
import tempfile
import time
import warnings

import torch.fx as fx

from ..program import Error
from .apply.memory import OverLimit, peak_bytes
from .apply.plan import PlanError, read_plan
from .apply.rewrite import apply_plan
from .importer.estimates import amended_profile
from .importer.export import import_program
from .importer.graph import donated_placeholders
from .options import Options, donated_argument
from .ranks.agreement import sequence, starts_of
from .reporting import Unscheduled, function_report, strict
from .semantics.stale import refresh

FUNCTION = "main"


@contextlib.contextmanager
def _collector_waits():
    """No garbage collection in this block: a graph has millions of objects, all of them alive, and one look at them takes
    longer than what is done here."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_collector_waits()
def schedule_graph(graph: fx.Graph, options: Options, fused: bool = False) -> dict:
    """Schedules `graph` in place and returns its report.

    The memory of the result is counted once more, from its nodes. If that is above the limit, the graph is scheduled again
    with a limit that is lower by as much, and then without merging.

    Args:
        fused: Inductor is going to fuse nodes of the graph into kernels; they are scheduled as such, and their memory is
            counted on the kernels.

    Raises:
        Unscheduled: nothing was changed.
    """
    try:
        return _schedule_once(graph, options, fused)
    except OverLimit as error:
        lower = dataclasses.replace(options, memory_limit_bytes=max(0, error.limit - error.excess))
        last = dataclasses.replace(options, bucketing=False)
    for again in (lower, last):
        try:
            return {**_schedule_once(graph, again, fused), "recounted": True}
        except (OverLimit, Unscheduled) as error:
            reason = error
    raise Unscheduled(f"the schedule was refused: {reason}") from reason


def _schedule_once(graph: fx.Graph, options: Options, fused: bool) -> dict:
    started = time.process_time_ns()
    donated = donated_placeholders(graph, options.donated)
    try:
        refresh(graph)
        program, _, importer = import_program(
            graph, runtime_estimation=options.runtime_estimation, donated=donated, name=FUNCTION, fused=fused
        )
    except Exception as error:  # Graphs hold what nobody has thought of; none of it may break a compilation.
        if strict():
            raise
        raise Unscheduled(f"import: {type(error).__name__}: {error}") from error
    imported = time.process_time_ns()
    with tempfile.TemporaryDirectory(prefix="commsched") as folder:
        report_file, machine = pathlib.Path(folder, "report.json"), None
        if options.runtime_estimation is not None:
            profile = amended_profile(options.machine, importer)
            if profile is not None:
                machine = str(pathlib.Path(folder, "machine.json"))
                pathlib.Path(machine).write_text(profile)
        try:
            program.run(options.pipeline(machine, str(report_file)))
        except Error as error:
            raise Unscheduled(str(error)) from error
        report = function_report(report_file)
    solved = time.process_time_ns()
    starts = starts_of(graph)
    try:
        plan = read_plan(graph, program.operations()[FUNCTION])
        decision = sequence(starts, plan)
        apply_plan(graph, plan, None if fused else _within(graph, donated, report))
    except OverLimit:
        raise
    except PlanError as error:
        raise Unscheduled(f"the schedule was refused: {error}") from error
    except Exception as error:
        if strict():
            raise
        raise Unscheduled(f"the schedule cannot be read: {type(error).__name__}: {error}") from error
    report["signature"] = program.signatures()[FUNCTION] or report.get("signature", "")
    report["buckets"] = [[m.name for m in b.members] for b in plan.buckets]
    report["opaque"] = importer.opaque
    report["decision"] = decision
    report["import_ns"] = imported - started
    report["pipeline_ns"] = solved - imported
    report["apply_ns"] = time.process_time_ns() - solved
    return report


def _within(graph: fx.Graph, donated: set[str], report: dict):
    """Refuses a result that needs more memory than the limit, or than the graph did if that was above it."""
    if "peak_bytes" not in report:
        return None
    limit = max(report["peak_bytes"]["limit"], peak_bytes(graph, donated))

    def accept(changed: fx.Graph, replaced) -> None:
        peak = peak_bytes(changed, donated, replaced)
        if peak > limit:
            raise OverLimit(peak, limit)

    return accept


def schedule_overlap(
    gm: fx.GraphModule,
    *,
    runtime_estimation=None,
    machine: str = "h100-sxm",
    memory_budget_ratio: float = 0.0,
    memory_limit_bytes: int | None = None,
    bucketing: bool = True,
    collective_order: str = "free",
    effort: int | None = None,
    donated="auto",
    solver: str = "schedule",
    bucket_cap_bytes: int | None = None,
    passes=(),
) -> tuple[fx.GraphModule, dict]:
    """Hides the collectives of a post-AOT graph behind its computation, never above the memory limit.

    The graph is changed in place, as PyTorch's own `schedule_overlap_bucketing` does it. A graph that cannot be
    scheduled is left as it was: a warning and `report["error"]` say why.

    Args:
        gm: a post-AOT graph with fake-tensor metadata.
        runtime_estimation: `(node, override_bytes=None) -> milliseconds | None`, as PyTorch's scheduler takes it. None,
            or an answer of None: the machine profile decides.
        machine: the name of a shipped machine profile, or the path of one.
        memory_budget_ratio: how far the peak may rise above the given order's, as a fraction of it.
        memory_limit_bytes: the limit itself, in bytes, without the arguments that live throughout.
        bucketing: whether collectives may be merged.
        collective_order: "free", "group" or "program": which collectives keep their order.
        effort: how long to search, in the solver's steps; None for its default.
        donated: placeholders that are freed after their last use: names, or "auto" (in a backward graph all but the
            parameters).
        solver: "schedule", or "inductor" for the two peak-preserving passes of PyTorch Inductor.
        bucket_cap_bytes: the largest merged collective.
        passes: the passes to run instead of the solver's, in order, with or without options: "comm-bucket{fsdp-only=true}".

    Returns:
        `gm`, and the report: the fields of a function in the JSON report of comm-opt (memory figures without what the
        arguments that live throughout hold), the buckets by name, and how long each step took.

    Raises:
        ValueError: an option makes no sense, or `donated` names something that is no placeholder.
    """
    options = Options(
        machine=machine,
        memory_budget_ratio=memory_budget_ratio,
        memory_limit_bytes=memory_limit_bytes,
        bucketing=bucketing,
        collective_order=collective_order,
        effort=effort,
        donated=donated_argument(donated),
        runtime_estimation=runtime_estimation,
        solver=solver,
        bucket_cap_bytes=bucket_cap_bytes,
        passes=tuple(passes),
    )
    try:
        report = schedule_graph(gm.graph, options)
    except Unscheduled as error:
        if strict():
            raise
        warnings.warn(f"CommSched left the graph as it was: {error}", stacklevel=2)
        return gm, {"error": str(error)}
    gm.recompile()
    return gm, report
