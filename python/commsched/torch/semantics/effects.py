# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the nodes of an FX graph read, write and alias, and which orders of them are legal.

`Aliases` tells which values may share memory. `edges` lists the pairs of nodes that every legal order keeps. Both read
the operators' schemas and never look at the storages of fake tensors, which the importer reads. So a schedule is
checked against a reading that shares nothing with the one that it was made from, except the table of operators
(`operators.Spec`).
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx as fx

from .operators import UNMARKED_ALIASES, Spec, argument, argument_at, nodes_in, spec_of, storage_of, subgraphs

# Operators whose result is a view of their first argument although the schema does not say so.
UNMARKED_VIEWS = {
    "_c10d_functional::wait_tensor",
    "aten::_unsafe_view",
    "_c10d_functional::irecv",
    "_c10d_functional::isend",
}
# Indexed by target: the arguments that its results may share memory with, by position or name.
_signatures: dict[Any, list[int | str]] = {}


def _signature(target: Any) -> list[int | str]:
    """The arguments of an operator that its results may be views of, by position or name."""
    known = _signatures.get(target)
    if known is None:
        schema = target._schema
        known = []
        if schema.name in UNMARKED_ALIASES:
            known.append(UNMARKED_ALIASES[schema.name])
        elif schema.name in UNMARKED_VIEWS:
            known.append(0)
        returned = [r.alias_info.before_set for r in schema.returns if r.alias_info is not None]
        for i, a in enumerate(schema.arguments):
            if a.alias_info is None:
                continue
            own = a.alias_info.before_set  # It is empty for a list: PyTorch does not tell its elements apart.
            if any(not own or not other or own & other for other in returned):
                known.append(a.name if a.kwarg_only else i)
        _signatures[target] = known
    return known


def may_alias(node: fx.Node) -> list:
    """The arguments that the results of a node may share memory with.

    A call of a Python function may return any of its operands. Inductor's patterns insert such functions, to be lowered
    later.
    """
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return [a for where in _signature(target) if (a := argument_at(node, where)) is not None]
    if isinstance(target, torch._ops.HigherOrderOperator) and _has_views(node):
        return [list(node.all_input_nodes)]
    return [list(node.all_input_nodes)] if is_function(node) else []


def is_function(node: fx.Node) -> bool:
    """Whether a call is of a Python function, of which nothing is known."""
    return (
        node.op == "call_function"
        and not isinstance(node.target, (torch._ops.OpOverload, torch._ops.HigherOrderOperator))
        and node.target is not operator.getitem
    )


def _has_views(node: fx.Node) -> bool:
    """Whether the subgraph of control_deps returns memory of its operands. That subgraph stands for one call.

    Other higher-order operators may not return memory of their operands.
    """
    return node.target.name() == "control_deps" and any(
        isinstance(n.target, torch._ops.OpOverload) and _signature(n.target) for g in subgraphs(node) for n in g.nodes
    )


class Aliases:
    """A number for each tensor of a graph, equal for tensors that may share memory. Near-linear."""

    def __init__(self, graph: fx.Graph):
        self._parent: list[int] = []
        self._values: dict[fx.Node, object] = {}
        # Indexed by storage of an input. Two arguments may be views of one tensor.
        inputs: dict[int, int] = {}
        for node in graph.nodes:
            if node.op == "output":
                continue
            if node.target is operator.getitem:
                self._values[node] = self._element(node)
                continue
            value = self._values[node] = self._fresh(node.meta.get("val"))
            if node.op in ("placeholder", "get_attr"):
                if isinstance(value, int):
                    self._unite(value, inputs.setdefault(storage_of(node.meta["val"]), value))
            elif node.op == "call_function":
                for argument in may_alias(node):
                    self._share(value, argument)
            else:
                self._share(value, list(node.all_input_nodes))

    def of(self, node: fx.Node) -> set[int]:
        """The numbers of all tensors of a node's value."""
        return {self._find(i) for i in _leaves(self._values.get(node))}

    def pairs(self, node: fx.Node, val: Any) -> list[tuple[int, torch.Tensor]]:
        """The numbers of a node's tensors, each with its tensor in the fake value `val`."""
        tensors = [v for v in torch.utils._pytree.tree_leaves(val) if isinstance(v, torch.Tensor)]
        return [(self._find(i), v) for i, v in zip(_leaves(self._values.get(node)), tensors)]

    def of_all(self, argument: Any) -> set[int]:
        """The numbers of all tensors in a (nested) argument."""
        return {i for n in nodes_in(argument) for i in self.of(n)}

    def _fresh(self, val: Any) -> Any:
        if isinstance(val, torch.Tensor):
            self._parent.append(len(self._parent))
            return len(self._parent) - 1
        if isinstance(val, (list, tuple)):
            return [self._fresh(v) for v in val]
        if isinstance(val, dict):
            return {k: self._fresh(v) for k, v in val.items()}
        return None

    def _element(self, node: fx.Node) -> Any:
        source: Any = self._values.get(node.args[0])
        index = node.args[1]
        try:
            return source[index]
        except (TypeError, IndexError, KeyError):
            return source

    def _share(self, value: Any, argument: Any) -> None:
        """Two lists of one length share one for one, as those of coalesced operators. Otherwise all share with all."""
        results = list(_leaves(value))
        sources = [list(_leaves(self._values.get(n))) for n in nodes_in(argument)]
        if isinstance(argument, (list, tuple)) and len(results) == len(sources) and all(len(s) == 1 for s in sources):
            for r, (s,) in zip(results, sources):
                self._unite(r, s)
            return
        for s in (s for group in sources for s in group):
            for r in results:
                self._unite(r, s)

    def _find(self, i: int) -> int:
        parent = self._parent
        while parent[i] != i:
            parent[i] = i = parent[parent[i]]
        return i

    def _unite(self, a: int, b: int) -> None:
        self._parent[self._find(a)] = self._find(b)


def _leaves(value: Any) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, (list, dict)):
        for v in value.values() if isinstance(value, dict) else value:
            yield from _leaves(v)


class _Access:
    """The accesses of one piece of memory, in program order: the last write, and the reads since then."""

    __slots__ = ("write", "reads")

    def __init__(self) -> None:
        self.write: fx.Node | None = None
        self.reads: list[fx.Node] = []


class _Edges:
    """Collects the pairs (earlier, later) of one graph, node by node."""

    def __init__(self, graph: fx.Graph):
        self.pairs: list[tuple[fx.Node, fx.Node]] = []
        self.aliases = Aliases(graph)
        self.written = written_memory(graph, self.aliases)
        self.accesses: dict[int, _Access] = {}
        # Indexed by start: the memory that it reads and writes until its wait.
        self.in_flight: dict[fx.Node, tuple[set[int], set[int]]] = {}
        self.last_ordered: fx.Node | None = None
        self.last_barrier: fx.Node | None = None
        # Starts and waits since the last barrier.
        self.communication: list[fx.Node] = []

    def visit(self, node: fx.Node) -> None:
        spec = spec_of(node)
        reads = {i for n in node.all_input_nodes for i in self.aliases.of(n)}
        writes = writes_of(node, spec, self.aliases)
        if spec.start is not None:
            self.in_flight[node] = (reads, writes)
        elif spec.is_wait:
            start = start_of(node)
            started = self.in_flight.get(start)
            if started:
                # Each wait for a list completes its own element.
                writes = started[1] & self.aliases.of(node)
                reads = started[0] - started[1]
                self.pairs.append((start, node))
            else:  # An opaque operator started it, and may have written it until here.
                writes = set(reads)
        for memory in reads - writes:
            self._read(node, memory)
        for memory in writes:
            self._write(node, memory)
        self._keep_order(node, spec)

    def _read(self, node: fx.Node, memory: int) -> None:
        if memory not in self.written:
            return
        access = self.accesses.setdefault(memory, _Access())
        if access.write is not None and access.write is not node:
            self.pairs.append((access.write, node))
        access.reads.append(node)

    def _write(self, node: fx.Node, memory: int) -> None:
        access = self.accesses.setdefault(memory, _Access())
        self.pairs.extend(
            (before, node) for before in (*access.reads, access.write) if before is not None and before is not node
        )
        access.write, access.reads = node, []

    def _keep_order(self, node: fx.Node, spec: Spec) -> None:
        if spec.ordered:
            if self.last_ordered is not None:
                self.pairs.append((self.last_ordered, node))
            self.last_ordered = node
        communicates = spec.start is not None or spec.is_wait
        if (spec.hybrid or communicates) and self.last_barrier is not None:
            self.pairs.append((self.last_barrier, node))
        if spec.hybrid:
            self.pairs.extend((n, node) for n in self.communication)
            self.last_barrier, self.communication = node, []
        elif communicates:
            self.communication.append(node)


def edges(graph: fx.Graph) -> list[tuple[fx.Node, fx.Node]]:
    """Pairs (earlier, later) that every legal order keeps, besides those of the arguments. O(nodes + edges)."""
    found = _Edges(graph)
    for node in graph.nodes:
        if node.op == "output":
            if found.last_barrier is not None:
                found.pairs.append((found.last_barrier, node))
        elif node.op not in ("placeholder", "get_attr") and node.target is not operator.getitem:
            found.visit(node)
    return found.pairs


def start_of(wait: fx.Node) -> fx.Node | None:
    """The call whose result, or an element of whose result, a wait takes."""
    node = wait.args[0]
    while isinstance(node, fx.Node) and node.target is operator.getitem:
        node = node.args[0]
    return node


def writes_of(node: fx.Node, spec: Spec, aliases: Aliases) -> set[int]:
    """The memory that a node writes."""
    writes: set[int] = set()
    for where in spec.mutated:
        writes |= aliases.of_all(list(node.all_input_nodes) if where == "all" else argument_at(node, where))
    if spec.start is not None and spec.start.in_place:
        writes |= aliases.of_all(node.args[0])
    if spec.start is not None and spec.start.out:
        writes |= aliases.of_all(argument(node, spec, "out"))
    return writes


def written_memory(graph: fx.Graph, aliases: Aliases) -> set[int]:
    """The memory that some node writes. Reads of all other memory need no record."""
    written: set[int] = set()
    for node in graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        spec = spec_of(node)
        if not spec.is_wait:
            written |= writes_of(node, spec, aliases)
            continue
        start = start_of(node)
        if not isinstance(start, fx.Node) or start.op != "call_function" or spec_of(start).start is None:
            written |= aliases.of_all(node.args[0])
    return written
