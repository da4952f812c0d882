# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The block of a certificate as it was given. The fields of the classes are those of the format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

UNLIMITED = 1 << 62
WHOLE = 1_000_000  # a whole resource, and the rate of an undisturbed activity
SMALL_UNPACK_BYTES = 2 << 20  # outputs of at most this many bytes may share an unpack
Numbers = Sequence[int]
NOTHING = (0,) * 10  # what an activity needs that disturbs nobody


class Invalid(Exception):
    """The first violated statement, in words."""


def require(holds: bool, message: str) -> None:
    if not holds:
        raise Invalid(message)


def natural(text: str) -> int:
    """Reads a number of a certificate: none is negative, a fraction, or beyond all sums."""
    require(text.isdecimal() and int(text) <= UNLIMITED, f"{text} is not a number of a certificate")
    return int(text)


def pairs(flat: Numbers) -> list[tuple[int, int]]:
    return list(zip(flat[::2], flat[1::2]))


def table(flat: Numbers, size: int) -> list[list[int]]:
    """By index: the values of the pairs of an index and a value."""
    rows: list[list[int]] = [[] for _ in range(size)]
    for index, value in pairs(flat):
        rows[index].append(value)
    return rows


def column(flat: Numbers, size: int) -> list[int]:
    """The same with one value for each index, 0 if there is none."""
    return [row[-1] if row else 0 for row in table(flat, size)]


@dataclass
class Key:
    """Starts that may be merged, and samples of cost functions: pairs of bytes and ns, the smallest bytes first."""

    collective: str
    members: Sequence[Any]
    cap_bytes: int = UNLIMITED
    least_demand: Numbers = NOTHING[::2]
    samples: Numbers = ()
    pack_samples: Numbers = ()
    pack_reads_for_writes: Numbers = (0, 1)
    small_unpack_samples: Numbers = ()
    large_unpack_samples: Numbers = ()


class Member:
    """A start that may be merged with the others of its key."""

    def __init__(self, problem: Problem, key: Key, row: Sequence[Any]) -> None:
        self.key = key
        # `alone_ns` is what the key says of a bucket of `bytes`; a pack can do the work of the `cast`.
        self.start, self.bytes, self.input_bytes, self.output_bytes, self.pack_reads, self.alone_ns, self.cast = row
        (self.wait,) = (node for node in problem.succs[self.start] if self.start in problem.awaited[node])
        (self.output,) = problem.made_by[self.start]
        require(problem.preds[self.wait] == [self.start], f"the wait for node {self.start} depends on others too")
        if self.cast is not None:
            (self.cast_result,) = problem.made_by[self.cast]
            alone = problem.succs[self.cast] == [self.start] and self.cast_result not in problem.live_out
            require(alone, f"node {self.cast} is no cast of node {self.start} alone")


@dataclass
class Problem:
    """Nodes are numbers, in the order of the program. Pairs of a node and a value list the unusual nodes."""

    lanes: Sequence[str]  # lane 0 computes
    cost_ns: Numbers  # by node
    starts: Numbers  # the nodes that start a collective
    edges: Sequence[Numbers]  # by node: how far before it those nodes stand that it depends on
    buffers: Sequence[Numbers]  # the bytes of each, and the nodes that need it, the one that makes it first
    busy_until_ns: Numbers = ()  # pairs of lanes
    on_lanes: Numbers = ()  # pairs: the other lanes that a node occupies
    awaits: Numbers = ()  # pairs: the starts that a node waits for
    issue_ns: Numbers = ()  # pairs
    ready_ns: Numbers = ()  # pairs: when data is there that came in
    workspace_bytes: Numbers = ()  # pairs
    units: Sequence[Numbers] = ()  # nodes that stay together
    live_in: Numbers = ()  # buffers
    live_out: Numbers = ()  # buffers
    demands: Sequence[Numbers] = ()  # of each resource the share, in millionths, and its weight
    demand: Numbers = ()  # pairs: what a node needs; 1 is the first one
    copy_demand: int = 0
    keys: Sequence[Any] = ()
    reasons: str = ""  # a letter for each edge
    reason_names: dict[str, str] | None = None

    def __post_init__(self) -> None:
        self.size = size = len(self.cost_ns)
        self.issue, self.ready = column(self.issue_ns, size), column(self.ready_ns, size)
        self.workspace, self.busy_until = (
            column(self.workspace_bytes, size),
            column(self.busy_until_ns, len(self.lanes)),
        )
        self.demand_of = [NOTHING, *(tuple(row) for row in self.demands)]
        in_range = all(max(row) <= WHOLE and min(row[1::2]) > 0 for row in self.demands)
        require(in_range, "a demand is not of parts of the resources")
        self.needs = [self.demand_of[index] for index in column(self.demand, size)]
        self.occupied = [sorted(set(lanes)) for lanes in table(self.on_lanes, size)]
        self.awaited, starts = table(self.awaits, size), set(self.starts)
        self.is_start = [node in starts for node in range(size)]
        self.preds = [[node - distance for distance in row] for node, row in enumerate(self.edges)]
        self.succs: list[list[int]] = [[] for _ in range(size)]
        for node, preds in enumerate(self.preds):
            lanes, awaited = self.occupied[node], self.awaited[node]
            require(all(0 < lane < len(self.lanes) for lane in lanes), f"node {node} is on no such lanes: {lanes}")
            require(len(lanes) == 1 or not self.is_start[node], f"start {node} is not on one lane")
            require(all(0 <= pred < node for pred in preds + awaited), f"node {node} depends on a later one")
            require(all(self.is_start[start] for start in awaited), f"node {node} waits for no start")
            for pred in preds:
                self.succs[pred].append(node)
        self.bytes, self.users = [row[0] for row in self.buffers], [row[1:] for row in self.buffers]
        made = {buffer: users[0] for buffer, users in enumerate(self.users) if users}
        for buffer in self.live_in:
            made.pop(buffer, None)
        self.made_by = table([x for buffer, node in made.items() for x in (node, buffer)], size)
        self.keys = [Key(**row) for row in self.keys]
        members = [Member(self, key, row) for key in self.keys for row in key.members]
        self.member_of = {member.start: member for member in members}
        require(len(self.reasons) in (0, sum(map(len, self.preds))), "the reasons are not of all dependences")

    def reason(self, node: int, pred: int) -> str:
        """Why one node comes after another one, in brackets; nothing if that is not known."""
        if not self.reasons or not self.reason_names or pred not in self.preds[node]:
            return ""
        edge = sum(map(len, self.preds[:node])) + self.preds[node].index(pred)
        return f" ({self.reason_names[self.reasons[edge]]})"
