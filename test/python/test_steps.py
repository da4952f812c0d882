# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Training steps of many kinds on two ranks: scheduled, they give the bits of plain Inductor. Faults are raised.

Inductor calls ATen for everything, so that no compiler runs. It then treats collectives like any other operator. Its
peak-memory pass would reorder them, so it is off.
"""

import pytest

torch = pytest.importorskip("torch")

import torch.nn as nn
import torch.nn.functional as F

import gloo

c10d = torch.ops._c10d_functional
WIDTH = 32


def _layers(count=3):
    torch.manual_seed(0)
    return nn.Sequential(*[m for _ in range(count) for m in (nn.Linear(WIDTH, WIDTH), nn.Tanh())])


def _sharded(model, ranks, **dtypes):
    from torch.distributed.device_mesh import init_device_mesh

    from commsched.torch.sharding import fully_shard_parameters

    mesh = init_device_mesh("cpu", (ranks,))
    fully_shard_parameters(model, lambda module: mesh, dtypes.get("dtype"), dtypes.get("reduce_dtype"))
    return model


def _run(rank, step, parameters, batches=(8, 8)):
    """Losses and gradients of some steps."""
    torch.manual_seed(rank + 1)
    losses = []
    for batch in batches:
        loss = step(torch.randn(batch, WIDTH))
        loss.backward()
        losses.append(loss.detach())
    return losses + [p.grad.to_local() if hasattr(p.grad, "to_local") else p.grad for p in parameters]


def _optimizer_in_the_graph(rank, ranks, compiled, group):
    model = _layers()
    parameters = list(model.parameters())
    moments = [torch.zeros_like(p) for p in parameters]

    def step(x):
        loss = model(x).square().mean()
        sums = [
            c10d.wait_tensor(c10d.all_reduce(g, "sum", group)) / ranks for g in torch.autograd.grad(loss, parameters)
        ]
        with torch.no_grad():
            for p, m, g in zip(parameters, moments, sums):
                m.mul_(0.9).add_(g)
                p.sub_(0.1 * m)
        return loss.detach()

    f = compiled(step)
    torch.manual_seed(rank + 1)
    return [f(torch.randn(8, WIDTH)) for _ in range(3)] + [p.detach() for p in parameters] + moments


def _checkpoints_and_dropout(rank, ranks, compiled, group):
    from torch.utils.checkpoint import checkpoint

    model = _sharded(_layers(), ranks)

    def loss(x):
        for i in range(0, len(model), 2):
            x = checkpoint(lambda y, i=i: F.dropout(model[i + 1](model[i](y)), 0.1), x, use_reentrant=False)
        return x.square().mean()

    return _run(rank, compiled(loss), model.parameters())


def _accumulated(rank, ranks, compiled, group):
    model = _sharded(_layers(), ranks)
    return _run(rank, compiled(lambda x: model(x).square().mean()), model.parameters(), (8, 6, 3))


def _mixed_precision(rank, ranks, compiled, group):
    model = _sharded(_layers(), ranks, dtype=torch.bfloat16, reduce_dtype=torch.float32)

    def loss(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x).float().square().mean()

    return _run(rank, compiled(loss), model.parameters())


def _experts(rank, ranks, compiled, group):
    """A router sends rows to experts: unequal splits that only the run time knows."""
    import torch.distributed as dist
    from torch.distributed._functional_collectives import all_to_all_single_autograd

    torch.manual_seed(0)
    router, shared = nn.Linear(WIDTH, ranks), _sharded(nn.Linear(WIDTH, WIDTH), ranks)
    torch.manual_seed(100 + rank)
    expert = nn.Linear(WIDTH, WIDTH)

    def loss(x):
        choice = router(x).argmax(-1)
        order = torch.argsort(choice, stable=True)
        counts = F.one_hot(choice, ranks).sum(0)
        received = c10d.wait_tensor(c10d.all_to_all_single(counts, [1] * ranks, [1] * ranks, group))
        ins, outs = counts.tolist(), received.tolist()
        for s in ins + outs:
            torch._check(s >= 0)
            torch._check(s <= 1024)
        y = expert(all_to_all_single_autograd(x[order], outs, ins, dist.group.WORLD))
        y = all_to_all_single_autograd(y, ins, outs, dist.group.WORLD)
        return (torch.empty_like(y).index_copy(0, order, y) + shared(x)).square().mean()

    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        return _run(rank, compiled(loss), [*expert.parameters(), *shared.parameters()], (16,))


def _buffers(rank, ranks, compiled, group):
    """Statistics of a batch norm, and a buffer written in place before and after a collective."""
    model, norm, seen = _sharded(_layers(), ranks), nn.BatchNorm1d(WIDTH), torch.zeros(WIDTH)

    def loss(x):
        y = norm(model(x))
        seen.add_(y.detach().mean(0))
        seen.copy_(c10d.wait_tensor(c10d.all_reduce(seen.clone(), "sum", group)))
        seen.mul_(0.25)
        return y.square().mean() + seen.sum()

    return _run(rank, compiled(loss), model.parameters()) + [seen, norm.running_mean, norm.running_var]


def _random_numbers(rank, ranks, compiled, group):
    import torch._inductor.config as ic

    model = _sharded(_layers(), ranks)

    def loss(x):
        for i, layer in enumerate(model):
            x = layer(x)
            if i % 2:
                x = F.dropout(x, 0.3) + torch.rand_like(x) * 0.01
        return x.square().mean()

    with ic.patch(fallback_random=True):
        return _run(rank, compiled(loss), model.parameters())


def _two_groups(rank, ranks, compiled, group):
    other = _second_group(ranks)
    torch.manual_seed(0)
    weights = [torch.randn(16, WIDTH) for _ in range(4)]

    def f(x, *ws):
        sums = []
        for i, w in enumerate(ws):
            a, b = (group, other) if i % 2 else (other, group)
            full = c10d.wait_tensor(c10d.all_gather_into_tensor(w, ranks, a))
            x = (x @ full.t() @ full) * 1e-2
            sums.append(c10d.wait_tensor(c10d.all_reduce(x, "sum", b)))
        return x, *sums

    torch.manual_seed(rank + 1)
    return list(compiled(f)(torch.randn(8, WIDTH), *weights))


_groups = []


def _second_group(ranks):
    if not _groups:
        _groups.append(torch.distributed.new_group(list(range(ranks))))
    return _groups[0].group_name


STEPS = [
    _optimizer_in_the_graph,
    _checkpoints_and_dropout,
    _accumulated,
    _mixed_precision,
    _experts,
    _buffers,
    _random_numbers,
    _two_groups,
]


def _all(rank, ranks):
    import os

    import torch._inductor.config as ic

    import commsched.torch as ct

    os.environ["COMMSCHED_STRICT"] = "1"
    group = torch.distributed.group.WORLD.group_name
    options = dict(machine="cpu-mpi", memory_budget_ratio=5.0)

    def scheduled(f):
        with ct.enabled(**options):
            return torch.compile(f)

    with ic.patch(force_disable_caches=True, fallback_by_default=True, reorder_for_peak_memory=False):
        for step in STEPS:
            torch._dynamo.reset()
            expected = step(rank, ranks, torch.compile, group)
            torch._dynamo.reset()
            ct.reports()
            got = step(rank, ranks, scheduled, group)
            assert len(got) == len(expected) and all(map(torch.equal, expected, got)), step.__name__
            graphs = [r for r in ct.reports() if r["place"] == "graph"]
            assert any(r["collectives"] for r in graphs), step.__name__
            assert not any(r["opaque"] for r in graphs), step.__name__


def test_the_bits_of_plain_inductor():
    gloo.run(2, _all)
