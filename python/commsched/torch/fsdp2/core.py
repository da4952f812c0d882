# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The scheduler's own answer for a step, and settings of FSDP2 that come close to it.

The scheduler may start every collective when it likes, merge any of them, and keep what is gathered. Its answer knows
nothing of FSDP2's lists and groups, so it is read as a wish: how many groups ahead each gather starts, which
neighbours are gathered or reduced together, and which are not gathered again.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import tempfile
from typing import Any

from ...program import Error, Operation, Program
from ..eager.step import Step
from ..options import option_value
from ..stages import PIPELINE
from .items import Kind
from .layout import Layout
from .program import NAME, copy_ns, function, module
from .runtime import Run
from .setting import Group, Setting

ANY_MEMORY = 1 << 60


@dataclasses.dataclass(frozen=True)
class Answer:
    """The scheduler's answer.

    Args:
        settings: settings of FSDP2 that follow it.
        bound_ns: no setting takes less, with any amount of memory: no order and no merging of the gathers and
            reductions that every setting needs does.
    """

    settings: list[Setting]
    bound_ns: int


def solve(step: Step, fine: Setting, layout: Layout, limit: int, machine: Any) -> Answer:
    """Lets the scheduler order the collectives of a step.

    Args:
        fine: the setting with the smallest groups.
        limit: bytes of the peak, with the shards of parameters.
    """
    run = Run(step, fine, layout)
    try:
        program, _ = _scheduled(run, f"memory-plan=on memory-limit-bytes={max(0, limit - run.shard_bytes)}", machine)
        settings = _settings(fine, program.operations()[NAME])
    except Error:  # The groups of this setting do not fit. Others may.
        settings = []
    return Answer(settings, _bound(step, fine, layout, machine))


def _bound(step: Step, fine: Setting, layout: Layout, machine: Any) -> int:
    """A time that no setting beats: everything is gathered and reduced once, and merged at will.

    One copy for all groups has one launch, so each group's copy counts its share of that. Gathers of several element
    types can be merged in FSDP2, as bytes.
    """
    kept = tuple(dataclasses.replace(g, reshard=False) for g in fine.groups)
    run = Run(step, dataclasses.replace(fine, groups=kept), layout)
    for kind in (Kind.COPY_OUT, Kind.COPY_IN):
        items = [item for item in run.items if item.kind is kind]
        total = sum(item.nbytes for item in items)
        ns = copy_ns(total, layout, machine)
        for item in items:
            item.cost_ns = ns * item.nbytes // total
    gathers = [item for item in run.items if item.kind in (Kind.GATHER, Kind.COPY_OUT)]
    if len({item.itemsize for item in gathers}) > 1:
        for item in gathers:
            item.itemsize = 1
    _, report = _scheduled(run, f"memory-limit-bytes={ANY_MEMORY}", machine, timed_copies=True)
    return report["makespan_ns"]["lower_bound"]


def _scheduled(run: Run, settings: str, machine: Any, timed_copies: bool = False) -> tuple[Program, dict[str, Any]]:
    """The program of a run with free collectives in the scheduler's order, and the report."""
    order = run.host_order()
    text = module([function(run, order, NAME, locations=True, free=True, timed_copies=timed_copies)], run.layout)
    program = Program(text, NAME)
    with tempfile.TemporaryDirectory(prefix="commsched") as folder:
        file = pathlib.Path(folder, "report.json")
        program.run(
            f"{PIPELINE}{{machine={option_value(machine)} bucketing=true effort=0 objective=makespan {settings} "
            f"report-file={option_value(file)} table=false}}"
        )
        (report,) = json.loads(file.read_text())["functions"]
    return program, report


class _Pass:
    """The gathers of one pass (forward or backward) in the scheduler's answer.

    Attributes:
        order: groups in the order of their copy-outs.
        started: indexed by group: the number of copy-outs before its gather.
        together: sets of groups with one gather.
    """

    def __init__(self, operations: list[Operation], name: str):
        self.order: list[int] = []
        self.started: dict[int, int] = {}
        self.together: list[set[int]] = []
        for operation in operations:
            parts = [n.split(".") for n in operation.names]
            own = [int(p[2]) for p in parts if len(p) == 4 and p[1] == name]
            if operation.opcode == "comm.compute" and own and parts[0][0] == "copy_out":
                self.order.append(own[0])
            elif operation.opcode == "comm.all_gather" and own:
                self.started |= dict.fromkeys(own, len(self.order))
                self.together.append(set(own))

    def ahead(self, delay: int) -> dict[int, int]:
        """Indexed by group: how many groups it prefetches.

        Args:
            delay: how many copy-outs lie between that of a group that prefetches and the one that its gathers wait for.
        """
        reach = [0] * len(self.order)
        for place, group in enumerate(self.order):
            if group in self.started:
                by = max(0, min(place - 1, self.started[group] - 1 + delay))
                reach[by] = max(reach[by], place)
        for i in range(1, len(reach)):
            reach[i] = max(reach[i], reach[i - 1])
        return {group: max(0, reach[i] - i) for i, group in enumerate(self.order)}


def _settings(fine: Setting, operations: list[Operation]) -> list[Setting]:
    forward, backward = _Pass(operations, "fw"), _Pass(operations, "bw")
    ahead, behind = forward.ahead(1), backward.ahead(0)
    ordered = [
        dataclasses.replace(g, forward_ahead=ahead.get(i, 0), backward_ahead=behind.get(i, 0))
        for i, g in enumerate(fine.groups)
    ]
    kept = [
        g if i in backward.started or i not in forward.started else dataclasses.replace(g, reshard=False)
        for i, g in enumerate(ordered)
    ]
    reduced = [
        {int(n.split(".")[2]) for n in o.names if n.startswith("reduce_scatter")}
        for o in operations
        if o.opcode == "comm.reduce_scatter"
    ]
    found = []
    for groups in (ordered, kept):
        found.append(Setting(tuple(groups)))
        for together in (forward.together, reduced):
            found.append(Setting(_merged(groups, together)))
    return list(dict.fromkeys(found))


def _merged(groups: list[Group], together: list[set[int]]) -> tuple[Group, ...]:
    """Groups whose neighbours are merged if one collective has both. The root stays alone."""
    result = [groups[0]]
    for i in range(1, len(groups)):
        if i > 1 and can_merge(groups[i - 1], groups[i]) and any({i - 1, i} <= s for s in together):
            result[-1] = merge(result[-1], groups[i])
        else:
            result.append(groups[i])
    return tuple(result)


def can_merge(first: Group, second: Group) -> bool:
    """Whether two neighbours other than the root may be one group."""
    return not (first.alone or second.alone)


def _kept_more(first: bool | int, second: bool | int) -> bool | int:
    """Of two choices about whole parameters after the forward pass, the one that keeps more of them."""
    if first is True or second is True:
        return second if first is True else first
    return min(int(first), int(second)) or False


def merge(first: Group, second: Group) -> Group:
    """Two neighbours as one group."""
    return Group(
        first.units + second.units,
        _kept_more(first.reshard, second.reshard),
        max(first.forward_ahead, second.forward_ahead),
        max(first.backward_ahead, second.backward_ahead),
    )
