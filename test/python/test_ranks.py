# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Ranks compare their collectives when compiled code first runs, by themselves, and never inside a hook."""

import contextlib
import dataclasses
import hashlib
import os
import time
from unittest import mock

import pytest

torch = pytest.importorskip("torch")

from conftest import trace

import gloo
from commsched.torch.ranks import comparison


def _compile(loss, **options):
    import commsched.torch as ct

    with ct.enabled(machine="cpu-mpi", effort=0, **options):
        return torch.compile(loss)


def _agree(rank, ranks):
    from torch._inductor.utils import run_and_get_code

    loss, step = gloo.sharded_step(ranks, layers=2, width=16, extra=False)
    x = torch.ones(4, 16)
    inside = []
    compare = comparison._Comparison.compare
    comparison._Comparison.compare = lambda *a: inside.append(torch._dynamo.is_compiling()) or compare(*a)
    compiled = _compile(loss, bucketing=False)
    with gloo.without_kernels():
        _, codes = run_and_get_code(step, compiled, x)
    assert comparison.checked() == 2  # Forward and backward.
    assert sum(comparison.FUNCTION + "(" in c for c in codes) == 2
    step(compiled, x)
    assert inside == [False, False]  # Once each.


def _disagree(rank, ranks):
    c10d, group = torch.ops._c10d_functional, torch.distributed.group.WORLD.group_name

    def loss(x):
        a, b = c10d.all_reduce(x, "sum", group), c10d.all_reduce(x[:2], "sum", group)
        if rank == 1:  # This rank runs other code, as with a wrong option or version.
            return c10d.wait_tensor(c10d.all_reduce(x, "max", group)).sum()
        return c10d.wait_tensor(a).sum() + c10d.wait_tensor(b).sum()

    compiled = _compile(loss)
    with gloo.without_kernels(), pytest.raises(RuntimeError, match=r"rank 1 .* than rank 0"):
        compiled(torch.ones(4, 16))


def _two_groups_of_the_same_ranks(rank, ranks):
    """Each group has a comparison of its own, and a rank that goes on to the next one is not taken for one that waits.

    In the second function, the group that merges issues as many collectives as the other one, which does not.
    """
    c10d, store = torch.ops._c10d_functional, torch.distributed.distributed_c10d._get_default_store()
    one, other = torch.distributed.group.WORLD.group_name, torch.distributed.new_group([0, 1]).group_name

    def reduced(x, group):
        return c10d.wait_tensor(c10d.all_reduce(x, "sum", group))

    def different(x):
        return reduced(x, one) + 1, reduced(x.t() @ x, other), reduced(x.sum(), one)

    def alike(x):
        a, b = (reduced(x * k, one) + 1 for k in (1, 2))
        return reduced(reduced(a * b, other).cos(), other) + 1

    x = torch.ones(8, 4)
    for step in (different, alike):
        torch._dynamo.reset()
        expected = step(x)
        compiled = _compile(step, memory_budget_ratio=4.0)
        # The other rank waits so long that it looks twice a second, and finds this one at its next comparison.
        compare = comparison._Comparison.compare
        late = mock.patch.object(comparison._Comparison, "compare", lambda *a: rank and time.sleep(1) or compare(*a))
        with late, torch._inductor.config.patch(force_disable_caches=True, fallback_by_default=True):
            torch.testing.assert_close(compiled(x), expected)
    assert store.add(f"commsched/{hashlib.sha256(repr((0, 1)).encode()).hexdigest()[:16]}/waiting", 0) == 0


def _fallbacks_are_compared(rank, ranks):
    """Inductor takes no call of ATen for a collective. A graph whose collectives are such calls compares them, too."""
    c10d, group = torch.ops._c10d_functional, torch.distributed.group.WORLD.group_name

    def step(x):
        return [c10d.wait_tensor(c10d.all_reduce(x, ("sum", "max")[i == rank], group)) for i in range(2)]

    compiled = _compile(step)
    with torch._inductor.config.patch(force_disable_caches=True, fallback_by_default=True):
        with pytest.raises(RuntimeError, match="is about to run another sequence of collectives"):
            compiled(torch.ones(4, 16))


def _graphs_as_they_stand(rank, ranks):
    """Graphs of `schedule_overlap` compare what was decided about them when they first run: not when they are traced,
    and each by itself. Ranks with other sizes that decided alike run.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    import commsched.torch as ct

    c10d, group = torch.ops._c10d_functional, torch.distributed.group.WORLD.group_name

    def step(x, *shards):
        gathered = [c10d.wait_tensor(c10d.all_gather_into_tensor(w, ranks, group)) for w in shards]
        return x @ x.t(), *gathered

    arguments = torch.ones(4 << rank, 4), torch.ones(2, 4), torch.full((2, 4), float(rank))

    def scheduled(**options):
        gm, _ = ct.schedule_overlap(make_fx(step, tracing_mode="fake")(*arguments), machine="cpu-mpi", **options)
        make_fx(gm, tracing_mode="fake")(*arguments)
        return gm, torch.compile(gm, backend="eager", fullgraph=True)

    for _ in range(2):
        gm, compiled = scheduled(bucketing=False, collective_order="program")
        for run in (gm, gm, compiled):
            assert all(map(torch.equal, run(*arguments), step(*arguments)))
    gm, _ = scheduled(bucketing=rank == 0, memory_budget_ratio=4.0)
    assert any(len(n.args[0]) > 1 for n in gm.graph.nodes if n.target is torch.ops.aten.cat.default) == (rank == 0)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="is about to run another sequence of collectives"):
            gm(*arguments)
    ct.schedule_overlap(gm, machine="cpu-mpi", bucketing=False)
    assert len(gm._forward_pre_hooks) == 1


def _missing(rank, ranks):
    """A rank that runs what others do not gets a warning after a deadline, and goes on."""
    c10d, group = torch.ops._c10d_functional, torch.distributed.group.WORLD.group_name
    store = torch.distributed.distributed_c10d._get_default_store()
    if rank == 0:
        compiled = _compile(lambda x: (c10d.wait_tensor(c10d.all_reduce(x, "sum", group)) + 1).relu())
        comparison.DEADLINE_S = 1
        with gloo.without_kernels(), pytest.warns(UserWarning, match="has waited 1 s for all ranks"):
            compiled(torch.ones(4))
        store.set("done", "1")
    else:  # It takes part in the collective, but in no comparison.
        c10d.wait_tensor(c10d.all_reduce(torch.ones(4), "sum", group))
        store.wait(["done"])


def _train(rank, f, batches):
    """Losses and gradients of some steps. Inductor calls ATen, so that no compiler runs; it knows no collectives then
    and would let its peak-memory pass reorder them."""
    import torch._inductor.config as ic
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(0)
    layers = [torch.nn.Linear(16, 16) for _ in range(3)]
    model = torch.nn.Sequential(*[m for layer in layers for m in (layer, torch.nn.Tanh())])
    from commsched.torch.sharding import fully_shard_parameters

    fully_shard_parameters(model, lambda module: mesh, None)
    torch.manual_seed(rank + 1)
    losses = []
    with ic.patch(force_disable_caches=True, fallback_by_default=True, reorder_for_peak_memory=False):
        torch._dynamo.reset()
        step = f(lambda x: model(x).square().mean())
        for batch in batches:
            loss = step(torch.randn(batch, 16))
            loss.backward()
            losses.append(loss.detach())
    return losses + [p.grad.to_local() for p in model.parameters()]


def _ragged(rank, ranks):
    import commsched.torch as ct

    batches = ((8, 8, 8), (8, 5, 3))[rank]
    expected = _train(rank, torch.compile, batches)
    got = _train(rank, lambda f: _compile(f, memory_budget_ratio=1.0), batches)
    assert all(map(torch.equal, expected, got))
    graphs = [r for r in ct.reports() if r["place"] == "graph"]
    assert len(graphs) == (2, 4)[rank] and any(r["buckets"] for r in graphs)  # The first two were free, and merged.
    assert [r.get("decided_by") for r in graphs] == [None, None] + ["an earlier graph"] * (len(graphs) - 2)


def _symbolic(rank, ranks):
    """Sizes are symbols from the beginning, with other hints than on the other rank."""
    import commsched.torch as ct

    batches = ((8, 8), (5, 3))[rank]
    expected = _train(rank, lambda f: torch.compile(f, dynamic=True), batches)
    with ct.enabled(machine="cpu-mpi"):
        got = _train(rank, lambda f: torch.compile(f, dynamic=True), batches)
    assert all(map(torch.equal, expected, got))
    graphs = [r for r in ct.reports() if r["place"] == "graph"]
    assert graphs and not any(r["buckets"] for r in graphs)


def _symbolic_number(rank, ranks):
    """A number is a symbol that no size contains: gathers are merged. They are not where a size contains it."""
    import commsched.torch as ct

    c10d, group = torch.ops._c10d_functional, torch.distributed.group.WORLD.group_name

    def step(x, shards, number):
        for full in [c10d.wait_tensor(c10d.all_gather_into_tensor(w, ranks, group)) for w in shards]:
            x = x @ full
        return x * number

    def sized(x, shards, number):
        return step(x, shards, 2) + torch.ones(number).sum()

    torch.manual_seed(0)
    x, shards = torch.randn(4, 64), [torch.randn(64 // ranks, 64) / 8 for _ in range(5)]
    for tensor in (x, *shards):
        torch._dynamo.mark_static(tensor)
    with ct.enabled(machine="h100-sxm", memory_budget_ratio=5.0):
        for f, given in ((step, shards[:4]), (sized, shards)):
            compiled = torch.compile(f, dynamic=True)
            with torch._inductor.config.patch(force_disable_caches=True, fallback_by_default=True):
                assert torch.equal(compiled(x, given, 3 + rank), f(x, given, 3 + rank))
    found = [(r.get("decided_by"), bool(r["buckets"])) for r in ct.reports() if r["place"] == "graph"]
    assert found[0][1] and found[1] == ("program", False), found


def _step_of(rank, ranks):
    """Compiles a step, compares its results with eager ones, and returns its reports. Merging its gathers pays.

    Rank 1 compiles when rank 0 has decided, so that it is known who decides.
    """
    import commsched.torch as ct

    def step(x, *shards):
        for full in [c10d.wait_tensor(c10d.all_gather_into_tensor(w, ranks, group)) for w in shards]:
            x = x @ full
        return x

    c10d, group = torch.ops._c10d_functional, torch.distributed.group.WORLD.group_name
    torch.manual_seed(0)
    x, shards = torch.randn(4, 64), [torch.randn(64 // ranks, 64) / 8 for _ in range(4)]
    expected = step(x, *shards)
    store = torch.distributed.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["decided"])
    with ct.enabled(machine="h100-sxm", memory_budget_ratio=5.0):
        compiled = torch.compile(step)
    with _told_when_decided(store), torch._inductor.config.patch(force_disable_caches=True, fallback_by_default=True):
        got = compiled(x, *shards)
    assert torch.equal(expected, got)
    return [r for r in ct.reports() if r["place"] == "graph"]


def _decides_otherwise(rank, ranks):
    """Merging does not pay for the rank that comes first. The other one would merge, and keeps its gathers apart."""
    from commsched.torch.inductor import passes

    schedule_graph = passes.schedule_graph

    def merges_nothing(graph, options, **more):
        return schedule_graph(graph, dataclasses.replace(options, bucketing=False), **more)

    if rank == 0:
        passes.schedule_graph = merges_nothing
    (report,) = _step_of(rank, ranks)
    assert report.get("decided_by") == (None, "another rank")[rank] and not report["buckets"]


def _fails_first(rank, ranks):
    """Scheduling fails on the rank that comes first. The other one keeps PyTorch's order, too, and both run."""
    from commsched.torch.inductor import passes

    if rank == 1:
        (report,) = _step_of(rank, ranks)
        assert report["decided_by"] == "another rank" and not report["buckets"]
        return

    def fails(*_, **__):
        raise RuntimeError("no schedule today")

    passes.schedule_graph = fails
    os.environ["COMMSCHED_STRICT"] = "0"
    with pytest.warns(UserWarning, match="keeps PyTorch's order: no schedule today"):
        assert _step_of(rank, ranks) == []


@contextlib.contextmanager
def _told_when_decided(store):
    """Lets the other rank compile once this rank has left its decision in the store."""
    from commsched.torch.ranks import agreement

    settled = agreement.settled

    def told(program, own):
        result = settled(program, own)
        store.set("decided", "1")
        return result

    agreement.settled = told
    yield


CASES = [
    _agree,
    _disagree,
    _two_groups_of_the_same_ranks,
    _fallbacks_are_compared,
    _graphs_as_they_stand,
    _missing,
    _ragged,
    _symbolic,
    _symbolic_number,
    _decides_otherwise,
    _fails_first,
]


@pytest.mark.parametrize("case", CASES, ids=lambda f: f.__name__)
def test_on_two_ranks(case):
    gloo.run(2, case)


def test_hashes_are_by_group_and_depend_on_the_order():
    one = comparison.hashes({"1": ["b"], "0": ["a", "c"]})
    assert [g for g, _ in one] == ["0", "1"]
    other = comparison.hashes({"1": ["b"], "0": ["c", "a"]})
    assert one[1] == other[1] and one[0] != other[0]


def test_groups_of_one_rank_and_fake_ones_are_not_compared(world):
    before = comparison.checked()
    comparison.first_run(((world, "abc", "def"),))
    comparison.first_run(((world, "abc", "def"),))
    assert comparison.checked() == before + 1


def _graph(world, batch):
    c10d = torch.ops._c10d_functional

    def f(x, a, b, c):
        gathered = [c10d.wait_tensor(c10d.all_gather_into_tensor(w, 8, world)) for w in (a, b, c)]
        scattered = c10d.wait_tensor(c10d.reduce_scatter_tensor(gathered[0] * 2, "sum", 8, world))
        for w in gathered:
            x = x @ w
        return x, scattered

    return trace(f, (batch, 64), (8, 64), (8, 64), (8, 64))


def test_graphs_of_one_program_get_one_decision(world, monkeypatch):
    """Sizes do not matter. The second graph has a batch for which another order would pay."""
    from commsched.torch.options import Options
    from commsched.torch.ranks import agreement
    from commsched.torch.schedule import schedule_graph

    monkeypatch.setattr(agreement, "_decisions", {})
    options = Options(memory_budget_ratio=1.0)
    first, second, third = (_graph(world, batch) for batch in (4, 65536, 65536))
    one = agreement.schedule(first.graph, options, schedule_graph)
    two = agreement.schedule(second.graph, options, schedule_graph)
    assert one["buckets"] and "decided_by" not in one and two["decided_by"] == "an earlier graph"
    assert first.meta[agreement.META] == second.meta[agreement.META]
    shapes = lambda gm: [(s.target, s.meta["val"].shape) for s in agreement.starts_of(gm.graph)]
    assert shapes(first) == shapes(second)
    other = agreement.schedule(third.graph, Options(memory_budget_ratio=0.5), schedule_graph)
    assert "decided_by" not in other  # Other options make it another program.


def test_a_limit_on_buckets_does_not_keep_graphs_of_one_program_from_their_decision(world, monkeypatch):
    """Later graphs, and those whose sizes are symbols, merge nothing by themselves."""
    from commsched.torch.options import Options
    from commsched.torch.ranks import agreement
    from commsched.torch.schedule import schedule_graph

    monkeypatch.setattr(agreement, "_decisions", {})
    c10d, options = torch.ops._c10d_functional, Options(memory_budget_ratio=1.0, bucket_cap_bytes=40_000)
    first, second = (agreement.schedule(_graph(world, b).graph, options, schedule_graph) for b in (4, 65536))
    assert len(first["buckets"]) == 1 and second["buckets"] == first["buckets"]
    gm = trace(lambda x: c10d.wait_tensor(c10d.all_gather_into_tensor(x * 2, 8, world)), (4, 8), symbolic=True)
    assert agreement.schedule(gm.graph, options, schedule_graph)["decided_by"] == "program"


def test_collectives_whose_sizes_became_symbols_leave_the_buckets_of_their_program(world, monkeypatch):
    from commsched.torch.options import Options
    from commsched.torch.ranks import agreement
    from commsched.torch.schedule import schedule_graph

    c10d, options = torch.ops._c10d_functional, Options(memory_budget_ratio=4.0)

    def f(x, *shards):
        starts = [c10d.all_gather_into_tensor(w, 8, world) for w in (x * 2, *shards, x + 1)]
        return [c10d.wait_tensor(start) for start in starts]

    monkeypatch.setattr(agreement, "_decisions", {})
    graphs = [trace(f, (4, 8), (8, 8), (8, 8), symbolic=symbolic) for symbolic in (False, True)]
    first, second = (agreement.schedule(gm.graph, options, schedule_graph) for gm in graphs)
    assert [len(bucket) for bucket in first["buckets"]] == [4] and second["decided_by"] == "an earlier graph"
    assert second["buckets"] == [] and len(agreement.starts_of(graphs[1].graph)) == 4
    noted = [gm.meta[agreement.META] for gm in graphs]
    assert noted[0][0] == noted[1][0] and noted[0][1] != noted[1][1]  # Ranks compare what runs.


def test_the_report_of_a_graph_that_got_a_decision_compares_it_with_the_graph_as_given(world, monkeypatch, capfd):
    from commsched.torch.options import Options
    from commsched.torch.ranks import agreement
    from commsched.torch.schedule import schedule_graph

    monkeypatch.setattr(agreement, "_decisions", {})
    options = Options(memory_budget_ratio=1.0)
    agreement.schedule(_graph(world, 4).graph, options, schedule_graph)
    given, imposed = _graph(world, 65536), _graph(world, 65536)
    names = [s.name for s in agreement.starts_of(given.graph)]
    alone = schedule_graph(given.graph, options)
    report = agreement.schedule(imposed.graph, options, schedule_graph)
    assert report["decided_by"] == "an earlier graph"
    for figure in ("makespan_ns", "exposed_ns", "peak_bytes"):
        assert report[figure]["before"] == alone[figure]["before"]
    decision = imposed.meta[agreement.META][1]
    assert report["buckets"] == [[names[i] for i in members] for members, _ in decision if len(members) > 1] != []
    assert capfd.readouterr().err == ""  # Measuring prints no table.


def _sharded(width, layers=3):
    """Compiles a sharded model of a width, forward and backward. Returns the reports of its graphs."""
    import commsched.torch as ct
    from commsched.torch.sharding import fully_shard_parameters

    torch._dynamo.reset()
    ct.reports()
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (8,))
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width, bias=False) for _ in range(layers)])
    fully_shard_parameters(model, lambda module: mesh, dtype=None)
    aten = dict(fallback_by_default=True, fx_graph_cache=False, reorder_for_peak_memory=False)
    with gloo.without_kernels():
        f = torch.compile(lambda x: model(x).square().mean(), options={**ct.inductor_options(), **aten})
        f(torch.randn(8, width)).backward()
    return [r for r in ct.reports() if r["place"] == "graph"]


def test_a_model_with_other_parameters_decides_for_itself(world, monkeypatch):
    """The models have one structure: kinds, element types and groups of their collectives are equal."""
    from commsched.torch.ranks import agreement

    monkeypatch.setattr(agreement, "_decisions", {})
    alone = _sharded(512)
    agreement._decisions.clear()
    for width in (32, 512):
        reports = _sharded(width)
        assert len(reports) == 2 and not any("decided_by" in r for r in reports)
    assert [r["makespan_ns"] for r in reports] == [r["makespan_ns"] for r in alone]
    assert all("decided_by" in r for r in _sharded(512))


def _tensor_parallel(width, rows=16):
    """Compiles a tensor-parallel model, whose collectives carry activations. Returns the reports of its graphs."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    import commsched.torch as ct

    torch._dynamo.reset()
    ct.reports()
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (8,))
    layers = [torch.nn.Linear(n, m, bias=False) for _ in range(2) for n, m in ((width, 64), (64, width))]
    model = torch.nn.Sequential(*layers)
    for number, layer in enumerate(layers):
        parallelize_module(layer, mesh, (ColwiseParallel, RowwiseParallel)[number % 2]())
    aten = dict(fallback_by_default=True, fx_graph_cache=False, reorder_for_peak_memory=False)
    with gloo.without_kernels():
        f = torch.compile(lambda x: model(x).square().mean(), options={**ct.inductor_options(), **aten})
        f(torch.randn(rows, width, requires_grad=True)).backward()
    return [r for r in ct.reports() if r["place"] == "graph"]


def test_a_tensor_parallel_model_of_another_width_decides_for_itself(world, monkeypatch):
    """The models have one structure, as forward and backward graph have, and their collectives carry activations."""
    from commsched.torch.ranks import agreement

    monkeypatch.setattr(agreement, "_decisions", {})
    for width in (32, 512):
        reports = _tensor_parallel(width)
        assert [(r["direction"], r["collectives"]) for r in reports] == [("forward", 2), ("backward", 2)]
        assert not any("decided_by" in r for r in reports)
    # Another rank may have another batch.
    assert all(r["decided_by"] == "an earlier graph" for r in _tensor_parallel(512, rows=24))


def test_the_backward_graph_knows_the_parameters_of_a_forward_graph_from_a_cache(world, monkeypatch):
    """PyTorch forgets them when it has compiled the forward graph, or found its code."""
    from torch.distributed.tensor import Shard, distribute_tensor

    from commsched.torch.inductor.passes import GraphPass
    from commsched.torch.options import Options
    from commsched.torch.ranks import weights

    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (8,))
    local, whole = torch.nn.Parameter(torch.zeros(3)), torch.zeros(20, 4)
    names = []
    for tensors in ([local], [local, whole], [whole[:19]], [whole[:19], local]):
        sharded = [torch.nn.Parameter(distribute_tensor(t, mesh, [Shard(0)])) for t in tensors if t is not local]
        context = torch._guards.TracingContext(None)
        monkeypatch.setattr(torch._guards.TracingContext, "try_get", staticmethod(lambda made=context: made))
        for tensor in (local, whole, *sharded):
            context.tensor_to_context[tensor] = None
        GraphPass(Options()).uuid()  # The key of the cache.
        context.tensor_to_context.clear()
        names.append(weights.whole_parameters().sizes)
    assert names[0] == "" and "" not in names[1:] and names[1] != names[2] == names[3]


@pytest.mark.parametrize(("rows", "uneven"), [(16, False), (20, True), (0, False)])
def test_parameters_whose_parts_differ_are_known_on_all_ranks(world, monkeypatch, rows, uneven):
    """Ranks have other graphs then, and must not split them into strands each by itself."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    from commsched.torch.ranks import weights

    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2, 4))
    context = torch._guards.TracingContext(None)
    monkeypatch.setattr(torch._guards.TracingContext, "try_get", staticmethod(lambda: context))
    for places in ([Replicate(), Replicate()], [Replicate(), Shard(1)], [Shard(0), Shard(0)]):
        parameter = torch.nn.Parameter(distribute_tensor(torch.zeros(rows, 4), mesh, places))
        context.tensor_to_context[parameter] = None
        weights._whole.clear()
        assert weights.whole_parameters().uneven == (uneven and places[0] == Shard(0))


def test_sizes_that_depend_on_the_batch_do_not_name_a_program(world):
    """Without a compilation that tells parameters from inputs, all sizes may depend on the batch."""
    from commsched.torch.ranks import agreement, weights

    graph = _graph(world, 4).graph
    assert weights.class_of_weights(graph, agreement.starts_of(graph)) == ""


def _class_of(monkeypatch, function, *shapes, parameters=(0,)):
    """The class of a graph in whose compilation these inputs, or the outputs in their places, are parameters."""
    import types

    from commsched.torch.ranks import agreement, weights

    metadata = types.SimpleNamespace(fw_metadata=types.SimpleNamespace(static_input_indices=list(parameters)))
    monkeypatch.setattr(torch._guards.TracingContext, "try_get", staticmethod(lambda: metadata))
    graph = trace(function, *shapes).graph
    return weights.class_of_weights(graph, agreement.starts_of(graph))


@pytest.mark.parametrize(("rows", "other", "same"), [(25129, 25128, True), (16385, 16384, True), (1024, 512, False)])
def test_uneven_shards_are_of_one_class(world, monkeypatch, rows, other, same):
    """Ranks have to agree, though one has a row more of a parameter than another."""
    c10d = torch.ops._c10d_functional

    def gathered(w):
        return c10d.wait_tensor(c10d.all_gather_into_tensor(w.to(torch.bfloat16), 8, world))

    first, second = (_class_of(monkeypatch, gathered, (n, 64)) for n in (rows, other))
    assert first and (first == second) == same


def test_a_shard_that_is_padded_or_cut_is_of_the_class_of_a_whole_one(world, monkeypatch):
    """On the last rank of an uneven parameter, the shard is padded, and its gradient is cut."""
    c10d = torch.ops._c10d_functional

    def whole(w):
        return c10d.wait_tensor(c10d.all_gather_into_tensor(w, 8, world))

    def padded(w):
        return whole(torch.ops.aten.constant_pad_nd(w, [0, 0, 0, 1]))

    assert _class_of(monkeypatch, whole, (16, 64)) == _class_of(monkeypatch, padded, (15, 64)) != ""

    def gradient(cut):
        def tangents(tangents_1):
            mine = c10d.wait_tensor(c10d.reduce_scatter_tensor(tangents_1, "sum", 8, world))
            return torch.ops.aten.slice.Tensor(mine, 0, 0, 0) if cut else mine

        return tangents

    def backward(cut):
        gm = trace(gradient(cut), (8, 64))
        for node in gm.graph.find_nodes(op="placeholder"):
            node.name = "tangents_1"
        from commsched.torch.ranks import agreement, weights

        return weights.class_of_weights(gm.graph, agreement.starts_of(gm.graph))

    assert backward(cut=True) == backward(cut=False) != ""


def test_a_decision_that_a_graph_does_not_allow_changes_nothing(world):
    from commsched.torch.apply.plan import PlanError
    from commsched.torch.ranks import agreement

    gm = _graph(world, 4)
    before = [n.name for n in gm.graph.nodes]
    with pytest.raises(PlanError, match="forbid the order"):
        agreement.impose(gm.graph, (((3,), False), ((0,), False), ((1,), False), ((2,), False)))
    assert [n.name for n in gm.graph.nodes] == before


@pytest.mark.parametrize(("given", "seconds"), [(None, 30), ("", 30), ("0.5", 0.5), ("120", 120)])
def test_the_deadline_can_be_set(monkeypatch, given, seconds):
    monkeypatch.delenv(comparison.DEADLINE, raising=False)
    if given is not None:
        monkeypatch.setenv(comparison.DEADLINE, given)
    assert comparison.deadline_s(30) == seconds


@pytest.mark.parametrize("given", ["soon", "-1", "nan", "inf"])
def test_a_deadline_that_is_no_time_warns_and_does_not_count(monkeypatch, given):
    monkeypatch.setenv(comparison.DEADLINE, given)
    with pytest.warns(UserWarning, match=f"COMMSCHED_RANKS_DEADLINE_S: expected a number of seconds.*{given}.*30 s"):
        assert comparison.deadline_s(30) == 30


def test_a_gather_counts_as_the_reduction_of_its_gradient(world):
    """Both carry the whole parameter, however its shards are cut."""
    from commsched.torch.ranks import agreement, weights

    c10d = torch.ops._c10d_functional

    def f(shard, gradient):
        return [
            c10d.wait_tensor(c10d.all_gather_into_tensor(shard, 8, world)),
            c10d.wait_tensor(c10d.reduce_scatter_tensor(gradient, "sum", 8, world)),
        ]

    starts = agreement.starts_of(trace(f, (4, 6), (32, 6)).graph)
    assert [weights._equal_elements(s) for s in starts] == [192, 192]
