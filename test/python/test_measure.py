# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`machine="measure"`: ranks measure the collectives of a graph together when it is first compiled, or not at all."""

import json
import pathlib
import warnings

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist
from conftest import trace
from test_calibrate import by_rank, with_clock

import commsched.torch as ct
import gloo
from commsched.torch import reporting
from commsched.torch.calibration import bench, demand, job
from commsched.torch.options import Options
from commsched.torch.ranks import comparison

C10D = torch.ops._c10d_functional
CACHE = "COMMSCHED_CALIBRATION_CACHE"
# The made-up time of every collective.
NS = 3_000_000
# Inductor calls ATen, so that no C++ compiler runs.
ATEN = dict(fallback_by_default=True, reorder_for_peak_memory=False)


class Made(bench.HostClock):
    """Runs collectives, and says that each takes 3 ms."""

    def time(self, start, wait, gate=None):
        wait(start())
        return NS, 500


def measuring(function):
    """Runs `function` with made-up times and no limit on the time that measuring takes."""
    demand.BUDGET_SECONDS = 0
    with with_clock(Made()):
        return function()


def reduced(*shapes, times=1):
    """A graph that sums its inputs over all ranks, each `times` times."""
    group = dist.group.WORLD.group_name

    def f(*tensors):
        for _ in range(times):
            tensors = [C10D.wait_tensor(C10D.all_reduce(x, "sum", group)) for x in tensors]
        return tensors

    return trace(f, *shapes)


def overlapped(gm, **options):
    return ct.schedule_overlap(gm, **options)[1]


def graphs():
    """Since the last call: what the reports of graphs say of measuring, by direction, and their profiles."""
    reports = [r for r in ct.reports() if r["place"] == "graph"]
    return {r["direction"]: r["measure"] for r in reports}, {r["direction"]: r["machine"] for r in reports}


def warned(function):
    """The result of `function`, and the warnings that it gives."""
    reporting._warned.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function()
    return result, [str(w.message) for w in caught if "CommSched" in str(w.message)]


# ---------------------------------------------------------------------- measured


def _compiled(rank, ranks, measured, folder):
    """Forward and backward are measured, at the sizes that are there, and compute what eager ranks do."""
    loss, step = gloo.sharded_step(ranks, layers=3, width=16)
    x = torch.ones(4, 16) + rank
    expected = step(loss, x)
    options = ct.inductor_options(machine="measure:cpu-mpi", bucketing=False)
    got = measuring(lambda: step(torch.compile(loss, options={**options, **ATEN}), x))
    for a, b in zip(got, expected):
        torch.testing.assert_close(a, b)
    reports = [r for r in ct.reports() if r["place"] == "graph"]
    assert [r["direction"] for r in reports] == ["forward", "backward"]
    for report in reports:
        said = report["measure"]
        assert (said["base"], said["reason"], said["skipped"]) == ("cpu-mpi", "", [])
        assert said["points"] > 0 and said["measured"] == (said["points"] if measured else 0)
        assert report["machine"].startswith(folder) and said["digest"][:16] in report["machine"]
        assert {row["cost_ns"] for row in report["per_collective"]} == {NS}
        assert {row["cost_source"] for row in report["per_collective"]} == {"measured"}
    sizes = {
        t["kind"]: {p["bytes"] for p in t["points"]}
        for t in json.loads(pathlib.Path(reports[0]["machine"]).read_text())["collectives"]
    }
    weight, sums = 16 * 16 * 4, 16 * 4
    assert {weight, 3 * weight} <= sizes["all_gather"] and {sums, 2 * sums} <= sizes["all_reduce"]
    assert len(set(by_rank(tuple(r["measure"]["digest"] for r in reports)))) == 1


def test_a_second_process_measures_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE, str(tmp_path))
    for measured in (True, False):
        gloo.run(2, _compiled, measured, str(tmp_path))


def _ways(rank, ranks):
    """Every way in measures, also beside other options."""
    loss, step = gloo.sharded_step(ranks, layers=2, width=16)
    x = torch.ones(4, 16)

    def compiled(f, **options):
        torch._dynamo.reset()
        demand._programs.clear()
        with gloo.without_kernels(caches=True):
            measuring(lambda: step(f, x))
        said, machines = graphs()
        assert set(said) == {"forward", "backward"}, said
        assert all(s["points"] > 0 and not s["reason"] for s in said.values())
        return said, machines

    given = dict(machine="measure:cpu-mpi")
    compiled(torch.compile(loss, options=ct.inductor_options(**given)))
    # Inductor's caches are on, and this is compiled again.
    compiled(torch.compile(loss, options=ct.inductor_options(**given)))
    with ct.enabled(**given, strands="auto"):
        compiled(torch.compile(loss))
    ct.install(**given, record=True)
    try:
        compiled(torch.compile(loss))
    finally:
        ct.uninstall()
    compiled(torch.compile(loss, backend=ct.inductor.backend, options={**given, "tune": "measure", "tune_runs": 1}))
    aligned = dict(passes=["comm-align-costs", "comm-schedule"])
    compiled(torch.compile(loss, options=ct.inductor_options(**given, **aligned)))
    ct.reports()
    with gloo.without_kernels():
        torch._dynamo.reset()
        measuring(lambda: step(torch.compile(loss, options=ct.inductor_options(**given, memory_plan="on")), x))
    plan = next(r for r in ct.reports() if r["place"] == "plan")
    assert plan["measure"]["points"] > 0


def _again(rank, ranks):
    """A rank that compiles a program anew, for other sizes, does so alone: it keeps the profile of the first graph."""
    loss, step = gloo.sharded_step(ranks, layers=2, width=16)
    f = torch.compile(loss, options=ct.inductor_options(machine="measure:cpu-mpi"))
    with gloo.without_kernels():
        measuring(lambda: step(f, torch.ones(8, 16)))
        first, machines = graphs()
        assert {s["measured"] > 0 for s in first.values()} == {True}
        step(f, torch.ones((8, 3)[rank], 16))
    later = graphs()
    assert later == (({d: {**s, "measured": 0} for d, s in first.items()}, machines) if rank == 1 else ({}, {}))


def test_every_way_in_measures(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE, str(tmp_path))
    monkeypatch.setenv(comparison.DEADLINE, "600")
    gloo.run(2, _ways)


def test_later_graphs_of_a_program_are_not_measured(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE, str(tmp_path))
    monkeypatch.setenv(comparison.DEADLINE, "600")
    gloo.run(2, _again)


def _sizes(rank, ranks):
    """Ranks of one program with other sizes measure the sizes of all. Lists count with all of their bytes."""
    gm = reduced((64 + 64 * rank, 4))
    report = measuring(lambda: overlapped(gm, machine="measure:cpu-mpi"))
    assert (report["measure"]["points"], report["measure"]["measured"]) == (2, 2)
    (table,) = json.loads(pathlib.Path(report["machine"]).read_text())["collectives"]
    assert [p["bytes"] for p in table["points"]] == [64 * 4 * 4, 128 * 4 * 4]
    assert len(set(by_rank(report["measure"]["digest"]))) == 1
    assert overlapped(reduced((64 + 64 * rank, 4)), machine="measure:cpu-mpi")["measure"]["measured"] == 0

    group = dist.group.WORLD.group_name

    def lists(x, y):
        return [C10D.wait_tensor(r) for r in C10D.all_reduce_coalesced([x, y], "sum", group)]

    report = measuring(lambda: overlapped(trace(lists, (100,), (28,)), machine="measure:cpu-mpi"))
    (table,) = json.loads(pathlib.Path(report["machine"]).read_text())["collectives"]
    assert 128 * 4 in [p["bytes"] for p in table["points"]] and report["measure"]["measured"] == 1
    # What PyTorch has no measurement of is no error.
    barely = trace(lambda x: C10D.wait_tensor(C10D.all_reduce(x, "sum", group)), (8,), dtype=torch.bool)
    report = overlapped(barely, machine="measure:cpu-mpi")
    assert report["measure"]["points"] == 0 and "are not measured" in report["measure"]["skipped"][0]["reason"]


def test_sizes_of_all_ranks_are_measured(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE, str(tmp_path))
    gloo.run(2, _sizes)


# ---------------------------------------------------------------------- not measured


def _differ(rank, ranks):
    """All ranks learn who differs, keep the costs of their bases, and go on together."""
    for graph, options, words in (
        (lambda: reduced((64, 4), times=1 + rank), {}, "rank 1 compiles another graph than rank 0"),
        (lambda: reduced((64, 4)), {"bucketing": rank == 0}, "rank 1 compiles another graph than rank 0, or with"),
        (
            lambda: reduced((64, 4)),
            {"machine": ("measure:h100-sxm", "measure:a100-sxm")[rank]},
            "rank 1 completes another base profile than rank 0",
        ),
    ):
        given = {"machine": "measure:cpu-mpi", **options}
        report, said = warned(lambda graph=graph, given=given: overlapped(graph(), **given))
        assert words in report["measure"]["reason"] and report["measure"]["points"] == 0
        base = Options(**given).base()
        assert report["machine"] == base and len(said) == 1 and words in said[0] and base in said[0]
        assert report["makespan_ns"] == overlapped(graph(), **{**given, "machine": base})["makespan_ns"]
    assert measuring(lambda: overlapped(reduced((64, 4)), machine="measure"))["measure"]["measured"] == 1
    in_graphs = demand.in_graphs
    if rank == 1:
        demand.in_graphs = lambda *_: 1 // 0
    report, _ = warned(lambda: overlapped(reduced((64, 4)), machine="measure"))
    assert "rank 1 cannot tell what its graph asks for: ZeroDivisionError" in report["measure"]["reason"]
    demand.in_graphs = in_graphs


def test_ranks_that_differ_measure_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE, str(tmp_path))
    gloo.run(2, _differ)
    profiles = [json.loads(p.read_text()) for p in tmp_path.glob("profiles/*.json")]
    assert len(profiles) == 1  # That of the one graph for which ranks did not differ.


def _one_measures(rank, ranks, other):
    """Rank 1 has a profile of its own. If it is the base, all is well; otherwise, both stop at their first run."""
    loss, step = gloo.sharded_step(ranks, layers=2, width=16)
    x = torch.ones(4, 16)
    expected = step(loss, x)
    options = ct.inductor_options(machine=("measure:cpu-mpi", other)[rank])
    f = torch.compile(loss, options={**options, **ATEN, "fx_graph_cache": False})

    def run():
        if other == "cpu-mpi":
            return step(f, x)
        with pytest.raises(RuntimeError, match="another sequence of collectives"):
            step(f, x)
        return expected

    got, said = warned(run)
    for a, b in zip(got, expected):
        torch.testing.assert_close(a, b)
    if rank == 1:
        assert said == []
        return
    reasons = {s["reason"] for s in graphs()[0].values()}
    assert len(said) == len(reasons) == 1
    assert "ranks [1] run code already that rank 0 still compiles" in said[0] and reasons.pop() in said[0]


@pytest.mark.parametrize("other", ["cpu-mpi", "h100-sxm"])
def test_a_rank_that_does_not_measure_is_named(other, monkeypatch):
    monkeypatch.setenv(comparison.DEADLINE, "600")  # So it is not time that ends it.
    gloo.run(2, _one_measures, other)


def _late(rank, ranks):
    """Rank 0 waits in vain. Rank 1 comes when that is decided, and does the same as rank 0."""
    if rank == 1:
        dist.distributed_c10d._get_default_store().wait(["commsched/measure/0/outcome"])
    reports = [warned(lambda: overlapped(reduced((64, 4)), machine="measure")) for _ in range(2)]
    for report, said in reports:
        assert report["machine"] == "h100-sxm" and report["measure"]["points"] == 0
        assert "ranks [1] have not come to measure the same graph within 0.2 s" in report["measure"]["reason"]
        assert len(said) == 1 and "measures nothing more" in said[0]


def test_a_rank_that_comes_late_is_named(monkeypatch):
    monkeypatch.setenv(comparison.DEADLINE, "0.2")
    gloo.run(2, _late)


def _alone(rank, ranks):
    report, said = warned(lambda: overlapped(reduced((64, 4)), machine="measure"))
    assert report["measure"]["reason"] == "the job has one rank" and said == []


def test_one_rank_keeps_the_model():
    gloo.run(1, _alone)


def _own_group(rank, ranks):
    """A group of one rank is nobody else's business."""
    own = [dist.new_group([r]) for r in range(ranks)][rank].group_name
    if rank == 0:
        gm = trace(lambda x: C10D.wait_tensor(C10D.all_reduce(x, "sum", own)), (8,))
        report, said = warned(lambda: overlapped(gm, machine="measure"))
        assert report["measure"]["reason"] == "the graph has no collective between ranks" and said == []


def test_a_group_of_one_rank_is_not_measured():
    gloo.run(2, _own_group)


def test_a_fake_group_keeps_the_model(world):
    one, two = (overlapped(reduced((64, 64)), machine=m) for m in ("a100-sxm", "measure:a100-sxm"))
    assert two["measure"]["reason"] == "the process group is fake" and two["measure"]["points"] == 0
    assert (one["makespan_ns"], one["machine"]) == (two["makespan_ns"], two["machine"])
    with gloo.without_kernels(), ct.enabled(machine="measure"):
        torch.compile(lambda x: C10D.wait_tensor(C10D.all_reduce(x, "sum", world)))(torch.ones(4))
    assert {s["reason"] for s in graphs()[0].values()} == {"the process group is fake"}


def test_nothing_to_measure_without_a_job():
    report = overlapped(trace(lambda x: x.relu(), (4,)), machine="measure")
    assert report["measure"]["reason"] == "torch.distributed is not initialized"


# ---------------------------------------------------------------------- the option


@pytest.mark.parametrize("wrong", ["measure:nonsense", "measure:", "measure:measure", "measure:profile:", "measured"])
def test_a_base_that_is_no_profile_is_refused(wrong):
    for way in (ct.inductor_options, ct.install, Options):
        with pytest.raises(ValueError, match="machine: expected"):
            way(machine=wrong)


def test_the_base_of_the_option():
    assert Options(machine="measure").base() == Options().base() == "h100-sxm"
    assert Options(machine="measure:cpu-mpi").base() == Options(machine="cpu-mpi").base() == "cpu-mpi"
    assert Options(machine="cpu-mpi").shared_key() != Options(machine="measure:cpu-mpi").shared_key()
    with pytest.raises(ValueError, match="plan compiles no graph"):
        ct.plan(torch.nn.Linear(4, 4), (torch.ones(4),), machine="measure", ranks=2)


def test_measured_code_is_not_taken_from_a_cache():
    """A rank that finds its code there would not come to measure with the others."""
    assert Options(machine="measure").key() is None and Options(machine="cpu-mpi").key() is not None
    assert job.obstacle()
