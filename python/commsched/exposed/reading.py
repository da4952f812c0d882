# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Reads traces: when a rank computes, and when its collectives run."""

from __future__ import annotations

import bisect
import dataclasses
import gzip
import json
import math
import pathlib
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from .. import nsys
from .intervals import Interval, united, without

# Categories of events of a device that are computation. Kineto's libkineto/include/ActivityType.h names them.
_COMPUTATION = {"kernel", "gpu_memcpy", "gpu_memset"}
_COLLECTIVE = re.compile(r"^(nccl|rccl|mscclpp|void nccl)", re.IGNORECASE)
# Operators of the host during which nothing is computed: they start collectives, or wait for them.
_COMMUNICATES = re.compile(r"^(c10d::|_c10d_functional::|record_param_comms|nccl:|gloo:)")
_STEP = re.compile(r"^ProfilerStep#\d+$")
_ITEMSIZE = {"Double": 8, "Long": 8, "Float": 4, "Int": 4, "BFloat16": 2, "Half": 2, "Short": 2}


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
    computation = united((k.start, k.end) for k in kernels)
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
    without = united(waiting)
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
        for left in without([(start, end)], waiting[first:last]):
            yield Computation(name, *left)
