#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws the timeline that comm-opt writes for Perfetto as a picture: lanes and live memory, before and after.

    comm-opt PROGRAM --reorder-comm-overlap --comm-timeline=timeline.json -o /dev/null
    draw_timeline.py timeline.json timeline.svg [--title TEXT]

Both orders have the same axis of time, so a shorter one ends further left. docs/img/llama3-8b-tp8-bw.svg is the
picture of test/Graphs/llama3-8b-64-fsdp-tp8-bw.mlirbc with --comm-machine=h100-sxm.
"""

import argparse
import html
import json
from dataclasses import dataclass, field
from pathlib import Path

COMPUTE, WAITING, COLLECTIVE, MEMORY, INK, RULE = "#3b6ea5", "#d9534f", "#e8a33d", "#9aa5b1", "#24292f", "#d0d7de"
WIDTH, LEFT, RIGHT, TOP = 960, 150, 24, 62
LANE, SPACE, CURVE, PANEL_SPACE = 22, 6, 44, 34
# Two intervals with less than this distance, in pixels, are drawn as one.
SAME = 0.02


@dataclass
class Order:
    """One order of a block. Times are in microseconds, live bytes are (time, bytes) in the order of time."""

    lanes: dict[int, str] = field(default_factory=dict)
    intervals: dict[tuple[int, str], list[tuple[float, float]]] = field(default_factory=dict)
    live: list[tuple[float, int]] = field(default_factory=list)

    @property
    def makespan(self) -> float:
        return max(end for spans in self.intervals.values() for _, end in spans)

    @property
    def peak(self) -> int:
        return max((live for _, live in self.live), default=0)


def read_orders(path: Path) -> list[tuple[str, Order]]:
    """The processes of a trace: each is a block in one order, named "BLOCK before" or "BLOCK after"."""
    orders: dict[int, Order] = {}
    names: dict[int, str] = {}
    for event in json.loads(path.read_text())["traceEvents"]:
        order = orders.setdefault(event["pid"], Order())
        if event["ph"] == "M" and event["name"] == "process_name":
            names[event["pid"]] = event["args"]["name"]
        elif event["ph"] == "M":
            order.lanes[event["tid"]] = event["args"]["name"]
        elif event["ph"] == "X":
            span = (event["ts"], event["ts"] + event["dur"])
            order.intervals.setdefault((event["tid"], event["cat"]), []).append(span)
        elif event["ph"] == "C" and event["name"] == "live bytes":
            order.live.append((event["ts"], event["args"]["bytes"]))
    return [(names[pid], orders[pid]) for pid in sorted(orders)]


def bars(spans: list[tuple[float, float]], scale: float, y: float, color: str) -> str:
    """One path with a bar for each interval; `scale` is in pixels per microsecond."""
    merged: list[list[float]] = []
    for begin, end in sorted(spans):
        if merged and (begin - merged[-1][1]) * scale < SAME:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    steps = [
        f"M{LEFT + b * scale:.2f} {y}h{max((e - b) * scale, SAME):.2f}v{LANE}h{-max((e - b) * scale, SAME):.2f}z"
        for b, e in merged
    ]
    return f'<path fill="{color}" d="{"".join(steps)}"/>'


def curve(order: Order, scale: float, y: float, most: int) -> str:
    """The live bytes as an area: of all moments in one pixel, the largest value."""
    columns: dict[int, int] = {}
    for time, live in order.live:
        column = int(time * scale)
        columns[column] = max(columns.get(column, 0), live)
    points, height = [f"M{LEFT} {y + CURVE}"], 0.0
    for column in sorted(columns):
        points.append(f"L{LEFT + column} {y + CURVE - height:.1f}")
        height = CURVE * columns[column] / most
        points.append(f"L{LEFT + column} {y + CURVE - height:.1f}")
    end = LEFT + order.makespan * scale
    points.append(f"L{end:.1f} {y + CURVE - height:.1f}L{end:.1f} {y + CURVE}z")
    return f'<path fill="{MEMORY}" d="{"".join(points)}"/>'


def text(x: float, y: float, words: str, anchor: str = "start", weight: str = "normal", size: int = 13) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" font-size="{size}" '
        f'fill="{INK}">{html.escape(words)}</text>'
    )


def draw(orders: list[tuple[str, Order]], title: str) -> str:
    longest = max(order.makespan for _, order in orders)
    most = max(order.peak for _, order in orders) or 1
    scale = (WIDTH - LEFT - RIGHT) / longest
    parts, y = [text(LEFT, 24, title, weight="bold", size=15)], TOP
    for index, (color, words) in enumerate(
        [(COMPUTE, "computes"), (WAITING, "waits for a collective"), (COLLECTIVE, "collective runs")]
    ):
        x = LEFT + index * 180
        parts += [f'<rect x="{x}" y="36" width="12" height="12" fill="{color}"/>', text(x + 18, 47, words)]
    for name, order in orders:
        y += 14
        when = name.rsplit(" ", 1)[-1]
        parts.append(
            text(LEFT, y, f"{when}: {order.makespan / 1000:.0f} ms, peak {order.peak / 2**30:.1f} GiB", weight="bold")
        )
        y += 8
        for lane, label in sorted(order.lanes.items()):
            parts.append(text(LEFT - 10, y + LANE - 6, label, anchor="end"))
            for kind, color in (("compute", COMPUTE), ("exposed", WAITING), ("collective", COLLECTIVE)):
                if spans := order.intervals.get((lane, kind)):
                    parts.append(bars(spans, scale, y, color))
            y += LANE + SPACE
        parts += [text(LEFT - 10, y + CURVE - 4, "live memory", anchor="end"), curve(order, scale, y, most)]
        y += CURVE
        parts.append(f'<path stroke="{RULE}" d="M{LEFT} {y + 0.5}H{WIDTH - RIGHT}"/>')
        y += PANEL_SPACE - 14
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}" '
        f'font-family="Helvetica, Arial, sans-serif"><title>{html.escape(title)}</title>'
        f'<rect width="{WIDTH}" height="{y}" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--title", default="Predicted timeline, before and after scheduling")
    arguments = parser.parse_args()
    arguments.picture.write_text(draw(read_orders(arguments.trace), arguments.title))


if __name__ == "__main__":
    main()
