#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Forges what the buckets of an answer take, and lets commsched-verify look.

The property: the duration of every pack, start, unpack and view of a bucket is the one that the samples of the
certificate say. A forger changes durations by little or by much, one or all of them, and repairs the makespan that the
certificate claims, so that nothing else contradicts. Every forgery is refused, and it is the samples that refuse it.

To show that the forgeries find faults, they run once more against copies of the checker with one planted fault each.

  forge_durations.py --random PROGRAM [--only-forge]
"""

import argparse
import copy
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

from attack_bounds import plant  # which puts the folder of the checker in front of all others
from check_certificates import random_blocks, refusal

# Text of durations.py and its replacement, by which something is believed again.
FAULTS = (
    ("require(cost >= least, ", "require(True, "),
    ("require(cost <= most, ", "require(True, "),
    ("self.copies.check(what, copied, copied, cost)", "pass"),
    (
        "self.copies.check(what, reads, ",
        "Samples([(0, 0, cost), (reads, reads + (1 << 40), cost)]).check(what, reads, ",
    ),
    ("self.packed[key].check(what, size, 0, cost, self.exact)", "pass"),
    ("self.coalesced[key].check(what, size, len(members), cost, self.exact)", "pass"),
    ("require(cost == 0, ", "require(True, "),
)
REASONS = ("by the samples", "takes time", "has no sample")


def repaired(block):
    """The block with the makespan that its answer has now."""
    if found := re.search(r"makespan is (\d+) ns", refusal(block) or ""):
        block["claims"]["makespan_ns"] = int(found[1])
    return block


def events_of(block):
    """The events of buckets, by what they do: the numbers of the events."""
    found = {}
    for number, event in enumerate(block["answer"]["events"]):
        if not isinstance(event, int):
            name = event[0]
            if name == "start":
                name = f"{block['answer']['buckets'][event[1]]['form']} start"
            found.setdefault(name, []).append(number)
    return found


def forgeries(block, draw):
    """Forged blocks, each with what was done."""
    chosen = "chosen" in block["answer"]
    for name, numbers in events_of(block).items():
        if chosen and "start" in name:
            continue  # a chosen way may take longer than the cheapest one, of which the samples are
        for change in (-1, 1, -100, 100):
            forged = copy.deepcopy(block)
            events = forged["answer"]["events"]
            for number in numbers if abs(change) > 1 else [draw.choice(numbers)]:
                cost = events[number][2]
                events[number][2] = max(0, cost + change if abs(change) == 1 else cost * (100 + change) // 100)
            if forged != block:
                yield f"{name} of {block['name']} by {change}", repaired(forged)


def contradictions(block):
    """Blocks of which one sample was changed so that another one contradicts it, each with what was done."""
    samples = block["problem"].get("copy_samples", [])
    for small in range(len(samples)):
        for large in range(small + 1, len(samples)):
            first, second = samples[small], samples[large]
            if first[2] < second[2] and first[0] <= second[0] and first[1] <= second[1]:
                forged = copy.deepcopy(block)
                forged["problem"]["copy_samples"][small][2] = second[2] + 1
                yield f"the sample of {first} of {block['name']}", forged


def forge(program, seed):
    """Returns how many forgeries were refused for what they are, by event, and the first that was not."""
    draw, refused = random.Random(seed), {}
    blocks = [b for flags in ([], ["--choices"]) for b in random_blocks(program, 500_001, 160, 14, *flags)]
    for block in blocks:
        if not block["answer"]["buckets"]:
            continue
        assert refusal(block) is None, f"{block['name']} is refused: {refusal(block)}"
        for what, forged in (*forgeries(block, draw), *contradictions(block)):
            reason = refusal(forged)
            if reason is None or not any(text in reason for text in REASONS):
                return refused, f"{what}: {reason}: {json.dumps(forged)}"
            kind = what.split(" of ")[0]
            refused[kind] = refused.get(kind, 0) + 1
    return refused, None


def find_planted(arguments):
    """Every planted fault lets a forgery pass."""
    for text, replacement in FAULTS:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            plant("durations", text, replacement, folder)
            command = [sys.executable, "-B", __file__, "--random", arguments.random, "--only-forge"]
            environment = dict(os.environ, COMMSCHED_VERIFY_FOLDER=str(folder))
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            assert done.returncode == 1 and done.stdout.startswith("ACCEPTED"), (
                f"not found: {text}\n{done.stdout}{done.stderr}"
            )
            print(f"planted: {text}: {done.stdout[:100]}...")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random", required=True, help="the program RandomCertificates")
    parser.add_argument("--only-forge", action="store_true", help="plant no faults")
    arguments = parser.parse_args()
    refused, accepted = forge(arguments.random, 3)
    if accepted:
        print(f"ACCEPTED: {accepted}")
        return 1
    print(f"forged durations that were refused: {refused}")
    kinds = {"pack", "unpack", "view", "packed start", "coalesced start", "the sample"}
    assert kinds <= set(refused), f"not forged: {kinds - set(refused)}"
    if not arguments.only_forge:
        find_planted(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
