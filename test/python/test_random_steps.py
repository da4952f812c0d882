# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Random steps give the same bits with and without CommSched (fuzz.py runs more of them, by hand)."""

import pytest

torch = pytest.importorskip("torch")

import fuzz

import gloo

GRAPHS = 24


# Real code is slow to compile, so few of its steps run here.
@pytest.mark.parametrize(
    ("kind", "ranks", "count"),
    [
        ("graph", 2, GRAPHS),
        ("graph", 4, 4),
        ("aten", 2, 4),
        ("gradient", 2, 2),
        ("dtensor", 2, 2),
        ("model", 2, 1),
        ("code", 2, 1),
    ],
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


def test_graphs_that_run_have_every_form_of_collective():
    """In place, with a destination, coalesced, both, from one rank to all, and with splits of any size."""
    sources = [fuzz.Step(seed, 2).source() for seed in range(GRAPHS)]
    for form in (
        "C.all_reduce_(",
        "C.all_gather_into_tensor_out(",
        "_coalesced(",
        "_coalesced_(",
        "C.broadcast(",
        "C.all_to_all_single(",
        "C.reduce_scatter_tensor(",
    ):
        assert sum(form in source for source in sources) >= 3, form


def test_variants_differ_in_scalars_alone():
    pairs = [(fuzz.Step(seed, 2).source(), fuzz.Step(seed, 2, variant=1).source()) for seed in range(50)]
    assert sum(a != b for a, b in pairs) > 10
    assert all(len(a.splitlines()) == len(b.splitlines()) for a, b in pairs)


def test_models_of_a_structure_differ_in_sizes_alone():
    for seed in range(50):
        models = [fuzz.RandomModel(seed, variant) for variant in range(len(fuzz.VARIANTS))]
        assert len({str(model.lines) for model in models}) == 1
        assert models[0].modules != models[1].modules or not models[0].modules
        assert models[0].modules == models[2].modules and models[0].arguments != models[2].arguments


def _does_not_see_writes():
    """Neither the import nor the check of a schedule sees them."""
    from commsched.torch.apply import rewrite
    from commsched.torch.importer.graph import Importer

    Importer._mutated = lambda *_: []
    rewrite.effects.edges = lambda *_: []


def _does_not_take_over_the_limit():
    """A rank that comes second splits its graph as decided, and goes on with the options as they were given."""
    from commsched.torch.strands import decision

    decided = decision._decided_split

    def decided_split(graph, options, run):
        recipe, numbers, limited = decided(graph, options, run)
        return recipe, numbers, options if "decided_by" in numbers else limited

    decision._decided_split = decided_split


def _does_not_see_scalars():
    """A split is imposed on a graph that differs in its scalars, and nobody asks whether that graph divides so."""
    from commsched.torch.strands import decision

    decision.program_of = lambda graph, options: decision.shape_of(graph, options).structure()
    decision._check_axes = lambda *_: None


# Faults, the kind and the seeds of the steps that notice them, and what is said.
PLANTED = [
    (_does_not_see_writes, "graph", 0, 12, "wrong"),
    (_does_not_take_over_the_limit, "aten", 4, 1, "another sequence of collectives"),
    (_does_not_see_scalars, "graph", 69, 1, "variant 1, .*wrong"),
]


def _planted(rank, ranks, plant, kind, first, count, said, folder):
    plant()
    with pytest.raises(AssertionError, match=said):
        fuzz.steps(rank, ranks, kind, first, count, False, folder)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted[0].__name__)
def test_a_planted_fault_is_found(planted, tmp_path):
    gloo.run(2, _planted, *planted, str(tmp_path))


def _reduced(rank, ranks, folder):
    """The fault needs both variants, one after the other, and what ranks have decided before is forgotten each time."""
    _does_not_see_scalars()
    judge = fuzz.Judge("graph", fuzz.Ranks(rank, ranks, folder))
    kept = fuzz.reduced(judge, 69)
    assert len(kept) < len(judge.step(69, 0).lines)
    one, other = judge.outcomes(69, kept)
    assert one == "equal" and other.startswith("wrong")


def test_a_step_that_fails_is_reduced(tmp_path):
    gloo.run(2, _reduced, str(tmp_path))
