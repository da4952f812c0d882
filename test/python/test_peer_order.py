# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What PyTorch's overlap scheduler made of a graph, by the names that the graph had before."""

import pytest

torch = pytest.importorskip("torch")

import torch.fx as fx
from conftest import RANKS
from torch.fx.experimental.proxy_tensor import make_fx

import commsched
from commsched.torch.importer.export import import_program
from commsched.torch.options import Options
from commsched.torch.peer_order import buckets_by_name
from commsched.torch.second_opinion import MODES, _gpu_of, _on, second_opinion

c10d = torch.ops._c10d_functional
MACHINE = "h100-sxm"


def _step(world, casts=False):
    """Gathers of four weights, cast before or not, reductions of what they give, and a sum over all ranks."""

    def f(x, *weights):
        results = []
        for w in weights:
            full = c10d.wait_tensor(c10d.all_gather_into_tensor(w.bfloat16() if casts else w, RANKS, world))
            x = (x @ full).relu()
            results.append(c10d.wait_tensor(c10d.reduce_scatter_tensor(x.float(), "sum", RANKS, world)))
        total = c10d.wait_tensor(c10d.all_reduce(x.sum(), "sum", world))
        return *results, total

    element = torch.float32 if casts else torch.bfloat16
    with torch._subclasses.FakeTensorMode():
        shapes = [(4096, 1024)] + [(128, 1024)] * 4
        arguments = [torch.empty(s, dtype=torch.bfloat16 if k == 0 else element) for k, s in enumerate(shapes)]
        return make_fx(f)(*arguments)


def _scheduled(gm, mode):
    """What PyTorch's scheduler makes of a copy."""
    from torch._inductor.fx_passes.overlap_scheduling import schedule_overlap_bucketing

    copied = fx.Graph()
    copied.output(copied.graph_copy(gm.graph, {}))
    module = fx.GraphModule(gm, copied)
    with _on(_gpu_of(Options(machine=MACHINE))):
        return schedule_overlap_bucketing(
            module, custom_runtime_estimation=lambda *_: 1.0, compute_estimator="analytical", **mode
        ).graph


def _of(gm, *targets):
    return [n.name for n in gm.graph.nodes if n.target in targets]


def test_an_order_alone_keeps_all_names(world):
    gm = _step(world)
    scheduled = _scheduled(gm, MODES[0])
    order = buckets_by_name(gm.graph, scheduled)
    assert list(order) == [n.name for n in scheduled.nodes]
    assert set(order) == {n.name for n in gm.graph.nodes}
    assert set(order.values()) == {-1}


@pytest.mark.parametrize("casts", [False, True])
def test_buckets_name_their_members(world, casts):
    gm = _step(world, casts)
    scheduled = _scheduled(gm, MODES[1])
    order = buckets_by_name(gm.graph, scheduled)
    gathers = _of(gm, c10d.all_gather_into_tensor.default)
    reductions = _of(gm, c10d.reduce_scatter_tensor.default)
    # PyTorch's own figures: how many collectives are left of each kind.
    left = [n for n in scheduled.nodes if "all_gather_into_tensor" in str(n.target)]
    assert len(left) == len({order[name] for name in gathers}) == 1
    # Only nodes that are gone may be missing, and of these only casts, which packs do themselves.
    kept = {n.name for n in scheduled.nodes}
    missing = {n.name for n in gm.graph.nodes} - set(order)
    assert not missing & kept
    assert all("convert_element_type" in name or "_to_copy" in name for name in missing)
    assert len({order[name] for name in gathers} | {order[name] for name in reductions}) > 1
    names = list(order)
    first = min(map(names.index, gathers))
    assert set(names[first : first + len(gathers)]) == set(gathers)
    # Every wait is there, behind its start.
    for node in gm.graph.nodes:
        if node.target is c10d.wait_tensor.default:
            assert names.index(node.name) > names.index(node.args[0].name)


def test_orders_are_told_with_their_buckets(world):
    gm = _step(world)

    def imported(other):
        program, _, importer = import_program(other, name="main")
        return program, importer

    program, importer = imported(gm.graph)
    opinion = second_opinion(gm.graph, Options(machine=MACHINE), importer, imported)
    opinion.tell(program)
    orders = opinion._orders()
    assert [len(set(order.buckets.values()) - {-1}) > 0 for order in orders] == [False, True]
    with pytest.raises(commsched.Error, match="second opinion"):
        fresh, _ = imported(gm.graph)
        fresh.set_peer_curve("all_gather", "g", None, [(1, 1)])
