# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What was checked of a block, and what is believed, in sentences for people who know neither MLIR nor this project.

Each sentence is about something that `core` and its modules have done when they accepted the block: `facts` are the
numbers of `core.check`, and `block` is the block of the certificate. Names of a certificate are marked by `name`.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

UNITS_OF_TIME = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"))
UNITS_OF_SIZE = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def rounded(value: int, units: tuple[tuple[int, str], ...], smallest: str) -> str:
    """Three digits and a unit, and the number itself behind it."""
    for size, unit in units:
        if value >= size:
            return f"{value / size:#.3g} {unit} ({value:,} {smallest})".replace(". ", " ")
    return f"{value} {smallest}"


def time(ns: int) -> str:
    return rounded(ns, UNITS_OF_TIME, "ns")


def size(count: int) -> str:
    return rounded(count, UNITS_OF_SIZE, "bytes")


def name(text: object) -> str:
    """A name of the certificate as HTML: it cannot end the text around it, nor turn its direction."""
    return f"<bdi><code>{escape(str(text))}</code></bdi>"


def count(number: int, one: str, more: str = "") -> str:
    """ "1 lane", "2 lanes"."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def checked(block: dict[str, Any], facts: dict[str, Any]) -> Iterator[str]:
    """As HTML, in the order in which the checker does it."""
    if "peak_bytes" in facts:
        yield from checked_answer(block, facts)
    yield from checked_bound(block, facts)
    yield from checked_loops(block, facts)
    if "regret_percent" in facts:
        scales = len(block["scales"]["at"]) + 1
        yield (
            "The same was done in case all collectives take another time than planned: at "
            f"{scales} factors from 0.75 to 2 the schedule was played and a bound was proven. Between these factors, "
            "both are known well enough (Lemma 24)."
        )


def checked_answer(block: dict[str, Any], facts: dict[str, Any]) -> Iterator[str]:
    problem, buckets = block["problem"], block["answer"]["buckets"]
    merged = f", or in one of {count(len(buckets), 'merged collective')}" if buckets else ""
    yield f"Each of the {count(facts['nodes'], 'operation')} runs exactly once, by itself{merged}."
    kept = count(facts["dependences"], "dependence")
    yield f"Each operation runs after those that it depends on: all {kept} are kept."
    yield "Each wait for a collective comes after its start, and operations that must stay together do."
    if facts.get("accesses"):
        yield (
            f"{count(facts['accesses'], 'access', 'accesses')} to memory, of which some write, keep the order of the "
            "program. This list was made by other code than the dependences, so it finds one that was forgotten."
        )
    elif facts.get("accesses") == 0:
        yield "No memory that is written is accessed twice, so no order of accesses can be wrong."
    if facts.get("makespan_ns") is not None:
        shared = ", with what several of them cost each other on the same device" if problem.get("demands") else ""
        lanes = count(len(problem["lanes"]), "lane")
        yield f"All operations were played on {lanes}{shared}: the last one ends after {time(facts['makespan_ns'])}."
    within = f", which is within the limit of {size(block['claims']['limit_bytes'])}" if has_limit(block) else ""
    yield f"The bytes that are live at each moment were summed: at most {size(facts['peak_bytes'])}{within}."
    unchecked = " ".join(facts["not_checked"])
    if buckets and "merged collectives and their copies" not in unchecked:
        yield "Merged collectives, and the copies that they need, take the times that the samples of costs say."


def nothing_else(block: dict[str, Any], facts: dict[str, Any]) -> str:
    """What a bound holds for: the beginning of a sentence."""
    within = " within the limit of memory" if has_limit(block) else ""
    freedom = [" any merging of collectives"] if "bucketing" in facts["freedom"] else []
    freedom += [" any way to carry them out"] if "choice" in facts["freedom"] else []
    return f"No order{within}" + (f", with{' and'.join(freedom)}," if freedom else "")


def has_limit(block: dict[str, Any]) -> bool:
    return isinstance(block["claims"].get("limit_bytes"), int)


def checked_bound(block: dict[str, Any], facts: dict[str, Any]) -> Iterator[str]:
    claim = f"{nothing_else(block, facts)} is faster than {time(facts['bound_ns'])}."
    if facts["not_checked"]:
        yield f"{claim} That much was proven without what is listed below."
        return
    yield f"{claim} The reason: {argument_of(block)}"
    levels = len(block["bound"].get("heads", ())) + len(block["bound"].get("tails", ()))
    if levels:
        yield (
            f"This uses {count(levels, 'earliest or latest time', 'earliest or latest times')} that were raised, since "
            "the work of a lane that comes before (or after) needs its time (Lemmas 3 and 4)."
        )
    if "bucketing" in facts["freedom"]:
        shared = ", and use the least of shared resources (Lemmas 15 and 27)" if block["problem"].get("demands") else ""
        yield f"Collectives count with the least that they can take in any merging (Lemmas 7 and 8){shared}."


def checked_loops(block: dict[str, Any], facts: dict[str, Any]) -> Iterator[str]:
    if loop := facts.get("loop"):
        by = "the work of a lane or resource" if loop["load_ns"] >= loop["recurrence_ns"] else "a cycle of dependences"
        yield (
            "This block is the body of a loop. No pipeline of the loop, in which operations run for other iterations, "
            f"has an iteration of less than {time(loop['bound_ns'])}. The reason: {by} needs that long (Lemma 28). All "
            f"lanes, and all cycles of the {count(loop['dependences'], 'dependence')}, were compared."
        )
        if not loop["merged"]:
            yield "The block does the work of one iteration: its operations have the times and lanes of the loop's."
        else:
            yield (
                "The block has the operations of one iteration with the same times and lanes, but for "
                f"{count(loop['merged'], 'operation')} that were merged."
            )
    for row in facts.get("loops", ()):
        yield (
            f"Operation {row['node']} is a loop, and takes as long as {count(row['iterations'], 'iteration')} of block "
            f"{name(row['body'])}."
        )


def lane_of(block: dict[str, Any], lane: int) -> str:
    """The name of a lane. A bound that proves nothing may be about a lane that is not there."""
    lanes = block["problem"]["lanes"]
    return f"lane {name(lanes[lane])}" if lane < len(lanes) else f"no lane ({lane})"


def argument_of(block: dict[str, Any]) -> str:
    """The witness of the bound in one sentence."""
    bound = block["bound"]
    if bound["argument"] == "through-node":
        what = f"operation {bound['node']}"
        return f"what has to come before {what}, itself, and what has to follow it take that long together (Lemma 2)."
    if bound["argument"] == "deferral":
        starts = count(len(bound["starts"]), "collective")
        return (
            f"one of {starts} has to start last on its lane. What is computed after it delays others of this lane, "
            "so that putting work off gains too little (Lemma 29)."
        )
    if bound["argument"] == "memory-limit":
        return (
            f"not all work of {lane_of(block, bound['lane'])} can come before operation {bound['node']}, for its "
            "results would not fit into the limit. What does not fit comes later (Lemmas 10 and 11)."
        )
    where = f"on {lane_of(block, bound['lane'])}" if "lane" in bound else f"on shared resource {bound['resource']}"
    lemma = "Lemmas 1 and 5" if "lane" in bound else "Lemmas 13 and 14"
    if bound["head_ns"] == bound["tail_ns"] == 0:
        return f"all work {where} needs that long, and only one piece of it runs at a time ({lemma})."
    needs = [f"cannot begin before {time(bound['head_ns'])}"] if bound["head_ns"] else []
    needs += [f"is followed by at least {time(bound['tail_ns'])}"] if bound["tail_ns"] else []
    return f"there is work {where} that {' and '.join(needs)}. Together with it, that takes so long ({lemma})."


def believed(block: dict[str, Any], facts: dict[str, Any]) -> Iterator[str]:
    """As HTML: what a reader has to trust, since the certificate cannot prove it."""
    yield (
        "How long each operation and each collective takes. These are estimates of a model, or measurements of a "
        "machine. If they are wrong, so are all times on this page; the order stays correct."
    )
    reasons = ", ".join(f"{name(reason)}: {number:,}" for reason, number in facts["reasons"].items())
    why = f" ({reasons})" if reasons else ""
    yield f"That these are all dependences of the program{why}, and what each operation accesses."
    if loop := facts.get("loop"):
        yield (
            f"That these are the {count(loop['dependences'], 'dependence')} of the loop, with their distances in "
            "iterations; that its operations are those of the body before some moved to other iterations."
        )
        if loop["merged"]:
            yield "What its merged operations take on their own, and how long they take together."
    if facts.get("loops"):
        yield "How many iterations a loop has."
    yield "The sizes of buffers, and which of them share memory."
    if block["problem"].get("keys"):
        yield "Which collectives may be merged, and that a larger collective never takes less time than a smaller one."
    if block["problem"].get("demands"):
        yield "How much of the device each operation needs while it runs."
    if "chosen" in block["answer"]:
        yield "The cost of the way to carry a collective out that was chosen. It is at least that of the cheapest way."
