# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Runs random steps (`random_steps`) on real ranks: with CommSched they have to give the bits that they give without.

    python test/python/fuzz.py --kind graph --first 0 --count 100 [--ranks 4] [--reduce]

The kinds are "graph" (a traced graph through schedule_overlap), "aten" (torch.compile that calls ATen for every
operator), "code" (torch.compile with C++ kernels), "gradient" (as "aten", forward and backward), "dtensor"
(DTensors, redistributed, forward and backward), "model" (a model with parameters, forward and backward), and
"model-code" (the same with C++ kernels). Each seed is one step in a job of its own. Every third one runs again with
other scalars, and every model with other widths and batches, with what ranks decided about the first one. In half of
the steps one rank compiles later than the others. A seed that fails is printed with its step; `--reduce` prints the
fewest lines that still fail.

The oracle of a traced graph is that graph. That of a compilation is plain Inductor, unless that differs from the step
without a compiler: PyTorch moves waits, too.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import itertools
import json
import logging
import os
import pathlib
import random
import tempfile
import warnings
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
from late_ranks import Turn, job_of_its_own, late_rank
from random_models import SCOPE, VARIANTS, RandomModel
from random_redistributions import redistributions
from random_steps import Step
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

import commsched.torch as ct
import gloo
from commsched.torch import memory_plan
from commsched.torch.options import machine_file

KINDS = ("graph", "aten", "code", "gradient", "dtensor", "model", "model-code")
ATEN = dict(fallback_by_default=True, reorder_for_peak_memory=False, allow_buffer_reuse=False, inplace_buffers=False)
# Outcomes that are not faults. "invalid": PyTorch itself refuses the step. "racy": plain Inductor is wrong.
FINE = ("equal", "invalid", "racy")


class Machines(NamedTuple):
    """The paths of machines on which changes pay although tensors are tiny.

    Args:
        links: collectives take so long that they are merged and moved.
        products: nothing has a latency, and products and links are slow, so that activations are split into strands.
    """

    links: str
    products: str


def slow_machines(folder: str) -> Machines:
    links, products = (json.loads(machine_file("cpu-mpi").read_text()) for _ in range(2))
    links["links"]["base_ns"] = 10_000_000
    for place, name in (
        ("compute", "launch_ns"),
        ("copy", "launch_ns"),
        ("links", "base_ns"),
        ("overheads", "issue_ns"),
    ):
        products[place][name] = 1
    for table in ("peak_tflops", "vector_tflops"):
        speeds = products["compute"][table]
        products["compute"][table] = {kind: 1e-5 if kind != "source" else text for kind, text in speeds.items()}
    for kind in ("inter", "intra"):
        products["links"][kind].update(bandwidth_gbps=0.0025, latency_ns=1, message_ns=1)
    paths = []
    for name, profile in (("slow-links", links), ("slow-products", products)):
        paths.append(pathlib.Path(folder, f"{name}.json"))
        paths[-1].write_text(json.dumps({**profile, "name": name}))
    return Machines(*map(str, paths))


def options_of(seed: int, slow: Machines, chained: bool = False) -> dict:
    """Random options of `schedule_overlap`: machines, limits, modes, orders, and what may be changed.

    Args:
        chained: whether strands are worth trying.
    """
    r = random.Random(seed)
    options = {
        "machine": r.choice(["h100-sxm", "cpu-mpi", slow.links, slow.links]),
        "memory_budget_ratio": r.choice([0.0, 0.3, 4.0, 4.0]),
        "bucketing": r.random() < 0.8,
        "collective_order": r.choice(["free", "free", "group", "program"]),
        "fusion": r.random() < 0.8,
        "effort": r.choice([0, 200]),
    }
    if r.random() < (0.8 if chained else 0.1):
        options["strands"] = r.choice(["auto", 2, 4])
        options["machine"] = r.choice([options["machine"], slow.products, slow.products])
    elif r.random() < 0.15:
        options["passes"] = r.choice([["comm-bucket", "comm-raise", "comm-sink-waits"], ["comm-schedule"]])
        options["memory_budget_ratio"] = 100.0  # Such passes know no limit.
    elif r.random() < 0.15:
        options["passes"] = ["comm-reorder-preserving-peak-memory", "comm-sink-waits-preserving-peak-memory"]
    elif r.random() < 0.1:
        options.update(objective="regret", scenarios=4)
    if options.get("passes", ["comm-schedule"]) != ["comm-schedule"]:
        del options["effort"]  # No other pass of these reads it.
    more = random.Random(-1 - seed)
    if options["bucketing"] and "passes" not in options and more.random() < 0.15:
        options["bucket_cap_bytes"] = more.choice([64, 500, 4096])
    return options


def is_fault(outcome: str) -> bool:
    return outcome.split(":")[0] not in FINE


class Ranks:
    """What all steps of one job share."""

    def __init__(self, rank: int, ranks: int, folder: str):
        self.rank, self.ranks = rank, ranks
        everyone = list(range(ranks))
        self.slow = slow_machines(folder) if rank == 0 else None
        (self.slow,) = self._told([self.slow])
        groups = [dist.group.WORLD, dist.new_group(everyone), [dist.new_group([r]) for r in everyone][rank]]
        g, h, s = (group.group_name for group in groups)
        c10d = torch.ops._c10d_functional
        from torch.distributed.tensor import DTensor, Replicate, Shard, init_device_mesh

        sizes = (ranks,) if ranks == 2 else (2, ranks // 2)
        self.mesh = init_device_mesh("cpu", sizes)
        self.scope = dict(torch=torch, fc=fc, dist=dist, C=c10d, W=c10d.wait_tensor, R=rank, G=g, H=h, S=s, M=self.mesh)
        line = init_device_mesh("cpu", (ranks,))
        self.scope.update(scan=scan, while_loop=while_loop)
        self.scope.update(DTensor=DTensor, Replicate=Replicate, Shard=Shard, L=line, **SCOPE)
        self.jobs = itertools.count()

    def _told(self, values: list) -> list:
        dist.broadcast_object_list(values, 0)
        return values

    def agreed(self, outcome: str) -> str:
        """The worst outcome of all ranks."""
        everyone = [None] * self.ranks
        dist.all_gather_object(everyone, outcome)
        return next(filter(is_fault, everyone), max(everyone))

    def arguments(self, step: Step, seed: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(1000 * seed + self.rank)
        made = {
            n: torch.randint(0 if v.dtype == "int64" else -3, 4, v.shape, generator=generator).to(
                getattr(torch, v.dtype)
            )
            for n, v in step.arguments.items()
        }
        if step.joined:
            made["l"] = made["a"][1:3]
        return list(made.values())

    def function(self, source: str):
        scope = dict(self.scope)
        for name in ("all_gather_tensor", "reduce_scatter_tensor", "all_to_all_single"):
            scope[f"{name}_autograd"] = getattr(fc, f"{name}_autograd")
        exec(compile(source, "<step>", "exec"), scope)
        step = scope["step"]
        step.parameters = tuple(scope["net"].parameters()) if "net" in scope else ()
        return step


def bits(values) -> list[torch.Tensor]:
    """The tensors of a result, with memory of their own. Of a DTensor, it is the part of this rank."""
    tensors = [getattr(v, "_local_tensor", v) for v in pytree.tree_leaves(values) if isinstance(v, torch.Tensor)]
    tensors = [t.wait() if isinstance(t, fc.AsyncCollectiveTensor) else t for t in tensors]
    return [t.detach().clone().contiguous() for t in tensors]


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    def as_bytes(t):
        # A copy, as one element may have any stride.
        return t.reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.uint8)

    def equal(p, q):
        both = [as_bytes(p), as_bytes(q)] if p.numel() and p.dtype == q.dtype else [p, q]
        return p.shape == q.shape and p.dtype == q.dtype and (torch.equal(*both) or torch.equal(p, q))

    return len(a) == len(b) and all(map(equal, a, b))


class Judge:
    """Runs steps of one kind."""

    def __init__(self, kind: str, job: Ranks):
        self.kind, self.job, self.name = kind, job, ""
        self.of_models, self.in_code = kind.startswith("model"), kind in ("code", "model-code")
        self.differentiated = self.of_models or kind in ("gradient", "dtensor")

    def variants(self, seed: int) -> range:
        """The variants of a step that run in one process, one after the other."""
        return range(len(VARIANTS) if self.of_models else 2 if seed % 3 == 0 else 1)

    def step(self, seed: int, variant: int) -> Step | RandomModel:
        if self.of_models:
            return RandomModel(seed, variant)
        return Step(seed, self.job.ranks, self.kind == "gradient", self.kind in ("aten", "code"), variant)

    def source(self, seed: int, variant: int = 0, kept: list[int] | None = None) -> str:
        """The source of a step. `kept`: which of its lines."""
        if self.kind == "dtensor":
            return redistributions(seed + 7 * variant, self.job.mesh.ndim)
        step = self.step(seed, variant)
        if kept is None:
            return step.source()
        lines = [step.lines[i] for i in kept]
        made = {line.split(" = ")[0] for line in lines}
        returned = [n for n in step.returned if n in made or not n.startswith("v")]
        return step.source(lines, returned or ["x + 1"])

    def _turn(self, seed: int, variant: int, number: int = 0) -> Turn:
        late = late_rank(seed + 17 * variant, self.job.ranks)
        return Turn(f"{self.name} {variant} {number}", self.job.rank, self.job.ranks, late)

    def _options(self, number: int, seed: int) -> dict:
        return options_of(number, self.job.slow, self.step(seed, 0).chained)

    def outcomes(self, seed: int, kept: list[int] | None = None) -> list[str]:
        """What became of the variants of a step, up to the first fault."""
        found: list[str] = []
        self.name = f"job {next(self.job.jobs)}"
        with job_of_its_own(self.name):
            for variant in self.variants(seed):
                found.append(self._outcome(seed, variant, self.source(seed, variant, kept)))
                if is_fault(found[-1]):
                    break
        return found

    def _outcome(self, seed: int, variant: int, source: str) -> str:
        given = self.job.arguments(self.step(seed, variant), seed)
        f = self.job.function(source)
        eager, error = self._result(f, given, f.parameters)
        state = self.job.agreed("invalid" if error else "equal")
        if state != "equal":
            return state
        if self.kind == "graph":
            return self.job.agreed(self._graphs(f, given, seed, variant))
        # The sizes of a later graph may be symbols.
        dynamic = True if variant and not self.differentiated and random.Random(-2 - seed).random() < 0.5 else None
        return self.job.agreed(self._compiled(f, given, seed, eager, self._turn(seed, variant), dynamic))

    def _result(self, f, given, parameters=()) -> tuple[list, str]:
        """Results, gradients, and the arguments afterwards; or the error."""
        data = copy.deepcopy(given)  # Views of one tensor stay views of one tensor.
        if self.differentiated:
            data = [t.requires_grad_() if n < 2 else t for n, t in enumerate(data)]
        try:
            got = [f(*data)]
            if self.differentiated:
                wanted = [*data[:2], *(p for p in parameters if p.requires_grad)]
                got += torch.autograd.grad(pytree.tree_leaves(got)[0], wanted, allow_unused=True)
            return bits([*got, *data]), ""
        except Exception as error:
            return [], f"{type(error).__name__}: {str(error)[:300]}"

    def _graphs(self, f, given, seed, variant) -> str:
        for number in range(2):
            options = self._options(2 * seed + number, seed)
            try:
                traced = [make_fx(f, tracing_mode="fake")(*[t.clone() for t in given]) for _ in range(2)]
                expected, error = self._result(traced[0], given)
                if error:
                    return "invalid"
                with self._turn(seed, variant, number).scheduling():
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

    def _compiled(self, f, given, seed, eager, turn: Turn, dynamic: bool | None) -> str:
        extra = {} if self.in_code else ATEN
        options = self._options(2 * seed, seed)
        if self.differentiated:  # Otherwise no graph is cut in two.
            memory_plan.forced = random.Random(seed).choice([None, None, None, "keep", "again", "mixed", "mixed"])
            options["memory_plan"] = "off" if seed % 5 and memory_plan.forced is None else "on"
        results = []
        for ours in ({}, ct.inductor_options(**options)):
            torch._dynamo.reset()
            compiled = torch.compile(f, options={**ours, **extra, "fx_graph_cache": False}, dynamic=dynamic)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                with turn.compiling() if ours else contextlib.nullcontext():
                    got, error = self._result(compiled, given, f.parameters)
            told = " ".join(str(w.message) for w in said if "CommSched" in str(w.message))
            state = self.job.agreed(f"failed: {error}" if error else "equal")
            if state != "equal":
                return f"crash: {state} with {options}" if ours else "invalid"
            if "likely wrong in PyTorch's own order" in told:
                return "racy"
            if "the partition of a step" in told:
                return f"refused: {told} with {options}"
            if "keeps PyTorch's order" in told or "compiled again in PyTorch's order" in told:
                return f"refused: {told} with {options}"
            results.append(got)
        plain, scheduled = results
        if same(scheduled, plain) or same(scheduled, eager):
            return "equal" if same(plain, eager) else "racy"
        plan = f", forced to {memory_plan.forced}" if memory_plan.forced else ""
        return f"wrong: with {options}{plan}" if same(plain, eager) else "racy"


def reduced(judge: Judge, seed: int) -> list[int]:
    """The numbers of the lines that the failure of a step needs."""

    def failing(kept):
        return is_fault(judge.outcomes(seed, kept)[-1])

    kept = list(range(len(judge.step(seed, 0).lines)))
    size = max(1, len(kept) // 2)
    while size:
        for at in range(len(kept) - size, -1, -size):
            fewer = kept[:at] + kept[at + size :]
            if failing(fewer):
                kept = fewer
        size //= 2
    return kept


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
    judge, counts, failed = Judge(kind, job), collections.Counter(), []
    for seed in range(first, first + count):
        found = judge.outcomes(seed)
        counts.update(outcome.split(":")[0] for outcome in found)
        ct.reports()
        if not is_fault(found[-1]):
            continue
        failed.append(f"kind {kind}, seed {seed}, variant {len(found) - 1}, {ranks} ranks: {found[-1]}")
        kept = reduced(judge, seed) if reduce and kind != "dtensor" else None
        if rank == 0:
            print(failed[-1], *(judge.source(seed, n, kept) for n in range(len(found))), sep="\n", flush=True)
    if rank == 0:
        print(f"kind {kind}, seeds {first} to {first + count - 1}, {ranks} ranks: {dict(counts)}", flush=True)
    assert not failed, "\n".join(failed)
    assert 2 * counts["equal"] > counts.total(), counts  # Otherwise the steps tell nothing.


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
