# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""An MLIR module and the passes that run over it: the C API in Python."""

from __future__ import annotations

import dataclasses
import enum
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any, TypeAlias

from . import _commsched
from ._commsched import Error as Error  # part of this module's interface

MACHINE_PATH = "COMMSCHED_MACHINE_PATH"


def machine_directories() -> list[pathlib.Path]:
    """The folders in which machine profiles are found by name: those of COMMSCHED_MACHINE_PATH, with the package's
    last.
    """
    return [pathlib.Path(p) for p in os.environ.get(MACHINE_PATH, "").split(os.pathsep) if p]


def _add_package_machines() -> None:
    """Adds the profiles of the package, or of the source tree, to the search path of the library."""
    package = pathlib.Path(__file__).resolve().parent
    for folder in (package / "machines", package.parent.parent / "machines"):
        if folder.is_dir() and folder not in machine_directories():
            os.environ[MACHINE_PATH] = os.pathsep.join(filter(None, [os.environ.get(MACHINE_PATH), str(folder)]))
            return


_add_package_machines()


def option_value(value: str | os.PathLike) -> str:
    """A text or a path as the value of a pass option."""
    text = os.fspath(value)
    return f'"{text}"' if any(c in text for c in " {},=()") else text


# Gathers numbers from all ranks, as an all-gather does.
Gather = Callable[[list[int]], list[int]]


class MessageKind(enum.IntEnum):
    """The kinds of messages, as in CommSched-c/CommSched.h."""

    ERROR, WARNING, NOTE, REMARK, PASSED, MISSED, FAILED, ANALYSIS = range(8)


@dataclasses.dataclass(frozen=True)
class Message:
    """A diagnostic or a remark. `category` and `name` are set for optimization remarks only."""

    kind: MessageKind
    location: str
    category: str
    name: str
    text: str


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operation of a function's entry block: its full name, and the names that its location holds."""

    opcode: str
    names: tuple[str, ...]


# The sizes of a tensor, or of a future of one. None for other types and for sizes that are not static.
Shape: TypeAlias = "tuple[int, ...] | None"


@dataclasses.dataclass(frozen=True)
class DataflowOperation(Operation):
    """An operation with what it reads and makes. Values are numbers; those of the function's arguments come first.

    `shapes` has one entry per result. `offsets` are those of a slice with constant offsets. `attributes` say what the
    operation is, such as its reduction, as text.
    """

    operands: tuple[int, ...]
    results: tuple[int, ...]
    shapes: tuple[Shape, ...]
    offsets: tuple[int, ...]
    attributes: str


@dataclasses.dataclass(frozen=True)
class Dataflow:
    """The shapes of a function's arguments, the operations of its entry block, and the values that it returns."""

    arguments: tuple[Shape, ...]
    operations: list[DataflowOperation]
    returned: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class PeerOrder:
    """An order of somebody else that a schedule replaces.

    Args:
        played: what `Program.play` says of it.
        buckets: names in the locations of operations, in his order: those that a program has are taken. To each the
            number of the bucket that a collective is merged into, or -1. The collectives of a bucket stand where it
            starts, and their waits where it is waited for. Empty if only times are known.
    """

    played: list[int]
    buckets: dict[str, int] = dataclasses.field(default_factory=dict)


class Program:
    """A parsed module. Two threads must not use it at once.

    Args:
        source: MLIR text or bytecode.
        name: the name of the file in messages.

    Raises:
        Error: the source is not a valid module. The text names the place.
    """

    def __init__(self, source: str | bytes, name: str = "<memory>", *, allow_unregistered: bool = False):
        data = source.encode() if isinstance(source, str) else source
        self._program = _commsched.Program(data, name, allow_unregistered)

    def run(self, pipeline: str) -> None:
        """Runs a pass pipeline, such as "reorder-comm-overlap{effort=2}".

        After an `Error` the module is half transformed: parse it again.
        """
        self._program.run(pipeline)

    def set_curve(self, kind: str, group: str, element: str | None, points: list[tuple[int, int]]) -> None:
        """Sets the estimated times of collectives by size, before the tables of every machine.

        They price what is not an operation yet, such as a bucket.

        Args:
            kind: the kind of collective, such as "all_gather".
            group: the symbol of a `comm.group`.
            element: an element type such as "bf16"; None for every type without times of its own.
            points: pairs of bytes and nanoseconds, with strictly ascending bytes.
        """
        self._program.set_curve(kind, group, element, points)

    def set_peer_times(self, times: dict[str, int]) -> None:
        """Gives passes a second opinion: the costs of whoever made the order that a schedule replaces.

        comm-schedule then plays its answers with both costs, and replaces one that is slower than the given order by
        either. Forgets the curves and the orders of an earlier one.

        Args:
            times: nanoseconds, indexed by a name in the location of an operation. An operation with several names
                takes their times together, and one without any what it takes anyway.
        """
        self._program.set_peer_times(times)

    def set_peer_curve(self, kind: str, group: str, element: str | None, points: list[tuple[int, int]]) -> None:
        """As `set_curve`, for the second opinion, after `set_peer_times`."""
        self._program.set_peer_curve(kind, group, element, points)

    def set_peer_orders(self, orders: Callable[[], list[PeerOrder]]) -> None:
        """Sets other orders that a schedule replaces beside the given one, after `set_peer_times`.

        comm-schedule compares its answers with them, and takes one over if its own answers are slower.

        Args:
            orders: is called at most once for each block, by a pass.
        """
        self._program.set_peer_orders(lambda: [(order.played, order.buckets) for order in orders()])

    def play(self, machine: str) -> list[int]:
        """Plays the one block with collectives in its own order, with the costs of a machine and the second opinion's.

        Returns:
            The peak of live bytes; and for each of both costs the makespans in ns if collectives take 0.75, 1, 1.25,
            1.5 and 2 times as long.
        """
        return self._program.play(machine)

    def set_gather(self, gather: Gather | None, ranks: int = 1) -> None:
        """Lets the pass comm-align-costs gather costs from `ranks` ranks.

        Args:
            gather: gets this rank's numbers, and returns those of all ranks, one rank after the other. Every rank
                calls it the same number of times, with lists of equal lengths. None: nothing gathers costs.
            ranks: the number of ranks.
        """
        self._program.set_gather(ranks, gather)

    def print(self, *, locations: bool = False) -> str:
        """The module as text."""
        return self._program.print(locations)

    def __str__(self) -> str:
        return self.print()

    def bytecode(self) -> bytes:
        """The module as MLIR bytecode."""
        return self._program.bytecode()

    def messages(self) -> list[Message]:
        """All messages so far, in order."""
        return [Message(MessageKind(kind), *rest) for kind, *rest in self._program.messages()]

    def operations(self) -> dict[str, list[Operation]]:
        """The operations of each function's entry block in order, without the terminator. Indexed by function."""
        functions = json.loads(self._program.list_operations())["functions"]
        return {f["name"]: [Operation(op, tuple(names)) for op, names in f["ops"]] for f in functions}

    def dataflow(self) -> dict[str, Dataflow]:
        """The operations of `operations` with their operands and results. Indexed by function."""
        functions = json.loads(self._program.list_dataflow())["functions"]
        return {
            f["name"]: Dataflow(
                _shapes(f["arguments"]), [_dataflow_operation(entry) for entry in f["ops"]], tuple(f["returned"])
            )
            for f in functions
        }

    def signatures(self) -> dict[str, str]:
        """The schedule signature of each function, or "" if it has none. Indexed by function."""
        return {f["name"]: f["signature"] for f in json.loads(self._program.list_operations())["functions"]}


def _shapes(shapes: list[list[int] | None]) -> tuple[Shape, ...]:
    return tuple(None if shape is None else tuple(shape) for shape in shapes)


def _dataflow_operation(entry: list[Any]) -> DataflowOperation:
    opcode, names, operands, results, shapes, offsets, attributes = entry
    values = tuple(operands), tuple(results)
    return DataflowOperation(opcode, tuple(names), *values, _shapes(shapes), tuple(offsets), attributes)


def version() -> str:
    """The version of the library."""
    return _commsched.version()


def library_file() -> pathlib.Path:
    """The path of the library."""
    return _commsched.LIBRARY
