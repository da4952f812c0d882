# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Plans for DistributedDataParallel: real ranks (gloo) make the buckets of the plan, and no division is faster."""

import dataclasses
import itertools
import random

import pytest

torch = pytest.importorskip("torch")

import numpy as np
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

import commsched.torch as ct
import fsdp2_models
import gloo
from commsched.torch.ddp import program, search
from commsched.torch.ddp.reducer import DEFAULT_LIMITS, Backward, Gradient
from commsched.torch.eager.recorder import Untraceable
from fsdp2_models import Model, batch, loss_of

KIB = 1024


class TwoTypes(Model):
    """Weights of two element types, whose gradients are reduced apart."""

    def __init__(self):
        super().__init__()
        self.layers[1].double()
        self.layers[3].double()

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x.to(layer.up.weight.dtype)).float()
        return self.head(self.norm(x))


def _model(name):
    torch.manual_seed(0)
    return globals()[name]() if name in globals() else getattr(fsdp2_models, name)()


def _plan(model, **options):
    return ct.plan_ddp(model, batch(), **{"loss": loss_of, "ranks": 8, **options})


def _gradients(ddp, rank):
    for _ in range(3):  # DDP has its buckets from the second step on.
        ddp.zero_grad()
        loss_of(ddp(batch(rank))).backward()
    return [None if p.grad is None else p.grad.clone() for p in ddp.parameters()]


def _random(rng, count, types=(torch.float32,)):
    """A backward pass of random sizes and times. All-reduces take longer than the computation between some of them."""
    return Backward(
        tuple(
            Gradient(
                f"p{i}",
                torch.Size([rng.choice([1, 300, 4000, 70000, 10**6])]),
                rng.choice(types),
                rng.choice([0, 1000, 20000, 150000]),
                rng.choice([0, 2000, 9000]),
            )
            for i in range(count)
        ),
        rng.choice([0, 50000]),
        rng.random() < 0.5,
    )


def _prices(backward, machine="h100-sxm"):
    total = sum(g.nbytes for g in backward.gradients)
    return program.AllReduces(min(g.nbytes for g in backward.gradients), total, torch.float32, 16, machine)


def _check_buckets(plan, limits, name, rank, expected):
    """DDP makes the buckets of the rule, by its own log, and computes the same gradients."""
    backward = plan.backward
    buckets = backward.buckets(limits)
    caps = [limit / 2**20 for limit in limits]
    ddp = DistributedDataParallel(_model(name), bucket_cap_mb_list=caps, gradient_as_bucket_view=backward.views)
    for g, e in zip(_gradients(ddp, rank), expected):
        assert (g is None) == (e is None) and (g is None or torch.equal(g, e))
    log = ddp._get_ddp_logging_data()
    sizes = [int(size) for size in log["rebuilt_bucket_sizes"].split(", ")]
    assert sizes == [backward.nbytes(b) for b in buckets]
    trained = [n for n, p in ddp.module.named_parameters() if p.requires_grad]
    members = [[trained[int(i)] for i in b.split()] for b in log["rebuilt_per_bucket_param_indices"].split(", ")]
    assert members == [[backward.gradients[i].name for i in b] for b in buckets]


def _makes_these_buckets(rank, ranks):
    for name in ("Model", "Frozen", "Tied", "Twice", "Checkpointed"):
        expected = _gradients(DistributedDataParallel(_model(name)), rank)
        for views, asked in ((True, [(1,), (6000, 30000, 1, 20000)]), (False, [(20 * KIB, 9000)])):
            plan = _plan(_model(name), gradient_as_bucket_view=views)
            for limits in asked:
                _check_buckets(plan, limits, name, rank, expected)


# Tests that DDP makes the buckets that the plan expects, in the same order, and that gradients are equal to the bit (on
# two ranks every sum has two terms).
def test_ddp_makes_the_buckets_of_the_plan():
    gloo.run(2, _makes_these_buckets)


def _applies(rank, ranks):
    for name in ("Model", "Tied", "TwoTypes"):
        plan = _plan(_model(name), ranks=ranks)
        ddp = plan.apply(_model(name))
        expected = _gradients(DistributedDataParallel(_model(name)), rank)
        assert all(torch.equal(g, e) for g, e in zip(_gradients(ddp, rank), expected))
        sizes = [int(size) for size in ddp._get_ddp_logging_data()["rebuilt_bucket_sizes"].split(", ")]
        bytes_of = {g.name: g.nbytes for g in plan.backward.gradients}
        assert sorted(sizes) == sorted(sum(bytes_of[n] for n in b) for b in plan.buckets)
        loss_of(torch.compile(ddp, backend="eager")(batch(rank))).backward()  # PyTorch splits the graph by buckets.
        scope = {"model": _model(name)}
        exec(plan.code(), scope)
        assert all(torch.equal(g, e) for g, e in zip(_gradients(scope["model"], rank), expected))
    other = _plan(Model(), ranks=ranks, gradient_as_bucket_view=rank == 0)
    with pytest.raises(RuntimeError, match="rank"):
        other.apply(Model())
    with pytest.raises(ValueError, match="made for 8 ranks, got 2"):
        _plan(Model()).apply(Model())
    with pytest.raises(ValueError, match="bucket_cap_mb"):
        plan.apply(_model("TwoTypes"), bucket_cap_mb=3)
    with pytest.raises(ValueError, match=r"the parameter layers\.0\.down\.weight is not as in the plan"):
        plan.apply(Model(inner=32))


# Tests that apply and the printed lines run with the plan's buckets, and that a plan for others is refused everywhere.
def test_apply():
    gloo.run(2, _applies)


# Tests that no division of the gradients into neighbours is faster, by trying all of them.
def test_no_division_is_faster():
    rng = random.Random(20261129)
    for _ in range(60):
        backward = _random(rng, rng.randint(1, 9))
        price = _prices(backward)
        count = len(backward.gradients)
        sizes = [g.nbytes for g in backward.gradients]
        ends = search.fastest(backward.ready_ns(), sizes, backward.compute_ns(), price)

        def step(ends, backward=backward, price=price):
            buckets = [list(range(a, b)) for a, b in zip([0, *ends], ends)]
            return backward.step_ns(buckets, price(np.asarray([backward.nbytes(b) for b in buckets])))

        best = min(step([*cut, count]) for k in range(count) for cut in itertools.combinations(range(1, count), k))
        if backward.views:  # Copies back come after the last all-reduce, and are not in what `fastest` minimizes.
            assert step(ends) == pytest.approx(best)
        answer, default = search.search(backward, price)
        at_one = search.COMPARED.index(1.0)
        assert answer.times[at_one] <= default.times[at_one] * (1 + search.TOLERANCE)
        if backward.views:
            assert answer.times[at_one] <= best * (1 + search.TOLERANCE) * (1 + 1e-9)
        assert search.lower_bound(backward, price, price.sizes) <= best * (1 + 1e-9)


# Tests that the library's clock and that of the search agree, for all kinds of limits and for two element types.
def test_clocks_agree():
    rng = random.Random(7)
    for types in ((torch.float32,), (torch.float32, torch.bfloat16)):
        for _ in range(5):
            backward = _random(rng, 12, types)
            asked = [backward.buckets(limits) for limits in (DEFAULT_LIMITS, (1,), (300000, 5000, 10**7))]
            for buckets, measured in zip(asked, program.measure(backward, asked, 16, "h100-sxm")):
                sizes = sorted({backward.nbytes(b) for b in buckets})
                exact = {s: program.AllReduces(s, s, torch.bfloat16, 16, "h100-sxm") for s in sizes}
                prices = [float(exact[n](np.asarray([n]))[0]) for n in map(backward.nbytes, buckets)]
                assert measured.step_ns == pytest.approx(backward.step_ns(buckets, prices), abs=2 * len(buckets))


# Tests a job whose all-reduces take longer than its computation: many small ones cost most of the step.
def test_large_job_of_a_small_model():
    with torch.device("meta"):
        layers = [nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True) for _ in range(8)]
        model = nn.Sequential(*layers).to(torch.bfloat16)
    plan = ct.plan_ddp(model, (torch.empty(1, 64, 1024, dtype=torch.bfloat16, device="meta"),), ranks=512)
    assert plan.bound_ns <= plan.predicted.step_ns < 0.8 * plan.default_predicted.step_ns
    assert "lower bound" in plan.table() and len(plan.buckets) < len(plan.backward.buckets(DEFAULT_LIMITS))


# Tests that the page shows the step, and that the model is as before.
def test_page(tmp_path):
    model = Model()
    _plan(model).page(tmp_path / "step.html")
    assert "bucket 0" in (tmp_path / "step.html").read_text()
    assert not model._forward_hooks and all(p.grad is None for p in model.parameters())


class SparseGradient(nn.Module):
    """Its gradient has as many rows as the batch has different tokens."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(48, 8, sparse=True)

    def forward(self, tokens):
        return self.embed(tokens)


# Tests what is refused.
def test_bad_input():
    with pytest.raises(Untraceable, match="makes a sparse tensor"):
        _plan(SparseGradient())
    with pytest.raises(ValueError, match="layers.2.norm.weight gets no gradient in the step"):
        _plan(fsdp2_models.Uncalled())
    with pytest.raises(ValueError, match="a parameter that is trained"):
        _plan(Model().requires_grad_(False))
    with pytest.raises(ValueError, match="at least 1, got 0"):
        _plan(Model(), ranks=0)
    with pytest.raises(ValueError, match="no process group"):
        _plan(Model(), ranks=None)
    with pytest.raises(ValueError, match="machine"):
        _plan(Model(), machine="no-such")
    with pytest.raises(ValueError, match="plan_ddp compiles no graph"):
        _plan(Model(), machine="measure")
    assert not dist.is_initialized()


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(256, 256) for _ in range(6))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x


def _compiled_rank(rank, ranks):
    """The Python reducer's all-reduces are in the graph of compiled autograd, which is scheduled as every graph."""
    x = torch.randn(8, 256, generator=torch.Generator().manual_seed(rank))
    eager, plain = DistributedDataParallel(Stack()), Stack()
    torch._dynamo.config.optimize_ddp, torch._dynamo.config.compiled_autograd = "python_reducer", True
    plan = dataclasses.replace(
        ct.plan_ddp(plain, (x,), ranks=ranks), limits=(100 * KIB, 300 * KIB)
    )  # Limits that the C++ reducer would get as a list.
    model = plan.apply(plain)

    def train(x):
        model(x).square().mean().backward()

    step = torch.compile(train, options=ct.inductor_options(machine="h100-sxm"))
    for steps in (1, 2):  # The second one adds to the gradients of the first one.
        step(x)
        eager(x).square().mean().backward()
        for ours, theirs in zip(model.parameters(), eager.parameters()):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-6 * steps)
    graphs = [r for r in ct.reports() if r["place"] == "graph"]
    assert [r["direction"] for r in graphs] == ["backward"] * len(graphs) and len(graphs) >= 1
    first = graphs[0]
    merged = sum(len(names) for names in first["buckets"])
    assert first["buckets"] and first["collectives"] + merged - len(first["buckets"]) == 12
    assert first["makespan_ns"]["after"] < 0.9 * first["makespan_ns"]["before"]
    assert ct.report().outside == ()  # The collectives of this reducer are in the graph.


def test_compiled_autograd_brings_the_all_reduces_into_the_schedule():
    gloo.run(2, _compiled_rank)
