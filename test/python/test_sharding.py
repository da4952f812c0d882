# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Sharded parameters train like whole ones on two ranks, with all that models do to their parameters."""

import copy
import io

import pytest

torch = pytest.importorskip("torch")

import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import gloo
from commsched.torch.sharding import as_stored, fully_shard_parameters


class Model(nn.Module):
    """Tied and frozen parameters, a scalar, one with fewer rows than ranks, one that does not divide."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.hidden = nn.Linear(16, 15)
        self.back = nn.Linear(15, 16)
        self.head = nn.Linear(16, 32, bias=False)
        self.head.weight = self.embed.weight
        self.hidden.bias.requires_grad_(False)
        self.scale, self.shift = nn.Parameter(torch.tensor(1.5)), nn.Parameter(torch.ones(1))
        self.register_parameter("nothing", None)

    def forward(self, tokens):
        x = self.back(self.hidden(self.embed(tokens)).tanh()) * self.scale + self.shift
        return self.head(x).log_softmax(-1).square().mean()


def _model():
    torch.manual_seed(0)
    return Model()


def _whole(t):
    return t.full_tensor() if isinstance(t, DTensor) else t


def _trained(model, rank, ranks, sharded, steps=2):
    """Parameters and gradients after some steps. The model that is not sharded sees the batches of all ranks."""
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01, momentum=0.9)
    for step in range(steps):
        tokens = [
            torch.randint(32, (4, 8), generator=torch.Generator().manual_seed(10 * step + r)) for r in range(ranks)
        ]
        loss = model(tokens[rank]) if sharded else sum(model(t) for t in tokens) / ranks
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {k: (_whole(p.detach()), None if p.grad is None else _whole(p.grad)) for k, p in model.named_parameters()}


def _equal(got, expected):
    assert got.keys() == expected.keys()
    for name, pairs in expected.items():
        for a, b in zip(got[name], pairs):
            assert (a is None) == (b is None), name
            assert a is None or (a - b).abs().max() <= 1e-5 * b.abs().max(), name


def _meshes(ranks):
    names = ("replicate", "shard")
    return [
        init_device_mesh("cpu", (ranks,)),
        init_device_mesh("cpu", (1, ranks), mesh_dim_names=names),
        init_device_mesh("cpu", (ranks, 1), mesh_dim_names=names),
    ]


def _train(rank, ranks):
    expected = _trained(_model(), rank, ranks, False)
    for mesh in _meshes(ranks):
        model = _model()
        trainable = {k: p.requires_grad for k, p in model.named_parameters()}
        fully_shard_parameters(model, lambda module: mesh, None)
        assert {k: p.requires_grad for k, p in model.named_parameters()} == trainable
        assert model.head._parameters["weight"] is model.embed._parameters["weight"]
        for name, p in model.named_parameters():
            local = p.to_local()
            assert local.untyped_storage().nbytes() == local.numel() * local.element_size(), name
        _equal(_trained(model, rank, ranks, True), expected)


def _compiled(rank, ranks):
    """The same through torch.compile, scheduled."""
    import torch._inductor.config as ic

    import commsched.torch as ct

    expected = _trained(_model(), rank, ranks, False)
    model = _model()
    mesh = init_device_mesh("cpu", (ranks,))
    fully_shard_parameters(model, lambda module: mesh, None)
    with ic.patch(force_disable_caches=True, fallback_by_default=True, reorder_for_peak_memory=False):
        with ct.enabled(machine="cpu-mpi"):
            step = torch.compile(lambda tokens: model(tokens), fullgraph=True)
        got = _trained(_Calls(model, step), rank, ranks, True)
    _equal(got, {f"model.{k}": v for k, v in expected.items()})
    assert any(r["collectives"] for r in ct.reports() if r["place"] == "graph")


class _Calls(nn.Module):
    def __init__(self, model, step):
        super().__init__()
        self.model, self.step = model, step

    def forward(self, tokens):
        return self.step(tokens)


def _dtypes(rank, ranks):
    """Gathers in one type, sums of gradients in another. The mean of bfloat16 gradients is exact only in float32."""
    mesh = init_device_mesh("cpu", (ranks,))
    gradients = {}
    for reduce_dtype in (None, torch.float32, torch.bfloat16):
        layer = nn.Linear(4, 4, bias=False)
        fully_shard_parameters(layer, lambda module: mesh, torch.bfloat16, reduce_dtype)
        assert layer.weight.dtype == torch.bfloat16 and layer._parameters["weight"].dtype == torch.float32
        grad = torch.full((4, 4), 1.0 if rank == 0 else 1 + 1 / 128, dtype=torch.bfloat16)
        layer.weight.backward(grad)
        gradients[reduce_dtype] = layer._parameters["weight"].grad.full_tensor()[0, 0].item()
    exact = 1 + 1 / 256
    assert gradients[torch.float32] == gradients[None] == exact and gradients[torch.bfloat16] != exact


def _initialise(rank, ranks):
    mesh = init_device_mesh("cpu", (ranks,))
    layer = nn.Linear(6, 6)
    fully_shard_parameters(layer, lambda module: mesh, None)
    before = layer._parameters["weight"].to_local().clone()
    layer.reset_parameters()
    assert not torch.equal(before, layer._parameters["weight"].to_local())
    with as_stored(), torch.no_grad():
        nn.init.ones_(layer.weight)
        layer.bias.zero_()
    assert torch.equal(layer(torch.ones(1, 6)), torch.full((1, 6), 6.0))


def _copies(rank, ranks):
    """State dicts, deep copies and pickles hold the shards, and train on alike."""
    mesh = init_device_mesh("cpu", (ranks,))
    model = _model()
    fully_shard_parameters(model, lambda module: mesh, None)
    twin = copy.deepcopy(model)
    assert type(twin) is type(model) and twin.head._parameters["weight"] is twin.embed._parameters["weight"]
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    assert len(file.getvalue()) < 40_000
    file.seek(0)
    other = _model()
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()
    fully_shard_parameters(other, lambda module: mesh, None)
    other.load_state_dict(torch.load(file, weights_only=False))
    expected = _trained(model, rank, ranks, True)
    for m in (twin, loaded, other):
        _equal(_trained(m, rank, ranks, True), expected)


def _tensor_parallel(rank, ranks):
    """Columns or rows over one mesh, shards of them over the other."""
    torch.manual_seed(0)
    up, down = nn.Linear(8, 12), nn.Linear(12, 8)
    x = torch.randn(4, 8)
    expected = nn.Sequential(up, nn.Tanh(), down)
    expected(x).square().mean().backward()
    for shape in ((1, ranks), (ranks, 1)):
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp"))
        model = copy.deepcopy(expected)
        layouts = {"0.weight": Shard(0), "0.bias": Shard(0), "2.weight": Shard(1), "2.bias": Replicate()}
        for name, layout in layouts.items():
            layer = model[int(name[0])]
            w = layer._parameters[name[2:]].detach()
            layer._parameters[name[2:]] = nn.Parameter(distribute_tensor(w, mesh["tp"], [layout], src_data_rank=None))
        fully_shard_parameters(model, lambda module: mesh["dp"], None)
        out = model(distribute_tensor(x, mesh["tp"], [Replicate()], src_data_rank=None))
        out.square().mean().backward()
        for (name, p), q in zip(model.named_parameters(), expected.parameters()):
            assert p.device_mesh.mesh_dim_names == ("dp", "tp") and p.shape == q.shape
            assert torch.allclose(p.full_tensor(), q, atol=1e-6), name
            assert torch.allclose(p.grad.full_tensor(), q.grad, atol=1e-6), name


@pytest.mark.parametrize(
    "case", [_train, _compiled, _dtypes, _initialise, _copies, _tensor_parallel], ids=lambda f: f.__name__
)
def test_on_two_ranks(case):
    gloo.run(2, case)


def test_meshes_that_make_no_sense(world):
    model = _model()
    with pytest.raises(ValueError, match="1 or 2 dimensions"):
        mesh = init_device_mesh("cpu", (2, 2, 2))
        fully_shard_parameters(model, lambda module: mesh, None)
    one, other = init_device_mesh("cpu", (8,)), init_device_mesh("cpu", (2, 4))
    with pytest.raises(ValueError, match="tied"):
        fully_shard_parameters(model, lambda module: one if isinstance(module, nn.Embedding) else other, None)
    assert not any(isinstance(p, DTensor) for p in model.parameters())
