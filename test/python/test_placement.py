# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Orders of the axes of a mesh, and the line of the report that names a faster one."""

import json
import math
import os
import pathlib
import random
import subprocess

import numpy
import pytest

torch = pytest.importorskip("torch")

from conftest import trace
from torch.distributed.device_mesh import init_device_mesh

import commsched.torch as ct
from commsched import meshes
from commsched.torch import placement, reporting, summary
from commsched.torch.importer.export import export_mlir
from commsched.torch.trace import fake_world

C10D = torch.ops._c10d_functional
COMM_RUN = os.environ.get("COMMSCHED_COMM_RUN", "")


def groups_of(ranks, axes):
    """The groups along some axes of an array of ranks, as the lists of their ranks."""
    others = [axis for axis in range(ranks.ndim) if axis not in axes]
    return ranks.transpose([*others, *axes]).reshape(-1, math.prod(ranks.shape[axis] for axis in axes)).tolist()


def test_shapes_of_groups_are_those_of_numpys_arrays():
    """Every order of random meshes: what is inside a node is counted in arrays of ranks. At most as many axes are found
    as there are.
    """
    draw = random.Random(7)
    compared = 0
    for _ in range(60):
        sizes = [draw.choice((2, 3, 4)) for _ in range(draw.choice((2, 3, 4)))]
        world, node = math.prod(sizes), draw.choice((2, 4, 6, 8))
        ranks = numpy.arange(world).reshape(sizes)
        axes = {"a": [0], "last": [len(sizes) - 1], "both": sorted(draw.sample(range(len(sizes)), 2))}
        digits = {name: meshes.digits_of(groups_of(ranks, own)[0]) for name, own in axes.items()}
        mesh = meshes.find_mesh(digits, world)
        assert math.prod(mesh.sizes) == world and len(mesh.sizes) <= len(sizes)
        for order in mesh.orders(range(len(mesh.sizes))):
            # The rank at a place of the given mesh, if the mesh is built in this order.
            places = numpy.arange(world).reshape([mesh.sizes[a] for a in order]).transpose(numpy.argsort(order))
            moved = places.reshape(sizes)
            inside = mesh.inside_nodes(order, node)
            counts = {
                name: {
                    tuple(sorted(numpy.unique(numpy.array(g) // node, return_counts=True)[1].tolist()))
                    for g in groups_of(moved, own)
                }
                for name, own in axes.items()
            }
            if inside is None:
                continue
            if world > node and world % node:
                continue
            compared += 1
            for name in axes:
                assert counts[name] == {(inside[name],) * (len(groups_of(moved, axes[name])[0]) // inside[name])}
    assert compared > 200


@pytest.mark.parametrize("ranks", [[0, 1, 3], [0, 2, 1], [0, 1, 2, 4, 5, 6, 7, 8]])
def test_ranks_without_digits_make_no_mesh(ranks):
    assert meshes.digits_of(ranks) is None


def test_axes_that_cross_make_no_mesh():
    assert meshes.find_mesh({"a": ((4, 1),), "b": ((2, 6),)}, 12) is None
    assert meshes.find_mesh({"a": ((2, 1),)}, 3) is None


def step(mesh):
    """Many bytes are summed over "big", and few over "small"."""
    big, small = (mesh.get_group(name).group_name for name in ("big", "small"))

    def f(x, w, gradient):
        y = C10D.wait_tensor(C10D.all_reduce(x, "sum", small)) @ w
        return y, C10D.wait_tensor(C10D.all_reduce(gradient, "sum", big))

    return trace(f, (64, 64), (64, 64), (4096, 4096))


def scheduled(names, shape=(8, 8), **options):
    """The report of the program on a mesh of 64 ranks with these names of the dimensions."""
    with fake_world(64):
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
        gm = step(mesh)
        text = export_mlir(gm)
        _, report = ct.schedule_overlap(gm, **options)
    return {"place": "graph", "direction": "forward", **report}, text


def test_the_wrong_order_gets_one_line():
    report, _ = scheduled(("big", "small"))
    said = summary.Report([report])
    [note] = said.notes()
    assert note.startswith(
        'another order of the mesh is faster: init_device_mesh("cuda", (8, 8), mesh_dim_names=("small", "big")) takes'
    )
    assert str(said).endswith(note) and "another order of the mesh is faster" in said.html
    # The other order, as the program on that mesh says it by itself.
    right, _ = scheduled(("small", "big"))
    [other] = report["placements"]["others"]
    assert other["makespan_ns"] == right["makespan_ns"]["after"] < report["placements"]["bound_ns"] / 1.02


def test_the_right_order_gets_none():
    report, _ = scheduled(("small", "big"))
    assert len(report["placements"]["others"]) == 1 and summary.Report([report]).notes() == []


def test_one_axis_and_one_node_get_none():
    with fake_world(64):
        mesh = init_device_mesh("cpu", (64,), mesh_dim_names=("big",))
        group = mesh.get_group("big").group_name
        gm = trace(lambda x: C10D.wait_tensor(C10D.all_reduce(x, "sum", group)), (64, 64))
        _, report = ct.schedule_overlap(gm)
    report = {"place": "graph", **report}
    assert report["placements"]["others"] == [] and summary.Report([report]).notes() == []
    report, _ = scheduled(("big", "small"), machine="cpu-mpi")  # One node has 64 ranks.
    assert report["placements"]["others"] == [] and summary.Report([report]).notes() == []


def test_costs_that_know_no_links_are_not_compared():
    report, _ = scheduled(("big", "small"), runtime_estimation=lambda node, override_bytes=None: 1.0)
    assert "placements" not in report and summary.Report([report]).notes() == []


def test_a_step_counts_as_a_whole():
    """A graph that another order would harm more than it helps the other one."""
    wrong, _ = scheduled(("big", "small"))
    right, _ = scheduled(("small", "big"))
    facts, others = wrong["placements"], right["placements"]
    harmed = {**others, "groups": facts["groups"], "others": [{**others["others"][0]}]}
    harmed["others"][0]["inside_nodes"] = facts["others"][0]["inside_nodes"]
    assert meshes.faster_order([facts]) is not None
    assert meshes.faster_order([facts, harmed, harmed]) is None
    # Nobody has played the other order of the second graph, or it is of another job.
    assert meshes.faster_order([facts, {**harmed, "others": []}]) is None
    assert meshes.faster_order([facts, {**facts, "world": 128}]) is None
    assert summary.Report([wrong, {"place": "graph", "collectives": 1}]).notes() == []


@pytest.mark.skipif(not COMM_RUN, reason="COMMSCHED_COMM_RUN does not name comm-run; ctest sets it")
def test_comm_place_agrees(tmp_path):
    """comm-place, which is C++ and searches a schedule for each order, names the same order as the best."""
    report, text = scheduled(("big", "small"))
    (tmp_path / "step.mlir").write_text(text)
    command = [
        str(pathlib.Path(COMM_RUN).with_name("comm-place")),
        str(tmp_path / "step.mlir"),
        f"--json={tmp_path / 'table.json'}",
    ]
    subprocess.run(command, check=True, capture_output=True)
    table = json.loads((tmp_path / "table.json").read_text())
    order = meshes.faster_order([report["placements"]])
    assert [f"mesh_{name}" for name, _ in order.axes] == table["placements"][0]["orders"][0]
    assert table["placements"][0]["bound_ns"] <= order.makespan
    assert order.bound <= next(p for p in table["placements"] if p["as_given"])["makespan_ns"]


def test_a_fault_of_the_comparison_leaves_the_schedule(monkeypatch):
    monkeypatch.setenv(reporting.STRICT, "0")
    monkeypatch.setattr(placement, "find_mesh", lambda *_: 1 / 0)
    with pytest.warns(UserWarning, match="does not compare orders of the mesh"):
        report, _ = scheduled(("big", "small"))
    assert "placements" not in report and report["collectives"] == 2
