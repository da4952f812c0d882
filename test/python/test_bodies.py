# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Collectives in the bodies of `scan`, `while_loop` and `cond`: equal bits, a schedule, a line, and equal ranks."""

import os
import warnings

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist
from torch._higher_order_ops.map import map as control_flow_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import commsched.torch as ct
import gloo

c10d = torch.ops._c10d_functional
ATEN = dict(fallback_by_default=True, fx_graph_cache=False)


def _gathered(w):
    return c10d.wait_tensor(c10d.all_gather_into_tensor(w, dist.get_world_size(), dist.group.WORLD.group_name))


def _reduced(x):
    return c10d.wait_tensor(c10d.all_reduce(x, "sum", dist.group.WORLD.group_name))


def scanned(x, ws):
    """Layers: a body's gathers have products in front of them, behind which they can run."""

    def body(carried, w):
        y = (carried @ carried).clamp(-3, 3)
        y = (y @ _gathered(w) @ _gathered(w + 1)).clamp(-3, 3)
        return y, _reduced(y.sum(0))

    return scan(body, x, ws, dim=0)


def mapped(x, ws):
    return control_flow_map(lambda w, x: (x @ _gathered(w) + x).clamp(-3, 3), ws, x)


def repeated(x, ws):
    """A loop whose condition nobody knows before."""

    def body(i, y):
        return i + 1, (_reduced((y @ _gathered(ws[0])).clamp(-3, 3)) + y @ y).clamp(-3, 3)

    return while_loop(lambda i, y: i < 3, body, (torch.zeros((), dtype=torch.int64), x))


def chosen(x, ws):
    """A branch. All ranks take the same one."""
    return torch.cond(
        x.shape[0] * ws.sum() > 1e9, lambda x, w: _reduced(x @ x), lambda x, w: x @ _gathered(w), (x, ws[0])
    )


def beside(x, ws):
    """A gather that is in flight while a loop communicates, and a write of its operand behind the wait."""
    shard = ws[1] * 2
    flying = c10d.all_gather_into_tensor(shard, dist.get_world_size(), dist.group.WORLD.group_name)
    _, y = repeated(x, ws)
    landed = c10d.wait_tensor(flying)
    shard.add_(1)
    return y @ landed, shard


PROGRAMS = {f.__name__: f for f in (scanned, mapped, repeated, chosen, beside)}
NAMES = {
    "scanned": ("while_loop",),
    "mapped": ("while_loop",),
    "repeated": ("while_loop",),
    "chosen": ("cond",),
    "beside": ("while_loop",),
}


def _arguments(rank):
    generator = torch.Generator().manual_seed(rank)
    return [torch.randint(-2, 3, s, generator=generator).float() for s in ((16, 16), (4, 8, 16))]


def _equal_with_inductor(rank, ranks, extra):
    for name, function in PROGRAMS.items():
        x, ws = _arguments(rank)
        if name == "chosen":
            x, ws = (torch.ones_like(t) for t in (x, ws))
        found = []
        for ours in (False, True):
            torch._dynamo.reset()
            ct.reports()
            options = ct.inductor_options(machine="cpu-mpi", memory_budget_ratio=4.0) if ours else {}
            found.append(torch.compile(function, options={**options, **extra}, fullgraph=True)(x, ws))
        assert all(map(torch.equal, *found)), name
        said = ct.report()
        bodies = [r for r in ct.reports() if r["place"] == "graph" and "body_of" in r]
        assert bodies and all(r["body_of"].startswith(NAMES[name]) for r in bodies), (name, bodies)
        (line, *_) = [note for note in said.notes() if f"the body of {bodies[0]['body_of']} is" in note]
        assert "is scheduled by itself" in line and "exposed in each run" in line
        if name == "scanned":
            (body,) = bodies
            assert body["collectives"] == 2 or body["collectives"] == 3  # Both gathers may be one.
            assert body["makespan_ns"]["after"] < body["makespan_ns"]["before"]


def test_bodies_are_scheduled_with_equal_bits():
    gloo.run(2, _equal_with_inductor, ATEN)


def _other_decisions_in_a_body(rank, ranks):
    os.environ["COMMSCHED_STRICT"] = "0"
    options = ct.inductor_options(machine="cpu-mpi", memory_budget_ratio=4.0, bucketing=rank == 0)
    step = torch.compile(scanned, options={**options, **ATEN}, fullgraph=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RuntimeError, match="another sequence of collectives"):
            step(*_arguments(rank))


def test_ranks_that_decide_otherwise_about_a_body_get_an_error():
    """The code of a graph whose collectives are all in a body compares them, too."""
    gloo.run(2, _other_decisions_in_a_body)
