# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The passes that the option `passes` names: which of them an FX graph can hold, and in which stages they run."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence

from .. import program

# The pipeline that the options configure.
PIPELINE = "reorder-comm-overlap"
# The pass that makes costs equal on all ranks.
ALIGN_COSTS = "comm-align-costs"
# A pass that changes nothing: the report of the pipeline measures the graph as it is.
MEASURES = "comm-report{table=false}"
# The passes of this project that decide about order and merged collectives. Those that follow each other are one
# pipeline.
ORDERING = {
    ALIGN_COSTS,
    "comm-bucket",
    "comm-export-chakra",
    "comm-order-collectives",
    "comm-order-fsdp",
    "comm-pareto",
    "comm-raise",
    "comm-reorder-compute-for-overlap",
    "comm-reorder-preserving-peak-memory",
    "comm-report",
    "comm-schedule",
    "comm-sink-waits",
    "comm-sink-waits-preserving-peak-memory",
    "comm-verify",
}
# The passes of this project that change operations such that an FX graph can hold the result.
REWRITING = {"comm-move-casts", "comm-reinplace-all-gather", "comm-remove-unsharded-param-usage"}
# Indexed by pass: why an FX graph cannot hold what it does. The reason of all others is that they make operations that
# are not operators of PyTorch.
REFUSED = {
    "comm-pipeline-loops": "FX graphs have no scf.for",
    "comm-multi-stream": "PyTorch runs collectives on a stream of their group, and other streams are those that the "
    "user's code names",
    "comm-plan-memory": "the option memory_plan decides before a step is cut into two graphs",
    "comm-realize-buffers": "Inductor decides which buffers collectives use",
    "comm-split-strands": "the option strands splits graphs",
}
# The names of the passes of this project.
_OURS = re.compile(r"comm-|convert-comm-to-|convert-\w+-to-comm$")
# A pass of the user's own: it changes a program, or returns another one, as an object or as text.
Function = Callable[[program.Program], "program.Program | str | None"]


@dataclasses.dataclass
class Stage:
    """Passes that run over one module of a graph.

    Args:
        rewrites: whether they may change operations, and not only their order and which collectives are merged.
    """

    passes: list[str | Function]
    rewrites: bool


def name_of(entry: str | Function) -> str:
    """A pass in words: its name with its options, or the name of a function with that of its module."""
    if isinstance(entry, str):
        return entry
    kind = entry if hasattr(entry, "__qualname__") else type(entry)
    return f"{kind.__module__}.{kind.__qualname__}"


def _names(entry: str) -> list[str]:
    """The names of the passes in an entry, which may be a nested pipeline, without those of its anchors."""
    names = re.findall(r"[a-z][a-z0-9-]*(?:\.[a-z0-9_]+)?", re.sub(r"{[^}]*}", "", entry))
    return [name for name in names if "." not in name]


def check(entry: str | Function) -> None:
    """Raises ValueError if an entry of `passes` is none, or names a pass whose effect no FX graph can hold."""
    if callable(entry):
        return
    if not isinstance(entry, str):
        raise ValueError(f"passes: expected names of passes, or functions of a Program, got {entry!r}")
    for name in _names(entry):
        if name == PIPELINE or _OURS.match(name) and name not in ORDERING | REWRITING:
            why = REFUSED.get(name, "it makes operations that PyTorch does not have")
            raise ValueError(
                f"passes: {name} has no effect that an FX graph can hold: {why}. Those that have are "
                f"{', '.join(sorted(ORDERING | REWRITING))}"
            )


def aligns(entry: str | Function) -> bool:
    """Whether an entry is the alignment of costs."""
    return isinstance(entry, str) and ALIGN_COSTS in entry


def split(passes: Sequence[str | Function]) -> list[Stage]:
    """The passes as stages, each of which is carried out on the graph before the next one begins.

    A stage is passes that order and merge, one pass that rewrites operations, or one function. Every stage but
    those of functions begins with the alignment of costs, if there is one.
    """
    aligned = [entry for entry in passes if isinstance(entry, str) and aligns(entry)]
    stages: list[Stage] = []
    for entry in passes:
        if entry in aligned:
            continue
        orders = isinstance(entry, str) and ORDERING.issuperset(_names(entry))
        if orders and stages and not stages[-1].rewrites:
            stages[-1].passes.append(entry)
        else:
            stages.append(Stage([entry], not orders))
    for stage in stages:
        if not stage.rewrites:
            stage.passes[:0] = aligned
    return stages or [Stage([*aligned], False)]
