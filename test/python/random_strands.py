# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Random functions of tensor-parallel layers, whose results are exact whatever the number of rows.

They know operators and shapes, and nothing about splitting. What PyTorch computes for the unsplit graph is the truth.
Products are of small whole numbers, so libraries may add in any order. Everything else that rounds is rounded to a
whole number before the next product.
"""

import random

import torch

c10d = torch.ops._c10d_functional


class RandomLayers:
    """A function of one activation and its weights. `shapes` are those of its arguments."""

    def __init__(self, seed, ranks, group):
        self.seed, self.ranks, self.group = seed, ranks, group
        self.rows = random.Random(seed).choice([8, 16, 24])
        self.shapes = [(self.rows, 8)]
        self._build(None)  # Collects the shapes of the weights.

    def inputs(self, rank):
        """Small whole numbers: the same weights on all ranks would hide a wrong group."""
        generator = torch.Generator().manual_seed(1000 * self.seed + rank)
        return [torch.randint(-2, 3, shape, generator=generator).float() for shape in self.shapes]

    def __call__(self, *arguments):
        return self._build(list(arguments))

    def _build(self, arguments):
        self.rng, self.arguments, self.used = random.Random(self.seed + 1), arguments, 0
        if arguments is None:
            self.shapes = self.shapes[:1]
        values = [self._argument(self.shapes[0])]
        for _ in range(self.rng.randint(6, 16)):
            made = self.rng.choice([self.product] * 3 + [self.reduce] * 3 + STEPS)
            x = self.rng.choice(values[-3:])
            result = made(self, x) if made in STEPS else made(x)
            if result is not None:
                values.append(result)
        return [v.clone() for v in values[-3:]]

    def _argument(self, shape):
        self.used += 1
        if self.arguments is not None:
            return self.arguments[self.used - 1]
        if self.used > 1:
            self.shapes.append(tuple(shape))
        return torch.zeros(shape)

    def product(self, x):
        if x.dim() != 2:
            return None
        return torch.clamp(x @ self._argument((x.shape[1], self.rng.choice([4, 8]))), -4, 4)

    def reduce(self, x):
        if self.arguments is None:
            return x
        return c10d.wait_tensor(c10d.all_reduce(x.contiguous(), self.rng_free("sum"), self.group))

    @staticmethod
    def rng_free(kind):
        return kind

    def gather(self, x):
        if x.numel() * self.ranks > 4096:
            return None
        if self.arguments is None:
            return torch.zeros((x.shape[0] * self.ranks, *x.shape[1:]))
        return c10d.wait_tensor(c10d.all_gather_into_tensor(x.contiguous(), self.ranks, self.group))

    def scatter(self, x):
        if x.shape[0] % self.ranks:
            return None
        if self.arguments is None:
            return torch.zeros((x.shape[0] // self.ranks, *x.shape[1:]))
        return c10d.wait_tensor(c10d.reduce_scatter_tensor(x.contiguous(), "sum", self.ranks, self.group))


def _round(x):
    return torch.clamp(torch.round(x), -4, 4)


def _heads(self, x):
    return (
        x.view(x.shape[0], 2, x.shape[1] // 2) if x.dim() == 2 and x.shape[1] % 2 == 0 and x.is_contiguous() else None
    )


def _flat(self, x):
    return x.reshape(x.shape[0], -1) if x.dim() == 3 else None


def _reversed_rows(x):
    return torch.arange(x.shape[0] - 1, -1, -1)


STEPS = [
    RandomLayers.gather,
    RandomLayers.scatter,
    _heads,
    _flat,
    lambda self, x: torch.relu(x),
    lambda self, x: torch.clamp(x + self._argument(x.shape[-1:]), -4, 4),
    lambda self, x: _round(torch.softmax(x, self.rng.randrange(x.dim())) * 4),
    lambda self, x: _round(x.mean(self.rng.randrange(x.dim()), keepdim=True) + x),
    lambda self, x: x.transpose(0, x.dim() - 1),
    lambda self, x: torch.cat([x, torch.relu(x)], self.rng.randrange(x.dim())) if x.numel() < 2048 else None,
    lambda self, x: x.narrow(self.rng.randrange(x.dim()), 0, 4) if min(x.shape) >= 4 else None,
    lambda self, x: x.select(0, 0) if x.dim() == 3 else None,
    lambda self, x: _round(torch.nn.functional.layer_norm(x, x.shape[-1:])),
    lambda self, x: torch.clamp(x.t() @ torch.relu(x), -4, 4) if x.dim() == 2 else None,
    lambda self, x: torch.clamp(x + x.sum(0), -4, 4),
    lambda self, x: torch.sort(x, 0)[0],
    lambda self, x: torch.cumsum(x, 0).clamp(-4, 4),
    lambda self, x: torch.nn.functional.pad(x, (0, 0, 1, -1)),
    lambda self, x: torch.nn.functional.pad(x, (1, 1)) if x.numel() < 2048 else None,
    lambda self, x: x[_reversed_rows(x)],
    lambda self, x: torch.zeros_like(x).index_put((_reversed_rows(x) // 2,), x, accumulate=True).clamp(-4, 4),
]
