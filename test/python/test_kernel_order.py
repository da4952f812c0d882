# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Starts come early and waits late, but never against a dependence or above the limit on live bytes."""

import random

import pytest

pytest.importorskip("torch")

from commsched.torch.inductor.steps import Step, by_position, live_bytes, starts_early, waits_late


def _order(steps, order):
    """The steps in this order, with `before` renumbered."""
    at = {i: new for new, i in enumerate(order)}
    return [
        Step([at[j] for j in steps[i].before], steps[i].start, steps[i].wait, steps[i].allocates, steps[i].frees)
        for i in order
    ]


def _text(steps, order):
    return "".join("S" if steps[i].start else "W" if steps[i].wait else "." for i in order)


def _gathers(count, size):
    """`count` times a start, its wait, and a kernel that reads and frees the result."""
    steps = []
    for _ in range(count):
        k = len(steps)
        steps += [Step(start=True, allocates=size), Step([k], wait=True), Step([k + 1], frees=size)]
    return steps


def test_starts_come_as_early_as_memory_allows():
    steps = _gathers(4, 10)
    assert _text(steps, starts_early(steps, 10)) == "SW.SW.SW.SW."
    assert _text(steps, starts_early(steps, 20)) == "SSW.SW.SW.W."
    assert _text(steps, starts_early(steps, 40)) == "SSSSW.W.W.W."


def test_a_start_follows_what_it_reads_and_the_start_before_it():
    steps = [Step(), Step(), Step([1], start=True), Step([2], wait=True), Step(start=True), Step([4], wait=True)]
    order = starts_early(steps, 0)
    assert order.index(2) == order.index(1) + 1  # It comes at once, but not before.
    assert order.index(2) < order.index(4)  # Only the first one keeps the second one.


def test_waits_come_right_before_the_first_reader_or_at_the_end():
    steps = [Step(start=True), Step([0], wait=True), Step(start=True), Step([2], wait=True), Step(), Step([1]), Step()]
    order = waits_late(steps, 0)
    assert order.index(5) == order.index(1) + 1
    assert order[-1] == 3


def test_waits_stay_where_their_inputs_would_take_too_much_memory():
    steps = [
        Step(allocates=8),
        Step([0], start=True),
        Step([1], wait=True, frees=8),
        Step(allocates=8, frees=8),
        Step(),
    ]
    assert _text(steps, waits_late(steps, 8)) == ".SW.."
    assert _text(steps, waits_late(steps, 16)) == ".S..W"


def test_positions_decide_where_dependences_do_not():
    assert by_position([3, 1, 2, 0], [[], [3], [], []]) == [3, 1, 2, 0]
    assert by_position([0, 1, 2], [[2], [], []]) == [1, 2, 0]


@pytest.mark.parametrize("seed", range(200))
def test_random_programs(seed):
    rng = random.Random(seed)
    steps, flying = [], []
    for i in range(rng.randrange(2, 40)):
        before = rng.sample(range(i), min(i, rng.randrange(3)))
        kind = rng.randrange(4)
        if kind == 0:
            steps.append(Step(before, start=True, allocates=rng.randrange(5)))
            flying.append(i)
        elif kind == 1 and flying:
            steps.append(Step([*before, flying.pop()], wait=True, frees=rng.randrange(5)))
        else:
            steps.append(Step(before, allocates=rng.randrange(5), frees=rng.randrange(5)))
    limit = max(live_bytes(steps)) + rng.randrange(6)
    starts = [i for i, s in enumerate(steps) if s.start]
    for move in (starts_early, waits_late):
        order = move(steps, limit)
        assert sorted(order) == list(range(len(steps)))
        at = {i: new for new, i in enumerate(order)}
        assert all(at[j] < at[i] for i, s in enumerate(steps) for j in s.before)
        assert [i for i in order if steps[i].start] == starts
        assert max(live_bytes(_order(steps, order))) <= limit
