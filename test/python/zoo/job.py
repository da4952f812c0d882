# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the models of the zoo have in common: a job, sharding, checkpoints, attention."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable

import torch
import torch.nn as nn
import torch.nn.functional as F

from commsched.torch.sharding import fully_shard_parameters

WIDTH, HEADS, VOCABULARY, SEQUENCE = 32, 4, 50, 6

# Whether and how `block` checkpoints its activations: None, "full" or "selective".
checkpoints: str | None = None


@dataclasses.dataclass
class Job:
    """A model in training on this rank.

    Args:
        loss: maps a batch to a scalar.
        parameters: those that are trained.
        batch: the batch of a step, given the step and the number of rows.
        outside: communication takes place outside of all graphs, so that nothing can be scheduled.
    """

    loss: Callable
    parameters: Iterable[nn.Parameter]
    batch: Callable[[int, int], tuple]
    outside: bool = False

    def __post_init__(self):
        self.parameters = list(self.parameters)

    def compiled(self, compiled):
        """The loss, compiled."""
        return compiled(self.loss)


def local(tensor):
    """This rank's part of a DTensor, or the tensor itself."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def mesh_of(*sizes, names=None):
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", sizes, mesh_dim_names=names)


def sharded(model, mesh, **dtypes):
    """Splits all parameters over `mesh`."""
    fully_shard_parameters(model, lambda module: mesh, dtypes.get("dtype"), dtypes.get("reduce_dtype"))
    return model


def generator(rank, step):
    """Random numbers of one step on one rank."""
    return torch.Generator().manual_seed(1000 * rank + step + 1)


def tokens(rank, step, rows, length=SEQUENCE):
    return torch.randint(0, VOCABULARY, (rows, length), generator=generator(rank, step))


def _saved(context, operator, *args, **kwargs):
    from torch.utils.checkpoint import CheckpointPolicy

    saved = operator in (torch.ops.aten.mm.default, torch.ops._c10d_functional.wait_tensor.default)
    return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE


def block(f, *args):
    """f(*args), whose activations are recomputed in the backward pass if the mode asks for it."""
    from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

    if checkpoints is None:
        return f(*args)
    more = {}
    if checkpoints == "selective":
        more["context_fn"] = functools.partial(create_selective_checkpoint_contexts, _saved)
    return checkpoint(f, *args, use_reentrant=False, **more)


class Attention(nn.Module):
    """Causal, or not, with rotary positions and norms of queries and keys if `modern`, as in Qwen3."""

    def __init__(self, modern):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=not modern), nn.Linear(WIDTH, WIDTH, bias=not modern)
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH // HEADS) for _ in range(2)) if modern else None

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        if self.norms is not None:
            q, k = (rotated(norm(t)) for norm, t in zip(self.norms, (q, k)))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.norms is not None)
        return self.out(y.transpose(1, 2).flatten(2))


def rotated(t, first=0):
    """Rotary positions of t[..., position, channel]. The position of the first row is `first`."""
    half = t.shape[-1] // 2
    angle = (first + torch.arange(t.shape[-2])).unsqueeze(1) * 0.1 ** torch.arange(half)
    a, b = t[..., :half], t[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1).to(t.dtype)


class Mlp(nn.Module):
    """A gated feed-forward layer."""

    def __init__(self, inner=2 * WIDTH):
        super().__init__()
        self.gate, self.up = nn.Linear(WIDTH, inner, bias=False), nn.Linear(WIDTH, inner, bias=False)
        self.down = nn.Linear(inner, WIDTH, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    """A layer of a decoder."""

    def __init__(self):
        super().__init__()
        self.norms, self.attention, self.mlp = (
            nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(2)),
            Attention(True),
            Mlp(),
        )

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class Decoder(nn.Module):
    """A language model: the mean cross-entropy of the given tokens."""

    def __init__(self, layers=1, tied=False):
        super().__init__()
        self.embedding, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.layers, self.norm = nn.ModuleList(Layer() for _ in range(layers)), nn.RMSNorm(WIDTH)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, batch):
        x = self.embedding(batch)
        for layer in self.layers:
            x = block(layer, x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), batch.flatten())
