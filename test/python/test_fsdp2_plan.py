# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Plans for eager FSDP2 on real ranks (gloo): what the profiler sees is what the plan says, and no bit changes."""

import dataclasses
import functools
import gc

import pytest

torch = pytest.importorskip("torch")

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import commsched.torch as ct
import fsdp2_models
import gloo
from commsched.torch.fsdp2 import search
from commsched.torch.fsdp2.items import Kind
from commsched.torch.fsdp2.setting import by_units
from fsdp2_models import Storages, batch, in_tensor_parallel, loss_of, seen
from fsdp2_steps import some_setting

LOW = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
MIXED = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
# By how much the live storages of a step may be off, apart from the tokens of the batch, which a plan does not count.
PEAK_TOLERANCE = 0.003


def _few():
    """Ranks that look at what plans do, not at how good they are, search for less time."""
    search.MOST_SETTINGS = 30


def _model(name):
    torch.manual_seed(0)
    return getattr(fsdp2_models, name)()


def _step(model, rank):
    model.zero_grad()
    loss_of(model(batch(rank))).backward()


def _gradients(make, mesh, rank, policy):
    """The gradients with FSDP2's default of the model that `make` returns."""
    model = make()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    _step(model, rank)
    return [p.grad if p.grad is None else p.grad.full_tensor() for p in model.parameters()]


def _check(plan, make, rank, expected, peak=True):
    """A model that runs as planned does what the plan says."""
    model = plan.apply(make())
    _step(model, rank)
    events, collectives = seen(lambda: _step(model, rank))
    assert events == [e for e in plan.events() if e[0] != "all_reduce"]
    assert collectives == _collectives(plan)
    for p, wanted in zip(model.parameters(), expected):
        assert (p.grad is None) == (wanted is None) and (wanted is None or torch.equal(p.grad.full_tensor(), wanted))
    if peak:
        assert min(_peak(model, rank) for _ in range(3)) == pytest.approx(
            plan.run().allocated_bytes(), rel=PEAK_TOLERANCE, abs=batch(rank).nbytes
        )


def _collectives(plan):
    """The kinds of a plan's collectives, with the numbers of ranks of gathers and reductions."""
    run = plan.run()
    ranks = {Kind.GATHER: run.ranks, Kind.REDUCE: run.ranks, Kind.ALL_REDUCE: 0}
    return [(item.kind.value, item.part or ranks[item.kind]) for item in run.items if item.kind in ranks]


def _peak(model, rank):
    """The live storages of a step. A thread of gloo may hold a tensor for longer, so the least of some steps counts."""
    model.zero_grad()
    gc.collect()
    with Storages([p.to_local() for p in model.parameters()]) as storages:
        _step(model, rank)
    return storages.peak


def _mesh(shape):
    return init_device_mesh("cpu", shape, mesh_dim_names=("replicas", "shards")[-len(shape) :])


def _planned(rank, ranks, cases, shape=None, parts=()):
    _few()
    mesh = _mesh(shape or (ranks,))
    for name, policy, limit, settings in cases:
        policy = policy or MixedPrecisionPolicy()
        make = functools.partial(_model, name)
        plan = ct.plan(
            make(),
            batch(),
            loss=loss_of,
            mesh=mesh,
            mp_policy=policy,
            memory_limit_bytes=limit,
        )
        assert plan.predicted.step_ns <= plan.default_predicted.step_ns
        expected = _gradients(make, mesh, rank, policy)
        # What takes the place of a layer that cannot be traced has no memory of its own.
        _check(plan, make, rank, expected, name != "DependsOnData")
        fine = by_units(plan.step, set(range(len(plan.step.units))))
        for seed in range(settings):
            _check(
                dataclasses.replace(plan, setting=some_setting(seed, fine, parts)),
                make,
                rank,
                expected,
            )


# Tests that a step runs the collectives in the order of the plan, frees parameters when the plan says, needs the memory
# that the plan says, and gives the gradients of FSDP2's default to the bit.
@pytest.mark.parametrize("ranks", [2, 4])
def test_does_what_the_plan_says(ranks):
    gloo.run(
        ranks,
        _planned,
        [
            ("Model", None, None, 0),
            ("Model", None, 10**9, 0),
            ("Model", MIXED, None, 0),
        ],
    )


# Tests the same with random groups, lists and numbers of buffers, for models with modules that are called twice or
# never, frozen or shared parameters, and activation checkpoints.
@pytest.mark.parametrize(
    "name",
    ["Model", "Twice", "Uncalled", "Frozen", "Tied", "Checkpointed", "DependsOnData"],
)
def test_odd_models_do_what_the_plan_says(name):
    gloo.run(2, _planned, [(name, None, None, 0 if name == "DependsOnData" else 3)])


# Tests the same on meshes of two dimensions, on which shards are reduced across replicas.
@pytest.mark.parametrize(
    "name, policy",
    [
        ("Model", None),
        ("Model", MIXED),
        ("Model", LOW),
        ("Frozen", None),
        ("Tied", MIXED),
        ("Checkpointed", None),
    ],
)
def test_hybrid_meshes_do_what_the_plan_says(name, policy):
    gloo.run(4, _planned, [(name, policy, None, 3)], (2, 2))


# Tests the same if two of four ranks keep groups together after the forward pass, and gather them from each other.
@pytest.mark.parametrize(
    "name, policy, shape",
    [("Model", MIXED, (4,)), ("Frozen", None, (4,)), ("Twice", None, (1, 4))],
)
def test_parts_of_the_ranks_do_what_the_plan_says(name, policy, shape):
    gloo.run(4, _planned, [(name, policy, None, 3)], shape, (2,))


def _beside_tensor_parallelism(rank, ranks, name, policy, settings):
    _few()
    mesh = init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=("dp", "tp"))
    policy, row = policy or MixedPrecisionPolicy(), rank // 2

    def make():
        return in_tensor_parallel(_model(name), mesh["tp"])

    plan = ct.plan(make(), batch(), loss=loss_of, mesh=mesh["dp"], mp_policy=policy)
    assert "collectives of the model itself" in plan.table()
    assert plan.predicted.step_ns <= plan.default_predicted.step_ns
    expected = _gradients(make, mesh["dp"], row, policy)
    _check(plan, make, row, expected)
    fine = by_units(plan.step, set(range(len(plan.step.units))))
    for seed in range(settings):
        _check(dataclasses.replace(plan, setting=some_setting(seed, fine)), make, row, expected)
    again = ct.plan(plan.apply(make()), batch(), loss=loss_of)
    assert again.step.compute_ns() == plan.step.compute_ns()
    assert again.default_predicted.allocated_bytes <= plan.predicted.allocated_bytes


# Tests the same of a model whose layers two ranks share (tensor parallelism), and that a plan for the model that was
# sharded so counts the same computation.
@pytest.mark.parametrize("name, policy", [("Model", None), ("Model", MIXED), ("Frozen", None), ("Checkpointed", LOW)])
def test_beside_tensor_parallelism(name, policy):
    gloo.run(4, _beside_tensor_parallelism, name, policy, 2)


def _differs(rank, ranks, shape):
    _few()
    mesh = _mesh(shape)
    plan = ct.plan(_model("Model"), batch(), loss=loss_of, mesh=mesh)
    if rank == ranks - 1:
        plan = dataclasses.replace(plan, setting=dataclasses.replace(plan.setting, reduce_buffers=3))
    model = _model("Model")
    with pytest.raises(RuntimeError, match="another sequence of collectives"):
        plan.apply(model)
    assert not hasattr(model, "set_modules_to_forward_prefetch")


# Tests that ranks with different plans learn of it before anything is sharded.
def test_ranks_that_differ():
    gloo.run(2, _differs, (2,))
    gloo.run(4, _differs, (2, 2))


def _applied(rank, ranks, shape):
    _few()
    mesh = _mesh(shape)
    fewer = 2 if shape[-1] > 2 else True
    model = _model("Model")
    fully_shard([model.layers[0], model.layers[1]], mesh=mesh, reshard_after_forward=False)
    for part in (model.layers[2], model.layers[3]):
        fully_shard(part, mesh=mesh, reshard_after_forward=fewer)
    fully_shard([model.norm, model.head], mesh=mesh)
    fully_shard(model, mesh=mesh)
    plan = ct.plan(model, batch(), loss=loss_of)
    assert [plan.names(i) for i in range(5)] == [
        [""],
        ["layers.0", "layers.1"],
        ["layers.2"],
        ["layers.3"],
        ["norm", "head"],
    ]
    for setting in (plan.setting, some_lists(plan.setting)):
        other = dataclasses.replace(plan, setting=setting)
        assert other.apply(model) is model
        _step(model, rank)
        events, collectives = seen(lambda: _step(model, rank))
        assert collectives == _collectives(other)
        assert events == [e for e in other.events() if e[0] != "all_reduce"]
    for p, wanted in zip(model.parameters(), _gradients(lambda: _model("Model"), mesh, rank, MixedPrecisionPolicy())):
        assert torch.equal(p.grad.full_tensor(), wanted)


def some_lists(setting):
    """The setting with lists of two groups."""
    groups = tuple(dataclasses.replace(g, forward_ahead=2, backward_ahead=2) for g in setting.groups)
    return dataclasses.replace(setting, groups=groups)


# Tests that the groups of a user who has called fully_shard hold, and that the lists of the plan are carried out.
def test_fully_shard_was_called():
    gloo.run(2, _applied, (2,))
    gloo.run(4, _applied, (1, 4))
    gloo.run(4, _applied, (2, 2))
