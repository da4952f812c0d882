#!/usr/bin/env python3
#===- tensor_writes.py - Does writing in place keep every bit? ------------------------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Makes random programs whose operations write tensors that others may still need, with collectives in flight, puts each on
# buffers once with the in-place analysis and once with a copy before every write, runs both and compares the results bit
# for bit. The second kind never overwrites anything, so it is the oracle. Says how many copies the analysis saved.
#
#   tensor_writes.py --bin FOLDER [--count 20] [--first 0] [--ranks 2] [--passes=--comm-realize-buffers]
#
#===-------------------------------------------------------------------------------------------------------------===#

import argparse
import os
import random
import subprocess
import sys
import tempfile


class Program:
    """Straight-line programs on tensors of two shapes: shards, and what is gathered from them."""

    def __init__(self, seed, ranks, size):
        self.rng, self.ranks, self.counter = random.Random(seed), ranks, 0
        self.rows = 2 * ranks
        self.lines, self.values, self.pending, self.empties, self.starts = [], {}, [], {}, 0
        self.dead = set()  # their storage was written in place
        arguments = []
        for i in range(self.rng.randint(1, 3)):
            rows = self.rng.choice([self.rows, self.rows * ranks])
            donated = ""
            arguments.append(f"%a{i}: {self.type(rows)}")
            self.values[f"%a{i}"] = rows
        for _ in range(size):
            self.rng.choice([self.write] * 4 + [self.slice, self.insert, self.view, self.start, self.start, self.wait])()
        while self.pending:
            self.wait()
        results = self.rng.sample(self.alive(), min(3, len(self.alive())))
        types = ", ".join(self.type(self.values[r]) for r in results)
        head = f"comm.group @world #comm.iota<[1, {ranks}]>\nfunc.func @main({', '.join(arguments)}) -> ({types}) {{\n"
        self.text = head + "\n".join(self.lines) + f"\nreturn {', '.join(results)} : {types}\n}}\n"

    def type(self, rows):
        return f"tensor<{rows}x4xf32>"

    def new(self):
        self.counter += 1
        return f"%v{self.counter}"

    def alive(self):
        return [v for v in self.values if v not in self.dead]

    def pick(self, rows=None):
        fitting = [v for v in self.alive() if rows is None or self.values[v] == rows]
        return self.rng.choice(fitting) if fitting else None

    def add(self, text, rows):
        name = self.new()
        self.lines.append(f"{name} = {text}")
        self.values[name] = rows
        return name

    def empty(self, rows):
        """New storage, or storage without contents that others use as well."""
        if rows in self.empties and self.rng.random() < 0.5:
            return self.empties[rows]
        name = self.new()
        self.lines.append(f"{name} = tensor.empty() : {self.type(rows)}")
        self.empties[rows] = name
        return name

    def write(self):
        """An elementwise operation into something that may be read later."""
        x = self.pick()
        rows = self.values[x]
        y = self.pick(rows)
        dest = self.pick(rows) if self.rng.random() < 0.7 else self.empty(rows)
        kind, type_ = self.rng.choice(["add", "sub", "max"]), self.type(rows)
        self.add(f"linalg.{kind} ins({x}, {y} : {type_}, {type_}) outs({dest} : {type_}) -> {type_}", rows)

    def slice(self):
        x = self.pick(self.rows * self.ranks)
        if x:
            at = self.rng.randrange(self.rows * (self.ranks - 1) + 1)
            self.add(f"tensor.extract_slice {x}[{at}, 0] [{self.rows}, 4] [1, 1] : {self.type(self.rows * self.ranks)} to "
                     f"{self.type(self.rows)}", self.rows)

    def insert(self):
        x, dest = self.pick(self.rows), self.pick(self.rows * self.ranks)
        if x and dest:
            at = self.rng.randrange(self.rows * (self.ranks - 1) + 1)
            self.add(f"tensor.insert_slice {x} into {dest}[{at}, 0] [{self.rows}, 4] [1, 1] : {self.type(self.rows)} into "
                     f"{self.type(self.rows * self.ranks)}", self.rows * self.ranks)

    def view(self):
        x = self.pick()
        type_ = self.type(self.values[x])
        self.add(f'comm.compute "view"({x}) aliases [0] : ({type_}) -> {type_}', self.values[x])

    def start(self):
        x = self.pick()
        rows = self.values[x]
        kinds = ["all_reduce sum", "all_reduce max", "broadcast"]
        kinds += ["all_gather"] if rows == self.rows else ["reduce_scatter sum"]
        kind, out = self.rng.choice(kinds), rows
        if kind == "all_gather":
            out = rows * self.ranks
        if kind.startswith("reduce_scatter"):
            out = rows // self.ranks
        into = ""
        # A tensor without contents may be the destination of one collective only: it is storage then.
        if self.rng.random() < 0.3:
            dest = self.new()
            self.lines.append(f"{dest} = tensor.empty() : {self.type(out)}")
            self.empties.setdefault(out, dest)  # others may use it too: the analysis has to keep them apart
            into = f" into {dest}"
        future = self.new()
        root = " root 0" if kind == "broadcast" else ""
        self.lines.append(f"{future} = comm.{kind} {x}{into} on @world{root} : ({self.type(rows)}) -> "
                          f"!comm.future<{self.type(out)}>")
        self.pending.append((future, out))
        self.starts += 1

    def wait(self):
        if self.pending:
            future, rows = self.pending.pop(self.rng.randrange(len(self.pending)))
            self.add(f"comm.wait {future} : !comm.future<{self.type(rows)}>", rows)


def run(arguments, **keywords):
    return subprocess.run(arguments, capture_output=True, text=True, **keywords)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--ranks", default="2")
    parser.add_argument("--passes", default="", help="passes before bufferization, on the first program only")
    options = parser.parse_args()
    opt, runner = os.path.join(options.bin, "comm-opt"), os.path.join(options.bin, "comm-run")
    copies, without = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        source, inplace, oracle = (os.path.join(folder, name) for name in ("in.mlir", "inplace.mlir", "oracle.mlir"))
        for seed in range(options.first, options.first + options.count):
            for ranks in map(int, options.ranks.split(",")):
                program = Program(seed, ranks, 4 + seed % 24)
                with open(source, "w") as file:
                    file.write(program.text)
                steps = [[opt, source, *options.passes.split(), "--comm-bufferize", "--canonicalize", "-o", inplace],
                         [opt, source, "--comm-bufferize=copy-before-write", "-o", oracle],
                         [runner, inplace, "--ranks", str(ranks), "--compare", oracle]]
                if program.starts:  # one rank comes late: the others go on and write what they may
                    steps[2] += [f"--fault=delay@{random.Random(seed).randint(1, program.starts)}:ms=3"]
                for step in steps:
                    done = run(step)
                    if done.returncode != 0:
                        print(f"seed {seed}, {ranks} ranks: {' '.join(step)}\n{done.stdout}{done.stderr}\n{program.text}")
                        return 1
                copies += open(inplace).read().count("memref.copy") + open(inplace).read().count("memref.alloc")
                without += open(oracle).read().count("memref.copy") + open(oracle).read().count("memref.alloc")
    print(f"{options.count} programs: equal bit for bit; allocations and copies {copies} instead of {without}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
