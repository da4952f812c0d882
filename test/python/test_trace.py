# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Models of the zoo in real widths: their graphs are traced with fake tensors, and scheduled."""

import pytest

torch = pytest.importorskip("torch")

from models.graphs import TraceConfig, graphs_of
from models.zoo.real import REAL
from trace_model import main

import commsched.torch as ct
from commsched.torch import schedule
from commsched.torch.apply.memory import peak_of
from commsched.torch.trace import fake_world

CELLS = (
    TraceConfig("vit", ranks=8, layers=1),
    TraceConfig("three-d", ranks=8, layers=1, seq=64),
)


def collectives(gm):
    return sum("c10d_functional" in str(n.target) and "wait_tensor" not in str(n.target) for n in gm.graph.nodes)


@pytest.mark.parametrize("config", CELLS, ids=lambda c: c.model)
def test_graphs_of_the_zoo_are_scheduled(config):
    with fake_world(config.ranks):
        graphs = graphs_of(config)
        assert collectives(graphs["bw"]) >= 8
        assert graphs["fw"].graph.find_nodes(op="output")
        for gm in graphs.values():
            if not collectives(gm):
                continue
            _, report = ct.schedule_overlap(gm)
            assert report["opaque"] == {}
            assert report["peak_bytes"]["after"] <= report["peak_bytes"]["before"]
            assert report["makespan_ns"]["after"] < report["makespan_ns"]["before"]


def test_memory_is_counted_with_the_sizes_that_were_planned_with(monkeypatch):
    """The numbers of rows that dropless routing exchanges are known at run time only, and guessed once."""
    counted = []

    def counting(*arguments):
        counted.append(peak_of(*arguments))
        return counted[-1]

    monkeypatch.setattr(schedule, "peak_of", counting)
    with fake_world(2):
        graph = graphs_of(TraceConfig("deepseek-v3", ranks=2, layers=4, seq=64))["fw"]
        _, report = ct.schedule_overlap(graph)
    assert report["opaque"] == {}
    assert [p.bytes for p in counted] == [report["peak_bytes"]["after"]]


def test_a_zoo_model_has_its_own_parallelism(tmp_path, capsys):
    assert {"qwen3-moe", "deepseek-v3", "mamba-hybrid", "dit", "vit", "dlrm", "context-ring", "three-d"} <= {*REAL}
    with pytest.raises(SystemExit):
        main(["--model", "dit", "--ep", "2", "--out", str(tmp_path)])
    assert "dit has its own parallelism" in capsys.readouterr().err
