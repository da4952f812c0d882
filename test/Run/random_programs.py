#!/usr/bin/env python3
#===- random_programs.py - Do schedules keep every bit? --------------------------------------------------------===#
#
# Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
#
# Makes random programs of collectives and computations, reorders each one (at random within what its dependences allow,
# or by passes of comm-opt), runs both on N ranks, and compares the results bit for bit. A program that fails is made as
# small as possible before it is reported.
#
#   random_programs.py --bin FOLDER [--count 40] [--first 0] [--ranks 2,4] [--passes "--comm-raise"] [--keep FOLDER]
#
#===-------------------------------------------------------------------------------------------------------------===#

import argparse
import os
import random
import subprocess
import sys
import tempfile

# Floating-point types reduce; the others only move.
FLOATS = ["f32", "bf16", "f16", "f64"]
TYPES = FLOATS + ["i32", "i8", "i64"]


class Op:
    """One operation: its text, what it defines and uses, what storage it writes, and what it keeps in flight."""

    def __init__(self, text, defines=(), uses=(), writes=(), starts=None, waits=None):
        self.text, self.defines, self.uses, self.writes = text, list(defines), list(uses), list(writes)
        self.starts, self.waits = starts, waits


class Generator:
    def __init__(self, seed, ranks, size):
        self.rng = random.Random(seed)
        self.ranks, self.counter = ranks, 0
        self.ops, self.values = [], {}
        self.storage = {}  # value -> the value whose storage it is
        self.arguments = []
        for _ in range(self.rng.randint(1, 4)):
            name = self.new()
            self.define(name, self.random_type())
            self.arguments.append(name)
        while len(self.ops) < size:
            self.step()

    def new(self):
        self.counter += 1
        return f"%v{self.counter}"

    def random_type(self, floats=False):
        rng = self.rng
        rows = self.ranks * rng.randint(1, 3)
        shape = (rows,) if rng.random() < 0.3 else (rows, self.ranks * rng.randint(1, 2))
        if rng.random() < 0.1:  # large enough for the worker threads
            shape = (self.ranks * 64, 64)
        return shape, rng.choice(FLOATS if floats else TYPES)

    @staticmethod
    def text(type_):
        shape, element = type_
        return "tensor<" + "x".join(map(str, shape)) + "x" + element + ">"

    def define(self, name, type_, storage=None):
        self.values[name] = type_
        self.storage[name] = self.storage[storage] if storage else name

    def pick(self, accept=lambda type_: True):
        fitting = [v for v, t in self.values.items() if accept(t)]
        return self.rng.choice(fitting) if fitting else None

    def step(self):
        kinds = [self.compute] * 4 + [self.collective] * 4 + [self.coalesced, self.fsdp, self.view, self.mutate]
        self.rng.choice(kinds)()

    def compute(self):
        inputs = [self.pick() for _ in range(self.rng.randint(1, 3))]
        result, type_ = self.new(), self.random_type()
        types = ", ".join(self.text(self.values[v]) for v in inputs)
        self.ops.append(Op(f'{result} = comm.compute "op{self.rng.randint(0, 9)}"({", ".join(inputs)}) : '
                           f"({types}) -> {self.text(type_)}", [result], inputs))
        self.define(result, type_)

    def view(self):
        value = self.pick()
        shape, element = self.values[value]
        total = 1
        for extent in shape:
            total *= extent
        result = self.new()
        type_ = ((self.ranks, total // self.ranks), element)
        self.ops.append(Op(f'{result} = comm.compute "view"({value}) aliases [0] : ({self.text(self.values[value])}) -> '
                           f"{self.text(type_)}", [result], [value]))
        self.define(result, type_, value)

    def mutate(self):
        target, other = self.pick(), self.pick()
        types = f"{self.text(self.values[target])}, {self.text(self.values[other])}"
        self.ops.append(Op(f'comm.compute "update"({target}, {other}) mutates [0] : ({types}) -> ()', [],
                           [target, other], [target]))

    def start_and_wait(self, head, inputs, tail, results):
        """results: types. Both operations are made next to each other."""
        future, names = self.new(), [self.new() for _ in results]
        types = ", ".join(self.text(t) for t in results)
        sources = ", ".join(self.text(self.values[v]) for v in inputs)
        self.ops.append(Op(f"{future} = comm.{head} {', '.join(inputs)} on {tail} : ({sources}) -> "
                           f"!comm.future<{types}>", [future], inputs, starts=future))
        left = f"{names[0]}:{len(names)}" if len(names) > 1 else names[0]
        printed = [f"{names[0]}#{i}" for i in range(len(names))] if len(names) > 1 else names
        self.ops.append(Op(f"{left} = comm.wait {future} : !comm.future<{types}>", printed, [future], waits=future))
        for name, type_ in zip(printed, results):
            self.define(name, type_)

    def reduction(self, element):
        kinds = ["sum", "product", "min", "max"]
        if element in FLOATS:
            kinds += ["avg", "scaled_sum scale 5.000000e-01"]
        return self.rng.choice(kinds)

    def collective(self):
        rng, n = self.rng, self.ranks
        value = self.pick()
        shape, element = self.values[value]
        dim = rng.randrange(len(shape))
        total = 1
        for extent in shape:
            total *= extent
        grown = tuple(e * n if i == dim else e for i, e in enumerate(shape))
        shrunk = tuple(e // n if i == dim else e for i, e in enumerate(shape))
        divides, root = shape[dim] % n == 0, rng.randrange(n)
        kind = rng.randrange(8)
        if kind == 0 and total <= 4096:
            self.start_and_wait("all_gather", [value], f"@world dim {dim}", [(grown, element)])
        elif kind == 1 and divides:
            self.start_and_wait(f"reduce_scatter {self.reduction(element)}", [value], f"@world dim {dim}",
                                [(shrunk, element)])
        elif kind == 2:
            self.start_and_wait(f"all_reduce {self.reduction(element)}", [value], rng.choice(["@world", "@halves"]),
                                [(shape, element)])
        elif kind == 3 and divides:
            concat = rng.randrange(len(shape))
            result = tuple(e // (n if i == dim else 1) * (n if i == concat else 1) for i, e in enumerate(shape))
            self.start_and_wait("all_to_all", [value], f"@world split {dim} concat {concat}", [(result, element)])
        elif kind == 4:
            self.start_and_wait("broadcast", [value], f"@world root {root}", [(shape, element)])
        elif kind == 5:
            pairs = ", ".join(f"{i}, {(i + 1) % n}" for i in range(n) if rng.random() < 0.8)
            self.start_and_wait("permute", [value], f"@world pairs [{pairs}]", [(shape, element)])
        elif kind == 6 and divides:
            self.start_and_wait("scatter", [value], f"@world root {root} dim {dim}", [(shrunk, element)])
        elif kind == 7 and divides and dim == 0:
            # Every rank keeps one row for each other one and gives the rest to itself: not even, but the same for all.
            splits = [shape[0] // n] * n
            self.start_and_wait("all_to_all", [value], f"@world input_splits {splits} output_splits {splits}",
                                [(shape, element)])

    def coalesced(self):
        inputs = [self.pick() for _ in range(self.rng.randint(2, 3))]
        self.start_and_wait("all_reduce max", inputs, "@world", [self.values[v] for v in inputs])

    def fsdp(self):
        inputs = [self.pick(lambda t: t[1] in FLOATS) for _ in range(self.rng.randint(1, 3))]
        if None in inputs:
            return
        sizes = []
        for value in inputs:
            total = 1
            for extent in self.values[value][0]:
                total *= extent
            sizes.append(total)
        if sum(sizes) * self.ranks > 8192:
            return
        element = self.rng.choice(FLOATS)
        slice_type, buffer_type = ((sum(sizes),), element), ((sum(sizes) * self.ranks,), element)
        slice_, buffer, future, full = self.new(), self.new(), self.new(), self.new()
        pieces = [self.new() for _ in inputs]
        types = ", ".join(self.text(self.values[v]) for v in inputs)
        self.ops.append(Op(f"{slice_}, {buffer} = comm.fsdp.all_gather_copy_in {', '.join(inputs)} on @world : ({types}) "
                           f"-> ({self.text(slice_type)}, {self.text(buffer_type)})", [slice_, buffer], inputs))
        self.storage[slice_] = self.storage[buffer] = self.storage[full] = buffer
        self.ops.append(Op(f"{future} = comm.all_gather {slice_} into {buffer} on @world : ({self.text(slice_type)}) -> "
                           f"!comm.future<{self.text(buffer_type)}>", [future], [slice_, buffer], starts=future))
        self.ops.append(Op(f"{full} = comm.wait {future} : !comm.future<{self.text(buffer_type)}>", [full], [future],
                           waits=future))
        results = [((size * self.ranks,), element) for size in sizes]
        printed = ", ".join(self.text(t) for t in results)
        printed = f"({printed})" if len(results) > 1 else printed
        self.ops.append(Op(f"{', '.join(pieces)} = comm.fsdp.split_with_sizes_copy {full} sizes {sizes} : "
                           f"({self.text(buffer_type)}) -> {printed}", pieces, [full]))
        for piece, type_ in zip(pieces, results):
            self.define(piece, type_)


def dependences(generator, ops):
    """Lists of operations that must come before each one."""
    before = [set() for _ in ops]
    defined, writer, readers, inflight = {}, {}, {}, {}
    for i, op in enumerate(ops):
        touched = [generator.storage.get(v, v) for v in op.uses]
        for value in op.uses:
            if value in defined:
                before[i].add(defined[value])
        for storage in touched:
            if storage in writer:
                before[i].add(writer[storage])
        for storage in {generator.storage.get(v, v) for v in op.writes}:
            before[i].update(readers.get(storage, ()))
            # What a collective in flight reads is free after its wait.
            for future, held in inflight.items():
                if storage in held:
                    before[i].update(j for j, other in enumerate(ops[:i]) if other.waits == future)
            writer[storage] = i
            readers[storage] = set()
        for storage in touched:
            readers.setdefault(storage, set()).add(i)
        if op.starts:
            inflight[op.starts] = set(touched)
        for value in op.defines:
            defined[value] = i
        before[i].discard(i)
    return before


def reorder(generator, ops, rng):
    """A random order that the dependences allow; starts tend to come early and waits late."""
    before = dependences(generator, ops)
    left, done, order = set(range(len(ops))), set(), []
    while left:
        ready = [i for i in sorted(left) if before[i] <= done]
        weights = [8 if ops[i].starts else 1 if ops[i].waits else 3 for i in ready]
        chosen = rng.choices(ready, weights)[0]
        order.append(ops[chosen])
        left.remove(chosen)
        done.add(chosen)
    return order


def module(generator, ops):
    """The program; it returns every value that `ops` still defines and nothing uses, and the last ones."""
    defined = set(generator.arguments) | {v for op in ops for v in op.defines}
    results = sorted(v for v in defined if v in generator.values and v not in generator.arguments)
    half = generator.ranks // 2 or 1
    halves = [list(range(i, min(i + half, generator.ranks))) for i in range(0, generator.ranks, half)]
    arguments = ", ".join(f"{v}: {generator.text(generator.values[v])}" for v in generator.arguments)
    types = ", ".join(generator.text(generator.values[v]) for v in results)
    lines = [f"comm.group @world #comm.iota<[1, {generator.ranks}]>", f"comm.group @halves #comm.ranks<{halves}>",
             f"func.func @main({arguments}) -> ({types}) {{"]
    lines += ["  " + op.text for op in ops]
    lines += [f"  return {', '.join(results)} : {types}" if results else "  return", "}"]
    return "\n".join(lines) + "\n"


class Checker:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder

    def run(self, *command):
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    def compare(self, generator, ops, seed):
        """None if the two orders agree, else what comm-run says."""
        paths = [os.path.join(self.folder, name) for name in ("given.mlir", "scheduled.mlir")]
        with open(paths[0], "w") as file:
            file.write(module(generator, ops))
        if self.options.passes:
            tool = os.path.join(self.options.bin, "comm-opt")
            code, text = self.run(tool, paths[0], *self.options.passes.split(), "-o", paths[1])
            if code:
                return text
        else:
            with open(paths[1], "w") as file:
                file.write(module(generator, reorder(generator, ops, random.Random(seed))))
        tool = os.path.join(self.options.bin, "comm-run")
        code, text = self.run(tool, paths[0], "--compare", paths[1], "--seed", str(seed), "--timeout-ms", "20000")
        return text if code else None

    def shrink(self, generator, ops, seed):
        """Drops operations while the program still fails."""
        size = len(ops) // 2
        while size:
            i = 0
            while i < len(ops):
                fewer = self.close(generator, ops[:i] + ops[i + size:])
                if len(fewer) < len(ops) and self.compare(generator, fewer, seed):
                    ops = fewer
                else:
                    i += size
            size //= 2
        return ops

    @staticmethod
    def close(generator, ops):
        """Without operations whose operands are gone, and without starts that nobody waits for."""
        while True:
            known = set(generator.arguments) | {v for op in ops for v in op.defines}
            waited = {op.waits for op in ops}
            kept = [op for op in ops if set(op.uses) <= known and (not op.starts or op.starts in waited)]
            if len(kept) == len(ops):
                return kept
            ops = kept


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--size", type=int, default=40)
    parser.add_argument("--passes", default="")
    options = parser.parse_args()
    ranks = [int(n) for n in options.ranks.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        checker = Checker(options, folder)
        for seed in range(options.first, options.first + options.count):
            rng = random.Random(seed)
            generator = Generator(seed, ranks[seed % len(ranks)], rng.randint(3, options.size))
            failed = checker.compare(generator, generator.ops, seed)
            if failed:
                ops = checker.shrink(generator, generator.ops, seed)
                print(f"seed {seed}: {checker.compare(generator, ops, seed)}")
                for name in ("given.mlir", "scheduled.mlir"):
                    print(f"// {name}\n{open(os.path.join(folder, name)).read()}")
                return 1
    print(f"{options.count} programs: equal bit for bit")
    return 0


if __name__ == "__main__":
    sys.exit(main())
