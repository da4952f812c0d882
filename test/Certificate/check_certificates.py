#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Whether commsched-verify accepts what is true and refuses what is not.

Certificates of random problems and of the repository's graphs are valid. Each mutation changes one number. What the
checker still accepts has to be true: for small problems all orders are played here, by rules that are written down a
third time, and the claims are compared with the best of them.
"""

import argparse
import ast
import copy
import json
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from commsched_verify import Invalid, checker

HEADER = json.dumps({"format": "commsched-certificate", "version": 1, "blocks": 1})
MOST_ORDERS = 3000


def lines_of(block):
    return [HEADER, *(json.dumps(section) for section in block.values())]


def refusal(block):
    """Why the checker refuses a block, or None."""
    try:
        checker.verify(lines_of(block))
    except Invalid as error:
        return str(error)
    return None


def places(value, path=()):
    """The paths to all integers."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield from places(entry, (*path, key))
    if type(value) is int:
        yield path


def mutate(block, draw):
    path = draw.choice(list(places(block)))
    mutant = copy.deepcopy(block)
    parent = mutant
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] += draw.choice([-1 << 40, -64, -1, 1, 2, 64, 1 << 40])
    return mutant


class Table(dict):
    """A column with few unusual entries."""

    def __init__(self, section, name):
        pairs = section.get(name, [])
        super().__init__(zip(pairs[::2], pairs[1::2]))


class Simulation:
    """All orders of a small block, played by the rules of docs/Models.md."""

    def __init__(self, block):
        self.nodes, self.lanes, self.buffers = block["nodes"], block["lanes"], block["buffers"]
        self.limit = block["claims"].get("limit_bytes")
        self.size = len(self.nodes["kinds"])
        self.column = {
            name: Table(self.nodes, name)
            for name in ("lane", "issue_ns", "awaits", "ready_ns", "workspace_bytes", "region")
        }
        self.busy, self.live_out = Table(self.lanes, "busy_until_ns"), Table(self.buffers, "live_out")
        self.needs = []
        for node, row in enumerate(block["edges"]["distances"]):
            starts = [self.column["awaits"][node]] if node in self.column["awaits"] else []
            if node in self.column["region"]:
                starts += self.lanes["regions"][self.column["region"][node]]["starts"]
            self.needs.append({node - distance for distance in row} | set(starts))

    def makespan(self, order):
        free = {lane: self.busy.get(lane, 0) for lane in range(len(self.lanes["names"]))}
        over = {}
        for node in order:
            kind, cost = self.nodes["kinds"][node], self.nodes["cost_ns"][node]
            get = {name: table.get(node) for name, table in self.column.items()}
            region = self.lanes["regions"][get["region"]] if get["region"] is not None else None
            if region is not None:
                used = [0, *region["lanes"]]
                over[node] = cost + max(
                    [free[lane] for lane in used] + [over[s] for s in region["starts"]] + [get["ready_ns"] or 0]
                )
                free.update(dict.fromkeys(used, over[node]))
            elif kind == "C":
                free[0] += cost
            elif kind == "S":
                free[get["lane"]] = over[node] = max(free[0], free[get["lane"]]) + cost
                free[0] += get["issue_ns"] or 0
            elif kind == "W":
                free[0] = max(free[0], over[get["awaits"]] if get["awaits"] is not None else get["ready_ns"] or 0)
            else:
                free[0] = free[get["lane"]] = over[node] = max(free[0], free[get["lane"]]) + cost
        return max(free.values())

    def peak(self, order):
        at, most = {node: index for index, node in enumerate(order)}, 0
        for index, node in enumerate(order):
            live = self.column["workspace_bytes"].get(node, 0)
            for buffer, users in enumerate(self.buffers["touched_by"]):
                used = [at[user] for user in users]
                begun = used and (min(used) <= index or self.buffers["defined_by"][buffer] < 0)
                if begun and (max(used) >= index or self.live_out.get(buffer)):
                    live += self.buffers["bytes"][buffer]
            most = max(most, live)
        return most

    def orders(self):
        """All orders that keep the dependences, up to MOST_ORDERS + 1."""
        stack, found = [()], 0
        while stack and found <= MOST_ORDERS:
            order = stack.pop()
            if len(order) == self.size:
                found += 1
                yield order
            stack += [
                (*order, node) for node in range(self.size) if node not in order and self.needs[node] <= set(order)
            ]


def lie(block):
    """Why an accepted block is not true, None if it is, or "unknown" if it has too many orders or buckets."""
    if block["answer"]["buckets"]:
        return "unknown"
    simulation, claims, order = Simulation(block), block["claims"], block["answer"]["events"]
    if (simulation.makespan(order), simulation.peak(order)) != (claims["makespan_ns"], claims["peak_bytes"]):
        return f"the claims {claims} are wrong: {simulation.makespan(order)}, {simulation.peak(order)}"
    if any(not simulation.needs[node] <= set(order[:place]) for place, node in enumerate(order)):
        return f"the order {order} breaks a dependence"
    orders = list(simulation.orders())
    if len(orders) > MOST_ORDERS:
        return "unknown"
    fits = [o for o in orders if simulation.limit is None or simulation.peak(o) <= simulation.limit]
    best = min(map(simulation.makespan, fits))
    bound = block["bound"]["makespan_ns"]
    return None if bound <= best else f"the bound {bound} is above the optimum {best}"


def random_blocks(program, first, count, nodes):
    output = subprocess.run(
        [program, str(first), str(count), str(nodes)], check=True, capture_output=True, text=True
    ).stdout
    return list(checker.blocks(output.splitlines()))


def check_random(program, count):
    """Certificates of random problems of several sizes are valid, and what is said of the small ones is true."""
    arguments, unknown, buckets = {}, 0, 0
    for first, number, nodes in ((1, count, 5), (100_001, count // 4, 40), (200_001, max(1, count // 20), 400)):
        for block in random_blocks(program, first, number, nodes):
            reason = refusal(block)
            assert reason is None, f"{block['block']['name']} of {nodes} nodes: {reason}"
            arguments[block["bound"]["argument"]] = arguments.get(block["bound"]["argument"], 0) + 1
            buckets += len(block["answer"]["buckets"])
            if nodes == 5:
                why = lie(block)
                unknown += why == "unknown"
                assert why in (None, "unknown"), f"{block['block']['name']}: {why}"
    print(f"valid random certificates by argument: {arguments}; {buckets} buckets; too large to play: {unknown}")
    assert {"lane-load", "one-machine", "through-node"} <= set(arguments) and buckets > 0


def check_mutations(program, count):
    """Of mutated certificates, those that the checker accepts are true."""
    draw = random.Random(7)
    blocks = random_blocks(program, 300_001, 60, 5)
    refused = accepted = unknown = 0
    for index in range(count):
        mutant = mutate(blocks[index % len(blocks)], draw)
        if refusal(mutant) is not None:
            refused += 1
            continue
        why = lie(mutant)
        unknown += why == "unknown"
        assert why in (None, "unknown"), (
            f"mutation {index} of {mutant['block']['name']} was accepted, but {why}: {json.dumps(mutant)}"
        )
        accepted += 1
    print(f"mutations: {refused} refused, {accepted} accepted and true, {unknown} of these too large to play")
    assert refused > count // 4 and accepted > 0


def check_graphs(comm_opt, graphs, count):
    """Certificates of real graphs are valid and small; those with a false claim are not."""
    draw = random.Random(8)
    for graph in sorted(graphs.glob("*.mlirbc")):
        for options in ("", "=bucketing=false"):
            with tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder) / "certificate.jsonl"
                subprocess.run(
                    [
                        comm_opt,
                        str(graph),
                        f"--reorder-comm-overlap{options}{' ' if options else '='}effort=200000",
                        "--comm-machine=h100-sxm",
                        f"--comm-certificate={file}",
                        "-o",
                        "/dev/null",
                    ],
                    check=True,
                    capture_output=True,
                )
                size, lines = file.stat().st_size, file.read_text().splitlines()
            block = next(checker.blocks(lines))
            assert refusal(block) is None, f"{graph.name} {options}: {refusal(block)}"
            assert size <= 2 * graph.stat().st_size, f"{graph.name}: {size} bytes"
            for section, name in (("claims", "makespan_ns"), ("claims", "peak_bytes"), ("bound", "makespan_ns")):
                false = copy.deepcopy(block)
                false[section][name] += 1 << 20 if section == "bound" else draw.choice([-1, 1])
                assert refusal(false), f"{graph.name}: a false {name} was accepted"
            refused = 0
            for _ in range(count):
                false = copy.deepcopy(block)
                events = false["answer"]["events"]
                first, second = sorted(draw.sample(range(len(events)), 2))
                events[first], events[second] = events[second], events[first]
                refused += refusal(false) is not None
            print(
                f"{graph.name}{options}: {size} bytes, {len(block['nodes']['kinds'])} nodes, "
                f"{block['bound']['argument']}; "
                f"{refused} of {count} exchanges of two events refused"
            )


def check_independence():
    """The checker imports Python's own modules and nothing else."""
    for file in pathlib.Path(checker.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            assert all(name.split(".")[0] in sys.stdlib_module_names for name in names), f"{file.name} imports {names}"


def check_hand_made():
    """Two gathers and two computations, of which the optimum is known: 2 + max(3, 4) + 3 on two lanes."""
    block = {
        "block": {"section": "block", "name": "by hand", "collective_order": "free", "bucketing": False},
        "lanes": {"section": "lanes", "names": ["compute", "@dp"]},
        # gather 0 (3 ns), compute 1 (5 ns), wait 2, compute 3 (2 ns) of the gathered data.
        "nodes": {
            "section": "nodes",
            "kinds": "SCWC",
            "cost_ns": [3, 5, 0, 2],
            "lane": [0, 1],
            "awaits": [2, 0],
        },
        "edges": {"section": "edges", "distances": [[], [], [2], [1]]},
        "buffers": {"section": "buffers", "bytes": [64], "defined_by": [0], "touched_by": [[0, 2, 3]]},
        "answer": {"section": "answer", "buckets": [], "events": [0, 1, 2, 3]},
        "claims": {"section": "claims", "makespan_ns": 7, "peak_bytes": 64, "limit_bytes": 64},
        "bound": {"section": "bound", "makespan_ns": 7, "argument": "lane-load", "lane": 0},
    }

    def after(change):
        changed = copy.deepcopy(block)
        change(changed)
        return refusal(changed) or ""

    assert after(lambda b: None) == ""
    assert "proves a bound of 7" in after(lambda b: b["bound"].update(makespan_ns=8))
    assert "makespan is 7 ns, not 6" in after(lambda b: b["claims"].update(makespan_ns=6))
    assert "peak is 64 bytes, not 63" in after(lambda b: b["claims"].update(peak_bytes=63))
    assert "above the limit of 63" in after(lambda b: b["claims"].update(limit_bytes=63))
    assert "depends on node 2" in after(lambda b: b["answer"].update(events=[0, 1, 3, 2]))
    assert "never happens" in after(lambda b: b["answer"].update(events=[0, 1, 2]))
    assert "runs twice" in after(lambda b: b["answer"].update(events=[0, 1, 2, 3, 3]))
    # Waiting at once takes 3 + 5 + 2: legal, but not what is claimed.
    assert "makespan is 10 ns" in after(lambda b: b["answer"].update(events=[0, 2, 1, 3]))
    # A path through the gather proves 3 + 2, and the level of its lane nothing more.
    through = {"section": "bound", "makespan_ns": 5, "argument": "through-node", "node": 2}
    assert after(lambda b: b.update(bound=through)) == ""
    assert "proves a bound of 5" in after(lambda b: b.update(bound={**through, "makespan_ns": 6}))
    level = {"section": "levels", "head": [[3, 1, 0, 4]]}
    assert "too little work on lane 1" in after(lambda b: b.update(bound=through, levels=level))


def check_malformed(program):
    """Cut, empty and senseless files are refused in words."""
    block = random_blocks(program, 1, 1, 8)[0]
    lines = lines_of(block)
    broken = [
        [],
        ["{}"],
        lines[:1],
        lines[:3],
        [line[:-2] for line in lines],
        [*lines, lines[1]],
        [lines[0], "[]"],
        [lines[0], "3"],
        lines + lines[2:3],
    ]
    broken += [[*lines[:index], *lines[index + 1 :]] for index in range(1, len(lines))]
    optional = {"charges", "levels", "merging"}
    for index, text in enumerate(broken):
        try:
            results = checker.verify(text)
        except Invalid:
            continue
        missing = set(block) - {json.loads(line).get("section") for line in text[1:]}
        assert not results or missing & optional, f"malformed file {index} was accepted"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random", required=True, help="the program RandomCertificates")
    parser.add_argument("--comm-opt", required=True)
    parser.add_argument("--graphs", required=True, type=pathlib.Path)
    parser.add_argument("--count", type=int, default=200, help="random problems")
    parser.add_argument("--mutations", type=int, default=1500)
    arguments = parser.parse_args()
    check_independence()
    check_hand_made()
    check_malformed(arguments.random)
    check_random(arguments.random, arguments.count)
    check_mutations(arguments.random, arguments.mutations)
    check_graphs(arguments.comm_opt, arguments.graphs, 4)


if __name__ == "__main__":
    main()
