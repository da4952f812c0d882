# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the schedule of a graph would take if the axes of the mesh had another order.

The schedule is played as it is, with the groups of the other orders. This is the time of one schedule there, and not of
the best one, which would take a search for each order. So a comparison with the lower bound of the given order proves
that another order is faster, and may miss one that is (Placement.md, "One line in the reports").
"""

from __future__ import annotations

import json
import re
import time
from typing import Any

import torch.distributed as dist

from ..meshes import Mesh, Order, digits_of, find_mesh
from ..program import Error, Program
from .options import MEASURES, Options, machine_file
from .reporting import survive
from .solving import Imported

# More placements than these are not played, so that the time stays a small part of that of scheduling.
MOST_PLACEMENTS = 12
# The place of the makespan as priced among the numbers of `Program.play`.
_AS_PRICED = 2
_GROUP = re.compile(r'^( *comm\.group @("(?:[^"\\]|\\.)*"|\S+) )#comm\.\w+<[^>]*>', re.MULTILINE)


def compare_orders(module: Imported, report: dict, options: Options) -> None:
    """Adds "placements" to the report of a schedule, if there is something to say and the schedule was searched for."""
    if options.passes[-1:] == (MEASURES,):
        return
    try:
        found = placements(module, report, options)
    except Exception as error:  # The schedule is kept. Only the comparison is missing.
        survive("the report does not compare orders of the mesh", error)
        return
    if found is not None:
        report["placements"] = found


def placements(module: Imported, report: dict, options: Options) -> dict[str, Any] | None:
    """The times of a scheduled module if the axes of the mesh have other orders. None if nothing can be said.

    Args:
        report: what the passes say of the schedule.

    Returns:
        What `meshes.faster_order` wants to know of a graph, and "took_ns".
    """
    began = time.process_time_ns()
    ranks_per_node, bound = _ranks_per_node(options), _bound(report)
    if ranks_per_node is None or bound <= 0 or not dist.is_available() or not dist.is_initialized():
        return None
    world, digits = dist.get_world_size(), {}
    for symbol, ranks in module.importer.groups.ranks().items():
        found = digits_of(ranks)
        if found is None or any(ranks[0] // stride % size for size, stride in found):
            return None
        digits[symbol.removeprefix("@").strip('"')] = found
    mesh = find_mesh(digits, world)
    if mesh is None or world % min(world, ranks_per_node):
        return None
    others = _played(module.program, mesh, ranks_per_node, options.base())
    if others is None:
        return None
    return {
        "world": world,
        "ranks_per_node": ranks_per_node,
        "groups": {name: [list(digit) for digit in found] for name, found in digits.items()},
        "bound_ns": bound,
        "makespan_ns": report["makespan_ns"]["after"],
        "others": others,
        "took_ns": time.process_time_ns() - began,
    }


def _ranks_per_node(options: Options) -> int | None:
    """The ranks of one node of the machine. None if costs are not those of its models, which know other links."""
    file = machine_file(options.base())
    if file is None or options.measures() or options.aligns() or options.runtime_estimation is not None:
        return None
    profile = json.loads(file.read_text())
    return None if "calibration" in profile or profile.get("collectives") else profile.get("node", {}).get("ranks")


def _bound(report: dict) -> int:
    """No schedule within the limit on memory takes less, ns. 0 if nothing is known."""
    makespan, peak = report.get("makespan_ns", {}), report.get("peak_bytes", {})
    within = peak.get("after", 0) <= peak.get("limit", 0)
    return max(makespan.get("lower_bound", 0), makespan.get("limit_lower_bound", 0) if within else 0)


def _played(program: Program, mesh: Mesh, ranks_per_node: int, machine: str) -> list[dict] | None:
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
            moved = Program(_placed(text, mesh, order), "graph")
            moved.set_peer_times({})  # Only the model is asked.
            others.append({"inside_nodes": inside, "makespan_ns": moved.play(machine)[_AS_PRICED]})
        except Error:  # Several blocks have collectives.
            return None
    return others


def _placed(text: str, mesh: Mesh, order: Order) -> str:
    """The text of a module with the groups of another order."""
    return _GROUP.sub(lambda found: found[1] + mesh.iota(found[2].strip('"'), order), text)
