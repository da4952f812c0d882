# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Activation checkpointing of traced decoders, by the rules of torchtitan: tags that the partitioner obeys."""

from __future__ import annotations

import operator

import torch
from torch.utils.checkpoint import CheckpointPolicy

from .decoder import PART

# "none" leaves all to the partitioner. "full" keeps the inputs of each block, "alternate" those of every second block.
# "selective" keeps the results of attention, of reduce-scatters, and of every second matrix product of a block.
MODES = ("none", "full", "alternate", "selective")
_BLOCK = "layers."
_KEPT = ("scaled_dot_product", "reduce_scatter_tensor")


def part_of(node: torch.fx.Node) -> str | None:
    """The part of the decoder that a node of a traced graph belongs to. None if nothing says so."""
    return (node.meta.get("custom") or {}).get(PART)


def _kept(node: torch.fx.Node, products: list[int]) -> bool:
    """Whether selective checkpointing keeps the result of `node`. `products` counts the products of its block."""
    if node.target in (torch.ops._c10d_functional.wait_tensor.default, operator.getitem):
        node = node.args[0]
    if node.target is torch.ops.aten.mm.default:
        products[0] += 1
        return products[0] % 2 == 1
    return any(name in str(node.target) for name in _KEPT)


def recompute_blocks(joint: torch.fx.GraphModule, mode: str) -> int:
    """Tags what the backward graph is to compute again; returns the number of tagged nodes.

    The nodes of a block form a region with a number that grows from block to block, so the values between blocks stay.
    """
    if mode not in MODES:
        raise ValueError(f"recompute: expected one of {', '.join(MODES)}, got {mode!r}")
    if mode == "none":
        return 0
    products: dict[int, list[int]] = {}
    tagged = 0
    for node in joint.graph.nodes:
        part = part_of(node) or ""
        forward = node.op == "call_function" and node.meta.get("partitioner_tag") != "is_backward"
        if not forward or not part.startswith(_BLOCK):
            continue
        block = int(part.removeprefix(_BLOCK))
        if mode == "alternate" and block % 2:
            continue
        node.meta["ac_graph_id"] = block
        kept = mode == "selective" and _kept(node, products.setdefault(block, [0]))
        node.meta["recompute"] = CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.MUST_RECOMPUTE
        tagged += not kept
    return tagged
