# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Inductor's own lowering of small sums in one shot (`_collective.auto_select`) works beside CommSched. CPUs have no
symmetric memory, so the tests read the code and do not run it.
"""

import re
from unittest import mock

import pytest

torch = pytest.importorskip("torch")

import torch.distributed._symmetric_memory as symmetric
from conftest import trace
from test_generated_code import generated
from torch._inductor.codegen.wrapper import AllocateLine

c10d = torch.ops._c10d_functional
THRESHOLD = 131_072  # Inductor's default, in bytes.


def code_of(world, options, sides=(64, 64), reduction="sum", read_again=False, has_memory=True):
    """The code of a sum beside a product, in a group that has symmetric memory or not."""

    def f(x, y):
        given = x * 2
        flying = c10d.all_reduce(given, reduction, world)
        product = x @ y
        landed = c10d.wait_tensor(flying)
        return (landed + 1, given + product) if read_again else (landed + 1, product)

    def allocated(line, code):
        code.writeline(f"{line.node.get_name()} = empty_strided_p2p({line.node.get_output_spec().group_name!r})")

    with (
        mock.patch.object(symmetric, "is_symm_mem_enabled_for_group", lambda name: has_memory and name == world),
        mock.patch.object(AllocateLine, "_codegen_comm_buffer", allocated),
    ):
        gm = trace(f, sides, (sides[1], sides[1]))
        code, _ = generated(gm, options, **{"_collective.auto_select": True})
    return code[code.index("def call(") :]


SUMS = {"in one shot": r"symm_mem\.one_shot_all_reduce_out", "otherwise": r"_c10d_functional\.all_reduce_?"}
WAIT = r"_c10d_functional\.wait_tensor"


def counts(code):
    """How often the code sums in one shot, sums otherwise, and waits."""
    return tuple(len(re.findall(rf"torch\.ops\.{name}\.default\(", code)) for name in (*SUMS.values(), WAIT))


@pytest.mark.parametrize("options", [None, {}], ids=["alone", "beside CommSched"])
def test_waits_for_small_sums_are_skipped_as_inductor_skips_them(world, options):
    """`mark_as_skip_wait` is for sums in place, which are those whose input nobody else reads."""
    code = code_of(world, options)
    assert counts(code) == (1, 0, 0)
    assert code.count("empty_strided_p2p(") == 1  # The input alone is in symmetric memory.
    assert counts(code_of(world, options, read_again=True)) == (1, 0, 1)


@pytest.mark.parametrize(
    "other", [dict(has_memory=False), dict(sides=(64, THRESHOLD // 256 + 1)), dict(reduction="avg")]
)
def test_other_sums_start_and_wait(world, other):
    """A group without symmetric memory, more bytes than the threshold, and another reduction."""
    code = code_of(world, {}, **other)
    assert counts(code) == (0, 1, 1)
    assert "empty_strided_p2p(" not in code
