#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Schedules in the code that Inductor generates: PyTorch's overlap scheduler and CommSched, counted on fused kernels.

Training graphs (`benchmarks/models`) are compiled by Inductor on fake tensors, with either scheduler in its place;
the kernels are then taken in the order in which the code calls them. Pairs of start and wait without a kernel in
between are counted, times come from one model of those kernels, the peak from Inductor's own estimate. Nothing is run.

    python benchmarks/torch_code.py --graphs llama3-8b:8:layers=2 --json code.json \\
        --markdown docs/research/results/generated-code.md
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from pathlib import Path
from unittest import mock

import torch
import torch._inductor.config as ic
import torch_overlap
from models.graphs import graphs_of
from torch._guards import TracingContext, tracing
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.scheduler import Scheduler

from commsched.torch import trace
from commsched.torch.inductor import config_patches, kernels, rivals
from commsched.torch.inductor.kernel_order import Kernels, in_flight, is_kernel
from commsched.torch.options import DEFAULT_MACHINE, Options
from commsched.torch.ranks import agreement

MS, MIB = 1e6, 2**20
ALL = ("llama3-8b:8:layers=2", "llama3-8b:64:layers=2", "moe-16b:8:ep=8:layers=2", "moe-16b:64:ep=8:layers=2")


def pytorch(machine: str, bucketing: bool) -> dict:
    """PyTorch's scheduler with the defaults of Inductor's configuration, and with `reorder_for_peak_memory` off, as
    torchtitan runs it. Its estimates are CommSched's."""

    def run(graph):
        from torch._inductor.fx_passes.overlap_scheduling import schedule_overlap_bucketing

        gm = graph.owning_module
        schedule_overlap_bucketing(
            gm,
            custom_runtime_estimation=torch_overlap.estimator(gm, machine),
            compute_estimator="analytical",
            collective_bucketing=bucketing,
            pre_bucketing_fsdp_collectives=bucketing,
            insert_overlap_deps=True,
            enable_fusion_regions=True,
        )

    torch_overlap.without_gpu()
    return dict(post_grad_custom_post_pass=run, reorder_for_peak_memory=False)


VARIANTS = {
    "Inductor": lambda machine: {},
    "Inductor, order as given": lambda machine: dict(reorder_for_peak_memory=False),
    "PyTorch, order only": lambda machine: pytorch(machine, False),
    "PyTorch, bucketing": lambda machine: pytorch(machine, True),
    "CommSched, order only": lambda machine: config_patches(Options(machine=machine, bucketing=False)),
    "CommSched": lambda machine: config_patches(Options(machine=machine)),
}


def measured(gm, backward: bool, patches: dict, machine: str) -> dict:
    """Compiles a graph, without kernels, and measures the order of what would be called."""
    values = [n.meta["val"] for n in gm.graph.nodes if n.op == "placeholder"]
    mode = next(v.fake_mode for v in values if isinstance(v, torch.Tensor))
    result: dict = {}
    original = Scheduler.compute_last_usage

    def look(scheduler):  # This is the last step before code is written.
        original(scheduler)
        order = scheduler.nodes
        model, counts = kernels.measured(order, Options(machine=machine)), in_flight(order)
        result.update(
            makespan_ms=model["makespan_ns"]["after"] / MS,
            exposed_ms=model["exposed_ns"]["after"] / MS,
            collectives=len(counts),
            adjacent=sum(c == 0 for c in counts),
            kernels=sum(map(is_kernel, order)),
            peak_mib=Kernels(order).peak(order) / MIB,
        )

    started = time.process_time()
    with (
        mock.patch.object(Scheduler, "compute_last_usage", look),
        # A process decides about a program once, and a model on 8 and on 64 ranks is the same program.
        mock.patch.dict(agreement._decisions, clear=True),
        ic.patch({"force_disable_caches": True, **patches}),
        mock.patch.object(AsyncCompile, "cpp_pybinding", lambda *_, **__: lambda *_: None),
        mock.patch("torch._inductor.cpu_vec_isa.valid_vec_isa_list", list),
        tracing(TracingContext(mode)),
    ):
        compile_fx_inner(gm, values, is_backward=backward)
    return {**result, "cpu_s": time.process_time() - started}


def rows(spec: str, machine: str, known: dict) -> dict:
    """The variants of both directions of one model, except for the known ones."""
    config = torch_overlap.config_of(spec)
    with trace.fake_world(config.ranks):
        for direction, gm in graphs_of(config).items():
            graph = known.setdefault(f"{spec} {direction}", {})
            for name, patches in VARIANTS.items():
                if name in graph:
                    continue
                try:
                    graph[name] = measured(copy.deepcopy(gm), direction == "bw", patches(machine), machine)
                except Exception as error:  # One scheduler's failure is a row of the table. The others go on.
                    graph[name] = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
                print(spec, direction, name, graph[name], file=sys.stderr, flush=True)
                yield


def exceptions(graphs: dict) -> list[str]:
    """What CommSched does not reach: to be faster than PyTorch's better mode, within the peak of the order as given,
    and within that of Inductor's order.
    """
    slower, higher = [], {"Inductor, order as given": [], "Inductor": []}
    for graph, variants in graphs.items():
        rows = {name: r for name, r in variants.items() if "error" not in r}
        if "CommSched" not in rows:
            continue
        own, others = rows["CommSched"], [r["makespan_ms"] for n, r in rows.items() if n.startswith("PyTorch")]
        if others and own["makespan_ms"] > min(others):
            slower.append(f"{graph} ({own['makespan_ms'] / min(others) - 1:+.1%})")
        for name, graphs_above in higher.items():
            if name in rows and own["peak_mib"] > rows[name]["peak_mib"] + 1:
                graphs_above.append(f"{graph} ({own['peak_mib'] / rows[name]['peak_mib'] - 1:+.1%})")
    return [
        "",
        f"CommSched is slower than PyTorch's better mode in: {', '.join(slower) or 'no graph'}.",
        "Its peak is above that of the order as given in: "
        f"{', '.join(higher['Inductor, order as given']) or 'no graph'}.",
        "It is above that of Inductor alone, which reorders for a low peak, in: "
        f"{', '.join(higher['Inductor']) or 'no graph'}.",
        "",
    ]


def incumbent() -> list[str]:
    """What Inductor's own pass behind all others does in the rows, if this version of PyTorch has it (2.15)."""
    if not rivals.simple_overlap():
        return []
    return [
        "Inductor's `simple_overlap` is on in the rows of Inductor and PyTorch, as by default, and off in CommSched's."
    ]


def page(results: dict) -> str:
    lines = [
        "# Results: what reaches the generated code",
        "",
        f"Written by `{results['command']}`. PyTorch {torch.__version__}, machine profile `{results['machine']}`.",
        "",
        " ".join(__doc__.split("\n\n")[1].split("\n")),
        "",
        '"adjacent" counts collectives with no kernel between start and wait. Times are in ms, the peak in MiB.',
        *incumbent(),
        *exceptions(results["graphs"]),
        "| graph | scheduler | adjacent | collectives | kernels | exposed | makespan | peak |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for graph, variants in results["graphs"].items():
        for name, r in sorted(variants.items(), key=lambda item: list(VARIANTS).index(item[0])):
            cells = (
                [r["error"]] + [""] * 5
                if "error" in r
                else [
                    r["adjacent"],
                    r["collectives"],
                    r["kernels"],
                    f"{r['exposed_ms']:.2f}",
                    f"{r['makespan_ms']:.2f}",
                    f"{r['peak_mib']:.0f}",
                ]
            )
            lines.append(f"| {graph} | {name} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--graphs", nargs="+", default=list(ALL), metavar="MODEL:RANKS[:ep=N][:layers=N]")
    p.add_argument("--machine", default=DEFAULT_MACHINE, help="machine profile (default %(default)s)")
    p.add_argument("--json", type=Path, help="where results go, and what is in it already is kept")
    p.add_argument("--markdown", type=Path, help="file to write the page to")
    a = p.parse_args()
    results = {"command": "python benchmarks/torch_code.py", "machine": a.machine, "graphs": {}}
    if a.json and a.json.is_file():
        results["graphs"] = json.loads(a.json.read_text())["graphs"]
    for spec in a.graphs:
        for _ in rows(spec, a.machine, results["graphs"]):
            if a.json:
                a.json.write_text(json.dumps(results, indent=1) + "\n")
    if a.markdown:
        a.markdown.write_text(page(results))
    print(page(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
