# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`export_mlir`: an FX graph as a module of `comm` operations."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch.distributed as dist
import torch.fx as fx

from ...program import Error, Program
from ..options import Estimation
from ..semantics.landing import sort, waits_for_views, with_waits_for_results
from .graph import Importer, donated_placeholders
from .state import SplitRules

# At most this many nodes may be refused one after the other. Each of them costs another import.
MOST_REFUSED = 16


def import_graph(
    graph: fx.Graph,
    *,
    runtime_estimation: Estimation | None = None,
    donated: str | Iterable[str] = "auto",
    name: str = "main",
    opaque: dict[str, str] | None = None,
    fused: bool = False,
    fusion: bool = True,
    split_rules: SplitRules | None = None,
    apart: frozenset[str] = frozenset(),
) -> tuple[str, Importer]:
    """The module's text, and the importer, which knows the groups and which nodes to ask for estimates.

    The graph is only read, but sorted first if its order is not topological.

    Args:
        runtime_estimation: the user's estimates of single nodes.
        donated: names of the placeholders that are freed after their last use, or "auto".
        name: the symbol of the function.
        opaque: nodes to import as opaque operations, each with the reason.
        fused: nodes that Inductor is going to fuse into one kernel become one operation.
        fusion: such nodes cost together what their kernel does. Otherwise, each costs as a kernel of its own.
        split_rules: what scalars say about splitting, if the module is going to be split into strands.
        apart: the names of collectives that are not to be merged.
    """
    sort(graph)
    world = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    importer = Importer(
        graph, name, donated_placeholders(graph, donated), runtime_estimation, world, opaque, fused, fusion
    )
    importer.split_rules, importer.apart = split_rules, apart
    return importer.run(), importer


def import_program(graph: fx.Graph, name: str = "main", **options: Any) -> tuple[Program, str, Importer]:
    """The module, its text, and the importer.

    A node becomes opaque by itself if the dialect's verifier refuses its operation.

    Raises:
        Error: the module is refused for another reason.
    """
    opaque: dict[str, str] = {}
    while True:
        text, importer = import_graph(graph, name=name, opaque=opaque, **options)
        try:
            return Program(text, "graph"), text, importer
        except Error as error:
            culprit = _culprit(importer)
            if culprit is None or culprit in importer.opaque or len(opaque) >= MOST_REFUSED:
                raise
            opaque[culprit] = str(error).split("\n")[0]


def _culprit(importer: Importer) -> str | None:
    """The node whose operation is refused. The module is parsed without locations, so that the message gives a line."""
    try:
        Program(importer.printer.text(locations=False), "graph")
    except Error as error:
        place = re.match(r"graph:(\d+):", str(error))
        return importer.printer.origin_of(int(place[1])) if place else None
    return None


def _of_originals(estimation: Estimation, origins: dict[fx.Node, fx.Node]) -> Estimation:
    """Estimates for the nodes of a copy: those of the nodes that they are copies of, which the user knows."""

    def estimate(node: fx.Node, *args: Any, **options: Any) -> float | None:
        return estimation(origins.get(node, node), *args, **options)

    return estimate


def export_mlir(
    gm: fx.GraphModule | fx.Graph,
    *,
    runtime_estimation: Estimation | None = None,
    donated: str | Iterable[str] = "auto",
    name: str = "main",
    split_rules: SplitRules | None = None,
    fusion: bool = True,
) -> str:
    """The post-AOT graph `gm` as the text of an MLIR module. The graph must have fake-tensor metadata.

    A wait for a view of what is in flight is exported as scheduling sees it: a wait for the whole, then the view.

    Args:
        runtime_estimation: `(node, override_bytes=None) -> milliseconds | None`, the convention of PyTorch's
            overlap scheduler.
            Without it, and for an answer of None, flops and bytes are exported, and the machine profile decides.
        donated: "auto", or names of the placeholders that are freed after their last use.
        name: the symbol of the function.
        split_rules: what scalars say about splitting, for a module that comm-split-strands is going to split.
        fusion: whether nodes that Inductor fuses into one kernel cost together what that kernel does. Not with
            `split_rules`.

    Raises:
        ValueError: `donated` names something that is not a placeholder.
    """
    graph = gm if isinstance(gm, fx.Graph) else gm.graph
    if waits_for_views(graph):
        sort(graph)
        graph, origins = with_waits_for_results(graph)
        if runtime_estimation is not None:
            runtime_estimation = _of_originals(runtime_estimation, origins)
    given: dict[str, Any] = {
        "runtime_estimation": runtime_estimation,
        "donated": donated,
        "split_rules": split_rules,
        "fusion": fusion and split_rules is None,
    }
    return import_program(graph, name=name, **given)[1]
