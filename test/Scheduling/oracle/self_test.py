# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of the oracle itself."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .block import Block, Buffer, Node, Play, load, play
from .buckets import merged
from .faults import FAULTS, Fault
from .prices import Prices
from .programs import random_problem
from .search import Budget, bucketings, least_makespan

# Orders of one bucketing of a program that is played order by order.
MOST_ORDERS = 20000


def models_example() -> Block:
    """The example of Models.md ("A worked example")."""
    nodes = [
        Node("compute", 30, workspace=50, touches={0}, defines={0}),
        Node("compute", 5, touches={1}, defines={1}),
        Node("start", 40, "dp", 2, after={1}, touches={1, 2}, defines={2}),
        Node("wait", awaits=2, after={2}, touches={1, 2}),
        Node("compute", 60, after={0, 3}, touches={0, 2, 3}, defines={3}),
        Node("start", 50, "dp", 2, after={4}, touches={3, 4}, defines={4}),
        Node("wait", awaits=5, after={5}, touches={3, 4}),
        Node("compute", 20, after={0}, touches={0, 5}, defines={5}),
    ]
    buffers = [
        Buffer(200),
        Buffer(100),
        Buffer(400),
        Buffer(300),
        Buffer(75, live_out=True),
        Buffer(120, live_out=True),
    ]
    return Block(dict(enumerate(nodes)), dict(enumerate(buffers)))


def check_example() -> list[str]:
    block, prices = models_example(), Prices({"node": {"ranks": 1}}, {})
    wrong = []
    for order, expected in (
        ([0, 1, 2, 3, 4, 5, 6, 7], Play(205, 86, 900)),
        ([1, 2, 0, 3, 4, 5, 7, 6], Play(155, 36, 900)),
    ):
        if play(block, order) != expected:
            wrong.append(f"Models.md: {order} costs {play(block, order)}, but the page says {expected}")
    for limit, expected_least in ((900, 155), (899, None)):
        least = least_makespan(block, prices, limit, 205, Budget(10000)).makespan
        if least != expected_least:
            wrong.append(f"Models.md: the optimum within {limit} bytes is {least}, but the page says {expected_least}")
    return wrong


def orders(block: Block, done: list[int]) -> Iterator[list[int]]:
    """All orders that begin with `done`."""
    if len(done) == len(block.nodes):
        yield done
    for number, node in block.nodes.items():
        if number not in done and node.after <= set(done):
            yield from orders(block, [*done, number])


def least_by_orders(block: Block, prices: Prices, limit: int) -> int | None:
    """The optimum by playing every order of every bucketing; None if there are too many."""
    least = []
    for buckets in bucketings(block.members):
        bucketed = merged(block, buckets, prices)
        for number, order in enumerate(orders(bucketed, [])):
            if number == MOST_ORDERS:
                return None
            played = play(bucketed, order)
            if played.peak <= limit:
                least.append(played.makespan)
    return min(least)


def check_search(seeds: range) -> list[str]:
    """The search drops prefixes. The same without: every order is played."""
    wrong, compared = [], 0
    for seed in seeds:
        program, machine = random_problem(seed, 3)
        if len(program.steps) > 10:
            continue
        prices = Prices(machine, program.groups)
        block = load(program, prices)
        given = play(block, list(block.nodes))
        expected = least_by_orders(block, prices, given.peak)
        if expected is None:
            continue
        compared += 1
        found = least_makespan(block, prices, given.peak, given.makespan, Budget(10**6)).makespan
        if found != expected:
            wrong.append(f"seed {seed}: the search finds {found}, all orders {expected}")
    print(f"{compared} programs: the search agrees with all orders of all bucketings" if not wrong else "")
    return wrong if compared else ["no program was compared"]


def check_faults(folder: Path) -> list[str]:
    """Every fault still applies."""
    return [
        f"fault {fault.name!r}: its text occurs {count} times in {fault.file}"
        for fault in FAULTS
        if (count := (folder / fault.file).read_text().count(fault.old)) != 1
    ]


def run(script: Path) -> int:
    """Tests that need no tools. Returns the exit code."""
    wrong = check_example() + check_faults(script.parent / "oracle") + check_search(range(300))
    print("\n".join(wrong) or "no fault of the oracle found")
    return int(bool(wrong))


def notices(fault: Fault, script: Path, arguments: list[str]) -> str:
    """The first line with which a copy of the oracle with the fault disagrees with comm-opt; "" if it never does."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / script.name
        shutil.copy(script, copy)
        shutil.copytree(script.parent / "oracle", Path(folder) / "oracle")
        file = Path(folder) / "oracle" / fault.file
        file.write_text(file.read_text().replace(fault.old, fault.new))
        done = subprocess.run([sys.executable, "-B", str(copy), *arguments], capture_output=True, text=True)
    return next((line for line in done.stdout.splitlines() if " disagrees: " in line), "")


def plant(script: Path, arguments: list[str]) -> int:
    """Plants the faults, one after the other. Returns 1 if one is not noticed."""
    missed = 0
    for fault in FAULTS:
        noticed = notices(fault, script, [*arguments, "--stop"])
        print(f"{fault.name}: {noticed or 'NOT NOTICED'}", flush=True)
        missed += not noticed
    print(f"{len(FAULTS)} faults planted, {missed} not noticed")
    return int(missed > 0)
