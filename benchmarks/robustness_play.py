# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Plays a program in its own order, with the time of every collective multiplied by a factor.

The program is comm IR in which every collective has its time, as the importer of FX graphs writes it. So an order
that came from elsewhere is played by the same timeline as ours.
"""

from __future__ import annotations

import dataclasses
import json
import re
import tempfile
from pathlib import Path

import commsched
from commsched.program import option_value

# By what the time of each collective is multiplied.
SCALES = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)
# The scales for which the default objective answers.
ANSWERED = tuple(k for k in SCALES if 0.75 <= k <= 2)
AS_PLANNED = SCALES.index(1.0)
MS = 1e6

# A line that starts something which is waited for, and the time in it.
_START = re.compile(r"^ *%[^=]* = comm\.(?!compute\b|wait\b)(\w+) .*!comm\.future<", re.MULTILINE)
_TIME = re.compile(r"(#comm\.cost<time = )(\d+)")


@dataclasses.dataclass(frozen=True)
class Played:
    """An order under one set of costs."""

    ms: tuple[float, ...]  # Indexed like SCALES: the makespan.
    peak_bytes: int
    collectives: int


def scaled(text: str, scale: float) -> str:
    """`text` with the time of every collective multiplied by `scale`.

    Raises:
        ValueError: a collective has no time.
    """
    lines = text.split("\n")
    for at, line in enumerate(lines):
        if not _START.match(line):
            continue
        found = _TIME.search(line)
        if found is None:
            raise ValueError(f"expected a collective with a time, got {line.strip()}")
        lines[at] = f"{line[: found.start()]}{found[1]}{round(int(found[2]) * scale)}{line[found.end(2) :]}"
    return "\n".join(lines)


def measured(text: str, machine: str) -> dict:
    """What the timeline says of the one function of `text`, in its own order."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        commsched.Program(text).run(
            f"comm-report{{machine={option_value(machine)} report-file={option_value(file)} table=false}}"
        )
        return json.loads(file.read_text())["functions"][0]


def play(text: str, machine: str, scales: tuple[float, ...] = SCALES) -> Played:
    """Plays the one function of `text` at each of the scales."""
    reports = [measured(scaled(text, scale), machine) for scale in scales]
    return Played(
        ms=tuple(report["makespan_ns"]["after"] / MS for report in reports),
        peak_bytes=reports[0]["peak_bytes"]["after"],
        collectives=reports[0]["collectives"],
    )
