# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The answer of a certificate: whether it keeps what the problem asks for, its makespan and its peak."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .problem import NOTHING, SMALL_UNPACK_BYTES, WHOLE, Numbers, Problem, require


class Bucket:
    """Merged starts. In the form `packed` a kernel copies their inputs together, and others take the outputs apart."""

    def __init__(self, problem: Problem, form: str, members: Numbers, demand: int = 0) -> None:
        self.members = [problem.member_of[start] for start in members]
        self.key, self.demand, self.packed = self.members[0].key, problem.demand_of[demand], form == "packed"
        self.gathers, self.at = self.key.collective == "all_gather", dict[str, int]()
        self.event_names = ["start", "wait"]
        if self.packed:
            self.event_names = ["pack", "start", "wait", "unpack" if self.gathers else "view"]
        require(form in ("packed", "coalesced"), f"a bucket has the form {form}")
        same_key = len(set(members)) > 1 and all(member.key is self.key for member in self.members)
        require(same_key, f"the bucket of node {members[0]} is not of several starts of one key")
        size = sum(member.bytes for member in self.members)
        require(size <= self.key.cap_bytes, f"the bucket of node {members[0]} is larger than its cap")


class Answer:
    """The schedule as events: a node that runs, or what happens to a bucket: its name, the bucket, and its duration."""

    def __init__(
        self, problem: Problem, buckets: list[dict[str, Any]], events: list[Any], chosen: Sequence[Numbers] = ()
    ) -> None:
        self.problem, self.events = problem, events
        # Where there was a choice, the problem has the least cost and demand, and the answer has its own.
        self.costs = dict(enumerate(zip(problem.cost_ns, problem.needs)))
        for node, cost, number in chosen:
            (least, needs), demand = self.costs[node], problem.demand_of[number]
            enough = cost >= least and all(map(int.__ge__, demand[::2], needs[::2]))
            require(enough, f"node {node} is carried out with less than the least cost or demand")
            self.costs[node] = cost, demand
        self.buckets = [Bucket(problem, **row) for row in buckets]
        self.bucket_of = {node: b for b in self.buckets for m in b.members for node in (m.start, m.wait)}
        # By node: the event before which all that it depends on is done, and the one at which it is done itself.
        self.begin: dict[int, int] = {}
        self.done: dict[int, int] = {}
        self.fused: set[int] = set()  # casts whose work a pack does
        for at, event in enumerate(events):
            if isinstance(event, int):
                require(event not in self.bucket_of, f"event {at} runs node {event}, which is merged")
                self.happen(at, event, self.begin, self.done)
            else:
                self.happen_to_bucket(at, self.buckets[event[1]], event[0], event[3:])
        for node in range(problem.size):
            require(node in self.begin and node in self.done, f"node {node} never happens")
            require(self.begin[node] <= self.done[node], f"node {node} ends before it begins")
        self.check_order()

    def happen(self, at: int, node: int, *tables: dict[int, int]) -> None:
        for table in tables:
            require(node not in table, f"event {at}: node {node} runs twice")
            table[node] = at

    def happen_to_bucket(self, at: int, bucket: Bucket, name: str, unpacked: Numbers) -> None:
        require(name in bucket.event_names, f"event {at}: the bucket has no such {name}")
        bucket.at[name] = at
        for member in bucket.members:
            if name == "pack":
                self.happen(at, member.start, self.begin)
                if member.cast is not None and member.cast not in self.begin:
                    self.fused.add(member.cast)
                    self.happen(at, member.cast, self.begin, self.done)
            elif name == "start":
                self.happen(at, member.start, self.done, *([] if bucket.packed else [self.begin]))
            elif name == "wait":
                self.happen(at, member.wait, self.begin, *([] if bucket.packed else [self.done]))
            elif name == "view" or member.start in unpacked:
                self.happen(at, member.wait, self.done)
                shares = len(unpacked) > 1 and member.output_bytes > SMALL_UNPACK_BYTES
                require(not shares, f"event {at}: node {member.start} is too large to share an unpack")

    def check_order(self) -> None:
        """Every dependence is kept, and every unit stays together."""
        problem, starts = self.problem, set(self.problem.starts)
        for node, preds in enumerate(problem.preds):
            for pred in preds + problem.awaited[node]:
                # Starts are ordered by when they are issued, those of a bucket together. A pack does its casts' work.
                both = node in starts and pred in starts
                begin, done = self.done[node] if both else self.begin[node], self.done[pred]
                kept = done <= begin if both or pred in self.fused else done < begin
                why = "" if kept else problem.reason(node, pred)
                require(kept, f"node {node} at event {begin} depends on node {pred}, done at event {done}{why}")
        for unit in problem.units:
            for first, second in zip(unit, unit[1:]):
                together = self.begin[second] == self.done[first] + 1
                require(together, f"nodes {first} and {second} are one unit, but not together")

    def makespan(self) -> int:
        """Plays the events."""
        problem, clock, work = self.problem, Clock(self.problem), dict[int | Bucket, Work]()
        for event in self.events:
            if isinstance(event, int):
                lanes, (cost, demand) = problem.occupied[event], self.costs[event]
                if problem.is_start[event]:
                    work[event] = clock.put(lanes[0], cost, demand)
                    clock.run(0, problem.issue[event])
                    continue
                for lane in lanes:
                    clock.run(lane, 0)
                for start in problem.awaited[event]:
                    clock.finish(work[self.bucket_of.get(start, start)])
                clock.run(0, max(problem.ready[event] - clock.now, 0))
                clock.run(0, cost, demand)
            else:
                name, bucket, cost = event[0], self.buckets[event[1]], event[2]
                if name == "start":
                    starts = [member.start for member in bucket.members]
                    work[bucket] = clock.put(problem.occupied[starts[0]][0], cost, bucket.demand)
                    clock.run(0, max(problem.issue[start] for start in starts))
                elif name == "wait":
                    clock.finish(work[bucket])
                else:
                    clock.run(0, cost, problem.demand_of[problem.copy_demand])
        for lane in range(len(problem.lanes)):
            clock.run(lane, 0)
        return clock.now

    def peak(self) -> int:
        """The most bytes that are live at one event."""
        problem = self.problem
        sizes, live_in, live_out = list(problem.bytes), set(problem.live_in), set(problem.live_out)
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
                held[result].append(self.done[member.wait])
                if bucket.gathers:
                    held[member.output].append(self.done[member.wait])
                else:
                    place[member.output] = result
                    live_out |= {result} if member.output in live_out else set()
        silent = {member.cast_result for member in problem.member_of.values() if member.cast in self.fused}
        for buffer in set(range(len(place))) - silent:
            for node in problem.users[buffer]:
                # A packed wait, and a pack for the outputs, hold the bucket's buffers instead.
                packed = node in self.bucket_of and self.bucket_of[node].packed
                if not packed or (problem.is_start[node] and buffer not in problem.made_by[node]):
                    held[place[buffer]].append(self.begin[node])
        change = [0] * (len(self.events) + 1)
        for buffer, events in enumerate(held):
            if events:
                change[0 if buffer in live_in else min(events)] += sizes[buffer]
                change[-1 if buffer in live_out else max(events) + 1] -= sizes[buffer]
        live = peak = 0
        for event, difference in zip(self.events, change):
            live += difference
            peak = max(peak, live + (problem.workspace[event] if isinstance(event, int) else 0))
        return peak


@dataclass
class Work:
    left: int  # millionths of a nanosecond
    demand: Numbers
    done: bool = False


class Clock:
    """Time, and the work that lies on each lane. The first one of each lane runs (docs/Models.md, "Contention")."""

    def __init__(self, problem: Problem) -> None:
        self.now, self.lanes = 0, [deque[Work]() for _ in problem.lanes]
        for lane, end in enumerate(problem.busy_until):
            self.put(lane, end, NOTHING)
        self.run(0, 0)

    def put(self, lane: int, cost: int, demand: Numbers) -> Work:
        """Puts work behind what lies on a lane."""
        self.lanes[lane].append(work := Work(cost * WHOLE, demand))
        self.drop_finished()
        return work

    def run(self, lane: int, cost: int, demand: Numbers = NOTHING) -> None:
        self.finish(self.put(lane, cost, demand))

    def finish(self, work: Work) -> None:
        """Lets time pass until the work is done."""
        while not work.done:
            running = [lane[0] for lane in self.lanes if lane]
            rates = rates_of(tuple(other.demand for other in running))
            passed = min(-(-other.left // rate) for other, rate in zip(running, rates))
            self.now += passed
            for other, rate in zip(running, rates):
                other.left -= rate * passed
            self.drop_finished()

    def drop_finished(self) -> None:
        for lane in self.lanes:
            while lane and lane[0].left <= 0:
                lane.popleft().done = True


@functools.lru_cache(maxsize=1 << 16)
def rates_of(demands: tuple[Numbers, ...]) -> Numbers:
    """The rates of activities that run together, in millionths: weighted max-min fairness of each resource."""
    rates = [WHOLE] * len(demands)
    for share in range(0, len(NOTHING), 2):
        users = [(demand[share], demand[share + 1], at) for at, demand in enumerate(demands) if demand[share]]
        left, weights = WHOLE, sum(weight for _, weight, _ in users)
        for need, weight, at in sorted(users, key=lambda user: Fraction(user[0], user[1])):
            if need * weights <= left * weight:
                left, weights = left - need, weights - weight
            else:
                rates[at] = max(1, min(rates[at], WHOLE * left * weight // (weights * need)))
    return rates
