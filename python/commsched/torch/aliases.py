"""Which values of an FX graph share memory, read off the operators' schemas.

The import reads the same thing off the storages of fake tensors, which are more exact, but wrong where a pass before has
rewritten a pattern without bringing the fake tensors behind it up to date. Two readings that share nothing find each
other's errors: `stale_nodes` names the nodes whose fake tensors contradict their operators, `refresh` computes those
anew, and the check of a schedule (`dependences`) uses the schemas alone.
"""

from __future__ import annotations

import contextlib
import operator

import torch
import torch.fx as fx

from .collectives import UNMARKED_ALIASES, Spec, spec_of, subgraphs
from .values import nodes_in, storage_of

# Operators whose result is a view of their first argument, without the schema saying so.
UNMARKED_VIEWS = {"_c10d_functional::wait_tensor", "aten::_unsafe_view", "_c10d_functional::irecv",
                  "_c10d_functional::isend"}
# Per target: (argument, one for one) of the arguments that results may share memory with, by position or name.
_signatures: dict = {}


def _signature(target) -> list:
    """The arguments of an operator that its results may be views of."""
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
            own = a.alias_info.before_set  # of a list's elements, PyTorch does not say which: the set is empty
            if any(not own or not other or own & other for other in returned):
                known.append(a.name if a.kwarg_only else i)
        _signatures[target] = known
    return known


def _argument(node: fx.Node, where):
    if isinstance(where, str):
        return node.kwargs.get(where)
    return node.args[where] if where < len(node.args) else None


def may_alias(node: fx.Node) -> list:
    """The arguments that the results of a node may share memory with. What is no operator (the functions that Inductor's
    patterns put in, to be lowered later) may return any of its operands."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return [a for where in _signature(target) if (a := _argument(node, where)) is not None]
    if isinstance(target, torch._ops.HigherOrderOperator) and _has_views(node):
        return [list(node.all_input_nodes)]
    return [list(node.all_input_nodes)] if is_function(node) else []


def is_function(node: fx.Node) -> bool:
    """Whether a call is of a Python function, of which nothing is known."""
    return node.op == "call_function" and not isinstance(
        node.target, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)) and node.target is not operator.getitem


def _has_views(node: fx.Node) -> bool:
    """Whether the subgraph of control_deps, which stands for one call, gives back memory of its operands. Other
    higher-order operators may not."""
    return node.target.name() == "control_deps" and any(
        isinstance(n.target, torch._ops.OpOverload) and _signature(n.target) for g in subgraphs(node) for n in g.nodes)


class Aliases:
    """A number for each tensor that a graph's nodes give, equal for those that may share memory. Near-linear."""

    def __init__(self, graph: fx.Graph):
        self._parent: list[int] = []
        self._values: dict[fx.Node, object] = {}
        inputs: dict[int, int] = {}  # storages of what comes in: two arguments may be views of one tensor
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

    def pairs(self, node: fx.Node, val) -> list[tuple[int, torch.Tensor]]:
        """The numbers of a node's tensors, each with its fake value `val`."""
        tensors = [v for v in torch.utils._pytree.tree_leaves(val) if isinstance(v, torch.Tensor)]
        return [(self._find(i), v) for i, v in zip(_leaves(self._values.get(node)), tensors)]

    def of_all(self, argument) -> set[int]:
        """The numbers of all tensors in a (nested) argument."""
        return {i for n in nodes_in(argument) for i in self.of(n)}

    def _fresh(self, val):
        if isinstance(val, torch.Tensor):
            self._parent.append(len(self._parent))
            return len(self._parent) - 1
        if isinstance(val, (list, tuple)):
            return [self._fresh(v) for v in val]
        if isinstance(val, dict):
            return {k: self._fresh(v) for k, v in val.items()}
        return None

    def _element(self, node: fx.Node):
        source, index = self._values.get(node.args[0]), node.args[1]
        try:
            return source[index]
        except (TypeError, IndexError, KeyError):
            return source

    def _share(self, value, argument) -> None:
        """One for one where both are lists of one length, as of coalesced operators; else all with all."""
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


def _leaves(value):
    if isinstance(value, int):
        yield value
    elif isinstance(value, (list, dict)):
        for v in value.values() if isinstance(value, dict) else value:
            yield from _leaves(v)


def _storages(val) -> list[int]:
    if isinstance(val, torch.Tensor):
        return [storage_of(val)]
    if isinstance(val, dict):
        val = list(val.values())
    return [s for v in val for s in _storages(v)] if isinstance(val, (list, tuple)) else []


def stale_nodes(graph: fx.Graph) -> list[fx.Node]:
    """Calls without a fake value though they are read, or whose fake tensors' storages contradict the operator: a view
    that has memory of its own, or a new tensor in memory that was there before. O(nodes)."""
    stale, seen = [], set()
    for node in graph.nodes:
        val = node.meta.get("val")
        if node.op == "call_function" and node.target is not operator.getitem:
            if val is None:
                if node.users and "val" not in node.meta:
                    stale.append(node)
                continue
            if isinstance(node.target, torch._ops.OpOverload) and _contradicts(node, spec_of(node), val, seen):
                stale.append(node)
        seen.update(_storages(val))
    return stale


def _contradicts(node: fx.Node, spec: Spec, val, seen: set[int]) -> bool:
    if spec.start is not None or spec.is_wait or spec.same_as is not None or spec.hybrid:
        return False  # their fake results are new tensors, whatever they are
    storages = _storages(val)
    arguments = may_alias(node)
    if not arguments:
        return any(s in seen for s in storages)
    sources = {s for a in arguments for n in nodes_in(a) for s in _storages(n.meta.get("val"))}
    if all(s in sources for s in storages):
        return False
    return not _may_copy(node.target) or not any(s in sources for s in storages) and _is_view_here(node)


def _may_copy(target) -> bool:
    """Operators that give a view when they can, and a copy when they cannot: reshape, contiguous, to."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), "CompositeImplicitAutograd")


def _is_view_here(node: fx.Node) -> bool:
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    mode = next((m for t in nodes_in(list(node.args)) if (m := getattr(t.meta["val"], "fake_mode", None))), None)
    with mode or contextlib.nullcontext():
        result = _storages(node.target(*args, **kwargs))
    return bool(set(result) & set(_storages(list(args))))


def refresh(graph: fx.Graph) -> int:
    """Computes the fake values that are missing or contradict their operators, and all that follows from them; returns
    how many changed. A graph without any is only read."""
    stale = stale_nodes(graph)
    if not stale:
        return 0
    from torch._inductor.fx_utils import FakeTensorUpdater
    from torch._inductor.virtualized import V

    mode = next(m for n in graph.nodes if (m := getattr(n.meta.get("val"), "fake_mode", None)) is not None)
    updater = FakeTensorUpdater(graph.owning_module)
    for node in stale:
        updater.processed_hashes.discard(updater.hash_node(node))
    with V.set_fake_mode(mode):
        return updater.incremental_update()
