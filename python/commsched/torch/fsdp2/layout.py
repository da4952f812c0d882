# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How the ranks of a job are divided into groups for FSDP2, and these groups as symbols of a module."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from ..importer.mlir_text import groups_attribute

SHARDS, REPLICAS = "shards", "replicas"


@dataclasses.dataclass(frozen=True)
class Layout:
    """The ranks of a job: replicas, each of which is a group of ranks that share parameters.

    Args:
        shards: the number of ranks over which parameters are sharded.
        replicas: the number of such groups (hybrid sharding). 0: the mesh has one dimension, and nothing is reduced
            across groups. FSDP2 runs the all-reduce of a mesh of one replica, so 1 is not the same.
        node: the number of ranks of a node. 0: unknown.
        numbers: the ranks of the mesh, one replica after the other. Empty: all ranks in ascending order.
        world: the number of ranks of the job, which may have other meshes beside this one. 0: those of the mesh.
    """

    shards: int
    replicas: int = 0
    node: int = 0
    numbers: tuple[int, ...] = ()
    world: int = 0

    @property
    def size(self) -> int:
        """The number of ranks of the mesh."""
        return self.shards * max(1, self.replicas)

    @property
    def part(self) -> int:
        """The most neighbouring ranks of a shard group that are always on one node. 0: all of them are, or no two."""
        part = math.gcd(self.shards, self.node)
        return part if 1 < part < self.shards else 0

    def __str__(self) -> str:
        return f"{self.replicas} replicas of {self.shards} ranks" if self.replicas else f"{self.shards} ranks"

    def groups(self) -> list[str]:
        """The declarations of the groups in a module: shards, replicas, and every part of the shards."""
        numbers: Sequence[int] = self.numbers or range(self.size)
        world = self.world or self.size
        found = {SHARDS: numbers[: self.shards]}
        if self.replicas:
            found[REPLICAS] = numbers[:: self.shards]
        for part in range(2, self.shards):
            if self.shards % part == 0:
                found[part_symbol(part)] = numbers[:part]
        return [f"  comm.group @{name} {groups_attribute(ranks, world)}" for name, ranks in found.items()]


def part_symbol(ranks: int) -> str:
    """The name of the group of so many neighbours in a shard group. 0: the shard group."""
    return f"part{ranks}" if ranks else SHARDS
