# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`commsched.torch.plan_ddp`: buckets for `DistributedDataParallel`, and what a step with them is predicted to take."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn as nn
from torch._dynamo.utils import get_optimize_ddp_mode
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from ...program import Program
from .. import reporting
from ..eager import tracing
from ..eager.step import Event, Stretch
from ..options import DEFAULT_MACHINE, Options, option_value
from ..ranks import compare
from ..summary import bytes_text, change, columns, time_text
from . import program
from .program import Measure
from .reducer import DEFAULT_LIMITS, MIB, Backward, Buckets, Gradient
from .search import lower_bound, search


@dataclasses.dataclass(frozen=True)
class DdpPlan:
    """Buckets for `DistributedDataParallel`. `plan_ddp` makes it.

    Attributes:
        limits: bytes at which each bucket is full; the last one holds for all further ones.
        buckets: indexed by bucket, in the order of their all-reduces: the names of its parameters.
        predicted: the time of a step by the model.
        default_predicted: the same with DDP's own limits, and gradients as views of buckets if the plan has them.
        bound_ns: no division into buckets takes less.
        notes: what was assumed, in sentences.
    """

    limits: tuple[int, ...]
    buckets: tuple[tuple[str, ...], ...]
    predicted: Measure
    default_predicted: Measure
    bound_ns: int
    ranks: int
    machine: str
    notes: tuple[str, ...]
    backward: Backward = dataclasses.field(repr=False)

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `DistributedDataParallel` that the plan decides."""
        if self.limits == DEFAULT_LIMITS:
            return {"gradient_as_bucket_view": self.backward.views}
        # A limit is a number of MiB, of which DDP makes bytes again. That is exact, for a MiB is a power of two.
        caps: list[float] = [limit // MIB if limit % MIB == 0 else limit / MIB for limit in self.limits]
        return {"bucket_cap_mb_list": caps, "gradient_as_bucket_view": self.backward.views}

    def table(self) -> str:
        """The plan beside DDP's own limits, and one row per bucket."""
        d, p = self.default_predicted, self.predicted
        default = self.backward.buckets(DEFAULT_LIMITS)
        rows = [
            ("", "default", "plan", ""),
            ("step", time_text(d.step_ns), time_text(p.step_ns), change(d.step_ns, p.step_ns)),
            ("exposed", time_text(d.exposed_ns), time_text(p.exposed_ns), ""),
            ("buckets", str(len(default)), str(len(self.buckets)), ""),
            ("lower bound", "", time_text(self.bound_ns), ""),
        ]
        groups = [("bucket", "gradients", "bytes", "first", "last")]
        sizes = {g.name: g.nbytes for g in self.backward.gradients}
        for i, names in enumerate(self.buckets):
            size = bytes_text(sum(sizes[n] for n in names))
            groups.append((str(i), str(len(names)), size, names[0], names[-1]))
        head = f"DistributedDataParallel on {self.ranks} ranks of {self.machine}"
        return "\n".join([head, *columns(rows), *columns(groups), *(f"note: {note}" for note in self.notes)])

    __str__ = table

    def code(self) -> str:
        """Lines of Python that do what `apply` does, without CommSched. `options` are the other ones of DDP."""
        arguments = "".join(f"    {name}={value!r},\n" for name, value in self.options.items())
        return (
            "from torch.nn.parallel import DistributedDataParallel\n\n"
            "options = {}  # device_ids, process_group: those of your job\n"
            f"model = DistributedDataParallel(\n    model,\n{arguments}    **options,\n)\n"
        )

    def page(self, path: str | os.PathLike) -> None:
        """Writes the timeline of a step: a page if the name ends in .html, otherwise a trace for Perfetto."""
        numbers = {g.name: i for i, g in enumerate(self.backward.gradients)}
        buckets = [[numbers[n] for n in names] for names in self.buckets]
        file = option_value(pathlib.Path(path))
        Program(program.page(self.backward, buckets, self.ranks), "plan").run(
            f"comm-report{{machine={option_value(self.machine)} table=false timeline-file={file}}}"
        )

    def apply(self, model: nn.Module, **options: Any) -> DistributedDataParallel:
        """The model in `DistributedDataParallel` with the plan's buckets.

        All ranks compare their plans, so all have to call it. DDP's Python reducer, whose all-reduces are in a compiled
        graph, takes no list of limits: the schedule of that graph decides the buckets (Ddp.md, "With torch.compile").

        Args:
            options: those of `DistributedDataParallel` that the plan does not decide, such as `device_ids`.

        Raises:
            ValueError: an option is one that the plan decides, or the model has other parameters.
            RuntimeError: another rank has another plan. Every rank raises it, before anything is changed.
        """
        if decided := {"bucket_cap_mb", "bucket_cap_mb_list", "gradient_as_bucket_view"} & options.keys():
            raise ValueError(f"options: expected others than {', '.join(sorted(decided))}, which the plan decides")
        sizes = {n: p.shape for n, p in model.named_parameters() if p.requires_grad}
        planned = {g.name: g.shape for g in self.backward.gradients}
        if sizes != planned:
            other = next(n for n in sorted({*sizes, *planned}) if sizes.get(n) != planned.get(n))
            raise ValueError(f"model: the parameter {other} is not as in the plan; make the plan again")
        group = options.get("process_group")
        ranks = dist.get_process_group_ranks(group) if group is not None else list(range(dist.get_world_size()))
        if len(ranks) != self.ranks:
            raise ValueError(f"model: the plan was made for {self.ranks} ranks, got {len(ranks)}; make the plan again")
        decided_hash, compared = (
            hashlib.sha256(repr(value).encode()).hexdigest()[:16]
            for value in ((self.limits, self.buckets, self.backward.views), ("ddp", sorted(sizes)))
        )
        compare(ranks, compared, decided_hash)
        decided_here = dict(self.options)
        if get_optimize_ddp_mode() == "python_reducer":
            decided_here.pop("bucket_cap_mb_list", None)
        return DistributedDataParallel(model, **decided_here, **options)


def plan_ddp(
    model: nn.Module,
    example_batch: Any,
    *,
    loss: Callable[[Any], torch.Tensor] | None = None,
    machine: str | os.PathLike = DEFAULT_MACHINE,
    ranks: int | None = None,
    gradient_as_bucket_view: bool = True,
) -> DdpPlan:
    """Plans the buckets of `DistributedDataParallel` for a model. Nothing is run, and the model is not changed.

    One step (forward, loss, backward) is traced with fake tensors. It needs no accelerator and no memory, and the model
    may be on the device "meta".

    Args:
        example_batch: what the model is called with: a tuple of arguments, a dictionary of arguments by name, or one
            argument.
        loss: turns what the model returns into a scalar. By default, the model returns it, or all tensors that it
            returns are summed.
        machine: a machine profile, by name or path.
        ranks: their number, for a job of another size than this process is in. By default, that of the process group.
        gradient_as_bucket_view: what `DistributedDataParallel` is told: gradients are views of the buckets, so they
            take no memory of their own and are not copied back.

    Returns:
        A plan that is at most as slow as DDP's default, by the model.

    Raises:
        ValueError: an argument is not as expected, or the model is one that DDP would not divide into buckets.
        Untraceable: the model cannot be run with fake tensors. The text names the place.
    """
    options = Options(machine=machine)
    options.refuse_measuring("plan_ddp")
    if isinstance(model, DistributedDataParallel):
        raise ValueError("model: expected the module that DistributedDataParallel is to wrap, got the wrapped one")
    if any(isinstance(m, FSDPModule) for m in model.modules()):
        raise ValueError("model: fully_shard was called on it; plan it with commsched.torch.plan")
    if ranks is None:
        if not dist.is_initialized():
            raise ValueError("ranks: expected the number of ranks where no process group is initialized")
        ranks = dist.get_world_size()
    if ranks < 1:
        raise ValueError(f"ranks: expected at least 1, got {ranks}")
    backward, notes = _traced(model, example_batch, loss, options, ranks, gradient_as_bucket_view)
    price = _prices(backward, ranks, machine)
    best, default = search(backward, price)
    by_library = program.measure(backward, [best.buckets, default.buckets], ranks, machine)
    if by_library[0].step_ns > by_library[1].step_ns:  # Prices between two sizes were a little off.
        best, by_library[0] = default, by_library[1]
    result = DdpPlan(
        best.limits,
        _names(backward, best.buckets),
        by_library[0],
        by_library[1],
        lower_bound(backward, price, price.sizes),
        ranks,
        os.fspath(machine),
        tuple(notes),
        backward,
    )
    if reporting.speaks():
        reporting.log.info(
            "DDP plan: step %s, default %s",
            time_text(result.predicted.step_ns),
            time_text(result.default_predicted.step_ns),
        )
    return result


def _names(backward: Backward, buckets: Buckets) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(backward.gradients[i].name for i in b) for b in buckets)


def _prices(backward: Backward, ranks: int, machine: Any) -> program.AllReduces:
    types: dict[torch.dtype, int] = {}
    for g in backward.gradients:
        types[g.dtype] = types.get(g.dtype, 0) + g.nbytes
    dtype = max(types, key=types.__getitem__)
    smallest = min(g.nbytes for g in backward.gradients)
    return program.AllReduces(max(1, smallest), max(1, sum(types.values())), dtype, ranks, machine)


def _traced(
    model: nn.Module, batch: Any, loss: tracing.Loss | None, options: Options, ranks: int, views: bool
) -> tuple[Backward, list[str]]:
    """A step, cut at the gradients, and what was assumed about the model.

    Raises:
        ValueError: no parameter is trained, or one of them gets no gradient.
    """
    named = dict(model.named_parameters())
    trained = {n: p for n, p in named.items() if p.requires_grad}
    if not trained:
        raise ValueError("model: expected a parameter that is trained")
    whole = {id(p): tracing.Whole(p.shape, p.dtype) for p in named.values()}
    device = next(iter(named.values())).device
    kind = "cuda" if device.type == "cuda" and torch.cuda.is_available() else "cpu"
    arguments = tracing.arguments(batch)
    trace = tracing.trace_step(
        model, arguments, loss, [("", model)], whole, (None, None), torch.device(kind), each_gradient=True
    )
    before: list[tuple[str, int]] = []
    now = 0
    for event in trace.recorder.priced(options.machine):
        if isinstance(event, Event):
            continue
        assert isinstance(event, Stretch)
        now += event.cost_ns
        for name, _ in event.gradients:
            before.append((name, now))
            now = 0
    if missing := [n for n in trained if n not in {name for name, _ in before}]:
        raise ValueError(
            f"model: the parameter {missing[0]} gets no gradient in the step ({len(missing)} such), and DDP divides "
            "such a model into other buckets: call requires_grad_(False) on what is not trained"
        )
    sizes = {n: p.numel() * p.dtype.itemsize for n, p in trained.items()}
    copies = program.copies(list(sizes.values()), ranks, options.machine)
    gradients = tuple(Gradient(n, trained[n].shape, trained[n].dtype, ns, copies[sizes[n]]) for n, ns in before)
    notes = list(trace.recorder.notes)
    if buffers := sum(b.numel() * b.dtype.itemsize for b in model.buffers()):
        notes.append(
            f"DDP broadcasts buffers of {bytes_text(buffers)} before each forward pass, which is in no time here "
            "(forward_sync_buffers=False does without)"
        )
    return Backward(gradients, now, views), notes
