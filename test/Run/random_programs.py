#!/usr/bin/env python3
#===- random_programs.py - Do schedules keep every bit? -----------------------------------------------------------===#
#
# Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
#
# Makes random programs (random_program.py), puts each into a random legal order and through every pass of comm-opt that
# changes programs, runs all of them on N ranks, and compares results and arguments bit for bit. Many programs go through
# one process. A program that fails is made as small as possible before it is reported.
#
#   random_programs.py --bin FOLDER [--count 40] [--first 0] [--ranks 2,4,8] [--passes=--comm-raise] [--mpirun MPIRUN]
#
# With --backend nccl the programs run on a device: where COMMRT_CUDART_LIBRARY and COMMRT_NCCL_LIBRARY name the emulated
# libraries, on an emulated one. The program as it is also runs on threads, and its results are compared, too. Sends and
# receives that wait for each other are started together there, within one operation: nothing may come between them that
# another member waits for (Gpu.md).
#
#===-------------------------------------------------------------------------------------------------------------===#

import argparse
import copy
import os
import random
import re
import shlex
import subprocess
import sys
import tempfile

from random_program import Generator, Op, close, module, reorder

MARKER = "// -----\n"
# Passes of this project that do not change a program's order or operations, or lower it.
NOT_TRANSFORMS = {"comm-report", "comm-verify", "comm-pareto", "comm-export-chakra", "comm-align-costs", "comm-bufferize", "comm-to-llvm",
                  "comm-form-kernels", "comm-lower-launches", "comm-device-memory",
                  "comm-check-status",
                  "comm-quantise-gathers"}  # It changes results: quantise_programs.py.
# More ways to run them than by name.
VARIANTS = ["--comm-bucket=form=coalesced", "--comm-bucket=mixed-types", "--comm-bucket=cap-bytes=2048",
            "--comm-realize-buffers=one-shot-threshold-bytes=0", "--comm-schedule=effort=0",
            "'--comm-schedule=effort=20000 memory-budget-ratio=0.5'",
            "--comm-reinplace-all-gather --comm-remove-unsharded-param-usage --comm-bucket --comm-schedule=effort=20000 "
            "--comm-realize-buffers",
            "'--comm-split-strands=force max-strands=2'", "'--comm-split-strands=force max-strands=4 stagger=3'",
            "--reorder-comm-overlap=effort=20000", "--reorder-comm-overlap=passes=comm-reorder-preserving-peak-memory,comm-sink-waits-preserving-peak-memory",
            "--comm-bufferize --comm-plan-buffers",
            "'--comm-multi-stream=compute-streams=0,2,4 comm-streams=1,3 shared-resources=false sync-overhead-ns=0 gate=false'",
            "'--comm-multi-stream=compute-streams=2,4 comm-streams=0 shared-resources=false sync-overhead-ns=0 gate=false "
            "issue-order=start-time memory-budget-ratio=1' --comm-bufferize --comm-plan-buffers",
            "'--reorder-comm-overlap=effort=20000 multi-stream=true'"]
# A search that goes on for a second finds no other kind of program than one that goes on for a tenth of it.
OPTIONS = {"comm-schedule": "=effort=20000"}


def transforms(tool):
    """Command lines of every pass that the tool has, alone, and of the variants. A new pass is not forgotten."""
    listed = subprocess.run([tool, "--list-passes"], capture_output=True, text=True, check=True).stdout
    names = re.findall(r"^\s*--(comm-[a-z-]+)\s+-\s", listed, re.MULTILINE)
    found = sorted({name for name in names if name not in NOT_TRANSFORMS})
    if "comm-raise" not in found:
        raise SystemExit("cannot find the passes of comm-opt")
    return [f"--{name}{OPTIONS.get(name, '')}" for name in found] + VARIANTS


class Checker:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.opt, self.runner = (os.path.join(options.bin, name) for name in ("comm-opt", "comm-run"))
        self.pairs = 0

    def run(self, command, timeout=300):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, errors="replace")
        except subprocess.TimeoutExpired:
            return 1, f"no end after {timeout} s"
        return done.returncode, done.stdout + done.stderr

    def write(self, name, modules):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(MARKER.join(modules))
        return path

    def optimize(self, path, passes, name):
        """The modules of a file after `passes`, a command line or a function of the text; or an error text."""
        if callable(passes):
            return [passes(open(path).read())], None
        out = os.path.join(self.folder, name)
        code, text = self.run([self.opt, "--split-input-file", path, *shlex.split(passes), "-o", out])
        if code:
            return None, f"{passes}: {text}"
        return open(out).read().split(MARKER), None

    def execute(self, given, others, ranks, seed):
        prefix, backend = [], []
        if self.options.mpirun:
            prefix = [*self.options.mpirun.split(), "-np", str(ranks)]
        else:
            backend = ["--ranks", str(ranks)]
            if self.options.backend:
                backend += ["--backend", self.options.backend, "--compare-backend", "threads"]
        compared = [part for other in others for part in ("--compare", other)]
        # One collective of each run is late, and computations take some time: what does not wait for the collective
        # overtakes it, and is not over before it writes.
        late = random.Random(seed)
        fault = f"delay@{late.randrange(8)}:rank={late.randrange(ranks)}:ms=1"
        times = ["--emulate-costs", "--fault", fault]
        # Where the emulated device runs operations in a random order there is no time that could pass.
        if os.environ.get("CUDA_EMU_SCHEDULE") == "random":
            times = []
            os.environ["CUDA_EMU_SEED"] = str(seed)
        return self.run([*prefix, self.runner, "--split-input-file", given, *compared, *backend, "--seed", str(seed),
                         *times, "--timeout-ms", "20000"])

    def compare_all(self, programs, ranks, seed, transformations):
        """Programs in one process, each after every transformation. None if all agree, else what was said."""
        given = self.write("given.mlir", [module(g, ops) for g, ops in programs])
        printed, error = self.optimize(given, "", "printed.mlir")
        if error:
            return error
        bare = [re.sub(r' attributes \{comm\.schedule_signature = "[^"]*"\}', "", text).strip() for text in printed]
        distinct = [[text] for text in bare]
        orders = [module(g, reorder(g, ops, random.Random(seed))) for g, ops in programs]
        for choices, order in zip(distinct, orders):
            choices.append(order)
        for number, passes in enumerate(transformations):
            texts, error = self.optimize(given, passes, f"pass{number}.mlir")
            if error:
                return error
            if len(texts) != len(programs):
                return f"{passes}: {len(texts)} modules of {len(programs)} came back"
            for choices, text in zip(distinct, texts):
                # A pass that only stamps the signature changes nothing that is run.
                text = re.sub(r'comm\.\w*signature = "[^"]*"(, )?', "", text).replace(" attributes {}", "").strip()
                if text not in choices:
                    choices.append(text)
        self.pairs += sum(len(choices) - 1 for choices in distinct)
        most = max(len(choices) for choices in distinct)
        files = []
        for i in range(most):
            # comm-run does not run a text twice.
            files.append(self.write(f"variant{i}.mlir", [choices[min(i, len(choices) - 1)] + "\n" for choices in distinct]))
        code, text = self.execute(files[0], files[1:], ranks, seed)
        return f"{text}(exit code {code})" if code else None

    def compare(self, generator, ops, ranks, seed, passes):
        """One program after one transformation (None: another order). None if they agree, else what was said."""
        given = self.write("given.mlir", [module(generator, ops)])
        if passes is None:
            other = self.write("changed.mlir", [module(generator, reorder(generator, ops, random.Random(seed)))])
        else:
            texts, error = self.optimize(given, passes, "changed.mlir")
            if error:
                return error
            other = self.write("changed.mlir", texts)
        code, text = self.execute(given, [other], ranks, seed)
        return f"{text}(exit code {code})" if code else None

    def report(self, generator, ops, ranks, seed, passes):
        """Makes a failing program small and prints it."""
        before = sum(1 for _ in flatten(ops))
        kind = failure_kind(self.compare(generator, ops, ranks, seed, passes))
        generator, ops = shrink(generator, ops,
                                lambda g, fewer: failure_kind(self.compare(g, fewer, ranks, seed, passes)) == kind)
        name = "another order" if passes is None else "a planted bug" if callable(passes) else passes
        print(f"seed {seed}, {ranks} ranks, {name}, {before} operations made {sum(1 for _ in flatten(ops))}:")
        print(self.compare(generator, ops, ranks, seed, passes))
        for file in ("given.mlir", "changed.mlir"):
            path = os.path.join(self.folder, file)
            if os.path.exists(path):
                print(f"// {file}\n{open(path).read()}")
        return ops


def failure_kind(said):
    """A program that fails otherwise than the one that is made small shows something else."""
    return said and ("differ" if "exit code 2" in said else "fail")


def flatten(ops):
    for op in ops:
        yield op
        if op.body:
            yield from flatten(op.body)


def without(generator, ops, begin, end, known=None):
    """`ops` but some, and but what needs them."""
    return close(generator, ops[:begin] + ops[end:], known)


def shrink(generator, ops, fails):
    """Drops operations, whole loops first, then parts of their bodies, and makes values arguments, while the program still
    fails. Returns a generator with the arguments that are left, and the operations."""
    generator = copy.copy(generator)
    generator.arguments = list(generator.arguments)

    def shrink_list(ops, known, rebuild, still):
        size = max(1, len(ops) // 2)
        while size:
            i = 0
            while i < len(ops):
                fewer = without(generator, ops, i, i + size, known)
                if len(fewer) < len(ops) and still(fewer) and fails(generator, rebuild(fewer)):
                    ops = fewer
                else:
                    i += size
            size //= 2
        for i in range(len(ops)):
            if not ops[i].body:
                continue
            loop = ops[i]
            inside = known | {v for op in ops[:i] for v in op.defines} | set(loop.iterators)
            body = shrink_list(
                loop.body, inside, lambda fewer: rebuild(ops[:i] + [loop.with_body(fewer)] + ops[i + 1:]),
                lambda fewer: set(loop.yields) <= inside | {v for op in fewer for v in op.defines})
            ops = ops[:i] + [loop.with_body(body)] + ops[i + 1:]
        return ops

    def try_arguments(arguments, fewer):
        """Takes these arguments and operations if the program still fails."""
        trial = copy.copy(generator)
        trial.arguments = arguments
        if not fails(trial, fewer):
            return False
        generator.arguments = arguments
        return True

    for _ in range(2):
        ops = shrink_list(ops, set(generator.arguments), lambda fewer: fewer, lambda fewer: True)
        i = 0
        while i < len(ops):
            op = ops[i]
            fewer = close(generator, ops[:i] + ops[i + 1:], set(generator.arguments) | set(op.defines))
            is_value = (op.defines and not op.starts and not op.exchange and
                        all(v in generator.types and "#" not in v for v in op.defines))
            if not (is_value and try_arguments(generator.arguments + op.defines, fewer)):
                i += 1
            else:
                ops = fewer
        used = {v for op in ops for v in op.uses}
        try_arguments([v for v in generator.arguments if v in used], ops)
    return generator, ops


def wrong_pass(text):
    """A planted bug: the last wait of the program is dropped, and its users read what the collective was given."""
    lines = text.split("\n")
    waits = [i for i, line in enumerate(lines) if re.match(r"  %\w+ = comm\.wait", line)]
    for i in reversed(waits):
        name, future = re.match(r"  (%\w+) = comm\.wait (%\w+)", lines[i]).groups()
        start = next(j for j, line in enumerate(lines) if line.startswith(f"  {future} = comm."))
        types = re.search(r": \((tensor<[^>]*>)\) -> !comm\.future<(tensor<[^>]*>)>$", lines[start])
        operand = re.search(r"comm\.all_reduce \w+(?: scale \S+)? (%\w+) on", lines[start])
        if types and operand and types.group(1) == types.group(2):
            lines.insert(i + 1, f'  {name}_wrong = comm.compute "view"({operand.group(1)}) aliases [0] : '
                                f"({types.group(1)}) -> {types.group(1)}")
            for j in range(i + 2, len(lines)):
                lines[j] = re.sub(rf"{name}\b(?!_)", f"{name}_wrong", lines[j])
            return "\n".join(lines)
    return text


def check_shrinker(checker):
    """A planted wrong pass is found, and the program that shows it comes out small."""
    for seed in range(100):
        generator = Generator(seed, 2, 30)
        if checker.compare(generator, generator.ops, 2, seed, wrong_pass):
            small = checker.report(generator, generator.ops, 2, seed, wrong_pass)
            if sum(1 for _ in flatten(small)) > 4 or not any("all_reduce" in op.text for op in small):
                print("the program is not small")
                return 1
            print("the planted bug was found and made small")
            return 0
    print("the planted bug was not found")
    return 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, help="folder of comm-opt and comm-run")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="seed of the first program")
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--size", type=int, default=30, help="most operations of a program's outermost level")
    parser.add_argument("--batch", type=int, default=20, help="programs per process")
    parser.add_argument("--passes", help="only these, not every pass")
    parser.add_argument("--siblings", action="store_true", help="more collectives that could be one")
    parser.add_argument("--backend", help="run on this backend and on threads")
    parser.add_argument("--mpirun", help="run under this command instead of on threads")
    parser.add_argument("--check-shrinker", action="store_true")
    options = parser.parse_args()
    ranks = [int(n) for n in options.ranks.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        checker = Checker(options, folder)
        if options.check_shrinker:
            return check_shrinker(checker)
        transformations = [options.passes] if options.passes else transforms(checker.opt)
        last = options.first + options.count
        for batch, first in enumerate(range(options.first, last, options.batch)):
            number = ranks[batch % len(ranks)]
            seeds = range(first, min(last, first + options.batch))
            made = [Generator(seed, number, random.Random(seed).randint(3, options.size), options.siblings,
                              messages="together" if options.backend else True) for seed in seeds]
            programs = [(generator, generator.ops) for generator in made]
            failed = checker.compare_all(programs, number, first, transformations)
            if not failed:
                continue
            for seed, (generator, ops) in zip(seeds, programs):
                for passes in [None, *transformations]:
                    if checker.compare(generator, ops, number, seed, passes):
                        checker.report(generator, ops, number, seed, passes)
                        return 1
            print(f"programs {first} to {seeds[-1]} fail together, none of them alone:\n{failed}")
            return 1
        print(f"{options.count} programs, {checker.pairs} changed ones: equal bit for bit")
    return 0


if __name__ == "__main__":
    sys.exit(main())
