# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Reads certificates, checks them, and says in words what is proven: `commsched-verify FILE...`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator

from .answer import Answer
from .bound import Bound
from .charges import Charges
from .problem import Problem
from .statements import UNLIMITED, Invalid, Section, fail, numbers, require

BELIEVED = (
    "believed: costs of nodes, buckets and samples; the dependences, sizes and aliases of the problem; that a cost\n"
    "  function is monotone; that nothing but this block runs"
)


def check_block(sections: dict[str, Section]) -> str:
    """Checks one block; returns what is proven, in words."""
    options, claims, claim = sections["block"], sections["claims"], sections["bound"]
    problem = Problem(sections)
    require(options["bucketing"] or not problem.keys, "merge keys without bucketing")
    answer = Answer(problem, sections["answer"], options["collective_order"])
    makespan, peak, limit = answer.makespan(), answer.peak(), claims.get("limit_bytes", UNLIMITED)
    numbers([limit, claims["makespan_ns"], claims["peak_bytes"], claim["makespan_ns"]], 0, UNLIMITED + 1, "claims")
    require(makespan == claims["makespan_ns"], f"the makespan is {makespan} ns, not {claims['makespan_ns']}")
    require(peak == claims["peak_bytes"], f"the peak is {peak} bytes, not {claims['peak_bytes']}")
    require(peak <= limit, f"the peak of {peak} bytes is above the limit of {limit}")
    charges = Charges(problem, sections.get("charges"))
    for event in answer.events:
        if type(event) is list and event[0] == "start":
            charged = sum(charges.lane[member.start] for member in answer.buckets[event[1]].members)
            require(event[2] >= charged, "a bucket costs less than its members are charged")
    proven = Bound(problem, charges, sections.get("levels", {}), limit).proven(claim)
    bound = claim["makespan_ns"]
    require(proven >= bound, f"the argument proves a bound of {proven} ns, not {bound}")
    require(makespan >= bound, "the answer is faster than the bound")
    gap = 100 * (makespan - bound) / bound if bound else 0
    within = f", within the limit of {limit}" if limit < UNLIMITED else ""
    what = "order and bucketing" if options["bucketing"] else "order"
    return (
        f"the answer keeps {sum(map(len, problem.preds))} dependences of {problem.size} nodes;\n"
        f"  its makespan is {makespan} ns and its peak {peak} bytes{within};\n"
        f"  no {what} is faster than {bound} ns, so it is at most {gap:.2f} % from optimal"
    )


def blocks(lines: Iterable[str]) -> Iterator[dict[str, Section]]:
    """The sections of each block of a file."""
    header: Section | None = None
    sections: dict[str, Section] = {}
    count = 0
    for number, line in enumerate(lines, 1):
        try:
            section = json.loads(line)
        except ValueError as error:
            fail(f"line {number} is no JSON: {error}")
        if header is None:
            header = section
            require(section.get("format") == "commsched-certificate", "this is no certificate")
            require(section.get("version") == 1, f"version {section.get('version')} of the format is unknown")
            continue
        if section["section"] == "block" and sections:
            yield sections
            sections = {}
        count += section["section"] == "block"
        require(section["section"] not in sections, f"line {number} repeats a section")
        sections[section["section"]] = section
    if header is None:
        fail("the file is empty")
    promised = header.get("blocks")
    require(count == promised, f"the file has {count} blocks, its header says {promised}")
    if sections:
        yield sections


def verify(lines: Iterable[str]) -> list[tuple[str, str]]:
    """Checks all blocks of a certificate: their names, and what is proven of each. Raises Invalid."""
    results = []
    try:
        for sections in blocks(lines):
            results.append((sections["block"]["name"], check_block(sections)))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        fail(f"a part is missing or malformed ({type(error).__name__}: {error})")
    return results


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="commsched-verify", description="Checks certificates that comm-opt --comm-certificate=FILE wrote."
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a certificate")
    status = 0
    for file in parser.parse_args().files:
        try:
            with open(file, encoding="utf-8") as lines:
                results = verify(lines)
        except (Invalid, OSError, UnicodeDecodeError) as error:
            print(f"{file}: not valid: {error}", file=sys.stderr)
            status = 1
            continue
        print(f"{file}: valid; blocks: {len(results)}")
        for name, proven in results:
            print(f"{name}: {proven}")
        print(BELIEVED)
    return status
