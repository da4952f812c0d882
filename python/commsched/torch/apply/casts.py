# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Casts that a pass moved to the other side of collectives: reads them off two modules, and moves them in a graph.

The check does not trust the pass. That bits stay equal, or that the user has allowed sums in fewer bits, is read off
the graph alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence

import torch
import torch.fx as fx

from ..semantics.operators import argument, spec_of
from .keys import STARTS, Key, Keys, Value
from .plan import PlanError

CASTS = (torch.ops.prims.convert_element_type.default, torch.ops.aten._to_copy.default)
# Reductions across which a cast to a wider type moves with equal bits, and those that may round otherwise.
EXACT, ROUNDED = ("min", "max"), ("sum", "avg")
# What a user writes in a pass's options to allow the latter.
LOSSY = "reduced-precision-sums"


@dataclasses.dataclass
class Crossing:
    """A cast that crosses collectives.

    Args:
        path: the starts with their waits, the first collective first.
        behind: it goes from the front of the first one to behind the last one. Otherwise it comes from there.
    """

    cast: Key
    path: list[tuple[Key, Key]]
    behind: bool

    @property
    def changed(self) -> set[Key]:
        """The operations with other operands, besides the readers of the last value."""
        return {self.cast, self.path[0][0]}

    @property
    def readers(self) -> tuple[Value, Value]:
        """The value that readers had before, and the one that they have now."""
        values = (self.path[-1][1], 0), (self.cast, 0)
        return values if self.behind else (values[1], values[0])


def read_crossings(before: Keys, after: Keys) -> list[Crossing]:
    """The casts that changed sides between two modules. O(operations)."""
    found = []
    for key, op in after.operation.items():
        own = before.operation.get(key)
        if own is None or len(own.operands) != 1 or len(op.operands) != 1:
            continue
        was, now, value = before.of(own.operands[0]), after.of(op.operands[0]), (key, 0)
        if was == now:
            continue
        behind = _path(after, now, was)
        if behind and behind == _path(before, now, value):
            found.append(Crossing(key, behind, True))
            continue
        front = _path(before, was, now)
        if front and front == _path(after, was, value):
            found.append(Crossing(key, front, False))
    return found


def _path(keys: Keys, value: Value, source: Value) -> list[tuple[Key, Key]]:
    """The collectives, one behind the other, that make `value` of `source`. Empty if something else does."""
    path: list[tuple[Key, Key]] = []
    while value != source:
        wait = _operation(keys, value, ("comm.wait",))
        start = _operation(keys, keys.of(keys.operation[wait].operands[0]), STARTS) if wait else None
        if wait is None or start is None or len(keys.operation[start].operands) != 1:
            return []
        path.insert(0, (start, wait))
        value = keys.of(keys.operation[start].operands[0])
    return path


def _operation(keys: Keys, value: Value, opcodes: Sequence[str]) -> Key | None:
    key = value[0]
    return key if not isinstance(key, str) and keys.operation[key].opcode in opcodes else None


class Move:
    """A crossing on a graph: nodes for its operations.

    Args:
        node: gives the node of an operation.
        allowed: whether sums may be computed in fewer bits.

    Raises:
        PlanError: the graph would compute something else.
    """

    def __init__(self, crossing: Crossing, node: Callable[[Key], fx.Node | None], allowed: bool):
        cast = node(crossing.cast)
        pairs = [(node(start), node(wait)) for start, wait in crossing.path]
        nodes = [cast, *(n for pair in pairs for n in pair)]
        if cast is None or any(n is None or n.op != "call_function" for n in nodes):
            raise PlanError(f"no call of the graph is the cast {crossing.cast[0]}")
        self.cast, self.behind = cast, crossing.behind
        self.starts = [s for s, _ in pairs if s is not None]
        self.waits = [w for _, w in pairs if w is not None]
        self._check(allowed)

    @property
    def source(self) -> fx.Node:
        return self.cast.args[0]

    @property
    def reading(self) -> list[fx.Node]:
        """The nodes whose memory nobody may write meanwhile."""
        return [self.source, self.cast, *self.waits]

    def _check(self, allowed: bool) -> None:
        cast = self.cast
        plain = cast.target is CASTS[0] or cast.target is CASTS[1] and set(cast.kwargs) == {"dtype"}
        if cast.target not in CASTS or not plain or not isinstance(cast.args[0], fx.Node):
            raise PlanError(f"expected {cast.name} to convert elements and nothing else")
        chain = [cast, *(n for pair in zip(self.starts, self.waits) for n in pair)]
        chain = chain if self.behind else [*chain[1:], cast]
        for node, reader in zip(chain, chain[1:]):
            if set(node.users) != {reader} or reader.args[0] is not node:
                raise PlanError(f"expected {reader.name} to be the only reader of {node.name}")
        types = [n.meta["val"].dtype for n in (self.source, cast)]
        narrow, wide = types if self.behind else reversed(types)
        if not narrow.is_floating_point or not wide.is_floating_point or narrow.itemsize >= wide.itemsize:
            raise PlanError(f"expected {cast.name} to be narrower where it goes")
        for start in self.starts:
            self._check_start(start, allowed and narrow.itemsize >= 2)

    def _check_start(self, start: fx.Node, allowed: bool) -> None:
        spec = spec_of(start)
        if spec.start is None or spec.start.coalesced or spec.start.in_place or spec.start.out:
            raise PlanError(f"a cast cannot cross {start.name}")
        reduction = argument(start, spec, "reduce_op")
        if reduction in ROUNDED and self.behind and not allowed:
            raise PlanError(f"{start.name} would be computed in fewer bits, which the pass's numerics={LOSSY} allows")
        if reduction is not None and not (self.behind and reduction in EXACT + ROUNDED):
            raise PlanError(f"{start.name} would round otherwise")

    def carry_out(self) -> None:
        """Changes the graph, and computes the fake values that follow."""
        first, last, cast, source = self.starts[0], self.waits[-1], self.cast, self.source
        chain = [n for pair in zip(self.starts, self.waits) for n in pair]
        if self.behind:
            first.replace_input_with(cast, source)
            last.replace_all_uses_with(cast)
            cast.replace_input_with(source, last)
            last.append(cast)
        else:
            cast.replace_all_uses_with(last)
            cast.replace_input_with(last, first.args[0])
            first.replace_input_with(first.args[0], cast)
            first.prepend(cast)
        mode = getattr(self.source.meta["val"], "fake_mode", None)
        for node in [*chain, cast] if self.behind else [cast, *chain]:
            args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
            with mode or contextlib.nullcontext():
                node.meta["val"] = node.target(*args, **kwargs)
            node.meta.pop("tensor_meta", None)
