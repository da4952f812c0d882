# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Records the operators of a step that runs with fake tensors, and which storages are live."""

from __future__ import annotations

import pathlib
import traceback
import weakref
from collections import Counter
from typing import Any

import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from .prices import Prices
from .step import Event, Moment, Stretch


class Untraceable(RuntimeError):
    """The step cannot be traced. The text says where and why."""


def part_of(t: torch.Tensor) -> torch.Tensor:
    """This rank's part of a DTensor, or the tensor itself."""
    if isinstance(t, DTensor):
        t = t._local_tensor
    return t.elem if isinstance(t, AsyncCollectiveTensor) else t


class Recorder(TorchDispatchMode):
    """Records the operators of a step, and which storages are live. Used inside of a `FakeTensorMode`."""

    def __init__(self, prices: Prices):
        super().__init__()
        self.prices = prices
        self.events: list[Stretch | Event] = []
        # Indexed by stretch: how often each kind of operator is in it.
        self.kinds: dict[int, Counter] = {}
        # Modules whose forward is running, the outermost first; for messages.
        self.inside: list[str] = []
        # What is assumed about the model, in sentences.
        self.notes: list[str] = []
        # Whether the model has collectives of its own.
        self.communicates = False
        self._live, self._known, self.stopped = 0, set[int](), False
        self.stretch = self._begin()

    def _begin(self) -> Stretch:
        stretch = Stretch(peak_bytes=self._live, end_bytes=self._live)
        self.kinds[id(stretch)] = Counter()
        self.events.append(stretch)
        return stretch

    def event(self, moment: Moment, unit: int) -> None:
        """A moment comes: a new stretch begins."""
        self.events.append(Event(moment, unit))
        self.cut()

    def cut(self) -> None:
        """A new stretch begins."""
        self.stretch = self._begin()

    def stop(self) -> None:
        """What is freed from now on belongs to no stretch."""
        self.stopped = True

    def ignore(self, tensors: Any) -> None:
        """Storages of these tensors never count: the runtime accounts for them, or they are not the step's."""
        for t in tensors:
            self._known.add(part_of(t).untyped_storage()._cdata)

    def _freed(self, key: int, size: int) -> None:
        self._known.discard(key)
        if self.stopped:
            return
        self._live -= size
        self.stretch.end_bytes = self._live

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(t, (DTensor, AsyncCollectiveTensor)) for t in types):
            return NotImplemented  # They call operators on this rank's part, and those come here.
        kwargs = kwargs or {}
        if func.namespace == "prim":  # It asks for a property of a tensor.
            return func(*args, **kwargs)
        if func.namespace == "c10d":
            raise Untraceable(f"{self.inside[-1] if self.inside else 'the loss'} communicates by itself ({func})")
        if func is torch.ops._c10d_functional.wait_tensor.default:
            return torch.ops.aten.alias.default(args[0])  # The fake one copies.
        result = func(*args, **kwargs)
        for leaf in tree_flatten(result)[0]:
            if isinstance(leaf, torch.Tensor):
                self._count(leaf)
        self.kinds[id(self.stretch)][self.prices.kind(func, args, kwargs, result)] += 1
        self.communicates |= func.namespace == "_c10d_functional"
        return result

    def _count(self, t: torch.Tensor) -> None:
        if t.layout is not torch.strided:
            where = self.inside[-1] if self.inside else "the backward pass or the loss"
            raise Untraceable(f"{where} makes a sparse tensor ({t.layout}), whose size depends on values")
        storage = t.untyped_storage()
        key = storage._cdata
        if key in self._known:
            return
        size = int(storage.nbytes())
        self._known.add(key)
        weakref.finalize(storage, self._freed, key, size).atexit = False
        self._live += size
        self.stretch.end_bytes = self._live
        self.stretch.peak_bytes = max(self.stretch.peak_bytes, self._live)

    def priced(self, machine: Any) -> list[Stretch | Event]:
        """The events, with the times of stretches by a machine profile."""
        times = self.prices.times(machine)
        for entry in self.events:
            if isinstance(entry, Stretch):
                entry.cost_ns = sum(times[kind] * count for kind, count in self.kinds[id(entry)].items())
        return self.events


# The folders of PyTorch and of this package.
_PACKAGES = (pathlib.Path(torch.__file__).parent, pathlib.Path(__file__).parents[2])


def place_of(error: BaseException) -> str:
    """The innermost line of a program outside of PyTorch and of this package that raised."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not any(pathlib.Path(f.filename).is_relative_to(p) for p in _PACKAGES)]
    last = (own or frames)[-1]
    return f"{last.filename}:{last.lineno}"
