# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Starts the ranks of a job as a launcher does: one process each, told its place by environment variables.

    tcp_job.py [--launcher torchrun] [-n 4] COMMAND...

As a module it gives tests single ranks that they can start late, stop and kill. Ports are free ones of this machine.
"""

import argparse
import os
import random
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

# The variables by which each launcher tells a process its rank, the number of ranks, and its place on the machine.
LAUNCHERS = {
    "commrt": ("COMMRT_RANK", "COMMRT_SIZE", "COMMRT_LOCAL_RANK"),
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    "openmpi": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "pmi": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    "slurm": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
}
# A net against hangs; no test ends by it.
NET_S = 240


class TakenPort(Exception):
    """Another process took the port that was free: not what is tested."""


def run(scenario):
    """An empty text, or what is wrong with a scenario, which is a function that raises."""
    for _ in range(5):
        try:
            scenario()
            return ""
        except TakenPort:
            continue
        except Exception:  # every failure is reported, with its place
            return traceback.format_exc()
    return "no free port in five attempts"


def free_port():
    """A port with a free one after it. Others may take it meanwhile, which is why tests try again."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            port = random.randrange(20000, 32000)
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 1))
                return port
            except OSError:
                continue


def clean_environment():
    """That of this process without what a launcher says."""
    ours = "RANK|SIZE|LOCAL_RANK|ADDR|PORT|SECRET|JOB|SILENCE_MS|START_TIMEOUT_MS"
    names = re.compile(
        rf"^(COMMRT_({ours})$|RANK$|WORLD_SIZE$|LOCAL_RANK$|MASTER_|TORCHELASTIC_|OMPI_|PMIX_|PMI_|MPI_LOCAL|SLURM_)"
    )
    return {key: value for key, value in os.environ.items() if not names.match(key)}


def variables(launcher, rank, ranks, port, host="127.0.0.1"):
    """What the launcher sets for a rank. Like torchrun, it sets a port at which its agent listens itself."""
    rank_name, size_name, local_name = LAUNCHERS[launcher]
    result = {rank_name: rank, size_name: ranks, local_name: rank, "MASTER_ADDR": host, "MASTER_PORT": port}
    if launcher == "torchrun":
        result.update(TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RUN_ID="test", TORCHELASTIC_RESTART_COUNT=0)
    if launcher == "slurm":
        result.update(SLURM_STEP_ID=0, SLURM_JOB_ID=17)
    return {key: str(value) for key, value in result.items()}


class Rank:
    """One process, whose lines are read as they come."""

    def __init__(self, command, environment):
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(clean_environment(), **environment),
        )
        self.text = b""

    def wait_for(self, word):
        """Returns when the process has printed the word."""
        deadline = time.monotonic() + NET_S
        while word.encode() not in self.text:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            data = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not data:
                raise AssertionError(f"no '{word}': {self.text.decode()} {self.end()[2]}")
            self.text += data

    def tell(self, word="go"):
        self.process.stdin.write(word.encode() + b"\n")
        self.process.stdin.flush()

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)

    def end(self):
        """(exit code, output, errors); the exit code is None if it had to be killed."""
        try:
            out, err = self.process.communicate(timeout=NET_S)
            code = self.process.returncode
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            code = None
        return code, (self.text + out).decode(), err.decode()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launcher", choices=sorted(LAUNCHERS), default="torchrun")
    parser.add_argument("-n", type=int, default=2)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--emulated", action="store_true", help="devices of test/Runtime/Emulator with shared memory")
    parser.add_argument("--seconds", type=int, default=NET_S)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    agent = socket.socket()
    while True:
        port = free_port()
        try:
            if options.launcher == "torchrun":
                agent.bind(("127.0.0.1", port))  # as its agent does
                agent.listen()
            break
        except OSError:
            continue
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        common = clean_environment()
        if options.emulated:
            common["CUDA_EMU_SHARED"] = f"{folder}/memory"
        return run_ranks(options, port, common)


def run_ranks(options, port, common):
    """The largest exit code."""
    processes = []
    for rank in range(options.n):
        environment = dict(common, **variables(options.launcher, rank, options.n, port, options.host))
        processes.append(subprocess.Popen(options.command, env=environment))
    deadline = time.monotonic() + options.seconds
    codes = []
    for process in processes:
        try:
            codes.append(process.wait(max(0, deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            process.kill()
            codes.append(124)
    return max(code if code >= 0 else 128 - code for code in codes)


if __name__ == "__main__":
    sys.exit(main())
