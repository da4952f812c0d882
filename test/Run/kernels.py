#===- kernels.py - The reference kernels against an oracle of their own -------------------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#
#
# Makes one program of all kernels, runs it on inputs from .npy files, and compares each result with what Python's own
# arithmetic gives: by the definition of the operator, not by the kernel's formula. Matrix products are compared bit for
# bit, as one sum in order of k that is rounded after every step, on samples of shapes beyond every block size.
#
#   kernels.py COMM-RUN FOLDER
#
#===---------------------------------------------------------------------------------------------------------------===#

import ast
import itertools
import math
import os
import random
import struct
import subprocess
import sys

rng = random.Random(7)
NPY = {"f16": "<f2", "bf16": "<u2", "f32": "<f4", "f64": "<f8", "i32": "<i4", "i8": "|i1", "i1": "|b1"}
CODES = {"f16": "e", "bf16": "H", "f32": "f", "f64": "d", "i32": "i", "i8": "b", "i1": "?"}


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def bf16_bits(x):
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def bf16_value(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def rounded(x, element):
    """`x`, a number, as the nearest value of a type."""
    if element == "bf16":
        return bf16_value(bf16_bits(f32(x)))
    if element in ("f16", "f32"):
        return struct.unpack("<" + CODES[element], struct.pack("<" + CODES[element], x))[0]
    return float(x) if element == "f64" else int(x)


class Tensor:
    """Values in row-major order."""

    def __init__(self, shape, element, values):
        self.shape, self.element, self.values = tuple(shape), element, list(values)
        assert len(self.values) == math.prod(self.shape)

    def at(self, *index):
        position = 0
        for i, size in zip(index, self.shape):
            position = position * size + i
        return self.values[position]

    def __str__(self):
        return "tensor<" + "".join(f"{size}x" for size in self.shape) + self.element + ">"


def make(shape, element, low=-2.0, high=2.0):
    return Tensor(shape, element, [rounded(rng.uniform(low, high), element) for _ in range(math.prod(shape))])


def indices(shape):
    return itertools.product(*(range(size) for size in shape))


def write_npy(path, tensor):
    shape = "(" + "".join(f"{size}, " for size in tensor.shape) + ")"
    header = f"{{'descr': '{NPY[tensor.element]}', 'fortran_order': False, 'shape': {shape.replace(', )', ',)' if len(tensor.shape) == 1 else ')')}, }}"
    header = header.ljust(-(-(len(header) + 11) // 64) * 64 - 11) + "\n"
    values = [bf16_bits(v) for v in tensor.values] if tensor.element == "bf16" else tensor.values
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        file.write(struct.pack(f"<{len(values)}{CODES[tensor.element]}", *values))


def read_npy(path, element):
    content = open(path, "rb").read()
    length = struct.unpack("<H", content[8:10])[0]
    header = ast.literal_eval(content[10:10 + length].decode())
    assert header["descr"] == NPY[element], (path, header)
    values = struct.unpack(f"<{math.prod(header['shape'])}{CODES[element]}", content[10 + length:])
    return Tensor(header["shape"], element, [bf16_value(v) for v in values] if element == "bf16" else values)


class Suite:
    """Inputs, and for each result its name and what is expected of it: a function of the tensor that gives a complaint."""

    def __init__(self):
        self.arguments, self.lines, self.results = [], [], []

    def given(self, tensor):
        self.arguments.append(tensor)
        return f"%a{len(self.arguments) - 1}"

    def result(self, name, text, type_, check):
        self.lines.append(f"  %r{len(self.results)} = {text}")
        self.results.append((name, type_, check))

    def compute(self, name, inputs, shape, element, check):
        type_ = "tensor<" + "".join(f"{size}x" for size in shape) + element + ">"
        operands = ", ".join(self.given(tensor) for tensor in inputs)
        self.result(name, f'comm.compute "{name}"({operands}) : ({", ".join(map(str, inputs))}) -> {type_}', type_, check)

    def close(self, name, inputs, shape, element, values, tolerance=None):
        """Expects `values`, up to the rounding of the result."""
        if tolerance is None:
            tolerance = {"f64": 4e-15, "f32": 1.5e-7, "f16": 1e-3, "bf16": 8e-3}.get(element, 0)

        def check(tensor):
            for index, got, wanted in zip(indices(shape), tensor.values, values):
                if not abs(got - wanted) <= tolerance * max(1.0, abs(wanted)):
                    return f"{list(index)}: expected {wanted}, got {got}"
        self.compute(name, inputs, shape, element, check)


def elementwise(suite):
    unary = {
        "aten.relu.default": lambda x: max(x, 0.0), "neg": lambda x: 0.0 - x, "exp": lambda x: math.e**x,
        "tanh": lambda x: 1 - 2 / (math.exp(2 * x) + 1), "abs": lambda x: math.copysign(x, 1), "sin": math.sin,
        "cos": math.cos, "aten.sigmoid.default": lambda x: math.exp(x) / (1 + math.exp(x)),
        "aten.silu.default": lambda x: x * math.exp(x) / (math.exp(x) + 1),
        "aten.gelu.default": lambda x: x * (1 - 0.5 * math.erfc(x / math.sqrt(2))), "copy": lambda x: x,
        "aten.clone.default": lambda x: x}
    positive = {"sqrt": lambda x: x**0.5, "aten.rsqrt.default": lambda x: x**-0.5, "log": math.log,
                "aten.reciprocal.default": lambda x: x**-1}
    for element in ("f32", "f64", "bf16", "f16"):
        for functions, low in ((unary, -2.0), (positive, 0.25)):
            for name, function in functions.items():
                x = make((5, 7), element, low)
                suite.close(name, [x], x.shape, element, [function(v) for v in x.values])
    # More elements than are computed at a time.
    x = make((3, 700), "f32")
    suite.close("neg", [x], x.shape, "f32", [-v for v in x.values])
    binary = {"aten.add.Tensor": lambda x, y: x + y, "aten.sub.Tensor": lambda x, y: x - y, "mul": lambda x, y: x * y,
              "aten.div.Tensor": lambda x, y: x / y, "maximum": max, "minimum": min,
              "aten.pow.Tensor_Tensor": lambda x, y: math.exp(y * math.log(x)),
              "relu_backward": lambda g, x: g if x > 0 else 0.0,
              "aten.threshold_backward.default": lambda g, x: g if x > 0 else 0.0}
    for name, function in binary.items():
        low = 0.25 if "pow" in name or "div" in name else -2.0
        for shapes in (((4, 6), (4, 6)), ((4, 6), (6,)), ((4, 1), (1, 6)), ((4, 6), ())):
            x, y = make(shapes[0], "f32", low), make(shapes[1], "f32", low)
            pick = lambda t, i, j: t.at(*[k if size > 1 else 0 for k, size in
                                          zip((i, j)[2 - len(t.shape):], t.shape)])
            suite.close(name, [x, y], (4, 6), "f32",
                        [function(pick(x, i, j), pick(y, i, j)) for i, j in indices((4, 6))], tolerance=4e-7)
    for element in ("i32", "i8"):
        x, y = make((9,), element, -50, 50), make((9,), element, -50, 50)
        suite.close("add", [x, y], (9,), element, [a + b for a, b in zip(x.values, y.values)])
    x = make((40,), "f32", -9, 9)
    for element in ("bf16", "f16", "i32"):
        suite.close("aten._to_copy.default", [x], (40,), element, [rounded(v, element) for v in x.values], tolerance=0)


def rows(suite):
    x = make((3, 8), "f64")
    total = [sum(math.exp(x.at(i, j)) for j in range(8)) for i in range(3)]
    y = Tensor(x.shape, "f64", [math.exp(x.at(i, j)) / total[i] for i, j in indices(x.shape)])
    suite.close("aten._softmax.default", [x], x.shape, "f64", y.values)
    g = make((3, 8), "f64")
    # By the whole Jacobian: d y_k / d x_j = y_k (delta_jk - y_j).
    suite.close("aten._softmax_backward_data.default", [g, y], x.shape, "f64",
                [sum(g.at(i, k) * y.at(i, k) * ((j == k) - y.at(i, j)) for k in range(8)) for i, j in indices(x.shape)])
    x = make((2, 3, 5), "f64")
    fsum = lambda values: math.fsum(values)
    for name, scale in (("sum", lambda n: 1), ("aten.mean.dim", lambda n: 1 / n)):
        suite.close(name, [x], (), "f64", [fsum(x.values) * scale(30)])
        suite.close(name, [x], (2, 1, 5), "f64", [fsum(x.at(i, j, k) for j in range(3)) * scale(3)
                                                  for i in range(2) for k in range(5)])
        suite.close(name, [x], (2, 5), "f64", [fsum(x.at(i, j, k) for j in range(3)) * scale(3)
                                               for i in range(2) for k in range(5)])
        suite.close(name, [x], (5,), "f64", [fsum(x.at(i, j, k) for i in range(2) for j in range(3)) * scale(6)
                                             for k in range(5)])
        suite.close(name, [x], (2, 3), "f64", [fsum(x.at(i, j, k) for k in range(5)) * scale(5)
                                               for i in range(2) for j in range(3)])
    suite.close("aten.t.default", [m := make((3, 4), "i32", -9, 9)], (4, 3), "i32",
                [m.at(i, j) for j in range(4) for i in range(3)])
    suite.close("aten.transpose.int", [x], (2, 5, 3), "f64", [x.at(i, j, k) for i in range(2) for k in range(5)
                                                              for j in range(3)])
    suite.close("aten.transpose.int", [x], (3, 2, 5), "f64", [x.at(i, j, k) for j in range(3) for i in range(2)
                                                              for k in range(5)])
    suite.close("aten.transpose.int", [x], (5, 3, 2), "f64", [x.at(i, j, k) for k in range(5) for j in range(3)
                                                              for i in range(2)])


def ambiguous(suite):
    """Shapes that leave several possibilities get none of them."""
    x = make((4, 4), "f32")
    wrong = [[sum(x.at(i, j) for j in range(4)) for i in range(4)], [sum(x.at(i, j) for i in range(4)) for j in range(4)]]

    def check(tensor):
        if any(all(abs(a - b) < 1e-5 for a, b in zip(tensor.values, values)) for values in wrong):
            return f"expected an opaque result, got a sum: {tensor.values}"
    suite.compute("aten.sum.dim_IntList", [x], (4,), "f32", check)
    y = make((3, 3, 3), "f32")

    def check_swaps(tensor):
        for swap in ((1, 0, 2), (0, 2, 1), (2, 1, 0)):
            if all(tensor.at(*index) == y.at(*(index[d] for d in swap)) for index in indices(y.shape)):
                return "expected an opaque result, got a transposition"
    suite.compute("aten.transpose.int", [y], (3, 3, 3), "f32", check_swaps)


def product(left, right, k, element, start=0.0):
    """One sum in order of k. `left` and `right` give elements by k."""
    total = start
    for i in range(k):
        step = left(i) * right(i)
        total = f32(total + f32(step)) if element != "f64" else total + step
    return rounded(total, element)


def products(suite):
    def expect(left, right, k, shape, element, start=lambda *index: 0.0, samples=None):
        chosen = list(indices(shape)) if samples is None else [tuple(rng.randrange(size) for size in shape)
                                                               for _ in range(samples)]

        def check(tensor):
            for index in chosen:
                wanted = product(lambda x: left(x, *index), lambda x: right(x, *index), k, element, start(*index))
                if tensor.at(*index) != wanted:
                    return f"{list(index)}: expected {wanted}, got {tensor.at(*index)}"
        return check

    for element in ("f32", "bf16", "f16", "f64"):
        m, k, n = 13, 37, 29
        a, b = make((m, k), element), make((k, n), element)
        suite.compute("aten.mm.default", [a, b], (m, n), element,
                      expect(lambda x, i, j: a.at(i, x), lambda x, i, j: b.at(x, j), k, (m, n), element))
        bias = make((n,), element)
        suite.compute("aten.addmm.default", [bias, a, b], (m, n), element,
                      expect(lambda x, i, j: a.at(i, x), lambda x, i, j: b.at(x, j), k, (m, n), element,
                             lambda i, j: bias.at(j)))
        # Closures see the variables of the last iteration: checks run at the end.
        check_of = lambda a, b, bias=None: expect(
            lambda x, i, j: a.at(i, x), lambda x, i, j: b.at(x, j), k, (m, n), element,
            (lambda i, j: bias.at(j)) if bias else (lambda i, j: 0.0))
        suite.results[-2] = (*suite.results[-2][:2], check_of(a, b))
        suite.results[-1] = (*suite.results[-1][:2], check_of(a, b, bias))
    c, d = make((3, 6, 5), "f32"), make((3, 5, 7), "f32")
    suite.compute("aten.bmm.default", [c, d], (3, 6, 7), "f32",
                  expect(lambda x, b, i, j: c.at(b, i, x), lambda x, b, i, j: d.at(b, x, j), 5, (3, 6, 7), "f32"))
    # Beyond every block.
    e, f = make((400, 300), "bf16"), make((300, 1100), "bf16")
    suite.compute("mm", [e, f], (400, 1100), "f32",
                  expect(lambda x, i, j: e.at(i, x), lambda x, i, j: f.at(x, j), 300, (400, 1100), "f32", samples=150))

    def linalg(name, text, inputs, init, left, right, k):
        names = [suite.given(tensor) for tensor in inputs]
        out = suite.given(init)
        types = ", ".join(map(str, inputs))
        suite.result(name, f"{text} ins({', '.join(names)} : {types}) outs({out} : {init}) -> {init}", str(init),
                     expect(left, right, k, init.shape, init.element, init.at))

    maps = {"mk": "(m, k)", "km": "(k, m)", "kn": "(k, n)", "nk": "(n, k)"}
    for left in ("mk", "km"):
        for right in ("kn", "nk"):
            sizes = {"m": 9, "k": 33, "n": 35}
            a, b, init = (make([sizes[d] for d in dims], "f32") for dims in (left, right, "mn"))
            layout = ", ".join(f"affine_map<(m, n, k) -> {text}>" for text in (maps[left], maps[right], "(m, n)"))
            linalg(f"matmul {left} {right}", f"linalg.matmul indexing_maps = [{layout}]", [a, b], init,
                   lambda x, i, j, a=a, t=left == "km": a.at(x, i) if t else a.at(i, x),
                   lambda x, i, j, b=b, t=right == "nk": b.at(j, x) if t else b.at(x, j), 33)
    c2, d2, init = make((2, 4, 6), "bf16"), make((2, 6, 3), "bf16"), make((2, 4, 3), "f32")
    linalg("batch_matmul of bf16 to f32", "linalg.batch_matmul", [c2, d2], init,
           lambda x, b, i, j: c2.at(b, i, x), lambda x, b, i, j: d2.at(b, x, j), 6)


def main():
    tool, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    suite = Suite()
    for part in (elementwise, rows, ambiguous, products):
        part(suite)
    arguments = ", ".join(f"%a{i}: {tensor}" for i, tensor in enumerate(suite.arguments))
    types = ", ".join(type_ for _, type_, _ in suite.results)
    returned = ", ".join(f"%r{i}" for i in range(len(suite.results)))
    path = os.path.join(folder, "kernels.mlir")
    with open(path, "w") as file:
        file.write(f"func.func @main({arguments}) -> ({types}) {{\n" + "\n".join(suite.lines) +
                   f"\n  return {returned} : {types}\n}}\n")
    command = [tool, path, "--output", os.path.join(folder, "out")]
    for i, tensor in enumerate(suite.arguments):
        write_npy(os.path.join(folder, f"in{i}.npy"), tensor)
        command += ["--input", f"{i}={os.path.join(folder, f'in{i}.npy')}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        print(done.stdout + done.stderr)
        return 1
    failures = 0
    for i, (name, type_, check) in enumerate(suite.results):
        element = type_[type_.rindex("x") + 1:-1] if "x" in type_ else type_[7:-1]
        complaint = check(read_npy(os.path.join(folder, "out", f"rank0_result{i}.npy"), element))
        if complaint:
            failures += 1
            print(f"{name} -> {type_}: {complaint}")
    print(f"{len(suite.results)} results, {failures} wrong")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
