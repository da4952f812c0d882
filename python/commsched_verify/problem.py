# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The block of a certificate as it was given: nodes, lanes, dependences, buffers, and what may be merged."""

from __future__ import annotations

from .statements import UNLIMITED, Section, column, numbers, require


class Problem:
    """The block as it was given."""

    def __init__(self, sections: dict[str, Section]) -> None:
        nodes, lanes, buffers = sections["nodes"], sections["lanes"], sections["buffers"]
        self.kinds: str = nodes["kinds"]
        self.size = size = len(self.kinds)
        require(set(self.kinds) <= set("CSWH"), "a node has an unknown kind")
        self.names = lanes["names"]
        self.lanes = len(self.names)
        self.busy_until = column(lanes, "busy_until_ns", self.lanes, 0, 0, UNLIMITED)
        self.cost = numbers(nodes["cost_ns"], 0, UNLIMITED, "cost_ns")
        require(len(self.cost) == size, "cost_ns is not of all nodes")
        self.lane = column(nodes, "lane", size, 0, 0, self.lanes)
        self.issue = column(nodes, "issue_ns", size, 0, 0, UNLIMITED)
        self.awaits = column(nodes, "awaits", size, -1, 0, size)
        self.ready = column(nodes, "ready_ns", size, 0, 0, UNLIMITED)
        self.workspace = column(nodes, "workspace_bytes", size, 0, 0, UNLIMITED)
        self.group = column(nodes, "group", size, -1, 0, UNLIMITED)
        self.unit = column(nodes, "unit", size, -1, 0, UNLIMITED)
        self.pinned = column(nodes, "pinned", size, 0, 0, 2)
        self.messages = column(nodes, "messages", size, 0, 0, 2)
        regions = lanes.get("regions", [])
        region = column(nodes, "region", size, -1, 0, len(regions))
        self.region = [regions[index] if index >= 0 else None for index in region]
        self.preds = [
            [node - distance for distance in numbers(row, 1, node + 1, "edges")]
            for node, row in enumerate(sections["edges"]["distances"])
        ]
        require(len(self.preds) == size, "the edges are not of all nodes")
        self.succs: list[list[int]] = [[] for _ in range(size)]
        for node, preds in enumerate(self.preds):
            for pred in preds:
                self.succs[pred].append(node)
        self.bytes = numbers(buffers["bytes"], 0, UNLIMITED, "bytes")
        count = len(self.bytes)
        self.definer = numbers(buffers["defined_by"], -1, size, "defined_by")
        self.live_out = column(buffers, "live_out", count, 0, 0, 2)
        self.users = [numbers(row, 0, size, "touched_by") for row in buffers["touched_by"]]
        require(len(self.definer) == count == len(self.users), "the buffers' columns differ in length")
        for buffer, (definer, users) in enumerate(zip(self.definer, self.users)):
            require(
                users == sorted(set(users)) and (definer < 0 or users[:1] in ([], [definer])),
                f"buffer {buffer} is used before its definition",
            )
        self.keys: list[Section] = sections.get("merging", {}).get("keys", [])
        self.members = {
            member.start: member
            for member in (Member(row, self) for row in sections.get("merging", {}).get("members", []))
        }
        self.check()

    def check(self) -> None:
        for node, kind in enumerate(self.kinds):
            region, start = self.region[node], self.awaits[node]
            require((kind in "SH") == (self.lane[node] > 0), f"node {node} is on a lane that its kind does not have")
            require(kind != "W" or self.cost[node] == 0, f"wait {node} has a cost")
            require(
                start < 0 or (kind == "W" and start < node and self.kinds[start] == "S"),
                f"node {node} waits for no start",
            )
            if region is not None:
                numbers(region["lanes"], 1, self.lanes, "lanes of a region")
                numbers(region["starts"], 0, node, "starts of a region")
                require(
                    kind in "CH" and (kind == "H") == (self.lane[node] in region["lanes"]),
                    f"region {node} has a wrong kind",
                )
                require(all(self.kinds[s] == "S" for s in region["starts"]), f"region {node} waits for no start")

    def awaited(self, node: int) -> list[int]:
        """The starts that a node waits for."""
        region = self.region[node]
        own = [self.awaits[node]] if self.awaits[node] >= 0 else []
        return own + (region["starts"] if region is not None else [])

    def occupied(self, node: int) -> list[int]:
        """The communication lanes that a node occupies."""
        region = self.region[node]
        return region["lanes"] if region is not None else [self.lane[node]] if self.lane[node] else []


class Member:
    """A start that may be merged with others of its key."""

    def __init__(self, row: list[int], problem: Problem) -> None:
        numbers(row, -1, UNLIMITED, "members")
        (
            self.start,
            self.key,
            self.wait,
            self.input,
            self.output,
            self.bytes,
            self.input_bytes,
            self.output_bytes,
            self.cast,
            self.cast_bytes,
            self.alone,
        ) = row
        kinds, self.cast_bytes = problem.kinds, self.cast_bytes if self.cast >= 0 else self.input_bytes
        require(
            kinds[self.start] == "S"
            and problem.awaits[self.wait] == self.start
            and 0 <= self.key < len(problem.keys)
            and problem.preds[self.wait] == [self.start]
            and problem.definer[self.output] == self.start
            and not problem.pinned[self.start] | problem.pinned[self.wait],
            f"node {self.start} cannot be merged",
        )
        require(
            self.cast < 0
            or (
                kinds[self.cast] == "C"
                and problem.succs[self.cast] == [self.start]
                and problem.definer[self.input] == self.cast
                and not problem.live_out[self.input]
            ),
            f"node {self.cast} is no cast of node {self.start} alone",
        )
