# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Predicts the step of a model: it is traced, brought into the order of a mode, and played with a machine profile."""

from __future__ import annotations

import copy
import dataclasses
import tempfile
from pathlib import Path

import published_orders
import torch
from models import decoder
from models.graphs import TraceConfig, graphs_of
from published_rows import Mode, Row

import commsched
from commsched.torch import trace
from commsched.torch.importer.export import import_graph
from commsched.torch.options import option_value
from commsched.torch.reporting import function_report

MS, GIB = 1e6, 2**30
# What AdamW with clipping moves per parameter in f32, in bytes: it reads parameter, gradient and two moments, writes
# three of them, reads the gradient for its norm, and reads and writes it to clip it.
OPTIMIZER_BYTES = 4 * (4 + 3 + 1 + 2)
# Two moments in f32 per parameter stay in memory beside what the graphs hold.
STATE_BYTES = 8
# The numbers of layers that stand for all. Both are even, for recomputation in every second block.
TRACED = (2, 4)


@dataclasses.dataclass(frozen=True)
class Predicted:
    """What the model says of one mode. Times are in ms."""

    ms: float
    forward_ms: float
    backward_ms: float
    optimizer_ms: float
    exposed_ms: float
    collectives: float
    peak_gib: float


def config_of(program: dict, layers: int | None, fusion: bool) -> TraceConfig:
    return TraceConfig(
        program["model"],
        program["ranks"],
        tp=program["tp"],
        layers=layers,
        batch=program["batch"],
        seq=program["sequence"],
        reshard=program["reshard"],
        recompute=program["recompute"],
        split_sequence=program["tp"] > 1,
        decomposed=fusion,
    )


def dimensions(program: dict) -> decoder.ModelConfig:
    return decoder.CONFIGS[program["model"]]


def parameters(c: decoder.ModelConfig, embedding: bool = True) -> int:
    """The number of parameters of a dense decoder."""
    with torch.device("meta"):
        model = decoder.Decoder(c)
    count = sum(w.numel() for w in model.parameters())
    return count if embedding else count - model.embed.weight.numel()


def flops_per_token(c: decoder.ModelConfig, sequence: int) -> float:
    """As torchtitan counts them: nothing for recomputation, and attention as if it were not causal."""
    return 6 * parameters(c, embedding=False) + 12 * c.layers * c.dim * sequence


def step_ms(row: Row, program: dict, value: float) -> float:
    """A published number as the time of a step."""
    tokens = program["batch"] * program["sequence"] / program["tp"]
    if row.unit == "ms":
        return value
    if row.unit == "% of peak":
        work = tokens * flops_per_token(dimensions(program), program["sequence"])
        return work / (value / 100 * row.peak_tflops * 1e12) * 1e3
    return tokens / value * 1e3


def with_a_collective(text: str) -> str:
    """A module whose function has a collective that takes no time, for reports are about functions with collectives."""
    lines = text.split("\n")
    end = max(at for at, line in enumerate(lines) if line.lstrip().startswith("return"))
    lines[end:end] = [
        "    %alone = comm.barrier on @alone : () -> !comm.future<>",
        "    comm.wait %alone : !comm.future<>",
    ]
    start = next(at for at, line in enumerate(lines) if line.startswith("module"))
    lines.insert(start + 1, "  comm.group @alone #comm.iota<[1, 1]>")
    return "\n".join(lines)


def _play(gm: torch.fx.GraphModule, mode: Mode, machine: str) -> dict:
    """The report of one graph in the order of a mode."""
    gm = published_orders.ordered(copy.deepcopy(gm), mode.order, machine)
    text = import_graph(gm.graph, fusion=mode.fusion)[0]
    program = commsched.Program(text if "comm.future" in text else with_a_collective(text))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        options = f"machine={option_value(machine)} report-file={option_value(file)} table=false"
        program.run(f"comm-report{{{options}}}")
        return function_report(file)


def predict(
    program: dict, modes: list[Mode], machine: str, profile: dict, layers: int | None = None, whole: bool = False
) -> list[Predicted]:
    """The modes of one program.

    The blocks of a decoder are alike, so the figures are those of TRACED layers, continued linearly.

    Args:
        layers: this many layers instead of the model's own, all of them traced.
        whole: all layers are traced.
    """
    own = dimensions(program).layers
    if layers or whole or own <= TRACED[-1]:
        return _predict(program, modes, machine, profile, layers or own)
    few, more = (_predict(program, modes, machine, profile, count) for count in TRACED)
    return [_continued(one, other, own) for one, other in zip(few, more, strict=True)]


def _continued(one: Predicted, other: Predicted, layers: int) -> Predicted:
    """The figures of a model with `layers` layers, from those of TRACED."""
    steps = (layers - TRACED[0]) / (TRACED[1] - TRACED[0])
    few, more = dataclasses.asdict(one), dataclasses.asdict(other)
    return Predicted(**{key: few[key] + steps * (more[key] - few[key]) for key in few})


def _predict(program: dict, modes: list[Mode], machine: str, profile: dict, layers: int) -> list[Predicted]:
    """The program is traced once for the modes that a compiler fuses and once for the others."""
    with trace.fake_world(program["ranks"]):
        graphs = {fusion: graphs_of(config_of(program, layers, fusion)) for fusion in {mode.fusion for mode in modes}}
        played = [[_play(graphs[mode.fusion][which], mode, machine) for which in ("fw", "bw")] for mode in modes]
    local = parameters(dataclasses.replace(dimensions(program), layers=layers)) / program["ranks"]
    memory = profile["memory"]
    optimizer = local * OPTIMIZER_BYTES / (memory["bandwidth_gbps"] * memory["efficiency_permille"] / 1000) / 1e6
    return [_sum(reports, optimizer, local) for reports in played]


def _sum(reports: list[dict], optimizer: float, local: float) -> Predicted:
    forward, backward = (report["makespan_ns"]["after"] / MS for report in reports)
    return Predicted(
        ms=forward + backward + optimizer,
        forward_ms=forward,
        backward_ms=backward,
        optimizer_ms=optimizer,
        exposed_ms=sum(report["exposed_ns"]["after"] for report in reports) / MS,
        collectives=sum(report["collectives"] for report in reports),
        peak_gib=(max(report["peak_bytes"]["after"] for report in reports) + STATE_BYTES * local) / GIB,
    )
