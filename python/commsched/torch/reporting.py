# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Reports on compilations: one report per graph and place, and what went wrong.

There are three places. "graph" is the schedule of the FX graph, before Inductor works on it. "kernels" is the same
after fusion, as Inductor is going to write it. "code" is the generated code. This one holds. It comes when the code
first runs, whether it was compiled or found in a cache.
"""

from __future__ import annotations

import json
import logging
import os
import pathlib
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ..traces import profile_from_traces
from . import summary
from .measured import Measured

log = logging.getLogger("commsched")

# The variable of the environment that turns faults into errors. Tests want errors, and a training run wants to go on.
STRICT = "COMMSCHED_STRICT"
# The name under which generated code calls `ran`.
FUNCTION = "_commsched_ran"
# At most this many reports are kept, the newest ones, so that a long run without a reader does not collect them
# endlessly.
MAX_REPORTS = 10_000
# If more than this share of the time of a graph is unknown, a warning says so, as in the table of comm-opt.
MOST_UNKNOWN = 0.05

_lock = threading.Lock()
_reports: list[dict] = []
# The same for `report`, which takes none away.
_all_reports: list[dict] = []
# The reports of code that has run in this process, in the order of first runs.
_ran: dict[str, None] = {}
_warned: set[str] = set()
# The wrappers (`summary.OUTSIDE`) inside of which graphs were compiled.
_outside: dict[str, None] = {}


def strict() -> bool:
    """Whether faults are raised (`COMMSCHED_STRICT` in the environment) or survived."""
    return os.environ.get(STRICT, "0") not in ("", "0")


class Unscheduled(RuntimeError):
    """A graph could not be scheduled. It is unchanged, and the text says why."""


def survive(consequence: str, error: BaseException) -> None:
    """Reports once what went wrong and what follows from it. Raises `error` if faults are to be raised."""
    if strict():
        raise error
    reason = str(error).split("\n")[0] or type(error).__name__
    log.info("%s: %s", consequence, reason, exc_info=error)
    warn_once(f'{consequence}: {reason} (logger "commsched" has the details)')


def warn_once(text: str) -> None:
    """Gives a warning once per process."""
    with _lock:
        new = text not in _warned
        _warned.add(text)
    if new:
        warnings.warn(f"CommSched: {text}", stacklevel=3)


def record(report: dict) -> None:
    """Adds a report to those that `reports` is going to return, and to PyTorch's structured trace."""
    with _lock:
        for reports in (_reports, _all_reports):
            reports.append(report)
            del reports[:-MAX_REPORTS]
    if report["place"] == "graph" and speaks():
        log.info("%s", summary.line(report))
        if (share := summary.unknown_share(report)) > MOST_UNKNOWN:
            log.warning("the costs of %.1f %% of the time of a graph are unknown", 100 * share)
    _trace(report)


def speaks() -> bool:
    """Whether this process is the one that says what all ranks do: rank 0, or the only one."""
    import torch.distributed as dist

    return not (dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0


def begins(which: str, nodes: int) -> None:
    """Says that a graph is going to be scheduled, which takes seconds for graphs of 10,000 nodes."""
    if speaks():
        log.info("scheduling a %s graph of %d nodes", which, nodes)


def report(
    traces: str | os.PathLike | Sequence[str | os.PathLike] = (), base: str | os.PathLike = ""
) -> summary.Report:
    """What CommSched did since the process began: a table if printed, a page by `write("report.html")`.

    Args:
        traces: traces of a profiler that ran beside the compiled steps (Calibration.md, "Costs from a trace").
            Table and page then have, for each graph, what was predicted of its operations and collectives beside what
            was measured.
        base: the machine profile whose nodes tell how groups are placed. By default, that of the device in the traces.

    Raises:
        ValueError: a trace cannot be read.
    """
    measured = None
    if paths := [traces] if isinstance(traces, (str, os.PathLike)) else list(traces):
        measured = Measured(json.loads(profile_from_traces(paths, base).read_text()))
    with _lock:
        return summary.Report(list(_all_reports), measured, tuple(_outside))


def communicates_outside(wrapper: str) -> None:
    """Notes that a graph was compiled inside of a wrapper whose collectives are outside of graphs.

    Args:
        wrapper: one of `summary.OUTSIDE`.
    """
    with _lock:
        _outside[wrapper] = None


def _trace(report: dict) -> None:
    from torch._logging import trace_structured

    trace_structured(
        "artifact",
        metadata_fn=lambda: {"name": f"commsched_{report['place']}", "encoding": "json"},
        payload_fn=lambda: json.dumps(report, default=str),
    )


def _overlap_log() -> logging.Logger:
    """PyTorch's log artefact for overlap decisions, which `TORCH_LOGS=overlap` switches on.

    Its messages go to the handlers of Inductor's logger: PyTorch gives none to loggers of other packages.
    """
    from torch._logging import getArtifactLogger

    return getArtifactLogger("torch._inductor.commsched", "overlap")


def wants_listing() -> bool:
    """Whether anybody reads schedules as text: `TORCH_LOGS=overlap`, or the structured trace (`TORCH_TRACE`)."""
    return bool(os.environ.get("TORCH_TRACE")) or _overlap_log().isEnabledFor(logging.DEBUG)


def list_overlap(text: str) -> None:
    """Writes a schedule as text: what each pass did to each collective, and all operations in their order."""
    from torch._logging import trace_structured

    if not text:
        return
    _overlap_log().debug("%s", text)
    trace_structured(
        "artifact",
        metadata_fn=lambda: {"name": "commsched_overlap", "encoding": "string"},
        payload_fn=lambda: text,
    )


def reports() -> list[dict]:
    """All reports since the last call: one report per graph and place.

    Every report has "place" ("graph", "kernels" or "code"), "direction" ("forward" or "backward"), "collectives",
    "exposed_ns" and "makespan_ns". That of the graph has all fields of `schedule_overlap`'s. Those of the kernels and
    of the code count "kernels" (fused), and "adjacent": collectives without a kernel between their start and their
    wait. "holds" is true for the code alone, for the code is what runs. "switched_off" names a pass of Inductor's that
    was on and would have moved what was decided. With `tune="measure"`, a report of the place
    "tuned" tells which variant all ranks keep, and by how much it is faster. With `memory_plan="on"`, one of the place
    "plan" tells how the graph of a step was cut in two.
    """
    with _lock:
        taken = list(_reports)
        _reports.clear()
    return taken


def announce(wrapper: Any, describe: Callable[[], dict]) -> None:
    """Makes the code that `wrapper` (Inductor's) is going to write report itself when it first runs.

    `describe` is called when the code is written.
    """
    from torch._inductor.codegen.wrapper import WrapperLine

    class Line(WrapperLine):
        def codegen(self, code: Any) -> None:
            code.writeline(f"{FUNCTION}({json.dumps(describe(), sort_keys=True)!r})")

    wrapper.header.writeline(f"from commsched.torch.reporting import ran as {FUNCTION}")
    wrapper.writeline(Line())


def ran(text: str) -> None:
    """Reports generated code when it first runs. Generated code calls this every time that it runs."""
    if text in _ran:
        return
    with _lock:
        _ran[text] = None
    record(json.loads(text))


def signatures_that_ran() -> list[str]:
    """The groups of each code that has run in this process and the collectives on them, in the order of first runs."""
    with _lock:
        return [json.dumps(json.loads(text).get("signature")) for text in _ran]


def function_report(path: pathlib.Path) -> dict:
    """The report of the one function in a JSON report of the library.

    A function without collectives has a short one.
    """
    if not path.is_file():
        return {}
    document = json.loads(path.read_text())
    functions = document.get("functions", [])  # It lists functions with collectives only.
    nothing = {"collectives": 0, "exposed_ns": {"before": 0, "after": 0}, "unknown_sizes": 0, "per_collective": []}
    report = dict(functions[0]) if functions else nothing
    report["machine"] = document.get("machine")
    opinions = [entry["second_opinion"] for entry in document.get("passes", ()) if "second_opinion" in entry]
    if opinions:
        report["second_opinion"] = opinions[-1]
    return report
