# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Bounds that follow from what an order has to put off: Lemmas 9 to 11 of Bounds.md."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

from .core import UNLIMITED, Bound, Numbers, require
from .graph import closure, made_by, successors


def prove(bound: Bound, limit: int, argument: str, **at: Any) -> int:
    """The bound that an argument proves, in ns."""
    require(argument in ("deferral", "memory-limit"), f"unknown argument {argument!r}")
    return deferral(bound, **at) if argument == "deferral" else memory_limit(bound, limit, **at)


def deferral(bound: Bound, starts: Numbers) -> int:
    """Lemma 9: one of the starts is the last one, and what comes after it defers other starts of its lane."""
    problem, charges = bound.problem, bound.charges
    user = [-1] * problem.size  # a start that needs the node's results, directly or not
    succs = successors(problem)
    for node in reversed(range(problem.size)):
        later = [user[succ] for succ in succs[node]]
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


def memory_limit(bound: Bound, limit: int, node: int, lane: int) -> int:
    """Lemmas 10 and 11: what of a lane's work does not fit before the node, because its results must be kept."""
    problem, charges, made = bound.problem, bound.charges, made_by(bound.problem)
    require(node not in charges.replaceable, f"a bucket may replace node {node}")
    before, after = closure([node], problem.preds), closure([node], successors(problem))
    unordered = set(range(problem.size)) - before - after
    weights, given = [0] * len(problem.buffers), [list[int]() for _ in range(problem.size)]
    for buffer, (_, *users) in enumerate(problem.buffers):
        # A packed wait does not hold the input of its start.
        users = [user for user in users if charges.released.get(user, buffer) == buffer]
        others = [user for user in users if user in unordered and buffer not in made[user]]
        if users and (buffer in problem.live_out or any(user in after for user in users)):
            weights[buffer] = problem.buffers[buffer][0]
        elif others:
            given[max(others)].append(buffer)
    for other in reversed(range(problem.size)):
        results = sum(weights[buffer] for buffer in made[other])
        for buffer in given[other]:
            weights[buffer] = min(results, problem.buffers[buffer][0])
            results -= weights[buffer]
    made_later = sum(weights[b] for other in unordered | after - {node} for b in made[other])
    room = max(limit - problem.workspace[node] - (sum(weights) - made_later), 0)
    work, tail, items = 0, UNLIMITED, []
    for start in problem.starts:
        if problem.occupied[start] == [lane] and start not in before and charges.lane[start]:
            tail = min(tail, bound.moments[bound.first[start] + 1].tail)
            size = sum(weights[b] for b in made[start]) - sum(weights[b] for b in given[start])
            if start in after:
                work += charges.lane[start]
            elif size > 0:
                items.append((charges.lane[start], size))
    for cost, size in sorted(items, key=lambda item: -Fraction(*item)):
        fits = min(room, size)
        room -= fits
        work += cost * (size - fits) // size
    return bound.exit[node] + work + tail if work else 0
