# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Traced decoders: activation checkpointing, and tensor parallelism that splits the sequence, embedding and head."""

import functools
import re

import pytest

torch = pytest.importorskip("torch")

from models import decoder, recompute
from models.graphs import TraceConfig, graphs_of
from trace_model import main

from commsched.torch.trace import fake_world

LAYERS = 2
# The products of a block: query, key, value and output, and three of the feed-forward.
PRODUCTS = 7
aten, c10d = torch.ops.aten, torch.ops._c10d_functional


@functools.cache
def traced(**changes):
    """The graphs of a small decoder. They are not to be changed."""
    config = TraceConfig("tiny", ranks=8, layers=LAYERS, **changes)
    with fake_world(config.ranks):
        return graphs_of(config)


def count(gm, *targets):
    return sum(n.target in targets for n in gm.graph.nodes)


def saved(graphs):
    """The bytes of the values that the backward graph takes from the forward graph."""
    values = [n.meta["val"] for n in graphs["bw"].graph.find_nodes(op="placeholder")]
    return sum(v.nbytes for v in values if isinstance(v, torch.Tensor))


@pytest.mark.parametrize(
    "mode, again",
    [
        ("none", 0),
        # Every second product of a block: key, output, and one of the feed-forward.
        ("selective", 3 * LAYERS),
        # All but the last product of a block, whose result nobody needs.
        ("full", (PRODUCTS - 1) * LAYERS),
        ("alternate", (PRODUCTS - 1) * LAYERS // 2),
    ],
)
def test_recomputed_products(mode, again):
    graphs = traced(recompute=mode)
    forward = count(graphs["fw"], aten.mm.default)
    assert forward == PRODUCTS * LAYERS + 1
    extra = count(graphs["bw"], aten.mm.default) - 2 * forward
    # The sum of a block's output with its input may keep the last product alive.
    assert again <= extra <= again + (LAYERS if mode in ("full", "alternate") else 0)
    assert not [n for gm in graphs.values() for n in gm.graph.nodes if "rng_state" in str(n.target)]


def test_more_recomputation_saves_more():
    full, alternate, selective, none = (saved(traced(recompute=m)) for m in ("full", "alternate", "selective", "none"))
    assert full < alternate < none
    assert full < selective < none
    with pytest.raises(ValueError, match="expected one of none, full, alternate, selective, got 'some'"):
        traced(recompute="some")


def test_nodes_know_their_block():
    for gm in traced(recompute="selective").values():
        parts = {recompute.part_of(n) for n in gm.graph.nodes if n.target is c10d.all_gather_into_tensor.default}
        assert (
            {f"layers.{i}" for i in range(LAYERS)}
            <= parts
            <= {"embed", "head", *(f"layers.{i}" for i in range(LAYERS))}
        )


def test_eager_kernels_are_not_taken_apart():
    graphs = traced(decomposed=False)
    assert count(graphs["fw"], aten.silu.default) == LAYERS
    assert count(traced()["fw"], aten.silu.default) == 0


def test_split_sequences_have_no_large_sums():
    whole, split = traced(tp=2), traced(tp=2, split_sequence=True)
    sums = [n for gm in split.values() for n in gm.graph.nodes if n.target is c10d.all_reduce.default]
    config = decoder.CONFIGS["tiny"]
    # The loss sums three numbers per token, and the gradient of a norm's weight is summed.
    assert max(n.meta["val"].numel() for n in sums) <= max(config.dim, config.seq)
    activation = lambda gm, target: [n for n in gm.graph.nodes if n.target is target and n.args[-1] == sums[0].args[-1]]
    # A gather before, and a sum after, attention and feed-forward; the embedding's sum, and the head's gather.
    assert len(activation(split["fw"], c10d.all_gather_into_tensor.default)) == 2 * LAYERS + 1
    assert len(activation(split["fw"], c10d.reduce_scatter_tensor.default)) == 2 * LAYERS + 1
    assert saved(split) < saved(whole)


def test_options_are_checked(tmp_path, capsys):
    for arguments, said in (
        (["--split-sequence"], "expected --tp with --split-sequence"),
        (["--model", "dit", "--recompute", "full"], "dit is no decoder: expected no --recompute"),
    ):
        with pytest.raises(SystemExit):
            main([*arguments, "--out", str(tmp_path)])
        assert said in capsys.readouterr().err
    assert (
        main(
            "--model tiny --ranks 8 --layers 1 --tp 2 --split-sequence --recompute full --out".split() + [str(tmp_path)]
        )
        == 0
    )
    assert re.search(r"comm\.reduce_scatter", (tmp_path / "fw.mlir").read_text())
