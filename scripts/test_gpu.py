# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Tests the nccl backend with the real libraries; scripts/test-gpu.sh starts it, and docs/guide/Gpu.md describes it.

It needs python3 and the programs that the build made, nothing else: NCCL and the CUDA runtime are opened by ctypes.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import datetime
import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
TWO_RANKS = ROOT / "docs" / "examples" / "run_on_device.mlir"
ONE_RANK_ONLY = ROOT / "test" / "Run" / "Inputs" / "one-rank-on-device.mlir"
# What captures a program into a graph has the results of calls.
COMPARE_GRAPH = """set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$@" --output "$folder/calls"
"$@" --output "$folder/graph" --graph
diff -r "$folder/calls" "$folder/graph"
"""
RUNTIME_TESTS = ROOT / "test" / "Runtime"
# Several processes on one GPU: NCCL allows it from this version on, with few channels and without NVLink SHARP. Threads
# of one process are refused.
MANY_RANKS_VERSION = 23003
MANY_RANKS = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "2", "NCCL_NVLS_ENABLE": "0"}
# The tests of test/Runtime that run on every backend use up to this many ranks; the first two sizes have one rank.
MOST_RANKS = 8
EVERY_BACKEND = "Sizes/*:AllToAll*:Groups*:Determinism*"
ONE_RANK = "Sizes/*/0:Sizes/*/1"
# A step that has not ended by then has failed, unless --step-seconds says otherwise. The longest one takes a minute.
LIMIT_S = 600
# Of a step's output: what is kept in the results.
MOST_OUTPUT = 20_000
# A pack has to pass through places that take no more.
MOST_PACKED = 60 << 20
PROGRAMS = ("RuntimeTests", "RuntimeProcessTests", "RuntimeControlScenario", "RuntimeNcclTests", "RuntimeNcclScenario")
# Scripts that start ranks as processes; a pack takes them along.
SCRIPTS = ("tcp_job.py", "control_scenarios.py", "nccl_scenarios.py")
CUDA_NAMES = ("libcudart.so.13", "libcudart.so.12")
NCCL_NAMES = ("libnccl.so.2",)
NVRTC_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12")
PRODUCT_NAMES = ("libcublasLt.so.13", "libcublasLt.so.12")
# Attributes of cudaDeviceGetAttribute.
MULTIPROCESSORS, MAJOR, MINOR = 16, 75, 76
# Compute capabilities for which a pack has the runtime's kernels: A100, L40, H100 and H200, B200.
CAPABILITIES = ("80", "89", "90", "100")


class NoGpu(Exception):
    """This machine cannot run the tests; the text is one line that says why."""


# ===- What is there ----------------------------------------------------------------------------===


def wheel_folders() -> list[str]:
    """The folders in which Python packages bring NVIDIA's libraries."""
    return [folder for place in sys.path for folder in glob.glob(f"{place}/nvidia/*/lib")]


def open_library(variable: str, names: tuple[str, ...], folders: list[str]) -> tuple[ctypes.CDLL, str]:
    """The library that the variable names, or the first of the names that can be opened."""
    given = os.environ.get(variable)
    tried = [given] if given else [f"{folder}/{name}" for folder in folders for name in names] + list(names)
    reasons = []
    for path in tried:
        try:
            return ctypes.CDLL(path), path
        except OSError as error:
            reasons.append(str(error))
    raise NoGpu(f"{reasons[-1]} ({variable} names the file to use)")


class Machine:
    """The libraries, the driver and the devices."""

    def __init__(self, folders: list[str]) -> None:
        self.cuda, self.cuda_path = open_library("COMMRT_CUDART_LIBRARY", CUDA_NAMES, folders)
        self.cuda.cudaGetErrorString.restype = ctypes.c_char_p
        self.driver = self.number("cudaDriverGetVersion")
        self.runtime = self.number("cudaRuntimeGetVersion")
        self.count = self.number("cudaGetDeviceCount")
        if self.count == 0:
            raise NoGpu("the driver sees no GPU")
        self.nccl_library, self.nccl_path = open_library("COMMRT_NCCL_LIBRARY", NCCL_NAMES, folders)
        version = ctypes.c_int()
        if self.nccl_library.ncclGetVersion(ctypes.byref(version)) != 0:
            raise NoGpu("ncclGetVersion fails")
        self.nccl = version.value
        # Indexed by variable: what the computations on the device need. The emulated runtime takes none of them, and
        # without cuBLASLt kernels make the products.
        self.compilers: dict[str, str] = {}
        self.missing: list[str] = []
        if not hasattr(self.cuda, "emulatorRegisterKernel"):
            self.find_compilers(folders)

    def find_compilers(self, folders: list[str]) -> None:
        packed = ROOT / "kernels"
        if packed.exists():
            self.compilers["COMMRT_KERNEL_CACHE"] = str(packed)
        targets = {f"*-sm_{device['compute_capability'].replace('.', '')}" for device in self.devices()}
        has_code = all(any(packed.glob(target)) for target in targets)
        for variable, names in (("COMMRT_NVRTC_LIBRARY", NVRTC_NAMES), ("COMMRT_CUBLASLT_LIBRARY", PRODUCT_NAMES)):
            try:
                self.compilers[variable] = open_library(variable, names, folders)[1]
            except NoGpu as missing:
                if variable == "COMMRT_NVRTC_LIBRARY" and not has_code:
                    self.missing.append(str(missing))

    def number(self, function: str, *arguments: int) -> int:
        value = ctypes.c_int()
        code = getattr(self.cuda, function)(ctypes.byref(value), *arguments)
        if code != 0:
            text = self.cuda.cudaGetErrorString(code).decode()
            raise NoGpu(f"{function} returns {code}: {text}")
        return value.value

    def devices(self) -> list[dict[str, Any]]:
        names = smi("name")
        return [
            {
                "name": names[device] if device < len(names) else None,
                "multiprocessors": self.number("cudaDeviceGetAttribute", MULTIPROCESSORS, device),
                "compute_capability": "{}.{}".format(
                    *(self.number("cudaDeviceGetAttribute", attribute, device) for attribute in (MAJOR, MINOR))
                ),
            }
            for device in range(self.count)
        ]

    def facts(self) -> dict[str, Any]:
        return {
            "driver": next(iter(smi("driver_version")), None),
            "cuda_driver": self.driver,
            "cuda_runtime": self.runtime,
            "cuda_runtime_library": self.cuda_path,
            "nccl": self.nccl,
            "nccl_library": self.nccl_path,
            "devices": self.devices(),
        }

    def environment(self) -> dict[str, str]:
        """What makes the backend open the libraries that were found here."""
        return {
            "COMMRT_CUDART_LIBRARY": self.cuda_path,
            "COMMRT_NCCL_LIBRARY": self.nccl_path,
            **self.compilers,
        }


def smi(field: str) -> list[str]:
    """A property of each device by nvidia-smi; empty without it."""
    if not shutil.which("nvidia-smi"):
        return []
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def commit() -> str | None:
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        packed = ROOT / "COMMIT"
        return packed.read_text().strip() if packed.exists() else None


# ===- What is run ------------------------------------------------------------------------------===


class Step:
    """One program to run, or why it is left out."""

    def __init__(self, name: str, command: list[str], variables: dict[str, str], skipped: str = "") -> None:
        self.name, self.command, self.variables, self.reason = name, command, variables, skipped
        self.status = "skipped" if skipped else "planned"
        self.seconds = 0.0
        self.code: int | None = None
        self.output = ""

    def unless(self, reason: str) -> Step:
        """The step, left out if there is a reason."""
        if reason and self.status == "planned":
            self.status, self.reason = "skipped", reason
        return self

    def run(self, environment: dict[str, str], limit_s: int) -> None:
        begin = time.monotonic()
        process = subprocess.Popen(
            self.command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**environment, **self.variables},
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit_s)
            self.code = process.returncode
            self.reason = "" if self.code == 0 else f"exit code {self.code}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            output, _ = process.communicate()
            self.reason = f"did not end within {limit_s} s"
        self.seconds = time.monotonic() - begin
        self.output = output.decode(errors="replace")[-MOST_OUTPUT:]
        self.status = "passed" if self.code == 0 else "failed"

    def record(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "status": self.status,
            "reason": self.reason,
            "command": self.command,
            "environment": self.variables,
            "exit_code": self.code,
            "seconds": round(self.seconds, 3),
            "output": self.output,
        }


@dataclasses.dataclass
class Context:
    """What the steps are made from."""

    machine: Machine
    programs: pathlib.Path
    emulated: bool

    def lacks(self, program: str) -> str:
        """A reason if the program is not there."""
        return "" if (self.programs / program).exists() else f"{program} was not built"

    @property
    def shares(self) -> bool:
        """Several processes may share a GPU."""
        return self.machine.nccl >= MANY_RANKS_VERSION

    def sharing(self, ranks: int) -> dict[str, str]:
        """The variables that several processes on one GPU need."""
        return MANY_RANKS if self.shares and self.machine.count < ranks else {}

    def too_few(self, ranks: int, threads: bool = False) -> str:
        """A reason if that number of ranks has no place, as processes or as threads of one."""
        if self.machine.count >= ranks or (self.shares and not threads):
            return ""
        gpus = "one GPU" if self.machine.count == 1 else f"{self.machine.count} GPUs"
        return f"{gpus}, and NCCL {self.machine.nccl} takes one {'thread' if self.shares else 'rank'} each"

    def tests(self, name: str, program: str, filter_: str, ranks: int, **variables: str) -> Step:
        """Tests in one process, whose ranks are threads, up to that many."""
        command = [str(self.programs / program), f"--gtest_filter={filter_}", "--gtest_brief=1"]
        variables = {"COMMRT_TEST_BACKEND": "nccl", **variables}
        return Step(name, command, variables, self.lacks(program) or self.too_few(ranks, threads=True))

    def program(self, name: str, ranks: int, *arguments: str, around: tuple[str, ...] = ()) -> Step:
        """comm-run with a program for one or two ranks, in exact mode. A pack does not take it along: it needs LLVM."""
        source = ONE_RANK_ONLY if ranks == 1 else TWO_RANKS
        command = [*around, str(self.programs / "comm-run"), str(source), "--backend", "nccl", *arguments]
        return Step(name, command, {"COMMRT_NCCL_EXACT": "1"}, self.lacks("comm-run"))

    def script(self, name: str, script: str, program: str, ranks: int, *arguments: str, **variables: str) -> Step:
        """A script that starts the program as that many processes. No ranks: it needs no GPU."""
        command = [sys.executable, "-B", str(RUNTIME_TESTS / script), str(self.programs / program), *arguments]
        return Step(name, command, {**variables, **self.sharing(ranks)}, self.lacks(program) or self.too_few(ranks))


def one_rank(context: Context) -> Step:
    return context.tests("one rank", "RuntimeTests", ONE_RANK, 1)


def computations(context: Context) -> Step:
    step = context.tests("computations", "RuntimeTests", "Computations.*:Images.NamesAndLifetime", 1)
    return step.unless("; ".join(context.machine.missing))


def threads_exact(context: Context) -> Step:
    name = "ranks as threads, exact"
    return context.tests(name, "RuntimeTests", EVERY_BACKEND, MOST_RANKS, COMMRT_NCCL_EXACT="1")


def threads_blocking(context: Context) -> Step:
    variables = {"COMMRT_NCCL_EXACT": "1", "COMMRT_NCCL_BLOCKING": "1"}
    return context.tests("ranks as threads, blocking", "RuntimeTests", EVERY_BACKEND, MOST_RANKS, **variables)


def moves(context: Context) -> Step:
    return context.tests("moves without exact mode", "RuntimeTests", "AllToAll*:Groups*", MOST_RANKS)


def streams(context: Context) -> Step:
    # Ranks that are threads capture only where the devices are emulated: see the step below.
    filter_ = "*" if context.emulated else "-NcclGraph.*"
    return context.tests("streams, messages, deadlines", "RuntimeNcclTests", filter_, MOST_RANKS)


def processes(context: Context) -> Step:
    count = context.machine.count
    ranks = min(count, MOST_RANKS) if count > 1 else 2
    ranks = min(ranks, 4) if context.emulated else ranks
    command = [sys.executable, "-B", str(RUNTIME_TESTS / "tcp_job.py"), "--launcher", "torchrun", "-n", str(ranks)]
    command += ["--emulated"] if context.emulated else []
    command += [str(context.programs / "RuntimeProcessTests"), "--gtest_filter=Mpi.BitsOfThreads", "--gtest_brief=1"]
    variables = {"COMMRT_TEST_BACKEND": "nccl", "COMMRT_NCCL_EXACT": "1", **context.sharing(ranks)}
    reason = context.lacks("RuntimeProcessTests") or context.too_few(ranks)
    return Step("ranks as processes, exact", command, variables, reason)


def processes_that_fail(context: Context) -> Step:
    return context.script("processes that fail", "nccl_scenarios.py", "RuntimeNcclScenario", 3)


def control_plane(context: Context) -> Step:
    version = (ROOT / "include" / "CommSched" / "Runtime" / "Runtime.h").read_text()
    abi = version.split("#define COMMRT_ABI_VERSION ")[1].split("u")[0]
    return context.script("control plane", "control_scenarios.py", "RuntimeControlScenario", 0, abi)


def programs_of_kernels(context: Context) -> Step:
    """A program with kernels of its own: the bits of threads."""
    ranks = 1 if context.too_few(2, threads=True) else 2
    return context.program("comm-run", ranks, "--iterations", "3", "--compare-backend", "threads")


def graph_capture(context: Context) -> Step:
    """The same, captured into a graph, against calls. One rank: several in one process are not captured."""
    around = ("sh", "-c", COMPARE_GRAPH, "sh")
    return context.program("comm-run, graph capture", 1, "--iterations", "4", around=around)


# A new step is a function that makes it, and its name here. The table has them in this order.
STEPS = [
    one_rank,
    computations,
    threads_exact,
    threads_blocking,
    moves,
    streams,
    processes,
    processes_that_fail,
    control_plane,
    programs_of_kernels,
    graph_capture,
]


def print_row(step: Step, width: int) -> None:
    seconds = "" if step.status == "skipped" else f"{step.seconds:.1f} s"
    print(f"{step.name:{width}}  {step.status:7}  {seconds:>8}  {step.reason}".rstrip(), flush=True)


def run_steps(
    steps: list[Step], environment: dict[str, str], options: argparse.Namespace, facts: dict[str, Any]
) -> None:
    """Runs what is planned. Results are written after each step, so that a run that is cut off leaves what it had."""
    width = max(len(step.name) for step in steps)
    results = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), **facts}
    if options.results:
        options.results.mkdir(parents=True, exist_ok=True)
    for step in steps:
        if options.only and not any(text in step.name for text in options.only):
            step.status, step.reason = "skipped", "not chosen by --only"
        if step.status == "planned":
            step.run(environment, options.step_seconds)
        print_row(step, width)
        if options.results:
            results["steps"] = [step.record() for step in steps]
            partial = options.results / "results.json.part"
            partial.write_text(json.dumps(results, indent=1) + "\n")
            partial.replace(options.results / "results.json")


def print_counts(steps: list[Step]) -> None:
    counts = {status: sum(step.status == status for step in steps) for status in ("passed", "failed", "skipped")}
    print(", ".join(f"{count} {status}" for status, count in counts.items()))


def test(options: argparse.Namespace) -> int:
    programs = options.bin or next(
        (path for path in (ROOT / "build" / "bin", ROOT / "bin") if path.exists()), ROOT / "bin"
    )
    machine = Machine([str(options.libraries)] if options.libraries else wheel_folders())
    emulated = hasattr(machine.cuda, "emulatorRegisterKernel")
    steps = [make(Context(machine, programs, emulated)) for make in STEPS]
    libraries = os.pathsep.join(filter(None, [str(programs.parent / "lib"), os.environ.get("LD_LIBRARY_PATH")]))
    environment = {**os.environ, **machine.environment(), "LD_LIBRARY_PATH": libraries}
    print(
        f"{machine.count} GPUs, CUDA driver {machine.driver}, runtime {machine.runtime}, NCCL {machine.nccl}",
        flush=True,
    )
    run_steps(steps, environment, options, {"commit": commit(), "emulated": emulated, **machine.facts()})
    print_counts(steps)
    for step in steps:
        if step.status == "failed":
            print(f"\n{step.name}: {' '.join(step.command)}\n{step.output[-2000:]}")
    if emulated:
        print("the libraries are emulated: this says nothing about a GPU")
    return 0 if all(step.status != "failed" for step in steps) and any(step.status == "passed" for step in steps) else 1


# ===- Packing ----------------------------------------------------------------------------------===


def compile_kernels(programs: pathlib.Path, folder: pathlib.Path) -> list[pathlib.Path]:
    """The runtime's kernels, for machines without NVRTC; none, and a line that says why, if it is not here either."""
    environment = {**os.environ, "COMMRT_KERNEL_CACHE": str(folder)}
    if not (programs / "RuntimeKernels").exists():
        print("without compiled kernels: RuntimeKernels was not built")
        return []
    try:
        environment["COMMRT_NVRTC_LIBRARY"] = open_library("COMMRT_NVRTC_LIBRARY", NVRTC_NAMES, wheel_folders())[1]
    except NoGpu as missing:
        print(f"without compiled kernels: {missing}")
        return []
    shutil.rmtree(folder, ignore_errors=True)
    command = [str(programs / "RuntimeKernels"), *CAPABILITIES]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"without compiled kernels: {done.stderr.strip()}")
        return []
    return sorted(folder.iterdir())


def pack(options: argparse.Namespace) -> int:
    """Everything that `test` needs, for a machine that can build nothing."""
    programs = options.bin or ROOT / "build" / "bin"
    absent = [name for name in PROGRAMS if not (programs / name).exists()]
    if absent:
        print(f"test-gpu: not built: {', '.join(absent)}")
        return 1
    files = {f"bin/{name}": programs / name for name in PROGRAMS}
    for library in (programs.parent / "lib").glob("libcommrt*.so*"):
        if library.name.endswith((".so", ".so.3", ".so.4")):
            files[f"lib/{library.name}"] = library.resolve()
    for given in ("scripts/test-gpu.sh", "scripts/test_gpu.py", "include/CommSched/Runtime/Runtime.h"):
        files[given] = ROOT / given
    for name in SCRIPTS:
        files[f"test/Runtime/{name}"] = RUNTIME_TESTS / name
    kernels = compile_kernels(programs, programs.parent / "kernels")
    files.update({f"kernels/{path.name}": path for path in kernels})
    stamp = programs.parent / "COMMIT"
    stamp.write_text(f"{commit()}\n")
    files["COMMIT"] = stamp
    with tarfile.open(options.pack, "w:xz") as archive:
        for name, path in sorted(files.items()):
            archive.add(path, arcname=f"commsched-gpu/{name}")
    stamp.unlink()
    size = options.pack.stat().st_size
    print(f"{options.pack}: {len(files)} files, {size / (1 << 20):.1f} MiB")
    if size > MOST_PACKED:
        options.pack.unlink()
        print(f"test-gpu: that is more than {MOST_PACKED >> 20} MiB; nothing is packed")
        return 1
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="test-gpu.sh", description="Tests the nccl backend on GPUs.")
    parser.add_argument("--results", type=pathlib.Path, metavar="FOLDER", help="write results.json there")
    parser.add_argument(
        "--bin", type=pathlib.Path, metavar="FOLDER", help="the built programs (default: build/bin, bin)"
    )
    parser.add_argument("--libraries", type=pathlib.Path, metavar="FOLDER", help="where libcudart and libnccl are")
    parser.add_argument("--only", action="append", metavar="TEXT", help="run the steps whose names contain it")
    parser.add_argument(
        "--step-seconds",
        type=int,
        default=LIMIT_S,
        metavar="S",
        help=f"a step that takes longer fails (default: {LIMIT_S})",
    )
    parser.add_argument("--pack", type=pathlib.Path, metavar="FILE.tar.xz", help="pack what another machine needs")
    options = parser.parse_args()
    try:
        return pack(options) if options.pack else test(options)
    except NoGpu as error:
        print(f"test-gpu: no GPU to test on: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
