# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Runs random steps (`random_steps`) on real ranks: with CommSched they have to give the bits that they give without.

    python test/python/fuzz.py --kind graph --first 0 --count 100 [--ranks 4] [--reduce]

The kinds are "graph" (a traced graph through schedule_overlap), "aten" (torch.compile that calls ATen for every
operator), "code" (torch.compile with C++ kernels), "gradient" (as "aten", forward and backward), and "dtensor"
(DTensors, redistributed, forward and backward). Each seed is one step, and every third one runs again with other
scalars in the same process. A seed that fails is printed with its step; `--reduce` prints the fewest lines that still
fail.

The oracle of a traced graph is that graph. That of a compilation is plain Inductor, unless that differs from the step
without a compiler: PyTorch moves waits, too.
"""

from __future__ import annotations

import argparse
import collections
import json
import logging
import os
import pathlib
import random
import tempfile
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
from random_redistributions import redistributions
from random_steps import Step
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

import commsched.torch as ct
import gloo
from commsched.torch.options import machine_file

KINDS = ("graph", "aten", "code", "gradient", "dtensor")
ATEN = dict(fallback_by_default=True, reorder_for_peak_memory=False, allow_buffer_reuse=False, inplace_buffers=False)
# Outcomes that are not faults. "invalid": PyTorch itself refuses the step. "racy": plain Inductor is wrong.
FINE = ("equal", "invalid", "racy")


def slow_links(folder: str) -> str:
    """The path of a machine on which collectives take so long that even tiny ones are merged, moved and split."""
    profile = json.loads(machine_file("cpu-mpi").read_text())
    profile["name"], profile["links"]["base_ns"] = "slow-links", 10_000_000
    path = pathlib.Path(folder, "slow-links.json")
    path.write_text(json.dumps(profile))
    return str(path)


def options_of(seed: int, slow: str) -> dict:
    """Random options of `schedule_overlap`: machines, limits, modes, orders, and what may be changed."""
    r = random.Random(seed)
    options = {
        "machine": r.choice(["h100-sxm", "cpu-mpi", slow, slow]),
        "memory_budget_ratio": r.choice([0.0, 0.3, 4.0, 4.0]),
        "bucketing": r.random() < 0.8,
        "collective_order": r.choice(["free", "free", "group", "program"]),
        "fusion": r.random() < 0.8,
        "effort": r.choice([0, 200]),
    }
    if r.random() < 0.2:
        options["strands"] = r.choice(["auto", 2, 4])
    elif r.random() < 0.15:
        options["passes"] = r.choice([["comm-bucket", "comm-raise", "comm-sink-waits"], ["comm-schedule"]])
        options["memory_budget_ratio"] = 100.0  # Such passes know no limit.
    elif r.random() < 0.15:
        options["solver"] = "inductor"
    elif r.random() < 0.1:
        options.update(objective="regret", scenarios=4)
    return options


class Ranks:
    """What all steps of one job share."""

    def __init__(self, rank: int, ranks: int, folder: str):
        self.rank, self.ranks = rank, ranks
        everyone = list(range(ranks))
        self.slow = slow_links(folder) if rank == 0 else None
        (self.slow,) = self._told([self.slow])
        groups = [dist.group.WORLD, dist.new_group(everyone), [dist.new_group([r]) for r in everyone][rank]]
        g, h, s = (group.group_name for group in groups)
        c10d = torch.ops._c10d_functional
        from torch.distributed.tensor import DTensor, Replicate, Shard, init_device_mesh

        sizes = (ranks,) if ranks == 2 else (2, ranks // 2)
        self.mesh = init_device_mesh("cpu", sizes)
        self.scope = dict(torch=torch, fc=fc, dist=dist, C=c10d, W=c10d.wait_tensor, R=rank, G=g, H=h, S=s, M=self.mesh)
        self.scope.update(DTensor=DTensor, Replicate=Replicate, Shard=Shard)

    def _told(self, values: list) -> list:
        dist.broadcast_object_list(values, 0)
        return values

    def agreed(self, outcome: str) -> str:
        """The worst outcome of all ranks."""
        everyone = [None] * self.ranks
        dist.all_gather_object(everyone, outcome)
        return next((o for o in everyone if o.split(":")[0] not in FINE), max(everyone))

    def arguments(self, step: Step, seed: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(1000 * seed + self.rank)
        return [
            torch.randint(0 if v.dtype == "int64" else -3, 4, v.shape, generator=generator).to(getattr(torch, v.dtype))
            for v in step.arguments.values()
        ]

    def function(self, source: str):
        scope = dict(self.scope)
        for name in ("all_gather_tensor", "reduce_scatter_tensor", "all_to_all_single"):
            scope[f"{name}_autograd"] = getattr(fc, f"{name}_autograd")
        exec(compile(source, "<step>", "exec"), scope)
        return scope["step"]


def bits(values) -> list[torch.Tensor]:
    """The tensors of a result, with memory of their own."""
    tensors = [v for v in pytree.tree_leaves(values) if isinstance(v, torch.Tensor)]
    tensors = [t.wait() if isinstance(t, fc.AsyncCollectiveTensor) else t for t in tensors]
    return [t.detach().clone().contiguous() for t in tensors]


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    def equal(p, q):
        as_bytes = [t.reshape(-1).view(torch.uint8) for t in (p, q)] if p.numel() and p.dtype == q.dtype else [p, q]
        return p.shape == q.shape and p.dtype == q.dtype and (torch.equal(*as_bytes) or torch.equal(p, q))

    return len(a) == len(b) and all(map(equal, a, b))


class Judge:
    """Runs steps of one kind."""

    def __init__(self, kind: str, job: Ranks):
        self.kind, self.job = kind, job
        self.differentiated = kind in ("gradient", "dtensor")

    def step(self, seed: int, variant: int) -> Step:
        return Step(seed, self.job.ranks, self.kind == "gradient", self.kind in ("aten", "code"), variant)

    def source(self, seed: int, variant: int = 0, lines: list[str] | None = None) -> str:
        if self.kind == "dtensor":
            return redistributions(seed + 7 * variant, self.job.mesh.ndim)
        return self.step(seed, variant).source(lines)

    def outcome(self, seed: int, source: str) -> str:
        """What became of a step."""
        given = self.job.arguments(self.step(seed, 0), seed)
        f = self.job.function(source)
        eager, error = self._result(f, given)
        state = self.job.agreed("invalid" if error else "equal")
        if state != "equal":
            return state
        judged = self._graphs(f, given, seed) if self.kind == "graph" else self._compiled(f, given, seed, eager)
        return self.job.agreed(judged)

    def _result(self, f, given) -> tuple[list, str]:
        """Results, gradients, and the arguments afterwards; or the error."""
        data = [t.clone() for t in given]
        if self.differentiated:
            data = [t.requires_grad_() if n < 2 else t for n, t in enumerate(data)]
        try:
            got = [f(*data)]
            if self.differentiated:
                got += torch.autograd.grad(pytree.tree_leaves(got)[0], data[:2], allow_unused=True)
            return bits([*got, *data]), ""
        except Exception as error:
            return [], f"{type(error).__name__}: {str(error)[:300]}"

    def _graphs(self, f, given, seed) -> str:
        for turn in range(2):
            options = options_of(2 * seed + turn, self.job.slow)
            try:
                traced = [make_fx(f, tracing_mode="fake")(*[t.clone() for t in given]) for _ in range(2)]
                expected, error = self._result(traced[0], given)
                if error:
                    return "invalid"
                gm, report = ct.schedule_overlap(traced[1], **options)
            except Exception as error:
                return f"crash: {type(error).__name__}: {error} with {options}"
            if "error" in report:
                return f"refused: {report['error']} with {options}"
            got, error = self._result(gm, given)
            if error:
                return f"crash: {error} with {options}"
            if not same(got, expected):
                return f"wrong: with {options}"
        return "equal"

    def _compiled(self, f, given, seed, eager) -> str:
        extra = ATEN if self.kind != "code" else {}
        options = options_of(2 * seed, self.job.slow)
        results = []
        for ours in ({}, ct.inductor_options(**options)):
            torch._dynamo.reset()
            compiled = torch.compile(f, options={**ours, **extra, "fx_graph_cache": False})
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                got, error = self._result(compiled, given)
            told = " ".join(str(w.message) for w in said if "CommSched" in str(w.message))
            state = self.job.agreed(f"failed: {error}" if error else "equal")
            if state != "equal":
                return f"crash: {state} with {options}" if ours else "invalid"
            if "likely wrong in PyTorch's own order" in told:
                return "racy"
            if "keeps PyTorch's order" in told or "compiled again in PyTorch's order" in told:
                return f"refused: {told} with {options}"
            results.append(got)
        plain, scheduled = results
        if same(scheduled, plain) or same(scheduled, eager):
            return "equal" if same(plain, eager) else "racy"
        return f"wrong: with {options}" if same(plain, eager) else "racy"


def reduced(judge: Judge, seed: int, variant: int) -> str:
    """The step without all lines that the failure does not need."""
    step = judge.step(seed, variant)

    def failing(lines):
        return judge.outcome(seed, step.source(lines, returned(lines))).split(":")[0] not in FINE

    def returned(lines):
        made = {line.split(" = ")[0] for line in lines}
        return [n for n in step.returned if n in made or not n.startswith("v")] or ["x + 1"]

    lines, size = step.lines, max(1, len(step.lines) // 2)
    while size:
        for at in range(len(lines) - size, -1, -size):
            fewer = lines[:at] + lines[at + size :]
            if failing(fewer):
                lines = fewer
        size //= 2
    return step.source(lines, returned(lines))


def steps(rank: int, ranks: int, kind: str, first: int, count: int, reduce: bool, folder: str) -> None:
    """Runs the steps of some seeds. Rank 0 prints the outcomes.

    Raises:
        AssertionError: a step failed.
    """
    os.environ.update(COMMSCHED_STRICT="0", COMMSCHED_RANKS_DEADLINE_S="20")
    warnings.simplefilter("ignore")
    logging.getLogger("commsched").setLevel(logging.ERROR)
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    torch._functorch.config.enable_autograd_cache = False

    @torch.library.custom_op("commsched_steps::bump", mutates_args=("x",))
    def bump(x: torch.Tensor, y: torch.Tensor) -> None:
        x.add_(y).clamp_(-8, 8)

    ct.reporting.warn_once = lambda text: warnings.warn(f"CommSched: {text}", stacklevel=2)
    job = Ranks(rank, ranks, folder)
    judge, outcomes, failed = Judge(kind, job), collections.Counter(), []
    for seed in range(first, first + count):
        for variant in (0, 1) if seed % 3 == 0 else (0,):
            outcome = judge.outcome(seed, judge.source(seed, variant))
            outcomes[outcome.split(":")[0]] += 1
            ct.reports()
            if outcome.split(":")[0] in FINE:
                continue
            failed.append(f"kind {kind}, seed {seed}, variant {variant}, {ranks} ranks: {outcome}")
            if rank == 0:
                print(failed[-1], flush=True)
                print(judge.source(seed, variant), flush=True)
            if reduce and kind != "dtensor":
                fewest = reduced(judge, seed, variant)
                if rank == 0:
                    print("reduced:\n" + fewest, flush=True)
    if rank == 0:
        print(f"kind {kind}, seeds {first} to {first + count - 1}, {ranks} ranks: {dict(outcomes)}", flush=True)
    assert not failed, "\n".join(failed)
    assert 2 * outcomes["equal"] > outcomes.total(), outcomes  # Otherwise the steps tell nothing.


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kind", choices=KINDS, default="graph")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--reduce", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        gloo.run(given.ranks, steps, given.kind, given.first, given.count, given.reduce, folder)


if __name__ == "__main__":
    main()
