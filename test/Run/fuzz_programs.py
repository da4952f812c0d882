#!/usr/bin/env python3
#===- fuzz_programs.py - Random structured programs after every pass, on every backend, against numpy -------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#
#
# Makes programs as trees (fuzz/generator.py), computes with numpy what each rank has to get, puts the programs through
# passes in random order, runs them, and compares results and arguments bit for bit. A program may be refused for a reason
# that a document gives (fuzz/refusals.py), and for no other. A program that fails is made small and printed.
#
#   fuzz_programs.py --bin FOLDER [--first 0] [--count 160] [--seconds S] [--backends threads,nccl,mpi]
#                    [--pipelines 5] [--log FILE] [--keep FOLDER] [--reports 3] [--refusals 0]
#
# --first commit takes the seed from the commit, and prints the command that repeats the run with it. Seeds of one batch
# of 16 programs share their arguments. What fails is a wrong result, a crash, a hang, an error that asks to be reported
# because two analyses disagree, and a certificate that its checker refutes; and a refusal that no document explains, if
# more programs than --refusals have one.
#
#===---------------------------------------------------------------------------------------------------------------===#

import argparse
import hashlib
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fuzz.judge import BATCH, Enough, Judge  # noqa: E402
from fuzz.shrink import shrink, size  # noqa: E402
from fuzz.tools import BACKENDS, Tools  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


def seed_of_commit():
    """A number that changes with the commit, or with the sources if there is no repository."""
    done = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--show-toplevel", "HEAD"], capture_output=True, text=True)
    folder, _, text = done.stdout.strip().partition("\n")
    if done.returncode or not text or pathlib.Path(folder).resolve() != ROOT:
        files = sorted(path for path in (ROOT / "lib").rglob("*.cpp"))
        text = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    return int(text[:7], 16) // BATCH * BATCH


def describe(failure, candidate, passes, found, folder, number):
    """Prints the small program, and keeps it as a file that says how to run it."""
    kind, said, text = found or (failure.kind, failure.said, candidate.text)
    program = candidate.program
    steps = size(program.main.block) + sum(size(f.block) for f in program.functions)
    print(f"{failure.title()}; made small: {steps} steps, passes {' '.join(passes) or 'none'}, {kind}")
    head = f"// {kind} on {failure.backend}, {program.ranks} ranks; seed {failure.candidate.seed}\n"
    if passes:
        quoted = " ".join(f"'{p}'" for p in passes)
        head += f"// usage: comm-opt THIS {quoted} -o OTHER; comm-run THIS --ranks {program.ranks} --compare OTHER\n"
    else:
        head += f"// usage: comm-run EXPECTED --ranks {program.ranks} --compare THIS (EXPECTED is below)\n"
    body = head + candidate.text
    print(body + "// said:\n" + "".join(f"//   {line}\n" for line in said.splitlines()[:6]))
    if folder:
        os.makedirs(folder, exist_ok=True)
        name = f"{kind.replace(' ', '_')}_{failure.candidate.seed}_{number}.mlir"
        with open(os.path.join(folder, name), "w") as file:
            file.write(body + "// said:\n" + "".join(f"//   {line}\n" for line in said.splitlines()[:12]))
            if not passes:
                file.write("// EXPECTED:\n" + "".join(f"// {line}\n" for line in candidate.oracle.splitlines()))
            elif kind == "wrong":
                file.write("// OTHER:\n" + "".join(f"// {line}\n" for line in text.splitlines()))


def conclude(judge, allowed):
    """Prints the counts. Returns the exit code."""
    for what, count in sorted(judge.counts.items()):
        print(f"{what}: {count}")
    for why, count in sorted(judge.refused.items()):
        print(f"refused, {why}: {count}")
    refused = sorted({f.candidate.seed for f in judge.failures if f.kind == "refused"})
    others = sorted({f.candidate.seed for f in judge.failures if f.kind != "refused"})
    print(f"refused without a documented reason: {len(refused)} programs, {allowed} allowed; seeds {refused}")
    print(f"wrong, crashed, hung or contradicted: {len(others)} programs; seeds {others}")
    return 1 if others or len(refused) > allowed else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, help="folder of comm-opt and comm-run")
    parser.add_argument("--first", default="0", help="the first seed, or 'commit'")
    parser.add_argument("--count", type=int, default=160, help="programs, in batches of 16")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begins no batch after this time")
    parser.add_argument("--backends", default="threads,nccl", help=f"of {', '.join(BACKENDS)}")
    parser.add_argument("--pipelines", type=int, default=5, help="pipelines per batch")
    parser.add_argument("--reports", type=int, default=3, help="failures that are made small")
    parser.add_argument("--refusals", type=int, default=0, help="programs that may be refused without a documented reason")
    parser.add_argument("--stop", action="store_true", help="end as soon as the run has failed")
    parser.add_argument("--patience", type=int, default=1, help="times as long as usual that a process may take")
    parser.add_argument("--shrink-seconds", type=float, default=60, help="per failure")
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--library", help="folder of the emulated libraries")
    parser.add_argument("--log", help="one line of JSON per failure")
    parser.add_argument("--keep", help="folder for small programs that fail")
    options = parser.parse_args()
    first = seed_of_commit() if options.first == "commit" else int(options.first)
    print(f"first seed {first}; again: test/Run/fuzz_programs.py --bin {options.bin} --first {first} --count {options.count} "
          f"--backends {options.backends} --pipelines {options.pipelines}", flush=True)
    begin, tools = time.time(), Tools(options.bin, options.mpirun, options.library, options.patience)
    with tempfile.TemporaryDirectory() as folder:
        stop_after = options.refusals if options.stop else None
        judge, reported, is_enough = Judge(tools, folder, options.backends.split(","), stop_after), 0, False
        for number in range(first // BATCH, (first + options.count + BATCH - 1) // BATCH):
            if is_enough or time.time() - begin > options.seconds:
                break
            known = len(judge.failures)
            try:
                judge.batch(number, options.pipelines)
            except Enough:
                is_enough = True
            for failure in judge.failures[known:]:
                if options.log:
                    with open(options.log, "a") as log:
                        log.write(json.dumps({"seed": failure.candidate.seed, "style": failure.candidate.style,
                                              "passes": failure.passes, "backend": failure.backend, "kind": failure.kind,
                                              "rules": failure.candidate.breaks_rules, "said": failure.said[:600]}) + "\n")
                if reported < options.reports:
                    reported += 1
                    small = shrink(tools, folder, failure, number, options.shrink_seconds)
                    describe(failure, *small, options.keep, reported)
                else:
                    print(failure.title(), flush=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = resource.getrusage(resource.RUSAGE_SELF)
    seconds = used.ru_utime + used.ru_stime + own.ru_utime + own.ru_stime
    print(f"{judge.counts['programs']} programs, {len(judge.failures)} failures, {seconds:.0f} s of processors, "
          f"{judge.counts['programs'] / max(seconds, 0.001):.1f} programs per second")
    return conclude(judge, options.refusals)


if __name__ == "__main__":
    sys.exit(main())
