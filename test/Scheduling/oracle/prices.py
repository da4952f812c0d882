# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prices of operations on a machine, in ns, from the text of its profile as MachineModel.md describes it."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from .programs import shape_of

# Times are rounded to the nearest nanosecond. What is this close to a half, as a share of the time, may be rounded
# either way by a model that computes logarithms and rates in integers.
NEAR = 3e-9
GIGA = 10**9


def rounded(time: Fraction) -> int:
    """The nearest integer, halves up."""
    return math.floor(time + Fraction(1, 2))


def monotone(times: list[int]) -> list[int]:
    """The closest times that do not fall: what falls has the mean of its neighbours (isotonic regression)."""
    pools: list[list[int]] = []
    for time in times:
        pools.append([time])
        while len(pools) > 1 and mean(pools[-2]) >= mean(pools[-1]):
            last = pools.pop()
            pools[-1] += last
    return [mean(pool) for pool in pools for _ in pool]


def mean(times: list[int]) -> int:
    return rounded(Fraction(sum(times), len(times)))


def between(size: int, left: tuple[int, int], right: tuple[int, int]) -> float:
    """The time at a size between two points, linear in the logarithms of both."""
    share = math.log(size / left[0]) / math.log(right[0] / left[0])
    return left[1] * (right[1] / left[1]) ** share


class Prices:
    """The prices of one machine, if collectives take `scale` permille of what is planned.

    `is_doubtful` is set once a price was too close to a half to know how it is rounded.
    """

    def __init__(self, profile: dict[str, Any], groups: dict[str, list[list[int]]], scale: int = 1000):
        self.scale = scale
        self.profile = profile
        node = profile["node"]["ranks"]
        # By group: ranks, nodes, ranks of a node.
        self.shapes = {name: shape_of(ranks, node) for name, ranks in groups.items()}
        self.issue = profile.get("overheads", {}).get("issue_ns", 0)
        self.is_doubtful = False

    def lane(self, group: str) -> str:
        """The lane of a group's collectives: groups with equal answers share it."""
        lanes = self.profile.get("lanes", "per_group")
        across = self.shapes[group][1] > 1
        return {"one": "", "per_group": group, "per_link": "network" if across else "node"}[lanes]

    def kernel(self, moved: int) -> int:
        """A computation that moves so many bytes."""
        time = Fraction(moved * GIGA, self.profile["memory"]["bandwidth_gbps"] * GIGA)
        return self.profile["compute"]["launch_ns"] + rounded(time) if moved else 0

    def copy(self, read: int, written: int) -> int:
        """A kernel that packs or unpacks."""
        time = Fraction((read + written) * GIGA, self.profile["copy"]["bandwidth_gbps"] * GIGA)
        return self.profile["copy"]["launch_ns"] + rounded(time)

    def collective(self, kind: str, group: str, element: str, size: int, parts: int = 1) -> int:
        """A collective over `size` bytes, or several in one start: each of these has a latency of its own."""
        table = self.table(kind, group, element)
        if table:
            return self.measured(table, size) + (parts - 1) * self.measured(table, 0)
        latency, seconds_per_byte = self.alpha_beta(kind, group)
        return parts * latency + self.nearest(size * GIGA * seconds_per_byte)

    def scaled(self, time: int) -> int:
        """A time of a collective at this scale, rounded down."""
        return time * self.scale // 1000

    def table(self, kind: str, group: str, element: str) -> list[tuple[int, int]]:
        """The points of the measured table that applies, or none."""
        best: tuple[int, list] = (-1, [])
        for table in self.profile.get("collectives", []):
            is_named = "group" in table
            ranks, nodes, _ = self.shapes[group]
            fits = table["group"] == group if is_named else (table["ranks"], table["nodes"]) == (ranks, nodes)
            if table["kind"] == kind and table["element"] in (element, "any") and fits:
                best = max(
                    best, (2 * is_named + (table["element"] == element), table["points"]), key=lambda pair: pair[0]
                )
        times = monotone([point["ns"] for point in best[1]])
        return [(point["bytes"], time) for point, time in zip(best[1], times)]

    def measured(self, table: list[tuple[int, int]], size: int) -> int:
        if size <= table[0][0]:
            return table[0][1]
        if size >= table[-1][0]:
            return self.beyond(table, size)
        for left, right in zip(table, table[1:]):
            if size < right[0]:
                return self.nearest(between(size, left, right)) if left[1] != right[1] else left[1]
        raise AssertionError("no points")

    def beyond(self, table: list[tuple[int, int]], size: int) -> int:
        """The bandwidth between the last two different times holds for all larger sizes."""
        last = table[-1]
        earlier = [point for point in table if point[1] < last[1]]
        if not earlier:
            return last[1] * size // last[0]
        rise = Fraction(last[1] - earlier[-1][1], last[0] - earlier[-1][0])
        return math.floor(last[1] + (size - last[0]) * rise)

    def alpha_beta(self, kind: str, group: str) -> tuple[int, Fraction]:
        """Latency, and seconds per byte."""
        links = self.profile["links"]
        ranks, nodes, in_node = self.shapes[group]
        hops = [(in_node, "intra"), (nodes, "inter")]
        tree = sum(math.ceil(math.log2(count)) * links[link]["latency_ns"] for count, link in hops)
        passes = 2 if kind == "all_reduce" else 1
        bandwidth = links["inter" if nodes > 1 else "intra"]["bandwidth_gbps"]
        return links["base_ns"] + passes * tree, Fraction(passes * (ranks - 1), ranks * bandwidth * GIGA)

    def nearest(self, time: float | Fraction) -> int:
        exact = Fraction(time)
        if abs(float(exact - math.floor(exact)) - 0.5) < NEAR * float(exact) + 1e-9:
            self.is_doubtful = True
        return rounded(exact)
