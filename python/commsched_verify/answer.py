# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The answer of a certificate: whether it keeps what the problem asks for, its makespan and its peak."""

from __future__ import annotations

from typing import Any

from .problem import Member, Problem
from .statements import SMALL_UNPACK_BYTES, UNLIMITED, Section, numbers, require


class Bucket:
    """Merged starts, and the events at which things happen to them."""

    def __init__(self, row: Section, problem: Problem) -> None:
        require(row["form"] in ("packed", "coalesced"), f"a bucket of the form {row['form']!r}")
        self.packed = row["form"] == "packed"
        for start in row["members"]:
            require(start in problem.members, f"node {start} is in a bucket but cannot be merged")
        self.members = [problem.members[start] for start in row["members"]]
        require(
            len(self.members) > 1 and len({m.key for m in self.members}) == 1,
            "a bucket is not of several starts of one key",
        )
        key = problem.keys[self.members[0].key]
        self.gathers = key["collective"] == "all_gather"
        self.scatters = key["collective"] == "reduce_scatter"
        self.bytes = sum(m.bytes for m in self.members)
        require(self.bytes <= key.get("cap_bytes", UNLIMITED), "a bucket is larger than its cap")
        self.at: dict[str, int] = {}


class Answer:
    """The schedule as events: nodes that run, and the pack, start, wait, unpacks and view of buckets."""

    def __init__(self, problem: Problem, section: Section, collective_order: str) -> None:
        self.problem, self.collective_order = problem, collective_order
        self.buckets = [Bucket(row, problem) for row in section["buckets"]]
        self.bucket_of: dict[int, Bucket] = {}
        for bucket in self.buckets:
            for member in bucket.members:
                require(member.start not in self.bucket_of, f"node {member.start} is in two buckets")
                self.bucket_of[member.start] = self.bucket_of[member.wait] = bucket
        self.events = section["events"]
        # By node: the event before which all that it depends on is done, the one at which it is done, and issued.
        self.begin, self.end, self.issued = ([-1] * problem.size for _ in range(3))
        self.place()
        self.place_members()
        self.check_edges()
        self.check_chains()

    def place(self) -> None:
        for at, event in enumerate(self.events):
            if type(event) is int:
                require(
                    0 <= event < self.problem.size and self.begin[event] < 0 and event not in self.bucket_of,
                    f"event {at} runs node {event}, which does not exist, runs twice, or is merged",
                )
                self.begin[event] = self.end[event] = self.issued[event] = at
                continue
            name, index, cost, *members = event
            numbers([cost, *members], 0, UNLIMITED, f"event {at}")
            require(type(index) is int and 0 <= index < len(self.buckets), f"event {at} is of no bucket")
            bucket = self.buckets[index]
            allowed = (
                ("pack", "start", "wait") + (("unpack",) if bucket.gathers else ("view",))
                if bucket.packed
                else ("start", "wait")
            )
            require(
                name in allowed and (name == "unpack" or name not in bucket.at),
                f"event {at}: a bucket has no such {name}",
            )
            if name != "unpack":
                bucket.at[name] = at
                require(
                    not members and (name not in ("wait", "view") or cost == 0),
                    f"event {at}: a {name} with members or a cost",
                )
            for start in members:
                require(
                    self.bucket_of.get(start) is bucket and self.end[self.problem.members[start].wait] < 0,
                    f"event {at} unpacks node {start}, which is of another bucket or was unpacked before",
                )
                member = self.problem.members[start]
                require(
                    len(members) == 1 or member.output_bytes <= SMALL_UNPACK_BYTES,
                    f"node {start} is too large to share an unpack",
                )
                self.end[member.wait] = at

    def place_members(self) -> None:
        for bucket in self.buckets:
            names = ["pack", "start", "wait"] if bucket.packed else ["start", "wait"]
            names += ["view"] if bucket.packed and not bucket.gathers else []
            places = [bucket.at.get(name, -1) for name in names]
            require(
                places[0] >= 0 and places == sorted(set(places)),
                "an event of a bucket is missing, or they are in the wrong order",
            )
            for member in bucket.members:
                self.begin[member.start] = places[0]
                self.issued[member.start] = self.end[member.start] = bucket.at["start"]
                self.begin[member.wait] = bucket.at["wait"]
                if not (bucket.packed and bucket.gathers):
                    self.end[member.wait] = places[-1]
                require(
                    self.end[member.wait] > bucket.at["wait"] - (not bucket.packed),
                    f"node {member.start} is not unpacked after its wait",
                )
                if self.vanishes(member):
                    self.begin[member.cast] = self.end[member.cast] = places[0]
        for node, at in enumerate(self.begin):
            require(at >= 0, f"node {node} never happens")

    def vanishes(self, member: Member) -> bool:
        """Whether a pack does the work of the member's cast: it has no event of its own."""
        bucket = self.bucket_of.get(member.start)
        return bucket is not None and bucket.packed and member.cast >= 0 and self.issued[member.cast] < 0

    def check_edges(self) -> None:
        kinds = self.problem.kinds
        for node in range(self.problem.size):
            for pred in self.problem.preds[node] + self.problem.awaited(node):
                if kinds[node] == "S" and kinds[pred] == "S":  # an order of issues
                    together = node in self.bucket_of and self.bucket_of[node] is self.bucket_of.get(pred)
                    kept = together or self.issued[pred] < self.issued[node]
                else:
                    fused = self.issued[pred] < 0 and kinds[pred] == "C" and self.begin[pred] == self.begin[node]
                    kept = fused or self.end[pred] < self.begin[node]
                require(
                    kept,
                    f"node {node} at event {self.begin[node]} depends on node {pred}, done at event {self.end[pred]}",
                )

    def check_chains(self) -> None:
        """Pinned nodes, messages and, if asked for, collectives keep their order; units stay together."""
        last: dict[Any, int] = {}
        problem = self.problem
        for node, kind in enumerate(problem.kinds):
            region = problem.region[node]
            chains: list[Any] = ["pinned"] if problem.pinned[node] else []
            if problem.messages[node] or (region and region["messages"]):
                chains.append("messages")
            if kind in "SH" and self.collective_order == "program":
                chains.append("collectives")
            elif kind in "SH" and self.collective_order == "group":
                group = problem.group[node]
                groups = region["groups"] if region else [group if group >= 0 else -1 - problem.lane[node]]
                chains += [("group", index) for index in groups]
            for chain in chains:
                before = last.get(chain, node)
                require(
                    self.issued[before] <= self.issued[node],
                    f"nodes {before} and {node} have changed places, but both are {chain}",
                )
                last[chain] = node
            if node and problem.unit[node] >= 0 and problem.unit[node] == problem.unit[node - 1]:
                require(
                    self.begin[node] == self.begin[node - 1] + 1,
                    f"nodes {node - 1} and {node} are one unit, but not together",
                )

    def peak(self) -> int:
        """The most bytes that are live at one event."""
        problem, count = self.problem, len(self.events)
        stands_for = {}
        extra: list[tuple[int, list[int], bool]] = []  # buffers of buckets: bytes, events, live to the end
        touched: list[list[int]] = [[] for _ in problem.bytes]
        silent = set()  # buffers that a pack does without
        for bucket in self.buckets:
            if not bucket.packed:
                continue
            outputs, at = sum(m.output_bytes for m in bucket.members), bucket.at
            held = [at["pack"], at["start"], at["wait"]] + [self.end[m.wait] for m in bucket.members]
            live_out = any(problem.live_out[m.output] for m in bucket.members)
            if bucket.gathers:
                extra.append((outputs, held, False))
                for member in bucket.members:
                    touched[member.output].append(self.end[member.wait])
            else:
                inputs, merged = sum(m.input_bytes for m in bucket.members), len(extra)
                if bucket.scatters:
                    extra.append((inputs, held[:3], False))
                    extra.append((outputs, held[1:], live_out))
                    merged += 1
                else:
                    extra.append((inputs, held, live_out))
                stands_for.update({m.output: merged for m in bucket.members})
            silent |= {m.input for m in bucket.members if self.vanishes(m)}
        for buffer, users in enumerate(problem.users):
            for node in users:
                owner = self.bucket_of.get(node)
                in_pack = owner is not None and owner.packed
                if (
                    in_pack and (problem.kinds[node] == "W" or buffer == problem.members[node].output)
                ) or buffer in silent:
                    continue
                events = extra[stands_for[buffer]][1] if buffer in stands_for else touched[buffer]
                events.append(self.begin[node])
        change = [0] * (count + 1)
        own = [
            (size, touched[buffer], bool(problem.live_out[buffer]), problem.definer[buffer] < 0)
            for buffer, size in enumerate(problem.bytes)
            if touched[buffer]
        ]
        for size, events, to_end, from_start in own + [(*entry, False) for entry in extra]:
            change[0 if from_start else min(events)] += size
            change[count if to_end else max(events) + 1] -= size
        live = peak = 0
        for event, difference in zip(self.events, change):
            live += difference
            peak = max(peak, live + (problem.workspace[event] if type(event) is int else 0))
        return peak

    def makespan(self) -> int:
        """Plays the events: compute runs in order, each lane serves its collectives in order."""
        problem, clock, done = self.problem, list(self.problem.busy_until), [0] * self.problem.size
        bucket_done = [0] * len(self.buckets)
        for event in self.events:
            if type(event) is not int:
                name, index, cost, *_ = event
                if name == "start":
                    bucket = self.buckets[index]
                    lane = problem.lane[bucket.members[0].start]
                    bucket_done[index] = clock[lane] = max(clock[lane], clock[0]) + cost
                    cost = max(problem.issue[m.start] for m in bucket.members)
                clock[0] = max(clock[0], bucket_done[index]) if name == "wait" else clock[0] + cost
                continue
            lanes = problem.occupied(event)
            waits = [done[start] for start in problem.awaited(event)] or [problem.ready[event]]
            begin = max([clock[0], problem.ready[event], *waits, *(clock[lane] for lane in lanes)])
            done[event] = begin + problem.cost[event]
            clock[0] = clock[0] + problem.issue[event] if problem.kinds[event] == "S" else done[event]
            for lane in lanes:
                clock[lane] = done[event]
        return max(clock)
