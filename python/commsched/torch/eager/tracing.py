# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Traces one training step of a module with fake tensors, as it runs eagerly: forward, loss and backward.

The parameters of the module are replaced by whole fake ones for the time of the trace, so it needs no memory, no
accelerator and no process group. Autograd runs as in training, so what is kept for the backward pass, and for how
long, is what eager PyTorch keeps.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn as nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Placement
from torch.utils._pytree import tree_flatten, tree_map

from .hooks import differentiable, keeper, register
from .prices import Prices
from .recorder import Recorder, Untraceable, place_of
from .step import Event, Moment

Loss = Callable[[Any], torch.Tensor]
# Which ranks share a parameter (tensor parallelism): their mesh, the placements, and the sizes of the whole.
Shared = tuple[DeviceMesh, tuple[Placement, ...], torch.Size]


@dataclasses.dataclass(frozen=True)
class Whole:
    """A parameter as its module reads it in a step.

    Args:
        size: the sizes of this rank's part.
        shared: which ranks have the other parts. None: the rank has all of it.
    """

    size: torch.Size
    dtype: torch.dtype
    shared: Shared | None = None

    def fake(self, device: torch.device) -> torch.Tensor:
        """An uninitialized tensor, in a `FakeTensorMode`."""
        part = torch.empty(self.size, dtype=self.dtype, device=device)
        if self.shared is None:
            return part
        mesh, placements, size = self.shared
        stride = torch.empty(size, device="meta").stride()
        return DTensor.from_local(part, mesh, placements, run_check=False, shape=size, stride=stride)


@contextlib.contextmanager
def _replaced(model: nn.Module, tensors: dict[int, torch.Tensor]) -> Iterator[None]:
    """Parameters and buffers of the model become others for a while. Indexed by identity of the original."""
    before = [(m, dict(m._parameters), dict(m._buffers)) for m in model.modules()]
    try:
        for module, parameters, buffers in before:
            for own, originals in ((module._parameters, parameters), (module._buffers, buffers)):
                for name, t in originals.items():
                    if t is not None:
                        own[name] = tensors[id(t)]
        yield
    finally:
        for module, parameters, buffers in before:
            module._parameters.update(parameters)
            module._buffers.update(buffers)


@contextlib.contextmanager
def _without_fsdp2(model: nn.Module) -> Iterator[None]:
    """FSDP2's hooks do not run for a while, if it was applied to the model."""
    handles: list[Any] = []
    for module in model.modules():
        if isinstance(module, FSDPModule):
            state = module._get_fsdp_state()
            for handle in (state._pre_forward_hook_handle, state._post_forward_hook_handle):
                handles += getattr(handle, "handles", (handle,))
    hooks = [(found, handle.id) for handle in handles if (found := handle.hooks_dict_ref()) is not None]
    saved = [(found, dict(found)) for found in {id(found): found for found, _ in hooks}.values()]
    try:
        for found, key in hooks:
            found.pop(key, None)
        yield
    finally:
        for found, before in saved:
            found.clear()
            found.update(before)


def _value_of(output: Any, loss: Loss | None) -> torch.Tensor:
    """The scalar whose gradient is computed."""
    if loss is not None:
        value = loss(output)
    else:
        parts = differentiable(output)
        if not parts:
            raise Untraceable("no result of the model depends on a parameter that is trained: pass loss=")
        value = parts[0] if len(parts) == 1 and parts[0].dim() == 0 else sum(t.float().sum() for t in parts)
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        raise Untraceable(f"loss: expected a scalar tensor, got {type(value).__name__}")
    return value


def arguments(batch: Any) -> tuple[tuple, dict[str, Any]]:
    """The arguments of a model, and those by name, of a batch: a tuple, a dictionary, or one argument."""
    if isinstance(batch, dict):
        return (), batch
    return (tuple(batch), {}) if isinstance(batch, (tuple, list)) else ((batch,), {})


class Trace:
    """A traced step before it has prices.

    Attributes:
        recorder: the events.
        order: units in the order of their first forward.
        repeated: those that are called more than once in the forward pass.
    """

    def __init__(self, recorder: Recorder):
        self.recorder = recorder
        calls: dict[int, int] = {}
        in_backward: set[int] = set()
        for e in recorder.events:
            if isinstance(e, Event) and e.moment is Moment.ENTER and e.unit not in in_backward:
                calls[e.unit] = calls.get(e.unit, 0) + 1
            elif isinstance(e, Event) and e.moment is Moment.ENTER_BACKWARD:
                in_backward.add(e.unit)  # Activation checkpointing calls it again.
        self.order = list(calls)
        self.repeated = [u for u, count in calls.items() if count > 1]


def trace_step(
    model: nn.Module,
    batch: tuple[tuple, dict[str, Any]],
    loss: Loss | None,
    units: list[tuple[str, nn.Module]],
    whole: dict[int, Whole],
    casts: tuple[torch.dtype | None, torch.dtype | None],
    device: torch.device,
    each_gradient: bool = False,
) -> Trace:
    """Traces a step.

    Args:
        batch: arguments of the model, and those by name.
        loss: turns what the model returns into a scalar. None: the model returns it, or all its results are summed.
        units: name and module of each unit, the root first.
        whole: the parameters as modules read them. Indexed by identity.
        casts: types to which floating-point inputs and outputs of units are cast; None leaves them.
        device: where the fake tensors are.
        each_gradient: a stretch ends where a gradient is complete, so that it has one at most.

    Raises:
        Untraceable: the model cannot be run with fake tensors. The text names the place.
    """
    arguments = model, batch, loss, units, whole, casts, device, each_gradient
    trace = _trace(*arguments)
    # A DTensor runs operators when it first meets one, to find sizes. They are no part of the step.
    return _trace(*arguments) if trace.recorder.communicates else trace


def _trace(
    model: nn.Module,
    batch: tuple[tuple, dict[str, Any]],
    loss: Loss | None,
    units: list[tuple[str, nn.Module]],
    whole: dict[int, Whole],
    casts: tuple[torch.dtype | None, torch.dtype | None],
    device: torch.device,
    each_gradient: bool,
) -> Trace:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    recorder = Recorder(Prices())

    def fake(t: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=device).requires_grad_(t.requires_grad)

    with _without_fsdp2(model), mode, torch.random.fork_rng(devices=[]):
        tensors: dict[int, torch.Tensor] = {}
        names = {}
        for name, parameter in model.named_parameters():
            value = nn.Parameter(whole[id(parameter)].fake(device), requires_grad=parameter.requires_grad)
            tensors[id(parameter)], names[id(value)] = value, name
        for _, buffer in model.named_buffers():
            tensors.setdefault(id(buffer), fake(buffer))
        args, kwargs = tree_map(lambda v: fake(v) if isinstance(v, torch.Tensor) else v, batch)
        recorder.ignore(tensors.values())
        recorder.ignore(t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor))
        kept: list[torch.Tensor] = []
        handles, guarded = register(model, units, recorder, casts)
        for parameter in tensors.values():
            if id(parameter) in names and parameter.requires_grad:
                handles.append(
                    parameter.register_post_accumulate_grad_hook(keeper(recorder, names, kept, each_gradient))
                )
        try:
            with _replaced(model, tensors), recorder, torch.enable_grad():
                _value_of(model(*args, **kwargs), loss).backward()
        except Untraceable:
            raise
        except Exception as error:
            where = recorder.inside[-1] if recorder.inside else "the backward pass or the loss"
            reason = str(error).split("\n")[0]
            raise Untraceable(f"{where} ({place_of(error)}): {type(error).__name__}: {reason}") from error
        finally:
            recorder.stop()
            for handle in handles:
                handle.remove()
            for module in guarded:
                del module.__dict__["forward"]
        return Trace(recorder)
