# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What FSDP2's public calls can set: groups of modules, resharding, and lists of modules to prefetch."""

from __future__ import annotations

import dataclasses

from ..eager.step import ROOT, Step


@dataclasses.dataclass(frozen=True)
class Group:
    """Units that are gathered and reduced together.

    Args:
        units: their numbers, in the order of their first forward. The root's group holds `ROOT`.
        reshard: the whole parameters after the forward pass. True: they are freed and gathered again.
            False: they are kept. A number from 2 on: so many neighbouring ranks keep a part of them each, and gather
            them from there.
        forward_ahead: how many later groups this one prefetches in the forward pass; 0 leaves FSDP2's own way.
        backward_ahead: the same of earlier groups in the backward pass.
        called: whether a step calls its modules. Nothing prefetches others.
        alone: whether it stays by itself: FSDP2 runs a group's hooks when all of its modules have run, so a module that
            is called twice, or never, disturbs the others.
    """

    units: tuple[int, ...]
    reshard: bool | int = True
    forward_ahead: int = 0
    backward_ahead: int = 0
    called: bool = True
    alone: bool = False


@dataclasses.dataclass(frozen=True)
class Setting:
    """A way to run FSDP2.

    Args:
        groups: the root's group first, then in the order of first forwards. Groups that are not called come last.
        reduce_buffers: how many inputs of reductions are kept in flight (`set_reduce_scatter_max_input_buffers`).
    """

    groups: tuple[Group, ...]
    reduce_buffers: int = 1

    def group_of(self) -> dict[int, int]:
        """Indexed by unit: the number of its group."""
        return {unit: i for i, group in enumerate(self.groups) for unit in group.units}

    def forward_targets(self, number: int) -> list[int]:
        """The groups that a group prefetches in the forward pass, by `set_modules_to_forward_prefetch`."""
        later = [i for i in range(number + 1, len(self.groups)) if self.groups[i].called]
        return later[: self.groups[number].forward_ahead]

    def backward_targets(self, number: int) -> list[int]:
        """The groups that a group prefetches in the backward pass, by `set_modules_to_backward_prefetch`.

        The root comes last in the forward pass. Groups that are kept need no prefetch.
        """
        first = len(self.groups) if number == 0 else number
        earlier = [i for i in range(first - 1, 0, -1) if self.groups[i].reshard and self.groups[i].called]
        return earlier[: self.groups[number].backward_ahead]


def step_group(step: Step, units: tuple[int, ...], reshard: bool | int = True) -> Group:
    """A group of these units."""
    called = any(u < step.called for u in units)
    return Group(units, reshard, called=called, alone=not called or any(u in step.repeated for u in units))


def by_units(step: Step, own: set[int]) -> Setting:
    """Each of these units is a group, as far as it may be, and the root has all other parameters."""
    alone = [u for u in sorted(own) if u != ROOT and step.units[u].parameters and not step.units[u].pinned]
    rest = tuple(u for u in range(len(step.units)) if u not in set(alone))
    return Setting((Group(rest, reshard=False), *(step_group(step, (u,)) for u in alone)))
