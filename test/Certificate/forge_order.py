#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Finds out whether a certificate holds without each of the dependences that stand for memory.

Random programs (test/Run/fuzz) with buffers, views, branches, loops and calls are scheduled. Of each dependence that is
there because two operations access one memory, a forger leaves it out of the certificate and takes an order that only
it forbids. The list of accesses, which other code has derived, has to forbid that order as well. It need not do so
where it knows more: that a callee's result is new memory, or that no start of a future from a loop has a destination.
That is so of one dependence in ten.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from collections import Counter

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "test" / "Run")]
from commsched_verify import accesses as second_list
from commsched_verify.core import Answer, Invalid, Problem, verify
from fuzz.judge import make_batch


def certificates_of(comm_opt, text, folder):
    """The blocks of the certificate of a program, or None if it is refused."""
    program, certificate = folder / "program.mlir", folder / "program.cert"
    program.write_text(text)
    command = [
        comm_opt,
        program,
        "--comm-schedule=effort=2000",
        f"--comm-certificate={certificate}",
        "-o",
        "/dev/null",
    ]
    if subprocess.run(command, capture_output=True, text=True).returncode:
        return None
    lines = certificate.read_text().splitlines()
    certificate.unlink()
    return lines


def ancestors(preds, node):
    found, stack = set(), [node]
    while stack:
        for pred in preds[stack.pop()]:
            if pred not in found:
                found.add(pred)
                stack.append(pred)
    return found


def allows(problem, order, lists):
    """Whether a checker of dependences and accesses accepts an order."""
    try:
        second_list.check(Answer(problem, [], order), **lists)
    except Invalid:
        return False
    return True


def forge(block):
    """Of each memory dependence that nothing else implies: whether the list of accesses forbids what it forbids."""
    given = Problem(**block["problem"])
    assert allows(given, list(range(given.size)), block["accesses"]), "the program as given"
    for node, preds in enumerate(given.preds):
        for pred in preds:
            if given.why[node].get(pred) != "memory" or pred in given.awaited[node]:
                continue
            parts = dict(block["problem"], reasons="", reason_names={}, units=[])
            parts["edges"] = [list(row) for row in parts["edges"]]
            parts["edges"][node].remove(node - pred)
            problem = Problem(**parts)
            needs = [row + problem.awaited[at] for at, row in enumerate(problem.preds)]
            first = ancestors(needs, node)
            if pred in first:
                continue
            order = [
                *sorted(first),
                node,
                *(at for at in range(problem.size) if at != node and at not in first),
            ]
            yield pred, node, not allows(problem, order, block["accesses"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--comm-opt", required=True)
    parser.add_argument("--batches", type=int, default=4, help="of 16 programs")
    parser.add_argument("--first", type=int, default=50, help="the first batch")
    arguments = parser.parse_args()
    count = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for batch in range(arguments.first, arguments.first + arguments.batches):
            for candidate in make_batch(batch):
                lines = certificates_of(arguments.comm_opt, candidate.text, folder)
                count["programs" if lines else "refused programs"] += 1
                if not lines:
                    continue
                verify(lines)
                for block in map(json.loads, lines[1:]):
                    count["blocks"] += 1
                    for _, _, forbidden in forge(block):
                        count["dependences left out"] += 1
                        count["noticed"] += forbidden
    print(", ".join(f"{number} {what}" for what, number in count.items()))
    assert count["dependences left out"] > 20 * arguments.batches, "too few to say anything"
    assert count["noticed"] > 0.8 * count["dependences left out"], "the list of accesses has gaps"


if __name__ == "__main__":
    main()
