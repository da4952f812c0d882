# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Training steps in JAX that are compiled for GPUs that are not there: a Llama-like decoder under FSDP, FSDP x TP, or
with experts and all-to-all, with unrolled or scanned layers."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

# What XLA has to know of an H100 to compile for one: facts of the device from NVIDIA's data sheet.
H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128 block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535 block_dim_limit_z: 65535 memory_bandwidth: 3352320000000 l2_cache_size: 52428800
  clock_rate_ghz: 1.98 device_memory_size: 84929347584 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 } registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
runtime_version { major: 12 minor: 8 patch: 0 }
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 7 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""

# XLA's flags that let its collective pipeliner run, and with them the one that doubles the bodies of loops.
PIPELINED = {f"xla_gpu_enable_pipelined_{kind}": True for kind in ("all_gather", "reduce_scatter", "all_reduce")}
DOUBLED = PIPELINED | {"xla_gpu_enable_while_loop_double_buffering": True}


@dataclasses.dataclass(frozen=True)
class Config:
    """One program. Sizes are those of the whole model and batch."""

    name: str
    kind: str = "dense"  # or "moe"
    devices: int = 8
    tensor: int = 1  # ranks of tensor (or expert) parallelism
    layers: int = 2
    scanned: bool = False
    width: int = 4096
    hidden: int = 14336
    heads: int = 32
    kv_heads: int = 8
    experts: int = 8
    vocabulary: int = 32768
    sequence: int = 4096
    rows: int = 1  # of the batch, per rank of data parallelism
    attention: bool = True
    donates: bool = False


def mesh_of(config: Config) -> Mesh:
    hosts = max(1, config.devices // 8)
    topology = topologies.get_topology_desc(
        "h100", "cuda", target_config=H100, topology=f"1x{hosts}x{min(8, config.devices)}"
    )
    devices = np.array(topology.devices).reshape(config.devices // config.tensor, config.tensor)
    return Mesh(devices, ("data", "model"))


def parameters_of(c: Config) -> dict[str, tuple[tuple[int, ...], P]]:
    """Of each parameter of a layer: its shape and how it is sharded."""
    head = c.width // c.heads
    kv = c.kv_heads * head
    result = {
        "norm2": ((c.width,), P()),
    }
    if c.attention:
        result |= {
            "norm1": ((c.width,), P()),
            "wq": ((c.width, c.width), P("data", "model")),
            "wk": ((c.width, kv), P("data", "model")),
            "wv": ((c.width, kv), P("data", "model")),
            "wo": ((c.width, c.width), P("model", "data")),
        }
    if c.kind == "moe":
        result |= {
            "router": ((c.width, c.experts), P()),
            "w1": ((c.experts, c.width, c.hidden), P("model", "data", None)),
            "w2": ((c.experts, c.hidden, c.width), P("model", "data", None)),
        }
    else:
        result |= {
            "w1": ((c.width, c.hidden), P("data", "model")),
            "w3": ((c.width, c.hidden), P("data", "model")),
            "w2": ((c.hidden, c.width), P("model", "data")),
        }
    return result


def norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5)).astype(x.dtype) * scale


def _attention(c: Config, p: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    head = c.width // c.heads
    b, s, _ = x.shape
    q = (x @ p["wq"]).reshape(b, s, c.kv_heads, c.heads // c.kv_heads, head)
    k = (x @ p["wk"]).reshape(b, s, c.kv_heads, head)
    v = (x @ p["wv"]).reshape(b, s, c.kv_heads, head)
    scores = jnp.einsum("bsgqh,btgh->bgqst", q, k) * head**-0.5
    weights = jax.nn.softmax(scores.astype(jnp.float32), axis=-1).astype(x.dtype)
    return jnp.einsum("bgqst,btgh->bsgqh", weights, v).reshape(b, s, c.width) @ p["wo"]


def experts(c: Config, mesh: Mesh, p: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Every rank of the axis `model` has some experts. Tokens travel by all-to-all, in slots of equal capacity."""

    def local(x, router, w1, w2):
        b, s, width = x.shape
        tokens = x.reshape(b * s, width)
        slots = (b * s) // c.experts
        scores = jax.nn.softmax((tokens @ router).astype(jnp.float32), axis=0)
        _, chosen = jax.lax.top_k(scores.T, slots)  # experts x slots
        sent = tokens[chosen]  # experts x slots x width
        received = jax.lax.all_to_all(sent, "model", 0, 1, tiled=True)
        w1 = jax.lax.all_gather(w1, "data", axis=1, tiled=True)
        w2 = jax.lax.all_gather(w2, "data", axis=1, tiled=True)
        y = jnp.einsum("esd,edh->esh", received, w1)
        y = jnp.einsum("esh,ehd->esd", jax.nn.silu(y), w2)
        y = jax.lax.all_to_all(y, "model", 1, 0, tiled=True)
        out = jnp.zeros_like(tokens).at[chosen.reshape(-1)].add(y.reshape(-1, width))
        return out.reshape(b, s, width)

    return jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(P("data", "model", None), P(), P("model", "data", None), P("model", "data", None)),
        out_specs=P("data", "model", None),
        check_vma=False,
    )(x, p["router"], p["w1"], p["w2"])


def training_step(c: Config) -> tuple[Any, tuple[Any, ...]]:
    """The jitted step, and abstract arguments of it."""
    mesh = mesh_of(c)
    activations = P("data", None, None)

    def layer(x, p):
        x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, activations))
        if c.attention:
            x = x + _attention(c, p, norm(x, p["norm1"]))
        x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, activations))
        y = norm(x, p["norm2"])
        if c.kind == "moe":
            return x + experts(c, mesh, p, y)
        return x + (jax.nn.silu(y @ p["w1"]) * (y @ p["w3"])) @ p["w2"]

    def loss(params, tokens, targets):
        x = params["embedding"][tokens]
        if c.scanned:
            x, _ = jax.lax.scan(lambda x, p: (jax.checkpoint(layer)(x, p), None), x, params["layers"])
        else:
            for p in params["layers"]:
                x = layer(x, p)
        logits = (x @ params["head"]).astype(jnp.float32)
        picked = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
        return (jax.nn.logsumexp(logits, axis=-1) - picked).mean()

    def step(params, moments, tokens, targets):
        value, gradients = jax.value_and_grad(loss)(params, tokens, targets)
        moments = jax.tree.map(lambda m, g: (0.9 * m + 0.1 * g).astype(m.dtype), moments, gradients)
        params = jax.tree.map(lambda p, m: (p - 1e-3 * m).astype(p.dtype), params, moments)
        return params, moments, value

    def abstract(shape, spec, dtype=jnp.bfloat16):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    if c.scanned:
        layers: Any = {k: abstract((c.layers, *s), P(None, *spec)) for k, (s, spec) in parameters_of(c).items()}
    else:
        layers = [{k: abstract(s, spec) for k, (s, spec) in parameters_of(c).items()} for _ in range(c.layers)]
    params = {
        "embedding": abstract((c.vocabulary, c.width), P("data", "model")),
        "layers": layers,
        "head": abstract((c.width, c.vocabulary), P("data", "model")),
    }
    rows = c.rows * c.devices // c.tensor
    tokens = abstract((rows, c.sequence), P("data", None), jnp.int32)
    shardings = jax.tree.map(lambda a: a.sharding, (params, params))
    jitted = jax.jit(
        step, donate_argnums=(0, 1) if c.donates else (), out_shardings=(*shardings, NamedSharding(mesh, P()))
    )
    return jitted, (params, params, tokens, tokens)


def branching_step() -> tuple[Any, tuple[Any, ...]]:
    """A jitted function with collectives in both branches of a conditional and after it, and abstract arguments."""
    width, rows = 2048, 4096  # of the weights and, per device, of the batch
    mesh = mesh_of(Config("branches", devices=4))

    def local(flag, x, weights):
        def whole(w):
            return jax.lax.all_gather(w, "data", tiled=True)

        def deep(x):
            for w in weights:
                x = jnp.tanh(x @ whole(w))
            return x

        def shallow(x):
            return jnp.tanh(x @ whole(weights[0])) + jnp.sin(x @ whole(weights[1]))

        x = jax.lax.cond(flag[0] > 0, deep, shallow, x)
        return x @ whole(weights[2]), jax.lax.psum(x.sum(), "data")

    split, whole = P("data", None), P()
    step = jax.shard_map(local, mesh=mesh, in_specs=(whole, split, split), out_specs=(split, whole), check_vma=False)

    def abstract(shape, spec, dtype=jnp.bfloat16):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    weights = [abstract((width, width), split) for _ in range(4)]
    return jax.jit(step), (abstract((1,), whole, jnp.int32), abstract((4 * rows, width), split), weights)


PROGRAMS = [
    Config("fsdp8"),
    Config("fsdp64", devices=64, layers=4),
    Config("fsdp256", devices=256, layers=2, width=8192, hidden=28672, heads=64),
    Config("fsdp8-scan", layers=8, scanned=True),
    Config("fsdp64-scan", devices=64, layers=32, scanned=True),
    Config("fsdp8-tp2", tensor=2),
    Config("fsdp8-tp8", devices=64, tensor=8, layers=4),
    Config("fsdp32-tp8-scan", devices=256, tensor=8, layers=16, scanned=True, width=8192, hidden=28672, heads=64),
    Config("moe8", kind="moe", tensor=8, devices=64, hidden=4096, layers=2),
    Config("moe8-scan", kind="moe", tensor=8, devices=64, hidden=4096, layers=8, scanned=True),
    Config("moe4", kind="moe", tensor=4, devices=8, hidden=4096, layers=2),
]

# What the tests of the repository hold: small modules with every form of this front end.
_TINY = dict(devices=4, width=256, hidden=512, vocabulary=512, sequence=128, attention=False, donates=True)
SMALL = [
    Config("small-fsdp", **_TINY),
    Config("small-scan", layers=4, scanned=True, **_TINY),
    Config("small-moe", kind="moe", tensor=4, layers=1, experts=4, **_TINY),
]


def find(name: str) -> Config:
    """The program with this name."""
    return next(c for c in (*PROGRAMS, *SMALL) if c.name == name)
