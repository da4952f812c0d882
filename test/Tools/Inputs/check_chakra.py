# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Reads execution traces of Chakra back and plays them: check_chakra.py DIRECTORY FUNCTION [REPORT.json | -].

The decoder knows the wire format of protocol buffers and the numbers of the fields of Chakra's schema, and shares
nothing with the writer. The simulator has one lane for computation and one for each process group on each rank. A
collective begins when it has come to the front on all ranks of its group, and a message when both sides have come to
it. With a report, makespans, names, kinds, bytes and durations have to be those of the report. With "-", the traces are
printed.
"""

import glob
import heapq
import json
import os
import sys
from collections import Counter, defaultdict

NODE = {1: "id", 2: "name", 3: "type", 4: "ctrl_deps", 5: "data_deps", 6: "start", 7: "duration", 10: "attr"}
METADATA = {1: "version", 2: "attr"}
# The members of the oneof in AttributeProto that may occur here.
VALUES = {7: int, 9: int, 27: bool, 29: bytes.decode}
COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
KINDS = "all_reduce reduce all_gather gather scatter broadcast all_to_all reduce_scatter - barrier".split()
TYPES = {
    "comm_type": int,
    "comm_size": int,
    "pg_name": str,
    "pg_desc": str,
    "is_cpu_op": bool,
    "op": str,
    "duration_ns": int,
    "comm_src": int,
    "comm_dst": int,
    "comm_tag": int,
}


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields_of(data):
    """The fields of a message: pairs of a number and an integer or bytes."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        value, at = varint(data, at)
        if tag & 7 == 2:
            value, at = data[at : at + value], at + value
            assert at <= len(data)
        else:
            assert tag & 7 == 0, f"wire type {tag & 7}"
        yield tag >> 3, value


def unpack(data):
    at, values = 0, []
    while at < len(data):
        value, at = varint(data, at)
        values.append(value)
    return values


def attribute(data):
    (first, name), (number, value) = fields_of(data)
    assert first == 1
    return name.decode(), VALUES[number](value)


def message(data, numbers):
    result = {"attr": {}, "ctrl_deps": [], "data_deps": []}
    for number, value in fields_of(data):
        field = numbers[number]
        if field == "attr":
            name, value = attribute(value)
            assert name not in result["attr"]
            result["attr"][name] = value
        elif field in ("ctrl_deps", "data_deps"):
            result[field] = unpack(value)
        else:
            result[field] = value.decode() if isinstance(value, bytes) else value
    return result


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    at, messages = 0, []
    while at < len(data):
        size, at = varint(data, at)
        messages.append(data[at : at + size])
        at += size
        assert at <= len(data), "a message is cut"
    return message(messages[0], METADATA), [message(data, NODE) for data in messages[1:]]


def check_nodes(nodes, rank, groups):
    """What the schema and the feeders ask of a trace."""
    ids = [node["id"] for node in nodes]
    assert ids == sorted(set(ids))
    known = set()
    for node in nodes:
        # Every dependence is there and comes first, so there is no cycle.
        before = node["ctrl_deps"] + node["data_deps"]
        assert set(before) <= known and len(before) == len(set(before)), node
        known.add(node["id"])
        attr = node["attr"]
        assert node["name"] and attr["is_cpu_op"] is False
        assert all(type(value) is TYPES[name] for name, value in attr.items()), attr
        expected = {"is_cpu_op", "op", "duration_ns"}
        if node["type"] != COMPUTE:
            expected |= {"comm_size", "pg_name", "pg_desc"}
            assert rank in groups[attr["pg_name"]] and attr["pg_name"] != "0"
        if node["type"] == COLLECTIVE:
            expected |= {"comm_type"}
        elif node["type"] != COMPUTE:
            expected |= {"comm_src", "comm_dst", "comm_tag"}
            own, other = ("comm_src", "comm_dst") if node["type"] == SEND else ("comm_dst", "comm_src")
            assert attr[own] == rank != attr[other] and attr[other] in groups[attr["pg_name"]]
        assert attr.keys() == expected, attr


class Simulator:
    def __init__(self, traces, groups, duration):
        self.groups, self.duration = groups, duration
        self.nodes = {(rank, node["id"]): node for rank, nodes in traces.items() for node in nodes}
        self.missing = {key: len(node["ctrl_deps"] + node["data_deps"]) for key, node in self.nodes.items()}
        self.users = defaultdict(list)
        for (rank, number), node in self.nodes.items():
            for before in node["ctrl_deps"] + node["data_deps"]:
                self.users[rank, before].append((rank, number))
        self.ready, self.busy = defaultdict(list), set()
        self.counts, self.arrived = Counter(), defaultdict(list)
        self.events, self.ended = [], {}

    def lane(self, key):
        attr = self.nodes[key]["attr"]
        return key[0], self.nodes[key]["type"], attr.get("pg_name")

    def issue(self, lane, now):
        """Takes the first node that is ready on a free lane."""
        if lane in self.busy or not self.ready[lane]:
            return
        key = heapq.heappop(self.ready[lane])
        self.busy.add(lane)
        node, attr = self.nodes[key], self.nodes[key]["attr"]
        if node["type"] == COMPUTE:
            meeting, parties = key, 1
        elif node["type"] == COLLECTIVE:
            number = self.counts[lane]
            self.counts[lane] += 1
            meeting, parties = (attr["pg_name"], number), len(self.groups[attr["pg_name"]])
        else:
            channel = attr["pg_name"], attr["comm_src"], attr["comm_dst"], attr["comm_tag"]
            number = self.counts[channel, node["type"]]
            self.counts[channel, node["type"]] += 1
            meeting, parties = (channel, number), 2
        self.arrived[meeting].append(key)
        if len(self.arrived[meeting]) == parties:
            first = self.nodes[self.arrived[meeting][0]]
            for other in self.arrived[meeting]:
                node = self.nodes[other]
                # All sides are at the same collective, of the same size, wherever they are in their traces.
                same = ("comm_type", "comm_size", "duration_ns")
                assert [node["attr"].get(n) for n in same] == [first["attr"].get(n) for n in same]
                assert node["name"] == first["name"]
                heapq.heappush(self.events, (now + self.duration(node), other))

    def run(self):
        for key, missing in self.missing.items():
            if missing == 0:
                heapq.heappush(self.ready[self.lane(key)], key)
        for lane in sorted(self.ready, key=str):
            self.issue(lane, 0)
        while self.events:
            now, key = heapq.heappop(self.events)
            self.ended[key] = now
            self.busy.discard(self.lane(key))
            touched = [self.lane(key)]
            for user in self.users[key]:
                self.missing[user] -= 1
                if self.missing[user] == 0:
                    heapq.heappush(self.ready[self.lane(user)], user)
                    touched.append(self.lane(user))
            for lane in touched:
                self.issue(lane, now)
        assert len(self.ended) == len(self.nodes), f"{len(self.nodes) - len(self.ended)} nodes never end"
        return max(self.ended.values())


def takes_part(nodes):
    """Whether a rank sends or receives in every permute. Where it does not, it has a node of no time."""
    return all(node["type"] != COMPUTE for node in nodes if node["attr"]["op"] == "comm.permute")


def check_report(traces, makespans, report, function):
    (found,) = [f for f in report["functions"] if f["name"] == function]
    expected = found["makespan_ns"]["after"]
    if any(takes_part(nodes) for nodes in traces.values()):
        assert makespans == (expected, (expected + 500) // 1000), (makespans, expected)
    assert makespans[0] <= expected, (makespans, expected)
    rows, costs = found["per_collective"], sum(found["cost_times_ns"].values())
    for nodes in traces.values():
        starts = [n for n in nodes if n["type"] != COMPUTE and n["attr"]["op"].startswith("comm.")]
        names = []
        for before, node in zip([None, *starts], starts):
            # A send and a receive of one permute have one row.
            entry = node["name"], node["attr"]["op"]
            if not (
                entry[1] == "comm.permute"
                and before
                and (before["type"], node["type"]) == (SEND, RECEIVE)
                and entry == names[-1]
            ):
                names.append(entry)
        wanted = [(row["loc"], "comm." + row["kind"]) for row in rows]
        if not takes_part(nodes):
            wanted = [row for row in wanted if row[1] != "comm.permute"]
            names = [row for row in names if row[1] != "comm.permute"]
        assert names == wanted, (names, wanted)
        for node, row in zip(starts, rows if takes_part(nodes) and len(starts) == len(rows) else []):
            gathers = row["kind"] in ("all_gather", "gather")
            assert node["attr"]["comm_size"] * (row["ranks"] if gathers else 1) == row["bytes"]
            assert node["type"] != COLLECTIVE or KINDS[node["attr"]["comm_type"]] == row["kind"]
            assert "@" + node["attr"]["pg_desc"] == row["group"]
            assert "contention" in found or node["attr"]["duration_ns"] == row["cost_ns"]
        total = sum(node["attr"]["duration_ns"] for node in nodes if not node["name"].endswith(" issue"))
        if takes_part(nodes) and "contention" not in found and len(starts) == len(rows):
            assert total == costs, (total, costs)


def check(directory, function, report=None):
    """Checks and plays the traces of a function. Returns the nodes by rank, and what to say of them."""
    with open(os.path.join(directory, function + ".groups.json")) as file:
        groups = json.load(file)
    traces = {}
    for path in glob.glob(os.path.join(directory, function + ".*.et")):
        metadata, nodes = read(path)
        rank = int(path.split(".")[-2])
        assert metadata["version"] == "0.0.4" and metadata["attr"]["rank"] == rank
        assert metadata["attr"]["function"] == function
        traces[rank] = nodes
        check_nodes(nodes, rank, groups)
    assert sorted(traces) == list(range(metadata["attr"]["ranks"])), sorted(traces)
    makespans = tuple(
        Simulator(traces, groups, duration).run()
        for duration in (lambda node: node["attr"]["duration_ns"], lambda node: node["duration"])
    )
    if report:
        with open(report) as file:
            check_report(traces, makespans, json.load(file), function)
    return traces, f"{len(traces)} ranks, {len(nodes)} nodes, {makespans[0]} ns"


def main():
    directory, function, *report = sys.argv[1:]
    prints = report == ["-"]
    traces, said = check(directory, function, *([] if prints else report))
    for rank, nodes in sorted(traces.items() if prints else []):
        for node in nodes:
            print(rank, json.dumps(node))
    print(said)


if __name__ == "__main__":
    main()
