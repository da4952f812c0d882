# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Splits the models of `decoder` for tracing: tensor and expert parallelism, and memory without values."""

from __future__ import annotations

import torch
import torch.nn as nn
from torch.distributed.device_mesh import DeviceMesh

from . import decoder

COLUMN_SPLIT, ROW_SPLIT = ("wq", "wk", "wv", "w1", "w3"), ("wo", "w2")


def materialize(model: nn.Module, device: str) -> None:
    """Replaces meta tensors by uninitialized ones on `device`. No initializer runs."""
    for module in model.modules():
        for name, w in module.named_parameters(recurse=False):
            module._parameters[name] = nn.Parameter(torch.empty(w.shape, dtype=w.dtype, device=device))
        for name, w in module.named_buffers(recurse=False):
            module._buffers[name] = torch.empty(w.shape, dtype=w.dtype, device=device)


class SumOverGroup(torch.autograd.Function):
    """The two conjugate operators of Megatron: one all-reduces forward, the other backward."""

    @staticmethod
    def forward(ctx, x, group, in_forward):
        ctx.group, ctx.in_backward = group, not in_forward
        return _all_reduce(x, group) if in_forward else x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return (_all_reduce(grad, ctx.group) if ctx.in_backward else grad), None, None


def _all_reduce(x, group):
    ops = torch.ops._c10d_functional
    return ops.wait_tensor(ops.all_reduce(x.contiguous(), "sum", group))


def split_products(model: decoder.Decoder, mesh: DeviceMesh) -> None:
    """Gives each rank of `mesh` its columns or rows of the linear layers of attention and feed-forward."""
    rank = mesh.get_local_rank()
    for name, module in model.layers.named_modules():
        kind = name.rsplit(".", 1)[-1]
        if kind not in COLUMN_SPLIT + ROW_SPLIT:
            continue
        for key, w in module.named_parameters(recurse=False):
            piece = w.detach().chunk(mesh.size(), int(kind in ROW_SPLIT))[rank]
            module._parameters[key] = nn.Parameter(piece.clone())


def tensor_parallel(model: decoder.Decoder, mesh: DeviceMesh) -> None:
    """Splits the linear layers of attention and feed-forward over `mesh`, with one sum per block and direction."""
    group = mesh.get_group().group_name
    split_products(model, mesh)

    def between_sums(forward):
        def wrapped(x, *rest):
            y = forward(SumOverGroup.apply(x, group, False), *rest)
            return SumOverGroup.apply(y, group, True)

        return wrapped

    for block in model.layers:
        for module in (block.attn, block.ffn):
            module.forward = between_sums(module.forward)


class _AllToAll(torch.autograd.Function):
    """Exchanges equal slices of dimension 0. Its gradient is the same exchange."""

    @staticmethod
    def forward(ctx, x, group, size):
        ctx.group, ctx.size = group, size
        return _exchange(x, group, size)

    @staticmethod
    def backward(ctx, grad):
        return _exchange(grad, ctx.group, ctx.size), None, None


def _exchange(x, group, size):
    ops = torch.ops._c10d_functional
    split = [x.shape[0] // size] * size
    return ops.wait_tensor(ops.all_to_all_single(x.contiguous(), split, split, group))


def expert_parallel(model: nn.Module, mesh: DeviceMesh) -> None:
    """Gives each rank of `mesh` its share of the routed experts, and an all-to-all on the way in and out."""
    group, size, rank = mesh.get_group().group_name, mesh.size(), mesh.get_local_rank()

    def to_owners(x):  # [experts, capacity, dim] to [own experts, size x capacity, dim]
        x = _AllToAll.apply(x, group, size)
        experts, capacity, dim = x.shape
        return x.view(size, experts // size, capacity, dim).transpose(0, 1).reshape(experts // size, -1, dim)

    def to_senders(x):
        own, rows, dim = x.shape
        x = x.view(own, size, rows // size, dim).transpose(0, 1).reshape(own * size, rows // size, dim)
        return _AllToAll.apply(x, group, size)

    for module in model.modules():
        if not isinstance(module, decoder.MoE):
            continue
        for key, w in module.experts.named_parameters(recurse=False):
            module.experts._parameters[key] = nn.Parameter(w.detach().chunk(size, 0)[rank].clone())
        module.dispatch, module.combine = to_owners, to_senders
