# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Waits for what has landed, results of starts beside their waits, and unsorted graphs, as sharding libraries write
them, cost nobody a schedule."""

import operator
import warnings

import pytest

torch = pytest.importorskip("torch")

from conftest import trace

import commsched
import commsched.torch as ct
from commsched.torch.ranks import agreement
from commsched.torch.semantics import effects, landing

aten, c10d = torch.ops.aten, torch.ops._c10d_functional


def starts_and_waits(graph):
    found = {"starts": [], "waits": []}
    for node in graph.nodes:
        spec = effects.spec_of(node) if node.op == "call_function" else None
        if spec and (spec.start or spec.is_wait):
            found["waits" if spec.is_wait else "starts"].append(node)
    return found["starts"], found["waits"]


def scheduled(gm, **options):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="CommSched")
        gm, report = ct.schedule_overlap(gm, memory_budget_ratio=4.0, **options)
    gm.graph.lint()
    return report


def exchange_and_gather(world, twice):
    """Counts are exchanged, and waited for again in front of their last reader."""

    def f(x, counts, a, b):
        h = x @ a
        landed = c10d.wait_tensor(c10d.all_to_all_single(counts, [1] * 8, [1] * 8, world))
        again = c10d.wait_tensor(landed)
        if twice:
            again = c10d.wait_tensor(again.view(2, 4)).view(8)
        whole = c10d.wait_tensor(c10d.wait_tensor(c10d.all_gather_into_tensor(b, 8, world)))
        return (h @ h.t()).sum() + (torch.cumsum(again, 0) - again).sum() + (h @ whole).sum()

    return trace(f, (1024, 1024), (8,), (1024, 1024), (128, 1024))


@pytest.mark.parametrize("passes", [(), ("comm-reorder-preserving-peak-memory",)])
@pytest.mark.parametrize("twice", [False, True])
def test_a_wait_of_a_wait_is_the_first_wait(world, passes, twice):
    gm = exchange_and_gather(world, twice)
    scheduled(gm, passes=passes)
    starts, waits = starts_and_waits(gm.graph)
    assert sorted(w.args[0].name for w in waits) == sorted(s.name for s in starts)


def test_a_wait_of_a_wait_is_imported_as_a_view(world):
    gm = exchange_and_gather(world, twice=True)
    nodes = [n.name for n in gm.graph.nodes]
    text = ct.export_mlir(gm)
    assert [n.name for n in gm.graph.nodes] == nodes
    assert text.count("comm.wait ") == 2
    views = [line for line in text.splitlines() if 'comm.compute "_c10d_functional.wait_tensor.default"' in line]
    assert len(views) == 3 and all("aliases [0]" in v and "mutates" not in v and "comm.cost" not in v for v in views)
    commsched.Program(text)


def test_a_wait_of_a_wait_orders_nothing_but_its_readers(world):
    gm = exchange_and_gather(world, twice=False)
    again = gm.graph.find_nodes(op="call_function", target=c10d.wait_tensor.default)[1]
    assert not [pair for pair in effects.edges(gm.graph) if again in pair]


def test_a_second_wait_for_one_start_reads_the_first(world):
    def f(x, y):
        flying = c10d.all_gather_into_tensor(x, 8, world)
        one, two = c10d.wait_tensor(flying), c10d.wait_tensor(flying)
        return one + 1, two * 2, y @ y

    gm = trace(f, (4, 4), (64, 64))
    assert ct.export_mlir(gm).count("comm.wait ") == 1
    scheduled(gm)
    _, (wait,) = starts_and_waits(gm.graph)
    assert {u.target for u in wait.users} == {aten.add.Tensor, aten.mul.Tensor}


def test_a_wait_for_a_collective_that_fills_landed_memory_is_a_wait(world):
    def f(x):
        landed = c10d.wait_tensor(c10d.all_reduce(x, "sum", world))
        again = c10d.wait_tensor(c10d.all_reduce_(landed, "sum", world))
        return again + 1

    gm = trace(f, (4, 4))
    scheduled(gm)
    assert [len(nodes) for nodes in starts_and_waits(gm.graph)] == [2, 2]


def test_elements_of_a_list_land_one_by_one(world):
    def f(x, y):
        a, b = c10d.all_gather_into_tensor_coalesced([x, y], 8, world)
        a = c10d.wait_tensor(c10d.wait_tensor(a))
        b = c10d.wait_tensor(b)
        return a + 1, c10d.wait_tensor(b) * 2

    gm = trace(f, (4, 4), (2, 4))
    scheduled(gm)
    _, waits = starts_and_waits(gm.graph)
    assert len(waits) == 2 and all(w.args[0].target is operator.getitem for w in waits)


def saved_starts(world, how):
    """Reductions that are saved by the name of the start, or of the wait."""

    def f(x, *gradients):
        saved = []
        for g in gradients:
            flying = c10d.reduce_scatter_tensor(g, "sum", 8, world)
            landed = c10d.wait_tensor(flying)
            saved.append(flying if how == "start" else landed)
            x = x + landed.sum()
        return x, *saved

    return trace(f, (64, 64), *[(64, 64)] * 4)


def test_a_start_that_is_saved_beside_its_wait_is_merged_like_others(world):
    gm = saved_starts(world, "start")
    landing.prepare(gm.graph)
    agreement.impose(gm.graph, (((0, 1, 2, 3), True),))
    (start,), _ = starts_and_waits(gm.graph)
    assert start.target is c10d.reduce_scatter_tensor.default
    saved = gm.graph.output_node().args[0][1:]
    assert len(set(saved)) == 4 and not any(n in saved for n in starts_and_waits(gm.graph)[0])
    gm.graph.lint()


def test_a_result_that_is_read_before_its_wait_keeps_its_reader(world):
    def f(x):
        flying = c10d.all_gather_into_tensor(x, 8, world)
        early = flying.view(-1)
        landed = c10d.wait_tensor(flying)
        late = flying.view(-1)
        return early, landed, late

    gm = trace(f, (4, 4))
    landing.prepare(gm.graph)
    (start,), (wait,) = starts_and_waits(gm.graph)
    early, late = gm.graph.find_nodes(op="call_function", target=aten.view.default)
    assert early.args[0] is start and late.args[0] is wait
    storage = late.meta["val"].untyped_storage()._cdata
    assert storage == wait.meta["val"].untyped_storage()._cdata


def test_a_start_with_several_readers_is_left_out_of_buckets(world):
    def f(x, y, z):
        flying = [c10d.all_gather_into_tensor(t, 8, world) for t in (x, y, z)]
        early = flying[0].view(-1)
        return early, *[c10d.wait_tensor(t) for t in flying]

    gm = trace(f, *[(4, 4)] * 3)
    report = scheduled(gm)
    assert report["buckets"] == [["all_gather_into_tensor_1", "all_gather_into_tensor_2"]]


def view_alone(world, x):
    return c10d.wait_tensor(c10d.all_reduce(x, "sum", world).view(-1)) + 1


def views_of_views(world, x):
    return c10d.wait_tensor(c10d.all_reduce(x, "sum", world).view(-1)[4:].view(-1, 2).t()) * 2


def pieces(world, x):
    first, _ = c10d.all_gather_into_tensor(x, 8, world).chunk(2)
    return c10d.wait_tensor(first) + first[:1]


def elements_of_a_list(world, x):
    one, two = c10d.all_reduce_coalesced([x, x * 2], "sum", world)
    return c10d.wait_tensor(two.view(-1)), c10d.wait_tensor(one[:1])


def a_view_and_the_whole(world, x):
    flying = c10d.all_reduce(x, "sum", world)
    part = c10d.wait_tensor(flying[:1])
    return part, c10d.wait_tensor(flying) + 1, c10d.wait_tensor(flying.view(-1)) * 2


@pytest.mark.parametrize(
    ("function", "waits"),
    [(view_alone, 1), (views_of_views, 1), (pieces, 1), (elements_of_a_list, 2), (a_view_and_the_whole, 1)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_wait_for_a_view_is_a_wait_for_what_is_viewed(world, function, waits):
    """What is in flight is one storage, so that waiting for a part of it lands the whole."""
    gm = trace(lambda x, y: (function(world, x), y @ y), (4, 8), (64, 64))
    shapes = [n.meta["val"].shape for n in gm.graph.output_node().all_input_nodes]
    scheduled(gm)
    starts, found = starts_and_waits(gm.graph)
    assert len(found) == waits
    for wait in found:
        value = wait.args[0]
        assert (value.args[0] if value.target is operator.getitem else value) in starts
        assert wait.meta["val"].shape == value.meta["val"].shape
    assert [n.meta["val"].shape for n in gm.graph.output_node().all_input_nodes] == shapes
    assert all(n in found or n.target is operator.getitem for start in starts for n in start.users)


def view_twice(world, x):
    flat = c10d.all_gather_into_tensor(x, 8, world).view(-1)
    return c10d.wait_tensor(flat) + 1, c10d.wait_tensor(flat) * 2


@pytest.mark.parametrize(
    ("function", "waits"),
    [
        (view_alone, 1),
        (view_twice, 1),
        (views_of_views, 1),
        (pieces, 1),
        (elements_of_a_list, 2),
        (a_view_and_the_whole, 1),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_wait_for_a_view_is_exported_as_it_is_scheduled(world, function, waits):
    gm = trace(lambda x: function(world, x), (4, 8))
    before, asked = gm.code, []
    text = ct.export_mlir(gm, runtime_estimation=lambda node, override_bytes=None: asked.append(node))
    assert gm.code == before and set(asked) <= set(gm.graph.nodes)
    commsched.Program(text)
    assert text.count("comm.wait ") == waits
    shapes = ["x".join(map(str, n.meta["val"].shape)) for n in gm.graph.output_node().all_input_nodes]
    returned = next(line for line in text.splitlines() if "return " in line)
    assert returned.split(" : ")[1].split(" loc")[0] == ", ".join(f"tensor<{s}xf32>" for s in shapes)
    for node in gm.graph.find_nodes(op="call_function", target=aten.add.Tensor):
        line = next(line for line in text.splitlines() if f'loc("{node.name}")' in line)
        read = ", ".join(f"tensor<{'x'.join(map(str, n.meta['val'].shape))}xf32>" for n in node.all_input_nodes)
        assert f": ({read}) -> " in line


def test_views_of_what_lands_are_merged_like_others(world):
    def f(x, y):
        one, two = (c10d.all_reduce(v, "sum", world).view(-1) for v in (x, y))
        return c10d.wait_tensor(one) + c10d.wait_tensor(two)

    gm = trace(f, (64, 64), (64, 64))
    assert scheduled(gm)["buckets"] == [["all_reduce", "all_reduce_1"]]


def unsorted(world):
    def f(x, w):
        whole = c10d.wait_tensor(c10d.all_gather_into_tensor(w, 8, world))
        return torch.relu(x @ x) @ whole

    gm = trace(f, (64, 64), (8, 64))
    relu = gm.graph.find_nodes(op="call_function", target=aten.relu.default)[0]
    gm.graph.find_nodes(op="placeholder")[-1].append(relu)
    assert not landing.is_sorted(gm.graph)
    return gm


def test_unsorted_graphs_are_scheduled(world):
    gm = unsorted(world)
    report = scheduled(gm)
    assert report["collectives"] == 1 and landing.is_sorted(gm.graph)


def test_unsorted_graphs_are_exported(world):
    text = ct.export_mlir(unsorted(world))
    assert "all_gather" in text
    commsched.Program(text)


def test_a_graph_in_order_with_one_wait_per_start_is_only_read(world):
    gm = saved_starts(world, "wait")
    assert landing.name_landed_results(gm.graph) == 0


def test_an_operator_without_an_overload_gets_that_which_its_arguments_mean(world):
    """Inductor's passes write `aten.clone`. A write of the copy is no write of what was copied."""

    def f(buffer, x):
        before = c10d.wait_tensor(c10d.all_reduce(x, "sum", world)) @ x
        copied = buffer.clone()
        copied.add_(before)
        return buffer * 1, buffer.select(0, 1) * 2, copied

    gm = trace(f, (4, 4), (4, 4))
    calls = {n.name: n for n in gm.graph.nodes if n.op == "call_function"}
    named = {name: n.target for name, n in calls.items()}
    for n in calls.values():
        if n.target.namespace == "aten":
            n.target = n.target.overloadpacket
    scheduled(gm)
    assert {name: n.target for name, n in calls.items()} == named
    assert (calls["add_"], calls["mul"]) not in effects.edges(gm.graph)


def test_a_call_that_fits_no_overload_stays(world):
    gm = trace(lambda x: x.clone(), (4, 4))
    (call,) = gm.graph.find_nodes(op="call_function", target=aten.clone.default)
    call.target, call.args = aten.clone, ("nothing such",)
    landing.name_overloads(gm.graph)
    assert call.target is aten.clone
