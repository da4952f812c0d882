#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Plans eager FSDP2 for models in published dimensions, and compares the plans with FSDP2's default by the model.

The default is that of PyTorch's tutorial: `fully_shard` on every block, then on the model. The plan's limit on memory
is the peak of the default. It needs no accelerator and little memory: models are on the device "meta".

    python benchmarks/fsdp2_plan.py --ranks 64 256 --markdown docs/research/results/fsdp2-plan.md

A pair such as 32x8 is a mesh of 32 replicas of 8 ranks (hybrid sharding).
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import pathlib
import platform
import resource
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from unittest import mock

import torch
from models import decoder
from models.zoo import models as zoo
from models.zoo.real import LLAMA, REAL
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy

import commsched
import commsched.torch as ct
from commsched.torch.options import DEFAULT_MACHINE

GIB, MS = 2**30, 1e6
# A decoder, or a model of the zoo: the module, its batch, and the blocks (None: the elements of its lists).
Built = tuple[nn.Module, tuple, list[nn.Module] | None]


def of_decoder(name: str) -> Built:
    """A decoder of `models.decoder` without any parallelism."""
    c = decoder.CONFIGS[name]
    tokens = torch.empty(1, c.seq, dtype=torch.int64)
    return decoder.Decoder(c), (tokens, tokens), None


class Whole(nn.Module):
    """A job of the zoo as one module that returns its loss."""

    def __init__(self, job: zoo.Job, blocks: list[nn.Module]):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.parts = nn.ModuleList(job.modules)
        self.job = [job]

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        return self.job[0].loss(*batch)


def vit(ranks: int) -> Built:
    """ViT-L/16."""
    s = REAL["vit"][1](ranks)
    return zoo.ViT(s), (torch.empty(s.rows, s.channels, s.image, s.image),), None


def mamba(ranks: int) -> Built:
    """The hybrid of Mamba and attention. Its mixers are blocks, and its norms belong to the model itself."""
    with (
        mock.patch.object(zoo, "sharded", lambda model, *_: model),
        mock.patch.object(zoo, "mesh_of", lambda *_: None),
    ):
        s = REAL["mamba-hybrid"][1](ranks)
        job = zoo.mamba_hybrid(0, ranks, s)
    mixers = list(job.modules[0][0])
    return (
        Whole(job, mixers),
        (torch.empty(s.rows, s.sequence, dtype=torch.int64),),
        mixers,
    )


def tied(ranks: int) -> Built:
    """A decoder of Llama-3-8B's dimensions whose head is its embedding."""
    return (
        zoo.Decoder(LLAMA, tied=True),
        (torch.empty(1, LLAMA.sequence, dtype=torch.int64),),
        None,
    )


MODELS: dict[str, Callable[[int], Built]] = {
    **{
        name: (lambda ranks, name=name: of_decoder(name))
        for name in (
            "llama3-8b",
            "llama3-13b",
            "llama3-70b",
            "llama2-7b",
            "llama2-13b",
            "llama2-70b",
            "moe-16b",
        )
    },
    "vit": vit,
    "mamba-hybrid": mamba,
    "tied-8b": tied,
}

HEAD = """# Results: plans for eager FSDP2

Written by `{command}`.
PyTorch {torch}, CommSched {commsched}, Python {python}; machine profile `{machine}`.

`commsched.torch.plan` against the default of PyTorch's tutorial (`fully_shard` on every block, then on the model), both
by one model of FSDP2's runtime ([Fsdp2.md](../../guide/Fsdp2.md)). Parameters are gathered as bf16, and gradients are
reduced as f32. On every rank there is one sequence, or one batch of 64 images; nothing is checkpointed. The limit on
memory is the peak of the default. Ranks of 32 x 8 are 32 replicas of 8 ranks (hybrid sharding), and groups that are
kept by nodes have `reshard_after_forward=8`. No setting takes less than the bound, with any amount of memory. Seconds
are of the processor, with the trace.

"""


# A number of ranks, or a pair of replicas and ranks of each.
Ranks = int | tuple[int, int]


def ranks_of(text: str) -> Ranks:
    """Reads "64" or "32x8"."""
    numbers = [int(n) for n in text.split("x")]
    if len(numbers) > 2 or min(numbers) < 1:
        raise ValueError(text)
    return numbers[0] if len(numbers) == 1 else (numbers[0], numbers[1])


def row(name: str, ranks: Ranks, machine: str) -> dict:
    """Plans one model; the figures of the table."""
    with torch.device("meta"):
        model, batch, blocks = MODELS[name](ranks if isinstance(ranks, int) else math.prod(ranks))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    began = time.process_time()
    plan = ct.plan(model, batch, ranks=ranks, machine=machine, mp_policy=policy, units=blocks)
    took = time.process_time() - began
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    shown = str(ranks) if isinstance(ranks, int) else f"{ranks[0]} x {ranks[1]}"
    print(f"{name} on {shown}: {took:.0f} s", file=sys.stderr, flush=True)
    return {"name": name, "ranks": shown, "plan": plan, "seconds": took, "gib": gib}


def decisions(plan: ct.Plan) -> str:
    """What the plan does otherwise than the default, in a few words."""
    groups, default = plan.setting.groups, plan.default.groups
    blocks = {g.units for g in default[1:]}
    root = [plan.names(i) for i, g in enumerate(groups[1:], 1) if g.units not in blocks]
    words = [f"{len(groups) - 1} groups for {len(default) - 1}"]
    if 0 < len(root) <= 3:
        words.append("own: " + "; ".join("+".join(n) for n in root))
    if kept := sum(not g.reshard for g in groups[1:]):
        words.append(f"{kept} kept")
    if parts := sum(not isinstance(g.reshard, bool) for g in groups[1:]):
        words.append(f"{parts} kept by nodes")
    if ahead := max(max(g.forward_ahead, g.backward_ahead) for g in groups):
        words.append(f"up to {ahead} ahead")
    if plan.setting.reduce_buffers > 1:
        words.append(f"{plan.setting.reduce_buffers} reduction buffers")
    return ", ".join(words)


def gain(r: dict) -> float:
    """By how much a step takes less, percent."""
    p = r["plan"]
    return 100 * (1 - p.predicted.step_ns / p.default_predicted.step_ns)


def markdown(rows: list[dict], command: str, machine: str) -> str:
    """The page of results."""
    text = HEAD.format(
        command=command,
        torch=torch.__version__.split("+")[0],
        commsched=commsched.__version__,
        python=platform.python_version(),
        machine=machine,
    )
    gains = [gain(r) for r in rows]
    slower = sum(g < 0 for g in gains)
    text += (
        f"Slower than the default: {slower} of {len(rows)}. Median gain {statistics.median(gains):.1f} %, "
        f"largest {max(gains):.1f} %. At most {max(r['seconds'] for r in rows):.0f} s and "
        f"{max(r['gib'] for r in rows):.1f} GiB for a plan.\n\n"
        "| model | ranks | default, ms | plan, ms | gain | bound, ms | exposed, ms, default and plan "
        "| peak, GiB, default and plan | the plan | s |\n|---|---|---|---|---|---|---|---|---|---|\n"
    )
    for r in rows:
        p = r["plan"]
        d, n = p.default_predicted, p.predicted
        text += (
            f"| {r['name']} | {r['ranks']} | {d.step_ns / MS:.1f} | {n.step_ns / MS:.1f} | {gain(r):.1f} % "
            f"| {p.bound_ns / MS:.1f} | {d.exposed_ns / MS:.1f}, {n.exposed_ns / MS:.1f} "
            f"| {d.needed_bytes / GIB:.2f}, {n.needed_bytes / GIB:.2f} | {decisions(p)} | {r['seconds']:.0f} |\n"
        )
    return text


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    p.add_argument(
        "--ranks",
        nargs="+",
        type=ranks_of,
        default=[64, 256],
        help="sizes of the job, or replicas x ranks of each (default 64 256)",
    )
    p.add_argument(
        "--machine",
        default=DEFAULT_MACHINE,
        help=f"machine profile (default {DEFAULT_MACHINE})",
    )
    p.add_argument("--jobs", type=int, default=1, help="plans made at the same time (default 1)")
    p.add_argument(
        "--markdown",
        type=pathlib.Path,
        metavar="FILE",
        help="write the page of results",
    )
    a = p.parse_args(argv)
    asked = [(name, ranks, a.machine) for name in a.models for ranks in a.ranks]
    # A process for each plan, so that each says what memory it needs.
    with multiprocessing.get_context("spawn").Pool(a.jobs, maxtasksperchild=1) as pool:
        rows = pool.starmap(row, asked, chunksize=1)
    command = shlex.join(
        [
            "python",
            "benchmarks/fsdp2_plan.py",
            *(sys.argv[1:] if argv is None else argv),
        ]
    )
    text = markdown(rows, command, a.machine)
    if a.markdown is not None:
        a.markdown.write_text(text)
    print(text)
    return 1 if any(gain(r) < 0 for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
