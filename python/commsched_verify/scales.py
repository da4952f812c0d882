# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The regret: how much longer an answer takes than any other could, if collectives take other times than planned.

At the scale k every collective takes k times its time, alone or merged, and also one that came in and is in flight.
Everything else takes the time that it took. A scale is given in thousandths, and times at a scale are counted in
picoseconds: a planned nanosecond is 1000 of them, and k times that is again a natural number. So nothing is rounded.

What is proven holds for every real k from 0.75 to 2 (Lemma 24 of Bounds.md). Let T(k) be the answer's makespan,
and B(k) the least makespan of any answer. Both are made of sums of times, each of which is a + b * k with a, b >= 0.

- T is the maximum of such sums, so it is convex: between two scales it is at most the chord.
- B does not fall with k. And B(k) >= k / k2 * B(k2) for k <= k2, because a + b * k >= k / k2 * (a + b * k2).

So between two neighbouring scales k1 < k2 with bounds b1 and b2, the chord is divided by the maximum of b1 and of
k / k2 * b2. Where the first is larger, the quotient is linear in k; where the second is, it is (c + d * k) / k with
some numbers c and d. Both are monotone, so the quotient is largest at k1, at k2, or where the two bounds meet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from .core import Answer, Numbers, Problem, prove, require

FIRST, PLANNED, LAST = 750, 1000, 2000  # the scales between which a regret is proven, and that of the plan
PPM, PERCENT = 1_000_000, 10_000  # millionths, in one and in a percent
Point = tuple[int, int, int]  # a scale, and at this scale the makespan and the bound, ps
Planned = tuple[int | None, int]  # the makespan, if it is known, and the bound as planned, ns


def values_times(flat: Numbers, factor: int) -> list[int]:
    """Pairs of an index and its value, with the values multiplied."""
    return [number * (factor if at % 2 else 1) for at, number in enumerate(flat)]


def last_times(rows: Iterable[Numbers], factor: int) -> list[list[int]]:
    """Rows of which the last number is a time, with the times multiplied."""
    return [[*row[:-1], row[-1] * factor] for row in rows]


def scaled_key(key: dict[str, Any], permille: int) -> dict[str, Any]:
    """What may be merged, at a scale: collectives are scaled, packs and unpacks are not."""
    rows = [(*row[:5], row[5] * permille, *row[6:]) for row in key["members"]]
    result = {**key, "members": rows, "samples": values_times(key.get("samples", ()), permille)}
    result["coalesced_samples"] = last_times(key.get("coalesced_samples", ()), permille)
    for name in ("pack_samples", "small_unpack_samples", "large_unpack_samples"):
        result[name] = values_times(key.get(name, ()), PLANNED)
    return result


def scaled_problem(problem: Problem, permille: int) -> Problem:
    """The problem at a scale, its times in ps."""
    of_node = [permille if is_start else PLANNED for is_start in problem.is_start]
    return replace(
        problem,
        cost_ns=[cost * factor for cost, factor in zip(problem.cost_ns, of_node)],
        issue_ns=values_times(problem.issue_ns, PLANNED),
        # What came in before the block is collectives in flight.
        ready_ns=values_times(problem.ready_ns, permille),
        busy_until_ns=values_times(problem.busy_until_ns, permille),
        copy_samples=last_times(problem.copy_samples, PLANNED),
        keys=[scaled_key(key, permille) for key in problem.keys],
        reasons="",
    )


def scaled_answer(problem: Problem, answer: dict[str, Any], permille: int) -> Answer:
    """The answer at a scale: the same events, and the same ways to carry out what has several."""
    events = [
        event
        if isinstance(event, int)
        else [*event[:2], event[2] * (permille if event[0] == "start" else PLANNED), *event[3:]]
        for event in answer["events"]
    ]
    rows = {**answer, "events": events}
    if "chosen" in answer:
        factors = [permille if is_start else PLANNED for is_start in problem.is_start]
        rows["chosen"] = [[node, cost * factors[node], demand] for node, cost, demand in answer["chosen"]]
    return Answer(scaled_problem(problem, permille), **rows)


def largest_between(low: Point, high: Point) -> Fraction:
    """The largest quotient of the chord and of what no answer can beat, between two neighbouring scales."""
    (k1, t1, b1), (k2, t2, b2) = low, high
    places = {Fraction(k1), Fraction(k2), min(max(Fraction(k2 * b1, b2), Fraction(k1)), Fraction(k2))}
    return max((t1 + (t2 - t1) * (k - k1) / (k2 - k1)) / max(Fraction(b1), k / k2 * b2) for k in places)


def check(
    problem: Problem, answer: dict[str, Any], planned: Planned, limit: int, regret_ppm: int, at: list[Any]
) -> str:
    """Checks a regret; returns what is proven. `at` has arguments of `point_of` for each scale but the planned one."""
    regret = prove_regret(problem, answer, planned, limit, at)
    if regret is None:
        problem.unchecked.append(f"the regret of {regret_ppm} ppm")
        return ""
    proven = -(-regret * PPM // 1)
    require(proven <= regret_ppm, f"the regret is {proven} ppm by the scales, not {regret_ppm}")
    percent = -(-regret * 100 * 100 // 1) / 100
    problem.facts["regret_percent"] = percent
    return f", and at most {percent:.2f} % if collectives take {FIRST / 1000} to {LAST // 1000} times as long"


def prove_regret(
    problem: Problem, answer: dict[str, Any], planned: Planned, limit: int, at: list[Any]
) -> Fraction | None:
    """The regret that some scales prove. None if a module is missing that this takes."""
    require(not problem.demands, "there is no regret if activities share resources, for then T need not be convex")
    scales = [row["permille"] for row in at]
    every = sorted({*scales, PLANNED})
    require(len(every) == len(at) + 1 and scales == sorted(scales), f"scales are not ascending, or planned: {scales}")
    require((every[0], every[-1]) == (FIRST, LAST), f"the scales are {every}, and not from {FIRST} to {LAST}")
    points = [point_of(problem, answer, limit, **row) for row in at]
    makespan, least = planned
    if makespan is None or any(point is None for point in points):
        return None
    known = sorted([(PLANNED, makespan * PLANNED, least * PLANNED), *(point for point in points if point)])
    require(all(bound > 0 for _, _, bound in known), "there is no regret if nothing takes time")
    return max(map(largest_between, known, known[1:])) - 1


def point_of(
    problem: Problem, answer: dict[str, Any], limit: int, permille: int, makespan_ps: int, bound_ps: int, bound: Any
) -> Point | None:
    """Checks the makespan at one scale, and the bound by its witness. None if a module is missing that this takes."""
    there = scaled_answer(problem, answer, permille)
    if len(there.done) < problem.size or (found := there.makespan()) is None:
        return None
    require(found == makespan_ps, f"the makespan at the scale {permille} is {found} ps, not {makespan_ps}")
    value, _ = prove(there, limit, **bound)
    if there.problem.unchecked:
        return None
    require(value >= bound_ps, f"the argument at the scale {permille} proves a bound of {value} ps, not {bound_ps}")
    require(makespan_ps >= bound_ps, f"the answer is faster than the bound at the scale {permille}")
    return permille, makespan_ps, bound_ps
