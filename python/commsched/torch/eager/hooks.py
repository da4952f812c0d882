# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Hooks at modules and parameters that record when the hooks of FSDP2 and of DDP would run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn as nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from .recorder import Recorder, Untraceable, part_of, place_of
from .step import ROOT, Moment

# What fake tensors raise if a program asks for their values.
DEPENDS_ON_VALUES = (DataDependentOutputException, DynamicOutputShapeException)


class _Boundary(torch.autograd.Function):
    """Tells when the gradients of all inputs of a module are there, as FSDP2's own function does."""

    @staticmethod
    def forward(ctx: Any, reached: Callable[[], None], *inputs: torch.Tensor) -> Any:
        ctx.reached = reached
        return inputs

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        ctx.reached()
        return (None, *gradients)


def differentiable(tree: Any) -> list[torch.Tensor]:
    return [t for t in tree_flatten(tree)[0] if isinstance(t, torch.Tensor) and t.requires_grad]


def _cast(tree: Any, dtype: torch.dtype | None) -> Any:
    """The floating-point tensors of a tree in another type."""
    if dtype is None:
        return tree
    return tree_map(lambda t: t.to(dtype) if isinstance(t, torch.Tensor) and t.is_floating_point() else t, tree)


class UnitHooks:
    """Records the moments of one module, like the hooks that FSDP2 would have there."""

    def __init__(self, recorder: Recorder, unit: int, name: str, inputs: torch.dtype | None, output: Any):
        self.recorder, self.unit, self.name = recorder, unit, name
        self.inputs, self.output = inputs, output
        self.in_backward = False

    def enter(self, module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """Before the module's forward."""
        self.recorder.event(Moment.ENTER, self.unit)
        args, kwargs = _cast(args, self.inputs), _cast(kwargs, self.inputs)
        # A module that activation checkpointing runs again is in its backward already.
        if self.in_backward or not torch.is_grad_enabled() or not differentiable((args, kwargs)):
            return args, kwargs
        leaves, spec = tree_flatten((args, kwargs))
        places = [i for i, t in enumerate(leaves) if isinstance(t, torch.Tensor) and t.requires_grad]
        for i, t in zip(places, _Boundary.apply(self._reached, *[leaves[i] for i in places])):
            leaves[i] = t
        return tree_unflatten(leaves, spec)

    def leave(self, module: nn.Module, args: tuple, output: Any) -> Any:
        """After the module's forward."""
        self.recorder.event(Moment.LEAVE, self.unit)
        if not self.in_backward and torch.is_grad_enabled():
            for t in differentiable(output):
                t.register_hook(self._backward)
        return _cast(output, self.output)

    def guarded(self, forward: Callable[..., Any], module: nn.Module) -> Callable[..., Any]:
        """The module's forward. If it asks for values of tensors, something else takes its place."""

        def run(*args: Any, **kwargs: Any) -> Any:
            depth = len(self.recorder.inside)
            try:
                return forward(*args, **kwargs)
            except DEPENDS_ON_VALUES as error:
                where = f"{self.recorder.inside[-1]}, {place_of(error)}"
                del self.recorder.inside[depth:]
            result = _stand_in(module, (args, kwargs), where)
            self.recorder.notes.append(
                f"{self.name} depends on values of tensors ({where}): it counts as one product of every weight with "
                "every token, whose result has the sizes of its input"
            )
            return result

        return run

    def _backward(self, gradient: torch.Tensor) -> None:
        if not self.in_backward:
            self.in_backward = True
            self.recorder.event(Moment.ENTER_BACKWARD, self.unit)

    def _reached(self) -> None:
        self.in_backward = False
        self.recorder.event(Moment.LEAVE_BACKWARD, self.unit)


def _stand_in(module: nn.Module, inputs: Any, where: str) -> torch.Tensor:
    """Something that costs about what a module costs that cannot be traced, and that its gradients flow through.

    Raises:
        Untraceable: the module's input has no tokens.
    """
    tensors = [t for t in tree_flatten(inputs)[0] if isinstance(t, torch.Tensor) and t.is_floating_point() and t.dim()]
    if not tensors:
        raise Untraceable(f"{where}: the program depends on values of tensors")
    x = tensors[0]
    column = x.reshape(-1, x.shape[-1])[:, :1]
    total = x.new_zeros(())
    for weight in module.parameters():
        if weight.is_floating_point():
            matrix = weight.reshape(-1, weight.shape[-1]) if weight.dim() else weight.reshape(1, 1)
            product = column.expand(-1, matrix.shape[-1]).to(weight.dtype) @ matrix.t()
            total = total + product.sum().to(x.dtype)
    return x + total


def keeper(
    recorder: Recorder, names: dict[int, str], kept: list[torch.Tensor], cut: bool
) -> Callable[[torch.Tensor], None]:
    """Notes a complete gradient, and keeps its memory: whoever reduces it frees it.

    Args:
        cut: a new stretch begins behind it.
    """

    def keep(parameter: torch.Tensor) -> None:
        gradient = parameter.grad
        assert gradient is not None
        if isinstance(gradient, DTensor) and isinstance(parameter, DTensor):  # FSDP2 does so before it reduces.
            gradient = gradient.redistribute(placements=parameter.placements)
        kept.append(gradient)
        recorder.stretch.gradients.append((names[id(parameter)], int(part_of(gradient).untyped_storage().nbytes())))
        parameter.grad = None
        if cut:
            recorder.cut()

    return keep


def register(
    model: nn.Module,
    units: list[tuple[str, nn.Module]],
    recorder: Recorder,
    casts: tuple[torch.dtype | None, torch.dtype | None],
) -> tuple[list[Any], list[nn.Module]]:
    """Registers the hooks of all units, and those that know which module is running.

    Returns:
        The hooks, and the modules whose forward was replaced.
    """
    handles: list[Any] = []
    guarded = []
    for name, module in model.named_modules():
        label = f"{name} ({type(module).__name__})" if name else type(module).__name__
        handles.append(module.register_forward_pre_hook(lambda *_, label=label: recorder.inside.append(label)))
        handles.append(module.register_forward_hook(lambda *_: recorder.inside.pop() and None))
    for number, (name, module) in enumerate(units):
        hooks = UnitHooks(recorder, number, name, *casts)
        handles.append(module.register_forward_pre_hook(hooks.enter, prepend=True, with_kwargs=True))
        handles.append(module.register_forward_hook(hooks.leave))
        if number != ROOT and "forward" not in module.__dict__:
            module.__dict__["forward"] = hooks.guarded(module.forward, module)
            guarded.append(module)
    return handles, guarded
