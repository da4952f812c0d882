#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Plans the buckets of DistributedDataParallel, and compares the plans with DDP's own buckets by the model.

Transformers of published dimensions, and others whose dimensions are drawn from a seed. It needs no accelerator and
little memory: models are on the device "meta".

    python benchmarks/ddp_plan.py --markdown docs/research/results/ddp-plan.md
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import platform
import random
import shlex
import statistics
import sys
import time

import torch
from torch import nn

import commsched
import commsched.torch as ct
from commsched.torch.ddp.reducer import DEFAULT_LIMITS

MS = 1e6
VOCABULARY = 50304
MACHINES = ("h100-sxm", "a100-sxm")


@dataclasses.dataclass(frozen=True)
class Config:
    """A transformer: layers, width, tokens of a sequence, and sequences on a rank."""

    name: str
    layers: int
    width: int
    tokens: int
    rows: int


PUBLISHED = (
    Config("gpt2-small", 12, 768, 1024, 8),
    Config("gpt2-medium", 24, 1024, 1024, 4),
    Config("gpt2-large", 36, 1280, 1024, 2),
    Config("gpt2-xl", 48, 1600, 1024, 1),
    Config("bert-large", 24, 1024, 128, 8),
)


def drawn(seed: int, count: int) -> list[Config]:
    """Transformers of random dimensions."""
    rng = random.Random(seed)
    return [
        Config(
            f"drawn-{i}",
            rng.randint(2, 40),
            rng.choice([256, 512, 768, 1024, 1536, 2048]),
            rng.choice([64, 128, 256, 512, 1024]),
            rng.choice([1, 2, 4, 8]),
        )
        for i in range(count)
    ]


class Model(nn.Module):
    """Layers between an embedding and a head."""

    def __init__(self, c: Config):
        super().__init__()
        heads = max(1, c.width // 64)
        self.embed = nn.Embedding(VOCABULARY, c.width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(c.width, heads, 4 * c.width, dropout=0.0, batch_first=True)
            for _ in range(c.layers)
        )
        self.head = nn.Linear(c.width, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), tokens.flatten())


def row(c: Config, ranks: int, machine: str) -> dict:
    """Plans one model; the figures of the table."""
    with torch.device("meta"):
        model, batch = Model(c), torch.empty(c.rows, c.tokens, dtype=torch.int64)
    began = time.process_time()
    with torch.autocast("cpu", torch.bfloat16):  # Fake tensors are on the processor where no GPU is.
        plan = ct.plan_ddp(model, (batch,), ranks=ranks, machine=machine)
    took = time.process_time() - began
    print(f"{c.name} on {ranks} of {machine}: {took:.1f} s", file=sys.stderr, flush=True)
    return {"config": c, "ranks": ranks, "machine": machine, "plan": plan, "seconds": took}


HEAD = """# Results: buckets of DistributedDataParallel

Written by `{command}`.
PyTorch {torch}, CommSched {commsched}, Python {python}.

`commsched.torch.plan_ddp` against DDP's own buckets (1 MiB first, then 25 MiB), both by one model of DDP's runtime
([Ddp.md](../../guide/Ddp.md)). Weights and gradients are f32, and products run as bf16. Gradients are views of the
buckets in both. No division into buckets takes less than the bound. Models named "drawn" have dimensions drawn from the
seed {seed}. Seconds are of the processor, with the trace.

"""


def gain(r: dict) -> float:
    """By how much a step takes less, percent."""
    p = r["plan"]
    return 100 * (1 - p.predicted.step_ns / p.default_predicted.step_ns)


def gap(r: dict) -> float:
    """By how much a step takes longer than the bound, percent."""
    return 100 * (r["plan"].predicted.step_ns / r["plan"].bound_ns - 1)


def markdown(rows: list[dict], command: str, seed: int) -> str:
    """The page of results."""
    text = HEAD.format(
        command=command,
        torch=torch.__version__.split("+")[0],
        commsched=commsched.__version__,
        python=platform.python_version(),
        seed=seed,
    )
    gains, gaps = [gain(r) for r in rows], [gap(r) for r in rows]
    text += (
        f"Slower than the default: {sum(g < 0 for g in gains)} of {len(rows)}. Gain: mean "
        f"{statistics.mean(gains):.1f} %, median {statistics.median(gains):.1f} %, largest {max(gains):.1f} %. Above "
        f"the bound: median {statistics.median(gaps):.1f} %, worst {max(gaps):.1f} %. At most "
        f"{max(r['seconds'] for r in rows):.0f} s for a plan.\n\n"
        "| model | layers, width, tokens x rows | ranks | machine | default, ms | plan, ms | gain | bound, ms "
        "| exposed, ms, default and plan | buckets, default and plan |\n|---|---|---|---|---|---|---|---|---|---|\n"
    )
    for r in sorted(rows, key=gain, reverse=True):
        c, p = r["config"], r["plan"]
        d, n = p.default_predicted, p.predicted
        default = len(p.backward.buckets(DEFAULT_LIMITS))
        text += (
            f"| {c.name} | {c.layers}, {c.width}, {c.tokens} x {c.rows} | {r['ranks']} | {r['machine']} "
            f"| {d.step_ns / MS:.2f} | {n.step_ns / MS:.2f} | {gain(r):.1f} % | {p.bound_ns / MS:.2f} "
            f"| {d.exposed_ns / MS:.2f}, {n.exposed_ns / MS:.2f} | {default}, {len(p.buckets)} |\n"
        )
    return text


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--ranks", nargs="+", type=int, default=[8, 64, 256], help="sizes of the job (default 8 64 256)")
    p.add_argument("--machines", nargs="+", default=list(MACHINES), help="machine profiles (default: two)")
    p.add_argument("--drawn", type=int, default=10, help="the number of models with random dimensions (default 10)")
    p.add_argument("--seed", type=int, default=1, help="the seed of these (default 1)")
    p.add_argument("--markdown", type=pathlib.Path, metavar="FILE", help="write the page of results")
    a = p.parse_args(argv)
    rows = [row(c, n, m) for c in (*PUBLISHED, *drawn(a.seed, a.drawn)) for n in a.ranks for m in a.machines]
    command = shlex.join(["python", "benchmarks/ddp_plan.py", *(sys.argv[1:] if argv is None else argv)])
    text = markdown(rows, command, a.seed)
    if a.markdown is not None:
        a.markdown.write_text(text)
    print(text)
    return 1 if any(gain(r) < 0 for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
