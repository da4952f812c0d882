#!/usr/bin/env python3
#===- plan_programs.py - Random programs in which values are kept or made again ------------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#
#
# Takes the programs of strand_programs.py, with values that are read far apart and collectives that are repeated, puts
# them through comm-plan-memory with plans that are forced or searched, runs all of them, and compares the results bit
# for bit.
#
#   plan_programs.py --bin FOLDER [--count 40] [--first 0] [--ranks 2,4] [--batch 10]
#
#===---------------------------------------------------------------------------------------------------------------===#

import argparse
import re
import sys
import tempfile

from strand_programs import MARKER, Program, Runner, compare_in_batches

# Options of the pass that each program is put through.
VARIANTS = ["force=again effort=0", "force=again bucketing=false effort=500", "force=mixed effort=500", "force=keep effort=0",
            "memory-budget-ratio=1 effort=500", "effort=500 collective-order=program"]


class FarProgram(Program):
    """A random program whose values are often read far from where they are made, and read again."""

    def pick(self, accept=lambda shape: True):
        values = [v for v, shape in self.shapes.items() if accept(shape)]
        return self.rng.choice(values[-3:] if self.rng.random() < 0.4 else values) if values else None

    def step(self):
        if self.rng.random() < 0.25:
            return self.repeat()
        super().step()

    def repeat(self):
        """Starts a collective again that the program has, on the same value, and reads it."""
        starts = [line for line in self.lines if re.search(r"= comm\.\w+ .* on @tp", line)]
        if not starts:
            return
        line = self.rng.choice(starts)
        future = line.split(" ")[0]
        self.count += 1
        again = f"%v{self.count}"
        self.lines += [again + line[len(future):]]
        wait = next(line for line in self.lines if line.startswith(f"{future}w = "))
        self.lines += [wait.replace(future, again)]
        shape = self.shapes[again + "w"] = self.shapes[future + "w"]
        # What is returned is kept in any case.
        self.compute("add.Tensor", shape, again + "w", self.pick(lambda other: other == shape))



class PlanRunner(Runner):
    def compare(self, modules, ranks, seed):
        """Puts the modules through every variant. Returns what was said if one differs, and how many were changed."""
        given, files, changed = self.path("given.mlir"), [], [0] * len(VARIANTS)
        with open(given, "w") as file:
            file.write(MARKER.join(modules))
        for number, options in enumerate(VARIANTS):
            target = self.path(f"planned{number}.mlir")
            code, said = self.run(self.opt, "--split-input-file", given, f"--comm-plan-memory={options}", "-o", target)
            if code:
                return f"{options}: {said}", changed
            planned = open(target).read().split(MARKER)
            changed[number] += sum("comm.schedule_signature" in part for part in planned)
            files += ["--compare", target]
        code, said = self.run(self.runner, "--split-input-file", given, *files, "--ranks", str(ranks), "--seed", str(seed),
                              "--timeout-ms", "20000")
        return (said if code else None), changed


def check(runner, options):
    changed = compare_in_batches(runner, options, FarProgram, len(VARIANTS))
    if changed is None:
        return 1
    # Programs in which nothing is made again or kept would agree, too.
    for variant, number in zip(VARIANTS[:4], changed):
        if number * 3 < options.count:
            print(f"only {number} of {options.count} programs were changed by {variant}")
            return 1
    print(f"{options.count} programs, changed {sum(changed)} times: equal bit for bit")
    return 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, help="folder of comm-opt and comm-run")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--batch", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return check(PlanRunner(options, folder), options)


if __name__ == "__main__":
    sys.exit(main())
