# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The operators of torch.ops.fsdp become the dialect's own, and packs are one operation."""

import pytest

torch = pytest.importorskip("torch")

import torch.distributed.fsdp._fully_shard._fsdp_collectives  # noqa: F811 (registers torch.ops.fsdp)
from conftest import RANKS, trace

import commsched
import commsched.torch as ct
from commsched.torch.apply.plan import read_plan
from commsched.torch.apply.rewrite import apply_plan
from random_plans import random_operations

c10d, fsdp = torch.ops._c10d_functional, torch.ops.fsdp


def imported(gm):
    """The module's text, after it went through the parser and the verifiers."""
    text = ct.export_mlir(gm)
    commsched.Program(text)
    return text


def copy_in_gather_copy_out(world):
    """The operators of FSDP2 for a group of parameters. The second one is used once."""

    def f(a, b):
        out = a.new_empty(RANKS * 28)
        own, whole = fsdp.all_gather_copy_in([a.view(-1), b.view(-1)], out, [8, 20], 28, 3)
        whole = c10d.wait_tensor(c10d.all_gather_into_tensor_out(own, RANKS, world, out=whole))
        full = [a.new_empty(RANKS, 8), a.new_empty(RANKS, 20)]
        fsdp.split_with_sizes_copy(whole.view(RANKS, -1), [8, 20], dim=1, out=full)
        return full[0] + 1, full[1].view(-1) * 2

    return f


def test_copy_in_and_copy_out(world):
    gm = trace(copy_in_gather_copy_out(world), (2, 4), (4, 5))
    text = imported(gm)
    assert "comm.fsdp.all_gather_copy_in %view, %view_1 into %new_empty : tensor<224xf32> on @default_pg" in text
    assert "-> (tensor<28xf32>, tensor<224xf32>)" in text
    assert "comm.fsdp.split_with_sizes_copy" in text and "sizes [8, 20]" in text
    assert 'comm.compute "fsdp.' not in text


def test_copies_are_scheduled_in_their_places(world):
    """Readers of the memory that a copy-out writes stay behind it, and the gather stays behind the copy-in."""
    gm = trace(copy_in_gather_copy_out(world), (2, 4), (4, 5))
    with fails_on_warnings():
        gm, report = ct.schedule_overlap(gm)
    gm.graph.lint()
    names = [n.name for n in gm.graph.nodes]
    order = ["all_gather_copy_in", "all_gather_into_tensor_out", "wait_tensor", "split_with_sizes_copy", "add"]
    assert [n for n in names if n in order] == order
    assert report["peak_bytes"]["after"] <= report["peak_bytes"]["limit"]


def fails_on_warnings():
    import contextlib
    import warnings

    stack = contextlib.ExitStack()
    stack.enter_context(warnings.catch_warnings())
    warnings.simplefilter("error")
    return stack


def test_chunk_cat(world):
    def f(a, b):
        out = a.new_empty(RANKS, 5)
        fsdp.chunk_cat([a, b], 0, RANKS, out=out)
        return c10d.wait_tensor(c10d.reduce_scatter_tensor(out.view(-1), "avg", RANKS, world))

    text = imported(trace(f, (RANKS, 4), (5,)))
    assert f"comm.fsdp.chunk_cat %a_1, %b_1 into %commsched_flat_1 : tensor<40xf32> chunks {RANKS}" in text
    assert "comm.reduce_scatter avg" in text


def test_parameters_storage(world):
    def f(p, full):
        torch.ops.inductor.resize_storage_bytes_(p, 128)
        fsdp.copy_(p, full)
        y = p @ p
        torch.ops.inductor.resize_storage_bytes_(p, 0)
        return y

    import torch._inductor.lowering

    gm = hand_written(f)
    text = imported(gm)
    assert "comm.resize_storage %p to 128 : tensor<4x8xf32>" in text
    assert "comm.fsdp.copy %full into %p : tensor<4x8xf32> into tensor<4x8xf32>" in text
    assert "comm.resize_storage %p to 0" in text
    order = [n.name for n in gm.graph.nodes]
    with fails_on_warnings():
        gm, _ = ct.schedule_overlap(gm)
    assert [n.name for n in gm.graph.nodes] == order  # All of them touch the same storage.


def hand_written(_):
    """A graph of resize, copy, use, resize. Tracing would run them."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        p, full = torch.empty(4, 8), torch.empty(4, 8)
        used = torch.empty(4, 8)
    graph = torch.fx.Graph()
    a, b = graph.placeholder("p"), graph.placeholder("full")
    a.meta["val"], b.meta["val"] = p, full
    resize, copy = torch.ops.inductor.resize_storage_bytes_.default, fsdp.copy_.default
    graph.call_function(resize, (a, 128)).meta["val"] = None
    graph.call_function(copy, (a, b)).meta["val"] = None
    y = graph.call_function(torch.ops.aten.cos.default, (a,))
    y.meta["val"] = used
    graph.call_function(resize, (a, 0)).meta["val"] = None
    graph.output((y,))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def test_forms_that_the_dialect_does_not_have_stay_opaque(world):
    """No gather names the group of the copy-in, and the copy-out has another dimension."""

    def f(a):
        own, _ = fsdp.all_gather_copy_in([a.view(-1)], a.new_empty(RANKS * 8), [8], 8, 3)
        return own + 1

    text = imported(trace(f, (2, 4)))
    assert 'comm.compute "fsdp.all_gather_copy_in.default"' in text and "mutates" in text

    def g(a):
        out = [a.new_empty(1, 4), a.new_empty(1, 4)]
        fsdp.split_with_sizes_copy(a, [1, 1], dim=0, out=out)
        return out

    text = imported(trace(g, (2, 4)))
    assert 'comm.compute "fsdp.split_with_sizes_copy.default"' in text and "mutates [1, 2]" in text


def test_packs_of_what_is_overwritten_stay_apart(world):
    """The cast reads its input before the input changes. As a part of the pack it would read it afterwards."""

    def f(a, b):
        low = a.to(torch.bfloat16)
        a.add_(1)
        flat = torch.cat([low.view(-1), b.view(-1)])
        return c10d.wait_tensor(c10d.all_reduce(flat, "sum", world)), a.sum()

    gm = trace(f, (4, 4), (4,))
    gm.graph.lint()
    assert "fused[" not in imported(gm)
    with fails_on_warnings():
        ct.schedule_overlap(gm)
    names = [n.name for n in gm.graph.nodes]
    assert names.index("_to_copy") < names.index("add_")


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce"])
def test_packs_are_one_operation(world, kind):
    """The copies of a bucket before its start cost one kernel, without memory in between."""

    def f(a, b):
        ops = {
            "all_gather": lambda x: c10d.all_gather_into_tensor(x, RANKS, world),
            "reduce_scatter": lambda x: c10d.reduce_scatter_tensor(x, "sum", RANKS, world),
            "all_reduce": lambda x: c10d.all_reduce(x, "sum", world),
        }
        starts = [ops[kind](x.to(torch.bfloat16)) for x in (a, b)]
        return [c10d.wait_tensor(s) for s in starts]

    gm = trace(f, (8, 4), (16, 2))
    for seed in range(20):
        plan = read_plan(gm.graph, random_operations(gm.graph, seed, True, merge=1.0))
        if plan.buckets:
            break
    apply_plan(gm.graph, plan)
    text = imported(gm)
    pack = [line for line in text.splitlines() if "fused[" in line]
    assert len(pack) == 1
    assert pack[0].count("xf32>") == 2 and "xbf16>" in pack[0].split("->")[1]  # The casts are a part of it.
    assert '"aten.cat.default"' not in text or kind != "all_gather"
    gm.graph.lint()
    read_plan(gm.graph, commsched.Program(text).operations()["main"])


def test_copies_into_matrices_keep_the_plan(world):
    """The flat view of a destination may be moved away from the copy, so the copy alone gives the node its place."""

    def f(x, z):
        first, second = torch.empty(2, 16), torch.empty(2, 16)
        whole = c10d.wait_tensor(c10d.all_gather_into_tensor(x, 8, world))
        fsdp.split_with_sizes_copy(whole.view(-1)[:64].view(2, 32), [16, 16], 1, out=[first, second])
        out = torch.empty(8, 16)
        fsdp.chunk_cat([first[0].view(4, 4), z], 0, 8, out=out)
        return c10d.wait_tensor(c10d.reduce_scatter_tensor(out.view(-1), "sum", 8, world)), second * 2

    gm = trace(f, (16,), (12, 6))
    operations = commsched.Program(ct.export_mlir(gm)).operations()["main"]
    position = read_plan(gm.graph, operations).position
    for target in (fsdp.split_with_sizes_copy.default, fsdp.chunk_cat.default):
        (node,) = gm.graph.find_nodes(op="call_function", target=target)
        assert operations[position[node]].opcode == f"comm.fsdp.{node.name}"
    _, report = ct.schedule_overlap(gm, memory_budget_ratio=4.0)
    assert "error" not in report and report["collectives"] == 2
