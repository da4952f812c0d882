# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Prints a module of `comm` operations as MLIR text.

This is the only file that knows the dialect's assembly. It is given names, types and operand values, and knows nothing
of FX. Every operation keeps the name of its node as its location.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ...meshes import Digits, digits_of

# An operation without cost.
FREE = "#comm.cost<time = 0>"
# Partitions of more ranks than this are not listed one by one: the text would be long.
MOST_LISTED_RANKS = 4096
_LOCATION = re.compile(r' loc\((?:"[^"]*"(?:\("[^"]*"\))?|fused\[[^\]]*\])\)$')
_PLAIN = re.compile(r"^[A-Za-z_][A-Za-z0-9_$.]*$")


def quoted(text: str) -> str:
    """`text` as an MLIR string literal."""
    return (
        '"'
        + "".join(
            c if c.isprintable() and c not in '"\\' and ord(c) < 128 else "".join(f"\\{b:02X}" for b in c.encode())
            for c in text
        )
        + '"'
    )


def symbol(text: str) -> str:
    """`text` as an MLIR symbol reference."""
    return "@" + (text if _PLAIN.match(text) else quoted(text))


def groups_attribute(ranks: Sequence[int], world: int) -> str:
    """The partition of `world` ranks that holds the group `ranks`.

    An FX graph names only the group of this rank. The others of its partition are assumed to be its translates. A group
    whose ranks form a (nested) regular grid becomes a reshaped, transposed iota. Any other group becomes an explicit
    list if the rest of the world divides into groups of its size. Otherwise it becomes a world of its own, which
    forgets where its ranks are.
    """
    size = len(ranks)
    axes = digits_of(ranks)
    if axes is not None:
        iota = _iota(axes, size, world)
        if iota is not None:
            return iota
    own = set(ranks)
    rest = [r for r in range(world) if r not in own]
    if len(rest) % size == 0 and world == size + len(rest) and world <= MOST_LISTED_RANKS:
        groups = [list(ranks)] + [rest[i : i + size] for i in range(0, len(rest), size)]
        return "#comm.ranks<[" + ", ".join("[" + ", ".join(map(str, g)) + "]" for g in groups) + "]>"
    return f"#comm.iota<[1, {size}]>"


def _iota(axes: Digits, size: int, world: int) -> str | None:
    """Fills the gaps between the group's axes with axes over the groups. None if the strides do not nest."""
    dims: list[tuple[int, bool]] = []  # (extent, whether the axis is of the group), outermost first
    outer = world
    for extent, stride in axes:
        if extent * stride <= 0 or outer % (extent * stride):
            return None
        if outer != extent * stride:
            dims.append((outer // (extent * stride), False))
        dims.append((extent, True))
        outer = stride
    if outer != 1:
        dims.append((outer, False))
    groups = world // size
    order = [i for i, d in enumerate(dims) if not d[1]] + [i for i, d in enumerate(dims) if d[1]]
    if order == sorted(order):
        return f"#comm.iota<[{groups}, {size}]>"
    extents = ", ".join(str(d[0]) for d in dims)
    return f"#comm.iota<[{groups}, {size}] from [{extents}] transpose [{', '.join(map(str, order))}]>"


def cost_attribute(flops: int | None, bytes_: int | None, ns: int | None) -> str:
    """`#comm.cost<...>` with the known fields, or an empty string."""
    fields = []
    if flops:
        fields.append(f"flops = {flops}")
    if bytes_ is not None:
        fields.append(f"bytes = {bytes_}")
    if ns is not None:
        fields.append(f"time = {ns}")
    return f"#comm.cost<{', '.join(fields)}>" if fields else ""


class Printer:
    """Collects groups, arguments, operations and results, in that order. `text` gives the module."""

    def __init__(self, name: str):
        self.name = name
        self.groups: list[str] = []
        self.arguments: list[str] = []
        self.lines: list[str] = []
        self.result_types: list[str] = []
        # Indexed by node: the path of the module that it works for ("layers.0").
        self.modules: dict[str, str] = {}
        # Indexed by line: the node that it was made for. The importer sets `current` beforehand.
        self.origins: list[str] = []
        self.current = ""

    def group(self, name: str, ranks: Sequence[int], world: int) -> None:
        """Declares a group."""
        self.groups.append(f"  comm.group {symbol(name)} {groups_attribute(ranks, world)} loc({quoted(name)})")

    def argument(self, ssa: str, type_: str, node: str, origin: str | None, donated: bool, hint: int | None) -> None:
        """Adds a function argument. `origin` is the framework's name for it (a parameter's path)."""
        attrs = (["comm.donated"] if donated else []) + (
            [f"comm.bytes_hint = {hint} : i64"] if hint is not None else []
        )
        attr = f" {{{', '.join(attrs)}}}" if attrs else ""
        child = f"({quoted(origin)})" if origin else ""
        self.arguments.append(f"{ssa}: {type_}{attr} loc({quoted(node)}{child})")

    def operation(
        self,
        ssa: str | None,
        count: int,
        opcode: str,
        operands: Iterable[str],
        clauses: str,
        attrs: list[str],
        types: str,
        node: str | Sequence[str],
    ) -> None:
        """Adds `%ssa:count = opcode(operands) clauses {attrs} : types loc(node)`. Several nodes become a fused
        location. A node's module is what the name of its location was given for.
        """
        child = f"({quoted(self.modules[node])})" if isinstance(node, str) and node in self.modules else ""
        place = f'"{node}"{child}' if isinstance(node, str) else "fused[" + ", ".join(f'"{n}"' for n in node) + "]"
        left = "" if not count else f"%{ssa} = " if count == 1 else f"%{ssa}:{count} = "
        attr = f" {{{', '.join(attrs)}}}" if attrs else ""
        self.lines.append(f"    {left}{opcode}{operands}{clauses}{attr} : {types} loc({place})")
        self.origins.append(self.current)

    def cut(self, length: int) -> None:
        """Removes all operations except the first `length`."""
        del self.lines[length:], self.origins[length:]

    def origin_of(self, line: int) -> str | None:
        """The node of a line of the text. Lines are counted from 1."""
        index = line - 3 - len(self.groups)
        return self.origins[index] if 0 <= index < len(self.origins) else None

    def text(self, locations: bool = True) -> str:
        """The module. Without locations, messages about it give the line of an operation."""
        lines = self.lines if locations else [_LOCATION.sub("", line) for line in self.lines]
        results = ", ".join(self.result_types)
        arrow = f" -> ({results})" if self.result_types else ""
        head = ["module {", *self.groups, f"  func.func {symbol(self.name)}({', '.join(self.arguments)}){arrow} {{"]
        return "\n".join(head + lines + [f"  }} loc({quoted(self.name)})", "} loc(unknown)", ""])
