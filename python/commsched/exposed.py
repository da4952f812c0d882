# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Says how much of a step of any job its collectives are exposed, from the trace of a profiler.

    python -m commsched.exposed rank0.json rank1.json

It reads what `torch.profiler` exports, of jobs that need not know CommSched, and exports of NVIDIA Nsight Systems. A
collective is exposed while it runs and no computation does. With the traces of several ranks, the time for which a rank
waits for others to come is told apart: no schedule hides that. docs/guide/Exposed.md has an example.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import heapq
import json
import math
import pathlib
import re
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from . import nsys

# Categories of events of a device that are computation. Kineto's libkineto/include/ActivityType.h names them.
_COMPUTATION = {"kernel", "gpu_memcpy", "gpu_memset"}
_COLLECTIVE = re.compile(r"^(nccl|rccl|mscclpp|void nccl)", re.IGNORECASE)
# Operators of the host during which nothing is computed: they start collectives, or wait for them.
_COMMUNICATES = re.compile(r"^(c10d::|_c10d_functional::|record_param_comms|nccl:|gloo:)")
_STEP = re.compile(r"^ProfilerStep#\d+$")
_ITEMSIZE = {"Double": 8, "Long": 8, "Float": 4, "Int": 4, "BFloat16": 2, "Half": 2, "Short": 2}

Interval = tuple[float, float]


class Call(NamedTuple):
    """A run of a collective, us.

    Args:
        kind: its name in PyTorch, or that of its kernel.
        group: the ranks of its group as text, or what else the trace has; empty if nothing.
        ranks: the size of the group. 0: unknown.
        nbytes: of its larger side. -1: unknown.
        stream: where it ran.
    """

    kind: str
    group: str
    ranks: int
    nbytes: int
    start: float
    end: float
    stream: tuple[Any, Any]


@dataclasses.dataclass
class Trace:
    """What a trace says of one rank.

    Args:
        steps: the number of steps that the profiler marked, at least 1.
        computation: when something is computed, disjoint and in order.
        calls: collectives in the order of their starts.
    """

    name: str
    rank: int | None
    steps: int
    computation: list[Interval]
    calls: list[Call]

    @property
    def span(self) -> Interval:
        """From the first event to the last."""
        ends = [*self.computation, *((c.start, c.end) for c in self.calls)]
        return (min(s for s, _ in ends), max(e for _, e in ends)) if ends else (0.0, 0.0)


@dataclasses.dataclass
class Row:
    """Collectives that are alike, in all steps; times in us.

    Args:
        waited: the part of the exposed time in which other ranks have not come yet.
    """

    kind: str
    ranks: int
    nbytes: int
    calls: int = 0
    time: float = 0.0
    exposed: float = 0.0
    waited: float = 0.0


@dataclasses.dataclass
class Analysis:
    """The times of one rank, us, in all steps.

    Args:
        span: from the first event to the last.
        waited: the part of `exposed` in which other ranks have not come yet. None: the traces do not say.
        idle: neither computation nor a collective runs.
        bound: no order of the same kernels takes less.
    """

    trace: Trace
    span: float
    computation: float
    collectives: float
    exposed: float
    waited: float | None
    idle: float
    bound: float
    rows: list[Row]

    @property
    def hideable(self) -> float:
        """What another order can gain at most."""
        return max(0.0, min(self.exposed - (self.waited or 0.0), self.span - self.bound))

    def to_json(self) -> dict[str, Any]:
        """The figures of one step, in us."""
        n = self.trace.steps
        return {
            "trace": self.trace.name,
            "rank": self.trace.rank,
            "steps": n,
            "step_us": self.span / n,
            "computation_us": self.computation / n,
            "collectives_us": self.collectives / n,
            "exposed_us": self.exposed / n,
            "waited_us": None if self.waited is None else self.waited / n,
            "idle_us": self.idle / n,
            "bound_us": self.bound / n,
            "hideable_us": self.hideable / n,
            "rows": [
                {**dataclasses.asdict(r), "calls": r.calls / n, "time": r.time / n, "exposed": r.exposed / n,
                 "waited": r.waited / n}
                for r in self.rows
            ],
        }  # fmt: skip


# Reading.


def read(path: str) -> Trace:
    """Reads one trace.

    Raises:
        ValueError: the file is not a trace. The text names the file and the place in it.
    """
    try:
        if nsys.is_export(path):
            text = nsys.convert(path)
        else:
            data = pathlib.Path(path).read_bytes()
            text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
        root = json.loads(text)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}:{error.lineno}:{error.colno}: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected text in UTF-8: {error.reason}") from None
    events = root.get("traceEvents") if isinstance(root, dict) else None
    if not isinstance(events, list):
        raise ValueError(f"{path}: expected a trace of torch.profiler, with traceEvents")
    info = root.get("distributedInfo")
    return _trace(path, events, info if isinstance(info, dict) else {})


def _trace(path: str, events: list[Any], info: dict[str, Any]) -> Trace:
    spans: list[tuple[dict[str, Any], float, float]] = []
    for number, event in enumerate(events):
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        try:
            start, duration = float(event["ts"]), float(event["dur"])
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"{path}: traceEvents[{number}]: expected the numbers ts and dur") from None
        if not math.isfinite(start) or not math.isfinite(duration) or duration < 0:
            raise ValueError(f"{path}: traceEvents[{number}]: expected a time of at least 0, got {event['dur']}")
        spans.append((event, start, start + duration))
    rank = info.get("rank")
    steps = len({e["name"] for e, _, _ in spans if _STEP.match(str(e.get("name")))})
    on_device = any(e.get("cat") == "kernel" for e, _, _ in spans)
    groups = _groups(info)
    computation, calls = _device(spans, groups) if on_device else _host(spans)
    return Trace(path, rank if isinstance(rank, int) else None, max(1, steps), computation, calls)


def _groups(info: dict[str, Any]) -> dict[str, str]:
    """Indexed by the name of a process group: its ranks."""
    listed = info.get("pg_config")
    named = [g for g in listed if isinstance(g, dict)] if isinstance(listed, list) else []
    return {str(g.get("pg_name")): str(g["ranks"]) for g in named if g.get("ranks")}


def _device(spans: list[tuple[dict, float, float]], groups: dict[str, str]) -> tuple[list[Interval], list[Call]]:
    computing: list[Interval] = []
    calls = []
    for event, start, end in spans:
        if event.get("cat") not in _COMPUTATION:
            continue
        name = str(event.get("name"))
        if not _COLLECTIVE.match(name):
            computing.append((start, end))
            continue
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        kind = str(args.get("Collective name") or name.split("(")[0])
        members = str(args.get("Process Group Ranks") or "")
        by_name = str(args.get("Process Group Name") or "")
        if not members or "..." in members:
            members = groups.get(by_name, by_name)
        item = _ITEMSIZE.get(str(args.get("dtype")), 1)
        sizes = [args.get("In msg nelems"), args.get("Out msg nelems")]
        nbytes = max((n * item for n in sizes if isinstance(n, int)), default=-1)
        size = args.get("Group size")
        place = (event.get("pid"), event.get("tid"))
        calls.append(Call(kind, members, size if isinstance(size, int) else 0, nbytes, start, end, place))
    return _united(computing), sorted(calls, key=lambda c: c.start)


def _host(spans: list[tuple[dict, float, float]]) -> tuple[list[Interval], list[Call]]:
    """A job without devices: operators of the host compute, and gloo communicates beside them."""
    computing: list[Interval] = []
    waiting: list[Interval] = []
    calls = []
    for event, start, end in spans:
        name = str(event.get("name"))
        if name.startswith("gloo:"):
            place = (event.get("pid"), event.get("tid"))
            calls.append(Call(name.removeprefix("gloo:"), "", 0, -1, start, end, place))
        elif event.get("cat") == "cpu_op":
            (waiting if _COMMUNICATES.match(name) else computing).append((start, end))
    return _without(_united(computing), _united(waiting)), sorted(calls, key=lambda c: c.start)


# Intervals: disjoint and in order.


def _united(intervals: Iterable[Interval]) -> list[Interval]:
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _without(given: Sequence[Interval], removed: Sequence[Interval]) -> list[Interval]:
    found: list[Interval] = []
    at = 0
    for start, end in given:
        while at < len(removed) and removed[at][1] <= start:
            at += 1
        i = at
        while i < len(removed) and removed[i][0] < end:
            if removed[i][0] > start:
                found.append((start, removed[i][0]))
            start = max(start, removed[i][1])
            i += 1
        if start < end:
            found.append((start, end))
    return found


def _length(intervals: Iterable[Interval]) -> float:
    return sum(end - start for start, end in intervals)


# Analysing.


def _waits(traces: Sequence[Trace]) -> dict[int, list[float]]:
    """Indexed by the place of a trace: how long each of its calls waits for the other ranks to come.

    The n-th call of a kind on a group is the n-th one on its other ranks, and whoever comes last waits least. Calls
    that not all of these traces have equally often are left out.
    """
    found: dict[int, list[float]] = {}
    times: dict[tuple[str, str], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, trace in enumerate(traces):
        found[place] = [0.0] * len(trace.calls)
        for number, call in enumerate(trace.calls):
            times[call.group, call.kind][place].append(number)
    for by_trace in times.values():
        if len(by_trace) < 2 or len({len(numbers) for numbers in by_trace.values()}) > 1:
            continue
        for alike in zip(*([(place, n) for n in numbers] for place, numbers in by_trace.items())):
            took = [traces[place].calls[n].end - traces[place].calls[n].start for place, n in alike]
            for (place, n), time in zip(alike, took):
                found[place][n] = time - min(took)
    return found


def _exposed(trace: Trace, waits: Sequence[float]) -> tuple[list[float], list[float]]:
    """Indexed by call: its exposed time, and the part of it in which it waits for others.

    Calls that are exposed at the same time share it.

    Complexity: n log n, times the number of calls that run at once.
    """
    exposed, waited = [0.0] * len(trace.calls), [0.0] * len(trace.calls)
    busy = trace.computation
    free = _without(_united((c.start, c.end) for c in trace.calls), busy)
    running: list[tuple[float, int]] = []  # by their ends
    next_call = 0
    for start, end in free:
        now = start
        while now < end:
            while next_call < len(trace.calls) and trace.calls[next_call].start <= now:
                heapq.heappush(running, (trace.calls[next_call].end, next_call))
                next_call += 1
            while running and running[0][0] <= now:
                heapq.heappop(running)
            marks = [end, running[0][0]]
            if next_call < len(trace.calls):
                marks.append(trace.calls[next_call].start)
            marks += [t for _, n in running if now < (t := trace.calls[n].start + waits[n])]
            until = min(marks)
            for _, n in running:
                share = (until - now) / len(running)
                exposed[n] += share
                if now < trace.calls[n].start + waits[n]:
                    waited[n] += share
            now = until
    return exposed, waited


def analyse(traces: Sequence[Trace]) -> list[Analysis]:
    """What each rank's time went to.

    Raises:
        ValueError: two traces are of one rank, or one has no computation and no collective.
    """
    known: dict[int, str] = {}
    for trace in traces:
        if not trace.computation and not trace.calls:
            raise ValueError(f"{trace.name}: no kernels, and no operators of the host: nothing to look at")
        if trace.rank is not None and known.setdefault(trace.rank, trace.name) != trace.name:
            raise ValueError(f"{trace.name}: rank {trace.rank} has a trace already, {known[trace.rank]}")
    waits = _waits(traces)
    return [_analysis(trace, waits[i], len(traces) > 1) for i, trace in enumerate(traces)]


def _analysis(trace: Trace, waits: list[float], several: bool) -> Analysis:
    exposed, waited = _exposed(trace, waits)
    rows: dict[tuple[str, int, int], Row] = {}
    transfers: dict[tuple[Any, Any], list[Interval]] = defaultdict(list)
    for call, wait, bare, late in zip(trace.calls, waits, exposed, waited):
        r = rows.setdefault((call.kind, call.ranks, call.nbytes), Row(call.kind, call.ranks, call.nbytes))
        r.calls += 1
        r.time += call.end - call.start
        r.exposed += bare
        r.waited += late
        transfers[call.stream].append((call.start + wait, call.end))
    begin, end = trace.span
    computation = _length(trace.computation)
    communicating = _united((c.start, c.end) for c in trace.calls)
    return Analysis(
        trace,
        end - begin,
        computation,
        _length(communicating),
        sum(exposed),
        sum(waited) if several else None,
        end - begin - _length(_united([*trace.computation, *communicating])),
        max([computation, *(_length(_united(of_stream)) for of_stream in transfers.values())]),
        sorted(rows.values(), key=lambda r: (-r.exposed, r.kind, r.ranks, r.nbytes)),
    )


# Printing.


def _ms(us: float) -> str:
    return f"{us / 1000:.3f}"


def _bytes(count: int) -> str:
    if count < 0:
        return "?"
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"


def table(a: Analysis, most: int) -> str:
    """The figures of one step as text, and the collectives that are exposed longest."""
    n = a.trace.steps
    who = a.trace.name if a.trace.rank is None else f"rank {a.trace.rank}, {a.trace.name}"
    lines = [f"{who}: {n} step{'s' if n > 1 else ''}, times in ms of one"]
    figures = [
        ("step", a.span),
        ("computation", a.computation),
        ("collectives", a.collectives),
        ("  exposed", a.exposed),
        *([("    waiting for other ranks", a.waited)] if a.waited is not None else []),
        ("idle: nothing runs", a.idle),
        ("at least, in any order", a.bound),
        ("another order gains at most", a.hideable),
    ]
    for name, us in figures:
        lines.append(f"  {name:<30} {_ms(us / n):>12} {100 * us / a.span if a.span else 0:6.1f} %")
    rows = [r for r in a.rows if r.exposed > 0][:most]
    if rows:
        lines.append(f"  {'exposed':>12} {'time':>12} {'calls':>7} {'bytes':>10} {'ranks':>6}  collective")
    for r in rows:
        ranks = str(r.ranks) if r.ranks else "?"
        lines.append(
            f"  {_ms(r.exposed / n):>12} {_ms(r.time / n):>12} {r.calls / n:>7.3g} {_bytes(r.nbytes):>10} {ranks:>6}"
            f"  {r.kind}"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m commsched.exposed", description=__doc__.split("\n")[0])
    parser.add_argument("traces", nargs="+", help="traces of torch.profiler, or exports of nsys")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON, in microseconds")
    parser.add_argument("--top", type=int, default=10, metavar="N", help="rows of collectives (default 10)")
    given = parser.parse_args(arguments)
    if given.top < 0:
        parser.error(f"--top: expected at least 0, got {given.top}")
    try:
        found = analyse([read(path) for path in given.traces])
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if given.json:
        print(json.dumps([a.to_json() for a in found], indent=2))
    else:
        print("\n\n".join(table(a, given.top) for a in found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
