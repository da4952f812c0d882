# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Trains a model of the zoo in one of many modes, with and without CommSched."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import sys
import time
import traceback
import warnings

import torch
from models.zoo import job as common
from models.zoo import models, parallel

from commsched.torch import reporting
from commsched.torch.inductor import passes

# Indexed by name: the model, and the number of ranks that it needs.
MODELS = {
    f.__name__: (f, ranks)
    for f, ranks in (
        # Those without collectives in their graphs come first: their warning is for processes that have compiled none.
        (models.vit_ddp, 2),
        (parallel.fsdp2, 2),
        (models.vit_replicated, 2),
        (models.qwen3_moe, 2),
        (models.deepseek_v3, 2),
        (models.mamba_hybrid, 2),
        (models.dit, 2),
        (models.dlrm, 2),
        (models.tied_decoder, 2),
        (parallel.context_gather, 2),
        (parallel.context_ulysses, 2),
        (parallel.context_ring, 2),
        (parallel.hybrid, 4),
        (parallel.two_d, 4),
        (parallel.pipeline, 4),
        (parallel.three_d, 8),
    )
}
ROWS = 4
# A rank may come minutes after the other on a busy machine.
PATIENCE_S = 1800


def _steps(loss, job, rows=(ROWS, ROWS), every=1):
    """Losses of some steps with SGD. The optimizer takes a step after `every` backward passes."""
    optimizer, losses = torch.optim.SGD(job.parameters, lr=0.1), []
    for step, count in enumerate(rows):
        value = loss(*job.batch(step, count))
        value.backward()
        losses.append(value.detach().clone())
        if (step + 1) % every == 0 and step + 1 < len(rows):
            optimizer.step()
            optimizer.zero_grad()
    optimizer.step()
    return losses


def _plain(job, compiled):
    return _steps(job.compiled(compiled), job)


def _checkpointed(kind, job, compiled):
    common.checkpoints = kind
    try:
        return _plain(job, compiled)
    finally:
        common.checkpoints = None


def _autocast(job, compiled):
    given = job.loss

    def loss(*batch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return given(*batch)

    job.loss = loss
    return _plain(job, compiled)


def _accumulated(job, compiled):
    return _steps(job.compiled(compiled), job, [ROWS] * 4, every=2)


def _dynamic(job, compiled):
    return _steps(job.compiled(compiled), job, (ROWS, ROWS + 2, ROWS - 1))


def _in_mode(mode, job, compiled):
    return _plain(job, functools.partial(compiled, mode=mode))


def _compiled_autograd(job, compiled):
    def step(*batch):
        value = job.loss(*batch)
        value.backward()
        return value

    f, optimizer, losses = compiled(step), torch.optim.SGD(job.parameters, lr=0.1), []
    with torch._dynamo.config.patch(compiled_autograd=True):
        for number in range(2):
            optimizer.zero_grad()
            losses.append(f(*job.batch(number, ROWS)).detach().clone())
            optimizer.step()
    return losses


def _compiled_optimizer(job, compiled):
    """AdamW, and the clipping of gradients by their norm, as one graph beside those of the model."""
    loss, optimizer, losses = job.compiled(compiled), torch.optim.AdamW(job.parameters, lr=1e-2, foreach=True), []

    @compiled
    def update():
        norm = torch.nn.utils.clip_grad_norm_([p for p in job.parameters if p.grad is not None], 0.5, foreach=True)
        optimizer.step()
        return norm

    for number in range(3):
        optimizer.zero_grad()
        value = loss(*job.batch(number, ROWS))
        value.backward()
        losses += [value.detach().clone(), common.local(update()).detach().clone()]
    return losses


MODES = {
    "plain": _plain,
    "checkpointed": functools.partial(_checkpointed, "full"),
    "selective": functools.partial(_checkpointed, "selective"),
    "autocast": _autocast,
    "accumulated": _accumulated,
    "dynamic": _dynamic,
    "reduce-overhead": functools.partial(_in_mode, "reduce-overhead"),
    "compiled-autograd": _compiled_autograd,
    "optimizer": _compiled_optimizer,
}


def trained(model, mode, rank, ranks, compiled):
    """What a model has after some steps: (losses, gradients, weights and buffers), and its job."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    job = model(rank, ranks)
    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        losses = MODES[mode](job, compiled)
    result = losses + [common.local(v).clone() for p in job.parameters for v in (p.grad, p.detach()) if v is not None]
    return result, job


def _alike_everywhere(one, other):
    """Whether all tensors are equal, on all ranks. This is a collective call."""
    same = torch.tensor(int(len(one) == len(other) > 0 and all(map(torch.equal, one, other))))
    torch.distributed.all_reduce(same, torch.distributed.ReduceOp.MIN)
    return bool(same)


def compare(name, mode, rank, ranks, **options):
    """Trains a model with and without CommSched.

    Returns:
        A dictionary with "same" (whether every bit is, on all ranks), "itself" (whether plain Inductor gives the same
        bits twice, if CommSched's are others), "values" (the number of tensors compared), "said" (warnings
        that only CommSched's run gave), "graphs" (its reports), "outside" (whether nothing can be scheduled) and
        "compiled" (how many graphs Dynamo made of it).
    """
    import commsched.torch as ct

    def scheduled(f, **more):
        with ct.enabled(**options):
            return torch.compile(f, **more)

    model = MODELS[name][0]
    with warnings.catch_warnings(record=True) as before:
        warnings.simplefilter("always")
        expected, job = trained(model, mode, rank, ranks, torch.compile)
    compiled = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    reporting.reports()
    reporting._warned.clear()  # So that every job says what it has to say.
    passes._communicating.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got, _ = trained(model, mode, rank, ranks, scheduled)
    graphs, same = reporting.reports(), _alike_everywhere(expected, got)
    itself = same or _alike_everywhere(expected, trained(model, mode, rank, ranks, torch.compile)[0])
    known = {(w.filename, w.lineno, str(w.message)) for w in before}
    return {
        "same": same,
        "itself": itself,
        "values": len(got),
        "said": [str(w.message) for w in caught if (w.filename, w.lineno, str(w.message)) not in known],
        "graphs": graphs,
        "outside": job.outside,
        "compiled": compiled,
    }


@contextlib.contextmanager
def prepared(kernels=False):
    """Faults are raised. Inductor calls ATen for everything, unless `kernels`: it then takes no C++ compiler."""
    import torch._inductor.config as ic

    os.environ.update(COMMSCHED_STRICT="1", COMMSCHED_RANKS_DEADLINE_S=str(PATIENCE_S))
    settings = {} if kernels else dict(fallback_by_default=True, reorder_for_peak_memory=False)
    with ic.patch(force_disable_caches=True, **settings):
        yield


def faults(result):
    """What is wrong with the result of `compare`, in words."""
    graphs = [r for r in result["graphs"] if r["place"] == "graph"]
    wrong = [] if result["same"] else ["other bits" if result["itself"] else "plain Inductor differs from itself"]
    if result["outside"]:
        wrong += [f"{len(graphs)} graphs with collectives"] * bool(graphs)
        wrong += [m for m in result["said"] if "DistributedDataParallel communicate outside" not in m]
        wrong += ["no warning"] * (not result["said"] and result["compiled"] > 0)
        return wrong
    wrong += result["said"]
    wrong += ["no collective scheduled"] * (not any(r["collectives"] for r in graphs))
    wrong += [f"opaque {r['opaque']}" for r in graphs if r["opaque"]]
    wrong += [
        "memory above the limit"
        for r in graphs
        if "peak_bytes" in r and r["peak_bytes"]["after"] > r["peak_bytes"]["limit"]
    ]
    code = [r for r in result["graphs"] if r["place"] == "code"]
    return wrong + ["another order of the code than decided" for r in code if not r["as_decided"]]


def on_rank(rank, ranks, cells, kernels, options, folder):
    """Compares the models and modes of `cells`, and leaves each result as a file. Stops at an exception."""
    with prepared(kernels):
        for number, (name, mode) in enumerate(cells):
            start = time.perf_counter()
            try:
                result = compare(name, mode, rank, ranks, **options)
                result |= {"faults": faults(result), "seconds": time.perf_counter() - start}
            except Exception:
                result = {"faults": [traceback.format_exc()], "graphs": [], "values": 0}
            written = pathlib.Path(folder, f"{number}-{rank}-written")  # Its name changes once it is whole.
            written.write_text(json.dumps(result, default=str))
            written.rename(pathlib.Path(folder, f"{number}-{rank}"))
            print(rank, name, mode, f"{time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)
            if "seconds" not in result:
                raise RuntimeError(f"{name}: see {folder}")
