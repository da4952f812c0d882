# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Durations and demands as lower bounds count them, for any bucketing. Lemmas are those of docs/Bounds.md."""

from __future__ import annotations

import bisect

from .problem import SMALL_UNPACK_BYTES, Key, Numbers, Problem, pairs, require


class Charges:
    """By node: what it does to its lanes at least. What may be merged is charged its share of a bucket."""

    def __init__(self, problem: Problem) -> None:
        starts = problem.is_start
        self.compute = [problem.issue[node] if starts[node] else cost for node, cost in enumerate(problem.cost_ns)]
        self.lane, self.path = list(problem.cost_ns), list(problem.cost_ns)
        self.needs = [demand[::2] for demand in problem.needs]
        self.floating: list[tuple[int, int, int]] = []  # work between a cast and a wait, ns (Lemma 7a)
        members = problem.member_of.values()
        self.replaceable = {node for m in members for node in (m.start, m.wait, m.cast)}
        self.released = {m.wait: m.output for m in members}
        for key in problem.keys:
            if len(key.members) > 1:
                self.share(problem, key)

    def share(self, problem: Problem, key: Key) -> None:
        members = [member for member in problem.member_of.values() if member.key is key]
        sizes = sorted(m.bytes for m in members)
        small = [m.output_bytes for m in members if m.output_bytes <= SMALL_UNPACK_BYTES]
        collective = Samples(key.samples, min(sum(sizes), key.cap_bytes))
        pack = Samples(key.pack_samples, sum(m.input_bytes for m in members))
        small_unpack = Samples(key.small_unpack_samples, sum(small))
        large_unpack = dict(pairs(key.large_unpack_samples))
        reads, writes = key.pack_reads_for_writes
        for m in members:
            require(reads * m.input_bytes <= m.pack_reads * writes, "a pack reads less than the samples say")
            self.needs[m.start] = [*map(min, self.needs[m.start], key.least_demand)]
            if m.bytes + sizes[m.bytes == sizes[0]] <= key.cap_bytes:  # Lemmas 7 and 8
                self.compute[m.start], self.path[m.start] = 0, min(self.path[m.start], m.alone_ns)
                self.lane[m.start] = min(self.path[m.start], collective.share(m.bytes))
            if m.cast is not None:
                cost, copy = problem.cost_ns[m.cast], problem.demand_of[problem.copy_demand]
                self.needs[m.cast] = [*map(min, self.needs[m.cast], copy[::2])]
                self.compute[m.cast] = min(cost, pack.share(m.input_bytes))
                is_small = m.output_bytes <= SMALL_UNPACK_BYTES
                unpack = small_unpack.share(m.output_bytes) if is_small else large_unpack.get(m.output_bytes, 0)
                if key.collective == "all_gather":
                    self.floating.append((m.cast, m.wait, min(cost - self.compute[m.cast], unpack)))


class Samples:
    """Of a monotone cost function. Between two sizes x < y no byte costs less than f(x) / y (Lemma 7)."""

    def __init__(self, samples: Numbers, largest: int) -> None:
        rows = pairs(samples)
        ascend = rows == sorted(rows) == sorted(rows, key=lambda row: row[1])
        require(ascend, "the samples of a cost do not ascend")
        require(not rows or rows[-1][0] >= largest, "the samples of a cost end before the largest bucket")
        self.sizes = [size for size, _ in rows]
        self.rates: list[tuple[int, int]] = []  # by sample: the least cost per byte from its size on
        for (x, cost), y in reversed(list(zip(rows, self.sizes[1:] + self.sizes[-1:]))):
            rate = (cost, max(x if y == x + 1 else y, 1))
            least = self.rates[0] if self.rates else rate
            self.rates.insert(0, rate if rate[0] * least[1] < least[0] * rate[1] else least)

    def share(self, size: int) -> int:
        """The least that a part of this size adds to the cost of the whole, ns."""
        cell = bisect.bisect_right(self.sizes, size) - 1
        return self.rates[cell][0] * size // self.rates[cell][1] if cell >= 0 else 0
