# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Breaks of a function's graph, and what waits at the edges of the graphs beside them (PyTorch.md, "Graph breaks").

Each graph is scheduled by itself. At its end, it waits for all of its collectives, whether or not it needs them. At its
beginning, gathers of parameters wait for no computation, and none runs beside them. If the function had one graph,
computations of the neighbour could run meanwhile.
"""

from __future__ import annotations

import collections
import dataclasses
import operator
import re
from typing import Any

import torch
import torch.fx as fx

from ..ranks.agreement import starts_of
from ..ranks.weights import made_of_parameters
from ..reporting import survive
from ..semantics.operators import spec_of

# The code that Dynamo makes of what follows a break.
_RESUMES = re.compile(r"torch_dynamo_resume_in_.*_at_(\d+)$")
# At most this many compilations and breaks are kept.
_MOST = 10_000


@dataclasses.dataclass(frozen=True)
class Breaks:
    """The breaks beside the graph of a frame, in the order of the forward graphs, as "FILE:LINE". None: no break."""

    before: str | None = None
    behind: str | None = None


# Indexed by the identifier of a compilation. The backward graph is compiled when Dynamo is gone.
_breaks: collections.OrderedDict[str, Breaks] = collections.OrderedDict()
# Where a break is in the user's words. Indexed by the file and the line of each frame that it interrupts.
_places: collections.OrderedDict[tuple[str, int], str] = collections.OrderedDict()


def note() -> None:
    """Notes the breaks beside the graph that Dynamo is compiling, if it does."""
    try:
        _note(_compilation(), _frame())
    except Exception as error:  # Only a line of the report is missing.
        survive("the report does not name breaks of graphs", error)


def _note(compilation: str | None, frame: tuple[Any, Any] | None) -> None:
    if compilation is None or frame is None:
        return
    code, reason = frame
    before = behind = None
    if resumed := _RESUMES.search(code.co_name):
        place = code.co_filename, int(resumed[1])
        before = _places.get(place, f"{place[0]}:{place[1]}")
    stack = getattr(reason, "user_stack", None)
    if getattr(reason, "graph_break", False) and stack:
        behind = f"{stack[-1].filename}:{stack[-1].lineno}"
        _places.update({(f.filename, f.lineno): behind for f in stack})
    _breaks[compilation] = Breaks(before, behind)
    for kept in (_breaks, _places):
        while len(kept) > _MOST:
            kept.popitem(last=False)


def _compilation() -> str | None:
    """The identifier of the compilation, which the forward and the backward graph of a frame share."""
    identifier = torch._guards.CompileContext.current_compile_id()
    return None if identifier is None else str(identifier)


def _frame() -> tuple[Any, Any] | None:
    """The code that Dynamo is compiling, and why its graph ends. None if Dynamo is not at work."""
    from torch._dynamo.symbolic_convert import tls

    translator = getattr(tls, "current_tx", None)
    reason = getattr(getattr(translator, "output", None), "compile_subgraph_reason", None)
    return None if translator is None or reason is None else (translator.f_code, reason)


@dataclasses.dataclass(frozen=True)
class Edges:
    """The collectives of a graph, by name, that only its edges keep from being hidden.

    Args:
        begin: their operands are made of parameters alone, so they could begin before the graph.
        end: what they bring is only returned, so nobody in the graph needs it.
    """

    begin: frozenset[str]
    end: frozenset[str]


def edges_of(graph: fx.Graph) -> Edges:
    """The collectives at the edges of a graph. None without breaks beside it. Those that are at both edges count as
    those of the end. O(nodes).
    """
    nothing = Edges(frozenset(), frozenset())
    if _breaks.get(_compilation() or "", Breaks()) == Breaks():
        return nothing
    try:
        return _edges(graph)
    except Exception as error:  # Only a line of the report is missing.
        survive("the report does not say what breaks of graphs expose", error)
        return nothing


def _edges(graph: fx.Graph) -> Edges:
    starts, parameters = starts_of(graph), made_of_parameters(graph)
    returned = {graph.output_node()}
    for node in reversed(graph.nodes):
        if node.users and returned.issuperset(node.users) and _computes_nothing(node):
            returned.add(node)
    end = {s for s in starts if s in returned}
    begin = {s for s in starts if s not in end and s.all_input_nodes and parameters.issuperset(s.all_input_nodes)}
    return Edges(frozenset(s.name for s in begin), frozenset(s.name for s in end))


def _computes_nothing(node: fx.Node) -> bool:
    """Whether a node is the start of a collective, a wait for one, or a view."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return True
    spec, schema = spec_of(node), getattr(node.target, "_schema", None)
    is_view = schema is not None and any(r.alias_info and not r.alias_info.is_write for r in schema.returns)
    return spec.start is not None or spec.is_wait or is_view


def facts(report: dict, edges: Edges, direction: str) -> dict[str, Any]:
    """What a report says of the breaks beside its graph: nothing, or "breaks".

    Returns:
        "frame", which the graphs of one code share; "before" and "behind", the places of the breaks between which the
        graph runs; and "begin_ns" and "end_ns", for how long collectives at its edges are exposed.
    """
    compilation = _compilation()
    breaks = _breaks.get(compilation or "", Breaks())
    if compilation is None or breaks == Breaks():
        return {}
    # The backward graphs run in the opposite order.
    before, behind = (breaks.before, breaks.behind)[:: -1 if direction == "backward" else 1]
    exposed = {"begin_ns": 0, "end_ns": 0}
    for row in report.get("per_collective", ()):
        names = str(row["loc"]).split(" + ")
        for name, own in (("begin_ns", edges.begin), ("end_ns", edges.end)):
            exposed[name] += row["exposed_ns"]["after"] if own.issuperset(names) else 0
    return {"breaks": {"frame": compilation.split("/")[0], "before": before, "behind": behind, **exposed}}
