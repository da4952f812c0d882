# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the schedule of a graph would take if the axes of the mesh had another order, for its report."""

from __future__ import annotations

import json
import time
from typing import Any

import torch.distributed as dist

from ..meshes import digits_of, find_mesh
from ..placement import bound_of, played
from .options import Options, machine_file
from .reporting import survive
from .solving import Imported
from .stages import MEASURES


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
    ranks_per_node, bound = _ranks_per_node(options), bound_of(report)
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
    others = played(module.program, mesh, ranks_per_node, options.base())
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
    # Placements are compared by what is in a node, which does not tell what is in units of further levels.
    if "calibration" in profile or profile.get("collectives") or profile.get("levels"):
        return None
    return profile.get("node", {}).get("ranks")
