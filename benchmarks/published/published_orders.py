# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How others merge and order the collectives of a traced graph, by PyTorch's own code as far as it is installed.

* "per block": one bucket per transformer block, gathered one block ahead, reduced one block behind
  (`manual_overlap_bucketing`, which torchtitan calls with the blocks of its models).
* "500 MB buckets": adjacent collectives, up to 500 MB (`bucket_all_gather`, `bucket_reduce_scatter`).
* "automatic": PyTorch's overlap scheduler with buckets (`schedule_overlap_bucketing`).
* "+ simple_overlap": the pass that PyTorch 2.15 runs by default. Starts move up to what they need, waits move down to
  their first user, no collective passes another one, and the peak stays. The installed PyTorch does not have it; two
  passes of comm-opt with these limits stand for it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch_overlap

from commsched.torch.models.recompute import part_of

BUCKET_MB = 500.0
_LIMITS = "memory-budget-ratio=0 unsafe-collectives-reorder=false"
SIMPLE_OVERLAP = f"comm-reorder-preserving-peak-memory{{{_LIMITS}}},comm-sink-waits-preserving-peak-memory{{{_LIMITS}}}"
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


_MERGED: dict[str, Callable] = {
    "as traced": lambda gm, machine: gm,
    "per block": per_block,
    "500 MB buckets": buckets,
    "automatic": automatic,
}


def ordered(gm: torch.fx.GraphModule, order: str, machine: str) -> tuple[torch.fx.GraphModule, str]:
    """The graph in an order of `published_rows.ORDERS`, and the passes of comm-opt that are left to run on it."""
    known = {n.name for n in gm.graph.nodes}
    result = _MERGED[order.removesuffix(_AND_SIMPLE_OVERLAP)](gm, machine)
    passes = SIMPLE_OVERLAP if order.endswith(_AND_SIMPLE_OVERLAP) else ""
    return torch_overlap.refreshed(result, known), passes
