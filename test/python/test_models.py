# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Small copies of real models on two ranks: scheduled, their training steps give the bits of plain Inductor.

Qwen3-MoE without dropped tokens, ViT with DistributedDataParallel, DLRM, and a language model with tied weights.
Inductor calls ATen for everything, as in test_steps.py.
"""

import os
import warnings

import pytest

torch = pytest.importorskip("torch")

import torch.nn as nn
import torch.nn.functional as F

import gloo
from commsched.torch import reporting

c10d = torch.ops._c10d_functional
WIDTH, HEADS, VOCABULARY, SEQUENCE = 32, 4, 50, 6


def _sharded(model, ranks, **dtypes):
    from torch.distributed.device_mesh import init_device_mesh

    from commsched.torch.sharding import fully_shard_parameters

    mesh = init_device_mesh("cpu", (ranks,))
    fully_shard_parameters(model, lambda module: mesh, dtypes.get("dtype"), dtypes.get("reduce_dtype"))
    return model


def _local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _train(step, parameters, batches):
    """Some steps with SGD: losses, gradients and weights."""
    parameters = list(parameters)
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = step(*batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses + [_local(v).clone() for p in parameters for v in (p.grad, p.detach())]


class Attention(nn.Module):
    """Causal, or not, with rotary positions and norms of queries and keys if `modern`, as in Qwen3."""

    def __init__(self, modern):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=not modern), nn.Linear(WIDTH, WIDTH, bias=not modern)
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH // HEADS) for _ in range(2)) if modern else None

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        if self.norms is not None:
            q, k = (self._rotated(norm(t)) for norm, t in zip(self.norms, (q, k)))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.norms is not None)
        return self.out(y.transpose(1, 2).flatten(2))

    @staticmethod
    def _rotated(t):
        half = t.shape[-1] // 2
        angle = torch.arange(t.shape[-2]).unsqueeze(1) * 0.1 ** torch.arange(half)
        a, b = t[..., :half], t[..., half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


class Experts(nn.Module):
    """One expert per rank. Every token is sent to the experts of its two best scores, and none is dropped."""

    def __init__(self, ranks, group):
        super().__init__()
        self.ranks, self.group = ranks, group
        self.router = nn.Linear(WIDTH, ranks, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        import torch.distributed as dist
        from torch.distributed._functional_collectives import all_to_all_single_autograd

        rows = x.flatten(0, 1)
        weight, choice = self.router(rows).softmax(-1).topk(2)
        order = choice.flatten().argsort(stable=True)
        counts = F.one_hot(choice.flatten(), self.ranks).sum(0)
        ones = [1] * self.ranks
        received = c10d.wait_tensor(c10d.all_to_all_single(counts, ones, ones, self.group))
        ins, outs = counts.tolist(), received.tolist()
        for size in ins + outs:
            torch._check(size >= 0)
            torch._check(size <= 1024)
        sent = all_to_all_single_autograd(rows[order // 2], outs, ins, dist.group.WORLD)
        gate, value = self.up(sent).chunk(2, -1)
        back = all_to_all_single_autograd(self.down(F.silu(gate) * value), ins, outs, dist.group.WORLD)
        per_choice = torch.empty_like(back).index_copy(0, order, back).view(-1, 2, WIDTH)
        return (per_choice * weight.unsqueeze(-1)).sum(1).view_as(x)


def _qwen3_moe(rank, ranks, compiled, group):
    """Dropless experts, autocast, a tied head, and sharded weights beside local experts."""
    torch.manual_seed(0)
    embedding = _sharded(nn.Embedding(VOCABULARY, WIDTH), ranks)
    attention, norm = (_sharded(m, ranks) for m in (Attention(True), nn.RMSNorm(WIDTH)))
    torch.manual_seed(10 + rank)
    experts = Experts(ranks, group)

    def loss(tokens):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = embedding(tokens)
            x = x + attention(norm(x))
            x = x + experts(norm(x)).to(x.dtype)
            logits = x.float() @ _local(embedding.weight).float().T
        return F.cross_entropy(logits.flatten(0, 1), tokens.flatten())

    parts = [embedding, attention, norm, experts]
    generator = torch.Generator().manual_seed(rank)
    batches = [(torch.randint(0, VOCABULARY, (4, SEQUENCE), generator=generator),) for _ in range(2)]
    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        return _train(compiled(loss), [p for m in parts for p in m.parameters()], batches)


def _vit_ddp(rank, ranks, compiled, group):
    """DistributedDataParallel reduces outside of every graph: nothing to schedule, and one warning says so."""
    torch.manual_seed(0)

    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches, self.position = nn.Conv2d(3, WIDTH, 4, stride=4), nn.Parameter(torch.zeros(5, WIDTH))
            self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
            self.norm, self.attention = nn.LayerNorm(WIDTH), Attention(False)
            self.mlp = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))
            self.head = nn.Linear(WIDTH, 10)

        def forward(self, images):
            x = self.patches(images).flatten(2).transpose(1, 2)
            x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.position
            x = x + self.attention(self.norm(x))
            return self.head((x + self.mlp(x))[:, 0])

    model = nn.parallel.DistributedDataParallel(ViT())
    f = compiled(lambda images, labels: F.cross_entropy(model(images), labels))
    torch.manual_seed(rank + 1)
    batches = [(torch.randn(4, 3, 8, 8), torch.randint(0, 10, (4,))) for _ in range(2)]
    return _train(f, model.parameters(), batches)


def _dlrm(rank, ranks, compiled, group):
    """Each rank holds a part of the tables. Their rows are exchanged, and the gradients of the dense part reduced."""
    import torch.distributed as dist
    from torch.distributed._functional_collectives import all_to_all_single_autograd

    torch.manual_seed(0)
    bottom, top = nn.Linear(13, WIDTH), _sharded(nn.Linear(WIDTH + 3, 1), ranks)
    bottom = _sharded(bottom, ranks)
    torch.manual_seed(10 + rank)
    table = nn.EmbeddingBag(40, WIDTH, mode="sum")

    def loss(dense, sparse, click):
        local = len(dense)
        rows = table(sparse)  # of the whole batch, from this rank's table
        mine = all_to_all_single_autograd(rows, [local] * ranks, [local] * ranks, dist.group.WORLD)
        vectors = torch.stack([bottom(dense).relu(), *mine.chunk(ranks)], 1)
        crosses = (vectors @ vectors.transpose(1, 2)).flatten(1)[:, [1, 2, 5]]
        return F.binary_cross_entropy_with_logits(top(torch.cat([vectors[:, 0], crosses], 1)).squeeze(1), click)

    def batch(seed):
        local, whole = torch.Generator().manual_seed(seed * ranks + rank), torch.Generator().manual_seed(seed)
        return (
            torch.randn(4, 13, generator=local),
            torch.randint(0, 40, (4 * ranks, 3), generator=whole),
            torch.randint(0, 2, (4,), generator=local).float(),
        )

    parameters = [p for m in (bottom, top, table) for p in m.parameters()]
    return _train(compiled(loss), parameters, [batch(1), batch(2)])


def _tied_weights_and_dynamic_batches(rank, ranks, compiled, group):
    torch.manual_seed(0)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
            self.head.weight = self.embedding.weight
            self.attention = Attention(True)

        def forward(self, tokens):
            x = self.embedding(tokens)
            return self.head(x + self.attention(x))

    model = _sharded(Model(), ranks)
    assert len(list(model.parameters())) == 5  # The tied weight counts once.
    f = compiled(lambda tokens: F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()))
    generator = torch.Generator().manual_seed(rank)
    batches = [(torch.randint(0, VOCABULARY, (b, SEQUENCE), generator=generator),) for b in (8, 6, 3)]
    return _train(f, model.parameters(), batches)


# That without collectives comes first: its warning is for processes that have compiled none so far.
MODELS = [_vit_ddp, _qwen3_moe, _dlrm, _tied_weights_and_dynamic_batches]


def _compare(rank, ranks, model):
    import commsched.torch as ct

    group, name = torch.distributed.group.WORLD.group_name, model.__name__

    def scheduled(f):
        with ct.enabled(machine="cpu-mpi", memory_budget_ratio=5.0):
            return torch.compile(f)

    torch._dynamo.reset()
    expected = model(rank, ranks, torch.compile, group)
    torch._dynamo.reset()
    reporting.reports()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = model(rank, ranks, scheduled, group)
    assert len(got) == len(expected) > 0 and all(map(torch.equal, expected, got)), name
    said = [str(w.message) for w in caught if "CommSched" in str(w.message)]
    graphs = [r for r in reporting.reports() if r["place"] == "graph"]
    if model is _vit_ddp:
        assert graphs == [] and len(said) == 1 and "DistributedDataParallel communicate outside" in said[0]
    else:
        assert said == [] and any(r["collectives"] for r in graphs), (name, said)
        assert not any(r["opaque"] for r in graphs), name


def _all(rank, ranks):
    import torch._inductor.config as ic

    # No warning on a busy machine, where a rank may come minutes after the other.
    os.environ.update(COMMSCHED_STRICT="1", COMMSCHED_RANKS_DEADLINE_S="1800")
    with ic.patch(force_disable_caches=True, fallback_by_default=True, reorder_for_peak_memory=False):
        for model in MODELS:
            _compare(rank, ranks, model)


def test_the_bits_of_plain_inductor():
    gloo.run(2, _all)
