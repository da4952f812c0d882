#===- tools.py - Runs comm-opt and comm-run on many programs at once ----------------------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

MARKER = "// -----\n"
PYTHON = str(pathlib.Path(__file__).resolve().parents[3] / "python")  # where commsched_verify is
BACKENDS = ("threads", "mpi", "nccl")
CRASHES = re.compile(r"PLEASE submit a bug report|Stack dump|Assertion .* failed|AddressSanitizer|LLVM ERROR")


class Done:
    """How a process ended: its exit code, or None if it did not end in time."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def crashed(self):
        return self.code is not None and (self.code < 0 or self.code > 2) or bool(CRASHES.search(self.err))


def run(command, timeout, environment=None):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                               env=environment, start_new_session=True)
    try:
        out, err = process.communicate(timeout=timeout)
        return Done(process.returncode, out, err)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        return Done(None, out, err)


class Tools:
    """The programs of a build folder. `patience`: how many times as long as usual a process may take."""

    def __init__(self, folder, mpirun="mpirun", library_folder=None, patience=1):
        self.patience = patience
        self.opt, self.runner = (os.path.join(folder, name) for name in ("comm-opt", "comm-run"))
        self.library, self.mpirun = library_folder or os.path.join(os.path.dirname(folder), "lib"), mpirun.split()
        self.environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                                OMPI_MCA_rmaps_base_oversubscribe="1")

    def optimize(self, path, passes, timeout=120):
        """The parts of the file after the passes, None for each that was refused, and what was said about each."""
        parts = open(path).read().split(MARKER)
        done = run([self.opt, "--split-input-file", path, *passes], timeout * self.patience, self.environment)
        said = by_part(done.err, path, parts)
        if done.code is None or done.crashed:
            return [None] * len(parts), said, done
        texts = done.out.split(MARKER)
        if len(texts) != len(parts):
            return [None] * len(parts), said, done
        return [text if text.strip() else None for text in texts], said, done

    def certify(self, path, passes, certificate, timeout=120):
        """Lets the passes write a certificate of the program, and the checker read it. Of its exit codes, 1 says that a
        statement is false. None if there is no certificate."""
        options = [f"--comm-certificate={certificate}", "-o", os.devnull]
        if run([self.opt, path, *passes, *options], timeout * self.patience, self.environment).code != 0:
            return None
        environment = dict(self.environment, PYTHONPATH=PYTHON)
        return run([sys.executable, "-B", "-m", "commsched_verify", certificate], timeout * self.patience, environment)

    def execute(self, files, ranks, options, backend="threads", seed=0, late=True, timeout=120):
        """Runs the first file and compares the others with it."""
        timeout *= self.patience
        command = [self.runner, "--split-input-file", files[0], "--timeout-ms", str(20000 * self.patience), *options]
        for other in files[1:]:
            command += ["--compare", other]
        if late:
            command += ["--emulate-costs", "--fault", f"delay@{seed % 7}:rank={seed % ranks}:ms=1"]
        if backend == "mpi":
            return run([*self.mpirun, "-np", str(ranks), *command], timeout, self.environment)
        environment = dict(self.environment)
        command += ["--ranks", str(ranks)]
        if backend == "nccl":
            environment.update(COMMRT_CUDART_LIBRARY=f"{self.library}/libcudart_emu.so", COMMRT_NCCL_EXACT="1",
                               COMMRT_NCCL_LIBRARY=f"{self.library}/libnccl_emu.so")
            if seed % 2:
                environment.update(CUDA_EMU_SCHEDULE="random", CUDA_EMU_SEED=str(seed))
                command = [part for part in command if part != "--emulate-costs"]
                if "--fault" in command:
                    at = command.index("--fault")
                    del command[at:at + 2]
            command += ["--backend", "nccl"]
        return run(command, timeout, environment)


def by_part(text, path, parts):
    """Splits diagnostics by the part of the file that they are about."""
    first, line = [], 1
    for part in parts:
        first.append(line)
        line += part.count("\n") + 1
    said = [""] * len(parts)
    at = None
    for row in text.splitlines():
        found = re.match(re.escape(path) + r":(\d+):\d+: ", row)
        if found:
            number = int(found.group(1))
            at = max(i for i, begin in enumerate(first) if begin <= number)
        if at is not None:
            said[at] += row + "\n"
    return said


def failures_by_part(done):
    """Of a run: what was said before each 'program N failed'."""
    said, rows = {}, []
    for row in done.err.splitlines():
        found = re.match(r".*program (\d+) of '.*' failed", row)
        if found:
            said[int(found.group(1))] = said.get(int(found.group(1)), "") + "\n".join(rows) + "\n"
            rows = []
        else:
            rows.append(row)
    return said
