# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Programs of jax.shard_map on eight devices, as StableHLO and as XLA's partitioner leaves them.

    python stablehlo_programs.py OUTPUT.json

This runs in a process of its own, because the number of devices is decided before jax starts. XLA's passes that merge
collectives are left out, because they come after the partitioner.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

_MERGERS = (
    "all-reduce-combiner",
    "all-gather-combiner",
    "reduce-scatter-combiner",
    "cpu-all-reduce-combiner",
)
_FLAGS = f"--xla_force_host_platform_device_count=8 --xla_disable_hlo_passes={','.join(_MERGERS)}"

Build = Callable[[], tuple[Any, ...]]
PROGRAMS: dict[str, Build] = {}


def program(build: Build) -> Build:
    """Registers a function that returns a mesh, a function, its specs in and out, and its arguments."""
    PROGRAMS[build.__name__] = build
    return build


def _define() -> None:
    import jax
    import jax.numpy as jnp
    from jax import lax
    from jax.sharding import PartitionSpec as P

    line, grid, cube = {"x": 8}, {"dp": 4, "tp": 2}, {"a": 2, "b": 2, "c": 2}
    f = jnp.zeros

    def one(
        mesh: Any,
        body: Any,
        shape: tuple[int, ...],
        in_spec: Any,
        out_spec: Any,
        dtype: Any = jnp.float32,
    ) -> Any:
        return mesh, body, in_spec, out_spec, (f(shape, dtype),)

    @program
    def gather_rows():
        return one(line, lambda x: lax.all_gather(x, "x", tiled=True), (16, 4), P("x"), P())

    @program
    def gather_columns():
        return one(
            grid,
            lambda x: lax.all_gather(x, "tp", axis=1, tiled=True),
            (8, 8),
            P("dp", "tp"),
            P("dp"),
        )

    @program
    def gather_into_new_dimension():
        return one(grid, lambda x: lax.all_gather(x, "dp"), (8, 8), P("dp"), P())

    @program
    def gather_over_two_axes():
        return one(
            cube,
            lambda x: lax.all_gather(x, ("a", "c"), tiled=True),
            (8, 8),
            P(("a", "c")),
            P(),
        )

    @program
    def gather_over_swapped_axes():
        return one(
            grid,
            lambda x: lax.all_gather(x, ("tp", "dp"), tiled=True),
            (16, 4),
            P(("tp", "dp")),
            P(),
        )

    @program
    def sum_one_axis():
        return one(grid, lambda x: lax.psum(x, "tp"), (8, 8), P("dp", "tp"), P("dp"))

    @program
    def sum_all_axes():
        return one(grid, lambda x: lax.psum(x, ("dp", "tp")), (8, 8), P("dp", "tp"), P())

    @program
    def mean_of_bf16():
        return one(line, lambda x: lax.pmean(x, "x"), (8, 128), P("x"), P(), jnp.bfloat16)

    @program
    def largest_and_smallest():
        return one(
            cube,
            lambda x: lax.pmax(x, "b") - lax.pmin(x, ("a", "c")),
            (8, 8),
            P("a", "b"),
            P("a", "b"),
        )

    @program
    def sum_of_integers():
        return one(line, lambda x: lax.psum(x, "x"), (8, 16), P("x"), P(), jnp.int32)

    @program
    def sum_of_a_tree():
        def body(x, y):
            return lax.psum({"x": x, "y": y}, "dp")

        return grid, body, (P("dp"), P("dp")), P(), (f((8, 4)), f((4, 16)))

    @program
    def scatter_rows():
        return one(line, lambda x: lax.psum_scatter(x, "x", tiled=True), (64, 4), P(), P("x"))

    @program
    def scatter_columns():
        def body(x):
            return lax.psum_scatter(x, "tp", scatter_dimension=1, tiled=True)

        return one(grid, body, (8, 8), P("dp"), P("dp", "tp"))

    @program
    def scatter_without_tiles():
        return one(cube, lambda x: lax.psum_scatter(x, ("c", "a")), (4, 8), P(), P())

    @program
    def exchange():
        return one(
            grid,
            lambda x: lax.all_to_all(x, "dp", 0, 1, tiled=True),
            (16, 16),
            P(None, "dp"),
            P("dp"),
        )

    @program
    def exchange_new_dimension():
        return one(line, lambda x: lax.all_to_all(x, "x", 0, 0), (64, 4), P("x"), P("x"))

    @program
    def ring():
        pairs = [(i, (i + 1) % 4) for i in range(4)]
        return one(
            grid,
            lambda x: lax.ppermute(x, "dp", pairs),
            (8, 8),
            P("dp", "tp"),
            P("dp", "tp"),
        )

    @program
    def pipeline_hand_over():
        pairs = [(i, i + 1) for i in range(7)]
        return one(line, lambda x: lax.ppermute(x, "x", pairs), (8, 32), P("x"), P("x"))

    @program
    def halo():
        up, down = [(i, i + 1) for i in range(3)], [(i + 1, i) for i in range(3)]

        def body(x):
            above, below = (
                lax.ppermute(x[-1:], "dp", up),
                lax.ppermute(x[:1], "dp", down),
            )
            return jnp.concatenate([above, x, below])

        return one(grid, body, (16, 8), P("dp"), P("dp"))

    @program
    def groups_by_index():
        groups = [[0, 1, 2, 3], [4, 5, 6, 7]]
        return one(
            line,
            lambda x: lax.psum(x, "x", axis_index_groups=groups),
            (8, 8),
            P("x"),
            P("x"),
        )

    @program
    def ranks_in_the_program():
        def body(x):
            shifted = x + lax.axis_index("dp").astype(x.dtype) * lax.axis_index("tp").astype(x.dtype)
            return lax.all_gather(shifted, "dp", tiled=True)

        return one(grid, body, (8, 8), P("dp"), P())

    def fsdp(x, w1, w2):
        gathered = lax.all_gather(w1, "x", tiled=True)
        h = jnp.tanh(x @ gathered)
        return h @ lax.all_gather(w2, "x", tiled=True)

    layer = (f((64, 32)), f((32, 64)), f((64, 32)))

    @program
    def sharded_layers():
        return line, fsdp, (P("x"), P("x"), P("x")), P("x"), layer

    @program
    def sharded_layers_backward():
        def body(x, w1, w2):
            return jax.grad(lambda a, b: jnp.sum(fsdp(x, a, b) ** 2), argnums=(0, 1))(w1, w2)

        return line, body, (P("x"), P("x"), P("x")), (P("x"), P("x")), layer

    @program
    def sharded_layers_recomputed():
        def body(x, w1, w2):
            return jax.grad(lambda a, b: jnp.sum(jax.checkpoint(fsdp)(x, a, b) ** 2), argnums=(0, 1))(w1, w2)

        return line, body, (P("x"), P("x"), P("x")), (P("x"), P("x")), layer

    @program
    def tensor_parallel():
        def body(x, w1, w2):
            return lax.psum(jax.nn.relu(x @ w1) @ w2, "tp")

        specs = (P("dp"), P(None, "tp"), P("tp"))
        return grid, body, specs, P("dp"), layer

    @program
    def sequence_parallel():
        def body(x, w1, w2):
            whole = lax.all_gather(x, "tp", tiled=True)
            return lax.psum_scatter(jax.nn.gelu(whole @ w1) @ w2, "tp", tiled=True)

        return (
            grid,
            body,
            (P(("dp", "tp")), P(None, "tp"), P("tp")),
            P(("dp", "tp")),
            layer,
        )

    @program
    def experts():
        def body(x, w):
            sent = lax.all_to_all(x, "x", 0, 0, tiled=True)
            return lax.all_to_all(jax.nn.silu(sent @ w[0]), "x", 0, 0, tiled=True)

        return line, body, (P("x"), P("x")), P("x"), (f((64, 16)), f((8, 16, 16)))

    @program
    def scanned_layers():
        def body(x, w):
            def step(h, shard):
                return jnp.tanh(h @ lax.all_gather(shard, "x", tiled=True)), None

            return lax.scan(step, x, w)[0]

        return line, body, (P("x"), P(None, "x")), P("x"), (f((16, 32)), f((5, 32, 32)))

    @program
    def ring_attention():
        def body(q, k):
            def step(i, carry):
                acc, keys = carry
                return acc + jax.nn.softmax(q @ keys.T) @ keys, lax.ppermute(
                    keys, "x", [(j, (j + 1) % 8) for j in range(8)]
                )

            return lax.fori_loop(0, 8, step, (jnp.zeros_like(q), k))[0]

        return line, body, (P("x"), P("x")), P("x"), (f((64, 16)), f((64, 16)))

    @program
    def branches():
        def body(x, flag):
            return lax.cond(flag[0] > 0, lambda y: lax.psum(y, "dp"), lambda y: lax.pmax(y, "dp"), x)

        return grid, body, (P("dp"), P()), P(), (f((8, 8)), f((1,)))

    @program
    def loop_until_small():
        def body(x):
            return lax.while_loop(lambda y: jnp.sum(y) > 1.0, lambda y: lax.psum(y, "x") * 0.01, x)

        return one(line, body, (8, 8), P("x"), P("x"))

    @program
    def convolution_gradients():
        def body(x, w):
            def loss(kernel):
                return jnp.sum(lax.conv_general_dilated(x, kernel, (1, 1), "SAME") ** 2)

            return lax.pmean(jax.grad(loss)(w), ("dp", "tp"))

        return (
            grid,
            body,
            (P(("dp", "tp")), P()),
            P(),
            (f((16, 3, 8, 8)), f((4, 3, 3, 3))),
        )


def main() -> int:
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FLAGS}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    _define()
    result = {}
    for name, build in PROGRAMS.items():
        mesh, body, in_specs, out_specs, arguments = build()
        devices = jax.make_mesh(
            tuple(mesh.values()),
            tuple(mesh),
            axis_types=(jax.sharding.AxisType.Auto,) * len(mesh),
        )
        mapped = jax.shard_map(body, mesh=devices, in_specs=in_specs, out_specs=out_specs, check_vma=False)
        lowered = jax.jit(mapped).lower(*arguments)
        result[name] = {
            "stablehlo": lowered.as_text(),
            "hlo": lowered.compile().as_text(),
        }
    pathlib.Path(sys.argv[1]).write_text(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
