# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Reads certificates, checks them, and says in words what is proven: `python3 -m commsched_verify FILE...`."""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

from .answer import Answer
from .bound import prove
from .problem import UNLIMITED, Invalid, Problem, natural, require
from .ranks import compare

# What Python raises when a part of a certificate is missing, or is not what it should be.
MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def check(name: str, problem: Any, answer: Any, claims: dict[str, int], bound: Any, collectives: Any = ()) -> str:
    """Checks one block; returns what is proven and what is believed, in words. The collectives are for other ranks."""
    given, limit = Problem(**problem), claims.get("limit_bytes", UNLIMITED)
    makespan, peak, least = claims["makespan_ns"], claims["peak_bytes"], claims["bound_ns"]
    found = Answer(given, **answer)
    require(found.makespan() == makespan, f"the makespan is {found.makespan()} ns, not {makespan}")
    require(found.peak() == peak, f"the peak is {found.peak()} bytes, not {peak}")
    require(peak <= limit, f"the peak of {peak} bytes is above the limit of {limit}")
    proven = prove(found, limit, **bound)
    require(proven >= least, f"the argument proves a bound of {proven} ns, not {least}")
    require(makespan >= least, "the answer is faster than the bound")
    freedoms = ["order", *(["bucketing"] if given.keys else []), *(["choice"] if "chosen" in answer else [])]
    reasons = Counter((given.reason_names or {})[letter] for letter in given.reasons)
    return (
        f"{name}: proven: the answer keeps {sum(map(len, given.preds))} dependences of {given.size} nodes;\n"
        f"  its makespan is {makespan} ns and its peak {peak} bytes"
        f"{f', within the limit of {limit}' if limit < UNLIMITED else ''};\n"
        f"  no {' and '.join(freedoms)} is faster than {least} ns, so it is at most "
        f"{-(-10000 * (makespan - least) // max(least, 1)) / 100:.2f} % from optimal\n"
        f"{name}: believed: costs{' and demands' if given.demands else ''} of nodes, buckets and samples; that cost "
        f"functions are monotone;\n  sizes and aliases; that these are all dependences"
        f"{' (' + ', '.join(f'{why}: {count}' for why, count in reasons.items()) + ')' if reasons else ''}"
    )


def verify(lines: Iterable[str]) -> str:
    """Checks all blocks of a certificate; returns what is to be said of them. Raises Invalid."""
    try:
        header, *blocks = [json.loads(line, parse_int=natural, parse_float=natural) for line in lines]
        require(header.get("format") == "commsched-certificate", "this is no certificate")
        require(header.get("version") == 2, f"version {header.get('version')} of the format is unknown")
        promised = header["blocks"]
        require(len(blocks) == promised, f"the file has {len(blocks)} blocks, its header says {promised}")
        modules = f"{header['output_sha256']}, and is made of {header['input_sha256']}"
        proven = [check(**block) for block in blocks]
        return "\n".join([f"valid; blocks: {promised}", *proven, f"believed: the module has the SHA-256 {modules}"])
    except MALFORMED as error:
        raise Invalid(f"a part is missing, unknown or malformed ({type(error).__name__}: {error})") from error


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="commsched-verify", description="Checks certificates that comm-opt --comm-certificate=FILE wrote."
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a certificate")
    parser.add_argument("--spmd", action="store_true", help="the files are of different ranks, which have to agree")
    parser.add_argument("--ranks", metavar="N,...", help="the ranks of the files (default: 0, 1, ... in their order)")
    arguments = parser.parse_intermixed_args()
    ranks = [int(rank) for rank in arguments.ranks.split(",")] if arguments.ranks else range(len(arguments.files))
    if len(set(ranks)) != len(arguments.files):
        parser.error("--ranks: expected one rank for each file, each a different one")
    texts: list[list[str]] = []
    status = 0
    for file in arguments.files:
        try:
            with open(file, encoding="utf-8") as lines:
                texts.append(list(lines))
            said = verify(texts[-1])
        except (Invalid, OSError, UnicodeDecodeError) as error:
            print(f"{file}: not valid: {error}", file=sys.stderr)
            status = 1
        else:
            print(f"{file}: {said}")
    try:
        if arguments.spmd and not status:
            print(compare(list(ranks), texts))
    except (Invalid, *MALFORMED) as error:
        print(f"not valid: {error}", file=sys.stderr)
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
