# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The search of plans for FSDP2 against brute force, and the memory that it counts against the library's count."""

import pytest

torch = pytest.importorskip("torch")

from commsched.torch.fsdp2 import program, search
from commsched.torch.fsdp2.runtime import Run
from commsched.torch.fsdp2.setting import by_units
from fsdp2_steps import chain, every_setting, some_setting

MACHINE = "h100-sxm"
MARGIN = search.LEAST_GAIN_PPM / 1e6


def _best(step, modules, ranks, limit):
    """The least time of any setting within the limit."""
    runs = {}
    for setting in every_setting(modules):
        run = Run(step, setting, ranks)
        runs.setdefault(program.on_device(run), run)
    texts = list(runs)
    measures = []
    for i in range(0, len(texts), 500):
        measures += program.measure({t: runs[t] for t in texts[i : i + 500]}, MACHINE)
    return min(m.step_ns for m in measures if m.needed_bytes <= limit)


# Tests that the search finds the best of all settings with lists of equal lengths, and that the bound is below it. The
# limit is the peak of the default, a fifth more, or none.
@pytest.mark.parametrize(
    "seed, modules, ranks, room",
    [
        (0, 3, 64, 1),
        (1, 2, 64, 100),
        (2, 3, 8, 1.2),
        (4, 2, 8, 1),
        (5, 4, 64, 1.2),
        (7, 3, 64, 1),
        (11, 3, 64, 100),
    ],
)
def test_equals_brute_force(seed, modules, ranks, room):
    step = chain(seed, modules)
    default = by_units(step, set(range(1, modules + 1)))
    (given,) = search.Pricer(step, ranks, MACHINE, None)([default])
    limit = int(given.measure.needed_bytes * room)
    tried, bound = search.search(search.Pricer(step, ranks, MACHINE, limit), default)
    found = tried[0].measure
    best = _best(step, modules, ranks, limit)
    assert found.needed_bytes <= limit
    assert bound <= best
    # Lists of different lengths may be better still.
    assert bound <= found.step_ns <= best * (1 + MARGIN)
    assert found.step_ns <= given.measure.step_ns


# Tests that the default is taken if nothing is better, and that the least memory is taken if nothing fits.
def test_limits():
    step = chain(14, 2)
    default = by_units(step, {1, 2})
    pricer = search.Pricer(step, 64, MACHINE, 0)
    tried, _ = search.search(pricer, default)
    assert tried[0].measure.needed_bytes == min(p.measure.needed_bytes for p in tried)
    assert any(p.setting == default for p in tried)


# Tests that the bytes which an allocator counts are those that the library counts in the order of the host.
@pytest.mark.parametrize("seed", range(12))
def test_memory_of_the_host(seed):
    step = chain(seed, 5)
    run = Run(step, some_setting(seed, by_units(step, set(range(1, 6)))), 8)
    assert run.allocated_bytes() == program.host_peak(run, MACHINE)


# Tests that all ranks find the same setting: the search depends on the step alone.
def test_is_deterministic():
    found = []
    for _ in range(2):
        step = chain(3, 4)
        pricer = search.Pricer(step, 64, MACHINE, None)
        found.append(search.search(pricer, by_units(step, {1, 2, 3, 4}))[0][0].setting)
    assert found[0] == found[1]
