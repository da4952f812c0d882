# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`tune="measure"`: both variants compute the same bits, and all ranks keep the same one, by times that are made up."""

import collections
import itertools
import json
import random
import threading

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist
from conftest import trace

import commsched.torch as ct
import gloo
from commsched.torch.inductor import tuning
from commsched.torch.options import Options
from commsched.torch.ranks import trial
from commsched.torch.ranks.trial import GIVEN, SCHEDULED, Trial, Verdict, judge, order_of
from commsched.torch.recording import stamps
from commsched.torch.recording.estimate import interval

PAIRS = 4
RUNS = 2 * (trial.WARM_UP + PAIRS)


def made_up(times):
    """A stopwatch that says `times(variant)` ms, in the place of `tuning.stopwatch`. It notes what ran in `ran`."""
    ran = []

    def stopwatch(example_inputs):
        def watch(code, inputs):
            variant = next(v for v, c in switch(code).variants.items() if c is code)
            ran.append(variant)
            elapsed = round(times(variant) * 1e6)
            return code(inputs), lambda: elapsed

        return watch

    switches = []
    init = tuning.Switch.__init__

    def remember(self, *args):
        init(self, *args)
        switches.append(self)

    def switch(code):
        return next(s for s in switches if code in s.variants.values())

    return stopwatch, remember, ran, switches


def train(compiled_by, batches):
    """Losses and gradients of every step, as bits. Inductor calls ATen, so that no C++ compiler runs; it knows no
    collectives then, and would let its peak-memory pass reorder them."""
    import torch._inductor.config as ic
    from torch.distributed.device_mesh import init_device_mesh

    from commsched.torch.sharding import fully_shard_parameters

    torch.manual_seed(0)
    layers = [torch.nn.Linear(16, 16) for _ in range(3)]
    model = torch.nn.Sequential(*[m for layer in layers for m in (layer, torch.nn.Tanh(), torch.nn.Dropout(0.1))])
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard_parameters(model, lambda module: mesh, None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    torch.manual_seed(dist.get_rank() + 1)
    bits = []
    given = dict(force_disable_caches=True, fallback_by_default=True, fallback_random=True)
    with ic.patch(**given, reorder_for_peak_memory=False):
        torch._dynamo.reset()
        step = compiled_by(lambda x: model(x).square().mean())
        for batch in batches:
            loss = step(torch.randn(batch, 16))
            loss.backward()
            bits += [loss.detach(), *(p.grad.to_local().clone() for p in model.parameters())]
            optimizer.step()
            optimizer.zero_grad()
    return bits


def tuned(f, **options):
    settings = dict(machine="cpu-mpi", memory_budget_ratio=1.0, tune="measure", tune_runs=PAIRS, **options)
    return torch.compile(f, backend="commsched", options=settings)


def _run(rank, batches, times, patch):
    """What `train` computes with tuning, having checked that it is what PyTorch computes. The reports."""
    stopwatch, remember, ran, switches = made_up(times)
    patch.setattr(tuning, "stopwatch", stopwatch)
    patch.setattr(tuning.Switch, "__init__", remember)
    patch.setattr(trial, "_trials", {})
    expected = train(torch.compile, batches)
    ct.reports()
    got = train(tuned, batches)
    assert all(map(torch.equal, expected, got)) and len(expected) == len(got)
    reports = {r["direction"]: r for r in ct.reports() if r["place"] == "tuned"}
    return reports, ran, switches


def _faster(rank, ranks):
    """The schedule is faster on one rank and slower on the other, which is slower altogether: that one decides."""
    for kept, other in ((SCHEDULED, GIVEN), (GIVEN, SCHEDULED)):
        with pytest.MonkeyPatch.context() as patch:
            fast = other if rank == 0 else kept
            base = 1 if rank == 0 else 10
            reports, ran, switches = _run(rank, [8] * (RUNS + 3), lambda v: base + (0 if v == fast else 2), patch)
        for which in ("forward", "backward"):
            report = reports[which]
            assert report["kept"] == kept and report["pairs"] == PAIRS and report["ranks"] == 2
            assert abs(report["gain_ns"]["value"]) == 2_000_000 and report["gain_percent"] in (16.67, -20.0)
        assert ran.count(SCHEDULED) == ran.count(GIVEN) == RUNS  # Forward and backward together.
        assert [list(s.variants) for s in switches] == [[kept], [kept]]


def _reported(rank, ranks):
    """With `record`, the runtime report has the runs of the schedule, in the trial and after it, and no others."""
    steps = RUNS + 3
    for kept in (SCHEDULED, GIVEN):
        stopwatch, remember, _, _ = made_up(lambda variant, kept=kept: 1 if variant == kept else 2)
        loss, step = gloo.sharded_step(ranks, layers=2, width=16)
        with pytest.MonkeyPatch.context() as patch, gloo.without_kernels():
            patch.setattr(tuning, "stopwatch", stopwatch)
            patch.setattr(tuning.Switch, "__init__", remember)
            patch.setattr(trial, "_trials", {})
            torch._dynamo.reset()
            stamps._recorders.clear()
            compiled = tuned(loss, record=True)
            for _ in range(steps):
                step(compiled, torch.ones(4, 16))
        # The first run of a code does not count.
        expected = RUNS // 2 - 1 + (steps - RUNS if kept == SCHEDULED else 0)
        runs = {r["direction"]: r["measured_ns"]["n"] for r in ct.runtime_report()}
        assert runs == {"forward": expected, "backward": expected}, (kept, runs)


def _noise(rank, ranks):
    """Differences that are noise prove nothing: what was given stays. Both variants have run in training."""
    noise = random.Random(rank)
    with pytest.MonkeyPatch.context() as patch:
        reports, ran, _ = _run(rank, [8] * (RUNS + 1), lambda v: 5 + noise.random(), patch)
    assert {r["kept"] for r in reports.values()} == {GIVEN}
    everyone = [None] * ranks
    dist.all_gather_object(everyone, (ran, [r["gain_ns"] for r in reports.values()]))
    assert everyone[0] == everyone[1]


def _recompiled(rank, ranks):
    """One rank compiles anew in the middle, with symbols: its first runs count nowhere, and the trial goes on."""
    batches = [8] * (2 * RUNS + 4)
    if rank == 1:
        batches[4:] = [5, 3, 7] * len(batches[7:]) + [1]
        batches = batches[: 2 * RUNS + 4]
    with pytest.MonkeyPatch.context() as patch:
        reports, ran, switches = _run(rank, batches, lambda v: 3 if v == SCHEDULED else 4, patch)
    assert {r["kept"] for r in reports.values()} == {SCHEDULED}
    assert {r["pairs"] for r in reports.values()} != {0}
    assert len(switches) == (2, 4)[rank]


def _real(rank, ranks):
    """With the clock, whatever wins: the same on all ranks, the same bits, and by `enabled` as by the backend."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial, "_trials", {})

        def by_enabled(f):
            with ct.enabled(machine="cpu-mpi", tune="measure", tune_runs=2):
                return torch.compile(f)

        expected = train(torch.compile, [8] * 8)
        ct.reports()
        assert all(map(torch.equal, expected, train(by_enabled, [8] * 8)))
    kept = [(r["direction"], r["kept"], r["gain_ns"]) for r in ct.reports() if r["place"] == "tuned"]
    everyone = [None] * ranks
    dist.all_gather_object(everyone, kept)
    assert len(kept) == 2 and everyone[0] == everyone[1]


def _all(rank, ranks):
    for case in (_faster, _reported, _noise, _recompiled, _real):
        case(rank, ranks)
        dist.barrier()


def test_on_two_ranks():
    gloo.run(2, _all)


# ---------------------------------------------------------------------- the rule


def test_every_pair_holds_both_variants_and_neither_is_always_first():
    pairs = [(order_of(2 * i), order_of(2 * i + 1)) for i in range(4)]
    assert pairs == [(SCHEDULED, GIVEN), (GIVEN, SCHEDULED)] * 2


def _times(given, scheduled):
    """Times of one rank from those of the variants, in the order in which they run."""
    by_variant = {GIVEN: iter(given), SCHEDULED: iter(scheduled)}
    return [next(by_variant[order_of(i)]) for i in range(len(given) + len(scheduled))]


def test_the_slowest_rank_counts_and_the_schedule_has_to_prove_itself():
    slow, fast = [100] * 10, [90] * 10
    assert judge([_times(slow, fast)]) == Verdict(SCHEDULED, 100, 90, (10, 10, 10), 10)
    assert judge([_times(fast, slow)]) == Verdict(GIVEN, 90, 100, (-10, -10, -10), 10)
    assert judge([_times(slow, slow)]).kept == GIVEN
    assert judge([_times(slow, fast), _times([200] * 10, [210] * 10)]).kept == GIVEN
    noisy = [100 + (-1) ** i * 30 for i in range(10)]
    assert judge([_times(slow, noisy)]).kept == GIVEN


def test_a_run_that_does_not_count_on_one_rank_counts_on_none():
    one, other = _times([100] * 4, [90] * 4), _times([100] * 4, [90] * 4)
    one[0], other[5] = None, None
    assert judge([one, other]).pairs == 2
    assert judge([[None] * 8, other]) == Verdict(GIVEN)


@pytest.mark.parametrize("n", [1, 2, 5, 10, 33])
def test_the_interval_holds_the_median(n):
    """Against a count by brute force: the share of samples whose interval holds the true median."""
    values = [3 * i for i in range(n)]
    median, lo, hi = interval(values)
    assert lo <= median <= hi and lo in values and hi in values
    random_ = random.Random(n)
    if n >= 10:
        held = sum(
            lo <= 0 <= hi for _, lo, hi in (interval([random_.gauss(0, 1) for _ in range(n)]) for _ in range(2000))
        )
        assert held >= 0.94 * 2000


class _Store:
    """A store of threads, whose waits end when the keys are there."""

    def __init__(self):
        self.values, self.changed = {}, threading.Condition()

    def set(self, key, value):
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def get(self, key):
        return self.values[key]

    def check(self, keys):
        return all(k in self.values for k in keys)

    def wait(self, keys, timeout):
        with self.changed:
            if not self.changed.wait_for(lambda: self.check(keys), timeout.total_seconds()):
                raise dist.DistStoreError("too late")


def _exchanged(groups_of_rank, monkeypatch):
    """What each rank gets, each in a thread of its own."""
    store, me, got = _Store(), threading.local(), {}
    monkeypatch.setattr(trial, "_exchanges", collections.Counter())
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_backend", lambda: "gloo")
    monkeypatch.setattr(dist, "get_rank", lambda: me.rank)
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", lambda: store)

    def run(rank, groups):
        me.rank = rank
        try:
            got[rank] = trial.exchange(groups, "test", f"payload {rank}")
        except RuntimeError as error:
            got[rank] = error

    threads = [threading.Thread(target=run, args=item) for item in groups_of_rank.items()]
    [t.start() for t in threads]
    [t.join() for t in threads]
    return got


def test_all_ranks_that_are_connected_see_the_same(monkeypatch):
    """A mesh of 2 x 3 ranks, and two ranks that are alone: a rank sees ranks that share no group with it."""
    grid = [[0, 1, 2], [3, 4, 5]]
    groups = {}
    for row, column in itertools.product(range(2), range(3)):
        of_rows, of_columns = tuple(grid[row]), tuple(g[column] for g in grid)
        groups[grid[row][column]] = {of_rows: "a", of_columns: "b"}
    groups |= {6: {(6, 7): "a"}, 7: {(6, 7): "a"}}
    got = _exchanged(groups, monkeypatch)
    for rank in range(6):
        assert got[rank] == {r: f"payload {r}" for r in range(6)}
    assert got[6] == got[7] == {6: "payload 6", 7: "payload 7"}


def test_a_rank_that_never_comes_is_named(monkeypatch):
    monkeypatch.setenv("COMMSCHED_RANKS_DEADLINE_S", "0.1")
    got = _exchanged({0: {(0, 1): "a"}, 1: {(0, 1): "another"}}, monkeypatch)
    assert "ranks [1]" in str(got[0]) and "ranks [0]" in str(got[1])


def test_programs_that_differ_are_not_measured(monkeypatch, recwarn):
    from commsched.torch import reporting

    reporting._warned.clear()
    monkeypatch.setattr(trial, "exchange", lambda *_: {0: "mine", 1: "another"})
    one = Trial("mine", {(0, 1): "a"}, PAIRS)
    assert [one.next()[0] for _ in range(RUNS + 2)] == [SCHEDULED] * (RUNS + 2)
    assert any("different programs" in str(w.message) for w in recwarn)


def test_a_trial_goes_on_until_enough_counts_and_not_for_ever(monkeypatch):
    monkeypatch.setattr(trial, "exchange", lambda groups, label, payload: {0: payload})
    one = Trial("p", {}, PAIRS)
    for _ in range(2 * (trial.WARM_UP + (1 + trial.EXTENSIONS) * PAIRS)):
        assert one.verdict is None
        one.took(one.next()[1], None)
    assert one.next()[0] == GIVEN and one.verdict == Verdict(GIVEN)


# ---------------------------------------------------------------------- the ways in


def test_only_what_can_run_two_variants_takes_the_option(world):
    for way in (ct.inductor_options, ct.install):
        with pytest.raises(ValueError, match="tune: expected None"):
            way(tune="measure")
    c10d = torch.ops._c10d_functional
    gm = trace(lambda x: c10d.wait_tensor(c10d.all_reduce(x, "sum", world)), (4,))
    with pytest.raises(ValueError, match="schedule_overlap cannot run"):
        ct.schedule_overlap(gm, tune="measure")
    for wrong in (dict(tune="guess"), dict(tune_runs=0)):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Options(**wrong)


def test_results_get_the_strides_that_the_backward_graph_was_made_for():
    class Code:
        def __init__(self, *strides):
            self.output_strides = list(strides)

        def __call__(self, inputs):
            rows = inputs.pop(0)
            return [torch.arange(rows * 6.0).view(rows, 6), None, torch.ones(2)]

    given, scheduled = Code(("6", "1"), None, ("1",)), Code(("1", "s7"), None, ("1",))
    assert tuning.Restrided.if_needed(given, given, []) is given
    code = tuning.Restrided.if_needed(given, scheduled, [])
    code.symbols = {"s7": 0}
    result = code([4])
    assert result[0].stride() == (1, 4) and torch.equal(result[0], torch.arange(24.0).view(4, 6))
    assert result[1] is None and result[2].stride() == (1,)


def test_a_device_is_timed_by_its_events(monkeypatch):
    log = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            log.append("record")

        def synchronize(self):
            log.append("synchronize")

        def elapsed_time(self, other):
            return 1.5

    monkeypatch.setattr(torch, "get_device_module", lambda device: type("module", (), {"Event": Event}))
    device = type("Tensor", (torch.Tensor,), {"device": torch.device("cuda", 0)})
    watch = tuning.stopwatch([3, torch.ones(2).as_subclass(device)])
    result, took = watch(lambda inputs: log.append("run") or len(inputs), [1, 2])
    assert (result, log) == (2, ["record", "run", "record"])  # The host does not wait.
    assert took() == 1_500_000 and log[-1] == "synchronize"


def test_the_verdict_in_words():
    verdict = judge([_times([100_000_000] * 10, [90_000_000] * 10)])
    report = {"direction": "backward", "program": "p", "ranks": 2, **verdict.report()}
    assert json.loads(json.dumps(report)) == report
    assert "100.000 ms as given, 90.000 ms as scheduled, gain 10.000 ms" in trial.sentence(report)
    assert "10.0 % over 10 pairs on 2 ranks" in trial.sentence(report)
