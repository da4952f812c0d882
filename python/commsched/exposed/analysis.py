# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Works out how much of a step is exposed, and for how much of that a rank waits for others."""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from .intervals import Interval, length, united, without
from .reading import Trace


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

    def figures(self) -> list[tuple[int, str, float]]:
        """The figures of one step: the number of figures of which each is a part, its name, and its time in us."""
        figures = [
            (0, "step", self.span),
            (0, "computation", self.computation),
            (0, "collectives", self.collectives),
            (1, "exposed", self.exposed),
            *([(2, "waiting", self.waited)] if self.waited is not None else []),
            (0, "idle", self.idle),
            (0, "at least, in any order", self.bound),
            (0, "gain at most", self.hideable),
        ]
        return [(depth, name, us / self.trace.steps) for depth, name, us in figures]

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


def matched(traces: Sequence[Trace]) -> Iterator[list[tuple[int, int]]]:
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
    for alike in matched(traces):
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
    free = without(united((c.start, c.end) for c in trace.calls), busy)
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
    computation = length(trace.computation)
    communicating = united((c.start, c.end) for c in trace.calls)
    return Analysis(
        trace,
        end - begin,
        computation,
        length(communicating),
        sum(exposed),
        sum(waited) if several else None,
        end - begin - length(united([*trace.computation, *communicating])),
        max([computation, *(length(united(of_stream)) for of_stream in transfers.values())]),
        sorted(rows.values(), key=lambda r: (-r.exposed, r.kind, r.ranks, r.nbytes)),
        [CallTimes(*times) for times in zip(waits, exposed, waited)],
    )


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
    for start, end in without(united((c.start, c.end) for c in calls), a.trace.computation):
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
