"""Turns a post-AOT FX graph into a module of `comm` operations.

One walk over the nodes, in order; near-linear. A node becomes one operation whose location is the node's name
(`getitem` none at all), except that a coalesced list, an FSDP copy or a collective that waits for itself may take two
operations of the same location. What an operation may not be moved across is not decided here: operands, aliases
(equal storages), mutations and the pinned order say it all, and the dependence analysis reads them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence

import torch
import torch.fx as fx

from ..options import Estimation, to_ns
from ..reporting import strict
from ..semantics import effects, operators
from ..semantics.operators import guessed_sizes, nodes_in, storage_of
from ..semantics.packs import find_packs
from . import flops
from .collectives import CollectiveImports
from .fsdp import FsdpImports
from .mlir_text import Printer, cost_attribute
from .regions import RegionImports
from .values import Value, flat_values, scalar_type, tensor_value


def donated_placeholders(graph: fx.Graph, donated) -> set[str]:
    """Names of the placeholders that die after their last use. "auto": in a backward graph (one with tangents), all
    but the parameters and inputs of the step; otherwise none."""
    names = [n.name for n in graph.nodes if n.op == "placeholder"]
    if donated == "auto":
        if not any(n.startswith("tangents_") for n in names):
            return set()
        return {n for n in names if not n.startswith("primals_")}
    wanted = set(donated or ())
    missing = wanted.difference(names)
    if missing:
        raise ValueError(f"donated names {sorted(missing)[0]!r}, which is no placeholder of the graph")
    return wanted


class Importer(CollectiveImports, FsdpImports, RegionImports):
    """Walks one graph. `run` returns the module's text. `fused`: nodes that Inductor fuses become one operation."""

    def __init__(
        self,
        graph: fx.Graph,
        name: str,
        donated: set[str],
        estimation: Estimation | None,
        world: int,
        opaque: dict[str, str] | None = None,
        fused: bool = False,
    ):
        self.graph, self.printer, self.donated = graph, Printer(name), donated
        self.estimation, self.world = estimation, world
        self.values: dict[fx.Node, Value | list] = {}
        # Storages: which stands for which (a wait's for its start's), and one value that has it.
        self.canonical: dict[int, int] = {}
        self.owner: dict[int, Value] = {}
        # Storage of a collective in flight: its future's name and type, and its results' types and storages.
        self.in_flight: dict[int, tuple[str, str, list]] = {}
        self.waited: dict[int, Value] = {}  # what the last wait for a collective gave, by storage
        self.groups: dict[str, str] = {}
        self.group_ranks: dict[str, list[int]] = {}
        # Of each (kind, group, element type): the nodes to ask for estimates, with the larger of input and output in bytes.
        self.samples: dict[tuple[str, str, str], list[tuple[fx.Node, int]]] = {}
        # Values that readers of a storage read too: of functions that may have returned them.
        self.shadows: dict[int, list[Value]] = {}
        # What is imported as an opaque operation, and why: of the caller, who has seen it refused, and what is found here.
        self.opaque: dict[str, str] = dict(opaque or {})
        self.indices: dict[str, str] = {}  # numbers of type i64 as index values
        self.written: tuple[effects.Aliases, set[int]] | None = None
        self.extra = 0
        self.fused, self.regions = fused, {}

    # ------------------------------------------------------------------ values

    def bind(self, node: fx.Node, ssa: str, val, single: str | None = None) -> Value | list:
        """Values of the results of `node`; `ssa#i` for element i of a list. Objects and None have no value."""
        if isinstance(val, torch.Tensor):
            storage = storage_of(val)
            return tensor_value(single or ssa, val, self.canonical.get(storage, storage))
        if isinstance(val, (list, tuple)):
            flat = [v for v in _leaves(val) if v is not None]
            names = iter([f"{ssa}#{i}" for i in range(len(flat))] if len(flat) > 1 else [ssa])
            return [_unflatten(self, node, v, names) for v in val]
        if isinstance(val, dict):  # higher-order operators
            return dict(zip(val, self.bind(node, ssa, list(val.values()))))
        return Value(ssa, scalar_type(val))

    def own(self, values: Iterable[Value]) -> None:
        for v in values:
            if v.storage and v.storage not in self.owner:
                self.owner[v.storage] = v

    def operands(self, node: fx.Node, inputs: Iterable[fx.Node] | None = None) -> list[Value]:
        """The values that a node reads, lists spread out."""
        values, result = self.values, []
        for n in node.all_input_nodes if inputs is None else inputs:
            v = values.get(n)
            if type(v) is Value:
                result.append(v)
            elif v is not None:
                result.extend(flat_values(v))
        return [self.landed(v) if v.waitable else v for v in result]

    def landed(self, v: Value) -> Value:
        """A collective's result that is read by its name in flight: what its wait gave, or a wait made here, which is
        no node's. PyTorch's own tensors wait when they are read."""
        done = self.waited.get(v.storage)
        if done is not None:
            return done
        future, type_, _ = self.in_flight[v.storage]
        name = f"commsched_wait_{self._number()}"
        return self._wait(f"%{name}", future, type_, v.storage, name)

    def _number(self) -> int:
        self.extra += 1
        return self.extra

    # ------------------------------------------------------------------ the walk

    def run(self) -> str:
        """The module's text."""
        with guessed_sizes(self._exchanges()):
            return self._run()

    def _run(self) -> str:
        waited = self._futures_that_enter()
        packs = find_packs(self.graph)
        packed = {n for pack in packs.values() for n in pack.parts}
        if self.fused:
            self.regions = self._find_regions(packed)
        for node in self.graph.nodes:
            if node in self.regions:
                continue  # becomes an operation when somebody outside needs it
            self._regions_before(node)
            if node in packed:
                if node in packs:
                    pack = packs[node]
                    self._compute(node, operators.spec_of(node), pack.sources, pack.parts)
                continue
            op = node.op
            if op == "call_function":
                self._call(node)
            elif op == "placeholder":
                self._placeholder(node, node in waited)
            elif op == "get_attr":
                self._constant(node)
            elif op == "output":
                self._output(node)
            else:  # call_module, call_method: nothing that AOT autograd leaves behind
                self._compute(node, operators.Spec(node.op))
        return self.printer.text()

    def _call(self, node: fx.Node) -> None:
        """A call. One that cannot be imported as what it is becomes an opaque operation by itself."""
        length = len(self.printer.lines)
        self.printer.current = node.name
        if node.name not in self.opaque:
            try:
                self._known_call(node)
                return
            except Exception as error:  # Graphs hold what nobody has thought of.
                if strict():
                    raise
                self.opaque[node.name] = f"{type(error).__name__}: {error}"
                self.printer.cut(length)
        self._compute(node, operators.spec_of(node).opaque())

    def _known_call(self, node: fx.Node) -> None:
        if node.target is operator.getitem:
            self._getitem(node)
            return
        spec = operators.spec_of(node)
        if spec.is_wait:
            self._wait_node(node)
        elif spec.start is not None:
            if not self._start(node, spec):
                self.opaque.setdefault(node.name, "the dialect has no such collective")
                self._compute(node, spec.opaque())
        else:
            handler = SPECIAL.get(spec.name)
            if handler is None or not handler(self, node, spec):
                self._compute(node, spec)

    def _futures_that_enter(self) -> set[fx.Node]:
        """Placeholders that are waited for: collectives started in another graph."""
        waits = self.graph.find_nodes(op="call_function", target=torch.ops._c10d_functional.wait_tensor.default)
        return {w.args[0] for w in waits if isinstance(w.args[0], fx.Node) and w.args[0].op == "placeholder"}

    def _getitem(self, node: fx.Node) -> None:
        source, index = node.args
        value = self.values.get(source)
        if (
            isinstance(value, list)
            and isinstance(index, int)
            and index < len(value)
            or (isinstance(value, dict) and index in value)
        ):
            value = self.values[node] = value[index]
            # An element is nothing to do. If the caller says otherwise, it is to be done here.
            if type(value) is Value and value.storage and not value.waitable and self._estimated_ns([node]):
                self._compute(node, operators.Spec(operator.getitem))
        elif value is not None:
            self._compute(node, operators.Spec(operator.getitem))

    def _placeholder(self, node: fx.Node, in_flight: bool) -> None:
        val, ssa = node.meta.get("val"), f"%{node.name}"
        origin = _parameter_name(node.meta.get("desc"))
        value = self.bind(node, ssa, val)
        if isinstance(value, list):  # a list of tensors: no argument of a post-AOT graph
            value = Value(ssa, "none")
        self.values[node] = value
        other = self.owner.get(value.storage) if value.storage else None
        if other is not None:  # a second view of a storage that came in already
            self.printer.operation(
                node.name,
                1,
                'comm.compute "view"',
                f"({other.ssa})",
                " aliases [0]",
                [],
                f"({other.type}) -> {value.type}",
                node.name,
            )
            return
        type_ = value.type
        if in_flight and value.storage:
            type_ = f"!comm.future<{value.type}>"
            self.in_flight[value.storage] = (ssa, type_, [value])
            value.waitable = True
        else:
            self.own([value])
        self.printer.argument(
            ssa, type_, node.name, origin, node.name in self.donated, value.bytes if value.dynamic else None
        )

    def _constant(self, node: fx.Node) -> None:
        """A tensor held by the module: an argument that lives throughout. Subgraphs have no value."""
        owner = self.graph.owning_module
        attr = node.meta.get("val")
        if attr is None and owner is not None:
            attr = getattr(owner, node.target, None)
        if isinstance(attr, torch.Tensor):
            value = tensor_value(f"%{node.name}", attr, storage_of(attr))
            self.values[node] = value
            self.own([value])
            self.printer.argument(value.ssa, value.type, node.name, str(node.target), False, None)

    def _output(self, node: fx.Node) -> None:
        """Returned tensors; a collective still in flight leaves as its future."""
        results = []
        for n in node.all_input_nodes:
            for v in flat_values(self.values.get(n)):
                if v.waitable and v.storage not in self.waited:
                    future, type_, _ = self.in_flight[v.storage]
                    results.append((future, type_))
                else:  # what has been waited for has landed, under whichever name it leaves
                    v = self.waited[v.storage] if v.waitable else v
                    results.append((v.ssa, v.type))
        self.printer.result_types = [t for _, t in results]
        names = ", ".join(n for n, _ in results)
        types = ", ".join(t for _, t in results)
        self.printer.lines.append(
            f'    return {names} : {types} loc("output")' if results else '    return loc("output")'
        )

    # ------------------------------------------------------------------ computation

    def _compute(
        self,
        node: fx.Node,
        spec: operators.Spec,
        sources: list[fx.Node] | None = None,
        parts: Sequence[fx.Node] | None = None,
    ) -> None:
        """A node as an opaque operation. With `sources`, it does the work of several nodes, and reads those."""
        if sources is not None and spec.mutated:
            sources = [node.args[0], *sources]
        inputs = self.operands(node, sources)
        val = node.meta.get("val")
        if spec.same_as is not None:
            operators.unify_results(node, spec, self.canonical)
        result = self.bind(node, f"%{node.name}", val)
        results = flat_values(result) if isinstance(result, (list, dict)) else [] if val is None else [result]
        mutated = self._mutated(node, spec, inputs)
        views = self._aliases(results, inputs)
        attrs = []
        cost = self._cost(parts or [node], spec, inputs, results, views, mutated)
        self._add_shadows(node, inputs, results)
        if cost:
            attrs.append(f"comm.cost = {cost}")
        if spec.hybrid and (group := self._hybrid_group(node, spec)):
            attrs.append(f"comm.hybrid = {group}")
        if spec.ordered:
            attrs.append("comm.pinned")
        if any(v.dynamic for v in results):
            attrs.append(f"comm.bytes_hint = array<i64: {', '.join(str(v.bytes) for v in results)}>")
        clauses = ""
        if views is not None:
            clauses = f" aliases [{', '.join(map(str, views))}]"
        if mutated:
            clauses += f" mutates [{', '.join(map(str, mutated))}]"
        if spec.hybrid:
            clauses += " side_effects"
        types = f"({', '.join([v.type for v in inputs])}) -> {_result_types(results)}"
        name = f"{spec.name}{_device_change(val, inputs, node)}"
        self.printer.operation(
            node.name,
            len(results),
            f'comm.compute "{name}"',
            f"({', '.join([v.ssa for v in inputs])})",
            clauses,
            attrs,
            types,
            [n.name for n in parts] if parts else node.name,
        )
        self.values[node] = result
        self.own(results)

    def _add_shadows(self, node: fx.Node, inputs: list[Value], results: list[Value]) -> None:
        """A function may give back an operand where its fake tensor is a new one. Where that operand is written later,
        the readers of the result read it too."""
        if effects.is_function(node) and results and any(v.storage for v in results) and self._is_written(node):
            for v in results:
                self.shadows.setdefault(v.storage, []).extend(i for i in inputs if i.storage not in (0, v.storage))
        if self.shadows:
            known = {v.ssa for v in inputs}
            inputs += {s.ssa: s for v in inputs for s in self.shadows.get(v.storage, ()) if s.ssa not in known}.values()

    def _is_written(self, node: fx.Node) -> bool:
        """Whether what a node gives may be memory that some node writes."""
        if self.written is None:
            shared = effects.Aliases(self.graph)
            self.written = shared, effects.written_memory(self.graph, shared)
        return not self.written[0].of(node).isdisjoint(self.written[1])

    def _mutated(self, node: fx.Node, spec: operators.Spec, inputs: list[Value]) -> list[int]:
        """Numbers of the operands whose storage the node writes."""
        if not spec.mutated:
            return []
        if spec.mutated == ("all",):
            return [i for i, v in enumerate(inputs) if v.storage]
        storages = set()
        for where in spec.mutated:
            arg = (
                node.kwargs.get(where)
                if isinstance(where, str)
                else (node.args[where] if where < len(node.args) else None)
            )
            for n in nodes_in(arg):
                storages.update(v.storage for v in flat_values(self.values.get(n)) if v.storage)
        return [i for i, v in enumerate(inputs) if v.storage in storages]

    def _aliases(self, results: list[Value], inputs: list[Value]) -> list[int] | None:
        """Per result: the operand that it shares storage with, or -1. A storage that is older than the node but none
        of its operands' joins them as an operand. None where all results are new."""
        first = {}
        for i, v in enumerate(inputs):
            if v.storage:
                first.setdefault(v.storage, i)
        views, any_alias = [], False
        for v in results:
            i = first.get(v.storage, -1) if v.storage else -1
            if i < 0 and v.storage in self.owner:
                i = first[v.storage] = len(inputs)
                inputs.append(self.owner[v.storage])
            elif i < 0 and v.storage:  # results that share a new storage: the first one stands for it in the owner map
                pass
            any_alias |= i >= 0
            views.append(i)
        return views if any_alias else None

    def _cost(self, parts, spec, inputs, results, views, mutated) -> str:
        """The caller's estimate; else views are free; else flops and bytes."""
        free = views is not None and not mutated and -1 not in views
        ns = self._estimated_ns(parts)
        if ns is not None and (ns or not free):
            return cost_attribute(None, None, ns)
        if free:
            return ""
        node = parts[-1]
        if spec.is_wait:
            return "#comm.cost<time = 0>"
        tensors = [v for v in inputs if v.storage]
        if not tensors and not any(v.storage for v in results):
            return "#comm.cost<time = 0>"
        if spec.op in flops.UNTOUCHED:
            return "#comm.cost<time = 0>"
        written = sum(v.bytes for i, v in enumerate(results) if views is None or views[i] < 0)
        written += sum(inputs[i].bytes for i in mutated)
        if spec.op in flops.OVERWRITING:  # what was there is not read
            tensors = tensors[1:]
        if spec.op in flops.GATHERING and tensors:
            read = sum(v.traffic for v in tensors) - tensors[0].traffic + min(tensors[0].traffic, written)
        else:
            read = sum(v.traffic for v in tensors)
        count = 0
        if flops.has_formula(spec.packet, spec.op):
            count = flops.node_flops(spec.packet, spec.op, self._argument_shapes(node), node)
        return cost_attribute(count, read + written, None)

    def _estimated_ns(self, nodes: Iterable[fx.Node]) -> int | None:
        """What the caller says that nodes cost together; None where nothing is said."""
        if self.estimation is None:
            return None
        said = [ms for n in nodes if (ms := self.estimation(n)) is not None]
        return to_ns(sum(said)) if said else None

    def _argument_shapes(self, node: fx.Node) -> list[tuple[int, ...]]:
        """Shapes of the tensors among the positional arguments, an argument that comes twice counted twice."""
        values = [self.values.get(a) for a in node.args if isinstance(a, fx.Node)]
        return [v.shape for v in values if type(v) is Value and v.storage]


def _parameter_name(desc) -> str | None:
    """The path of a parameter or module buffer ("layers.0.attn.wq.weight") from AOT autograd's description of it."""
    while hasattr(desc, "base"):
        desc = desc.base
    target = getattr(desc, "target", None)
    return target if isinstance(target, str) else None


def _device_change(val, inputs: list[Value], node: fx.Node) -> str:
    """What is added to the name of a copy to another device: it is no cast that a kernel could take in."""
    if isinstance(val, torch.Tensor) and len(inputs) == 1 and node.args and isinstance(node.args[0], fx.Node):
        source = node.args[0].meta.get("val")
        if isinstance(source, torch.Tensor) and source.device != val.device:
            return f"@{val.device}"
    return ""


def _unflatten(importer: Importer, node: fx.Node, val, names):
    if val is None:
        return None
    if isinstance(val, (list, tuple)):
        return [_unflatten(importer, node, v, names) for v in val]
    return importer.bind(node, next(names), val)


def _leaves(val):
    for v in val:
        if isinstance(v, (list, tuple)):
            yield from _leaves(v)
        else:
            yield v


def _result_types(results: list[Value]) -> str:
    if len(results) == 1:
        return results[0].type
    return f"({', '.join([v.type for v in results])})"


SPECIAL = {
    "_dtensor.shard_dim_alltoall.default": Importer._shard_dim_all_to_all,
    "fsdp.all_gather_copy_in.default": Importer._all_gather_copy_in,
    "fsdp.split_with_sizes_copy.default": Importer._split_with_sizes_copy,
    "fsdp.chunk_cat.default": Importer._chunk_cat,
    "fsdp.copy_.default": Importer._fsdp_copy,
    "inductor.resize_storage_bytes_.default": Importer._resize_storage,
}
