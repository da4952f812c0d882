# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Decides which gradients `DistributedDataParallel` reduces together.

With one element type, DDP can be given any division of the gradients into neighbours, and a dynamic program finds the
best one. It runs with all-reduces that take 1, 1.5 and 2 times what they are expected to. Of these answers, uniform
limits, and DDP's own, the one is taken that is fastest as expected, up to a tolerance, then loses least where
all-reduces take longer or shorter, up to the same tolerance, and then has the fewest limits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from .reducer import DEFAULT_LIMITS, MIB, Backward, Buckets

# Times of all-reduces, as multiples of what is expected, for which an answer is sought.
SOUGHT = (1.0, 1.5, 2.0)
# Those at which answers are compared.
COMPARED = (0.75, 1.0, 1.25, 1.5, 2.0)
# How much slower than the fastest one an answer may be as expected. Smaller losses do not count.
TOLERANCE = 0.001
# Uniform limits that are tried, bytes.
UNIFORM = tuple(MIB << i for i in range(11))

Prices = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Answer:
    """Limits, the buckets that DDP makes of them, and the time of the step at each scale of `COMPARED`, ns."""

    limits: tuple[int, ...]
    buckets: Buckets
    times: tuple[float, ...]


def fastest(ready: Sequence[int], sizes: Sequence[int], computed: int, price: Prices) -> list[int]:
    """Divides a sequence into neighbours such that the last all-reduce ends as early as possible.

    An all-reduce that ends before the next element is there might as well end then. Among equal ends, few parts are
    taken.

    Args:
        ready: when each element is there, ascending, ns.
        sizes: its bytes.
        computed: when all computation ends, ns.
        price: the times of all-reduces of so many bytes, which grow with them.

    Returns:
        The end of each part, exclusive.

    Complexity: quadratic in the length, in operations of numpy on whole rows: 0.3 s for 5,000 elements.
    """
    total = np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.int64))])
    count = len(sizes)
    # Indexed by the number of elements that are reduced: when the next all-reduce may start, and the number of parts.
    free, parts, cut = np.zeros(count + 1), np.zeros(count + 1, dtype=np.int64), np.zeros(count + 1, dtype=np.int64)
    for j in range(1, count + 1):
        ends = np.maximum(ready[j - 1], free[:j]) + price(total[j] - total[:j])
        ends = np.maximum(ends, ready[j] if j < count else computed)
        equal = np.flatnonzero(ends == ends.min())
        best = int(equal[np.argmin(parts[equal])])
        free[j], parts[j], cut[j] = ends[best], parts[best] + 1, best
    found = [count] if count else []
    while found and cut[found[-1]]:
        found.append(int(cut[found[-1]]))
    return found[::-1]


def lower_bound(backward: Backward, price: Prices, sizes: np.ndarray) -> int:
    """No division into buckets and no order of all-reduces takes less, ns.

    What is complete at a moment or later takes the time of its bytes at the best rate, and that of one all-reduce.

    Args:
        sizes: bytes between which prices are straight lines.
    """
    ready = np.asarray(backward.ready_ns(), dtype=float)
    rest = np.cumsum([g.nbytes for g in backward.gradients][::-1])[::-1]
    rate = float(np.min(price(sizes) / sizes))
    later = ready + np.maximum(rest * rate, price(sizes[:1])[0])
    return int(max(backward.compute_ns(), later.max()))


def _exact(backward: Backward, price: Prices) -> tuple[int, ...]:
    """Limits for the fastest buckets of the element type with the most bytes."""
    types: dict = {}
    for i, g in enumerate(backward.gradients):
        types.setdefault(g.dtype, []).append(i)
    own = max(types.values(), key=backward.nbytes)
    ready = backward.ready_ns()
    sizes = [backward.gradients[i].nbytes for i in own]
    limits, first = [], 0
    for end in fastest([ready[i] for i in own], sizes, backward.compute_ns(), price):
        limits.append(max(1, sum(sizes[first:end])))
        first = end
    # The last bucket takes what is left, whatever its limit. torch.compile refuses limits that are all below that.
    limits[-1] = max(limits[-1], DEFAULT_LIMITS[0])
    return tuple(limits)


def _scaled(price: Prices, scale: float) -> Prices:
    return lambda sizes: scale * price(sizes)


def _answer(backward: Backward, limits: tuple[int, ...], price: Prices) -> Answer:
    buckets = backward.buckets(limits)
    prices = price(np.asarray([backward.nbytes(b) for b in buckets]))
    return Answer(limits, buckets, tuple(backward.step_ns(buckets, k * prices) for k in COMPARED))


def search(backward: Backward, price: Prices) -> tuple[Answer, Answer]:
    """The answer, and that of DDP's own limits."""
    asked = [_exact(backward, _scaled(price, k)) for k in SOUGHT]
    asked += [(size,) for size in UNIFORM]
    default = _answer(backward, DEFAULT_LIMITS, price)
    answers = [default, *(_answer(backward, limits, price) for limits in dict.fromkeys(asked))]
    best = [min(a.times[i] for a in answers) for i in range(len(COMPARED))]
    expected = COMPARED.index(1.0)
    near = [a for a in answers if a.times[expected] <= best[expected] * (1 + TOLERANCE)]

    def rank(a: Answer) -> tuple[int, int, int]:
        regret = max(t / b for t, b in zip(a.times, best)) - 1
        return int(regret / TOLERANCE), len(a.limits), len(a.buckets)

    return min(near, key=rank), default
