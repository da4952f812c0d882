#!/usr/bin/env python3
"""PyTorch's overlap scheduler and CommSched, side by side, on the same graphs with the same estimates.

Every estimate comes from one machine profile: a node's duration is what CommSched's cost model says of it, and both
schedulers get it through the same function. Both results are imported again and measured by one model (timeline, peak,
bounds), and by PyTorch's own memory estimator. No number is typed in.

    python benchmarks/torch_overlap.py --model llama3-8b --ranks 64 [--tp 8] [--layers N] [--direction fw]
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import tempfile
import time
from pathlib import Path

import torch

import commsched
import commsched.torch as ct
from commsched.torch import trace
from commsched.torch.estimates import SAMPLED_KINDS
from commsched.torch.export import import_graph
from commsched.torch.options import Options
from commsched.torch.schedule import _function_report
from commsched.torch.values import hint

MS = 1e6


def measured(text: str, machine: str) -> dict:
    """What the models say of a module as it stands."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        program = commsched.Program(text)
        program.run(f"comm-report{{machine={machine} report-file={file} table=false}}")
        return _function_report(file)


def model_estimates(gm, machine: str):
    """Durations in ms by node name: those that CommSched's cost model has for the graph's operations.

    Collectives by size come from the profile too: the estimator answers for any number of bytes by a graph of one
    collective of that size.
    """
    by_name = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "timeline.json")
        commsched.Program(import_graph(gm.graph)[0]).run(
            f"comm-report{{machine={machine} timeline-file={file} table=false}}")
        trace_events = json.loads(file.read_text())
    events = trace_events["traceEvents"] if isinstance(trace_events, dict) else trace_events
    for e in events:
        if e.get("ph") == "X" and "stall" not in e.get("name", ""):
            by_name.setdefault(e["name"], e["dur"] / 1000.0)
    return by_name


def estimator(by_name: dict):
    """The estimator that both schedulers are given. A node of a bucket, which is in no table, is scaled from the
    members' line: latency plus bytes over bandwidth, through the smallest and the largest collective of its kind."""
    lines = {}

    def fit(node):
        return lines.get((str(node.target).split(".")[1].removesuffix("_out"), str(node.args[-1])))

    def estimate(node, override_bytes=None):
        ms = by_name.get(node.name)
        line = fit(node) if isinstance(node.target, torch._ops.OpOverload) and "c10d" in node.target.namespace else None
        if line is None or (ms is not None and override_bytes is None):
            return ms
        size = override_bytes if override_bytes is not None else in_and_out(node)
        return max(0.0, line[0] + line[1] * size)

    estimate.lines = lines
    return estimate


def in_and_out(node) -> int:
    """Bytes of a collective's input and output, as PyTorch counts them."""
    values = [node.args[0].meta["val"], node.meta["val"]]
    return sum(v.dtype.itemsize * _product(map(hint, v.shape)) for v in values)


def _product(sizes) -> int:
    n = 1
    for s in sizes:
        n *= s
    return n


def fit_lines(gm, estimate, by_name) -> None:
    points: dict = {}
    for node in gm.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload) and node.name in by_name:
            name = str(node.target).split(".")[1]
            if "c10d" in node.target.namespace and name != "wait_tensor":
                points.setdefault((name, str(node.args[-1])), []).append((in_and_out(node), by_name[node.name]))
    for key, sizes in points.items():
        (small, t0), (large, t1) = min(sizes), max(sizes)
        slope = (t1 - t0) / (large - small) if large > small else t0 / max(1, small)
        estimate.lines[key] = (t0 - slope * small, slope)


def without_gpu():
    """Device properties that PyTorch's scheduler asks for; the numbers do not matter, every estimate is given."""
    import torch.utils._runtime_estimation as runtime

    runtime.get_gpu_dram_gbps = lambda: 1.0
    runtime.get_device_tflops = lambda dtype: 1.0


def pytorch_peak(gm) -> int:
    """Peak by PyTorch's own estimator, which skips tensors of the CPU unless told otherwise."""
    from torch._inductor.fx_passes.memory_estimator import MemoryTracker

    tracker = MemoryTracker(gm.graph, device_filter=lambda device: True)
    peak = 0
    for node in gm.graph.nodes:
        if node.op != "placeholder" and node.op != "output":
            tracker.schedule_node(node)
            peak = max(peak, tracker.current_memory_bytes)
    return peak


def torch_variant(**options):
    def run(gm, estimate):
        from torch._inductor.fx_passes.overlap_scheduling import schedule_overlap_bucketing

        without_gpu()
        return schedule_overlap_bucketing(gm, custom_runtime_estimation=estimate, compute_estimator="analytical",
                                          collective_estimator="analytical", **options)

    return run


def our_variant(**options):
    def run(gm, estimate):
        gm, report = ct.schedule_overlap(gm, runtime_estimation=estimate, **options)
        if "error" in report:
            raise RuntimeError(report["error"])
        run.report = report
        return gm

    return run


VARIANTS = {
    "as given": lambda gm, estimate: gm,
    "PyTorch, order only": torch_variant(collective_bucketing=False, pre_bucketing_fsdp_collectives=False),
    "PyTorch, with bucketing": torch_variant(collective_bucketing=True),
    "PyTorch, with bucketing, no more memory": torch_variant(
        collective_bucketing=True, max_memory_increase_gb=0.0, max_memory_increase_ratio=0.0),
    "CommSched, seed passes": our_variant(solver="seed", bucketing=False),
    "CommSched, order only": our_variant(bucketing=False),
    "CommSched": our_variant(),
    "CommSched, 25 % more memory": our_variant(memory_budget_ratio=0.25),
}


def rows_of(gm, machine: str, names):
    by_name = model_estimates(gm, machine)
    estimate = estimator(by_name)
    fit_lines(gm, estimate, by_name)
    for name in names:
        copied = copy.deepcopy(gm) if name != "as given" else gm
        start = time.perf_counter()
        try:
            result = VARIANTS[name](copied, estimate)
        except Exception as error:  # One scheduler's failure is a row of the table, not the end of it.
            yield name, {"error": f"{type(error).__name__}: {error}"}
            continue
        seconds = time.perf_counter() - start
        report = measured(import_graph(result.graph, runtime_estimation=estimate)[0], machine)
        ours = getattr(VARIANTS[name], "report", None)
        yield name, {
            "makespan": report["makespan_ns"]["after"] / MS, "bound": report["makespan_ns"]["lower_bound"] / MS,
            "exposed": report["exposed_ns"]["after"] / MS, "peak": report["peak_bytes"]["after"] / 2**30,
            "torch_peak": pytorch_peak(result) / 2**30, "collectives": report["collectives"], "seconds": seconds,
            "python": (ours["import_ns"] + ours["apply_ns"]) / 1e9 if ours else None}


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--model", default="llama3-8b")
    p.add_argument("--ranks", type=int, default=64)
    p.add_argument("--tp", type=int, default=1)
    p.add_argument("--ep", type=int, default=1)
    p.add_argument("--layers", type=int)
    p.add_argument("--direction", choices=("fw", "bw", "both"), default="both")
    p.add_argument("--machine", default="h100-sxm")
    p.add_argument("--variants", help="separated by semicolons, of: " + "; ".join(VARIANTS))
    a = p.parse_args()
    names = a.variants.split(";") if a.variants else list(VARIANTS)
    config = trace.TraceConfig(a.model, a.ranks, a.tp, a.ep, a.layers)
    with trace.fake_world(a.ranks):
        for direction, gm in trace.trace(config).items():
            if a.direction not in ("both", direction):
                continue
            print(f"\n{a.model} {direction}, {a.ranks} ranks, tp {a.tp}, ep {a.ep}: {len(gm.graph.nodes)} nodes; "
                  f"{a.machine}\n\n| scheduler | makespan ms | bound ms | exposed ms | peak GiB | peak GiB, PyTorch's "
                  "estimator | collectives | seconds | of it Python |\n|---|---|---|---|---|---|---|---|---|")
            for name, r in rows_of(gm, a.machine, names):
                if "error" in r:
                    print(f"| {name} | failed: {r['error'].splitlines()[0][:120]} |", flush=True)
                    continue
                python = f"{r['python']:.2f}" if r["python"] is not None else ""
                print(f"| {name} | {r['makespan']:.2f} | {r['bound']:.2f} | {r['exposed']:.2f} | {r['peak']:.2f} | "
                      f"{r['torch_peak']:.2f} | {r['collectives']} | {r['seconds']:.2f} | {python} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
