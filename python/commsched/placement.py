# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a scheduled program takes if the axes of its mesh have another order (Placement.md, "One line in the reports").

The schedule is played as it is, with the groups of the other orders. This is the time of one schedule there, and not of
the best one, which would take a search for each order. So a comparison with the lower bound of the given order proves
that another order is faster, and may miss one that is.
"""

from __future__ import annotations

import math
import re

from .meshes import Mesh, Order
from .program import Error, Program

# More placements than these are not played, so that the time stays a small part of that of scheduling.
MOST_PLACEMENTS = 12
# The place of the makespan as priced among the numbers of `Program.play`.
_AS_PRICED = 2
_GROUP = re.compile(
    r'^(?P<head> *comm\.group @(?P<name>"(?:[^"\\]|\\.)*"|\S+) )(?P<ranks>#comm\.\w+<[^>]*>)', re.MULTILINE
)
_IOTA = re.compile(r"#comm\.iota<\[(\d+), (\d+)\](?: from \[([\d, ]+)\](?: transpose \[([\d, ]+)\])?)?>")


def played(program: Program, mesh: Mesh, ranks_per_node: int, machine: str) -> list[dict] | None:
    """The time of a module in its own order with each placement of its groups but the given one.

    None if the given order does not fit the machine, or if the module cannot be played.
    """
    given, *orders = mesh.orders(range(len(mesh.sizes)))
    own = mesh.inside_nodes(given, ranks_per_node)
    if own is None:
        return None
    others: list[dict] = []
    text = ""
    for order in orders:
        inside = mesh.inside_nodes(order, ranks_per_node)
        if inside is None or inside == own or any(inside == other["inside_nodes"] for other in others):
            continue
        if len(others) == MOST_PLACEMENTS:
            break
        text = text or program.print()
        try:
            moved = Program(_placed(text, mesh, order), "placed", allow_unregistered=True)
            moved.set_peer_times({})  # Only the model is asked.
            others.append({"inside_nodes": inside, "makespan_ns": moved.play(machine)[_AS_PRICED]})
        except Error:  # Several blocks have collectives.
            return None
    return others


def _placed(text: str, mesh: Mesh, order: Order) -> str:
    """The text of a module with the groups of another order."""
    return _GROUP.sub(lambda found: found["head"] + mesh.iota(found["name"].strip('"'), order), text)


def bound_of(report: dict) -> int:
    """No schedule of a function within its limit on memory takes less, ns. 0 if nothing is known."""
    makespan, peak = report.get("makespan_ns", {}), report.get("peak_bytes", {})
    within = peak.get("after", 0) <= peak.get("limit", 0)
    return max(makespan.get("lower_bound", 0), makespan.get("limit_lower_bound", 0) if within else 0)


def groups_in(text: str) -> dict[str, tuple[list[int], int]] | None:
    """The first group of ranks that each `comm.group` of a module names, and the number of all ranks, by its name. None
    if one is an explicit list. O(ranks of a group).
    """
    groups = {}
    for found in _GROUP.finditer(text):
        iota = _IOTA.fullmatch(found["ranks"])
        if iota is None:
            return None
        count, size = int(iota[1]), int(iota[2])
        sizes = [int(n) for n in (iota[3] or str(count * size)).split(",")]
        order = [int(n) for n in iota[4].split(",")] if iota[4] else list(range(len(sizes)))
        strides = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
        ranks = []
        for place in range(size):
            rank = 0
            for axis in reversed(order):
                place, digit = divmod(place, sizes[axis])
                rank += digit * strides[axis]
            ranks.append(rank)
        groups[found["name"].strip('"')] = ranks, count * size
    return groups
