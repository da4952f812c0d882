# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""PyTorch's own costs as a second opinion: schedules do not lose by them, either."""

import copy
import json
import logging
from unittest import mock

import pytest

torch = pytest.importorskip("torch")

import robustness_play
import robustness_torch
import torch_overlap
from conftest import RANKS, trace, world_of
from models.graphs import graphs_of

import commsched
import commsched.torch as ct
from commsched.torch import second_opinion as second_opinions
from commsched.torch import summary
from commsched.torch.importer.export import import_graph, import_program
from commsched.torch.options import Options, machine_file, to_ns
from commsched.torch.second_opinion import _gpu_of, _on, _replaced, _silenced, is_wanted, second_opinion

c10d = torch.ops._c10d_functional
MACHINE = "h100-sxm"
# The scales at which the library plays.
PLAYED = [robustness_play.SCALES.index(k) for k in (0.75, 1.0, 1.25, 1.5, 2.0)]


def _opinion(graph, **options):
    """The second opinion of a graph, and its program."""

    def imported(other):
        program, _, importer = import_program(other, name="main")
        return program, importer

    program, importer = imported(graph)
    return second_opinion(graph, Options(**options), importer, imported), program


def _sharded(world):
    """Gathers, a reduction, and products that can hide them."""

    def f(x, *weights):
        for w in weights:
            full = c10d.wait_tensor(c10d.all_gather_into_tensor(w, RANKS, world))
            x = (x @ full).relu()
        return c10d.wait_tensor(c10d.reduce_scatter_tensor(x, "sum", RANKS, world))

    return trace(f, (4096, 1024), *[(128, 1024)] * 4, dtype=torch.bfloat16)


@pytest.fixture(scope="module")
def mixture():
    """The graphs of a generated model on which schedules lost to PyTorch by PyTorch's costs."""
    import robustness_programs

    (_, config) = list(robustness_programs.graphs(20261130, 13))[12]
    return config


def test_times_are_those_of_pytorchs_estimators(world):
    """The benchmark asks PyTorch's functions in a way of its own."""
    gm = _sharded(world)
    opinion, _ = _opinion(gm.graph)
    program = mock.Mock()
    opinion.tell(program)
    (times,) = program.set_peer_times.call_args.args
    expected = robustness_torch.pytorch_estimator(gm, MACHINE)
    calls = [n for n in gm.graph.nodes if n.op == "call_function"]
    waits = {n.name for n in calls if n.target is c10d.wait_tensor.default}
    assert set(times) == {n.name for n in calls} - waits
    assert times == {n.name: to_ns(expected(n)) for n in calls if n.name not in waits}
    gather = next(n for n in calls if n.target is c10d.all_gather_into_tensor.default)
    (curve,) = [c for c in opinion.curves if c.kind == "all_gather"]
    for size, ns in curve.points:  # The points are made monotone.
        assert ns >= to_ns(expected(gather, size + size // RANKS))
    assert curve.points[-1][1] == to_ns(expected(gather, curve.points[-1][0] * (RANKS + 1) // RANKS))


def test_a_replay_takes_what_another_way_of_playing_says(world):
    """The same graph with PyTorch's estimates as the costs of its nodes, scaled in its text, by another pass."""
    gm = _sharded(world)
    opinion, program = _opinion(gm.graph)
    opinion.tell(program)
    peak, *times = program.play(MACHINE)
    judge = robustness_torch.pytorch_estimator(gm, MACHINE)
    played = robustness_play.play(import_graph(gm.graph, runtime_estimation=judge)[0], MACHINE)
    assert peak == played.peak_bytes
    assert times[5:] == [pytest.approx(played.ms[k] * 1e6, abs=5) for k in PLAYED]  # Five rounded times.
    report = robustness_play.measured(import_graph(gm.graph)[0], MACHINE)
    assert times[1] == report["makespan_ns"]["after"]


def test_pytorchs_estimators_stay_as_they_were(world):
    from torch._inductor import comm_analysis
    from torch._inductor.fx_passes import overlap_scheduling
    from torch.utils import _runtime_estimation as runtime
    from torch.utils.flop_counter import flop_registry

    def state():
        names = (comm_analysis.get_gpu_type, overlap_scheduling.MemoryTracker)
        return (*names, runtime.get_gpu_dram_gbps, runtime.get_device_tflops, dict(flop_registry))

    before, gm = state(), _sharded(world)
    report = ct.schedule_overlap(gm, machine=MACHINE)[1]
    assert "second_opinion" in report
    assert state() == before


def test_a_schedule_that_loses_is_replaced(mixture):
    """The benchmark is the referee: it plays what PyTorch's scheduler makes of the graph, and the schedule."""
    with world_of(mixture.ranks):
        gm = torch_overlap.communicating(graphs_of(mixture))["fw"]
        judge = robustness_torch.pytorch_estimator(gm, MACHINE)
        known = {n.name for n in gm.graph.nodes}

        def times(graph_module):
            text = robustness_torch.text_of(graph_module, known, judge)
            return robustness_play.play(text, MACHINE)

        def scheduled(**options):
            result, report = ct.schedule_overlap(copy.deepcopy(gm), machine=MACHINE, **options)
            return times(result), report

        modes = [
            times(torch_overlap.VARIANTS[m](copy.deepcopy(gm), judge, MACHINE, {})[0]) for m in robustness_torch.MODES
        ]
        limit = max(m.peak_bytes for m in modes)
        theirs = [min(m.ms[k] for m in modes) for k in PLAYED]
        worst = lambda played: max(played.ms[k] / ms - 1 for k, ms in zip(PLAYED, theirs, strict=True))
        alone, without = scheduled(objective="makespan", memory_limit_bytes=limit)
        both, report = scheduled(memory_limit_bytes=limit)
        said = report["second_opinion"]
    assert "second_opinion" not in without
    assert worst(alone) > 0.05
    assert worst(both) < worst(alone) / 2
    assert said["replaced"] and said["loss_ppm"]["after"] < said["loss_ppm"]["before"]
    assert said["incumbents"] == 3
    assert "PyTorch's costs chose another schedule" in summary.line(report)


def test_equal_graphs_have_equal_opinions(world):
    first, second = (ct.schedule_overlap(_sharded(world), machine=MACHINE)[1] for _ in range(2))
    timed = ("estimated_ns", "scheduled_ns")
    for said in (first["second_opinion"], second["second_opinion"]):
        assert all(said.pop(name) >= 0 for name in timed)
    assert first["second_opinion"] == second["second_opinion"]


@pytest.mark.parametrize(
    "options",
    [
        {"objective": "makespan"},
        {"effort": 0},
        {"machine": "cpu-mpi"},
        {"runtime_estimation": lambda node, override_bytes=None: None},
        {"passes": ["comm-sink-waits"]},
        {"passes": ["comm-align-costs", "comm-schedule"]},
    ],
    ids=lambda options: next(iter(options)),
)
def test_there_is_none_if_nobody_wants_it(world, options):
    gm = _sharded(world)
    opinion, _ = _opinion(gm.graph, **options)
    assert opinion is None
    assert is_wanted(Options(**options)) == ("machine" in options)


def test_what_pytorch_cannot_handle_is_said(world):
    """A scheduler that fails leaves the given order to compare with; estimators that fail leave no second opinion."""
    from torch._inductor import comm_analysis
    from torch._inductor.fx_passes import overlap_scheduling

    def fail(*args, **kwargs):
        raise NotImplementedError("no such graph")

    with mock.patch.object(overlap_scheduling, "schedule_overlap_bucketing", fail):
        said = ct.schedule_overlap(_sharded(world), machine=MACHINE)[1]["second_opinion"]
    assert said["incumbents"] == 1
    assert said["failure"] == "NotImplementedError: no such graph"
    with mock.patch.object(comm_analysis, "estimate_nccl_collective_runtime_from_fx_node", fail):
        report = ct.schedule_overlap(_sharded(world), machine=MACHINE)[1]
    assert report["second_opinion"] == {"failure": "NotImplementedError: no such graph"}
    assert "no second opinion: NotImplementedError" in summary.line(report)


def test_pytorchs_logs_and_traces_tell_of_no_order_that_does_not_run(world):
    """Its scheduler writes to both if it is called by itself, and to neither if it is asked for a second opinion."""
    from torch._inductor.fx_passes import fsdp, overlap_scheduling

    written = []

    class Handler(logging.Handler):
        def emit(self, record):
            written.append(record.getMessage().split(":")[0])

    def trace_structured(name, metadata_fn, payload_fn):
        written.append(metadata_fn()["name"])

    handler = Handler()
    fsdp.logger.addHandler(handler)
    try:
        with mock.patch.object(overlap_scheduling, "trace_structured", trace_structured):
            opinion, _ = _opinion(_sharded(world).graph, machine=MACHINE)
            assert len(opinion._orders()) == 2
            assert written == []
            with _on(opinion.estimates.gpu):
                overlap_scheduling.schedule_overlap_bucketing(
                    _sharded(world), custom_runtime_estimation=opinion.estimates, compute_estimator="analytical"
                )
    finally:
        fsdp.logger.removeHandler(handler)
    assert written == [
        "pre_bucket_fsdp_collectives",
        "overlap_scheduling_graph_before",
        "overlap_scheduling_graph_after",
    ]


def test_nobody_notes_where_the_nodes_of_discarded_buckets_come_from():
    """PyTorch's note copies the notes of every node that a bucket replaces, for each node of the bucket."""
    from torch._inductor.fx_passes import bucketing

    given = bucketing.NodeSource
    with _replaced(_silenced()):
        assert bucketing.NodeSource is not given and bucketing.NodeSource(None, "bucketing_pass", []) is None
    assert bucketing.NodeSource is given


def test_sizes_that_depend_on_data_are_worked_out_once(world):
    """PyTorch's estimates and orders are those that it gives by itself, and it works each size out once."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    def f(x, *weights):
        rows = (x[:, 0] > 0).nonzero().flatten()
        chosen = x[rows]
        for w in weights:
            full = c10d.wait_tensor(c10d.all_gather_into_tensor(w, RANKS, world))
            chosen = (chosen @ full).relu()
        return chosen.sum()

    gm = trace(f, (4096, 1024), *[(128, 1024)] * 3, symbolic=True)
    asked = []
    work_out = ShapeEnv.optimization_hint

    def counted(env, expr, fallback=None):
        if fallback is None:  # The importer gives one.
            asked.append(expr)
        return work_out(env, expr, fallback)

    found = []
    for remembering in (second_opinions._remembering, lambda hints: []):
        asked.clear()
        with (
            mock.patch.object(ShapeEnv, "optimization_hint", counted),
            mock.patch.object(second_opinions, "_remembering", remembering),
        ):
            opinion, _ = _opinion(gm.graph, machine=MACHINE)
            orders = opinion._orders()
        found.append((opinion.estimates.times(gm.graph), [order.buckets for order in orders], opinion.failure))
        if remembering is second_opinions._remembering:
            times_asked = len(asked)
            assert 0 < times_asked == len(set(asked))
    assert found[0] == found[1]
    assert len(asked) > 2 * times_asked


MODULE = """
comm.group @g #comm.iota<[1, 8]>
func.func @main(%a: tensor<1024xf32>, %b: tensor<64x64xf32>) -> (tensor<8192xf32>, tensor<64x64xf32>) {
  %0 = comm.all_gather %a on @g : (tensor<1024xf32>) -> !comm.future<tensor<8192xf32>> loc("gather")
  %1 = comm.wait %0 : !comm.future<tensor<8192xf32>> loc("wait")
  %2 = comm.compute "product"(%b, %b) {comm.cost = #comm.cost<time = 50000>}
    : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32> loc(fused["one", "other"])
  return %1, %2 : tensor<8192xf32>, tensor<64x64xf32>
}
"""


def test_bad_peers_are_refused():
    program = commsched.Program(MODULE)
    with pytest.raises(commsched.Error, match="expected a second opinion"):
        program.play(MACHINE)
    with pytest.raises(commsched.Error, match="expected a second opinion"):
        program.set_peer_curve("all_gather", "g", None, [(1, 1)])
    with pytest.raises(commsched.Error, match="expected a time of at least 0 .* for 'gather', got -1"):
        program.set_peer_times({"gather": -1})
    program.set_peer_times({"gather": 1000})
    with pytest.raises(commsched.Error, match="strictly ascending"):
        program.set_peer_curve("all_gather", "g", None, [(2, 1), (1, 1)])


def test_a_program_is_played_with_both_costs():
    """By hand: 40 us for the gather, which nothing hides, and 5 us and 6 us for the two names of the product."""
    program = commsched.Program(MODULE)
    program.set_peer_times({"gather": 40000, "one": 5000, "other": 6000})
    _, *times = program.play(MACHINE)
    launches = times[5 + 1] - 51000
    assert 0 <= launches < 5000
    assert times[5:] == [k * 40 + 11000 + launches for k in (750, 1000, 1250, 1500, 2000)]
    # A name that nobody knows keeps the costs of the machine.
    program.set_peer_times({"one": 50000})
    _, *times = program.play(MACHINE)
    assert times[:5] == times[5:]


# Tests that a profile that was measured is not doubted.
def test_measured_profiles_are_believed(tmp_path):
    profile = json.loads(machine_file("h100-sxm").read_text())
    measured = tmp_path / "measured.json"
    measured.write_text(json.dumps({**profile, "calibration": {}}))
    assert _gpu_of(Options(machine="h100-sxm")) is not None
    assert _gpu_of(Options(machine=measured)) is None
    assert _gpu_of(Options(machine="measure:h100-sxm")) is None
