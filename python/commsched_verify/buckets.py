# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Merged collectives: what an answer does with them.

A bucket in the form `packed` copies the inputs of its members together, runs one collective, and takes the outputs
apart. In the form `coalesced` it starts its members at once and waits for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .core import NOTHING, UNLIMITED, Answer, Numbers, Problem, Step, require
from .graph import made_by, successors

SMALL_UNPACK_BYTES = 2 << 20  # outputs of at most this many bytes may share an unpack


@dataclass
class Key:
    """Starts that may be merged, and samples of cost functions: pairs of bytes and ns, the smallest bytes first."""

    collective: str
    members: Sequence[Any]
    cap_bytes: int = UNLIMITED
    least_demand: Numbers = NOTHING[::2]
    least_use: Numbers = NOTHING[::2]  # of each resource for each GiB, millionths of ns (Lemma 27)
    samples: Numbers = ()
    pack_samples: Numbers = ()
    pack_reads_for_writes: Numbers = (0, 1)
    small_unpack_samples: Numbers = ()
    large_unpack_samples: Numbers = ()
    coalesced_samples: Sequence[Numbers] = ()  # bytes, members, ns


def pairs(flat: Numbers) -> list[tuple[int, int]]:
    """Samples as a certificate lists them: bytes and ns in turn."""
    return list(zip(flat[::2], flat[1::2]))


class Member:
    """A start that may be merged with the others of its key."""

    def __init__(
        self, problem: Problem, succs: list[list[int]], made: list[list[int]], key: Key, row: Sequence[Any]
    ) -> None:
        self.key = key
        # `alone_ns` is what the key says of a bucket of `bytes`; a pack can do the work of the `cast`.
        self.start, self.bytes, self.input_bytes, self.output_bytes, self.pack_reads, self.alone_ns, self.cast = row
        (self.wait,) = (node for node in succs[self.start] if self.start in problem.awaited[node])
        (self.output,) = made[self.start]
        require(problem.preds[self.wait] == [self.start], f"the wait for node {self.start} depends on others too")
        if self.cast is not None:
            (self.cast_result,) = made[self.cast]
            alone = succs[self.cast] == [self.start] and self.cast_result not in problem.live_out
            require(alone, f"node {self.cast} is no cast of node {self.start} alone")


def members_of(problem: Problem) -> dict[int, Member]:
    """By start: what may be merged."""
    succs, made = successors(problem), made_by(problem)
    keys = [Key(**row) for row in problem.keys]
    members = [Member(problem, succs, made, key, row) for key in keys for row in key.members]
    return {member.start: member for member in members}


class Bucket:
    """Starts that are merged."""

    def __init__(self, problem: Problem, of: dict[int, Member], form: str, members: Numbers, demand: int = 0) -> None:
        require(all(start in of for start in members), f"a bucket has members that may not be merged: {members}")
        self.members = [of[start] for start in members]
        self.key, self.demand, self.packed = self.members[0].key, problem.demand_of[demand], form == "packed"
        self.gathers, self.at = self.key.collective == "all_gather", dict[str, int]()
        self.cost = 0
        self.event_names = ["start", "wait"]
        if self.packed:
            self.event_names = ["pack", "start", "wait", "unpack" if self.gathers else "view"]
        require(form in ("packed", "coalesced"), f"a bucket has the form {form}")
        same_key = len(set(members)) > 1 and all(member.key is self.key for member in self.members)
        require(same_key, f"the bucket of node {members[0]} is not of several starts of one key")
        size = sum(member.bytes for member in self.members)
        require(size <= self.key.cap_bytes, f"the bucket of node {members[0]} is larger than its cap")


class Merged:
    """The buckets of an answer."""

    def __init__(self, answer: Answer, rows: list[dict[str, Any]]) -> None:
        self.answer, self.problem = answer, answer.problem
        self.member_of = members_of(self.problem)
        self.buckets = [Bucket(self.problem, self.member_of, **row) for row in rows]
        self.bucket_of = {node: b for b in self.buckets for m in b.members for node in (m.start, m.wait)}
        self.fused: set[int] = set()  # casts whose work a pack does
        durations = self.problem.extension("durations", "what merged collectives and their copies take")
        self.durations = durations.Durations(self.problem, self.member_of, not answer.has_choice) if durations else None

    def step(self, event: Sequence[Any]) -> Step:
        """An event is a name, the bucket, the duration, and the members that an unpack serves."""
        name, bucket, cost, unpacked = event[0], self.buckets[event[1]], event[2], event[3:]
        answer, problem, at = self.answer, self.problem, len(self.answer.steps)
        require(name in bucket.event_names, f"event {at}: the bucket has no such {name}")
        bucket.at[name] = at
        for member in bucket.members:
            if name == "pack":
                answer.happen(member.start, answer.begin)
                if member.cast is not None and member.cast not in answer.begin:
                    self.fused.add(member.cast)
                    answer.happen(member.cast, answer.begin, answer.done)
            elif name == "start":
                answer.happen(member.start, answer.done, *([] if bucket.packed else [answer.begin]))
            elif name == "wait":
                answer.happen(member.wait, answer.begin, *([] if bucket.packed else [answer.done]))
            elif name == "view" or member.start in unpacked:
                answer.happen(member.wait, answer.done)
                shares = len(unpacked) > 1 and member.output_bytes > SMALL_UNPACK_BYTES
                require(not shares, f"event {at}: node {member.start} is too large to share an unpack")
        if self.durations:
            self.durations.check(at, name, bucket, cost, unpacked, self.fused)
        starts = [member.start for member in bucket.members]
        if name == "start":
            bucket.cost = cost
            issue = max(problem.issue[start] for start in starts)
            return Step(cost, problem.occupied[starts[0]], is_start=True, issue=issue, demand=bucket.demand)
        if name == "wait":
            return Step(0, awaits=starts[:1])
        return Step(cost, demand=problem.demand_of[problem.copy_demand])

    def buffers(self) -> Iterator[tuple[int, list[int], bool, bool]]:
        """Of each buffer: bytes, the events that need it, whether it is there at the beginning, and kept at the end."""
        answer, problem = self.answer, self.problem
        sizes, live_in, live_out = [row[0] for row in problem.buffers], set(problem.live_in), set(problem.live_out)
        held: list[list[int]] = [[] for _ in sizes]  # by buffer: the events that need it
        place = list(range(len(sizes)))  # by buffer: the one that it is a part of

        def add(size: int, events: list[int]) -> int:
            sizes.append(size)
            held.append(events)
            return len(sizes) - 1

        for bucket in (bucket for bucket in self.buckets if bucket.packed):
            pack, start, wait = bucket.at["pack"], bucket.at["start"], bucket.at["wait"]
            inputs, outputs = sum(m.input_bytes for m in bucket.members), sum(m.output_bytes for m in bucket.members)
            result = add(outputs if bucket.gathers else inputs, [pack, start, wait])
            if bucket.key.collective == "reduce_scatter":
                result = add(outputs, [start, wait])
            for member in bucket.members:
                held[result].append(answer.done[member.wait])
                if bucket.gathers:
                    held[member.output].append(answer.done[member.wait])
                else:
                    place[member.output] = result
                    live_out |= {result} if member.output in live_out else set()
        silent = {member.cast_result for member in self.member_of.values() if member.cast in self.fused}
        for buffer in set(range(len(place))) - silent:
            for node in problem.buffers[buffer][1:] if buffer < len(problem.buffers) else ():
                # A packed wait, and a pack for the outputs, hold the bucket's buffers instead.
                packed = node in self.bucket_of and self.bucket_of[node].packed
                if not packed or (problem.is_start[node] and buffer != self.member_of[node].output):
                    held[place[buffer]].append(answer.begin[node])
        for buffer, events in enumerate(held):
            yield sizes[buffer], events, buffer in live_in, buffer in live_out
