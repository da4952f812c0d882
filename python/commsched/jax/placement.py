# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`commsched.jax.faster_mesh`: another order of the axes of a mesh on which a program is proven to be faster."""

from __future__ import annotations

import json
import pathlib
import tempfile
from typing import Any

from .. import traces
from ..meshes import digits_of, faster_order, find_mesh
from ..placement import bound_of, groups_in, played
from ..program import Error, Program, machine_directories, option_value
from .convert import to_generic


def faster_mesh(lowered: Any, *, machine: str = "h100-sxm", memory_budget_ratio: float = 0.0) -> str:
    """One line about another order of the axes of a program's mesh, if the program is proven to be faster by more than
    2 % with it. Empty if none is, or if nothing can be said: docs/guide/Placement.md lists the reasons.

    Its collectives have to be written in the program, as `jax.shard_map` writes them. Nothing is compiled.

    Args:
        lowered: what `jax.jit(f).lower(...)` returns, or its text.
        machine: machine profile, by name or path.
        memory_budget_ratio: how far the peak may rise above that of the program's order, as a fraction.

    Raises:
        Error: the machine or the program cannot be read.
        ValueError: the text is not StableHLO.
    """
    text = lowered if isinstance(lowered, str) else lowered.as_text()
    profile = traces.machine_of(str(machine))
    program = Program(to_generic(text), "lowered", allow_unregistered=True)
    program.run("convert-stablehlo-to-comm")
    groups = groups_in(program.print())
    with tempfile.TemporaryDirectory(prefix="commsched") as folder:
        file = pathlib.Path(folder, "report.json")
        options = f"machine={option_value(profile)} memory-budget-ratio={memory_budget_ratio!r} table=false"
        program.run(f"reorder-comm-overlap{{{options} report-file={option_value(file)}}}")
        functions = json.loads(file.read_text())["functions"]
    if not groups or len(functions) != 1:
        return ""
    facts = _facts(program, groups, functions[0], profile)
    order = faster_order([facts]) if facts else None
    if order is None:
        return ""
    shape, names = order.mesh()
    return order.line(f"jax.make_mesh({shape}, {names})")


def _facts(program: Program, groups: dict[str, tuple[list[int], int]], report: dict, machine: str) -> dict | None:
    """What `faster_order` wants to know of a scheduled program. None if it cannot be compared."""
    digits = {name: found for name, (ranks, _) in groups.items() if (found := digits_of(ranks)) is not None}
    worlds, profile = {world for _, world in groups.values()}, _profile(machine)
    ranks_per_node, bound = profile.get("node", {}).get("ranks"), bound_of(report)
    if len(digits) < len(groups) or len(worlds) > 1 or not ranks_per_node or bound <= 0:
        return None
    # Measured times say nothing of other links, and placements are compared by what is in a node.
    if profile.get("collectives") or profile.get("levels"):
        return None
    [world] = worlds
    mesh = find_mesh(digits, world)
    others = (
        None if mesh is None or world % min(world, ranks_per_node) else played(program, mesh, ranks_per_node, machine)
    )
    if others is None:
        return None
    return {
        "world": world,
        "ranks_per_node": ranks_per_node,
        "groups": digits,
        "bound_ns": bound,
        "makespan_ns": report["makespan_ns"]["after"],
        "others": others,
    }


def _profile(machine: str) -> dict:
    """A machine profile, by name or path."""
    names = [pathlib.Path(machine), *(folder / f"{machine}.json" for folder in machine_directories())]
    file = next((name for name in names if name.is_file()), None)
    if file is None:
        raise Error(f"expected the path of a machine profile or the name of one, got {machine!r}")
    profile: dict = json.loads(file.read_text())
    return profile
