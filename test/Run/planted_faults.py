#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Plants faults of aliasing, order and lifetime, one at a time, and prints which test finds each.

    planted_faults.py check              every fault still applies to the sources, exactly once; needs no build
    planted_faults.py run --build DIR    compiles, links and tries every fault; DIR is a build folder that was
                                         configured with -DCMAKE_UNITY_BUILD=OFF, in which the tools are built first
        --only PATTERN                   the faults whose names have a match of the pattern
        --count 128 --first 0            the random programs (see fuzz_programs.py)
        --table FILE                     writes the list as a table, whose other lines stay as they are
        --missing                        the faults that the table has not, or has as not found

planted/faults.py has the faults. The source tree and what was built stay as they are: the mutated copy is compiled with
the command of the original, and its object takes the place of the original's when the tools, or the runtime's library,
are linked again. The random programs run as FuzzPrograms has them. A fault that they do not find names the test of lit or
GoogleTest that does; that test has to pass without the fault. No result depends on the second analysis of accesses as
long as the first one is right, so its faults go to the test CertificateOrder first, which compares the two. A fault takes
ten seconds to two minutes of one core. Exit code 1: a fault was not found that the table says is found.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from planted.faults import FAULTS, Fault  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
LEAST = 40  # faults
REFUSALS, PATIENCE = 2, 5  # as FuzzPrograms has them
SECOND_ANALYSIS = ("Analysis/Dependence/MemoryFlow.cpp", "Analysis/Dependence/AccessOrder.cpp")
TOOLS = ["comm-opt", "comm-run"]
LIBRARIES = {"lib/Runtime/Nccl/": "libcommrt_nccl.so", "lib/Runtime/": "libcommrt.so"}
COPIED = ["libcommrt*.so*", "lib*_emu*.so"]


def mutated(fault):
    """The text of the mutated file. Exits if an edit does not apply exactly once."""
    text = (ROOT / "lib" / fault.file).read_text()
    for old, new in fault.edits:
        if (count := text.count(old)) != 1:
            raise SystemExit(f"fault '{fault.name}': expected one place in lib/{fault.file}, got {count}:\n{old}")
        text = text.replace(old, new)
    return text


def check():
    names = {fault.name for fault in FAULTS}
    if len(names) < len(FAULTS) or len(FAULTS) < LEAST:
        raise SystemExit(f"expected at least {LEAST} faults with different names, got {len(FAULTS)}")
    for fault in FAULTS:
        if mutated(fault) == (ROOT / "lib" / fault.file).read_text():
            raise SystemExit(f"fault '{fault.name}' changes nothing")
        if fault.test and not has_test(fault.test):
            raise SystemExit(f"fault '{fault.name}' names the test {fault.test}, which does not exist")
    print(f"{len(FAULTS)} faults apply")


def has_test(name):
    """Whether a test exists: a file of lit, or `Program:Suite.Name` of GoogleTest."""
    program, _, case = name.partition(":")
    if not case:
        return (ROOT / "test" / name).exists()
    declared = re.compile(r"TEST(_F|_P)?\(\s*{},\s*{}\)".format(*case.split(".")))
    return any(declared.search(path.read_text()) for path in (ROOT / "test").rglob("*.cpp"))


class Workshop:
    """Makes tools with a fault in a folder beside the build folder's own, and tries them."""

    def __init__(self, build, options):
        self.build, self.options, self.scratch = build, options, build / f"planted-{os.getpid()}"
        if any("/unity_" in entry["file"] for entry in json.loads((build / "compile_commands.json").read_text())):
            raise SystemExit(f"{build} compiles several files at once; configure a folder with -DCMAKE_UNITY_BUILD=OFF")
        if subprocess.run(["ninja", "-C", build, *TOOLS], stdout=sys.stderr).returncode:
            raise SystemExit("the sources without a fault do not build")
        self.entries = json.loads((build / "compile_commands.json").read_text())

    def links(self, output):
        """The words of the command that makes a program or library, and the place of its result in them."""
        done = subprocess.run(["ninja", "-C", self.build, "-t", "commands", "-s", output], capture_output=True, text=True,
                              check=True)
        words = shlex.split(done.stdout.strip().splitlines()[-1].removeprefix(": && ").removesuffix(" && :"))
        words = words[:words.index("&&")] if "&&" in words else words
        return words, words.index("-o") + 1

    def compile(self, fault, entry):
        """The object of the original, and that of the mutated copy."""
        original = ROOT / "lib" / fault.file
        source = self.scratch / original.name
        source.write_text(mutated(fault))
        words = shlex.split(entry["command"])
        place = words.index("-o") + 1
        old, words[place] = words[place], str(source.with_suffix(".o"))
        words[words.index(entry["file"])] = str(source)
        # Headers beside the original, and warnings about what the fault leaves unused.
        done = subprocess.run([*words, "-I", str(original.parent), "-w"], cwd=self.build, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"fault '{fault.name}' does not compile:\n{done.stderr}")
        return old, words[place]

    def reset(self):
        shutil.rmtree(self.scratch, ignore_errors=True)
        (self.scratch / "bin").mkdir(parents=True)
        (self.scratch / "lib").mkdir()
        for pattern in COPIED:
            for library in (self.build / "lib").glob(pattern):
                shutil.copy2(library, self.scratch / "lib", follow_symlinks=False)
        for tool in TOOLS:
            shutil.copy2(self.build / "bin" / tool, self.scratch / "bin")

    def make(self, fault):
        """The folder of the tools with the fault."""
        self.reset()
        original = str(ROOT / "lib" / fault.file)
        entries = [entry for entry in self.entries if entry["file"] == original]
        library = next((name for folder, name in LIBRARIES.items() if f"lib/{fault.file}".startswith(folder)), None)
        if not library:
            _, made = self.compile(fault, entries[0])
            for tool in [fault.test.partition(":")[0]] if ":" in fault.test else TOOLS:
                words, place = self.links(f"bin/{tool}")
                words[place] = str(self.scratch / "bin" / tool)
                words.insert(next(i for i, word in enumerate(words) if word.endswith(".a")), made)
                # The command's own run path is written for a shell.
                words.append(f"-Wl,-rpath,{self.scratch / 'lib'}")
                subprocess.run(words, cwd=self.build, check=True, capture_output=True)
            return self.scratch / "bin"
        output = (self.build / "lib" / library).resolve().name
        words, place = self.links(f"lib/{output}")
        entry = next(e for e in entries if shlex.split(e["command"])[shlex.split(e["command"]).index("-o") + 1] in words)
        old, made = self.compile(fault, entry)
        words[words.index(old)] = made
        words[place] = str(self.scratch / "lib" / output)
        subprocess.run(words, cwd=self.build, check=True, capture_output=True)
        return self.scratch / "bin"

    def fuzz(self, tools):
        """What the random programs say, in words; empty if they find nothing."""
        log = self.scratch / "log"
        log.unlink(missing_ok=True)
        command = [sys.executable, "-B", ROOT / "test/Run/fuzz_programs.py", "--bin", tools, "--first", str(self.options.first),
                   "--count", str(self.options.count), "--reports", "0", "--refusals", str(REFUSALS), "--patience",
                   str(PATIENCE), "--stop", "--log", log]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            return ""
        if done.returncode != 1 or not log.exists():
            raise SystemExit(f"the random programs cannot be run:\n{done.stdout}{done.stderr}")
        failures = [json.loads(line) for line in log.read_text().splitlines()]
        failure = next((f for f in failures if f["kind"] != "refused"), failures[-1])
        where = "" if failure["backend"] in ("threads", "comm-opt") else f" on {failure['backend']}"
        return f"{kind_of(failure)}{where}, program {failure['seed'] - self.options.first + 1}"

    def compare_analyses(self, tools):
        command = [sys.executable, "-B", ROOT / "test/Certificate/forge_order.py", "--comm-opt", tools / "comm-opt"]
        return subprocess.run(command, capture_output=True, text=True).returncode != 0

    def fails(self, test, tools):
        """Whether a test of lit or GoogleTest fails with the tools of a folder."""
        program, _, case = test.partition(":")
        if case:
            command = [tools / program, f"--gtest_filter={case}"]
            done = subprocess.run(command, capture_output=True, text=True, cwd=self.scratch)
            return done.returncode != 0
        # A suite of its own, so that the outputs of the tests lie in the scratch folder.
        suite, site = self.scratch / "lit", (self.build / "test/lit.site.cfg.py").read_text()
        suite.mkdir(exist_ok=True)
        site = re.sub(r'(config.commsched_tools_dir = ).*', rf'\1"{tools}"', site)
        site = re.sub(r'(config.commsched_lib_dir = ).*', rf'\1"{tools.parent / "lib"}"', site)
        (suite / "lit.site.cfg.py").write_text(f'{site}\nconfig.test_exec_root = "{suite}"\n')
        cache = (self.build / "CMakeCache.txt").read_text()
        lit = re.search(r"^LLVM_EXTERNAL_LIT:\w+=(.*)$", cache, re.MULTILINE)[1]
        done = subprocess.run([lit, "-q", suite / test], capture_output=True, text=True)
        if done.returncode not in (0, 1) or "Failed Tests" not in done.stdout and done.returncode:
            raise SystemExit(f"the test {test} cannot be run:\n{done.stdout}{done.stderr}")
        return done.returncode == 1

    def verdict(self, fault):
        """The test that finds it, and how."""
        tools = self.make(fault)
        if fault.test:
            if self.fails(fault.test, self.build / "bin"):
                raise SystemExit(f"the test {fault.test} fails without a fault")
            return (fault.test, "fails") if self.fails(fault.test, tools) else ("", "not found")
        if fault.file in SECOND_ANALYSIS and self.compare_analyses(tools):
            return "CertificateOrder", "the second analysis allows what the first one forbids"
        if how := self.fuzz(tools):
            return "FuzzPrograms", how
        return "", "not found"


def kind_of(failure):
    """A failure in words."""
    if failure["kind"] != "contradiction":
        return {"wrong": "other bits than numpy", "refused": "refused without a reason"}.get(failure["kind"], failure["kind"])
    if "both may access the same memory" in failure["said"]:
        return "the second analysis objects"
    if "the new order does not verify" in failure["said"]:
        return "the verifier of schedules objects"
    return "the checker of buffer plans objects" if "buffer plan is invalid" in failure["said"] else "a check of the compiler objects"


def read_table(path):
    """The rows of the table of a page, by the name of the fault."""
    rows = {}
    for line in path.read_text().splitlines() if path and path.exists() else []:
        if cells := re.fullmatch(r"\| (.*) \| (.*) \| (.*) \| (.*) \|", line):
            rows[cells[1]] = line
    return rows


def write_table(path, rows, count=64):
    """Puts the rows into the table of a page, in the order of the faults."""
    known = read_table(path)
    for fault, (finder, how) in rows:
        known[fault.name] = f"| {fault.name} | `{fault.file}` | {finder or 'none'} | {how} |"
    listed = [known[fault.name] for fault in FAULTS if fault.name in known]
    found = sum("| none |" not in line for line in listed)
    head = ["# Planted faults and what finds them", "",
            "`planted_faults.py run --table` has written this table. A program's number counts from the first one of the run.",
            f"\"Not found\" is said of {count} programs; FuzzPrograms takes 128.",
            f"{found} of {len(listed)} faults are found; {len(FAULTS) - len(listed)} have not been tried.", "", "| fault | file below `lib` | found by | how |", "|---|---|---|---|"]
    path.write_text("\n".join(head + listed) + "\n")


def run(options):
    workshop = Workshop(options.build.resolve(), options)
    listed = read_table(options.table)
    is_found = lambda fault: fault.name in listed and "| none |" not in listed[fault.name]
    chosen = [fault for fault in FAULTS if re.search(options.only, fault.name) and not (options.missing and is_found(fault))]
    # Built in the same way without a fault, the tools pass. One file of the compiler and one of the runtime stand for all.
    for file in () if options.trust else ("Analysis/Dependence/Dependence.cpp", "Runtime/Core/Calls/Tokens.cpp"):
        tools = workshop.make(Fault("none", file, ()))
        if (how := workshop.fuzz(tools)) or workshop.compare_analyses(tools):
            raise SystemExit(f"the tests fail without a fault: {how or 'CertificateOrder'}")
    rows, missed = [], 0
    for fault in chosen:
        begin = time.time()
        finder, how = workshop.verdict(fault)
        is_missed = is_found(fault) and not finder
        missed += is_missed
        print(f"{fault.name}: {finder or 'none'}, {how} ({time.time() - begin:.0f} s){' MISSED' if is_missed else ''}", flush=True)
        rows.append((fault, (finder, how)))
        if options.table:
            write_table(options.table, rows, options.count)
    shutil.rmtree(workshop.scratch)
    found = sum(bool(finder) for _, (finder, _) in rows)
    print(f"{found} of {len(rows)} faults are found")
    return 1 if missed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check")
    runs = commands.add_parser("run")
    runs.add_argument("--build", type=pathlib.Path, required=True)
    runs.add_argument("--only", default="")
    runs.add_argument("--count", type=int, default=128)
    runs.add_argument("--first", type=int, default=0)
    runs.add_argument("--table", type=pathlib.Path)
    runs.add_argument("--missing", action="store_true", help="the faults that the table has not, or has as not found")
    runs.add_argument("--trust", action="store_true", help="do not run the programs without a fault first")
    options = parser.parse_args()
    if options.command == "check":
        check()
        return 0
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
