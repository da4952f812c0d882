#!/usr/bin/env python3
#===- removed_events.py - Programs on several streams with one event less -----------------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#
#
# Puts random programs (fuzz/generator.py) on several streams with planned arenas, and removes one comm.await_event after
# the other. comm-run refuses the program and names what is not ordered any more, or another path orders everything that
# the event did. Then the results stay the same on an emulated device that runs what is not ordered in a random order.
#
#   removed_events.py --bin FOLDER [--first 0] [--count 32]
#
#===---------------------------------------------------------------------------------------------------------------===#

import argparse
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fuzz.judge import BATCH, make_batch  # noqa: E402
from fuzz.passes import PLAN, STREAMS  # noqa: E402
from fuzz.tools import MARKER, Tools, failures_by_part  # noqa: E402

EVENT, NAMED = "comm.await_event", "to await an event"  # of the operation, and of what is said where one is missing
MOST = 8  # events of one program that are removed
ORDERS = (1, 3)  # seeds of the emulated device; an odd one lets it choose at random


def without_one(text, rng):
    """The program without one of its events, for some of them."""
    lines = text.splitlines(keepends=True)
    places = [at for at, line in enumerate(lines) if EVENT in line]
    chosen = sorted(rng.sample(places, min(MOST, len(places))))
    return [("".join(lines[:at] + lines[at + 1:]), lines[at].strip()) for at in chosen]


def failures(tools, folder, candidate, variants, order):
    """Which of the variants do not do what the program as it was written does, and what was said."""
    paths = [os.path.join(folder, name) for name in ("written.mlir", "removed.mlir")]
    for path, parts in zip(paths, ([candidate.text] * len(variants), variants)):
        with open(path, "w") as file:
            file.write(MARKER.join(parts))
    done = tools.execute(paths, candidate.program.ranks, [], "nccl", order, late=False)
    found = failures_by_part(done)
    if done.code is None or done.crashed or (done.code != 0 and not found):
        return {number: "hangs or crashes: " + done.err for number in range(len(variants))}
    return found


def check(tools, folder, candidate, rng, counts):
    """Removes events of one program; returns the variants that are wrong without a word."""
    path = os.path.join(folder, "given.mlir")
    with open(path, "w") as file:
        file.write(candidate.text)
    [planned], _, _ = tools.optimize(path, [STREAMS, *PLAN])
    if not planned or EVENT not in planned or failures(tools, folder, candidate, [planned], 1):
        return []
    counts["programs"] += 1
    removed = without_one(planned, rng)
    wrong = []
    for order in ORDERS:
        if not removed:
            break
        found = failures(tools, folder, candidate, [text for text, _ in removed], order)
        for number, said in found.items():
            if NAMED in said:
                counts["named"] += 1
            else:
                wrong.append((removed[number], said))
        removed = [variant for number, variant in enumerate(removed) if number not in found]
    counts["implied"] += len(removed)
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, help="folder of comm-opt and comm-run")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=32, help="programs, in batches of 16")
    settings = parser.parse_args()
    tools, counts, failed = Tools(settings.bin), dict(programs=0, named=0, implied=0), 0
    with tempfile.TemporaryDirectory() as folder:
        for batch in range(settings.first // BATCH, (settings.first + settings.count) // BATCH):
            for candidate in make_batch(batch):
                if candidate.breaks_rules:
                    continue
                for (text, event), said in check(tools, folder, candidate, random.Random(candidate.seed), counts):
                    failed += 1
                    print(f"seed {candidate.seed}: without '{event}':\n{said}\n{text}")
    print(f"{counts['programs']} programs on several streams; without one event {counts['named']} of them are refused by"
          f" name, in {counts['implied']} something else orders the same, {failed} go wrong")
    # If nothing was refused, nothing was looked at.
    return 0 if counts["named"] > counts["programs"] and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
