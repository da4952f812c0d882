# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The rows of published measurements are complete, and the command that predicts them notices wrong numbers."""

import dataclasses
import json
import pathlib
import re
import sys

import pytest

torch = pytest.importorskip("torch")

BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS / "published"))

import published
import published_orders
import published_page
import published_rows
import published_steps
import torch_overlap
from models import decoder
from models.graphs import graphs_of
from published_rows import Mode, RowError

from commsched.torch import trace

MACHINE = "h100-sxm"
COLLECTIVE = "nccl-all-reduce-8-h100"
TINY = {
    "title": "A tiny decoder",
    "kind": "step",
    "program": {
        "model": "tiny",
        "ranks": 8,
        "tp": 1,
        "batch": 2,
        "sequence": 32,
        "recompute": "selective",
        "reshard": True,
    },
    "machine": {"profile": MACHINE, "said": "8 GPUs.", "changes": {"memory": {"bandwidth_gbps": 2400}}},
    "unit": "ms",
    "modes": [
        {"name": "by hand", "measured": 1},
        {"name": "eager", "measured": 2, "fusion": False, "peak_gib": 1.5},
        {"name": "merged", "measured": 3, "order": "500 MB buckets + simple_overlap"},
    ],
    "source": {"url": "https://example.org", "what": "a page", "seen": "2026-11-27"},
    "unknown": ["Nothing was measured."],
}


def text(**changes) -> str:
    return json.dumps({**TINY, **changes})


def mode(order="per block", fusion=True, name="m"):
    return Mode(name, 1.0, {}, order, fusion, 0, None, True)


def test_every_row_has_what_a_reader_needs():
    rows = published_rows.load()
    assert len(rows) >= 25
    assert sum(row.kind == "step" for row in rows) >= 10
    assert sum(row.kind == "step" and len(row.modes) > 1 for row in rows) >= 5
    for row in rows:
        assert row.source["url"].startswith("https://") and row.source["what"] and row.source["seen"]
        assert row.unknown and row.said
        assert published.profile_of(row)["name"] == row.profile
        if row.kind == "step":
            config = published_steps.config_of({**row.program, **row.modes[0].program}, 2, True)
            assert config.ranks % config.tp == 0
            assert all(published_steps.step_ms(row, {**row.program, **m.program}, m.measured) > 0 for m in row.modes)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"source": {"url": "https://example.org", "what": "a page"}}, "source: expected the keys seen"),
        ({"source": {**TINY["source"], "url": "a page"}}, "source.url: expected an address"),
        ({"unknown": []}, "unknown: expected at least one sentence"),
        ({"unit": "GB/s bus"}, "unit: expected one of ms, tokens/s/GPU, % of peak"),
        ({"unit": "% of peak"}, "peak_tflops: expected with the unit"),
        ({"modes": []}, "modes: expected at least one"),
        ({"modes": [{"name": "m", "measured": 0}]}, "m: measured: expected a number above 0, got 0"),
        ({"modes": [{"name": "m", "measured": 1, "order": "best"}]}, "order: expected one of"),
        ({"modes": [TINY["modes"][0]] * 2}, "modes: expected names that differ"),
        ({"program": {**TINY["program"], "ranks": "8"}}, "program.ranks: expected int, got '8'"),
        ({"fitted": True}, "row: unknown keys fitted"),
    ],
)
def test_a_wrong_row_is_refused(changes, message):
    published_rows.parse("tiny", text())
    with pytest.raises(RowError, match=f"^tiny: .*{re.escape(message)}"):
        published_rows.parse("tiny", text(**changes))


def test_a_change_of_the_machine_names_numbers_of_the_profile():
    row = published_rows.parse("tiny", text())
    assert published.profile_of(row)["memory"]["bandwidth_gbps"] == 2400
    with pytest.raises(ValueError, match="the profile has no bandwith"):
        published.profile_of(dataclasses.replace(row, changes={"memory": {"bandwith": 1}}))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two rows: a step of a tiny decoder, and a collective of the repository."""
    (tmp_path / "tiny.json").write_text(text())
    row = (published_rows.ROWS / f"{COLLECTIVE}.json").read_text()
    (tmp_path / f"{COLLECTIVE}.json").write_text(row)
    monkeypatch.setattr(published_rows.load, "__defaults__", (tmp_path,))
    return tmp_path


def test_the_command_predicts_rows(folder, capsys):
    results, page = folder / "results", folder / "page.md"
    assert published.main(["--json", str(results), "--markdown", str(page)]) == 0
    said = capsys.readouterr().out
    assert "tiny, by hand: measured 1.000 ms, predicted " in said
    rows = json.loads(results.read_text())["rows"]
    by_hand, eager, merged = rows["tiny"]["modes"]
    assert by_hand["predicted_ms"] < eager["predicted_ms"]  # More kernels, for the same arithmetic.
    assert merged["collectives"] < 2 * 22  # One gather of each of 22 parameters and direction without buckets.
    assert {"tiny", COLLECTIVE} == set(rows)
    lines = page.read_text().splitlines()
    assert sum(line.startswith("| tiny |") for line in lines) == 1
    assert "- Nothing was measured." in lines
    assert published.main(["--only", "unheard-of"]) == 2
    (folder / "tiny.json").write_text("{")
    assert published.main([]) == 2
    assert "error: tiny: expected JSON" in capsys.readouterr().err


def test_a_planted_wrong_number_is_noticed(folder):
    """A bus bandwidth that is ten times too large makes its row the worst one, with an error that tells."""
    row = json.loads((folder / f"{COLLECTIVE}.json").read_text())
    row["modes"][-1]["measured"] *= 10
    (folder / "planted.json").write_text(json.dumps(row))
    good, bad = (published.predict(r, None, False) for r in published.chosen([COLLECTIVE, "planted"]))
    assert good[:-1] == bad[:-1]
    assert abs(published_page.error(good[-1])) < 0.2
    assert published_page.error(bad[-1]) > 8
    assert published_page.worst(bad) > 8 > published_page.worst(good)


def test_modes_are_compared_pair_by_pair():
    def modes(*pairs):
        return [{"mode": str(i), "measured_ms": m, "predicted_ms": p} for i, (m, p) in enumerate(pairs)]

    assert published_page.pairs(modes((1, 5), (2, 6), (3, 7))) == (3, 3)
    assert published_page.pairs(modes((1, 5), (2, 4), (3, 7))) == (2, 3)
    assert published_page.pairs(modes((1, 5), (1.001, 4))) == (0, 0)  # As good as equal.
    assert published_page.pairs(modes((1, 5), (2, 5))) == (0, 1)  # No difference is predicted.
    swapped = modes((1, 5), (2, 6))
    assert published_page.pairs([{**swapped[0], "judged": False}, swapped[1]]) == (0, 0)


def test_few_layers_stand_for_all(monkeypatch):
    """The figures of a deeper model are those of a few layers, continued linearly."""
    deep = dataclasses.replace(decoder.CONFIGS["llama3-8b"], name="deep", layers=4)
    monkeypatch.setitem(decoder.CONFIGS, deep.name, deep)
    monkeypatch.setattr(published_steps, "TRACED", (2, 3))
    program = {**TINY["program"], "model": deep.name, "sequence": 8192}
    profile = published.profile_of(published_rows.parse("tiny", text()))
    few, all_layers = (published_steps.predict(program, [mode()], MACHINE, profile, whole=w)[0] for w in (False, True))
    assert dataclasses.asdict(few) == pytest.approx(dataclasses.asdict(all_layers), rel=1e-9)


def test_simple_overlap_moves_as_far_as_it_may():
    config = published_steps.config_of(TINY["program"], 1, True)
    with trace.fake_world(config.ranks):
        graph = graphs_of(config)["bw"].graph
    nodes = list(graph.nodes)
    starts, waits = ([n for n in nodes if published_orders._is(n, wait)] for wait in (False, True))
    peak = torch_overlap.pytorch_peak(graph.owning_module)
    published_orders.simple_overlap(graph.owning_module)
    graph.lint()
    moved = list(graph.nodes)
    assert moved != nodes and set(moved) == set(nodes)
    assert [n for n in moved if n in starts] == starts
    assert [n for n in moved if n in waits] == waits
    for n in starts:
        assert n.prev in n.all_input_nodes or n.prev in starts + waits or n.prev.op in ("placeholder", "root")
    for n in waits:
        assert n.next in n.users or n.next in waits or n.next.op == "output"
    assert torch_overlap.pytorch_peak(graph.owning_module) <= peak


def test_a_step_on_one_gpu_takes_the_time_of_its_kernels():
    kernel = 'comm.compute "mm"(%a) {comm.cost = #comm.cost<time = 5000>} : (tensor<8xf32>) -> tensor<8xf32>'
    lines = ["module {", "  func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {", f"    %y = {kernel}"]
    alone = "\n".join([*lines, "    return %y : tensor<8xf32>", "  }", "}"])
    report = torch_overlap.measured(published_steps.with_a_collective(alone), MACHINE)
    assert report["makespan_ns"]["after"] == 5000


def test_units_become_times():
    row = published_rows.parse("tiny", text())
    ms = lambda unit, program, value, peak=None: published_steps.step_ms(
        dataclasses.replace(row, unit=unit, peak_tflops=peak), program, value
    )
    program = {**TINY["program"], "model": "llama3-8b", "batch": 12, "sequence": 8192, "tp": 8}
    assert ms("ms", program, 7) == 7
    assert ms("tokens/s/GPU", program, 12288) == pytest.approx(1000)
    # The published step of 7,852 ms is 12.22 % of peak by its table.
    one = {**program, "batch": 2, "tp": 1}
    assert ms("% of peak", one, 12.22, 989) == pytest.approx(7852, rel=1e-3)
