# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Orders and buckets of others for the collectives of a traced graph, by PyTorch's own code as far as it is installed.

* "per block": one bucket per transformer block, gathered one block ahead, reduced one block behind
  (`manual_overlap_bucketing`, which torchtitan calls with the blocks of its models).
* "500 MB buckets": adjacent collectives, up to 500 MB (`bucket_all_gather`, `bucket_reduce_scatter`).
* "automatic": PyTorch's overlap scheduler with buckets (`schedule_overlap_bucketing`).
* "+ simple_overlap": the pass that PyTorch 2.15 runs by default. The installed PyTorch does not have it, so it is
  written here after its description (pytorch/pytorch#184235).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
import torch_overlap
from models.recompute import part_of

BUCKET_MB = 500.0
_AND_SIMPLE_OVERLAP = " + simple_overlap"


def _stack(node: torch.fx.Node) -> list[tuple[str, type]]:
    part = part_of(node)
    return [(part, torch.nn.Module)] if part else []


def _parts(gm: torch.fx.GraphModule) -> list[str]:
    """The parts of the model in the order in which the forward graph has them."""
    found = {part for node in gm.graph.nodes if (part := part_of(node))}
    blocks = sorted((p for p in found if p.startswith("layers.")), key=lambda p: int(p.split(".")[1]))
    return [*(["embed"] if "embed" in found else []), *blocks, *(["head"] if "head" in found else [])]


def per_block(gm: torch.fx.GraphModule, machine: str) -> torch.fx.GraphModule:
    from torch._inductor.fx_passes.overlap_manual_scheduling import manual_overlap_bucketing

    torch_overlap.without_gpu()
    return manual_overlap_bucketing(gm, _parts(gm), module_stack_fn=_stack)


def buckets(gm: torch.fx.GraphModule, machine: str) -> torch.fx.GraphModule:
    from torch._inductor.fx_passes.bucketing import bucket_all_gather, bucket_reduce_scatter
    from torch._inductor.pattern_matcher import stable_topological_sort

    for merge in (bucket_all_gather, bucket_reduce_scatter):
        merge(gm, lambda index: BUCKET_MB, "custom_ops")
        stable_topological_sort(gm.graph)
    return gm


def automatic(gm: torch.fx.GraphModule, machine: str) -> torch.fx.GraphModule:
    estimate = torch_overlap.estimator(gm, machine)
    return torch_overlap.VARIANTS[torch_overlap.BUCKETING](gm, estimate, machine, {})[0]


def _is(node: torch.fx.Node, wait: bool) -> bool:
    """Whether a node waits for a collective, or starts one."""
    name = str(node.target)
    return node.op == "call_function" and "c10d_functional" in name and ("wait_tensor" in name) == wait


def simple_overlap(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Each start moves up alone, to what it needs or to another collective, each wait down alone, to its first user or
    to another wait. If the peak of memory grows, nothing moves.

    The pass itself moves kernels of Inductor, one position at a time, and checks the peak at each.
    """
    before = list(gm.graph.nodes)
    peak = torch_overlap.pytorch_peak(gm)
    for node in before:
        if _is(node, wait=False):
            above = node.prev
            while above.op not in ("placeholder", "root") and above not in node.all_input_nodes and not _is_any(above):
                above = above.prev
            if above is not node.prev:
                above.append(node)
    for node in reversed(before):
        if _is(node, wait=True):
            below = node.next
            while below.op != "output" and below not in node.users and not _is(below, wait=True):
                below = below.next
            if below is not node.next:
                below.prepend(node)
    if torch_overlap.pytorch_peak(gm) > peak:
        for above, node in itertools.pairwise(before):
            above.append(node)
    return gm


def _is_any(node: torch.fx.Node) -> bool:
    return _is(node, wait=False) or _is(node, wait=True)


_MERGED: dict[str, Callable] = {
    "as traced": lambda gm, machine: gm,
    "per block": per_block,
    "500 MB buckets": buckets,
    "automatic": automatic,
}


def ordered(gm: torch.fx.GraphModule, order: str, machine: str) -> torch.fx.GraphModule:
    """The graph in an order of `published_rows.ORDERS`."""
    known = {n.name for n in gm.graph.nodes}
    result = torch_overlap.refreshed(_MERGED[order.removesuffix(_AND_SIMPLE_OVERLAP)](gm, machine), known)
    return simple_overlap(result) if order.endswith(_AND_SIMPLE_OVERLAP) else result
