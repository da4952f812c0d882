# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`commsched.torch.plan`: how to run a model with FSDP2, and what that is predicted to take."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from ...program import Program
from .. import reporting
from ..eager import tracing
from ..eager.step import Event, Step
from ..options import DEFAULT_MACHINE, Options, machine_file, option_value
from ..ranks import compare
from ..summary import bytes_text, change, columns, time_text
from . import program, search, units
from .code import code_of
from .items import Kind
from .layout import Layout
from .program import Measure
from .runtime import Run
from .setting import Setting, by_units


@dataclasses.dataclass(frozen=True)
class Plan:
    """A way to run a model with FSDP2. `plan` makes it.

    Attributes:
        setting: groups of modules, what is resharded, and lists of prefetches.
        predicted: time and peak of a step by the model.
        default: the setting of FSDP2's tutorial, or the one that the user has made.
        default_predicted: the same of that.
        bound_ns: no setting takes less, with any amount of memory. None if the model is one group.
        limit_bytes: the limit on the peak.
        notes: what was assumed, in sentences.
    """

    step: Step = dataclasses.field(repr=False)
    setting: Setting
    predicted: Measure
    default: Setting
    default_predicted: Measure
    bound_ns: int | None
    limit_bytes: int
    notes: tuple[str, ...]
    layout: Layout
    machine: str
    lists_only: bool
    policy: MixedPrecisionPolicy = dataclasses.field(repr=False)
    mesh: DeviceMesh | None = dataclasses.field(repr=False)

    # What it says.

    @property
    def ranks(self) -> int:
        """The number of ranks of the job."""
        return self.layout.size

    def names(self, group: int) -> list[str]:
        """The names of a group's modules. The root's group has the empty name."""
        if group == 0:
            return [""]
        return [self.step.units[u].name for u in self.setting.groups[group].units]

    def run(self) -> Run:
        """What FSDP2's runtime does in a step of the plan."""
        return Run(self.step, self.setting, self.layout)

    def events(self) -> list[tuple[str, str]]:
        """What the host does in a step, in order: pairs of a kind and the names of a group's modules, with commas.

        Kinds are "all_gather", "copy_out" (the whole parameters are there), "reshard" (they are freed),
        "reduce_scatter", and on a mesh of two dimensions "all_reduce".
        """
        return [(kind, ", ".join(self.names(group))) for kind, group in self.run().log]

    def table(self) -> str:
        """The plan beside the default, what each kind of decision is worth, and one row per group."""
        rows = [("", "default", "plan", "")]
        d, p = self.default_predicted, self.predicted
        rows.append(("step", time_text(d.step_ns), time_text(p.step_ns), change(d.step_ns, p.step_ns)))
        rows.append(("exposed", time_text(d.exposed_ns), time_text(p.exposed_ns), ""))
        for what, old, new in (
            ("peak", d.peak_bytes, p.peak_bytes),
            ("peak, allocated", d.allocated_bytes, p.allocated_bytes),
        ):
            rows.append((what, bytes_text(old), bytes_text(new), change(old, new)))
        if self.bound_ns is not None:
            rows.append(("lower bound", "", time_text(self.bound_ns), ""))
        head = f"FSDP2 on {self.layout} of {self.machine}; limit {bytes_text(self.limit_bytes)}"
        lines = [head, *columns(rows)]
        for what, worth in self.worth().items():
            lines.append(f"{what}: {time_text(worth)} of the step")
        lines.append(f"inputs of reductions in flight: {self.setting.reduce_buffers}")
        groups = [("group", "parameters", "after forward", "prefetches forward", "prefetches backward")]
        run = self.run()
        sizes = {item.group: item.nbytes for item in run.items if item.kind is Kind.GATHER}
        for i, group in enumerate(self.setting.groups):
            groups.append(
                (
                    "the model itself" if i == 0 else ", ".join(self.names(i)),
                    bytes_text(sizes.get(i, 0)),
                    _after_forward(group.reshard),
                    ", ".join(self.names(t)[0] for t in self.setting.forward_targets(i)) or "by default",
                    ", ".join(self.names(t)[0] for t in self.setting.backward_targets(i)) or "by default",
                )
            )
        return "\n".join([*lines, *columns(groups), *(f"note: {note}" for note in self.notes)])

    __str__ = table

    def worth(self) -> dict[str, int]:
        """By how much a step takes longer, ns, if one kind of decision is left to FSDP2's default."""
        s = self.setting
        plain = tuple(dataclasses.replace(g, forward_ahead=0, backward_ahead=0) for g in s.groups)
        in_nodes = [not isinstance(g.reshard, bool) for g in s.groups]
        freed = tuple(
            g if node else dataclasses.replace(g, reshard=i > 0) for i, (g, node) in enumerate(zip(s.groups, in_nodes))
        )
        apart = tuple(dataclasses.replace(g, reshard=True) if node else g for g, node in zip(s.groups, in_nodes))
        asked = {"lists of prefetches": dataclasses.replace(s, groups=plain)}
        if not self.lists_only:
            asked |= {
                "keeping parameters after the forward pass": dataclasses.replace(s, groups=freed),
                "keeping parameters on the ranks of a node together": dataclasses.replace(s, groups=apart),
                "inputs of reductions in flight": dataclasses.replace(s, reduce_buffers=1),
            }
        asked = {name: other for name, other in asked.items() if other != s}
        runs = [Run(self.step, other, self.layout) for other in asked.values()]
        # Settings that are carried out alike have one program.
        texts = [program.on_device(run) for run in runs]
        distinct = dict(zip(texts, runs))
        times = dict(zip(distinct, program.measure(distinct, self.machine)))
        return {name: times[text].step_ns - self.predicted.step_ns for name, text in zip(asked, texts)}

    def page(self, path: str | os.PathLike) -> None:
        """Writes the timeline of a step: a page if the name ends in .html, otherwise a trace for Perfetto."""
        run = self.run()
        text = program.module([program.function(run, run.device_order(), "step", locations=True)], self.layout)
        file = option_value(pathlib.Path(path))
        Program(text, "plan").run(
            f"comm-report{{machine={option_value(self.machine)} table=false timeline-file={file}}}"
        )

    def code(self) -> str:
        """Lines of Python that do what `apply` does, without CommSched. `options` are those of `fully_shard`."""
        names = [self.names(i) for i in range(1, len(self.setting.groups))]
        return code_of(self.setting, names, self.layout, self.lists_only)

    # What it does.

    def digest(self) -> str:
        """A hash of what the ranks have to have in common."""
        names = [(self.names(i), g) for i, g in enumerate(self.setting.groups)]
        return hashlib.sha256(repr((names, self.setting.reduce_buffers, str(self.layout))).encode()).hexdigest()[:16]

    def apply(self, model: nn.Module, **options: Any) -> nn.Module:
        """Calls `fully_shard` and sets the lists of prefetches, by public calls of FSDP2. Returns the model.

        If `fully_shard` was called before the plan was made, only the lists are set. All ranks compare their plans, so
        all have to call it.

        Args:
            options: those of `fully_shard` that the plan does not decide, such as `offload_policy`.

        Raises:
            ValueError: the model has no modules of these names, or `fully_shard` was called since, or an option is one
                that the plan decides.
            RuntimeError: another rank has another plan. Every rank raises it, before anything is changed.
        """
        groups = self._modules(model)
        if decided := {"mesh", "dp_mesh_dims", "mp_policy", "reshard_after_forward"} & options.keys():
            raise ValueError(f"options: expected others than {', '.join(sorted(decided))}, which the plan decides")
        if any(isinstance(m, FSDPModule) for m in model.modules()) != self.lists_only:
            raise ValueError(
                "model: expected fully_shard as it was when the plan was made; make the plan again"
                if self.lists_only
                else "model: fully_shard was called since the plan was made; make the plan again"
            )
        if not self.lists_only:
            self._check_mesh()
        self._compare(model)
        if not self.lists_only:
            shared: dict[str, Any] = {"mesh": self.mesh, "mp_policy": self.policy, **options}
            for modules, group in zip(groups[1:], self.setting.groups[1:]):
                fully_shard(modules if len(modules) > 1 else modules[0], reshard_after_forward=group.reshard, **shared)
            fully_shard(model, reshard_after_forward=self.setting.groups[0].reshard, **shared)
            if self.setting.reduce_buffers > 1:
                groups[0][0].set_reduce_scatter_max_input_buffers(self.setting.reduce_buffers)
        for i, modules in enumerate(groups):
            modules[0].set_modules_to_forward_prefetch([groups[t][0] for t in self.setting.forward_targets(i)])
            modules[0].set_modules_to_backward_prefetch([groups[t][0] for t in self.setting.backward_targets(i)])
        return model

    def _check_mesh(self) -> None:
        """Raises ValueError if the mesh that `fully_shard` would get is not that of the plan."""
        size = self.mesh.size() if self.mesh is not None else dist.get_world_size() if dist.is_initialized() else None
        if size != self.ranks or self.layout.replicas and self.mesh is None:
            found = "no mesh" if self.mesh is None and self.layout.replicas else size
            raise ValueError(f"mesh: the plan was made for {self.layout}, got {found}; make the plan again")

    def _modules(self, model: nn.Module) -> list[list[Any]]:
        """Indexed by group: its modules."""
        groups: list[list[Any]] = [[model]]
        for i in range(1, len(self.setting.groups)):
            try:
                groups.append([model.get_submodule(name) for name in self.names(i)])
            except AttributeError as error:
                raise ValueError(f"model: expected the modules of the plan: {error}") from None
        return groups

    def _compare(self, model: nn.Module) -> None:
        """Compares the plan with those of the other ranks. Alone, or without a process group, there are none."""
        if not dist.is_available() or not dist.is_initialized():
            return
        ranks = self.mesh.mesh.flatten().tolist() if self.mesh is not None else range(dist.get_world_size())
        compared = hashlib.sha256(f"fsdp2 {[n for n, _ in model.named_modules()]!r}".encode()).hexdigest()[:16]
        compare(ranks, compared, self.digest())


def plan(
    model: nn.Module,
    example_batch: Any,
    *,
    loss: Callable[[Any], torch.Tensor] | None = None,
    machine: str | os.PathLike = DEFAULT_MACHINE,
    memory_limit_bytes: int | None = None,
    mesh: DeviceMesh | None = None,
    ranks: int | tuple[int, int] | None = None,
    mp_policy: MixedPrecisionPolicy | None = None,
    units: Sequence[nn.Module | str] | None = None,
) -> Plan:
    """Plans how FSDP2 (`fully_shard`) runs a model. Nothing is run, and the model is not changed.

    One step (forward, loss, backward) is traced with fake tensors. It needs no accelerator and no memory, and the model
    may be on the device "meta".

    Args:
        example_batch: what the model is called with: a tuple of arguments, a dictionary of arguments by name, or one
            argument.
        loss: turns what the model returns into a scalar. By default, the model returns it, or all tensors that it
            returns are summed.
        machine: a machine profile, by name or path.
        memory_limit_bytes: limit on the peak of parameters, gradients and activations, without the optimizer's state.
            None: the peak of FSDP2's default.
        mesh: the mesh of `fully_shard`: of one dimension, or of two for hybrid sharding, replicas first.
        ranks: their number in place of a mesh, for a job of another size than this process is in; a pair of the number
            of replicas and that of the ranks of each for hybrid sharding. By default, that of the process group.
        mp_policy: that of `fully_shard`.
        units: modules, or their names, that may be sharded by themselves. By default, the elements of the model's lists
            of modules, and the modules beside these lists.

    If `fully_shard` was called on the model already, its groups hold, and only the lists of prefetches are planned.

    Returns:
        A plan that is at most as slow as FSDP2's default, by the model, if that is within the limit.

    Raises:
        ValueError: an argument is not as expected, or the model is one that cannot be planned yet.
        Untraceable: the model cannot be run with fake tensors. The text names the place.
    """
    options = Options(machine=machine, memory_limit_bytes=memory_limit_bytes)
    options.refuse_measuring("plan")
    return _Planner(model, example_batch, loss, options, mesh, ranks, mp_policy, units).plan()


class _Planner:
    def __init__(
        self,
        model: nn.Module,
        batch: Any,
        loss: tracing.Loss | None,
        options: Options,
        mesh: DeviceMesh | None,
        ranks: int | tuple[int, int] | None,
        policy: MixedPrecisionPolicy | None,
        chosen: Iterable[nn.Module | str] | None,
    ):
        self.model, self.options = model, options
        self.found = units.find(model, chosen)
        self.mesh = mesh or self.found.mesh
        self.lists_only = self.found.applied is not None
        if self.lists_only and policy is not None:
            raise ValueError("mp_policy: expected None for a model on which fully_shard was called")
        self.policy = self.found.policy or policy or MixedPrecisionPolicy()
        # FSDP2 cannot reshard parameters with a gather of their own to a part of the ranks.
        own = any(hasattr(p, "fsdp_pre_all_gather") for p in model.parameters())
        self.layout = units.layout_of(mesh, ranks, self.found, 0 if own else _node_of(options))
        self.step, numbers = self._step(batch, loss)
        if self.lists_only:
            self.default = units.applied_setting(self.step, self.found, numbers)
        else:
            self.default = by_units(self.step, {numbers[u] for u in self.found.blocks})

    def _step(self, batch: Any, loss: tracing.Loss | None) -> tuple[Step, dict[int, int]]:
        whole = units.whole_parameters(self.model, self.policy, self.mesh, self.found)
        casts = (
            self.policy.param_dtype if self.policy.cast_forward_inputs else None,
            self.policy.output_dtype,
        )
        trace = tracing.trace_step(
            self.model, tracing.arguments(batch), loss, self.found.modules, whole, casts, _device(self.model, self.mesh)
        )
        found, numbers = units.step_units(self.model, self.found, trace.order, self.policy, whole)
        events = [
            Event(e.moment, numbers[e.unit]) if isinstance(e, Event) else e
            for e in trace.recorder.priced(self.options.machine)
        ]
        notes = list(trace.recorder.notes)
        notes += [f"{u.name} stays with the model itself: {u.pinned}" for u in found if u.pinned]
        if trace.recorder.communicates:
            notes.append("collectives of the model itself count as computation that nothing hides")
        called = len(trace.order)
        notes += [f"{u.name} is not called in a step" for u in found[called:] if u.parameters]
        repeated = frozenset(numbers[u] for u in trace.repeated)
        notes += [f"{found[u].name} is called more than once in a step" for u in sorted(repeated)]
        return Step(found, called, events, notes, repeated), numbers

    def plan(self) -> Plan:
        limit = self.options.memory_limit_bytes
        pricer = search.Pricer(self.step, self.layout, self.options.machine, limit)
        tried, bound = search.search(pricer, self.default, self.lists_only)
        default = pricer([self.default])[0].measure
        best = tried[0]
        notes = list(self.step.notes)
        if best.measure.needed_bytes > (pricer.limit or 0):
            notes.append("no setting that was tried is within the limit; this one needs least")
        result = Plan(
            self.step,
            best.setting,
            best.measure,
            self.default,
            default,
            bound,
            pricer.limit or 0,
            tuple(notes),
            self.layout,
            os.fspath(self.options.machine),
            self.lists_only,
            self.policy,
            self.mesh,
        )
        if reporting.speaks():
            reporting.log.info(
                "FSDP2 plan: step %s, default %s", time_text(best.measure.step_ns), time_text(default.step_ns)
            )
        return result


def _node_of(options: Options) -> int:
    """The number of ranks of a node of the machine."""
    file = machine_file(options.machine)
    assert file is not None  # `Options` has looked.
    return int(json.loads(file.read_text())["node"]["ranks"])


def _after_forward(reshard: bool | int) -> str:
    if isinstance(reshard, bool):
        return "freed" if reshard else "kept"
    return f"kept by {reshard} ranks together"


def _device(model: nn.Module, mesh: DeviceMesh | None) -> torch.device:
    """Where fake tensors are: the device of the job. Without its build of PyTorch, autograd needs the processor."""
    kinds = [mesh.device_type] if mesh is not None else [p.device.type for p in model.parameters()]
    kind = kinds[0] if kinds else "cpu"
    return torch.device(kind if kind == "cuda" and torch.cuda.is_available() else "cpu")


__all__ = ["Plan", "plan"]
