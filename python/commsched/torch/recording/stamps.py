# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Notes when generated code begins, starts a collective, waits for one, and ends.

A code with n starts and waits gives 2 n + 2 stamps, which cut a run into 2 n + 1 parts: kernels, a start or a wait,
kernels, and so on.
"""

from __future__ import annotations

import collections
import json
import threading
import time
from typing import Any

import torch

# The newest runs of each code that are kept.
MAX_RUNS = 100
# The names in generated code.
IMPORTED, VARIABLE = "_commsched_recorder_of", "_commsched_recorder"

_lock = threading.Lock()
# Indexed by the description of a code.
_recorders: dict[str, Recorder] = {}


def clock() -> int:
    """The host's monotonic clock, ns."""
    return time.perf_counter_ns()


class Recorder:
    """The runs of one code.

    On a device, a stamp is an event on the current stream, so the host never waits.

    Args:
        code: what was predicted (`inductor.marks`): `direction`, `device`, `parts` and times.
    """

    def __init__(self, code: dict):
        self.code = code
        self.runs: collections.deque[list[Any]] = collections.deque(maxlen=MAX_RUNS)
        # Runs so far, and those whose stamps did not come in the order of the parts.
        self.count = self.broken = 0
        self._stamps: list[Any] = []
        self._module = None if code["device"] == "cpu" else torch.get_device_module(code["device"])

    def _stamp(self) -> Any:
        if self._module is None:
            return clock()
        event = self._module.Event(enable_timing=True)
        event.record()
        return event

    def begin(self) -> None:
        self._stamps = [self._stamp()]

    def mark(self, index: int) -> None:
        """Stamp `index` of the run, counted from 1."""
        if index == len(self._stamps):
            self._stamps.append(self._stamp())

    def end(self) -> None:
        stamps, self._stamps = self._stamps, []
        self.count += 1
        if len(stamps) == len(self.code["parts"]):
            stamps.append(self._stamp())
            if self.count > 1:  # The first run of a code connects and allocates.
                self.runs.append(stamps)
        else:
            self.broken += 1

    def parts(self) -> list[list[int]]:
        """The duration of each part in each run, ns."""
        return [[b - a for a, b in zip(times, times[1:])] for times in map(self._times, list(self.runs))]

    def _times(self, stamps: list[Any]) -> list[int]:
        if self._module is None:
            return stamps
        stamps[-1].synchronize()
        return [round(1e6 * stamps[0].elapsed_time(s)) for s in stamps]


def recorder(text: str) -> Recorder:
    """The recorder of the code with this description. Generated code asks for it when it is loaded."""
    with _lock:
        found = _recorders.get(text)
        if found is None:
            found = _recorders[text] = Recorder(json.loads(text))
    return found


def recorders() -> list[Recorder]:
    """All recorders, in the order in which their codes were loaded."""
    with _lock:
        return list(_recorders.values())
