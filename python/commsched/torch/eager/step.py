# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""One training step as FSDP2's hooks see it: stretches of computation, and moments at which modules begin or end.

A step does not depend on how its modules are sharded. `runtime` adds what FSDP2 does at these moments.
"""

from __future__ import annotations

import dataclasses
import enum

# The unit that stands for the root module and for all parameters that no other unit has.
ROOT = 0


class Moment(enum.Enum):
    """When FSDP2's hooks of a module run."""

    ENTER = "enter"  # before its forward
    LEAVE = "leave"  # after its forward
    ENTER_BACKWARD = "enter backward"  # the first gradient of one of its results is there
    LEAVE_BACKWARD = "leave backward"  # the gradients of its inputs are there


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A parameter of a unit.

    Args:
        name: its first name in the model.
        shape: its whole sizes.
        stored_itemsize: bytes of an element as it is stored.
        gathered_itemsize: bytes of an element as it is gathered and read.
        reduced_itemsize: bytes of an element of its gradient as it is reduced.
        trained: whether it needs a gradient.
    """

    name: str
    shape: tuple[int, ...]
    stored_itemsize: int
    gathered_itemsize: int
    reduced_itemsize: int
    trained: bool

    def padded(self, ranks: int) -> int:
        """The number of elements of all shards together: rows are padded to a multiple of the ranks."""
        rows = self.shape[0] if self.shape else 1
        row = 1
        for size in self.shape[1:]:
            row *= size
        return -(-rows // ranks) * ranks * row


@dataclasses.dataclass(frozen=True)
class Unit:
    """A module that can be sharded by itself.

    Args:
        name: its name in the model; empty for the root.
        parameters: those that belong to no unit inside of it. Parameters that are shared count once.
        position: its place among the modules of the model, as `named_modules` lists them.
        pinned: why the unit has to stay in the root's group; empty if it need not.
    """

    name: str
    parameters: tuple[Parameter, ...]
    position: int = 0
    pinned: str = ""


@dataclasses.dataclass
class Stretch:
    """Computation between two moments.

    Args:
        cost_ns: the time of its kernels by the model.
        peak_bytes: the most bytes of activations, temporaries and gradients that are live in it.
        end_bytes: the same at its end.
        gradients: pairs of a parameter's name and the bytes of its gradient, which became complete in it. They count
            until they are reduced.
    """

    cost_ns: int = 0
    peak_bytes: int = 0
    end_bytes: int = 0
    gradients: list[tuple[str, int]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Event:
    """A moment of a unit, given by its number."""

    moment: Moment
    unit: int


@dataclasses.dataclass
class Step:
    """A traced step.

    Args:
        units: the root, then the others in the order of their first forward. Those that were not called come last.
        called: the number of units that were called, including the root.
        events: stretches and events in the order of the program.
        notes: what is assumed about the model, in sentences.
        repeated: the units that are called more than once.
    """

    units: list[Unit]
    called: int
    events: list[Stretch | Event]
    notes: list[str]
    repeated: frozenset[int] = frozenset()

    def compute_ns(self) -> int:
        """The time of all computation of the model."""
        return sum(e.cost_ns for e in self.events if isinstance(e, Stretch))
