# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The peak of memory, counted from the nodes of a graph, holds the schedule's model to its promise."""

import pytest

torch = pytest.importorskip("torch")

from conftest import RANKS, trace

import commsched.torch as ct
from commsched.torch import schedule
from commsched.torch.apply import memory
from commsched.torch.importer.graph import donated_placeholders
from commsched.torch.trace import TraceConfig, fake_world
from commsched.torch.trace import trace as trace_model

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
        for gm in trace_model(TraceConfig("llama3-8b", 64, layers=2, **options)).values():
            donated = donated_placeholders(gm.graph, "auto")
            before = memory.peak_bytes(gm.graph, donated)
            gm, report = ct.schedule_overlap(gm, effort=100)
            after = memory.peak_bytes(gm.graph, donated)
            peaks = report["peak_bytes"]
            assert (before, after) == (peaks["before"], peaks["after"]) and after <= peaks["limit"]


def _three_gathers(world):
    def f(x, a, b, c):
        for w in (a, b, c):
            x = x @ c10d.wait_tensor(c10d.all_gather_into_tensor(w, RANKS, world))
        return x

    return trace(f, (64, 64), (8, 64), (8, 64), (8, 64))


def test_a_result_above_the_limit_is_taken_back(world, monkeypatch):
    """If the count finds too much, the first answer is refused, and the second gets a lower limit."""
    gm = _three_gathers(world)
    count, calls = memory.peak_bytes, []

    def counted(graph, donated, without=None):
        peak = count(graph, donated, without or ())
        if without is not None:
            calls.append([n.name for n in graph.nodes])
            peak += 1_000_000_000 * (len(calls) == 1)
        return peak

    monkeypatch.setattr(schedule, "peak_bytes", counted)
    gm, report = ct.schedule_overlap(gm, memory_limit_bytes=10**9)
    assert report["recounted"] and len(calls) == 2
    assert report["peak_bytes"]["limit"] == 10**9 - count(gm.graph, set())
    gm.graph.lint()


def test_a_graph_whose_results_are_all_too_large_stays(world, monkeypatch):
    gm = _three_gathers(world)
    before = [n.name for n in gm.graph.nodes]
    count = memory.peak_bytes
    monkeypatch.setattr(
        schedule,
        "peak_bytes",
        lambda graph, donated, without=None: count(graph, donated, without or ()) + 10**9 * (without is not None),
    )
    monkeypatch.delenv("COMMSCHED_STRICT", raising=False)
    with pytest.warns(UserWarning, match="limit"):
        gm, report = ct.schedule_overlap(gm)
    assert "error" in report and [n.name for n in gm.graph.nodes] == before


def test_casts_that_a_pack_takes_over_have_no_memory_before_it(world):
    """Two gradients are cast and scattered, one before and one behind the peak.

    Merged, both casts are in the pack behind the peak. It reads arguments that live throughout, so that there is no
    memory for a cast at the peak.
    """

    def f(x, a, b):
        def scattered(g):
            wide = g.to(torch.float32)
            return c10d.wait_tensor(c10d.reduce_scatter_tensor(wide, "sum", RANKS, world))

        first = scattered(a)
        y = (x.cos() @ x).sum()  # the peak
        return first, y, scattered(b)

    gm, report = ct.schedule_overlap(trace(f, (256, 256), (64, 64), (64, 64), dtype=torch.bfloat16), donated=())
    peaks = report["peak_bytes"]
    assert "recounted" not in report and len(report["buckets"]) == 1
    assert memory.peak_bytes(gm.graph, set()) == peaks["after"] <= peaks["limit"]
    calls = [str(n.target) for n in gm.graph.nodes if n.op == "call_function"]
    assert calls.count("aten._to_copy.default") == 2
    assert calls.index("aten.mm.default") < calls.index("aten._to_copy.default")
