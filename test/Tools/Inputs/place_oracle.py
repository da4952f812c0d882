# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Compares comm-place with brute force on random meshes and random machines, of two levels or of up to four.

The oracle shares nothing with comm-place: it lays out the mesh in each order by itself, writes the groups as lists of
ranks, and asks comm-opt for the makespan of each program.
"""

import argparse
import itertools
import json
import math
import pathlib
import random
import subprocess


def groups_of(sizes, order, used):
    """The groups over the axes `used` of a mesh of `sizes` whose axes lie in `order` on the machine, slowest first."""
    strides, stride = {}, 1
    for axis in reversed(order):
        strides[axis], stride = stride, stride * sizes[axis]
    rank = lambda place: sum(strides[axis] * at for axis, at in place.items())  # noqa: E731
    rest = [axis for axis in range(len(sizes)) if axis not in used]
    outer = itertools.product(*(range(sizes[axis]) for axis in rest))
    return [
        [
            rank(dict(zip(rest, first)) | dict(zip(used, inner)))
            for inner in itertools.product(*(range(sizes[axis]) for axis in used))
        ]
        for first in outer
    ]


def write_program(rng, sizes):
    """A program as a function of the order: layers whose collectives are on random groups."""
    subsets = [list(axes) for n in range(1, len(sizes) + 1) for axes in itertools.combinations(range(len(sizes)), n)]
    chosen = [[axis] for axis in range(len(sizes))] + rng.sample(subsets[len(sizes) :], 1)
    lines, result = [], "%x0"
    for layer in range(rng.randint(3, 6)):
        group = rng.randrange(len(chosen))
        size = 48 * 4 ** rng.randint(1, 10)
        kind = rng.choice(["all_reduce sum", "all_to_all"])
        time = rng.randint(1, 400) * 1000
        lines.append(
            f"%f{layer} = comm.{kind} %a{layer} on @g{group} : (tensor<{size}xf32>) -> !comm.future<tensor<{size}xf32>>"
        )
        lines.append(f"%w{layer} = comm.wait %f{layer} : !comm.future<tensor<{size}xf32>>")
        lines.append(
            f'%x{layer + 1} = comm.compute "layer"({result}, %w{layer}) {{comm.cost = #comm.cost<time = {time}>}} : '
            f"(tensor<8xf32>, tensor<{size}xf32>) -> tensor<8xf32>"
        )
        result = f"%x{layer + 1}"
    sizes_of = [line.split("(tensor<")[1].split("x")[0] for line in lines if line.startswith("%f")]
    arguments = ", ".join(["%x0: tensor<8xf32>", *(f"%a{i}: tensor<{n}xf32>" for i, n in enumerate(sizes_of))])

    def program(order):
        head = [f"comm.group @g{i} #comm.ranks<{groups_of(sizes, order, used)}>" for i, used in enumerate(chosen)]
        head.append(f"func.func @step({arguments}) -> tensor<8xf32> {{")
        return "\n".join([*head, *lines, f"return {result} : tensor<8xf32>", "}"]) + "\n"

    return program


def write_machine(rng, folder, ranks_per_node, levels=()):
    """Writes a profile whose levels outside of nodes have so many ranks, each with slower links than the one below."""
    profile = {
        "schema_version": 1,
        "name": "random",
        "node": {"ranks": ranks_per_node},
        "memory": {"capacity_bytes": 1 << 36, "bandwidth_gbps": 2000},
        "compute": {"peak_tflops": {"f32": 20}, "launch_ns": 1000},
        "copy": {"launch_ns": 1000, "bandwidth_gbps": 1800},
        "lanes": rng.choice(["per_group", "per_link"]),
        "links": {
            "base_ns": 5000,
            "intra": {"bandwidth_gbps": rng.choice([100, 200, 400]), "latency_ns": 3000},
            "inter": {"bandwidth_gbps": rng.choice([12, 25, 50]), "latency_ns": 12000, "message_ns": 1000},
        },
    }
    speed = profile["links"]["inter"]["bandwidth_gbps"]
    for index, ranks in enumerate(levels):
        speed /= rng.choice([1.5, 3, 8])
        links = {"bandwidth_gbps": speed, "latency_ns": 16000 + 4000 * index, "message_ns": 1000}
        profile.setdefault("levels", []).append({"name": f"level{index}", "ranks": ranks, "links": links})
    path = folder / "machine.json"
    path.write_text(json.dumps(profile))
    return path


def fits(sizes, order, ranks_per_node):
    left = min(ranks_per_node, math.prod(sizes))
    for axis in reversed(order):
        part = min(left, sizes[axis])
        if left % part or sizes[axis] % part:
            return False
        left //= part
    return True


def run(*command):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert result.returncode == 0, (command, result.stderr)


def draw(rng, has_levels):
    """The sizes of a mesh, the ranks of a node, and those of one or two levels outside of nodes if there are any."""
    if not has_levels:
        sizes = rng.choice([[2, 4], [4, 4], [8, 2], [2, 4, 2], [2, 2, 4], [4, 2, 4], [2, 3, 2], [4, 2, 2]])
        return sizes, rng.choice([2, 4, 8]), []
    sizes = rng.choice([[2, 4, 4], [2, 2, 2, 4], [4, 2, 4], [2, 3, 4, 2], [4, 4, 4], [8, 4], [2, 2, 3, 2]])
    node = rng.choice([2, 4])
    levels = [node * rng.choice([2, 4])]
    return sizes, node, levels + [levels[0] * 2] * rng.randrange(2)


def check(seed, folder, has_levels=False):
    """One random case. Returns how many other placements comm-place could not prove to be slower."""
    rng = random.Random(seed)
    sizes, ranks_per_node, levels = draw(rng, has_levels)
    units, ranks = [ranks_per_node, *levels], math.prod(sizes)
    orders = [
        order for order in itertools.permutations(range(len(sizes))) if all(fits(sizes, order, unit) for unit in units)
    ]
    if any(ranks > unit and ranks % unit for unit in units) or tuple(range(len(sizes))) not in orders:
        return check(f"{seed}.", folder, has_levels)
    machine = write_machine(rng, folder, ranks_per_node, levels)
    program = write_program(rng, sizes)
    times = {}
    for order in orders:
        path = folder / "order.mlir"
        path.write_text(program(order))
        run(
            "comm-opt",
            path,
            "--reorder-comm-overlap",
            f"--comm-machine={machine}",
            f"--comm-report={folder}/r.json",
            "-o",
            "/dev/null",
        )
        times[order] = json.loads((folder / "r.json").read_text())["functions"][0]["makespan_ns"]["after"]
    path.write_text(program(tuple(range(len(sizes)))))
    run("comm-place", path, f"--machine={machine}", f"--json={folder}/table.json", "-o", folder / "best.mlir")
    table = json.loads((folder / "table.json").read_text())
    best = min(times.values())
    names = {f"g{axis}": axis for axis in range(len(sizes))}
    assert [axis["size"] for axis in table["axes"]] == sizes and [names[a["name"]] for a in table["axes"]] == list(
        names.values()
    )
    assert table["placements"][0]["makespan_ns"] == best, (seed, times, table)
    seen = {}
    for row in table["placements"]:
        for order in row["orders"]:
            place = tuple(names[axis] for axis in order)
            seen[place] = row
            assert row.get("makespan_ns", times[place]) == times[place], (seed, place, times, row)
            assert row["bound_ns"] <= times[place], (seed, place, times, row)
            assert not row["proven_worse"] or times[place] > best, (seed, place, times, row)
    assert set(seen) == set(times), (seed, seen, times)
    # The program that was written takes as long as the table says.
    run(
        "comm-opt",
        folder / "best.mlir",
        "--reorder-comm-overlap",
        f"--comm-machine={machine}",
        f"--comm-report={folder}/r.json",
        "-o",
        "/dev/null",
    )
    assert json.loads((folder / "r.json").read_text())["functions"][0]["makespan_ns"]["after"] == best, seed
    return table["candidates_left"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--levels", action="store_true", help="machines with levels outside of nodes")
    a = parser.parse_args()
    a.folder.mkdir(parents=True, exist_ok=True)
    left = [check(f"{seed}", a.folder, a.levels) for seed in range(a.first, a.first + a.seeds)]
    print(f"{a.seeds} cases; proven best: {left.count(0)}; most candidates left: {max(left)}")


if __name__ == "__main__":
    main()
