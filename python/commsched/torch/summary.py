# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Reports in words: one line per graph, a table of all, and a page for the browser."""

from __future__ import annotations

import html
import pathlib
from collections.abc import Sequence
from typing import Any

from ..meshes import faster_order, time_text
from .measured import Compared, Measured

Rows = Sequence[tuple[str, ...]]

#: The columns of the table.
COLUMNS = ("graph", "place", "collectives", "makespan", "", "exposed", "", "peak", "from optimal")
#: Those of the table of predicted and measured times.
COMPARED_COLUMNS = ("operation", "operands", "count", "predicted", "measured", "off")
#: The page names this number of collectives per graph, those that are exposed longest.
WORST = 20

NOTHING = "CommSched has scheduled nothing: Inductor has compiled no graph with collectives"
#: Wrappers that communicate in eager code, with what decides how they do it.
OUTSIDE = {
    "fully_shard": "commsched.torch.plan decides its settings (docs/guide/Fsdp2.md)",
    "DistributedDataParallel": "commsched.torch.plan_ddp decides its buckets (docs/guide/Ddp.md)",
}

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75em; margin: 2em auto; padding: 0 1em; color: #222; }
table { border-collapse: collapse; } th, td { padding: .2em .8em; border-bottom: 1px solid #ddd; text-align: left; }
td.number { text-align: right; font-variant-numeric: tabular-nums; } summary { cursor: pointer; margin-top: 1em; }
"""


def bytes_text(count: float) -> str:
    """A number of bytes with three digits and its unit."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"


def _change(report: dict, name: str) -> tuple[str, str]:
    """The value before and after, and the change in percent. Empty if the report lacks it."""
    value = report.get(name)
    if not isinstance(value, dict) or "after" not in value:
        return "", ""
    before = value.get("before", value.get("promised"))
    after = time_text(value["after"])
    if not before:
        return after, ""
    return f"{time_text(before)} -> {after}", f"{100 * (value['after'] - before) / before:+.1f} %"


def opinion_text(report: dict) -> str:
    """What the second opinion of PyTorch's costs changed in a schedule. Empty if there was none."""
    said = report.get("second_opinion")
    if not said:
        return ""
    if "loss_ppm" not in said:
        return f"no second opinion: {said['failure']}"
    before, after = (f"{max(0, said['loss_ppm'][when]) / 1e4:.1f} %" for when in ("before", "after"))
    if said["replaced"]:
        return f"PyTorch's costs chose another schedule: at most {after} slower than PyTorch's orders, was {before}"
    return f"at most {after} slower than PyTorch's orders by either costs"


def line(report: dict) -> str:
    """One line about the schedule of a graph."""
    makespan, exposed = (" ".join(filter(None, _change(report, name))) for name in ("makespan_ns", "exposed_ns"))
    parts = [f"{report.get('direction', 'a')} graph: {report.get('collectives', 0)} collectives"]
    parts += [f"makespan {makespan}"] * bool(makespan) + [f"exposed {exposed}"] * bool(exposed)
    if peak := report.get("peak_bytes"):
        parts.append(f"peak {bytes_text(peak['after'])}, limit {bytes_text(peak.get('limit', peak['after']))}")
    if measure := report.get("measure"):
        parts.append(f"costs of {measure['points']} sizes are measured" if measure["points"] else "no cost is measured")
    if opaque := report.get("opaque"):
        parts.append(f"{len(opaque)} opaque nodes")
    if opinion := opinion_text(report):
        parts.append(opinion)
    took = sum(report.get(name, 0) for name in ("import_ns", "pipeline_ns", "apply_ns"))
    return ", ".join(parts) + (f"; scheduled in {time_text(took)}" if took else "")


def unknown_share(report: dict) -> float:
    """The share of the time of all operations whose cost is a guess."""
    times = report.get("cost_times_ns", {})
    total = sum(times.values())
    return times.get("unknown", 0) / total if total else 0.0


def rows(reports: list[dict]) -> Rows:
    """The cells of the table, one row per report."""
    table = []
    for r in reports:
        peak = r.get("peak_bytes", {}).get("after")
        gap = r.get("gap")
        table.append(
            (
                str(r.get("direction", "")),
                str(r.get("place", "")),
                str(r.get("collectives", "")),
                *_change(r, "makespan_ns"),
                *_change(r, "exposed_ns"),
                "" if peak is None else bytes_text(peak),
                "" if gap is None else f"at most {100 * gap:.2f} %",
            )
        )
    return table


class Report:
    """What CommSched did so far: a table if printed, a page in a notebook or as a file.

    Attributes:
        reports: one dictionary per graph and place, as `commsched.torch.reports` returns them.
        measured: what traces of a profiler say of operations and collectives, if there are any.
        outside: the wrappers (`OUTSIDE`) inside of which graphs were compiled.
    """

    def __init__(self, reports: list[dict], measured: Measured | None = None, outside: Sequence[str] = ()):
        self.reports = reports
        self.measured = measured
        self.outside = outside

    def compared(self) -> list[tuple[str, list[Compared]]]:
        """For each graph one line about its costs, and what was predicted beside what the traces say."""
        if self.measured is None:
            return []
        graphs = [(r, self.measured.compared(r)) for r in self.reports if r.get("per_operation") is not None]
        return [(_shares(r, compared), compared) for r, compared in graphs]

    def switched_off(self) -> str:
        """One line about the pass of Inductor's that was on and did not run, for the order was decided. Empty if there
        was none.
        """
        codes = [r for r in self.reports if r.get("place") == "code" and "switched_off" in r]
        if not codes:
            return ""
        passes = ", ".join(sorted({r["switched_off"] for r in codes}))
        which = f"{len(codes)} graphs, which have" if len(codes) > 1 else "1 graph, which has"
        return f"Inductor's {passes} was off for {which} the order that CommSched decided"

    def faster_mesh(self) -> str:
        """One line about another order of the dimensions of the mesh, if the graphs of the report, each taken once, are
        proven to be faster by more than 2 % with it (Placement.md). Empty if none is.
        """
        graphs = [r for r in self.reports if r.get("place") == "graph" and r.get("collectives")]
        if not graphs or any("placements" not in r for r in graphs):
            return ""
        order = faster_order([r["placements"] for r in graphs])
        if order is None:
            return ""
        shape, names = order.mesh()
        return order.line(f'init_device_mesh("cuda", {shape}, mesh_dim_names={names})')

    def breaks(self) -> list[str]:
        """One line for each break of a function's graph beside which collectives are exposed."""
        graphs = {(r["breaks"]["frame"], r["direction"]): r for r in self.reports if "breaks" in r}
        places = {r["breaks"][side]: None for r in graphs.values() for side in ("before", "behind")}
        return [line for place in places if place for line in _break(place, list(graphs.values()))]

    def bodies(self) -> list[str]:
        """One line for each body of a loop or a branch that holds collectives."""
        return [
            f"the body of {r['body_of']} is scheduled by itself: no collective crosses its beginning or its end, and "
            f"{time_text(r['exposed_ns']['after'])} of them are exposed in each run"
            for r in self.reports
            if r.get("place") == "graph" and "body_of" in r and r.get("collectives")
        ]

    def notes(self) -> list[str]:
        """What is to be said of all graphs together, one line each."""
        outside = [
            f"the collectives of {wrapper} are outside of the compiled graphs, and nothing here schedules them: "
            f"{OUTSIDE[wrapper]}"
            for wrapper in self.outside
        ]
        return [
            note for note in (self.switched_off(), self.faster_mesh(), *self.breaks(), *self.bodies(), *outside) if note
        ]

    def __str__(self) -> str:
        if not self.reports:
            return "\n".join([NOTHING, *self.notes()])
        table = [COLUMNS, *rows(self.reports)]
        parts = [_text(table)]
        parts += ["", *notes] if (notes := self.notes()) else []
        for headline, compared in self.compared():
            parts += ["", headline, _text([COMPARED_COLUMNS, *map(_cells, compared[:WORST])])]
        return "\n".join(parts)

    __repr__ = __str__

    @property
    def html(self) -> str:
        """The same as a page without scripts, with the collectives of each graph that are exposed longest."""
        body = "".join(_worst(i, r) for i, r in enumerate(self.reports) if r.get("per_collective"))
        for headline, compared in self.compared():
            cells = _table(COMPARED_COLUMNS, [_cells(c) for c in compared])
            body += f"<details><summary>{html.escape(headline)}</summary>{cells}</details>"
        body = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes()) + body
        title = "CommSched's report" if self.reports else NOTHING
        return (
            f"<!doctype html><html lang=en><meta charset=utf-8><title>CommSched</title><style>{STYLE}</style>"
            f"<h1>{html.escape(title)}</h1>{_table(COLUMNS, rows(self.reports))}{body}</html>\n"
        )

    def _repr_html_(self) -> str:
        return self.html

    def write(self, path: str | pathlib.Path) -> None:
        """Writes the page. Raises OSError if it cannot be written."""
        pathlib.Path(path).write_text(self.html, encoding="utf-8")


def _break(place: str, graphs: list[dict]) -> list[str]:
    """The line about a break of a function's graph, or no line if nothing is exposed beside it.

    Of what is exposed on one side, the computations on the other side hide at most as much as they take.
    """
    waited = gathered = 0
    for direction in ("forward", "backward"):
        own = [r for r in graphs if r["direction"] == direction]
        before = [r for r in own if r["breaks"]["behind"] == place]
        behind = [r for r in own if r["breaks"]["before"] == place]
        waited += _hidden(sum(r["breaks"]["end_ns"] for r in before), behind)
        gathered += _hidden(sum(r["breaks"]["begin_ns"] for r in behind), before)
    parts = [f"{time_text(waited)} of collectives that a graph waits for at its end and does not need"] * bool(waited)
    parts += [f"{time_text(gathered)} of gathers of parameters at the beginning of a graph"] * bool(gathered)
    if not parts:
        return []
    return [f"the graph break at {place} exposes up to {time_text(waited + gathered)}: {', and '.join(parts)}"]


def _hidden(exposed: int, graphs: list[dict]) -> int:
    """How much of an exposed time these graphs can hide at most. All of it if nobody knows what they compute."""
    if not graphs:
        return exposed
    return min(exposed, sum(max(0, r["makespan_ns"]["after"] - r["exposed_ns"]["after"]) for r in graphs))


def _text(table: Rows) -> str:
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in table)


def _shares(report: dict, compared: list[Compared]) -> str:
    """How much of the predicted time of a graph's operations and collectives is in the traces."""
    total = sum(c.count * c.predicted for c in compared)
    known = [c for c in compared if c.measured is not None]
    part = sum(c.count * c.predicted for c in known)
    percent = 100 * part / total if total else 0.0
    both = f"{time_text(part)} predicted, {time_text(part + sum(c.off for c in known))} measured"
    return f"{report.get('direction', 'a')} graph: {percent:.1f} % of {time_text(total)} are in the traces: {both}"


def _cells(row: Compared) -> tuple[str, ...]:
    measured = "not in the traces" if row.measured is None else time_text(row.measured)
    off = "" if row.measured is None else f"{100 * row.off / max(1, row.count * row.predicted):+.1f} %"
    return row.name, row.what, str(row.count), time_text(row.predicted), measured, off


def _table(columns: tuple[str, ...], cells: Rows) -> str:
    def row(values: tuple[str, ...], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(v)}</{tag}>" for v in values) + "</tr>"

    return "<table>" + row(columns, "th") + "".join(row(values, "td") for values in cells) + "</table>"


def _worst(number: int, report: dict[str, Any]) -> str:
    collectives = sorted(report["per_collective"], key=lambda c: -c["exposed_ns"]["after"])[:WORST]
    cells = [
        (
            str(c["loc"]),
            str(c["kind"]),
            bytes_text(c["bytes"]),
            time_text(c["cost_ns"]),
            time_text(c["exposed_ns"]["after"]),
            str(c["limiting_factor"]),
        )
        for c in collectives
    ]
    columns = ("collective", "kind", "bytes", "takes", "exposed", "what limits it")
    return f"<details><summary>{number + 1}: {html.escape(line(report))}</summary>{_table(columns, cells)}</details>"


def columns(rows: Rows) -> list[str]:
    """Lines of a table: cells that stand below each other begin in the same column."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  " + "  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in rows]


def change(old: int, new: int) -> str:
    """By how much a number changed, in percent. Empty if it was 0."""
    return f"{100 * (new - old) / old:+.1f} %" if old else ""
