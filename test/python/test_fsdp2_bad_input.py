# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What plans for FSDP2 refuse, and what they say about models that they know only in part. There are no real ranks."""

import pytest

torch = pytest.importorskip("torch")

import torch.nn as nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

import commsched.torch as ct
import fsdp2_models
from commsched.torch.fsdp2 import Untraceable, search, units
from commsched.torch.trace import fake_world
from fsdp2_models import Model, batch, loss_of


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """These tests look at what plans say, not at how good they are."""
    monkeypatch.setattr(search, "MOST_SETTINGS", 20)


def _plan(model, **options):
    return ct.plan(model, batch(), **{"loss": loss_of, "ranks": 8, **options})


# Tests that the model is as before: parameters, hooks and methods.
def test_changes_nothing():
    model = Model()
    before = [id(p) for p in model.parameters()], dict(model.layers[0].__dict__)
    _plan(model)
    assert before[0] == [id(p) for p in model.parameters()]
    assert before[1].keys() == model.layers[0].__dict__.keys()
    assert not model._forward_pre_hooks and not model.layers[0]._forward_hooks
    assert all(p.grad is None for p in model.parameters())


# Tests that a model without memory gives the same plan.
def test_meta():
    with torch.device("meta"):
        model = Model()
    assert _plan(model).setting == _plan(Model()).setting


# Tests that a layer which depends on values is named with its place, and that the rest is planned.
def test_depends_on_values():
    plan = _plan(fsdp2_models.DependsOnData())
    (note,) = plan.notes
    assert "layers.2 (Routed)" in note and "fsdp2_models.py:" in note
    assert plan.predicted.step_ns <= plan.default_predicted.step_ns


# Tests that the place is named if the model itself depends on values.
def test_depends_on_values_outside_of_layers():
    class Whole(Model):
        def forward(self, tokens):
            return super().forward(tokens) if tokens.sum() > 0 else None

    with pytest.raises(Untraceable, match=r"Whole .*test_fsdp2_bad_input\.py:\d+\).*DataDependent"):
        _plan(Whole())


# Tests what is said of modules that are called twice or never, and of shared parameters.
@pytest.mark.parametrize(
    "name, note",
    [
        ("Twice", "layers.1 is called more than once in a step"),
        ("Uncalled", "other_head is not called in a step"),
        ("Tied", "embed stays with the model itself: it shares head.weight"),
    ],
)
def test_notes(name, note):
    plan = _plan(getattr(fsdp2_models, name)())
    assert note in plan.notes
    assert f"note: {note}" in plan.table()


# Tests that what cannot be planned is refused by name.
def test_refusals():
    model = Model()
    with pytest.raises(ValueError, match="machine"):
        _plan(model, machine="nothing")
    with pytest.raises(ValueError, match="memory_limit_bytes"):
        _plan(model, memory_limit_bytes=-1)
    with pytest.raises(ValueError, match="ranks: expected at least 1"):
        _plan(model, ranks=0)
    with pytest.raises(ValueError, match="no process group"):
        _plan(model, ranks=None)
    with pytest.raises(ValueError, match="inside of the model"):
        _plan(model, units=[nn.Linear(2, 2)])
    with pytest.raises(ValueError, match="not inside of each other"):
        _plan(model, units=["layers.0", "layers.0.up"])
    with pytest.raises(Untraceable, match="pass loss="):
        _plan(model.requires_grad_(False), loss=None)
    with pytest.raises(Untraceable, match=r"embed \(Embedding\) .*fsdp2_models\.py:\d+"):
        ct.plan(Model(), torch.zeros(2, 2), loss=loss_of, ranks=8)
    with pytest.raises(Untraceable, match="loss: expected a scalar"):
        _plan(Model(), loss=lambda logits: logits)


# Tests that meshes and parameters of other parallelisms are refused by name.
def test_other_parallelisms():
    with fake_world(8):
        with pytest.raises(ValueError, match="ranks: expected None with a mesh"):
            _plan(Model(), mesh=init_device_mesh("cpu", (8,)))
        model = Model()
        model.head.weight = nn.Parameter(
            distribute_tensor(model.head.weight, init_device_mesh("cpu", (8,)), [Shard(0)])
        )
        with pytest.raises(ValueError, match="head.weight: expected mesh="):
            _plan(model)
        with pytest.raises(ValueError, match=r"head.weight: expected other ranks .* got \[1, 2, 3, 4, 5, 6, 7\]"):
            _plan(model, ranks=None, mesh=init_device_mesh("cpu", (8,)))
        model = Model()
        fully_shard(model.layers[0])
        with pytest.raises(ValueError, match="one root"):
            _plan(model, ranks=None)
        fully_shard(model)
        with pytest.raises(ValueError, match="its groups hold"):
            _plan(model, ranks=None, units=["layers.1"])
        plan = _plan(model, ranks=None)
        with pytest.raises(ValueError, match="make the plan again"):
            plan.apply(Model())
        with pytest.raises(ValueError, match="make the plan again"):
            _plan(Model()).apply(model)
        with pytest.raises(ValueError, match="which the plan decides"):
            _plan(Model()).apply(Model(), mesh=init_device_mesh("cpu", (8,)))


# Tests that meshes which FSDP2 does not take, or takes for something else, are refused by name.
def test_meshes():
    with pytest.raises(ValueError, match="ranks: expected at least 1, or a pair"):
        _plan(Model(), ranks=(2, 2, 2))
    with pytest.raises(ValueError, match="ranks: expected at least 2 ranks in a replica"):
        _plan(Model(), ranks=(8, 1))
    with fake_world(8):
        with pytest.raises(ValueError, match="mesh: expected one dimension, or two for hybrid sharding, got 3"):
            _plan(Model(), mesh=init_device_mesh("cpu", (2, 2, 2)), ranks=None)
        with pytest.raises(ValueError, match="mesh_dim_names"):
            _plan(Model(), mesh=init_device_mesh("cpu", (2, 4)), ranks=None)
        hybrid = init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicas", "shards"))
        plan = _plan(Model(), ranks=(2, 4))
        assert plan.setting == _plan(Model(), mesh=hybrid, ranks=None).setting
        with pytest.raises(ValueError, match="made for 2 replicas of 4 ranks, got no mesh"):
            plan.apply(Model())
        with pytest.raises(ValueError, match="which the plan decides"):
            plan.apply(Model(), dp_mesh_dims=None)
        model = Model()
        fully_shard(model.layers[0], mesh=hybrid["shards"])
        fully_shard(model, mesh=hybrid)
        with pytest.raises(ValueError, match="layers.0: expected the mesh of the other groups"):
            _plan(model, ranks=None)
        model = Model()
        fully_shard(model, mesh=hybrid)
        with pytest.raises(ValueError, match="ranks: expected None for a model on which fully_shard was called"):
            _plan(model)


# Tests that groups are those of the mesh, also if its replicas are neighbours and its shards are not.
def test_places_of_ranks():
    with fake_world(16):
        names = ("replicas", "shards")
        inside = DeviceMesh("cpu", torch.arange(16).view(8, 2).t().contiguous(), mesh_dim_names=names)
        across = DeviceMesh("cpu", torch.arange(16).view(2, 8), mesh_dim_names=names)
        text = "comm.group @{} #comm.iota<[{}] from [8, 2] transpose [1, 0]>"
        layouts = [_plan(Model(), mesh=mesh, ranks=None).layout for mesh in (across, inside)]
        assert layouts[0].groups()[:2] == [
            "  comm.group @shards #comm.iota<[2, 8]>",
            "  " + "comm.group @replicas #comm.iota<[8, 2] from [2, 8] transpose [1, 0]>",
        ]
        assert layouts[1].groups()[:2] == [
            "  " + text.format("shards", "2, 8"),
            "  comm.group @replicas #comm.iota<[8, 2]>",
        ]


# Tests that one group alone is planned, and that one rank is.
def test_one_group():
    plan = ct.plan(nn.Linear(8, 8), torch.zeros(2, 8), ranks=4)
    assert plan.bound_ns is None and len(plan.setting.groups) == 1
    assert _plan(Model(), ranks=1).predicted.step_ns > 0


def _lists(model):
    """What is set: groups, whether they are resharded, buffers, and lists, by public state."""
    found = units.find(model, None)
    names = [[found.modules[u][0] for u in group] for group in found.applied]
    states = [m._get_fsdp_state() for m in model.modules() if isinstance(m, FSDPModule)]
    lists = [
        [
            [id(s._modules[0]) for s in targets]
            for targets in (
                s._states_to_forward_prefetch,
                s._states_to_backward_prefetch,
            )
        ]
        for s in states
    ]
    index = {id(m): n for n, m in model.named_modules()}
    return (
        names,
        found.facts,
        found.reduce_buffers,
        [[[index[i] for i in t] for t in pair] for pair in lists],
    )


# Tests that the printed code sets what `apply` sets, with all kinds of decisions, and that what is set is read.
@pytest.mark.parametrize("shape", [(8,), (2, 4)], ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_code(seed, shape):
    import dataclasses

    from commsched.torch.fsdp2.setting import by_units
    from fsdp2_steps import some_setting

    with fake_world(8):
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicas", "shards")[-len(shape) :])
        plan = _plan(Model(), mesh=mesh, ranks=None)
        fine = by_units(plan.step, set(range(len(plan.step.units))))
        plan = dataclasses.replace(plan, setting=some_setting(seed, fine, (2,)))
        one, other = Model(), Model()
        plan.apply(one)
        code = plan.code()
        assert "options = {}" in code and (f"mesh ({plan.layout})" in code) == (len(shape) == 2)
        exec(code.replace("options = {}", "options = {'mesh': mesh}"), {"model": other, "mesh": mesh})
        assert _lists(one) == _lists(other)
        again = _plan(one, ranks=None)
        assert again.layout == plan.layout
        # The model itself may have no parameters of its own.
        assert [g.reshard for g in again.default.groups[1:]] == [g.reshard for g in plan.setting.groups[1:]]


# Tests that table and page show the plan.
def test_table_and_page(tmp_path):
    plan = _plan(Model())
    assert all(
        word in plan.table()
        for word in (
            "step",
            "peak",
            "lower bound",
            "the model itself",
            "8 ranks of h100-sxm",
        )
    )
    plan.page(tmp_path / "plan.html")
    assert "all_gather.fw" in (tmp_path / "plan.html").read_text()
    plan = _plan(Model(), ranks=(4, 8))
    assert "4 replicas of 8 ranks of h100-sxm" in plan.table()
    plan.page(tmp_path / "hybrid.html")
    assert "all_reduce.bw" in (tmp_path / "hybrid.html").read_text()
