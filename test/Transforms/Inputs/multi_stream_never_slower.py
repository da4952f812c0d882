#===- multi_stream_never_slower.py - comm-multi-stream against the timeline of its input ----------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#
#
# Runs the pass on random programs and on files, and compares the makespan of what it wrote with that of the input, and that
# in the order of issue that it chooses with those of the two orders. The makespans come from the report, which loads the
# programs anew, and not from the pass.
#
#   multi_stream_never_slower.py COMM-OPT FOLDER FIRST-SEED+COUNT FILE...
#
#===---------------------------------------------------------------------------------------------------------------===#

import json
import os
import subprocess
import sys

import multi_stream_memory
import multi_stream_oracle

ORDERS = ["graph", "start-time", "best"]
SETTINGS = ["", "memory-budget-ratio=1e6",
            "comm-streams=1,3 compute-streams=0,2 shared-resources=false memory-budget-ratio=1e6"]


def random_module(first, count):
    """A module of `count` functions from the seed `first` on, half of them from each generator of random programs."""
    lines = ["comm.group @dp #comm.iota<[1, 4]>"]
    for seed in range(first, first + count):
        program = multi_stream_oracle.Program(seed, 1).lines if seed % 2 else multi_stream_memory.program(seed)
        lines += [line.replace("func.func @f(", f"func.func @f{seed}(") for line in program[1:]]
    return "\n".join(lines)


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command}\n{done.stderr}")
    return done.stderr


def makespans(tool, path, report):
    """ns of each block with collectives."""
    run([tool, path, f"--comm-report={report}", "-o", os.devnull])
    with open(report) as file:
        return {block["name"]: block["makespan_ns"]["after"] for block in json.load(file)["functions"]}


def main():
    tool, folder, (first, count), files = sys.argv[1], sys.argv[2], map(int, sys.argv[3].split("+")), sys.argv[4:]
    os.makedirs(folder, exist_ok=True)
    if count > 0:
        files.append(os.path.join(folder, "random.mlir"))
        with open(files[-1], "w") as file:
            file.write(random_module(first, count))
    faster, refused, slower, wins, missed = 0, 0, [], {"graph": 0, "start-time": 0}, []
    out, report = os.path.join(folder, "out.mlir"), os.path.join(folder, "report.json")
    for path in files:
        before = makespans(tool, path, report)
        for setting in SETTINGS:
            after = {}
            for order in ORDERS:
                said = run([tool, path, f"--comm-multi-stream=issue-order={order} {setting}", "--remarks-filter=comm-multi-stream",
                            "-o", out])
                refused += said.count("the block stays on one stream: within the limit of ")
                after[order] = makespans(tool, out, report)
                faster += sum(after[order][name] < before[name] for name in before)
                slower += [f"{path}, {order} {setting}: {name}: {before[name]} ns, then {after[order][name]} ns"
                           for name in before if after[order][name] > before[name]]
            for name in before:
                graph, start, best = (after[order][name] for order in ORDERS)
                wins["graph"] += graph < start
                wins["start-time"] += start < graph
                if best != min(graph, start):
                    missed.append(f"{path}, {setting}: {name}: {graph} and {start} ns, by default {best} ns")
    print(f"{faster} became faster, {refused} stayed on one stream because they would not be faster, {len(slower)} became slower, "
          f"{wins['graph']} are faster in the order of the program, {wins['start-time']} in that of starts, "
          f"{len(missed)} defaults are not the faster")
    print("\n".join(slower + missed))


main()
