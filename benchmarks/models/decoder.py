# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The models whose training steps `trace` turns into graphs.

They are plain PyTorch on a single device and know nothing of ranks. `commsched.torch.sharding` and `parallel` shard the
parameters, so the same classes serve every parallelism. Dimensions are those of the published configurations.
"""

from __future__ import annotations

import dataclasses

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.fx.traceback import annotate

# The key of `node.meta["custom"]` under which a traced node has the part of the model that it belongs to: "embed",
# "layers.0" and so on, "head".
PART = "part"
ROPE_BASE = 500000.0


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Dimensions of a decoder.

    Args:
        experts: number of routed experts; 0 for a dense feed-forward in every layer.
        dense_layers: in a mixture of experts, the number of first layers with a dense feed-forward.
        capacity_factor: capacity of an expert, as a multiple of its even share of the tokens.
    """

    name: str
    layers: int
    dim: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    seq: int
    experts: int = 0
    shared_experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0
    dense_layers: int = 0
    capacity_factor: float = 1.25


CONFIGS = {
    c.name: c
    for c in (
        ModelConfig("llama3-8b", 32, 4096, 32, 8, 14336, 128256, 8192),
        ModelConfig("llama3-70b", 80, 8192, 64, 8, 28672, 128256, 8192),
        # The sizes of KempnerForge's benchmarks: 14.8 billion parameters.
        ModelConfig("llama3-13b", 40, 5120, 40, 8, 17920, 128256, 8192),
        ModelConfig("llama2-7b", 32, 4096, 32, 32, 11008, 32000, 4096),
        ModelConfig("llama2-13b", 40, 5120, 40, 40, 13824, 32000, 4096),
        ModelConfig("llama2-70b", 80, 8192, 64, 8, 28672, 32000, 4096),
        # DeepSeekMoE 16B: 64 routed experts of 1408, 6 of them active, 2 shared; the first layer is dense.
        ModelConfig(
            "moe-16b",
            28,
            2048,
            16,
            16,
            10944,
            102400,
            4096,
            experts=64,
            shared_experts=2,
            top_k=6,
            expert_ffn=1408,
            dense_layers=1,
        ),
        # Small enough to run for real on a laptop's CPU: tests and documentation use it.
        ModelConfig("tiny", 2, 64, 4, 2, 128, 256, 32),
        ModelConfig(
            "tiny-moe", 2, 64, 4, 4, 128, 256, 32, experts=8, shared_experts=1, top_k=2, expert_ffn=32, dense_layers=1
        ),
    )
}


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(dim))
        self.shared = lambda weight: weight

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return wide.to(x.dtype) * self.shared(self.weight)


def rotate(x, cos, sin):
    """Rotary position embedding of x[batch, head, seq, head_dim]."""
    first, second = x.chunk(2, -1)
    return (x * cos + torch.cat((-second, first), -1) * sin).to(x.dtype)


class Attention(nn.Module):
    """Causal attention with grouped key and value heads."""

    def __init__(self, c: ModelConfig):
        super().__init__()
        self.head_dim = c.dim // c.heads
        self.wq = nn.Linear(c.dim, c.heads * self.head_dim, bias=False)
        self.wk = nn.Linear(c.dim, c.kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(c.dim, c.kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(c.heads * self.head_dim, c.dim, bias=False)

    def heads(self, y):
        batch, seq, _ = y.shape
        return y.view(batch, seq, -1, self.head_dim).transpose(1, 2)

    def forward(self, x, cos, sin):
        q, k, v = self.heads(self.wq(x)), self.heads(self.wk(x)), self.heads(self.wv(x))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).flatten(2))


class SwiGLU(nn.Module):
    def __init__(self, dim: int, ffn: int):
        super().__init__()
        self.w1 = nn.Linear(dim, ffn, bias=False)
        self.w2 = nn.Linear(ffn, dim, bias=False)
        self.w3 = nn.Linear(dim, ffn, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Experts(nn.Module):
    """The weights of the routed experts: three batched matrices, [experts, in, out]."""

    def __init__(self, c: ModelConfig):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(c.experts, c.dim, c.expert_ffn))
        self.w2 = nn.Parameter(torch.empty(c.experts, c.expert_ffn, c.dim))
        self.w3 = nn.Parameter(torch.empty(c.experts, c.dim, c.expert_ffn))

    def forward(self, x):
        return torch.bmm(F.silu(torch.bmm(x, self.w1)) * torch.bmm(x, self.w3), self.w2)


class MoE(nn.Module):
    """Mixture of experts with a fixed capacity per expert, so that every size is static.

    `dispatch` and `combine` move [experts, capacity, dim] to the experts' owners and back. On one device they are the
    identity, and `parallel.expert_parallel` replaces them by all-to-alls.
    """

    def __init__(self, c: ModelConfig):
        super().__init__()
        self.config = c
        self.router = nn.Linear(c.dim, c.experts, bias=False)
        self.experts = Experts(c)
        self.shared = SwiGLU(c.dim, c.expert_ffn * c.shared_experts)
        self.dispatch = self.combine = lambda x: x

    def forward(self, x):
        c, shape = self.config, x.shape
        x = x.flatten(0, 1)
        tokens = x.shape[0]
        capacity = int(tokens * c.top_k / c.experts * c.capacity_factor)
        weight, expert = F.softmax(self.router(x), -1, dtype=torch.float32).topk(c.top_k, -1)
        weight = (weight / weight.sum(-1, keepdim=True)).to(x.dtype)
        # A token's slot in its expert's buffer is the number of earlier choices of that expert.
        one_hot = F.one_hot(expert.flatten(), c.experts)
        slot = ((one_hot.cumsum(0) - one_hot) * one_hot).sum(-1)
        kept = slot < capacity
        row = torch.where(kept, expert.flatten() * capacity + slot, c.experts * capacity)
        rows = x.repeat_interleave(c.top_k, 0)
        buffer = x.new_zeros(c.experts * capacity + 1, c.dim).index_put((row,), rows)[:-1]
        out = self.combine(self.experts(self.dispatch(buffer.view(c.experts, capacity, c.dim))))
        out = F.pad(out.flatten(0, 1), (0, 0, 0, 1)).index_select(0, row)
        out = (out.view(tokens, c.top_k, c.dim) * weight.unsqueeze(-1)).sum(1)
        return (out + self.shared(x)).view(shape)


class Block(nn.Module):
    def __init__(self, c: ModelConfig, index: int):
        super().__init__()
        self.attn_norm, self.ffn_norm = RMSNorm(c.dim), RMSNorm(c.dim)
        self.attn = Attention(c)
        routed = c.experts and index >= c.dense_layers
        self.ffn = MoE(c) if routed else SwiGLU(c.dim, c.ffn)

    def forward(self, x, cos, sin):
        x = x + self.attn(self.attn_norm(x), cos, sin)
        return x + self.ffn(self.ffn_norm(x))


def mean_cross_entropy(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


class Decoder(nn.Module):
    """Maps tokens and labels to the mean cross-entropy."""

    def __init__(self, c: ModelConfig):
        super().__init__()
        self.embed = nn.Embedding(c.vocab, c.dim)
        self.layers = nn.ModuleList(Block(c, i) for i in range(c.layers))
        self.norm = RMSNorm(c.dim)
        self.head = nn.Linear(c.dim, c.vocab, bias=False)
        self.loss = mean_cross_entropy
        half = c.dim // c.heads // 2
        frequency = ROPE_BASE ** (-torch.arange(half) / half)
        angle = torch.outer(torch.arange(c.seq), frequency).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, tokens, labels):
        with annotate({PART: "embed"}):
            x = self.embed(tokens)
            cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        for index, layer in enumerate(self.layers):
            with annotate({PART: f"layers.{index}"}):
                x = layer(x, cos, sin)
        with annotate({PART: "head"}):
            return self.loss(self.head(self.norm(x)), labels)
