# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""CommSched's orders of FX graphs against those of PyTorch's overlap scheduler, if collectives take longer than
planned.

CommSched plans with the machine profile, as its users do, and takes PyTorch's own estimates as a second opinion. Two
referees. *our costs*: PyTorch plans with the estimates of CommSched's cost model. *PyTorch's costs*: PyTorch plans with
its own analytical estimates of kernels and collectives, and both are played with these.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator

import robustness_play
import torch
import torch_overlap
from models.graphs import TraceConfig, graphs_of

from commsched.torch import trace
from commsched.torch.importer.export import import_graph
from commsched.torch.options import machine_file

Estimate = Callable[..., "float | None"]
MODES = ("PyTorch, order only", torch_overlap.BUCKETING)
OURS, THEIRS = "our costs", "PyTorch's costs"


def pytorch_estimator(gm: torch.fx.GraphModule, machine: str) -> Estimate:
    """PyTorch's own analytical estimates, for the GPU of a profile: its roofline of kernels and its model of NCCL.

    It knows nothing of fusion. A node that a scheduler made later is known if it is a collective.
    """
    import torch.utils._runtime_estimation as runtime
    from torch._inductor import comm_analysis
    from torch._inductor.fx_passes.overlap_scheduling import estimate_roofline_runtime_ms

    profile = json.loads(machine_file(machine).read_text())
    tflops = profile["compute"]["peak_tflops"]
    names = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float64: "f64"}
    torch_overlap.without_gpu()  # It makes attention count as computation, and sets rates that do not matter.
    runtime.get_gpu_dram_gbps = lambda: profile["memory"]["bandwidth_gbps"]
    runtime.get_device_tflops = lambda dtype: tflops[names.get(dtype, "f32")]
    comm_analysis.get_gpu_type = lambda: comm_analysis.NVIDIA_GPU_TYPE.HOPPER

    def is_start(node) -> bool:
        return node.op == "call_function" and "c10d_functional" in str(node.target) and "wait" not in str(node.target)

    nodes = [n for n in gm.graph.nodes if n.op == "call_function" and "c10d_functional" not in str(n.target)]
    kernels = {n.name: estimate_roofline_runtime_ms(n) for n in nodes}

    def estimate(node, override=None):
        if is_start(node):
            return comm_analysis.estimate_nccl_collective_runtime_from_fx_node(node, override)
        return kernels.get(node.name)

    return estimate


def text_of(gm: torch.fx.GraphModule, known: set[str], estimate: Estimate) -> str:
    """The graph as comm IR in its own order, with the given estimates."""
    return import_graph(torch_overlap.refreshed(gm, known).graph, runtime_estimation=estimate)[0]


def rows_of(gm: torch.fx.GraphModule, machine: str, referees, objectives, scales) -> Iterator[dict]:
    """The rows of one graph, one per referee."""
    known = {n.name for n in gm.graph.nodes}
    own = torch_overlap.estimator(gm, machine)
    for referee in referees:
        judge = own if referee == OURS else pytorch_estimator(gm, machine)

        seconds: dict[str, float] = {}
        opinions: dict[str, dict] = {}

        def answer(run, estimate, rows, name, judge=judge, seconds=seconds, opinions=opinions):
            copied, start = copy.deepcopy(gm), time.process_time()
            result, facts = run(copied, estimate, machine, rows)
            seconds[name] = time.process_time() - start
            opinions[name] = facts.get("second_opinion")
            return robustness_play.play(text_of(result, known, judge), machine, scales)

        modes = {mode: answer(torch_overlap.VARIANTS[mode], judge, {}, mode) for mode in MODES}
        planned = scales.index(1.0)
        better = min(modes, key=lambda mode: modes[mode].ms[planned])
        limit = modes[better].peak_bytes
        # At each scale, the mode that is faster there, if it needs no more memory.
        fair = [played.ms for played in modes.values() if played.peak_bytes <= limit]
        ours = {
            objective: answer(
                torch_overlap.ours(at_peak_of=better, objective=objective),
                None,
                {better: {"peak_bytes": limit}},
                objective,
            )
            for objective in objectives
        }
        yield {
            "referee": referee,
            "against": better,
            "nodes": len(known),
            "peer_ms": [min(times) for times in zip(*fair, strict=True)],
            "limit_bytes": limit,
            "seconds": seconds,
            "answers": {
                name: {"ms": list(p.ms), "peak_bytes": p.peak_bytes, "second_opinion": opinions[name]}
                for name, p in ours.items()
            },
        }


def study(config: TraceConfig, name: str, machine: str, referees, objectives, scales) -> Iterator[dict]:
    """Traces a model; the rows of its graphs."""
    with trace.fake_world(config.ranks):
        for direction, gm in torch_overlap.communicating(graphs_of(config)).items():
            for row in rows_of(gm, machine, referees, objectives, scales):
                yield {"program": f"{name} {direction}", **row}
