# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Process groups as symbols of a module."""

from __future__ import annotations

import torch
import torch.fx as fx

from ..semantics import operators
from .mlir_text import Printer, symbol


class Groups:
    """The groups that a module declares. A group is declared when it is first asked for.

    Args:
        printer: where the declarations are printed.
        world: the number of ranks of the job.
    """

    def __init__(self, printer: Printer, world: int):
        self.printer, self.world = printer, world
        self._symbols: dict[str, str] = {}  # by PyTorch's name of the group
        self._ranks: dict[str, list[int]] = {}  # by symbol
        self._taken: set[str] = set()  # names of symbols, without quotes

    def group(self, node: fx.Node, spec: operators.Spec) -> str:
        """The symbol of a node's group."""
        name, ranks, description = operators.group_of(node, spec)
        known = self._symbols.get(name)
        if known is None:
            base = description if description and description != "undefined" else f"group_{name}"
            base = "".join(c if c.isalnum() or c == "_" else "_" for c in base)
            unique = base if base not in self._taken else f"{base}_{name}"
            self._taken.add(unique)
            self._symbols[name] = known = symbol(unique)
            self._ranks[known] = ranks
            self.printer.group(unique, ranks, max(self.world, max(ranks) + 1))
        return known

    def hybrid_group(self, node: fx.Node, spec: operators.Spec) -> str | None:
        """The group that an opaque operation communicates on: its own, or the first one in its subgraphs.

        None if nothing names the group.

        Raises:
            ValueError: the operation is a collective of eager code.
        """
        if isinstance(node.target, torch._ops.OpOverload):
            if node.target.namespace == "c10d":
                raise ValueError(
                    f"{node.name} calls {node.target}, a collective of eager code, and no schema says what it writes "
                    "and when it has landed; trace functional collectives, which torch.compile makes of those of "
                    "torch.distributed"
                )
            named = "group_name" in spec.arguments or "process_group" in spec.arguments
            return self.group(node, spec) if named else None
        for inner in (n for g in operators.subgraphs(node) for n in g.nodes if n.op == "call_function"):
            spec = operators.spec_of(inner)
            if (spec.start is not None or spec.hybrid) and (group := self.hybrid_group(inner, spec)):
                return group
        return None

    def ranks(self) -> dict[str, list[int]]:
        """The ranks of this rank's part of each group, by the group's symbol."""
        return dict(self._ranks)

    def size(self, group: str) -> int:
        """The number of ranks of a group, by its symbol."""
        return len(self._ranks[group])
