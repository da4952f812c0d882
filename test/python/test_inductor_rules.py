# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Passes after PyTorch Inductor give FX graphs the order of Inductor's rules, which inductor_rules.py has a second
time.
"""

import dataclasses
import random
import re

import pytest

torch = pytest.importorskip("torch")

import inductor_rules as rules
import torch.distributed as dist
from conftest import RANKS
from fsdp_graphs import Builder

import commsched.torch as ct
from commsched.torch import reporting, solving

aten, c10d = torch.ops.aten, torch.ops._c10d_functional
SIZE = 64


def random_graph(seed, groups, steps=24, together=100):
    """A straight line of sums, products, element-wise operations and collectives. Each start has one wait, and at most
    `together` are in flight.

    Its first operations are no wait, and its last one is no start, so that it does not matter whether a rule visits
    the first and the last node.
    """
    rng = random.Random(seed)
    b = Builder()
    values = [b.placeholder(name, SIZE, SIZE) for name in ("x", "y")]
    flying = []
    for _ in range(rng.randint(3, steps)):
        kind = rng.choice(["relu", "add", "mm", "start", "start", "wait"])
        if kind == "wait" and flying:
            values.append(b.call(c10d.wait_tensor.default, flying.pop(rng.randrange(len(flying)))))
        elif kind == "start" and len(flying) < together:
            source, group = rng.choice(values), rng.choice(groups)
            if rng.random() < 0.7:
                flying.append(b.call(c10d.all_reduce.default, source, "sum", group))
            else:
                flying.append(
                    b.call(
                        c10d.all_to_all_single.default,
                        source,
                        [8] * RANKS,
                        [8] * RANKS,
                        group,
                    )
                )
        elif kind == "relu":
            values.append(b.call(aten.relu.default, rng.choice(values)))
        elif kind in ("add", "mm"):
            target = aten.add.Tensor if kind == "add" else aten.mm.default
            values.append(b.call(target, rng.choice(values), rng.choice(values)))
    if len(flying) < together:
        flying.append(b.call(c10d.all_reduce.default, values[-1], "sum", rng.choice(groups)))
    rng.shuffle(flying)
    values += [b.call(c10d.wait_tensor.default, start) for start in flying]
    return b.module(*[v for v in values if not v.users])


def random_costs(seed):
    """A function of a node: its time in ms. All are longer than 1 us."""
    rng, times = random.Random(f"costs {seed}"), {}

    def cost(node, override_bytes=None):
        if rules.is_wait(node):
            return 0.0
        return times.setdefault(
            node.name,
            rng.randint(1000, 12_000) * 1e-6 * (3 if rules.is_start(node) else 1),
        )

    return cost


def names(nodes):
    return [n.name for n in nodes]


@pytest.fixture
def groups(world):
    """Two groups of all ranks, with a lane each."""
    return [world, dist.new_group(range(RANKS)).group_name]


LISTS = {
    "comm-raise": dict(raises=True, sinks=False, fills=False),
    "comm-sink-waits": dict(raises=False, sinks=True, fills=False),
    "comm-reorder-compute-for-overlap": dict(raises=True, sinks=True, fills=True),
}


def compare(groups, entry, rule, seeds, **options):
    """Counts the graphs whose order changes. All orders are those of the rule."""
    changed = 0
    for seed in seeds:
        gm, cost = random_graph(seed, groups), random_costs(seed)
        given = rules.operations(gm.graph)
        expected = names(rule(given, cost))
        given = names(given)
        out, report = ct.schedule_overlap(
            gm,
            passes=[entry],
            memory_budget_ratio=100.0,
            runtime_estimation=cost,
            **options,
        )
        assert names(rules.operations(out.graph)) == expected, f"{entry}, seed {seed}"
        changed += expected != given
    return changed


@pytest.mark.parametrize("name", LISTS)
def test_lists_are_scheduled_by_the_rule(groups, name):
    """The order depends on the times that the callback says, in the third pass."""
    rule = lambda order, cost: rules.list_schedule(order, cost, **LISTS[name])
    assert compare(groups, name, rule, range(40)) > 20


REORDER, SINK = (
    "comm-reorder-preserving-peak-memory",
    "comm-sink-waits-preserving-peak-memory",
)
ITERATIVE = {
    REORDER: (rules.reorder_preserving_peak_memory, {}),
    f"{REORDER}{{unsafe-collectives-reorder=false}}": (
        rules.reorder_preserving_peak_memory,
        dict(safe=True),
    ),
    f"{REORDER}{{group-with-collectives=true}}": (
        rules.reorder_preserving_peak_memory,
        dict(with_collectives=True),
    ),
    f"{REORDER}{{move-limit=2}}": (rules.reorder_preserving_peak_memory, dict(limit=2)),
    SINK: (rules.sink_waits_iterative, {}),
    f"{SINK}{{swap-with-collectives=true}}": (
        rules.sink_waits_iterative,
        dict(swaps=True),
    ),
    f"{SINK}{{swap-with-collectives=true unsafe-collectives-reorder=false}}": (
        rules.sink_waits_iterative,
        dict(swaps=True, safe=True),
    ),
    f"{SINK}{{move-limit=2}}": (rules.sink_waits_iterative, dict(limit=2)),
}


@pytest.mark.parametrize("entry", ITERATIVE)
def test_starts_and_waits_move_by_the_rule(groups, entry):
    rule, options = ITERATIVE[entry]
    assert compare(groups, entry, lambda order, cost: rule(order, **options)[0], range(40)) > 10


@pytest.mark.parametrize("name", LISTS)
def test_collectives_keep_the_order_that_was_decided(groups, name):
    entry = f"comm-order-collectives,{name}"
    rule = lambda order, cost: rules.list_schedule(order, cost, **LISTS[name], in_order=True)
    assert compare(groups, entry, rule, range(100, 140)) > 15


@pytest.mark.parametrize("entry", [*ITERATIVE, *LISTS, "comm-schedule"])
def test_no_pass_behind_changes_the_order_of_collectives(groups, entry):
    """Inductor's two iterative passes ignore the order that `decide_global_ordering_of_comms` made."""
    for seed in range(140, 150):
        gm = random_graph(seed, groups)
        given = [n.name for n in rules.operations(gm.graph) if rules.is_start(n)]
        out, _ = ct.schedule_overlap(gm, passes=["comm-order-collectives", entry], memory_budget_ratio=100.0)
        assert [n.name for n in rules.operations(out.graph) if rules.is_start(n)] == given


@pytest.mark.parametrize("budget", [0, 200])
@pytest.mark.parametrize("name", [REORDER, SINK])
def test_peaks_are_those_of_a_new_count(groups, name, budget):
    """Memory that is counted move by move (`memory-recompute` counts it anew as well) stays within the budget."""
    moved = 0
    for seed in range(200, 240):
        gm, cost = random_graph(seed, groups), random_costs(seed)
        given, results = (
            rules.operations(gm.graph),
            {*gm.graph.output_node().all_input_nodes},
        )
        before, order = rules.peak_bytes(given, results), names(given)
        entry = f"{name}{{memory-recompute=true memory-budget-ratio={budget / 1000}}}"
        out, report = ct.schedule_overlap(gm, passes=[entry], memory_budget_ratio=0.5, runtime_estimation=cost)
        after = rules.peak_bytes(rules.operations(out.graph), {*out.graph.output_node().all_input_nodes})
        peaks = report["peak_bytes"]
        assert (peaks["before"], peaks["after"]) == (before, after), f"seed {seed}"
        assert peaks["after"] * 1000 <= peaks["before"] * (1000 + budget)
        moved += names(rules.operations(out.graph)) != order
    assert moved > 10


@pytest.fixture
def listed(monkeypatch):
    """What TORCH_LOGS=overlap logs."""
    texts = []
    monkeypatch.setattr(solving, "wants_listing", lambda: True)
    monkeypatch.setattr(reporting._overlap_log(), "debug", lambda form, text: texts.append(text))
    return texts


@pytest.mark.parametrize("entry", ITERATIVE)
def test_tables_say_what_the_rule_did(groups, listed, entry):
    rule, options = ITERATIVE[entry]
    for seed in range(300, 320):
        gm, cost = random_graph(seed, groups), random_costs(seed)
        _, rows = rule(rules.operations(gm.graph), **options)
        costs = {n.name: cost(n.args[0] if rules.is_wait(n) else n) for n in rules.operations(gm.graph)}
        ct.schedule_overlap(gm, passes=[entry], memory_budget_ratio=100.0, runtime_estimation=cost)
        told = {}
        for line in listed.pop().split("\nmain: ")[0].splitlines()[2:]:
            node, _, takes, *_, moves, along, passed, _, factor = re.split(r" {2,}", line.strip())
            if not factor.startswith("move limit"):
                counts = int(along.partition(":")[0]), int(passed.partition(":")[0])
                told[node] = rules.Row(int(moves), counts[0], counts[1], factor)
            assert float(takes.removesuffix(" us")) == pytest.approx(1000 * costs[node], abs=0.06)
        assert told == {name: dataclasses.replace(row, passed=len(row.passed)) for name, row in rows.items()}, seed


def test_bars_are_beside_what_is_between_a_start_and_its_wait(groups, listed):
    """Inductor's bar begins with the first collective, and ends with the next wait. So one is in flight at a time."""
    bars = 0
    for seed in range(400, 440):
        gm = random_graph(seed, groups, together=1)
        ct.schedule_overlap(gm, passes=["comm-verify"])
        steps = re.findall(r"(?m)^ *(\d+): (\| )?\S+ (\S+)", listed.pop())
        expected = rules.listing(rules.operations(gm.graph))
        assert [(name, bool(bar)) for _, bar, name in steps] == expected
        bars += sum(bar for _, bar in expected)
    assert bars > 50
