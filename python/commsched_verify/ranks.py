# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Checks that the scheduled programs of several ranks issue the same collectives: `commsched-verify --spmd FILE...`.

Ranks whose answers differ can hang, or add up what does not belong together, however good each of them is. A
*communicator* is one of the groups of ranks that a group's name stands for. All of its members must issue the same
collectives in the same order, and no communicators may wait for each other.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import Any

from .core import require

Communicator = tuple[str, int]  # the name of a group, and which of its groups of ranks


@dataclass
class Sequence:
    """What one rank issues in one block: communicator, description and location."""

    rank: int
    steps: list[tuple[Communicator, str, str]] = field(default_factory=list)

    def on(self, communicator: Communicator) -> list[tuple[str, str]]:
        return [(what, where) for other, what, where in self.steps if other == communicator]


def communicator_of(groups: dict[str, Any], name: str, rank: int) -> Communicator | None:
    """The communicator of a rank, if the group has one for it. Groups are written as runs: first rank, step, length."""
    for index, runs in enumerate(groups.get(name, [])):
        for first, step, length in zip(runs[::3], runs[1::3], runs[2::3]):
            if rank in range(first, first + step * length, step):
                return name, index
    return None


def sequence_of(rank: int, groups: dict[str, Any], block: dict[str, Any]) -> Sequence:
    """The collectives of a block in the order of the answer; those of a bucket are one."""
    notes: dict[int, list[Any]] = {}
    for node, *note in block.get("collectives", []):
        notes.setdefault(node, []).append(note)
    result = Sequence(rank)
    for event in block["answer"]["events"]:
        bucket = block["answer"]["buckets"][event[1]] if not isinstance(event, int) and event[0] == "start" else None
        issued = notes.get(event, []) if isinstance(event, int) else []
        if bucket:
            members = [notes[member][0] for member in bucket["members"]]
            issued = [[members[0][0], f"{bucket['form']}: " + ", ".join(what for _, what, _ in members), members[0][2]]]
        for name, what, where in issued:
            communicator = communicator_of(groups, name, rank)
            if communicator is None:
                require(False, f"rank {rank} issues {what}, but its group leaves this rank out ({where})")
            else:
                result.steps.append((communicator, what, where))
    return result


def check_members(block: str, communicator: Communicator, left: Sequence, right: Sequence) -> None:
    """Fails with the first difference of two members, side by side, and what is around it."""
    nothing = ("nothing", "")
    rows = list(itertools.zip_longest(left.on(communicator), right.on(communicator), fillvalue=nothing))
    at = next((number for number, (one, two) in enumerate(rows) if one[0] != two[0]), None)
    if at is None:
        return
    lines = [f"{'':8}{f'rank {left.rank}':40}  rank {right.rank}"]
    for number, (one, two) in enumerate(rows[max(0, at - 2) : at + 3], max(0, at - 2) + 1):
        lines.append(f"{'>' if one[0] != two[0] else '':3}{number:<5}{one[0]:40}  {two[0]}")
        lines += [f"{'':8}{one[1]:40}  {two[1]}"] if one[0] != two[0] else []
    found = "\n".join(lines)
    require(False, f"block {block}: ranks disagree on @{communicator[0]} from its collective {at + 1} on\n{found}")


def check_progress(block: str, ranks: list[Sequence]) -> None:
    """Plays all ranks, whose members agree: a collective is over once all members that are here have come to it."""
    members: dict[Communicator, set[int]] = {}
    for index, sequence in enumerate(ranks):
        for communicator, _, _ in sequence.steps:
            members.setdefault(communicator, set()).add(index)
    place, moved = [0] * len(ranks), set(range(len(ranks)))
    there: dict[Communicator, set[int]] = {communicator: set() for communicator in members}
    while moved:
        over = set[int]()
        for index in moved:
            if place[index] < len(ranks[index].steps):
                communicator = ranks[index].steps[place[index]][0]
                there[communicator].add(index)
                if there[communicator] == members[communicator]:
                    over |= there[communicator]
                    there[communicator] = set()
        for index in over:
            place[index] += 1
        moved = over
    stuck = [(sequence.rank, *sequence.steps[at][1:]) for sequence, at in zip(ranks, place) if at < len(sequence.steps)]
    found = "".join(f"\n  rank {rank} waits in {what} ({where})" for rank, what, where in stuck)
    require(
        not stuck, f"block {block}: communicators wait for each other, since ranks issue them in other orders{found}"
    )


def compare(ranks: list[int], files: list[list[str]]) -> str:
    """Compares the certificates of several ranks, which are valid; says what agrees. Raises Invalid."""
    partitions: dict[str, tuple[int, Any]] = {}
    blocks: dict[str, list[Sequence]] = {}
    groups: dict[str, Any] = {}
    for rank, lines in zip(ranks, files):
        header, *rest = map(json.loads, lines)
        for name, runs in header["groups"].items():
            other, known = partitions.setdefault(name, (rank, runs))
            require(known == runs, f"group @{name} has other ranks on rank {other} than on rank {rank}")
        groups |= header["groups"]
        for block in rest:
            blocks.setdefault(block["name"], []).append(sequence_of(rank, header["groups"], block))
    agreed: set[tuple[str, Communicator]] = set()
    for block, sequences in blocks.items():
        for communicator in dict.fromkeys(step[0] for sequence in sequences for step in sequence.steps):
            members = [s for s in sequences if communicator_of(groups, communicator[0], s.rank) == communicator]
            for member in members[1:]:
                check_members(block, communicator, members[0], member)
            agreed.add((block, communicator))
        check_progress(block, sequences)
    return f"the ranks agree; blocks: {len(blocks)}, communicators: {len({c for _, c in agreed})}"
