#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Times parsing, verifying and printing 100,000 operations: comm's by comm-opt against upstream's by stock mlir-opt.

The upstream function is of the shard dialect, whose collectives have the same operands, types and symbols: gathers and
slices in turn, where ours has gathers and waits in turn. Prints the least of several runs of each, and their ratio.

  benchmarks/parse_print.py [--ops N] [--runs N] [--build DIR]
"""

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

MLIR_OPT = "/usr/lib/llvm-22/bin/mlir-opt"
SMALL, LARGE = "tensor<4x8xf32>", "tensor<16x8xf32>"


def comm_program(ops: int) -> str:
    lines = ["comm.group @dp #comm.iota<[1, 4]>", f"func.func @f(%x: {SMALL}) {{"]
    for i in range(ops // 2):
        lines.append(f"  %s{i} = comm.all_gather %x on @dp : ({SMALL}) -> !comm.future<{LARGE}>")
        lines.append(f"  %w{i} = comm.wait %s{i} : !comm.future<{LARGE}>")
    return "\n".join([*lines, "  return", "}", ""])


def shard_program(ops: int) -> str:
    lines = ["shard.grid @dp(shape = 4)", f"func.func @f(%x: {SMALL}) {{"]
    for i in range(ops // 2):
        lines.append(f"  %s{i} = shard.all_gather %x on @dp grid_axes = [0] gather_axis = 0 : {SMALL} -> {LARGE}")
        lines.append(f"  %w{i} = shard.all_slice %s{i} on @dp grid_axes = [0] slice_axis = 0 : {LARGE} -> {SMALL}")
    return "\n".join([*lines, "  return", "}", ""])


def least_seconds(command: list[str], runs: int) -> float:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        subprocess.run(command, check=True)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--build", type=Path, default=Path("build"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder) / "comm.mlir", Path(folder) / "shard.mlir"
        ours.write_text(comm_program(arguments.ops))
        theirs.write_text(shard_program(arguments.ops))
        comm = least_seconds([f"{arguments.build}/bin/comm-opt", str(ours), "-o", "/dev/null"], arguments.runs)
        shard = least_seconds([MLIR_OPT, str(theirs), "-o", "/dev/null"], arguments.runs)
    print(
        f"{arguments.ops} operations: comm-opt {comm:.3f} s, mlir-opt (shard) {shard:.3f} s, ratio {comm / shard:.2f}"
    )


if __name__ == "__main__":
    main()
