# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Traces a training step of a sharded model to the forward and backward graphs that a compiler sees.

It needs no accelerator, no network and little memory: the process group is PyTorch's "fake" one, and every tensor may
be a fake tensor. The results are the real graphs of one rank after AOT autograd and the min-cut partitioner: ATen
operators, functional collectives and waits.

    with fake_world(64):
        graphs = partition(model, inputs)  # In a `FakeTensorMode`, if the model has fake parameters.
        gm, report = commsched.torch.schedule_overlap(graphs["bw"])

`partition` traces a module, and `compiled` any function that `torch.compile` takes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch._guards import detect_fake_mode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.fx.traceback import preserve_node_meta

__all__ = ["compiled", "fake_world", "join", "partition", "recompute_gathers"]

# Nodes with equal "ac_graph_id" belong to one region of activation checkpointing. This is the id of the recomputed
# gathers.
RECOMPUTE_REGION = 1 << 20


@contextlib.contextmanager
def fake_world(ranks: int, rank: int = 0) -> Iterator[None]:
    """A process group of `ranks` that communicates nothing. It is destroyed on exit: resolve group names before."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()


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
    model: torch.nn.Module,
    inputs: tuple,
    reshard: bool = True,
    decomposed: bool = True,
    tag: Callable[[torch.fx.GraphModule], Any] | None = None,
) -> dict[str, torch.fx.GraphModule]:
    """Traces `model(*inputs)` and its gradient; returns the graphs "fw" and "bw".

    Args:
        reshard: the backward graph gathers sharded parameters again.
        decomposed: composite operators are taken apart as for a compiler. Otherwise the graphs have the kernels that
            run eagerly.
        tag: is called with the joint graph before it is split, to tag nodes that the backward graph recomputes.
    """
    from torch._functorch import partitioners
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
    from torch._inductor.decomposition import select_decomp_table

    with contextlib.ExitStack() as stack, preserve_node_meta():
        table = select_decomp_table() if decomposed else {}
        joint = aot_export_joint_with_descriptors(stack, model, inputs, decompositions=table)
        if tag is not None:
            tag(joint.graph_module)
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


def join(
    fw: torch.fx.GraphModule, bw: torch.fx.GraphModule, origins: dict[str, tuple[bool, str]] | None = None
) -> torch.fx.GraphModule:
    """Forward and backward graph of one step as one graph, which runs them one after the other.

    A placeholder of `bw` with the name of a result or a placeholder of `fw` is that value; the others, the gradients of
    the results, stay placeholders. What `fw` saves for `bw` alone is not returned. What `bw` recomputes has storage of
    its own.

    Args:
        origins: gets, for each node but placeholders, whether it comes from `bw`, and its name there.
    """
    graph = torch.fx.Graph()
    placeholders = {node.name: node for gm in (fw, bw) for node in gm.graph.find_nodes(op="placeholder")}
    made = {node.name for node in fw.graph.nodes if node.op != "placeholder"}
    wanted = {node.name for node in bw.graph.find_nodes(op="placeholder")}
    known = {name: graph.node_copy(node) for name, node in placeholders.items() if name not in made}
    results: list[Any] = []
    for gm in (fw, bw):
        copies: dict[torch.fx.Node, torch.fx.Node] = {}
        for node in gm.graph.nodes:
            if node.op == "placeholder":
                copies[node] = known[node.name]
            elif node.op == "output":
                returned = [n for n in node.args[0] if gm is bw or getattr(n, "name", None) not in wanted]
                results += [copies.get(n, n) for n in returned]
            else:
                copies[node] = graph.node_copy(node, copies.__getitem__)
                if origins is not None:
                    origins[copies[node].name] = (gm is bw, node.name)
        known |= {node.name: copies[node] for node in copies if node.name in wanted}
    graph.output(tuple(results))
    joint = torch.fx.GraphModule({**dict(fw.named_children()), **dict(bw.named_children())}, graph)
    values = [node.meta.get("val") for node in graph.find_nodes(op="placeholder")]
    FakeTensorProp(joint, detect_fake_mode(values)).propagate_dont_convert_inputs(*values)
    return joint


class _Partitioned(BaseException):
    """Ends a compilation once its graphs are there. Dynamo handles every `Exception` itself."""


def compiled(loss: Callable, batch: tuple, reshard: bool = True) -> dict[str, torch.fx.GraphModule]:
    """The graphs "fw" and "bw" that a backend of `torch.compile` gets for `loss(*batch)`. Nothing is run.

    Unlike `partition`, it takes programs whose sizes depend on data, and any function.
    """
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor.decomposition import select_decomp_table

    graphs: dict[str, torch.fx.GraphModule] = {}

    def split(joint: torch.fx.GraphModule, inputs: Any, **arguments: Any) -> None:
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
