# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the backward graph of a step gets from its forward graph, and what it makes again.

AOT autograd cuts the graph of a step in two. PyTorch's partitioner decides what is saved in between, before anybody has
priced communication. Here, comm-plan-memory decides it for both graphs as one: an activation is kept or computed again,
a sharded parameter is kept or gathered again, under a limit on the memory of the step.

A plan is a set of saved values, by which PyTorch's partitioner cuts the graph once more. So all of its other rules
hold. What activation checkpointing has fixed stays as it is, and random operators are never repeated. Both cuts are
measured as two graphs, as they are going to run, and the plan is taken only if it is faster within the limit.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

import torch
import torch.fx as fx

from ..program import DataflowOperation, MessageKind
from .options import Options, option_value
from .ranks.agreement import shape_of, starts_of, symbolic
from .ranks.consensus import first_of
from .reporting import Unscheduled
from .semantics.effects import start_of
from .semantics.operators import spec_of
from .solving import FUNCTION, Imported, imported
from .strands.decision import copied
from .trace import RECOMPUTE_REGION, join

PASS = "comm-plan-memory"
# Indexed by the metrics of the pass's remark: what the report says of values that PyTorch's cut makes again and the
# plan keeps, and the other way round.
_METRICS = {"Kept": "kept", "KeptBytes": "kept_bytes", "Again": "again", "AgainBytes": "again_bytes"}
# So many plans are tried. Each has as much less memory as the one before needs too much when it is cut in two, but at
# least a 64th of the limit; and twice, four times, ... as much less if that was not enough.
MOST_TRIES = 5
OTHER = "an earlier graph, or that of another rank"
# What comm-plan-memory decides, whatever it costs ("keep", "again" or "mixed"); for tests. None: what is best.
forced: str | None = None
# Chooses the names of the values that are saved, given a graph and PyTorch's own choice.
Choose = Callable[[fx.Graph, list[fx.Node]], list[fx.Node]]


class Unplanned(Exception):
    """PyTorch's cut stays. The text says why."""


@dataclasses.dataclass
class Cut:
    """A step in two graphs.

    Args:
        saved: the names of the forward values that the backward graph gets.
        starts: the names of the step's collectives, in order.
    """

    forward: fx.GraphModule
    backward: fx.GraphModule
    saved: list[str]
    starts: list[str]

    def graphs(self) -> tuple[fx.GraphModule, fx.GraphModule]:
        return self.forward, self.backward

    def repeated(self) -> list[int]:
        """Which of the collectives are in both graphs."""
        forward, backward = ({node.name for node in gm.graph.nodes} for gm in self.graphs())
        return [i for i, name in enumerate(self.starts) if name in forward and name in backward]


def cut_step(joint: fx.GraphModule, inputs: Any, options: Options, **arguments: Any) -> tuple[Cut, dict[str, Any]]:
    """Cuts the graph of a step, by a plan if that is better than PyTorch's cut.

    Args:
        inputs: those of PyTorch's partitioner.
        arguments: the other arguments of PyTorch's partitioner.

    Returns:
        The cut, and what the report says of it.
    """
    own = _partitioned(joint, inputs, lambda _, saved: saved, arguments)
    # What ranks with other sizes of the batch, or of their shards, have in common.
    question = f"memory-plan/{shape_of(joint.graph, options).structure()}"
    known = first_of(question, None)
    if known is None:
        found = _found(joint, inputs, own, options, arguments)
        cut = found[0]
        mine = {"saved": None if cut is own else cut.saved, "repeated": cut.repeated(), **found[1]}
        known = first_of(question, mine)
        if known == mine:
            return found
    facts = {"decided_by": OTHER}
    if known["saved"] is None:
        return own, facts
    try:
        imposed = _imposed(joint, inputs, known["saved"], arguments, set(known["repeated"]))
        _check_repeated(imposed)
    except Unplanned as error:
        return own, {**facts, "reason": str(error)}
    if imposed.repeated() != known["repeated"]:
        return own, {**facts, "reason": "this graph cannot repeat the same collectives"}
    return imposed, facts


def _found(
    joint: fx.GraphModule, inputs: Any, own: Cut, options: Options, arguments: dict[str, Any]
) -> tuple[Cut, dict[str, Any]]:
    """The better one of both cuts, and what the report says."""
    quick = dataclasses.replace(options, effort=0, passes=(), strands="off", objective="robust")
    try:
        if symbolic(joint.graph):
            raise Unplanned("an input has a size that is a symbol")
        given = _peak(own, quick)
        limit = options.memory_limit_bytes
        if limit is None:
            limit = int(given * (1 + (options.memory_budget_ratio or 0)))
        steps = _Steps(joint, own, options)
        if forced is not None:
            planned = _imposed(joint, inputs, steps.plan(0)[0], arguments)
            _check_repeated(planned)
            return planned, {"forced": forced}
        before = _time(own, quick, limit) if given <= limit else None
        planned, peak, facts = _within(limit, given, steps, joint, inputs, quick, arguments)
        after = _time(planned, quick, limit)
    except (Unscheduled, Unplanned) as error:
        return own, {"reason": str(error).split("\n")[0]}
    numbers = {
        "limit_bytes": limit,
        "makespan_ns": {"before": before, "after": after},
        "peak_bytes": {"before": given, "after": peak},
    }
    if before is not None and after >= before:
        return own, {"reason": "PyTorch's cut is as fast", **numbers}
    return planned, {**facts, **numbers}


def _within(
    limit: int, given: int, steps: _Steps, joint: fx.GraphModule, inputs: Any, quick: Options, arguments: dict[str, Any]
) -> tuple[Cut, int, dict[str, Any]]:
    """A planned cut within a limit, its peak, and what the report says of the plan.

    Args:
        given: the peak of PyTorch's cut.

    Raises:
        Unplanned: there is none, or PyTorch's cut, which is within the limit, is the best plan.
    """
    more, reason = limit - given, Unplanned("no plan is within the limit once it is cut in two graphs")
    for attempt in range(MOST_TRIES):
        peak = given
        try:
            names, facts = steps.plan(more)
            planned = _imposed(joint, inputs, names, arguments)
            _check_repeated(planned)
            peak = _peak(planned, quick)
            if peak <= limit:
                return planned, peak, facts
        except (Unplanned, Unscheduled) as error:
            if given <= limit:
                raise
            reason = Unplanned(str(error))
        more -= max(peak - limit, limit >> 6) << attempt
    raise reason


def _partitioned(joint: fx.GraphModule, inputs: Any, choose: Choose, arguments: dict[str, Any]) -> Cut:
    """PyTorch's partition of a copy of the graph, with another choice of saved values."""
    from torch._functorch import partitioners

    original, saved, starts = partitioners.choose_saved_values_set, list[str](), list[str]()

    def chosen(graph: fx.Graph, *rest: Any, **named: Any) -> list[fx.Node]:
        nodes = choose(graph, original(graph, *rest, **named))
        saved.extend(node.name for node in nodes)
        starts.extend(node.name for node in starts_of(graph))
        return nodes

    with mock.patch.object(partitioners, "choose_saved_values_set", chosen):
        copy = fx.GraphModule(joint, copied(joint.graph))
        copy.meta.update(joint.meta)
        forward, backward = partitioners.min_cut_rematerialization_partition(copy, inputs, **arguments)
    return Cut(forward, backward, saved, starts)


def _imposed(
    joint: fx.GraphModule,
    inputs: Any,
    names: Iterable[str],
    arguments: dict[str, Any],
    repeated: set[int] | None = None,
) -> Cut:
    """PyTorch's partition that saves the values with these names.

    Args:
        repeated: the collectives that the backward graph repeats, by their numbers, if another rank has decided. On
            this rank, other values may have these names.
    """
    returned = arguments["num_fwd_outputs"]
    return _partitioned(joint, inputs, lambda graph, own: _named(graph, set(names), own, returned, repeated), arguments)


def _named(
    graph: fx.Graph, names: set[str], own: list[fx.Node], num_fwd_outputs: int, repeated: set[int] | None
) -> list[fx.Node]:
    """What is saved if the values with these names are: they, and the inputs of the step from which the backward graph
    makes the rest. Of what is no tensor, and of what users have fixed, PyTorch's choice holds.
    """
    kept, number = set(own), {start: i for i, start in enumerate(starts_of(graph))}

    def is_saved(node: fx.Node) -> bool:
        if node.op == "placeholder":
            return _is_early(node)
        if _happens_once(node):
            return True
        start = start_of(node) if node.op == "call_function" and spec_of(node).is_wait else None
        if repeated is not None and start in number:
            return number[start] not in repeated
        return node in kept if _is_fixed(node) else node.name in names

    results = graph.output_node().args[0]
    assert isinstance(results, (list, tuple))
    wanted = [n for n in results[num_fwd_outputs:] if isinstance(n, fx.Node)]
    early = _early_part(graph)
    saved, seen = set[fx.Node](), set(wanted)
    while wanted:
        node = wanted.pop()
        if node in early and is_saved(node):
            saved.add(node)
            continue
        new = [n for n in node.all_input_nodes if n not in seen]
        seen.update(new)
        wanted += new
    return [n for n in graph.nodes if n in saved]


def _is_early(argument: fx.Node) -> bool:
    """Whether an argument of the step is one of the forward graph."""
    from torch._functorch import partitioners

    late = (partitioners._is_tangent, partitioners._is_bwd_seed_offset, partitioners._is_backward_state)
    return not any(is_late(argument) for is_late in late)


def _early_part(graph: fx.Graph) -> set[fx.Node]:
    """What can be computed without gradients of results."""
    early = set[fx.Node]()
    for node in graph.nodes:
        if _is_early(node) if node.op == "placeholder" else early.issuperset(node.all_input_nodes):
            early.add(node)
    return early


def _is_fixed(node: fx.Node) -> bool:
    """Whether a plan may not change what becomes of a value: it is no tensor, or a checkpointing policy says it."""
    policy = node.meta.get("recompute") is not None and node.meta.get("ac_graph_id") != RECOMPUTE_REGION
    return not isinstance(node.meta.get("val"), torch.Tensor) or policy


def _peak(cut: Cut, options: Options) -> int:
    """The larger one of the peaks of both graphs in their given order, bytes."""
    kept = options.unchanged()
    reports = [imported(gm.graph, options, fused=True).run(kept) for gm in cut.graphs()]
    return max(r.get("peak_bytes", {}).get("before", 0) for r in reports)


def _time(cut: Cut, options: Options, limit: int) -> int:
    """The makespans of both graphs together within a limit on memory in bytes, ns."""
    limited = dataclasses.replace(options, memory_limit_bytes=limit, memory_budget_ratio=None)
    reports = [imported(gm.graph, options, fused=True).run(limited) for gm in cut.graphs()]
    return sum(r.get("makespan_ns", {}).get("after", 0) for r in reports)


class _Steps:
    """A step as one graph, for plans under several limits."""

    def __init__(self, joint: fx.GraphModule, own: Cut, options: Options):
        self.options, self.nodes = options, {node.name: node for node in joint.graph.nodes}
        self.origins: dict[str, tuple[bool, str]] = {}
        self.whole = join(*own.graphs(), self.origins)
        self.peak = self._imported().run(options.unchanged()).get("peak_bytes", {}).get("before", 0)

    def _imported(self) -> Imported:
        return imported(self.whole.graph, self.options, fused=False)

    def plan(self, more: int) -> tuple[list[str], dict[str, Any]]:
        """The names of the values that a plan saves, and what the report says of the plan.

        Args:
            more: bytes by which the peak may be above that of PyTorch's cut. In one graph without fusion, other values
                count than in two graphs of kernels.

        Raises:
            Unplanned: no plan is better than PyTorch's cut.
            Unscheduled: the pass failed.
        """
        module, options = self._imported(), self.options
        given: dict[str, Any] = {
            "machine": option_value(options.machine),
            "memory-limit-bytes": max(self.peak + more, 0),
            "collective-order": options.collective_order,
            "bucketing": "true" if options.bucketing else "false",
            "bucket-cap-bytes": options.bucket_cap_bytes,
            "effort": options.effort,
            "force": forced,
        }
        settings = " ".join(f"{name}={value}" for name, value in given.items() if value is not None)
        module.run(options, f"{PASS}{{{settings}}}")
        said = [m for m in module.program.messages() if (m.category, m.name) == (PASS, "plan")]
        if forced is None and (not said or said[-1].kind != MessageKind.PASSED):
            raise Unplanned(_sentence(said[-1].text) if said else "no value has an early and a late reader")
        metrics = dict(part.split("=", 1) for m in said[-1:] for part in m.text.split(", ") if "=" in part)
        facts = {name: int(metrics[metric]) for metric, name in _METRICS.items() if metrics.get(metric, "").isdigit()}
        origins = {name: (side, self.nodes.get(own)) for name, (side, own) in self.origins.items()}
        return _saved_by(module.program.dataflow()[FUNCTION].operations, origins), facts


def _sentence(remark: str) -> str:
    """What a remark says, without its metrics."""
    return remark.split(", unchanged: ")[-1]


def _saved_by(operations: list[DataflowOperation], origins: dict[str, tuple[bool, fx.Node | None]]) -> list[str]:
    """The forward values that operations of the backward pass read, by the names of their nodes.

    Args:
        origins: for each name in the joined graph whether it is of the backward graph, and the node of the step.
    """
    maker = {value: op for op in operations for value in op.results}
    backward = _backward_part(operations, origins, maker)
    saved: dict[str, None] = {}
    for op in operations:
        if id(op) not in backward:
            continue
        for value in op.operands:
            source = maker.get(value)
            if source is None or id(source) in backward:
                continue
            node = origins[source.names[0]][1] if source.names and source.names[0] in origins else None
            if node is None:
                raise Unplanned(f"the plan saves a value that the step does not have ({source.opcode})")
            saved |= dict.fromkeys(n.name for n in _to_save(node, source.results.index(value)))
    return list(saved)


def _backward_part(
    operations: list[DataflowOperation], origins: dict[str, Any], maker: dict[int, DataflowOperation]
) -> set[int]:
    """The operations of the backward pass: those of the backward graph, and the clones that it alone reads.

    The first operation of the forward graph with a name is the original. A wait belongs where its start is.
    """
    users: dict[int, list[DataflowOperation]] = {}
    for op in operations:
        for value in op.operands:
            if value in maker:
                users.setdefault(id(maker[value]), []).append(op)
    seen, originals = set(), set()
    for op in operations:
        name = op.names[0] if op.names else ""
        if name in origins and not origins[name][0] and name not in seen:
            originals.add(id(op))
        seen.add(name)
    backward: set[int] = set()
    for op in reversed(operations):
        readers = users.get(id(op), [])
        if id(op) not in originals and (not readers or any(id(user) in backward for user in readers)):
            backward.add(id(op))
    for op in operations:
        if (
            op.opcode == "comm.wait"
            and id(op) in backward
            and all(value in maker and id(maker[value]) not in backward for value in op.operands)
        ):
            backward.discard(id(op))
    return backward


def _to_save(node: fx.Node, result: int) -> list[fx.Node]:
    """The nodes that hold a value: of an operator with several results, what reads the one that is meant.

    A view is made again from its storage, which is alive as long as the view.
    """
    if isinstance(node.meta.get("val"), (list, tuple)):
        tensors = [i for i, v in enumerate(node.meta["val"]) if isinstance(v, torch.Tensor)]
        return [n for n in node.users if n.target is operator.getitem and n.args[1] == tensors[result]]
    while node.op == "call_function" and getattr(node.target, "is_view", False) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return [] if node.op == "placeholder" else [node]


def _happens_once(node: fx.Node) -> bool:
    """Whether a call, or the one whose result it takes apart, must not be repeated: it is random, writes, or has other
    effects.
    """
    while node.target is operator.getitem:
        node = node.all_input_nodes[0]
    if node.op != "call_function":
        return False
    spec = spec_of(node)
    return bool(spec.ordered or spec.mutated or spec.hybrid)


def _check_repeated(cut: Cut) -> None:
    """Refuses a cut in which the backward graph repeats what has to happen once.

    Raises:
        Unplanned: an operator that is random, or that writes, is in both graphs.
    """
    once = {node.name for node in cut.forward.graph.nodes if node.op == "call_function" and _happens_once(node)}
    for node in cut.backward.graph.nodes:
        if node.op == "call_function" and node.name in once and node.target is not operator.getitem:
            raise Unplanned(f"the plan repeats {node.name}, which is random or writes")
