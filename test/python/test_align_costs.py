# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""comm-align-costs gathers costs through Python and torch.distributed, and reports give intervals where costs have
error bars.
"""

import json
import pathlib
import re
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from conftest import trace

import commsched
import commsched.torch as ct
import gloo
from commsched.program import MessageKind
from commsched.torch.options import Options, machine_file
from commsched.torch.ranks.costs import gather_costs

PROGRAM = """
comm.group @dp #comm.iota<[1, 2]>
func.func @main(%x: tensor<1024xf32>) -> (tensor<1024xf32>, tensor<1024xf32>) {
  %f = comm.all_reduce sum %x on @dp : (tensor<1024xf32>) -> !comm.future<tensor<1024xf32>>
  %a = comm.compute "mm"(%x) {comm.cost = #comm.cost<flops = 1000000000>} : (tensor<1024xf32>) -> tensor<1024xf32>
  %r = comm.wait %f : !comm.future<tensor<1024xf32>>
  return %r, %a : tensor<1024xf32>, tensor<1024xf32>
}
"""
LONGER = PROGRAM.replace(
    "%r = comm.wait", '%b = comm.compute "relu"(%a) : (tensor<1024xf32>) -> tensor<1024xf32>\n  %r = comm.wait'
)


def times(program):
    return [tuple(map(int, t)) for t in re.findall(r"time = (\d+), time_lo = (\d+), time_hi = (\d+)", str(program))]


def test_a_function_gathers_costs():
    calls = []

    def gather(own):
        calls.append(own)
        return own * 3 if len(calls) == 1 else own + [7, 9000] + [2_000_000_000, 8000]

    program = commsched.Program(PROGRAM)
    program.set_gather(gather, 3)
    program.run("comm-align-costs")
    (count, *_), costs = calls
    assert count == len(costs) == 2
    columns = zip(costs, [7, 9000], [2_000_000_000, 8000])
    assert times(program) == [(sorted(c)[1], min(c), max(c)) for c in columns]
    assert [m.kind for m in program.messages() if m.name == "skew"] == [MessageKind.ANALYSIS] * 2


def test_what_goes_wrong_in_a_gather_is_said():
    def breaks(own):
        raise ConnectionError("rank 3 is gone")

    def interrupts(own):
        raise KeyboardInterrupt

    for gather, text in (
        (breaks, "ConnectionError: rank 3 is gone"),
        (lambda own: own, "a gather returned another number of values than there are ranks"),
    ):
        program = commsched.Program(PROGRAM)
        program.set_gather(gather, 2)
        with pytest.raises(commsched.Error, match=f"the costs of the ranks could not be gathered\n{text}"):
            program.run("comm-align-costs")
    program = commsched.Program(PROGRAM)
    program.set_gather(interrupts, 2)
    with pytest.raises(KeyboardInterrupt):
        program.run("comm-align-costs")
    program = commsched.Program(PROGRAM)
    program.set_gather(None)
    with pytest.raises(commsched.Error, match="nothing that gathers costs"):
        program.run("comm-align-costs")
    with pytest.raises(ValueError, match="expected an initialized torch.distributed"):
        gather_costs()


def test_groups_are_told_apart_by_their_first_use():
    """PyTorch numbers all groups of a job, so the group of a part of the ranks has another name on each part."""
    twice = PROGRAM.replace(
        "%r = ",
        "%g = comm.all_reduce max %a on @tp : (tensor<1024xf32>) -> "
        "!comm.future<tensor<1024xf32>>\n  %s = comm.wait %g : !comm.future<tensor<1024xf32>>\n  %r = ",
    )
    twice = twice.replace("func.func", "comm.group @tp #comm.iota<[1, 2]>\nfunc.func")

    def hashed(text):
        calls = []
        program = commsched.Program(text)
        program.set_gather(lambda own: calls.append(own) or own * 2, 2)
        program.run("comm-align-costs{operations=all}")
        return calls[0][:2]

    assert hashed(twice) == hashed(twice.replace("@dp", "@group_7").replace("@tp", "@group_3"))
    assert hashed(twice) != hashed(twice.replace("on @tp", "on @dp"))


def _align(rank, ranks):
    machine = ("h100-sxm", "a100-sxm")[rank]
    program = commsched.Program(PROGRAM)
    program.set_gather(gather_costs(), ranks)
    program.run(f"comm-align-costs{{machine={machine}}}")
    texts = [None] * ranks
    torch.distributed.all_gather_object(texts, str(program))
    assert len(set(texts)) == 1
    assert len(times(program)) == 2


def _differ(rank, ranks):
    program = commsched.Program((PROGRAM, LONGER)[rank])
    program.set_gather(gather_costs(), ranks)
    counts = ("2 operations here and 3 on rank 1", "3 operations here and 2 on rank 0")[rank]
    with pytest.raises(commsched.Error, match=f"<memory>.*expected the same operations on all ranks, got {counts}"):
        program.run("comm-align-costs")


def _schedule(rank, ranks):
    c10d, group = torch.ops._c10d_functional, torch.distributed.group.WORLD.group_name

    def step(x, w):
        a = c10d.wait_tensor(c10d.all_reduce(x, "sum", group))
        b = w @ w
        return a + c10d.wait_tensor(c10d.all_reduce(b, "sum", group)), b

    # With buckets, ranks need one price of a bucket, too: comm-align-costs takes that of the first rank's machine.
    for bucketing in (False, True):
        reports, codes = {}, {}
        for passes in (("comm-schedule",), ("comm-align-costs", "comm-schedule")):
            gm, machine = trace(step, (64, 64), (64, 64)), ("h100-sxm", "a100-sxm")[rank]
            scheduled, reports[passes] = ct.schedule_overlap(gm, machine=machine, passes=passes, bucketing=bucketing)
            codes[passes] = scheduled.code
        answers = [None] * ranks
        for passes, report in reports.items():
            torch.distributed.all_gather_object(answers, (report["makespan_ns"]["after"], codes[passes]))
            assert (len(set(answers)) == 1) == (passes[0] == "comm-align-costs")
        assert reports["comm-align-costs", "comm-schedule"]["error_bars"]["cost_sources"]["given"] >= 2


def _own_groups(rank, ranks):
    """Each rank has a group of its own, which has another name on each."""
    c10d, dist = torch.ops._c10d_functional, torch.distributed
    own = [dist.new_group([r]) for r in range(ranks)][rank].group_name
    names = [None] * ranks
    dist.all_gather_object(names, own)
    assert len(set(names)) == ranks

    def step(x, w):
        a, b = (c10d.wait_tensor(c10d.all_reduce(x, "sum", g)) for g in (own, dist.group.WORLD.group_name))
        return a + b, w @ w

    gm, report = ct.schedule_overlap(trace(step, (64, 64), (64, 64)), passes=["comm-align-costs", "comm-schedule"])
    assert report["collectives"] == 2


@pytest.mark.parametrize("check", [_align, _differ, _schedule, _own_groups])
def test_ranks_gather_through_torch(check):
    gloo.run(2, check)


def test_reports_give_intervals(world, tmp_path):
    profile = json.loads(machine_file("h100-sxm").read_text())
    point = {"bytes": 1 << 20, "ns": 90_000, "lo_ns": 80_000, "hi_ns": 110_000, "n": 20}
    profile["collectives"] = [{"kind": "all_reduce", "ranks": 8, "nodes": 1, "points": [point]}]
    path = tmp_path / "bars.json"
    path.write_text(json.dumps(profile))
    c10d = torch.ops._c10d_functional

    def step(x, w):
        a = c10d.wait_tensor(c10d.all_reduce(x, "sum", world))
        return a + w @ w

    _, plain = ct.schedule_overlap(trace(step, (512, 512), (512, 512)), machine="h100-sxm")
    assert "error_bars" not in plain
    _, report = ct.schedule_overlap(trace(step, (512, 512), (512, 512)), machine=path)
    bars = report["error_bars"]
    assert bars["cost_sources"]["measured"] == 1
    for side in ("before", "after"):
        interval = bars["makespan_ns"][side]
        assert interval["value"] == report["makespan_ns"][side]
        assert interval["lo"] + 10_000 == interval["value"] == interval["hi"] - 20_000
    assert bars["gain_ns"]["value"] == report["makespan_ns"]["before"] - report["makespan_ns"]["after"]
    assert bars["gain_ns"]["lo"] <= bars["gain_ns"]["value"] <= bars["gain_ns"]["hi"]
    (row,) = report["per_collective"]
    assert (row["cost_lo_ns"], row["cost_ns"], row["cost_hi_ns"]) == (80_000, 90_000, 110_000)
    assert (row["cost_source"], row["samples"]) == ("measured", 20)


def _compiled(rank, ranks):
    """Ranks with different profiles compile, agree when their code first runs, and compute what eager ranks do."""
    loss, step = gloo.sharded_step(ranks, layers=3, width=16)
    x = torch.ones(4, 16) + rank
    expected = step(loss, x)
    ct.reports()
    machine = ("h100-sxm", "a100-sxm")[rank % 2]
    options = ct.inductor_options(machine=machine, passes=["comm-align-costs", "comm-schedule"])
    aten = dict(fallback_by_default=True, fx_graph_cache=False, reorder_for_peak_memory=False)
    got = step(torch.compile(loss, options={**options, **aten}), x)
    for a, b in zip(got, expected):
        torch.testing.assert_close(a, b)
    times = [r["makespan_ns"] for r in ct.reports() if r["place"] == "graph"]
    everyone = [None] * ranks
    torch.distributed.all_gather_object(everyone, times)
    assert len(times) == 2 and all(t == times for t in everyone)
    assert all(t["lower_bound"] <= t["after"] <= t["before"] for t in times)


def test_ranks_with_different_profiles_compile():
    gloo.run(2, _compiled)


def _mixed_job(ranks, *options):
    """Runs the example of PyTorch.md under torchrun."""
    example = pathlib.Path(__file__).resolve().parents[2] / "docs" / "examples" / "mixed_job.py"
    run = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={ranks}",
        example,
        *options,
    ]
    return subprocess.run(run, capture_output=True, text=True)


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_job_on_machines_of_two_kinds_trains(ranks):
    """It compares its losses with eager ones, and the schedules of all ranks, by itself."""
    done = _mixed_job(ranks)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{ranks} ranks with the profiles h100-sxm, a100-sxm")
    gains = re.findall(r"makespan (\d+) ns -> (\d+) ns on all ranks", done.stdout)
    assert len(gains) == 2 and all(int(after) < int(before) for before, after in gains)


def test_a_job_on_machines_of_two_kinds_needs_aligned_costs():
    """Otherwise its ranks have schedules of their own, and the job ends with an error."""
    done = _mixed_job(2, "--passes", "comm-schedule")
    assert done.returncode != 0
    assert "another sequence of collectives" in done.stderr


def test_code_of_aligned_costs_is_not_taken_from_a_cache():
    """The costs of other ranks decide it, and they are not in the key."""
    assert Options(passes=["comm-align-costs", "comm-schedule"]).key() is None
    assert Options(passes=["comm-schedule"]).key() is not None


@pytest.mark.parametrize(
    "entry",
    [
        "comm-multi-stream",
        "comm-multi-stream{issue-order=start-time}",
        "func.func(comm-realize-buffers)",
        "comm-decompose-all-to-all",
        "comm-quantise-gathers",
        "comm-split-strands",
        "reorder-comm-overlap{multi-stream=true}",
    ],
)
def test_a_pass_that_a_graph_cannot_hold_is_refused_by_name(entry):
    name = entry.split("{")[0].removeprefix("func.func(").rstrip(")")
    with pytest.raises(ValueError, match=f"passes: {name} has no effect that an FX graph can hold"):
        ct.inductor_options(passes=["comm-schedule", entry])
    with pytest.raises(ValueError, match=f"passes: {name} has no effect that an FX graph can hold"):
        Options(passes=[entry])


def test_splits_are_not_taken_over_while_costs_are_aligned():
    with pytest.raises(ValueError, match="strands: expected 'off'"):
        Options(passes=["comm-align-costs", "comm-schedule"], strands="auto")
