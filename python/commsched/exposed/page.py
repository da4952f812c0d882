# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Draws the timelines of all ranks, one below the other."""

from __future__ import annotations

import pathlib
import statistics
from collections import defaultdict
from collections.abc import Sequence

from .. import recorded
from .analysis import Analysis, Exposure, exposures, matched
from .intervals import Interval, length, united
from .reading import Call, Computation, Trace

# The most rectangles of computation on a page, over all ranks. They take about 7 MB, which a browser opens in half a
# second.
_MOST_COMPUTATIONS = 200_000


def _origins(traces: Sequence[Trace]) -> tuple[list[float], bool]:
    """Indexed by the place of a trace: the moment of its clock that is one moment of all; and whether this is known.

    A collective ends at about the same time on all ranks: so does the median of those that two traces share. A trace
    that shares none begins with the first one.
    """
    origins: dict[int, float] = {0: traces[0].span[0]}
    shared = list(matched(traces))
    is_known = True
    while len(origins) < len(traces):
        apart: dict[int, list[float]] = defaultdict(list)
        for alike in shared:
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
    lanes = [("computation", a.computation), *((names[s], length(united(streams[s]))) for s in order)]
    file = pathlib.Path(trace.name).name
    note = "" if trace.steps == 1 else f"figures of one of {trace.steps} steps"
    title = file if trace.rank is None else f"rank {trace.rank}"
    note = ", ".join(filter(None, ["" if trace.rank is None else file, note]))
    figures = [(name, us) for _, name, us in a.figures()]
    side = recorded.Timeline(texts, title, note, origin, trace.span, a.bound, figures, lanes)
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
    for match, alike in enumerate(matched(traces)):
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
