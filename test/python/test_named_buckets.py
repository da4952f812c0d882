# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Buckets by the names of modules, in the order of their parameters: what FSDP2 packs for the same modules."""

import copy

import pytest

torch = pytest.importorskip("torch")

import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import commsched.torch as ct
import gloo
from commsched.torch.sharding import fully_shard_parameters
from commsched.torch.trace import compiled, fake_world

OPTIONS = {
    "passes": [r"comm-bucket{names=layers\.([0-9]+) member-order=signature}", "comm-schedule"],
    "bucketing": False,
}


class Layer(nn.Module):
    """Its gradients are the values that it is given, and come in the reverse order of its parameters."""

    def __init__(self, rows):
        super().__init__()
        self.first, self.second, self.third = (nn.Parameter(torch.randn(rows + 4 * i, 8)) for i in range(3))

    def forward(self, values):
        return sum((w * g).sum() for w, g in zip((self.first, self.second, self.third), values))


class Model(nn.Module):
    """Three layers, no two of whose parameters are alike, and a parameter beside them."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer(16 * (i + 1)) for i in range(3))
        self.rest = nn.Parameter(torch.randn(8))

    def forward(self, values, last):
        return sum(layer(v) for layer, v in zip(self.layers, values)) + (self.rest * last).sum()


def _batch(model, seed=0):
    random = torch.Generator().manual_seed(seed)
    values = [[torch.randn(w.shape, generator=random) for w in layer.parameters()] for layer in model.layers]
    return values, torch.randn(8, generator=random)


def _shapes(graph):
    """Indexed by collective: the shape of the whole parameter that it gathers, or whose gradient it scatters."""
    whole = {n: n if "all_gather" in n.name else n.args[0] for n in graph.nodes if "_tensor" in n.name}
    return {n.name: tuple(value.meta["val"].shape) for n, value in whole.items() if hasattr(value, "meta")}


def _buckets():
    """The names of the members of each merged collective since the last call, in the order of packing, by direction."""
    buckets = {"forward": [], "backward": []}
    for report in ct.reports():
        for row in report["per_collective"] if report["place"] == "graph" else ():
            if len(names := row["loc"].split(" + ")) > 1:
                buckets[report["direction"]].append(names)
    return buckets


def test_packs_as_fsdp2():
    with fake_world(4):
        mesh = init_device_mesh("cpu", (4,))
        eager = Model()
        for layer in eager.layers:
            fully_shard(layer, mesh=mesh)
        groups = [layer._get_fsdp_state()._fsdp_param_group for layer in eager.layers]
        wanted = [[tuple(p._orig_size) for p in group.fsdp_params] for group in groups]
        model = Model()
        batch = _batch(model)
        fully_shard_parameters(model, lambda _: mesh, None)
        graphs = compiled(model, batch, reshard=False)
        ct.reports()
        with gloo.without_kernels():
            torch.compile(model, backend="commsched", options=OPTIONS)(*batch).backward()
    buckets = _buckets()
    for graph, direction in (("fw", "forward"), ("bw", "backward")):
        shapes = _shapes(graphs[graph].graph)
        packed = [[shapes[name] for name in members] for members in buckets[direction]]
        assert sorted(packed) == wanted, direction


def _same_gradients(rank, ranks):
    torch.manual_seed(0)
    given = Model()
    batch = _batch(given, seed=rank)
    mesh = init_device_mesh("cpu", (ranks,))
    eager = copy.deepcopy(given)
    for layer in eager.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(eager, mesh=mesh)
    eager(*batch).backward()
    fully_shard_parameters(given, lambda _: mesh, None)
    # Code from a cache has no report of its graph.
    with torch._inductor.config.patch(force_disable_caches=True, fallback_by_default=True):
        torch.compile(given, backend="commsched", options=OPTIONS)(*batch).backward()
    for (name, p), q in zip(eager.named_parameters(), given.parameters()):
        assert torch.equal(p.grad.to_local(), q.grad.to_local()), name
    assert [len(members) for members in _buckets().values()] == [3, 3]


def test_gradients_of_fsdp2():
    gloo.run(2, _same_gradients)
