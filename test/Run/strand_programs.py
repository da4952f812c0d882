#!/usr/bin/env python3
#===- strand_programs.py - Random programs that can be split into strands -----------------------------------------===#
#
# Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Makes random programs in the form of tensor-parallel layers (products, elementwise operations, norms, reshapes,
# collectives along every dimension, and operations that mix rows), splits them into strands, runs both, and compares the
# results bit for bit. It shares no rule with the pass: it draws operations and shapes only.
#
#   strand_programs.py --bin FOLDER [--count 40] [--first 0] [--ranks 2,4,8]
#
# With --wrong it plants wrong rules instead, by `comm.split`, and expects that each changes the results.
#
#===-------------------------------------------------------------------------------------------------------------===#

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile

MARKER = "// -----\n"
# Options of the pass that each program is put through.
VARIANTS = ["force max-strands=2", "force max-strands=2 stagger=4", "force max-strands=4 stagger=2",
            "force max-strands=3 stagger=50", "force max-strands=2 dimension=1", "effort=2000"]
UNARY = ["relu", "tanh", "neg", "sigmoid", "abs", "clone"]
BINARY = ["add", "mul", "sub", "maximum"]


def text(shape):
    return "tensor<" + "".join(f"{extent}x" for extent in shape) + "f32>"


class Program:
    """One random program of values of two or three dimensions."""

    def __init__(self, seed, ranks):
        self.rng, self.ranks = random.Random(seed), ranks
        self.lines, self.shapes, self.arguments, self.used, self.count = [], {}, [], set(), 0
        self.rows = self.rng.choice([8, 16, 24, 48])
        for _ in range(self.rng.randint(1, 2)):
            self.argument((self.rows, self.rng.choice([8, 16])))
        for _ in range(self.rng.randint(6, 24)):
            self.step()

    def argument(self, shape):
        name = f"%a{len(self.arguments)}"
        self.arguments.append(name)
        self.shapes[name] = shape
        return name

    def emit(self, form, shape, *operands):
        """Adds one operation. `form` has the operands as {0}, {1} and their types as {types}."""
        self.count += 1
        name = f"%v{self.count}"
        types = ", ".join(text(self.shapes[v]) for v in operands)
        self.lines.append(f"{name} = " + form.format(*operands, types=types, result=text(shape)))
        self.shapes[name] = shape
        self.used.update(operands)
        return name

    def hidden(self, form, shape):
        """A value that no other operation may read: its contents are undefined, or will be overwritten."""
        name = self.emit(form, shape)
        self.shapes.pop(name)
        return name

    def compute(self, name, shape, *operands, clause=""):
        listed = ", ".join(operands)
        return self.emit(f'comm.compute "aten.{name}"({listed}){clause} : ({{types}}) -> {{result}}', shape, *operands)

    def pick(self, accept=lambda shape: True):
        """A value, one of the last ones more often: networks are deep."""
        values = [v for v, shape in self.shapes.items() if accept(shape)]
        return self.rng.choice(values[-4:] if self.rng.random() < 0.7 else values) if values else None

    def step(self):
        kinds = [self.product] * 4 + [self.elementwise] * 4 + [self.collective] * 4 + [
            self.norm, self.reshape, self.transpose, self.mix, self.linalg, self.batched, self.accumulate]
        self.rng.choice(kinds)()

    def product(self):
        x = self.pick(lambda shape: len(shape) == 2 and max(shape) <= 128)
        width = self.rng.choice([4, 8, 16])
        weight = self.argument((self.shapes[x][1], width))
        shape = (self.shapes[x][0], width)
        if self.rng.random() < 0.5:
            return self.compute("mm", shape, x, weight)
        zero = self.hidden("arith.constant dense<0.0> : {result}", shape)
        return self.emit(f"linalg.matmul ins({{0}}, {{1}} : {text(self.shapes[x])}, {text(self.shapes[weight])}) "
                         f"outs({zero} : {text(shape)}) -> {{result}}", shape, x, weight)

    def elementwise(self):
        x = self.pick()
        shape = self.shapes[x]
        other = self.pick(lambda s: s == shape)
        choice = self.rng.random()
        if choice < 0.4:
            return self.compute(self.rng.choice(UNARY), shape, x)
        if choice < 0.6:
            return self.compute("mul.Tensor", shape, x, self.argument(shape[-1:]))
        return self.compute(self.rng.choice(BINARY) + ".Tensor", shape, x, other)

    def linalg(self):
        x = self.pick()
        y = self.pick(lambda s: s == self.shapes[x])
        shape = self.shapes[x]
        empty = self.hidden("tensor.empty() : {result}", shape)
        return self.emit(f"linalg.{self.rng.choice(['add', 'max', 'mul'])} ins({{0}}, {{1}} : {text(shape)}, {text(shape)}) "
                         f"outs({empty} : {text(shape)}) -> {{result}}", shape, x, y)

    def norm(self):
        x = self.pick(lambda shape: len(shape) == 2)
        mean = self.compute("mean.dim", (self.shapes[x][0], 1), x)
        return self.compute("mul.Tensor", self.shapes[x], x, mean)

    def reshape(self):
        x = self.pick()
        shape = self.shapes[x]
        dim = self.rng.randrange(len(shape))
        if len(shape) == 3:
            shape = (shape[0] * shape[1], shape[2]) if dim == 0 else (shape[0], shape[1] * shape[2])
        elif shape[dim] % 4 == 0:
            shape = (*shape[:dim], 4, shape[dim] // 4, *shape[dim + 1:])
        else:
            return
        self.compute("view", shape, x, clause=" aliases [0]")

    def batched(self):
        x = self.pick(lambda shape: len(shape) == 3)
        if x:
            batch, rows, inner = self.shapes[x]
            self.compute("bmm", (batch, rows, 8), x, self.argument((batch, inner, 8)))

    def transpose(self):
        x = self.pick(lambda shape: len(shape) == 2)
        self.compute("t", self.shapes[x][::-1], x)

    def mix(self):
        """What mixes rows, or is not known."""
        x = self.pick(lambda shape: len(shape) == 2)
        if self.rng.random() < 0.5:
            self.compute("_softmax", self.shapes[x], x)
        else:
            self.compute("mystery", self.shapes[x], x)

    def accumulate(self):
        """A gradient of a weight: a sum over the rows."""
        x = self.pick(lambda shape: len(shape) == 2)
        y = self.pick(lambda shape: len(shape) == 2 and shape[0] == self.shapes[x][0])
        self.compute("mm", (self.shapes[x][1], self.shapes[y][1]), self.compute("t", self.shapes[x][::-1], x), y)

    def collective(self):
        x = self.pick()
        shape, n = list(self.shapes[x]), self.ranks
        dim, other = self.rng.randrange(len(shape)), self.rng.randrange(len(shape))
        kind = self.rng.choice(["reduce", "reduce", "reduce", "gather", "scatter", "exchange"])
        if kind == "reduce":
            head, tail = f"all_reduce {self.rng.choice(['sum', 'max', 'min'])}", ""
        elif kind == "gather" and elements(shape) * n <= 8192:
            head, tail = "all_gather", f" dim {dim}"
            shape[dim] *= n
        elif kind == "scatter" and shape[dim] % n == 0:
            head, tail = "reduce_scatter sum", f" dim {dim}"
            shape[dim] //= n
        elif kind == "exchange" and shape[dim] % n == 0:
            head, tail = "all_to_all", f" split {dim} concat {other}"
            shape[dim] //= n
            shape[other] *= n
        else:
            return
        future = self.emit(f"comm.{head} {{0}} on @tp{tail} : ({{types}}) -> !comm.future<{{result}}>", tuple(shape), x)
        self.shapes.pop(future)
        self.lines.append(f"{future}w = comm.wait {future} : !comm.future<{text(shape)}>")
        self.shapes[future + "w"] = tuple(shape)

    def module(self):
        results = [v for v in self.shapes if v not in self.arguments and (v not in self.used or self.rng.random() < 0.2)]
        listed = ", ".join(f"{v}: {text(self.shapes[v])}" for v in self.arguments)
        types = ", ".join(text(self.shapes[v]) for v in results)
        return "\n".join([f"comm.group @tp #comm.iota<[1, {self.ranks}]>", f"func.func @main({listed}) -> ({types}) {{",
                          *("  " + line for line in self.lines), f"  return {', '.join(results)} : {types}", "}"]) + "\n"


def elements(shape):
    total = 1
    for extent in shape:
        total *= extent
    return total


# Wrong rules: an operation on %x and %y, both 8 x 8, with the dimensions of its operands and its result.
WRONG = [
    ("a softmax along its own dimension", 'comm.compute "aten._softmax"(%x)', "1, 1", 1),
    ("a transposition that keeps its dimensions", 'comm.compute "aten.t"(%x)', "0, 0", 1),
    ("an elementwise operation that exchanges them", 'comm.compute "aten.relu"(%x)', "0, 1", 1),
    ("an unknown operation", 'comm.compute "mystery"(%x)', "0, 0", 1),
    ("a product whose right operand is split along the rows", 'comm.compute "aten.mm"(%x, %y)', "0, 0, 0", 2),
    ("a product with the columns of the left operand", 'comm.compute "aten.mm"(%x, %y)', "1, -1, 0", 2),
    ("a product with the columns of the right operand as rows", 'comm.compute "aten.mm"(%x, %y)', "-1, 1, 0", 2),
    ("a sum of which one operand stays whole", 'comm.compute "aten.add.Tensor"(%x, %y)', "0, -1, 0", 2),
    ("a sum with an operand along the other dimension", 'comm.compute "aten.add.Tensor"(%x, %y)', "0, 1, 0", 2),
    ("a reshape that does not keep rows together", 'comm.compute "aten.view"(%x) aliases [0]', "1, 0", 1),
    ("a gather along its own dimension", "comm.all_gather %x on @tp", "0, 0", 1),
    ("a scatter along its own dimension", "comm.reduce_scatter sum %x on @tp", "0, 0", 1),
    ("an exchange along its own dimension", "comm.all_to_all %x on @tp", "0, 0", 1),
]


def wrong_module(operation, rule, operands):
    """A reduction, the operation with the rule, and the reduction of its result, so that the rule connects the two."""
    types = ", ".join(["tensor<8x8xf32>"] * operands)
    gathered = {"comm.all_gather": 16, "comm.reduce_scatter": 4}.get(operation.split(" ")[0], 8)
    result = f"tensor<{gathered}x8xf32>"
    start = operation.startswith("comm.a") or operation.startswith("comm.r")
    made = f"!comm.future<{result}>" if start else result
    wait = f"  %v = comm.wait %u : {made}\n" if start else ""
    value = "%v" if start else "%u"
    # The rule of the wait follows from that of its start, so it is planted, too.
    wait = wait.replace(" : ", f" {{comm.split = [array<i64: {rule}>]}} : ", 1)
    return f"""comm.group @tp #comm.iota<[1, 2]>
func.func @main(%z: tensor<8x8xf32>, %y: tensor<8x8xf32>) -> {result} {{
  %f = comm.all_reduce sum %z on @tp : (tensor<8x8xf32>) -> !comm.future<tensor<8x8xf32>>
  %x = comm.wait %f : !comm.future<tensor<8x8xf32>>
  %u = {operation} {{comm.split = [array<i64: {rule}>]}} : ({types}) -> {made}
{wait}  %g = comm.all_reduce max {value} on @tp : ({result}) -> !comm.future<{result}>
  %r = comm.wait %g : !comm.future<{result}>
  return %r : {result}
}}
"""


class Runner:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.opt, self.runner = (os.path.join(options.bin, name) for name in ("comm-opt", "comm-run"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def run(self, *command):
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300)
        return done.returncode, done.stdout + done.stderr

    def split(self, source, options, target):
        return self.run(self.opt, "--split-input-file", source, f"--comm-split-strands={options}", "-o", target)

    def compare(self, modules, ranks, seed):
        """Puts the modules through every variant. Returns what was said if one differs, and how many were changed."""
        given, changed, files = self.path("given.mlir"), 0, []
        with open(given, "w") as file:
            file.write(MARKER.join(modules))
        for number, options in enumerate(VARIANTS):
            target = self.path(f"strands{number}.mlir")
            code, said = self.split(given, options, target)
            if code:
                return f"{options}: {said}", 0
            changed += sum("tensor.extract_slice" in part for part in open(target).read().split(MARKER))
            files += ["--compare", target]
        code, said = self.run(self.runner, "--split-input-file", given, *files, "--ranks", str(ranks), "--seed", str(seed),
                              "--timeout-ms", "20000")
        return (said if code else None), changed


def check_random(runner, options):
    changed = 0
    ranks = [int(n) for n in options.ranks.split(",")]
    last = options.first + options.count
    for batch, first in enumerate(range(options.first, last, options.batch)):
        number = ranks[batch % len(ranks)]
        seeds = range(first, min(last, first + options.batch))
        modules = {seed: Program(seed, number).module() for seed in seeds}
        said, split = runner.compare(modules.values(), number, first)
        changed += split
        if said is None:
            continue
        for seed, module in modules.items():
            said, _ = runner.compare([module], number, seed)
            if said:
                print(f"seed {seed} on {number} ranks:\n{module}\n{said}")
                return 1
        print(f"programs {first} to {seeds[-1]} fail together, none of them alone")
        return 1
    # Programs that nothing splits would agree, too.
    if changed < options.count:
        print(f"only {changed} of {options.count} programs were split")
        return 1
    print(f"{options.count} programs, split {changed} times: equal bit for bit")
    return 0


def find_wrong(runner, module):
    """What shows that a module with a wrong rule is wrong: a message, or None."""
    given, target = runner.path("right.mlir"), runner.path("wrong.mlir")
    with open(given, "w") as file:
        file.write(module)
    for dimension in (0, 1):
        code, said = runner.split(given, f"force max-strands=2 dimension={dimension}", target)
        if code == 0:
            code, said = runner.run(runner.runner, given, "--compare", target)
        if code == 2 or "must have" in said or "expected" in said:
            return said.split("\n")[0][:150]
        if code:
            raise SystemExit(said)
    return None


def check_wrong(runner):
    for name, operation, rule, operands in WRONG:
        said = find_wrong(runner, wrong_module(operation, rule, operands))
        print(f"{name}: {said or 'was not found'}")
        if not said:
            return 1
        # The same program without the rule is split and equal: the rule alone is what was found.
        right = re.sub(r" \{comm.split = [^}]*\}", "", wrong_module(operation, rule, operands))
        if said := find_wrong(runner, right):
            print(f"without the rule: {said}")
            return 1
    print(f"{len(WRONG)} wrong rules were found")
    return 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, help="folder of comm-opt and comm-run")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="seed of the first program")
    parser.add_argument("--batch", type=int, default=20, help="programs per process")
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--wrong", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(options, folder)
        return check_wrong(runner) if options.wrong else check_random(runner, options)


if __name__ == "__main__":
    sys.exit(main())
