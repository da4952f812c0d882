# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The last gate (`gate`) behind the FX graph: Inductor's kernels, and the memory that its code uses again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .flights import Flights, Memory
from .gate import UNMARKED_WRITES, Event, lands_again, may_start, unknown_starts

# The nodes of Inductor's scheduler


def races_of_kernels(order: Sequence[Any]) -> list[str]:
    """What touches the memory of collectives in flight, in an order of Inductor's scheduler nodes."""
    from torch._inductor import ir

    leaves = [(s, leaf) for s in order for leaf in s.get_nodes()]
    if not any(isinstance(leaf.node, (ir._CollectiveKernel, ir._WaitKernel)) for _, leaf in leaves):
        return []
    memory = Memory()
    for _, leaf in leaves:
        for out in leaf.get_outputs():
            # A collective in place names all of its operands as its aliases. They are not one memory.
            for other in (*out.get_mutations(), *(() if _collective(leaf) else out.get_aliases())):
                memory.join(out.get_name(), other)
    from torch._inductor.virtualized import V

    for name, real in V.graph.scheduler.mutation_real_name.items():
        memory.join(name, real)
    waits = {memory.find(leaf.node.inputs[0].get_name()) for _, leaf in leaves if isinstance(leaf.node, ir._WaitKernel)}
    flights = Flights(waits)
    unknown = unknown_starts(_events_of_kernels(leaves, memory))
    for s, leaf in leaves:
        node = leaf.node
        if isinstance(node, ir._WaitKernel):
            flights.wait(memory.find(node.inputs[0].get_name()))
        elif _collective(leaf):
            flights.start(s.get_name(), _elements_of_kernel(node, memory), _kernel_lands_again(node))
        elif leaf in unknown:
            flights.start(s.get_name(), [(_accesses(leaf, memory)[0] - unknown[leaf], unknown[leaf])])
        elif not isinstance(node, ir.MultiOutput) and not _names_memory(node):
            reads, writes = _accesses(leaf, memory)
            flights.touch(s.get_name(), reads - writes, writes)
    return flights.races


def _events_of_kernels(leaves: Iterable[tuple[Any, Any]], memory: Memory) -> Iterator[Event]:
    from torch._inductor import ir

    for _, leaf in leaves:
        node = leaf.node
        filled = {memory.find(out.get_name()) for out in leaf.get_outputs()}
        if isinstance(node, ir._WaitKernel):
            yield leaf, "wait", {memory.find(node.inputs[0].get_name())}
        elif _collective(leaf):
            yield leaf, "start", filled.union(*(fills for _, fills in _elements_of_kernel(node, memory)))
        elif isinstance(node, ir.FallbackKernel) and not _names_memory(node) and may_start(node.op_overload):
            yield leaf, "unknown", filled | _accesses(leaf, memory)[1]


def _collective(leaf: Any) -> bool:
    from torch._inductor import ir

    return isinstance(leaf.node, ir._CollectiveKernel) and not isinstance(leaf.node, ir._WaitKernel)


def _names_memory(node: Any) -> bool:
    """Whether a kernel is a call of an operator that only gives another name to memory."""
    schema = getattr(getattr(node, "op_overload", None), "_schema", None)
    if schema is None or schema.name in UNMARKED_WRITES:
        return False
    return any(r.alias_info is not None for r in schema.returns) and not any(a.is_write for a in schema.arguments)


def _accesses(leaf: Any, memory: Memory) -> tuple[set, set]:
    """What a kernel reads and writes. Dependences that only order kernels are no accesses."""
    from torch._inductor.dependencies import WeakDep

    reads = {memory.find(d.name) for d in leaf.read_writes.reads if not isinstance(d, WeakDep)}
    writes = {memory.find(d.name) for d in leaf.read_writes.writes}
    writes |= {memory.find(m) for out in leaf.get_outputs() for m in out.get_mutations()}
    return reads, writes


def _elements_of_kernel(node: Any, memory: Memory) -> list[tuple[set, set]]:
    from torch._inductor import ir

    def of(values: Iterable[Any]) -> set:
        return {memory.find(v.get_name()) for v in values if isinstance(v, ir.IRNode)}

    inputs = [i for i in node.inputs if isinstance(i, ir.IRNode)]
    results = list(getattr(node, "outputs", None) or [])
    schema = getattr(getattr(node, "op_overload", None), "_schema", None)
    if schema is not None and any(a.name == "out" and a.is_write for a in schema.arguments):
        return [(of(inputs[:-1]), of(inputs[-1:]))]
    if results and len(results) == len(inputs):
        return [(of([i]), of([r])) for i, r in zip(inputs, results)]
    fills = of(results)
    if not results:  # It is in-place: Inductor lists the operands that are written.
        fills = {memory.find(m.get_mutation_names()[0]) for m in node.mutation_outputs}
    return [(of(inputs), fills)] if results else [({f}, {f}) for f in fills]


def _kernel_lands_again(node: Any) -> bool:
    schema = getattr(getattr(node, "op_overload", None), "_schema", None)
    return lands_again(schema, (*node.constant_args, *node.kwargs.values())) if schema is not None else False


# The generated code


def races_of_code(lines: Sequence[Any]) -> list[str]:
    """Which memory of collectives in flight the generated code gives to another buffer.

    Args:
        lines: the lines of Inductor's wrapper, after it has planned the memory.
    """
    from torch._inductor import ir
    from torch._inductor.codegen import wrapper as code

    # Other lines name a kernel, too: those that free or reuse its result.
    kernels = [(line, line.node if isinstance(line, code.ExternKernelAllocLine) else None) for line in lines]
    if not any(isinstance(node, ir._CollectiveKernel) for _, node in kernels):
        return []
    memory = Memory()
    for _, node in kernels:
        for out in getattr(node, "mutation_outputs", None) or ():
            for name in out.get_mutation_names():
                memory.join(out.get_name(), name)
    waits = {memory.find(n.inputs[0].get_name()) for _, n in kernels if isinstance(n, ir._WaitKernel)}
    flights = Flights(waits)
    for line, node in kernels:
        if isinstance(line, code.ReuseLine):
            flights.touch(line.reused_as.get_name(), (), {memory.find(line.node.get_name())})
        elif isinstance(node, ir._WaitKernel):
            flights.wait(memory.find(node.inputs[0].get_name()))
        elif isinstance(node, ir._CollectiveKernel):
            flights.start(node.get_name(), _elements_of_kernel(node, memory), _kernel_lands_again(node))
    return flights.races
