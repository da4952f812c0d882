# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Runs processes over the nccl backend in which a rank dies, stops, comes late, disagrees or has no memory.

    nccl_scenarios.py RuntimeNcclScenario [--mpirun MPIRUN] [NAME...]

The libraries are those of COMMRT_NCCL_LIBRARY and COMMRT_CUDART_LIBRARY, in CI the emulated ones. Every rank has to end
by itself, with one line and an exit code that fits it. Timeouts are longer than the limit of this test wherever a
timeout is not what has to happen.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile

import tcp_job

LONG_MS, SHORT_MS = 3_600_000, 3_000
OK = r"ok: $"
GONE = "its connection was closed: its process has ended, or its machine is gone"
FIRST = r"all_reduce of 4 x f32 on @world by sum \(site 0, step\.mlir:1:1\)"
SECOND = r"all_reduce of 4 x f32 on @world by sum \(site 1, step\.mlir:2:2\)"


class Job:
    """The ranks of one scenario."""

    def __init__(self, name, ranks=3, timeout_ms=LONG_MS, **environment):
        self.folder = tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        self.name, self.ranks, self.timeout_ms = name, ranks, timeout_ms
        # What a process that is killed leaves open is no leak.
        self.environment = {"CUDA_EMU_SHARED": f"{self.folder.name}/memory", "CUDA_EMU_LEAKS": "0", **environment}
        self.port = tcp_job.free_port()
        self.started = {}

    def start(self, rank, **changes):
        environment = tcp_job.variables("commrt", rank, self.ranks, self.port)
        environment.update(self.environment)
        environment.update(changes)
        self.started[rank] = tcp_job.Rank([PROGRAM, self.name, str(self.timeout_ms)], environment)
        return self.started[rank]

    def start_all(self):
        for rank in range(self.ranks):
            self.start(rank)
        return self

    def expect(self, lines):
        """Each rank's line has to match, and its exit code to fit it; None: it was killed."""
        ends = {rank: process.end() for rank, process in self.started.items()}
        self.folder.cleanup()
        shown = "".join(f"\nrank {rank}: {end}" for rank, end in sorted(ends.items()))
        if "Address already in use" in shown:
            raise tcp_job.TakenPort
        for rank, expected in lines.items():
            code, out, err = ends[rank]
            assert code is not None, f"rank {rank} did not end{shown}"
            if expected is None:
                continue
            assert "emulator: " not in err, f"a rule is broken{shown}"
            found = re.findall(rf"^rank {rank}: (.*)$", out, re.M)
            assert len(found) == 1 and re.match(expected, found[0]), f"rank {rank}: not {expected!r}{shown}"
            assert code == (0 if found[0] == "ok: " else 1), f"exit code of rank {rank}{shown}"


def runs(name, expected, **how):
    """A scenario without interference, in which all ranks end alike."""
    job = Job(name, **how).start_all()
    job.expect(dict.fromkeys(range(job.ranks), expected))


def killed():
    job = Job("needs-last").start_all()
    for rank in range(3):
        job.started[rank].wait_for("ready")
    job.started[2].kill()
    # The control plane has not been shown what rank 2 started, so the message says nothing of that.
    text = f"peer lost: rank 2: {GONE}; here {SECOND} has (not )?begun$"
    job.expect({0: text, 1: text, 2: None})


def killed_checked():
    """With COMMRT_CHECK, the message tells what the dead rank started last."""
    job = Job("needs-last", COMMRT_CHECK="1").start_all()
    for rank in range(3):
        job.started[rank].wait_for("ready")
    job.started[2].kill()
    text = f"peer lost: rank 2: {GONE}; it last started .*{FIRST}.*; here {SECOND} has (not )?begun$"
    job.expect({0: text, 1: text, 2: None})


def stopped():
    """The others are in the collective; the deadline or the silence ends them, and both name what they were in."""
    job = Job("needs-last", timeout_ms=SHORT_MS, COMMRT_CHECK="1").start_all()
    for rank in range(3):
        job.started[rank].wait_for("ready")
    victim = job.started.pop(2)
    victim.kill(signal.SIGSTOP)
    try:
        text = f"(timeout: rank [01]: waited {SHORT_MS} ms; .*step\\.mlir:2:2.*rank 2|peer lost: rank 2: no heartbeat)"
        job.expect({0: text, 1: text})
    finally:
        victim.kill()
        victim.end()


def late():
    job = Job("needs-last").start_all()
    for rank in range(3):
        job.started[rank].wait_for("ready")
    job.started[2].tell()
    job.expect(dict.fromkeys(range(3), OK))


def never_comes():
    job = Job("healthy", timeout_ms=SHORT_MS)
    for rank in (0, 1):
        job.start(rank)
    job.expect(
        dict.fromkeys(
            (0, 1),
            rf"timeout: nccl: control plane 'tcp': (rank 0: )?waited {SHORT_MS} ms(;| at).*rank 2.* did not come",
        )
    )


def left():
    text = r"peer lost: rank 2: left"
    job = Job("leaves", COMMRT_CHECK="1").start_all()
    job.expect({0: text, 1: text, 2: OK})


def versions_differ():
    job = Job("healthy", ranks=2)
    job.start(0)
    job.start(1, NCCL_EMU_VERSION="22605")
    text = (
        "mismatch: rank [01]: group @world: all ranks need the same version of NCCL: rank 0 has 2.29.7, rank 1 has 2.26"
    )
    job.expect({0: text, 1: text})


def checks_differ():
    job = Job("healthy", ranks=2)
    job.start(0)
    job.start(1, COMMRT_CHECK="3")
    text = "mismatch: rank [01]: group @world: all ranks need the same COMMRT_CHECK: rank 0 has 0, rank 1 has 3"
    job.expect({0: text, 1: text})


def another_size(every):
    """Found by the comparison of starts, long before any deadline, with both sides and their locations."""
    less = SECOND.replace("4 x", "[34] x").replace("site 1", "site 0").replace("2:2", "1:1")
    text = rf"mismatch: rank \d: rank \d is in .*{less}.*, but rank \d is in .*{less}"
    runs("another-size", text, COMMRT_CHECK=str(every))


def over_mpi(name, expected, **environment):
    """MPI as the control plane. Once a rank has failed, mpirun may end the others before they have said so."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        common = {"CUDA_EMU_SHARED": f"{folder}/memory", "CUDA_EMU_LEAKS": "0", **environment}
        done = subprocess.run(
            [MPIRUN, "-np", "2", PROGRAM, name, str(LONG_MS)],
            capture_output=True,
            text=True,
            timeout=tcp_job.NET_S,
            env={**os.environ, **common},
            check=False,
        )
    lines = re.findall(r"^rank [01]: (.*)$", done.stdout, re.M)
    shown = f"{done.returncode} {done.stdout} {done.stderr}"
    assert lines and all(re.match(expected, line) for line in lines), shown
    assert (done.returncode == 0) == (expected == OK), shown


SCENARIOS = {
    "healthy": lambda: runs("healthy", OK),
    "healthy-checked": lambda: runs("healthy", OK, COMMRT_CHECK="1"),
    "healthy-checked-seldom": lambda: runs("healthy", OK, COMMRT_CHECK="7"),
    "killed": killed,
    "killed-checked": killed_checked,
    "stopped": stopped,
    "late": late,
    "never-comes": never_comes,
    "left": left,
    "another-order": lambda: runs(
        "another-order",
        rf"mismatch: rank \d: rank \d is in .*({FIRST}|{SECOND}).*, but rank \d is in .*({FIRST}|{SECOND})",
        COMMRT_CHECK="1",
    ),
    "another-size": lambda: another_size(1),
    "another-size-checked-seldom": lambda: another_size(7),
    "another-tag": lambda: runs(
        "another-tag", r"mismatch: .*tag 1.*step\.mlir:|mismatch: .*step\.mlir:.*tag 1", COMMRT_CHECK="1", ranks=2
    ),
    "no-memory": lambda: runs("no-memory", r"no memory: rank 2: no memory for a buffer of 1125899906842624 bytes"),
    "versions-differ": versions_differ,
    "checks-differ": checks_differ,
    "nccl-loses-a-rank": lambda: runs(
        "healthy", r"timeout: rank \d: waited 3000 ms; all_reduce", timeout_ms=SHORT_MS, NCCL_EMU_FAULT="lose:1:3"
    ),
    "nccl-fails": lambda: runs("healthy", r"backend failure: rank 1: .*ncclSystemError", NCCL_EMU_FAULT="error:1:3"),
    "nccl-reports-an-error": lambda: runs(
        "healthy", r"backend failure: rank [01]: .*ncclRemoteError", NCCL_EMU_FAULT="remote:1:3"
    ),
}


# Where there is an mpirun.
OVER_MPI = {
    "healthy-over-mpi": lambda: over_mpi("healthy", OK, COMMRT_CHECK="2"),
    "another-order-over-mpi": lambda: over_mpi(
        "another-order",
        rf"mismatch: rank \d: rank \d is in ({FIRST}|{SECOND}), but rank \d is in ({FIRST}|{SECOND})",
        COMMRT_CHECK="2",
    ),
    "another-tag-over-mpi": lambda: over_mpi(
        "another-tag", r"mismatch: .*step\.mlir:3:3.*step\.mlir:4:4", COMMRT_CHECK="1"
    ),
}
# Those that make the emulated NCCL misbehave, or be another version.
EMULATED = {"versions-differ", "nccl-loses-a-rank", "nccl-fails", "nccl-reports-an-error"}


def main():
    global PROGRAM, MPIRUN
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--mpirun")
    parser.add_argument("names", nargs="*")
    options = parser.parse_intermixed_args()
    PROGRAM, MPIRUN = options.program, options.mpirun
    if MPIRUN:
        SCENARIOS.update(OVER_MPI)
    bad = 0
    is_emulated = "nccl_emu" in os.environ.get("COMMRT_NCCL_LIBRARY", "")
    for name in options.names or SCENARIOS:
        if name in EMULATED and not is_emulated:
            print(f"{name}: left out, it needs the emulated NCCL", flush=True)
            continue
        why = tcp_job.run(SCENARIOS[name])
        print(f"{name}: {why or 'as it should'}", flush=True)
        bad += bool(why)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
