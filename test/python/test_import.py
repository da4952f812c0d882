# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""FX graphs become modules of comm operations. Every construct is imported, and the module parses."""

import math
import operator
import re

import pytest

torch = pytest.importorskip("torch")

from conftest import RANKS, trace, world_of

import commsched
import commsched.torch as ct
from commsched.torch.importer.mlir_text import groups_attribute

c10d = torch.ops._c10d_functional
aten = torch.ops.aten


def lines_of(text):
    """The operations without their locations. Indexed by the name of the location."""
    found = re.findall(r'^ +(.*) loc\("([^"]*)"(?:\("[^"]*"\))?\)$', text, re.M)
    return {name: line for line, name in found}


def exported(gm, **options):
    """The text of `gm`, which must parse, and its lines by location."""
    text = ct.export_mlir(gm, **options)
    commsched.Program(text)
    return text, lines_of(text)


def test_gather_and_wait(world):
    gm = trace(lambda x: c10d.wait_tensor(c10d.all_gather_into_tensor(x, RANKS, world)) + 1, (4, 8))
    text, ops = exported(gm)
    assert "comm.group @default_pg #comm.iota<[1, 8]>" in text
    assert ops["all_gather_into_tensor"].endswith(": (tensor<4x8xf32>) -> !comm.future<tensor<32x8xf32>>")
    assert ops["wait_tensor"] == "%wait_tensor = comm.wait %all_gather_into_tensor : !comm.future<tensor<32x8xf32>>"
    assert 'comm.compute "aten.add.Tensor"(%wait_tensor)' in ops["add"]
    assert "bytes = 2048" in ops["add"]


@pytest.mark.parametrize("reduction", ["sum", "avg", "product", "min", "max"])
def test_reductions(world, reduction):
    def f(x):
        y = c10d.wait_tensor(c10d.all_reduce(x, reduction, world))
        return c10d.wait_tensor(c10d.reduce_scatter_tensor(y, reduction, RANKS, world))

    _, ops = exported(trace(f, (16, 4)))
    assert ops["all_reduce"].startswith(f"%all_reduce = comm.all_reduce {reduction} %x_1 on @default_pg")
    assert "-> !comm.future<tensor<2x4xf32>>" in ops["reduce_scatter_tensor"]


def test_reduction_without_a_name_is_opaque(world):
    _, ops = exported(trace(lambda x: c10d.wait_tensor(c10d.all_reduce(x, "bxor", world)), (16,), dtype=torch.int32))
    assert "side_effects" in ops["all_reduce"] and "comm.hybrid = @default_pg" in ops["all_reduce"]


def test_fused_products_have_the_operations_of_the_product(world):
    """The flops of the products that PyTorch fuses with a collective, which comm-opt prices."""
    import torch.distributed._symmetric_memory  # registers the operators

    def f(a, b, part):
        scattered = torch.ops.symm_mem.fused_matmul_reduce_scatter(a, b, "sum", 0, world)
        _, products = torch.ops.symm_mem.fused_all_gather_matmul(part, [b, b], 0, world, return_A=False)
        return scattered, *products

    _, ops = exported(trace(f, (64, 32), (32, 16), (8, 32)))
    operations = 2 * 64 * 32 * 16
    assert f"flops = {operations}," in ops["fused_matmul_reduce_scatter"]
    assert f"flops = {2 * operations}," in ops["fused_all_gather_matmul"]
    assert all("comm.hybrid = @default_pg" in op for name, op in ops.items() if name.startswith("fused"))


def test_coalesced(world):
    def f(x, y):
        a, b = c10d.all_gather_into_tensor_coalesced([x, y], RANKS, world)
        return c10d.wait_tensor(a), c10d.wait_tensor(b)

    _, ops = exported(trace(f, (2, 3), (4,)))
    start = ops["all_gather_into_tensor_coalesced"]
    assert "comm.all_gather %x_1, %y_1" in start
    assert start.endswith("-> !comm.future<tensor<16x3xf32>, tensor<32xf32>>")
    # One future, and each of PyTorch's waits takes all of it.
    assert ops["wait_tensor"].startswith("%wait_tensor:2 = comm.wait %all_gather_into_tensor_coalesced")
    assert ops["wait_tensor_1"].startswith("%wait_tensor_1:2 = comm.wait")


def test_in_place_and_out(world):
    def f(x, y):
        x = c10d.wait_tensor(c10d.all_reduce_(x, "sum", world))
        out = torch.empty(RANKS * 4)
        return x + 1, c10d.wait_tensor(c10d.all_gather_into_tensor_out(y, RANKS, world, out=out))

    _, ops = exported(trace(f, (16,), (4,)))
    assert "comm.all_reduce sum %x_1 into %x_1 on" in ops["all_reduce_"]
    assert re.search(r"comm.all_gather %y_1 into %(empty|out)", ops["all_gather_into_tensor_out"])


def test_broadcast_and_all_to_all(world):
    def f(x, y):
        x = c10d.wait_tensor(c10d.broadcast(x, 3, world))
        even = c10d.wait_tensor(c10d.all_to_all_single(y, [2] * RANKS, [2] * RANKS, world))
        splits = [1, 3] + [2] * (RANKS - 2)
        return x, even, c10d.wait_tensor(c10d.all_to_all_single(y, splits, [2] * RANKS, world))

    _, ops = exported(trace(f, (16,), (16, 4)))
    assert "root 3" in ops["broadcast"]
    assert "splits" not in ops["all_to_all_single"]
    assert "input_splits [2, 2, 2, 2, 2, 2, 2, 2] output_splits [1, 3, 2" in ops["all_to_all_single_1"]


def test_shard_dim_alltoall_is_a_start_and_a_wait(world):
    import torch.distributed.tensor

    text, ops = exported(trace(lambda x: torch.ops._dtensor.shard_dim_alltoall(x, 0, 1, world) * 2, (4, 16)))
    assert "comm.all_to_all %x_1 on @default_pg split 1 concat 0" in text
    assert ops["shard_dim_alltoall"].startswith("%shard_dim_alltoall = comm.wait")


def test_send_and_receive(world):
    def f(x, y):
        return c10d.wait_tensor(c10d.isend(x, 1, 0, world)), c10d.wait_tensor(c10d.irecv(y, 2, 5, world))

    _, ops = exported(trace(f, (4,), (4,)))
    assert "comm.send %x_1 on @default_pg peer 1 : (tensor<4xf32>) -> !comm.future<>" in ops["isend"]
    assert "comm.recv into %y_1 on @default_pg peer 2 tag 5" in ops["irecv"]


def test_views_share_storage_and_are_free(world):
    def f(x):
        y = c10d.wait_tensor(c10d.all_gather_into_tensor(x, RANKS, world))
        a, b = y.view(-1).split(16)
        return a + b, y.t()

    _, ops = exported(trace(f, (4,)))
    assert ops["view"].startswith('%view = comm.compute "aten.view.default"(%wait_tensor) aliases [0] :')
    assert ops["split"].startswith('%split:2 = comm.compute "aten.split.Tensor"(%view) aliases [0, 0] :')
    assert "(%split#0, %split#1)" in ops["add"]
    assert "comm.cost" not in ops["view"] and "comm.cost" not in ops["split"]


def test_mutations_come_from_the_schema(world):
    def f(x, y):
        return aten.add_.Tensor(x, y), aten.copy_.default(y, x)

    _, ops = exported(trace(f, (4,), (4,)))
    assert "aliases [0] mutates [0]" in ops["add_"]
    assert "(%y_1, %x_1) aliases [0] mutates [0]" in ops["copy_"] or "(%y_1, %add_)" in ops["copy_"]


def test_random_numbers_keep_their_order(world):
    _, ops = exported(trace(lambda x: (aten.rand_like(x), aten.bernoulli.p(x, 0.5)), (4,)))
    assert "comm.pinned" in ops["rand_like"] and "comm.pinned" in ops["bernoulli"]


def test_attention_without_dropout_draws_nothing(world):
    def f(x):
        attention = aten._scaled_dot_product_flash_attention_for_cpu.default
        return attention(x, x, x)[0], attention(x, x, x, 0.0, True)[0], attention(x, x, x, 0.25)[0]

    _, ops = exported(trace(f, (1, 2, 8, 4)))
    pinned = ["comm.pinned" in line for name, line in ops.items() if name.startswith("_scaled_dot_product")]
    assert pinned == [False, False, True]


def test_symbolic_sizes_have_hints(world):
    gm = trace(lambda x: c10d.wait_tensor(c10d.all_gather_into_tensor(x * 2, RANKS, world)), (4, 8), symbolic=True)
    text, ops = exported(gm)
    assert "comm.bytes_hint = 128 : i64" in text
    assert "tensor<?x?xf32>" in ops["mul"] and "comm.bytes_hint = array<i64: 128>" in ops["mul"]
    assert "comm.bytes_hint = array<i64: 1024>" in ops["all_gather_into_tensor"]


@pytest.mark.parametrize(("rows", "columns"), [(4, 8), (3, 16), (7, 24)])
def test_hints_are_those_of_pytorch(world, rows, columns):
    """The referee is the function with which Inductor's measurements of collectives ask for sizes."""
    get_hint = pytest.importorskip("torch._inductor.fx_passes.node_runtime_estimation").get_hint

    def f(x, y):
        gathered = c10d.wait_tensor(c10d.all_gather_into_tensor((x * 2).flatten(), RANKS, world))
        scattered = c10d.wait_tensor(c10d.reduce_scatter_tensor(y.expand(RANKS, -1, -1) + 1, "sum", RANKS, world))
        return (
            c10d.wait_tensor(c10d.all_reduce(torch.cat([x, x + 1]).to(torch.bfloat16), "sum", world)),
            gathered,
            scattered,
        )

    gm = trace(f, (rows, columns), (rows, columns), symbolic=True)
    _, ops = exported(gm)
    checked = 0
    for node in gm.graph.nodes:
        hint = re.search(r"comm\.bytes_hint = array<i64: (\d+)>", ops.get(node.name, ""))
        if hint:
            sizes = [get_hint(size) for size in node.meta["val"].shape]
            assert int(hint[1]) == math.prod(sizes) * node.meta["val"].element_size(), node
            checked += 1
    assert checked >= 6


def test_futures_cross_graphs(world):
    """A start without a wait leaves as a future, and a placeholder with a wait enters as one."""
    gm = trace(lambda x: c10d.all_gather_into_tensor(x, RANKS, world), (4,))
    text, _ = exported(gm)
    assert "return %all_gather_into_tensor : !comm.future<tensor<32xf32>>" in text
    gm = trace(lambda x: c10d.wait_tensor(x) + 1, (32,))
    text, ops = exported(gm)
    assert "%x_1: !comm.future<tensor<32xf32>>" in text
    assert ops["wait_tensor"] == "%wait_tensor = comm.wait %x_1 : !comm.future<tensor<32xf32>>"


def test_donated(world):
    def f(primals_1, mul, tangents_1):
        return primals_1 * mul * tangents_1

    gm = trace(f, (4,), (4,), (4,))
    for node, name in zip(gm.graph.nodes, ("primals_1", "mul_saved", "tangents_1")):
        node.name = node.target = name
    text, _ = exported(gm)
    assert "%primals_1: tensor<4xf32> loc" in text
    assert "%mul_saved: tensor<4xf32> {comm.donated} loc" in text
    assert "%tangents_1: tensor<4xf32> {comm.donated} loc" in text
    text, _ = exported(gm, donated=["primals_1"])
    assert text.count("comm.donated") == 1
    with pytest.raises(ValueError, match="nothing_such"):
        ct.export_mlir(gm, donated=["nothing_such"])


def test_estimates_become_times(world):
    def estimate(node, override_bytes=None):
        return {"add": 0.25, "all_reduce": 1.5}.get(node.name)

    gm = trace(lambda x: c10d.wait_tensor(c10d.all_reduce(x + 1, "sum", world)) * 2, (16,))
    _, ops = exported(gm, runtime_estimation=estimate)
    assert "#comm.cost<time = 250000>" in ops["add"]
    assert "#comm.cost<time = 1500000>" in ops["all_reduce"]
    assert "bytes = 128" in ops["mul"]


def test_flops(world):
    def f(a, b, q):
        o = aten._scaled_dot_product_flash_attention_for_cpu.default(q, q, q)[0]
        return a @ b, aten.addmm.default(a, a, b), torch.bmm(q[0], q[0].transpose(1, 2)), o

    _, ops = exported(trace(f, (8, 8), (8, 8), (1, 2, 16, 4)))
    assert "flops = 1024," in ops["mm"] and "flops = 1024," in ops["addmm"]
    assert f"flops = {2 * 2 * 16 * 16 * 4}," in ops["bmm"]
    assert f"flops = {2 * 2 * 2 * 16 * 16 * 4}," in ops["_scaled_dot_product_flash_attention_for_cpu"]


def test_higher_order_operators_are_one_node(world):
    gm = trace(lambda x: x * 2, (4,))
    graph, x = gm.graph, next(iter(gm.graph.nodes))
    with graph.inserting_before(graph.output_node()):
        cond = graph.call_function(torch.ops.higher_order.cond, (True, "then", "else", (x,)))
        cond.meta["val"] = (x.meta["val"].clone(),)
        first = graph.call_function(operator.getitem, (cond, 0))
        first.meta["val"] = cond.meta["val"][0]
        graph.output_node().args = (first,)
    text, ops = exported(gm)
    assert 'comm.compute "hop.cond"(%x_1)' in ops["cond"]
    assert "return %cond : tensor<4xf32>" in text


@pytest.mark.parametrize(
    "ranks, world_size, expected",
    [
        (range(8), 8, "#comm.iota<[1, 8]>"),
        (range(2), 8, "#comm.iota<[4, 2]>"),
        (range(0, 64, 8), 64, "#comm.iota<[8, 8] from [8, 8] transpose [1, 0]>"),
        (range(3, 16, 4), 32, "#comm.iota<[8, 4] from [2, 4, 4] transpose [0, 2, 1]>"),
        ([0, 1, 8, 9], 16, "#comm.iota<[4, 4] from [2, 4, 2] transpose [1, 0, 2]>"),
        ([0, 2, 3, 7], 8, "#comm.ranks<[[0, 2, 3, 7], [1, 4, 5, 6]]>"),
        ([0, 1, 3], 8, "#comm.iota<[1, 3]>"),
        ([5], 6, "#comm.iota<[6, 1]>"),
    ],
)
def test_groups(ranks, world_size, expected):
    attribute = groups_attribute(list(ranks), world_size)
    assert attribute == expected
    commsched.Program(f"comm.group @g {attribute}")


def test_two_groups_keep_their_places():
    with world_of(16):
        tp = torch.distributed.new_group(list(range(4)))
        dp = torch.distributed.new_group(list(range(0, 16, 4)))

        def f(x):
            x = c10d.wait_tensor(c10d.all_reduce(x, "sum", tp.group_name))
            return c10d.wait_tensor(c10d.all_reduce(x, "sum", dp.group_name))

        text, _ = exported(trace(f, (4,)))
    assert "#comm.iota<[4, 4]>" in text
    assert "#comm.iota<[4, 4] from [4, 4] transpose [1, 0]>" in text


def test_names_that_need_quotes(world):
    gm = trace(lambda x: x + 1, (4,))
    text = ct.export_mlir(gm, name="a graph")
    assert 'func.func @"a graph"' in text
    commsched.Program(text)


def test_empty_graph_and_no_process_group():
    commsched.Program(ct.export_mlir(trace(lambda x: x, (4,))))
    commsched.Program(ct.export_mlir(trace(lambda x: x.cos(), (4,))))


def test_many_nodes():
    def f(x):
        for _ in range(2000):
            x = x + 1
        return x

    assert ct.export_mlir(trace(f, (4,))).count("comm.compute") == 2000
