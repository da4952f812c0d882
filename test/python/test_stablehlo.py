# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What convert-stablehlo-to-comm communicates is what XLA's partitioner communicates: kinds, groups and bytes.

`stablehlo_programs.py` has the programs. The other side is the HLO text of what XLA compiled, read here.
"""

from __future__ import annotations

import collections
import importlib.util
import itertools
import json
import math
import pathlib
import re
import subprocess
import sys

import commsched_tools
import numpy
import pytest

from commsched.jax import convert

FOLDER = pathlib.Path(__file__).resolve().parent
BYTES = {"bf16": 2, "f16": 2, "f32": 4, "i32": 4, "s32": 4, "ui32": 4, "u32": 4}
RANKS = 8
# Programs in which XLA itself changes what is communicated after its partitioner, and how.
CHANGED_BY_XLA = {
    "mean_of_bf16": "the CPU backend sums bf16 as f32, which doubles the bytes",
    "sharded_layers_recomputed": "XLA merges the gathers that jax.checkpoint repeats with those of the forward pass",
}
# XLA of JAX 0.12 does not do that any more.
CHANGED_BY_EVERY_XLA = {"mean_of_bf16"}

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None,
    reason="needs jax, which scripts/setup.sh installs",
)

Traffic = collections.Counter


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    output = tmp_path_factory.mktemp("programs") / "programs.json"
    run = subprocess.run(
        [sys.executable, FOLDER / "stablehlo_programs.py", output],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(output.read_text())


def converted(stablehlo: str) -> str:
    command = [
        commsched_tools.find("comm-opt"),
        "--allow-unregistered-dialect",
        "--convert-stablehlo-to-comm",
    ]
    run = subprocess.run(command, input=convert.to_generic(stablehlo), capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


def size_of(shape: str, element: str) -> int:
    return math.prod(int(size) for size in shape.split("x" if "x" in shape else ",") if size) * BYTES[element]


def partition(groups: list[list[int]], ordered: bool = True) -> tuple:
    """Groups in a form that can be compared. Sums do not depend on the order within a group."""
    return tuple(sorted(tuple(group if ordered else sorted(group)) for group in groups))


def iota(text: str) -> list[list[int]]:
    """Groups of `[4,2]<=[2,4]T(1,0)` of XLA, or of `[4, 2] from [2, 4] transpose [1, 0]` of comm."""
    lists = [[int(number) for number in numbers.split(",")] for numbers in re.findall(r"[\[(]([\d, ]+)[\])]", text)]
    dims = lists[1] if len(lists) > 1 else [RANKS]
    array = numpy.arange(RANKS).reshape(dims)
    return array.transpose(lists[2] if len(lists) > 2 else range(len(dims))).reshape(lists[0]).tolist()


def along_axes(text: str) -> list[list[int]]:
    """Groups of `mesh['a'=2,'b'=4] {'b'}`, as XLA of JAX 0.12 prints them."""
    mesh, axes = re.match(r"mesh\[(.*?)\](?:, device_ids=\S+)? \{(.*?)\}", text).groups()
    sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", mesh)}
    along = re.findall(r"'(\w+)'", axes)
    groups = collections.defaultdict(dict)
    for rank, place in enumerate(itertools.product(*map(range, sizes.values()))):
        at = dict(zip(sizes, place, strict=True))
        groups[tuple(at[a] for a in sizes if a not in along)][tuple(at[a] for a in along)] = rank
    return [[members[place] for place in sorted(members)] for members in groups.values()]


def traffic_of_comm(text: str) -> Traffic:
    groups = {}
    for name, kind, content in re.findall(r"comm\.group @(\w+) #comm\.(\w+)<(.*)>\n", text):
        groups[name] = iota(content) if kind == "iota" else json.loads(content)
    traffic: Traffic = collections.Counter()
    kinds = "all_gather|all_reduce|reduce_scatter|all_to_all|permute"
    starts = rf"comm\.({kinds}) .*on @(\w+)(.*) : \((.*)\) -> !comm\.future<(.*)>"
    for kind, group, rest, inputs, values in re.findall(starts, text):
        # What a sum of pieces reads, and what the others write.
        sides = re.findall(r"tensor<((?:\d+x)*)(\w+)>", inputs if kind == "reduce_scatter" else values)
        size = sum(size_of(shape.rstrip("x"), element) for shape, element in sides)
        if kind == "permute":
            places = json.loads("[" + rest.split("pairs [")[1].split("]")[0] + "]")
            pairs = [
                (members[a], members[b])
                for members in groups[group]
                for a, b in zip(places[::2], places[1::2], strict=True)
            ]
            traffic[kind, size, tuple(sorted(pairs))] += 1
        else:
            traffic[kind, size, partition(groups[group], kind not in ("all_reduce",))] += 1
    return traffic


def traffic_of_xla(text: str) -> Traffic:
    traffic: Traffic = collections.Counter()
    kinds = "all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute"
    for result, kind, rest in re.findall(rf" = (\(.*?\)|\S+) ({kinds})\((.*)", text):
        size = sum(size_of(shape, element) for element, shape in re.findall(r"(\w+)\[([\d,]*)\]", result))
        if kind == "collective-permute":
            pairs = re.findall(
                r"\{(\d+),(\d+)\}",
                rest.split("source_target_pairs=")[1].split("}}")[0] + "}",
            )
            traffic["permute", size, tuple(sorted((int(a), int(b)) for a, b in pairs))] += 1
            continue
        given = rest.split("replica_groups=")[1]
        if given.startswith("{"):
            groups = [[int(n) for n in g.split(",")] for g in re.findall(r"\{([\d,]+)\}", given.split("}}")[0] + "}")]
        elif given.startswith("mesh"):
            groups = along_axes(given)
        else:
            groups = iota(re.match(r"[\[\]\d,<=T()]+", given)[0])
        if kind == "reduce-scatter":
            size *= len(groups[0])
        traffic[kind.replace("-", "_"), size, partition(groups, kind != "all-reduce")] += 1
    return traffic


def test_there_are_thirty_programs(programs):
    assert len(programs) >= 30


def test_every_program_communicates_what_xla_does(programs):
    different = {}
    for name, texts in programs.items():
        comm, xla = (
            traffic_of_comm(converted(texts["stablehlo"])),
            traffic_of_xla(texts["hlo"]),
        )
        assert comm, f"{name}: nothing is communicated"
        if comm != xla:
            different[name] = (comm - xla, xla - comm)
    assert CHANGED_BY_EVERY_XLA <= set(different) <= set(CHANGED_BY_XLA), different


def test_differences_are_those_that_are_named(programs):
    ((kind, size, groups),) = traffic_of_comm(converted(programs["mean_of_bf16"]["stablehlo"]))
    assert set(traffic_of_xla(programs["mean_of_bf16"]["hlo"])) == {(kind, 2 * size, groups)}
    comm, xla = (
        traffic_of_comm(converted(programs["sharded_layers_recomputed"]["stablehlo"])),
        traffic_of_xla(programs["sharded_layers_recomputed"]["hlo"]),
    )
    assert set(comm) == set(xla) and {kind for kind, _, _ in comm - xla} <= {"all_gather"}


def test_every_program_is_scheduled(programs):
    """Nothing has unknown effects, and every cost comes from a model."""
    for name, texts in programs.items():
        command = [commsched_tools.find("comm-opt"), "--allow-unregistered-dialect"]
        passes = [
            "--convert-stablehlo-to-comm",
            "--reorder-comm-overlap=table=true",
            "-o",
            "/dev/null",
        ]
        run = subprocess.run(
            [*command, *passes],
            input=convert.to_generic(texts["stablehlo"]),
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, (name, run.stderr)
        assert "collectives" in run.stderr and "unknown effects" not in run.stderr, (
            name,
            run.stderr,
        )
        assert "guess" not in run.stderr, (name, run.stderr)


MESH = """
sdy.mesh @m = <["a"=2, "b"=4]>
func.func @main(%x: tensor<2xf32>) -> tensor<8xf32> {{
  %0 = "stablehlo.all_gather"(%x) <{{all_gather_dim = 0 : i64,
    channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
    replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @{}, axes = [{}]>, use_global_device_ids}}>
    : (tensor<2xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}}
"""


def test_groups_along_axes_are_lists_or_refused():
    try:
        generic = convert.to_generic(MESH.format("m", '#stablehlo.axis_ref<name = "b">'))
    except ValueError as error:
        pytest.skip(f"this version of JAX writes lists only: {str(error).splitlines()[0]}")
    assert "replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>" in generic
    part = '#stablehlo.axis_ref<name = "b", sub_axis_info = (1)2>'
    with pytest.raises(ValueError, match="expected groups along whole axes of a mesh, got .*sub_axis_info"):
        convert.to_generic(MESH.format("m", part))


def test_the_command_writes_generic_form_and_refuses_text_with_a_fault(tmp_path, programs):
    given, made = tmp_path / "step.txt", tmp_path / "step.mlir"
    command = [sys.executable, "-m", "commsched.jax.convert", given, made]
    given.write_text(programs["gather_rows"]["stablehlo"])
    assert subprocess.run(command).returncode == 0
    assert made.read_text() == convert.to_generic(given.read_text()) and '"stablehlo.all_gather"' in made.read_text()
    given.write_text("module { stablehlo.nothing }")
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 1 and re.search(r"^commsched\.jax\.convert: error: ", run.stderr, re.MULTILINE)
