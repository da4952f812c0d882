# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Checks that merged collectives and their copies take neither less nor more than their samples allow.

The cost functions are monotone in each of their arguments. So a duration is at least that of every sample with smaller
arguments, and at most that of every sample with larger ones. A certificate has a sample at each place where a bucket of
its answer needs one, so that both limits are equal. If the answer had a choice between ways to carry out a collective,
the samples are of the cheapest way, and only say what a start takes at least.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .buckets import Bucket, Key, Member, pairs
from .core import Numbers, Problem, require


class Samples:
    """Of a function of two numbers that decreases in none of them: two arguments, and ns."""

    def __init__(self, points: Iterable[Numbers]) -> None:
        self.points = [(first, second, cost) for first, second, cost in points]
        self.checked: set[tuple[int, int, int, bool]] = set()

    def check(self, what: str, first: int, second: int, cost: int, has_most: bool = True) -> None:
        """Requires that the function may take `cost` at these arguments. O(samples), the first time."""
        if (first, second, cost, has_most) in self.checked:
            return
        least = max((ns for x, y, ns in self.points if x <= first and y <= second), default=0)
        require(cost >= least, f"{what} takes {cost} ns, but at least {least} ns by the samples")
        if has_most:
            most = min((ns for x, y, ns in self.points if x >= first and y >= second), default=-1)
            require(most >= 0, f"{what} has no sample that says what it takes at most")
            require(cost <= most, f"{what} takes {cost} ns, but at most {most} ns by the samples")
        self.checked.add((first, second, cost, has_most))


class Durations:
    """The samples of a problem, and whether starts take what they say, or at least that."""

    def __init__(self, problem: Problem, members: Mapping[int, Member], exact: bool) -> None:
        self.exact, copies = exact, list[Numbers](problem.copy_samples)
        keys: dict[int, Key] = {id(member.key): member.key for member in members.values()}
        # By key: packed starts by bytes, and coalesced ones by bytes and members. The latter take no less.
        self.packed: dict[int, Samples] = {}
        self.coalesced: dict[int, Samples] = {}
        for name, key in keys.items():
            read, written = key.pack_reads_for_writes
            copies += [(size * read // max(written, 1), size, cost) for size, cost in pairs(key.pack_samples)]
            copies += [(size, size, cost) for size, cost in pairs(key.small_unpack_samples)]
            copies += [(size, size, cost) for size, cost in pairs(key.large_unpack_samples)]
            self.packed[name] = Samples((size, 0, cost) for size, cost in pairs(key.samples))
            self.coalesced[name] = Samples(key.coalesced_samples)
        self.copies = Samples(copies)

    def check(self, at: int, name: str, bucket: Bucket, cost: int, unpacked: Numbers, fused: set[int]) -> None:
        """Checks the duration of one event: `at` is its number. `fused` are the casts whose work packs do."""
        what, members, key = f"event {at}: the {name} of a bucket", bucket.members, id(bucket.key)
        size = sum(member.bytes for member in members)
        if name == "pack":
            reads = sum(m.pack_reads if m.cast in fused else m.input_bytes for m in members)
            self.copies.check(what, reads, sum(m.input_bytes for m in members), cost)
        elif name == "unpack":
            copied = sum(member.output_bytes for member in members if member.start in unpacked)
            self.copies.check(what, copied, copied, cost)
        elif name == "start" and bucket.packed:
            self.packed[key].check(what, size, 0, cost, self.exact)
        elif name == "start":
            self.packed[key].check(what, size, 0, cost, has_most=False)
            self.coalesced[key].check(what, size, len(members), cost, self.exact)
        else:
            require(cost == 0, f"{what} takes {cost} ns, but does nothing that takes time")
