# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The lower bound of a certificate. The numbers of lemmas are those of docs/Bounds.md.

Sets of nodes are bits of large integers, so heads and tails take O(N^2 / 64) words.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator

from .charges import Charges
from .problem import Problem
from .statements import UNLIMITED, Section, numbers, require


class WorkSets:
    """Sets of pieces of work as bits: the pieces of one lane side by side, those with the largest keys first."""

    def __init__(self, charges: Charges, problem: Problem, compute_key: list[int], lane_key: list[int]) -> None:
        self.own = [0] * problem.size  # by node: its piece of compute work
        self.collective = [0] * problem.size
        self.lanes: list[tuple[int, list[int], list[int]]] = []  # first bit, negated keys, bit slices of the durations
        first = 0
        for lane in range(problem.lanes):
            key, cost, bits = (
                (lane_key, charges.lane, self.collective) if lane else (compute_key, charges.compute, self.own)
            )
            nodes = sorted(
                (n for n in range(problem.size) if cost[n] > 0 and (not lane or problem.lane[n] == lane)),
                key=lambda n: -key[n],
            )
            slices = [0] * max((cost[node].bit_length() for node in nodes), default=0)
            for bit, node in enumerate(nodes):
                bits[node] = 1 << (first + bit)
                for digit in range(cost[node].bit_length()):
                    slices[digit] |= (cost[node] >> digit & 1) << bit
            self.lanes.append((first, [-key[node] for node in nodes], slices))
            first += len(nodes)

    def on_lane(self, pieces: int, lane: int) -> int:
        first, keys, _ = self.lanes[lane]
        return pieces & ((1 << len(keys)) - 1) << first

    def load(self, pieces: int, lane: int, least_key: int) -> int:
        """The sum of the durations of those pieces on the lane whose key is at least `least_key`."""
        first, keys, slices = self.lanes[lane]
        chosen = pieces >> first & (1 << bisect.bisect_right(keys, -least_key)) - 1
        return sum((chosen & digit).bit_count() << place for place, digit in enumerate(slices))


class Bound:
    """Heads and tails of all nodes (Lemmas 2 to 4), with the certificate's levels, and the bound that they give."""

    def __init__(self, problem: Problem, charges: Charges, levels: Section, limit: int) -> None:
        self.problem, self.charges, self.limit = problem, charges, limit
        self.levels = {
            name: {row[0]: row[1:] for row in levels.get(name, [])}
            for name in ("head", "begin", "exit", "tail", "lane-tail")
        }
        for name, rows in self.levels.items():
            numbers(list(rows), 0, problem.size, name)
            for lane, least, value in rows.values():
                numbers([lane], 0, problem.lanes, name), numbers([least, value], 0, UNLIMITED, name)
        self.heads()
        self.tails()
        self.check_heads()
        self.check_tails()

    def lifted(self, name: str, node: int, value: int) -> int:
        level = self.levels[name].get(node)
        return max(value, level[2]) if level else value

    def begins_late(self, node: int) -> bool:
        return self.problem.kinds[node] == "H" or self.problem.region[node] is not None

    def heads(self) -> None:
        problem, charges = self.problem, self.charges
        self.head, self.begin, self.exit, self.over = ([0] * problem.size for _ in range(4))
        for node, kind in enumerate(problem.kinds):
            head = self.lifted("head", node, max((self.exit[pred] for pred in problem.preds[node]), default=0))
            begin = max(self.lifted("begin", node, head), problem.busy_until[problem.lane[node]] if kind in "SH" else 0)
            awaited = [self.over[start] for start in problem.awaited(node)]
            if problem.region[node] is not None:
                begin = max([begin, problem.ready[node], *awaited])
            leave = {
                "S": head + charges.compute[node],
                "H": begin + charges.path[node],
                "W": max([head, *(awaited or [problem.ready[node]])]),
                "C": (begin if self.begins_late(node) else head) + charges.compute[node],
            }[kind]
            self.head[node], self.begin[node], self.exit[node] = head, begin, self.lifted("exit", node, leave)
            self.over[node] = max(head + charges.path[node], begin + charges.lane[node])

    def tails(self) -> None:
        problem, charges = self.problem, self.charges
        self.tail, self.entry, self.lane_tail = ([0] * problem.size for _ in range(3))
        for node in reversed(range(problem.size)):
            kind, succs = problem.kinds[node], problem.succs[node]
            tail = self.lifted("tail", node, max((self.entry[succ] for succ in succs), default=0))
            entry, lane_tail = tail + charges.compute[node], tail if kind == "H" else 0
            if kind == "S":
                end_tail = max(
                    (
                        self.tail[s] if problem.kinds[s] == "W" else self.entry[s]
                        for s in succs
                        if node in problem.awaited(s)
                    ),
                    default=0,
                )
                lane_tail = max(end_tail, self.lifted("lane-tail", node, 0))
                entry = max(entry, charges.path[node] + end_tail, charges.lane[node] + lane_tail)
            self.tail[node], self.entry[node], self.lane_tail[node] = tail, entry, lane_tail

    def check(self, name: str, node: int, sets: WorkSets, pieces: int) -> None:
        if node in self.levels[name]:
            lane, least, value = self.levels[name][node]
            require(
                least + sets.load(pieces, lane, least) >= value,
                f"the {name} of node {node} is less than {value}: too little work on lane {lane}",
            )

    def check_heads(self) -> None:
        """Lemma 4, items 1 to 3. The work that has ended when the clock leaves a node, and collectives before it."""
        problem = self.problem
        compute_key = [self.begin[n] if self.begins_late(n) else self.head[n] for n in range(problem.size)]
        self.ahead = sets = WorkSets(self.charges, problem, compute_key, self.begin)
        ended, before = [0] * problem.size, [0] * problem.size
        for node, preds in enumerate(problem.preds):
            for pred in preds:
                ended[node] |= ended[pred]
                before[node] |= before[pred]
            self.check("head", node, sets, ended[node])
            before_lanes = sum(sets.on_lane(before[node], lane) for lane in problem.occupied(node))
            for start in problem.awaited(node):
                ended[node] |= sets.on_lane(before[start], problem.lane[start])
            self.check("begin", node, sets, ended[node] | before_lanes)
            before[node] |= sets.collective[node]
            if problem.kinds[node] == "H":
                ended[node] |= before_lanes | sets.collective[node]
            ended[node] |= sets.own[node]
            self.check("exit", node, sets, ended[node])

    def check_tails(self) -> None:
        """Lemma 4, items 4 and 5. By node: its work and that of its descendants."""
        problem = self.problem
        key = [max(tail, entry - cost) for tail, entry, cost in zip(self.tail, self.entry, self.charges.compute)]
        sets, after = WorkSets(self.charges, problem, key, self.lane_tail), [0] * problem.size
        for node in reversed(range(problem.size)):
            for succ in problem.succs[node]:
                after[node] |= after[succ]
            self.check("tail", node, sets, after[node])
            self.check(
                "lane-tail", node, sets, sets.on_lane(after[node], problem.lane[node]) if problem.lane[node] else 0
            )
            after[node] |= sets.own[node] | sets.collective[node]
        self.compute_tail = key

    def jobs(self, lane: int) -> Iterator[tuple[int, int, int]]:
        """The pieces of work of a lane: head, duration, tail."""
        for first, last, cost in self.charges.floating if lane == 0 else ():
            yield self.head[first], cost, self.tail[last]
        for node in range(self.problem.size):
            if lane == 0:
                head = self.begin[node] if self.begins_late(node) else self.head[node]
                yield head, self.charges.compute[node], self.compute_tail[node]
            elif lane in self.problem.occupied(node):
                own = self.problem.lane[node] == lane
                yield self.begin[node], self.charges.lane[node], self.lane_tail[node] if own else self.tail[node]

    def proven(self, claim: Section) -> int:
        """What the argument of the certificate proves, in ns."""
        argument, charges, lane, node = claim["argument"], self.charges, claim.get("lane", 0), claim.get("node", 0)
        numbers([lane], 0, self.problem.lanes, "lane"), numbers([node], 0, max(self.problem.size, 1), "node")
        if argument == "lane-load":  # Lemma 1
            return sum(duration for _, duration, _ in self.jobs(lane))
        if argument == "through-node":
            through = self.begin[node] + charges.lane[node] + self.lane_tail[node] if charges.lane[node] else 0
            return max(through, self.exit[node] + self.tail[node], self.head[node] + self.entry[node])
        if argument == "one-machine":  # Lemma 5
            head, tail = claim["head_ns"], claim["tail_ns"]
            load = sum(d for h, d, t in self.jobs(lane) if h >= head and t >= tail)
            return head + load + tail if load else 0
        if argument == "deferral":
            starts = numbers(claim["starts"], 0, self.problem.size, "starts")
            return min(self.deferral(starts, last) for last in starts)
        require(argument == "memory-limit", f"an unknown argument {argument!r}")
        return self.memory_limit(node, lane)

    def closure(self, roots: Iterable[int], edges: list[list[int]]) -> set[int]:
        reached, stack = set(roots), list(roots)
        while stack:
            for other in edges[stack.pop()]:
                if other not in reached:
                    reached.add(other)
                    stack.append(other)
        return reached

    def deferral(self, starts: list[int], last: int) -> int:
        """Lemma 9, if `last` is the last one of the starts."""
        problem, charges = self.problem, self.charges
        require(all(problem.kinds[start] == "S" for start in starts), "a deferred node is no start")
        exclusive = [-1] * problem.size  # the start that alone uses a node's results
        for node in reversed(range(problem.size)):
            users = {exclusive[succ] for succ in problem.succs[node]}
            if problem.kinds[node] == "S":
                exclusive[node] = node
            elif problem.kinds[node] == "C" and len(users) == 1:
                exclusive[node] = users.pop()
        before = self.closure(starts, problem.preds)
        total = sum(charges.compute) + sum(cost for _, _, cost in charges.floating)
        saved = sum(cost for _, wait, cost in charges.floating if wait not in before)
        of_start = dict.fromkeys(range(problem.size), 0)
        for node in set(range(problem.size)) - before:
            start = exclusive[node]
            if start >= 0 and problem.lane[start] == problem.lane[last]:
                of_start[start] += charges.compute[node]
            else:
                saved += charges.compute[node]
        saved += sum(max(0, work - charges.lane[start]) for start, work in of_start.items())
        return total - charges.compute[last] + charges.path[last] - saved

    def memory_limit(self, node: int, lane: int) -> int:
        """Lemmas 10 and 11 at a node."""
        problem, charges = self.problem, self.charges
        require(node not in charges.replaceable, "a bucket may replace the node of the limit's bound")
        before, after = self.closure([node], problem.preds), self.closure([node], problem.succs)
        released = {(m.wait, m.input) for m in problem.members.values()}
        weights = [0] * len(problem.bytes)
        given: list[list[int]] = [[] for _ in range(problem.size)]
        defines: list[list[int]] = [[] for _ in range(problem.size)]
        for buffer, users in enumerate(problem.users):
            definer = problem.definer[buffer]
            if definer >= 0:
                defines[definer].append(buffer)
            users = [user for user in users if (user, buffer) not in released]
            others = [user for user in users if user not in before and user not in after and user != definer]
            if problem.users[buffer] and (problem.live_out[buffer] or any(user in after for user in users)):
                weights[buffer] = problem.bytes[buffer]
            elif others:
                given[max(others)].append(buffer)
        for other in reversed(range(problem.size)):
            results = sum(weights[buffer] for buffer in defines[other])
            for buffer in given[other]:
                weights[buffer] = min(results, problem.bytes[buffer])
                results -= weights[buffer]
        room = self.limit - problem.workspace[node]
        room -= sum(weight for weight, definer in zip(weights, problem.definer) if definer < 0 or definer in before)
        room, work, tail, items = max(room, 0), 0, UNLIMITED, []
        for start in range(problem.size):
            if (
                problem.kinds[start] != "S"
                or problem.lane[start] != lane
                or start in before
                or charges.lane[start] == 0
            ):
                continue
            tail = min(tail, self.lane_tail[start])
            size = sum(weights[buffer] for buffer in defines[start]) - sum(weights[buffer] for buffer in given[start])
            if start in after:
                work += charges.lane[start]
            elif size > 0:
                items.append((charges.lane[start], size))
        for cost, size in sorted(items, key=lambda item: -item[0] / item[1]):
            fits = min(room, size)
            room -= fits
            work += cost * (size - fits) // size
        return self.exit[node] + work + tail if work else 0
