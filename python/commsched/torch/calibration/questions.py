# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Points that are worth measuring: the shapes of the job's groups, and the sizes that graphs contain."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.fx as fx

from ..importer.export import import_program
from ..semantics.operators import group_of, spec_of
from .bench import DTYPES, STARTS

# The step between sizes that are measured for collectives that a scheduler may merge.
MERGED_STEP = 4


class Shape(NamedTuple):
    """The shape of a group, as the library sees it (`shapeOfRanks`)."""

    ranks: int
    nodes: int
    ranks_per_node: int


def shape_of(ranks: Iterable[int], ranks_per_node: int) -> Shape:
    """The shape of a group of these ranks of the job. Rank r is on node r / ranks_per_node."""
    nodes = collections.Counter(r // ranks_per_node for r in ranks)
    return Shape(sum(nodes.values()), len(nodes), max(nodes.values()))


@dataclasses.dataclass
class Question:
    """One curve. Without sizes, it is a grid from `least` to `most` bytes."""

    kind: str
    element: str
    shape: Shape
    sizes: Sequence[int] = ()
    least: int = 0
    most: int = 0
    skipped: str = ""

    def request(self) -> dict[str, Any]:
        """The question in the words of CommSched-c/Calibration.h."""
        request: dict[str, Any] = {"kind": self.kind, "element": self.element, **self.shape._asdict()}
        if self.skipped:
            return {**request, "skipped": self.skipped}
        return {**request, **({"sizes": list(self.sizes)} if self.sizes else {"least": self.least, "most": self.most})}


def groups_of_this_rank() -> list[dist.ProcessGroup]:
    """All process groups of more than one rank that this process is in, in the order in which they were made."""
    ranks = dist.distributed_c10d._world.pg_group_ranks
    return [g for g in dist.distributed_c10d._world.pg_map if len(ranks.get(g, ())) > 1 and dist.get_rank(g) >= 0]


def by_shape(groups: Iterable[dist.ProcessGroup], ranks_per_node: int) -> dict[Shape, dist.ProcessGroup]:
    """The first group of each shape. One table of a profile holds for all groups of a shape."""
    result: dict[Shape, dist.ProcessGroup] = {}
    for group in groups:
        result.setdefault(shape_of(dist.get_process_group_ranks(group), ranks_per_node), group)
    return result


def agreed(mine: dict[Shape, dist.ProcessGroup]) -> tuple[list[Shape], dict[Shape, str]]:
    """The shapes that every rank has a group of, and the reason for each other one. Collective over the job."""
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, list(mine))
    common = [shape for shape in everyone[0] if all(shape in theirs for theirs in everyone)]
    lacking: dict[Shape, str] = {}
    for shape in (s for theirs in everyone for s in theirs if s not in common):
        rank = next(r for r, theirs in enumerate(everyone) if shape not in theirs)
        lacking[shape] = f"rank {rank} has no group of this shape"
    return common, lacking


def in_graphs(
    graphs: Sequence[fx.GraphModule | fx.Graph], ranks_per_node: int
) -> tuple[list[Question], list[dist.ProcessGroup]]:
    """The collectives of post-AOT graphs: their exact sizes, and steps up to all of one kind merged. Their groups."""
    sizes: dict[tuple[str, str, Shape], set[int]] = {}
    groups: dict[str, dist.ProcessGroup] = {}
    for graph in graphs:
        importer = import_program(graph if isinstance(graph, fx.Graph) else graph.graph)[2]
        for (kind, _, element), samples in importer.samples.items():
            name, ranks, _ = group_of(samples[0][0], spec_of(samples[0][0]))
            groups.setdefault(name, dist.distributed_c10d._resolve_process_group(name))
            known = [bytes_ for _, bytes_ in samples if bytes_ > 0]
            if len(ranks) > 1 and known:
                key = (kind, element, shape_of(ranks, ranks_per_node))
                sizes.setdefault(key, set()).update(known, merged_sizes(known))
    return [_answerable(Question(*key, sorted(wanted))) for key, wanted in sizes.items()], list(groups.values())


def merged_sizes(known: Sequence[int]) -> list[int]:
    """Sizes between the largest collective and all of them in one."""
    largest, total = max(known), sum(known)
    steps = []
    while largest < total:
        largest = min(largest * MERGED_STEP, total)
        steps.append(largest)
    return steps


def on_grid(
    kinds: Sequence[str],
    dtypes: Sequence[torch.dtype],
    shapes: Iterable[Shape],
    sizes: Sequence[int],
    least: int,
    most: int,
) -> list[Question]:
    """Every kind and element type on every shape, at these sizes or on a grid."""
    names = {dtype: name for name, dtype in DTYPES.items()}
    elements = [names.get(d, str(d).removeprefix("torch.")) for d in dtypes]
    return [
        _answerable(Question(kind, element, shape, sorted(sizes), least, most))
        for shape in shapes
        for kind in kinds
        for element in elements
    ]


def _answerable(question: Question) -> Question:
    """The question, with the reason if it cannot be answered."""
    element, reason = question.element, ""
    if element not in DTYPES:
        element, reason = "other", f"tensors of {element} are not measured"
    if question.kind not in STARTS:
        reason = "it is not measured in a job of PyTorch"
    return dataclasses.replace(question, element=element, skipped=reason)
