# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Meshes of ranks: the axes that process groups are made of, and what an order of the axes puts inside nodes.

Placement.md describes the rules, which are those of comm-place.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

#: The axes of a mesh have at most 120 orders, as in comm-place.
MOST_AXES = 5
#: Another order of the axes is worth a line if the given one is proven to take longer by more than this share.
WORTH_SAYING = 0.02
#: (size, stride) of each digit of the ranks of a group, the slowest one first.
Digits = tuple[tuple[int, int], ...]
#: Axes by their index in a mesh, the slowest one first.
Order = tuple[int, ...]


def digits_of(ranks: Sequence[int]) -> Digits | None:
    """The digits of which the offsets of a group's ranks are all sums. None if the ranks are no such grid. O(ranks)."""
    offsets = [r - ranks[0] for r in ranks]
    digits: list[tuple[int, int]] = []
    span = 1  # The number of leading offsets that the digits found so far explain.
    while span < len(offsets):
        stride, size = offsets[span], 1
        while (size + 1) * span <= len(offsets) and all(
            offsets[size * span + i] == size * stride + offsets[i] for i in range(span)
        ):
            size += 1
        if size == 1 or len(offsets) % (size * span) or stride <= 0:
            return None
        digits.insert(0, (size, stride))
        span *= size
    return tuple(digits)


@dataclasses.dataclass(frozen=True)
class Mesh:
    """The coarsest mesh of which every group is a product of axes.

    Args:
        sizes: of the axes, the slowest one first.
        strides: the distance of neighbours on each axis, in ranks.
        groups: the axes of each group, by its name, in the order of its places.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    groups: dict[str, Order]

    def used(self) -> list[int]:
        """The axes that groups have."""
        return sorted({axis for axes in self.groups.values() for axis in axes})

    def orders(self, axes: Sequence[int]) -> Iterator[Order]:
        """All orders of some axes, that of the program first. Other axes keep their places."""
        for permuted in itertools.permutations(axes):
            moved = dict(zip(axes, permuted))
            yield tuple(moved.get(axis, axis) for axis in range(len(self.sizes)))

    def inside_nodes(self, order: Order, ranks_per_node: int) -> dict[str, int] | None:
        """The ranks of one node that each group has, by its name. None if nodes hold different parts of the mesh."""
        left, inside = min(ranks_per_node, math.prod(self.sizes)), {}
        for axis in reversed(order):
            inside[axis] = min(self.sizes[axis], left)
            if self.sizes[axis] % inside[axis] or left % inside[axis]:
                return None
            left //= inside[axis]
        return {name: math.prod(inside[axis] for axis in axes) for name, axes in self.groups.items()}

    def iota(self, group: str, order: Order) -> str:
        """The attribute of a group if the axes have this order. Places within the group stay what they are."""
        axes = self.groups[group]
        others = [axis for axis in range(len(self.sizes)) if axis not in axes]
        size = math.prod(self.sizes[axis] for axis in axes)
        sizes = [self.sizes[axis] for axis in order]
        places = [order.index(axis) for axis in (*others, *axes)]
        return f"#comm.iota<[{math.prod(sizes) // size}, {size}] from {sizes} transpose {places}>"

    def names(self) -> list[str]:
        """A name for each axis: that of the group that is this axis alone, or "axis" and its index."""
        named = {axes[0]: name for name, axes in reversed(self.groups.items()) if len(axes) == 1}
        return [named.get(axis, f"axis{axis}").removeprefix("mesh_") for axis in range(len(self.sizes))]


def find_mesh(groups: dict[str, Digits], world: int) -> Mesh | None:
    """The mesh of `world` ranks of these groups. None if there is none, or if it has more than MOST_AXES axes."""
    ends = sorted({1, world, *(end for digits in groups.values() for n, s in digits for end in (s, n * s))})
    if any(high % low for low, high in zip(ends, ends[1:])) or len(ends) - 1 > MOST_AXES or ends[-1] != world:
        return None
    axes = [(high // low, low) for low, high in zip(ends, ends[1:])][::-1]

    def axes_of(digits: Digits) -> Order:
        return tuple(i for n, s in digits for i, (_, stride) in enumerate(axes) if s <= stride < n * s)

    return Mesh(
        tuple(size for size, _ in axes),
        tuple(stride for _, stride in axes),
        {name: axes_of(digits) for name, digits in groups.items()},
    )


def time_text(ns: float) -> str:
    """A time with three digits and its unit."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.0f} ns"


@dataclasses.dataclass(frozen=True)
class FasterOrder:
    """An order of the axes of a mesh on which a step is proven to be faster than on the given order.

    Args:
        axes: the names and sizes of the axes, the slowest one first.
        makespan: what the schedules that were found take with this order, ns.
        bound: no schedules take less with the given order, ns.
    """

    axes: tuple[tuple[str, int], ...]
    makespan: int
    bound: int

    def mesh(self) -> tuple[str, str]:
        """The shape of the mesh and the names of its dimensions, as Python writes them."""
        sizes, names = [str(size) for _, size in self.axes], [f'"{name}"' for name, _ in self.axes]
        return f"({', '.join(sizes)})", f"({', '.join(names)})"

    def line(self, call: str) -> str:
        """One line that says so, with the call that makes the mesh in a framework."""
        loss = 100 * (self.bound - self.makespan) / self.makespan
        return (
            f"another order of the mesh is faster: {call} takes at most {time_text(self.makespan)}, and the given "
            f"order, in whatever schedule, {time_text(self.bound)} or more: it is at least {loss:.1f} % slower"
        )


def faster_order(graphs: Sequence[dict[str, Any]]) -> FasterOrder | None:
    """The order of the axes with the least time of some graphs that run one after the other, if it is proven to be
    faster by more than WORTH_SAYING. O(orders x graphs x placements).

    Args:
        graphs: of each graph "world"; "ranks_per_node"; "groups": the digits of each group, by name; "bound_ns": no
            schedule takes less on the groups as given; "makespan_ns": what its schedule takes there; and "others": for
            other placements "inside_nodes", the ranks of one node that each group has, and "makespan_ns".
    """
    groups: dict[str, Digits] = {}
    for graph in graphs:
        for name, digits in graph["groups"].items():
            if groups.setdefault(name, tuple((size, stride) for size, stride in digits)) != tuple(map(tuple, digits)):
                return None  # The graphs are not of one job.
    if len({(graph["world"], graph["ranks_per_node"]) for graph in graphs}) != 1:
        return None
    ranks_per_node = graphs[0]["ranks_per_node"]
    mesh = find_mesh(groups, graphs[0]["world"])
    if mesh is None:
        return None
    best: tuple[int, Order] | None = None
    given: dict[str, int] | None = None
    for order in mesh.orders(mesh.used()):
        inside = mesh.inside_nodes(order, ranks_per_node)
        given = given or inside
        if inside is None or given is None:
            continue
        times = [_time(graph, inside, given) for graph in graphs]
        total = sum(time for time in times if time is not None)
        if None not in times and (best is None or total < best[0]):
            best = total, order
    bound = sum(graph["bound_ns"] for graph in graphs)
    if best is None or bound <= best[0] * (1 + WORTH_SAYING):
        return None
    names = mesh.names()
    return FasterOrder(tuple((names[axis], mesh.sizes[axis]) for axis in best[1]), best[0], bound)


def _time(graph: dict[str, Any], inside: dict[str, int], given: dict[str, int]) -> int | None:
    """The time of a graph if its groups have these ranks in one node. None if nobody has played that."""
    own = {name: inside[name] for name in graph["groups"]}
    if own == {name: given[name] for name in own}:
        return graph["makespan_ns"]
    return next((other["makespan_ns"] for other in graph["others"] if other["inside_nodes"] == own), None)
