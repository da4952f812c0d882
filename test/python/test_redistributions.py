# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Graphs that DTensor writes for every pair of placements are scheduled, forward and backward, and none is refused."""

import itertools
import warnings

import pytest

torch = pytest.importorskip("torch")

from conftest import trace
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.device_mesh import init_device_mesh

import commsched.torch as ct
from commsched.torch.semantics import effects, landing

PLACEMENTS = (Shard(0), Shard(1), Replicate(), Partial())


def moved(mesh, source, target, saved):
    """A layer on a redistributed activation, and its gradients. `saved` values are returned beside the result."""

    def f(x, w):
        x, w = (t.detach().requires_grad_() for t in (x, w))
        before = DTensor.from_local(torch.relu(x @ w), mesh, source, run_check=False)
        local = before.redistribute(mesh, target).to_local()
        y = (local * local.detach().cos()).sum() + (x @ w).sum()
        gradients = torch.autograd.grad(y, (x, w))
        return (y, *gradients, *([local.view(-1)] if saved else []))

    return trace(f, (16, 16), (16, 16))


def check(gm):
    """Schedules a graph without a warning, within its limit and in a legal order. Returns whether it communicates."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="CommSched")
        gm, report = ct.schedule_overlap(gm, machine="cpu-mpi", memory_budget_ratio=1.0, effort=0)
    assert "error" not in report and landing.is_sorted(gm.graph)
    gm.graph.lint()
    position = {n: i for i, n in enumerate(gm.graph.nodes)}
    assert all(position[a] < position[b] for a, b in effects.edges(gm.graph))
    if report["collectives"]:
        assert report["peak_bytes"]["after"] <= report["peak_bytes"]["limit"]
    return report["collectives"] > 0


@pytest.mark.parametrize("sizes", [(8,), (2, 4)])
def test_redistributions_of_every_pair_are_scheduled(world, sizes):
    mesh = init_device_mesh("cpu", sizes)
    all_placements = list(itertools.product(PLACEMENTS, repeat=len(sizes)))
    pairs = [(s, t) for s, t in itertools.product(all_placements, repeat=2) if Partial() not in t or s == t]
    graphs = communicating = 0
    for number, (source, target) in enumerate(pairs):
        for saved in (True, False) if Partial() in source else (number % 2 == 0,):
            graphs, communicating = graphs + 1, communicating + check(moved(mesh, source, target, saved))
    assert graphs == {1: 17, 2: 221}[len(sizes)] and 2 * communicating > graphs, (graphs, communicating)
