# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Makes a trace that comm-calibrate reads from an export of NVIDIA Nsight Systems.

    nsys export --type sqlite report.nsys-rep
    python -m commsched.nsys report.sqlite -o trace.json

An export is a database, and Python's standard library reads databases. It has kernels, the calls that launched them,
and the ranges of NVTX around these calls. A range of XLA names an instruction: the result is then a profile as XLA's
own scheduler reads it (PGLE), with an entry per run of an instruction. A range of PyTorch
(`torch.autograd.profiler.emit_nvtx(record_shapes=True)`) names an operator with the dimensions of its operands, without
element types: the result is then a trace in the form of PyTorch's profiler.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import re
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

#: The first bytes of every database.
MAGIC = b"SQLite format 3\0"
# NvtxPushPopRange of the schema's ENUM_NSYS_EVENT_TYPE.
_PUSH_POP = 59
# The lowest bits of a globalTid are the thread; the others, with these bits 0, are a globalPid.
_THREAD_BITS = (1 << 24) - 1
_INSTRUCTION = re.compile(r"(?:^|[:#,])hlo_op=([^,#]+)")
_OPERATOR = re.compile(r"^(?P<name>[^,]+::[^,]+?)(?:, seq = -?\d+)?(?:, op_id = \d+)?(?:, sizes = (?P<sizes>\[.*?\]))?"
                       r"(?:, input_op_ids = .*)?$")  # fmt: skip


class Range(NamedTuple):
    """A range of NVTX on one thread, ns."""

    thread: int
    start: int
    end: int
    text: str


class Kernel(NamedTuple):
    """A kernel: its duration in ns, and when and on which thread the call that launched it began."""

    name: str
    start: int
    duration: int
    thread: int
    launched: int


def is_export(path: str | os.PathLike) -> bool:
    """Whether the file is a database."""
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def convert(path: str | os.PathLike) -> str:
    """The trace as text.

    Raises:
        ValueError: the file is no export with kernels and ranges. The text names the file and what is missing.
    """
    where = pathlib.Path(path)
    if not is_export(where):
        raise ValueError(f"{where}: expected an export of nsys (--type sqlite)")
    try:
        with contextlib.closing(sqlite3.connect(f"{where.absolute().as_uri()}?mode=ro", uri=True)) as database:
            devices = [name for (name,) in _rows(database, "TARGET_INFO_GPU", "SELECT name FROM {}", required=False)]
            ranges = sorted(_ranges(database), key=lambda r: (r.thread, r.start, -r.end))
            kernels = sorted(_kernels(database), key=lambda k: (k.thread, k.launched))
    except (sqlite3.DatabaseError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from error
    owners = list(_owners(ranges, kernels))
    if any(_INSTRUCTION.search(r.text) for r in ranges):
        return _pgle(ranges, kernels, owners)
    if any(_OPERATOR.match(r.text) for r in ranges):
        return json.dumps(_kineto(ranges, kernels, owners, devices))
    raise ValueError(
        f"{where}: expected ranges of XLA, or of PyTorch's emit_nvtx(record_shapes=True), got {len(ranges)} others"
    )


def _rows(database: sqlite3.Connection, table: str, query: str, required: bool = True) -> Iterable[Any]:
    """The rows of a query of one table, which not every export has."""
    if database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
        return database.execute(query.format(table))
    if required:
        raise ValueError(f"expected a table {table}, got none")
    return ()


def _ranges(database: sqlite3.Connection) -> Iterator[Range]:
    query = (
        "SELECT globalTid, start, end, COALESCE(text, (SELECT value FROM StringIds WHERE id = textId)) FROM {} "
        f"WHERE eventType = {_PUSH_POP} AND end IS NOT NULL"
    )
    for thread, start, end, text in _rows(database, "NVTX_EVENTS", query):
        if text:
            yield Range(thread, start, end, text)


def _kernels(database: sqlite3.Connection) -> Iterator[Kernel]:
    calls = {}
    query = "SELECT globalTid, correlationId, start FROM {}"
    for thread, correlation, start in _rows(database, "CUPTI_ACTIVITY_KIND_RUNTIME", query):
        calls[thread & ~_THREAD_BITS, correlation] = (thread, start)
    query = (
        "SELECT rowid, start, end, globalPid, correlationId, (SELECT value FROM StringIds WHERE id = shortName) FROM {}"
    )
    for row, start, end, process, correlation, name in _rows(database, "CUPTI_ACTIVITY_KIND_KERNEL", query):
        if end < start:
            raise ValueError(
                f"CUPTI_ACTIVITY_KIND_KERNEL, row {row}: expected an end behind the start at {start}, got {end}"
            )
        thread, launched = calls.get((process & ~_THREAD_BITS, correlation), (-1, 0))
        yield Kernel(name or "?", start, end - start, thread, launched)


def _owners(ranges: list[Range], kernels: list[Kernel]) -> Iterator[list[int]]:
    """For each kernel the ranges around its launch, the outermost first. Both are sorted by thread and time."""
    stack: list[int] = []
    following = 0
    for kernel in kernels:
        at = (kernel.thread, kernel.launched)
        while following < len(ranges) and ranges[following][:2] <= at:
            _pop(stack, ranges, ranges[following].thread, ranges[following].start)
            stack.append(following)
            following += 1
        _pop(stack, ranges, *at)
        yield list(stack)


def _pop(stack: list[int], ranges: list[Range], thread: int, time: int) -> None:
    """Takes the ranges off that have ended, or are of another thread."""
    while stack and (ranges[stack[-1]].thread != thread or ranges[stack[-1]].end <= time):
        stack.pop()


def _pgle(ranges: list[Range], kernels: list[Kernel], owners: list[list[int]]) -> str:
    """A cost of each run of an instruction: the time of its kernels."""
    runs = {i: 0 for i, r in enumerate(ranges) if _INSTRUCTION.search(r.text)}
    for kernel, around in zip(kernels, owners):
        # An instruction that runs others has ranges around theirs.
        innermost = next((i for i in reversed(around) if i in runs), None)
        if innermost is not None:
            runs[innermost] += kernel.duration
    lines = []
    for i, duration in runs.items():
        found = _INSTRUCTION.search(ranges[i].text)
        if found and duration:
            lines.append(f'costs {{ name: "{found[1]}" cost_us: {duration / 1000:.3f} }}')
    return "\n".join(lines) + "\n"


def _kineto(ranges: list[Range], kernels: list[Kernel], owners: list[list[int]], devices: list[str]) -> dict[str, Any]:
    events: list[dict[str, Any]] = []
    for i, r in enumerate(ranges):
        found = _OPERATOR.match(r.text)
        sizes = json.loads(found["sizes"]) if found and found["sizes"] else []
        arguments = {"External id": i + 1, "Input Dims": sizes, "Input type": [""] * len(sizes)}
        where = {"pid": r.thread >> 24, "tid": r.thread & _THREAD_BITS}
        times = {"ts": r.start / 1000, "dur": (r.end - r.start) / 1000}
        name = found["name"] if found else r.text
        events.append({"ph": "X", "cat": "cpu_op", "name": name, **where, **times, "args": arguments})
    for kernel, around in zip(kernels, owners):
        times = {"ts": kernel.start / 1000, "dur": kernel.duration / 1000}
        of = {"External id": around[-1] + 1} if around else {}
        events.append({"ph": "X", "cat": "kernel", "name": kernel.name, "pid": 0, "tid": 0, **times, "args": of})
    properties = [{"id": i, "name": name} for i, name in enumerate(devices)]
    return {"schemaVersion": 1, "deviceProperties": properties, "traceEvents": events}


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m commsched.nsys", description="A trace from an export of nsys.")
    parser.add_argument("database", help="the export: nsys export --type sqlite")
    parser.add_argument("-o", dest="output", default="-", help="the trace that is written (default: standard output)")
    given = parser.parse_args(arguments)
    try:
        text = convert(given.database)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if given.output == "-":
        sys.stdout.write(text)
        return 0
    temporary = pathlib.Path(f"{given.output}.{os.getpid()}.tmp")
    temporary.write_text(text)
    temporary.replace(given.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
