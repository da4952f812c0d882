# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Graphs inside of wrappers that communicate in eager code: the report says so, and points to the plans."""

import warnings

import pytest

torch = pytest.importorskip("torch")

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import profile

import commsched.torch as ct
from commsched.torch import reporting


@pytest.fixture
def kept(monkeypatch):
    for name, empty in (("_reports", []), ("_all_reports", []), ("_outside", {})):
        monkeypatch.setattr(reporting, name, empty)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = block(x).relu()
        return x


def _step(model, backward=True):
    torch._dynamo.reset()
    with warnings.catch_warnings():  # That nothing was scheduled.
        warnings.simplefilter("ignore")
        with profile() as profiler:
            loss = model(torch.ones(4, 16)).sum()
            if backward:
                loss.backward()
    return {event.name for event in profiler.events()}


def test_blocks_of_fully_shard(world, kept):
    model = Model()
    for i, block in enumerate(model.blocks):
        model.blocks[i] = torch.compile(block, options=ct.inductor_options())
        fully_shard(model.blocks[i], mesh=init_device_mesh("cpu", (8,)))
    fully_shard(model, mesh=init_device_mesh("cpu", (8,)))
    ran = _step(model)
    # PyTorch's profiler: the collectives run beside the compiled code.
    assert any("all_gather" in name for name in ran) and any("CompiledFxGraph" in name for name in ran)
    said = ct.report()
    [note] = said.notes()
    assert note.startswith("the collectives of fully_shard are outside of the compiled graphs")
    assert "commsched.torch.plan decides" in note and note in str(said) and "commsched.torch.plan decides" in said.html


def test_the_module_in_distributed_data_parallel(world, kept):
    model = DistributedDataParallel(Model())
    _step(torch.compile(model, options=ct.inductor_options()), backward=False)  # Its reducer takes no fake group.
    [note] = ct.report().notes()
    assert note.startswith("the collectives of DistributedDataParallel are outside") and "plan_ddp" in note


def test_a_model_without_wrappers_and_one_that_is_not_at_work(world, kept):
    idle = Model()
    fully_shard(idle, mesh=init_device_mesh("cpu", (8,)))
    _step(torch.compile(Model(), options=ct.inductor_options()))
    assert ct.report().notes() == [] and "CommSched has scheduled nothing" in str(ct.report())
