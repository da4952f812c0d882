# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Finds a setting of FSDP2: begins with the scheduler's answer and usual settings, and changes one thing at a time.

The library times every setting as FSDP2's runtime would run it (`runtime`), with its constraints, so what is chosen can
be carried out. The default setting is always among them. The number of settings that are tried depends on the step
alone, never on time, so all ranks find the same.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..eager.step import Step
from . import core, program
from .layout import Layout
from .program import Measure
from .runtime import Run
from .setting import Group, Setting, by_units

# At most this many items of runs are timed in one search, about 100 microseconds each, but at least so many settings,
# and at most so many.
MOST_ITEMS, LEAST_SETTINGS, MOST_SETTINGS = 60_000, 60, 400
# From this number of ways to group, changes are tried.
MOST_STARTS = 5
# In a row of more groups than this with equal sizes, only those at its ends are changed one by one.
LONG_ROW = 6
# A change has to save this many millionths of the step, or to make the setting simpler.
LEAST_GAIN_PPM = 50
# A group prefetches at most this many others. FSDP2's documentation speaks of two; more only takes memory.
MOST_AHEAD = 4
MOST_REDUCE_BUFFERS = 4


@dataclasses.dataclass(frozen=True)
class Priced:
    """A setting and what it takes."""

    setting: Setting
    measure: Measure


class Pricer:
    """Times settings of one step, each once."""

    def __init__(self, step: Step, layout: Layout, machine: Any, limit: int | None):
        self.step, self.layout, self.machine, self.limit = step, layout, machine, limit
        self.known: dict[Setting, Measure] = {}
        # Indexed by program: settings that FSDP2 carries out alike have one.
        self._texts: dict[str, Measure] = {}
        self.items = 0
        # What had been timed when this part of the search began, and what share of the usual number it may time.
        self._before, self._share = (0, 0), 1

    def __call__(self, settings: Iterable[Setting]) -> list[Priced]:
        """The settings that are legal and not too many, with their times."""
        asked = list(dict.fromkeys(settings))
        new: dict[str, Run] = {}
        texts: dict[Setting, str] = {}
        for setting in asked:
            if setting in self.known or self.exhausted(len(new)):
                continue
            run = Run(self.step, setting, self.layout)
            text = texts[setting] = program.on_device(run)
            if text not in self._texts and text not in new:
                self.items += len(run.items)
                new[text] = run
        self._texts |= zip(new, program.measure(new, self.machine))
        self.known |= {setting: self._texts[text] for setting, text in texts.items()}
        return [Priced(s, self.known[s]) for s in asked if s in self.known]

    def exhausted(self, more: int = 0) -> bool:
        """Whether no further setting is timed, after `more` that are about to be."""
        items, timed = self.items - self._before[0], len(self._texts) + more - self._before[1]
        most = MOST_SETTINGS // self._share
        return items > MOST_ITEMS // self._share and timed >= min(LEAST_SETTINGS, most) or timed >= most

    def go_on(self, share: int) -> None:
        """From now on, so many settings are timed as if none had been, divided by `share`."""
        self._before, self._share = (self.items, len(self._texts)), share

    def key(self, priced: Priced) -> tuple[int, ...]:
        """Smaller is better: within the limit, then faster, then closer to FSDP2's default, with less memory."""
        m, s = priced.measure, priced.setting
        excess = 0 if self.limit is None else max(0, m.needed_bytes - self.limit)
        lists = sum(g.forward_ahead + g.backward_ahead for g in s.groups)
        return excess, m.step_ns, lists, s.reduce_buffers, m.needed_bytes, sum(g.reshard is not True for g in s.groups)

    def is_better(self, one: Priced, other: Priced) -> bool:
        """Whether a setting is to be preferred: it is better by a margin, or at least as good and simpler."""
        (excess, ns, *rest), (other_excess, other_ns, *other_rest) = self.key(one), self.key(other)
        if excess != other_excess:
            return excess < other_excess
        margin = other_ns * LEAST_GAIN_PPM // 1_000_000
        return ns < other_ns - margin or ns <= other_ns and rest < other_rest


def search(pricer: Pricer, default: Setting, lists_only: bool = False) -> tuple[list[Priced], int | None]:
    """All settings that were tried, the best one first, and a lower bound of the time of any setting.

    Args:
        lists_only: groups and resharding are those of `default`.
    """
    bound = None
    base = pricer([default])[0]
    limit = base.measure.needed_bytes if pricer.limit is None else pricer.limit
    pricer.limit = limit
    fine = default if lists_only else by_units(pricer.step, set(range(len(pricer.step.units))))
    seeds = [default]
    if len(fine.groups) > 1:
        answer = core.solve(pricer.step, fine, pricer.layout, limit, pricer.machine)
        bound = answer.bound_ns
        seeds += [s for s in answer.settings if not lists_only or _same_groups(s, default)]
    pricer(_capped(s) for s in seeds)
    if lists_only:
        pricer(_alike(default, ahead, default.reduce_buffers) for ahead in (0, 2, 3))
    else:
        _try_usual(pricer, default, fine)
    moves = _list_moves if lists_only else _moves
    ends = [_descended(pricer, start, moves) for start in _starts(pricer)]
    if pricer.layout.part and not lists_only:
        ends += _with_parts(pricer, [min(ends, key=pricer.key), *pricer([default])])
    rest = sorted((Priced(s, m) for s, m in pricer.known.items()), key=pricer.key)
    return [*sorted(ends, key=pricer.key), *rest], bound


def _starts(pricer: Pricer) -> list[Priced]:
    """The best setting of each way to group, the best ones first."""
    found: dict[tuple, Priced] = {}
    for priced in sorted((Priced(s, m) for s, m in pricer.known.items()), key=pricer.key):
        found.setdefault(tuple(g.units for g in priced.setting.groups), priced)
    return list(found.values())[:MOST_STARTS]


def _with_parts(pricer: Pricer, bases: list[Priced]) -> list[Priced]:
    """The best settings in which groups may be resharded to the ranks of a node, beginning with the given ones.

    It follows the search without that choice, which therefore finds what it would find alone.
    """
    part = pricer.layout.part
    pricer.go_on(share=2)
    found = []
    for base in bases:
        groups = base.setting.groups
        freed = [i for i, g in enumerate(groups) if i and g.called and g.reshard is True]
        kept = [i for i, g in enumerate(groups) if i and g.called and not g.reshard]
        chosen = [freed[-count:] for count in (1, 2, len(freed) // 4, len(freed) // 2, len(freed)) if count]
        chosen += [kept, freed + kept]
        found += pricer(_all_with(base.setting, numbers, reshard=part) for numbers in chosen)
    if not found:
        return []
    starts = dict.fromkeys((min(found, key=pricer.key), bases[0]))
    moves = functools.partial(_moves, choices=(True, False, part))
    return [_descended(pricer, start, moves) for start in starts]


def _descended(pricer: Pricer, best: Priced, moves: Callable[[Step, Setting], Iterator[Setting]]) -> Priced:
    """The setting at which no single change helps any more."""
    while not pricer.exhausted():
        better = _improved(pricer, best, moves)
        if better is None:
            break
        best = better
    return best


def _improved(pricer: Pricer, best: Priced, moves: Callable[[Step, Setting], Iterator[Setting]]) -> Priced | None:
    """The best setting that differs in one thing, or in all of those that help by themselves. None: none is better."""
    tried = pricer(moves(pricer.step, best.setting))
    good = sorted((p for p in tried if pricer.is_better(p, best)), key=pricer.key)
    if not good:
        return None
    same = [p.setting for p in good if len(p.setting.groups) == len(best.setting.groups)]
    for count in (len(same), len(same) // 2, len(same) // 4):
        if count > 1:
            good += pricer([_joined(best.setting, same[:count])])
    return min(good, key=pricer.key)


def _joined(base: Setting, changed: list[Setting]) -> Setting:
    """All changes of several settings with the same groups."""
    groups, buffers = list(base.groups), base.reduce_buffers
    for setting in reversed(changed):
        buffers = setting.reduce_buffers if setting.reduce_buffers != base.reduce_buffers else buffers
        for i, (group, old) in enumerate(zip(setting.groups, base.groups)):
            if group.units != old.units:
                continue
            differing = {
                f.name: getattr(group, f.name)
                for f in dataclasses.fields(group)
                if getattr(group, f.name) != getattr(old, f.name)
            }
            groups[i] = dataclasses.replace(groups[i], **differing)
    return Setting(tuple(groups), buffers)


def _same_groups(one: Setting, other: Setting) -> bool:
    return [(g.units, g.reshard) for g in one.groups] == [(g.units, g.reshard) for g in other.groups]


def _capped(setting: Setting) -> Setting:
    """The setting with shorter lists."""
    groups = [
        dataclasses.replace(
            g, forward_ahead=min(g.forward_ahead, MOST_AHEAD), backward_ahead=min(g.backward_ahead, MOST_AHEAD)
        )
        for g in setting.groups
    ]
    return dataclasses.replace(setting, groups=tuple(groups))


def _alike(base: Setting, ahead: int, buffers: int, kept: int = 0) -> Setting:
    """All groups have lists of one length, and the last `kept` groups are not resharded."""
    count = len(base.groups)
    groups = [
        dataclasses.replace(
            g, forward_ahead=ahead, backward_ahead=ahead, reshard=g.reshard and not (i and i >= count - kept)
        )
        for i, g in enumerate(base.groups)
    ]
    return Setting(tuple(groups), buffers)


def _try_usual(pricer: Pricer, default: Setting, fine: Setting) -> None:
    """Settings that are alike for all groups, for several ways to group."""
    bases = dict.fromkeys((default, fine, _without_small(pricer.step, fine)))
    tried = pricer(_alike(base, ahead, buffers) for base in bases for ahead in (0, 2, 3) for buffers in (1, 2, 3))
    if not tried:
        return
    best = min(tried, key=pricer.key).setting
    count, ahead = len(best.groups), max(g.forward_ahead for g in best.groups)
    pricer(_alike(best, ahead, best.reduce_buffers, kept) for kept in (1, 2, 3, count // 4, count // 2, count))
    pricer(_alike(Setting(_chunks(best, size)), ahead, buffers) for size in (2, 4) for buffers in (1, 2))


def _nbytes(step: Step, group: Group) -> int:
    return sum(math.prod(p.shape) * p.gathered_itemsize for u in group.units for p in step.units[u].parameters)


def _without_small(step: Step, fine: Setting) -> Setting:
    """Groups with less than a hundredth of the largest one's bytes join a neighbour."""
    sizes = [_nbytes(step, g) for g in fine.groups]
    small = max(sizes[1:], default=0) // 100
    groups = [fine.groups[0]]
    joins = False  # whether the last group is small, and so the next one joins it
    for group, size in zip(fine.groups[1:], sizes[1:]):
        if len(groups) > 1 and core.can_merge(groups[-1], group) and (joins or size < small):
            groups[-1] = core.merge(groups[-1], group)
            joins = joins and size < small
        else:
            groups.append(group)
            joins = size < small
    return dataclasses.replace(fine, groups=tuple(groups))


def _chunks(fine: Setting, size: int) -> tuple[Group, ...]:
    """Groups of `size` neighbours."""
    groups, count = [fine.groups[0]], size
    for group in fine.groups[1:]:
        if count < size and core.can_merge(groups[-1], group):
            groups[-1] = core.merge(groups[-1], group)
            count += 1
        else:
            groups.append(group)
            count = 1
    return tuple(groups)


def _alike_but(setting: Setting, name: str, ahead: int) -> Setting:
    """One kind of list has one length in all groups."""
    changed: dict[str, Any] = {name: ahead}
    return dataclasses.replace(setting, groups=tuple(dataclasses.replace(g, **changed) for g in setting.groups))


def _with(setting: Setting, number: int, **changed: Any) -> Setting:
    return _all_with(setting, [number], **changed)


def _all_with(setting: Setting, numbers: Iterable[int], **changed: Any) -> Setting:
    groups = list(setting.groups)
    for number in numbers:
        groups[number] = dataclasses.replace(groups[number], **changed)
    return dataclasses.replace(setting, groups=tuple(groups))


def _worth_changing(step: Step, setting: Setting) -> list[int]:
    """The groups that are changed one by one: of a long row of groups with equal sizes, the first and the last two."""
    sizes = [(_nbytes(step, g), len(g.units)) for g in setting.groups]
    sizes[0] = (-1, 0)
    chosen = []
    for i, size in enumerate(sizes):
        first = last = i
        while first > 0 and sizes[first - 1] == size:
            first -= 1
        while last + 1 < len(sizes) and sizes[last + 1] == size:
            last += 1
        if last - first < LONG_ROW or min(i - first, last - i) < 2:
            chosen.append(i)
    return chosen


def _list_moves(step: Step, setting: Setting) -> Iterator[Setting]:
    """One list of prefetches, or all of them, are longer or shorter."""
    for name in ("forward_ahead", "backward_ahead"):
        for ahead in (0, 2):
            yield _alike_but(setting, name, ahead)
        for i in _worth_changing(step, setting):
            for change in (-1, 1, 2):
                ahead = getattr(setting.groups[i], name) + change
                if 0 <= ahead <= min(MOST_AHEAD, len(setting.groups) - 1):
                    yield _with(setting, i, **{name: ahead})


def _moves(step: Step, setting: Setting, choices: tuple[bool | int, ...] = (True, False)) -> Iterator[Setting]:
    """One group, one choice to reshard, the number of buffers, or one list is another one."""
    for buffers in (setting.reduce_buffers - 1, setting.reduce_buffers + 1):
        if 1 <= buffers <= MOST_REDUCE_BUFFERS:
            yield dataclasses.replace(setting, reduce_buffers=buffers)
    groups = setting.groups
    for i in _worth_changing(step, setting):
        if not i:
            continue
        for reshard in choices:
            if reshard != groups[i].reshard and (groups[i].called or isinstance(reshard, bool)):
                yield _with(setting, i, reshard=reshard)
        before, after = groups[:i], groups[i + 1 :]
        if after and len(groups) > 2 and core.can_merge(groups[i], after[0]):
            yield dataclasses.replace(setting, groups=(*before, core.merge(groups[i], after[0]), *after[1:]))
        for cut in range(1, len(groups[i].units)):
            one, two = (dataclasses.replace(groups[i], units=u) for u in (groups[i].units[:cut], groups[i].units[cut:]))
            yield dataclasses.replace(setting, groups=(*before, one, two, *after))
        if len(groups) > 2:
            root = dataclasses.replace(groups[0], units=tuple(sorted(groups[0].units + groups[i].units)))
            yield dataclasses.replace(setting, groups=(root, *before[1:], *after))
    yield from _list_moves(step, setting)


__all__ = ["Priced", "Pricer", "search"]
