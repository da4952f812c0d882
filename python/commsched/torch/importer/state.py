# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""State of the importer at one point of its walk: values, storages, and collectives in flight."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx as fx

from ..options import Estimation
from ..semantics import effects
from ..semantics.operators import storage_of
from .groups import Groups
from .mlir_text import FREE, Printer
from .values import Value, flat_values, scalar_type, tensor_value

# The value of a node: one SSA value, or a list or a dictionary of them. None for an object.
Result = Any


class SplitRules(NamedTuple):
    """What the scalars of a call say about splitting it.

    Args:
        axes: (node, sizes of the operands, sizes of the results) -> `comm.split`. None: the library's table decides.
        draws_nothing: whether a call of an operator that may draw random numbers does not.
    """

    axes: Callable[[fx.Node, Sequence[tuple[int, ...]], Sequence[tuple[int, ...]]], list[list[int]] | None]
    draws_nothing: Callable[[fx.Node], bool]


class AskedOnce:
    """A user's estimator that is asked about each node of a graph once."""

    def __init__(self, estimation: Estimation):
        self._estimation = estimation
        self._known: dict[fx.Node, float | None] = {}

    def __call__(self, node: fx.Node, override_bytes: int | None = None) -> float | None:
        """The estimate in milliseconds; None if the user has none."""
        if override_bytes is not None:
            return self._estimation(node, override_bytes)
        if node not in self._known:
            self._known[node] = self._estimation(node)
        return self._known[node]


class ImportState:
    """The state of one import, and the operations that all parts of the importer share.

    Args:
        graph: the graph to import.
        name: the symbol of the function.
        estimation: the user's estimates of single nodes, if there are any.
        world: the number of ranks of the job.
        opaque: nodes to import as opaque operations, each with the reason.
    """

    def __init__(
        self, graph: fx.Graph, name: str, estimation: Estimation | None, world: int, opaque: dict[str, str] | None
    ):
        self.graph, self.printer = graph, Printer(name)
        self.estimation = None if estimation is None else AskedOnce(estimation)
        self.groups = Groups(self.printer, world)
        self.values: dict[fx.Node, Result] = {}
        # Indexed by storage: the storage that stands for it. A wait's result stands for the result of its start.
        self.canonical: dict[int, int] = {}
        # Indexed by storage: one value in it.
        self.owner: dict[int, Value] = {}
        # Indexed by the storage of a collective in flight: its future's name and type, and the values of its results.
        self.in_flight: dict[int, tuple[str, str, list[Value]]] = {}
        # Indexed by storage: the result of the last wait for a collective.
        self.waited: dict[int, Value] = {}
        # The storages for which a node has waited since the last collective that fills them started.
        self.landed: set[int] = set()
        # Indexed by kind, symbol of the group, and element type: the nodes to ask for estimates, and to measure. Each
        # comes with the larger of its input and output in bytes.
        self.samples: dict[tuple[str, str, str], list[tuple[fx.Node, int]]] = {}
        # Indexed by storage: values that its readers read too, because a function may have returned one of them.
        self.shadows: dict[int, list[Value]] = {}
        # Indexed by future: such values that its collective reads, and whether it writes them.
        self.shadowed: dict[str, tuple[list[Value], bool]] = {}
        # Indexed by node: why it is imported as an opaque operation.
        self.opaque: dict[str, str] = dict(opaque or {})
        # Indexed by the SSA value of a number of type i64: the same number as an index.
        self.indices: dict[str, str] = {}
        # Only if the module is going to be split into strands.
        self.split_rules: SplitRules | None = None
        # The names of collectives that are not to be merged.
        self.apart: frozenset[str] = frozenset()
        # Indexed by node that is fused with others: the bytes of its kernel that it stands for.
        self.shares: dict[fx.Node, int] = {}
        # Constants that the kernels which read them make anew: they take no memory.
        self.without_memory: set[fx.Node] = set()
        self._read_aliases: effects.Aliases | None = None
        self._names = 0

    def bind(self, node: fx.Node, ssa: str, val: Any, single: str | None = None) -> Result:
        """Values of the results of `node`; `ssa#i` for element i of a list. Objects and None have no value."""
        if isinstance(val, torch.Tensor):
            storage = storage_of(val)
            return tensor_value(single or ssa, val, self.canonical.get(storage, storage))
        if isinstance(val, (list, tuple)):
            flat = [v for v in _leaves(val) if v is not None]
            names = iter([f"{ssa}#{i}" for i in range(len(flat))] if len(flat) > 1 else [ssa])
            return [self._unflatten(node, v, names) for v in val]
        if isinstance(val, dict):  # higher-order operators
            return dict(zip(val, self.bind(node, ssa, list(val.values()))))
        return Value(ssa, scalar_type(val))

    def _unflatten(self, node: fx.Node, val: Any, names: Iterator[str]) -> Result:
        if val is None:
            return None
        if isinstance(val, (list, tuple)):
            return [self._unflatten(node, v, names) for v in val]
        return self.bind(node, next(names), val)

    def own(self, values: Iterable[Value]) -> None:
        """Makes each value the owner of its storage, unless the storage has an owner."""
        for v in values:
            if v.storage and v.storage not in self.owner:
                self.owner[v.storage] = v

    def operands(self, node: fx.Node, inputs: Iterable[fx.Node] | None = None) -> list[Value]:
        """The values that a node reads. Lists are spread out."""
        values, result = self.values, []
        for n in node.all_input_nodes if inputs is None else inputs:
            v = values.get(n)
            if type(v) is Value:
                result.append(v)
            elif v is not None:
                result.extend(flat_values(v))
        return [self._landed(v) if v.waitable else v for v in result]

    def _landed(self, v: Value) -> Value:
        """The result of a collective that is read while its name is still that of the start.

        It is the result of the wait, or of a wait made here, which belongs to no node. PyTorch's own tensors wait when
        they are read.
        """
        done = self.waited.get(v.storage)
        if done is not None:
            return done
        future, type_, _ = self.in_flight[v.storage]
        name = f"commsched_wait_{self.number()}"
        return self.wait(f"%{name}", future, type_, v.storage, name)

    def wait(self, ssa: str, future: str, type_: str, storage: int, location: str) -> Value:
        """Emits a wait for all results of a future; returns the one with `storage`."""
        _, _, values = self.in_flight[storage]
        landed = None
        for i, v in enumerate(values):
            name = f"{ssa}#{i}" if len(values) > 1 else ssa
            w = Value(name, v.type, v.shape, v.bytes, v.traffic, v.storage, v.dynamic)
            self.owner.setdefault(v.storage, w)
            self.waited[v.storage] = w
            if v.storage == storage:
                landed = w
        attrs = []
        if any(v.dynamic for v in values):
            attrs.append(f"comm.bytes_hint = array<i64: {', '.join(str(v.bytes) for v in values)}>")
        self.printer.operation(ssa[1:], len(values), "comm.wait", f" {future}", "", attrs, type_, location)
        landed = landed or self.owner.get(storage) or Value(ssa, "none")
        shadows, writes = self.shadowed.get(future, ([], False))
        if shadows and values:
            self.view_beside(landed, shadows, "landed", writes)
        return landed

    def view_beside(self, first: Value, others: Sequence[Value], what: str, writes: bool = False) -> Value:
        """Emits a free view of a value that also reads other values, or writes them, and returns it."""
        ssa = f"%commsched_{what}_{self.number()}"
        hints = [f"comm.bytes_hint = array<i64: {first.bytes}>"] if first.dynamic else []
        mutates = f" mutates [{', '.join(str(i + 1) for i in range(len(others)))}]" if writes else ""
        self.printer.operation(
            ssa[1:],
            1,
            f'comm.compute "commsched.{what}"',
            f"({', '.join(v.ssa for v in (first, *others))})",
            f" aliases [0]{mutates}",
            [f"comm.cost = {FREE}", *hints],
            f"({', '.join(v.type for v in (first, *others))}) -> {first.type}",
            ssa[1:],
        )
        return Value(ssa, first.type, first.shape, first.bytes, first.traffic, first.storage, first.dynamic)

    def shadows_of(self, values: Sequence[Value]) -> list[Value]:
        """What else the readers of some values read: operands that a function may have returned as one of them."""
        if not self.shadows:
            return []
        known = {v.ssa for v in values}
        return list({s.ssa: s for v in values for s in self.shadows.get(v.storage, ()) if s.ssa not in known}.values())

    def number(self) -> int:
        """The next number for the name of an operation that belongs to no node."""
        self._names += 1
        return self._names

    @property
    def aliases(self) -> effects.Aliases:
        """Which tensors of the graph may share memory, by the operators' schemas."""
        if self._read_aliases is None:
            self._read_aliases = effects.Aliases(self.graph)
        return self._read_aliases

    def is_written(self, node: fx.Node) -> bool:
        """Whether the results of a node may be memory that some node writes."""
        aliases = self.aliases
        return not aliases.written().isdisjoint(aliases.of(node))


def _leaves(val: Iterable[Any]) -> Iterator[Any]:
    for v in val:
        if isinstance(v, (list, tuple)):
            yield from _leaves(v)
        else:
            yield v
