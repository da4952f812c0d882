# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Memory that values share although fake tensors do not tell it, and operators that hold others."""

from unittest import mock

import pytest

torch = pytest.importorskip("torch")

from conftest import RANKS, trace
from test_odd_graphs import Builder, names_of, scheduled

import commsched.torch as ct
import gloo
from commsched.torch.semantics import effects, stale
from commsched.torch.semantics.operators import STARTS, spec_of

aten, c10d = torch.ops.aten, torch.ops._c10d_functional


def _rewritten(world):
    """A graph in which a pattern pass replaced cat(split(buf)) by buf, and left the fake tensor of its view alone."""

    def f(buf, w, x):
        a, b = buf.split([2, 2], 1)
        old = torch.cat([a, b], 1).view(-1)
        full = c10d.wait_tensor(c10d.all_gather_into_tensor(w, RANKS, world))
        big = ((full @ full.t()) @ full).sum()
        out = old * big + x
        buf.copy_(buf + x.sum())
        return out

    gm = trace(f, (4, 4), (32, 64), (16,))
    cat = gm.graph.find_nodes(op="call_function", target=aten.cat.default)[0]
    cat.replace_all_uses_with(next(iter(gm.graph.nodes)))
    gm.graph.erase_node(cat)
    return gm


def _edge_names(gm):
    return {(a.name, b.name) for a, b in effects.edges(gm.graph)}


def test_the_check_does_not_believe_stale_storages(world):
    assert ("mul", "copy_") in _edge_names(_rewritten(world))


def test_stale_storages_are_brought_up_to_date(world):
    gm = _rewritten(world)
    assert [n.name for n in stale.stale_nodes(gm.graph)] == ["view"]
    assert stale.refresh(gm.graph) > 0 and not stale.stale_nodes(gm.graph)
    gm = _rewritten(world)
    scheduled(gm)
    order = names_of(gm)
    assert order.index("mul") < order.index("copy_")


def test_fresh_graphs_are_only_read(world):
    def f(x, w):
        a, b = (x @ c10d.wait_tensor(c10d.all_gather_into_tensor(w, RANKS, world)).t()).chunk(2, 1)
        y = a.permute(1, 0).reshape(-1)  # a copy
        z = torch.empty_like(b).copy_(b)
        return y, z.add_(1).view(-1), aten._unsafe_view(x, [64])

    gm = trace(f, (8, 8), (2, 8))
    assert not stale.stale_nodes(gm.graph) and stale.refresh(gm.graph) == 0


def test_nodes_without_fake_values(world):
    """A graph as PyTorch's asynchronous tensor parallelism leaves it."""

    def f(x, w):
        full = c10d.wait_tensor(c10d.all_gather_into_tensor(w, RANKS, world))
        return (x @ full).relu() + 1

    gm = trace(f, (8, 64), (8, 8))
    for n in gm.graph.nodes:
        if n.target in (aten.mm.default, aten.relu.default):
            del n.meta["val"]
    scheduled(gm)
    assert all("val" in n.meta for n in gm.graph.nodes if n.op == "call_function")


def test_a_view_by_schema_for_every_kind(world):
    def f(x, y):
        a, b = x.split([4, 4])
        c = y.unbind()[1]
        return a.t(), b.add_(1), c.view(2, 4), x.sum(), y.clone()

    gm = trace(f, (8, 8), (2, 8))
    shared = effects.Aliases(gm.graph)
    node = {n.name: n for n in gm.graph.nodes}
    x, y = next(iter(shared.of(node["x_1"]))), next(iter(shared.of(node["y_1"])))
    of = {n: shared.of(node[n]) for n in node if n != "output"}
    assert all(of[n] == {x} for n in ("split", "t", "add_") if n in of) and of["view"] == {y}
    assert x != y and of["sum_1"].isdisjoint({x, y}) and of["clone"].isdisjoint({x, y})


def test_operators_in_place_are_marked_or_listed():
    for name, start in STARTS.items():
        space, op = name.split("::")
        packet = getattr(getattr(torch.ops, space), op, None)
        if packet is None or not start.in_place:
            continue
        written = [a.name for a in packet.default._schema.arguments if a.alias_info and a.alias_info.is_write]
        assert written or name == "_c10d_functional::irecv"
        assert effects._signature(packet.default) == [0]


def test_elements_of_coalesced_collectives_in_place(world):
    """The result of a wait is the input's memory: a write of it follows the reads before."""

    def f(x, y, w):
        flying = c10d.all_reduce_coalesced_([x, y], "sum", world)
        first, second = c10d.wait_tensor(flying[0]), c10d.wait_tensor(flying[1])
        seen = first.sum() + c10d.wait_tensor(c10d.all_gather_into_tensor(w, RANKS, world)).sum()
        x.add_(1)
        return seen, second

    gm = trace(f, (8,), (8,), (4,))
    assert ("sum_1", "add_") in _edge_names(gm) and ("wait_tensor", "add_") in _edge_names(gm)
    scheduled(gm)


def _sum_of(x, y):
    """Inductor's patterns leave functions in a graph. Nobody knows whether one returns an operand."""
    return x + y


def _steps_with_functions(world):
    """Steps in which every sum of two tensors is going to be a function, and which write, or read, behind a wait."""

    def gathered(x):
        return c10d.wait_tensor(c10d.all_gather_into_tensor(x, RANKS, world))

    def the_result_is_written(x, y):
        r, g = x + y, gathered(x)
        return g, r.add_(1).exp()

    def the_operand_is_written(x, y):
        g = gathered(x + y)
        return g, x.add_(1).exp()

    def two_functions(x, y):
        g = gathered((x + y) + y)
        return g, x.add_(1).exp()

    def a_view(x, y):
        r, g = x + y, gathered(x)
        r[1:].add_(1)
        return g, r.exp()

    def reduced_in_place(x, y):
        g = c10d.wait_tensor(c10d.all_reduce_(x + y, "sum", world))
        return g, x.exp()

    def a_list(x, y):
        one, two = c10d.all_gather_into_tensor_coalesced([x + y, y * 2], RANKS, world)
        g = c10d.wait_tensor(one), c10d.wait_tensor(two)
        return g, x.add_(1).exp()

    def into_a_buffer(x, y):
        r = x.repeat(RANKS, 1) + y.repeat(RANKS, 1)
        flying = c10d.all_gather_into_tensor_out(y, RANKS, world, out=r)
        return c10d.wait_tensor(flying), x.exp()

    return [f for name, f in locals().items() if callable(f) and name != "gathered"]


@pytest.mark.parametrize("number", range(7))
def test_the_importer_reads_a_function_as_the_gate_does(world, number):
    """Whatever may be one memory is ordered as one memory, also while a collective is in flight."""
    from commsched.torch.inductor import gate

    gm = trace(_steps_with_functions(world)[number], (64, 64), (64, 64))
    for node in gm.graph.find_nodes(op="call_function", target=aten.add.Tensor):
        if isinstance(node.args[1], torch.fx.Node):
            node.target = _sum_of
    assert gate.races_of_graph(gm.graph) == []
    scheduled(gm)
    assert gate.races_of_graph(gm.graph) == []


class _Unknown(torch._ops.HigherOrderOperator):
    def __init__(self):
        super().__init__("commsched_test_unknown")

    def __call__(self, *args):
        return super().__call__(*args)


def test_an_unknown_higher_order_operator_keeps_its_order(world):
    b = Builder()
    x, w = b.input("x", 64), b.input("w", 64)
    first = b.call(b.tensor(64), _Unknown(), x)
    second = b.call(b.tensor(64), first.target, x)
    gm = b.module(first, second, b.gathered(w, world))
    assert (first.name, second.name) in _edge_names(gm)
    assert ct.export_mlir(gm).count("comm.pinned") == 2
    scheduled(gm)


def _inside(world, mutating=False):
    """A graph with control_deps around one call."""
    from torch._inductor.fx_passes.control_dependencies import control_deps

    b = Builder()
    x, y, w = b.input("x", 64), b.input("y", 64), b.input("w", 64)
    gathered = b.gathered(w, world)
    inner = torch.fx.Graph()
    p, q = inner.placeholder("p"), inner.placeholder("q")
    if mutating:
        inner.output(inner.call_function(aten.copy_.default, (p, q)))
    else:
        inner.output(inner.call_function(c10d.all_reduce.default, (p, "sum", world)))
    read = b.call(b.tensor(64), aten.cos.default, x)
    held = b.graph.get_attr("inner")
    call = b.call(x.meta["val"] if mutating else b.tensor(64), control_deps, (w,), held, x, y)
    after = b.call(b.tensor(64), aten.sin.default, x)
    b.graph.output((gathered, read, call, after))
    gm = torch.fx.GraphModule({"inner": torch.fx.GraphModule({}, inner)}, b.graph)
    return gm, read.name, call.name, after.name


def test_a_write_inside_of_control_deps(world):
    gm, read, call, after = _inside(world, mutating=True)
    assert {(read, call), (call, after)} <= _edge_names(gm)
    assert "mutates" in next(line for line in ct.export_mlir(gm).splitlines() if "control_deps" in line)
    scheduled(gm)


def test_a_collective_inside_of_a_subgraph(world):
    gm, _, call, _ = _inside(world)
    line = next(line for line in ct.export_mlir(gm).splitlines() if "control_deps" in line)
    assert "side_effects" in line and "comm.hybrid" in line
    waits = {n.name for n in gm.graph.nodes if spec_of(n).is_wait}
    assert {(w, call) for w in waits} <= _edge_names(gm)
    scheduled(gm)


@pytest.mark.filterwarnings("ignore:.*micro_pipeline_tp")
def test_asynchronous_tensor_parallelism(world):
    """PyTorch's pass that fuses products with their collectives runs right before CommSched's, in one compilation."""
    from torch._inductor.fx_passes.micro_pipeline_tp import micro_pipeline_tp_pass
    from torch.distributed._functional_collectives import all_gather_tensor, reduce_scatter_tensor
    from torch.distributed._symmetric_memory import _test_mode

    group = torch.distributed.group.WORLD

    def f(a, b, w, c):
        y = all_gather_tensor(a, 0, group) @ b @ all_gather_tensor(w, 0, group)
        return reduce_scatter_tensor(y @ c, "sum", 0, group)

    gm = trace(f, (64, 128), (128, 256), (32, 256), (256, 64))
    with _test_mode(), mock.patch("torch.distributed.is_nccl_available", lambda: True):  # A CPU build has the pass too.
        micro_pipeline_tp_pass(gm.graph)
    assert any(spec_of(n).name.startswith("symm_mem.") for n in gm.graph.nodes)
    assert any("val" not in n.meta for n in gm.graph.nodes if n.op == "call_function")
    scheduled(gm)


def _stale_in_inductor(rank, ranks):
    """Inductor itself finds the pattern above. The values have to be those of plain Inductor."""
    import torch._inductor.config as ic

    group = torch.distributed.group.WORLD.group_name

    def f(buf, w, x):
        a, b = buf.split([2, 2], 1)
        old = torch.cat([a, b], 1).view(-1)
        buf.add_(x.sum())
        full = c10d.wait_tensor(c10d.all_gather_into_tensor(w, ranks, group))
        big = full
        for _ in range(3):
            big = (big @ full.t() @ full) * 1e-3
        return old * big.sum() + x

    def run(f):
        torch.manual_seed(rank)
        buf = torch.full((4, 4), 3.0)
        return f(buf, torch.randn(32, 64), torch.randn(16)), buf

    with ic.patch(force_disable_caches=True, fallback_by_default=True):
        expected = run(torch.compile(f))
        torch._dynamo.reset()
        with ct.enabled(machine="cpu-mpi", memory_budget_ratio=1.0):
            got = run(torch.compile(f))
    assert "graph" in [r["place"] for r in ct.reports()]
    assert all(map(torch.equal, expected, got))


def test_a_pattern_of_inductor_keeps_its_values():
    gloo.run(2, _stale_in_inductor)
