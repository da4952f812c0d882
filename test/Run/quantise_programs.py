#===- quantise_programs.py - Gathers in 8 bits, executed and compared with numpy and ml_dtypes -------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===------------------------------------------------------------------------------------------------===#
#
# Makes random programs of all-gathers, runs each as it is and behind comm-quantise-gathers, and compares the results. Each
# element differs by at most the bound of docs/guide/Rewrites.md. It also has the bits that numpy and the conversions of
# ml_dtypes compute for it, which are not those of this project. Counts the gathers that carry bytes, and prints the
# largest difference as a part of its bound.
#
#   quantise_programs.py --bin FOLDER --count N [--first N] [--backend NAME] [--mpirun COMMAND]

import argparse
import json
import random
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
from cast_programs import groups_of

ELEMENTS = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
BLOCK = 128
MACHINE = Path(__file__).resolve().parents[2] / "machines" / "cpu-mpi.json"
OF_ELEMENT, OF_BLOCK, ABSOLUTE = 2.0**-4, 2.0**-10 / 224, 2.0**-136


@dataclass
class Value:
    """Tensors that one gather, or two gathers one behind the other, bring together.

    Args:
        shapes: the shape of each tensor; several of them are one coalesced gather.
    """

    element: str
    shapes: list[list[int]]
    groups: list[str]
    dim: int


def draw(rng: random.Random, axes: dict[str, int]) -> Value:
    rank = rng.choice([1, 2, 2, 3])
    shapes = []
    for _ in range(rng.choice([1, 1, 1, 2])):
        shape = [rng.choice([1, 2, 3, 5, 8]) for _ in range(rank)]
        shape[rng.randrange(rank)] = rng.choice([40, 64, 96, 127, 128, 130, 256, 384, 500])
        shapes.append(shape)
    groups = rng.sample(sorted(axes), rng.choice([1, 1, min(2, len(axes))]))
    return Value(rng.choice(sorted(ELEMENTS)), shapes, groups, rng.randrange(rank))


def tensor(shape: list[int], element: str) -> str:
    return f"tensor<{'x'.join(map(str, [*shape, element]))}>"


def program(values: list[Value], axes: dict[str, int]) -> str:
    """A function with one argument and one result for each tensor. Axes are those of a mesh, the slowest first."""
    text = groups_of(axes)
    body, arguments, results, types = "", [], [], []
    for i, v in enumerate(values):
        shapes, names = [list(s) for s in v.shapes], [f"%a{i}_{k}" for k in range(len(v.shapes))]
        arguments += [f"{name}: {tensor(s, v.element)}" for name, s in zip(names, shapes)]
        for j, group in enumerate(v.groups):
            before = ", ".join(tensor(s, v.element) for s in shapes)
            for s in shapes:
                s[v.dim] *= axes[group]
            future = f"!comm.future<{', '.join(tensor(s, v.element) for s in shapes)}>"
            dim = f" dim {v.dim}" if v.dim else ""
            body += f"  %f{i}_{j} = comm.all_gather {', '.join(names)} on @{group}{dim} : ({before}) -> {future}\n"
            count = f":{len(shapes)}" if len(shapes) > 1 else ""
            body += f"  %w{i}_{j}{count} = comm.wait %f{i}_{j} : {future}\n"
            names = [f"%w{i}_{j}#{k}" if count else f"%w{i}_{j}" for k in range(len(shapes))]
        results += names
        types += [tensor(s, v.element) for s in shapes]
    return (
        f"{text}func.func @main({', '.join(arguments)}) -> ({', '.join(types)}) {{\n{body}"
        f"  return {', '.join(results)} : {', '.join(types)}\n}}\n"
    )


def numbers(rng: np.random.Generator, count: int, element: str) -> np.ndarray:
    """Numbers of one size or of many, and blocks that are zero, tiny, huge, or not finite."""
    kind, limits = ELEMENTS[element], ml_dtypes.finfo(ELEMENTS[element])
    drawn = rng.standard_normal(count) * 2.0 ** rng.integers(-12, 3, count)
    for first in range(0, count, BLOCK):
        block = drawn[first : first + BLOCK]
        case = rng.integers(10)
        if case == 0:
            block *= 0
        elif case == 1:
            block *= float(limits.smallest_subnormal) * 2.0 ** rng.integers(0, 18)
        elif case == 2:
            block *= float(limits.max) / max(np.abs(block).max(), 1e-300) * rng.choice([1, 0.97, 0.96, 0.875, 0.5])
        elif case == 3:
            block[rng.integers(len(block))] = rng.choice([np.inf, -np.inf, np.nan])
        elif case == 4:  # Ties of numbers with 4 significant bits.
            block[:] = rng.choice([-1, 1], len(block)) * (2 * rng.integers(8, 16, len(block)) + 1) * 2.0 ** rng.integers(-8, 4, len(block))
    with np.errstate(over="ignore"):
        return drawn.astype(kind)


def in_8_bits(shard: np.ndarray) -> np.ndarray:
    """What a shard becomes, by the conversions of ml_dtypes."""
    limits, flat = ml_dtypes.finfo(shard.dtype), shard.astype(np.float64).ravel()
    smallest = max(int(np.log2(float(limits.smallest_subnormal))) + 9, -126)
    result = np.empty_like(flat)
    for first in range(0, len(flat), BLOCK):
        block = flat[first : first + BLOCK]
        largest = np.abs(block).max()
        if not np.isfinite(largest):
            result[first : first + BLOCK] = np.nan
            continue
        fraction, exponent = np.frexp(largest / 448)
        scale = 2.0 ** max(int(exponent) - (fraction == 0.5), smallest) if largest else 2.0**smallest
        rounded = (block / scale).astype(ml_dtypes.float8_e4m3fn).astype(np.float64) * scale
        above = np.abs(rounded) > float(limits.max)
        result[first : first + BLOCK] = np.where(above, np.sign(block) * 240 * scale, rounded)
    return result.reshape(shard.shape).astype(shard.dtype)


def bound_of(magnitudes: np.ndarray) -> np.ndarray:
    """The bound of each element of a shard whose elements have at most these magnitudes."""
    flat = magnitudes.ravel()
    largest = np.concatenate([np.full(len(b), b.max()) for b in (flat[i : i + BLOCK] for i in range(0, len(flat), BLOCK))])
    return np.maximum(np.maximum(flat * OF_ELEMENT, largest * OF_BLOCK), ABSOLUTE).reshape(magnitudes.shape)


def gather(per_rank: list[np.ndarray], axes: dict[str, int], group: str, dim: int) -> list[np.ndarray]:
    names = list(axes)
    stride = int(np.prod([axes[n] for n in names[names.index(group) + 1 :]], dtype=int))
    size = axes[group]
    return [np.concatenate([per_rank[r + (i - r // stride % size) * stride] for i in range(size)], axis=dim)
            for r in range(len(per_rank))]  # fmt: skip


def saves_bytes(shapes: list[list[int]], element: str) -> bool:
    counts = [int(np.prod(shape)) for shape in shapes]
    return sum(-(-count // BLOCK) * (BLOCK + 1) for count in counts) < sum(counts) * ELEMENTS[element].itemsize


def expected(v: Value, k: int, shards: list[np.ndarray], axes: dict[str, int]) -> tuple[list[np.ndarray], list[np.ndarray], int]:
    """The results of tensor k on each rank, their bounds, and the number of its gathers that carry bytes."""
    values, changed = shards, 0
    magnitudes = [np.abs(x.astype(np.float64)) for x in shards]
    bounds = [np.zeros(x.shape) for x in shards]
    shapes = [list(s) for s in v.shapes]
    for group in v.groups:
        if saves_bytes(shapes, v.element):
            changed += 1
            values = [in_8_bits(x) for x in values]
            more = [bound_of(m + b) for m, b in zip(magnitudes, bounds)]
            bounds = [b + m for b, m in zip(bounds, more)]
        values, magnitudes, bounds = (gather(x, axes, group, v.dim) for x in (values, magnitudes, bounds))
        for s in shapes:
            s[v.dim] *= axes[group]
    return values, bounds, changed


def slow_machine(folder: Path) -> Path:
    """A machine on which bytes take long, so that all gathers that save some are rewritten."""
    machine = json.loads(MACHINE.read_text())
    machine["$schema"] = str(MACHINE.parent / machine["$schema"])
    for link in ("intra", "inter"):
        machine["links"][link]["bandwidth_gbps"] = 0.0001
    file = folder / "slow.json"
    file.write_text(json.dumps(machine))
    return file


def check(seed: int, options: argparse.Namespace, folder: Path) -> "tuple[int, float] | str":
    rng, noise = random.Random(seed), np.random.default_rng(seed)
    axes = rng.choice([{"x": 2}, {"x": 3}, {"x": 4}, {"x": 5}, {"x": 8}, {"x": 2, "y": 2}, {"x": 2, "y": 3}, {"x": 4, "y": 2}])
    ranks = int(np.prod(list(axes.values())))
    values = [draw(rng, axes) for _ in range(rng.randint(1, 3))]
    given, changed, machine = folder / "given.mlir", folder / "changed.mlir", slow_machine(folder)
    given.write_text(program(values, axes))
    behind = rng.choice(["", ",comm-schedule", ",comm-bucket"])
    subprocess.run([options.bin / "comm-opt", given, f"--reorder-comm-overlap=passes=comm-quantise-gathers{behind} machine={machine}",
                    "-o", changed], check=True, stderr=subprocess.DEVNULL)  # fmt: skip
    noted = re.search(r"gathers = (\d+) : i64", changed.read_text())
    shards, arguments, tensors = [], [], [(v, k) for v in values for k in range(len(v.shapes))]
    for i, (v, k) in enumerate(tensors):
        count = int(np.prod(v.shapes[k]))
        shards.append([numbers(noise, count, v.element).reshape(v.shapes[k]) for _ in range(ranks)])
        for rank, array in enumerate(shards[-1]):
            np.save(folder / f"in{i}_{rank}.npy", array.view(np.uint16) if v.element == "bf16" else array)
        arguments.append(f"--input={i}={folder}/in{i}_%r.npy")
    for name, file in (("a", given), ("b", changed)):
        (folder / name).mkdir()
        backend = [f"--backend={options.backend}"] if options.backend else []
        launch = [*shlex.split(options.mpirun), "-n", str(ranks)] if options.mpirun else []
        subprocess.run([*launch, options.bin / "comm-run", file, f"--ranks={ranks}", *backend, *arguments,
                        f"--output={folder / name}"], check=True, stdout=subprocess.DEVNULL)  # fmt: skip
    nearest, number = 0.0, 0
    for i, (v, k) in enumerate(tensors):
        truth, bounds, count = expected(v, k, shards[i], axes)
        number += count if k == 0 else 0
        for rank in range(ranks):
            a, b = (np.load(folder / name / f"rank{rank}_result{i}.npy").view(ELEMENTS[v.element]) for name in "ab")
            place = f"tensor {i} ({v}) on rank {rank}"
            bits = [x.view(np.uint32 if v.element == "f32" else np.uint16) for x in (b, truth[rank])]
            both_nan = np.isnan(b.astype(np.float64)) & np.isnan(truth[rank].astype(np.float64))
            if (different := (bits[0] != bits[1]) & ~both_nan).any():
                return f"{place}: {different.sum()} elements differ, {b[different][0]} against {truth[rank][different][0]}"
            one, other = a.astype(np.float64), b.astype(np.float64)
            finite = np.isfinite(other)
            if not np.isfinite(one[finite]).all():
                return f"{place}: a number in place of something else"
            difference = np.abs(one[finite] - other[finite])
            if (difference > bounds[rank][finite]).any():
                return f"{place}: {difference.max()} above the bound"
            if difference.size:
                nearest = max(nearest, float((difference / np.maximum(bounds[rank][finite], 2.0**-1000)).max()))
    if number != int(noted[1] if noted else 0):
        return f"{number} gathers save bytes, and {noted[1] if noted else 0} carry them"
    return number, nearest


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--backend", default="")
    parser.add_argument("--mpirun", help="run ranks as processes of MPI, with this command")
    options = parser.parse_args()
    changed, nearest = 0, 0.0
    for seed in range(options.first, options.first + options.count):
        with tempfile.TemporaryDirectory() as folder:
            found = check(seed, options, Path(folder))
        if isinstance(found, str):
            print(f"seed {seed}: {found}")
            return 1
        changed, nearest = changed + found[0], max(nearest, found[1])
    print(f"{options.count} programs: {changed} gathers in 8 bits")
    print(f"largest difference: {nearest:.4f} of the bound", file=sys.stderr)
    return 0 if changed else 1


if __name__ == "__main__":
    sys.exit(main())
