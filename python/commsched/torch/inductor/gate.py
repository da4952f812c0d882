# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The last gate: while a collective is in flight, nobody may write what it reads, or touch what it fills.

`races_of_graph` looks at the FX graph behind the last pass, `kernel_gate.races_of_kernels` at the nodes of Inductor's
scheduler, and `kernel_gate.races_of_code` at the memory that the generated code uses again. All three follow one rule
(`flights.Flights`) and share no code with the passes that they guard, not even the table of operators: they read
schemas, storages of fake tensors and Inductor's own dependences.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import torch
import torch.fx as fx
from torch.utils import _pytree as pytree

from .flights import Flights, Memory

NAMESPACE = "_c10d_functional"
WAIT = "_c10d_functional::wait_tensor"
# A list of sends and receives. A send's result is memory of its own: the operand is only read until the wait for it.
BATCH = "_c10d_functional::batch_p2p_ops"
# Operators of the namespace that neither start a collective nor wait for one.
NEITHER = {"_c10d_functional::_wrap_tensor_autograd"}
# The namespaces of operators that start nothing. Any other call whose result is waited for may be a start.
STARTING_NOTHING = {"aten", "fsdp", "inductor", "prim", "prims", "quantized", NAMESPACE}
# The operands, by position, that operators write although their schemas do not say so.
UNMARKED_WRITES = {
    "inductor::resize_storage_bytes_": (0,),
    "fsdp::all_gather_copy_in": (1,),
    "_c10d_functional::irecv": (0,),
}
# The operand, by position, that results share memory with although the schema does not say so.
UNMARKED_VIEWS = {
    WAIT: 0,
    "aten::_unsafe_view": 0,
    "fsdp::all_gather_copy_in": 1,
    BATCH: 3,
    "_c10d_functional::irecv": 0,
}
# Operators that look at sizes and strides, which a tensor has before its elements.
METADATA = {
    "aten::dim",
    "aten::numel",
    "aten::size",
    "aten::storage_offset",
    "aten::stride",
    "aten::sym_is_contiguous",
    "aten::sym_numel",
    "aten::sym_size",
    "aten::sym_storage_offset",
    "aten::sym_stride",
}


# Something that starts or ends a flight: its key, what it is ("start", "unknown" or "wait"), and the memory that it
# fills or waits for.
Event = tuple[Any, str, set[Hashable]]


class Overwritten(RuntimeError):
    """Code would touch the memory of a collective in flight. It must not run."""


def lands_again(schema: torch.FunctionSchema | None, arguments: Iterable[Any]) -> bool:
    """Whether each wait for one result of a collective fills all of its results again.

    gloo reduces and scatters a list by all-reduces into memory of its own, and copies all pieces of this rank from
    there whenever somebody waits (torch/csrc/distributed/c10d/ProcessGroupGloo.cpp, `reduce_scatter_tensor_coalesced`).
    """
    if schema is None or schema.name != f"{NAMESPACE}::reduce_scatter_tensor_coalesced":
        return False
    from torch.distributed import distributed_c10d

    for name in arguments:
        try:
            if isinstance(name, str) and "gloo" in distributed_c10d.get_backend(
                distributed_c10d._resolve_process_group(name)
            ):
                return True
        except (RuntimeError, ValueError):  # It is the name of the reduction, or of no group in this process.
            continue
    return False


def unknown_starts(events: Iterable[Event]) -> dict[Any, set[Hashable]]:
    """The calls of unknown operators that must have started what is waited for, as no known start filled it since.

    Returns:
        Indexed by key: the memory that the call fills until a wait.
    """
    last: dict[Hashable, tuple[Any, str]] = {}
    found: dict[Any, set[Hashable]] = {}
    for key, kind, memory in events:
        for m in memory:
            if kind != "wait":
                last[m] = key, kind
                continue
            filler, by = last.pop(m, (None, "start"))
            if by == "unknown":
                found.setdefault(filler, set()).add(m)
    return found


def races_of_graph(graph: fx.Graph) -> list[str]:
    """What touches the memory of collectives in flight, in the order of an FX graph. O(nodes + arguments)."""
    calls = _calls(graph)
    if not any(_is_start(n) or _is_wait(n) for n in calls):
        return []
    of = _memory_of(graph)
    flights = Flights({m for n in calls if _is_wait(n) for m in of(n.args[0])})
    unknown = unknown_starts(_events(calls, of))
    for node in calls:
        if _is_wait(node):
            for m in of(node.args[0]):
                flights.wait(m)
        elif _is_start(node):
            again = lands_again(_schema(node), (*node.args, *node.kwargs.values()))
            flights.start(node.name, _elements(node, of), again)
        elif node in unknown:
            flights.start(node.name, [(of(list(node.all_input_nodes)) - unknown[node], unknown[node])])
        elif node.target is not operator.getitem and not _is_view(node) and not _is_metadata(node):
            writes = of(_written(node))
            flights.touch(node.name, of(list(node.all_input_nodes)) - writes, writes)
    return flights.races


def _events(calls: Iterable[fx.Node], of: Callable[[Any], set[Hashable]]) -> Iterator[Event]:
    for node in calls:
        if _is_wait(node):
            yield node, "wait", of(node.args[0])
        elif _is_start(node):
            yield node, "start", of(node) | of(_written(node))
        elif node.target is not operator.getitem and not _is_view(node) and may_start(node.target):
            yield node, "unknown", of(node) - of(list(node.all_input_nodes)) | of(_written(node))


def may_start(target: Any) -> bool:
    """Whether a call may start a collective that it does not wait for: an operator of somebody else, or a function."""
    return not isinstance(target, torch._ops.OpOverload) or target.namespace not in STARTING_NOTHING


def _calls(graph: fx.Graph) -> list[fx.Node]:
    return [n for n in graph.nodes if n.op == "call_function"]


def _memory_of(graph: fx.Graph) -> Callable[[Any], set[Hashable]]:
    """The memory of the nodes in an argument, by a function of the argument."""
    memory, names = Memory(), _storages(graph)
    for node in _calls(graph):
        for result, argument in _shared(node, names):
            memory.join(result, argument)

    def of(value: Any) -> set[Hashable]:
        return {memory.find(s) for n in _nodes(value) for s in names[n]}

    return of


def _schema(node: fx.Node) -> torch.FunctionSchema | None:
    return node.target._schema if isinstance(node.target, torch._ops.OpOverload) else None


def _is_wait(node: fx.Node) -> bool:
    schema = _schema(node)
    return schema is not None and schema.name == WAIT


def _is_start(node: fx.Node) -> bool:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != NAMESPACE:
        return False
    return target._schema.name != WAIT and target._schema.name not in NEITHER


def _is_view(node: fx.Node) -> bool:
    """Whether a call only gives another name to memory."""
    schema = _schema(node)
    if schema is None or schema.name in UNMARKED_WRITES:
        return False
    marked = any(r.alias_info is not None for r in schema.returns) or schema.name in UNMARKED_VIEWS
    return marked and not any(a.is_write for a in schema.arguments)


def _is_metadata(node: fx.Node) -> bool:
    schema = _schema(node)
    return schema is not None and schema.name in METADATA


def _nodes(value: Any) -> list[fx.Node]:
    found: list[fx.Node] = []
    fx.map_arg(value, found.append)
    return found


def _storages_in(val: Any) -> list[Hashable]:
    if isinstance(val, torch.Tensor):
        try:
            return [val.untyped_storage()._cdata]
        except (NotImplementedError, RuntimeError):
            return [id(val)]
    items = val.values() if isinstance(val, dict) else val if isinstance(val, (list, tuple)) else ()
    return [s for v in items for s in _storages_in(v)]


def _storages(graph: fx.Graph) -> dict[fx.Node, list[Hashable]]:
    """Indexed by node: the storages of its fake tensors."""
    return {n: _storages_in(n.meta.get("val")) for n in graph.nodes}


def _argument(node: fx.Node, i: int, argument: Any) -> Any:
    if argument.name in node.kwargs:
        return node.kwargs[argument.name]
    return node.args[i] if i < len(node.args) else None


def _shared(node: fx.Node, names: dict[fx.Node, list[Hashable]]) -> list[tuple[Hashable, Hashable]]:
    """Pairs of names for one memory, by the schema of a call: one of a result, and one of an operand."""
    schema = _schema(node)
    if node.target is operator.getitem:
        source, index = node.args[0].meta.get("val"), node.args[1]
        if isinstance(source, (list, tuple)) and isinstance(index, int) and index < len(source):
            return list(zip(names[node], _storages_in(source[index])))
        return [(r, s) for r in names[node] for s in names[node.args[0]]]
    if schema is None:
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            return []
        return [(r, s) for n in node.all_input_nodes for s in names[n] for r in names[node]]  # Nobody knows.
    views = [UNMARKED_VIEWS[schema.name]] if schema.name in UNMARKED_VIEWS else []
    if any(r.alias_info is not None for r in schema.returns):
        views += [i for i, a in enumerate(schema.arguments) if a.alias_info is not None]
    pairs: list[tuple[Hashable, Hashable]] = []
    for i in views:
        argument = _argument(node, i, schema.arguments[i])
        sources = [s for n in _nodes(argument) for s in names[n]]
        results = names[node]
        # A list of results has the memory of a list of operands, element by element.
        one_for_one = len(sources) == len(results) and isinstance(argument, (list, tuple))
        if schema.name == BATCH and one_for_one:
            pairs += [pair for pair, op in zip(zip(results, sources), node.args[0]) if op == "irecv"]
            continue
        pairs += zip(results, sources) if one_for_one else [(r, s) for r in results for s in sources]
    return pairs


def _written(node: fx.Node) -> list[fx.Node]:
    """The operands that a call may write."""
    schema = _schema(node)
    if schema is not None and schema.name == BATCH:
        return [n for op, n in zip(node.args[0], node.args[3]) if op == "irecv"]
    if schema is None:
        return _written_inside(node) if isinstance(node.target, torch._ops.HigherOrderOperator) else []
    marked = [i for i, a in enumerate(schema.arguments) if a.is_write]
    marked += UNMARKED_WRITES.get(schema.name, ())
    return [n for i in marked for n in _nodes(_argument(node, i, schema.arguments[i]))]


def _written_inside(node: fx.Node) -> list[fx.Node]:
    """The operands that a higher-order operator writes, itself or by a call in a graph that it is given.

    Operands come behind the graphs, one for each input of these. If they are not as many, nobody knows which is which,
    and all count as written if one is.
    """
    everything = list(node.all_input_nodes)
    if any(word in node.target.name() for word in ("mutation", "inplace")):
        return everything
    owner = node.graph.owning_module
    held = {n: getattr(owner, str(n.target), None) for n in everything if n.op == "get_attr"}
    graphs = {n: inner.graph for n, inner in held.items() if isinstance(inner, fx.GraphModule)}
    leaves = pytree.tree_leaves(node.args)
    last = max((i for i, leaf in enumerate(leaves) if leaf in graphs), default=-1)
    operands = [leaf for leaf in leaves[last + 1 :] if not isinstance(leaf, str)]
    found = []
    for inner in graphs.values():
        places = _written_inputs(inner)
        if places is None or places and len(inner.find_nodes(op="placeholder")) != len(operands):
            return everything
        found += [n for i in places for n in _nodes(operands[i])]
    return found


def _written_inputs(graph: fx.Graph) -> list[int] | None:
    """The inputs of a graph, by position, that it writes. What it writes of its own does not count.

    None if nobody knows: values are missing, or a collective is still in flight at its end.
    """
    of, calls, inputs = _memory_of(graph), _calls(graph), graph.find_nodes(op="placeholder")
    waited: list[fx.Node] = [n.args[0] for n in calls if _is_wait(n)]
    touched = [*waited, *(w for n in calls for w in _written(n))]
    landed = of(waited)
    if not all(map(of, touched)) or any(_is_start(n) and not of(n) <= landed for n in calls):
        return None
    written = of(touched)
    return [i for i, n in enumerate(inputs) if of(n) & written]


def _elements(node: fx.Node, of: Any) -> list[tuple[set, set]]:
    """What a collective reads and fills. Indexed by element of a list."""
    if (schema := _schema(node)) is not None and schema.name == BATCH:
        received = zip(node.args[0], node.args[3], _storages_of_results(node, of))
        return [(of(operand), result if op == "isend" else result | of(operand)) for op, operand, result in received]
    written, operands = of(_written(node)), list(node.args[:1])
    outs = node.kwargs.get("out")
    if outs is not None:
        return [(of(operands), of(outs))]
    results = node.meta.get("val")
    if not operands or not isinstance(operands[0], (list, tuple)) or not isinstance(results, (list, tuple)):
        return [(of(list(node.all_input_nodes)), of(node) | written)]
    if len(operands[0]) != len(results):
        return [(of(operands), of(node) | written)]
    elements = []
    every = _storages_of_results(node, of)
    for operand, result in zip(operands[0], every):
        reads = of(operand)
        elements.append((reads, result | (reads & written)))
    return elements


def _storages_of_results(node: fx.Node, of: Any) -> list[set]:
    """Indexed by element of the result: its memory, under the names of those that take the element."""
    results: list[set] = [set() for _ in node.meta["val"]]
    for user in node.users:
        if user.target is operator.getitem and isinstance(user.args[1], int):
            results[user.args[1]] |= of(user)
    return results
