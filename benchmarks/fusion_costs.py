#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Costs of FX nodes before Inductor runs, compared with the kernels that Inductor then makes.

Five small models (`fusion_models`) are compiled for the CPU, forward and backward. The regions that CommSched predicts
before lowering are counted against Inductor's kernels, their costs are compared with Inductor's own estimates of those
kernels, and with the time that the kernels take on this machine.

    python benchmarks/fusion_costs.py --measure --models DLRM --json fusion.json
    python benchmarks/fusion_costs.py --json fusion.json --markdown docs/research/results/fusion.md
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import sys
from pathlib import Path
from unittest import mock

import fusion_models
import numpy as np
import torch
import torch._inductor.config as ic
import torch_overlap
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.scheduler import ExternKernelSchedulerNode, Scheduler

from commsched.torch.importer.export import import_graph
from commsched.torch.importer.fusion import loops
from commsched.torch.inductor.kernel_order import is_kernel
from commsched.torch.options import DEFAULT_MACHINE, machine_file

# The way to price nodes, and the arguments of the importer.
PRICES = {"one by one": {"fusion": False}, "regions": {}}
# The runs of each compiled graph, of which a kernel's median counts.
RUNS = 20


COST = re.compile(
    r'comm\.cost = #comm\.cost<(?:flops = (\d+))?(?:, )?(?:bytes = (\d+))?.*? loc\((?:"([^"]+)"|fused\[(.*)\])\)'
)


class Look:
    """What is seen of one compilation: the graph before lowering, and the kernels."""

    def __init__(self, machine: str):
        self.rows: list[dict] = []
        profile = json.loads(machine_file(machine).read_text())
        memory, compute = profile["memory"], profile["compute"]
        self.bandwidth = memory["bandwidth_gbps"] * memory["efficiency_permille"] / 1000
        self.tflops = compute["peak_tflops"]["f32"] * compute["efficiency_permille"] / 1000

    def graph(self, graph: torch.fx.Graph) -> None:
        backward = any(n.name.startswith("tangents_") for n in graph.nodes if n.op == "placeholder")
        row: dict = {"direction": "bw" if backward else "fw", "nodes": len(graph.nodes), "priced": {}}
        for name, options in PRICES.items():
            row["priced"][name] = self._times(import_graph(graph, **options)[0])
        row["one by one"] = len(row["priced"]["one by one"])
        row["regions"] = len(self._times(import_graph(graph, fused=True)[0]))
        self.rows.append(row)

    def _times(self, text: str) -> dict[str, float]:
        """The time of each operation that takes any, in ms, without launches. Indexed by the name of its node."""
        times: dict[str, float] = {}
        for flops, moved, node, members in COST.findall(text):
            ms = max(int(flops or 0) / self.tflops / 1e9, int(moved or 0) / self.bandwidth / 1e6)
            if ms:
                times[node or members] = ms
        return times

    def kernels(self, scheduler: Scheduler) -> None:
        row = self.rows[-1]
        kernels = [s for s in scheduler.nodes if is_kernel(s)]
        row["extern"] = sum(isinstance(s, ExternKernelSchedulerNode) for s in kernels)
        row["loops"] = len(kernels) - row["extern"]
        with (
            mock.patch("torch._inductor.scheduler.is_gpu", lambda device: True),
            mock.patch("torch._inductor.scheduler.get_gpu_dram_gbps", lambda: self.bandwidth),
            mock.patch("torch._inductor.scheduler.get_device_tflops", lambda dtype: self.tflops),
        ):
            row["kernels"] = [
                {"loops": not isinstance(s, ExternKernelSchedulerNode), "Inductor": s.get_estimated_runtime()}
                for s in kernels
            ]
        owned = _owners(kernels)
        for name, priced in row["priced"].items():
            for kernel in row["kernels"]:
                kernel[name] = 0.0
            for node, ms in priced.items():
                if node in owned:
                    row["kernels"][owned[node]][name] += ms
            row.setdefault("lost", {})[name] = sum(ms for node, ms in priced.items() if node not in owned)
            row.setdefault("sums", {})[name] = sum(priced.values())
        row["sums"]["Inductor"] = sum(k["Inductor"] for k in row["kernels"])
        del row["priced"]


def _owners(kernels: list) -> dict[str, int]:
    """Indexed by FX node: the kernel that computes it. A node that several kernels recompute belongs to the first that
    stores it, or else the first of them."""
    stored: dict[str, int] = {}
    computed: dict[str, int] = {}
    for i, kernel in enumerate(kernels):
        for s in kernel.get_nodes():
            if s.node is None:
                continue
            origin = getattr(s.node, "origin_node", None)
            if origin is not None:
                stored.setdefault(origin.name, i)
            for o in s.node.get_origins():
                computed.setdefault(o.name, i)
                if isinstance(kernel, ExternKernelSchedulerNode) and not (o.op == "call_function" and loops(o)):
                    stored.setdefault(o.name, i)
    return computed | stored


@contextlib.contextmanager
def looking(look: Look):
    """Compilations in this block are looked at. Concatenations are lowered as for a GPU, and every kernel is one
    function of the generated code."""
    original = Scheduler.compute_last_usage

    def last(scheduler: Scheduler) -> None:
        original(scheduler)
        look.kernels(scheduler)

    with (
        mock.patch.object(Scheduler, "compute_last_usage", last),
        mock.patch.object(CppScheduling, "ready_to_flush", lambda self: True),
        ic.patch(
            {
                "force_disable_caches": True,
                "force_pointwise_cat": True,
                "post_grad_custom_post_pass": look.graph,
                "cpp.enable_kernel_profile": True,
                "cpp.descriptive_names": False,
            }
        ),
    ):
        yield


def step_of(name: str):
    """A compiled training step of a model, which is run once, and what was seen of its compilation."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    look = Look(DEFAULT_MACHINE)
    model, inputs = fusion_models.MODELS[name]()
    with looking(look):
        compiled = torch.compile(model)

        def step() -> None:
            compiled(*inputs).backward()

        step()
    return step, look


def look_at(name: str) -> Look:
    """What is seen when a model's step is compiled without building its kernels."""
    torch.manual_seed(0)
    look = Look(DEFAULT_MACHINE)
    graphs = fusion_models.graphs(name)
    with looking(look):
        for direction, gm in graphs.items():
            fusion_models.compile_without_code(gm, direction == "bw")
    return look


def measure(step, look: Look) -> None:
    """Adds what each kernel takes on this machine: the median over runs of the step, in ms."""
    times: list[list[list[float]]] = [[] for _ in look.rows]
    for run in range(RUNS + 1):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            step()
        calls = sorted(
            (e for e in profiler.events() if e.name.startswith("## Call CompiledFxGraph")),
            key=lambda e: e.time_range.start,
        )
        assert len(calls) == len(look.rows), "expected one call of each compiled graph"
        for kept, call in zip(times, calls):
            if run:  # The first run is slower.
                parts = sorted(call.cpu_children, key=lambda e: e.time_range.start)
                kept.append([e.cpu_time_total / 1000 for e in parts])
    for row, runs in zip(look.rows, times):
        if all(len(r) == len(row["kernels"]) for r in runs):
            for kernel, values in zip(row["kernels"], zip(*runs)):
                kernel["measured"] = statistics.median(values)


def rank_correlation(a: list[float], b: list[float]) -> float | None:
    """Spearman's: the correlation of the ranks, where equal values share their mean rank. None if it is undefined."""

    def ranks(values: list[float]) -> np.ndarray:
        _, where, counts = np.unique(np.round(values, 12), return_inverse=True, return_counts=True)
        ends = np.cumsum(counts)
        return (ends - (counts - 1) / 2)[where]

    x, y = ranks(a), ranks(b)
    return None if len(a) < 3 or x.std() == 0 or y.std() == 0 else float(np.corrcoef(x, y)[0, 1])


def summary(row: dict) -> dict:
    """The figures of one graph for the table."""
    result = {k: row[k] for k in ("nodes", "one by one", "regions", "extern", "loops")}
    kernels = row["kernels"]
    for name in PRICES:
        result[f"{name} / Inductor"] = row["sums"][name] / row["sums"]["Inductor"]
    for truth in ("Inductor", "measured"):
        if truth in kernels[0]:
            for name in (*PRICES, "Inductor"):
                if name != truth:
                    values = [[k[n] for k in kernels] for n in (name, truth)]
                    result[f"{name} ~ {truth}"] = rank_correlation(*values)
    return result


def page(results: dict) -> str:
    lines = [
        "# Results: costs before fusion",
        "",
        f"Written by `{results['command']}`. PyTorch {torch.__version__}, {results['cpu']}.",
        "",
        *TEXT,
    ]
    heads = [
        "graph",
        "nodes",
        "one by one",
        "regions",
        "Inductor's kernels",
        "one by one / Inductor",
        "regions / Inductor",
    ]
    pairs = [
        f"{name} ~ {truth}" for truth in ("Inductor", "measured") for name in (*PRICES, "Inductor") if name != truth
    ]
    heads += pairs
    lines += ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for graph, row in results["graphs"].items():
        r = summary(row)
        cells = [graph, r["nodes"], r["one by one"], r["regions"], f"{r['loops'] + r['extern']}"]
        cells += [f"{r[f'{name} / Inductor']:.2f}" for name in PRICES]
        cells += ["" if r.get(p) is None else f"{r[p]:.2f}" for p in pairs]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


# What the page says about its table.
TEXT = """\
The models are those of `benchmarks/fusion_models.py`. CommSched's figures are made before Inductor lowers the graph, at
the place of its pass. Inductor's are those of its scheduler after fusion (`get_estimated_runtime`, which counts bytes
and products). It is given the rates of `h100-sxm`, and launches are left out of CommSched's costs. Concatenations are
lowered as for a GPU (`force_pointwise_cat`).

- *one by one* and *regions*: the number of kernels if every node is priced alone, and if a region is one kernel (the
  option `fusion`), beside that of Inductor's kernels. Products and attention are included.
- *one by one / Inductor* and *regions / Inductor*: the sum of the predicted times over that of Inductor's estimates.
- *a ~ b*: the rank correlation of two figures over the kernels of a graph. *measured* is the median time of a kernel on
  this machine's processor, with one thread. A node that several kernels compute counts for the first of them.

Known differences: Inductor's estimate counts no products for the backward of a convolution (ConvNet bw), and it copies
weights of convolutions to another layout on a CPU. Norms are split into several kernels on a CPU (ViT fw). Inductor
computes pointwise nodes again in each kernel that reads them, where a region stores them.

""".splitlines()


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--models", nargs="+", default=list(fusion_models.MODELS), choices=list(fusion_models.MODELS))
    p.add_argument("--measure", action="store_true", help="time the kernels on this machine")
    p.add_argument("--json", type=Path, help="where results go, and what is in it already is kept")
    p.add_argument("--markdown", type=Path, help="file to write the page to")
    a = p.parse_args()
    torch.set_num_threads(1)
    results: dict = {"graphs": {}}
    if a.json and a.json.is_file():
        results = json.loads(a.json.read_text())
    command = "python benchmarks/fusion_costs.py"
    if a.measure:
        command += f" --measure --models {' '.join(a.models)}"
    results["command"] = "`, `".join(dict.fromkeys([*results.get("command", command).split("`, `"), command]))
    results["cpu"] = torch_overlap.versions(DEFAULT_MACHINE)["cpu"]
    for name in a.models:
        if f"{name} fw" in results["graphs"]:
            continue
        if a.measure:
            step, look = step_of(name)
            measure(step, look)
        else:
            look = look_at(name)
        for row in look.rows:
            results["graphs"][f"{name} {row['direction']}"] = row
            print(name, row["direction"], summary(row), file=sys.stderr, flush=True)
        if a.json:
            a.json.write_text(json.dumps(results, indent=1) + "\n")
    if a.markdown:
        a.markdown.write_text(page(results))
    print(page(results))
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
