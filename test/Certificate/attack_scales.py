#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Attacks the part of commsched-verify that proves what an answer loses if collectives take other times.

The property: no scales of a certificate prove a smaller regret than there is. For small random problems all orders are
played at 41 scales, by rules that are written down here once more, and the answer's makespan is compared with the least
of them at each scale. The forger changes makespans, bounds, witnesses and scales, exchanges them, drops some and adds
others, and climbs towards a smaller regret.

To show that the attack finds faults, it runs once more against copies of the checker with one planted fault each, and
has to find every one of them.

  attack_scales.py --random PROGRAM [--problems 96] [--seed 1] [--only-attack]
"""

import argparse
import copy
import random
import sys
from fractions import Fraction

from attack_bounds import find_each  # which puts the folder of the checker in front of all others
from check_certificates import Simulation, mutate, random_blocks, refusal, table
from commsched_verify import core, scales

# Text of scales.py and its replacement, by which too little is proven, or too much is believed.
FAULTS = (
    ("require(found == makespan_ps, ", "require(True, "),
    ("require(value >= bound_ps, ", "require(True, "),
    ("require(proven <= regret_ppm, ", "require(True, "),
    ("require((every[0], every[-1]) == (FIRST, LAST), ", "require(True, "),
    ("require(not problem.demands, ", "require(True, "),
    (", min(max(Fraction(k2 * b1, b2), Fraction(k1)), Fraction(k2))}", "}"),
    ("max(Fraction(b1), k / k2 * b2)", "max(b1, b2)"),
    ("(t1 + (t2 - t1) * (k - k1) / (k2 - k1))", "t1"),
    ("there = scaled_answer(problem, answer, permille)", "there = scaled_answer(problem, answer, PLANNED)"),
    (
        '"samples": values_times(key.get("samples", ()), permille)',
        '"samples": values_times(key.get("samples", ()), LAST)',
    ),
    (
        "return max(map(largest_between, known, known[1:])) - 1",
        "return min(map(largest_between, known, known[1:])) - 1",
    ),
)
SCALES = [750 + 1250 * index // 40 for index in range(41)]
MOST_ORDERS = 80
FORGERIES_PER_PROBLEM = 25


class Player:
    """Plays a block without contention at any scale, in ps."""

    def __init__(self, block, permille):
        problem, self.scale = block["problem"], permille
        starts, own = set(problem["starts"]), {node: cost for node, cost, _ in block["answer"].get("chosen", [])}
        self.least = [self.time(cost, node in starts) for node, cost in enumerate(problem["cost_ns"])]
        self.chosen = [self.time(own.get(node, cost), node in starts) for node, cost in enumerate(problem["cost_ns"])]
        self.starts, self.awaits, self.lanes = starts, table(problem, "awaits"), table(problem, "on_lanes")
        self.issue = {node: values[0] for node, values in table(problem, "issue_ns").items()}
        self.ready = {node: values[0] for node, values in table(problem, "ready_ns").items()}
        self.busy = {lane: values[0] for lane, values in table(problem, "busy_until_ns").items()}
        self.count, self.buckets = len(problem["lanes"]), block["answer"]["buckets"]

    def time(self, ns, of_collective):
        return ns * (self.scale if of_collective else 1000)

    def makespan(self, events, cost):
        """`cost` is by node. Events of buckets are as in a certificate."""
        free = [self.time(self.busy.get(lane, 0), True) for lane in range(self.count)]
        ends = {}

        def start(key, lane, duration, issue):
            free[lane] = ends[key] = max(free[lane], free[0]) + duration
            free[0] += self.time(issue, False)

        for event in events:
            if not isinstance(event, int):
                name, bucket, duration = event[:3]
                members = self.buckets[bucket]["members"]
                if name == "start":
                    issue = max(self.issue.get(member, 0) for member in members)
                    start(("bucket", bucket), self.lanes[members[0]][0], self.time(duration, True), issue)
                elif name == "wait":
                    free[0] = max(free[0], ends["bucket", bucket])
                else:
                    free[0] += self.time(duration, False)
            elif event in self.starts:
                start(event, self.lanes[event][0], cost[event], self.issue.get(event, 0))
            else:
                lanes = self.lanes.get(event, [])
                until = [ends[other] for other in self.awaits.get(event, [])] + [free[lane] for lane in lanes]
                end = max(free[0], self.time(self.ready.get(event, 0), True), *until, 0) + cost[event]
                for lane in (0, *lanes):
                    free[lane] = end
        return max(free)


def regret_at_least(block):
    """What the regret is at one of SCALES, if no answer is better than the known ones."""
    simulation, events = Simulation(block), block["answer"]["events"]
    orders = [order for order, _ in zip(simulation.orders(), range(MOST_ORDERS))]
    orders = [o for o in orders if simulation.limit is None or simulation.peak(o) <= simulation.limit]
    worst = Fraction(0)
    for permille in SCALES:
        player = Player(block, permille)
        makespan = player.makespan(events, player.chosen)
        least = min([makespan, *(player.makespan(order, player.least) for order in orders)])
        worst = max(worst, Fraction(makespan, least) - 1)
    return worst


class Forger:
    """Forged scales of one block."""

    def __init__(self, block, draw):
        self.block, self.draw, self.at = block, draw, block["scales"]["at"]
        self.problem, self.limit = core.Problem(**block["problem"]), block["claims"].get("limit_bytes", core.UNLIMITED)
        self.planned = block["claims"]["makespan_ns"], block["claims"]["bound_ns"]

    def proven(self, at):
        """The regret that some scales prove, or None if the checker refuses them."""
        try:
            regret = scales.prove_regret(self.problem, self.block["answer"], self.planned, self.limit, at)
        except (core.Invalid, *core.MALFORMED):
            return None
        assert regret is not None, "a module of the checker is missing"
        return regret

    def mutated(self, at):
        """The scales with one change."""
        draw, rows = self.draw, copy.deepcopy(at)
        row, other = draw.choice(rows), draw.choice(rows)
        what = draw.randrange(9)
        if what == 0:
            row["makespan_ps"] = max(0, row["makespan_ps"] - draw.choice([1, 1000, row["makespan_ps"] // 20]))
        elif what == 1:
            row["bound_ps"] += draw.choice([1, 1000, row["bound_ps"] // 20, row["makespan_ps"] - row["bound_ps"]])
        elif what == 2:
            row["permille"] += draw.choice([-1000, -250, -1, 1, 250, 1000])
        elif what == 3:
            row["bound"], other["bound"] = other["bound"], row["bound"]
        elif what == 4:
            row["permille"], other["permille"] = other["permille"], row["permille"]
        elif what == 5:
            rows.remove(row)
        elif what == 6:
            rows.insert(draw.randrange(len(rows) + 1), copy.deepcopy(row))
        elif what == 7:
            # A bound of another scale, with its witness.
            row["bound"], row["bound_ps"] = other["bound"], other["bound_ps"]
        else:
            places = [key for key, value in row["bound"].items() if type(value) is int]
            if places:
                key = draw.choice(places)
                row["bound"][key] = max(0, row["bound"][key] + draw.choice([-1000, -1, 1, 1000, 10**6]))
        return rows

    def forged(self, count):
        """`count` forged scales, each with the regret that they prove, or None."""
        best, least = self.at, self.proven(self.at)
        for _ in range(count):
            rows = self.mutated(best)
            regret = self.proven(rows)
            yield rows, regret
            if regret is not None and regret <= least:
                best, least = rows, regret


def false_claim(block, regret):
    """What is wrong with the claims that the checker accepts of an honest block, or None."""
    claimed = block["scales"]["regret_ppm"]
    least = -(-regret * 10**6 // 1)
    if claimed < least:
        return f"{claimed} ppm are claimed, {least} are proven"
    for ppm in {0, least // 2, least - 1} - {least, -1}:
        false = copy.deepcopy(block)
        false["scales"]["regret_ppm"] = ppm
        if refusal(false) is None:
            return f"a claim of {ppm} ppm is accepted, {least} are proven"
    return refusal(block)


def false_of_contention(program, first):
    """What is wrong if the checker takes scales of a block whose activities share resources."""
    for block in random_blocks(program, first, 10, 5, "--contention"):
        assert "scales" not in block and refusal(block) is None, f"{block['name']}: {refusal(block)}"
        problem, rows = core.Problem(**block["problem"]), []
        for permille in (750, 2000):
            makespan = scales.scaled_answer(problem, block["answer"], permille).makespan()
            witness = {"argument": "one-machine", "lane": 0, "head_ns": 0, "tail_ns": 0}
            rows.append({"permille": permille, "makespan_ps": makespan, "bound_ps": 1, "bound": witness})
        block["scales"] = {"regret_ppm": 10**15, "at": rows}
        reason = refusal(block)
        if reason is None or "share resources" not in reason:
            return f"scales with contention: {reason}"
    return None


def attack(program, seed, problems):
    """Returns counts, and what is wrong, or None."""
    draw, first, counts = random.Random(seed), 2_000_000 + 10_000 * seed, dict.fromkeys(("tried", "taken", "tight"), 0)
    if wrong := false_of_contention(program, first):
        return counts, wrong
    for number, nodes in enumerate((4, 5, 6)):
        for flags in ([], ["--choices"]):
            for block in random_blocks(program, first + 1000 * number, problems // 6, nodes, *flags):
                if "scales" not in block:
                    continue  # nothing takes time
                forger, least = Forger(block, draw), regret_at_least(block)
                honest = forger.proven(forger.at)
                if honest is None or (wrong := false_claim(block, honest)):
                    return counts, f"{block['name']}: {wrong if honest is not None else refusal(block)}"
                counts["tight"] += 2 * least > honest > 0
                for rows, regret in [(forger.at, honest), *forger.forged(FORGERIES_PER_PROBLEM)]:
                    counts["tried"] += 1
                    counts["taken"] += regret is not None
                    if regret is not None and regret < least:
                        return counts, f"{block['name']}: {float(regret)} is proven of {float(least)}: {rows}"
    return counts, None


def attack_blocks(program, seed, problems):
    """Of blocks with one changed number anywhere, the regret of those that the checker accepts is true."""
    draw, accepted = random.Random(seed), 0
    for block in random_blocks(program, 2_500_000 + 1000 * seed, problems, 5):
        if "scales" not in block:
            continue
        mutant = mutate(block, draw)
        if refusal(mutant) is None:
            accepted += 1
            claimed, least = mutant["scales"]["regret_ppm"], regret_at_least(mutant)
            assert claimed >= least * 10**6, f"{claimed} ppm are accepted of {float(least)}: {mutant}"
    print(f"{accepted} of {problems} mutants of whole certificates are accepted, their regret is true")
    assert accepted > problems // 20


def find_planted(arguments):
    """Every planted fault is found."""
    options = ["--random", arguments.random, "--seed", str(arguments.seed), "--problems", str(arguments.problems)]
    find_each(__file__, [("scales", *fault) for fault in FAULTS], options)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random", required=True, help="the program RandomCertificates")
    parser.add_argument("--problems", type=int, default=96)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only-attack", action="store_true", help="plant no faults")
    arguments = parser.parse_args()
    counts, wrong = attack(arguments.random, arguments.seed, arguments.problems)
    if wrong:
        print(f"FORGED after {counts['tried']} forgeries: {wrong}")
        return 1
    print(
        f"seed {arguments.seed}: {counts['tried']} certificates of a regret, {counts['taken']} of them taken, none for "
        f"less than there is; {counts['tight']} problems have at least half of the regret that is proven"
    )
    assert counts["taken"] > counts["tried"] // 10, "nearly all scales are refused, so the attack attacks nothing"
    assert counts["tight"] > arguments.problems // 10, "what is proven is far from what there is"
    if not arguments.only_attack:
        attack_blocks(arguments.random, arguments.seed, arguments.problems)
        find_planted(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
