# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Each level of the last gate finds each kind of race, and no all-reduce writes an argument whose sum is returned."""

from unittest import mock

import pytest

torch = pytest.importorskip("torch")

from conftest import trace

import commsched.torch as ct
from commsched.torch.inductor import gate, gloo_lists, in_place, kernel_gate
from commsched.torch.semantics import effects

aten, c10d = torch.ops.aten, torch.ops._c10d_functional


def nodes(graph, target):
    return graph.find_nodes(op="call_function", target=target)


def test_a_write_of_what_a_collective_fills_is_a_race(world):
    def f(x):
        flying = c10d.all_gather_into_tensor(x, 8, world)
        landed = c10d.wait_tensor(flying)
        flying.add_(1)
        return landed

    graph = trace(f, (4, 4)).graph
    assert gate.races_of_graph(graph) == []
    (start,), (write,) = nodes(graph, c10d.all_gather_into_tensor.default), nodes(graph, aten.add_.Tensor)
    start.append(write)
    assert [r for r in gate.races_of_graph(graph) if f"{write.name} writes what {start.name} fills" in r]


def test_what_a_wait_gives_is_the_memory_of_its_start(world):
    def f(x):
        reduced = c10d.all_reduce(x, "sum", world)
        landed = c10d.wait_tensor(reduced)
        gathered = c10d.wait_tensor(c10d.all_gather_into_tensor(landed, 8, world))
        reduced.add_(1)
        return gathered

    graph = trace(f, (4, 4)).graph
    assert gate.races_of_graph(graph) == []
    _, wait = nodes(graph, c10d.wait_tensor.default)
    (write,) = nodes(graph, aten.add_.Tensor)
    write.append(wait)
    assert [r for r in gate.races_of_graph(graph) if f"{write.name} writes what all_gather_into_tensor reads" in r]


def test_an_element_of_a_list_flies_until_its_own_wait(world):
    def f(x, y):
        one, two = c10d.all_reduce_coalesced([x, y], "sum", world)
        a, b = c10d.wait_tensor(one), c10d.wait_tensor(two)
        y.add_(1)
        return a, b

    graph = trace(f, (4, 4), (4, 4)).graph
    assert gate.races_of_graph(graph) == []
    first, _ = nodes(graph, c10d.wait_tensor.default)
    first.append(*nodes(graph, aten.add_.Tensor))
    (race,) = gate.races_of_graph(graph)
    assert "reads until its wait" in race


def test_operands_that_are_reduced_in_place_together_are_not_one_memory(world):
    def f(x, y):
        first = c10d.wait_tensor(c10d.all_gather_into_tensor(x, 2, world))
        second = c10d.wait_tensor(c10d.all_gather_into_tensor(y, 2, world))
        one, two = c10d.all_reduce_coalesced_([first, second], "sum", world)
        return c10d.wait_tensor(one), c10d.wait_tensor(two)

    graph = trace(f, (4, 4), (4, 4)).graph
    starts, waits = nodes(graph, c10d.all_gather_into_tensor.default), nodes(graph, c10d.wait_tensor.default)
    starts[0].append(starts[1])  # Both are in flight.
    assert gate.races_of_graph(graph) == []
    # The second result is the memory of the second operand: nobody may write that before its wait.
    _, last = waits[2:]
    with graph.inserting_before(last):
        graph.call_function(aten.add_.Tensor, (waits[1], 1))
    assert len(gate.races_of_graph(graph)) == 1


@pytest.mark.parametrize("listed", [False, True])
def test_what_is_sent_may_be_read_and_not_written(world, listed):
    def f(x, y):
        if listed:
            sent, received = c10d.batch_p2p_ops(["isend", "irecv"], [1, 1], [0, 0], [x, y], world)
        else:
            sent, received = c10d.isend(x, 1, 0, world), c10d.irecv(y, 1, 0, world)
        read = x * 2
        c10d.wait_tensor(sent)
        x.add_(1)
        return read, c10d.wait_tensor(received) * 3

    graph = trace(f, (4, 4), (4, 4)).graph
    assert gate.races_of_graph(graph) == []
    read, other = nodes(graph, aten.mul.Tensor)
    (write,), (sent, _) = nodes(graph, aten.add_.Tensor), nodes(graph, c10d.wait_tensor.default)
    read.append(write)
    (race,) = gate.races_of_graph(graph)
    assert "add_ writes what" in race and "reads until its wait" in race
    sent.append(write)
    other.args = (graph.find_nodes(op="placeholder")[1], 3)
    read.append(other)
    (race,) = gate.races_of_graph(graph)
    assert "mul_1 reads what" in race and "fills until its wait" in race


@pytest.fixture(scope="module")
def starting():
    """An operator of somebody else that starts a gather, for the caller to wait for."""
    with torch.library._scoped_library("commsched_gate", "FRAGMENT") as library:
        library.define("start(Tensor x) -> Tensor")
        library.impl("start", lambda x: x.new_empty(8 * x.shape[0], *x.shape[1:]), "Meta")
        yield torch.ops.commsched_gate.start


def test_an_unknown_operator_whose_result_is_waited_for_is_a_start(world, starting):
    def f(x):
        y = x * 2
        landed = c10d.wait_tensor(starting(y))
        y.add_(1)
        return landed * 2

    gm = trace(f, (4, 4))
    assert gate.races_of_graph(gm.graph) == []
    assert ("wait_tensor", "add_") in {(a.name, b.name) for a, b in effects.edges(gm.graph)}
    (start,), (write,), (wait,), (_, read) = (
        nodes(gm.graph, t) for t in (starting.default, aten.add_.Tensor, c10d.wait_tensor.default, aten.mul.Tensor)
    )
    start.append(write)
    assert gate.races_of_graph(gm.graph) == ["add_ writes what start reads until its wait"]
    wait.append(write)
    read.args = (start, 2)
    start.append(read)
    assert gate.races_of_graph(gm.graph) == ["mul_1 reads what start fills until its wait"]


def test_a_collective_in_place_on_the_result_of_an_unknown_operator_is_the_start(world, starting):
    def f(x):
        y = x * 2
        total = c10d.all_reduce_(starting(y), "sum", world)
        y.add_(1)
        return c10d.wait_tensor(total)

    graph = trace(f, (4, 4)).graph
    assert gate.races_of_graph(graph) == []
    view = lambda x: c10d.wait_tensor(x.t())  # PyTorch's operators start nothing.
    assert gate.races_of_graph(trace(view, (4, 4)).graph) == []


def test_a_write_is_scheduled_behind_the_wait_for_what_an_unknown_operator_started(world, starting):
    """The write has to come early for the gather behind it, which is exposed otherwise."""

    def f(x, w):
        y = x * 2
        flying = starting(y)
        product = w @ w
        landed = c10d.wait_tensor(flying)
        y.add_(1)
        gathered = c10d.wait_tensor(c10d.all_gather_into_tensor(y, 8, world))
        return landed.sum() + product.sum() + gathered.sum()

    gm, _ = ct.schedule_overlap(trace(f, (1024, 1024), (2048, 2048)), memory_budget_ratio=4.0)
    names = [n.name for n in gm.graph.nodes]
    assert names.index("wait_tensor") < names.index("add_")
    assert names.index("all_gather_into_tensor") < names.index("mm")


# Which operands a graph inside of a call writes, given its inputs p and q and something of its own.
INSIDE = {
    "nothing": ("", lambda g, p, q, own: own),
    "its own": ("", lambda g, p, q, own: g.call_function(aten.add_.Tensor, (own, 1))),
    "the other operand": ("", lambda g, p, q, own: g.call_function(aten.copy_.default, (q, own))),
    "the operand": ("writes", lambda g, p, q, own: g.call_function(aten.copy_.default, (p, own))),
    "a view of the operand": (
        "writes",
        lambda g, p, q, own: g.call_function(aten.zero_.default, (g.call_function(aten.t.default, (p,)),)),
    ),
}


@pytest.mark.parametrize("what", INSIDE)
@pytest.mark.parametrize("known", [True, False])
def test_a_call_with_a_graph_writes_what_the_graph_writes(world, what, known):
    from torch._inductor.fx_passes.control_dependencies import control_deps

    def f(x, y):
        return c10d.wait_tensor(c10d.all_gather_into_tensor(x, 8, world)), y + 1

    gm = trace(f, (4, 4), (4, 4))
    x, y = gm.graph.find_nodes(op="placeholder")
    inner = torch.fx.Graph()
    p, q = inner.placeholder("p"), inner.placeholder("q")
    own = inner.call_function(aten.mul.Tensor, (q, 2))
    race, write = INSIDE[what]
    inner.output(write(inner, p, q, own))
    with x.meta["val"].fake_mode:
        for node in inner.nodes:  # Without views, every value is a tensor of its own.
            node.meta["val"] = torch.empty(4, 4)
    gm.add_module("inner", torch.fx.GraphModule({}, inner))
    (wait,) = nodes(gm.graph, c10d.wait_tensor.default)
    with gm.graph.inserting_before(wait):
        held = gm.graph.get_attr("inner")
        operands = (x, y) if known else (x, y, y)  # No input of the graph stands for the third one.
        call = gm.graph.call_function(control_deps, ((), held, *operands))
    call.meta["val"] = y.meta["val"]
    if not known:
        race = race or ("writes" if what == "the other operand" else "")
    races = gate.races_of_graph(gm.graph)
    assert [f"{call.name} writes what all_gather_into_tensor reads" in r for r in races] == [True] * bool(race)


@pytest.mark.parametrize("returned", [False, True])
def test_an_argument_whose_sum_is_returned_is_not_reduced_in_place(world, returned):
    def f(x):
        total = c10d.wait_tensor(c10d.all_reduce(x, "sum", world))
        x.copy_(total)
        return total if returned else (total * 2).sum()

    graph = trace(f, (4, 4)).graph
    assert in_place.reduce_in_place(graph) == (not returned)


# gloo fills all results of a reduced and scattered list again at each wait.


def _list_with_a_write(world, backend):
    def f(x, y):
        one, two = c10d.reduce_scatter_tensor_coalesced([x, y], "sum", 2, world)
        a, b = c10d.wait_tensor(one), c10d.wait_tensor(two)
        return a, b.add_(1)

    graph = trace(f, (4, 4), (4, 4)).graph
    first, second = nodes(graph, c10d.wait_tensor.default)
    (write,) = nodes(graph, aten.add_.Tensor)
    write.append(first)  # The order that Inductor makes if `a` is only returned.
    with mock.patch("torch.distributed.distributed_c10d.get_backend", return_value=backend):
        races = gate.races_of_graph(graph)
        gloo_lists.join_waits(graph)
        return graph, races, gate.races_of_graph(graph)


def test_results_of_a_list_of_gloo_are_not_written_before_its_last_wait(world):
    graph, races, after = _list_with_a_write(world, "cpu:gloo,cuda:nccl")
    assert [r for r in races if r.startswith("add_ writes what each wait for a result of reduce_scatter")]
    second, first = nodes(graph, c10d.wait_tensor.default)
    assert after == [] and second.next is first
    graph.lint()


def test_lists_of_other_backends_land_element_by_element(world):
    graph, races, after = _list_with_a_write(world, "nccl")
    _, first = nodes(graph, c10d.wait_tensor.default)
    assert races == after == [] and first.prev.target is aten.add_.Tensor


# Inductor's objects are made by a compilation alone. These stand for them, with the attributes that the gate reads.


def buffer(name):
    from torch._inductor import ir

    made = mock.Mock(spec=ir.IRNode)
    made.get_name.return_value = name
    return made


def kernel(kind, name, operand):
    """A collective that reads `operand` and fills `name`, or the wait for it."""
    made = mock.Mock(spec=kind)
    made.get_name.return_value = name
    made.inputs, made.outputs = [buffer(operand)], [buffer(name)]
    made.mutation_outputs, made.op_overload = [], None
    return made


def reuse(old, new):
    from torch._inductor.codegen import wrapper

    made = mock.Mock(spec=wrapper.ReuseLine)
    made.node, made.reused_as = buffer(old), buffer(new)
    return made


def call(node):
    from torch._inductor.codegen import wrapper

    made = mock.Mock(spec=wrapper.ExternKernelAllocLine)
    made.node = node
    return made


def test_memory_of_a_collective_in_flight_is_not_given_away():
    from torch._inductor import ir

    start = call(kernel(ir._CollectiveKernel, "gathered", "operand"))
    wait = call(kernel(ir._WaitKernel, "landed", "gathered"))
    assert kernel_gate.races_of_code([start, wait, reuse("operand", "other")]) == []
    assert kernel_gate.races_of_code([start, reuse("unrelated", "other"), wait]) == []
    assert kernel_gate.races_of_code([start, reuse("operand", "other"), wait]) == [
        "other writes what gathered reads until its wait"
    ]
    assert kernel_gate.races_of_code([start, reuse("gathered", "other"), wait]) == [
        "other writes what gathered fills until its wait"
    ]


def scheduled(node, reads=(), mutates=()):
    """A node of Inductor's scheduler."""
    leaf = mock.Mock()
    leaf.node = node
    leaf.get_nodes.return_value = [leaf]
    name = node.get_name()
    leaf.get_name.return_value = name
    out = mock.Mock()
    out.get_name.return_value, out.get_mutations.return_value, out.get_aliases.return_value = name, list(mutates), []
    leaf.get_outputs.return_value = [out]
    leaf.read_writes.reads, leaf.read_writes.writes = [mock.Mock() for _ in reads], [mock.Mock()]
    for dependence, read in zip(leaf.read_writes.reads, reads):
        dependence.name = read
    leaf.read_writes.writes[0].name = name
    return leaf


def test_kernels_leave_the_memory_of_collectives_in_flight_alone():
    from torch._inductor import ir
    from torch._inductor.virtualized import V

    start = scheduled(kernel(ir._CollectiveKernel, "gathered", "operand"))
    wait = scheduled(kernel(ir._WaitKernel, "landed", "gathered"))
    writes = scheduled(buffer("k"), mutates=["operand"])
    reads = scheduled(buffer("k"), reads=["gathered"])
    graph = mock.Mock()
    graph.scheduler.mutation_real_name = {}
    with V.set_graph_handler(graph):
        assert (
            kernel_gate.races_of_kernels([start, wait, writes])
            == kernel_gate.races_of_kernels([start, wait, reads])
            == []
        )
        assert kernel_gate.races_of_kernels([start, writes, wait]) == ["k writes what gathered reads until its wait"]
        assert kernel_gate.races_of_kernels([start, reads, wait]) == ["k reads what gathered fills until its wait"]


def test_a_kernel_of_an_unknown_operator_whose_result_is_waited_for_is_a_start(starting):
    from torch._inductor import ir
    from torch._inductor.virtualized import V

    start, known = (scheduled(kernel(ir.FallbackKernel, "gathered", "operand"), reads=["operand"]) for _ in range(2))
    start.node.op_overload, known.node.op_overload = starting.default, aten.cumsum.default
    wait = scheduled(kernel(ir._WaitKernel, "landed", "gathered"))
    writes, reads = scheduled(buffer("k"), mutates=["operand"]), scheduled(buffer("k"), reads=["gathered"])
    graph = mock.Mock()
    graph.scheduler.mutation_real_name = {}
    with V.set_graph_handler(graph):
        assert kernel_gate.races_of_kernels([start, wait, writes, reads]) == []
        assert kernel_gate.races_of_kernels([start, writes, wait]) == ["k writes what gathered reads until its wait"]
        assert kernel_gate.races_of_kernels([start, reads, wait]) == ["k reads what gathered fills until its wait"]
        assert kernel_gate.races_of_kernels([known, writes, reads, wait]) == []


def test_kernels_that_reduce_operands_in_place_together_do_not_make_them_one_memory():
    from torch._inductor import ir
    from torch._inductor.virtualized import V

    start = scheduled(kernel(ir._CollectiveKernel, "packed", "first"))
    start.node.outputs, start.node.inputs = [], [buffer("first"), buffer("second")]
    packed = start.get_outputs()[0]
    packed.get_aliases.return_value = ["first", "second"]
    outs = [packed]
    for operand in ("first", "second"):
        made = mock.Mock()
        made.get_name.return_value, made.get_mutations.return_value = f"{operand}_reduced", [operand]
        made.get_aliases.return_value, made.get_mutation_names.return_value = [], [operand]
        outs.append(made)
    start.get_outputs.return_value, start.node.mutation_outputs = outs, outs[1:]
    waits = [scheduled(kernel(ir._WaitKernel, f"{operand}_landed", operand)) for operand in ("first", "second")]
    write = scheduled(buffer("k"), mutates=["first"])
    graph = mock.Mock()
    graph.scheduler.mutation_real_name = {}
    with V.set_graph_handler(graph):
        assert kernel_gate.races_of_kernels([start, waits[0], write, waits[1]]) == []
        assert kernel_gate.races_of_kernels([start, waits[1], write, waits[0]])
