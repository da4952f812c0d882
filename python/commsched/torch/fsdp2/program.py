# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Runs of FSDP2 as functions of `comm` operations, which the library times and whose memory it counts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ..eager import timing
from ..importer.mlir_text import FREE, cost_attribute
from .items import Item, Kind
from .layout import REPLICAS, SHARDS, Layout, part_symbol
from .runtime import Run

NAME = "step"
# The stream of all-reduces.
ASIDE = "{comm.stream = 1 : i64}"
_FLOATS = {2: "bf16", 4: "f32", 8: "f64"}


@dataclasses.dataclass(frozen=True)
class Measure:
    """What the library says of a run.

    Args:
        step_ns: its time.
        exposed_ns: for how long computation waits for collectives.
        peak_bytes: the most bytes that are live on the device, with the shards of parameters and of gradients.
        allocated_bytes: the same as an allocator counts, for the host takes and frees memory in its own order.
    """

    step_ns: int
    exposed_ns: int
    peak_bytes: int
    allocated_bytes: int

    @property
    def needed_bytes(self) -> int:
        """What a limit is compared with."""
        return max(self.peak_bytes, self.allocated_bytes)


def _tensor(nbytes: int, itemsize: int = 1) -> str:
    element = _FLOATS.get(itemsize, "i8")
    return f"tensor<{nbytes // (itemsize if itemsize in _FLOATS else 1)}x{element}>"


class _Values:
    """The values of a function: indexed by item, those that are born there, and those that die there."""

    def __init__(self) -> None:
        self.born: dict[int, list[tuple[str, int]]] = {}
        self.dying: dict[int, list[tuple[str, int]]] = {}
        self._count = 0

    def add(self, nbytes: int, born: int, dies: int | None) -> None:
        """A value; None as `dies`: it lives no longer than the item at which it is born."""
        value = (f"%v{self._count}", nbytes)
        self._count += 1
        self.born.setdefault(born, []).append(value)
        if dies is not None and dies != born:
            self.dying.setdefault(dies, []).append(value)


def _activations(run: Run, values: _Values) -> None:
    """Values for the bytes of activations: what is born last dies first, which changes no sum."""
    stack: list[list[int]] = []  # bytes and the item of birth
    before = 0
    for index, item in enumerate(run.items):
        shrink = before - item.level
        while shrink > 0:
            top = stack[-1]
            part = min(shrink, top[0])
            values.add(part, top[1], index)
            top[0] -= part
            shrink -= part
            if not top[0]:
                stack.pop()
        grown = max(0, item.level - before)
        if grown:
            stack.append([grown, index])
        if item.kind in (Kind.COMPUTE, Kind.RESHARD) and item.peak > before + grown:
            values.add(item.peak - before - grown, index, None)
        before = item.level
    for nbytes, born in stack:
        values.add(nbytes, born, len(run.items))


def function(
    run: Run,
    order: Sequence[int],
    name: str,
    host: bool = False,
    locations: bool = False,
    free: bool = False,
    timed_copies: bool = False,
    memory: bool = False,
) -> str:
    """A run in one order of its items as the text of a function.

    Args:
        host: the memory is that of the host's order, in which some buffers live longer. Implies `memory`.
        locations: operations have names, by which `place` finds their items.
        free: collectives may be moved, and what runs on the stream of computation may not. Otherwise only the order of
            the text tells what happens when.
        timed_copies: copies take the time that their items have. Otherwise the library prices their bytes.
        memory: only the memory counts. All-reduces are left out, for they are in place. Otherwise they are on a stream
            of their own, and the library frees a buffer only when that stream knows of its last use.
    """
    return _Function(run, host, locations, free, timed_copies, memory or host).text(order, name)


class _Function:
    def __init__(self, run: Run, host: bool, locations: bool, free: bool, timed_copies: bool, memory: bool):
        self.run, self.host, self.locations, self.free, self.timed_copies = run, host, locations, free, timed_copies
        self.all_reduced = {item.of: i for i, item in enumerate(run.items) if item.kind is Kind.ALL_REDUCE}
        if memory:
            self.all_reduced = {}
        # If collectives are free, the name of the last token: each computation takes one, and gives the next.
        self.token = ""
        self.values = _Values()
        _activations(run, self.values)
        for buffer in run.buffers:
            if run.items[buffer.born].kind is not Kind.COPY_IN:
                self.values.add(buffer.nbytes, buffer.born, buffer.dies)
        for index, item in enumerate(run.items):
            if item.cast:
                self.values.add(item.cast, index, len(run.items))
        # Indexed by copy-in: how long the input of its reduction lives.
        self.inputs = {b.born: b for b in run.buffers if run.items[b.born].kind is Kind.COPY_IN}
        self.shards: dict[tuple[int, int, int], str] = {}
        self.lines: list[str] = []
        self.returned: list[tuple[str, str]] = []
        self.waited: set[int] = set()

    def text(self, order: Sequence[int], name: str) -> str:
        for index in order:
            self._item(index, self.run.items[index])
        for index, item in enumerate(self.run.items):
            if item.kind is Kind.GATHER and index not in self.waited:
                self._wait(index, item)
        if self.free:
            for index in self.all_reduced.values():
                self._wait_for_all_reduce(index)
        arguments = ", ".join(f"{ssa}: {_tensor(k[1], k[2])}" for k, ssa in self.shards.items())
        types = ", ".join(t for _, t in self.returned)
        results = ", ".join(v for v, _ in self.returned)
        end = f"    return {results} : {types}" if self.returned else "    return"
        arrow = f" -> ({types})" if self.returned else ""
        return "\n".join([f"  func.func @{name}({arguments}){arrow} {{", *self.lines, end, "  }"])

    def _line(self, text: str, place: str) -> None:
        self.lines.append(f'    {text} loc("{place}")' if self.locations else f"    {text}")

    def _item(self, index: int, item: Item) -> None:
        if item.kind is Kind.GATHER:
            self._gather(index, item)
        elif item.kind is Kind.REDUCE:
            self._reduce(index, item)
        elif item.kind is Kind.ALL_REDUCE:
            self._all_reduce(index, item)
        elif item.kind is Kind.AWAIT:
            self._await(index, item)
        else:
            self._compute(index, item)

    def place(self, index: int, item: Item) -> str:
        return f"{item.kind.value}.{'bw' if item.backward else 'fw'}.{item.group}.{index}"

    def _shard(self, item: Item) -> tuple[str, str]:
        nbytes = item.nbytes // (item.part or self.run.ranks)
        key = (item.group, nbytes, item.itemsize)
        return self.shards.setdefault(key, f"%shard{len(self.shards)}"), _tensor(nbytes, item.itemsize)

    def _gather(self, index: int, item: Item) -> None:
        shard, type_ = self._shard(item)
        whole = _tensor(item.nbytes, item.itemsize)
        self._line(
            f"%f{index} = comm.all_gather {shard} on @{part_symbol(item.part)} : ({type_}) -> !comm.future<{whole}>",
            self.place(index, item),
        )

    def _wait(self, index: int, item: Item) -> None:
        self.waited.add(index)
        whole = _tensor(item.nbytes, item.itemsize)
        self._line(f"%g{index} = comm.wait %f{index} : !comm.future<{whole}>", f"wait.{index}")

    def _reduce(self, index: int, item: Item) -> None:
        part, whole = _tensor(item.nbytes // self.run.ranks, item.itemsize), _tensor(item.nbytes, item.itemsize)
        self._line(
            f"%f{index} = comm.reduce_scatter avg %p{item.of} on @{SHARDS} : ({whole}) -> !comm.future<{part}>",
            self.place(index, item),
        )
        self._cast(index)

    def _cast(self, index: int) -> None:
        """Gradients get a type of their own, on the stream of what reduced them."""
        if made := self.values.born.get(index):
            self._operation("cast", index, [], [], FREE)
            self.returned += [(value, _tensor(nbytes)) for value, nbytes in made]

    def _all_reduce(self, index: int, item: Item) -> None:
        """The all-reduce waits for its reduction on another stream than computation does."""
        part = _tensor(item.nbytes, item.itemsize)
        if item.of in self.all_reduced and not self.free:
            self._line(f"%s{item.of} = comm.wait %f{item.of} {ASIDE} : !comm.future<{part}>", f"wait.{item.of}.aside")
            self._line(
                f"%f{index} = comm.all_reduce avg %s{item.of} into %s{item.of} on @{REPLICAS} {ASIDE} : "
                f"({part}) -> !comm.future<{part}>",
                self.place(index, item),
            )
        self._cast(index)

    def _await(self, index: int, item: Item) -> None:
        awaited = self.run.items[item.of]
        if awaited.kind is Kind.REDUCE:
            self._wait_for_reduction(item.of, awaited)
        elif self.all_reduced and not self.free:
            self._wait_for_all_reduce(item.of)
        if self.values.dying.get(index) or self.values.born.get(index):
            self._operation("end", index, [], [], FREE)

    def _wait_for_reduction(self, index: int, item: Item) -> None:
        part = _tensor(item.nbytes // self.run.ranks, item.itemsize)
        self._line(f"%r{index} = comm.wait %f{index} : !comm.future<{part}>", f"wait.{index}")
        last = self.all_reduced.get(index)
        if last is None and not item.cast:
            self.returned.append((f"%r{index}", part))
        elif last is not None and self.free:
            self._line(
                f"%f{last} = comm.all_reduce avg %r{index} on @{REPLICAS} : ({part}) -> !comm.future<{part}>",
                self.place(last, self.run.items[last]),
            )

    def _wait_for_all_reduce(self, index: int) -> None:
        part = _tensor(self.run.items[index].nbytes, self.run.items[index].itemsize)
        self._line(f"%r{index} = comm.wait %f{index} : !comm.future<{part}>", f"wait.{index}")
        self.returned.append((f"%r{index}", part))

    def _compute(self, index: int, item: Item) -> None:
        operands: list[tuple[str, str]] = []
        results: list[tuple[str, str]] = []
        cost = cost_attribute(None, None, item.cost_ns)
        if item.kind is Kind.COPY_OUT:
            self._wait(item.of, self.run.items[item.of])
            operands.append((f"%g{item.of}", _tensor(item.nbytes, item.itemsize)))
        if item.kind is Kind.COPY_IN:
            results.append((f"%p{index}", _tensor(item.nbytes, item.itemsize)))
        if item.kind is not Kind.COMPUTE and not self.timed_copies:
            cost = timing.copy_cost(item.nbytes)
        if self.host:
            for gather, until in self.run.flat_until.items():
                if until == index and self.run.items[gather].kind is Kind.GATHER and gather in self.waited:
                    operands.append(
                        (f"%g{gather}", _tensor(self.run.items[gather].nbytes, self.run.items[gather].itemsize))
                    )
        self._operation(item.kind.value, index, operands, results, cost, self.place(index, item))

    def _operation(
        self,
        name: str,
        index: int,
        operands: list[tuple[str, str]],
        results: list[tuple[str, str]],
        cost: str,
        place: str = "end",
    ) -> None:
        operands = operands + [(v, _tensor(n)) for v, n in self.values.dying.get(index, ())]
        results = results + [(v, _tensor(n)) for v, n in self.values.born.get(index, ())]
        if self.free:
            operands += [(self.token, _tensor(1))] if self.token else []
            self.token = f"%t{index}"
            results.append((self.token, _tensor(1)))
        left = f"{', '.join(v for v, _ in results)} = " if results else ""
        types = ", ".join(t for _, t in results)
        types = types if len(results) == 1 else f"({types})"
        self._line(
            f'{left}comm.compute "{name}"({", ".join(v for v, _ in operands)}) {{comm.cost = {cost}}} : '
            f"({', '.join(t for _, t in operands)}) -> {types}",
            place,
        )


def module(functions: Sequence[str], layout: Layout) -> str:
    """A module of functions on the groups of a job."""
    return timing.module(layout.groups(), functions)


def copy_ns(nbytes: int, layout: Layout, machine: Any) -> int:
    """The time of one copy of that many bytes."""
    whole = f"!comm.future<tensor<{layout.shards}xf32>>"
    gather = f"%f = comm.all_gather %s on @{SHARDS} : (tensor<1xf32>) -> {whole}"
    copy = f'comm.compute "copy"(%s) {{comm.cost = {timing.copy_cost(nbytes)}}} : (tensor<1xf32>) -> ()'
    functions = [
        f"func.func @{name}(%s: tensor<1xf32>) {{ {body} {gather} %g = comm.wait %f : {whole} return }}"
        for name, body in ((NAME, copy), ("none", ""))
    ]
    times = {r["name"]: r["makespan_ns"]["before"] for r in measured(functions, layout, machine)}
    return times[NAME] - times["none"]


def measured(functions: Sequence[str], layout: Layout, machine: Any) -> list[dict[str, Any]]:
    """The library's report about each function as it is."""
    return timing.measured(module(functions, layout), machine)


def on_device(run: Run) -> str:
    """A run on a device as the text of a function whose name is `NAME`."""
    return function(run, run.device_order(), NAME)


def measure(runs: dict[str, Run], machine: Any) -> list[Measure]:
    """Time and peak of each run on a device. Indexed by what `on_device` gives."""
    if not runs:
        return []
    functions = [text.replace(f"@{NAME}(", f"@{NAME}{i}(", 1) for i, text in enumerate(runs)]
    layout = next(iter(runs.values())).layout
    if layout.replicas:
        functions += [
            function(run, run.device_order(), f"memory{i}", memory=True) for i, run in enumerate(runs.values())
        ]
    reports = {r["name"]: r for r in measured(functions, layout, machine)}
    return [
        _measure(reports[f"{NAME}{i}"], reports.get(f"memory{i}", reports[f"{NAME}{i}"]), run)
        for i, run in enumerate(runs.values())
    ]


def _measure(time: dict[str, Any], memory: dict[str, Any], run: Run) -> Measure:
    peak = memory["peak_bytes"]["before"] + run.shard_bytes
    return Measure(time["makespan_ns"]["before"], time["exposed_ns"]["before"], peak, run.allocated_bytes())


def host_peak(run: Run, machine: Any) -> int:
    """`Run.allocated_bytes` as the library counts it."""
    (report,) = measured([function(run, run.host_order(), "host", host=True)], run.layout, machine)
    return report["peak_bytes"]["before"] + run.shard_bytes
