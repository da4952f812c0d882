# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Merged collectives in unusual orders of memory, types and company, told by the graph alone."""

import itertools

import pytest

torch = pytest.importorskip("torch")

from conftest import RANKS, trace
from test_buckets import _reduce, shapes
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from commsched import Operation
from commsched.torch.apply.forms import dense_order
from commsched.torch.apply.plan import PlanError, read_plan
from commsched.torch.apply.rewrite import apply_plan
from commsched.torch.ranks import agreement

aten, c10d = torch.ops.aten, torch.ops._c10d_functional


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_results_keep_every_order_of_memory(world, order, packed):
    """An order of three dimensions may differ from its inverse."""
    gm = trace(lambda x, y: (_reduce(x.permute(order)) + 1, _reduce(y.permute(order)) * 2), (2, 3, 4), (5, 6, 7))
    before = shapes(gm.graph)
    agreement.impose(gm.graph, (((0, 1), packed),))
    values = [n.meta["val"] for n in gm.graph.nodes if n.op == "placeholder"]
    assert shapes(gm.graph) == before
    FakeTensorProp(gm, values[0].fake_mode).propagate_dont_convert_inputs(*values)
    assert shapes(gm.graph) == before


def test_tensors_with_gaps_have_no_order_of_memory():
    x = torch.empty(4, 6)
    assert dense_order(x) == [0, 1] and dense_order(x.t()) == [1, 0]
    assert dense_order(x[:, :3]) is None and dense_order(x[::2]) is None and dense_order(x[:1].expand(4, 6)) is None


def merged(gm, packed=True):
    """Merges the first two collectives of a graph."""
    agreement.impose(gm.graph, (((0, 1), packed),))
    gm.graph.lint()
    return gm.graph


def test_a_reader_that_looks_at_storage_reads_a_copy(world):
    graph = merged(trace(lambda x, y: (_reduce(x * 2).as_strided((2,), (1,), 0) + 0, _reduce(y * 2) + 1), (4,), (6,)))
    (looking,) = graph.find_nodes(op="call_function", target=aten.as_strided.default)
    assert looking.args[0].target is aten.clone.default


def test_complex_numbers_are_gathered_as_pairs(world):
    gather = lambda x: c10d.wait_tensor(c10d.all_gather_into_tensor(x, RANKS, world)) * 2
    for packed, target in ((True, c10d.all_gather_into_tensor_out), (False, c10d.all_gather_into_tensor_coalesced)):
        graph = merged(trace(lambda x, y: (gather(x), gather(y)), (4,), (6,), dtype=torch.complex64), packed)
        (start,) = graph.find_nodes(op="call_function", target=target.default)
        assert all(n.meta["val"].dtype == torch.float32 for n in start.all_input_nodes)


def test_gathers_of_several_types_travel_as_bytes(world):
    """The pack converts nothing: each member keeps a cast of its own."""
    types = (torch.complex64, torch.bool, torch.bfloat16, torch.float64)

    def f(*shards):
        wide = [*shards[:-1], shards[-1].double()]
        return [c10d.wait_tensor(c10d.all_gather_into_tensor(w, RANKS, world)).clone() for w in wide]

    with FakeTensorMode(allow_non_fake_inputs=True):
        inputs = [torch.empty(3, 5, dtype=d) for d in (*types[:-1], torch.float32)]
    gm = make_fx(f)(*inputs)
    before = shapes(gm.graph)
    agreement.impose(gm.graph, (((0, 1, 2, 3), True),))
    assert shapes(gm.graph) == before
    (start,) = gm.graph.find_nodes(op="call_function", target=c10d.all_gather_into_tensor_out.default)
    assert start.meta["val"].dtype == torch.uint8
    assert start.meta["val"].numel() == RANKS * 15 * sum(d.itemsize for d in types)
    values = [n.meta["val"] for n in gm.graph.find_nodes(op="placeholder")]
    results = FakeTensorProp(gm, values[0].fake_mode).propagate_dont_convert_inputs(*values)
    assert [r.dtype for r in results] == [*types] and all(r.shape == (24, 5) for r in results)


def test_a_view_of_a_merged_result_in_another_type_begins_with_the_result(world):
    f = lambda x, y: (torch.view_as_real(_reduce(x)) + 1, torch.view_as_real(_reduce(y)) + 1)
    graph = merged(trace(f, (3,), (5,), dtype=torch.complex64))
    views = graph.find_nodes(op="call_function", target=aten.view_as_real.default)
    assert [v.meta["val"].storage_offset() for v in views] == [0, 2 * 3]


def test_a_pack_takes_over_a_cast_only_if_it_rounds_alike(world):
    """A pack joins its inputs in a type that holds all of them, and converts them together."""
    low = lambda x: c10d.wait_tensor(c10d.all_gather_into_tensor(x.to(torch.bfloat16), RANKS, world))
    graph = merged(trace(lambda x, y: (low(x) + 1, low(y.to(torch.int64)) + 1), (4,), (6,)))
    casts = [n for n in graph.nodes if n.target is aten._to_copy.default and n.meta["val"].dtype == torch.bfloat16]
    assert [n.args[0].meta["val"].dtype for n in casts] == [torch.int64]


def test_an_opaque_collective_stays_behind_what_a_pack_has_copied(world):
    """It communicates, so the order of the graph is the only one that all ranks know."""

    def f(x, y, z):
        a, b = (c10d.wait_tensor(c10d.all_gather_into_tensor(t, RANKS, world)) for t in (x, y))
        return a, b, z

    gm = trace(f, (4,), (4,), (4,))
    z = gm.graph.find_nodes(op="placeholder")[2]
    with gm.graph.inserting_before(gm.graph.output_node()):
        opaque = gm.graph.call_function(c10d.batch_p2p_ops.default, (["isend"], [1], [0], [z], world))
    opaque.meta["val"] = [z.meta["val"]]
    starts, waits = ("all_gather_into_tensor", "all_gather_into_tensor_1"), ("wait_tensor", "wait_tensor_1")
    own = [Operation("comm.compute", (opaque.name,))]
    before = [Operation("comm.fsdp.all_gather_copy_in", starts), Operation("comm.all_gather", starts)]
    behind = [Operation("comm.wait", waits), *(Operation("comm.fsdp.split_with_sizes_copy", (w,)) for w in waits)]
    with pytest.raises(PlanError, match=f"expected {opaque.name} behind"):
        apply_plan(gm.graph, read_plan(gm.graph, [*before, *own, *behind]))
    apply_plan(gm.graph, read_plan(gm.graph, [*before, *behind, *own]))
