"""An MLIR module and the passes that run over it: the C API in Python."""

from __future__ import annotations

import dataclasses
import enum
import json
import os
import pathlib

from . import _commsched
from ._commsched import Error as Error  # part of this module's interface

MACHINE_PATH = "COMMSCHED_MACHINE_PATH"


def machine_directories() -> list[pathlib.Path]:
    """Where machine profiles are looked for by name: the variable COMMSCHED_MACHINE_PATH, then the package."""
    return [pathlib.Path(p) for p in os.environ.get(MACHINE_PATH, "").split(os.pathsep) if p]


def _add_package_machines() -> None:
    """The profiles that come with the package join the library's search path. In a source tree they are its own."""
    package = pathlib.Path(__file__).resolve().parent
    for folder in (package / "machines", package.parent.parent / "machines"):
        if folder.is_dir() and folder not in machine_directories():
            os.environ[MACHINE_PATH] = os.pathsep.join(filter(None, [os.environ.get(MACHINE_PATH), str(folder)]))
            return


_add_package_machines()


class MessageKind(enum.IntEnum):
    """The kinds of messages, as in CommSched-c/CommSched.h."""

    ERROR, WARNING, NOTE, REMARK, PASSED, MISSED, FAILED, ANALYSIS = range(8)


@dataclasses.dataclass(frozen=True)
class Message:
    """A diagnostic or remark. `category` and `name` are set for optimization remarks."""

    kind: MessageKind
    location: str
    category: str
    name: str
    text: str


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operation of a function's entry block: its full name, and the names that its location carries."""

    opcode: str
    names: tuple[str, ...]


class Program:
    """A parsed module. Not to be used by two threads at once.

    Args:
        source: MLIR text or bytecode.
        name: stands for the file in messages.

    Raises:
        Error: the source is no valid module; the text says where.
    """

    def __init__(self, source: str | bytes, name: str = "<memory>", *, allow_unregistered: bool = False):
        data = source.encode() if isinstance(source, str) else source
        self._program = _commsched.Program(data, name, allow_unregistered)

    def run(self, pipeline: str) -> None:
        """Runs a pass pipeline, such as "reorder-comm-overlap{effort=2}". After an `Error` the module is half
        transformed: parse it again."""
        self._program.run(pipeline)

    def print(self, *, locations: bool = False) -> str:
        """The module as text."""
        return self._program.print(locations)

    def __str__(self) -> str:
        return self.print()

    def bytecode(self) -> bytes:
        """The module as MLIR bytecode."""
        return self._program.bytecode()

    def messages(self) -> list[Message]:
        """Everything that was said so far, in order."""
        return [Message(MessageKind(kind), *rest) for kind, *rest in self._program.messages()]

    def operations(self) -> dict[str, list[Operation]]:
        """Per function, the operations of its entry block in order, without the terminator."""
        functions = json.loads(self._program.list_operations())["functions"]
        return {f["name"]: [Operation(op, tuple(names)) for op, names in f["ops"]] for f in functions}

    def signatures(self) -> dict[str, str]:
        """Per function, its schedule signature ("" where it has none)."""
        return {f["name"]: f["signature"] for f in json.loads(self._program.list_operations())["functions"]}


def version() -> str:
    """The version of the library."""
    return _commsched.version()


def library_file() -> str:
    """The path of the extension module, beside which the library lies."""
    return _commsched.__file__
