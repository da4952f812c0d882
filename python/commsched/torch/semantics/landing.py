# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Brings a graph into the form that scheduling expects: sorted, and with one name for what a collective has landed.

Sharding libraries write waits for what has landed already (`wait_tensor(wait_tensor(x))`), and return the result of a
start beside that of its wait, for the backward pass. PyTorch's wait returns the tensor that it is given, so all of them
are one tensor. Here the first wait remains, and everybody behind it reads its result. So a start has one reader, its
wait, and can be merged and split. A wait for a list (`wait_tensors`, PyTorch 2.15) becomes one wait per element.
Inductor's passes call operators without naming the overload (`aten.clone`); here each call names it.
"""

from __future__ import annotations

import contextlib
import operator
from typing import Any

import torch
import torch.fx as fx

from .effects import Aliases, Landings, may_alias, writes_of
from .operators import nodes_in, spec_of
from .stale import refresh


def prepare(graph: fx.Graph) -> None:
    """Sorts a graph whose order is not topological, and gives landed results one name. Near-linear.

    What the graph computes stays the same. Most graphs are only read.

    Raises:
        AssertionError: the arguments of some nodes form a cycle.
    """
    sort(graph)
    name_overloads(graph)
    if split_waits(graph) + name_landed_results(graph):
        refresh(graph)


def name_overloads(graph: fx.Graph) -> None:
    """Replaces operators whose overload is open by the overload that the arguments mean. O(nodes).

    Only an overload has a schema, which tells what a call writes and aliases. An open operator is a function of which
    nothing is known. It stays if its arguments fit no overload.
    """
    for node in graph.nodes:
        packet = node.target
        if node.op != "call_function" or not isinstance(packet, torch._ops.OpOverloadPacket):
            continue
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
        with contextlib.suppress(RuntimeError):
            node.target = getattr(packet, torch._C._jit_resolve_packet(packet._qualified_op_name, *args, **kwargs))


def split_waits(graph: fx.Graph) -> int:
    """Waits for the elements of lists one by one, as eager code does. Returns how many waits for lists were split.

    PyTorch 2.15 writes `wait_tensors` for what a coalesced collective or a batch of sends and receives has filled;
    older versions write these waits themselves. A list that is read as a whole stays, and the graph is refused later.
    """
    target = getattr(torch.ops._c10d_functional, "wait_tensors", None)
    split = 0
    for node in graph.find_nodes(op="call_function", target=target.default) if target is not None else ():
        elements = node.args[0]
        if not isinstance(elements, (list, tuple)) or any(u.target is not operator.getitem for u in node.users):
            continue
        meta = {k: v for k, v in node.meta.items() if k not in ("val", "tensor_meta")}
        waits = []
        for element in elements:
            with graph.inserting_before(node):
                wait = graph.call_function(torch.ops._c10d_functional.wait_tensor.default, (element,))
            wait.meta = {**meta, "val": element.meta.get("val")}
            waits.append(wait)
        for reader in list(node.users):
            reader.replace_all_uses_with(waits[reader.args[1]])
            graph.erase_node(reader)
        graph.erase_node(node)
        split += 1
    return split


def sort(graph: fx.Graph) -> None:
    """Puts a graph into a topological order, if it is not in one. Otherwise, the nodes keep their order if they can.

    Raises:
        AssertionError: the arguments of some nodes form a cycle.
    """
    if not is_sorted(graph):
        from torch._inductor.pattern_matcher import stable_topological_sort

        stable_topological_sort(graph)


def is_sorted(graph: fx.Graph) -> bool:
    """Whether every node is behind those that it reads. Passes that rewrite patterns may leave other graphs."""
    seen: set[fx.Node] = set()
    for node in graph.nodes:
        if not seen.issuperset(node.all_input_nodes):
            return False
        seen.add(node)
    return True


def name_landed_results(graph: fx.Graph) -> int:
    """Lets readers of a start's result behind its wait read the wait's result, and erases waits for what has landed.

    A wait for a view of a start's result becomes a wait for the result. Returns how many arguments were replaced and
    nodes erased. O(nodes + arguments).
    """
    if not any(_is_odd(n) for n in graph.nodes if n.op == "call_function"):
        return 0
    changed = _wait_for_what_is_viewed(graph)
    aliases = Aliases(graph)
    landings = Landings(aliases)
    for node in list(graph.nodes):
        for value in node.all_input_nodes:
            if _flies(value) and (wait := landings.landed(value)) is not None:
                node.replace_input_with(value, wait)
                changed += 1
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        spec = spec_of(node)
        if spec.start is not None:
            landings.start(writes_of(node, spec, aliases))
        elif spec.is_wait and landings.wait(node) is not None and _views_a_wait(node.args[0]):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
            changed += 1
    return changed


def waits_for_views(graph: fx.Graph) -> bool:
    """Whether a wait takes a view of what is in flight. O(waits + views)."""
    waits = graph.find_nodes(op="call_function", target=torch.ops._c10d_functional.wait_tensor.default)
    return any(len(_views_in_flight(wait.args[0])) > 1 for wait in waits)


def with_waits_for_results(graph: fx.Graph) -> tuple[fx.Graph, dict[fx.Node, fx.Node]]:
    """A copy of a graph in which waits for views are waits for the results of starts. Nodes keep their names.

    The graph has to be sorted. The second result is indexed by node of the copy: the node that it is a copy of.
    """
    made: dict[fx.Node, fx.Node] = {}
    copied = fx.Graph(graph.owning_module)
    copied.output(copied.graph_copy(graph, made))
    origins = {copy: node for node, copy in made.items()}
    _wait_for_what_is_viewed(copied, origins)
    return copied, origins


def _wait_for_what_is_viewed(graph: fx.Graph, origins: dict[fx.Node, fx.Node] | None = None) -> int:
    """Lets waits for views of what is in flight wait for the result of the start, of which one storage is all.

    Whoever reads the views behind the wait reads copies of them that view what has landed. Returns how many waits were
    changed. `origins`, indexed by node, gets for each copy what it has for the view.
    """
    place, changed = {n: i for i, n in enumerate(graph.nodes)}, 0
    for wait in graph.find_nodes(op="call_function", target=torch.ops._c10d_functional.wait_tensor.default):
        *views, result = _views_in_flight(wait.args[0])
        if not views:
            continue
        made, last = {result: wait}, wait
        for view in reversed(views):
            with graph.inserting_after(last):
                last = made[view] = graph.node_copy(view, lambda n, made=made: made.get(n, n))
            if origins is not None:
                origins[last] = origins[view]
        copies = set(made.values())
        wait.replace_all_uses_with(last, lambda reader, copies=copies: reader not in copies)
        for view in views:
            view.replace_all_uses_with(made[view], lambda reader, wait=wait: place.get(reader, -1) > place[wait])
        wait.args = (result,)
        for view in views:
            for piece in [n for n in view.users if n.target is operator.getitem and not n.users]:
                graph.erase_node(piece)
            if not view.users:
                graph.erase_node(view)
        wait.meta = {**{k: v for k, v in wait.meta.items() if k != "tensor_meta"}, "val": result.meta["val"]}
        changed += 1
    return changed


def _views_in_flight(value: Any) -> list[Any]:
    """A view, what it is a view of, and so on to the result of a start. The value alone if it is no such view."""
    chain = [value]
    while not _flies(chain[-1]):
        node = chain[-1]
        if not isinstance(node, fx.Node) or node.op != "call_function" or _has_effects(node):
            return [value]
        sources = [node.args[0]] if node.target is operator.getitem else _sources(node)
        if len(sources) != 1:
            return [value]
        chain.append(sources[0])
    return chain


def _has_effects(node: fx.Node) -> bool:
    """Whether calling a node twice would differ from calling it once."""
    if node.target is operator.getitem:
        return False
    spec = spec_of(node)
    pure = isinstance(node.target, torch._ops.OpOverload) and not (spec.mutated or spec.ordered or spec.hybrid)
    return not pure or spec.is_wait or spec.start is not None


def _sources(node: fx.Node) -> list[fx.Node]:
    """The nodes whose memory a call may return."""
    return [n for a in may_alias(node) for n in nodes_in(a)]


def _is_odd(node: fx.Node) -> bool:
    """Whether a wait takes something other than the result of a start, or somebody else reads that result."""
    if node.target is operator.getitem:
        return _flies(node) and len(node.users) != 1
    spec = spec_of(node)
    if spec.is_wait:
        return not _flies(node.args[0])
    return spec.start is not None and not spec.start.coalesced and len(node.users) != 1


def _flies(value: Any) -> bool:
    """Whether a value is the result of a start, or an element of one."""
    if isinstance(value, fx.Node) and value.target is operator.getitem:
        value = value.args[0]
    return isinstance(value, fx.Node) and value.op == "call_function" and spec_of(value).start is not None


def _views_a_wait(value: Any) -> bool:
    """Whether a value is the result of a wait, or a view of one."""
    while isinstance(value, fx.Node) and value.op == "call_function":
        if value.target is operator.getitem:
            value = value.args[0]
            continue
        if spec_of(value).is_wait:
            return True
        sources = _sources(value)
        value = sources[0] if len(sources) == 1 else None
    return False
