# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Schedules are carried out on FX graphs: values stay equal to the bit, and an illegal schedule is refused."""

import pytest

torch = pytest.importorskip("torch")

from conftest import RANKS, trace

import gloo
from commsched import Operation
from commsched.torch.apply.plan import PlanError, read_plan
from commsched.torch.apply.rewrite import apply_plan
from random_plans import random_operations

c10d = torch.ops._c10d_functional


def names_of(gm):
    return [n.name for n in gm.graph.nodes if n.op == "call_function"]


def operations_of(gm, order=None):
    """One operation per call, in the graph's order or in that of `order`."""
    from commsched.torch.semantics.operators import spec_of

    by_name = {n.name: n for n in gm.graph.nodes}
    result = []
    for name in order or names_of(gm):
        spec = spec_of(by_name[name])
        opcode = f"comm.{spec.start.kind}" if spec.start else "comm.wait" if spec.is_wait else "comm.compute"
        result.append(Operation(opcode, (name,)))
    return result


def test_order_is_applied(world):
    def f(x, y):
        y = y.cos().sin()
        return c10d.wait_tensor(c10d.all_gather_into_tensor(x, RANKS, world)) + 1, y

    gm = trace(f, (4,), (4,))
    order = ["all_gather_into_tensor", "cos", "sin", "wait_tensor", "add"]
    apply_plan(gm.graph, read_plan(gm.graph, operations_of(gm, order)))
    assert names_of(gm) == order


def test_a_broken_dependence_is_refused(world):
    gm = trace(lambda x: c10d.wait_tensor(c10d.all_gather_into_tensor(x.cos(), RANKS, world)), (4,))
    before = names_of(gm)
    with pytest.raises(PlanError, match="expected all_gather_into_tensor behind cos"):
        apply_plan(gm.graph, read_plan(gm.graph, operations_of(gm, before[::-1])))
    assert names_of(gm) == before


def test_a_write_stays_between_its_readers(world):
    def f(x, y):
        before = x + 1
        x.copy_(y)
        return before, x * 2

    gm = trace(f, (4,), (4,))
    assert names_of(gm) == ["add", "copy_", "mul"]
    with pytest.raises(PlanError, match="expected copy_ behind add"):
        apply_plan(gm.graph, read_plan(gm.graph, operations_of(gm, ["copy_", "add", "mul"])))


def test_an_input_in_flight_is_not_written(world):
    def f(x, y):
        start = c10d.all_gather_into_tensor(x, RANKS, world)
        out = c10d.wait_tensor(start) + 1
        x.copy_(y)
        return out

    gm = trace(f, (4,), (4,))
    order = ["all_gather_into_tensor", "copy_", "wait_tensor", "add"]
    with pytest.raises(PlanError, match="copy_"):
        apply_plan(gm.graph, read_plan(gm.graph, operations_of(gm, order)))


def test_buckets_of_different_reductions_are_refused(world):
    def f(x, y):
        a, b = c10d.all_reduce(x, "sum", world), c10d.all_reduce(y, "max", world)
        return c10d.wait_tensor(a), c10d.wait_tensor(b)

    gm = trace(f, (4,), (4,))
    ops = [
        Operation("comm.fsdp.chunk_cat", ("all_reduce", "all_reduce_1")),
        Operation("comm.all_reduce", ("all_reduce", "all_reduce_1")),
        Operation("comm.wait", ("wait_tensor", "wait_tensor_1")),
        Operation("comm.fsdp.split_with_sizes", ("wait_tensor", "wait_tensor_1")),
    ]
    with pytest.raises(PlanError, match="of one kind"):
        apply_plan(gm.graph, read_plan(gm.graph, ops))
    assert "all_reduce" in names_of(gm) and "all_reduce_1" in names_of(gm)


def test_half_a_schedule_does_not_stay(world, monkeypatch):
    from commsched.torch.apply import buckets

    def f(x, y):
        a, b = c10d.all_reduce(x, "sum", world), c10d.all_reduce(y, "sum", world)
        return c10d.wait_tensor(a), c10d.wait_tensor(b)

    gm = trace(f, (4,), (4,))
    before = [(n.op, n.name, str(n.args)) for n in gm.graph.nodes]
    starts, waits = ("all_reduce", "all_reduce_1"), ("wait_tensor", "wait_tensor_1")
    ops = [
        Operation("comm.fsdp.chunk_cat", starts),
        Operation("comm.all_reduce", starts),
        Operation("comm.wait", waits),
        Operation("comm.fsdp.split_with_sizes", waits),
    ]
    monkeypatch.setattr(buckets.Merger, "_move_views", lambda *_: 1 // 0)
    with pytest.raises(PlanError, match="ZeroDivisionError"):
        apply_plan(gm.graph, read_plan(gm.graph, ops))
    assert [(n.op, n.name, str(n.args)) for n in gm.graph.nodes] == before
    gm.graph.lint()


@pytest.mark.parametrize("packed", [True, False])
def test_a_bucket_is_merged(world, packed):
    def f(x, y):
        a = c10d.all_gather_into_tensor(x.to(torch.bfloat16), RANKS, world)
        b = c10d.all_gather_into_tensor(y.to(torch.bfloat16), RANKS, world)
        return c10d.wait_tensor(a).view(-1) + 1, c10d.wait_tensor(b).t()

    gm = trace(f, (4, 2), (2, 2))
    starts, waits = ("all_gather_into_tensor", "all_gather_into_tensor_1"), ("wait_tensor", "wait_tensor_1")
    rest = [op for op in operations_of(gm) if op.opcode == "comm.compute"]
    ops = [op for op in rest if "to" in op.names[0] or "convert" in op.names[0]]
    if packed:
        ops.append(Operation("comm.fsdp.all_gather_copy_in", starts))
    ops += [Operation("comm.all_gather", starts), Operation("comm.wait", waits)]
    if packed:
        ops += [Operation("comm.fsdp.split_with_sizes_copy", (w,)) for w in waits]
    ops += [op for op in rest if op not in ops]
    apply_plan(gm.graph, read_plan(gm.graph, ops))
    gm.recompile()
    targets = [str(n.target) for n in gm.graph.nodes]
    assert sum("all_gather" in t for t in targets) == 1
    assert sum("wait_tensor" in t for t in targets) == (1 if packed else 2)
    # Views of a merged collective's output have its storage in their metadata.
    by_target = {str(n.target): n for n in gm.graph.nodes}
    transposed = by_target["aten.t.default"]
    storage = lambda n: n.meta["val"].untyped_storage()._cdata
    assert storage(transposed) == storage(transposed.args[0])


def _random_orders(rank, ranks):
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    loss, step = gloo.sharded_step(ranks)
    x = torch.arange(8 * 32, dtype=torch.float32).view(8, 32) / 256 + rank
    expected = step(loss, x)
    merged = [0]
    # A sum of two is the same in any order. Of more, gloo (as NCCL) adds in an order that depends on an element's place
    # in the buffer, so that a merged reduction may round differently: gathers alone keep all bits there.
    exact = ("all_gather", "reduce_scatter", "all_reduce") if ranks == 2 else ("all_gather",)
    for seed in range(2 if ranks == 4 else 3):
        for kinds in dict.fromkeys([exact, ("all_gather", "reduce_scatter", "all_reduce")]):

            def compiler(gm, _):
                plan = read_plan(gm.graph, random_operations(gm.graph, seed, seed % 2 == 0, kinds=kinds))
                merged[0] += len(plan.buckets)
                apply_plan(gm.graph, plan)
                gm.recompile()
                return make_boxed_func(gm.forward)

            torch._dynamo.reset()
            got = step(torch.compile(loss, backend=aot_autograd(fw_compiler=compiler, bw_compiler=compiler)), x)
            for a, b in zip(expected, got):
                if kinds == exact:
                    assert torch.equal(a, b), (seed, (a - b).abs().max())
                else:
                    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    assert merged[0] > 3


@pytest.mark.parametrize("ranks", [2, 4])
def test_random_schedules_compute_the_same_bits(ranks):
    gloo.run(ranks, _random_orders)
