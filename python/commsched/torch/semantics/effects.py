# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Effects of the nodes of an FX graph: what they read, write and alias, and which orders of them are legal.

`Aliases` tells which values may share memory. `edges` lists the pairs of nodes that every legal order keeps. Both read
the operators' schemas and never look at the storages of fake tensors, which the importer reads. So a schedule is
checked against a reading that shares nothing with the one that it was made from, except the table of operators
(`operators.Spec`).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx

from .operators import (
    UNMARKED_ALIASES,
    Spec,
    argument,
    argument_at,
    nodes_in,
    spec_of,
    starts_nothing,
    storage_of,
    subgraphs,
)

# Operators whose result is a view of their first argument although the schema does not say so.
UNMARKED_VIEWS = {
    "_c10d_functional::wait_tensor",
    "aten::_unsafe_view",
    "_c10d_functional::irecv",
    "_c10d_functional::isend",
}
# Indexed by identity of a target: the arguments that its results may share memory with, by position or name; and the
# target, which stays alive. Hashing an OpOverload runs Python code.
_signatures: dict[int, tuple[list[int | str], Any]] = {}


def _signature(target: Any) -> list[int | str]:
    """The arguments of an operator that its results may be views of, by position or name."""
    entry = _signatures.get(id(target))
    if entry is None:
        schema = target._schema
        known: list[int | str] = []
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
        entry = _signatures[id(target)] = known, target
    return entry[0]


def may_alias(node: fx.Node) -> list:
    """The arguments that the results of a node may share memory with.

    A call of a Python function may return any of its operands. Inductor's patterns insert such functions, to be lowered
    later.
    """
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        signature = _signature(target)
        return [a for where in signature if (a := argument_at(node, where)) is not None] if signature else []
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
    """A number for each tensor of a graph, equal for tensors that may share memory. Near-linear.

    It stays valid until the graph's calls or their arguments change. Another order of the nodes changes nothing.
    """

    def __init__(self, graph: fx.Graph):
        self._graph = graph
        self._parent: list[int] = []
        self._values: dict[fx.Node, object] = {}
        # Indexed by node: the answer of `of`.
        self._known: dict[fx.Node, frozenset[int]] = {}
        self._written: set[int] | None = None
        # Indexed by storage of an input. Two arguments may be views of one tensor.
        inputs: dict[int, int] = {}
        values = self._values
        for node in graph.nodes:
            op = node.op
            if op == "output":
                continue
            if node.target is operator.getitem:
                values[node] = self._element(node)
                continue
            value = values[node] = self._fresh(node.meta.get("val"))
            if op == "call_function":
                for argument in may_alias(node):
                    self._share(value, argument)
            elif op in ("placeholder", "get_attr"):
                if isinstance(value, int):
                    self._unite(value, inputs.setdefault(storage_of(node.meta["val"]), value))
            else:
                self._share(value, list(node.all_input_nodes))

    def of(self, node: fx.Node) -> frozenset[int]:
        """The numbers of all tensors of a node's value."""
        known = self._known.get(node)
        if known is None:
            known = self._known[node] = frozenset([self._find(i) for i in _leaves(self._values.get(node))])
        return known

    def pairs(self, node: fx.Node, val: Any) -> list[tuple[int, torch.Tensor]]:
        """The numbers of a node's tensors, each with its tensor in the fake value `val`."""
        value = self._values.get(node)
        if isinstance(value, int) and isinstance(val, torch.Tensor):
            return [(self._find(value), val)]
        tensors = [v for v in torch.utils._pytree.tree_leaves(val) if isinstance(v, torch.Tensor)]
        return [(self._find(i), v) for i, v in zip(_leaves(value), tensors)]

    def of_all(self, argument: Any) -> set[int]:
        """The numbers of all tensors in a (nested) argument."""
        return set().union(*map(self.of, nodes_in(argument)))

    def written(self) -> set[int]:
        """The memory that some node of the graph writes."""
        if self._written is None:
            self._written = written_memory(self._graph, self)
        return self._written

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
        if isinstance(value, int) and isinstance(argument, fx.Node):
            source = self._values.get(argument)
            if isinstance(source, int):
                self._unite(value, source)
                return
        results = _leaves(value)
        sources = [_leaves(self._values.get(n)) for n in nodes_in(argument)]
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


def _leaves(value: Any) -> Sequence[int]:
    if isinstance(value, int):
        return (value,)
    if isinstance(value, (list, dict)):
        return [i for v in (value.values() if isinstance(value, dict) else value) for i in _leaves(v)]
    return ()


class Landings:
    """Which memory has landed, at one point of a walk over a graph in its order.

    PyTorch's wait returns the tensor that it is given. So a wait for memory that another wait has landed does nothing,
    and its result is a view of what is there.
    """

    def __init__(self, aliases: Aliases):
        self._aliases = aliases
        # Indexed by memory: the wait that landed it.
        self._wait: dict[int, fx.Node] = {}

    def start(self, writes: set[int]) -> None:
        """A collective starts, which writes this memory until its wait."""
        for memory in writes:
            self._wait.pop(memory, None)

    def wait(self, node: fx.Node) -> fx.Node | None:
        """The walk comes to a wait. Returns the earlier wait that landed the same memory; None if this one lands it."""
        memory = self._aliases.of_all(node.args[0])
        earlier = [self._wait[m] for m in memory if m in self._wait]
        if memory and len(earlier) == len(memory):
            return earlier[0]
        self._wait.update(dict.fromkeys(memory, node))
        return None

    def landed(self, value: fx.Node) -> fx.Node | None:
        """The wait that landed a value, which it reads itself. None if there was none."""
        for memory in self._aliases.of(value):
            wait = self._wait.get(memory)
            if wait is not None and wait.args[0] is value:
                return wait
        return None


class _Access:
    """The accesses of one piece of memory, in program order: the last write, and the reads since then."""

    __slots__ = ("write", "reads")

    def __init__(self) -> None:
        self.write: fx.Node | None = None
        self.reads: list[fx.Node] = []


class _Edges:
    """Collects the pairs (earlier, later) of one graph, node by node."""

    def __init__(self, aliases: Aliases):
        self.pairs: list[tuple[fx.Node, fx.Node]] = []
        self.aliases = aliases
        self.written = aliases.written()
        self.accesses: dict[int, _Access] = {}
        # Indexed by start: the memory that it reads and writes until its wait.
        self.in_flight: dict[fx.Node, tuple[set[int], set[int]]] = {}
        self.landings = Landings(aliases)
        self.last_ordered: fx.Node | None = None
        self.last_barrier: fx.Node | None = None
        # Starts and waits since the last barrier.
        self.communication: list[fx.Node] = []

    def visit(self, node: fx.Node) -> None:
        spec = spec_of(node)
        reads = set().union(*map(self.aliases.of, node.all_input_nodes))
        is_view = spec.is_wait and self.landings.wait(node) is not None
        if is_view or not (spec.mutated or spec.start or spec.is_wait or spec.ordered or spec.hybrid):
            for memory in reads & self.written:
                self._read(node, memory)
            return
        writes = writes_of(node, spec, self.aliases)
        if spec.start is not None:
            self.in_flight[node] = (reads, writes)
            self.landings.start(writes)
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
                reads = reads | self.aliases.of_all(read_until(node))
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


def edges(graph: fx.Graph, aliases: Aliases | None = None) -> list[tuple[fx.Node, fx.Node]]:
    """Pairs (earlier, later) that every legal order keeps, besides those of the arguments. O(nodes + edges).

    Args:
        aliases: those of the graph, if somebody has read them already.
    """
    found = _Edges(aliases or Aliases(graph))
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


def read_until(wait: fx.Node) -> list[fx.Node]:
    """What is read until a wait, if a call that is no known collective started what it waits for: all of its operands.

    An operator of PyTorch that is no collective starts nothing.
    """
    start = start_of(wait)
    while isinstance(start, fx.Node) and isinstance(start.target, torch._ops.OpOverload) and may_alias(start):
        start = start.args[0]  # It is a view of what was started.
    if not isinstance(start, fx.Node) or start.op != "call_function" or starts_nothing(start.target):
        return []
    return list(start.all_input_nodes)


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
    landings = Landings(aliases)
    for node in graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        spec = spec_of(node)
        if not spec.is_wait:
            if spec.mutated or spec.start is not None:
                writes = writes_of(node, spec, aliases)
                written |= writes
                if spec.start is not None:
                    landings.start(writes)
            continue
        if landings.wait(node) is not None:
            continue
        start = start_of(node)
        if not isinstance(start, fx.Node) or start.op != "call_function" or spec_of(start).start is None:
            written |= aliases.of_all(node.args[0])
    return written
