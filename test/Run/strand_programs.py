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
# With --sums the programs have sums over rows, and --comm-split-strands gets allow-reassociation: programs whose
# sums f64 holds exactly have to be equal bit for bit, and programs of f32 within --roundings.
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
SUMS = [options + " allow-reassociation" for options in VARIANTS]
UNARY = ["relu", "tanh", "neg", "sigmoid", "abs", "clone"]
BINARY = ["add", "mul", "sub", "maximum"]


def text(shape, element="f32"):
    return "tensor<" + "".join(f"{extent}x" for extent in shape) + element + ">"


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


# What `comm-run` fills inputs with: at most 128 in units of 2 to the power of -7.
INPUT = (128, 7)


class Sums(Program):
    """A random program with gradients of weights and biases, which are sums over rows. Nothing reads them, because
    functions of rounded numbers may differ by more than roundings.

    Elements of f64 are multiples of a power of 2, and so few that no sum of them is rounded. `most` is indexed by
    value: the largest multiple, and the exponent of the power.
    """

    def __init__(self, seed, ranks, element):
        self.element, self.most, self.leaves = element, {}, []
        super().__init__(seed, ranks)
        for _ in range(2):
            self.gradient()

    def fits(self, bound):
        return self.element != "f64" or bound[0] < 2**50

    def times(self, x, y, terms):
        """The bound of sums of so many products."""
        return self.most[x][0] * y[0] * terms, self.most[x][1] + y[1]

    def plus(self, x, y):
        exponent = max(self.most[x][1], self.most[y][1])
        return sum(most << (exponent - own) for most, own in (self.most[x], self.most[y])), exponent

    def argument(self, shape):
        name = super().argument(shape)
        self.most[name] = INPUT
        return name

    def emit(self, form, shape, *operands):
        self.count += 1
        name = f"%v{self.count}"
        types = ", ".join(text(self.shapes[v], self.element) for v in operands)
        self.lines.append(f"{name} = " + form.format(*operands, types=types, result=text(shape, self.element)))
        self.shapes[name] = shape
        self.used.update(operands)
        return name

    def bounded(self, bound, name, shape, *operands, clause=""):
        made = self.compute(name, shape, *operands, clause=clause)
        self.most[made] = bound
        return made

    def step(self):
        self.rng.choice([self.product, self.elementwise, self.collective, self.gradient, self.reshape])()

    def product(self):
        x = self.pick(lambda shape: len(shape) == 2)
        bound = self.times(x, INPUT, self.shapes[x][1])
        if self.fits(bound) and elements(self.shapes[x]) <= 8192:
            width = self.rng.choice([4, 8, 16])
            self.bounded(bound, "mm", (self.shapes[x][0], width), x, self.argument((self.shapes[x][1], width)))

    def elementwise(self):
        x = self.pick()
        y = self.pick(lambda shape: shape == self.shapes[x])
        if self.rng.random() < 0.5:
            self.bounded(self.most[x], self.rng.choice(["relu", "neg", "abs"]), self.shapes[x], x)
        elif self.fits(self.plus(x, y)):
            self.bounded(self.plus(x, y), self.rng.choice(["add", "sub"]) + ".Tensor", self.shapes[x], x, y)

    def collective(self):
        x = self.pick()
        bound = self.times(x, (1, 0), self.ranks)
        if self.fits(bound):
            shape = text(self.shapes[x], self.element)
            self.count += 1
            self.lines.append(f"%v{self.count} = comm.all_reduce sum {x} on @tp : ({shape}) -> !comm.future<{shape}>")
            self.lines.append(f"%v{self.count}w = comm.wait %v{self.count} : !comm.future<{shape}>")
            self.shapes[f"%v{self.count}w"], self.most[f"%v{self.count}w"] = self.shapes[x], bound
            self.used.add(x)

    def reshape(self):
        x = self.pick(lambda shape: len(shape) == 2)
        rows, columns = self.shapes[x]
        if columns % 4 == 0:
            made = self.bounded(self.most[x], "view", (rows, 4, columns // 4), x, clause=" aliases [0]")
            self.bounded(self.most[x], "view", (rows, columns), made, clause=" aliases [0]")

    def gradient(self):
        x = self.pick(lambda shape: len(shape) == 2)
        rows, columns = self.shapes[x]
        y = self.pick(lambda shape: len(shape) == 2 and shape[0] == rows)
        kind = self.rng.choice(["mm", "mm", "sum", "matmul"])
        if kind == "sum" and self.fits(self.times(x, (1, 0), rows)) and rows != columns:
            self.leaf(self.compute("sum.dim_IntList", (columns,), x))
        elif kind == "mm" and self.fits(self.times(x, self.most[y], rows)):
            turned = self.compute("t", (columns, rows), x)
            self.leaf(self.compute("mm", (columns, self.shapes[y][1]), turned, y))
            self.shapes.pop(turned)
        elif kind == "matmul" and self.fits(self.times(x, self.most[y], rows)):
            shape = (columns, self.shapes[y][1])
            zero = self.hidden("arith.constant dense<0.0> : {result}", shape)
            types = ", ".join(text(self.shapes[v], self.element) for v in (x, y))
            self.leaf(self.emit("linalg.matmul indexing_maps = [affine_map<(a, b, c) -> (c, a)>, "
                                "affine_map<(a, b, c) -> (c, b)>, affine_map<(a, b, c) -> (a, b)>] "
                                f"ins({{0}}, {{1}} : {types}) outs({zero} : {{result}}) -> {{result}}", shape, x, y))

    def leaf(self, name):
        self.leaves.append((name, self.shapes.pop(name)))

    def module(self):
        results = [v for v in self.shapes if v not in self.arguments and v not in self.used]
        shapes = {**self.shapes, **dict(self.leaves)}
        results += [v for v, _ in self.leaves]
        listed = ", ".join(f"{v}: {text(self.shapes[v], self.element)}" for v in self.arguments)
        types = ", ".join(text(shapes[v], self.element) for v in results)
        return "\n".join([f"comm.group @tp #comm.iota<[1, {self.ranks}]>", f"func.func @main({listed}) -> ({types}) {{",
                          *("  " + line for line in self.lines), f"  return {', '.join(results)} : {types}", "}"]) + "\n"


def elements(shape):
    total = 1
    for extent in shape:
        total *= extent
    return total


# Wrong rules: an operation on %x and %y, both 8 x 8, with the dimensions of its operands and its result.
WRONG = [
    ("a mean as the sum of means", 'comm.compute "aten.mean.dim"(%x)', "0, -1", 1),
    ("a product with a bias, which every part adds", 'comm.compute "aten.addmm"(%y, %y, %x)', "-1, 1, 0, -1", 3),
    ("a sum of products of which one operand stays whole", 'comm.compute "aten.mm"(%y, %x)', "-1, 0, -1", 2),
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
    gathered = {"comm.all_gather": 16, "comm.reduce_scatter": 4}.get(operation.split(" ")[0], 1 if "mean" in operation else 8)
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

    def compare(self, modules, ranks, seed, variants=VARIANTS, *flags):
        """Puts the modules through every variant. Returns what was said if one differs, and how many each changed."""
        given, changed, files = self.path("given.mlir"), [], []
        with open(given, "w") as file:
            file.write(MARKER.join(modules))
        for number, options in enumerate(variants):
            target = self.path(f"strands{number}.mlir")
            code, said = self.split(given, options, target)
            if code:
                return f"{options}: {said}", [0] * len(variants)
            changed.append(sum("tensor.extract_slice" in part for part in open(target).read().split(MARKER)))
            files += ["--compare", target]
        code, said = self.run(self.runner, "--split-input-file", given, *files, "--ranks", str(ranks), "--seed", str(seed),
                              "--timeout-ms", "20000", *flags)
        return (said if code else None), changed


def compare_in_batches(runner, options, program, variants):
    """Compares the programs of all seeds with what each variant makes of them, batch by batch on another number of ranks.

    Returns how many programs each of the `variants` changed. Returns None, after printing the program, if one differs.
    """
    changed = [0] * variants
    ranks = [int(n) for n in options.ranks.split(",")]
    last = options.first + options.count
    for batch, first in enumerate(range(options.first, last, options.batch)):
        number = ranks[batch % len(ranks)]
        modules = {seed: program(seed, number).module() for seed in range(first, min(last, first + options.batch))}
        said, found = runner.compare(list(modules.values()), number, first)
        changed = [a + b for a, b in zip(changed, found)]
        if said is None:
            continue
        for seed, module in modules.items():
            alone, _ = runner.compare([module], number, seed)
            if alone:
                print(f"seed {seed} on {number} ranks:\n{module}\n{alone}")
                return None
        print(f"programs from {first} fail together, none of them alone: {said}")
        return None
    return changed


def check_random(runner, options):
    by_variant = compare_in_batches(runner, options, Program, len(VARIANTS))
    if by_variant is None:
        return 1
    changed = sum(by_variant)
    # Programs that nothing splits would agree, too.
    if changed < options.count:
        print(f"only {changed} of {options.count} programs were split")
        return 1
    print(f"{options.count} programs, split {changed} times: equal bit for bit")
    return 0


def check_sums(runner, options):
    ranks, added = [int(n) for n in options.ranks.split(",")], 0
    for batch, first in enumerate(range(options.first, options.first + options.count, options.batch)):
        number, element = ranks[batch % len(ranks)], ("f64", "f32")[batch // len(ranks) % 2]
        seeds = range(first, min(options.first + options.count, first + options.batch))
        modules = [Sums(seed, number, element).module() for seed in seeds]
        flags = [] if element == "f64" else ["--tolerance", str(options.roundings)]
        said, _ = runner.compare(modules, number, first, SUMS, *flags)
        if said:
            print(f"programs {first} to {seeds[-1]} of {element} on {number} ranks:\n{said}")
            return 1
        for target in range(len(SUMS)):
            added += sum("arith.add" in part for part in open(runner.path(f"strands{target}.mlir")).read().split(MARKER))
    # Programs without a sum of partial results would agree, too.
    if added < options.count:
        print(f"only {added} sums of {options.count} programs were split")
        return 1
    print(f"{options.count} programs, sums split {added} times: equal where exact, else within {options.roundings} roundings")
    return 0


def find_wrong(runner, module):
    """What shows that a module with a wrong rule is wrong: a message, or None."""
    given, target = runner.path("right.mlir"), runner.path("wrong.mlir")
    with open(given, "w") as file:
        file.write(module)
    for dimension in (0, 1):
        code, said = runner.split(given, f"force max-strands=2 allow-reassociation dimension={dimension}", target)
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
    parser.add_argument("--sums", action="store_true")
    parser.add_argument("--roundings", type=int, default=8, help="with --sums: what floating-point sums may differ by")
    parser.add_argument("--wrong", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(options, folder)
        if options.wrong:
            return check_wrong(runner)
        return check_sums(runner, options) if options.sums else check_random(runner, options)


if __name__ == "__main__":
    sys.exit(main())
