# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Casts change sides with collectives in FX graphs, and sums only have fewer bits where the user has said so."""

import pytest

torch = pytest.importorskip("torch")

from conftest import RANKS, trace

import commsched
import commsched.torch as ct
import gloo
from commsched.torch.apply.casts import LOSSY
from commsched.torch.reporting import Unscheduled
from commsched.torch.trace import fake_world

aten, c10d, prims = torch.ops.aten, torch.ops._c10d_functional, torch.ops.prims
CAST = prims.convert_element_type.default
EXACT = "comm-move-casts"
SUMS = f"comm-move-casts{{numerics={LOSSY}}}"


def gathered(group, ranks):
    """A parameter that is gathered in f32 and used in bf16, and activations that are exchanged in f32."""

    def step(w, x):
        full = c10d.wait_tensor(c10d.all_gather_into_tensor(w, ranks, group))
        y = torch.mm(x, prims.convert_element_type(full, torch.bfloat16))
        wide = prims.convert_element_type(y, torch.float32)
        return c10d.wait_tensor(c10d.all_to_all_single(wide, [8] * ranks, [8] * ranks, group)) * 2

    return step


def reduced(group, ranks):
    """A gradient in bf16 that is summed in f32."""

    def step(x, y):
        wide = prims.convert_element_type(torch.mm(x, y), torch.float32)
        return c10d.wait_tensor(c10d.reduce_scatter_tensor(wide, "sum", ranks, group)) / ranks

    return step


def dtypes_of(gm, target):
    return [(n.args[0].meta["val"].dtype, n.meta["val"].dtype) for n in gm.graph.nodes if n.target is target]


def bf16(*shape):
    return torch.randn(*shape).bfloat16()


def scheduled(gm, entry, **options):
    return ct.schedule_overlap(gm, passes=[entry], bucketing=False, **options)


def traced(step, *arguments):
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(step, tracing_mode="fake")(*arguments)


def test_gathers_carry_the_narrower_type(world):
    rows = 8 * RANKS
    gm = traced(gathered(world, RANKS), torch.randn(512, 1024), bf16(rows, 512 * RANKS))
    gm, report = scheduled(gm, EXACT)
    assert report["rewrites"][0]["moved_casts"] == 2
    b = torch.bfloat16
    assert dtypes_of(gm, c10d.all_gather_into_tensor.default) == [(b, b)]
    assert dtypes_of(gm, c10d.all_to_all_single.default) == [(b, b)]
    assert dtypes_of(gm, CAST) == [(torch.float32, b), (b, torch.float32)]
    assert report["makespan_ns"]["after"] < report["makespan_ns"]["before"]


def test_sums_have_fewer_bits_only_where_the_user_says_so(world):
    arguments = bf16(64 * RANKS, 256), bf16(256, 1024)
    gm, report = scheduled(traced(reduced(world, RANKS), *arguments), EXACT)
    assert report["rewrites"][0]["moved_casts"] == 0
    assert LOSSY in str(report["rewrites"][0]["left_alone"])
    gm, report = scheduled(traced(reduced(world, RANKS), *arguments), SUMS)
    assert report["rewrites"][0]["moved_casts"] == 1
    assert dtypes_of(gm, c10d.reduce_scatter_tensor.default) == [(torch.bfloat16, torch.bfloat16)]
    cast = gm.graph.find_nodes(op="call_function", target=CAST)[0]
    assert cast.meta["val"].shape == (64, 1024) and cast.args[0].target is c10d.wait_tensor.default


def test_the_graph_is_checked_without_trust_in_the_pass(world):
    """A function of the user moves a cast across a sum by the pass, without having said so to CommSched."""
    arguments = bf16(64 * RANKS, 256), bf16(256, 1024)

    def quietly(program):
        program.run(SUMS)

    gm = traced(reduced(world, RANKS), *arguments)
    before = str(gm.graph)
    with pytest.raises(Unscheduled, match="would be computed in fewer bits"):
        scheduled(gm, quietly)
    assert str(gm.graph) == before


def written(world):
    """A parameter that is written while a copy of it in f32 is gathered."""

    def step(w, x):
        wide = prims.convert_element_type(w, torch.float32)
        start = c10d.all_gather_into_tensor(wide, RANKS, world)
        w.add_(x)
        return c10d.wait_tensor(start)

    return trace(step, (64, 1024), (64, 1024), dtype=torch.bfloat16)


def test_memory_that_is_written_stays(world):
    gm, report = scheduled(written(world), EXACT)
    assert report["rewrites"][0]["moved_casts"] == 0


def test_a_pass_that_does_not_see_a_write_is_refused(world):
    def blind(program):
        text = program.print(locations=True)
        assert "mutates [0]" in text
        changed = commsched.Program(text.replace("mutates [0]", "side_effects"))
        changed.run(EXACT)
        return changed

    with pytest.raises(Unscheduled, match="writes what convert_element_type reads or makes"):
        scheduled(written(world), blind)


def _on_ranks(rank, ranks):
    group = torch.distributed.group.WORLD.group_name
    torch.manual_seed(rank)
    w, x = torch.randn(32, 64), bf16(8 * ranks, 32 * ranks)
    given = traced(gathered(group, ranks), w, x)
    expected = given(w, x)
    gm, report = scheduled(given, EXACT, machine="cpu-mpi")
    assert report["rewrites"][0]["moved_casts"] == 2
    assert torch.equal(gm(w, x), expected)

    x, y = bf16(4 * ranks, 16), bf16(16, 8)
    given = traced(reduced(group, ranks), x, y)
    expected = given(x, y)
    gm, report = scheduled(given, SUMS, machine="cpu-mpi")
    assert report["rewrites"][0]["moved_casts"] == 1
    terms = torch.mm(x, y).abs().double()
    torch.distributed.all_reduce(terms)
    mine = terms[4 * rank : 4 * rank + 4] / ranks
    # Each of the additions rounds to 8 bits at most.
    u = (ranks - 1) / 256
    assert ((gm(x, y) - expected).abs() <= (u / (1 - u) + 1e-6) * mine).all()


@pytest.mark.parametrize("ranks", [2, 4])
def test_on_ranks(ranks):
    gloo.run(ranks, _on_ranks)


@pytest.mark.parametrize("size", [{}, {"tp": 8}], ids=str)
def test_gradients_of_a_model_are_those_of_a_trace_in_fewer_bits(size):
    """A trace in which gradients are reduced in bf16 from the beginning is the truth from outside."""
    from models.graphs import TraceConfig, graphs_of

    times = {}
    for name, dtype, passes in (
        ("wide", torch.float32, ["comm-schedule"]),
        ("moved", torch.float32, [SUMS, "comm-schedule"]),
        ("narrow", torch.bfloat16, ["comm-schedule"]),
    ):
        config = TraceConfig(ranks=64, layers=2, reduce_dtype=dtype, **size)
        with fake_world(config.ranks):
            _, report = ct.schedule_overlap(graphs_of(config)["bw"], passes=passes, memory_budget_ratio=0.2)
        times[name] = report["makespan_ns"]["after"]
    assert abs(times["moved"] - times["narrow"]) <= 0.01 * times["narrow"] < 0.01 * times["wide"]


def _compiled(rank, ranks):
    from torch.distributed.device_mesh import init_device_mesh

    from commsched.torch.sharding import fully_shard_parameters

    torch.manual_seed(0)
    model = torch.nn.Linear(64, 48, bias=False)
    mesh = init_device_mesh("cpu", (ranks,))
    fully_shard_parameters(model, lambda module: mesh, torch.bfloat16, torch.float32)
    torch.manual_seed(1 + rank)
    x, c = torch.randn(16, 64), torch.randn(16, 48)

    def loss(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (model(x) * c.bfloat16()).float().sum()

    gradients = []
    for options in ({}, ct.inductor_options(machine="cpu-mpi", passes=[SUMS, "comm-schedule"], bucketing=False)):
        ct.reports()
        torch.compile(loss, options=options)(x).backward()
        (weight,) = model.parameters()
        gradients.append(weight.grad.to_local().double())
        weight.grad = None
        torch._dynamo.reset()
    moved = [row["moved_casts"] for r in ct.reports() for row in r.get("rewrites", ())]
    assert sum(moved) >= 1
    terms = torch.mm(c.bfloat16().t(), x.bfloat16()).double().abs()  # This rank's gradient.
    torch.distributed.all_reduce(terms)
    rows = 48 // ranks
    mine = terms[rows * rank : rows * (rank + 1)] / ranks
    u = (ranks + 1) / 256  # An average has two roundings more than the sum.
    assert ((gradients[0] - gradients[1]).abs() <= 1.01 * u / (1 - u) * mine).all()
    assert ranks == 2 or not torch.equal(*gradients)


@pytest.mark.parametrize("ranks", [2, 4])
def test_compiled_gradients_stay_within_the_bound(ranks):
    gloo.run(ranks, _compiled)
