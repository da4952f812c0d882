#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""PyTorch's overlap scheduler and CommSched, side by side, on the same graphs with the same estimates.

Every estimate comes from one machine profile: a node's duration is what CommSched's cost model says of it, and both
schedulers get it through the same function. Both results get fresh metadata, are imported again and measured by one
model (timeline, peak), and by PyTorch's own memory estimator. No number is typed in: `overlap_tables` writes the page.

    python benchmarks/torch_overlap.py --graphs llama3-8b:64 llama3-8b:64:tp=8 --direction fw
    python benchmarks/torch_overlap.py --all --json results.json --resume --markdown docs/research/results/overlap.md
"""

from __future__ import annotations

import argparse
import bisect
import copy
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import overlap_tables
import torch
from models.graphs import TraceConfig, graphs_of

import commsched
import commsched.torch as ct
from commsched.torch import trace
from commsched.torch.importer.estimates import SAMPLED_BYTES, SAMPLED_KINDS, override_bytes
from commsched.torch.importer.export import import_graph
from commsched.torch.options import DEFAULT_MACHINE
from commsched.torch.reporting import function_report
from commsched.torch.semantics.operators import hint, nodes_in

MS, GIB = 1e6, 2**30
# Llama-3-8B, FSDP over all ranks (1-D) or FSDP x TP (2-D), and a mixture of experts with expert parallelism.
ALL = (
    "llama3-8b:64",
    "llama3-8b:64:tp=8",
    "llama3-8b:256",
    "llama3-8b:256:tp=8",
    "moe-16b:64:ep=8",
    "moe-16b:128:ep=8",
)


# ---------------------------------------------------------------------- the models that judge


def measured(text: str, machine: str) -> dict:
    """The figures of the models for a module in its own order."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        program = commsched.Program(text)
        program.run(f"comm-report{{machine={machine} report-file={file} table=false}}")
        return function_report(file)


def pytorch_peak(gm) -> int:
    """Peak by PyTorch's own estimator. It skips tensors of the CPU unless told otherwise."""
    from torch._inductor.fx_passes.memory_estimator import MemoryTracker

    tracker = MemoryTracker(gm.graph, device_filter=lambda device: True)
    peak = 0
    for node in gm.graph.nodes:
        if node.op != "placeholder" and node.op != "output":
            tracker.schedule_node(node)
            peak = max(peak, tracker.current_memory_bytes)
    return peak


def refreshed(gm, known: set[str]):
    """`gm` with fake values computed anew where a scheduler made nodes of its own (names that are not `known`), so that
    nobody's leftover metadata counts as memory."""
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    if all(n.name in known for n in gm.graph.nodes):
        return gm
    values = [n.meta["val"] for n in gm.graph.nodes if n.op == "placeholder"]
    modes = [v.fake_mode for v in values if hasattr(v, "fake_mode")]
    if modes:
        FakeTensorProp(gm, modes[0]).propagate_dont_convert_inputs(*values)
    return gm


# ---------------------------------------------------------------------- estimates


def durations(text: str, machine: str) -> dict[str, float]:
    """The costs of a module's operations by CommSched's cost model, in ms. Indexed by location."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "timeline.json")
        commsched.Program(text).run(f"comm-report{{machine={machine} timeline-file={file} table=false}}")
        document = json.loads(file.read_text())
    events = document["traceEvents"] if isinstance(document, dict) else document
    result: dict[str, float] = {}
    for e in events:
        if e.get("ph") == "X" and "stall" not in e.get("name", ""):
            result.setdefault(e["name"], e["dur"] / 1000.0)
    return result


def curves_of(importer, machine: str) -> dict[tuple, list[tuple[int, float]]]:
    """Cost by size of each kind, group and element type of collective that may be merged.

    A curve is a list of pairs (bytes of input and output together, ms). It is measured on a module with nothing but
    such collectives.
    """
    lines, points = [], {}
    for (kind, group, element), [(node, _), *_] in importer.samples.items():
        if kind not in SAMPLED_KINDS:
            continue
        ranks, width = importer.groups.size(group), node.meta["val"].dtype.itemsize
        for size in SAMPLED_BYTES:
            n, at = size // width, f"s{len(points)}"
            given, got = {"all_gather": (n // ranks, n), "reduce_scatter": (n, n // ranks), "all_reduce": (n, n)}[kind]
            given, got = (f"tensor<{max(1, d)}x{element}>" for d in (given, got))
            reduction = "" if kind == "all_gather" else " sum"
            lines += [
                f"    %x{at} = tensor.empty() : {given}",
                f'    %{at} = comm.{kind}{reduction} %x{at} on {group} : ({given}) -> !comm.future<{got}> loc("{at}")',
                f"    %w{at} = comm.wait %{at} : !comm.future<{got}>",
            ]
            points[at] = (kind, group, element), override_bytes(kind, size, ranks)
    text = "\n".join(["module {", *importer.printer.groups, "  func.func @main() {", *lines, "    return", "  }", "}"])
    cost = durations(text, machine) if lines else {}
    curves: dict[tuple, list[tuple[int, float]]] = {}
    for at, (key, size) in points.items():
        curves.setdefault(key, []).append((size, cost[at]))
    return curves


def in_and_out(node) -> int:
    """Bytes of a collective's inputs and outputs, as PyTorch counts them."""
    values = [n.meta["val"] for n in nodes_in(node.args[0])] + list(
        node.meta["val"] if isinstance(node.meta["val"], (list, tuple)) else [node.meta["val"]]
    )
    return sum(v.dtype.itemsize * math.prod(map(hint, v.shape)) for v in values)


def estimator(gm, machine: str):
    """The estimator that both schedulers get: the costs by the profile's cost model.

    A node of the graph has its own duration, or its share in that of the kernel that Inductor makes. A collective of
    another size, or one that a scheduler made, is read off the model's curve.
    """
    text, importer = import_graph(gm.graph)
    by_name, curves = durations(text, machine), curves_of(importer, machine)
    # What is fused into the kernel of another node takes no time of its own.
    calls = [n for n in gm.graph.nodes if n.op == "call_function"]
    computations = {n.name for n in calls if "c10d_functional" not in str(n.target)}
    keys = {}  # Indexed by target and group argument: the curve.

    def base(node):
        return str(node.target).split(".")[1].removesuffix("_out").removesuffix("_coalesced"), str(node.args[-1])

    for key, [(node, _), *_] in importer.samples.items():
        if key[0] in SAMPLED_KINDS:
            keys.setdefault((*base(node), node.meta["val"].dtype), curves[key])

    def curve_of(node):
        if node.op != "call_function" or "c10d_functional" not in str(node.target) or "wait_tensor" in str(node.target):
            return None
        val = node.meta["val"]
        return keys.get((*base(node), (val[0] if isinstance(val, (list, tuple)) else val).dtype))

    def estimate(node, override=None):
        ms = by_name.get(node.name, 0.0 if node.name in computations else None)
        if ms is not None and override is None:
            return ms
        curve = curve_of(node)
        return ms if curve is None else interpolated(curve, in_and_out(node) if override is None else override)

    return estimate


def interpolated(curve: list[tuple[int, float]], size: int) -> float:
    """Piecewise linear between the samples, and beyond them."""
    i = min(max(bisect.bisect([s for s, _ in curve], size), 1), len(curve) - 1)
    (s0, t0), (s1, t1) = curve[i - 1], curve[i]
    return max(0.0, t0 + (t1 - t0) * (size - s0) / (s1 - s0))


# ---------------------------------------------------------------------- the schedulers


def without_gpu() -> None:
    """Prepares PyTorch's scheduler for a build without CUDA.

    It needs device properties, whose values do not matter, for every estimate is given. Its memory limits would not see
    tensors of the CPU. Attention has to count as computation under its CPU name, as it does under its GPU name.
    """
    import functools

    import torch.utils._runtime_estimation as runtime
    from torch._inductor.fx_passes import memory_estimator, overlap_scheduling
    from torch.utils.flop_counter import flop_registry

    runtime.get_gpu_dram_gbps = lambda: 1.0
    runtime.get_device_tflops = lambda dtype: 1.0
    overlap_scheduling.MemoryTracker = functools.partial(memory_estimator.MemoryTracker, device_filter=lambda d: True)
    aten = torch.ops.aten
    for cpu, gpu in (
        (aten._scaled_dot_product_flash_attention_for_cpu, aten._scaled_dot_product_flash_attention),
        (aten._scaled_dot_product_flash_attention_for_cpu_backward, aten._scaled_dot_product_flash_attention_backward),
    ):
        flop_registry.setdefault(cpu, flop_registry[gpu])


def pytorch(**options):
    def run(gm, estimate, machine, rows):
        from torch._inductor.fx_passes.overlap_scheduling import schedule_overlap_bucketing

        without_gpu()
        return schedule_overlap_bucketing(
            gm,
            custom_runtime_estimation=estimate,
            compute_estimator="analytical",
            collective_estimator="analytical",
            **options,
        ), {}

    return run


def ours(at_peak_of: str | None = None, **options):
    """CommSched. If `at_peak_of` names another variant, its resulting peak is the limit. Without an estimate, the
    machine profile decides."""

    def run(gm, estimate, machine, rows):
        limit = dict(memory_limit_bytes=rows[at_peak_of]["peak_bytes"]) if at_peak_of else {}
        gm, report = ct.schedule_overlap(gm, machine=machine, runtime_estimation=estimate, **limit, **options)
        if "error" in report:
            raise RuntimeError(report["error"])
        bounds = report["makespan_ns"]
        return gm, {
            "second_opinion": report.get("second_opinion"),
            "import_s": report["import_ns"] / 1e9,
            "solve_s": report["pipeline_ns"] / 1e9,
            "apply_s": report["apply_ns"] / 1e9,
            "buckets": len(report["buckets"]),
            "bound_ms": bounds["lower_bound"] / MS,
            "order_bound_ms": bounds["order_lower_bound"] / MS,
            "limit_gib": report["peak_bytes"]["limit"] / GIB,
        }

    return run


BUCKETING = "PyTorch, bucketing"
VARIANTS = {
    "as given": lambda gm, *_: (gm, {}),
    "PyTorch, order only": pytorch(collective_bucketing=False, pre_bucketing_fsdp_collectives=False),
    BUCKETING: pytorch(collective_bucketing=True),
    "PyTorch, bucketing, limits zero": pytorch(
        collective_bucketing=True, max_memory_increase_gb=0.0, max_memory_increase_ratio=0.0
    ),
    # Inductor's two passes with their estimates on, within the input's peak.
    "CommSched, seed passes": ours(
        memory_budget_ratio=0.0,
        bucketing=False,
        passes=(
            "comm-reorder-preserving-peak-memory{use-runtime-estimates=true}",
            "comm-sink-waits-preserving-peak-memory{use-runtime-estimates=true swap-with-collectives=true}",
        ),
    ),
    "CommSched, order only": ours(bucketing=False),
    "CommSched": ours(),
    "CommSched, at PyTorch's peak": ours(at_peak_of=BUCKETING),
}


def rows_of(gm, machine: str, names) -> dict[str, dict]:
    """Runs the variants on copies of one graph."""
    estimate = estimator(gm, machine)
    rows: dict[str, dict] = {}
    known = {n.name for n in gm.graph.nodes}
    for name in names:
        copied = gm if name == "as given" else copy.deepcopy(gm)
        start, wall = time.process_time(), time.perf_counter()
        try:
            result, extra = VARIANTS[name](copied, estimate, machine, rows)
        except Exception as error:  # One scheduler's failure is a row of the table. The others go on.
            rows[name] = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
            continue
        seconds, wall = time.process_time() - start, time.perf_counter() - wall
        result.graph.lint()
        report = measured(import_graph(refreshed(result, known).graph, runtime_estimation=estimate)[0], machine)
        rows[name] = {
            "makespan_ms": report["makespan_ns"]["after"] / MS,
            "exposed_ms": report["exposed_ns"]["after"] / MS,
            "peak_bytes": report["peak_bytes"]["after"],
            "torch_peak_bytes": pytorch_peak(result),
            "collectives": report["collectives"],
            "nodes": len(result.graph.nodes),
            "cpu_s": seconds,
            "wall_s": wall,
            **extra,
        }
        print(
            f"  {name}: {rows[name]['makespan_ms']:.1f} ms, {rows[name]['peak_bytes'] / GIB:.2f} GiB, {seconds:.1f} s",
            file=sys.stderr,
            flush=True,
        )
    return rows


# ---------------------------------------------------------------------- running them


def config_of(spec: str) -> TraceConfig:
    """`model:ranks[:tp=N][:ep=N][:layers=N][:seq=N]` as a configuration."""
    model, ranks, *rest = spec.split(":")
    return TraceConfig(model, int(ranks), **{k: int(v) for k, v in (r.split("=") for r in rest)})


def versions(machine: str) -> dict:
    info = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), "unknown")
    return {
        "torch": torch.__version__,
        "commsched": commsched.version(),
        "python": platform.python_version(),
        "machine": machine,
        "tree": tree(),
        "cpu": f"{cpu}, {os.cpu_count()} cores",
        "command": " ".join(["python benchmarks/torch_overlap.py", *_without_files(sys.argv[1:])]),
    }


def tree() -> str:
    """The commit that the package in use comes from, with "-dirty" after it if files differ."""
    folder = Path(ct.__file__).resolve().parent
    said = subprocess.run(["git", "-C", folder, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return said.stdout.strip() or "unknown"


def _without_files(arguments: list[str]) -> list[str]:
    """The arguments that decide what is measured. Those that name files do not."""
    kept, skip = [], False
    for a in arguments:
        if not skip and a not in ("--json", "--markdown", "--resume"):
            kept.append(f'"{a}"' if " " in a else a)
        skip = a in ("--json", "--markdown")
    return kept


def communicating(graphs: dict) -> dict:
    """The graphs with collectives. The others leave nothing to schedule."""
    return {d: gm for d, gm in graphs.items() if any("c10d_functional" in str(n.target) for n in gm.graph.nodes)}


def run_spec(spec: str, a, results: dict, names) -> None:
    """Traces one model and measures its graphs; `results["graphs"]` gets an entry for each."""
    config = config_of(spec)
    with trace.fake_world(config.ranks):
        start = time.process_time()
        graphs = communicating(graphs_of(config))
        traced = time.process_time() - start
        for direction, gm in graphs.items():
            key = f"{spec} {direction}"
            if a.direction not in ("both", direction) or (a.resume and key in results["graphs"]):
                continue
            print(f"{key}: {len(gm.graph.nodes)} nodes, traced in {traced:.0f} s", file=sys.stderr, flush=True)
            results["graphs"][key] = {
                "nodes": len(gm.graph.nodes),
                "trace_cpu_s": traced,
                "tree": results["versions"]["tree"],
                "variants": rows_of(gm, a.machine, names),
            }
            write(a, results)


def write(a, results: dict) -> None:
    if a.json:
        a.json.write_text(json.dumps(results, indent=1) + "\n")
    if a.markdown:
        a.markdown.write_text(overlap_tables.page(results))


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--graphs", nargs="+", metavar="MODEL:RANKS[:tp=N][:ep=N][:layers=N]", default=["llama3-8b:64"])
    p.add_argument("--all", action="store_true", help=f"all of {', '.join(ALL)}")
    p.add_argument("--direction", choices=("fw", "bw", "both"), default="both")
    p.add_argument("--machine", default=DEFAULT_MACHINE, help="machine profile (default %(default)s)")
    p.add_argument("--variants", help="separated by semicolons, of: " + "; ".join(VARIANTS))
    p.add_argument("--json", type=Path, help="file to write the results to, after every graph")
    p.add_argument("--markdown", type=Path, help="file to write the tables to, after every graph")
    p.add_argument("--resume", action="store_true", help="keep the graphs that the JSON file has already")
    a = p.parse_args()
    names = a.variants.split(";") if a.variants else list(VARIANTS)
    results = {"versions": versions(a.machine), "graphs": {}}
    if a.resume and a.json and a.json.is_file():
        before = json.loads(a.json.read_text())
        results["graphs"], command = before["graphs"], before["versions"]["command"]
        if results["versions"]["command"] not in command.split("\n"):
            results["versions"]["command"] = command + "\n" + results["versions"]["command"]
    failed = 0
    for spec in ALL if a.all else a.graphs:
        directions = ("fw", "bw") if a.direction == "both" else (a.direction,)
        if a.resume and all(f"{spec} {d}" in results["graphs"] for d in directions):
            continue
        try:
            run_spec(spec, a, results, names)
        except Exception as error:  # Hours of results must not be lost for one graph.
            print(f"{spec}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            failed = 1
    write(a, results)
    print(overlap_tables.page(results))
    return failed


if __name__ == "__main__":
    sys.exit(main())
