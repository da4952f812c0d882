# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Five small models whose training steps `fusion_costs` compiles: they fuse in different ways, and run on a CPU."""

from __future__ import annotations

import contextlib
from unittest import mock

import torch
import torch.nn as nn
import torch.nn.functional as F
from models import decoder
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map

from commsched.torch.trace import partition

DIM, HEADS, SEQ = 256, 4, 256


class Block(nn.Module):
    """A transformer block with LayerNorm and GELU, which attends to all positions."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(DIM) for _ in range(2))
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(self.norms[0](x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


class ViT(nn.Module):
    """A vision transformer: patches, two blocks, a class token."""

    def __init__(self):
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, DIM, 8, stride=8), nn.Parameter(torch.zeros(1, 1, DIM))
        self.position, self.norm = nn.Parameter(torch.zeros(SEQ + 1, DIM)), nn.LayerNorm(DIM)
        self.blocks, self.head = nn.Sequential(Block(), Block()), nn.Linear(DIM, 100)

    def forward(self, images, labels):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.position
        return F.cross_entropy(self.head(self.norm(self.blocks(x))[:, 0]), labels)


class DLRM(nn.Module):
    """A recommendation model: embedding tables, a bottom and a top network, and products of all pairs of vectors."""

    def __init__(self, tables: int = 8, rows: int = 20000, dim: int = 64):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, dim) for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, dim), nn.ReLU())
        pairs = tables * (tables + 1) // 2
        self.top = nn.Sequential(
            nn.Linear(dim + pairs, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)
        )
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, dense, sparse, click):
        x = self.bottom(dense)
        vectors = torch.stack([x, *(table(ids).sum(1) for table, ids in zip(self.tables, sparse))], 1)
        products = (vectors @ vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return F.binary_cross_entropy_with_logits(self.top(torch.cat([x, products], 1)).squeeze(1), click)


class Residual(nn.Module):
    """Two convolutions with batch norms, beside a connection around them."""

    def __init__(self, channels: int):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))

    def forward(self, x):
        y = F.relu(self.norms[0](self.convs[0](x)))
        return F.relu(x + self.norms[1](self.convs[1](y)))


class ConvNet(nn.Module):
    """A small residual network with batch norm."""

    def __init__(self, channels: int = 64):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, channels, 7, 2, 3, bias=False), nn.BatchNorm2d(channels)
        self.blocks, self.head = nn.Sequential(Residual(channels), Residual(channels)), nn.Linear(channels, 100)

    def forward(self, images, labels):
        x = self.blocks(F.max_pool2d(F.relu(self.norm(self.stem(images))), 2))
        return F.cross_entropy(self.head(x.mean((2, 3))), labels)


def _decoder(**experts):
    config = decoder.ModelConfig("benchmark", 2, DIM, HEADS, 2, 704, 4000, SEQ, **experts)
    tokens = torch.randint(0, config.vocab, (4, SEQ))
    model = decoder.Decoder(config)
    for p in model.parameters():
        nn.init.normal_(p, std=0.02)
    return model, (tokens, tokens)


def _images(model, size: int):
    return model, (torch.randn(8, 3, size, size), torch.randint(0, 100, (8,)))


def _dlrm():
    sparse = [torch.randint(0, 20000, (2048, 4)) for _ in range(8)]
    return DLRM(), (torch.randn(2048, 13), sparse, torch.rand(2048))


# Indexed by name: makes the model, which returns its loss, and the inputs of a step.
MODELS = {
    "Llama": _decoder,
    "MoE": lambda: _decoder(experts=8, shared_experts=1, top_k=2, expert_ffn=256, dense_layers=1),
    "ViT": lambda: _images(ViT(), 128),
    "DLRM": _dlrm,
    "ConvNet": lambda: _images(ConvNet(), 64),
}


def graphs(name: str) -> dict[str, torch.fx.GraphModule]:
    """The forward ("fw") and backward ("bw") graph of a model's step, of fake tensors."""
    model, inputs = MODELS[name]()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        for module in model.modules():
            for key, p in module._parameters.items():
                module._parameters[key] = p if p is None else nn.Parameter(mode.from_tensor(p.detach()))
            for key, b in module._buffers.items():
                module._buffers[key] = b if b is None else mode.from_tensor(b)
        return partition(model, tree_map(mode.from_tensor, inputs), False)


def compile_without_code(gm: torch.fx.GraphModule, backward: bool) -> None:
    """Compiles a graph of fake tensors with Inductor, except that no kernel is built."""
    from torch._guards import TracingContext, tracing
    from torch._inductor.async_compile import AsyncCompile
    from torch._inductor.compile_fx import compile_fx_inner

    values = [n.meta["val"] for n in gm.graph.nodes if n.op == "placeholder"]
    mode = next(v.fake_mode for v in values if isinstance(v, torch.Tensor))
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(AsyncCompile, "cpp_pybinding", lambda *_, **__: lambda *_: None))
        stack.enter_context(mock.patch("torch._inductor.cpu_vec_isa.valid_vec_isa_list", list))
        stack.enter_context(tracing(TracingContext(mode)))
        compile_fx_inner(gm, values, is_backward=backward)
