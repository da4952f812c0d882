# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`commsched.jax.faster_mesh`: programs of shard_map on meshes in the right and in the wrong order."""

import importlib.util
import itertools
import math

import numpy
import pytest

import commsched.jax
from commsched import meshes, placement
from commsched.program import Error, Program

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="needs jax, which scripts/setup.sh installs"
)


def lowered(names, sizes=(8, 2), summed="big"):
    """Many bytes are summed over one axis, and few over the other one. The mesh needs no devices."""
    import jax
    import jax.numpy as jnp

    def f(x, w, gradient):
        return jax.lax.psum(x @ w, "small"), jax.lax.psum(gradient, summed)

    mesh, spec = jax.sharding.AbstractMesh(sizes, names), jax.sharding.PartitionSpec()
    program = jax.shard_map(f, mesh=mesh, in_specs=(spec,) * 3, out_specs=(spec,) * 2, check_vma=False)
    shapes = [jax.ShapeDtypeStruct((n, n), jnp.float32) for n in (64, 64, 4096)]
    return jax.jit(program).trace(*shapes).lower(lowering_platforms=("cuda",))


def test_the_wrong_order_gets_the_line_and_the_right_one_none():
    line = commsched.jax.faster_mesh(lowered(("big", "small")))
    assert line.startswith(
        'another order of the mesh is faster: jax.make_mesh((2, 8), ("small", "big")) takes at most '
    )
    assert commsched.jax.faster_mesh(lowered(("small", "big"), (2, 8)).as_text()) == ""


def test_one_axis_and_one_node_get_none():
    assert commsched.jax.faster_mesh(lowered(("big", "small"), (16, 1))) == ""
    assert commsched.jax.faster_mesh(lowered(("big", "small")), machine="cpu-mpi") == ""


def test_an_unknown_machine_is_refused():
    with pytest.raises(Error, match="nowhere"):
        commsched.jax.faster_mesh(lowered(("big", "small")), machine="nowhere")


def test_groups_are_those_of_numpys_arrays():
    """Every order of three axes, for every choice of the axes of a group."""
    sizes = (2, 3, 4)
    for order in itertools.permutations(range(3)):
        for count in (1, 2):
            own = order[-count:]
            size = math.prod(sizes[axis] for axis in own)
            text = f"  comm.group @g #comm.iota<[{24 // size}, {size}] from {list(sizes)} transpose {list(order)}>\n"
            Program(text)  # The dialect reads it.
            expected = numpy.arange(24).reshape(sizes).transpose(order).reshape(-1, size)[0].tolist()
            assert placement.groups_in(text) == {"g": (expected, 24)}
    assert placement.groups_in("  comm.group @g #comm.iota<[2, 4]>\n") == {"g": ([0, 1, 2, 3], 8)}
    assert placement.groups_in("  comm.group @g #comm.ranks<[[0, 2], [1, 3]]>\n") is None
    assert meshes.digits_of([0, 2]) == ((2, 2),)
