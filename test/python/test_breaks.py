# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Breaks of a function's graph: where Dynamo says they are, and what the function without them takes."""

import re

import pytest

torch = pytest.importorskip("torch")

from conftest import trace
from torch.distributed.device_mesh import init_device_mesh

import commsched.torch as ct
from commsched.torch import reporting, summary
from commsched.torch.inductor import breaks
from commsched.torch.sharding import fully_shard_parameters

C10D = torch.ops._c10d_functional
SIZE = 512


class Model(torch.nn.Module):
    """Sharded layers, and a sum over all ranks that nobody needs before the end."""

    def __init__(self, group, breaks):
        super().__init__()
        self.group, self.breaks = group, breaks
        self.layers = torch.nn.ModuleList(torch.nn.Linear(SIZE, SIZE, bias=False) for _ in range(4))

    def forward(self, x, y):
        first, second, third, fourth = self.layers
        x = second(first(x).relu()).relu()
        total = C10D.wait_tensor(C10D.all_reduce(y + x.sum(), "sum", self.group))
        if self.breaks:
            torch._dynamo.graph_break()
        x = fourth(third(x).relu())
        return x.square().mean(), total


def compiled(group, breaks, trains):
    """The reports of the graphs of one step, and where Dynamo says that it broke the graph."""
    torch._dynamo.reset()
    torch._dynamo.utils.graph_break_reasons.clear()
    ct.reports()
    model = Model(group, breaks)
    fully_shard_parameters(model, lambda module: init_device_mesh("cpu", (8,)), dtype=None)
    step = torch.compile(model, options=ct.inductor_options())
    with torch.set_grad_enabled(trains), torch._inductor.config.patch(force_disable_caches=True):
        loss, _ = step(torch.ones(SIZE, SIZE), torch.ones(SIZE, 2 * SIZE))
        if trains:
            loss.backward()
    reasons = [reason.user_stack[-1] for reason in torch._dynamo.utils.graph_break_reasons]
    return [r for r in ct.reports() if r["place"] == "graph"], [f"{f.filename}:{f.lineno}" for f in reasons]


@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
def test_a_break_costs_at_most_what_the_report_says(world, trains):
    broken, places = compiled(world, True, trains)
    whole, none = compiled(world, False, trains)
    assert len(broken) == 2 * len(whole) and len(places) == 1 and none == []
    # The graphs of each direction are in the order in which they ran first.
    for direction in {r["direction"] for r in broken}:
        own = [r["breaks"] for r in broken if r["direction"] == direction]
        assert [(b["before"], b["behind"]) for b in own] == [(None, places[0]), (places[0], None)]
    said = summary.Report(broken)
    [line] = said.breaks()
    assert line.startswith(f"the graph break at {places[0]} exposes up to ") and line in str(said)
    assert "does not need" in line and "gathers of parameters" in line
    both, one = (sum(r["makespan_ns"]["after"] for r in reports) for reports in (broken, whole))
    most = float(re.search(r"exposes up to ([0-9.]+) us", line)[1])
    assert most / 2 < (both - one) / 1000 <= most * 1.01  # The line has three digits.


def test_one_graph_says_nothing(world):
    whole, _ = compiled(world, False, True)
    assert all("breaks" not in r for r in whole) and summary.Report(whole).notes() == []


def inner(x):
    torch._dynamo.graph_break()
    return x.exp()


def outer(x, group):
    x = C10D.wait_tensor(C10D.all_reduce(x @ x, "sum", group))
    return C10D.wait_tensor(C10D.all_reduce(inner(x), "sum", group))


def test_a_break_in_a_function_that_is_called_has_its_own_line(world):
    torch._dynamo.reset()
    ct.reports()
    with torch.no_grad():
        torch.compile(outer, options=ct.inductor_options())(torch.ones(8, 8), world)
    graphs = [r for r in ct.reports() if r["place"] == "graph"]
    place = f"{__file__}:{inner.__code__.co_firstlineno + 1}"
    assert graphs[0]["breaks"]["behind"] == place
    assert graphs[1]["breaks"]["before"] == place


def test_collectives_at_the_edges(world):
    """No parameters are known here, so no gather is at the beginning."""

    def f(x, y):
        needed = C10D.wait_tensor(C10D.all_reduce(x, "sum", world)) @ y
        returned = C10D.wait_tensor(C10D.all_gather_into_tensor(needed, 8, world))
        return returned.view(2, -1), needed, C10D.wait_tensor(C10D.all_reduce(y, "sum", world)).exp()

    graph = trace(f, (8, 8), (8, 8)).graph
    assert breaks._edges(graph) == breaks.Edges(frozenset(), frozenset({"all_gather_into_tensor"}))


def test_a_fault_leaves_the_schedule(world, monkeypatch):
    monkeypatch.setenv(reporting.STRICT, "0")
    monkeypatch.setattr(breaks, "starts_of", lambda graph: 1 / 0)
    with pytest.warns(UserWarning, match="does not say what breaks of graphs expose"):
        broken, _ = compiled(world, True, False)
    assert len(broken) == 2 and all(r["breaks"]["end_ns"] == 0 for r in broken)


@pytest.mark.parametrize(
    "others, expected",
    [([(1000, 200)], "800 ns"), ([(1000, 200), (500, 500)], "800 ns"), ([(9000, 0)], "3 us"), ([], "3 us")],
)
def test_the_other_side_hides_at_most_what_it_computes(others, expected):
    def report(frame, makespan, exposed, **beside):
        given = {"frame": frame, "before": None, "behind": None, "begin_ns": 0, "end_ns": 0} | beside
        times = {"makespan_ns": {"after": makespan}, "exposed_ns": {"after": exposed}}
        return {"place": "graph", "direction": "forward", "breaks": given, **times}

    graphs = [report("0", 9000, 3000, behind="a.py:1", end_ns=3000)]
    graphs += [report(str(i + 1), *times, before="a.py:1") for i, times in enumerate(others)]
    assert summary.Report(graphs).breaks() == [
        f"the graph break at a.py:1 exposes up to {expected}: {expected} of collectives that a graph waits for at its "
        "end and does not need"
    ]
