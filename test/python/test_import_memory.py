# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The importer and memory that is shared, filled again or started by unknown operators, and about types."""

import pytest

torch = pytest.importorskip("torch")

from conftest import RANKS, trace, world_of
from test_import import exported
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

c10d = torch.ops._c10d_functional


def test_a_wait_for_memory_that_is_filled_again_is_a_wait(world):
    def f(x):
        landed = c10d.wait_tensor(c10d.all_reduce(x, "sum", world))
        return c10d.wait_tensor(c10d.all_reduce_(landed, "sum", world)) + 1

    text, ops = exported(trace(f, (4, 4)))
    assert text.count("comm.wait ") == 2
    assert "comm.wait %all_reduce_ " in ops["wait_tensor_1"]


def test_a_wait_for_what_an_opaque_operator_started_writes_it(world):
    _, ops = exported(trace(lambda x: c10d.wait_tensor(c10d.all_reduce(x, "bxor", world)), (16,), dtype=torch.int32))
    assert "mutates [0]" in ops["wait_tensor"] and "aliases [0]" in ops["wait_tensor"]


def test_two_arguments_in_one_storage_are_one_buffer(world):
    with FakeTensorMode(allow_non_fake_inputs=True):
        x = torch.empty(4, 4)
        args = [x, x[1:]]
    text, _ = exported(make_fx(lambda a, b: (a.mul_(2), b + 1)[1])(*args))
    (view,) = [line for line in text.splitlines() if 'comm.compute "view"' in line]
    assert "(%a_1) aliases [0]" in view


def test_a_root_is_its_place_in_the_group():
    with world_of(RANKS):
        name = torch.distributed.new_group([0, 2, 4, 6]).group_name

        def f(x):
            return [c10d.wait_tensor(c10d.broadcast(x, root, name)) for root in (6, 1)]

        _, ops = exported(trace(f, (16,)))
    assert "root 3" in ops["broadcast"] and "root 1" in ops["broadcast_1"]


def test_truth_values_are_no_type_of_numbers(world):
    """Otherwise, a bucket could mix them with numbers of the same size."""

    def gathered(dtype):
        f = lambda x: c10d.wait_tensor(c10d.all_gather_into_tensor(x, RANKS, world))
        return exported(trace(f, (4,), dtype=dtype))[1]["all_gather_into_tensor"]

    types = {
        gathered(dtype).partition("tensor<4x")[2].partition(">")[0] for dtype in (torch.bool, torch.int8, torch.uint8)
    }
    assert len(types) == 3
