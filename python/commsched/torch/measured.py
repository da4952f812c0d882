# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Predictions for operations and collectives, beside the traces of a profiler."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

# Types without dimensions do not count: a trace does not tell a tensor of one element from a number.
_DIMENSIONS = re.compile(r"[\d?]+(?:x[\d?]+)*")


@dataclasses.dataclass(frozen=True)
class Compared:
    """A row: operations with one name and operands, or collectives of one kind, group, type and size.

    Args:
        count: how many of them a graph has.
        predicted: the time of one by the model, ns.
        measured: the time of one in the traces, ns. None if they have none.
    """

    name: str
    what: str
    count: int
    predicted: int
    measured: int | None

    @property
    def off(self) -> int:
        """By how much all of them together take longer than predicted, ns."""
        return 0 if self.measured is None else self.count * (self.measured - self.predicted)


class Measured:
    """The times in a machine profile that traces gave.

    Args:
        profile: the contents of the profile (docs/guide/MachineModel.md).
    """

    def __init__(self, profile: dict):
        self._ops: dict[tuple[str, tuple[str, ...]], int] = {}
        for op in profile.get("ops", []):
            self._ops.setdefault((op["name"], tuple(op.get("shapes", ()))), op["ns"])
        self._points = {
            (t["kind"], t.get("ranks"), t.get("nodes"), t.get("element", "any"), p["bytes"]): p["ns"]
            for t in profile.get("collectives", [])
            for p in t["points"]
        }

    def operation(self, row: dict) -> int | None:
        """The time of one operation of a row of `per_operation` of a report, as the library looks it up."""
        name = row["name"]
        exact = self._ops.get((name, tuple(row["operands"])))
        packet = name.rpartition(".")[0]
        if exact is not None or "." not in packet:
            return exact
        operands, results = ([s for s in row[part] if _DIMENSIONS.match(s)] for part in ("operands", "results"))
        for shapes in (operands, operands + results):
            for spelled in (shapes, [_untyped(s) for s in shapes]):
                if spelled and (ns := self._ops.get((packet, tuple(spelled)))) is not None:
                    return ns
        return None

    def collective(self, row: dict) -> int | None:
        """The time of a collective of a row of `per_collective`: only a point of exactly its size is a measurement."""
        for element in (row["element"], "any"):
            key = (row["kind"], row["ranks"], row["nodes"], element, row["bytes"])
            if (ns := self._points.get(key)) is not None:
                return ns
        return None

    def compared(self, report: dict) -> list[Compared]:
        """The rows of one graph, those first that are furthest off, and then those that no trace has by their time."""
        rows = [*self._operations(report), *self._collectives(report)]
        return sorted(rows, key=lambda r: (r.measured is None, -abs(r.off), -r.count * r.predicted))

    def _operations(self, report: dict) -> Iterator[Compared]:
        for row in report.get("per_operation", ()):
            count = row["count"]
            what = ", ".join(row["operands"])
            yield Compared(row["name"], what, count, row["cost_ns"] // count, self.operation(row))

    def _collectives(self, report: dict) -> Iterator[Compared]:
        counts: dict[Compared, int] = {}
        for row in report.get("per_collective", ()):
            if row["ranks"] < 2:
                continue
            what = f"{row['bytes']} bytes of {row['element']} on {row['ranks']} ranks"
            key = Compared(row["kind"], what, 1, row["cost_ns"], self.collective(row))
            counts[key] = counts.get(key, 0) + 1
        for key, count in counts.items():
            yield dataclasses.replace(key, count=count)


def _untyped(shape: str) -> str:
    found = _DIMENSIONS.match(shape)
    return found[0] if found else shape
