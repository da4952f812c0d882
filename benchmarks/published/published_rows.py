# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The rows of published measurements: one JSON file each in `rows`, described in README.md beside this file."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROWS = Path(__file__).resolve().parent / "rows"

KINDS = ("step", "collective")
COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce")
ORDERS = (
    "as traced",
    "per block",
    "500 MB buckets",
    "500 MB buckets + simple_overlap",
    "automatic",
    "automatic + simple_overlap",
)
# Units of a step and of a collective. A step in a unit of throughput is slower if the number is smaller.
STEP_UNITS = ("ms", "tokens/s/GPU", "% of peak")
COLLECTIVE_UNITS = ("us", "GB/s bus")

_ROW = {
    "title": str,
    "kind": str,
    "program": dict,
    "machine": dict,
    "unit": str,
    "modes": list,
    "source": dict,
    "unknown": list,
}
_PROGRAM = {
    "step": {"model": str, "ranks": int, "tp": int, "batch": int, "sequence": int, "recompute": str, "reshard": bool},
    "collective": {"collective": str, "ranks": int, "element": str},
}
_MACHINE = {"profile": str, "said": str}
_SOURCE = {"url": str, "what": str, "seen": str}


class RowError(ValueError):
    """A row file does not say what it has to say. The message begins with its name."""


@dataclasses.dataclass(frozen=True)
class Mode:
    """One measurement of a row.

    Args:
        program: what differs from the row's program.
        order: how the collectives of a step are merged and ordered, one of ORDERS.
        fusion: whether pointwise operators are fused into kernels, as a compiler does.
        bytes: the size of a collective as nccl-tests counts it: of the whole tensor.
        peak_gib: the peak of memory that was measured, or None.
        judged: whether the order of modes counts it. A row says in `unknown` why it does not.
    """

    name: str
    measured: float
    program: dict[str, Any]
    order: str
    fusion: bool
    bytes: int
    peak_gib: float | None
    judged: bool


@dataclasses.dataclass(frozen=True)
class Row:
    """A published measurement."""

    name: str
    title: str
    kind: str
    program: dict[str, Any]
    profile: str
    said: str
    changes: dict[str, dict]
    unit: str
    peak_tflops: float | None
    modes: tuple[Mode, ...]
    source: dict[str, str]
    unknown: tuple[str, ...]


def _expect(name: str, condition: bool, message: str) -> None:
    if not condition:
        raise RowError(f"{name}: {message}")


def _fields(name: str, where: str, value: Any, expected: dict[str, type], optional: Iterable[str] = ()) -> None:
    _expect(name, isinstance(value, dict), f"{where}: expected an object, got {value!r}")
    missing = sorted(set(expected) - set(value))
    _expect(name, not missing, f"{where}: expected the keys {', '.join(missing)}")
    unknown = sorted(set(value) - set(expected) - set(optional))
    _expect(name, not unknown, f"{where}: unknown keys {', '.join(unknown)}")
    for key, kind in expected.items():
        found = value[key]
        good = isinstance(found, kind) and (kind is bool or not isinstance(found, bool))
        _expect(name, good, f"{where}.{key}: expected {kind.__name__}, got {found!r}")


def _mode(name: str, row: dict, value: Any) -> Mode:
    step = row["kind"] == "step"
    optional = {"program", "order", "fusion", "peak_gib", "judged"} if step else {"judged"}
    _fields(name, "mode", value, {"name": str, **({} if step else {"bytes": int})}, {*optional, "measured"})
    measured, peak = value.get("measured"), value.get("peak_gib")
    for what, number in (("measured", measured), ("peak_gib", peak)):
        positive = isinstance(number, (int, float)) and not isinstance(number, bool) and number > 0
        allowed = positive or (what == "peak_gib" and number is None)
        _expect(name, allowed, f"{value['name']}: {what}: expected a number above 0, got {number!r}")
    order = value.get("order", "per block")
    _expect(name, order in ORDERS, f"{value['name']}: order: expected one of {', '.join(ORDERS)}, got {order!r}")
    changed = value.get("program", {})
    extra = sorted(set(changed) - set(_PROGRAM["step"]))
    _expect(name, not extra, f"{value['name']}: program: unknown keys {', '.join(extra)}")
    _expect(name, step or value["bytes"] > 0, f"{value['name']}: bytes: expected a number above 0")
    return Mode(
        value["name"],
        measured,
        changed,
        order,
        value.get("fusion", True),
        value.get("bytes", 0),
        peak,
        value.get("judged", True),
    )


def parse(name: str, text: str) -> Row:
    """The row in `text`.

    Raises:
        RowError: something is missing, unknown or of the wrong type.
    """
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        raise RowError(f"{name}: expected JSON: {error}") from error
    _fields(name, "row", row, _ROW, ("peak_tflops",))
    _expect(name, row["kind"] in KINDS, f"kind: expected one of {', '.join(KINDS)}, got {row['kind']!r}")
    _fields(name, "program", row["program"], _PROGRAM[row["kind"]])
    _fields(name, "machine", row["machine"], _MACHINE, ("changes",))
    _fields(name, "source", row["source"], _SOURCE)
    _expect(
        name, row["source"]["url"].startswith("https://"), "source.url: expected an address that begins with https://"
    )
    units = STEP_UNITS if row["kind"] == "step" else COLLECTIVE_UNITS
    _expect(name, row["unit"] in units, f"unit: expected one of {', '.join(units)}, got {row['unit']!r}")
    needs = row["unit"] == "% of peak"
    _expect(name, needs == ("peak_tflops" in row), "peak_tflops: expected with the unit '% of peak', and only with it")
    if row["kind"] == "collective":
        kind = row["program"]["collective"]
        _expect(name, kind in COLLECTIVES, f"collective: expected one of {', '.join(COLLECTIVES)}, got {kind!r}")
    _expect(name, bool(row["modes"]), "modes: expected at least one")
    modes = tuple(_mode(name, row, value) for value in row["modes"])
    _expect(name, len({m.name for m in modes}) == len(modes), "modes: expected names that differ")
    said = row["unknown"] and all(isinstance(text, str) and text for text in row["unknown"])
    _expect(name, bool(said), "unknown: expected at least one sentence")
    machine = row["machine"]
    return Row(
        name,
        row["title"],
        row["kind"],
        row["program"],
        machine["profile"],
        machine["said"],
        machine.get("changes", {}),
        row["unit"],
        row.get("peak_tflops"),
        modes,
        row["source"],
        tuple(row["unknown"]),
    )


def load(folder: Path = ROWS) -> list[Row]:
    """All rows of a folder, by name."""
    return [parse(path.stem, path.read_text()) for path in sorted(folder.glob("*.json"))]
