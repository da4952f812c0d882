# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Training steps for 64 H100s that are not there, whose memory differs in kind: nothing recomputed, layers of several
sorts, policies of jax.checkpoint, context parallelism, ZeRO-1, experts and scans. Sizes are drawn from a seed."""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax_programs
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

HEAD = 128
FAMILIES = ("unrolled", "mixed", "remat", "scan", "ring", "gather-kv", "zero1", "experts")
# Policies of jax.checkpoint by name; "full" recomputes everything, and "named" keeps the results of the projections.
POLICIES: dict[str, Any] = {
    "full": None,
    "dots": jax.checkpoint_policies.dots_saveable,
    "dots-no-batch": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "named": jax.checkpoint_policies.save_only_these_names("projection"),
}


@dataclasses.dataclass(frozen=True)
class Program:
    """One program. `config` has the sizes of the model; the axis `model` of its mesh splits the sequence in the
    families `ring` and `gather-kv`."""

    name: str
    family: str
    config: jax_programs.Config
    hidden: tuple[int, ...]  # of each layer
    experts: tuple[bool, ...]  # of each layer: experts in place of the dense block
    policy: str = ""  # a key of POLICIES; "" recomputes nothing


def draw(seed: int, each: int) -> Iterator[Program]:
    """`each` programs of every family, in an order that depends on neither number."""
    for family in FAMILIES:
        numbers = random.Random(f"memory {seed} {family}")
        for index in range(each):
            yield _draw(numbers, family, f"{family}-{index}")


def _draw(numbers: random.Random, family: str, name: str) -> Program:
    choose = numbers.choice
    heads = choose((16, 32))
    layers = 2 if family in ("ring", "gather-kv", "experts") else choose((2, 3, 4))
    shares = [choose((2, 3, 4))] * layers
    experts = [family == "experts"] * layers
    tensor = choose((1, 1, 8))
    if family == "mixed":
        shares = [choose((1, 2, 4, 6)) for _ in range(layers)]
        experts = [numbers.random() < 0.4 for _ in range(layers)]
    if any(experts):
        tensor = choose((4, 8))
    if family in ("ring", "gather-kv"):
        tensor = 4 if family == "ring" else choose((4, 8))
    config = jax_programs.Config(
        name,
        devices=64,
        tensor=1 if family == "zero1" else tensor,
        layers=layers,
        width=heads * HEAD,
        hidden=heads * HEAD * (1 if any(experts) else shares[0]),
        heads=heads,
        kv_heads=8,
        experts=8,
        vocabulary=choose((16384, 32768)),
        sequence=choose((1024, 2048)) * tensor if family in ("ring", "gather-kv") else choose((2048, 4096)),
        scanned=family == "scan",
        donates=True,
    )
    policy = choose(tuple(POLICIES)) if family in ("remat", "scan") else choose(("", "full", "dots"))
    if family == "unrolled":
        policy = ""
    return Program(name, family, config, tuple(heads * HEAD * share for share in shares), tuple(experts), policy)


def describe(program: Program) -> str:
    """What the program is, for a table."""
    c = program.config
    wide = f"{min(program.hidden)} to {max(program.hidden)}" if len(set(program.hidden)) > 1 else f"{program.hidden[0]}"
    parts = [f"mesh {c.devices // c.tensor} x {c.tensor}", f"{c.layers} layers", f"{c.width} wide, {wide} inside"]
    parts += [f"{c.sequence} tokens"]
    if any(program.experts):
        parts.append(f"{sum(program.experts)} with experts")
    parts.append(f"recomputes: {program.policy}" if program.policy else "recomputes nothing")
    return ", ".join(parts)


#
# Attention
#


def _whole_attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """All queries against all keys. q: batch, tokens, groups, heads of a group, head; k and v: batch, tokens, groups,
    head."""
    scores = jnp.einsum("bsgqh,btgh->bgqst", q, k) * HEAD**-0.5
    weights = jax.nn.softmax(scores.astype(jnp.float32), axis=-1).astype(q.dtype)
    return jnp.einsum("bgqst,btgh->bsgqh", weights, v)


def _gathered_attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """A rank has some of the tokens, and gathers the keys and values of the others."""
    k, v = (jax.lax.all_gather(x, "model", axis=1, tiled=True) for x in (k, v))
    return _whole_attention(q, k, v)


def _ring_attention(ranks: int, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """A rank has some of the tokens; keys and values travel around the ring, and the softmax is carried along."""
    ring = [(rank, (rank + 1) % ranks) for rank in range(ranks)]
    most = jnp.full(q.shape[:-1], -1e30, jnp.float32)
    total = jnp.zeros(q.shape[:-1], jnp.float32)
    out = jnp.zeros(q.shape, jnp.float32)
    for step in range(ranks):
        # The next keys and values are on their way during the products.
        following = [jax.lax.ppermute(x, "model", ring) for x in (k, v)] if step + 1 < ranks else [k, v]
        scores = (jnp.einsum("bsgqh,btgh->bsgqt", q, k) * HEAD**-0.5).astype(jnp.float32)
        larger = jnp.maximum(most, scores.max(-1))
        weights, faded = jnp.exp(scores - larger[..., None]), jnp.exp(most - larger)
        total = total * faded + weights.sum(-1)
        out = out * faded[..., None] + jnp.einsum("bsgqt,btgh->bsgqh", weights.astype(q.dtype), v)
        most, (k, v) = larger, following
    return (out / total[..., None]).astype(q.dtype)


def _attend(program: Program, mesh: Mesh) -> Callable[..., jax.Array]:
    if program.family not in ("ring", "gather-kv"):
        return _whole_attention
    ring = functools.partial(_ring_attention, program.config.tensor)
    split = P("data", "model")
    inner = ring if program.family == "ring" else _gathered_attention
    return jax.shard_map(inner, mesh=mesh, in_specs=(split, split, split), out_specs=split, check_vma=False)


#
# Steps
#


def _layer(program: Program, mesh: Mesh, index: int) -> Callable[..., jax.Array]:
    """A function from activations and parameters to activations."""
    c = program.config
    attend = _attend(program, mesh)
    tokens = P("data", "model", None) if program.family in ("ring", "gather-kv") else P("data", None, None)

    def constrained(x: jax.Array) -> jax.Array:
        # What runs inside of a shard_map is not sharded again.
        return x if program.family == "zero1" else jax.lax.with_sharding_constraint(x, NamedSharding(mesh, tokens))

    def layer(x: jax.Array, p: dict[str, jax.Array]) -> jax.Array:
        x = constrained(x)
        y = jax_programs.norm(x, p["norm1"])
        b, s, _ = y.shape
        q, k, v = (checkpoint_name(y @ p[name], "projection") for name in ("wq", "wk", "wv"))
        q = q.reshape(b, s, c.kv_heads, c.heads // c.kv_heads, HEAD)
        k, v = (z.reshape(b, s, c.kv_heads, HEAD) for z in (k, v))
        x = constrained(x + attend(q, k, v).reshape(b, s, c.width) @ p["wo"])
        y = jax_programs.norm(x, p["norm2"])
        if program.experts[index]:
            return x + jax_programs.experts(c, mesh, p, y)
        return x + checkpoint_name(jax.nn.silu(y @ p["w1"]) * (y @ p["w3"]), "inner") @ p["w2"]

    return jax.checkpoint(layer, policy=POLICIES[program.policy]) if program.policy else layer


def _parameters(program: Program, index: int) -> dict[str, tuple[tuple[int, ...], P]]:
    """Of each parameter of a layer: its shape and how it is sharded."""
    has_experts = program.experts[index]
    hidden = program.config.hidden if has_experts else program.hidden[index]
    config = dataclasses.replace(program.config, hidden=hidden, kind="moe" if has_experts else "dense")
    shapes = jax_programs.parameters_of(config)
    if program.family == "zero1":
        return {name: (shape, P()) for name, (shape, _) in shapes.items()}
    if program.family in ("ring", "gather-kv"):
        # The axis `model` splits tokens, so both axes split parameters.
        return {n: (shape, P(("data", "model")) if len(shape) > 1 else P()) for n, (shape, _) in shapes.items()}
    return shapes


def _loss(program: Program, mesh: Mesh) -> Callable[..., jax.Array]:
    layers = [_layer(program, mesh, index) for index in range(program.config.layers)]

    def loss(params: dict[str, Any], tokens: jax.Array, targets: jax.Array) -> jax.Array:
        x = params["embedding"][tokens]
        if program.config.scanned:
            x, _ = jax.lax.scan(lambda x, p: (layers[0](x, p), None), x, params["layers"])
        else:
            for layer, p in zip(layers, params["layers"], strict=True):
                x = layer(x, p)
        logits = (x @ params["head"]).astype(jnp.float32)
        picked = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
        return (jax.nn.logsumexp(logits, axis=-1) - picked).mean()

    return loss


def _zero1_step(program: Program, mesh: Mesh) -> Callable[..., Any]:
    """Parameters are whole on every rank, and the moments, in float32, are split: gradients are scattered as they are
    summed, and new parameters are gathered."""
    loss = _loss(program, mesh)

    def update(p: jax.Array, gradient: jax.Array, moment: jax.Array) -> tuple[jax.Array, jax.Array]:
        mine = jax.lax.psum_scatter(gradient.astype(jnp.float32), "data", tiled=True)
        moment = 0.9 * moment + 0.1 * mine
        rows, rank = moment.shape[0], jax.lax.axis_index("data")
        part = jax.lax.dynamic_slice_in_dim(p, rank * rows, rows)
        return jax.lax.all_gather((part - 1e-3 * moment).astype(p.dtype), "data", tiled=True), moment

    def step(params: Any, moments: Any, tokens: jax.Array, targets: jax.Array) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, tokens, targets)
        pairs = jax.tree.map(update, params, gradients, moments)
        new = [jax.tree.map(lambda pair, i=i: pair[i], pairs, is_leaf=lambda x: isinstance(x, tuple)) for i in (0, 1)]
        return *new, jax.lax.pmean(value, "data")

    split = P("data")
    return jax.shard_map(
        step, mesh=mesh, in_specs=(P(), split, split, split), out_specs=(P(), split, P()), check_vma=False
    )


def _sharded_step(program: Program, mesh: Mesh) -> Callable[..., Any]:
    loss = _loss(program, mesh)

    def step(params: Any, moments: Any, tokens: jax.Array, targets: jax.Array) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, tokens, targets)
        moments = jax.tree.map(lambda m, g: (0.9 * m + 0.1 * g).astype(m.dtype), moments, gradients)
        return jax.tree.map(lambda p, m: (p - 1e-3 * m).astype(p.dtype), params, moments), moments, value

    return step


def training_step(program: Program) -> tuple[Any, tuple[Any, ...]]:
    """The jitted step, which donates its state, and abstract arguments of it."""
    c = program.config
    mesh = jax_programs.mesh_of(c)
    is_zero1 = program.family == "zero1"

    def abstract(shape: tuple[int, ...], spec: P, dtype: Any = jnp.bfloat16) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    shapes = [_parameters(program, index) for index in range(c.layers)]
    layers: Any = [{k: abstract(s, spec) for k, (s, spec) in layer.items()} for layer in shapes]
    if c.scanned:
        layers = {k: abstract((c.layers, *s), P(None, *spec)) for k, (s, spec) in shapes[0].items()}
    whole = P() if is_zero1 else P("data", "model")
    params = {
        "embedding": abstract((c.vocabulary, c.width), whole),
        "layers": layers,
        "head": abstract((c.width, c.vocabulary), whole),
    }
    moments = params
    if is_zero1:
        moments = jax.tree.map(lambda a: abstract(a.shape, P("data"), jnp.float32), params)
    is_context = program.family in ("ring", "gather-kv")
    tokens = abstract((c.devices // c.tensor, c.sequence), P("data", "model" if is_context else None), jnp.int32)
    step = _zero1_step(program, mesh) if is_zero1 else _sharded_step(program, mesh)
    results = jax.tree.map(lambda a: a.sharding, (params, moments))
    jitted = jax.jit(step, donate_argnums=(0, 1), out_shardings=(*results, NamedSharding(mesh, P())))
    return jitted, (params, moments, tokens, tokens)
