#===- cast_programs.py - Casts that cross collectives, executed and compared with numpy --------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===------------------------------------------------------------------------------------------------===#
#
# Makes random programs with casts in front of collectives and behind them, runs each as it is and behind comm-move-casts
# with sums in fewer bits, and compares the results. Gathers, exchanges and maxima have equal bits. A sum differs by at
# most the fraction that the pass wrote down, of the sum of the magnitudes of its terms, which numpy adds up. It counts the
# programs whose casts moved, and prints the largest difference as a part of its bound.
#
#   cast_programs.py --bin FOLDER --count N [--first N]

import argparse
import random
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

KINDS = ("reduce_scatter sum", "all_reduce sum", "all_reduce avg", "all_reduce max", "all_reduce min",
         "all_gather", "all_to_all")  # fmt: skip
WIDE = {"f32": np.float32, "f64": np.float64}


@dataclass
class Value:
    """A result: a collective on one group, or two of them one behind the other.

    Args:
        narrow: the element type in front of the cast, or behind it.
        behind: the cast is behind the wait.
    """

    kind: str
    groups: list[str]
    narrow: str
    wide: str
    rows: int
    columns: int
    behind: bool

    @property
    def is_sum(self) -> bool:
        return "sum" in self.kind or "avg" in self.kind

    def rows_behind(self, rows: int, size: int) -> int:
        return {"reduce_scatter": rows // size, "all_gather": rows * size}.get(self.kind.split()[0], rows)


def draw(rng: random.Random, axes: dict[str, int]) -> Value:
    kind = rng.choice(KINDS)
    groups = rng.sample(sorted(axes), rng.choice([1, 1, min(2, len(axes))]))
    ranks = int(np.prod(list(axes.values())))
    behind = not kind.startswith("reduce") and kind[-3:] not in ("sum", "avg") and rng.random() < 0.5
    return Value(kind, groups, rng.choice(["bf16", "bf16", "f16"]), rng.choice(["f32", "f32", "f64"]),
                 ranks * rng.choice([1, 2]), rng.choice([1, 3, 64]), behind)  # fmt: skip


def groups_of(axes: dict[str, int]) -> str:
    """The groups of the axes of a mesh, the slowest axis first."""
    ranks = int(np.prod(list(axes.values())))
    text, stride = "", ranks
    for name, size in axes.items():
        stride //= size
        first = [rank for rank in range(ranks) if rank // stride % size == 0]
        lists = [[rank + i * stride for i in range(size)] for rank in first]
        text += f"comm.group @{name} #comm.ranks<{lists}>\n"
    return text


def program(values: list[Value], axes: dict[str, int]) -> str:
    """A function with one argument and one result for each value. Axes are those of a mesh, the slowest first."""
    text = groups_of(axes)
    body, results, types = "", [], []
    for i, v in enumerate(values):
        rows, element, name = v.rows, v.wide if v.behind else v.narrow, f"%a{i}"

        def tensor() -> str:
            return f"tensor<{rows}x{v.columns}x{element}>"

        if not v.behind:
            body += f'  %c{i} = comm.compute "cast"({name}) : ({tensor()}) -> '
            element, name = v.wide, f"%c{i}"
            body += f"{tensor()}\n"
        for j, group in enumerate(v.groups):
            before = tensor()
            rows = v.rows_behind(rows, axes[group])
            body += f"  %f{i}_{j} = comm.{v.kind} {name} on @{group} : ({before}) -> !comm.future<{tensor()}>\n"
            name = f"%w{i}_{j}"
            body += f"  {name} = comm.wait %f{i}_{j} : !comm.future<{tensor()}>\n"
        if v.behind:
            body += f'  %n{i} = comm.compute "cast"({name}) : ({tensor()}) -> '
            element, name = v.narrow, f"%n{i}"
            body += f"{tensor()}\n"
        results.append(name)
        types.append(tensor())
    arguments = ", ".join(
        f"%a{i}: tensor<{v.rows}x{v.columns}x{v.wide if v.behind else v.narrow}>" for i, v in enumerate(values)
    )
    return (
        f"{text}func.func @main({arguments}) -> ({', '.join(types)}) {{\n{body}"
        f"  return {', '.join(results)} : {', '.join(types)}\n}}\n"
    )


def to_bf16(numbers: np.ndarray) -> np.ndarray:
    """The upper half of f32, rounded towards zero: any bf16 will do as an input."""
    return (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def numbers(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Equal signs, mixed signs, or magnitudes that differ by powers of two: sums that round in different ways."""
    drawn = rng.standard_normal(shape)
    kind = rng.integers(3)
    return np.abs(drawn) if kind == 0 else drawn if kind == 1 else drawn * 2.0 ** rng.integers(-12, 5, shape)


def inputs(v: Value, ranks: int, rng: np.random.Generator) -> list[np.ndarray]:
    """What each rank begins with, as it is stored."""
    element = v.wide if v.behind else v.narrow
    drawn = [numbers(rng, (v.rows, v.columns)) for _ in range(ranks)]
    if v.behind:  # Some are too large for f16, and some too small.
        drawn = [x * 2.0 ** rng.integers(-30, 30, x.shape) for x in drawn]
    if element == "bf16":
        return [to_bf16(x) for x in drawn]
    return [x.astype(np.float16 if element == "f16" else WIDE[element]) for x in drawn]


def magnitudes(v: Value, given: list[np.ndarray], axes: dict[str, int], rank: int) -> np.ndarray:
    """The sum of the magnitudes of the terms of each element of a rank's result."""
    values = [np.abs((from_bf16(x) if v.narrow == "bf16" else x).astype(np.float64)) for x in given]
    ranks = len(given)
    for group in v.groups:
        names = list(axes)
        stride = int(np.prod([axes[n] for n in names[names.index(group) + 1 :]], dtype=int))
        size, now = axes[group], []
        for r in range(ranks):
            place = r // stride % size
            total = sum(values[r + (i - place) * stride] for i in range(size))
            if "avg" in v.kind:
                total = total / size
            rows = total.shape[0] // size
            now.append(total[place * rows : (place + 1) * rows] if v.kind.startswith("reduce_scatter") else total)
        values = now
    return values[rank]


def load(folder: Path, rank: int, i: int, element: str) -> np.ndarray:
    stored = np.load(folder / f"rank{rank}_result{i}.npy")
    return from_bf16(stored) if element == "bf16" else stored


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    moved = sums = 0
    nearest = 0.0
    for seed in range(options.first, options.first + options.count):
        with tempfile.TemporaryDirectory() as folder:
            found = check(seed, options.bin, Path(folder))
        if isinstance(found, str):
            print(f"seed {seed}: {found}")
            return 1
        moved, sums, nearest = moved + found[0], sums + found[1], max(nearest, found[2])
    print(f"{options.count} programs: {moved} casts moved, {sums} of them across sums")
    print(f"largest difference: {nearest:.2f} of the bound", file=sys.stderr)
    if moved == 0 or sums == 0:
        print("no cast moved, or none across a sum")
        return 1
    return 0


def check(seed: int, tools: Path, folder: Path) -> "tuple[int, int, float] | str":
    rng, noise = random.Random(seed), np.random.default_rng(seed)
    axes = rng.choice([{"x": 2}, {"x": 3}, {"x": 4}, {"x": 8}, {"x": 2, "y": 2}, {"x": 2, "y": 3}, {"x": 4, "y": 2}])
    ranks = int(np.prod(list(axes.values())))
    values = [draw(rng, axes) for _ in range(rng.randint(1, 4))]
    given, changed = folder / "given.mlir", folder / "changed.mlir"
    given.write_text(program(values, axes))
    subprocess.run([tools / "comm-opt", given, "--comm-move-casts=numerics=reduced-precision-sums", "-o", changed], check=True)  # fmt: skip
    text = changed.read_text()
    error = re.search(r"error = ([-+.0-9eE]+) : f64", text)
    arguments = []
    stored = [inputs(v, ranks, noise) for v in values]
    for i, per_rank in enumerate(stored):
        for rank, array in enumerate(per_rank):
            np.save(folder / f"in{i}_{rank}.npy", array)
        arguments.append(f"--input={i}={folder}/in{i}_%r.npy")
    for name, file in (("a", given), ("b", changed)):
        (folder / name).mkdir()
        subprocess.run([tools / "comm-run", file, f"--ranks={ranks}", *arguments, f"--output={folder / name}"], check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip
    nearest, moved, sums = 0.0, 0, 0
    for i, v in enumerate(values):
        crossed = (f'"cast"(%arg{i})' in text) == v.behind
        moved, sums = moved + crossed, sums + (crossed and v.is_sum)
        for rank in range(ranks):
            element = v.narrow if v.behind else v.wide
            a, b = load(folder / "a", rank, i, element), load(folder / "b", rank, i, element)
            if not (v.is_sum and crossed):
                if not np.array_equal(a.view(np.uint8), b.view(np.uint8)):
                    return f"value {i} ({v}): bits differ on rank {rank}"
                continue
            if error is None:
                return f"value {i} ({v}): a sum moved, and the function has no bound"
            one = float(error[1])
            bound = (one if len(v.groups) == 1 else 2 * one + one * one) * magnitudes(v, stored[i], axes, rank)
            difference = np.abs(a.astype(np.float64) - b.astype(np.float64))
            if (difference > bound).any():
                return f"value {i} ({v}): {difference.max()} above the bound on rank {rank}"
            nearest = max(nearest, float((difference / np.maximum(bound, 1e-300)).max()))
    return moved, sums, nearest


if __name__ == "__main__":
    sys.exit(main())
