#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Times of the runtime's collectives beside its peers on one machine, and what an operation costs beside the bare call.

The mpi backend is compared with the same MPI called bare, and the threads backend with gloo (torch.distributed). Each
system is a job of its own that sleeps until it is asked for a sample: the jobs take their samples in turn, so that
other work on the machine meets all of them alike, and ratios are of samples that were taken next to each other.

    python benchmarks/runtime.py --markdown docs/research/results/runtime.md
    python benchmarks/runtime.py --ranks 2 --sizes 1024 65536 --samples 5
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
SYSTEMS = ("bare", "mpi", "threads", "gloo")
SIZES = [1 << exponent for exponent in range(10, 27, 2)]
# The tiny operations: all_reduces of one f32.
TINY_CALLS = 10_000
# What a sample should take: several time slices of other processes, so that a sample meets the average of them.
SAMPLE_US = 50_000
PILOT_CALLS, MOST_CALLS = 5, 50_000
ENVIRONMENT = dict(
    os.environ,
    OMPI_ALLOW_RUN_AS_ROOT="1",
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    OMPI_MCA_rmaps_base_oversubscribe="1",
)


class System:
    """One of the systems as a running job."""

    def __init__(self, name: str, ranks: int, tool: pathlib.Path, folder: str) -> None:
        commands = [[str(tool), name, str(ranks)]]
        if name in ("bare", "mpi"):
            commands = [["mpirun", "-np", str(ranks), *commands[0]]]
        if name == "gloo":
            script = str(ROOT / "benchmarks/runtime_gloo.py")
            commands = [[sys.executable, script, str(rank), str(ranks), f"{folder}/{ranks}"] for rank in range(ranks)]
        self.jobs = [
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None, text=True, env=ENVIRONMENT
            )
            for command in commands
        ]

    def sample(self, kind: str, size: int, calls: int, in_flight: int = 1) -> tuple[float, float]:
        """Microseconds per call on the slowest rank, and of CPU time of the caller of rank 0."""
        job = self.jobs[0]
        assert job.stdin and job.stdout
        job.stdin.write(f"{kind} {size} {calls} {in_flight}\n")
        job.stdin.flush()
        wall, cpu = job.stdout.readline().split()
        return float(wall), float(cpu)

    def calls(self, kind: str, size: int) -> int:
        """The number of calls that fill a sample."""
        us = self.sample(kind, size, PILOT_CALLS)[0]
        return max(1, min(MOST_CALLS, round(SAMPLE_US / us)))

    def close(self) -> None:
        for job in self.jobs:
            assert job.stdin
            job.stdin.close()
        for job in self.jobs:
            job.wait(timeout=60)


def parse_args() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="the build tree")
    p.add_argument("--ranks", type=int, nargs="*", default=[2, 4])
    p.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="bytes")
    p.add_argument("--samples", type=int, default=11, help="number of samples of each system and point")
    p.add_argument("--markdown", type=pathlib.Path, help="write the page there")
    return p.parse_args()


Point = tuple[str, int]
# Indexed by point, then by system: microseconds per call, one number per round.
Times = dict[Point, dict[str, list[float]]]


def measure(systems: dict[str, System], options: argparse.Namespace) -> Times:
    """Samples of all points. A round visits every point, so that the samples of a point are far apart in time."""
    points = [(kind, size) for kind in KINDS for size in options.sizes]
    calls = {point: {name: system.calls(*point) for name, system in systems.items()} for point in points}
    times: Times = {point: {name: [] for name in systems} for point in points}
    for number in range(options.samples):
        print(f"round {number + 1} of {options.samples}", file=sys.stderr)
        for point in points:
            for name, system in systems.items():
                times[point][name].append(system.sample(*point, calls[point][name])[0])
    return times


def paired(times: dict[str, list[float]], system: str, other: str) -> tuple[float, float]:
    """The median of the ratios of neighbouring samples, and the ratio of the least ones."""
    pairs = [a / b for a, b in zip(times[system], times[other], strict=True)]
    return statistics.median(pairs), min(times[system]) / min(times[other])


def time_text(us: float) -> str:
    return f"{us:.1f} us" if us < 1000 else f"{us / 1000:.1f} ms"


def size_text(size: int) -> str:
    return f"{size >> 10} KiB" if size < 1 << 20 else f"{size >> 20} MiB"


def ladder(times: Times) -> list[str]:
    """The table of all kinds and sizes."""
    lines = [
        "| collective | size | bare MPI | mpi | mpi / bare MPI | threads | gloo | threads / gloo |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (kind, size), of_systems in times.items():
        shown = [f"{time_text(statistics.median(t))} ({time_text(min(t))})" for t in of_systems.values()]
        mpi, threads = (paired(of_systems, *pair) for pair in (("mpi", "bare"), ("threads", "gloo")))
        shown.insert(2, f"{mpi[0]:.2f} ({mpi[1]:.2f})")
        shown.append(f"{threads[0]:.2f} ({threads[1]:.2f})")
        lines.append("| " + " | ".join([kind, size_text(size), *shown]) + " |")
    return lines


def targets(times: Times) -> list[str]:
    """How many points keep to the targets."""

    def count(system: str, other: str, most: float, sizes: range) -> str:
        of_range = [paired(t, system, other) for (_, size), t in times.items() if size in sizes]
        medians, least = (sum(pair[i] <= most for pair in of_range) for i in (0, 1))
        return f"{medians} of {len(of_range)} points by medians, {least} by least samples"

    small, large = range((16 << 10) + 1), range(64 << 10, 1 << 40)
    return [
        f"- mpi at most 3 times bare MPI up to 16 KiB: {count('mpi', 'bare', 3, small)}.",
        f"- mpi at most 1.1 times bare MPI from 64 KiB on: {count('mpi', 'bare', 1.1, large)}.",
        f"- threads not slower than gloo: {count('threads', 'gloo', 1, range(1 << 40))}.",
    ]


def tiny(systems: dict[str, System], options: argparse.Namespace) -> list[str]:
    """The table of tiny operations."""
    lines = ["| system | in flight | per operation | CPU time of the caller |", "|---|---|---|---|"]
    for in_flight in (1, 100):
        results: dict[str, list[tuple[float, float]]] = {name: [] for name in systems if name != "gloo"}
        for _ in range(options.samples):
            for name, samples in results.items():
                samples.append(systems[name].sample("all_reduce", 4, TINY_CALLS, in_flight))
        for name, samples in results.items():
            cells = [f"{statistics.median(c):.2f} us ({min(c):.2f} us)" for c in zip(*samples, strict=True)]
            lines.append(f"| {name} | {in_flight} | {cells[0]} | {cells[1]} |")
    return lines


def device_calls(build: pathlib.Path) -> list[str]:
    """What a start, a wait and a release cost over libraries of NCCL and CUDA that do nothing."""
    command = [
        str(build / "bin/RuntimeBenchmarks"),
        "--benchmark_filter=startCost/emulated:0",
        "--benchmark_format=json",
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    lines = ["| ranks | in flight | calls per operation | CPU time of the caller |", "|---|---|---|---|"]
    rows: dict[tuple[str, str], dict[str, dict]] = {}
    for row in json.loads(done.stdout)["benchmarks"]:
        ranks, in_flight = (part.split(":")[1] for part in row["run_name"].split("/")[2:4])
        rows.setdefault((ranks, in_flight), {})[row["aggregate_name"]] = row
    for key, of_names in rows.items():
        times = f"{of_names['median']['real_time']:.2f} us ({of_names['min']['real_time']:.2f} us)"
        lines.append(f"| {key[0]} | {key[1]} | {of_names['median']['calls']:.1f} | {times} |")
    return lines


HEAD = """# Results: collectives of the runtime beside MPI and gloo

Written by `{command}`.
CommSched {commsched}; {mpi}, PyTorch {torch}; {machine}, load average {load}.

Each cell has the median of {samples} samples and, in parentheses, the least one. A sample makes as many calls as take
about 50 ms, one after the other, on all ranks; the slowest rank counts. The systems take their samples in turn, and a
ratio is the median of the ratios of neighbouring samples (in parentheses: of the least samples). "Bare MPI" calls
MPI_Allreduce, MPI_Allgather, MPI_Reduce_scatter_block and MPI_Alltoall of the same Open MPI that the mpi backend uses;
gloo is called by torch.distributed from Python. Sizes are those of the larger side of a rank. Other work ran on the
machine at the same time: times tell orders of magnitude, and only the ratios compare.

The mpi backend compares kind, size and place of each collective with those of a neighbour and sums in the order of
ranks, for which it sends messages of its own: bare MPI does neither. Where ranks outnumber cores, Open MPI alone gives
the core away in each unsuccessful poll, which costs it the time slices of the other processes.
"""
TINY = """
{calls} all_reduces of one f32, one at a time and 100 in flight:
"""
DEVICES = """
## Calls of NCCL and CUDA per operation

An all_reduce of one element with its wait and its release, on the nccl backend over libraries whose functions do
nothing and count their calls (`StartCostBenchmark.cpp`). The time is what the runtime itself takes. The emulated
libraries of the tests are called in the same way, and in addition polled.
"""


def versions() -> dict[str, str]:
    def run(*command: str) -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    cpu = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    return {
        "commsched": importlib.metadata.version("commsched"),
        "mpi": "Open MPI " + run("mpirun", "--version").split()[3],
        "torch": importlib.metadata.version("torch"),
        "machine": f"{cpu}, {os.cpu_count()} cores",
        "load": " to ".join(f"{load:.0f}" for load in sorted(os.getloadavg()[:2])),
    }


def main() -> None:
    options = parse_args()
    page: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for ranks in options.ranks:
            with contextlib.ExitStack() as stack:
                systems = {}
                for name in SYSTEMS:
                    systems[name] = System(name, ranks, options.build / "bin/CollectiveTimes", folder)
                    stack.callback(systems[name].close)
                times = measure(systems, options)
                page += ["", f"## {ranks} ranks", "", *targets(times), "", *ladder(times)]
                if ranks <= (os.cpu_count() or 1):
                    page += [TINY.format(calls=f"{TINY_CALLS:,}"), *tiny(systems, options)]
    page += [DEVICES, *device_calls(options.build)]
    command = "python benchmarks/runtime.py " + " ".join(sys.argv[1:])
    head = HEAD.format(command=command.strip(), samples=options.samples, **versions())
    text = head + "\n".join(page) + "\n"
    print(text)
    if options.markdown:
        options.markdown.write_text(text)


if __name__ == "__main__":
    main()
