# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Splits that are written by hand: what a strand reads, and which orders are refused; and axes that scalars decide."""

import pytest

torch = pytest.importorskip("torch")

from conftest import trace
from test_buckets import _reduce

from commsched.torch.strands import axes
from commsched.torch.strands.recipe import NodeSplit, Recipe, RecipeError
from commsched.torch.strands.rewrite import split_nodes

aten, c10d = torch.ops.aten, torch.ops._c10d_functional


def split(gm, dim, shape, **places):
    """Splits the reduction of a graph and its wait in two along a dimension.

    Args:
        shape: the sizes of a part.
        places: indexed by name of a node: the place of each of its parts.
    """
    both = NodeSplit((dim,), (dim,), (shape,))
    place = {(name, strand): at for name, found in places.items() for strand, at in enumerate(found)}
    split_nodes(
        gm.graph, Recipe(2, {"all_reduce": both, "wait_tensor": both}, place), {n.name: n for n in gm.graph.nodes}
    )
    return gm.graph


def test_a_collective_reads_its_part_without_gaps(world):
    gm = trace(lambda x: _reduce(x) + 1, (4, 8))
    graph = split(gm, 1, (4, 4), all_reduce=[0, 1], wait_tensor=[2, 3], add=[4])
    starts = graph.find_nodes(op="call_function", target=c10d.all_reduce.default)
    assert len(starts) == 2 and all(s.args[0].meta["val"].is_contiguous() for s in starts)


@pytest.mark.parametrize("late", [False, True])
def test_a_strand_behind_a_write_of_what_it_reads_is_refused(world, late):
    def f(x):
        total = _reduce(x)
        x.mul_(2)
        return total + 1

    places = {"all_reduce": [0, 4 if late else 1], "wait_tensor": [2, 5 if late else 3], "mul_": [3.5], "add": [6]}
    gm = trace(f, (4, 8))
    if late:
        with pytest.raises(RecipeError, match="expected mul_ behind"):
            split(gm, 0, (2, 8), **places)
    else:
        order = [n.name for n in split(gm, 0, (2, 8), **places).nodes]
        assert order.index("mul_") > max(order.index(n) for n in order if n.startswith("wait_tensor"))


@pytest.mark.parametrize("causal", [False, True])
def test_rows_of_queries_divide_unless_a_mask_depends_on_their_place(causal):
    graph = torch.fx.Graph()
    inputs = [graph.placeholder(name) for name in ("q", "k", "v")]
    target = aten._scaled_dot_product_flash_attention_for_cpu.default
    node = graph.call_function(target, tuple(inputs), {"is_causal": causal})
    found = axes.split_axes(node, [(2, 4, 8, 16)] * 3, [(2, 4, 8, 16), (2, 4, 8)])
    assert [[0] * 5, [1] * 5] == [axis for axis in found if axis[1] != axes.WHOLE]
    assert ([2, axes.WHOLE, axes.WHOLE, 2, 2] in found) == (not causal)
