"""Turns a post-AOT FX graph into a module of `comm` operations.

One walk over the nodes, in order; near-linear. A node becomes one operation whose location is the node's name
(`getitem` none at all), except that a coalesced list, an FSDP copy or a collective that waits for itself may take two
operations of the same location. What an operation may not be moved across is not decided here: operands, aliases
(equal storages), mutations and the pinned order say it all, and the dependence analysis reads them.
"""

from __future__ import annotations

import operator

import torch
import torch.fx as fx

from ..options import Estimation
from ..reporting import strict
from ..semantics import operators
from ..semantics.operators import guessed_sizes, storage_of
from ..semantics.packs import find_packs
from .fsdp import FsdpImports
from .regions import RegionImports
from .values import Value, flat_values, tensor_value


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


class Importer(FsdpImports, RegionImports):
    """Walks one graph. `run` returns the module's text.

    Args:
        graph: the graph to import.
        name: the symbol of the function.
        donated: placeholders that are freed after their last use.
        estimation: the user's estimates of single nodes, if there are any.
        world: the number of ranks of the job.
        opaque: nodes to import as opaque operations, each with the reason.
        fused: nodes that Inductor is going to fuse into one kernel become one operation.
    """

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
        super().__init__(graph, name, estimation, world, opaque)
        self.donated, self.fused = donated, fused

    def run(self) -> str:
        """The module's text."""
        with guessed_sizes(self.exchanges()):
            return self._run()

    def _run(self) -> str:
        waited = self._futures_that_enter()
        packs = find_packs(self.graph)
        packed = {n for pack in packs.values() for n in pack.parts}
        if self.fused:
            self.find_regions(packed)
        for node in self.graph.nodes:
            if node in self.regions:
                continue  # becomes an operation when somebody outside needs it
            self.regions_before(node)
            if node in packed:
                if node in packs:
                    pack = packs[node]
                    self.compute(node, operators.spec_of(node), pack.sources, pack.parts)
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
                self.compute(node, operators.Spec(node.op))
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
        self.compute(node, operators.spec_of(node).opaque())

    def _known_call(self, node: fx.Node) -> None:
        if node.target is operator.getitem:
            self.element(node)
            return
        spec = operators.spec_of(node)
        if spec.is_wait:
            self.wait_node(node)
        elif spec.start is not None:
            if not self.start(node, spec):
                self.opaque.setdefault(node.name, "the dialect has no such collective")
                self.compute(node, spec.opaque())
        else:
            handler = SPECIAL.get(spec.name)
            if handler is None or not handler(self, node, spec):
                self.compute(node, spec)

    def _futures_that_enter(self) -> set[fx.Node]:
        """Placeholders that are waited for: collectives started in another graph."""
        waits = self.graph.find_nodes(op="call_function", target=torch.ops._c10d_functional.wait_tensor.default)
        return {w.args[0] for w in waits if isinstance(w.args[0], fx.Node) and w.args[0].op == "placeholder"}

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


def _parameter_name(desc) -> str | None:
    """The path of a parameter or module buffer ("layers.0.attn.wq.weight") from AOT autograd's description of it."""
    while hasattr(desc, "base"):
        desc = desc.base
    target = getattr(desc, "target", None)
    return target if isinstance(target, str) else None


SPECIAL = {
    "_dtensor.shard_dim_alltoall.default": Importer.shard_dim_all_to_all,
    "fsdp.all_gather_copy_in.default": Importer.all_gather_copy_in,
    "fsdp.split_with_sizes_copy.default": Importer.split_with_sizes_copy,
    "fsdp.chunk_cat.default": Importer.chunk_cat,
    "fsdp.copy_.default": Importer.fsdp_copy,
    "inductor.resize_storage_bytes_.default": Importer.resize_storage,
}
