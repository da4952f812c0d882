# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Common parts of the models of the zoo: sizes, a job, sharding, checkpoints, attention."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable

import torch
import torch.nn as nn
import torch.nn.functional as F

from commsched.torch.sharding import fully_shard_parameters


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Dimensions of a model. Each model takes those that it knows. The defaults train in seconds on a CPU.

    Args:
        dtype: the element type in which sharded parameters are gathered; None for their own.
        rows: samples per rank in a batch.
        kv_heads: heads of keys and values; None for `heads`.
        inner: width of feed-forward layers.
        dense: in a mixture of experts, the number of first layers with a dense feed-forward.
        own_experts, chosen: experts per rank, and experts per token.
        query, narrow, rotary: the widths of DeepSeek's compressed queries, compressed keys and values, and rotary part.
        state: numbers per channel in the state of a state space layer.
        image, channels, patch: pixels along an image's edge, their channels, and pixels along the edge of a patch.
        tables, entries, lookups: tables per rank, rows of a table, and rows that a sample looks up in it.
    """

    dtype: torch.dtype | None = None
    rows: int = 4
    layers: int = 1
    width: int = 32
    heads: int = 4
    head: int = 8
    kv_heads: int | None = None
    inner: int = 64
    vocabulary: int = 50
    sequence: int = 6
    dense: int = 1
    own_experts: int = 1
    chosen: int = 2
    expert_inner: int = 64
    query: int = 16
    narrow: int = 8
    rotary: int = 4
    state: int = 4
    image: int = 8
    channels: int = 3
    patch: int = 4
    classes: int = 10
    tables: int = 1
    entries: int = 40
    lookups: int = 3


SMALL = Sizes()
TWO_LAYERS = dataclasses.replace(SMALL, layers=2)

# Whether and how `block` checkpoints its activations: None, "full" or "selective".
checkpoints: str | None = None


@dataclasses.dataclass
class Job:
    """A model in training on this rank.

    Args:
        loss: maps a batch to a scalar.
        modules: hold the parameters that are trained.
        batch: the batch of a step, given the step and the number of rows.
        outside: communication takes place outside of all graphs, so that nothing can be scheduled.
    """

    loss: Callable
    modules: Iterable[nn.Module]
    batch: Callable[[int, int], tuple]
    outside: bool = False

    def __post_init__(self):
        self.parameters = list(nn.ModuleList(self.modules).parameters())

    def compiled(self, compiled):
        """The loss, compiled."""
        return compiled(self.loss)


def local(tensor):
    """This rank's part of a DTensor, or the tensor itself."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def mesh_of(*sizes, names=None):
    """A mesh of the CPU's ranks. It is made of real tensors, also among fake ones."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    from torch.distributed.device_mesh import init_device_mesh

    with unset_fake_temporarily():
        return init_device_mesh("cpu", sizes, mesh_dim_names=names)


def part_of(mesh, *names):
    """The dimensions `names` of a mesh."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily():
        return mesh[names]


def sharded(model, mesh, dtype, reduce_dtype=None):
    """Splits all parameters over `mesh`. They are gathered in `dtype`."""
    fully_shard_parameters(model, lambda module: mesh, dtype, reduce_dtype)
    return model


def generator(rank, step):
    """Random numbers of one step on one rank."""
    return torch.Generator().manual_seed(1000 * rank + step + 1)


def tokens(sizes, rank):
    """What makes a batch of tokens, given the step and the number of rows."""
    shape = (sizes.sequence,)
    return lambda step, rows: (torch.randint(0, sizes.vocabulary, (rows, *shape), generator=generator(rank, step)),)


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

    def __init__(self, s, modern):
        super().__init__()
        self.head, self.parts = s.head, [s.heads, s.kv_heads or s.heads, s.kv_heads or s.heads]
        self.qkv = nn.Linear(s.width, sum(self.parts) * s.head, bias=not modern)
        self.out = nn.Linear(s.heads * s.head, s.width, bias=not modern)
        self.norms = nn.ModuleList(nn.RMSNorm(s.head) for _ in range(2)) if modern else None

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (-1, self.head)).transpose(1, 2).split(self.parts, 1)
        if self.norms is not None:
            q, k = (rotated(norm(t)) for norm, t in zip(self.norms, (q, k)))
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
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

    def __init__(self, width, inner):
        super().__init__()
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    """A layer of a decoder.

    Args:
        attention, mlp: take the place of the usual ones.
    """

    def __init__(self, s, attention=None, mlp=None):
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(s.width) for _ in range(2))
        self.attention, self.mlp = attention or Attention(s, True), mlp or Mlp(s.width, s.inner)

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class Decoder(nn.Module):
    """A language model: the mean cross-entropy of the given tokens.

    Args:
        attention: makes the attention of a layer, in place of the usual one.
    """

    def __init__(self, s, tied=False, attention=lambda: None):
        super().__init__()
        self.embedding, self.head = nn.Embedding(s.vocabulary, s.width), nn.Linear(s.width, s.vocabulary, bias=False)
        self.layers = nn.ModuleList(Layer(s, attention()) for _ in range(s.layers))
        self.norm = nn.RMSNorm(s.width)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, batch):
        x = self.embedding(batch)
        for layer in self.layers:
            x = block(layer, x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), batch.flatten())
