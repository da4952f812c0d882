"""Runs jobs over MPI in which a rank leaves, fails or never comes, and checks how each rank ends.

    mpi_scenarios.py MPIRUN RuntimeMpiScenario

Only where a timeout is what has to happen is it short. Everywhere else it is longer than the limit of this test, so that a
rank that does not notice fails the test, however fast or busy the machine is.
"""

import os
import pathlib
import re
import subprocess
import sys

LONG_MS, SHORT_MS = 3_600_000, 1_500
OK = "ok: "
LEFT = r"peer lost: rank 0: left, but rank \d is in "

# Name, timeout, ranks, progress thread, what each rank's line has to match (None: it may end without one). Once a rank has
# failed mpirun ends the rest, so the lines of the other ranks may be missing there, but none may be wrong.
SCENARIOS = [
    ("leave-before-collective", LONG_MS, 3, False, [OK, LEFT + "all_reduce", LEFT + "all_reduce"]),
    ("leave-before-collective", LONG_MS, 2, True, [OK, LEFT + "all_reduce"]),
    ("leave-late", LONG_MS, 2, False, [OK, LEFT + "all_reduce"]),
    ("leave-before-comparison", LONG_MS, 3, False, [OK] + 2 * ["peer lost: rank 0: left before all ranks had compared"]),
    ("leave-before-end", LONG_MS, 2, False, [OK, "peer lost: rank 0: left before all ranks had compared"]),
    ("leave-before-group", LONG_MS, 2, False, [OK, "peer lost: rank 0: left before all ranks had made their groups"]),
    ("leave-before-message", LONG_MS, 2, False, [OK, LEFT + "recv of 100000 x f32"]),
    ("leave-before-receiving", LONG_MS, 2, False, [OK, LEFT + "send of 1000000 x f32"]),
    ("leave-after-sending", LONG_MS, 3, False, 3 * [OK]),
    ("leave-after-sending", LONG_MS, 2, True, 2 * [OK]),
    ("fail-after-others-left", LONG_MS, 2, True, [OK, "aborted: rank 1: late"]),
    ("fail-after-others-left", LONG_MS, 2, False, [OK, "aborted: rank 1: late"]),
    ("different-combinations", LONG_MS, 3, False, 3 * ["mismatch: rank 0: .*some ranks compare schedules while others end"]),
    ("never-compares", SHORT_MS, 2, False, 2 * [r"timeout: rank 0: comparing schedules: no word from rank 1$"]),
    ("opens-nothing", SHORT_MS, 2, False, ["timeout: mpi: waited 1500 ms; not all processes of mpirun opened this", OK]),
    (
        "application-without-threads",
        LONG_MS,
        2,
        False,
        2 * ["unsupported: mpi: a progress thread needs MPI_THREAD_MULTIPLE|ok: the job has ended"],
    ),
]


def others_of_session(leader):
    """The processes of a session besides its leader that have not ended."""
    alive = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if int(session) == leader and int(folder.name) != leader and state not in "ZX":
            alive.append(int(folder.name))
    return alive


def run(mpirun, program, name, timeout_ms, ranks, thread):
    environment = dict(os.environ, COMMRT_PROGRESS_THREAD="1" if thread else "0")
    command = [mpirun, "-np", str(ranks), program, name, str(timeout_ms)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    ranks_ended = False
    for _ in range(4):
        try:
            out, err = process.communicate(timeout=60)
            return process.returncode, out, err
        except subprocess.TimeoutExpired:
            # Open MPI's launcher sometimes stays for ever after a rank has failed. What is tested are the ranks: once all
            # of them have ended, the launcher is stopped, which counts as the exit code of a failed job.
            ranks_ended = not others_of_session(process.pid)
            if ranks_ended:
                break
    os.killpg(process.pid, 9)
    out, err = process.communicate()
    return process.returncode if ranks_ended else None, out, err


def judge(code, out, expected):
    """An empty text, or what is wrong."""
    if code is None:
        return "did not end"
    lines = re.findall(r"^rank (\d+): (.*)$", out, re.M)
    fails = any(not text.startswith("ok") for text in expected)
    for rank, text in lines:
        if not re.match(expected[int(rank)], text):
            return f"rank {rank} ends with: {text}"
    seen = {int(rank) for rank, _ in lines}
    if not fails and (seen != set(range(len(expected))) or code != 0):
        return f"exit code {code}, lines of ranks {sorted(seen)}"
    if fails and not any(expected[rank] != OK for rank in seen):
        return "no rank says what went wrong"
    return ""


def main():
    mpirun, program = sys.argv[1:3]
    bad = 0
    for name, timeout_ms, ranks, thread, expected in SCENARIOS:
        code, out, err = run(mpirun, program, name, timeout_ms, ranks, thread)
        why = judge(code, out, expected)
        # What a sanitizer finds is on stderr.
        if not why and "Sanitizer" in err:
            why = "a sanitizer reports"
        title = f"{name}, {ranks} ranks" + (", progress thread" if thread else "")
        print(f"{title}: {why or 'as it should'}")
        if why:
            bad += 1
            print(out[-4000:], err[-4000:], sep="\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
