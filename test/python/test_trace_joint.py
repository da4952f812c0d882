# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Forward and backward graph as one graph."""

import pytest

torch = pytest.importorskip("torch")

from models.graphs import TraceConfig, graphs_of
from trace_model import main

from commsched.torch.trace import fake_world, join, partition


def placeholders(gm):
    return [node.name for node in gm.graph.find_nodes(op="placeholder")]


def test_the_joint_graph_computes_what_both_graphs_compute():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4))
    graphs = partition(model, (torch.randn(3, 8),), reshard=False)
    fw, bw = graphs["fw"], graphs["bw"]
    joint = join(fw, bw)
    values = {n.name: torch.randn(n.meta["val"].shape) for n in fw.graph.find_nodes(op="placeholder")}
    made = fw(*values.values())
    (returned,) = (node.args[0] for node in fw.graph.nodes if node.op == "output")
    values |= {node.name: value for node, value in zip(returned, made, strict=True)}
    for node in bw.graph.find_nodes(op="placeholder"):
        values.setdefault(node.name, torch.randn(node.meta["val"].shape))
    saved = {node.name for node in bw.graph.find_nodes(op="placeholder")}
    results = [value for node, value in zip(returned, made, strict=True) if node.name not in saved]
    results += bw(*(values[name] for name in placeholders(bw)))
    again = joint(*(values[name] for name in placeholders(joint)))
    assert len(again) == len(results) > 4
    for one, other in zip(again, results, strict=True):
        assert one is other is None or torch.equal(one, other)


def test_what_is_recomputed_has_storage_of_its_own():
    with fake_world(8):
        graphs = graphs_of(TraceConfig("tiny", ranks=8, layers=2))
        joint = join(graphs["fw"], graphs["bw"])

    def gathers(gm):
        return sum("all_gather_into_tensor" in str(n.target) for n in gm.graph.nodes)

    assert gathers(joint) == gathers(graphs["fw"]) + gathers(graphs["bw"]) > gathers(graphs["fw"])
    waits = joint.graph.find_nodes(op="call_function", target=torch.ops._c10d_functional.wait_tensor.default)
    storages = {wait.meta["val"].untyped_storage()._cdata for wait in waits}
    assert len(storages) == len(waits)


def test_a_traced_model_has_a_joint_graph(tmp_path):
    assert main(["--model", "tiny", "--ranks", "8", "--layers", "1", "--joint", "--out", str(tmp_path)]) == 0
    text = {name: (tmp_path / f"{name}.mlir").read_text() for name in ("fw", "bw", "joint")}
    assert text["joint"].count("comm.all_gather ") == text["fw"].count("comm.all_gather ") + text["bw"].count(
        "comm.all_gather "
    )
