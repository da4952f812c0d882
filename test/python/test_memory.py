# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The peak of memory, counted from the nodes of a graph, holds the schedule's model to its promise."""

import pytest

torch = pytest.importorskip("torch")

from conftest import RANKS, trace
from models.graphs import TraceConfig, graphs_of

import commsched.torch as ct
from commsched.torch import schedule
from commsched.torch.apply import memory
from commsched.torch.importer.graph import donated_placeholders
from commsched.torch.options import Options
from commsched.torch.trace import fake_world

c10d = torch.ops._c10d_functional
KIB = 1024


def test_counted_by_hand(world):
    def f(x, w):
        flying = c10d.all_gather_into_tensor(w * 2, RANKS, world)  # 1 KiB is read, 8 KiB are written
        y = x.cos().view(-1)  # 4 KiB; the view is free
        full = c10d.wait_tensor(flying)  # Here the product is freed.
        return full.sum() + y.sum()

    gm = trace(f, (16, 64), (4, 64))
    assert memory.peak_bytes(gm.graph, set()) == (1 + 8 + 4) * KIB
    assert memory.peak_bytes(gm.graph, {"x_1"}) == (1 + 8 + 4 + 4) * KIB  # It lives until the cosine.
    assert memory.peak_bytes(gm.graph, {"w_1"}) == (1 + 8 + 4) * KIB  # It was freed long before.


@pytest.mark.parametrize("options", [dict(seq=256), dict(seq=512, tp=8)], ids=["fsdp", "tp"])
def test_the_model_counts_alike(options):
    with fake_world(64):
        for gm in graphs_of(TraceConfig("llama3-8b", 64, layers=2, **options)).values():
            donated = donated_placeholders(gm.graph, "auto")
            before = memory.peak_bytes(gm.graph, donated)
            gm, report = ct.schedule_overlap(gm, effort=100)
            after = memory.peak_bytes(gm.graph, donated)
            peaks = report["peak_bytes"]
            assert (before, after) == (
                peaks["before"],
                peaks["after"],
            ) and after <= peaks["limit"]


def _three_gathers(world):
    def f(x, a, b, c):
        for w in (a, b, c):
            x = x @ c10d.wait_tensor(c10d.all_gather_into_tensor(w, RANKS, world))
        return x

    return trace(f, (64, 64), (8, 64), (8, 64), (8, 64))


def test_a_result_above_the_limit_is_taken_back(world, monkeypatch):
    """If the count finds too much, the first answer is refused, and the second gets a lower limit."""
    gm = _three_gathers(world)
    count, calls = memory.peak_of, []

    def counted(graph, donated, without=None, aliases=None):
        peak = count(graph, donated, without or (), aliases)
        if without is not None:
            calls.append([n.name for n in graph.nodes])
            peak.bytes += 1_000_000_000 * (len(calls) == 1)
        return peak

    monkeypatch.setattr(schedule, "peak_of", counted)
    gm, report = ct.schedule_overlap(gm, memory_limit_bytes=10**9)
    assert report["recounted"] and len(calls) == 2
    assert report["peak_bytes"]["limit"] == 10**9 - memory.peak_bytes(gm.graph, set())
    gm.graph.lint()


def _layers(world, count):
    def f(x, *weights):
        for w in weights:
            x = torch.relu(x @ c10d.wait_tensor(c10d.all_gather_into_tensor(w, RANKS, world)))
        return torch.cat([x] * 4) @ x.t()  # the peak: the buckets before it have enough memory

    return trace(f, (4096, 512), *[(512 // RANKS, 512)] * count, dtype=torch.bfloat16)


def _refused(peak, graph, without, victim):
    """If the collective of that name is merged, lets the cat that packs it hold more than the limit allows.

    Returns whether it is merged.
    """
    merged = next((n for n in without if n.name == victim), None)
    if merged is None:
        return False
    packed = {u for n in graph.nodes if merged.args[0] in n.all_input_nodes for u in (n, *n.users)}
    (cat,) = (n for n in packed if n.target is torch.ops.aten.cat.default)
    peak.bytes, peak.live = peak.bytes + 10**6, dict.fromkeys(peak.aliases.of(cat), 10**8)
    return True


def test_buckets_that_are_not_live_at_the_peak_stay(world, monkeypatch):
    """If the count finds too much as long as one collective is merged, the other buckets are kept."""
    _, free = ct.schedule_overlap(_layers(world, 24), objective="makespan")
    victim, counts = free["buckets"][0][0], []

    def counted(graph, donated, without=None, aliases=None):
        peak = memory.peak_of(graph, donated, without or (), aliases)
        merged = _refused(peak, graph, without or (), victim)
        if without is not None:
            counts.append(not merged)
        return peak

    monkeypatch.setattr(schedule, "peak_of", counted)
    gm, report = ct.schedule_overlap(_layers(world, 24), objective="makespan")
    assert report["recounted"] and counts[-1] and not counts[0] and len(counts) <= 2 + schedule.MOST_APART
    assert victim in report["kept_apart"] and victim not in sum(report["buckets"], [])
    assert 2 * len(sum(report["buckets"], [])) > len(sum(free["buckets"], [])) and len(free["buckets"]) >= 3
    starts = [n for n in gm.graph.nodes if "all_gather_into_tensor" in str(n.target)]
    assert len(starts) == 24 - sum(len(b) - 1 for b in report["buckets"])
    _, alone = ct.schedule_overlap(_layers(world, 24), bucketing=False)
    assert report["makespan_ns"]["after"] < alone["makespan_ns"]["after"]


def test_collectives_that_are_kept_apart_are_not_merged(world):
    options = Options()
    merged = schedule.schedule_graph(_layers(world, 24).graph, options)["buckets"]
    apart = frozenset(merged[0])
    buckets = schedule._solved(_layers(world, 24).graph, options, False, apart).plan.buckets
    assert buckets and apart.isdisjoint(m.name for b in buckets for m in b.members)


@pytest.mark.parametrize("most", [0, 1], ids=["the order alone fits", "the order alone is above the limit"])
def test_a_round_is_not_slower_than_the_order_alone(world, monkeypatch, most):
    """The rounds after a refusal search other problems, so any of them may end with a longer schedule."""
    _, free = ct.schedule_overlap(_layers(world, 24))
    _, alone = ct.schedule_overlap(_layers(world, 24), bucketing=False)
    victim, whole, refused = free["buckets"][0][0], schedule._solved, []

    def unlucky(graph, options, fused, apart=frozenset()):
        solved = whole(graph, options, fused, apart)
        if apart:
            solved.time += alone["makespan_ns"]["after"]
        return solved

    def counted(graph, donated, without=None, aliases=None):
        peak = memory.peak_of(graph, donated, without or (), aliases)
        if _refused(peak, graph, without or (), victim):
            refused.append("merged")
        elif without is not None and not without and refused.count("alone") < most:
            refused.append("alone")
            peak.bytes += 10**12
        return peak

    monkeypatch.setattr(schedule, "_solved", unlucky)
    monkeypatch.setattr(schedule, "peak_of", counted)
    _, report = ct.schedule_overlap(_layers(world, 24))
    assert report["recounted"] and refused == ["merged", *["alone"] * most]
    if most:  # What is left is the answer of the round.
        assert report["kept_apart"] and report["buckets"]
    else:
        assert not report["buckets"] and not report["kept_apart"]
        assert report["makespan_ns"]["after"] == alone["makespan_ns"]["after"]


def test_a_graph_whose_results_are_all_too_large_stays(world, monkeypatch):
    gm = _three_gathers(world)
    before = [n.name for n in gm.graph.nodes]
    count = memory.peak_of

    def counted(graph, donated, without=None, aliases=None):
        peak = count(graph, donated, without or (), aliases)
        peak.bytes += 10**9 * (without is not None)
        return peak

    monkeypatch.setattr(schedule, "peak_of", counted)
    monkeypatch.delenv("COMMSCHED_STRICT", raising=False)
    with pytest.warns(UserWarning, match="limit"):
        gm, report = ct.schedule_overlap(gm)
    assert "error" in report and [n.name for n in gm.graph.nodes] == before


def test_casts_that_a_pack_takes_over_have_no_memory_before_it(world):
    """Two gradients are cast and scattered, one before and one behind the peak.

    Merged, both casts are in the pack behind the peak. It reads arguments that live throughout, so that there is no
    memory for a cast at the peak.
    """

    def f(x, tangents_a, tangents_b):  # These names make it a backward graph, whose results may be views.
        def scattered(g):
            wide = g.to(torch.float32)
            # The sum is used here: the caller may look at the storage of what it gets, which is therefore not merged.
            return c10d.wait_tensor(c10d.reduce_scatter_tensor(wide, "sum", RANKS, world)) + 1

        first = scattered(tangents_a)
        y = (x.cos() @ x).sum()  # the peak
        return first, y, scattered(tangents_b)

    gm, report = ct.schedule_overlap(trace(f, (256, 256), (64, 64), (64, 64), dtype=torch.bfloat16), donated=())
    peaks = report["peak_bytes"]
    assert "recounted" not in report and len(report["buckets"]) == 1
    assert memory.peak_bytes(gm.graph, set()) == peaks["after"] <= peaks["limit"]
    calls = [str(n.target) for n in gm.graph.nodes if n.op == "call_function"]
    assert calls.count("aten._to_copy.default") == 2
    assert calls.index("aten.mm.default") < calls.index("aten._to_copy.default")
