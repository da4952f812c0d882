# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Steps of `DistributedDataParallel` as functions of `comm` operations, and what their parts take."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..eager import timing
from ..importer.mlir_text import FREE, cost_attribute, groups_attribute
from .reducer import Backward, Buckets

# Between sizes at which all-reduces are priced lies at most this factor.
STEP = 1.15
_ELEMENTS = {torch.float64: "f64", torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}


@dataclasses.dataclass(frozen=True)
class Measure:
    """What the library says of a step.

    Args:
        step_ns: its time.
        exposed_ns: for how long computation waits for all-reduces.
    """

    step_ns: int
    exposed_ns: int


def _tensor(nbytes: int, dtype: torch.dtype) -> str:
    return f"tensor<{nbytes // dtype.itemsize}x{_ELEMENTS.get(dtype, f'i{8 * dtype.itemsize}')}>"


def _module(functions: Sequence[str], ranks: int) -> str:
    return timing.module([f"  comm.group @ranks {groups_attribute(range(ranks), ranks)}"], functions)


def _compute(name: str, cost: str, result: str = "", type_: str = "()") -> str:
    left = f"{result} = " if result else ""
    return f'{left}comm.compute "{name}"() {{comm.cost = {cost}}} : () -> {type_}'


def _reduced(number: int, type_: str) -> str:
    """An all-reduce of the value `%b` of that number."""
    return f"%f{number} = comm.all_reduce sum %b{number} on @ranks : ({type_}) -> !comm.future<{type_}>"


def _awaited(number: int, type_: str) -> str:
    return f"%r{number} = comm.wait %f{number} : !comm.future<{type_}>"


def text(backward: Backward, buckets: Buckets, name: str, locations: bool = False) -> str:
    """A step as a function.

    Args:
        locations: operations have the names of their parameters.
    """
    types = [_tensor(backward.nbytes(b), backward.gradients[b[0]].dtype) for b in buckets]
    last = {max(b): number for number, b in enumerate(buckets)}
    lines: list[str] = []
    started = 0
    complete: set[int] = set()

    def add(line: str, place: str) -> None:
        lines.append(f'    {line} loc("{place}")' if locations else f"    {line}")

    for i, g in enumerate(backward.gradients):
        number = last.get(i)
        add(_compute("compute", cost_attribute(None, None, g.before_ns)), f"until {g.name}")
        result = ("", "()") if number is None else (f"%b{number}", types[number])
        add(_compute("copy", cost_attribute(None, None, g.copy_ns), *result), f"copy of {g.name}")
        if number is not None:
            complete.add(number)
        while started in complete:
            add(_reduced(started, types[started]), f"bucket {started}")
            started += 1
    add(_compute("compute", cost_attribute(None, None, backward.after_ns)), "behind the last gradient")
    for number, bucket in enumerate(buckets):
        add(_awaited(number, types[number]), f"wait for bucket {number}")
        if not backward.views:
            back = sum(backward.gradients[i].copy_ns for i in bucket)
            add(_compute("copy", cost_attribute(None, None, back)), f"copies of bucket {number}")
    # Nobody waits for what no one reads.
    types_text = ", ".join(types)
    results = ", ".join(f"%r{number}" for number in range(len(buckets)))
    end = f"    return {results} : {types_text}" if buckets else "    return"
    arrow = f" -> ({types_text})" if buckets else ""
    return "\n".join([f"  func.func @{name}(){arrow} {{", *lines, end, "  }"])


def page(backward: Backward, buckets: Buckets, ranks: int) -> str:
    """A module of one step whose operations have names."""
    return _module([text(backward, buckets, "step", locations=True)], ranks)


def measure(backward: Backward, asked: Sequence[Buckets], ranks: int, machine: Any) -> list[Measure]:
    """The library's time of a step with each of these divisions."""
    functions = [text(backward, buckets, f"step{i}") for i, buckets in enumerate(asked)]
    reports = {r["name"]: r for r in timing.measured(_module(functions, ranks), machine)}
    return [
        Measure(r["makespan_ns"]["before"], r["exposed_ns"]["before"])
        for r in (reports[f"step{i}"] for i in range(len(asked)))
    ]


class AllReduces:
    """Prices of all-reduces: those of the library at some sizes, and straight lines between these.

    Args:
        smallest, largest: bytes between which prices are wanted.
    """

    def __init__(self, smallest: int, largest: int, dtype: torch.dtype, ranks: int, machine: Any):
        count = 2 + int(np.log(max(1.0, largest / smallest)) / np.log(STEP))
        sizes = np.geomspace(smallest, largest, count)
        whole = np.unique(np.ceil(sizes / dtype.itemsize).astype(np.int64) * dtype.itemsize)
        types = [_tensor(int(size), dtype) for size in whole]
        functions = [
            "\n".join(
                [f"  func.func @size{i}(%b0: {t}) -> {t} {{", _reduced(0, t), _awaited(0, t), f"return %r0 : {t}", "}"]
            )
            for i, t in enumerate(types)
        ]
        reports = {r["name"]: r["makespan_ns"]["before"] for r in timing.measured(_module(functions, ranks), machine)}
        self.sizes = whole
        # More bytes never take less: a measured curve may say so by chance.
        self._ns = np.maximum.accumulate([float(reports[f"size{i}"]) for i in range(len(types))])

    def __call__(self, nbytes: np.ndarray) -> np.ndarray:
        """The times of all-reduces of so many bytes, ns."""
        return np.interp(nbytes, self.sizes, self._ns)


def copies(sizes: Sequence[int], ranks: int, machine: Any) -> dict[int, int]:
    """The time of a copy of so many bytes, indexed by these, ns."""
    type_ = "tensor<1xf32>"
    distinct = sorted(set(sizes))
    costs = [FREE, *(timing.copy_cost(size) for size in distinct)]
    functions = [
        "\n".join(
            [
                f"  func.func @copy{i}(%b0: {type_}) -> {type_} {{",
                _compute("copy", cost),
                _reduced(0, type_),
                _awaited(0, type_),
                f"return %r0 : {type_}",
                "}",
            ]
        )
        for i, cost in enumerate(costs)
    ]
    reports = {r["name"]: r["makespan_ns"]["before"] for r in timing.measured(_module(functions, ranks), machine)}
    return {size: reports[f"copy{i + 1}"] - reports["copy0"] for i, size in enumerate(distinct)}
