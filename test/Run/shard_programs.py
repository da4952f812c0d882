#===- shard_programs.py - Collectives of the shard dialect against an oracle -----------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===------------------------------------------------------------------------------------------------===#
#
# Makes random programs of upstream's shard dialect, runs them with convert-shard-to-comm, and compares what each rank
# gets with the definitions in upstream's documentation of the dialect, carried out here on lists of Python. Grids have
# up to three axes, groups any axes in any order, and tensors up to three dimensions. Values are whole numbers, so sums
# are exact.
#
#   shard_programs.py --bin FOLDER --count N [--first N]

import argparse
import itertools
import math
import random
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

GRIDS = [(4,), (2, 2), (3, 2), (2, 3), (1, 4), (2, 2, 2), (2, 1, 3)]
NUMBERS = {"sum": sum, "max": max, "min": min, "product": math.prod}
PASSES = "convert-shard-to-comm,canonicalize,cse,reorder-comm-overlap"


@dataclass
class Tensor:
    """Numbers by index."""

    shape: tuple[int, ...]
    values: dict[tuple[int, ...], int]

    @staticmethod
    def of(shape: tuple[int, ...], value: Callable[[tuple[int, ...]], int]) -> "Tensor":
        return Tensor(
            shape,
            {index: value(index) for index in itertools.product(*map(range, shape))},
        )

    def piece(self, dim: int, part: int, parts: int) -> "Tensor":
        size = self.shape[dim] // parts
        shape = tuple(size if d == dim else n for d, n in enumerate(self.shape))
        return Tensor.of(
            shape,
            lambda at: self.values[at[:dim] + (at[dim] + part * size,) + at[dim + 1 :]],
        )

    def flat(self) -> list[int]:
        return [self.values[index] for index in sorted(self.values)]


def concatenate(tensors: list[Tensor], dim: int) -> Tensor:
    size = tensors[0].shape[dim]
    shape = tuple(n * len(tensors) if d == dim else n for d, n in enumerate(tensors[0].shape))
    return Tensor.of(
        shape,
        lambda at: tensors[at[dim] // size].values[at[:dim] + (at[dim] % size,) + at[dim + 1 :]],
    )


def combine(tensors: list[Tensor], reduction: str) -> Tensor:
    return Tensor.of(tensors[0].shape, lambda at: NUMBERS[reduction]([t.values[at] for t in tensors]))


class Grid:
    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.coordinates = list(itertools.product(*map(range, shape)))
        self.rank_of = {at: rank for rank, at in enumerate(self.coordinates)}

    def members(self, rank: int, axes: list[int]) -> list[int]:
        """The ranks of the group of `rank`, in the order of the group."""
        at = list(self.coordinates[rank])
        found = []
        for place in itertools.product(*(range(self.shape[axis]) for axis in axes)):
            for axis, position in zip(axes, place, strict=True):
                at[axis] = position
            found.append(self.rank_of[tuple(at)])
        return found


@dataclass
class Case:
    """An operation, the type of its result, and what each rank gets (None where that is undefined)."""

    text: str
    shape: tuple[int, ...]
    expected: list[Tensor | None]


def tensor_type(shape: tuple[int, ...]) -> str:
    return "tensor<" + "".join(f"{size}x" for size in shape) + "f32>"


class Generator:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.grid = Grid(self.rng.choice(GRIDS))
        self.ranks = len(self.grid.coordinates)

    def axes(self) -> list[int]:
        count = self.rng.randint(1, len(self.grid.shape))
        return self.rng.sample(range(len(self.grid.shape)), count)

    def case(self, kind: str, number: int) -> Case:
        grid, rng = self.grid, self.rng
        axes = self.axes()
        sizes = [grid.shape[axis] for axis in axes]
        n = math.prod(sizes)
        dims = rng.randint(1, 3)
        dim, other = rng.randrange(dims), rng.randrange(dims)
        shape = [rng.randint(1, 3) for _ in range(dims)]
        if kind in ("all_slice", "reduce_scatter", "all_to_all", "scatter"):
            shape[dim] *= n
        inputs = [
            Tensor.of(tuple(shape), lambda at, r=r: 1 + (7 * r + 3 * sum(at) + number) % 5) for r in range(self.ranks)
        ]
        groups = [grid.members(rank, axes) for rank in range(self.ranks)]
        places = [group.index(rank) for rank, group in enumerate(groups)]
        of = lambda rank: [inputs[member] for member in groups[rank]]  # noqa: E731
        root = [rng.randrange(size) for size in sizes]
        at_root = [group[list(itertools.product(*map(range, sizes))).index(tuple(root))] for group in groups]
        reduction = rng.choice(list(NUMBERS))
        attributes, expected = self.meaning(kind, dim, other, reduction, axes, sizes, inputs, places, of, at_root, root)
        result = next((tensor.shape for tensor in expected if tensor), tuple(shape))
        head = f"shard.{kind} %x{number} on @grid grid_axes = {axes} {attributes}"
        given, made = tensor_type(tuple(shape)), tensor_type(result)
        types = f"({given}) -> {made}" if "root" in attributes else f"{given} -> {made}"
        return Case(
            f"{self.input(number, inputs[0])}  %y{number} = {head} : {types}\n",
            result,
            expected,
        )

    def meaning(
        self,
        kind,
        dim,
        other,
        reduction,
        axes,
        sizes,
        inputs,
        places,
        of,
        at_root,
        root,
    ):
        """The attributes of an operation, and what it is defined to give."""
        ranks, n = range(self.ranks), math.prod(sizes)
        if kind == "all_gather":
            return f"gather_axis = {dim}", [concatenate(of(rank), dim) for rank in ranks]
        if kind == "all_reduce":
            return f"reduction = {reduction}", [combine(of(rank), reduction) for rank in ranks]
        if kind == "all_slice":
            return f"slice_axis = {dim}", [inputs[rank].piece(dim, places[rank], n) for rank in ranks]
        if kind == "reduce_scatter":
            attributes = f"reduction = {reduction} scatter_axis = {dim}"
            return attributes, [combine(of(rank), reduction).piece(dim, places[rank], n) for rank in ranks]
        if kind == "all_to_all":
            pieces = [concatenate([x.piece(dim, places[rank], n) for x in of(rank)], other) for rank in ranks]
            return f"split_axis = {dim} concat_axis = {other}", pieces
        if kind == "broadcast":
            return f"root = {root}", [inputs[at_root[rank]] for rank in ranks]
        if kind == "gather":
            values = [concatenate(of(rank), dim) if at_root[rank] == rank else None for rank in ranks]
            return f"gather_axis = {dim} root = {root}", values
        if kind == "reduce":
            values = [combine(of(rank), reduction) if at_root[rank] == rank else None for rank in ranks]
            return f"reduction = {reduction} root = {root}", values
        if kind == "scatter":
            values = [inputs[at_root[rank]].piece(dim, places[rank], n) for rank in ranks]
            return f"scatter_axis = {dim} root = {root}", values
        # A shift along one axis of the group.
        axis = self.rng.choice(axes)
        length, offset, rotate = (
            self.grid.shape[axis],
            self.rng.randint(-3, 3),
            self.rng.random() < 0.5,
        )
        values = []
        for coordinates in self.grid.coordinates:
            at = list(coordinates)
            at[axis] -= offset
            if rotate:
                at[axis] %= length
            source = self.grid.rank_of.get(tuple(at)) if 0 <= at[axis] < length else None
            values.append(None if source is None else inputs[source])
        return (
            f"shift_axis = {axis} offset = {offset}{' rotate' if rotate else ''}",
            values,
        )

    def input(self, number: int, shape_of: Tensor) -> str:
        """1 + (7 * rank + 3 * (sum of the index) + number) % 5, computed by each rank."""
        shape = shape_of.shape
        names = ", ".join(f"d{d}" for d in range(len(shape)))
        iterators = ", ".join(['"parallel"'] * len(shape))
        lines = [f"  %e{number} = tensor.empty() : {tensor_type(shape)}"]
        lines.append(
            f"  %x{number} = linalg.generic {{indexing_maps = [affine_map<({names}) -> ({names})>], "
            f"iterator_types = [{iterators}]}} outs(%e{number} : {tensor_type(shape)}) {{\n  ^bb0(%unused: f32):"
        )
        lines.append(f"    %b0 = arith.addi %base, %n{number} : index")
        for d in range(len(shape)):
            lines.append(f"    %i{d} = linalg.index {d} : index\n    %t{d} = arith.muli %i{d}, %three : index")
            lines.append(f"    %b{d + 1} = arith.addi %b{d}, %t{d} : index")
        lines.append(f"    %m = arith.remui %b{len(shape)}, %five : index\n    %p = arith.addi %m, %one : index")
        lines.append("    %q = arith.index_cast %p : index to i32\n    %v = arith.sitofp %q : i32 to f32")
        lines.append(f"    linalg.yield %v : f32\n  }} -> {tensor_type(shape)}")
        return f"  %n{number} = arith.constant {number} : index\n" + "\n".join(lines) + "\n"


KINDS = [
    "all_gather",
    "all_reduce",
    "all_slice",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "gather",
    "reduce",
    "scatter",
    "shift",
]


def program(seed: int) -> tuple[str, list[Case], int]:
    generator = Generator(seed)
    cases = [generator.case(kind, number) for number, kind in enumerate(KINDS)]
    shape = "x".join(map(str, generator.grid.shape))
    types = ", ".join(tensor_type(case.shape) for case in cases)
    text = f"shard.grid @grid(shape = {shape})\nfunc.func @main() -> ({types}) {{\n"
    text += "  %rank = shard.process_linear_index on @grid : index\n"
    for name, value in [("one", 1), ("three", 3), ("five", 5), ("seven", 7)]:
        text += f"  %{name} = arith.constant {value} : index\n"
    text += "  %base = arith.muli %rank, %seven : index\n"
    text += "".join(case.text for case in cases)
    values = ", ".join(f"%y{number}" for number in range(len(cases)))
    return text + f"  return {values} : {types}\n}}\n", cases, generator.ranks


def read_npy(path: Path) -> list[float]:
    """The elements of a file of 32-bit floating-point numbers."""
    content = path.read_bytes()
    (header,) = struct.unpack("<H", content[8:10])
    data = content[10 + header :]
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def wrong(seed: int, comm_run: Path) -> str | None:
    """What is wrong with a program; none if all ranks get what is defined."""
    text, cases, ranks = program(seed)
    with tempfile.TemporaryDirectory() as folder:
        command = [
            comm_run,
            "-",
            "--ranks",
            str(ranks),
            "--output",
            folder,
            f"--passes={PASSES}",
        ]
        run = subprocess.run(command, input=text, capture_output=True, text=True)
        if run.returncode:
            return f"{text}{run.stderr}"
        for number, rank in itertools.product(range(len(cases)), range(ranks)):
            expected = cases[number].expected[rank]
            got = read_npy(Path(folder) / f"rank{rank}_result{number}.npy")
            if expected and got != expected.flat():
                return f"{text}seed {seed}, rank {rank}, {KINDS[number]}: expected {expected.flat()}, got {got}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    for seed in range(arguments.first, arguments.first + arguments.count):
        if message := wrong(seed, arguments.bin / "comm-run"):
            print(message)
            return 1
    print(f"{arguments.count} programs: every rank gets what the shard dialect defines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
