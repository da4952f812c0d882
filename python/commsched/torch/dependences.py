"""What may not be reordered in an FX graph: an independent reading, to check a schedule against.

Shares nothing with the scheduler's own analysis: the edges come straight from the nodes' arguments, from the storages
that they write, and from the nodes whose order shows (random numbers, assertions, opaque communication).
"""

from __future__ import annotations

import operator

import torch
import torch.fx as fx

from .collectives import Spec, argument, unify_results
from .values import storage_of


class _Access:
    """Of one storage, in program order: the last write, and the reads since."""

    __slots__ = ("write", "reads")

    def __init__(self):
        self.write, self.reads = None, []


def _storages(val, canonical, out: set) -> set:
    if isinstance(val, torch.Tensor):
        s = storage_of(val)
        out.add(canonical.get(s, s))
    elif isinstance(val, (list, tuple)):
        for v in val:
            _storages(v, canonical, out)
    return out


def _nodes(arg):
    if isinstance(arg, fx.Node):
        yield arg
    elif isinstance(arg, (list, tuple)):
        for a in arg:
            yield from _nodes(a)


def edges(graph: fx.Graph) -> list[tuple[fx.Node, fx.Node]]:
    """Pairs (earlier, later) that every legal order keeps, beyond those of the arguments. O(nodes + edges)."""
    result: list[tuple[fx.Node, fx.Node]] = []
    accesses: dict[int, _Access] = {}
    canonical: dict[int, int] = {}
    specs: dict = {}
    flying: dict[fx.Node, tuple[set, set]] = {}  # of a start: the storages it reads and writes until its wait
    last_ordered = last_barrier = None
    communication: list[fx.Node] = []  # starts and waits since the last barrier
    written = written_storages(graph, specs)

    def read(node, storage):
        if storage not in written:
            return
        access = accesses.setdefault(storage, _Access())
        if access.write is not None and access.write is not node:
            result.append((access.write, node))
        access.reads.append(node)

    def write(node, storage):
        access = accesses.setdefault(storage, _Access())
        for before in access.reads:
            if before is not node:
                result.append((before, node))
        if access.write is not None and access.write is not node:
            result.append((access.write, node))
        access.write, access.reads = node, []

    for node in graph.nodes:
        if node.op == "placeholder" or node.op == "get_attr" or node.op == "output":
            if node.op == "output" and last_barrier is not None:
                result.append((last_barrier, node))
            continue
        spec = specs.get(node.target)
        if spec is None:
            spec = specs[node.target] = Spec(node.target)
        if node.target is operator.getitem:
            continue
        if spec.same_as is not None:
            unify_results(node, spec, canonical)
        reads: set = set()
        for n in node.all_input_nodes:
            _storages(n.meta.get("val"), canonical, reads)
        writes = _writes(node, spec, canonical)
        if spec.is_wait and node.args[0] in flying:
            start = node.args[0]
            storage = storage_of(start.meta["val"])
            canonical[storage_of(node.meta["val"])] = canonical.get(storage, storage)
        if spec.start is not None:
            if spec.start.in_place or spec.start.out:
                writes |= _storages(argument(node, spec, "out") and [n.meta["val"] for n in _nodes(
                    argument(node, spec, "out"))] or [n.meta["val"] for n in _nodes(node.args[0])], canonical, set())
            flying[node] = (reads, writes)
        elif spec.is_wait:
            start = node.args[0]
            while isinstance(start, fx.Node) and start.target is operator.getitem:
                start = start.args[0]
            started = flying.get(start)
            if started:
                reads, writes = reads | started[0], writes | started[1]
                result.append((start, node))
            else:  # of what an opaque operator started: until here it may have been written
                writes = set(reads)
                canonical[storage_of(node.meta["val"])] = next(iter(writes), storage_of(node.meta["val"]))
        for s in reads - writes:
            read(node, s)
        for s in writes:
            write(node, s)
        if spec.ordered:
            if last_ordered is not None:
                result.append((last_ordered, node))
            last_ordered = node
        if spec.hybrid:
            result.extend((n, node) for n in communication)
            if last_barrier is not None:
                result.append((last_barrier, node))
            last_barrier, communication = node, []
        elif spec.start is not None or spec.is_wait:
            if last_barrier is not None:
                result.append((last_barrier, node))
            communication.append(node)
    return result


def _writes(node: fx.Node, spec: Spec, canonical) -> set:
    writes: set = set()
    for where in spec.mutated:
        arg = (list(node.all_input_nodes) if where == "all" else node.kwargs.get(where) if isinstance(where, str)
               else node.args[where] if where < len(node.args) else None)
        for n in _nodes(arg):
            _storages(n.meta.get("val"), canonical, writes)
    return writes


def written_storages(graph: fx.Graph, specs: dict) -> set:
    """Storages that some node writes: reads of all others need no record. Waits share their start's storage."""
    canonical: dict[int, int] = {}
    writers = []
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        spec = specs.get(node.target)
        if spec is None:
            spec = specs[node.target] = Spec(node.target)
        if spec.is_wait and isinstance(node.args[0], fx.Node) and isinstance(node.meta.get("val"), torch.Tensor):
            storage = storage_of(node.args[0].meta["val"])
            canonical[storage_of(node.meta["val"])] = canonical.get(storage, storage)
            writers.append((node, spec))
            continue
        if spec.same_as is not None:
            unify_results(node, spec, canonical)
        if spec.mutated or (spec.start is not None and (spec.start.in_place or spec.start.out)):
            writers.append((node, spec))
    written: set = set()
    for node, spec in writers:
        if spec.is_wait:
            start = node.args[0]
            while start.op == "call_function" and start.target is operator.getitem:
                start = start.args[0]
            if start.op != "call_function" or specs[start.target].start is None:
                _storages(node.args[0].meta.get("val"), canonical, written)
            continue
        written |= _writes(node, spec, canonical)
        if spec.start is not None and spec.start.in_place:
            for n in _nodes(node.args[0]):
                _storages(n.meta.get("val"), canonical, written)
        if spec.start is not None and spec.start.out:
            for n in _nodes(argument(node, spec, "out")):
                _storages(n.meta.get("val"), canonical, written)
    return written
