# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Bounds that follow from what an order has to put off: Lemmas 10, 11 and 29 of Bounds.md."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from .core import UNLIMITED, Bound, Numbers, require
from .graph import closure, made_by, successors


def prove(bound: Bound, limit: int, argument: str, **at: Any) -> int:
    """The bound that an argument proves, in ns."""
    require(argument in ("deferral", "memory-limit"), f"unknown argument {argument!r}")
    return deferral(bound, **at) if argument == "deferral" else memory_limit(bound, limit, **at)


def deferral(bound: Bound, starts: Numbers) -> int:
    """Lemma 29: one of the starts is the last one, and all that depends on what comes after it does too."""
    problem, charges = bound.problem, bound.charges
    before, succs = closure(starts, problem.preds), successors(problem)
    total = sum(charges.compute) + sum(cost for _, _, cost in charges.floating)
    results = []
    for last in starts:
        lane = [
            problem.is_start[node] and problem.occupied[node] == problem.occupied[last] for node in range(problem.size)
        ]
        # A start that keeps its order behind the last one may be in one bucket with it.
        after = closure([succ for succ in succs[last] if not problem.is_start[succ]], succs)
        user = [-1] * problem.size  # a start of the lane that needs the node's results, directly or not
        follower = [-1] * problem.size  # a node that needs them
        for node in reversed(range(problem.size)):
            follower[node] = max(succs[node], key=lambda succ: (user[succ], succ), default=-1)
            user[node] = node if lane[node] else user[follower[node]] if succs[node] else -1
        late = [charges.compute[node] - lane[node] * charges.lane[node] for node in range(problem.size)]
        saved = sum(cost for _, wait, cost in charges.floating if wait not in before)
        for node in range(problem.size):
            if node not in before:
                gain = late[node] if node in after else max(0, late[node])
                if succs[node]:
                    late[follower[node]] += gain
                else:
                    saved += gain
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
