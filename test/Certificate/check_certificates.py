#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Checks that commsched-verify accepts what is true and refuses what is not.

Certificates of random problems and of the repository's graphs are valid. Each mutation changes one number. What the
checker still accepts has to be true: for small problems all orders are played here, by rules that are written down a
third time, and the claims are compared with the best of them. The same holds for what is left of the checker without
one of its modules, or with the core alone.
"""

import argparse
import ast
import contextlib
import copy
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
import commsched_verify
from commsched_verify import accesses
from commsched_verify.core import Invalid, Problem, verify

HEADER = json.dumps(
    {"format": "commsched-certificate", "version": 3, "blocks": 1, "input_sha256": "", "output_sha256": ""}
)
FOLDER = pathlib.Path(commsched_verify.__file__).parent
MOST_ORDERS = 3000
WHOLE = 1_000_000


def lines_of(block):
    return [HEADER, json.dumps(block)]


def refusal(block):
    """Why the checker refuses a block, or None."""
    try:
        verify(lines_of(block))
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


def table(section, name):
    """The values of the pairs of an index and a value, by index."""
    rows, flat = {}, section.get(name, [])
    for index, value in zip(flat[::2], flat[1::2]):
        rows.setdefault(index, []).append(value)
    return rows


def share(demands):
    """The rates of activities with such demands, found by rounds: who needs no more than a fair share gets it."""
    rates = [WHOLE] * len(demands)
    for resource in range(5):
        hungry = [at for at, row in enumerate(demands) if row and row[2 * resource]]
        left = WHOLE
        while hungry:
            weights = sum(demands[at][2 * resource + 1] for at in hungry)
            served = [
                at for at in hungry if demands[at][2 * resource] * weights <= left * demands[at][2 * resource + 1]
            ]
            if not served:
                for at in hungry:
                    rate = WHOLE * left * demands[at][2 * resource + 1] // (weights * demands[at][2 * resource])
                    rates[at] = max(1, min(rates[at], rate))
                break
            left -= sum(demands[at][2 * resource] for at in served)
            hungry = [at for at in hungry if at not in served]
    return rates


class Simulation:
    """All orders of a small block, played by the rules of Models.md."""

    def __init__(self, block, chosen=()):
        self.problem = problem = block["problem"]
        self.limit = block["claims"].get("limit_bytes")
        self.cost, self.starts, self.size = problem["cost_ns"], problem["starts"], len(problem["cost_ns"])
        self.lanes, self.awaits = table(problem, "on_lanes"), table(problem, "awaits")
        self.issue, self.ready, self.workspace, self.busy, self.demand = (
            {index: values[-1] for index, values in table(problem, name).items()}
            for name in ("issue_ns", "ready_ns", "workspace_bytes", "busy_until_ns", "demand")
        )
        self.cost = list(self.cost)
        for node, cost, demand in chosen:
            self.cost[node], self.demand[node] = cost, demand
        self.needs = [
            {node - distance for distance in row} | set(self.awaits.get(node, []))
            for node, row in enumerate(problem["edges"])
        ]

    def makespan(self, order):
        """Advances from one end of an activity to the next one."""
        now, queues = 0, {lane: [] for lane in range(len(self.problem["lanes"]))}
        running = dict.fromkeys(range(self.size), None)

        def put(lane, cost, node=None):
            number = self.demand.get(node, 0)
            work = {"left": cost * WHOLE, "needs": self.problem["demands"][number - 1] if number else [], "lane": lane}
            queues[lane].append(work)
            clear()
            return work

        def clear():
            for queue in queues.values():
                while queue and queue[0]["left"] <= 0:
                    queue.pop(0)["lane"] = None

        def wait(work):
            nonlocal now
            while work["lane"] is not None:
                heads = [queue[0] for queue in queues.values() if queue]
                rates = share([head["needs"] for head in heads])
                step = min((head["left"] + rate - 1) // rate for head, rate in zip(heads, rates))
                now += step
                for head, rate in zip(heads, rates):
                    head["left"] -= step * rate
                clear()

        for lane, until in self.busy.items():
            put(lane, until)
        wait(put(0, 0))
        for node in order:
            if node in self.starts:
                running[node] = put(self.lanes[node][0], self.cost[node], node)
                wait(put(0, self.issue.get(node, 0)))
                continue
            for lane in self.lanes.get(node, []):
                wait(put(lane, 0))
            for start in self.awaits.get(node, []):
                wait(running[start])
            wait(put(0, max(0, self.ready.get(node, 0) - now)))
            wait(put(0, self.cost[node], node))
        for lane in queues:
            wait(put(lane, 0))
        return now

    def peak(self, order):
        at, most = {node: index for index, node in enumerate(order)}, 0
        for index, node in enumerate(order):
            live = self.workspace.get(node, 0)
            for buffer, (size, *users) in enumerate(self.problem["buffers"]):
                used = [at[user] for user in users]
                begun = used and (min(used) <= index or buffer in self.problem.get("live_in", []))
                if begun and (max(used) >= index or buffer in self.problem.get("live_out", [])):
                    live += size
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
    makespan = Simulation(block, block["answer"].get("chosen", [])).makespan(order)
    if (makespan, simulation.peak(order)) != (claims["makespan_ns"], claims["peak_bytes"]):
        return f"the claims {claims} are wrong: {makespan}, {simulation.peak(order)}"
    if any(not simulation.needs[node] <= set(order[:place]) for place, node in enumerate(order)):
        return f"the order {order} breaks a dependence"
    orders = list(simulation.orders())
    if len(orders) > MOST_ORDERS:
        return "unknown"
    fits = [o for o in orders if simulation.limit is None or simulation.peak(o) <= simulation.limit]
    best, bound = min(map(simulation.makespan, fits)), claims["bound_ns"]
    return None if bound <= best else f"the bound {bound} is above the optimum {best}"


@contextlib.contextmanager
def without(*names):
    """Hides modules of the checker."""
    whole = Problem.extension

    def extension(problem, name, what):
        if name not in names:
            return whole(problem, name, what)
        problem.unchecked.append(what)
        return None

    Problem.extension = extension
    try:
        yield
    finally:
        Problem.extension = whole


def lie_of_part(block, said):
    """Why what is said to be proven of an unmerged block is not true, None if it is, or "unknown"."""
    simulation, answer = Simulation(block), block["answer"]
    chosen = Simulation(block, answer.get("chosen", []))
    makespan, peak, bound = (re.search(what, said) for what in (r"span is (\d+)", r"peak (\d+)", r"than (\d+) ns"))
    if makespan and int(makespan[1]) != chosen.makespan(answer["events"]):
        return f"the makespan is not {makespan[1]}"
    if int(peak[1]) != simulation.peak(answer["events"]):
        return f"the peak is not {peak[1]}"
    if any(not simulation.needs[node] <= set(answer["events"][:at]) for at, node in enumerate(answer["events"])):
        return "the order breaks a dependence"
    orders = list(simulation.orders())
    if len(orders) > MOST_ORDERS:
        return "unknown"
    fits = [o for o in orders if simulation.limit is None or simulation.peak(o) <= simulation.limit]
    best = min(map(simulation.makespan, fits))
    return None if int(bound[1]) <= best else f"the bound {bound[1]} is above the optimum {best}"


def random_blocks(program, first, count, nodes, *flags):
    command = [program, str(first), str(count), str(nodes), *flags]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in output.splitlines()[1:]]


def check_random(program, count):
    """Certificates of random problems of several sizes are valid, and what is said of the small ones is true."""
    arguments, unknown, buckets = {}, 0, 0
    for flags in ([], ["--contention"], ["--contention", "--choices"]):
        for first, number, nodes in ((1, count, 5), (100_001, count // 4, 40), (200_001, max(1, count // 20), 400)):
            for block in random_blocks(program, first, number, nodes, *flags):
                reason = refusal(block)
                assert reason is None, f"{block['name']} of {nodes} nodes: {reason}"
                argument = block["bound"]["argument"] + (" of a resource" if "resource" in block["bound"] else "")
                arguments[argument] = arguments.get(argument, 0) + 1
                buckets += len(block["answer"]["buckets"])
                if nodes == 5:
                    why = lie(block)
                    unknown += why == "unknown"
                    assert why in (None, "unknown"), f"{block['name']}: {why}"
    print(f"valid random certificates by argument: {arguments}; {buckets} buckets; too large to play: {unknown}")
    assert {"one-machine", "one-machine of a resource", "through-node"} <= set(arguments) and buckets > 0


def check_mutations(program, count):
    """Of mutated certificates, those that the checker accepts are true."""
    draw = random.Random(7)
    blocks = random_blocks(program, 300_001, 60, 5) + random_blocks(program, 300_101, 60, 5, "--contention")
    blocks += random_blocks(program, 300_201, 60, 5, "--choices")
    refused = accepted = unknown = 0
    for index in range(count):
        mutant = mutate(blocks[index % len(blocks)], draw)
        if refusal(mutant) is not None:
            refused += 1
            continue
        why = lie(mutant)
        unknown += why == "unknown"
        assert why in (None, "unknown"), (
            f"mutation {index} of {mutant['name']} was accepted, but {why}: {json.dumps(mutant)}"
        )
        accepted += 1
    print(f"mutations: {refused} refused, {accepted} accepted and true, {unknown} of these too large to play")
    assert refused > count // 4 and accepted > 0


def check_parts(program, count):
    """Without one of its modules, or alone, the core says what it did not check, and the rest is true."""
    draw = random.Random(9)
    modules = sorted(file.stem for file in FOLDER.glob("*.py"))
    others = ("__init__", "__main__", "accesses", "core", "graph", "lanes", "loops", "page", "ranks")
    others += ("sentences", "style", "verdict")
    modules = [name for name in modules if name not in others]
    blocks = random_blocks(program, 400_001, 60, 5) + random_blocks(program, 400_101, 60, 5, "--contention")
    blocks += random_blocks(program, 400_201, 12, 40, "--contention", "--choices")
    blocks += random_blocks(program, 122, 1, 5) + random_blocks(program, 176, 1, 5)
    assert {block["bound"]["argument"] for block in blocks[-2:]} == {"memory-limit", "deferral"}
    for hidden in [*([name] for name in modules), modules]:
        partly = whole = refused = 0
        with without(*hidden):
            for index in range(count + len(blocks)):
                block = blocks[index % len(blocks)]
                mutant = mutate(block, draw) if index >= len(blocks) else block
                try:
                    said = verify(lines_of(mutant))
                except Invalid as error:
                    assert mutant is not block, f"without {hidden}, {block['name']} is refused: {error}"
                    refused += 1
                    continue
                partly += "NOT CHECKED" in said
                whole += "NOT CHECKED" not in said
                if mutant["answer"]["buckets"] or len(mutant["problem"]["cost_ns"]) > 12:
                    continue
                why = lie_of_part(mutant, said)
                assert why in (None, "unknown"), f"without {hidden}: {why}: {said}: {json.dumps(mutant)}"
        print(f"without {', '.join(hidden)}: {whole} valid, {partly} valid in part, {refused} mutants refused")
        assert partly > 0 and refused > count // 4


def check_sizes():
    """Whoever has to trust the checker can read it: the core in one file, each module beside it shorter."""
    for file in FOLDER.glob("*.py"):
        lines, most = len(file.read_text().splitlines()), 400 if file.stem == "core" else 200
        assert lines <= most, f"{file.name} has {lines} lines, more than {most}"
    imports = [line for line in (FOLDER / "core.py").read_text().splitlines() if line.startswith("from .")]
    assert not imports, f"the core is not complete by itself: {imports}"


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
            block = json.loads(lines[1])
            assert refusal(block) is None, f"{graph.name} {options}: {refusal(block)}"
            assert size <= 2 * graph.stat().st_size, f"{graph.name}: {size} bytes"
            for name in ("makespan_ns", "peak_bytes", "bound_ns"):
                false = copy.deepcopy(block)
                false["claims"][name] += 1 << 20 if name == "bound_ns" else draw.choice([-1, 1])
                assert refusal(false), f"{graph.name}: a false {name} was accepted"
            refused = 0
            for _ in range(count):
                false = copy.deepcopy(block)
                events = false["answer"]["events"]
                first, second = sorted(draw.sample(range(len(events)), 2))
                events[first], events[second] = events[second], events[first]
                refused += refusal(false) is not None
            print(
                f"{graph.name}{options}: {size} bytes, {len(block['problem']['cost_ns'])} nodes, "
                f"{block['bound']['argument']}; "
                f"{refused} of {count} exchanges of two events refused"
            )


def check_independence():
    """The checker imports Python's own modules and nothing else."""
    for file in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            assert all(name.split(".")[0] in sys.stdlib_module_names for name in names), f"{file.name} imports {names}"


def check_hand_made():
    """A gather beside one computation, and another one after it, of which the optimum is known: max(3, 5) + 2 ns."""
    block = {
        "name": "by hand",
        # gather 0 (3 ns), compute 1 (5 ns), wait 2, compute 3 (2 ns) of the gathered data.
        "problem": {
            "lanes": ["compute", "@dp"],
            "cost_ns": [3, 5, 0, 2],
            "starts": [0],
            "on_lanes": [0, 1],
            "awaits": [2, 0],
            "edges": [[], [], [2], [1]],
            "buffers": [[64, 0, 2, 3]],
            "reasons": "am",
            "reason_names": {"a": "data", "m": "memory"},
        },
        "answer": {"buckets": [], "events": [0, 1, 2, 3]},
        "claims": {"makespan_ns": 7, "peak_bytes": 64, "limit_bytes": 64, "bound_ns": 7},
        "bound": {"argument": "one-machine", "lane": 0, "head_ns": 0, "tail_ns": 0},
    }

    def after(change):
        changed = copy.deepcopy(block)
        change(changed)
        return refusal(changed) or ""

    assert after(lambda b: None) == ""
    assert "data: 1, memory: 1" in verify(lines_of(block))
    assert "proves a bound of 7" in after(lambda b: b["claims"].update(bound_ns=8))
    assert "makespan is 7 ns, not 6" in after(lambda b: b["claims"].update(makespan_ns=6))
    assert "peak is 64 bytes, not 63" in after(lambda b: b["claims"].update(peak_bytes=63))
    assert "above the limit of 63" in after(lambda b: b["claims"].update(limit_bytes=63))
    assert "depends on node 2, done at event 3 (memory)" in after(lambda b: b["answer"].update(events=[0, 1, 3, 2]))
    assert "never happens" in after(lambda b: b["answer"].update(events=[0, 1, 2]))
    assert "runs twice" in after(lambda b: b["answer"].update(events=[0, 1, 2, 3, 3]))
    assert "unknown argument 'magic'" in after(lambda b: b["bound"].update(argument="magic"))
    assert "unknown" in after(lambda b: b["problem"].update(colours=[1]))
    assert "-5 is not a number" in after(lambda b: b["problem"].update(cost_ns=[3, -5, 0, 2]))
    # Without the dependence, the list of accesses forbids to compute in front of the wait.
    forged = {"problem": {**block["problem"], "edges": [[], [], [2], []], "reasons": "a"}}
    forged["problem"]["buffers"] = [[64, 0, 2, 3]]
    forged["answer"] = {"buckets": [], "events": [0, 1, 3, 2]}
    assert after(lambda b: b.update(forged)) == ""
    memory = {"objects": [[1, 11, 12]]}
    assert "both access the same memory" in after(lambda b: b.update(forged, accesses=memory))
    assert after(lambda b: b.update(accesses=memory)) == ""
    assert "3 accesses to 1 places in memory keep" in verify(lines_of({**block, "accesses": memory}))
    assert "unexpected keyword" in after(lambda b: b.update(accesses={"colours": [1]}))
    assert "missing 1 required positional argument: 'objects'" in after(lambda b: b.update(accesses={}))
    # Waiting at once takes 3 + 5 + 2: legal, but not what is claimed.
    assert "makespan is 10 ns" in after(lambda b: b["answer"].update(events=[0, 2, 1, 3]))
    # A path through the gather proves 3 + 2, and the level of its lane nothing more.
    through = {"argument": "through-node", "node": 2}
    assert after(lambda b: (b.update(bound=through), b["claims"].update(bound_ns=5))) == ""
    assert "proves a bound of 5" in after(lambda b: (b.update(bound=through), b["claims"].update(bound_ns=6)))
    level = {"heads": [[3, 0, 1, 0, 4]]}
    assert "too little work on lane 1" in after(lambda b: b.update(bound={**through, **level}))
    # The gather needs half of the memory, and compute 1 all of it: that one gets half until the gather ends at 3 ns,
    # and ends at 6.5 ns, which counts as 7. No order does the work of the memory, 1.5 + 5 ns, in less than 7 ns.
    shared = {"demands": [[0, 1, 500_000, 1, 0, 1, 0, 1, 0, 1], [0, 1, 1_000_000, 1, 0, 1, 0, 1, 0, 1]]}
    shared["demand"] = [0, 1, 1, 2]
    assert "makespan is 9 ns, not 7" in after(lambda b: b["problem"].update(shared))
    memory = {"argument": "one-machine", "resource": 1, "head_ns": 0, "tail_ns": 0}
    claims = {"makespan_ns": 9, "bound_ns": 7}

    def changes(b):
        b["problem"].update(shared)
        b["claims"].update(claims)
        b.update(bound=memory)

    assert after(changes) == ""
    assert "proves a bound of 7" in after(lambda b: (changes(b), b["claims"].update(bound_ns=8)))


class Played:
    """What the check of accesses reads of an answer: when each node begins, and when it is done."""

    def __init__(self, begin, done):
        self.begin, self.done = begin, done
        self.problem = argparse.Namespace(size=len(begin), facts={})


def breaks_order(answer, lists, exposed, anywhere):
    """All pairs, one by one."""

    def clash(some, others):
        return any(
            first // 4 < second // 4
            and (first | second) % 2
            and not first & second & 2
            and answer.done[first // 4] >= answer.begin[second // 4]
            for first in some
            for second in others
        )

    named = [codes for index, codes in enumerate(lists) if index in exposed]
    return (
        any(clash(codes, codes) for codes in [*lists, anywhere])
        or any(clash(codes, anywhere) for codes in named)
        or any(clash(anywhere, codes) for codes in named)
    )


def check_accesses():
    """An order is refused if and only if two accesses to one memory, one of them a write, are not in theirs."""
    draw = random.Random(11)
    refused = accepted = 0
    for _ in range(3000):
        nodes = [4 * node + 2 * (draw.random() < 0.3) for node in range(draw.randrange(1, 7))]
        size = len(nodes)

        def codes(chance, nodes=nodes):
            return [node + (draw.random() < 0.4) for node in nodes if draw.random() < chance]

        lists, anywhere = [codes(0.4) for _ in range(draw.randrange(4))], codes(0.2)
        exposed = [index for index in range(len(lists)) if draw.random() < 0.5]
        places = list(range(size))
        for _ in range(draw.randrange(3)):
            first, second = draw.randrange(size), draw.randrange(size)
            places[first], places[second] = places[second], places[first]
        answer = Played(places, [place + (draw.random() < 0.1) for place in places])
        try:
            accesses.check(answer, lists, exposed, anywhere)
            accepted += 1
            assert not breaks_order(answer, lists, exposed, anywhere), (
                places,
                lists,
                exposed,
                anywhere,
            )
        except Invalid:
            refused += 1
            assert breaks_order(answer, lists, exposed, anywhere), (
                places,
                lists,
                exposed,
                anywhere,
            )
    assert min(refused, accepted) > 300
    answer = Played([0, 1], [0, 1])
    for lists, more in (
        ([[8]], {}),
        ([[4, 0]], {}),
        ([[0, 1]], {}),
        ([[0]], {"exposed": [1]}),
        ([], {"anywhere": [9]}),
    ):
        try:
            accesses.check(answer, lists, **more)
        except (Invalid, LookupError):
            continue
        raise AssertionError(f"malformed accesses were accepted: {lists}, {more}")


def check_malformed(program):
    """Cut, empty and senseless files are refused in words."""
    block = random_blocks(program, 1, 1, 8)[0]
    header, line = lines_of(block)
    broken = [[], ["{}"], [header], [header, line, line], [header, "[]"], [header, "3"], [header, line[:-2]], [line]]
    for part, value in block.items():
        broken.append([header, json.dumps({key: other for key, other in block.items() if key != part})])
        for field in value if part in ("answer", "claims") else ():
            broken.append([header, json.dumps({**block, part: {k: v for k, v in value.items() if k != field}})])
    accepted = 0
    for text in broken:
        try:
            verify(text)
            accepted += 1
            assert "limit_bytes" not in json.loads(text[1])["claims"], "a malformed file was accepted"
        except Invalid:
            pass
    assert accepted <= 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random", required=True, help="the program RandomCertificates")
    parser.add_argument("--comm-opt", required=True)
    parser.add_argument("--graphs", required=True, type=pathlib.Path)
    parser.add_argument("--count", type=int, default=130, help="random problems")
    parser.add_argument("--mutations", type=int, default=1500)
    arguments = parser.parse_args()
    check_independence()
    check_sizes()
    check_hand_made()
    check_accesses()
    check_malformed(arguments.random)
    check_random(arguments.random, arguments.count)
    check_mutations(arguments.random, arguments.mutations)
    check_parts(arguments.random, arguments.mutations // 10)
    check_graphs(arguments.comm_opt, arguments.graphs, 4)


if __name__ == "__main__":
    main()
