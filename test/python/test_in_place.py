# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Writes in place beside collectives in flight: the schedule sees them, and the last gate checks the result."""

import os
import warnings

import pytest

torch = pytest.importorskip("torch")

import torch._inductor.config as ic
import torch.distributed as dist
from conftest import trace

import commsched.torch as ct
import gloo
from commsched.torch.apply.snapshot import Snapshot
from commsched.torch.inductor import gate, hooks, in_place, kernel_gate, passes

aten, c10d = torch.ops.aten, torch.ops._c10d_functional
ATEN = dict(fx_graph_cache=False, fallback_by_default=True, allow_buffer_reuse=False, inplace_buffers=False)


def _text(graph):
    return [(n.name, n.target, str(n.args), str(n.kwargs)) for n in graph.nodes]


# Programs that write their arguments beside collectives. Each waits at once, so that running it eagerly is no race.


def _gathered(x):
    return c10d.wait_tensor(c10d.all_gather_into_tensor(x, 2, dist.group.WORLD.group_name))


def _reduced(x, operation):
    return c10d.wait_tensor(c10d.all_reduce(x, operation, dist.group.WORLD.group_name))


def gathered_then_written(x, w, cache, rows):
    everyone = _gathered(cache)
    y = x @ w
    cache[rows] = y
    return y, everyone


def written_then_reduced(x, w, cache, rows):
    gathered = _gathered(w)
    cache[0] = x.abs().amax(0) @ w
    largest = _reduced(cache, "max")
    return gathered @ w.t(), largest * 2


def custom_write(x, w, cache, rows):
    everyone = _gathered(cache)
    torch.ops.commsched_test.bump(cache, (x @ w)[:1].contiguous())
    return (everyone,)


def coalesced_then_written(x, w, cache, rows):
    both = c10d.all_reduce_coalesced([cache, x], "sum", dist.group.WORLD.group_name)
    one, two = map(c10d.wait_tensor, both)
    cache[rows] = x @ w
    return one, two @ w


def view_reduced_twice(x, w, cache, rows):
    one = _reduced(cache, "sum")
    two = _reduced(cache[2:], "max")
    cache[rows] = x @ w
    return one, two


PROGRAMS = [gathered_then_written, written_then_reduced, custom_write, coalesced_then_written, view_reduced_twice]


def _against_eager(rank, ranks, machines):
    @torch.library.custom_op("commsched_test::bump", mutates_args=("x",))
    def bump(x: torch.Tensor, y: torch.Tensor) -> None:
        x.add_(y)

    def data():
        torch.manual_seed(rank)
        return [torch.randn(32, 16), torch.randn(16, 64), torch.randn(64, 64), torch.arange(32, 64)]

    def run(f, arguments):
        results = f(*arguments)
        return [t.clone() for t in (*results, *arguments)]

    for program in PROGRAMS:
        expected = run(program, data())
        for machine in machines:
            torch._dynamo.reset()
            ct.reports()
            step = torch.compile(program, options={**ct.inductor_options(machine=machine), **ATEN})
            for got, wanted in zip(run(step, data()), expected):
                assert torch.allclose(got, wanted, rtol=1e-4, atol=1e-4), (program.__name__, machine)
            graphs = [r for r in ct.reports() if r["place"] == "graph"]
            assert graphs and all(r["collectives"] for r in graphs), (program.__name__, machine)


def test_written_arguments_are_those_of_eager():
    """In strict mode, a graph that the gate undoes fails as well: the schedule itself has to be right."""
    gloo.run(2, _against_eager, ["h100-sxm", "cpu-mpi"])


def list_then_reduced(x, w, cache, rows):
    group = dist.group.WORLD.group_name
    pieces = c10d.reduce_scatter_tensor_coalesced([cache, x.contiguous()], "sum", 2, group)
    one, two = map(c10d.wait_tensor, pieces)
    sums = c10d.all_reduce_coalesced([_gathered(x), two], "sum", group)
    return one, c10d.wait_tensor(sums[0]), c10d.wait_tensor(sums[1])


def _list_of_gloo(rank, ranks, fallback):
    torch.manual_seed(rank)
    arguments = [torch.randn(32, 16), None, torch.randn(64, 64), None]
    expected = list_then_reduced(*arguments)
    options = {**ct.inductor_options(machine="cpu-mpi"), **ATEN, "fallback_by_default": fallback}
    step = torch.compile(list_then_reduced, options=options)
    for _ in range(60):  # The wait that is late undoes the second sum in a tenth of the runs.
        for got, wanted in zip(step(*arguments), expected):
            assert torch.equal(got, wanted)


@pytest.mark.parametrize("fallback", [False, True])
def test_the_waits_for_a_list_of_gloo_undo_no_sum(fallback):
    gloo.run(2, _list_of_gloo, fallback)


def _gather_and_write(group):
    def f(x, cache):
        gathered = c10d.all_gather_into_tensor(cache, 8, group)
        whole = c10d.wait_tensor(gathered)
        written = aten.index_put_(cache, [torch.arange(4)], x)
        return whole, written

    return trace(f, (4, 16), (8, 16))


def _node(graph, target):
    (node,) = graph.find_nodes(op="call_function", target=target)
    return node


def test_the_gate_finds_a_write_under_a_gather(world):
    graph = _gather_and_write(world).graph
    assert gate.races_of_graph(graph) == []
    wait, write = _node(graph, c10d.wait_tensor.default), _node(graph, aten.index_put_.default)
    write.append(wait)
    (race,) = gate.races_of_graph(graph)
    assert f"{write.name} writes what all_gather_into_tensor" in race


def test_the_gate_finds_a_read_before_the_wait(world):
    def f(x):
        reduced = c10d.all_reduce_(x * 2, "sum", world)
        return c10d.wait_tensor(reduced), reduced + 1

    graph = trace(f, (4, 4)).graph
    assert gate.races_of_graph(graph) == []
    add, wait = _node(graph, aten.add.Tensor), _node(graph, c10d.wait_tensor.default)
    wait.prepend(add)
    assert [r for r in gate.races_of_graph(graph) if r.startswith("add reads what all_reduce_")]


def test_the_size_of_what_is_in_flight_may_be_asked_for(world):
    graph = trace(lambda x: c10d.wait_tensor(c10d.all_gather_into_tensor(x, 8, world)), (4, 4)).graph
    gathered = _node(graph, c10d.all_gather_into_tensor.default)
    with graph.inserting_after(gathered):
        graph.call_function(aten.sym_size.int, (gathered, 0))
    assert gate.races_of_graph(graph) == []
    with graph.inserting_after(gathered):
        graph.call_function(aten.add.Tensor, (gathered, 1)).meta["val"] = gathered.meta["val"] + 1
    assert len(gate.races_of_graph(graph)) == 1


def test_the_gate_finds_a_second_reduction_of_a_view_in_flight(world):
    def f(x):
        y = x * 2
        one = c10d.all_reduce(y, "sum", world)
        whole = c10d.wait_tensor(one)
        two = c10d.wait_tensor(c10d.all_reduce_(y[1:], "sum", world))
        return whole, two

    graph = trace(f, (4, 4)).graph
    assert gate.races_of_graph(graph) == []
    first, second = graph.find_nodes(op="call_function", target=c10d.wait_tensor.default)
    second.prepend(first)
    assert any("all_reduce_" in r and "writes what all_reduce reads" in r for r in gate.races_of_graph(graph))


def test_elements_of_a_list_land_one_by_one(world):
    def f(x, y):
        one, two = c10d.all_reduce_coalesced([x, y], "sum", world)
        a = c10d.wait_tensor(one)
        x.add_(1)
        b = c10d.wait_tensor(two)
        return a, b

    graph = trace(f, (4, 4), (4, 4)).graph
    assert gate.races_of_graph(graph) == []
    _node(graph, c10d.all_reduce_coalesced.default).append(_node(graph, aten.add_.Tensor))
    assert len(gate.races_of_graph(graph)) == 1


def test_a_reduction_is_in_place_only_if_nothing_else_touches_its_operand(world):
    def f(x):
        free, read, viewed = x * 2, x * 3, x * 4
        a = c10d.wait_tensor(c10d.all_reduce(free, "sum", world))
        b = c10d.wait_tensor(c10d.all_reduce(read, "sum", world)) + read
        view = viewed[1:]
        c = c10d.wait_tensor(c10d.all_reduce(viewed, "sum", world))
        d = c10d.wait_tensor(c10d.all_reduce(x, "sum", world))
        return a, b, c, view, d

    graph = trace(f, (4, 4)).graph
    starts = graph.find_nodes(op="call_function", target=c10d.all_reduce.default)
    assert in_place.reduce_in_place(graph) == 1
    assert [s.target is c10d.all_reduce_.default for s in starts] == [True, False, False, False]
    assert gate.races_of_graph(graph) == []


@pytest.mark.parametrize("late", [False, True])
def test_a_gather_in_flight_keeps_a_reduction_from_being_in_place(world, late):
    def f(x):
        y = x * 2
        gathered = c10d.all_gather_into_tensor(y, 8, world)
        whole = c10d.wait_tensor(gathered)
        reduced = c10d.wait_tensor(c10d.all_reduce(y, "sum", world))
        return whole, reduced

    graph = trace(f, (4, 4)).graph
    whole, reduced = graph.find_nodes(op="call_function", target=c10d.wait_tensor.default)
    if late:
        reduced.append(whole)
    assert in_place.reduce_in_place(graph) == (not late)


def test_an_argument_is_reduced_in_place_only_if_the_sum_is_copied_back(world):
    def f(x, y):
        a = c10d.wait_tensor(c10d.all_reduce(x, "sum", world))
        x.copy_(a)
        b = c10d.wait_tensor(c10d.all_reduce(y, "sum", world))
        y.copy_(b + 1)
        return (b * 2,)

    graph = trace(f, (4, 4), (4, 4)).graph
    one, two = graph.find_nodes(op="call_function", target=c10d.all_reduce.default)
    assert in_place.reduce_in_place(graph) == 1
    assert one.target is c10d.all_reduce_.default and two.target is c10d.all_reduce.default


def test_a_reduction_of_a_view_with_gaps_keeps_the_strides_of_its_result(world):
    def f(x, y):
        gaps, dense = (x * 2)[:, :2], (y * 2).t()
        a = c10d.wait_tensor(c10d.all_reduce(gaps, "sum", world))
        b, c = map(c10d.wait_tensor, c10d.all_reduce_coalesced([dense, (y * 3)[:, 1:]], "sum", world))
        d = c10d.wait_tensor(c10d.all_reduce((y * 4)[1:], "sum", world))
        return a, b, c, d

    graph = trace(f, (4, 4), (4, 4)).graph
    assert in_place.reduce_in_place(graph) == 1
    (start,) = graph.find_nodes(op="call_function", target=c10d.all_reduce_.default)
    assert start.args[0].meta["val"].is_contiguous() and start.args[0].meta["val"].shape == (3, 4)


@pytest.mark.parametrize("times", [1, 2])
def test_a_snapshot_brings_erased_and_changed_nodes_back(world, times):
    gm = _gather_and_write(world)
    graph = gm.graph
    before = _text(graph)
    snapshot = Snapshot(graph)
    wait, start = _node(graph, c10d.wait_tensor.default), _node(graph, c10d.all_gather_into_tensor.default)
    with graph.inserting_before(graph.output_node()):
        other = graph.call_function(aten.clone.default, (start.args[0],))
    wait.replace_all_uses_with(other)
    graph.erase_node(wait)
    graph.erase_node(start)
    assert _text(graph) != before
    # The last gate takes back what the gate of the graph has taken back: the nodes, that is, and no others like them.
    snapshot.restore()
    for _ in range(1, times):
        nodes = list(graph.nodes)
        snapshot.restore()
        assert list(graph.nodes) == nodes
    after = _text(graph)
    assert [(t, len(a) > 2) for _, t, a, _ in after] == [(t, len(a) > 2) for _, t, a, _ in before]
    assert gate.races_of_graph(graph) == []
    graph.lint()


def _stopped_once(where):
    """Lets a gate of this process find a fault the first time, and survive it. Returns what it is asked about."""
    os.environ["COMMSCHED_STRICT"] = "0"
    calls = []

    def planted(things):
        calls.append(things)
        return ["k writes what c reads until its wait"] if len(calls) == 1 else []

    setattr(gate if where == "races_of_graph" else kernel_gate, where, planted)
    return calls


def _undone(rank, ranks, where):
    """A schedule that breaks the rule never runs: the order of PyTorch or Inductor does, and one warning says so."""
    calls = _stopped_once(where)
    torch.manual_seed(rank)
    data = [torch.randn(32, 16), torch.randn(16, 64), torch.randn(64, 64), torch.arange(32, 64)]
    again = [d.clone() for d in data]
    expected = gathered_then_written(*again)
    how = ATEN if where == "races_of_graph" else dict(fx_graph_cache=False)  # Only real code has collective kernels.
    step = torch.compile(gathered_then_written, options={**ct.inductor_options(machine="h100-sxm"), **how})
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        got = step(*data)
    for g, e in zip([*got, *data], [*expected, *again]):
        torch.testing.assert_close(g, e, rtol=1e-4, atol=1e-4)
    told = [str(w.message) for w in seen if "k writes what c reads" in str(w.message)]
    assert len(calls) > 1 and len(told) == 1 and "'s order" in told[0], told


@pytest.mark.parametrize("where", ["races_of_graph", "races_of_kernels", "races_of_code"])
def test_what_the_gate_stops_is_compiled_in_the_order_of_pytorch(where):
    gloo.run(2, _undone, where)


def _undone_with_other_sizes(rank, ranks, where):
    """Ranks exchange other numbers of rows. All of them keep PyTorch's order, which is one decision for all."""
    calls = _stopped_once(where)

    def exchanged(x, w):
        gives, takes = ([1, 3], [1, 2]) if rank == 0 else ([2, 4], [3, 4])
        pieces = c10d.all_to_all_single(x[: sum(gives)].contiguous(), takes, gives, dist.group.WORLD.group_name)
        return c10d.wait_tensor(pieces).sum(0) + (x @ w), _gathered(w)

    x, w = torch.arange(32.0).view(8, 4) + rank, torch.ones(4, 4)
    expected = exchanged(x, w)
    how = ATEN if where == "races_of_graph" else dict(fx_graph_cache=False)
    step = torch.compile(exchanged, options={**ct.inductor_options(machine="h100-sxm"), **how})
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        got = step(x, w)
    assert all(map(torch.equal, got, expected)) and len(calls) > 1
    assert any("k writes what c reads" in str(w.message) for w in seen)


@pytest.mark.parametrize("where", ["races_of_graph", "races_of_code"])
def test_ranks_whose_schedules_are_undone_agree_although_sizes_differ(where):
    gloo.run(2, _undone_with_other_sizes, where)


def test_inductors_table_is_whole_again():
    from torch._inductor.fx_passes.reinplace import inplaceable_ops

    before = dict(inplaceable_ops)
    with in_place.functional_all_reduces():
        assert not set(in_place.IN_PLACE) & set(inplaceable_ops)
        with in_place.functional_all_reduces():
            pass
        assert not set(in_place.IN_PLACE) & set(inplaceable_ops)
    assert inplaceable_ops == before


def test_the_hooks_are_put_in_once():
    from torch._inductor import compile_fx

    hooks.install()
    first = compile_fx.post_grad_passes
    hooks.install()
    assert compile_fx.post_grad_passes is first and passes.hooks is hooks
    assert ic.post_grad_custom_post_pass is None
