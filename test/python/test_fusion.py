# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Regions of nodes that Inductor fuses: what they cost, and how many kernels Inductor really makes."""

import random
import re
from unittest import mock

import pytest

torch = pytest.importorskip("torch")

import fusion_models
import torch.nn.functional as F
from conftest import RANKS, trace
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import commsched.torch as ct
from commsched.torch.importer.export import import_graph
from commsched.torch.importer.fusion import Region, find_regions, in_levels, is_free, loops, shares
from commsched.torch.importer.spaces import Space, together

aten, c10d = torch.ops.aten, torch.ops._c10d_functional
COST = re.compile(r"#comm\.cost<(?:flops = (\d+))?(?:, )?(?:bytes = (\d+))?(?:time = (\d+))?>")


def _costs(gm, **options):
    """Floating-point operations, bytes and nanoseconds of each operation that costs any, and what they add up to."""
    costs = [tuple(int(n or 0) for n in c) for c in COST.findall(import_graph(gm.graph, **options)[0])]
    costs = [c for c in costs if any(c)]
    return costs, tuple(map(sum, zip(*costs)))


def _norm(x, w):
    """A root-mean-square norm: four pointwise operators, a mean, and two products."""
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w


def _shared(gm):
    return shares(find_regions(in_levels(gm.graph), lambda node: 0), gm.graph)


def _shuffled(graph, seed):
    """A copy of a graph in another order that respects the data."""
    draw, copy, made, left = random.Random(seed), torch.fx.Graph(), {}, list(graph.nodes)
    while left:
        ready = [n for n in left[:-1] if all(i in made for i in n.all_input_nodes)] or left
        node = draw.choice(ready)
        left.remove(node)
        made[node] = copy.node_copy(node, made.__getitem__)
        made[node].name = node.name
    return copy


def test_a_region_reads_what_enters_and_writes_what_leaves():
    gm = trace(_norm, (64, 32), (32,))
    costs, total = _costs(gm)
    assert costs == [(0, 4 * (2 * 64 * 32 + 32), 0)] == [total]
    assert _costs(gm, fused=True) == (costs, total)
    alone, _ = _costs(gm, fusion=False)
    assert len(alone) == sum(n.op == "call_function" and not is_free(n) for n in gm.graph.nodes) == 6


def test_every_result_has_its_share():
    """Two results in proportion 2 to 1: whoever reads one of them does not find it for free."""
    gm = trace(lambda x: ((y := x.exp()) + 1, torch.ops.prims.convert_element_type(y, torch.half)), (64, 32))
    moved = {n.name: b for n, b in _shared(gm).items() if b}
    read, written = 4 * 64 * 32, {"add": 4 * 64 * 32, "convert_element_type": 2 * 64 * 32}
    assert sum(moved.values()) == read + 6 * 64 * 32
    assert (
        all(abs(b - written[n] - read * written[n] / (6 * 64 * 32)) <= 1 for n, b in moved.items()) and len(moved) == 2
    )


def _reduced_gradients(world):
    """Gradients of biases: a sum over rows and its cast are one kernel, and an all-reduce follows."""

    def f(*gradients):
        def reduced(gradient):
            cast = torch.ops.prims.convert_element_type(gradient.sum(0), torch.float32)
            # The sum is used here: the caller may look at the storage of what it gets, which is therefore not merged.
            return c10d.wait_tensor(c10d.all_reduce(cast, "sum", world)) + 1

        return [reduced(g) for g in gradients]

    return trace(f, *[(4096, 1024)] * 6, dtype=torch.bfloat16)


def test_a_cast_before_a_collective_leaves_its_share_to_what_it_casts(world):
    moved = {n.name: b for n, b in _shared(_reduced_gradients(world)).items() if "sum" in n.name or "convert" in n.name}
    assert sum(moved.values()) == 6 * (2 * 4096 * 1024 + 4 * 1024)
    assert all((b > 0) == ("sum" in n) for n, b in moved.items())


def test_a_pack_does_not_spare_the_kernel_of_a_cast(world):
    """The cast is in the pack, and the sum still runs: the rewritten graph takes no longer than promised."""
    gm, report = ct.schedule_overlap(_reduced_gradients(world), memory_budget_ratio=1.0)
    _, again = ct.schedule_overlap(gm, effort=0)
    assert report["buckets"] and report["makespan_ns"]["after"] >= again["makespan_ns"]["before"]


@pytest.mark.parametrize("seed", range(5))
def test_shares_do_not_depend_on_the_order(seed):
    def f(x, w, v):
        y = _norm(x @ v, w)
        return (F.silu(y @ v) * y).sum(0), y.sum(-1), (y + x).half() @ v.half()

    gm = trace(f, (64, 32), (32,), (32, 32))
    expected = {n.name: b for n, b in _shared(gm).items()}
    graph = _shuffled(gm.graph, seed)
    assert [n.name for n in graph.nodes] != [n.name for n in gm.graph.nodes]
    found = shares(find_regions(in_levels(graph), lambda node: 0), graph)
    assert {n.name: b for n, b in found.items()} == expected


def _random_graph(draw):
    def f(x):
        values = [x]
        for _ in range(40):
            a, b = draw.choice(values[-6:]), draw.choice(values)
            makers = (
                lambda: a + b,
                lambda: a * torch.ones(16, 16),
                lambda: a @ b,
                lambda: a * b.sum(-1, True),
                lambda: a.t() + b,
                lambda: a + x[0].exp(),
            )
            values.append(draw.choice(makers)())
        return values[-3:]

    return trace(f, (16, 16)).graph


@pytest.mark.parametrize("seed", range(40))
def test_every_region_can_run_before_its_first_reader(seed):
    """Random graphs in random orders: no region needs its own results, or something that comes after its readers.

    Single loops, and views of them, are not bound to their places.
    """
    graph = _shuffled(_random_graph(random.Random(seed)), seed)
    for nodes in (list(graph.nodes), in_levels(graph)):
        regions = find_regions(nodes, lambda node: 0 if node.op == "call_function" else None)
        have = set()

        def emit(region, nodes=nodes, regions=regions, have=have, open_=()):
            assert region not in open_, "a cycle"
            for n in region.members:
                for source in n.all_input_nodes:
                    if source in regions and source not in have and regions[source] is not region:
                        emit(regions[source], open_=(*open_, region))
                    elif source not in regions and source not in have and (loops(source) or is_free(source)):
                        emit(Region.of([source]), open_=(*open_, region))
            outside = {i for n in region.members for i in n.all_input_nodes} - set(region.members)
            assert outside <= have, f"{outside - have} come after the readers of {region.members}"
            have.update(region.members)

        for node in nodes:
            if node not in regions and node not in have:
                for source in node.all_input_nodes:
                    if source not in have:
                        emit(regions[source])
                have.add(node)
        assert any(len(r.computed) > 2 for r in regions.values())


def test_a_region_reads_a_loop_that_comes_later():
    """`late` is in no region. A region reads it and runs before the second product, which comes before `late`."""

    def f(x, p, w):
        a = x @ w * 2 + 1
        b, late = a @ w, p.exp()
        return b, a * late, w @ late

    gm = trace(f, (64, 32), (32,), (32, 32))
    lines = [line for line in import_graph(gm.graph, fused=True)[0].splitlines() if "comm.compute" in line]
    at = {name: i for name in ("exp", "mul_1", "mm_1") for i, line in enumerate(lines) if f'"{name}"' in line}
    assert at["exp"] < at["mul_1"] < at["mm_1"] and "(%mm, %exp)" in lines[at["mul_1"]], lines
    assert sum('loc("exp")' in line for line in lines) == 1


def test_constants_that_kernels_make_anew_take_no_memory():
    """A scatter copies its first argument, so it starts from zeros that are never in memory. A product reads memory."""

    def f(v, x):
        zeros = [torch.full((64, 64), 0.0) for _ in range(5)]
        zeros[3].add_(1)
        scattered = zeros[0].scatter(1, v.long(), v)
        return scattered.exp(), zeros[1] + x, x @ zeros[2], zeros[3] + x, zeros[4]

    gm = trace(f, (64, 1), (64, 64))
    for fused, empty in ((True, 2), (False, 0)):
        text = import_graph(gm.graph, fused=fused)[0]
        made = [line for line in text.splitlines() if "aten.full.default" in line]
        assert ["<0xf32>" in line for line in made] == [k < empty for k in range(5)], made
        assert text.count("tensor<0xf32>") == (4 if fused else 0)  # They are results and operands.


def test_sizes_that_are_symbols_are_in_no_region():
    gm = trace(lambda x: (x.sum((0, 1)), (x + 1).exp().sum((0, 1))), (8, 4), symbolic=True)
    sums = [n for n in gm.graph.nodes if n.target is aten.sum.dim_IntList]
    assert sums and all(n.meta["val"].shape == () for n in sums)  # Only what they read has symbols.
    assert not find_regions(in_levels(gm.graph), lambda node: 0)
    assert len(_costs(gm)[0]) == len(_costs(gm, fused=True)[0]) == 4


def test_loops_that_fit_together():
    rows, sums, all_ = Space(64), Space(64, 32, True, True), Space(64 * 32)
    assert together(all_, sums, False, False) == sums  # A reduction computes its elements,
    assert together(sums, all_, False, False) == sums  # and what uses its result for each element,
    assert together(sums, rows, False, False) == sums  # or for each row, follows.
    assert together(sums, Space(32, 64, True, True), False, True) is None
    across = Space(32, 64, False, True)
    assert together(across, all_, True, True) is None and together(all_, across, False, False) is None
    assert together(all_, across, False, True) == across
    assert together(rows, all_, False, True) is None and together(rows, all_, True, True) == all_
    assert together(Space(64, ends=True), rows, True, True) is None


@pytest.mark.parametrize("fused", [False, True])
def test_no_estimate_is_lost_in_a_region(fused):
    """Answers for pointwise nodes, reductions, views and elements count, also if the others have none."""

    def f(x, w):
        y = _norm(x, w).view(-1)
        variance, mean = torch.var_mean(x + 1, -1)
        return y, y.exp() + 1, variance * mean, torch.split(x.exp() * 2, 8)

    gm = trace(f, (64, 32), (32,))
    calls = [n for n in gm.graph.nodes if n.op == "call_function"]
    assert any(is_free(n) for n in calls)
    assert _costs(gm, fused=fused, runtime_estimation=lambda n, override_bytes=None: 0.001)[1] == (
        0,
        0,
        1000 * len(calls),
    )
    for seed in range(20):
        known = set(random.Random(seed).sample(calls, 6))
        estimation = lambda n, override_bytes=None: 0.001 if n in known else None
        costs, total = _costs(gm, fused=fused, runtime_estimation=estimation)
        assert total[2] == 6000 and total[1] > 0


def test_the_option_switches_regions_off(world):
    def f(x, w, v):
        full = c10d.wait_tensor(c10d.all_gather_into_tensor(v, RANKS, world))
        return _norm(x, w) @ full

    gm = lambda: trace(f, (4096, 1024), (1024,), (128, 1024))
    spans = []
    for options in ({}, {"fusion": False}):
        _, report = ct.schedule_overlap(gm(), **options)
        spans.append(report["makespan_ns"]["before"])
    moved = 4 * (2 * 4096 * 1024 + 1024)
    alone = 4 * (14 * 4096 * 1024)  # The order of magnitude: six operators, most of which read and write everything.
    assert spans[1] - spans[0] > (alone - moved) / 3015 * 0.5


@pytest.mark.parametrize("model", fusion_models.MODELS)
def test_regions_are_about_as_many_as_inductors_kernels(model):
    """The whole count, products included, against Inductor's, for forward and backward graphs."""
    for direction, gm in fusion_models.graphs(model).items():
        regions, alone, kernels = _counted(gm, direction == "bw")
        assert abs(regions - kernels) <= 0.45 * kernels, (model, direction, regions, kernels)
        assert abs(regions - kernels) < 0.35 * abs(alone - kernels), (model, direction, regions, alone, kernels)


def _counted(gm, backward):
    """The kernels that are predicted with and without regions, and those of Inductor. No code is compiled."""
    import torch._inductor.config as ic
    from torch._inductor.scheduler import Scheduler

    from commsched.torch.inductor.kernel_order import is_kernel

    original, counts = Scheduler.compute_last_usage, []

    def look(graph):
        counts.extend(len(_costs(graph.owning_module, **o)[0]) for o in ({"fused": True}, {"fusion": False}))

    def last(scheduler):
        original(scheduler)
        counts.append(sum(map(is_kernel, scheduler.nodes)))

    settings = {"force_disable_caches": True, "force_pointwise_cat": True, "post_grad_custom_post_pass": look}
    with mock.patch.object(Scheduler, "compute_last_usage", last), ic.patch(settings):
        fusion_models.compile_without_code(gm, backward)
    return counts


def _flops(gm, name):
    line = next(line for line in ct.export_mlir(gm).splitlines() if f'"{name}' in line)
    return int(re.search(r"flops = (\d+)", line)[1])


@pytest.mark.parametrize("rows, cols", [(64, 64), (64, 128), (128, 64)])
def test_causal_attention_computes_what_the_mask_shows(rows, cols):
    def f(causal):
        call = lambda q, k, v: aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)[0]
        return trace(call, (2, 4, rows, 16), (2, 4, cols, 16), (2, 4, cols, 16))

    name = "aten._scaled_dot_product_flash_attention_for_cpu"
    shown = sum(i >= j for i in range(rows) for j in range(cols))
    assert _flops(f(False), name) == 2 * 4 * 2 * 2 * rows * cols * 16
    assert _flops(f(True), name) == 2 * 4 * 2 * 2 * shown * 16


def test_causal_flex_attention_computes_half():
    from test_odd_graphs import captured
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v = (torch.randn(1, 2, 128, 16) for _ in range(3))
    whole = 2 * 2 * 2 * 128 * 128 * 16
    masks = {
        lambda b, h, i, j: i >= j: 129 / 256,
        lambda b, h, i, j: (i >= j) & (i - j <= 64): 129 / 256,  # The window is not known to be one.
        lambda b, h, i, j: i - j <= 64: 1,
    }
    for mask, part in masks.items():
        blocks = create_block_mask(mask, 1, 1, 128, 128, device="cpu")
        (gm,) = captured(lambda q, k, v, blocks=blocks: flex_attention(q, k, v, block_mask=blocks), q, k, v)
        assert _flops(gm, "flex_attention") == round(whole * part)


def test_scaled_products_are_counted():
    with FakeTensorMode():
        x, w = (torch.empty(s, dtype=torch.float8_e4m3fn) for s in ((64, 32), (32, 48)))
        one = torch.ones(())
    gm = make_fx(lambda x, w, a, b: aten._scaled_mm(x, w, a, b))(x, w.t().contiguous().t(), one, one)
    assert _flops(gm, "aten._scaled_mm") == 2 * 64 * 32 * 48


def test_bags_and_losses_read_what_they_use():
    rows, width, used, batch = 1000, 16, 40, 10

    def bag(table, at, offsets):
        return aten._embedding_bag(table, at, offsets)[0]

    with FakeTensorMode():
        table = torch.empty(rows, width)
        at, offsets = torch.empty(used, dtype=torch.int64), torch.empty(batch, dtype=torch.int64)
        scores, labels = torch.empty(batch, 100), torch.empty(batch, dtype=torch.int64)
    (cost,), _ = _costs(make_fx(bag)(table, at, offsets))
    assert 4 * width * used <= cost[1] < 4 * width * rows
    loss = make_fx(lambda x, y: aten.nll_loss_forward(x, y, None, 1, -100)[0])(scores, labels)
    (cost,), _ = _costs(loss)
    assert 8 * batch <= cost[1] < 4 * 100 * batch
