# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Medians and their intervals, as lib/Calibration computes them."""

from __future__ import annotations

import math
from collections.abc import Sequence

# The two-sided 95 % quantile of the normal distribution, with which order statistics are approximated.
QUANTILE = 1.96


def interval(values: Sequence[int]) -> tuple[int, int, int]:
    """The median and its 95 % interval from order statistics. `values` is not empty."""
    ordered, n = sorted(values), len(values)
    spread = QUANTILE * math.sqrt(n) / 2
    low, high = max(0, math.floor(n / 2 - spread)), min(n - 1, math.ceil(n / 2 + spread))
    return median(ordered), ordered[low], ordered[high]


def median(values: Sequence[int]) -> int:
    """The value in the middle, the mean of both if their number is even. `values` is not empty."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(ordered) % 2 else ordered[half - 1] + (ordered[half] - ordered[half - 1]) // 2
