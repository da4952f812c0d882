# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Tensor parallelism as trainers run it: the sequence is split between the products, and so are embedding and head.

`parallel.tensor_parallel` sums over the group and keeps the whole sequence, the embedding and the head on every rank.
Here the ranks of a group share all of these. Between two blocks, a rank has its slice of every sequence. Attention and
feed-forward gather the sequence before their first products, and sum and scatter it after their last one (Korthikanti
et al., "Reducing Activation Recomputation in Large Transformer Models", 2022). The loss is computed from slices of the
vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh

from . import decoder, parallel

# The dimension of an activation [batch, sequence, width] that is split.
SEQUENCE = 1


def _gather(x, group: str, size: int):
    ops = torch.ops._c10d_functional
    pieces = ops.wait_tensor(ops.all_gather_into_tensor(x.contiguous(), size, group))
    return torch.cat(pieces.chunk(size), SEQUENCE)


def _sum_and_scatter(x, group: str, size: int):
    ops = torch.ops._c10d_functional
    pieces = torch.cat(x.chunk(size, SEQUENCE))
    return ops.wait_tensor(ops.reduce_scatter_tensor(pieces, "sum", size, group))


class _Gather(torch.autograd.Function):
    """A slice of the sequence to all of it. The gradients of the ranks are summed."""

    @staticmethod
    def forward(ctx, x, group, size):
        ctx.group, ctx.size = group, size
        return _gather(x, group, size)

    @staticmethod
    def backward(ctx, grad):
        return _sum_and_scatter(grad, ctx.group, ctx.size), None, None


class _SumAndScatter(torch.autograd.Function):
    """Summands for all of the sequence to a slice of the sum."""

    @staticmethod
    def forward(ctx, x, group, size):
        ctx.group, ctx.size = group, size
        return _sum_and_scatter(x, group, size)

    @staticmethod
    def backward(ctx, grad):
        return _gather(grad, ctx.group, ctx.size), None, None


def _largest(x, group: str):
    ops = torch.ops._c10d_functional
    return ops.wait_tensor(ops.all_reduce(x.contiguous(), "max", group))


def _of_slice(indices, first: int, rows: int):
    """The positions in a slice of `rows` rows from `first` on, 0 for others, and whether an index is in the slice."""
    inside = (indices >= first) & (indices < first + rows)
    return torch.where(inside, indices - first, 0), inside


def sequence_parallel(model: decoder.Decoder, mesh: DeviceMesh) -> None:
    """Splits a decoder over `mesh`, whose size divides the sequence, the heads, the feed-forward and the vocabulary."""
    group, size, rank = mesh.get_group().group_name, mesh.size(), mesh.get_local_rank()
    parallel.split_products(model, mesh)
    for module in (model.embed, model.head):
        module.weight = nn.Parameter(module.weight.detach().chunk(size)[rank].clone())
    rows = model.embed.weight.shape[0]

    def embed(tokens):
        at, inside = _of_slice(tokens, rank * rows, rows)
        x = F.embedding(at, model.embed.weight) * inside.unsqueeze(-1)
        return _SumAndScatter.apply(x, group, size)

    def whole_sequence(forward, scattered=True):
        def wrapped(x, *rest):
            y = forward(_Gather.apply(x, group, size), *rest)
            return _SumAndScatter.apply(y, group, size) if scattered else y

        return wrapped

    def loss(logits, labels):
        logits, labels = logits.flatten(0, 1).float(), labels.flatten()
        logits = logits - _largest(logits.detach().amax(-1), group).unsqueeze(-1)
        at, inside = _of_slice(labels, rank * rows, rows)
        wanted = logits.gather(-1, at.unsqueeze(-1)).squeeze(-1) * inside
        wanted = parallel.SumOverGroup.apply(wanted, group, True)
        total = parallel.SumOverGroup.apply(logits.exp().sum(-1), group, True)
        return (total.log() - wanted).mean()

    model.embed.forward, model.loss = embed, loss
    model.head.forward = whole_sequence(model.head.forward, scattered=False)
    for block in model.layers:
        for module in (block.attn, block.ffn):
            module.forward = whole_sequence(module.forward)
    for module in model.modules():
        # A norm sees a slice of the sequence, so the gradient of its weight is a summand on every rank.
        if isinstance(module, decoder.RMSNorm):
            module.shared = lambda weight: parallel.SumOverGroup.apply(weight, group, False)
