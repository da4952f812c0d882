# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Small copies of real models, each trained in the way that it usually is."""

from __future__ import annotations

import dataclasses

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed._functional_collectives import all_to_all_single_autograd

from ..parallel import SumOverGroup
from .job import (
    SMALL,
    TWO_LAYERS,
    Attention,
    Decoder,
    Job,
    Layer,
    Mlp,
    block,
    generator,
    local,
    mesh_of,
    rotated,
    sharded,
    tokens,
)

c10d = torch.ops._c10d_functional
# The most rows that one rank sends to another. A size without a bound is no index of 32 bits.
MOST_ROWS = 1 << 20
# A dense layer and one with two experts per rank; two layers of states around one of attention.
GROUPED = dataclasses.replace(TWO_LAYERS, own_experts=2, expert_inner=32)
THREE_LAYERS = dataclasses.replace(SMALL, layers=3)


def exchanged_counts(counts, ranks):
    """The numbers of rows that this rank sends to each rank and gets from each rank, as integers of Python."""
    ones, group = [1] * ranks, dist.group.WORLD.group_name
    received = c10d.wait_tensor(c10d.all_to_all_single(counts, ones, ones, group))
    ins, outs = counts.tolist(), received.tolist()
    for size in ins + outs:
        torch._check(size >= 0)
        torch._check(size <= MOST_ROWS)
    return ins, outs


class Experts(nn.Module):
    """Some experts per rank. Every token is sent to the experts of its best scores, and none is dropped.

    Several experts of a rank are one grouped product over sorted rows. Routing as in Qwen3 or, if `balanced`, as in
    DeepSeek-V3: scores are sigmoids, and a bias that balances the load takes part in the choice alone.
    """

    def __init__(self, s, ranks, balanced):
        super().__init__()
        self.ranks, self.own, self.experts, self.chosen = ranks, s.own_experts, s.own_experts * ranks, s.chosen
        self.router = nn.Linear(s.width, self.experts, bias=False)
        self.register_buffer("bias", torch.linspace(0, 0.1, self.experts) if balanced else None)
        if self.own == 1:
            self.expert = Mlp(s.width, s.expert_inner)
        else:
            self.up = nn.Parameter(torch.randn(self.own, s.width, 2 * s.expert_inner) / s.width**0.5)
            self.down = nn.Parameter(torch.randn(self.own, s.expert_inner, s.width) / s.expert_inner**0.5)

    def forward(self, x):
        rows = x.flatten(0, 1)
        weight, choice = self._routed(self.router(rows))
        order = choice.flatten().argsort(stable=True)
        counts = F.one_hot(choice.flatten(), self.experts).sum(0)
        ins, outs = exchanged_counts(counts.view(self.ranks, self.own).sum(1), self.ranks)
        sent = all_to_all_single_autograd(rows[order // self.chosen], outs, ins, dist.group.WORLD)
        got = self.expert(sent) if self.own == 1 else self._grouped(sent, counts)
        back = all_to_all_single_autograd(got, ins, outs, dist.group.WORLD)
        if self.bias is not None:
            self._balance(counts)
        per_choice = torch.empty_like(back).index_copy(0, order, back).unflatten(0, (-1, self.chosen))
        return (per_choice * weight.unsqueeze(-1)).sum(1).view_as(x)

    def _routed(self, scores):
        if self.bias is None:
            return scores.softmax(-1).topk(self.chosen)
        scores = scores.sigmoid()
        choice = (scores + self.bias).topk(self.chosen).indices
        return scores.gather(1, choice), choice

    def _grouped(self, got, counts):
        even = [self.own] * self.ranks
        theirs = c10d.wait_tensor(c10d.all_to_all_single(counts, even, even, dist.group.WORLD.group_name))
        owner = torch.arange(self.experts).remainder(self.own).repeat_interleave(theirs, output_size=got.shape[0])
        by_expert = owner.argsort(stable=True)
        ends = theirs.view(self.ranks, self.own).sum(0).cumsum(0).to(torch.int32)
        gate, value = F.grouped_mm(got[by_expert].bfloat16(), self.up.bfloat16(), offs=ends).chunk(2, -1)
        y = F.grouped_mm(F.silu(gate) * value, self.down.bfloat16(), offs=ends).to(got.dtype)
        return torch.empty_like(y).index_copy(0, by_expert, y)

    @torch.no_grad()
    def _balance(self, counts):
        """Moves the bias by the load of the experts, over all ranks."""
        total = c10d.wait_tensor(c10d.all_reduce(counts, "sum", dist.group.WORLD.group_name))
        self.bias.add_((total.float().mean() - total).sign(), alpha=0.001)


def qwen3_moe(rank, ranks, s=SMALL):
    """Dropless experts and a tied head under autocast: sharded weights beside local experts."""
    torch.manual_seed(0)
    mesh = mesh_of(ranks)
    dense = sharded(
        nn.ModuleList(
            [nn.Embedding(s.vocabulary, s.width)]
            + [m for _ in range(s.layers) for m in (Attention(s, True), nn.RMSNorm(s.width))]
        ),
        mesh,
        s.dtype,
    )
    embedding = dense[0]
    torch.manual_seed(10 + rank)
    experts = nn.ModuleList(Experts(s, ranks, False) for _ in range(s.layers))

    def loss(batch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = embedding(batch)
            for attention, norm, expert in zip(dense[1::2], dense[2::2], experts):
                x = x + block(attention, norm(x))
                x = x + expert(norm(x)).to(x.dtype)
            logits = x.float() @ local(embedding.weight).float().T
        return F.cross_entropy(logits.flatten(0, 1), batch.flatten())

    return Job(loss, [dense, experts], tokens(s, rank))


class Latent(nn.Module):
    """DeepSeek's attention: keys and values come from one narrow vector per token, the rotary part from another.

    Queries are compressed as well.
    """

    def __init__(self, s):
        super().__init__()
        self.parts, self.narrow, self.heads = [s.head, s.rotary], [s.narrow, s.rotary], s.heads
        self.query = nn.Sequential(
            nn.Linear(s.width, s.query, bias=False),
            nn.RMSNorm(s.query),
            nn.Linear(s.query, s.heads * (s.head + s.rotary), bias=False),
        )
        self.down, self.norm = nn.Linear(s.width, s.narrow + s.rotary, bias=False), nn.RMSNorm(s.narrow)
        self.up = nn.Linear(s.narrow, s.heads * 2 * s.head, bias=False)
        self.out = nn.Linear(s.heads * s.head, s.width, bias=False)

    def forward(self, x):
        head, rotary = self.parts
        plain, turned = self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2).split(self.parts, -1)
        latent, key = self.down(x).split(self.narrow, -1)
        k, v = self.up(self.norm(latent)).unflatten(-1, (self.heads, -1)).transpose(1, 2).chunk(2, -1)
        key = rotated(key).unsqueeze(1).expand(-1, self.heads, -1, -1)
        q, k = torch.cat([plain, rotated(turned)], -1), torch.cat([k, key], -1)
        y = F.scaled_dot_product_attention(q, k, F.pad(v, (0, rotary)), is_causal=True)
        return self.out(y[..., :head].transpose(1, 2).flatten(2))


def deepseek_v3(rank, ranks, s=GROUPED):
    """Latent attention, dropless routing with grouped products, a shared expert, sharded over all ranks.

    The first layers have a dense feed-forward.
    """
    torch.manual_seed(0)
    routed = s.layers - s.dense
    parts = nn.ModuleDict(
        {
            "embedding": nn.Embedding(s.vocabulary, s.width),
            "dense": nn.ModuleList(Layer(s, Latent(s)) for _ in range(s.dense)),
            "attention": nn.ModuleList(Latent(s) for _ in range(routed)),
            "shared": nn.ModuleList(Mlp(s.width, s.expert_inner) for _ in range(routed)),
            "norms": nn.ModuleList(nn.RMSNorm(s.width) for _ in range(2 * routed + 1)),
            "head": nn.Linear(s.width, s.vocabulary, bias=False),
        }
    )
    sharded(parts, mesh_of(ranks), s.dtype)
    torch.manual_seed(10 + rank)
    experts = nn.ModuleList(Experts(s, ranks, True) for _ in range(routed))
    norms = parts["norms"]

    def loss(batch):
        x = parts["embedding"](batch)
        for layer in parts["dense"]:
            x = block(layer, x)
        for i, (attention, shared, routing) in enumerate(zip(parts["attention"], parts["shared"], experts)):
            x = x + block(attention, norms[2 * i](x))
            y = norms[2 * i + 1](x)
            x = x + routing(y) + shared(y)
        return F.cross_entropy(parts["head"](norms[-1](x)).flatten(0, 1), batch.flatten())

    return Job(loss, [parts, experts], tokens(s, rank))


@torch.library.custom_op("zoo::selective_scan", mutates_args=())
def selective_scan(decay: torch.Tensor, enters: torch.Tensor) -> torch.Tensor:
    """States of a linear recurrence along dimension 1: a kernel of its own, as the package of Mamba has it."""
    states, state = torch.empty_like(enters), torch.zeros_like(enters[:, 0])
    for i in range(enters.shape[1]):
        state = decay[:, i] * state + enters[:, i]
        states[:, i] = state
    return states


@torch.library.custom_op("zoo::selective_scan_backward", mutates_args=())
def selective_scan_backward(
    gradient: torch.Tensor, decay: torch.Tensor, states: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    of_decay, of_enters, carried = torch.empty_like(decay), torch.empty_like(decay), torch.zeros_like(decay[:, 0])
    for i in reversed(range(decay.shape[1])):
        carried = gradient[:, i] + carried
        of_enters[:, i] = carried
        of_decay[:, i] = carried * states[:, i - 1] if i else 0
        carried = carried * decay[:, i]
    return of_decay, of_enters


selective_scan.register_fake(lambda decay, enters: torch.empty_like(enters))
selective_scan_backward.register_fake(
    lambda gradient, decay, states: (torch.empty_like(decay), torch.empty_like(decay))
)


def _saved_by_scan(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], output)


selective_scan.register_autograd(
    lambda ctx, gradient: selective_scan_backward(gradient.contiguous(), *ctx.saved_tensors),
    setup_context=_saved_by_scan,
)


class Mamba(nn.Module):
    """A selective state space layer: a short convolution, steps that depend on the input, and a scan."""

    def __init__(self, s):
        super().__init__()
        width, state = s.width, s.state
        self.enter, self.out = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, width, bias=False)
        self.taps = nn.Parameter(torch.randn(3, width) / 2)
        self.selected, self.step = nn.Linear(width, 2 * state + 1, bias=False), nn.Linear(1, width)
        self.log_a = nn.Parameter(torch.log(torch.arange(1, state + 1) * torch.ones(width, 1)))
        self.skip, self.state = nn.Parameter(torch.ones(width)), state

    def forward(self, x):
        x, gate = self.enter(x).chunk(2, -1)
        x = F.silu(sum(F.pad(x, (0, 0, i, 0))[:, : x.shape[1]] * tap for i, tap in enumerate(self.taps.unbind())))
        b, c, dt = self.selected(x).split([self.state, self.state, 1], -1)
        dt = F.softplus(self.step(dt)).unsqueeze(-1)
        decay, enters = (-dt * self.log_a.exp()).exp(), dt * b.unsqueeze(2) * x.unsqueeze(-1)
        y = (selective_scan(decay, enters) * c.unsqueeze(2)).sum(-1) + self.skip * x
        return self.out(y * F.silu(gate))


def mamba_hybrid(rank, ranks, s=THREE_LAYERS):
    """State space layers, and in the middle one layer of attention, as in Jamba."""
    torch.manual_seed(0)
    mixers = nn.ModuleList(Attention(s, True) if i == s.layers // 2 else Mamba(s) for i in range(s.layers))
    norms, head = nn.ModuleList(nn.RMSNorm(s.width) for _ in mixers), nn.Linear(s.width, s.vocabulary, bias=False)
    model = sharded(nn.ModuleList([mixers, norms, head, nn.Embedding(s.vocabulary, s.width)]), mesh_of(ranks), s.dtype)

    def loss(batch):
        x = model[3](batch)
        for mixer, norm in zip(mixers, norms):
            x = x + block(mixer, norm(x))
        return F.cross_entropy(head(x).flatten(0, 1), batch.flatten())

    return Job(loss, [model], tokens(s, rank))


class DiTBlock(nn.Module):
    """A block whose norms are scaled, shifted and gated by the condition."""

    def __init__(self, s):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(s.width, elementwise_affine=False) for _ in range(2))
        self.attention, self.condition = Attention(s, False), nn.Linear(s.width, 6 * s.width)
        self.mlp = nn.Sequential(nn.Linear(s.width, s.inner), nn.GELU(approximate="tanh"), nn.Linear(s.inner, s.width))

    def forward(self, x, c):
        a, b, gate, d, e, other = self.condition(F.silu(c)).unsqueeze(1).chunk(6, -1)
        x = x + gate * self.attention(self.norms[0](x) * (1 + a) + b)
        return x + other * self.mlp(self.norms[1](x) * (1 + d) + e)


def dit(rank, ranks, s=TWO_LAYERS):
    """A diffusion transformer: noisy images, the step of the noise, and a class that is dropped now and then."""
    torch.manual_seed(0)
    patches = nn.Conv2d(s.channels, s.width, s.patch, stride=s.patch)
    classes, out = nn.Embedding(s.classes + 1, s.width), nn.Linear(s.width, s.channels * s.patch**2)
    time = nn.Sequential(nn.Linear(16, s.width), nn.SiLU(), nn.Linear(s.width, s.width))
    blocks = nn.ModuleList(DiTBlock(s) for _ in range(s.layers))
    model = sharded(nn.ModuleList([patches, classes, out, time, blocks]), mesh_of(ranks), s.dtype)
    frequency = 0.1 ** torch.arange(8)

    def loss(images, noise, at, label):
        angle = at.unsqueeze(1) * frequency
        condition = time(torch.cat([angle.cos(), angle.sin()], 1)) + classes(label)
        mixed = images * (1 - at.view(-1, 1, 1, 1)) + noise * at.view(-1, 1, 1, 1)
        x = patches(mixed).flatten(2).transpose(1, 2)
        for b in blocks:
            x = block(b, x, condition)
        target = F.unfold(noise - images, s.patch, stride=s.patch).transpose(1, 2)
        return F.mse_loss(out(F.layer_norm(x, (s.width,))), target)

    def batch(step, rows):
        g = generator(rank, step)
        images, noise = (torch.randn(rows, s.channels, s.image, s.image, generator=g) for _ in range(2))
        return images, noise, torch.rand(rows, generator=g), torch.randint(0, s.classes + 1, (rows,), generator=g)

    return Job(loss, [model], batch)


class ViTLayer(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(s.width), Attention(s, False)
        self.mlp = nn.Sequential(
            nn.LayerNorm(s.width), nn.Linear(s.width, s.inner), nn.GELU(), nn.Linear(s.inner, s.width)
        )

    def forward(self, x):
        x = x + block(self.attention, self.norm(x))
        return x + self.mlp(x)


class ViT(nn.Module):
    """Maps images to the scores of classes."""

    def __init__(self, s):
        super().__init__()
        self.patches = nn.Conv2d(s.channels, s.width, s.patch, stride=s.patch)
        self.position = nn.Parameter(torch.zeros((s.image // s.patch) ** 2 + 1, s.width))
        self.token = nn.Parameter(torch.zeros(1, 1, s.width))
        self.layers = nn.Sequential(*[ViTLayer(s) for _ in range(s.layers)])
        self.head = nn.Linear(s.width, s.classes)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.position
        return self.head(self.layers(x)[:, 0])


def _images(rank, s):
    def batch(step, rows):
        g = generator(rank, step)
        images = torch.randn(rows, s.channels, s.image, s.image, generator=g)
        return images, torch.randint(0, s.classes, (rows,), generator=g)

    return batch


def vit_ddp(rank, ranks, s=SMALL):
    """DistributedDataParallel reduces outside of every graph: nothing to schedule."""
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(ViT(s))
    return Job(lambda x, label: F.cross_entropy(model(x), label), [model], _images(rank, s), outside=True)


def vit_replicated(rank, ranks, s=SMALL):
    """Data parallel inside of the graph: an all-reduce of every gradient."""
    torch.manual_seed(0)
    model, group = ViT(s), dist.group.WORLD.group_name

    def loss(images, label):
        shared = {name: SumOverGroup.apply(w, group, False) for name, w in model.named_parameters()}
        return F.cross_entropy(torch.func.functional_call(model, shared, (images,)), label) / ranks

    return Job(loss, [model], _images(rank, s))


def dlrm(rank, ranks, s=SMALL):
    """Each rank holds some of the tables. Their rows are exchanged, and the gradients of the dense part reduced."""
    torch.manual_seed(0)
    vectors = ranks * s.tables + 1
    pairs = torch.tril_indices(vectors, vectors, -1)
    bottom, top = (
        sharded(nn.Sequential(nn.Linear(n, s.inner), nn.ReLU(), nn.Linear(s.inner, out)), mesh_of(ranks), s.dtype)
        for n, out in ((13, s.width), (s.width + pairs.shape[1], 1))
    )
    torch.manual_seed(10 + rank)
    tables = nn.ModuleList(nn.EmbeddingBag(s.entries, s.width, mode="sum") for _ in range(s.tables))

    def loss(dense, sparse, click):
        rows, own = len(dense), [len(dense)] * ranks
        looked_up = torch.cat([t(i) for t, i in zip(tables, sparse.unbind())], 1)  # of the whole batch
        mine = all_to_all_single_autograd(looked_up, own, own, dist.group.WORLD)
        mine = mine.view(ranks, rows, s.tables, s.width).transpose(0, 1).flatten(1, 2)
        all_vectors = torch.cat([bottom(dense).relu().unsqueeze(1), mine], 1)
        crosses = (all_vectors @ all_vectors.transpose(1, 2))[:, pairs[0], pairs[1]]
        return F.binary_cross_entropy_with_logits(top(torch.cat([all_vectors[:, 0], crosses], 1)).squeeze(1), click)

    def batch(step, rows):
        own, whole = generator(rank, step), generator(ranks, step)
        return (
            torch.randn(rows, 13, generator=own),
            torch.randint(0, s.entries, (s.tables, rows * ranks, s.lookups), generator=whole),
            torch.randint(0, 2, (rows,), generator=own).float(),
        )

    return Job(loss, [bottom, top, tables], batch)


def tied_decoder(rank, ranks, s=TWO_LAYERS):
    torch.manual_seed(0)
    model = sharded(Decoder(s, tied=True), mesh_of(ranks), s.dtype)
    return Job(model, [model], tokens(s, rank))
