#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kernels of a real GPU against the machine profiles: matrix products, copies and elementwise kernels.

`measure` runs on a machine with a GPU and PyTorch, and needs nothing of CommSched. `page` compares its file with
profiles, on any machine. A measurement is the median of 15 runs between two CUDA events, with a cold cache. It includes
what two events cost by themselves, so `page` takes the shortest copy for that cost and one launch.

    python benchmarks/gpu_kernels.py measure h100.json
    python benchmarks/gpu_kernels.py page docs/research/results/gpu-kernels.json \
        --markdown docs/research/results/gpu-kernels.md
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

RUNS = 15
ROWS = (128, 512, 1024, 2048, 4096, 8192, 16384)
# Pairs of k and n: projections of Llama-3-8B and 70B, its vocabulary, an expert, and a small one.
WEIGHTS = (
    (4096, 4096),
    (4096, 1024),
    (4096, 14336),
    (14336, 4096),
    (8192, 8192),
    (8192, 28672),
    (4096, 128256),
    (2048, 1408),
    (512, 512),
)
LARGEST_COPY = 1 << 30
PROFILES = ("h100-sxm", "h100-sxm-tiles")
# A kernel's launch in the profiles of GPUs (`compute.launch_ns`).
LAUNCH_NS = 1300


# ===- On the machine with the GPU ----------------------------------------------------------------===


def median_ns(torch: Any, run: Callable[[], Any], flush: Any) -> int:
    """The median time of a call in ns. The caches hold nothing of its operands."""
    times = []
    for i in range(RUNS + 4):
        flush.zero_()
        begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
        torch.cuda._sleep(200_000)  # The host is ahead: its own time does not count.
        begin.record()
        run()
        end.record()
        end.synchronize()
        if i >= 4:
            times.append(begin.elapsed_time(end) * 1e6)
    return round(statistics.median(times))


def measure(options: argparse.Namespace) -> int:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    flush = torch.empty(128 << 20, dtype=torch.uint8, device="cuda")
    rows = []

    def row(kind: str, shape: list[int], element: str, run: Callable[[], Any]) -> None:
        rows.append({"kind": kind, "shape": shape, "type": element, "ns": median_ns(torch, run, flush)})

    for element, dtype in (("bf16", torch.bfloat16), ("f32", torch.float32)):
        for m in ROWS:
            for k, n in WEIGHTS:
                if m * n > 8192 * 128256 or (element == "f32" and (n > 20_000 or m > 4096)):
                    continue
                x = torch.randn(m, k, dtype=dtype, device="cuda")
                w = torch.randn(n, k, dtype=dtype, device="cuda").t()
                row("matmul", [m, k, n], element, lambda x=x, w=w: x @ w)
    size = 1024
    while size <= LARGEST_COPY:
        x = torch.randn(size // 2, dtype=torch.bfloat16, device="cuda")
        y = torch.empty_like(x)
        row("copy", [size], "bf16", lambda x=x, y=y: y.copy_(x))
        size *= 4
    result = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}
    options.file.write_text(json.dumps(result) + "\n")
    return 0


# ===- The page -----------------------------------------------------------------------------------===


def program(products: list[dict]) -> str:
    """The products as a program, each with its place in the list as its location, and a collective at the end."""
    arguments, lines = ["%s: tensor<128xf32>"], []
    for i, product in enumerate(products):
        (m, k, n), element = product["shape"], product["type"]
        left, right, result = f"tensor<{m}x{k}x{element}>", f"tensor<{k}x{n}x{element}>", f"tensor<{m}x{n}x{element}>"
        arguments += [f"%a{i}: {left}", f"%b{i}: {right}", f"%c{i}: {result}"]
        lines.append(
            f"%r{i} = linalg.matmul ins(%a{i}, %b{i} : {left}, {right}) outs(%c{i} : {result}) -> {result}"
            f' loc("product{i}")'
        )
    lines += [
        "%f = comm.all_reduce sum %s on @dp : (tensor<128xf32>) -> !comm.future<tensor<128xf32>>",
        "%w = comm.wait %f : !comm.future<tensor<128xf32>>",
        "return %w : tensor<128xf32>",
    ]
    body = "\n  ".join(lines)
    group = "comm.group @dp #comm.iota<[1, 8]>"
    return f"{group}\nfunc.func @main({', '.join(arguments)}) -> tensor<128xf32> {{\n  {body}\n}}\n"


def predicted(tool: Path, profile: str, products: list[dict]) -> list[int]:
    """What a profile says that each product takes, in ns."""
    with tempfile.TemporaryDirectory() as folder:
        source, trace = Path(folder) / "products.mlir", Path(folder) / "trace.json"
        source.write_text(program(products))
        command = [str(tool), str(source), "--comm-schedule", f"--comm-machine={profile}", f"--comm-timeline={trace}"]
        subprocess.run([*command, "-o", "/dev/null"], check=True, capture_output=True)
        events = json.loads(trace.read_text())["traceEvents"]
    times: dict[str, int] = {}
    for event in events:
        place = str(event.get("args", {}).get("location", event.get("name", "")))
        if event.get("ph") == "X" and "product" in place:
            times.setdefault(place[place.index("product") :].strip('"'), round(event["dur"] * 1000))
    return [times[f"product{i}"] for i in range(len(products))]


def errors(times: list[int], rows: list[dict], overhead: int) -> list[float]:
    """Predicted over measured, less one, in percent."""
    return [100 * (t / max(row["ns"] - overhead, 1) - 1) for t, row in zip(times, rows)]


def summary(values: list[float]) -> str:
    absolute = sorted(abs(v) for v in values)
    most = max(values, key=abs)
    return f"{statistics.median(absolute):.1f} % | {statistics.median(values):+.1f} % | {most:+.1f} %"


def page(options: argparse.Namespace) -> int:
    data = json.loads(options.file.read_text())
    copies = [row for row in data["rows"] if row["kind"] == "copy"]
    overhead = copies[0]["ns"] - LAUNCH_NS
    lines = [
        "# Kernels of a GPU against the profiles",
        "",
        f"{data['device']}, PyTorch {data['torch']}. Made by `benchmarks/gpu_kernels.py`, whose first half ran on the",
        f"GPU. Medians of {RUNS} runs between CUDA events with cold caches, less {overhead} ns: what the",
        "shortest copy takes beyond a launch.",
        "No setting of a profile was chosen on these numbers.",
        "",
        "| products | profile | median error | median of signed errors | worst |",
        "|---|---|---|---|---|",
    ]
    for element in ("bf16", "f32"):
        products = [row for row in data["rows"] if row["kind"] == "matmul" and row["type"] == element]
        for profile in PROFILES:
            found = errors(predicted(options.comm_opt, profile, products), products, overhead)
            lines.append(f"| {len(products)} of {element} | {profile} | {summary(found)} |")
    products = [row for row in data["rows"] if row["kind"] == "matmul" and row["type"] == "bf16"]
    columns = [predicted(options.comm_opt, profile, products) for profile in PROFILES]
    lines += ["", f"| m x k x n, bf16 | measured | {' | '.join(PROFILES)} |", "|---|---|---|---|"]
    for i, row in enumerate(products):
        cells = " | ".join(f"{column[i] / 1000:.1f} us" for column in columns)
        size = " x ".join(map(str, row["shape"]))
        lines.append(f"| {size} | {(row['ns'] - overhead) / 1000:.1f} us | {cells} |")
    lines += ["", "| copy within the device | measured | bytes read and written per second |", "|---|---|---|"]
    for row in copies:
        ns = row["ns"] - overhead
        lines.append(f"| {row['shape'][0]} B | {ns / 1000:.1f} us | {2 * row['shape'][0] / ns:.0f} GB/s |")
    text = "\n".join(lines) + "\n"
    if options.markdown:
        options.markdown.write_text(text)
    else:
        print(text, end="")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    first = commands.add_parser("measure", help="measure on this machine's GPU")
    first.add_argument("file", type=Path)
    first.set_defaults(run=measure)
    second = commands.add_parser("page", help="compare measurements with profiles")
    second.add_argument("file", type=Path)
    second.add_argument("--markdown", type=Path)
    second.add_argument("--comm-opt", type=Path, default=Path("build/bin/comm-opt"))
    second.set_defaults(run=page)
    options = parser.parse_args()
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main())
