# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Costs of nodes: a user's estimates are kept, and floating-point operations are counted."""

import re
import warnings

import pytest

torch = pytest.importorskip("torch")

from conftest import RANKS, trace
from test_odd_graphs import Builder, captured
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import commsched.torch as ct
from commsched.torch.importer.estimates import sampled
from commsched.torch.importer.export import import_graph

aten, c10d = torch.ops.aten, torch.ops._c10d_functional


def _times(gm, estimation):
    """The sum of the times in a graph's module."""
    text = ct.export_mlir(gm, runtime_estimation=estimation)
    return sum(int(t) for t in re.findall(r"comm.cost = #comm.cost<time = (\d+)>", text))


def test_no_estimate_is_lost(world):
    """A gather along dimension 1 (split, elements, cat) before a collective, casts that a pack takes in, views."""

    def f(w, v):
        full = c10d.wait_tensor(c10d.all_gather_into_tensor(w, RANKS, world))
        columns = torch.cat(full.split(w.shape[0]), 1)
        packed = torch.cat([columns.to(torch.bfloat16).view(-1), v.to(torch.bfloat16).view(-1)])
        return c10d.wait_tensor(c10d.all_reduce(packed, "sum", world))

    gm = trace(f, (4, 8), (16,))
    calls = [n for n in gm.graph.nodes if n.op == "call_function"]
    assert {aten.split.Tensor, aten.view.default, aten.cat.default} <= {n.target for n in calls}
    waits = {n for n in calls if n.target is c10d.wait_tensor.default}
    assert _times(gm, lambda node, override_bytes=None: 0.0 if node in waits else 0.001) == 1000 * len(
        set(calls) - waits
    )
    assert _times(gm, lambda node, override_bytes=None: 0.0) == 0


def _gathers(world):
    def f(a, b, c):
        return [c10d.wait_tensor(c10d.all_gather_into_tensor(w, RANKS, world)) for w in (a, b, c)]

    return trace(f, (64, 64), (256, 64), (512, 128))


def _bytes(node, override_bytes):
    val = node.meta["val"]
    return override_bytes or val.numel() * val.element_size() * (RANKS + 1) // RANKS


def test_an_honest_estimator_is_sampled(world):
    """An estimator of PyTorch's convention: input and output together."""
    estimation = lambda node, override_bytes=None: 0.01 + _bytes(node, override_bytes) * 1e-7
    _, importer = import_graph(_gathers(world).graph, runtime_estimation=estimation)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (estimates,) = sampled(importer)
    assert len(estimates.points) == 23


@pytest.mark.parametrize(
    "curve",
    [
        lambda own, node: own(node, None),  # It ignores override_bytes.
        lambda own, node: 100 * own(node, None),
    ],
    ids=["ignored", "other"],
)
def test_a_curve_that_contradicts_the_nodes_is_noticed(world, curve):
    own = lambda node, _: 0.01 + _bytes(node, None) * 1e-7
    estimation = lambda node, override_bytes=None: own(node, None) if override_bytes is None else curve(own, node)
    _, importer = import_graph(_gathers(world).graph, runtime_estimation=estimation)
    with pytest.warns(UserWarning, match="override_bytes") as said:
        (estimates,) = sampled(importer)
    assert len(said) == 1
    points = dict(estimates.points)
    for node, size in next(iter(importer.samples.values())):
        assert points[size] == round(own(node, None) * 1e6)


def test_an_estimator_may_say_the_same_of_every_size(world):
    _, importer = import_graph(_gathers(world).graph, runtime_estimation=lambda node, override_bytes=None: 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (estimates,) = sampled(importer)
    assert {ns for _, ns in estimates.points} == {100_000}


def test_buckets_cost_what_the_estimator_says_of_their_size(world):
    """The sizes between two octaves are interpolated."""
    estimation = lambda node, override_bytes=None: 0.01 + _bytes(node, override_bytes) * 1e-7
    _, report = ct.schedule_overlap(_gathers(world), runtime_estimation=estimation)
    (row,) = report["per_collective"]
    assert report["machine"] == "h100-sxm" and len(report["buckets"]) == 1
    assert row["bytes"] == RANKS * 4 * (64 * 64 + 256 * 64 + 512 * 128)
    expected = 1e6 * (0.01 + row["bytes"] * (RANKS + 1) / RANKS * 1e-7)
    assert row["cost_ns"] == pytest.approx(expected, rel=0.05)


def _flops(gm, name):
    line = next(line for line in ct.export_mlir(gm).splitlines() if name in line)
    return int(re.search(r"flops = (\d+)", line)[1])


def test_flex_attention_is_counted(world):
    from torch.nn.attention.flex_attention import flex_attention

    heads, shared, rows, inner = 4, 2, 128, 16
    q, k, v = (torch.randn(1, h, rows, inner) for h in (heads, shared, shared))
    (fw,) = captured(lambda q, k, v: flex_attention(q, k, v, enable_gqa=True), q, k, v)
    b = Builder()  # CPUs have no backward.
    q, out, grad = (b.input(n, 1, heads, rows, inner) for n in ("q", "out", "grad"))
    k, v, sums = (
        b.input("k", 1, shared, rows, inner),
        b.input("v", 1, shared, rows, inner),
        b.input("s", 1, heads, rows),
    )
    gradients = tuple(b.tensor(*n.meta["val"].shape) for n in (q, k, v))
    bw = b.module(b.call(gradients, torch.ops.higher_order.flex_attention_backward, q, k, v, out, sums, grad))
    product = 2 * heads * rows * rows * inner
    assert _flops(fw, "flex_attention") == 2 * product and _flops(bw, "flex_attention_backward") == 5 * product


@pytest.mark.parametrize(
    "a, b, expected",
    [
        ((64, 32), (RANKS, 32, 16), 2 * 64 * 32 * 16),
        ((RANKS, 24, 32), (32, 16), 2 * 24 * 32 * 16),
        ((24, 64), (64, 16), 2 * 24 * 64 * 16),
        ((RANKS, 24, 32), (RANKS, 32, 16), RANKS * 2 * 24 * 32 * 16),
    ],
)
def test_grouped_products_are_counted(a, b, expected):
    with FakeTensorMode():
        x, w = torch.empty(a, dtype=torch.bfloat16), torch.empty(b, dtype=torch.bfloat16)
        offsets = torch.empty(RANKS, dtype=torch.int32)
    together = len(a) == len(b) == 3
    gm = make_fx(lambda x, w, o: torch._grouped_mm(x, w, offs=None if together else o))(x, w, offsets)
    assert _flops(gm, "_grouped_mm") == expected


def test_a_formula_that_fails_is_said(monkeypatch):
    from commsched.torch.importer import flops

    gm = trace(lambda x, w: torch.nn.functional.conv1d(x, w), (1, 2, 8), (3, 2, 3))
    assert _flops(gm, "convolution") == 2 * 3 * 2 * 3 * 6
    monkeypatch.setitem(flops.flop_registry, aten.convolution, lambda *args, **kwargs: {}["surprise"])
    monkeypatch.setattr(flops, "_unknown", set())
    monkeypatch.delenv("COMMSCHED_STRICT", raising=False)
    with pytest.warns(UserWarning, match="surprise"):
        ct.export_mlir(gm)
