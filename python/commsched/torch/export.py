"""`export_mlir`: an FX graph as a module of `comm` operations."""

from __future__ import annotations

import torch.distributed as dist
import torch.fx as fx

from .importer import Estimation, Importer, donated_placeholders


def import_graph(graph: fx.Graph, *, runtime_estimation: Estimation | None = None, donated="auto",
                 name: str = "main") -> tuple[str, Importer]:
    """The module's text, and the importer, which knows the groups and which node to ask about which collective."""
    world = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    importer = Importer(graph, name, donated_placeholders(graph, donated), runtime_estimation, world)
    return importer.run(), importer


def export_mlir(gm: fx.GraphModule | fx.Graph, *, runtime_estimation: Estimation | None = None, donated="auto",
                name: str = "main") -> str:
    """The post-AOT graph `gm`, which must have fake-tensor metadata, as the text of an MLIR module.

    Args:
        runtime_estimation: `(node, override_bytes=None) -> milliseconds | None`, the convention of PyTorch's overlap
            scheduler. None, or an answer of None: flops and bytes are exported, and the machine profile decides.
        donated: "auto", or names of the placeholders that are freed after their last use.
        name: the function's symbol.

    Raises:
        ValueError: `donated` names something that is no placeholder.
    """
    graph = gm if isinstance(gm, fx.Graph) else gm.graph
    return import_graph(graph, runtime_estimation=runtime_estimation, donated=donated, name=name)[0]
