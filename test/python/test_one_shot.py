# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Inductor's own lowering of small sums in one shot (`_collective.auto_select`) works beside CommSched, and
`comm-realize-buffers` decides as it does. CPUs have no symmetric memory, so the tests read the code and do not run it.
"""

import contextlib
import re
from unittest import mock

import pytest

torch = pytest.importorskip("torch")

import torch.distributed._symmetric_memory as symmetric
from conftest import RANKS, trace
from test_generated_code import generated
from torch._inductor import comm_lowering
from torch._inductor.codegen.wrapper import AllocateLine

import commsched
import commsched.torch as ct

c10d = torch.ops._c10d_functional
THRESHOLD = 131_072  # Inductor's default, in bytes.


@contextlib.contextmanager
def symmetric_memory(has_memory):
    """Groups have symmetric memory if `has_memory` says so of their names, and code allocates it by a name."""

    def allocated(line, code):
        code.writeline(f"{line.node.get_name()} = empty_strided_p2p({line.node.get_output_spec().group_name!r})")

    with (
        mock.patch.object(symmetric, "is_symm_mem_enabled_for_group", has_memory),
        mock.patch.object(AllocateLine, "_codegen_comm_buffer", allocated),
    ):
        yield


def code_of(world, options, sides=(64, 64), reduction="sum", read_again=False, has_memory=True):
    """The code of a sum beside a product, in a group that has symmetric memory or not."""

    def f(x, y):
        given = x * 2
        flying = c10d.all_reduce(given, reduction, world)
        product = x @ y
        landed = c10d.wait_tensor(flying)
        return (landed + 1, given + product) if read_again else (landed + 1, product)

    with symmetric_memory(lambda name: has_memory and name == world):
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


def decided(world, inputs, shape):
    """Whether Inductor's rule, and `comm-realize-buffers`, do the sums of `inputs(x, world)` in one shot, in turn."""
    rule, answers = comm_lowering._should_lower_as_one_shot_all_reduce, []

    def asked(*args):
        answers.append(rule(*args))
        return answers[-1]

    with (
        symmetric_memory(lambda name: name == world),
        mock.patch.object(comm_lowering, "_should_lower_as_one_shot_all_reduce", asked),
    ):
        gm = trace(lambda x: tuple(inputs(x, world)), shape)
        program = commsched.Program(ct.export_mlir(gm))
        generated(gm, None, **{"_collective.auto_select": True})
    program.run("comm-realize-buffers")
    return answers, ["one_shot" in line for line in program.print().splitlines() if "comm.all_reduce" in line]


def landed(x, world, reduction="sum"):
    return c10d.wait_tensor(c10d.all_reduce(x, reduction, world))


def gathered(x, world):
    return c10d.wait_tensor(c10d.all_gather_into_tensor(x, RANKS, world))


def with_itself(x, world):
    """A sum, and its input."""
    return x, landed(x, world) + 1


# What sums read: the values that the graph returns, made of its argument and the name of the group.
INPUTS = {
    "an argument": lambda x, w: [landed(x, w) + 1],
    "a view of an argument": lambda x, w: [landed(x.view(-1), w) + 1],
    "a product": lambda x, w: [landed(x @ x, w) + 1],
    "a pointwise result": lambda x, w: [landed(x * 2, w) + 1],
    "a view": lambda x, w: [landed((x * 2).view(-1), w) + 1],
    "a part": lambda x, w: [landed((x * 2)[:8], w) + 1],
    "a reduction": lambda x, w: [landed(x.sum(0), w) + 1],
    "a value for two sums": lambda x, w: [landed(v, w) + k for v in [x * 2] for k in (1, 2)],
    "a value that is read again": lambda x, w: [r for v in [x * 2] for r in (landed(v, w) + 1, v @ x)],
    "a sum": lambda x, w: [landed(landed(x * 2, w), w) + 1],
    "a value whose sum is returned": lambda x, w: [landed(x * 2, w)],
    "a value for another reduction": lambda x, w: [landed(x * 2, w, "max") + 1],
    "a value for an average": lambda x, w: [landed(x * 2, w, "avg") + 1],
}


@pytest.mark.parametrize("side", [64, 181, 182])
@pytest.mark.parametrize("inputs", INPUTS)
def test_small_sums_are_those_of_inductor(world, inputs, side):
    """The referee is Inductor's own rule. 181 x 181 elements of 4 bytes are below the threshold, 182 x 182 above it."""
    assert 4 * 181**2 <= THRESHOLD < 4 * 182**2
    inductor, ours = decided(world, INPUTS[inputs], (side, side))
    assert inductor == ours and len(ours) >= 1


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        pytest.param(with_itself, ([True], [False]), id="a value that is returned"),
        pytest.param(lambda x, w: [landed(gathered(x[:8] * 2, w), w)], ([False], [True]), id="a gathered value"),
    ],
)
def test_small_sums_that_inductor_decides_otherwise(world, inputs, expected):
    """The differences that WhereIs.md names."""
    assert decided(world, lambda x, w: inputs(x * 2, w), (64, 64)) == expected


def test_groups_without_symmetric_memory_have_no_sums_in_one_shot(world):
    """As in Inductor. `peer-groups` names the groups that have it."""

    def f(x):
        return (landed(x * 2, world) + 1,)

    gm = trace(f, (64, 64))
    program = commsched.Program(ct.export_mlir(gm))
    text = program.print()
    group = re.search(r"comm\.group @(\w+)", text).group(1)
    other = text.replace("comm.group", "comm.group @other #comm.iota<[1, 8]>\n  comm.group", 1)
    for peers, expected in ((group, True), ("other", False)):
        program = commsched.Program(other)
        program.run(f"comm-realize-buffers{{peer-groups={peers}}}")
        assert ("one_shot" in program.print()) == expected
    with symmetric_memory(lambda name: False):
        code, _ = generated(gm, None, **{"_collective.auto_select": True})
    assert "one_shot" not in code
