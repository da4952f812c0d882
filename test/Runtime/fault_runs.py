"""Runs a program many times, each time with another fault, and checks how it ends.

Every rank that lives ends with a clear error before its deadline, the exit code is not 0, and nothing is left: no process,
no temporary file, no shared segment. A fault that does no harm (a delay; two starts of different groups in another order)
leaves the results as they were. The same seed gives the same faults.
"""

import argparse
import collections
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = HERE / "Inputs" / "step.mlir"
STARTS = 8
RANKS = 4
# What a fault may end in, by status; None: no error, and the results of a run without faults.
OUTCOMES = {
    "delay": {None},
    "drop": {"timeout", "mismatch"},  # where the next collective of the group takes its place
    "mismatch": {"mismatch"},
    "error": {"injected fault"},
    "hang": {"timeout"},
    "stall": {"timeout"},
    "die": {"peer lost"},
    "size": {"mismatch"},
    "order": {"mismatch", "timeout", None},
    "signature": {"mismatch"},
}
# Only these may have to end by a timeout. Every other run has one that it never reaches, so that neither a slow machine turns
# an error into a timeout, nor a rank that notices nothing passes.
SHORT_TIMEOUT = ("drop", "hang", "stall", "order")
LONG_TIMEOUT_MS = 3_600_000
# A net against hangs: the start of all ranks, and from an error to the end.
GRACE_S = 120
MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}


def living(marker):
    """Processes whose environment has the marker."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if marker.encode() in (entry / "environ").read_bytes():
                    found.append((int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:80]))
            except OSError:
                pass
    return found


def shared_segments():
    names = {f"/dev/shm/{name}" for name in os.listdir("/dev/shm")} if os.path.isdir("/dev/shm") else set()
    try:
        lines = pathlib.Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
        names |= {"sysv " + line.split()[1] for line in lines}
    except OSError:
        pass
    return names


def in_use(name):
    """Whether a living process has the file mapped: then it is somebody else's, who is still at work."""
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if name in (entry / "maps").read_text():
                    return True
            except OSError:
                pass
    return False


class Runner:
    def __init__(self, options):
        self.options = options
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fault-runs-"))
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        self.marker = f"COMMSCHED_FAULT_RUNS={os.getpid()}"
        self.environment = dict(os.environ, TMPDIR=str(self.temporary), **MPI_ENVIRONMENT)
        key, value = self.marker.split("=")
        self.environment[key] = value

    def run(self, backend, fault):
        """(exit code, stdout, stderr by rank or one for all, seconds); the exit code is None if it had to be killed."""
        logs = self.folder / "logs"
        is_short = bool(fault) and fault.split("@")[0] in SHORT_TIMEOUT
        timeout_ms = self.options.timeout_ms if is_short else LONG_TIMEOUT_MS
        command = [str(self.options.bin / "comm-run"), str(PROGRAM), f"--timeout-ms={timeout_ms}", "--print"]
        command += [f"--fault={fault}"] if fault else []
        limit = 2 * self.options.timeout_ms / 1000 + GRACE_S
        if backend == "mpi":
            command = ["mpirun", "-np", str(RANKS), "--output-filename", str(logs)] + command
        else:
            command += [f"--ranks={RANKS}", f"--backend={backend}"]
        begin = time.monotonic()
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=limit)
            code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            out, err = process.communicate()
            code = None
        errors = [err]
        if backend == "mpi":
            rank_logs = sorted(logs.glob("*/rank.*"), key=lambda path: int(path.name.split(".")[1]))
            errors = [(path / "stderr").read_text() for path in rank_logs]
            out = "".join((path / "stdout").read_text() for path in rank_logs)
            shutil.rmtree(logs, ignore_errors=True)
        return code, out, errors, time.monotonic() - begin

    def leftovers(self):
        """What is still there a moment after the run."""
        for _ in range(30):
            processes, files = living(self.marker), os.listdir(self.temporary)
            if not processes and not files:
                return []
            time.sleep(0.1)
        return [f"process {pid}: {name}" for pid, name in processes] + [f"temporary file {name}" for name in files]


def judge(kind, fault_rank, backend, code, out, errors, healthy):
    """An empty text, or what is wrong with how the run ended."""
    allowed = OUTCOMES[kind]
    if code is None:
        return "did not end"
    if code == 0:
        if None not in allowed:
            return "ended with exit code 0"
        return "" if out == healthy else "the results differ from those of a run without faults"
    if allowed == {None}:
        return f"ended with exit code {code}"
    if backend == "mpi" and len(errors) != RANKS:
        return f"output of {len(errors)} ranks"
    for rank, text in enumerate(errors):
        if backend == "mpi" and rank == fault_rank and kind in ("die", "stall"):
            continue
        statuses = re.findall(r"comm-run: error: ([a-z ]+): ", text)
        if not statuses:
            return f"rank {rank} ended without an error: {text[-300:]!r}"
        # The rank with the fault may report its own.
        if not any(status in allowed for status in statuses) and rank != fault_rank:
            return f"rank {rank} reports {statuses}"
        if kind not in ("error",) and not re.search(r"step\.mlir:\d+:\d+", text):
            return f"rank {rank} names no source location: {text[-300:]!r}"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=HERE.parents[1] / "build" / "bin")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--mpi", type=int, default=0, help="how many of them run under mpirun")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout-ms", type=int, default=1000)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    runner = Runner(options)
    before = shared_segments()
    kinds, bad, ends = list(OUTCOMES), 0, collections.Counter()
    slowest, used = collections.Counter(), collections.Counter()
    try:
        healthy = {}
        for backend in ["threads", "sim"] + ["mpi"] * (options.mpi > 0):
            code, out, errors, _ = runner.run(backend, None)
            if code != 0:
                sys.exit(f"{backend}: a run without faults failed: {errors}")
            healthy[backend] = out
        if len(set(healthy.values())) != 1:
            sys.exit("the backends' results differ")
        for number in range(options.count):
            # Spread evenly, so that a small count has both.
            is_mpi = (number + 1) * options.mpi // options.count > number * options.mpi // options.count
            backend = "mpi" if is_mpi else ("sim" if number % 5 == 4 else "threads")
            kind = kinds[used[backend] % len(kinds)]
            used[backend] += 1
            fault_rank = rng.randrange(RANKS)
            fault = f"{kind}@{rng.randrange(STARTS)}:rank={fault_rank}:ms=30"
            code, out, errors, seconds = runner.run(backend, fault)
            why = judge(kind, fault_rank, backend, code, out, errors, healthy[backend])
            left = runner.leftovers()
            if left:
                why = (why + "; " if why else "") + "left behind: " + ", ".join(left)
            ends[(backend, kind, "as it should" if not why else why)] += 1
            slowest[kind] = max(slowest[kind], seconds)
            if why:
                bad += 1
                print(f"FAILED {backend} --fault={fault}: {why}")
        fresh = shared_segments() - before
        for _ in range(50):
            fresh = {name for name in fresh & shared_segments() if not in_use(name)}
            if not fresh:
                break
            time.sleep(0.1)
        if fresh:
            bad += 1
            print("FAILED shared segments left behind: " + ", ".join(sorted(fresh)))
    finally:
        shutil.rmtree(runner.folder, ignore_errors=True)
    for (backend, kind, how), count in sorted(ends.items()):
        print(f"{count:4} {backend:8} {kind:10} {how}")
    print("slowest, seconds: " + ", ".join(f"{kind} {seconds:.1f}" for kind, seconds in sorted(slowest.items())))
    print(f"{options.count} runs with faults, {bad} failures; nothing left behind" if not bad else f"{bad} failures")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
