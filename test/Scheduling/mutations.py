#!/usr/bin/env python3
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Breaks the scheduler in known ways, one at a time, and prints which test notices each.

    mutations.py check              every mutation still applies to the sources, exactly once; needs no build
    mutations.py run --build DIR    compiles, links and tests every mutation; DIR is a build folder that was configured
                                    with -DCMAKE_UNITY_BUILD=OFF, in which SchedulingTests and comm-opt are built first
        --only 13,21                these alone
        --jobs 2                    at most two at a time
        --every                     names every unit test that fails, which takes a minute per mutation
        --filter 'Bounds*'          these unit tests alone, as gtest's filter has it

A mutation (mutation_list.py) is a list of textual edits of one source file, and the name of a test that is known to
notice it. The source tree and what was built stay as they are: the mutated copy is compiled with the command of the
original, and its object is linked in front of the library, so that the linker does not take the original from
there.

The known killer is tried first. If the mutation survives it, the line says so, and all unit tests follow up to the
first that fails, then the gaps on the training graphs (test/Graphs/schedule.test). `run` returns 1 if any mutation
survives, or if a killer fails without a mutation.

All were killed, each by the test named beside it; a run takes about a minute and a half on two idle cores.
"""

from __future__ import annotations

import argparse
import functools
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from mutation_list import MUTATIONS, Mutation

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = "lib/libCommSchedScheduling.a"
GRAPHS = ROOT / "test/Graphs"
GAPS = "Tests that schedules stay as close to their bounds"
# What a run may take, in seconds, before it counts as one that does not end. Far more than the tests take.
ENDLESS = 1200


def mutated(change: Mutation) -> str:
    """The text of the mutated file. Exits if an edit does not apply exactly once."""
    text = (ROOT / "lib/Scheduling" / change.file).read_text()
    for old, new in change.edits:
        if (count := text.count(old)) != 1:
            raise SystemExit(
                f"mutation '{change.name}': expected one place in lib/Scheduling/{change.file}, got {count}:\n{old}"
            )
        text = text.replace(old, new)
    return text


class Workshop:
    """Makes and tries mutants beside a build folder."""

    def __init__(self, build: pathlib.Path, scratch: pathlib.Path) -> None:
        self.build, self.scratch = build, scratch
        if any("/unity_" in entry["file"] for entry in json.loads((build / "compile_commands.json").read_text())):
            raise SystemExit(f"{build} compiles several files at once; configure a folder with -DCMAKE_UNITY_BUILD=OFF")
        targets = ["SchedulingTests", "comm-opt"]
        if subprocess.run(["ninja", "-C", build, *targets], stdout=sys.stderr).returncode != 0:
            raise SystemExit("the sources without a mutation do not build")
        entries = json.loads((build / "compile_commands.json").read_text())
        self.commands = {entry["file"]: entry["command"] for entry in entries}
        self.links = {target: self.link_command(target) for target in targets}

    def link_command(self, target: str) -> str:
        done = subprocess.run(
            ["ninja", "-C", self.build, "-t", "commands", target], capture_output=True, text=True, check=True
        )
        return done.stdout.strip().splitlines()[-1].removeprefix(": && ").removesuffix(" && :")

    def compile(self, index: int, change: Mutation) -> pathlib.Path:
        """The object of the mutated file. Exits if the compiler refuses it."""
        original = ROOT / "lib/Scheduling" / change.file
        source = self.scratch / f"{index}" / original.name
        source.parent.mkdir()
        source.write_text(mutated(change))
        words = shlex.split(self.commands[str(original)])
        target = source.with_suffix(".o")
        words[words.index("-o") + 1] = str(target)
        words[words.index(str(original))] = str(source)
        # Headers beside the original, and warnings about what the fault leaves unused.
        words += ["-I", str(original.parent), "-w"]
        done = subprocess.run(words, cwd=self.build, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"mutation '{change.name}' does not compile:\n{done.stderr}")
        return target

    def link(self, program: str, target: pathlib.Path) -> pathlib.Path:
        words = shlex.split(self.links[program])
        words.insert(words.index(LIBRARY), str(target))
        result = target.parent / program
        words[words.index("-o") + 1] = str(result)
        # The rules that follow the link, such as the run path of the build tree, are not needed.
        words = words[: words.index("&&")] if "&&" in words else words
        words.append(f"-Wl,-rpath,{self.build / 'lib'}")
        subprocess.run(words, cwd=self.build, check=True, capture_output=True)
        return result

    def tests_that_fail(self, program: pathlib.Path, options: list[str]) -> list[str]:
        """The tests that fail, the one that runs when the program dies included."""
        try:
            command = [program, *options]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=ENDLESS)
        except subprocess.TimeoutExpired as expired:
            output = expired.stdout or b""
            text = output if isinstance(output, str) else output.decode(errors="replace")
            return [re.findall(r"^\[ RUN      \] (\S+)", text, re.M)[-1] + " (does not end)"]
        if " Running 0 tests " in done.stdout:
            raise SystemExit(f"no test is run with {' '.join(options)}")
        failed = re.findall(r"^\[  FAILED  \] ([\w/]+\.[\w/]+)", done.stdout, re.M)
        if done.returncode not in (0, 1):
            failed.append(re.findall(r"^\[ RUN      \] (\S+)", done.stdout, re.M)[-1] + " (dies)")
        return list(dict.fromkeys(failed))

    def graph_that_fails(self, program: pathlib.Path, scratch: pathlib.Path, only: str = "") -> list[str]:
        """Runs the lines of schedule.test about gaps, of one graph if `only` names it, up to the first that fails."""
        text = (GRAPHS / "schedule.test").read_text()
        block = text[text.index(GAPS) :].split("\n\n")[0]
        graph = ""
        tried = False
        for line in re.findall(r"^RUN: (.*)$", block, re.M):
            words = line.replace("%S", str(GRAPHS)).replace("%t", str(scratch / "report"))
            command = shlex.split(words.replace("%python", sys.executable))
            if command[0] == "comm-opt":
                command[0] = str(program)
                graph = pathlib.Path(command[1]).stem
            if only and graph != only:
                continue
            tried = True
            done = subprocess.run(command, capture_output=True, text=True, timeout=ENDLESS)
            if done.returncode != 0:
                last = (done.stderr.strip().splitlines() or ["no message"])[-1]
                return [f"graph {graph} ({last.removeprefix('AssertionError: ')})"]
        if not tried:
            raise SystemExit(f"schedule.test has no gaps of a graph {only}")
        return []

    def try_killer(self, killer: str, programs: Callable[[str], pathlib.Path], scratch: pathlib.Path) -> list[str]:
        if graph := killer.removeprefix("graph ") if killer.startswith("graph ") else "":
            return self.graph_that_fails(programs("comm-opt"), scratch, graph)
        return self.tests_that_fail(programs("SchedulingTests"), [f"--gtest_filter={killer}"])

    def killers_that_lie(self, killers: list[str]) -> list[str]:
        """The killers that fail without a mutation."""
        failed = []
        for killer in killers:
            failed += self.try_killer(killer, lambda program: self.build / "bin" / program, self.scratch)
        return failed

    def verdict(self, index: int, options: Options) -> str:
        """One line about a mutation."""
        change = MUTATIONS[index]
        target = self.compile(index, change)
        programs = functools.cache(lambda program: self.link(program, target))
        failed, remark = [], ""
        if change.killer and not options.every and not options.filter:
            failed = self.try_killer(change.killer, programs, target.parent)
            remark = "" if failed else f" (not by {change.killer})"
        if not failed:
            chosen = [f"--gtest_filter={options.filter or '*'}"] + ([] if options.every else ["--gtest_fail_fast"])
            failed = self.tests_that_fail(programs("SchedulingTests"), chosen)
        if not failed:
            failed = self.graph_that_fails(programs("comm-opt"), target.parent)
        more = f" and {len(failed) - 4} more" if len(failed) > 4 else ""
        killers = ", ".join(failed[:4]) + more
        shutil.rmtree(target.parent)
        return f"{index:2} {change.name}: " + (f"killed by {killers}" if failed else "SURVIVES") + remark


@dataclass(frozen=True)
class Options:
    """How mutants are tried; the fields are those of the command line."""

    every: bool
    filter: str


def run(build: pathlib.Path, chosen: list[int], jobs: int, options: Options) -> int:
    # The same paths in each run, so that ccache knows the mutated copies.
    scratch = build.resolve() / "mutations"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        workshop = Workshop(build.resolve(), scratch)
        killers = sorted({MUTATIONS[index].killer for index in chosen} - {""})
        if liars := workshop.killers_that_lie(killers):
            print(f"these fail without a mutation: {', '.join(liars)}")
            return 1
        lines = []
        with ThreadPoolExecutor(jobs) as pool:
            for line in pool.map(lambda index: workshop.verdict(index, options), chosen):
                print(line, flush=True)
                lines.append(line)
    finally:
        shutil.rmtree(scratch)
    survivors = sum(": SURVIVES" in line for line in lines)
    others = sum("(not by" in line for line in lines)
    print(f"{len(lines) - survivors} of {len(lines)} mutations are killed, {others} not by the test named beside them")
    return 1 if survivors else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check")
    runs = commands.add_parser("run")
    runs.add_argument("--build", type=pathlib.Path, required=True)
    runs.add_argument("--only", default=",".join(map(str, range(len(MUTATIONS)))))
    runs.add_argument("--jobs", type=int, default=1)
    runs.add_argument("--every", action="store_true")
    runs.add_argument("--filter", default="")
    arguments = parser.parse_args()
    for change in MUTATIONS:
        mutated(change)
    if arguments.command == "check":
        print(f"{len(MUTATIONS)} mutations apply")
        return 0
    options = Options(arguments.every, arguments.filter)
    return run(arguments.build, [int(index) for index in arguments.only.split(",")], arguments.jobs, options)


if __name__ == "__main__":
    sys.exit(main())
