# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Random steps give the same bits with and without CommSched (fuzz.py runs more of them, by hand)."""

import pytest

torch = pytest.importorskip("torch")

import fuzz

import gloo


# Real code is slow to compile, so few of its steps run here.
@pytest.mark.parametrize(
    ("kind", "ranks", "count"),
    [("graph", 2, 24), ("graph", 4, 4), ("aten", 2, 4), ("gradient", 2, 2), ("dtensor", 2, 2), ("code", 2, 1)],
)
def test_random_steps_are_equal_bit_for_bit(kind, ranks, count, tmp_path):
    gloo.run(ranks, fuzz.steps, kind, 0, count, False, str(tmp_path))


def test_a_step_is_decided_by_its_seed():
    sources = [fuzz.Step(seed, 2).source() for seed in range(200)]
    assert sources == [fuzz.Step(seed, 2).source() for seed in range(200)]
    assert len(set(sources)) == 200
    for part in (
        "C.all_gather_into_tensor(",
        "C.all_reduce_(",
        "_coalesced(",
        ".copy_(",
        "W(W(",
        "as_strided",
        "bfloat16",
    ):
        assert any(part in source for source in sources), part


def test_variants_differ_in_scalars_alone():
    pairs = [(fuzz.Step(seed, 2).source(), fuzz.Step(seed, 2, variant=1).source()) for seed in range(50)]
    assert sum(a != b for a, b in pairs) > 10
    assert all(len(a.splitlines()) == len(b.splitlines()) for a, b in pairs)


def _planted(rank, ranks, folder):
    from commsched.torch.apply import rewrite
    from commsched.torch.importer.graph import Importer

    Importer._mutated = lambda *_: []  # Neither the import nor the check of the schedule sees writes.
    rewrite.effects.edges = lambda *_: []
    with pytest.raises(AssertionError, match="wrong"):
        fuzz.steps(rank, ranks, "graph", 0, 12, False, folder)


def test_a_planted_fault_is_found(tmp_path):
    gloo.run(2, _planted, str(tmp_path))
