#===- multi_stream_oracle.py - comm-multi-stream against its rule, word for word -----------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#
#
# Makes random programs of computations, hybrids, collectives and views, runs the pass on them, and compares the stream
# and the predicted times of each operation and the sums with the rule of MultiStreamSchedulePass. What a node
# depends on through views and waits counts as its own input. The pass runs without its gate, which shows the makespan of
# every plan, and with it: then a plan is carried out if the rule applies it and it is faster than the input. In the written
# programs, operations wait for their inputs, as the rule's tokens say, and for nothing else. Without a cost model, costs are
# those of the rule.
#
#   multi_stream_oracle.py COMM-OPT FOLDER COUNT
#
#===---------------------------------------------------------------------------------------------------------------===#

import json
import math
import os
import random
import re
import subprocess
import sys

US = 1000
RESOURCES = {"compute": ["compute"], "comm": ["comm"], "hybrid": ["compute", "comm"]}
SETTINGS = [([0], [1], 2), ([0, 2], [1], 1), ([0], [1, 3], 0), ([2, 0], [5, 1, 7], 3)]


class Program:
    """A random program: its text, and per scheduled line its policy, cost and inputs (lines too)."""

    def __init__(self, seed, first_line):
        rng = random.Random(seed)
        self.lines = ["comm.group @dp #comm.iota<[1, 4]>", "func.func @f(%x: tensor<4xf32>) {"]
        self.first_line, self.nodes = first_line, {}
        values = [("%x", frozenset())]
        futures = []
        for number in range(rng.randint(1, 22)):
            kind = rng.choice(["compute", "compute", "compute", "hybrid", "comm", "comm", "view"])
            # Few inputs, so that some things can run at once.
            inputs = [rng.choice(values) for _ in range(rng.choice([1, 1, 2]))]
            names, cost = ", ".join(name for name, _ in inputs), rng.randint(0, 12) * US
            types = ", ".join("tensor<4xf32>" for _ in inputs)
            attributes = f"comm.cost = #comm.cost<time = {cost}>"
            needs = frozenset().union(*(needed for _, needed in inputs))
            value = f"%v{number}"
            if kind == "view":
                name, needed = inputs[0]
                self.lines.append(f'{value} = comm.compute "view"({name}) aliases [0] : (tensor<4xf32>) -> tensor<4xf32>')
                values.append((value, needed))
            elif kind == "comm":
                self.node("comm", cost, inputs[0][1])
                self.lines.append(f"{value} = comm.all_reduce sum {inputs[0][0]} on @dp {{{attributes}}} : (tensor<4xf32>) "
                                  "-> !comm.future<tensor<4xf32>>")
                futures.append((value, self.line() - 1))
            else:
                self.node(kind, cost, needs)
                hybrid = "comm.hybrid = @dp, " if kind == "hybrid" else ""
                self.lines.append(f'{value} = comm.compute "op"({names}) {{{hybrid}{attributes}}} : ({types}) -> tensor<4xf32>')
                values.append((value, frozenset([self.line() - 1])))
            while futures and rng.random() < 0.6:
                self.wait(values, *futures.pop(0))
        while futures:
            self.wait(values, *futures.pop(0))
        self.lines += ["return", "}"]

    def line(self):
        """The number in the file of the line that comes next."""
        return self.first_line + len(self.lines)

    def node(self, policy, cost, inputs):
        self.nodes[self.line()] = (policy, max(US, cost), inputs)

    def wait(self, values, future, start):
        value = future + "w"
        self.lines.append(f"{value} = comm.wait {future} : !comm.future<tensor<4xf32>>")
        values.append((value, frozenset([start])))

    def schedule(self, compute, comm, sync):
        """The rule: per line (stream, start, end); the sum of all costs; the prediction."""
        users = {line: [other for other, node in self.nodes.items() if line in node[2]] for line in self.nodes}
        rank = {}
        for line in sorted(self.nodes, reverse=True):
            rank[line] = self.nodes[line][1] + max([0] + [rank[user] + sync for user in users[line]])
        stream_ready, resource_ready, placed = {}, {"compute": 0, "comm": 0}, {}
        for line in sorted(self.nodes, key=lambda line: (-rank[line], line)):
            policy, cost, inputs = self.nodes[line]
            best = None
            for stream in comm if policy == "comm" else compute:
                start = max([stream_ready.get(stream, 0)] + [resource_ready[name] for name in RESOURCES[policy]])
                for other in inputs:
                    start = max(start, placed[other][2] + (0 if placed[other][0] == stream else sync))
                if best is None or start + cost < best[2]:
                    best = (stream, start, start + cost)
            placed[line] = best
            stream_ready[best[0]] = best[2]
            for name in RESOURCES[policy]:
                resource_ready[name] = best[2]
        return placed, sum(cost for _, cost, _ in self.nodes.values()), max((end for _, _, end in placed.values()), default=0)


def check_events(program, placed, text):
    """Compares the text of a program on streams with the rule: operations have their streams, each input of an operation has
    ended when it begins, and no event is for anything else. Returns the number of events between operations."""
    lines = [line.strip() for line in text[text.index("func.func"):text.index("return")].splitlines()[1:]]
    known, sent = {}, {}  # By stream: the lines that have ended when its next operation begins, and its collectives.
    events, starts, number, between, ended_last = {}, {}, 0, 0, None
    for line in lines:
        found = re.match(r"(?:(%\w+) = )?comm\.(\w+) (.*)", line)
        if not found:
            continue
        result, kind, rest = found.groups()
        stream = int((re.search(r"comm\.stream = (\d+)", rest) or re.search(r" on (\d+)", " " + rest) or ["", "0"])[1])
        own = known.setdefault(stream, set())
        if kind == "record":
            events[result] = (own | sent.get(stream, set()), ended_last)  # An event covers the collectives of its stream.
        elif kind == "await_event":
            ended, recorded = events[rest.split()[0]]
            own |= ended
            # What comes next on the stream needs what was recorded, unless this is the beginning or the end of streams.
            users = [other for other in sorted(placed) if other >= program.first_line + 2 + number and placed[other][0] == stream]
            if recorded is not None and users:
                between += 1
                if recorded not in program.nodes[users[0]][2]:
                    sys.exit(f"line {users[0]} does not need {recorded}, whose event it awaits:\n{text}")
        else:
            where, number = program.first_line + 2 + number, number + 1
            ended_last = where
            if kind == "wait":
                ended_last, ended = starts[rest.split()[0]]
                own |= ended | {ended_last}
            elif where in program.nodes:
                missing = [other for other in program.nodes[where][2] if other not in own]
                if stream != placed[where][0] or missing:
                    sys.exit(f"line {where}: stream {stream}, expected {placed[where][0]}; not ended: {missing}\n{text}")
                if program.nodes[where][0] == "comm":
                    starts[result] = (where, set(own))
                    sent.setdefault(stream, set()).add(where)
                else:
                    own.add(where)
    return between


def remarks(text):
    """(line, name, numbers) of each remark."""
    for line, name, fields in re.findall(r":(\d+):\d+: remark: \[\w+\] (\w+) \| (.*)", text):
        yield int(line), name, {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", fields)}


def run(tool, path, out, options):
    """By line: the numbers of the remark on the block, and (stream, start, end) of the operation."""
    done = subprocess.run([tool, "--split-input-file", path, f"--comm-multi-stream={options}",
                           "--remarks-filter=comm-multi-stream", "-o", out], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    blocks, placed = {}, {}
    for line, name, numbers in remarks(done.stderr):
        if name == "placed":
            placed[line] = (numbers["Stream"], numbers["StartNs"], numbers["EndNs"])
        else:
            blocks[line] = numbers
    return blocks, placed


def check_costs(tool, folder, count):
    """The rule's costs without a model: the bytes of the result over the bandwidth of the role, the longer of both for hybrids,
    and at least MIN_COST_S. Runs `count` operations of each role. The bandwidths are those of the profile's file."""
    with open(os.path.join(os.path.dirname(__file__), "../../../machines/h100-sxm.json")) as file:
        machine = json.load(file)
    rates = {"compute": machine["memory"]["bandwidth_gbps"] * machine["memory"]["efficiency_permille"] / 1000,
             "comm": min(machine["links"][link]["bandwidth_gbps"] for link in ("intra", "inter"))}  # bytes per ns
    rng, expected = random.Random(1), {}
    lines = ["comm.group @dp #comm.iota<[1, 8]>", "func.func @f(%x: tensor<4xf32>) {"]
    for number in range(count):
        elements = rng.choice([rng.randint(1, 1 << 10), rng.randint(1, 1 << 20), rng.randint(1, 1 << 26)])
        each, value = f"tensor<{elements}xf32>", f"%v{number}"
        for policy, line in (("compute", f'{value} = comm.compute "op"(%x) : (tensor<4xf32>) -> {each}'),
                             ("hybrid", f'{value}h = comm.compute "op"(%x) {{comm.hybrid = @dp}} : (tensor<4xf32>) -> {each}'),
                             ("comm", f"{value}s = comm.all_reduce sum {value} on @dp : ({each}) -> !comm.future<{each}>")):
            lines.append(line)
            expected[len(lines)] = max([US] + [math.ceil(4 * elements / rates[name]) for name in RESOURCES[policy]])
        lines.append(f"{value}w = comm.wait {value}s : !comm.future<{each}>")
    path, out = os.path.join(folder, "costs.mlir"), os.path.join(folder, "costs.out.mlir")
    with open(path, "w") as file:
        file.write("\n".join([*lines, "return", "}"]))
    _, placed = run(tool, path, out, "machine=h100-sxm analytic-costs=false")
    for line, cost in expected.items():
        if placed[line][2] - placed[line][1] != cost:
            sys.exit(f"{path}:{line}: expected {cost} ns, got {placed[line]}")


def main():
    tool, folder, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    os.makedirs(folder, exist_ok=True)
    check_costs(tool, folder, 100)
    applied = kept = slower = events = 0
    for number, (compute, comm, sync) in enumerate(SETTINGS):
        programs, lines = [], []
        for seed in range(number, count, len(SETTINGS)):
            programs.append(Program(seed, len(lines) + 1))
            lines += programs[-1].lines + ["// -----"]
        path, out = os.path.join(folder, f"{number}.mlir"), os.path.join(folder, f"{number}.out.mlir")
        with open(path, "w") as file:
            file.write("\n".join(lines))
        options = (f"compute-streams={','.join(map(str, compute))} comm-streams={','.join(map(str, comm))} "
                   f"sync-overhead-ns={sync * US} issue-order=graph memory-budget-ratio=1e6")  # the rule knows no limit on memory
        free, _ = run(tool, path, out, options + " gate=false")
        with open(out) as file:
            written = file.read().split("// -----")
        decisions, found = run(tool, path, out, options)
        for program, text in zip(programs, written, strict=False):
            if len(compute) == 1 and all(policy == "compute" for policy, _, _ in program.nodes.values()):
                continue  # the pass leaves blocks out in which nothing can be on another stream
            placed, serial, predicted = program.schedule(compute, comm, sync * US)
            for line, expected in placed.items():
                if found.get(line) != expected:
                    sys.exit(f"{path}:{line}: expected {expected}, got {found.get(line)}\n" + "\n".join(program.lines))
            where = program.first_line + 1
            events += check_events(program, placed, text)
            fits = all(stream == 0 for stream, _, _ in placed.values())
            expected = None
            if not fits:
                if (free[where]["SerialNs"], free[where]["PredictedNs"]) != (serial, predicted):
                    sys.exit(f"{path}:{where}: expected {serial} and {predicted}, got {free[where]}")
                if predicted < serial and free[where]["MakespanNsAfter"] < free[where]["MakespanNsBefore"]:
                    expected = free[where]["MakespanNsAfter"]
                slower += predicted < serial and expected is None
            applied += expected is not None
            kept += expected is None
            if decisions[where].get("MakespanNsAfter") != expected:
                sys.exit(f"{path}:{where}: expected {expected or 'the block to stay as it is'}, got {decisions[where]}")
        verified = subprocess.run([tool, "--split-input-file", out, "--comm-verify", "-o", os.devnull])
        if verified.returncode:
            sys.exit("a dependence has no event")
    print(f"{events} events, {applied} on several streams, {kept} kept, of these {slower} not faster than the input: as the rule says")


if __name__ == "__main__":
    main()
