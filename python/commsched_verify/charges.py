# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Durations as lower bounds count them, for any bucketing. The numbers of lemmas are those of docs/Bounds.md."""

from __future__ import annotations

import bisect

from .problem import Problem
from .statements import SMALL_UNPACK_BYTES, UNLIMITED, Section, column, numbers, require


class Charges:
    """Durations as the bound counts them. What may be merged is charged its share of a bucket (Lemmas 7 to 8)."""

    def __init__(self, problem: Problem, section: Section | None) -> None:
        size = problem.size
        self.path = [cost if kind in "SH" else 0 for kind, cost in zip(problem.kinds, problem.cost)]
        self.lane = list(self.path)
        self.compute = [
            {"S": issue, "W": 0}.get(kind, cost)
            for kind, cost, issue in zip(problem.kinds, problem.cost, problem.issue)
        ]
        self.replaceable: set[int] = set()
        lane = column(section or {}, "lane_ns", size, -1, 0, UNLIMITED)
        cast = column(section or {}, "cast_ns", size, -1, 0, UNLIMITED)
        unpack = column(section or {}, "unpack_ns", size, -1, 0, UNLIMITED)
        # Work on the compute lane not before one node and not after another one (Lemma 7a).
        self.floating: list[tuple[int, int, int]] = []
        for index, key in enumerate(problem.keys):
            members = [member for member in problem.members.values() if member.key == index]
            self.replaceable |= {node for m in members for node in (m.start, m.wait, m.cast)} - {-1}
            if len(members) < 2:
                continue
            samples: Section = (section or {}).get("keys", [{}] * len(problem.keys))[index]
            sizes, cap = sorted(m.bytes for m in members), key.get("cap_bytes", UNLIMITED)
            rates = Rates(samples.get("bytes_and_ns", []), min(sum(sizes), cap))
            packs = Rates(samples.get("packed_bytes_and_ns", []), sum(m.input_bytes for m in members))
            small_outputs = sum(m.output_bytes for m in members if m.output_bytes <= SMALL_UNPACK_BYTES)
            unpacks = Rates(samples.get("small_unpack_bytes_and_ns", []), small_outputs)
            large = samples.get("large_unpack_bytes_and_ns", [])
            own_unpack = dict(zip(large[::2], numbers(large[1::2], 0, UNLIMITED, "unpacks")))
            read, wrote = samples.get("read_for_written", [0, 1])
            for m in members:
                start, partner = m.start, sizes[1] if m.bytes == sizes[0] else sizes[0]
                if m.bytes + partner <= cap or lane[start] >= 0:
                    require(
                        0 <= lane[start] <= rates.share(m.bytes),
                        f"start {start} is charged more than its share of a bucket",
                    )
                    self.compute[start], self.path[start] = 0, min(problem.cost[start], m.alone)
                    self.lane[start] = min(lane[start], self.path[start])
                require(
                    m.input_bytes == 0 or read * m.input_bytes <= m.cast_bytes * wrote,
                    "a pack reads less than the samples say",
                )
                if m.cast >= 0:
                    require(
                        0 <= cast[m.cast] <= packs.share(m.input_bytes), f"cast {m.cast} is charged more than its share"
                    )
                    self.compute[m.cast] = min(cast[m.cast], problem.cost[m.cast])
                    if unpack[start] > 0:
                        small = m.output_bytes <= SMALL_UNPACK_BYTES
                        most = unpacks.share(m.output_bytes) if small else own_unpack[m.output_bytes]
                        gathers = key["collective"] == "all_gather"
                        require(gathers and unpack[start] <= most, f"start {start} is charged too much for its unpack")
                        rest = min(problem.cost[m.cast] - self.compute[m.cast], unpack[start])
                        self.floating.append((m.cast, m.wait, rest))


class Rates:
    """Lower bounds on cost per byte of a monotone function, from samples: in [x, y) no rate is below f(x) / y."""

    def __init__(self, pairs: list[int], largest: int) -> None:
        self.sizes = numbers(pairs[::2], 0, UNLIMITED, "sizes of samples")
        costs = numbers(pairs[1::2], 0, UNLIMITED, "costs of samples")
        ascend = self.sizes == sorted(set(self.sizes)) and costs == sorted(costs) and len(costs) == len(self.sizes)
        require(
            ascend and (not costs or self.sizes[-1] >= largest),
            "the samples of a cost do not ascend or do not reach far enough",
        )
        self.floors: list[tuple[int, int]] = []
        for x, y, cost in reversed(list(zip(self.sizes, self.sizes[1:] + self.sizes[-1:], costs))):
            rate = (cost, max(x if y == x + 1 else y, 1))
            least = self.floors[-1] if self.floors else rate
            self.floors.append(min(rate, least, key=lambda r: r[0] * rate[1] * least[1] // r[1]))
        self.floors.reverse()

    def share(self, size: int) -> int:
        cell = bisect.bisect_right(self.sizes, size) - 1
        require(size == 0 or cell >= 0, "no sample is small enough")
        return self.floors[cell][0] * size // self.floors[cell][1] if size else 0
