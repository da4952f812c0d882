# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The graphs of one training step of a model of this package, traced by `commsched.torch.trace`."""

from __future__ import annotations

import dataclasses
import functools

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from commsched.torch import sharding, trace

from . import decoder, parallel, recompute, sequence
from .zoo.real import REAL

# On a build without CUDA, a fake "cuda" tensor aborts the process inside autograd. On the CPU, the graphs differ only
# in the name of the attention operator.
DEVICE = "cpu"


@dataclasses.dataclass(frozen=True)
class TraceConfig:
    """What to trace. `ranks` is the size of the whole world. `tp` (or `ep`) neighbours form a group.

    A model of the zoo has its own parallelism, without `tp` and `ep`. It runs under autocast if `dtype` is given.
    None for `layers`, `batch` and `seq` stands for the model's own (one sequence in a batch).

    Args:
        recompute: what the backward graph of a decoder computes again, one of `recompute.MODES`.
        split_sequence: tensor parallelism also splits the sequence between the products, the embedding and the head.
        reduce_dtype: the element type in which gradients are reduced; None for the parameters' own.
        decomposed: composite operators are taken apart as for a compiler. Otherwise the graph of a decoder has the
            kernels that run eagerly.
    """

    model: str = "llama3-8b"
    ranks: int = 64
    tp: int = 1
    ep: int = 1
    layers: int | None = None
    batch: int | None = None
    seq: int | None = None
    reshard: bool = True
    dtype: torch.dtype | None = torch.bfloat16
    recompute: str = "none"
    split_sequence: bool = False
    reduce_dtype: torch.dtype | None = None
    decomposed: bool = True


def meshes(config: TraceConfig) -> dict[str, DeviceMesh]:
    """The device meshes by role: "dense" and "routed" parameters are sharded over the mesh of that name.

    A mesh is made of real tensors: call this outside of a `FakeTensorMode`.
    """
    if config.tp > 1 or config.ep > 1:
        inner = "tp" if config.tp > 1 else "ep"
        size = max(config.tp, config.ep)
        mesh = init_device_mesh(DEVICE, (config.ranks // size, size), mesh_dim_names=("dp", inner))
    world = init_device_mesh(DEVICE, (config.ranks,), mesh_dim_names=("world",))
    if config.tp > 1:
        return {"dense": mesh["dp"], "routed": mesh["dp"], "tp": mesh["tp"]}
    if config.ep > 1:
        return {"dense": world, "routed": mesh["dp"], "ep": mesh["ep"]}
    return {"dense": world, "routed": world}


def build(config: TraceConfig, mesh: dict[str, DeviceMesh]):
    """The sharded model and its inputs, uninitialized."""
    c = decoder.CONFIGS[config.model]
    c = dataclasses.replace(c, layers=config.layers or c.layers, seq=config.seq or c.seq)
    with torch.device("meta"):
        model = decoder.Decoder(c)
    parallel.materialize(model, DEVICE)
    if "tp" in mesh:
        (sequence.sequence_parallel if config.split_sequence else parallel.tensor_parallel)(model, mesh["tp"])
    if "ep" in mesh:
        parallel.expert_parallel(model, mesh["ep"])
    sharding.fully_shard_parameters(
        model,
        lambda m: mesh["routed" if isinstance(m, decoder.Experts) else "dense"],
        config.dtype,
        config.reduce_dtype,
    )
    tokens = torch.empty(config.batch or 1, c.seq, dtype=torch.int64, device=DEVICE)
    return model, (tokens, tokens)


def of_the_zoo(config: TraceConfig) -> dict[str, torch.fx.GraphModule]:
    """The graphs of a model of `zoo.real`, in mixed precision. Its weights are initialized as fake tensors."""
    model, sizes_on = REAL[config.model]
    changed = {"rows": config.batch, "layers": config.layers, "sequence": config.seq}
    sizes = dataclasses.replace(
        sizes_on(config.ranks), dtype=config.dtype, **{k: v for k, v in changed.items() if v is not None}
    )
    with FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv()):
        job = model(dist.get_rank(), config.ranks, sizes)

        def loss(*batch):
            with torch.autocast(DEVICE, config.dtype, enabled=config.dtype is not None):
                return job.loss(*batch)

        return trace.compiled(loss, job.batch(0, sizes.rows), config.reshard)


def graphs_of(config: TraceConfig) -> dict[str, torch.fx.GraphModule]:
    """The forward ("fw") and backward ("bw") graph of `config`. A process group of `config.ranks` must exist."""
    if config.model in REAL:
        return of_the_zoo(config)
    mesh = meshes(config)
    with FakeTensorMode(allow_non_fake_inputs=True), torch.device(DEVICE):
        model, inputs = build(config, mesh)
        recomputed = functools.partial(recompute.recompute_blocks, mode=config.recompute)
        return trace.partition(model, inputs, config.reshard, config.decomposed, recomputed)
