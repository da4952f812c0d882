#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Exposed communication of a program as written and as scheduled, over MPI, in the same run.

Each layer gathers a 4 MiB weight from all ranks and multiplies with it: about 5 ms of real computation in a few
kernels. As written, the wait of every gather follows its start. comm-opt schedules the program with durations measured
here. The results of both are compared bit for bit, and then both run several times in turn. The figures are per
iteration, on the slowest rank:

  waiting    the time in waits: communication that no computation hides
  beyond     the time outside of kernels: waits, starts and progress

Over shared memory a core copies the data. If every core computes, "beyond" cannot shrink as the waits do. A network
card or a spare core can do better.

    python benchmarks/overlap.py [--ranks 2] [--layers 16] [--repetitions 5] [--pieces 3]
    python benchmarks/overlap.py --sleep --pieces 1 [--progress-thread]
    python benchmarks/overlap.py --predict [--sleep --progress-thread] [--json results.json]
    python benchmarks/overlap.py --strands --sleep --progress-thread --layers 8 [--markdown results.md]

With --sleep, kernels read one row of their weight and sleep for the rest of their cost, as if a device computed. With
--progress-thread, a thread of each rank moves the data meanwhile. --predict measures the machine (comm-calibrate), and
compares the makespans that its profile predicts with those of real runs (overlap_prediction.py). --strands measures a
chain of tensor-parallel layers, as written and split into strands (overlap_strands.py). Timings need an idle machine.
On a busy one, a session of high weight keeps other processes off the cores: `setsid sh -c 'echo -19 >
/proc/self/autogroup; nice -n -15 python benchmarks/overlap.py ...'`. `chrt -r 5` does so, too, but not together with
--progress-thread: threads of equal priority do not preempt each other.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
# The side of the square f32 weight, of 4 MiB.
SIDE = 1024
LAYER_NS = 5_000_000
# The kernel of --sleep.
SLEEPER = "layer"
ENVIRONMENT = dict(
    os.environ,
    OMPI_ALLOW_RUN_AS_ROOT="1",
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    OMPI_MCA_rmaps_base_oversubscribe="1",
    # Memory that is freed is used again, as GPUs' allocators do it. Fresh pages would cost more than a gather.
    MALLOC_MMAP_THRESHOLD_=str(1 << 30),
    MALLOC_TRIM_THRESHOLD_=str(1 << 34),
)


def program(ranks, layers, pieces, kernel, kernel_ns, gather_ns, side=SIDE):
    """The module as one would write it by hand: start, wait, compute. With None, a gather costs what a profile says.

    Kernels that sleep read a row of the weight: reading all of it would keep a core busy for most of their time.
    """
    shard, weight, row = f"tensor<{side // ranks}x{side}xf32>", f"tensor<{side}x{side}xf32>", f"tensor<1x{side}xf32>"
    arguments = ", ".join(f"%s{layer}: {shard}" for layer in range(layers))
    lines = [f"comm.group @world #comm.iota<[1, {ranks}]>", f"func.func @main(%x: {row}, {arguments}) -> {row} {{"]
    last = "%x"
    cost = "{{comm.cost = #comm.cost<time = {}>}}".format
    for layer in range(layers):
        given = "" if gather_ns is None else f" {cost(gather_ns)}"
        lines.append(f"  %f{layer} = comm.all_gather %s{layer} on @world{given} : ({shard}) -> !comm.future<{weight}>")
        lines.append(f"  %w{layer} = comm.wait %f{layer} : !comm.future<{weight}>")
        read, type_ = f"%w{layer}", weight
        if kernel == SLEEPER:
            read, type_ = f"%r{layer}", row
            lines.append(f"  {read} = tensor.extract_slice %w{layer}[0, 0] [1, {side}] [1, 1] : {weight} to {row}")
        for piece in range(pieces):
            name = f"%y{layer}_{piece}"
            lines.append(
                f'  {name} = comm.compute "{kernel}"({last}, {read}) {cost(kernel_ns)} : ({row}, {type_}) -> {row}'
            )
            last = name
    return "\n".join(lines + [f"  return {last} : {row}", "}", ""])


class Bench:
    def __init__(self, options):
        self.options = options
        self.kernel = SLEEPER if options.sleep else "mm"
        self.temporary = tempfile.TemporaryDirectory(prefix="comm-overlap-")  # It is removed with this object.
        self.folder = pathlib.Path(self.temporary.name)

    def mpirun(self, *arguments, tool="comm-run"):
        """Runs a tool on all ranks. With --timeline, each rank of comm-run writes into a file of its own."""
        o = self.options
        command = ["mpirun", "-np", str(o.ranks), str(o.bin / tool), *map(str, arguments)]
        command += ["--emulate-costs"] if o.sleep and tool == "comm-run" else []
        environment = dict(ENVIRONMENT, COMMRT_PROGRESS_THREAD=str(int(o.progress_thread)))
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")

    def run(self, path, iterations):
        """(elapsed, computing, waiting) in ns, per iteration and rank."""
        self.mpirun(path, f"--iterations={iterations}", f"--timeline={self.folder / 'timeline.json'}")
        o, result = self.options, [[] for _ in range(iterations)]
        self.gathers = []
        for rank in range(o.ranks):
            spans = self.spans(rank)
            kernels = [e for e in spans if e["name"] == self.kernel]
            waits = [e for e in spans if e["name"] == "wait"]
            self.gathers += [e["dur"] * 1000 for e in spans if e["name"] == "all_gather"]
            each = len(kernels) // iterations
            if each == 0 or len(kernels) != each * iterations:
                sys.exit(f"{len(kernels)} kernels in the timeline of {iterations} iterations")
            end = None
            for iteration in range(iterations):
                mine = kernels[iteration * each : (iteration + 1) * each]
                finish = mine[-1]["ts"] + mine[-1]["dur"]
                if end is not None:
                    busy, waiting = sum(e["dur"] for e in mine), sum(e["dur"] for e in waits if end <= e["ts"] < finish)
                    result[iteration].append(((finish - end) * 1000, busy * 1000, waiting * 1000))
                end = finish
        # The first iteration warms up, and its begin is not known.
        return result[1:]

    def spans(self, rank):
        """The events of a rank, in the order of time."""
        events = json.loads((self.folder / f"timeline.json.{rank}").read_text())["traceEvents"]
        names = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
        return sorted(
            (e for e in events if e["ph"] == "X" and names[e["pid"]].endswith(f", rank {rank}")), key=lambda e: e["ts"]
        )


def text(samples):
    """min / median / max in ms."""
    return f"{min(samples) / 1e6:7.2f} {statistics.median(samples) / 1e6:7.2f} {max(samples) / 1e6:7.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument(
        "--pieces", type=int, default=3, help="kernels per layer; a 1024 x 1024 product takes some 2 ms"
    )
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=5, help="per run, the first one not counted")
    parser.add_argument("--sleep", action="store_true")
    parser.add_argument("--progress-thread", action="store_true")
    parser.add_argument("--predict", action="store_true", help="compare predicted makespans with measured ones")
    parser.add_argument("--strands", action="store_true", help="measure a tensor-parallel chain in strands")
    parser.add_argument("--markdown", type=pathlib.Path, help="with --strands: write the page to this file, too")
    parser.add_argument("--json", type=pathlib.Path, help="with --predict: write the results to this file, too")
    options = parser.parse_args()
    bench = Bench(options)
    if options.predict:
        import overlap_prediction

        sys.exit(overlap_prediction.main(bench, program))
    if options.strands:
        import overlap_strands

        if not options.sleep:
            parser.error("--strands: expected --sleep, for the kernels of the chain are too small to overlap with")
        sys.exit(overlap_strands.main(bench, options.markdown))
    kernel = bench.kernel
    written, scheduled = bench.folder / "written.mlir", bench.folder / "scheduled.mlir"

    # Durations on this machine, for the scheduler.
    kernel_ns = LAYER_NS // options.pieces
    written.write_text(program(options.ranks, options.layers, options.pieces, kernel, kernel_ns, LAYER_NS))
    samples = bench.run(written, iterations=4)
    if not options.sleep:
        kernel_ns = round(
            statistics.median(busy for ranks in samples for _, busy, _ in ranks) / options.layers / options.pieces
        )
    gather_ns = round(statistics.quantiles(bench.gathers, n=10)[-1])  # Late gathers are the exposed ones.
    written.write_text(program(options.ranks, options.layers, options.pieces, kernel, kernel_ns, gather_ns))
    done = subprocess.run(
        [
            str(options.bin / "comm-opt"),
            str(written),
            "--comm-schedule=memory-budget-ratio=1.0 bucketing=false",
            "-o",
            str(scheduled),
        ],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        sys.exit(done.stderr)

    bench.mpirun(written, f"--compare={scheduled}")
    measured = {path: {"waiting": [], "beyond": [], "elapsed": []} for path in (written, scheduled)}
    computing = []
    for repetition in range(options.repetitions):
        order = [written, scheduled] if repetition % 2 == 0 else [scheduled, written]
        for path in order:
            for ranks in bench.run(path, iterations=options.iterations):
                measured[path]["waiting"].append(max(waiting for _, _, waiting in ranks))
                measured[path]["beyond"].append(max(total - busy for total, busy, _ in ranks))
                measured[path]["elapsed"].append(max(total for total, _, _ in ranks))
                computing += [busy for _, busy, _ in ranks]
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    print(
        f"{options.ranks} ranks over mpi, {options.layers} layers: a 4 MiB all-gather, "
        f"{statistics.median(computing) / options.layers / 1e6:.2f} ms of computation in {options.pieces} kernels"
        f"{' (asleep)' if options.sleep else ''}{', progress thread' if options.progress_thread else ''}; "
        f"{len(measured[written]['beyond'])} iterations each; {os.cpu_count()} cores, load {load}"
    )
    print(f"{'ms: min median max':24}{'as written':>24}{'scheduled':>24}  ratio of medians, minima")
    for what in ("waiting", "beyond", "elapsed"):
        a, b = measured[written][what], measured[scheduled][what]
        print(f"{what:24}{text(a)}{text(b)}  {statistics.median(b) / statistics.median(a):.2f}, {min(b) / min(a):.2f}")
    print("results equal, bit for bit")


if __name__ == "__main__":
    main()
