#!/usr/bin/env python3
#===- tensor_parallel_step.py - A forward step of a transformer, tensor-parallel ---------------------------------===#
#
# Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Prints the forward step of a transformer whose layers are divided over the ranks: each rank has a part of the heads and
# of the hidden units, and two reductions per layer add up what the ranks computed. Every computation has a reference
# kernel, so the numbers are those of a real step. Tokens are split into strands everywhere but in the softmax's operands.
#
#   tensor_parallel_step.py RANKS [LAYERS] > step.mlir
#
#===-------------------------------------------------------------------------------------------------------------===#

import sys

TOKENS, WIDTH, HEAD, HIDDEN = 16, 24, 8, 12


def tensor(shape):
    return "tensor<" + "".join(f"{extent}x" for extent in shape) + "f32>"


class Step:
    def __init__(self):
        self.lines, self.shapes, self.arguments = [], {}, []

    def argument(self, *shape):
        name = f"%arg{len(self.arguments)}"
        self.arguments.append(name)
        self.shapes[name] = shape
        return name

    def emit(self, text, shape):
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        self.shapes[name] = shape
        return name

    def compute(self, name, shape, *inputs):
        types = ", ".join(tensor(self.shapes[v]) for v in inputs)
        return self.emit(f'comm.compute "aten.{name}"({", ".join(inputs)}) : ({types}) -> {tensor(shape)}', shape)

    def like(self, name, a, *others):
        return self.compute(name, self.shapes[a], a, *others)

    def mm(self, a, b):
        return self.compute("mm", (self.shapes[a][0], self.shapes[b][1]), a, b)

    def reduce(self, a):
        type_ = tensor(self.shapes[a])
        future = self.emit(f"comm.all_reduce sum {a} on @tp : ({type_}) -> !comm.future<{type_}>", None)
        return self.emit(f"comm.wait {future} : !comm.future<{type_}>", self.shapes[a])

    def norm(self, x):
        mean = self.compute("mean.dim", (TOKENS, 1), self.like("mul.Tensor", x, x))
        normal = self.like("mul.Tensor", x, self.like("rsqrt", self.like("add.Tensor", mean, self.epsilon)))
        return self.like("mul.Tensor", normal, self.argument(WIDTH))

    def layer(self, x):
        h = self.norm(x)
        q, k, v = (self.mm(h, self.argument(WIDTH, HEAD)) for _ in range(3))
        weights = self.like("_softmax", self.mm(q, self.compute("t", (HEAD, TOKENS), k)))
        x = self.like("add.Tensor", x, self.reduce(self.mm(self.mm(weights, v), self.argument(HEAD, WIDTH))))
        inner = self.like("silu", self.mm(self.norm(x), self.argument(WIDTH, HIDDEN)))
        return self.like("add.Tensor", x, self.reduce(self.mm(inner, self.argument(HIDDEN, WIDTH))))

    def build(self, ranks, layers):
        x = self.argument(TOKENS, WIDTH)
        self.epsilon = self.emit("arith.constant dense<1.000000e-03> : tensor<1xf32>", (1,))
        for _ in range(layers):
            x = self.layer(x)
        listed = ", ".join(f"{v}: {tensor(self.shapes[v])}" for v in self.arguments)
        return "\n".join([f"comm.group @tp #comm.iota<[1, {ranks}]>", f"func.func @main({listed}) -> {tensor(self.shapes[x])} {{",
                          *self.lines, f"  return {x} : {tensor(self.shapes[x])}", "}"])


if __name__ == "__main__":
    print(Step().build(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3))
