# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The search of plans for FSDP2 against brute force, and the memory that it counts against the library's count."""

import pytest

torch = pytest.importorskip("torch")

from commsched.torch.fsdp2 import program, search
from commsched.torch.fsdp2.items import Kind
from commsched.torch.fsdp2.layout import Layout
from commsched.torch.fsdp2.runtime import Run
from commsched.torch.fsdp2.setting import by_units
from fsdp2_steps import chain, every_setting, some_setting

MACHINE = "h100-sxm"
MARGIN = search.LEAST_GAIN_PPM / 1e6


def _best(step, modules, layout, limit, **choices):
    """The least time of any setting within the limit."""
    runs = {}
    for setting in every_setting(modules, **choices):
        run = Run(step, setting, layout)
        runs.setdefault(program.on_device(run), run)
    texts = list(runs)
    measures = []
    for i in range(0, len(texts), 500):
        measures += program.measure({t: runs[t] for t in texts[i : i + 500]}, MACHINE)
    return min(m.step_ns for m in measures if m.needed_bytes <= limit)


# Tests that the search finds the best of all settings with lists of equal lengths, and that the bound is below it. The
# limit is the peak of the default, a fifth more, or none.
@pytest.mark.parametrize(
    "seed, modules, layout, room",
    [
        (0, 3, Layout(64), 1),
        (1, 2, Layout(64), 100),
        (2, 3, Layout(8), 1.2),
        (4, 2, Layout(8), 1),
        (5, 4, Layout(64), 1.2),
        (7, 3, Layout(64), 1),
        (11, 3, Layout(64), 100),
        (0, 3, Layout(8, 8), 1),
        (2, 3, Layout(8, 4), 1.2),
        (5, 3, Layout(16, 4), 100),
        (7, 3, Layout(4, 16), 1),
    ],
    ids=str,
)
def test_equals_brute_force(seed, modules, layout, room):
    step = chain(seed, modules)
    default = by_units(step, set(range(1, modules + 1)))
    (given,) = search.Pricer(step, layout, MACHINE, None)([default])
    limit = int(given.measure.needed_bytes * room)
    tried, bound = search.search(search.Pricer(step, layout, MACHINE, limit), default)
    found = tried[0].measure
    best = _best(step, modules, layout, limit)
    assert found.needed_bytes <= limit
    assert bound <= best
    # Lists of different lengths may be better still.
    assert bound <= found.step_ns <= best * (1 + MARGIN)
    assert found.step_ns <= given.measure.step_ns


# Tests the same if the ranks of a node may keep groups together, in cases in which that is best: the search without it
# finds nothing as good.
@pytest.mark.parametrize(
    "seed, layout, room", [(12, Layout(64, node=8), 1.1), (13, Layout(16, 4, node=8), 1.03)], ids=str
)
def test_parts_of_groups_equal_brute_force(seed, layout, room):
    step = chain(seed, 4)
    default = by_units(step, {1, 2, 3, 4})
    (given,) = search.Pricer(step, layout, MACHINE, None)([default])
    limit = int(given.measure.needed_bytes * room)
    found, bound = search.search(search.Pricer(step, layout, MACHINE, limit), default)
    apart, _ = search.search(search.Pricer(step, Layout(layout.shards, layout.replicas), MACHINE, limit), default)
    assert layout.part in [g.reshard for g in found[0].setting.groups]
    ns, least = found[0].measure.step_ns, _best(step, 4, layout, limit, ahead=2, buffers=2, parts=(layout.part,))
    assert found[0].measure.needed_bytes <= limit and bound <= least
    assert bound <= ns <= least * (1 + MARGIN) and ns < apart[0].measure.step_ns


# Tests that the default is taken if nothing is better, and that the least memory is taken if nothing fits.
def test_limits():
    step = chain(14, 2)
    default = by_units(step, {1, 2})
    pricer = search.Pricer(step, Layout(64), MACHINE, 0)
    tried, _ = search.search(pricer, default)
    assert tried[0].measure.needed_bytes == min(p.measure.needed_bytes for p in tried)
    assert any(p.setting == default for p in tried)


# Tests that the bytes which an allocator counts are those that the library counts in the order of the host.
@pytest.mark.parametrize("layout", [Layout(8), Layout(4, 2)], ids=str)
@pytest.mark.parametrize("seed", range(12))
def test_memory_of_the_host(seed, layout):
    step = chain(seed, 5)
    run = Run(step, some_setting(seed, by_units(step, set(range(1, 6))), (2,)), layout)
    assert run.allocated_bytes() == program.host_peak(run, MACHINE)


# Tests that an all-reduce begins when its reduction has ended: with one group, the step takes longer by what it takes.
def test_all_reduce_follows_its_reduction():
    step, layout = chain(0, 1), Layout(8, 8)
    setting = by_units(step, {1})
    runs = [Run(step, setting, one) for one in (Layout(8), layout)]
    plain, hybrid = (program.measure({program.on_device(run): run}, MACHINE)[0] for run in runs)
    (nbytes,) = (item.nbytes for item in runs[1].items if item.kind is Kind.ALL_REDUCE)
    type_ = f"tensor<{nbytes // 2}xbf16>"
    alone = (
        f"func.func @alone(%s: {type_}) -> {type_} {{ %f = comm.all_reduce avg %s on @replicas : ({type_}) -> "
        f"!comm.future<{type_}> %r = comm.wait %f : !comm.future<{type_}> return %r : {type_} }}"
    )
    (report,) = program.measured([alone], layout, MACHINE)
    assert report["makespan_ns"]["before"] > 0
    assert hybrid.step_ns == plain.step_ns + report["makespan_ns"]["before"]


# Tests that all ranks find the same setting: the search depends on the step alone.
def test_is_deterministic():
    found = []
    for _ in range(2):
        step = chain(3, 4)
        pricer = search.Pricer(step, Layout(64), MACHINE, None)
        found.append(search.search(pricer, by_units(step, {1, 2, 3, 4}))[0][0].setting)
    assert found[0] == found[1]
