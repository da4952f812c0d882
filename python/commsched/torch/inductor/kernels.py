# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Imports Inductor's kernels, after fusion, as a module of `comm` operations, by which the generated code is measured.

Every scheduler node becomes one operation with the node's name as its location. Sizes are those of the buffers. Costs
come from the FX nodes of a kernel and from the bytes that it moves.
"""

from __future__ import annotations

import dataclasses
import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.fx as fx
from torch._inductor import ir
from torch._inductor.dependencies import WeakDep
from torch._inductor.utils import is_collective, is_wait
from torch._inductor.virtualized import V

from ...program import Program
from ..importer import flops
from ..importer.collectives import clauses
from ..importer.facts import is_free
from ..importer.groups import Groups
from ..importer.mlir_text import FREE, Printer, cost_attribute
from ..importer.values import ELEMENT_TYPES, Value
from ..options import Options, option_value, to_ns
from ..reporting import function_report
from ..semantics.operators import Spec, hint, spec_of
from .kernel_order import real_name


def measured(order: Sequence, options: Options) -> dict:
    """The figures of the cost model and the timeline for kernels in this order.

    They are the fields of a function in the JSON report of comm-report. The memory figures are those of the model, not
    of Inductor.

    Raises:
        commsched.Error: the module was refused.
    """
    world = dist.get_world_size() if dist.is_initialized() else 1
    program = Program(KernelImporter(order, options, world).text(), "kernels")
    with tempfile.TemporaryDirectory(prefix="commsched") as folder:
        file = pathlib.Path(folder, "report.json")
        program.run(
            f"comm-report{{machine={option_value(options.machine)} report-file={option_value(str(file))} table=false}}"
        )
        return function_report(file)


class KernelImporter:
    """Walks the scheduler's nodes in order. `text` is the module."""

    def __init__(self, snodes: Sequence[Any], options: Options, world: int):
        self.snodes, self.options = snodes, options
        self.printer = Printer("main")
        # Indexed by buffer: its SSA value and type.
        self.values: dict[str, tuple[str, str]] = {}
        # Indexed by buffer in flight: its future, the future's type, and all buffers of the collective.
        self.futures: dict[str, tuple[str, str, list[str]]] = {}
        self.groups = Groups(self.printer, world)
        self.freeable = self._freeable()
        # Indexed by a buffer that stands for several: the nodes that name them.
        self.elements = _elements(snodes)
        # Indexed by FX node: the kernel that its estimate belongs to.
        self.charged = _charged(snodes) if options.runtime_estimation is not None else {}
        # Elements whose kernel has an operation already.
        self.placed: set[Any] = set()

    def text(self) -> str:
        for s in self.snodes:
            self._reads_of_inputs(s)
            if is_collective(s.node) and self._start(s):
                continue
            if is_wait(s.node) and self._wait(s):
                continue
            if isinstance(s.node, ir.MultiOutput) and self._element(s):
                continue  # Its kernel has brought its buffer.
            self._kernel(s)
        results = [
            self.values[n] for n in dict.fromkeys(self._real(n) for n in V.graph.get_output_names()) if n in self.values
        ]
        self.printer.result_types = [t for _, t in results]
        names, types = ", ".join(v for v, _ in results), ", ".join(t for _, t in results)
        self.printer.lines.append(f"    return {names} : {types}" if results else "    return")
        return self.printer.text()

    # ------------------------------------------------------------------ buffers

    def _freeable(self) -> set[str]:
        """Graph inputs that the generated code frees after their last use."""
        from torch._inductor.memory import get_freeable_input_buf

        return set(get_freeable_input_buf(self.snodes, V.graph.graph_inputs.keys()))

    def _real(self, name: str) -> str:
        """The one name of a buffer. A buffer that is written in place has one name per version."""
        return real_name(name)

    def _type(self, name: str) -> str:
        """The flat type of a buffer or a graph input."""
        return self._type_of(
            V.graph.get_buffer(name) if name not in V.graph.graph_inputs else V.graph.graph_inputs[name]
        )

    def _type_of(self, buffer: Any) -> str:
        try:
            elements = V.graph.sizevars.optimization_hint(buffer.get_numel(), fallback=0)
            dtype = buffer.get_dtype()
        except (NotImplementedError, AttributeError, AssertionError):
            return "none"
        return f"tensor<{int(elements)}x{ELEMENT_TYPES.get(dtype, f'i{8 * dtype.itemsize}')}>"

    def _reads_of_inputs(self, s: Any) -> None:
        for dep in s.read_writes.reads | s.read_writes.writes:
            name = self._real(dep.name)
            if name in V.graph.graph_inputs and name not in self.values:
                type_ = self._type(name)
                self.values[name] = (f"%in_{_identifier(name)}", type_)
                self.printer.argument(f"%in_{_identifier(name)}", type_, name, None, name in self.freeable, None)

    def _operands(self, s: Any) -> list[str]:
        """Buffers that a node uses: those that it reads, and those that it has to follow."""
        names: dict[str, None] = {}
        for dep in sorted(s.read_writes.reads | s.unmet_dependencies, key=lambda d: d.name):
            if getattr(dep, "is_fake", False):
                continue
            names.setdefault(self._real(dep.name), None)
        own = {self._real(n) for n in s.get_buffer_names()} - set(self._written(s))
        return [n for n in names if n in self.values and n not in own]

    def _written(self, s: Any) -> list[str]:
        """Existing buffers that the node writes."""
        written: dict[str, None] = {}
        for out in s.get_outputs():
            for name in out.get_mutations():
                written.setdefault(self._real(name), None)
        return list(written)

    # ------------------------------------------------------------------ operations

    def _kernel(self, s: Any) -> None:
        name, operands = s.get_name(), self._operands(s)
        written = [n for n in self._written(s) if n in self.values]
        operands += [n for n in written if n not in operands]
        aliases, results = [], []
        elements = [e for buffer in s.get_buffer_names() for e in self.elements.get(buffer, ())]
        for out in [*s.get_outputs(), *(out for e in elements for out in e.get_outputs())]:
            buffer = out.get_name()
            real = self._real(buffer)
            source = (
                real
                if real != buffer and real in self.values
                else next((self._real(a) for a in out.get_aliases() if self._real(a) in self.values), None)
            )
            if source is not None and source not in operands:
                operands.append(source)
            type_ = self._type(real)
            if type_ == "none" and source is None:
                continue
            if real != buffer:  # This is a new version. Readers use the old name.
                continue
            results.append((buffer, type_))
            aliases.append(operands.index(source) if source is not None else -1)
        clauses = f" aliases {aliases}" if any(a >= 0 for a in aliases) else ""
        if written:
            clauses += f" mutates {[operands.index(n) for n in written]}"
        ssa = _identifier(name)
        types = f"({', '.join(self.values[n][1] for n in operands)}) -> ({', '.join(t for _, t in results)})"
        attrs = [f"comm.cost = {self._cost(s)}"]
        if self._is_barrier(s):
            clauses += " side_effects"
        self.printer.operation(
            ssa,
            len(results),
            'comm.compute "kernel"',
            f"({', '.join(self.values[n][0] for n in operands)})",
            clauses,
            attrs,
            types,
            name,
        )
        for i, (buffer, type_) in enumerate(results):
            self.values[buffer] = (f"%{ssa}#{i}" if len(results) > 1 else f"%{ssa}", type_)
        self.placed.update(elements)

    def _is_barrier(self, s: Any) -> bool:
        """Whether a node is communication that the dialect does not have."""
        return any(isinstance(n.node, ir._CollectiveKernel) for n in s.get_nodes())

    def _estimated_ns(self, s: Any, origins: Sequence[fx.Node]) -> int | None:
        """The user's estimates of the nodes that a kernel computes, together.

        None if the user has none, or says no more than that some of them are free.
        """
        estimation = self.options.runtime_estimation
        if estimation is None:
            return None
        own = [o for o in origins if self.charged.get(o) == s.get_name()]
        answers = {o: estimation(o) for o in own}
        said = [ms for ms in answers.values() if ms is not None]
        silent = any(ms is None and not is_free(o) for o, ms in answers.items())
        total = to_ns(sum(said))
        return total if said and (total or not silent) else None

    def _cost(self, s: Any) -> str:
        origins = list(dict.fromkeys(o for n in s.get_nodes() if n.node is not None for o in n.node.get_origins()))
        ns = self._estimated_ns(s, origins)
        if ns is not None:
            return cost_attribute(None, None, ns)
        count = 0
        for o in origins:
            if not isinstance(o.target, torch._ops.OpOverload):
                continue
            packet, op = o.target.overloadpacket, o.target._schema.name.split("::")[1]
            if not flops.has_formula(packet, op):
                continue
            shapes = [
                tuple(map(hint, a.meta["val"].shape))
                for a in o.args
                if isinstance(a, fx.Node) and isinstance(a.meta.get("val"), torch.Tensor)
            ]
            count += flops.node_flops(packet, op, shapes, o)
        try:
            moved = _moved(s)
        except (NotImplementedError, AttributeError, AssertionError, TypeError):
            moved = 0
        if not count and not moved:
            return FREE
        return cost_attribute(count, moved, None)

    # ------------------------------------------------------------------ collectives

    def _start(self, s: Any) -> bool:
        """Emits a collective as a start. Returns False if the dialect does not have its form."""
        kernel = s.node
        node = _call(kernel)
        if node is None:
            return False
        spec = Spec(node.target)
        if spec.start is None or spec.start.kind in ("send", "recv"):
            return False
        # The splits of an all-to-all follow from the flat sizes, below.
        clause = ("", "") if spec.start.kind == "all_to_all" else clauses(node, spec)
        if clause is None:
            return False
        # The inputs come first among the arguments, the destination last.
        given = [i for i in kernel.inputs if hasattr(i, "get_name")]
        tensors = [self._real(i.get_name()) for i in given]
        written = [n for n in self._written(s) if n in self.values]
        if not tensors or any(n not in self.values for n in tensors + written):
            return False
        operands = [self._viewed(i, n, f"{s.get_name()}_{k}") for k, (i, n) in enumerate(zip(given, tensors))]
        inputs, dests = operands, []
        if spec.start.out:
            inputs, dests, buffers = operands[:-1], operands[-1:], tensors[-1:]
        elif written:
            dests, buffers = operands, tensors
        elif isinstance(kernel.outputs, list) and kernel.outputs and kernel.outputs[0] is not kernel:
            buffers = [o.get_name() for o in kernel.outputs]
        else:
            buffers = [kernel.get_name()]
        if not inputs:
            return False
        types = [d.type for d in dests] or [self._type(b) for b in buffers]
        group = self.groups.group(node, spec)
        ranks = self.groups.size(group)
        prefix, suffix = clause
        if spec.start.kind == "all_to_all":
            suffix = _flat_splits(inputs[0].type, types[0], ranks)
        future = f"!comm.future<{', '.join(types)}>"
        into = f" into {', '.join(d.ssa for d in dests)}" if dests else ""
        attrs = []
        if self.options.runtime_estimation is not None and (origin := _origin(kernel)) is not None:
            ms = self.options.runtime_estimation(origin)
            if ms is not None:
                attrs.append(f"comm.cost = {cost_attribute(None, None, to_ns(ms))}")
        name = s.get_name()
        ssa = _identifier(name)
        self.printer.operation(
            ssa,
            1,
            f"comm.{spec.start.kind}{prefix}",
            f" {', '.join(i.ssa for i in inputs)}{into} on {group}",
            suffix,
            attrs,
            f"({', '.join(i.type for i in inputs)}) -> {future}",
            name,
        )
        for b in buffers:
            self.futures[b] = (f"%{ssa}", future, buffers)
        self.futures.setdefault(kernel.get_name(), (f"%{ssa}", future, buffers))
        return True

    def _viewed(self, tensor: Any, buffer: str, unique: str) -> Value:
        """The value of a buffer as a kernel sees it. A packed gather takes one rank's slice of its own result."""
        ssa, whole = self.values[buffer]
        seen = self._type_of(tensor)
        if not isinstance(tensor, ir.ReinterpretView) or seen == whole:
            return Value(ssa, whole)
        view = f"%view_{_identifier(unique)}"
        self.printer.operation(
            view[1:], 1, 'comm.compute "view"', f"({ssa})", " aliases [0]", [], f"({whole}) -> {seen}", view[1:]
        )
        return Value(view, seen)

    def _wait(self, s: Any) -> bool:
        waited = [self._real(i.get_name()) for i in s.node.inputs if hasattr(i, "get_name")]
        if not waited or waited[0] not in self.futures:
            return False
        future, type_, buffers = self.futures[waited[0]]
        ssa = _identifier(s.get_name())
        self.printer.operation(ssa, len(buffers), "comm.wait", f" {future}", "", [], type_, s.get_name())
        types = type_.removeprefix("!comm.future<").removesuffix(">").split(", ")
        for i, (b, t) in enumerate(zip(buffers, types)):
            if b not in self.values or b == waited[0]:
                self.values[b] = (f"%{ssa}#{i}" if len(buffers) > 1 else f"%{ssa}", t)
        return True

    def _element(self, s: Any) -> bool:
        """Whether a node is a result of a kernel or a coalesced collective, which has no operation of its own."""
        return s in self.placed or s.node.get_name() in self.futures


def _moved(s: Any) -> int:
    """The bytes that a kernel reads and writes, which are at most those of Inductor's own count.

    A dependence that only orders kernels moves nothing. Of a buffer, only the elements count that some index reaches:
    a norm that takes its weights out of a bucket does not read the bucket.
    """
    known = s.read_writes
    reads = type(known.reads)(d for d in known.reads if not isinstance(d, WeakDep))
    s.read_writes = dataclasses.replace(known, reads=reads)
    try:
        counted = s.get_read_write_buffer_accesses(include_reads=True, include_writes=True)
    finally:
        s.read_writes = known
    reached: dict[str, int] = {}
    for dep in reads | known.writes:
        reached[dep.name] = reached.get(dep.name, 0) + _reached(s, dep)
    return sum(int(min(size, reached[name])) for name, size in counted.items())


def _reached(s: Any, dep: Any) -> int:
    """The bytes that a dependence of a kernel reaches. A kernel that Inductor does not make sees its inputs' views."""
    views = [i for i in getattr(s.node, "inputs", ()) if isinstance(i, ir.ReinterpretView) and i.get_name() == dep.name]
    if not s.is_extern() or dep in s.read_writes.writes or not views:
        return dep.numbytes_hint()
    elements = [V.graph.sizevars.optimization_hint(v.get_numel(), fallback=0) for v in views]
    return sum(n * v.get_dtype().itemsize for n, v in zip(elements, views))


def _charged(snodes: Sequence[Any]) -> dict[fx.Node, str]:
    """The kernel that each computation's estimate belongs to. Indexed by FX node.

    Inductor may compute a node in several kernels. The one that stores the node's result counts, otherwise the first
    one by name, so that an estimate counts once and for all orders alike.
    """
    charged: dict[fx.Node, tuple[bool, str]] = {}
    for s in snodes:
        for n in s.get_nodes():
            for o in n.node.get_origins() if n.node is not None else ():
                if o.op != "call_function" or (spec := spec_of(o)).start is not None or spec.is_wait:
                    continue
                key = (n.node.get_origin_node() is not o, s.get_name())
                charged[o] = min(charged.get(o, key), key)
    return {o: name for o, (_, name) in charged.items()}


def _elements(snodes: Sequence[Any]) -> dict[str, list[Any]]:
    """The elements of kernels with several results (attention, topk, ...). Indexed by the buffer that stands for all of
    them.
    """
    elements: dict[str, list] = {}
    for s in snodes:
        if isinstance(s.node, ir.MultiOutput):
            elements.setdefault(s.node.inputs[0].get_name(), []).append(s)
    return elements


def _call(kernel: Any) -> fx.Node | None:
    """The call of a kernel as an FX node, for code that reads arguments by name."""
    try:
        args, kwargs = kernel.unflatten_args(kernel.inputs, kernel.constant_args)
    except (AssertionError, AttributeError, TypeError, ValueError):
        return None

    def strip(a: Any) -> Any:
        return None if isinstance(a, ir.IRNode) else a

    args = torch.utils._pytree.tree_map(strip, list(args), is_leaf=lambda a: isinstance(a, ir.IRNode))
    kwargs = {k: strip(v) for k, v in {**kwargs, **kernel.kwargs}.items()}
    graph = fx.Graph()
    return graph.call_function(kernel.op_overload, tuple(args), kwargs)


def _origin(kernel: Any) -> fx.Node | None:
    """The FX node of a collective kernel."""
    for o in kernel.get_origins():
        if isinstance(o.target, torch._ops.OpOverload) and Spec(o.target).start is not None:
            return o
    return None


def _flat_splits(source: str, result: str, ranks: int) -> str:
    """Splits of an all-to-all over flat buffers. Only their sum matters to the scheduler."""
    sent, received = (int(t[len("tensor<") : t.index("x")]) for t in (source, result))
    if sent == received and sent % ranks == 0:
        return ""
    zeros = [0] * (ranks - 1)
    return f" input_splits {[sent] + zeros} output_splits {[received] + zeros}"


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() or c == "_" else "_" for c in name)
