# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Random models as Python source, a line for each layer. `fuzz.py` trains them, several of one structure in a process.

Parameters are sharded, tensor-parallel, or the rank's own, and collectives carry parameters, gradients and activations.
All numbers are small and whole, in float64, so that sums are exact in any order.
"""

from __future__ import annotations

import random

import torch
from random_steps import Value
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from commsched.torch.sharding import fully_shard_parameters

# The variants of a model: (width, rows of the batch). The second is another model, and the third has another batch.
VARIANTS = ((8, 8), (24, 8), (8, 16))


def _parameter(*shape: int) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.randint(-1, 2, shape).double())


class Own(torch.nn.Module):
    """A parameter that each rank keeps whole."""

    def __init__(self, *shape: int):
        super().__init__()
        self.w = _parameter(*shape)

    def forward(self) -> torch.Tensor:
        return self.w


class Sharded(Own):
    """A parameter of which each rank keeps some rows."""

    def __init__(self, mesh, *shape: int, frozen: bool = False):
        super().__init__(*shape)
        self.w.requires_grad_(not frozen)
        fully_shard_parameters(self, lambda module: mesh, None)


class Pair(torch.nn.Module):
    """Two tensor-parallel products."""

    def __init__(self, mesh, width: int, hidden: int):
        super().__init__()
        self.up, self.down = (torch.nn.Linear(*s, bias=False) for s in ((width, hidden), (hidden, width)))
        for layer in (self.up, self.down):
            layer.weight = _parameter(*layer.weight.shape)
        parallelize_module(self, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


SCOPE = dict(Own=Own, Sharded=Sharded, Pair=Pair)


class RandomModel:
    """A random model and its step: `lines` of the layers, `returned` values, and the `arguments` of the step.

    Args:
        seed: decides everything.
        variant: one of the models of this structure.

    Attributes:
        chained: whether the model has layers that are worth splitting into strands.
        joined: no argument is a view of another one.
    """

    joined = False

    def __init__(self, seed: int, variant: int = 0):
        self.r, (self.width, rows) = random.Random(seed), VARIANTS[variant]
        self.arguments = {"x": Value((rows, self.width))}
        self.modules: dict[str, str] = {}
        self.values = ["x"]
        self.lines: list[str] = []
        layers = [getattr(self, name) for name in sorted(dir(type(self))) if name.startswith("one_")]
        for _ in range(self.r.randint(4, 10)):
            text = self.r.choice(layers)(self.r.choice(self.values[-2:]))
            self.values.append(f"v{len(self.lines)}")
            self.lines.append(f"{self.values[-1]} = torch.clamp({text}, -8, 8)")
        self.chained = any(text.startswith("Pair") for text in self.modules.values())
        read = {n for n in self.values for line in self.lines if f" {n}" in line.replace("(", " ")}
        self.returned = [n for n in self.values[1:] if n not in read or self.r.random() < 0.2]

    def source(self, lines: list[str] | None = None, returned: list[str] | None = None) -> str:
        """The model `net` and the function `step`."""
        lines, returned = self.lines if lines is None else lines, self.returned if returned is None else returned
        used = [f"net.{m} = {text}" for m, text in self.modules.items() if any(f"net.{m}(" in line for line in lines)]
        made = "\n".join(["torch.manual_seed(0)", "net = torch.nn.Module()", *used])
        loss = " + ".join(f"({n}).square().sum()" for n in returned)
        body = "\n    ".join(["x = x.double()", *lines, f"return {loss}"])
        return f"{made}\n\n\ndef step(x):\n    {body}\n"

    def _new(self, text: str) -> str:
        """The name of a module: a new one, or one of the same kind that was there before."""
        known = [m for m, t in self.modules.items() if t == text]
        if known and self.r.random() < 0.3:
            return self.r.choice(known)
        self.modules[f"m{len(self.modules)}"] = text
        return f"m{len(self.modules) - 1}"

    def one_sharded(self, n: str) -> str:
        frozen = ", frozen=True" if self.r.random() < 0.15 else ""
        return f"{n} @ net.{self._new(f'Sharded(M, {self.width}, {self.width}{frozen})')}()"

    def one_uneven(self, n: str) -> str:
        """Ranks have other numbers of rows, or none."""
        rows = self.r.choice([1, self.width + 1])
        if rows == 1:
            return f"{n} + net.{self._new(f'Sharded(M, 1, {self.width})')}()"
        return f"{n} @ net.{self._new(f'Sharded(M, {rows}, {self.width})')}()[1:]"

    def one_two_sharded(self, n: str) -> str:
        up, down = (self._new(f"Sharded(M, {a}, {b})") for a, b in ((self.width, 32), (32, self.width)))
        return f"torch.relu({n} @ net.{up}()) @ net.{down}()"

    def one_pair(self, n: str) -> str:
        return f"net.{self._new(f'Pair(L, {self.width}, 16)')}({n}.contiguous())"

    def one_own(self, n: str) -> str:
        return f"{n} * 2 - {n} @ net.{self._new(f'Own({self.width}, {self.width})')}()"

    def one_gathered(self, n: str) -> str:
        """An activation is gathered and reduced again."""
        gathered = f"fc.all_gather_tensor_autograd({n}, 0, G)"
        return f'fc.reduce_scatter_tensor_autograd({gathered}, "sum", 0, G) + {n}'

    def one_reduced(self, n: str) -> str:
        """Statistics of an activation, which have no gradient."""
        what = self.r.choice([n, f"{n}.sum(0, keepdim=True)", f"{n}[:2].contiguous()"])
        rows = "[:1]" if what != n else ""
        return f'{n} - W(C.all_reduce({what}.detach(), "{self.r.choice(["sum", "max"])}", G)){rows}'

    def one_pointwise(self, n: str) -> str:
        return self.r.choice([f"torch.relu({n})", f"{n} + 1", f"{n} * {n}"])
