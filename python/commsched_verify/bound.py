# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The lower bound of a certificate. The numbers of lemmas are those of docs/Bounds.md.

A start has three moments: its turn, its collective, and its issue; every other node has one. A moment takes as long as
its work. The same sweep over them finds when each is at the earliest, and in reverse what must follow it at least.
Sets of work are bits of large integers, so a sweep takes O(N^2 / 64) words.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .answer import Answer
from .charges import Charges
from .problem import NOTHING, UNLIMITED, WHOLE, Numbers, Problem, require


@dataclass
class Moment:
    before: list[int] = field(default_factory=list)  # moments that are over when this one begins
    after: list[int] = field(default_factory=list)
    lanes: Numbers = ()  # that its work occupies
    load: int = 0  # how long, ns
    path: int = 0  # the same on paths (Lemma 8)
    needs: Numbers = NOTHING[::2]
    ready: int = 0  # the earliest time for reasons outside of the block
    head: int = 0  # how long after the beginning the moment begins, at least
    tail: int = 0  # how long before the end it is over, at least


class Bound:
    """Heads and tails of all moments, and the arguments that rest on them."""

    def __init__(self, problem: Problem, limit: int, heads: Sequence[Numbers], tails: Sequence[Numbers]) -> None:
        self.problem, self.limit, self.charges = problem, limit, Charges(problem)
        self.moments: list[Moment] = []
        self.first: list[int] = []  # by node: its first and its last moment
        self.last: list[int] = []
        for node in range(problem.size):
            self.add_moments(node)
        for at, moment in enumerate(self.moments):
            for other in moment.before:
                self.moments[other].after.append(at)
        forward = Sweep(self, 1, heads)
        backward = Sweep(self, -1, tails)
        for moment, head, tail in zip(self.moments, forward.time, backward.time):
            moment.head, moment.tail = head, tail
        self.exit = [forward.leave[last] for last in self.last]

    def add_moments(self, node: int) -> None:
        problem, charges, turn = self.problem, self.charges, len(self.moments)
        before = [self.last[pred] for pred in problem.preds[node]]
        before += [self.first[start] + 1 for start in problem.awaited[node]]
        lanes, compute, needs = problem.occupied[node], charges.compute[node], charges.needs[node]
        ready = max([problem.ready[node], *(problem.busy_until[lane] for lane in lanes)])
        if problem.is_start[node]:
            collective = Moment([turn], [], lanes, charges.lane[node], charges.path[node], needs, ready)
            self.moments += [Moment(before), collective, Moment([turn], [], [0], compute, compute)]
        else:
            self.moments.append(Moment(before, [], [0, *lanes], compute, compute, needs, ready))
        self.first.append(turn)
        self.last.append(len(self.moments) - 1)

    def through_node(self, node: int) -> int:
        """What comes before a node, the node, and what comes after it (Lemmas 2 to 4)."""
        return max(m.head + m.load + m.tail for m in self.moments[self.first[node] : self.last[node] + 1])

    def one_machine(self, head_ns: int, tail_ns: int, lane: int = UNLIMITED, resource: int = UNLIMITED) -> int:
        """The work on a lane (Lemmas 1 and 5) or a resource (Lemmas 13 and 14) with such heads and tails."""
        moments, parts = list(self.moments), 0
        for cast, wait, rest in self.charges.floating:
            head, tail = moments[self.first[cast]].head, moments[self.last[wait]].tail
            moments.append(Moment(lanes=[0], load=rest, head=head, tail=tail))
        for moment in moments:
            if moment.head >= head_ns and moment.tail >= tail_ns:
                share = moment.needs[resource] if resource < UNLIMITED else WHOLE * (lane in moment.lanes)
                parts += moment.load * share
        return head_ns - -parts // WHOLE + tail_ns if parts else 0

    def deferral(self, starts: Numbers) -> int:
        """Lemma 9: one of the starts is the last one, and what comes after it defers other starts of its lane."""
        problem, charges = self.problem, self.charges
        user = [-1] * problem.size  # a start that needs the node's results, directly or not
        for node in reversed(range(problem.size)):
            later = [user[succ] for succ in problem.succs[node]]
            user[node] = node if problem.is_start[node] else max(later, default=-1)
        before = closure(starts, problem.preds)
        total = sum(charges.compute) + sum(cost for _, _, cost in charges.floating)
        results = []
        for last in starts:
            late = Counter({-1: sum(cost for _, wait, cost in charges.floating if wait not in before)})
            for node in set(range(problem.size)) - before:
                same_lane = user[node] >= 0 and problem.occupied[user[node]] == problem.occupied[last]
                late[user[node] if same_lane else -1] += charges.compute[node]
            saved = late.pop(-1) + sum(max(0, late[start] - charges.lane[start]) for start in late)
            results.append(total - charges.compute[last] + charges.path[last] - saved)
        return min(results)

    def memory_limit(self, node: int, lane: int) -> int:
        """Lemmas 10 and 11: what of a lane's work does not fit before the node, because its results must be kept."""
        problem, charges = self.problem, self.charges
        require(node not in charges.replaceable, f"a bucket may replace node {node}")
        before, after = closure([node], problem.preds), closure([node], problem.succs)
        unordered = set(range(problem.size)) - before - after
        weights, given = [0] * len(problem.bytes), [list[int]() for _ in range(problem.size)]
        for buffer, users in enumerate(problem.users):
            # A packed wait does not hold the input of its start.
            users = [user for user in users if charges.released.get(user, buffer) == buffer]
            others = [user for user in users if user in unordered and buffer not in problem.made_by[user]]
            if users and (buffer in problem.live_out or any(user in after for user in users)):
                weights[buffer] = problem.bytes[buffer]
            elif others:
                given[max(others)].append(buffer)
        for other in reversed(range(problem.size)):
            results = sum(weights[buffer] for buffer in problem.made_by[other])
            for buffer in given[other]:
                weights[buffer] = min(results, problem.bytes[buffer])
                results -= weights[buffer]
        made_later = sum(weights[b] for other in unordered | after - {node} for b in problem.made_by[other])
        room = max(self.limit - problem.workspace[node] - (sum(weights) - made_later), 0)
        work, tail, items = 0, UNLIMITED, []
        for start in problem.starts:
            if problem.occupied[start] == [lane] and start not in before and charges.lane[start]:
                tail = min(tail, self.moments[self.first[start] + 1].tail)
                size = sum(weights[b] for b in problem.made_by[start]) - sum(weights[b] for b in given[start])
                if start in after:
                    work += charges.lane[start]
                elif size > 0:
                    items.append((charges.lane[start], size))
        for cost, size in sorted(items, key=lambda item: -item[0] / item[1]):
            fits = min(room, size)
            room -= fits
            work += cost * (size - fits) // size
        return self.exit[node] + work + tail if work else 0


def prove(answer: Answer, limit: int, argument: str, heads: Any = (), tails: Any = (), **at: Any) -> int:
    """The bound that an argument of a certificate proves of the answer's problem, in ns."""
    bound = Bound(answer.problem, limit, heads, tails)
    for event in answer.events:
        if not isinstance(event, int) and event[0] == "start":
            bucket, charges = answer.buckets[event[1]], bound.charges
            costs_enough = event[2] >= sum(charges.lane[member.start] for member in bucket.members)
            needs_enough = all(map(int.__ge__, bucket.demand[::2], bucket.key.least_demand))
            require(costs_enough and needs_enough, "a bucket costs or needs less than its members are charged")
    arguments: dict[str, Callable[..., int]] = {
        "through-node": bound.through_node,
        "one-machine": bound.one_machine,
        "deferral": bound.deferral,
        "memory-limit": bound.memory_limit,
    }
    require(argument in arguments, f"unknown argument {argument!r}")
    return arguments[argument](**at)


def closure(roots: Numbers, edges: Sequence[Numbers]) -> set[int]:
    """What can be reached from the roots, these included."""
    reached, stack = set(roots), list(roots)
    while stack:
        new = set(edges[stack.pop()]) - reached
        reached |= new
        stack += new
    return reached


class Sweep:
    """The earliest time of each moment (Lemma 2), as seen from the beginning (step 1) or from the end (step -1).

    A level (Lemma 3) says more: the work of one lane that is over at a moment and has a time of at least `least` takes
    it to `value`. Which work is over follows from the dependences (Lemma 4).
    """

    def __init__(self, bound: Bound, step: int, rows: Sequence[Numbers]) -> None:
        self.moments, size = bound.moments, len(bound.moments)
        turns = [bound.first[start] for start in bound.problem.starts]
        levels = [(bound.first[node] + part, lane, least, value) for node, part, lane, least, value in rows]
        highest = {moment: value for moment, _, _, value in levels}
        self.time, self.leave = [0] * size, [0] * size
        for at in range(size)[::step]:
            moment = self.moments[at]
            base = max((self.leave[other] for other in (moment.before, moment.after)[step < 0]), default=0)
            self.time[at] = max(base, highest.get(at, 0), moment.ready if step > 0 else 0)
            self.leave[at] = max(base + moment.path, self.time[at] + moment.load)
        for turn in turns:  # The issue begins at the turn, so what follows the turn follows the issue.
            self.time[turn + 2] = max(self.time[turn + 2], self.leave[turn] - self.moments[turn + 2].load)
        own = self.number_work(len(bound.problem.lanes))
        issued, queue = list(own), list(range(size))
        for turn in turns:  # A lane serves in the order of issue.
            issued[turn] = issued[turn + 2] = own[turn + 1]
            queue[turn + 1] -= step
        over, earlier = [0] * size, [0] * size  # By moment: work that is over, and work that was issued before.
        for at in range(size)[::step]:
            moment = self.moments[at]
            for other in (moment.before, moment.after)[step < 0]:
                over[at] |= over[other] | own[other]
                earlier[at] |= earlier[other] | issued[other]
            for lane in moment.lanes:
                over[at] |= earlier[queue[at]] & self.mask[lane] if lane else 0
        for at, lane, least, value in levels:
            sum_of_work = self.sum_of(over[at], lane, least)
            require(least + sum_of_work >= value, f"too little work on lane {lane} for a level of {value} ns")

    def number_work(self, lanes: int) -> list[int]:
        """Gives each piece of work a bit: those of one lane side by side, the latest first."""
        own, first = [0] * len(self.moments), 0
        by_lane: list[list[int]] = [[] for _ in range(lanes)]
        for at, moment in enumerate(self.moments):
            for lane in moment.lanes if moment.load else ():
                by_lane[lane].append(at)
        self.mask: list[int] = []
        self.pieces: list[tuple[int, list[int], list[int]]] = []
        for work in by_lane:
            work.sort(key=lambda at: -self.time[at])
            digits = [0] * max((self.moments[at].load.bit_length() for at in work), default=0)
            for bit, at in enumerate(work):
                own[at] |= 1 << first + bit
                for digit in range(len(digits)):
                    digits[digit] |= (self.moments[at].load >> digit & 1) << bit
            self.mask.append((1 << len(work)) - 1 << first)
            self.pieces.append((first, [-self.time[at] for at in work], digits))
            first += len(work)
        return own

    def sum_of(self, work: int, lane: int, least: int) -> int:
        """How long the work of a lane takes that has a time of at least `least`, summed digit by digit."""
        first, keys, digits = self.pieces[lane]
        chosen = work >> first & (1 << bisect.bisect_right(keys, -least)) - 1
        return sum((chosen & digit).bit_count() << place for place, digit in enumerate(digits))
