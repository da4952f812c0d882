# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""strands="auto" splits FX graphs: faster in the model, equal bit for bit, and whole again where it does not pay."""

import copy

import pytest

torch = pytest.importorskip("torch")

from conftest import trace, world_of
from torch.fx.experimental.proxy_tensor import make_fx

import commsched.torch as ct
import gloo
from commsched.torch.options import Options
from commsched.torch.strands import decision
from commsched.torch.strands.recipe import RecipeError
from commsched.torch.strands.rewrite import split_nodes
from random_strands import RandomLayers

c10d, aten = torch.ops._c10d_functional, torch.ops.aten


@pytest.fixture(autouse=True)
def _nothing_is_decided():
    decision._decided.clear()


def reduced(x, group):
    return c10d.wait_tensor(c10d.all_reduce(x, "sum", group))


def chain(group, between=lambda x: x):
    """Tensor-parallel layers, each with a product by columns, one by rows and a reduction."""

    def f(x, *weights):
        for up, down in zip(weights[::2], weights[1::2]):
            x = x + reduced(torch.relu(between(x) @ up) @ down, group)
        return x

    return f


def traced_chain(group, tokens=4096, layers=3, **options):
    return trace(chain(group, **options), (tokens, 4096), *[(4096, 1024), (1024, 4096)] * layers, dtype=torch.bfloat16)


def targets(gm):
    return [n.target for n in gm.graph.nodes if n.op == "call_function"]


def test_a_chain_is_faster_in_strands_within_its_limit():
    with world_of(8) as group:
        whole, before = ct.schedule_overlap(traced_chain(group))
        gm, report = ct.schedule_overlap(traced_chain(group), strands="auto")
    parts = report["strands"]["parts"]
    assert parts >= 2
    assert report["strands"]["makespan_ns"]["whole"] == before["makespan_ns"]["after"]
    assert report["strands"]["makespan_ns"]["split"] == report["makespan_ns"]["after"]
    assert report["makespan_ns"]["after"] < 0.8 * before["makespan_ns"]["after"]
    assert report["peak_bytes"]["after"] <= report["peak_bytes"]["limit"] == before["peak_bytes"]["limit"]
    found = targets(gm)
    assert found.count(c10d.all_reduce.default) == 3 * parts
    assert found.count(aten.cat.default) == 1 and found.count(aten.slice.Tensor) == parts
    assert aten.clone.default not in found  # Slices along the leading dimension are views.
    gm.graph.lint()


def test_the_number_of_strands_is_limited():
    with world_of(8) as group:
        assert ct.schedule_overlap(traced_chain(group), strands=2)[1]["strands"]["parts"] == 2
        assert ct.schedule_overlap(traced_chain(group), strands=1)[1]["strands"]["parts"] == 1
        assert "strands" not in ct.schedule_overlap(traced_chain(group))[1]
    for value in ("on", 0, 9, 2.0, True):
        with pytest.raises(ValueError, match="strands: expected"):
            Options(strands=value)


def _code(gm):
    return [(n.name, str(n.target), str(n.args), str(n.kwargs)) for n in gm.graph.nodes]


@pytest.mark.parametrize("tokens, layers, reason", [(16, 3, "unsplit"), (4096, 0, "no collective")])
def test_a_refusal_leaves_the_graph_and_says_why(tokens, layers, reason):
    """Kernels of few tokens cost their launches; without collectives there is nothing to hide."""
    with world_of(8) as group:
        expected, _ = ct.schedule_overlap(traced_chain(group, tokens, layers))
        gm, report = ct.schedule_overlap(traced_chain(group, tokens, layers), strands=2)
    assert report["strands"]["parts"] == 1 and reason in report["strands"]["reason"]
    assert _code(gm) == _code(expected)


def test_a_split_that_cannot_be_carried_out_is_refused(monkeypatch):
    def fails(graph, recipe, node_of):
        raise RecipeError("planted")

    monkeypatch.setattr(decision, "split_nodes", fails)
    with world_of(8) as group:
        expected, _ = ct.schedule_overlap(traced_chain(group))
        gm, report = ct.schedule_overlap(traced_chain(group), strands="auto")
    assert report["strands"] == {"parts": 1, "reason": "planted"}
    assert _code(gm) == _code(expected)


def test_what_mixes_tokens_or_is_unknown_joins_the_strands():
    """A sort of the tokens stays one operation, between strands."""
    with world_of(8) as group:
        gm = forced(traced_chain(group, between=lambda x: torch.sort(x, 0)[0]), "max-strands=2")
    found = targets(gm)
    assert found.count(aten.sort.default) == 3
    assert found.count(c10d.all_reduce.default) == 6
    assert found.count(aten.cat.default) >= 3


def test_symbols_are_not_split():
    with world_of(8) as group:
        gm = trace(chain(group), (64, 8), (8, 4), (4, 8), symbolic=True)
        _, report = ct.schedule_overlap(gm, strands="auto")
    assert report["strands"] == {"parts": 1, "reason": "an input has a size that is a symbol"}


def test_graphs_of_one_program_are_split_alike():
    with world_of(8) as group:
        small, large = (lambda: traced_chain(group, 16)), (lambda: traced_chain(group))
        assert ct.schedule_overlap(small(), strands="auto")[1]["strands"]["parts"] == 1
        again = ct.schedule_overlap(large(), strands="auto")[1]["strands"]
        assert again["reason"] == "an earlier graph of this program was not split"
        decision._decided.clear()
        parts = ct.schedule_overlap(large(), strands="auto")[1]["strands"]["parts"]
        assert parts > 1
        assert ct.schedule_overlap(large(), strands="auto")[1]["strands"]["parts"] == parts
        assert ct.schedule_overlap(small(), strands="auto")[1]["strands"]["parts"] == 1


FORCED = ("max-strands=2", "max-strands=2 stagger=3", "max-strands=4 stagger=1", "max-strands=2 dimension=1")


def forced(gm, options):
    """A split copy of a graph, or None if the pass finds nothing to split."""
    made = copy.deepcopy(gm)
    try:
        recipe = decision.recipe_of(made.graph, Options(), f"comm-split-strands{{force {options}}}")
    except decision.Refused as refusal:
        assert "cannot" not in str(refusal), refusal
        return None
    split_nodes(made.graph, recipe, {n.name: n for n in made.graph.nodes})
    made.recompile()
    return made


def _equal_on_all_ranks(rank, ranks, first, count):
    group, split = torch.distributed.group.WORLD.group_name, 0
    for seed in range(first, first + count):
        layers = RandomLayers(seed, ranks, group)
        inputs = layers.inputs(rank)
        gm = make_fx(layers, tracing_mode="fake")(*inputs)
        expected = gm(*inputs)
        for options in FORCED:
            made = forced(gm, options)
            if made is None:
                continue
            split += 1
            results = made(*inputs)
            assert all(map(torch.equal, results, expected)), f"seed {seed}, {options}\n{gm.graph}\n{made.graph}"
    assert split >= count, f"only {split} splits of {count} functions"


def test_random_layers_are_equal_bit_for_bit_on_two_ranks():
    gloo.run(2, _equal_on_all_ranks, 0, 30)
