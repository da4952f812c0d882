# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Finds the copies that a bucket makes before its collective. They are imported as one kernel, which they become.

PyTorch's bucketing, and CommSched's, write a pack as casts, views and a `cat`, followed by a `copy_` into this rank's
slice if the collective is a gather. Inductor makes one kernel of them, without memory for the values in between.
Imported one by one, they would cost about twice the time and memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

import torch
import torch.fx as fx

from .effects import Aliases
from .operators import spec_of

aten = torch.ops.aten
CASTS = (torch.ops.prims.convert_element_type.default, aten._to_copy.default, aten.clone.default)
VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)


@dataclasses.dataclass
class Pack:
    """The copies of one bucket.

    Args:
        sources: the nodes that the pack reads.
        parts: the nodes of the pack. The result of the last one remains.
    """

    sources: list[fx.Node]
    parts: list[fx.Node]


def find_packs(
    graph: fx.Graph, without: Collection[fx.Node] = frozenset(), aliases: Aliases | None = None
) -> dict[fx.Node, Pack]:
    """The packs of a graph. Indexed by the last node of each pack.

    Args:
        aliases: those of the graph, if somebody has read them already.
        without: nodes that are about to be erased. They do not count as readers. Lookups in it must take constant time.
    """
    packs = {}
    for cat in graph.find_nodes(op="call_function", target=aten.cat.default):
        last = None if cat in without else _end(cat, without)
        if last is None:
            continue
        pack = Pack([], [])
        for piece in cat.args[0]:
            pack.sources.append(_source(piece, pack.parts, without))
        pack.parts += [cat] if last is cat else [cat, last]
        packs[last] = pack
    if packs:  # A part that reads overwritten memory must read it at its own place, not at that of the pack.
        aliases = aliases or Aliases(graph)
        written = aliases.written()
        packs = {last: p for last, p in packs.items() if not aliases.of_all(p.sources) & written}
    return packs


def _only_reader(node: fx.Node, without: Collection[fx.Node]) -> fx.Node | None:
    readers = [u for u in node.users if u not in without]
    return readers[0] if len(readers) == 1 else None


def _end(cat: fx.Node, without: Collection[fx.Node]) -> fx.Node | None:
    """The last node of the pack that `cat` belongs to: `cat` itself, or the copy into a slice.

    None if the node feeds no collective.
    """
    if not all(isinstance(n, fx.Node) for n in cat.args[0]):
        return None
    reader = _only_reader(cat, without)
    if reader is not None and reader.target is aten.copy_.default and reader.args[1] is cat:
        target = reader.args[0]
        feeds = isinstance(target, fx.Node) and any(_is_start(u) for u in target.users)
        return reader if feeds and not reader.users and target.meta["val"].shape == cat.meta["val"].shape else None
    while reader is not None and reader.target in VIEWS:
        reader = _only_reader(reader, without)
    return cat if reader is not None and _is_start(reader) else None


def _is_start(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and spec_of(node).start is not None


def _source(piece: fx.Node, parts: list[fx.Node], without: Collection[fx.Node]) -> fx.Node:
    """The value that a piece is made of: what its view and its cast read, if only the pack reads them.

    That view and that cast join `parts`.
    """
    node, chain = piece, []
    while node.op == "call_function" and node.args and isinstance(node.args[0], fx.Node):
        if _only_reader(node, without) is None:
            break
        if node.target in CASTS and node.args[0].meta["val"].device == node.meta["val"].device:
            chain.append(node)
        elif node.target in VIEWS:
            chain.append(node)
        else:
            break
        node = node.args[0]
    while chain and chain[-1].target in VIEWS:  # A view alone is free already, and may have other readers.
        node = chain.pop()
    parts += reversed(chain)
    return node
