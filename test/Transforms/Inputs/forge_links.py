# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Forges a certificate whose bound rests on what collectives send over links, in three ways. The checker refuses each.

That each is refused for its own reason shows in copies of the checker with one planted fault each, which accept it.
"""

import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "test/Certificate")]
from attack_bounds import plant  # noqa: E402
from commsched_verify import core  # noqa: E402

NODE_LINKS = 2  # the number of the resource


def with_makespan(block):
    """The block with the makespan that its answer takes, and with the claim that nothing is faster."""
    answer = core.Answer(core.Problem(**block["problem"]), **block["answer"])
    block["claims"]["makespan_ns"] = block["claims"]["bound_ns"] = answer.makespan()
    return block


def with_other_links(block, number):
    """The number of a demand like `number` that needs half of the links."""
    demands = block["problem"]["demands"]
    demands.append(list(demands[number - 1]))
    demands[-1][2 * NODE_LINKS] //= 2
    return len(demands)


def raised(block):
    block["claims"]["bound_ns"] += 1
    return block


def with_light_bucket(block):
    """A bucket uses less of the links than its bytes need."""
    (bucket,) = block["answer"]["buckets"]
    bucket["demand"] = with_other_links(block, bucket["demand"])
    return with_makespan(block)


def with_light_starts(block):
    """Starts use less of the links than their bytes need, so the bound does not hold for those that stay alone."""
    pairs = block["problem"]["demand"]
    for at in range(1, len(pairs), 2):
        pairs[at] = with_other_links(block, pairs[at])
    return with_makespan(block)


# What is forged, what is said of it, and the fault that lets it pass: a text of shares.py and its replacement.
FORGED = (
    (raised, "the argument proves a bound of", None),
    (
        with_light_bucket,
        "a bucket costs or needs less than its members are charged",
        ("needs_enough &= bucket.cost * part >= used", "pass"),
    ),
    (
        with_light_starts,
        "the argument proves a bound of",
        ("used = min(own[resource], m.bytes * use // USE_BYTES, load * WHOLE)", "used = m.bytes * use // USE_BYTES"),
    ),
)


def verdict(checker, path):
    command = [sys.executable, "-B", "-m", "commsched_verify", str(path)]
    done = subprocess.run(command, env=dict(os.environ, PYTHONPATH=str(checker)), capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def main():
    header, block = (json.loads(line) for line in open(sys.argv[1]))
    assert block["bound"]["resource"] == NODE_LINKS, block["bound"]
    for forge, refusal, fault in FORGED:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            path = folder / "forged.cert"
            path.write_text("".join(json.dumps(line) + "\n" for line in (header, forge(copy.deepcopy(block)))))
            status, said = verdict(ROOT / "python", path)
            assert status == 1 and refusal in said, (forge.__name__, said)
            if fault:
                plant("shares", *fault, folder)
                status, said = verdict(folder, path)
                assert status == 0, (forge.__name__, said)
            print(f"refused: {forge.__name__}")


if __name__ == "__main__":
    main()
