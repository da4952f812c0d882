#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Attacks the part of commsched-verify that proves lower bounds.

The property: no witness proves more than the makespan of the best answer. For small random problems the best order is
known, because all orders are played (by the rules that check_certificates.py writes down a third time), and the
solver's own answer counts, which may merge collectives. The witnesses are random ones, mutations of honest ones, and
those of a search that climbs towards a larger bound.

To show that the attack finds faults, it runs once more against copies of the checker with one planted fault each, and
has to find every one of them.

  attack_bounds.py --random PROGRAM [--witnesses 20000] [--seed 1]

scripts/test.sh tries 20,000 witnesses; --witnesses=1000000 is for a night.
"""

import argparse
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "python"
# A planted fault replaces this package; the environment names its folder.
sys.path.insert(0, os.environ.get("COMMSCHED_VERIFY_FOLDER", str(FOLDER)))
from commsched_verify import core  # before check_certificates, which looks for the package in its own folder

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent))
from check_certificates import MOST_ORDERS, Simulation, random_blocks

# Module, text, replacement: what is proven becomes too much.
FAULTS = (
    ("levels", 'require(total > 0, f"a level', 'require(True, f"a level'),
    ("levels", "chosen = work >> first & (1 << bisect.bisect_right(keys, -least)) - 1", "chosen = work >> first"),
    ("core", "moment.head >= head_ns and moment.tail >= tail_ns", "moment.head >= head_ns or moment.tail >= tail_ns"),
    ("core", "leave[at] = max(base + moment.path, time[at] + moment.load)", "leave[at] = time[at] + 2 * moment.load"),
    ("levels", "if issue := issues.get(at):", "if issue := 0:"),
    ("lemmas", "charges.path[last] - saved)", "charges.path[last])"),
    ("lemmas", "gain = late[node] if node in after else max(0, late[node])", "gain = late[node]"),
    ("lemmas", "room = max(limit - problem.workspace[node] - (sum(weights) - made_later), 0)", "room = 0"),
    ("lemmas", "if start in after:", "if start not in before:"),
    (
        "shares",
        "for key in {id(m.key): m.key for m in members}.values():",
        "charges.floating.append((0, 0, 9))\n    for key in ():",
    ),
)
# Seed and nodes of a problem, and a witness that an earlier checker took: the level of a turn rested on the issue of the same
# start, whose time followed from that turn.
KNOWN = ((1770621, 4, {"argument": "one-machine", "lane": 0, "head_ns": 0, "tail_ns": 7, "tails": [[1, 0, 0, 5, 8]]}),)
# Problems with this many nodes have few orders; some have more than are played, and only the solver's answer counts.
NODES = (4, 5, 6)
WITNESSES_PER_PROBLEM = 250


def best_makespan(block):
    """The makespan of the best answer that is known, ns."""
    simulation = Simulation(block)
    best = block["claims"]["makespan_ns"]
    orders = list(simulation.orders())
    if len(orders) <= MOST_ORDERS:
        fits = (o for o in orders if simulation.limit is None or simulation.peak(o) <= simulation.limit)
        best = min(best, *map(simulation.makespan, fits), best)
    return best


class Attack:
    """Witnesses against one problem."""

    def __init__(self, block, draw):
        self.draw, self.honest, problem = draw, block["bound"], block["problem"]
        self.size, self.lanes = len(problem["cost_ns"]), len(problem["lanes"])
        self.starts, self.resources = problem["starts"], 5 if problem.get("demands") else 0
        self.limit = block["claims"].get("limit_bytes", core.UNLIMITED)
        self.answer = core.Answer(core.Problem(**problem), **block["answer"])
        self.best = best_makespan(block)
        self.span = max(self.best, 1)

    def value(self, witness):
        """What the checker lets the witness prove, ns; -1 if it refuses."""
        try:
            value, _ = core.prove(self.answer, self.limit, **witness)
        except (core.Invalid, *core.MALFORMED):
            return -1
        assert not self.answer.problem.unchecked, "a module of the checker is missing"
        return value

    def time(self):
        """A time that a sum of costs may be, or any time."""
        draw, problem = self.draw, self.answer.problem
        if draw.random() < 0.4:
            return draw.choice([0, 1, draw.randrange(self.span), draw.randrange(2 * self.span), self.span])
        return sum(draw.choice(draw.choice([problem.cost_ns, problem.issue])) for _ in range(draw.randint(1, 3)))

    def level(self):
        """A level that some sum of work may carry, or any level."""
        draw, least = self.draw, self.time()
        value = draw.choice([least, least + self.time(), self.time()])
        return [draw.randrange(self.size), draw.choice([0, 0, 1, 2]), draw.randrange(self.lanes), least, value]

    def random(self):
        draw = self.draw
        kinds = ["through-node", "one-machine", "memory-limit"] + ["deferral"] * bool(self.starts)
        argument = draw.choice(kinds)
        levels = {end: [self.level() for _ in range(draw.choice([0, 0, 0, 1]))] for end in ("heads", "tails")}
        witness = {"argument": argument, **levels}
        if argument == "one-machine":
            place = {"resource": draw.randrange(self.resources)} if self.resources and draw.random() < 0.4 else {}
            witness |= place or {"lane": draw.randrange(self.lanes)}
            witness |= {"head_ns": self.time(), "tail_ns": self.time()}
        elif argument == "deferral":
            witness["starts"] = draw.sample(self.starts, draw.randint(1, len(self.starts)))
        else:
            witness["node"] = draw.randrange(self.size)
        if argument == "memory-limit":
            witness["lane"] = draw.randrange(self.lanes)
        return witness

    def mutated(self, witness):
        """The witness with one number, one level or one argument changed."""
        draw = self.draw
        mutant = {key: list(value) if isinstance(value, list) else value for key, value in witness.items()}
        numbers = [key for key, value in mutant.items() if type(value) is int]
        end = draw.choice(["heads", "tails"])
        levels = [list(row) for row in mutant.get(end, [])]
        what = draw.randrange(4)
        if what == 0 and numbers:
            key = draw.choice(numbers)
            mutant[key] = max(0, mutant[key] + draw.choice([-self.span, -1, 1, self.span // 3, self.span]))
        elif what == 1 and levels:
            row = draw.choice(levels)
            at = draw.randrange(5)
            row[at] = self.time() if at > 2 else max(0, row[at] + draw.choice([-1, 1]))
            mutant[end] = levels
        elif what == 2 and levels and draw.random() < 0.3:
            levels.pop(draw.randrange(len(levels)))
            mutant[end] = levels
        else:
            mutant[end] = [*levels, self.level()]
        return mutant

    def witnesses(self, count):
        """`count` witnesses, each with what it proves."""
        climbed, height = self.honest, self.value(self.honest)
        assert height >= 0, "the honest witness is refused"
        for number in range(count):
            if number % 3 == 0:
                witness = self.random()
            else:
                witness = self.mutated(self.honest if number % 3 == 1 else climbed)
            value = self.value(witness)
            if value >= height and number % 3 != 1:
                climbed, height = witness, value
            yield witness, value


def attack(program, seed, count):
    """Returns how many witnesses were tried, how many of them proved something, and the first that proved too much."""
    draw, tried, proved, first = random.Random(seed), 0, 0, 1_000_000 + 10_000 * seed
    flags = [[], ["--contention"], ["--choices"]]
    for known, nodes, witness in KNOWN:
        (block,) = random_blocks(program, known, 1, nodes)
        target = Attack(block, draw)
        if target.value(witness) > target.best:
            return tried, proved, (block["name"], target.best, target.value(witness), witness)
    number = 0
    while tried < count:
        nodes, flag = NODES[number % len(NODES)], flags[number // len(NODES) % len(flags)]
        for block in random_blocks(program, first + 20 * number, 20, nodes, *flag):
            target = Attack(block, draw)
            for witness, value in target.witnesses(min(WITNESSES_PER_PROBLEM, count - tried)):
                tried += 1
                proved += value > 0
                if value > target.best:
                    return tried, proved, (block["name"], target.best, value, witness)
            if tried >= count:
                break
        number += 1
    return tried, proved, None


def plant(module, text, replacement, folder):
    """Copies the checker into `folder` with one change."""
    shutil.copytree(FOLDER / "commsched_verify", folder / "commsched_verify")
    path = folder / "commsched_verify" / f"{module}.py"
    source = path.read_text()
    assert source.count(text) == 1, f"{module}.py has {source.count(text)} places that read {text!r}, not one"
    path.write_text(source.replace(text, replacement))


def find_each(script, faults, options):
    """Every planted fault is found by the attack that `script` makes with `options`."""
    for module, text, replacement in faults:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            plant(module, text, replacement, folder)
            environment = dict(os.environ, COMMSCHED_VERIFY_FOLDER=str(folder))
            # Without site-packages, where an installed package could stand in front of the planted one.
            command = [sys.executable, "-B", "-S", script, *options, "--only-attack"]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            assert done.returncode == 1 and "FORGED" in done.stdout, f"not found: {text}\n{done.stdout}{done.stderr}"
            print(f"planted in {module}: {text[:60]}...: {done.stdout.splitlines()[-1][:100]}")


def find_planted(arguments):
    """Every planted fault is found within the witnesses that every change is tested with."""
    options = ["--random", arguments.random, "--seed", str(arguments.seed)]
    find_each(__file__, FAULTS, [*options, "--witnesses", str(min(arguments.witnesses, 20_000))])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random", required=True, help="the program RandomCertificates")
    parser.add_argument("--witnesses", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only-attack", action="store_true", help="plant no faults")
    arguments = parser.parse_args()
    tried, proved, forged = attack(arguments.random, arguments.seed, arguments.witnesses)
    if forged:
        print(
            f"FORGED after {tried} witnesses: {forged[0]}: {forged[2]} ns, but {forged[1]} ns are reached: {forged[3]}"
        )
        return 1
    print(f"{tried} witnesses, {proved} of them prove something, none more than the best answer")
    assert proved > tried // 20, "nearly all witnesses are refused, so the attack attacks nothing"
    if not arguments.only_attack:
        find_planted(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
