"""What may not be reordered in an FX graph: an independent reading, to check a schedule against.

The scheduler's own analysis knows memory by the storages of fake tensors. This one does not look at them: the edges come
from the nodes' arguments, from what the operators' schemas say of views and writes (`aliases`), and from the nodes whose
order shows (random numbers, assertions, opaque communication). Both read the same table of what an operator is
(`collectives.Spec`).
"""

from __future__ import annotations

import operator

import torch.fx as fx

from .aliases import Aliases
from .collectives import Spec, argument, spec_of


class _Access:
    """Of one piece of memory, in program order: the last write, and the reads since."""

    __slots__ = ("write", "reads")

    def __init__(self):
        self.write, self.reads = None, []


class _Edges:
    """Collects the pairs (earlier, later) of one graph, node by node."""

    def __init__(self, graph: fx.Graph):
        self.pairs: list[tuple[fx.Node, fx.Node]] = []
        self.aliases = Aliases(graph)
        self.written = written_memory(graph, self.aliases)
        self.accesses: dict[int, _Access] = {}
        self.flying: dict[fx.Node, tuple[set, set]] = {}  # of a start: what it reads and writes until its wait
        self.last_ordered = self.last_barrier = None
        self.communication: list[fx.Node] = []  # starts and waits since the last barrier

    def visit(self, node: fx.Node) -> None:
        spec = spec_of(node)
        reads = {i for n in node.all_input_nodes for i in self.aliases.of(n)}
        writes = writes_of(node, spec, self.aliases)
        if spec.start is not None:
            self.flying[node] = (reads, writes)
        elif spec.is_wait:
            start = start_of(node)
            started = self.flying.get(start)
            if started:
                # Of a list, each wait completes its own element.
                writes = started[1] & self.aliases.of(node)
                reads = started[0] - started[1]
                self.pairs.append((start, node))
            else:  # of what an opaque operator started: until here it may have been written
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
        self.pairs.extend((before, node) for before in (*access.reads, access.write)
                          if before is not None and before is not node)
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
    """Pairs (earlier, later) that every legal order keeps, beyond those of the arguments. O(nodes + edges)."""
    found = _Edges(graph)
    for node in graph.nodes:
        if node.op == "output":
            if found.last_barrier is not None:
                found.pairs.append((found.last_barrier, node))
        elif node.op not in ("placeholder", "get_attr") and node.target is not operator.getitem:
            found.visit(node)
    return found.pairs


def start_of(wait: fx.Node) -> fx.Node | None:
    """The call whose result a wait takes, or an element of it."""
    node = wait.args[0]
    while isinstance(node, fx.Node) and node.target is operator.getitem:
        node = node.args[0]
    return node


def writes_of(node: fx.Node, spec: Spec, aliases: Aliases) -> set[int]:
    """The memory that a node writes."""
    writes: set = set()
    for where in spec.mutated:
        writes |= aliases.of_all(list(node.all_input_nodes) if where == "all" else node.kwargs.get(where) if isinstance(
            where, str) else node.args[where] if where < len(node.args) else None)
    if spec.start is not None and spec.start.in_place:
        writes |= aliases.of_all(node.args[0])
    if spec.start is not None and spec.start.out:
        writes |= aliases.of_all(argument(node, spec, "out"))
    return writes


def written_memory(graph: fx.Graph, aliases: Aliases) -> set[int]:
    """The memory that some node writes: reads of all other need no record."""
    written: set = set()
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
