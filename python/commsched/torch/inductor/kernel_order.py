# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Carries the order of the FX graph over to Inductor's fused kernels.

The graph's schedule (`schedule`) decides. Fusion puts a kernel at the place of its first node, which can drag waits
forward. So every kernel moves back to the place of its last node in the graph's order, unless that order of kernels is
above the graph's limit on memory and Inductor's is not. Afterwards, starts move forward and waits back as far as
dependences and the peak of memory allow, for the graph could not know the sizes of kernels.
These moves keep the order in which collectives start and the peak, and never make the step longer.

`Kernels` reads the numbers off Inductor's scheduler, and `steps` orders them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._inductor import ir
from torch._inductor.utils import contains_collective, is_wait
from torch._inductor.virtualized import V

from ..reporting import Unscheduled
from ..semantics.operators import Spec
from .steps import Step, by_position, starts_early, waits_late


def real_name(name: str) -> str:
    """The first name of a buffer. A buffer that is written in place has one name per version."""
    renames = V.graph.scheduler.mutation_real_name
    while renames.get(name, name) != name:
        name = renames[name]
    return name


def _written(s: Any) -> set[str]:
    return {real_name(m) for out in s.get_outputs() for m in out.get_mutations()}


# The attribute of Inductor's scheduler that holds the dependences before fusion, indexed by name of a node.
BEFORE_FUSION = "_commsched_dependences"


def remember_dependences(snodes: Sequence[Any]) -> None:
    """Before fusion: notes what each node depends on.

    Fusion for CPUs may give a node other loops, and reads its dependences off the new ones. These name the buffers that
    the node reads, but no longer the version of a buffer that a wait has written.
    """
    noted = {leaf.get_name(): frozenset(leaf.unmet_dependencies) for s in snodes for leaf in s.get_nodes()}
    setattr(V.graph.scheduler, BEFORE_FUSION, noted)


def kept_dependences(snodes: Sequence[Any]) -> dict[Any, set[Any]]:
    """Indexed by node: the nodes that must come before it.

    Fake dependences that only chain collectives are left out. Inductor chains all collectives, and renames some
    dependences such that a collective follows the wait of the one before it. A write after a read is marked as fake as
    well, but is kept.
    """
    owner = {name: s for s in snodes for name in s.get_buffer_names()}
    noted = getattr(V.graph.scheduler, BEFORE_FUSION, {})
    result = {}
    for s in snodes:
        before, written = set(), _written(s)
        for dep in s.unmet_dependencies.union(*(noted.get(leaf.get_name(), ()) for leaf in s.get_nodes())):
            other = owner.get(dep.name)
            if other is None or other is s:
                continue
            chained = (
                getattr(dep, "is_fake", False)
                and contains_collective(s)
                and (contains_collective(other) or is_wait(other.node))
            )
            if chained and not written.intersection(
                real_name(d.name) for d in other.read_writes.reads | other.read_writes.writes
            ):
                continue
            before.add(other)
        result[s] = before
    return result


def is_kernel(s: Any) -> bool:
    """Whether a node is computation: it neither communicates nor merely names memory."""
    from torch._inductor.scheduler import NopKernelSchedulerNode

    return not (
        contains_collective(s)
        or is_wait(s.node)
        or isinstance(s.node, ir.MultiOutput)
        or isinstance(s, NopKernelSchedulerNode)
    )


def _communicates_alone(s: Any) -> bool:
    """Whether a node communicates without a wait. No communication is moved across it."""
    target = getattr(s.node, "op_overload", None)
    return (
        isinstance(s.node, ir.FallbackKernel)
        and isinstance(target, torch._ops.OpOverload)
        and not contains_collective(s)
        and Spec(target).hybrid
    )


def in_flight(order: Sequence) -> list[int]:
    """The number of kernels between the start and the first wait of each collective that is waited for."""
    # Indexed by buffer in flight: the collective that is going to fill it.
    flying: dict[str, object] = {}
    started: dict[object, int] = {}
    counts: dict[object, int] = {}
    kernels = 0
    for s in order:
        if contains_collective(s):
            started[s] = kernels
            flying.update(dict.fromkeys([*map(real_name, s.get_buffer_names()), *_written(s)], s))
        elif is_wait(s.node):
            start = flying.get(real_name(s.node.inputs[0].get_name()))
            if start is not None:
                counts.setdefault(start, kernels - started[start])
        elif isinstance(s.node, ir.MultiOutput):
            start = flying.get(s.node.inputs[0].get_name())
            if start is not None:
                flying[s.node.get_name()] = start
        else:
            kernels += is_kernel(s)
    return list(counts.values())


def carried(snodes: Sequence, dependences: dict) -> list:
    """The nodes in the order of the graph that they were lowered from. Collectives keep their order."""
    at = {node: i for i, node in enumerate(V.graph.module.graph.nodes)}
    positions, last = [], -1
    for s in snodes:
        mine = [at[o] for leaf in s.get_nodes() if leaf.node is not None for o in leaf.node.get_origins() if o in at]
        last = max(mine, default=last)  # A kernel of no node in the graph follows the kernel before it.
        positions.append(last)
    index = {s: i for i, s in enumerate(snodes)}
    before = [[index[b] for b in dependences[s]] for s in snodes]
    starts = [index[s] for s in snodes if contains_collective(s)]
    for one, two in zip(starts, starts[1:]):
        before[two].append(one)
    return [snodes[i] for i in by_position(positions, before)]


def bound_fusion(snodes: list) -> list:
    """Before fusion: the nodes in the graph's order, with dependences that keep kernels from fusing across a start or a
    wait.

    Inductor fuses kernels that are far apart. A collective that feeds on one half would then wait for the operands of
    the other half. Kernels that are never fused, such as matrix products, are the marks. The first mark after a start
    depends on the start, and a wait depends on the last mark before it. These dependences order nodes and keep no
    memory alive.
    """
    from torch._inductor.dependencies import WeakDep

    scheduler = V.graph.scheduler
    remember_dependences(snodes)
    order = carried(snodes, kept_dependences(snodes))
    mark, starts = None, []

    def follow(after: Any, before: Any) -> None:
        after.add_fake_dep(
            WeakDep(before.get_outputs()[0].get_name(), mutating_buf=after.get_outputs()[0].get_name(), is_fake=True)
        )

    for s in order:
        if contains_collective(s):
            starts.append(s)
        elif is_wait(s.node):
            if mark is not None:
                follow(s, mark)
        elif s.is_extern() and is_kernel(s) and s.get_outputs():
            for start in starts:
                follow(s, start)
            mark, starts = s, []
    scheduler.nodes = order
    scheduler.compute_ancestors()
    return order


class Kernels:
    """Inductor's scheduler nodes after fusion, with their dependences and the bytes that they hold."""

    def __init__(self, snodes: Sequence):
        from torch._inductor import memory

        scheduler = V.graph.scheduler
        self.snodes = list(snodes)
        self.before = kept_dependences(self.snodes)
        self._add_barriers()
        memory.assign_memory_planning_info_for_scheduler_buffers(self.snodes, scheduler.name_to_buf)
        self._join_concatenations()
        self.inputs = memory.get_freeable_input_buf(self.snodes, set(V.graph.graph_inputs))
        self._take_whole_inputs()
        self.outputs = set(V.graph.get_output_names())

    def _join_concatenations(self) -> None:
        """Makes the first part of a concatenation allocate the whole.

        Parts are written into their places. Inductor's estimate counts both the parts and the whole.
        """
        buffers = V.graph.scheduler.name_to_buf
        for s in self.snodes:
            for leaf in s.get_nodes():
                if not isinstance(leaf.node, ir.ConcatKernel):
                    continue
                parts = [
                    b
                    for i in leaf.node.inputs
                    if (b := buffers.get(i.get_name())) is not None and isinstance(b.node.layout, ir.NonOwningLayout)
                ]
                for part in parts:
                    part.mpi_buffer.size_alloc = part.mpi_buffer.size_free = 0
                whole = buffers[leaf.node.get_name()].mpi_buffer
                if parts:
                    parts[0].mpi_buffer.size_alloc, whole.size_alloc = whole.size_alloc, 0

    def _take_whole_inputs(self) -> None:
        """Gives each input the size of its largest read.

        Inductor's estimate takes that of the last one in the order of the nodes, which may be a part of the input.
        """
        for s in self.snodes:
            for dep in s.read_writes.reads:
                if (found := self.inputs.get(dep.name)) is not None:
                    size = V.graph.get_dep_size_hint(dep)
                    found.mpi_buffer.size_free = max(found.mpi_buffer.size_free, size)

    def _add_barriers(self) -> None:
        barrier: Any = None
        since: list = []
        for s in self.snodes:
            if _communicates_alone(s):
                self.before[s].update(since)
                barrier, since = s, [s]
            elif contains_collective(s) or is_wait(s.node):
                since.append(s)
                if barrier is not None:
                    self.before[s].add(barrier)

    def peak(self, order: Sequence) -> int:
        """The peak of memory of an order in bytes, by Inductor's estimate."""
        from torch._inductor import memory

        return memory.estimate_peak_memory(list(order), self.inputs, self.outputs)[0]

    def steps(self, order: Sequence) -> tuple[list[Step], int]:
        """The order as steps, and the bytes that are live before the first step."""
        from torch._inductor import memory

        index = {s: i for i, s in enumerate(order)}
        steps = [Step([index[b] for b in self.before[s]], contains_collective(s), is_wait(s.node)) for s in order]
        entering = 0
        for info in memory.compute_memory_timeline(list(order), self.inputs, self.outputs)[0]:
            if isinstance(info.buffer, memory.FreeableInputBuffer):
                entering += info.size_alloc
            else:
                steps[info.start_step].allocates += info.size_alloc
            if info.end_step >= 0:
                steps[info.end_step].frees += info.size_free
        return steps, entering

    def check(self, order: list) -> None:
        """Raises Unscheduled if the order is not a permutation of the nodes, or breaks a dependence."""
        position = {s: i for i, s in enumerate(order)}
        if len(order) != len(self.snodes) or len(position) != len(self.snodes):
            raise Unscheduled("the order is not a permutation of the kernels")
        for s, before in self.before.items():
            for other in before:
                if position[other] > position[s]:
                    raise Unscheduled(f"expected {s.get_name()} behind {other.get_name()}, which it depends on")

    def spread(self, order: list, limit: int | None = None) -> list:
        """The order with starts early and waits late, at a peak of at most `limit` bytes.

        If the order's own peak is above that, or there is no limit, its own peak is the limit.
        """
        limit = max(limit or 0, self.peak(order))
        for move in (starts_early, waits_late):
            steps, entering = self.steps(order)
            moved = [order[i] for i in move(steps, limit - entering)]
            if self.peak(moved) <= limit:  # The moves are conservative. This makes sure.
                order = moved
        return order

    def within(self, order: list, limit: int | None, slack: float = 1.0) -> list:
        """`order`, or the order of `snodes` if the peak of `order` is above both that order's and `limit`, spread.

        So the peak is never above the larger of these two. Without a limit, it is at most that of `order`.

        Args:
            limit: the limit on the peak in bytes that the graph was scheduled with.
            slack: the factor by which starts and waits may raise the peak, as far as the limit allows.
        """
        peak = self.peak(order)
        if limit is None:
            return self.spread(order)
        limit = max(limit, given := self.peak(self.snodes))
        if peak > limit:
            order, peak = self.snodes, given
        return self.spread(order, min(limit, int(peak * max(slack, 1.0))))
