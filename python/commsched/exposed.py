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
import bisect
import dataclasses
import gzip
import heapq
import json
import math
import pathlib
import re
import statistics
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from . import nsys, recorded

# Categories of events of a device that are computation. Kineto's libkineto/include/ActivityType.h names them.
_COMPUTATION = {"kernel", "gpu_memcpy", "gpu_memset"}
_COLLECTIVE = re.compile(r"^(nccl|rccl|mscclpp|void nccl)", re.IGNORECASE)
# Operators of the host during which nothing is computed: they start collectives, or wait for them.
_COMMUNICATES = re.compile(r"^(c10d::|_c10d_functional::|record_param_comms|nccl:|gloo:)")
_STEP = re.compile(r"^ProfilerStep#\d+$")
_ITEMSIZE = {"Double": 8, "Long": 8, "Float": 4, "Int": 4, "BFloat16": 2, "Half": 2, "Short": 2}

# The most rectangles of computation on a page, over all ranks. They take about 7 MB, which a browser opens in half a
# second.
_MOST_COMPUTATIONS = 200_000

Interval = tuple[float, float]


class Computation(NamedTuple):
    """A run of a kernel, or a part of an operator of the host in which it computes, us."""

    name: str
    start: float
    end: float


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
    stream: tuple[int | str, int | str]


@dataclasses.dataclass
class Trace:
    """What a trace says of one rank.

    Args:
        steps: the number of steps that the profiler marked, at least 1.
        computation: when something is computed, disjoint and in order.
        calls: collectives in the order of their starts.
        kernels: what is computed, in the order of the starts. Together they take the time of `computation`.
        on_device: whether kernels of a device compute, or operators of the host.
    """

    name: str
    rank: int | None
    steps: int
    computation: list[Interval]
    calls: list[Call]
    kernels: list[Computation]
    on_device: bool

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


class CallTimes(NamedTuple):
    """Times of one run of a collective, us.

    Args:
        wait: for how long it waits for other ranks to come.
        exposed: its share of the exposed time.
        waited: the part of it in which other ranks have not come yet.
    """

    wait: float
    exposed: float
    waited: float


@dataclasses.dataclass
class Analysis:
    """The times of one rank, us, in all steps.

    Args:
        span: from the first event to the last.
        waited: the part of `exposed` in which other ranks have not come yet. None: the traces do not say.
        idle: neither computation nor a collective runs.
        bound: no order of the same kernels takes less.
        by_call: indexed by call, the times of one run.
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
    by_call: list[CallTimes]

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
        is_export = nsys.is_export(path)
        if is_export:
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
    for event in events if is_export else ():
        if event.get("cat") == "kernel":
            event["tid"] = "all streams"  # An export does not tell them apart.
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
        if not math.isfinite(start) or not math.isfinite(start + duration) or duration < 0:
            raise ValueError(f"{path}: traceEvents[{number}]: expected a time of at least 0, got {event['dur']}")
        spans.append((event, start, start + duration))
    rank = info.get("rank")
    steps = len({e["name"] for e, _, _ in spans if _STEP.match(str(e.get("name")))})
    on_device = any(e.get("cat") == "kernel" for e, _, _ in spans)
    groups = _groups(info)
    kernels, calls = _device(spans, groups) if on_device else _host(spans)
    computation = _united((k.start, k.end) for k in kernels)
    return Trace(path, rank if isinstance(rank, int) else None, max(1, steps), computation, calls, kernels, on_device)


def _place(event: dict[str, Any]) -> tuple[int | str, int | str]:
    """The device and its stream, or the process and its thread."""
    pid, tid = (where if isinstance(where, int) else str(where) for where in (event.get("pid"), event.get("tid")))
    return pid, tid


def _groups(info: dict[str, Any]) -> dict[str, str]:
    """Indexed by the name of a process group: its ranks."""
    listed = info.get("pg_config")
    named = [g for g in listed if isinstance(g, dict)] if isinstance(listed, list) else []
    return {str(g.get("pg_name")): str(g["ranks"]) for g in named if g.get("ranks")}


def _device(spans: list[tuple[dict, float, float]], groups: dict[str, str]) -> tuple[list[Computation], list[Call]]:
    computing: list[Computation] = []
    calls = []
    for event, start, end in spans:
        if event.get("cat") not in _COMPUTATION:
            continue
        name = str(event.get("name"))
        if not _COLLECTIVE.match(name):
            computing.append(Computation(name, start, end))
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
        nbytes = max((n * item for n in sizes if isinstance(n, int) and 0 <= n < 1 << 48), default=-1)
        size = args.get("Group size")
        place = _place(event)
        calls.append(
            Call(kind, members, size if isinstance(size, int) and 0 < size < 1 << 31 else 0, nbytes, start, end, place)
        )
    return sorted(computing, key=lambda k: k.start), sorted(calls, key=lambda c: c.start)


def _host(spans: list[tuple[dict, float, float]]) -> tuple[list[Computation], list[Call]]:
    """A job without devices: operators of the host compute, and gloo communicates beside them."""
    computing: dict[tuple[int | str, int | str], list[Computation]] = defaultdict(list)  # by thread
    waiting: list[Interval] = []
    calls = []
    for event, start, end in spans:
        name = str(event.get("name"))
        if name.startswith("gloo:"):
            place = _place(event)
            calls.append(Call(name.removeprefix("gloo:"), "", 0, -1, start, end, place))
        elif event.get("cat") == "cpu_op":
            if _COMMUNICATES.match(name):
                waiting.append((start, end))
            else:
                computing[_place(event)].append(Computation(name, start, end))
    without = _united(waiting)
    found = [part for of_thread in computing.values() for part in _parts(_outermost(of_thread), without)]
    return sorted(found, key=lambda k: k.start), sorted(calls, key=lambda c: c.start)


def _outermost(of_thread: list[Computation]) -> Iterator[Computation]:
    """Those that no other one of the thread contains."""
    last = -math.inf
    for operator in sorted(of_thread, key=lambda k: (k.start, -k.end)):
        if operator.end > last:
            yield operator
            last = operator.end


def _parts(operators: Iterable[Computation], waiting: list[Interval]) -> Iterator[Computation]:
    """What is left of operators without intervals that are disjoint and in order."""
    for name, start, end in operators:
        first = bisect.bisect_right(waiting, start, key=lambda w: w[1])
        last = bisect.bisect_left(waiting, end, key=lambda w: w[0])
        for left in _without([(start, end)], waiting[first:last]):
            yield Computation(name, *left)


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


def _matched(traces: Sequence[Trace]) -> Iterator[list[tuple[int, int]]]:
    """Calls of several ranks that are one collective: for each rank the place of its trace, and the call's in it.

    The n-th call of a kind on a group is the n-th one on its other ranks. Calls that not all of these traces have
    equally often are left out.
    """
    times: dict[tuple[str, str], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, trace in enumerate(traces):
        for number, call in enumerate(trace.calls):
            times[call.group, call.kind][place].append(number)
    for by_trace in times.values():
        if len(by_trace) < 2 or len({len(numbers) for numbers in by_trace.values()}) > 1:
            continue
        for alike in zip(*([(place, n) for n in numbers] for place, numbers in by_trace.items())):
            yield list(alike)


def _waits(traces: Sequence[Trace]) -> list[list[float]]:
    """Indexed by the place of a trace: how long each of its calls waits for the other ranks to come.

    Whoever comes last waits least.
    """
    found = [[0.0] * len(trace.calls) for trace in traces]
    for alike in _matched(traces):
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
    transfers: dict[tuple[int | str, int | str], list[Interval]] = defaultdict(list)
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
        [CallTimes(*times) for times in zip(waits, exposed, waited)],
    )


# Drawing.


class Exposure(NamedTuple):
    """A time in which collectives run and nothing is computed, us.

    Args:
        call: the place of the collective in `Trace.calls`. Of several, the one that began first.
        late: whether other ranks have not come to it yet.
    """

    start: float
    end: float
    call: int
    late: bool


def exposures(a: Analysis) -> list[Exposure]:
    """All exposed time of a trace, in order. O(n log n)."""
    calls = a.trace.calls
    found = []
    running: list[int] = []  # a heap; calls are in the order of their starts
    following = 0
    for start, end in _without(_united((c.start, c.end) for c in calls), a.trace.computation):
        now = start
        while now < end:
            while following < len(calls) and calls[following].start <= now:
                heapq.heappush(running, following)
                following += 1
            while calls[running[0]].end <= now:
                heapq.heappop(running)
            first = running[0]
            come = calls[first].start + a.by_call[first].wait
            until = min(end, calls[first].end, come if now < come else math.inf)
            found.append(Exposure(now, until, first, now < come))
            now = until
    return found


def _origins(traces: Sequence[Trace]) -> tuple[list[float], bool]:
    """Indexed by the place of a trace: the moment of its clock that is one moment of all; and whether this is known.

    A collective ends at about the same time on all ranks: so does the median of those that two traces share. A trace
    that shares none begins with the first one.
    """
    origins: dict[int, float] = {0: traces[0].span[0]}
    matched = list(_matched(traces))
    is_known = True
    while len(origins) < len(traces):
        apart: dict[int, list[float]] = defaultdict(list)
        for alike in matched:
            known = next(((p, n) for p, n in alike if p in origins), None)
            if known is None:
                continue
            end = traces[known[0]].calls[known[1]].end - origins[known[0]]
            for place, n in alike:
                if place not in origins:
                    apart[place].append(traces[place].calls[n].end - end)
        origins.update((place, statistics.median(ends)) for place, ends in apart.items())
        if not apart:
            place = next(p for p in range(len(traces)) if p not in origins)
            origins[place] = traces[place].span[0]
            is_known = False
    first = min(trace.span[0] - origins[place] for place, trace in enumerate(traces))
    return [origins[place] + first for place in range(len(traces))], is_known


def _drawn(a: Analysis, exposed: Sequence[Exposure], most: int) -> tuple[list[tuple[Computation, int]], float]:
    """The rectangles of the lane of computation, and how many kernels each stands for; and within which time
    neighbours are one rectangle, 0 if there are at most `most` kernels. No rectangle covers exposed time.
    """
    kernels = [k for k in a.trace.kernels if k.end > k.start]
    if len(kernels) <= most:
        return [(k, 1) for k in kernels], 0.0
    # Two neighbours that are apart take longer than this together.
    within = 2 * a.span / most
    breaks = [e.start for e in exposed]
    drawn: list[tuple[Computation, int]] = []
    longest, start, until, count, following = kernels[0], kernels[0].start, kernels[0].end, 1, 0
    for kernel in kernels[1:]:
        while following < len(breaks) and breaks[following] < until:
            following += 1
        is_apart = following < len(breaks) and breaks[following] < kernel.start
        if is_apart or max(until, kernel.end) - start > within:
            drawn.append((Computation(longest.name, start, until), count))
            longest, start, until, count = kernel, kernel.start, kernel.end, 1
            continue
        longest = max(longest, kernel, key=lambda k: k.end - k.start)
        until, count = max(until, kernel.end), count + 1
    drawn.append((Computation(longest.name, start, until), count))
    return drawn, within


def _figures(a: Analysis) -> list[tuple[str, float]]:
    """The figures of one step, us."""
    figures = [
        ("step", a.span),
        ("computation", a.computation),
        ("collectives", a.collectives),
        ("exposed", a.exposed),
        *([("waiting", a.waited)] if a.waited is not None else []),
        ("idle", a.idle),
        ("at least, in any order", a.bound),
        ("gain at most", a.hideable),
    ]
    return [(name, us / a.trace.steps) for name, us in figures]


def _stream(call: Call, on_device: bool, devices: int) -> str:
    """The name of a lane of collectives."""
    device, stream = call.stream
    text = stream if isinstance(stream, str) else f"{'stream' if on_device else 'thread'} {stream}"
    return f"device {device}, {text}" if on_device and devices > 1 else text


def _timeline(
    a: Analysis, texts: recorded.Texts, origin: float, matches: dict[int, int], most: int
) -> tuple[recorded.Timeline, float]:
    """The side of one rank, and within which time its kernels are drawn as one.

    Args:
        matches: indexed by call, the number of the collective on all ranks.
    """
    trace = a.trace
    streams: dict[tuple[int | str, int | str], list[Interval]] = defaultdict(list)
    for call in trace.calls:
        streams[call.stream].append((call.start, call.end))
    devices = len({device for device, _ in streams})
    names = {c.stream: _stream(c, trace.on_device, devices) for c in trace.calls}
    order = list(streams)
    lanes = [("computation", a.computation), *((names[s], _length(_united(streams[s]))) for s in order)]
    file = pathlib.Path(trace.name).name
    note = "" if trace.steps == 1 else f"figures of one of {trace.steps} steps"
    title = file if trace.rank is None else f"rank {trace.rank}"
    note = ", ".join(filter(None, ["" if trace.rank is None else file, note]))
    side = recorded.Timeline(texts, title, note, origin, trace.span, a.bound, _figures(a), lanes)
    ops = []
    for number, (call, times) in enumerate(zip(trace.calls, a.by_call)):
        op = side.add(1 + order.index(call.stream), call.start, call.end, call.kind, call.group)
        side.describe_collective(op, call.nbytes, call.ranks, times.exposed, times.waited, matches.get(number, -1))
        ops.append(op)
    exposed = exposures(a)
    for start, end, number, late in exposed:
        op = side.add(0, start, end, "exposed", exposed=True)
        side.describe_exposed(op, ops[number], end - start, "other ranks have not come yet" if late else "")
    drawn, within = _drawn(a, exposed, most)
    for kernel, count in drawn:
        side.add(0, kernel.start, kernel.end, kernel.name, count=count)
    return side, within


def write_page(analyses: Sequence[Analysis], path: str) -> None:
    """Writes a page with a timeline of each rank, one below the other, as a whole or not at all.

    Raises:
        ValueError: the file cannot be written. The text names it.
    """
    traces = [a.trace for a in analyses]
    origins, is_known = _origins(traces)
    matches: list[dict[int, int]] = [{} for _ in traces]
    for match, alike in enumerate(_matched(traces)):
        for place, number in alike:
            matches[place][number] = match
    texts = recorded.Texts()
    most = max(1, _MOST_COMPUTATIONS // len(traces))
    made = [_timeline(a, texts, origin, own, most) for a, origin, own in zip(analyses, origins, matches)]
    notes = []
    if len(traces) > 1 and is_known:
        notes.append("The ranks are aligned by the ends of the collectives that they share.")
    elif len(traces) > 1:
        notes.append("Ranks that share no collective begin at the same moment, whenever that was.")
    within = max(within for _, within in made)
    if within > 0:
        notes.append(f"Neighbouring kernels are drawn as one if they run within {within:.3g} us.")
    recorded.write_page(path, texts, [side for side, _ in made], notes)


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
    parser.add_argument("--page", metavar="FILE.html", help="also write a page with the timelines of all ranks")
    parser.add_argument("--top", type=int, default=10, metavar="N", help="rows of collectives (default 10)")
    given = parser.parse_args(arguments)
    if given.top < 0:
        parser.error(f"--top: expected at least 0, got {given.top}")
    try:
        found = analyse([read(path) for path in given.traces])
        if given.page is not None:
            write_page(found, given.page)
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
