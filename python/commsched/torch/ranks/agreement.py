# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""One order of collectives for all ranks, even if ranks compile different graphs of one program.

Ranks whose batches differ compile different graphs of the same step. In one graph a size is a constant where it is a
symbol in another, and one rank compiles anew when another does not. The graphs have the program in common: which
collectives follow each other, on which groups, whether in a backward graph, and how large the parameters are
(`weights`). So a process decides about a program once, when it schedules the program's first graph: which collectives
are merged, and in which order they start. Every later graph of that program gets the same decision. If the sizes of the
first graph are symbols, it keeps PyTorch's order and merges nothing, for its hints are only what this rank has seen. If
another rank has decided before, its decision holds (`consensus`).

The decision travels with the generated code (`comparison.guard`), for nothing is scheduled on a hit of Inductor's
cache.
"""

from __future__ import annotations

import dataclasses
import hashlib
import heapq
from collections.abc import Callable

import torch
import torch.fx as fx

from ...program import Operation
from ..apply.plan import Plan, PlanError, read_plan
from ..apply.readers import is_backward
from ..apply.rewrite import apply_plan
from ..options import Options
from ..semantics import effects
from ..semantics.operators import group_of, nodes_in, spec_of
from .consensus import Decision, Disagreed, settled
from .weights import class_of_weights, whole_parameters

# The entry of a graph module's `meta` that holds the decision.
META = "commsched_agreement"
# The entry that holds the options of the schedule.
OPTIONS = "commsched_options"
# Indexed by program.
_decisions: dict[str, Decision] = {}

# Indexed by kind: the operations that pack and unpack a bucket.
PACK = {
    "all_gather": "comm.fsdp.all_gather_copy_in",
    "reduce_scatter": "comm.fsdp.chunk_cat",
    "all_reduce": "comm.fsdp.chunk_cat",
}
UNPACK = {
    "all_gather": "comm.fsdp.split_with_sizes_copy",
    "reduce_scatter": "comm.fsdp.split_with_sizes",
    "all_reduce": "comm.fsdp.split_with_sizes",
}


def starts_of(graph: fx.Graph) -> list[fx.Node]:
    """The collectives of a graph, in its order."""
    return [n for n in graph.nodes if n.op == "call_function" and spec_of(n).start is not None]


def _line(start: fx.Node, group: str) -> str:
    """The description of a collective."""
    spec, val = spec_of(start), start.meta.get("val")
    while isinstance(val, (list, tuple)):
        val = val[0]
    reduction = start.args[1] if isinstance(start.args[1], str) else ""
    return f"{spec.op} {reduction} {getattr(val, 'dtype', None)} {group}"


def _hash(*parts: object) -> str:
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]


@dataclasses.dataclass
class Shape:
    """What graphs of one program have in common.

    Args:
        lines: the descriptions of the collectives, in order.
        group: indexed by collective: the name of its group.
        key: a hash of the options, what tells sizes of parameters apart (`weights`), and whether a graph is a backward
            graph.
    """

    lines: list[str]
    group: list[str]
    key: str

    def program(self) -> str:
        """A hash that names the program."""
        return _hash(self.key, *self.lines)

    def structure(self) -> str:
        """The same for all ranks that run the program, each on groups of its own."""
        number: dict[str, int] = {}
        lines = [
            f"{line.rsplit(' ', 1)[0]} {number.setdefault(g, len(number))}" for line, g in zip(self.lines, self.group)
        ]
        return _hash(self.key, *lines)

    def as_given(self) -> Decision:
        """The decision that merges nothing and keeps the order."""
        return tuple(((i,), False) for i in range(len(self.lines)))

    def by_group(self, decision: Decision) -> dict[str, tuple[str, str]]:
        """Indexed by group: hashes of the program and of the decision, as the ranks of that group see them."""
        number: list[int] = []  # Indexed by collective: its number among those of its group.
        count: dict[str, int] = {}
        for g in self.group:
            number.append(count.setdefault(g, 0))
            count[g] += 1
        result = {}
        for g in count:
            lines = [line.rsplit(" ", 1)[0] for line, own in zip(self.lines, self.group) if own == g]
            events = [
                ([number[i] for i in members], packed) for members, packed in decision if self.group[members[0]] == g
            ]
            result[g] = _hash(self.key, *lines), _hash(*events)
        return result


def collectives_of(graph: fx.Graph) -> Shape:
    """What a graph has in common with all that have the same collectives, whatever the options and parameters."""
    starts = starts_of(graph)
    groups = [group_of(s, spec_of(s))[0] for s in starts]
    return Shape([_line(*described) for described in zip(starts, groups)], groups, "")


def shape_of(graph: fx.Graph, options: Options) -> Shape:
    """What later graphs of the same program are recognized by."""
    estimated = " estimated" if options.runtime_estimation is not None else ""
    key = f"{dataclasses.replace(options, runtime_estimation=None).agreed_key()}{estimated}"
    key += f" {class_of_weights(graph, starts_of(graph))} {whole_parameters().sizes}"
    key += " backward" if is_backward(graph) else ""
    return dataclasses.replace(collectives_of(graph), key=key)


def sequence(graph_starts: list[fx.Node], plan: Plan) -> Decision:
    """The decision of a plan about the collectives `graph_starts`, which the graph had before."""
    number = {s: i for i, s in enumerate(graph_starts)}
    merged = {m for b in plan.buckets for m in b.members}
    events = [(b.start, tuple(number[m] for m in b.members), b.packed) for b in plan.buckets]
    events += [(plan.position.get(s, -1), (i,), False) for s, i in number.items() if s not in merged]
    return tuple((members, packed) for _, members, packed in sorted(events))


def symbolic(graph: fx.Graph) -> bool:
    """Whether an input of the graph has a size that is a symbol. Its hint is the first size that this rank has seen."""
    for node in graph.find_nodes(op="placeholder"):
        val = node.meta.get("val")
        if (
            isinstance(val, torch.SymInt)
            or isinstance(val, torch.Tensor)
            and any(isinstance(d, torch.SymInt) for d in val.shape)
        ):
            return True
    return False


def _symbols(val: object) -> set:
    """The symbols in a number, or in the sizes of a tensor or of several."""
    if isinstance(val, (list, tuple)):
        return set().union(*map(_symbols, val))
    sizes = val.shape if isinstance(val, torch.Tensor) else [val]
    return set().union(*(d.node.expr.free_symbols for d in sizes if isinstance(d, torch.SymInt)))


def has_symbolic_sizes(graph: fx.Graph) -> bool:
    """Whether a tensor has a size with a symbol that the inputs have. A number that no size contains costs nothing.

    O(nodes).
    """
    given = _symbols([n.meta.get("val") for n in graph.find_nodes(op="placeholder")])
    if not given:
        return False
    values = [n.meta.get("val") for n in graph.nodes]
    return any(_symbols(val) & given for val in values if isinstance(val, (torch.Tensor, list, tuple)))


def schedule(graph: fx.Graph, options: Options, run: Callable) -> dict:
    """Schedules a graph by `run` (`schedule_graph`) as every rank of its program would; returns its report.

    Raises:
        Unscheduled, or what `run` raises. The graph is unchanged, or has the order that was decided before.
    """
    shape = shape_of(graph, options)
    if graph.owning_module is not None:
        graph.owning_module.meta[OPTIONS] = options
    program = shape.program()
    in_order = dataclasses.replace(options.unmerged(), collective_order="program")
    known = _decisions.get(program)
    as_given = shape.as_given()
    decision = known
    decided_by = "an earlier graph"
    if known is None and has_symbolic_sizes(graph):
        decision = settled(shape.structure(), as_given)
        decided_by = "program" if decision == as_given else "another rank"
    _note(graph, shape, as_given)
    if decision is None:
        try:
            return _decide(graph, options, shape, run)
        except Disagreed as error:
            decision, decided_by = error.decision, "another rank"
    _decisions.setdefault(program, decision)
    decision = _allowed(graph, decision)
    before, names = None, [s.name for s in starts_of(graph)]
    if decision != as_given:
        before = run(graph, options.unchanged())
        impose(graph, decision)
    _note(graph, shape, decision)
    report = changed_from(before, run(graph, in_order))
    if before is not None:
        report["buckets"] = [[names[i] for i in members] for members, _ in decision if len(members) > 1]
    report["decided_by"] = decided_by
    return report


def changed_from(before: dict | None, report: dict) -> dict:
    """The report of a graph that was changed before it was scheduled: "before" is the graph as given.

    Args:
        before: the report of the graph as given. None: nothing was changed.
        report: that of the changed graph.
    """
    if before is None:
        return report
    result = dict(report)
    for name, numbers in before.items():
        if isinstance(numbers, dict) and "before" in numbers and isinstance(report.get(name), dict):
            result[name] = {**report[name], "before": numbers["before"]}
    return result


def _decide(graph: fx.Graph, options: Options, shape: Shape, run: Callable) -> dict:
    """Schedules the first graph of a program, and leaves the decision for the other ranks.

    Raises:
        Disagreed: another rank has decided otherwise before. The graph is unchanged.
    """

    def agree(decision: Decision) -> None:
        first = settled(shape.structure(), decision)
        if first != decision:
            raise Disagreed(first)

    try:
        report = run(graph, options, agree=agree)
    except Disagreed:
        raise
    except Exception:
        agree(shape.as_given())  # The graph keeps PyTorch's order, and ranks that come later do the same.
        raise
    decision = report.get("decision", shape.as_given())
    _decisions[shape.program()] = decision
    _note(graph, shape, decision)
    return report


def _note(graph: fx.Graph, shape: Shape, decision: Decision) -> None:
    """Writes the decision into the graph module's `meta`."""
    if graph.owning_module is not None:
        graph.owning_module.meta[META] = (shape.program(), decision, shape.by_group(decision))


def keep_given(graph: fx.Graph) -> None:
    """Notes that a graph whose schedule was undone keeps PyTorch's order, which ranks compare when the code first runs.

    A graph that was never scheduled stays without a note.
    """
    owner = graph.owning_module
    if owner is None:
        return
    owner.meta.pop(META, None)
    if (options := owner.meta.pop(OPTIONS, None)) is not None:
        shape = shape_of(graph, options)
        _note(graph, shape, shape.as_given())


def remember(program: str, decision: Decision) -> None:
    """Takes over a decision that came with generated code."""
    _decisions.setdefault(program, decision)


def impose(graph: fx.Graph, decision: Decision) -> None:
    """Merges and orders the collectives of `graph` as decided. All other nodes keep their order as far as possible.

    O((nodes + edges) log nodes).

    Raises:
        PlanError: the graph does not allow the decision. It is unchanged.
    """
    apply_plan(graph, read_plan(graph, _operations(graph, decision)))


def _allowed(graph: fx.Graph, decision: Decision) -> Decision:
    """A decision without the buckets that no form can hold: collectives whose sizes are symbols here are not merged.

    Their sizes are equal on all ranks, so the graphs of all ranks that run them together have symbols there.
    """
    starts, allowed = starts_of(graph), list[tuple[tuple[int, ...], bool]]()
    for members, packed in decision:
        merged = members if len(members) == 1 else tuple(i for i in members if _is_static(starts[i]))
        allowed += [(merged, packed and len(merged) > 1)] if merged else []
        allowed += [((i,), False) for i in members if i not in merged]
    return tuple(allowed)


def _is_static(start: fx.Node) -> bool:
    """Whether the sizes of what a collective takes are numbers."""
    vals = [n.meta["val"] for n in nodes_in(start.args[0])]
    return all(type(d) is int for val in vals for d in val.shape)


def _operations(graph: fx.Graph, decision: Decision) -> list[Operation]:
    """The sequence of operations that carries out a decision."""
    starts = starts_of(graph)
    events = [([starts[i] for i in members], packed) for members, packed in decision]
    event_of = {s: e for e, (members, _) in enumerate(events) for s in members}
    waits = {next(iter(s.users)): e for s, e in event_of.items() if len(events[e][0]) > 1}
    ops, landed = [], set()
    for node in _legal_order(graph, events):
        event = event_of.get(node)
        if event is not None and len(events[event][0]) > 1:
            members, packed = events[event]
            names, kind = tuple(m.name for m in members), spec_of(node).collective.kind
            ops += [Operation(PACK[kind], names)] if packed else []
            ops.append(Operation(f"comm.{kind}", names))
        elif node in waits:
            members, packed = events[waits[node]]
            if waits[node] not in landed:
                landed.add(waits[node])
                ops.append(Operation("comm.wait", tuple(next(iter(m.users)).name for m in members)))
            if packed:
                ops.append(Operation(UNPACK[spec_of(members[0]).collective.kind], (node.name,)))
        else:
            spec = spec_of(node)
            opcode = f"comm.{spec.start.kind}" if spec.start else "comm.wait" if spec.is_wait else "comm.compute"
            ops.append(Operation(opcode, (node.name,)))
    return ops


def _legal_order(graph: fx.Graph, events: list) -> list[fx.Node]:
    """The calls in an order that keeps every dependence and the order of events. Each bucket is its first member.

    The place in the graph decides where several calls are possible.
    """
    stands_for = {m: members[0] for members, _ in events for m in members}
    calls = [n for n in graph.nodes if n.op not in ("placeholder", "get_attr", "output")]
    index = {n: i for i, n in enumerate(calls)}
    after: dict[fx.Node, set[fx.Node]] = {stands_for.get(n, n): set() for n in calls}
    pairs = [(a, b) for b in calls for a in b.all_input_nodes] + effects.edges(graph)
    pairs += [(a[0][0], b[0][0]) for a, b in zip(events, events[1:])]
    for a, b in pairs:
        a, b = stands_for.get(a, a), stands_for.get(b, b)
        if a in after and b in after and a is not b:
            after[a].add(b)
    missing = dict.fromkeys(after, 0)
    for followers in after.values():
        for b in followers:
            missing[b] += 1
    ready = [index[n] for n, count in missing.items() if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        node = calls[heapq.heappop(ready)]
        order.append(node)
        for b in after[node]:
            missing[b] -= 1
            if not missing[b]:
                heapq.heappush(ready, index[b])
    if len(order) != len(after):
        raise PlanError("the graph's dependences forbid the order of collectives that was decided for its program")
    return order
