# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Predicts single collectives: what a machine profile says of them. Sizes are those of nccl-tests."""

from __future__ import annotations

import torch_overlap

WIDTH = {"f32": 4, "bf16": 2, "f16": 2}


def module(kind: str, ranks: int, element: str, sizes: list[int]) -> str:
    """One collective of each size (of the whole tensor), at the locations "s0", "s1" and so on."""
    lines = []
    for at, size in enumerate(sizes):
        whole = size // WIDTH[element]
        part = max(1, whole // ranks)
        given, got = {"all_gather": (part, whole), "reduce_scatter": (whole, part), "all_reduce": (whole, whole)}[kind]
        given, got = (f"tensor<{n}x{element}>" for n in (given, got))
        reduction = "" if kind == "all_gather" else " sum"
        lines += [
            f"    %x{at} = tensor.empty() : {given}",
            f'    %{at} = comm.{kind}{reduction} %x{at} on @g : ({given}) -> !comm.future<{got}> loc("s{at}")',
            f"    %w{at} = comm.wait %{at} : !comm.future<{got}>",
        ]
    group = f"  comm.group @g #comm.iota<[1, {ranks}]>"
    return "\n".join(["module {", group, "  func.func @main() {", *lines, "    return", "  }", "}"])


def predict(kind: str, ranks: int, element: str, sizes: list[int], machine: str) -> list[float]:
    """The times of the sizes in us."""
    ms = torch_overlap.durations(module(kind, ranks, element, sizes), machine)
    return [ms[f"s{at}"] * 1e3 for at in range(len(sizes))]


def bus_factor(kind: str, ranks: int) -> float:
    """By what nccl-tests multiplies bytes / time."""
    return (2 if kind == "all_reduce" else 1) * (ranks - 1) / ranks


def measured_us(kind: str, ranks: int, size: int, unit: str, value: float) -> float:
    """A published number as a time in us."""
    return value if unit == "us" else bus_factor(kind, ranks) * size / value / 1e3
