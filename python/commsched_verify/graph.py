# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Facts about dependences that the modules beside the core need."""

from __future__ import annotations

from collections.abc import Sequence

from .core import Numbers, Problem, table


def successors(problem: Problem) -> list[list[int]]:
    """By node: the nodes that depend on it."""
    result: list[list[int]] = [[] for _ in range(problem.size)]
    for node, preds in enumerate(problem.preds):
        for pred in preds:
            result[pred].append(node)
    return result


def made_by(problem: Problem) -> list[list[int]]:
    """By node: the buffers that it makes."""
    live_in = set(problem.live_in)
    made = [(row[1], buffer) for buffer, row in enumerate(problem.buffers) if row[1:] and buffer not in live_in]
    return table([number for row in made for number in row], problem.size)


def closure(roots: Numbers, edges: Sequence[Numbers]) -> set[int]:
    """What can be reached from the roots, these included."""
    reached, stack = set(roots), list(roots)
    while stack:
        new = set(edges[stack.pop()]) - reached
        reached |= new
        stack += new
    return reached
