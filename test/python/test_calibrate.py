# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`ct.calibrate` on real ranks, with times that are made up: what is measured has to be what was put in."""

import json
import pathlib
import statistics
from unittest import mock

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist
from conftest import trace
from torch.utils._python_dispatch import TorchDispatchMode

import commsched.torch as ct
import gloo
from commsched.torch.calibration import bench, job, questions

C10D = torch.ops._c10d_functional
KIB = 1024


class Device:
    """Stands for `torch.cuda`. An interval between two events takes the next of `times`, in ms. It logs its calls."""

    def __init__(self, times, log=None):
        self.times, self.log = times, [] if log is None else log
        device = self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                device.log.append("record")

            def synchronize(self):
                device.log.append("wait for the event")

            def elapsed_time(self, end):
                return device.times()

        self.Event = Event

    def synchronize(self):
        self.log.append("synchronize")


class LogCollectives(TorchDispatchMode):
    """Logs barriers, functional collectives and waits."""

    def __init__(self, log):
        super().__init__()
        self.log = log

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "_c10d_functional" or func._schema.name == "c10d::barrier":
            self.log.append(func._schema.name)
        return func(*args, **(kwargs or {}))


def seeds_recipe(cuda, target, args, nruns=2):
    """PyTorch's recipe for one collective, line by line; `cuda` stands for `torch.cuda`. In ms."""
    cuda.synchronize()
    result = target(*args)
    C10D.wait_tensor(result)
    comm_time = 0.0
    for _ in range(nruns):
        dist.barrier()
        cuda.synchronize()
        start_evt = cuda.Event(enable_timing=True)
        end_evt = cuda.Event(enable_timing=True)
        start_evt.record()
        result = target(*args)
        C10D.wait_tensor(result)
        end_evt.record()
        end_evt.synchronize()
        comm_time += start_evt.elapsed_time(end_evt)
    return comm_time / nruns


def times_of(rank):
    """A rank's times, ms. No two runs take the same time."""
    values = iter(range(1, 1000))
    return lambda: next(values) ** 2 * 0.25 + rank


def with_clock(clock):
    return mock.patch.object(job, "clock_of", lambda device: clock)


def by_rank(value):
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, value)
    return everyone


def _seed(rank, ranks, folder):
    """The same calls in the same order as PyTorch's recipe, and the same means. Ranks agree on the median."""
    group, sizes = dist.group.WORLD.group_name, (KIB, 4 * KIB)
    cuda = Device(times_of(rank))
    with LogCollectives(cuda.log):
        expected = [seeds_recipe(cuda, C10D.all_reduce, (torch.ones(b // 4), "sum", group)) for b in sizes]
    device = Device(times_of(rank))
    with with_clock(bench.EventClock(device)), LogCollectives(device.log):
        result = ct.calibrate(kinds=["all_reduce"], sizes=sizes, recipe="seed", base="cpu-mpi", cache=folder)
    assert device.log == cuda.log and len(cuda.log) == 2 * (3 + 2 * 7)
    (table,) = result.profile["collectives"]
    assert (table["kind"], table["ranks"], table["nodes"]) == ("all_reduce", 2, 1)
    assert [p["bytes"] for p in table["points"]] == list(sizes)
    assert [p["ns"] for p in table["points"]] == [round(1e6 * statistics.median(e)) for e in zip(*by_rank(expected))]
    assert all(p["n"] == 2 for p in table["points"])


def _gate(rank, ranks, folder):
    """Behind the barrier, a sum of one element makes devices wait for each other before the time begins."""
    device = Device(times_of(rank))
    sums = []

    class LogSums(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is C10D.all_reduce.default:
                sums.append(args[0].numel())
            return func(*args, **(kwargs or {}))

    with with_clock(bench.EventClock(device)), LogCollectives(device.log), LogSums():
        ct.calibrate(kinds=["all_reduce"], sizes=[KIB], base="cpu-mpi", cache="none")
    reduce, wait = "_c10d_functional::all_reduce", "_c10d_functional::wait_tensor"
    run = ["c10d::barrier", "synchronize", reduce, wait, "record", reduce, wait, "record", "wait for the event"]
    assert len(device.log) % len(run) == 0 and device.log == run * (len(device.log) // len(run))
    assert sums == [1, KIB // 4] * (len(sums) // 2) and len(sums) >= 2 * 20


def _medians(rank, ranks, folder):
    """Late runs and runs of another program do not count; a rank that differs is flagged, and decides nothing alone."""
    truth = {"all_gather": 3.0, "all_reduce": 5.0}
    runs = iter(range(10_000))

    class Clock(bench.HostClock):
        kind = None

        def time(self, start, wait, gate=None):
            wait(start())
            one_of_twenty = next(runs) % 20 == 7
            return round(truth[self.kind] * (1 + 0.5 * rank) * 1e6 * (40 if one_of_twenty else 1)), 700

    clock = Clock()

    def prepare(self, kind, *rest):
        clock.kind = kind
        return real(self, kind, *rest)

    real = bench.GroupBench.prepare
    with with_clock(clock), mock.patch.object(bench.GroupBench, "prepare", prepare):
        result = ct.calibrate(kinds=list(truth), sizes=[2 * KIB], base="cpu-mpi", cache="none")
    for table in result.profile["collectives"]:
        (point,) = table["points"]
        assert point["ns"] == round(truth[table["kind"]] * 1.25 * 1e6)  # The middle of the two ranks.
        assert (point["lo_ns"], point["hi_ns"]) == tuple(round(truth[table["kind"]] * f * 1e6) for f in (1.0, 1.5))
        assert point["rejected"] > 0 and point["n"] >= 19 and table["flags"] == ["skew"]
    assert result.profile["overheads"]["issue_ns"] == 700
    assert len(set(by_rank((result.digest, pathlib.Path(result).read_text())))) == 1


def _rotated(rank, ranks, folder):
    """Large inputs are not those of the run before, which a cache still holds. The seed's recipe has one input."""
    for recipe, different in (("median", 64), ("seed", 1)):
        seen = []
        start = lambda x, group, ranks: seen.append(x.data_ptr()) or C10D.all_reduce(x, "sum", group)
        with mock.patch.dict(bench.STARTS, all_reduce=start):
            ct.calibrate(kinds=["all_reduce"], sizes=[64 * KIB], recipe=recipe, cache="none", fresh=True)
        runs = min(len(seen), different)
        assert len(set(seen[:runs])) == runs and len(set(seen)) <= different


def _cache(rank, ranks, folder):
    ask = lambda **more: ct.calibrate(
        **{"kinds": ["all_reduce"], "sizes": [KIB, 2 * KIB], "recipe": "seed", "cache": folder, **more}
    )
    first = ask()
    assert (first.points, first.measured) == (2, 2)
    again = ask(sizes=[KIB, 2 * KIB, 4 * KIB])  # Known points stay as they were.
    assert (again.points, again.measured) == (3, 1)
    assert again.profile["collectives"][0]["points"][:2] == first.profile["collectives"][0]["points"]
    assert ask(recipe="median", sizes=[KIB]).measured == 1  # Another recipe makes other numbers.
    files = [
        f for f in pathlib.Path(folder).glob("*.json") if '"recipe": "seed"' in json.loads(f.read_text())["fingerprint"]
    ]
    assert len(files) == 1 and len(json.loads(files[0].read_text())["curves"][0]["points"]) == 3
    dist.barrier()
    job._memory().cache_clear()  # As a new process: the file alone is left.
    assert ask(sizes=[KIB]).measured == 0
    assert ask(sizes=[KIB], fresh=True).measured == 1
    dist.barrier()
    if rank == 0:
        files[0].write_text('{"fingerprint": "')
    dist.barrier()
    job._memory().cache_clear()
    broken = ask(sizes=[KIB])
    assert broken.measured == 1 and bool(broken.warnings) == (rank == 0)
    assert files[0].with_name(files[0].name + ".broken").exists()
    assert ask(sizes=[KIB], cache="none").measured == 0 and ask(sizes=[8 * KIB], cache="none").measured == 1


def _refused(rank, ranks, folder):
    """What one rank alone asks for is an error on all; what cannot be measured is an error on none."""
    with pytest.raises(ValueError, match="rank 1 gave other arguments"):
        ct.calibrate(kinds=["all_reduce"], sizes=[KIB * (1 + rank)], cache="none")
    lone = dist.new_group([1])
    pair = dist.new_group([0, 1])
    given = [pair] if rank == 0 else [pair, lone]
    unknown = torch.float8_e5m2
    result = ct.calibrate(
        given, kinds=["all_reduce", "gather"], dtypes=[torch.float32, unknown], sizes=[KIB], recipe="seed", cache="none"
    )
    reasons = {(s["kind"], s["ranks"], s["element"]): s["reason"] for s in result.skipped}
    assert result.points == 1
    assert reasons["all_reduce", 1, "f32"] == "rank 0 has no group of this shape"
    assert reasons["gather", 2, "f32"] == "it is not measured in a job of PyTorch"
    assert reasons["all_reduce", 2, "other"] == "tensors of float8_e5m2 are not measured"
    with mock.patch.dict(bench.STARTS, all_reduce=lambda x, group, ranks: C10D.all_reduce(x, "no sum", group)):
        result = ct.calibrate(kinds=["all_reduce"], sizes=[KIB], cache="none", fresh=True)
    assert result.points == 0 and "no sum" in result.skipped[0]["reason"]
    late = ct.calibrate(kinds=["all_reduce"], sizes=[KIB, 2 * KIB], cache="none", fresh=True, budget_seconds=1e-9)
    assert late.skipped[0]["reason"] == "the time that was given is used up" and late.points < 2


def _all(rank, ranks, folder):
    for case in (_seed, _gate, _medians, _rotated, _cache, _refused):
        job._memory().cache_clear()
        case(rank, ranks, f"{folder}/{case.__name__}")
        dist.barrier()


def test_on_two_ranks(tmp_path):
    gloo.run(2, _all, str(tmp_path))


def test_a_job_that_cannot_measure_keeps_the_model(world, tmp_path):
    c10d = torch.ops._c10d_functional
    graph = lambda: trace(lambda x: c10d.wait_tensor(c10d.all_reduce(x, "sum", world)).relu(), (64, 64))
    result = ct.calibrate(cache=tmp_path, base="a100-sxm")
    assert result.points == 0 and {s["reason"] for s in result.skipped} == {"the process group is fake"}
    one, two = (ct.schedule_overlap(graph(), machine=m)[1] for m in ("a100-sxm", result))
    assert one["makespan_ns"] == two["makespan_ns"]
    assert two["machine"] == result.path and result.profile["name"] == "a100-sxm, calibrated"


def test_without_any_job(tmp_path):
    result = ct.calibrate(cache=tmp_path)
    assert {s["reason"] for s in result.skipped} == {"torch.distributed is not initialized"}


def test_the_profile_decides_costs_and_the_cache_key(world, tmp_path):
    """The place of a profile does not matter, but its contents do."""
    from commsched.torch.options import Options

    c10d = torch.ops._c10d_functional
    gm = trace(lambda x: c10d.wait_tensor(c10d.all_reduce(x, "sum", world)).relu(), (64, 64))
    base = json.loads((pathlib.Path(__file__).parents[2] / "machines" / "h100-sxm.json").read_text())
    table = {"kind": "all_reduce", "ranks": 8, "nodes": 1, "points": [{"bytes": 64 * 64 * 4, "ns": 123_456}]}
    paths = [tmp_path / f"{i}.json" for i in range(3)]
    for i, path in enumerate(paths):
        table["points"][0]["ns"] = 123_456 + i // 2
        path.write_text(json.dumps({**base, "collectives": [table]}))
    _, report = ct.schedule_overlap(gm, machine=paths[0])
    assert [r["cost_ns"] for r in report["per_collective"]] == [123_456]
    keys = [Options(machine=path).shared_key() for path in paths]
    assert keys[0] == keys[1] != keys[2]


def test_questions_of_graphs(world):
    """Exact sizes, and steps up to everything merged."""
    c10d = torch.ops._c10d_functional

    def f(x, w):
        a = c10d.wait_tensor(c10d.all_gather_into_tensor(w, 8, world))
        b = c10d.wait_tensor(c10d.all_gather_into_tensor(w[:2], 8, world))
        return c10d.wait_tensor(c10d.all_reduce(x @ a, "sum", world)) @ b.T

    asked, groups = questions.in_graphs([trace(f, (4, 64), (8, 64))], ranks_per_node=4)
    assert [(q.kind, q.element, q.shape, q.sizes) for q in asked] == [
        ("all_gather", "f32", (8, 2, 4), [16 * 64 * 4, 64 * 64 * 4, 80 * 64 * 4]),
        ("all_reduce", "f32", (8, 2, 4), [4 * 64 * 4]),
    ]
    assert [g.size() for g in groups] == [8]


@pytest.mark.parametrize(
    "wrong", [dict(recipe="mean"), dict(base="no-such"), dict(min_bytes=0), dict(sizes=[0]), dict(budget_seconds=-1)]
)
def test_wrong_arguments(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ct.calibrate(**wrong)
