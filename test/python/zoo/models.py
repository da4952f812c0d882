# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Small copies of real models, each trained in the way that it usually is."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed._functional_collectives import all_to_all_single_autograd

from .job import (
    HEADS,
    VOCABULARY,
    WIDTH,
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


def exchanged_counts(counts, ranks):
    """The numbers of rows that this rank sends to each rank and gets from each rank, as integers of Python."""
    ones, group = [1] * ranks, dist.group.WORLD.group_name
    received = c10d.wait_tensor(c10d.all_to_all_single(counts, ones, ones, group))
    ins, outs = counts.tolist(), received.tolist()
    for size in ins + outs:
        torch._check(size >= 0)
        torch._check(size <= 1024)
    return ins, outs


class Experts(nn.Module):
    """One expert per rank. Every token is sent to the experts of its two best scores, and none is dropped."""

    def __init__(self, ranks):
        super().__init__()
        self.ranks, self.router = ranks, nn.Linear(WIDTH, ranks, bias=False)
        self.expert = Mlp()

    def forward(self, x):
        rows = x.flatten(0, 1)
        weight, choice = self.router(rows).softmax(-1).topk(2)
        order = choice.flatten().argsort(stable=True)
        ins, outs = exchanged_counts(F.one_hot(choice.flatten(), self.ranks).sum(0), self.ranks)
        sent = all_to_all_single_autograd(rows[order // 2], outs, ins, dist.group.WORLD)
        back = all_to_all_single_autograd(self.expert(sent), ins, outs, dist.group.WORLD)
        per_choice = torch.empty_like(back).index_copy(0, order, back).view(-1, 2, WIDTH)
        return (per_choice * weight.unsqueeze(-1)).sum(1).view_as(x)


def qwen3_moe(rank, ranks):
    """Dropless experts and a tied head under autocast: sharded weights beside local experts."""
    torch.manual_seed(0)
    mesh = mesh_of(ranks)
    embedding, attention, norm = (
        sharded(m, mesh) for m in (nn.Embedding(VOCABULARY, WIDTH), Attention(True), nn.RMSNorm(WIDTH))
    )
    torch.manual_seed(10 + rank)
    experts = Experts(ranks)

    def loss(batch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = embedding(batch)
            x = x + block(attention, norm(x))
            x = x + experts(norm(x)).to(x.dtype)
            logits = x.float() @ local(embedding.weight).float().T
        return F.cross_entropy(logits.flatten(0, 1), batch.flatten())

    parameters = [p for m in (embedding, attention, norm, experts) for p in m.parameters()]
    return Job(loss, parameters, lambda step, rows: (tokens(rank, step, rows),))


class Latent(nn.Module):
    """DeepSeek's attention: keys and values come from one narrow vector per token, the rotary part from another."""

    def __init__(self, narrow=8, rotary=4):
        super().__init__()
        self.narrow, self.rotary, self.size = narrow, rotary, WIDTH // HEADS
        self.query = nn.Linear(WIDTH, HEADS * (self.size + rotary), bias=False)
        self.down, self.norm = nn.Linear(WIDTH, narrow + rotary, bias=False), nn.RMSNorm(narrow)
        self.up, self.out = nn.Linear(narrow, HEADS * 2 * self.size, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        q = self.query(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        plain, turned = q.split([self.size, self.rotary], -1)
        latent, key = self.down(x).split([self.narrow, self.rotary], -1)
        k, v = self.up(self.norm(latent)).unflatten(-1, (HEADS, -1)).transpose(1, 2).chunk(2, -1)
        key = rotated(key).unsqueeze(1).expand(-1, HEADS, -1, -1)
        q, k = torch.cat([plain, rotated(turned)], -1), torch.cat([k, key], -1)
        y = F.scaled_dot_product_attention(q, k, F.pad(v, (0, self.rotary)), is_causal=True)
        return self.out(y[..., : self.size].transpose(1, 2).flatten(2))


class GroupedExperts(nn.Module):
    """Two experts per rank, whose rows are sorted and multiplied by one grouped product, and a shared expert.

    Scores are sigmoids, and a bias that balances the load takes part in the choice alone, as in DeepSeek-V3.
    """

    OWN = 2

    def __init__(self, ranks):
        super().__init__()
        self.ranks, self.experts = ranks, self.OWN * ranks
        self.router = nn.Linear(WIDTH, self.experts, bias=False)
        self.register_buffer("bias", torch.linspace(0, 0.1, self.experts))
        self.up = nn.Parameter(torch.randn(self.OWN, WIDTH, 2 * WIDTH) / 6)
        self.down = nn.Parameter(torch.randn(self.OWN, WIDTH, WIDTH) / 6)

    def forward(self, x):
        rows = x.flatten(0, 1)
        scores = self.router(rows).sigmoid()
        choice = (scores + self.bias).topk(2).indices
        weight = scores.gather(1, choice)
        order = choice.flatten().argsort(stable=True)
        counts = F.one_hot(choice.flatten(), self.experts).sum(0)
        ins, outs = exchanged_counts(counts.view(self.ranks, self.OWN).sum(1), self.ranks)
        even = [self.OWN] * self.ranks
        theirs = c10d.wait_tensor(c10d.all_to_all_single(counts, even, even, dist.group.WORLD.group_name))
        got = all_to_all_single_autograd(rows[order // 2], outs, ins, dist.group.WORLD)
        owner = torch.arange(self.experts).remainder(self.OWN).repeat_interleave(theirs, output_size=got.shape[0])
        by_expert = owner.argsort(stable=True)
        ends = theirs.view(self.ranks, self.OWN).sum(0).cumsum(0).to(torch.int32)
        gate, value = F.grouped_mm(got[by_expert].bfloat16(), self.up.bfloat16(), offs=ends).chunk(2, -1)
        y = F.grouped_mm(F.silu(gate) * value, self.down.bfloat16(), offs=ends).to(x.dtype)
        y = torch.empty_like(y).index_copy(0, by_expert, y)
        back = all_to_all_single_autograd(y, ins, outs, dist.group.WORLD)
        per_choice = torch.empty_like(back).index_copy(0, order, back).view(-1, 2, WIDTH)
        with torch.no_grad():  # The load of the experts, over all ranks.
            total = c10d.wait_tensor(c10d.all_reduce(counts, "sum", dist.group.WORLD.group_name))
            self.bias.add_((total.float().mean() - total).sign(), alpha=0.001)
        return (per_choice * weight.unsqueeze(-1)).sum(1).view_as(x)


def deepseek_v3(rank, ranks):
    """Latent attention, dropless routing with grouped products, a shared expert, sharded over all ranks."""
    torch.manual_seed(0)
    mesh = mesh_of(ranks)
    embedding, head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
    norms, attention, shared = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(4)), Latent(), Mlp()
    dense = sharded(nn.ModuleList([embedding, head, norms, attention, shared, Layer()]), mesh)
    torch.manual_seed(10 + rank)
    experts = GroupedExperts(ranks)

    def loss(batch):
        x = block(dense[5], embedding(batch))
        x = x + block(attention, norms[0](x))
        y = norms[1](x)
        x = x + experts(y) + shared(y)
        return F.cross_entropy(head(norms[2](x)).flatten(0, 1), batch.flatten())

    return Job(loss, [*dense.parameters(), *experts.parameters()], lambda step, rows: (tokens(rank, step, rows),))


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

    def __init__(self, state=4):
        super().__init__()
        self.enter, self.out = nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.taps = nn.Parameter(torch.randn(3, WIDTH) / 2)
        self.selected, self.step = nn.Linear(WIDTH, 2 * state + 1, bias=False), nn.Linear(1, WIDTH)
        self.log_a = nn.Parameter(torch.log(torch.arange(1.0, state + 1).expand(WIDTH, -1).clone()))
        self.skip, self.state = nn.Parameter(torch.ones(WIDTH)), state

    def forward(self, x):
        x, gate = self.enter(x).chunk(2, -1)
        x = F.silu(sum(F.pad(x, (0, 0, i, 0))[:, : x.shape[1]] * tap for i, tap in enumerate(self.taps.unbind())))
        b, c, dt = self.selected(x).split([self.state, self.state, 1], -1)
        dt = F.softplus(self.step(dt)).unsqueeze(-1)
        decay, enters = (-dt * self.log_a.exp()).exp(), dt * b.unsqueeze(2) * x.unsqueeze(-1)
        y = (selective_scan(decay, enters) * c.unsqueeze(2)).sum(-1) + self.skip * x
        return self.out(y * F.silu(gate))


def mamba_hybrid(rank, ranks):
    """State space layers with one layer of attention among them, as in Jamba."""
    torch.manual_seed(0)
    mixers = nn.ModuleList([Mamba(), Attention(True), Mamba()])
    norms, head = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in mixers), nn.Linear(WIDTH, VOCABULARY, bias=False)
    model = sharded(nn.ModuleList([mixers, norms, head, nn.Embedding(VOCABULARY, WIDTH)]), mesh_of(ranks))

    def loss(batch):
        x = model[3](batch)
        for mixer, norm in zip(mixers, norms):
            x = x + block(mixer, norm(x))
        return F.cross_entropy(head(x).flatten(0, 1), batch.flatten())

    return Job(loss, model.parameters(), lambda step, rows: (tokens(rank, step, rows),))


class DiTBlock(nn.Module):
    """A block whose norms are scaled, shifted and gated by the condition."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH, elementwise_affine=False) for _ in range(2))
        self.attention, self.condition = Attention(False), nn.Linear(WIDTH, 6 * WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(approximate="tanh"), nn.Linear(64, WIDTH))

    def forward(self, x, c):
        a, b, gate, d, e, other = self.condition(F.silu(c)).unsqueeze(1).chunk(6, -1)
        x = x + gate * self.attention(self.norms[0](x) * (1 + a) + b)
        return x + other * self.mlp(self.norms[1](x) * (1 + d) + e)


def dit(rank, ranks):
    """A diffusion transformer: noisy images, the step of the noise, and a class that is dropped now and then."""
    torch.manual_seed(0)
    patches, classes, out = nn.Conv2d(3, WIDTH, 4, stride=4), nn.Embedding(11, WIDTH), nn.Linear(WIDTH, 48)
    time = nn.Sequential(nn.Linear(16, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
    blocks = nn.ModuleList(DiTBlock() for _ in range(2))
    model = sharded(nn.ModuleList([patches, classes, out, time, blocks]), mesh_of(ranks))
    frequency = 0.1 ** torch.arange(8)

    def loss(images, noise, at, label):
        angle = at.unsqueeze(1) * frequency
        condition = time(torch.cat([angle.cos(), angle.sin()], 1)) + classes(label)
        mixed = images * (1 - at.view(-1, 1, 1, 1)) + noise * at.view(-1, 1, 1, 1)
        x = patches(mixed).flatten(2).transpose(1, 2)
        for b in blocks:
            x = block(b, x, condition)
        target = F.unfold(noise - images, 4, stride=4).transpose(1, 2)
        return F.mse_loss(out(F.layer_norm(x, (WIDTH,))), target)

    def batch(step, rows):
        g = generator(rank, step)
        images, noise = (torch.randn(rows, 3, 8, 8, generator=g) for _ in range(2))
        return images, noise, torch.rand(rows, generator=g), torch.randint(0, 11, (rows,), generator=g)

    return Job(loss, model.parameters(), batch)


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.position = nn.Conv2d(3, WIDTH, 4, stride=4), nn.Parameter(torch.zeros(5, WIDTH))
        self.token, self.norm, self.attention = (
            nn.Parameter(torch.zeros(1, 1, WIDTH)),
            nn.LayerNorm(WIDTH),
            Attention(False),
        )
        self.mlp = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.position
        x = x + block(self.attention, self.norm(x))
        return self.head((x + self.mlp(x))[:, 0])


def vit_ddp(rank, ranks):
    """DistributedDataParallel reduces outside of every graph: nothing to schedule."""
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(ViT())

    def batch(step, rows):
        g = generator(rank, step)
        return torch.randn(rows, 3, 8, 8, generator=g), torch.randint(0, 10, (rows,), generator=g)

    return Job(lambda x, label: F.cross_entropy(model(x), label), model.parameters(), batch, outside=True)


def dlrm(rank, ranks):
    """Each rank holds a part of the tables. Their rows are exchanged, and the gradients of the dense part reduced."""
    torch.manual_seed(0)
    bottom, top = (sharded(m, mesh_of(ranks)) for m in (nn.Linear(13, WIDTH), nn.Linear(WIDTH + 3, 1)))
    torch.manual_seed(10 + rank)
    table = nn.EmbeddingBag(40, WIDTH, mode="sum")

    def loss(dense, sparse, click):
        rows = len(dense)
        looked_up = table(sparse)  # of the whole batch, from this rank's table
        mine = all_to_all_single_autograd(looked_up, [rows] * ranks, [rows] * ranks, dist.group.WORLD)
        vectors = torch.stack([bottom(dense).relu(), *mine.view(ranks, rows, WIDTH).unbind()], 1)
        crosses = (vectors @ vectors.transpose(1, 2)).flatten(1)[:, [1, 2, 5]]
        return F.binary_cross_entropy_with_logits(top(torch.cat([vectors[:, 0], crosses], 1)).squeeze(1), click)

    def batch(step, rows):
        own, whole = generator(rank, step), generator(ranks, step)
        return (
            torch.randn(rows, 13, generator=own),
            torch.randint(0, 40, (rows * ranks, 3), generator=whole),
            torch.randint(0, 2, (rows,), generator=own).float(),
        )

    return Job(loss, [p for m in (bottom, top, table) for p in m.parameters()], batch)


def tied_decoder(rank, ranks):
    torch.manual_seed(0)
    model = sharded(Decoder(layers=2, tied=True), mesh_of(ranks))
    return Job(model, model.parameters(), lambda step, rows: (tokens(rank, step, rows),))
