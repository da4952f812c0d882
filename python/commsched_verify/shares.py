# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Least costs of merged collectives, however they are merged: Lemmas 7, 8, 15 and 27 of Bounds.md."""

from __future__ import annotations

import bisect
from fractions import Fraction

from .buckets import SMALL_UNPACK_BYTES, Key, Member, Merged, members_of, pairs
from .core import WHOLE, Charges, Numbers, Problem, require

USE_BYTES = 1 << 30  # Key.least_use is of so many bytes


def charge(problem: Problem, charges: Charges, merged: Merged | None) -> None:
    """Charges what may be merged its share of a bucket. The buckets of the answer may not cost less than that."""
    members = members_of(problem).values()
    charges.replaceable |= {node for m in members for node in (m.start, m.wait, m.cast)}
    charges.released |= {m.wait: m.output for m in members}
    for key in {id(m.key): m.key for m in members}.values():
        if len(key.members) > 1:
            share(problem, charges, key, [member for member in members if member.key is key])
    for bucket in merged.buckets if merged else ():
        costs_enough = bucket.cost >= sum(charges.lane[member.start] for member in bucket.members)
        needs_enough = all(map(int.__ge__, bucket.demand[::2], bucket.key.least_demand))
        for resource, part in enumerate(bucket.demand[::2]):
            used = sum(charges.lane[m.start] * charges.needs[m.start][resource] for m in bucket.members)
            needs_enough &= bucket.cost * part >= used
        require(costs_enough and needs_enough, "a bucket costs or needs less than its members are charged")


def share(problem: Problem, charges: Charges, key: Key, members: list[Member]) -> None:
    sizes = sorted(m.bytes for m in members)
    small = [m.output_bytes for m in members if m.output_bytes <= SMALL_UNPACK_BYTES]
    collective = Samples(key.samples, min(sum(sizes), key.cap_bytes))
    pack = Samples(key.pack_samples, sum(m.input_bytes for m in members))
    small_unpack = Samples(key.small_unpack_samples, sum(small))
    large_unpack = dict(pairs(key.large_unpack_samples))
    reads, writes = key.pack_reads_for_writes
    for m in members:
        require(reads * m.input_bytes <= m.pack_reads * writes, "a pack reads less than the samples say")
        own = [part * problem.cost_ns[m.start] for part in charges.needs[m.start]]
        charges.needs[m.start] = [*map(min, charges.needs[m.start], key.least_demand)]
        if m.bytes + sizes[m.bytes == sizes[0]] <= key.cap_bytes:  # Lemmas 7 and 8
            charges.compute[m.start], charges.path[m.start] = 0, min(charges.path[m.start], m.alone_ns)
            charges.lane[m.start] = min(charges.path[m.start], collective.share(m.bytes))
        for resource, use in enumerate(key.least_use):
            if use and (load := charges.lane[m.start]):
                # A bucket uses what its bytes take, or the whole resource.
                used = min(own[resource], m.bytes * use // USE_BYTES, load * WHOLE)
                charges.needs[m.start][resource] = Fraction(used, load)
        if m.cast is not None:
            cost, copy = problem.cost_ns[m.cast], problem.demand_of[problem.copy_demand]
            charges.needs[m.cast] = [*map(min, charges.needs[m.cast], copy[::2])]
            charges.compute[m.cast] = min(cost, pack.share(m.input_bytes))
            is_small = m.output_bytes <= SMALL_UNPACK_BYTES
            unpack = small_unpack.share(m.output_bytes) if is_small else large_unpack.get(m.output_bytes, 0)
            if key.collective == "all_gather":
                charges.floating.append((m.cast, m.wait, min(cost - charges.compute[m.cast], unpack)))


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
