# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Choice between two variants of a program, which all ranks run, by turns and then for good.

A graph is compiled twice: as given, and as scheduled. Ranks that ran different variants at once would issue different
collectives and hang. So what runs is a function of two things that all ranks have in common: how often the program has
run, and a decision that every rank computes from the same numbers. The program (the collectives and their groups) is
what counts, not the graph, for one rank may compile anew when another does not.

The numbers travel through the store of the process groups, and no collective is issued. A rank reads those of all ranks
that it is connected with through the program's groups, directly or over others, so all of them read the same.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch.distributed as dist
import torch.fx as fx

from .. import reporting
from ..options import Options
from ..recording.estimate import interval
from . import agreement, comparison

log = logging.getLogger("commsched")

SCHEDULED, GIVEN = "scheduled", "given"
# Pairs of runs before the first one that counts: the first run of a code fills caches.
WARM_UP = 1
# A trial goes on if fewer pairs than this share of those wanted have counted, for example after compiling anew ...
LEAST_SHARE = 0.5
# ... at most this often.
EXTENSIONS = 3
# The longest wait for other ranks, in seconds. They are about to run the same collectives, so this is the patience that
# the process group has, and not that of a comparison which may be in vain.
DEADLINE_S = 1800


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What a trial found. Times are in ns.

    Args:
        kept: the variant that all ranks keep.
        given: the median time as given, on the slowest rank of each run.
        scheduled: the median time as scheduled.
        gain: the median by which the schedule is faster, over pairs of runs, and its 95 % interval.
        pairs: the number of pairs.
    """

    kept: str
    given: int = 0
    scheduled: int = 0
    gain: tuple[int, int, int] = (0, 0, 0)
    pairs: int = 0

    def report(self) -> dict:
        """The verdict as a report."""
        value, lo, hi = self.gain
        return {
            "kept": self.kept,
            "given_ns": self.given,
            "scheduled_ns": self.scheduled,
            "gain_ns": {"value": value, "lo": lo, "hi": hi},
            "gain_percent": round(100 * value / self.given, 2) if self.given else 0.0,
            "pairs": self.pairs,
        }


def order_of(run: int) -> str:
    """The variant of a run during a trial. The order changes from pair to pair, so that no drift favours one."""
    pair, second = divmod(run, 2)
    return SCHEDULED if (pair + second) % 2 == 0 else GIVEN


def judge(times: Sequence[Sequence[int | None]]) -> Verdict:
    """The verdict on the times of all ranks; `times[rank][run]` is None if that run does not count.

    A run takes as long as on the slowest rank. A pair counts if both of its runs count on all ranks. The schedule is
    kept if the interval of its gain lies above 0. If it lies below 0, or holds 0, the given order is kept: the schedule
    has to prove that it is faster.
    """
    slowest = [None if None in column else max(t for t in column if t is not None) for column in zip(*times)]
    pairs = []
    for run in range(0, len(slowest) - 1, 2):
        first, second = slowest[run], slowest[run + 1]
        if first is not None and second is not None:
            pairs.append((first, second) if order_of(run) == GIVEN else (second, first))
    if not pairs:
        return Verdict(GIVEN)
    gain = interval([given - scheduled for given, scheduled in pairs])
    given, scheduled = (interval(column)[0] for column in zip(*pairs))
    return Verdict(SCHEDULED if gain[1] > 0 else GIVEN, given, scheduled, gain, len(pairs))


class Trial:
    """The trial of one program on this rank.

    Args:
        program: a hash of the program, equal on all ranks that run it.
        groups: the ranks of each group, with a hash of the program on that group.
        pairs: how many pairs of runs decide.
        direction: "forward" or "backward", for the report.
    """

    def __init__(self, program: str, groups: Mapping[tuple[int, ...], str], pairs: int, direction: str = ""):
        self.program, self.groups, self.pairs, self.direction = program, dict(groups), pairs, direction
        self.runs, self.limit, self.extensions = 0, 2 * (WARM_UP + pairs), 0
        # Indexed by run: what gives its time in ns. None if it does not count.
        self.times: list[Callable[[], int] | None] = []
        self.verdict: Verdict | None = None

    def next(self) -> tuple[str, int]:
        """The variant to run next, and the number of the run. All ranks of the program get the same."""
        if self.verdict is None and self.runs == 0 and not self._is_the_same_everywhere():
            self.verdict = Verdict(SCHEDULED)
        if self.verdict is None and self.runs == self.limit:
            self._decide()
        number, self.runs = self.runs, self.runs + 1
        return (order_of(number) if self.verdict is None else self.verdict.kept), number

    def took(self, number: int, time: Callable[[], int] | None) -> None:
        """Notes the time of a run. None: it does not count, as the first one of a code does not."""
        if self.verdict is None:
            self.times += [None] * (number + 1 - len(self.times))
            self.times[number] = time

    def _is_the_same_everywhere(self) -> bool:
        programs = exchange(self.groups, "begin", self.program)
        if len(set(programs.values())) == 1:
            return True
        reporting.warn_once(
            "ranks that communicate run different programs, so no time of one program is that of all: what was "
            "scheduled runs, and is not measured"
        )
        return False

    def _decide(self) -> None:
        self.times += [None] * (self.limit - len(self.times))
        own = [None if time is None else time() for time in self.times]
        own[: 2 * WARM_UP] = [None] * (2 * WARM_UP)
        everyone = exchange(self.groups, f"end {self.limit}", json.dumps(own))
        verdict = judge([json.loads(text) for _, text in sorted(everyone.items())])
        if verdict.pairs < LEAST_SHARE * self.pairs and self.extensions < EXTENSIONS:
            self.extensions += 1
            self.limit += 2 * self.pairs
            return
        self.verdict, self.times = verdict, []
        report = {
            "place": "tuned",
            "holds": False,  # It is about codes, which have reports of their own.
            "direction": self.direction,
            "collectives": 0,
            "program": self.program,
            "ranks": len(everyone),
            **verdict.report(),
        }
        reporting.record(report)
        log.info("%s", sentence(report))


def sentence(report: dict) -> str:
    """A verdict in words."""
    gain = report["gain_ns"]
    return (
        f"the {report['direction']} program {report['program']} runs as {report['kept']}: "
        f"{report['given_ns'] / 1e6:.3f} ms as given, {report['scheduled_ns'] / 1e6:.3f} ms as scheduled, "
        f"gain {gain['value'] / 1e6:.3f} ms ({gain['lo'] / 1e6:.3f} to {gain['hi'] / 1e6:.3f}) "
        f"or {report['gain_percent']:.1f} % over {report['pairs']} pairs on {report['ranks']} ranks"
    )


# Indexed by program.
_trials: dict[str, Trial] = {}
# Indexed by what is exchanged: how often this process has done so. No exchange reads what an earlier one left.
_exchanges: collections.Counter[str] = collections.Counter()


def trial_of(graph: fx.Graph, options: Options, direction: str) -> Trial:
    """The trial of the graph's program. Graphs of one program share it."""
    shape = agreement.shape_of(graph, options)
    resolve = dist.distributed_c10d._resolve_process_group
    ranks = {g: tuple(sorted(dist.get_process_group_ranks(resolve(g)))) for g in dict.fromkeys(shape.group)}
    on_group = {ranks[g]: program for g, (program, _) in shape.by_group(()).items()}
    # A group's name may differ between ranks. Its place among the program's groups does not.
    place = {g: f"#{i} of {len(r)}" for i, (g, r) in enumerate(ranks.items())}
    lines = [f"{line.rsplit(' ', 1)[0]} {place[g]}" for line, g in zip(shape.lines, shape.group)]
    program = hashlib.sha256("\n".join([shape.key, direction, *lines]).encode()).hexdigest()[:16]
    mine = f"{program} {sorted(on_group)}"
    return _trials.setdefault(mine, Trial(program, on_group, options.tune_runs, direction))


def exchange(groups: Mapping[tuple[int, ...], str], label: str, payload: str) -> dict[int, str]:
    """The payload of every rank that is connected with this one through groups, its own included.

    Every rank leaves its payload and its groups under each of its groups. A rank collects its groups' members, then
    those of their groups, and so on.

    Raises:
        RuntimeError: a rank did not come to this program before the deadline.
    """
    me = dist.get_rank() if dist.is_initialized() else 0
    if not dist.is_initialized() or dist.get_backend() == "fake" or all(len(ranks) == 1 for ranks in groups):
        return {me: payload}
    store: Any = dist.distributed_c10d._get_default_store()
    what = f"{me} {sorted(groups.items())} {label}"
    label = f"{label}/{_exchanges[what]}"
    _exchanges[what] += 1
    post = json.dumps({"groups": [[list(ranks), program] for ranks, program in groups.items()], "payload": payload})
    for ranks, program in groups.items():
        store.set(f"{_key(ranks, program, label)}/{me}", post)
    seen: dict[int, str] = {}
    pending = list(groups.items())
    visited = set(pending)
    while pending:
        ranks, program = pending.pop()
        new = [r for r in ranks if r not in seen]
        keys = [f"{_key(ranks, program, label)}/{r}" for r in new]
        _wait(store, keys, ranks)
        for rank, key in zip(new, keys):
            theirs = json.loads(store.get(key))
            seen[rank] = theirs["payload"]
            further = [(tuple(their_ranks), program) for their_ranks, program in theirs["groups"]]
            pending += [group for group in further if group not in visited]
            visited.update(further)
    return seen


def _key(ranks: Sequence[int], program: str, label: str) -> str:
    return f"commsched/trial/{hashlib.sha256(repr(tuple(ranks)).encode()).hexdigest()[:16]}/{program}/{label}"


def _wait(store: Any, keys: list[str], ranks: Sequence[int]) -> None:
    seconds = comparison.deadline_s(DEADLINE_S)
    try:
        store.wait(keys, datetime.timedelta(seconds=seconds))
    except dist.DistStoreError as error:
        missing = [int(k.rsplit("/", 1)[1]) for k in keys if not store.check([k])]
        raise RuntimeError(
            f'CommSched: tune="measure" has waited {seconds:g} s for ranks {missing} of the group of ranks '
            f"{list(ranks)[:16]} to run the same program. All ranks of a group have to run the same graphs"
        ) from error
