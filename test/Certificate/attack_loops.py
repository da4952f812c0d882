#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Attacks the part of commsched-verify that proves the interval of a loop.

The truth is written down once more here: the load of each lane as a sum, and the recurrences as the largest quotient of
all simple cycles, which are enumerated. Small random bodies with the right numbers are accepted. Each falsehood of a
list is refused for what it is, and what is still accepted of many random mutations is true. The same falsehoods are
told of the certificates that comm-opt writes of random loops and of the example of Loops.md.

To show that the attack finds faults, it runs once more against copies of the checker with one planted fault each.

  attack_loops.py --comm-opt PROGRAM [--bodies 200] [--programs 12] [--mutations 4000] [--only-attack]
"""

import argparse
import collections
import copy
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

from attack_bounds import plant  # which puts the folder of the checker in front of all others
from check_certificates import Simulation, mutate, refusal, table, without

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "Run"))
from commsched_verify.core import Invalid, verify
from loop_programs import LoopProgram

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Text of loops.py and its replacement, by which something is believed.
FAULTS = (
    ('require(edge in edges, f"the cycle', 'require(True, f"the cycle'),
    ('require(edge[0] == after, f"the cycle', 'require(True, f"the cycle'),
    ("needs == self.recurrence,", "needs >= self.recurrence - 1,"),
    ('require(self.fits(self.recurrence), f"', 'require(True, f"'),
    ('require(most == self.load, f"', 'require(most >= self.load, f"'),
    ('require(loads.get((lane, resource)) == most, f"', 'require(True, f"'),
    ("self.bound == max(self.load, self.recurrence)", "self.bound <= max(self.load, self.recurrence)"),
    ("time is None or self.bound <= time", "True"),
    ('require(iterations > 0 or before < after, f"', 'require(True, f"'),
    ('require((pred, node, 0) in edges, f"', 'require(True, f"'),
    ('require(not lacks, f"', 'require(True, f"'),
    ('require(bool(merged) or not more, f"', 'require(True, f"'),
    ('require(not wrong, f"', 'require(True, f"'),
    ('require(counts, f"', 'require(True, f"'),
    ('require(well_formed, "', 'require(True, "'),
)
# More iterations than any dependence of a made body leads.
FAR = 7
# The random program whose loop does other work as a pipeline, so that its certificate has no bound on an iteration.
OTHER_WORK = 67
# A loop over layers of two parameters each, whose gathers are merged with the casts in front of them.
MERGED = """
comm.group @dp #comm.iota<[1, 64]>
func.func @merged(%first: tensor<16x64x512xf32>, %second: tensor<16x64x512xf32>, %x: tensor<64xf32>) -> tensor<64xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %y = scf.for %i = %c0 to %c16 step %c1 iter_args(%h = %x) -> (tensor<64xf32>) {
    %a = tensor.extract_slice %first[%i, 0, 0] [1, 64, 512] [1, 1, 1] : tensor<16x64x512xf32> to tensor<64x512xf32>
    %b = tensor.extract_slice %second[%i, 0, 0] [1, 64, 512] [1, 1, 1] : tensor<16x64x512xf32> to tensor<64x512xf32>
    %s = arith.truncf %a : tensor<64x512xf32> to tensor<64x512xbf16>
    %t = arith.truncf %b : tensor<64x512xf32> to tensor<64x512xbf16>
    %f = comm.all_gather %s on @dp : (tensor<64x512xbf16>) -> !comm.future<tensor<4096x512xbf16>>
    %w = comm.wait %f : !comm.future<tensor<4096x512xbf16>>
    %g = comm.all_gather %t on @dp : (tensor<64x512xbf16>) -> !comm.future<tensor<4096x512xbf16>>
    %v = comm.wait %g : !comm.future<tensor<4096x512xbf16>>
    %n = comm.compute "layer"(%h, %w, %v) {comm.cost = #comm.cost<time = 30000>} :
      (tensor<64xf32>, tensor<4096x512xbf16>, tensor<4096x512xbf16>) -> tensor<64xf32>
    scf.yield %n : tensor<64xf32>
  }
  return %y : tensor<64xf32>
}
"""


def simple_cycles(size, edges):
    """All simple cycles, each as a list of edges, from its smallest node on."""
    found = []

    def follow(first, path, seen):
        for edge in edges:
            if edge[0] == (path[-1][1] if path else first):
                if edge[1] == first:
                    found.append([*path, edge])
                elif edge[1] > first and edge[1] not in seen:
                    follow(first, [*path, edge], seen | {edge[1]})

    for first in range(size):
        follow(first, [], {first})
    return found


class Truth:
    """What is true of the body of a loop in which nothing may be merged and nothing shares resources."""

    def __init__(self, problem, edges):
        self.cost, self.starts, self.size = (problem["cost_ns"], set(problem["starts"]), len(problem["cost_ns"]))
        self.issue = {node: values[-1] for node, values in table(problem, "issue_ns").items()}
        self.awaits, lanes = table(problem, "awaits"), table(problem, "on_lanes")
        self.loads = [0] * len(problem["lanes"])
        for node in range(self.size):
            self.loads[0] += self.issue.get(node, 0) if node in self.starts else self.cost[node]
            for lane in lanes.get(node, []):
                self.loads[lane] += self.cost[node]
        self.cycles = [(self.needs(cycle), cycle) for cycle in simple_cycles(self.size, edges)]

    def time(self, edge):
        before, after, iterations = edge
        if before not in self.starts:
            return self.cost[before]
        issue = self.issue.get(before, 0)
        return max(issue, self.cost[before]) if iterations == 0 and before in self.awaits.get(after, []) else issue

    def needs(self, cycle):
        time, iterations = sum(map(self.time, cycle)), sum(edge[2] for edge in cycle)
        return (time + iterations - 1) // iterations

    @property
    def recurrence(self):
        return max((needs for needs, _ in self.cycles), default=0)

    def lie(self, loop, makespan):
        """Which number of a loop is false; None if all are true."""
        load, recurrence = max(self.loads), self.recurrence
        if [loop["load_ns"], loop["recurrence_ns"], loop["bound_ns"]] != [load, recurrence, max(load, recurrence)]:
            return f"the load is {load} ns and the recurrences need {recurrence}"
        if max(load, recurrence) > makespan:
            return f"an iteration is claimed to take {makespan} ns"
        return None if self.loads[loop.get("lane", 0)] == load else f"the loads are {self.loads}"


def draw_body(draw):
    """The numbers of a random body of up to six operations, and its dependences with their distances."""
    size, lanes = draw.randint(1, 6), draw.randint(1, 2)
    cost, starts, on_lanes, awaits, issue, edges = [], [], [], [], [], set()
    for node in range(size):
        kind = draw.choice(["compute", "start", "wait"])
        unawaited = [start for start in starts if start not in awaits[1::2]]
        cost.append(0 if kind == "wait" and unawaited else draw.randint(0, 9))
        if kind == "start":
            starts.append(node)
            on_lanes += [node, draw.randint(1, lanes)]
            issue += [node, draw.randint(0, 3)]
        elif kind == "wait" and unawaited:
            awaits += [node, draw.choice(unawaited)]
            edges.add((awaits[-1], node, 0))
        edges |= {(before, node, 0) for before in range(node) if draw.random() < 0.3}
    for _ in range(draw.randint(0, 4)):
        edges.add((draw.randrange(size), draw.randrange(size), draw.randint(1, 3)))
    problem = {
        "lanes": ["compute", "@a", "@b"][: lanes + 1],
        "cost_ns": cost,
        "starts": starts,
        "on_lanes": on_lanes,
        "awaits": awaits,
        "issue_ns": issue,
        "edges": [[node - start for start in table({"": awaits}, "").get(node, [])] for node in range(size)],
        "buffers": [],
    }
    return problem, sorted(edges, key=lambda edge: (edge[1], edge[2], edge[0]))


def makespan_of(block):
    return Simulation(block).makespan(block["answer"]["events"])


def block_of(draw, problem, edges):
    """A block that is the body of a loop. A lane that is busy makes it as long as an iteration has to be."""
    truth = Truth(problem, edges)
    bound = max(*truth.loads, truth.recurrence)
    needing = [cycle for needs, cycle in truth.cycles if needs == truth.recurrence > 0]
    loop = {
        "problem": problem,
        "edges": [list(edge) for edge in edges],
        "lane": truth.loads.index(max(truth.loads)),
        "cycle": [list(edge) for edge in draw.choice(needing)] if needing else [],
        "merged": [],
        "load_ns": max(truth.loads),
        "recurrence_ns": truth.recurrence,
        "bound_ns": bound,
    }
    kernel = copy.deepcopy(problem)
    kernel["busy_until_ns"] = [1, bound + draw.randint(0, 2)]
    block = {
        "name": "body",
        "problem": kernel,
        "answer": {"buckets": [], "events": list(range(truth.size))},
        "claims": {"makespan_ns": 0, "peak_bytes": 0, "bound_ns": 0},
        "bound": {"argument": "one-machine", "lane": 0, "head_ns": 0, "tail_ns": 0},
    }
    block["claims"]["makespan_ns"] = makespan_of(block)
    return {**block, "loop": loop}


def changed(block, change):
    """The block with another loop; None if the change changes nothing."""
    false = copy.deepcopy(block)
    try:
        change(false["loop"])
    except (IndexError, KeyError, StopIteration, ValueError):
        return None
    return false if false != block else None


def working(loop, lane):
    """A node that works on a lane and was not merged. The times of what was merged are believed."""
    problem = loop["problem"]
    lanes = table(problem, "on_lanes")
    is_on = [lane in lanes.get(node, []) or lane == 0 and node not in lanes for node in range(len(problem["cost_ns"]))]
    return next(n for n, cost in enumerate(problem["cost_ns"]) if cost and is_on[n] and n not in loop["merged"])


def carried(rows):
    return next(row for row in rows if row[2])


def add(row, place, number):
    row[place] += number


def leave_out_work(loop):
    lane = loop["lane"]
    less = loop["problem"]["cost_ns"][working(loop, lane)]
    loop["load_ns"] -= less
    loop["bound_ns"] = max(loop["load_ns"], loop["recurrence_ns"])


def raise_bound(loop, number):
    loop["recurrence_ns"] += number
    loop["bound_ns"] = max(loop["load_ns"], loop["recurrence_ns"])


def make_zero(loop):
    """A distance of the cycle becomes 0, of which the list knows nothing."""
    edge = next(row for row in loop["cycle"] if row[2] and [*row[:2], 0] not in loop["edges"])
    edge[2] = 0


def make_backward(loop):
    """A dependence of one iteration on a later operation, in the list and in the cycle."""
    edge = next(row for row in loop["cycle"] if row[2] and row[0] >= row[1])
    loop["edges"] = [[*row[:2], 0] if row == edge else row for row in loop["edges"]]
    loop["cycle"] = [[*row[:2], 0] if row == edge else row for row in loop["cycle"]]


def drop_cycle(loop):
    """Nothing but the load, as if no cycle needed time."""
    loop["cycle"].clear()
    loop.update(recurrence_ns=0, bound_ns=loop["load_ns"])


def lighter(loop):
    """Less work than the block does."""
    node = working(loop, 0)
    loop["problem"]["cost_ns"][node] -= 1


def repaired(loop):
    """The numbers of the body as it is now. Only of bodies in which nothing may be merged."""
    if loop["problem"].get("keys") or loop["problem"].get("demands"):
        raise ValueError
    truth = Truth(loop["problem"], loop["edges"])
    cycle = next((cycle for needs, cycle in truth.cycles if needs == truth.recurrence > 0), [])
    loop.update(lane=truth.loads.index(max(truth.loads)), load_ns=max(truth.loads), recurrence_ns=truth.recurrence)
    loop.update(cycle=cycle, bound_ns=max(*truth.loads, truth.recurrence))


def add_operation(loop):
    loop["problem"]["cost_ns"].append(1)
    loop["problem"]["edges"].append([])
    repaired(loop)


def computation(loop):
    return next(n for n, cost in enumerate(loop["problem"]["cost_ns"]) if cost and n not in loop["problem"]["starts"])


def drop_operation(loop):
    """A computation without work, as if it were a view."""
    loop["problem"]["cost_ns"][computation(loop)] = 0
    repaired(loop)


def merge_longer(loop):
    """A computation that takes longer than that of the block, which is said to be merged."""
    node = computation(loop)
    loop["problem"]["cost_ns"][node] += 1
    loop["merged"].append(node)
    repaired(loop)


# What is told, how, and a part of the reason for which it is refused; any reason will do if that is empty.
FALSEHOODS = {
    "the cycle has an edge that is not there": (
        lambda loop: loop["cycle"].__setitem__(0, [*loop["cycle"][0][:2], 9]),
        "no dependence",
    ),
    "an edge of the cycle is not listed": (lambda loop: loop["edges"].remove(loop["cycle"][0]), ""),
    "the cycle is not closed": (lambda loop: len(loop["cycle"]) > 1 and loop["cycle"].pop(), ""),
    "a distance of the cycle is larger": (lambda loop: add(carried(loop["cycle"]), 2, FAR), ""),
    "a distance of the list is larger": (
        lambda loop: add(carried(e for e in loop["edges"] if e in loop["cycle"]), 2, FAR),
        "",
    ),
    "a distance of the cycle is 0": (make_zero, ""),
    "a distance is 0": (make_backward, "depends on a later one"),
    "the cycle is left out": (drop_cycle, "a cycle of the loop needs more"),
    "work is left out of the load": (leave_out_work, "the most work of an iteration is"),
    "the load is too large": (
        lambda loop: loop.update(load_ns=loop["load_ns"] + 1),
        "the most work of an iteration is",
    ),
    "the recurrence is one too large": (lambda loop: raise_bound(loop, 1), "per iteration, not"),
    "the recurrence is one too small": (lambda loop: loop["recurrence_ns"] and raise_bound(loop, -1), ""),
    "the bound is one too large": (lambda loop: add_to(loop, "bound_ns", 1), "not the larger of its two"),
    "the bound is one too small": (lambda loop: add_to(loop, "bound_ns", -1), ""),
    "another lane has the most work": (
        lambda loop: loop.update(lane=len(loop["problem"]["lanes"])),
        "does not have the most work",
    ),
    "a resource has it": (lambda loop: loop.update(resource=loop.pop("lane")), "does not have the most work"),
    "an operation takes less": (lighter, ""),
    "an operation takes more": (lambda loop: add(loop["problem"]["cost_ns"], working(loop, 0), 1), ""),
    "an operation is not in the block": (add_operation, ""),
    "a longer computation was merged": (merge_longer, ""),
    "an operation has no work": (drop_operation, ""),
    "a computation was merged": (lambda loop: loop["merged"].append(working(loop, 0)), ""),
    "what was merged is left out": (lambda loop: loop["merged"].pop(), ""),
    "what was merged comes twice": (lambda loop: loop["merged"].append(loop["merged"][-1]), "not in the order"),
    "lanes have other names": (lambda loop: loop["problem"]["lanes"].__setitem__(0, "other"), "other lanes"),
    "an edge is listed twice": (lambda loop: loop["edges"].append(loop["edges"][0]), "listed twice"),
    "a wait does not depend on its start": (
        lambda loop: loop["edges"].remove([loop["problem"]["awaits"][1], loop["problem"]["awaits"][0], 0]),
        "",
    ),
    "an edge is of a node that is not there": (lambda loop: loop["edges"].append([0, 1 << 20, 1]), "not there"),
    "an unknown field": (lambda loop: loop.update(colour=1), "unexpected keyword"),
}


def add_to(loop, name, number):
    loop[name] += number


def falsehoods(block):
    """False blocks, each with what was told and a part of the reason."""
    for what, (change, reason) in FALSEHOODS.items():
        if false := changed(block, change):
            yield what, false, reason
    for name in block["loop"]:
        if name not in ("lane", "resource"):
            yield ("a field is missing", changed(block, lambda loop, name=name: loop.pop(name)), "missing 1 required")
        for wrong in ("1", None, {}, 1.5, -1, True, [["0", 0, 0]], [[0, 0]], [0, 0, 1], [{}]):
            if name == "problem" and type(wrong) is dict:
                continue
            yield (
                "a field is of another type",
                changed(block, lambda loop, name=name, wrong=wrong: loop.update({name: wrong})),
                "",
            )


def tell(block, told):
    """Tells all falsehoods of a block; returns the first that is accepted or refused for something else."""
    for what, false, reason in falsehoods(block):
        why = refusal(false)
        if why is None or reason not in why:
            return f"{what}: {why}: {json.dumps(false)}"
        told[what] += 1
    return None


def tell_too_short(draw, told):
    """A gather, its wait and a computation that the next gather needs: they take 9 + 5 ns, in any pipeline."""
    problem = {"lanes": ["compute", "@a"], "cost_ns": [9, 0, 5], "starts": [0], "on_lanes": [0, 1], "awaits": [1, 0]}
    problem |= {"edges": [[], [1], []], "buffers": []}
    block = block_of(draw, problem, [(0, 1, 0), (1, 2, 0), (2, 0, 1)])
    assert block["loop"]["bound_ns"] == 14 and refusal(block) is None
    # The block forgets what the computation waits for, and is played with it beside the gather.
    del block["problem"]["busy_until_ns"]
    block["answer"]["events"] = [0, 2, 1]
    block["claims"]["makespan_ns"] = makespan_of(block)
    why = refusal(block)
    told["an iteration is shorter than its bound"] += 1
    return None if why and "less than its bound" in why else f"an iteration is shorter than its bound: {why}"


def attack_made(seed, bodies, mutations, told):
    """The first falsehood about made bodies that is accepted, or a truth that is not."""
    draw, blocks, accepted = random.Random(seed), [], 0
    if fault := tell_too_short(draw, told):
        return fault
    for _ in range(bodies):
        block = block_of(draw, *draw_body(draw))
        if why := refusal(block):
            return f"a true certificate is refused: {why}: {json.dumps(block)}"
        if fault := tell(block, told):
            return fault
        blocks.append(block)
    for number in range(mutations):
        block = blocks[number % len(blocks)]
        mutant = {**block, "loop": mutate(block["loop"], draw)}
        if refusal(mutant) is None:
            accepted += 1
            loop = mutant["loop"]
            lie = Truth(loop["problem"], loop["edges"]).lie(loop, block["claims"]["makespan_ns"])
            if lie or loop["problem"]["cost_ns"] != block["loop"]["problem"]["cost_ns"]:
                return f"a mutation is accepted, but {lie}: {json.dumps(mutant)}"
    print(f"{bodies} made bodies are accepted, and {accepted} of {mutations} mutations, which are true")
    return None


def written_certificates(comm_opt, programs):
    """The lines of certificates that comm-opt writes, each with the name of the program. Every loop has a bound, but
    that of one program, and comm-opt says which one has none."""
    sources = {"layer_loop": ((ROOT / "docs" / "examples" / "layer_loop.mlir").read_text(), "memory-budget-ratio=1")}
    sources["merged"] = MERGED, "memory-budget-ratio=9"
    for seed in [*range(programs), OTHER_WORK]:
        bucketing = "" if seed % 2 else " bucketing=false"
        sources[f"loops {seed}"] = (LoopProgram(seed, 2).module(), f"memory-budget-ratio=9 effort=200{bucketing}")
    with tempfile.TemporaryDirectory() as name:
        program, certificate = (pathlib.Path(name) / "program.mlir", pathlib.Path(name) / "program.cert")
        for source, (text, options) in sources.items():
            program.write_text(text)
            flags = [f"--reorder-comm-overlap=loops=pipeline {options}", f"--comm-certificate={certificate}"]
            flags.append("--remarks-filter=comm-schedule")
            command = [comm_opt, program, *flags, "-o", os.devnull]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            lacks = "no bound on an iteration in the certificate: the body does other work" in done.stderr
            if lacks != (source == f"loops {OTHER_WORK}"):
                raise SystemExit(f"{source}: {'no' if lacks else 'a'} bound on an iteration in the certificate")
            yield source, certificate.read_text().splitlines()


def false_counts(lines):
    """Certificates of which a block around a loop counts it wrongly."""
    blocks = [json.loads(line) for line in lines[1:]]
    for number, block in enumerate(blocks):
        for row in range(len(block.get("loops", ()))):
            for place, wrong in ((0, 1 << 20), (1, block["loops"][row][1] + 1), (2, "nowhere"), (1, "1"), (2, 7)):
                false = copy.deepcopy(blocks)
                false[number]["loops"][row][place] = wrong
                if block["problem"]["cost_ns"][block["loops"][row][0]] or place != 1 or type(wrong) is str:
                    yield [lines[0], *map(json.dumps, false)]


def attack_written(comm_opt, programs, told):
    """The first falsehood about what comm-opt wrote that is accepted, or a truth that is not."""
    seen = collections.Counter()
    for source, lines in written_certificates(comm_opt, programs):
        if len(lines) == 1:
            continue  # a program without collectives
        try:
            assert verify(lines).startswith("valid;")
            with without("loops"):
                assert "NOT CHECKED: what is said of loops" in verify(lines) or '"loop' not in "".join(lines)
        except Invalid as error:
            return f"the certificate of {source} is refused: {error}"
        for false in false_counts(lines):
            try:
                verify(false)
                return f"{source}: a loop counts wrongly: {json.dumps(false)}"
            except Invalid:
                told["a loop counts wrongly"] += 1
        for block in map(json.loads, lines[1:]):
            seen["blocks"] += 1
            seen["loops that are counted"] += len(block.get("loops", ()))
            block.pop("loops", None)
            if "loop" not in block:
                continue
            seen["bodies"] += 1
            seen["bodies with a cycle"] += bool(block["loop"]["cycle"])
            seen["bodies with merged collectives"] += bool(block["loop"]["merged"])
            seen["bodies that the recurrence bounds"] += block["loop"]["recurrence_ns"] > block["loop"]["load_ns"]
            if fault := tell(block, told):
                return f"{source}: {fault}"
    print(f"comm-opt wrote {dict(seen)}")
    assert seen["bodies with merged collectives"] > 0
    assert programs < 12 or min(seen["loops that are counted"], seen["bodies with a cycle"]) > programs // 4, seen
    return None


def find_planted(arguments):
    """Every planted fault lets a falsehood pass."""
    for text, replacement in FAULTS:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            plant("loops", text, replacement, folder)
            command = [sys.executable, "-B", __file__, "--comm-opt", arguments.comm_opt]
            environment = dict(os.environ, COMMSCHED_VERIFY_FOLDER=str(folder))
            flags = ["--only-attack", "--bodies", "60", "--programs", "1", "--mutations", "400"]
            done = subprocess.run([*command, *flags], env=environment, capture_output=True, text=True)
            found = done.returncode == 1 and "ACCEPTED" in done.stdout
            assert found, f"not found: {text}\n{done.stdout}{done.stderr}"
            print(f"planted: {text}: {done.stdout[done.stdout.index('ACCEPTED') :][:100]}...")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--comm-opt", required=True)
    parser.add_argument("--bodies", type=int, default=200)
    parser.add_argument("--programs", type=int, default=12)
    parser.add_argument("--mutations", type=int, default=4000)
    parser.add_argument("--only-attack", action="store_true", help="plant no faults")
    arguments = parser.parse_args()
    told = collections.Counter()
    fault = attack_made(5, arguments.bodies, arguments.mutations, told) or attack_written(
        arguments.comm_opt, arguments.programs, told
    )
    if fault:
        print(f"ACCEPTED: {fault}")
        return 1
    print(f"falsehoods that were refused: {dict(told)}")
    if not arguments.only_attack:
        missing = {*FALSEHOODS, "an iteration is shorter than its bound", "a loop counts wrongly"} - told.keys()
        assert not missing, f"not told: {missing}"
        find_planted(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
