# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""One decoder in the usual kinds of parallelism."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed._functional_collectives import (
    all_gather_tensor_autograd,
    all_to_all_single_autograd,
    permute_tensor,
)

from .job import (
    SMALL,
    TWO_LAYERS,
    Decoder,
    Job,
    block,
    mesh_of,
    part_of,
    rotated,
    sharded,
    tokens,
)


def fsdp2(rank, ranks, s=SMALL):
    """`fully_shard` communicates in hooks, outside of every graph: nothing to schedule."""
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model, mesh = Decoder(s), mesh_of(ranks)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return Job(model, [model], tokens(s, rank), outside=True)


def hybrid(rank, ranks, s=SMALL):
    """Sharded over the ranks of a node, replicated over nodes, gathered in bfloat16 and reduced in float32."""
    torch.manual_seed(0)
    mesh = mesh_of(2, ranks // 2, names=("replicate", "shard"))
    model = sharded(Decoder(s), mesh, torch.bfloat16, torch.float32)
    return Job(model, [model], tokens(s, rank))


def _tensor_parallel(model, mesh):
    """Splits every layer by DTensor, with activations split along the sequence between them."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    for layer in model.layers:
        plan = {
            "norms.0": SequenceParallel(),
            "norms.1": SequenceParallel(),
            "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "mlp.gate": ColwiseParallel(),
            "mlp.up": ColwiseParallel(),
            "mlp.down": RowwiseParallel(output_layouts=Shard(1)),
            "attention": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "attention.query": ColwiseParallel(),
            "attention.key": ColwiseParallel(),
            "attention.value": ColwiseParallel(),
            "attention.out": RowwiseParallel(output_layouts=Shard(1)),
        }
        parallelize_module(layer, mesh, plan)
    parallelize_module(
        model,
        mesh,
        {
            "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
        },
    )


class _Split(nn.Module):
    """Attention with separate matrices, whose heads can be split over ranks."""

    def __init__(self, s):
        super().__init__()
        self.head, inner = s.head, s.heads * s.head
        self.query, self.key, self.value = (nn.Linear(s.width, inner, bias=False) for _ in range(3))
        self.out = nn.Linear(inner, s.width, bias=False)

    def forward(self, x):
        q, k, v = (m(x).unflatten(-1, (-1, self.head)).transpose(1, 2) for m in (self.query, self.key, self.value))
        y = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


def _with_split_attention(s):
    torch.manual_seed(0)
    return Decoder(s, attention=lambda: _Split(s))


def two_d(rank, ranks, s=SMALL):
    """Fully sharded and tensor parallel: every parameter is a DTensor over both dimensions of the mesh."""
    mesh = mesh_of(ranks // 2, 2, names=("data", "tensor"))
    model = _with_split_attention(s)
    _tensor_parallel(model, part_of(mesh, "tensor"))
    sharded(model, part_of(mesh, "data"), s.dtype)
    return Job(model, [model], tokens(s, rank // 2))


def three_d(rank, ranks, s=SMALL):
    """Replicated, sharded and tensor parallel."""
    mesh = mesh_of(2, ranks // 4, 2, names=("replicate", "shard", "tensor"))
    model = _with_split_attention(s)
    _tensor_parallel(model, part_of(mesh, "tensor"))
    sharded(model, part_of(mesh, "replicate", "shard"), s.dtype)
    return Job(model, [model], tokens(s, rank // 2))


class _AcrossRanks(nn.Module):
    """Attention over a sequence of which each rank has a part.

    Args:
        way: "gather" gathers keys and values, "exchange" exchanges sequence for heads (Ulysses), and "ring" passes keys
            and values on from rank to rank.
    """

    def __init__(self, rank, ranks, way, s):
        super().__init__()
        self.rank, self.ranks, self.way, self.head, self.sequence = rank, ranks, way, s.head, s.sequence
        self.qkv = nn.Linear(s.width, 3 * s.heads * s.head, bias=False)
        self.out = nn.Linear(s.heads * s.head, s.width, bias=False)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (-1, self.head)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        q, k = (rotated(t, self.rank * self.sequence) for t in (q, k))
        return self.out(getattr(self, f"_{self.way}")(q, k, v).transpose(1, 2).flatten(2))

    def _gather(self, q, k, v):
        k, v = (all_gather_tensor_autograd(t, 2, dist.group.WORLD) for t in (k, v))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self._mask(self.ranks))

    def _exchange(self, q, k, v):
        q, k, v = (self._swapped(t, 1, 2) for t in (q, k, v))
        return self._swapped(F.scaled_dot_product_attention(q, k, v, is_causal=True), 2, 1)

    def _swapped(self, t, split, joined):
        t = torch.cat(t.chunk(self.ranks, split))  # One part per rank, along the batch.
        sizes = [t.shape[0] // self.ranks] * self.ranks
        return torch.cat(all_to_all_single_autograd(t, sizes, sizes, dist.group.WORLD).chunk(self.ranks), joined)

    def _ring(self, q, k, v):
        passed_on = [(r + 1) % self.ranks for r in range(self.ranks)]
        scores, values = [], []
        for turn in range(self.ranks):
            source = (self.rank - turn) % self.ranks
            mask = self._mask(self.ranks)[:, source * self.sequence : (source + 1) * self.sequence]
            score = q @ k.transpose(2, 3) / self.head**0.5
            scores.append(score.masked_fill(~mask, -torch.inf))
            values.append(v)
            if turn + 1 < self.ranks:
                k, v = (_PassedOn.apply(t, passed_on) for t in (k, v))
        return torch.cat(scores, -1).softmax(-1) @ torch.cat(values, 2)

    def _mask(self, parts):
        mine = self.rank * self.sequence + torch.arange(self.sequence)
        return mine.unsqueeze(1) >= torch.arange(parts * self.sequence)


class _PassedOn(torch.autograd.Function):
    """Sends a tensor to the next rank of a ring. The gradient takes the way back."""

    @staticmethod
    def forward(ctx, x, to):
        ctx.back = [to.index(r) for r in range(len(to))]
        return permute_tensor(x.flatten(), to, dist.group.WORLD).view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return permute_tensor(gradient.flatten(), ctx.back, dist.group.WORLD).view_as(gradient), None


def _context_parallel(rank, ranks, way, s):
    torch.manual_seed(0)
    model = sharded(Decoder(s, attention=lambda: _AcrossRanks(rank, ranks, way, s)), mesh_of(ranks), s.dtype)
    return Job(model, [model], tokens(s, rank))


def context_gather(rank, ranks, s=SMALL):
    """Context parallel: every rank gathers the keys and values of the whole sequence."""
    return _context_parallel(rank, ranks, "gather", s)


def context_ulysses(rank, ranks, s=SMALL):
    """Context parallel: ranks exchange parts of the sequence for heads."""
    return _context_parallel(rank, ranks, "exchange", s)


def context_ring(rank, ranks, s=SMALL):
    """Context parallel: keys and values go round a ring."""
    return _context_parallel(rank, ranks, "ring", s)


class _Received(torch.autograd.Function):
    """Activations of another rank, whose gradient is sent back."""

    @staticmethod
    def forward(ctx, like, source):
        ctx.source, x = source, torch.empty_like(like)
        dist.recv(x, source)
        return x

    @staticmethod
    def backward(ctx, gradient):
        dist.send(gradient.contiguous(), ctx.source)
        return None, None


class _Sent(torch.autograd.Function):
    """Sends activations to another rank, and gets their gradient from there. The value is 0."""

    @staticmethod
    def forward(ctx, x, target):
        ctx.target, ctx.like = target, torch.empty_like(x)
        dist.send(x.contiguous(), target)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient):
        dist.recv(ctx.like, ctx.target)
        return ctx.like, None


class _Pipeline(Job):
    """A stage is compiled by itself. Activations of some width travel between graphs."""

    width: int

    def compiled(self, compiled):
        rank, half = dist.get_rank(), dist.get_world_size() // 2
        stage = compiled(self.loss)
        if rank < half:
            return lambda batch: _Sent.apply(stage(batch), rank + half)

        def last(batch):
            like = torch.zeros(*batch.shape, self.width, requires_grad=True)
            return stage(_Received.apply(like, rank - half), batch)

        return last


def pipeline(rank, ranks, s=TWO_LAYERS):
    """Two stages with different graphs, each sharded over half of the ranks."""
    mesh = mesh_of(2, ranks // 2, names=("stage", "data"))
    torch.manual_seed(0)
    whole, half = Decoder(s), ranks // 2
    sharded(whole, part_of(mesh, "data"), s.dtype)

    def enters(batch):
        return block(whole.layers[0], whole.embedding(batch))

    def leaves(x, batch):
        x = whole.norm(block(whole.layers[1], x))
        return F.cross_entropy(whole.head(x).flatten(0, 1), batch.flatten())

    own = [whole.embedding, whole.layers[0]] if rank < half else [whole.layers[1], whole.norm, whole.head]
    job = _Pipeline(enters if rank < half else leaves, own, tokens(s, rank % half))
    job.width = s.width
    return job
