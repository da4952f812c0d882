# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""schedule_overlap makes real graphs better and keeps them legal and within the memory limit. On failure it changes
nothing.
"""

import dataclasses
import warnings

import pytest

torch = pytest.importorskip("torch")

from conftest import RANKS, trace
from models.graphs import TraceConfig, graphs_of

import commsched.torch as ct
from commsched.torch.options import OptionArguments, Options
from commsched.torch.schedule import Unscheduled
from commsched.torch.semantics import effects
from commsched.torch.trace import fake_world

c10d = torch.ops._c10d_functional


@pytest.fixture
def step():
    """A function that traces two layers of Llama-3-8B on 64 ranks anew: graphs are changed in place."""
    with fake_world(64):
        yield lambda **options: graphs_of(TraceConfig("llama3-8b", 64, layers=2, **options))


def scheduled(gm, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gm, report = ct.schedule_overlap(gm, **options)
    gm.graph.lint()
    return gm, report


@pytest.mark.parametrize("direction", ["fw", "bw"])
def test_a_step_gets_faster_within_the_limit(step, direction):
    gm = step()[direction]
    gm, report = scheduled(gm, memory_budget_ratio=0.1, effort=200)
    assert report["makespan_ns"]["after"] < report["makespan_ns"]["before"]
    assert report["makespan_ns"]["after"] >= report["makespan_ns"]["lower_bound"]
    assert report["peak_bytes"]["after"] <= report["peak_bytes"]["limit"]
    assert report["signature"]
    ct.export_mlir(gm)  # The result can be imported again.


def test_order_alone_keeps_every_node(step):
    gm = step()["bw"]
    before = {n.name for n in gm.graph.nodes}
    gm, report = scheduled(gm, bucketing=False, effort=0)
    assert {n.name for n in gm.graph.nodes} == before
    assert report["buckets"] == []
    position = {n: i for i, n in enumerate(gm.graph.nodes)}
    assert all(position[a] < position[b] for a, b in effects.edges(gm.graph))


def test_equal_graphs_get_equal_schedules(step):
    a, first = scheduled(step()["bw"], effort=100)
    b, second = scheduled(step()["bw"], effort=100)
    assert [n.name for n in a.graph.nodes] == [n.name for n in b.graph.nodes]
    assert first["signature"] == second["signature"]


def test_estimates_decide(step):
    """Communication without cost leaves nothing to hide, and no reason to merge."""

    def free(node, override_bytes=None):
        return 0.001 if "c10d" in str(node.target) else None

    _, report = scheduled(step()["fw"], runtime_estimation=free, effort=0)
    assert report["exposed_ns"]["after"] < 1_000_000
    assert all(row["cost_ns"] == 1000 for row in report["per_collective"] if "+" not in str(row["loc"]))


def test_noise_is_reported(step):
    """The report has mean and quantile under noise, and they change no answer."""
    _, plain = scheduled(step()["bw"], effort=200)
    assert "scenarios" not in plain
    _, report = scheduled(step()["bw"], effort=200, scenarios=8, collective_spread_permille=400)
    found = report["scenarios"]
    assert (found["count"], found["collective_spread_permille"]) == (8, 400)
    assert report["makespan_ns"] == plain["makespan_ns"]
    for field in ("mean_ns", "p95_ns"):
        assert found[field]["lower_bound"] <= found[field]["after"] <= found[field]["before"]


def test_nothing_to_do():
    with fake_world(RANKS):
        gm, report = scheduled(trace(lambda x: x.cos().sin(), (4,)))
    assert [n.op for n in gm.graph.nodes] == ["placeholder", "call_function", "call_function", "output"]
    gm, _ = scheduled(trace(lambda x: x, (4,)))


def test_one_rank():
    with fake_world(1):
        group = torch.distributed.group.WORLD.group_name
        scheduled(trace(lambda x: c10d.wait_tensor(c10d.all_reduce(x, "sum", group)) + 1, (4,)))


def test_dynamic_shapes(world):
    def f(x, y):
        z = c10d.wait_tensor(c10d.all_gather_into_tensor(x, RANKS, world))
        return z + 1, y @ y

    gm = trace(f, (4, 8), (16, 16), symbolic=True)
    gm, report = scheduled(gm)
    assert report["unknown_sizes"] == 0


@pytest.mark.parametrize(
    "options",
    [
        dict(collective_order="sideways"),
        dict(memory_budget_ratio=-1.0),
        dict(effort=-5),
        dict(objective="best"),
        dict(scenarios=-1),
    ],
)
def test_options_that_make_no_sense(options):
    with pytest.raises(ValueError):
        ct.schedule_overlap(trace(lambda x: x, (4,)), **options)


def test_options_are_listed_once():
    """The keyword arguments are the fields of `Options`, with their types."""
    fields = {f.name: f.type for f in dataclasses.fields(Options)}
    assert {name: hint.__forward_arg__ for name, hint in OptionArguments.__annotations__.items()} == fields


INDUCTOR = ["comm-reorder-preserving-peak-memory", "comm-sink-waits-preserving-peak-memory"]


@pytest.mark.parametrize(
    ("options", "ratio"),
    [
        (dict(), 0),
        (dict(passes=["comm-bucket", "comm-raise"]), 0),
        (dict(passes=INDUCTOR), 0.2),
        (dict(passes=INDUCTOR, memory_budget_ratio=0.0), 0),
        (dict(passes=INDUCTOR, memory_budget_ratio=0.5), 0.5),
    ],
)
def test_the_passes_decide_the_memory_budget(world, options, ratio):
    gm = trace(lambda x: c10d.wait_tensor(c10d.all_gather_into_tensor(x, RANKS, world)) + x.sum(), (1 << 10,))
    gm, report = scheduled(gm, **options)
    peak = report["peak_bytes"]
    assert peak["limit"] == round(peak["before"] * (1 + ratio)) > 0


def test_an_unknown_machine_is_found_at_once(world):
    gm = trace(lambda x: c10d.wait_tensor(c10d.all_gather_into_tensor(x, RANKS, world)) + 1, (4,))
    before = [n.name for n in gm.graph.nodes]
    with pytest.raises(ValueError, match="h100-sxm.*no_such_machine"):
        ct.schedule_overlap(gm, machine="no_such_machine")
    assert [n.name for n in gm.graph.nodes] == before


@pytest.mark.parametrize("name, read", [("effort", "comm-schedule"), ("bucket_cap_bytes", "comm-bucket")])
def test_an_option_that_no_pass_reads_is_refused(name, read):
    with pytest.raises(ValueError, match=f"{name}: expected None, got 5: no pass of comm-raise reads it.*{read}"):
        Options(**{name: 5}, passes=["comm-raise"])
    stages = Options(**{name: 5}, passes=["comm-raise", "comm-remove-unsharded-param-usage", read]).stages()
    assert [stage.passes for stage in stages] == [["comm-raise"], ["comm-remove-unsharded-param-usage"], [read]]
    settings = Options(**{name: 5}, passes=["comm-raise", read])
    assert [getattr(settings.of_stage(stage), name) for stage in stages] == [None, None, 5]


def test_a_limit_on_buckets_without_buckets_is_refused():
    with pytest.raises(ValueError, match="bucket_cap_bytes: expected None with bucketing=False, got 5"):
        Options(bucket_cap_bytes=5, bucketing=False)


def test_failures_leave_the_graph_alone(world, monkeypatch, tmp_path):
    monkeypatch.setenv("COMMSCHED_STRICT", "0")
    gm = trace(lambda x: c10d.wait_tensor(c10d.all_gather_into_tensor(x, RANKS, world)) + 1, (4,))
    before = [n.name for n in gm.graph.nodes]
    (tmp_path / "broken.json").write_text("{}")
    with pytest.warns(UserWarning, match="broken.json"):
        gm, report = ct.schedule_overlap(gm, machine=str(tmp_path / "broken.json"))
    assert "broken.json" in report["error"]
    assert [n.name for n in gm.graph.nodes] == before


def test_keys_follow_options_and_profiles(tmp_path):
    assert Options().key() == Options().key()
    assert Options().key() != Options(bucketing=False).key()
    assert Options().key() != Options(machine="a100-sxm").key()
    assert Options(runtime_estimation=lambda node, size=None: None).key() is None
    profile = tmp_path / "machine.json"
    profile.write_text("{}")
    first = Options(machine=str(profile)).key()
    profile.write_text("{ }")
    assert Options(machine=str(profile)).key() != first
    assert issubclass(Unscheduled, RuntimeError)
