# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Traces one training step of a sharded model to the forward and backward graphs that a compiler sees.

It needs no accelerator, no network and little memory: the process group is PyTorch's "fake" one, and every tensor is a
fake tensor. The results are the real graphs of rank 0 after AOT autograd and the min-cut partitioner: ATen operators,
functional collectives and waits.

    python -m commsched.torch.trace --model llama3-8b --ranks 64 --parallel fsdp --out graphs
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import pathlib
import sys
import time
from collections.abc import Callable
from unittest import mock

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.traceback import preserve_node_meta

from .. import sharding
from . import decoder, parallel, recompute, sequence
from .zoo.real import REAL

# On a build without CUDA, a fake "cuda" tensor aborts the process inside autograd. On the CPU, the graphs differ only
# in the name of the attention operator.
DEVICE = "cpu"
# Nodes with equal "ac_graph_id" belong to one region of activation checkpointing. This is the id of the recomputed
# gathers.
RECOMPUTE_REGION = 1 << 20


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


@contextlib.contextmanager
def fake_world(ranks: int, rank: int = 0):
    """A process group of `ranks` that communicates nothing. It is destroyed on exit: resolve group names before."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()


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


def recompute_gathers(joint: torch.fx.GraphModule) -> int:
    """Tags every gather of a parameter for recomputation; returns how many it tagged.

    The backward graph then gathers again ("reshard after forward"). The min-cut partitioner alone saves the gathered
    weights.
    """
    from torch.utils.checkpoint import CheckpointPolicy

    ops, tagged = torch.ops._c10d_functional, 0
    for wait in joint.graph.find_nodes(op="call_function", target=ops.wait_tensor.default):
        start = wait.args[0]
        if start.target is not ops.all_gather_into_tensor.default:
            continue
        chain, node = [wait, start], start.args[0]
        while node.op == "call_function" and len(node.all_input_nodes) == 1:
            chain.append(node)
            node = node.all_input_nodes[0]
        if node.op != "placeholder":
            continue
        tagged += 1
        for n in chain + [u for u in wait.users if getattr(u.target, "is_view", False)]:
            n.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE
            n.meta["ac_graph_id"] = RECOMPUTE_REGION
    return tagged


def partition(
    model, inputs, reshard: bool, mode: str = "none", decomposed: bool = True
) -> dict[str, torch.fx.GraphModule]:
    """Traces `model(*inputs)` and its gradient; returns the graphs "fw" and "bw".

    `mode` is one of `recompute.MODES`. Nodes of a decoder have their part in `meta["custom"]` (`recompute.part_of`).
    """
    from torch._functorch import partitioners
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
    from torch._inductor.decomposition import select_decomp_table

    with contextlib.ExitStack() as stack, preserve_node_meta():
        table = select_decomp_table() if decomposed else {}
        joint = aot_export_joint_with_descriptors(stack, model, inputs, decompositions=table)
        recompute.recompute_blocks(joint.graph_module, mode)
        if reshard:
            recompute_gathers(joint.graph_module)
        state = joint._aot_state
        # The operator of attention may draw random numbers, so the partitioner would save their state where attention
        # is computed again. Without dropout it draws none.
        with mock.patch.object(partitioners, "has_recomputable_rng_ops", lambda graph: False):
            fw, bw = partitioners.min_cut_rematerialization_partition(
                joint.graph_module, state.flat_args, num_fwd_outputs=state.fw_metadata.num_forward_returns
            )
    return {"fw": fw, "bw": bw}


class _Partitioned(BaseException):
    """Ends a compilation once its graphs are there. Dynamo handles every `Exception` itself."""


def compiled(loss: Callable, batch: tuple, reshard: bool) -> dict[str, torch.fx.GraphModule]:
    """The graphs "fw" and "bw" that a backend of `torch.compile` gets for `loss(*batch)`. Nothing is run.

    Unlike `partition`, it takes programs whose sizes depend on data, and any function.
    """
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor.decomposition import select_decomp_table

    graphs: dict[str, torch.fx.GraphModule] = {}

    def split(joint, inputs, **arguments):
        if reshard:
            recompute_gathers(joint)
        graphs["fw"], graphs["bw"] = min_cut_rematerialization_partition(joint, inputs, **arguments)
        raise _Partitioned

    backend = aot_autograd(fw_compiler=lambda graph, _: graph, partition_fn=split, decompositions=select_decomp_table())
    torch._dynamo.reset()
    settings = dict(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True)
    with torch._dynamo.config.patch(**settings), contextlib.suppress(_Partitioned):
        torch.compile(loss, backend=backend, fullgraph=True, dynamic=False)(*batch)
    torch._dynamo.reset()
    return graphs


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

        return compiled(loss, job.batch(0, sizes.rows), config.reshard)


def trace(config: TraceConfig) -> dict[str, torch.fx.GraphModule]:
    """The forward ("fw") and backward ("bw") graph of `config`. A process group of `config.ranks` must exist."""
    if config.model in REAL:
        return of_the_zoo(config)
    mesh = meshes(config)
    with FakeTensorMode(allow_non_fake_inputs=True), torch.device(DEVICE):
        model, inputs = build(config, mesh)
        return partition(model, inputs, config.reshard, config.recompute, config.decomposed)


def parse_args(argv=None) -> argparse.Namespace:
    p = argparse.ArgumentParser(prog="python -m commsched.torch.trace", description=__doc__.split("\n")[0])
    p.add_argument("--model", default="llama3-8b", choices=sorted([*decoder.CONFIGS, *REAL]))
    p.add_argument("--ranks", type=int, default=64, help="size of the world (default 64)")
    p.add_argument("--parallel", default="fsdp", choices=("fsdp",), help="how parameters are sharded")
    p.add_argument("--tp", type=int, default=1, help="ranks per tensor-parallel group (default 1: none)")
    p.add_argument(
        "--ep", type=int, default=None, help="ranks per expert-parallel group (default 8 for a mixture of experts)"
    )
    p.add_argument("--layers", type=int, help="number of layers (default: the model's)")
    p.add_argument("--seq", type=int, help="tokens per sequence (default: the model's)")
    p.add_argument("--batch", type=int, help="samples per rank (default: the model's, or 1)")
    p.add_argument("--recompute", default="none", choices=recompute.MODES, help="activation checkpointing of a decoder")
    p.add_argument("--split-sequence", action="store_true", help="with --tp: split sequence, embedding and head, too")
    p.add_argument("--no-reshard", action="store_true", help="keep the gathered parameters for the backward graph")
    p.add_argument("--donated", default="auto", help='"auto", "none" or a comma-separated list of placeholders')
    p.add_argument("--fx", action="store_true", help="write the FX graphs as readable text too")
    p.add_argument("--out", required=True, type=pathlib.Path, metavar="DIR", help="where fw.mlir and bw.mlir go")
    a = p.parse_args(argv)
    if a.model in REAL and (a.tp > 1 or a.ep):
        p.error(f"{a.model} has its own parallelism: expected neither --tp nor --ep")
    if a.model in REAL and a.recompute != "none":
        p.error(f"{a.model} is no decoder: expected no --recompute")
    if a.split_sequence and a.tp == 1:
        p.error("expected --tp with --split-sequence")
    experts = 0 if a.model in REAL else decoder.CONFIGS[a.model].experts
    a.ep = a.ep or (min(8, a.ranks) if experts else 1)
    if a.ranks % (a.tp * a.ep) or (a.ep > 1 and (not experts or experts % a.ep)) or (a.tp > 1 and a.ep > 1):
        p.error(
            "expected --ranks as a multiple of --tp or --ep, only one of the two, and --ep that divides the experts"
        )
    return a


def main(argv=None) -> int:
    a = parse_args(argv)
    from ..importer.export import export_mlir
    from ..importer.state import SplitRules
    from ..strands.axes import draws_nothing, split_axes

    def axes(node, operands, results):
        # The library's table splits causal attention, too, by an attribute that PyTorch's operator does not have.
        return None if draws_nothing(node) else split_axes(node, operands, results)

    config = TraceConfig(
        a.model,
        a.ranks,
        a.tp,
        a.ep,
        a.layers,
        a.batch,
        a.seq,
        not a.no_reshard,
        recompute=a.recompute,
        split_sequence=a.split_sequence,
    )
    donated = a.donated if a.donated == "auto" else [n for n in a.donated.split(",") if n not in ("", "none")]
    a.out.mkdir(parents=True, exist_ok=True)
    with fake_world(a.ranks):
        start = time.perf_counter()
        graphs = trace(config)
        print(f"traced in {time.perf_counter() - start:.1f} s", file=sys.stderr)
        for name, gm in graphs.items():
            start = time.perf_counter()
            text = export_mlir(gm, donated=donated, name=f"{name}", split_rules=SplitRules(axes, draws_nothing))
            took = time.perf_counter() - start
            (a.out / f"{name}.mlir").write_text(text)
            if a.fx:
                readable = gm.print_readable(print_output=False, include_stride=True)
                (a.out / f"{name}.fx.txt").write_text(readable)
            print(
                f"{a.out / name}.mlir: {len(gm.graph.nodes)} nodes, {len(text)} bytes, exported in {took:.2f} s",
                file=sys.stderr,
            )
    return 0
