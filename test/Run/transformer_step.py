#!/usr/bin/env python3
#===- transformer_step.py - A training step of a transformer, fully sharded --------------------------------------===#
#
# Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
#
# Prints a training step as a program of comm ops: forward, backward and an Adam-like update, with the structure that fully
# sharded data parallelism gives it. Each rank keeps a shard of every parameter; a layer's parameters are gathered before
# its forward and again before its backward, its gradients are packed and reduce-scattered, and the update touches the
# shards only. Every computation has a reference kernel in the runtime, so the numbers are those of a real step and the loss
# goes down. The result is the loss.
#
#   transformer_step.py RANKS [LAYERS] > step.mlir
#
#===-------------------------------------------------------------------------------------------------------------===#

import sys

TOKENS, WIDTH, HIDDEN = 8, 16, 32


def tensor(shape):
    return "tensor<" + "".join(f"{extent}x" for extent in shape) + "f32>"


def elements(shape):
    total = 1
    for extent in shape:
        total *= extent
    return total


class Step:
    def __init__(self, ranks, layers):
        self.ranks, self.layers = ranks, layers
        self.lines, self.shapes, self.arguments, self.count = [], {}, [], 0
        self.parameters = {"wq": (WIDTH, WIDTH), "wk": (WIDTH, WIDTH), "wv": (WIDTH, WIDTH), "wo": (WIDTH, WIDTH),
                           "w1": (WIDTH, HIDDEN), "w2": (HIDDEN, WIDTH), "g1": (WIDTH,), "g2": (WIDTH,)}

    def new(self, shape):
        self.count += 1
        self.shapes[f"%{self.count}"] = shape
        return f"%{self.count}"

    def argument(self, name, shape):
        self.arguments.append(f"%{name}")
        self.shapes[f"%{name}"] = shape
        return f"%{name}"

    def types(self, values):
        return ", ".join(tensor(self.shapes[v]) for v in values)

    def compute(self, name, shape, *inputs):
        # A roofline would see almost nothing at this size: as many ns as a large step has us.
        cost = 4000 if name == "mm" else 300
        result = self.new(shape)
        self.lines.append(f'{result} = comm.compute "aten.{name}"({", ".join(inputs)}) {{comm.cost = #comm.cost<time = '
                          f"{cost}>}} : ({self.types(inputs)}) -> {tensor(shape)}")
        return result

    def mm(self, a, b):
        return self.compute("mm", (self.shapes[a][0], self.shapes[b][1]), a, b)

    def t(self, a):
        return self.compute("t", self.shapes[a][::-1], a)

    def like(self, name, a, *others):
        return self.compute(name, self.shapes[a], a, *others)

    def constant(self, value):
        result = self.new((1,))
        self.lines.append(f"{result} = arith.constant dense<{value:.6e}> : tensor<1xf32>")
        return result

    # -- communication

    def wait(self, start, shape):
        future, result = self.new(()), self.new(shape)
        self.lines += [f"{future} = {start} -> !comm.future<{tensor(shape)}>",
                       f"{result} = comm.wait {future} : !comm.future<{tensor(shape)}>"]
        return result

    def gather(self, layer):
        """The layer's parameters from all ranks."""
        shards = [self.shards[layer, name] for name in self.parameters]
        sizes = [elements(self.shapes[v]) for v in shards]
        slice_, buffer = self.new((sum(sizes),)), self.new((sum(sizes) * self.ranks,))
        self.lines.append(f"{slice_}, {buffer} = comm.fsdp.all_gather_copy_in {', '.join(shards)} on @dp : "
                          f"({self.types(shards)}) -> ({self.types([slice_, buffer])})")
        full = self.wait(f"comm.all_gather {slice_} on @dp : ({self.types([slice_])})", self.shapes[buffer])
        pieces = [self.new(shape) for shape in self.parameters.values()]
        self.lines.append(f"{', '.join(pieces)} = comm.fsdp.split_with_sizes_copy {full} sizes {sizes} : "
                          f"({self.types([full])}) -> ({self.types(pieces)})")
        return dict(zip(self.parameters, pieces))

    def scatter(self, gradients):
        """This rank's shards of the gradients, averaged over all ranks."""
        values = [gradients[name] for name in self.parameters]
        sizes = [elements(self.shapes[v]) // self.ranks for v in values]
        cat = self.new((sum(sizes) * self.ranks,))
        self.lines.append(f"{cat} = comm.fsdp.chunk_cat {', '.join(values)} chunks {self.ranks} : ({self.types(values)}) "
                          f"-> {self.types([cat])}")
        shard = self.wait(f"comm.reduce_scatter avg {cat} on @dp : ({self.types([cat])})", (sum(sizes),))
        pieces = [self.new((s[0] // self.ranks, *s[1:])) for s in self.parameters.values()]
        self.lines.append(f"{', '.join(pieces)} = comm.fsdp.split_with_sizes {shard} sizes {sizes} : "
                          f"({self.types([shard])}) -> ({self.types(pieces)})")
        return dict(zip(self.parameters, pieces))

    # -- layers

    def norm(self, x, gain):
        mean = self.compute("mean.dim", (TOKENS, 1), self.like("mul.Tensor", x, x))
        scale = self.like("rsqrt", self.like("add.Tensor", mean, self.epsilon))
        normal = self.like("mul.Tensor", x, scale)
        return self.like("mul.Tensor", normal, gain), (scale, normal)

    def norm_backward(self, gradient, gain, saved):
        scale, normal = saved
        gain_gradient = self.compute("sum.dim_IntList", (WIDTH,), self.like("mul.Tensor", gradient, normal))
        inner = self.like("mul.Tensor", gradient, gain)
        dot = self.compute("mean.dim", (TOKENS, 1), self.like("mul.Tensor", inner, normal))
        centred = self.like("sub.Tensor", inner, self.like("mul.Tensor", normal, dot))
        return self.like("mul.Tensor", centred, scale), gain_gradient

    def forward(self, x, p):
        h, norm1 = self.norm(x, p["g1"])
        q, k, v = (self.mm(h, p[name]) for name in ("wq", "wk", "wv"))
        scores = self.like("mul.Tensor", self.mm(q, self.t(k)), self.scale)
        weights = self.like("_softmax", scores)
        mixed = self.mm(weights, v)
        middle = self.like("add.Tensor", x, self.mm(mixed, p["wo"]))
        h2, norm2 = self.norm(middle, p["g2"])
        inner = self.mm(h2, p["w1"])
        active = self.like("relu", inner)
        out = self.like("add.Tensor", middle, self.mm(active, p["w2"]))
        return out, (h, norm1, q, k, v, weights, mixed, h2, norm2, inner, active)

    def backward(self, gradient, p, saved):
        h, norm1, q, k, v, weights, mixed, h2, norm2, inner, active = saved
        grads = {"w2": self.mm(self.t(active), gradient)}
        d_inner = self.like("threshold_backward", self.mm(gradient, self.t(p["w2"])), inner)
        grads["w1"] = self.mm(self.t(h2), d_inner)
        d_middle, grads["g2"] = self.norm_backward(self.mm(d_inner, self.t(p["w1"])), p["g2"], norm2)
        d_middle = self.like("add.Tensor", gradient, d_middle)
        grads["wo"] = self.mm(self.t(mixed), d_middle)
        d_mixed = self.mm(d_middle, self.t(p["wo"]))
        d_v = self.mm(self.t(weights), d_mixed)
        d_weights = self.mm(d_mixed, self.t(v))
        d_scores = self.like("mul.Tensor", self.like("_softmax_backward_data", d_weights, weights), self.scale)
        d_q, d_k = self.mm(d_scores, k), self.mm(self.t(d_scores), q)
        d_h = None
        for name, d in (("wq", d_q), ("wk", d_k), ("wv", d_v)):
            grads[name] = self.mm(self.t(h), d)
            part = self.mm(d, self.t(p[name]))
            d_h = self.like("add.Tensor", d_h, part) if d_h else part
        d_x, grads["g1"] = self.norm_backward(d_h, p["g1"], norm1)
        return self.like("add.Tensor", d_middle, d_x), grads

    def update(self, layer, name, gradient):
        """Adam without its bias correction, written into the shard and its two moments."""
        shard, first, second = (self.state[kind, layer, name] for kind in ("p", "m", "v"))
        mul, add = lambda a, b: self.like("mul.Tensor", a, b), lambda a, b: self.like("add.Tensor", a, b)
        # Where a run fills the moments at random, the second one must not be negative.
        new_first = add(mul(first, self.decay), mul(gradient, self.keep))
        new_second = add(mul(self.like("abs", second), self.decay), mul(mul(gradient, gradient), self.keep))
        step = self.like("div.Tensor", new_first, self.like("sqrt", add(new_second, self.epsilon)))
        new = self.like("sub.Tensor", shard, mul(step, self.rate))
        for value, where in ((new, shard), (new_first, first), (new_second, second)):
            self.lines.append(f"comm.fsdp.copy {value} into {where} : {self.types([value])} into {self.types([where])}")

    def build(self):
        x, target = self.argument("x", (TOKENS, WIDTH)), self.argument("target", (TOKENS, WIDTH))
        self.state = {(kind, layer, name): self.argument(f"{kind}{layer}_{name}", (s[0] // self.ranks, *s[1:]))
                      for kind in ("p", "m", "v") for layer in range(self.layers) for name, s in self.parameters.items()}
        self.shards = {key[1:]: value for key, value in self.state.items() if key[0] == "p"}
        self.epsilon, self.scale = self.constant(1e-3), self.constant(WIDTH ** -0.5)
        self.decay, self.keep, self.rate = self.constant(0.5), self.constant(0.5), self.constant(0.01)
        saved = []
        for layer in range(self.layers):
            x, kept = self.forward(x, self.gather(layer))
            saved.append(kept)
        difference = self.like("sub.Tensor", x, target)
        local = self.compute("mean", (1,), self.like("mul.Tensor", difference, difference))
        loss = self.wait(f"comm.all_reduce avg {local} on @dp : (tensor<1xf32>)", (1,))
        gradient = self.like("mul.Tensor", difference, self.constant(2 / (TOKENS * WIDTH)))
        for layer in reversed(range(self.layers)):
            gradient, grads = self.backward(gradient, self.gather(layer), saved[layer])
            for name, shard in self.scatter(grads).items():
                self.update(layer, name, shard)
        listed = ", ".join(f"{v}: {self.types([v])}" for v in self.arguments)
        return "\n".join([f"comm.group @dp #comm.iota<[1, {self.ranks}]>", "",
                          f"func.func @main({listed}) -> tensor<1xf32> {{", *("  " + line for line in self.lines),
                          f"  return {loss} : tensor<1xf32>", "}"])


if __name__ == "__main__":
    print(Step(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3).build())
