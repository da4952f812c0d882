# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Checks certificates, and compares those of several ranks: `python3 -m commsched_verify FILE...`."""

import argparse
import importlib
import importlib.metadata
import io
import json
import os
import sys

from .verdict import compare_ranks, document_of, examine, print_verdicts, status_of, write_whole

# The exit code if the reader of an output stream went away: a shell's number for a process that SIGPIPE ended.
CLOSED_OUTPUT = 128 + 13


def main() -> int:
    """Returns the exit code. A closed output stream ends the program quietly."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of a forged certificate
    try:
        status = check()
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # What is still buffered cannot be written either, and the interpreter would say so at its end.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere, stream.fileno())
        return CLOSED_OUTPUT
    except OSError as error:
        print(f"commsched-verify: error: {error}", file=sys.stderr)
        return 1


def version() -> str:
    """The version of the installed package. The checker also runs from a folder of its own, without one."""
    try:
        return importlib.metadata.version("commsched")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def check() -> int:
    parser = argparse.ArgumentParser(
        prog="commsched-verify",
        description="Checks certificates that comm-opt --comm-certificate=FILE wrote.",
        epilog="Exit code 0: all is proven. 1: something is false. 2: nothing is, but not all (or nothing) is proven.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a certificate")
    parser.add_argument("--spmd", action="store_true", help="the files are of different ranks, which have to agree")
    parser.add_argument("--ranks", metavar="N,...", help="the ranks of the files (default: 0, 1, ... in their order)")
    parser.add_argument(
        "--json", metavar="FILE", help="write what is said as JSON (-: to standard output, without text)"
    )
    parser.add_argument("--html", metavar="FILE", help="write a page that explains what is said (-: as for --json)")
    parser.add_argument("--version", action="version", version=f"commsched-verify, CommSched {version()}")
    arguments = parser.parse_intermixed_args()
    ranks = [int(rank) for rank in arguments.ranks.split(",")] if arguments.ranks else range(len(arguments.files))
    if len(set(ranks)) != len(arguments.files):
        parser.error("--ranks: expected one rank for each file, each a different one")
    if arguments.json == arguments.html == "-":
        parser.error("--json, --html: expected a file for one of them, got standard output for both")
    page = None
    if arguments.html is not None:
        try:
            page = importlib.import_module(".page", __package__)  # who writes no page need not have its modules
        except ImportError as error:
            parser.error(f"--html: {error}")
    verdicts = [examine(file) for file in arguments.files]
    status, said, refusal = status_of(verdicts), "", None
    if arguments.spmd and status != 1:
        said, refusal = compare_ranks(ranks, verdicts)
        status = 1 if refusal else status
    try:  # Files come first: who reads what is printed may end early.
        if page is not None:
            write_whole(arguments.html, page.page_of(verdicts, said or refusal or "", version()))
        if arguments.json is not None:
            write_whole(arguments.json, json.dumps(document_of(verdicts, ranks, refusal), indent=2) + "\n")
    finally:
        if "-" not in (arguments.json, arguments.html):
            print_verdicts(verdicts)
            if said:
                print(said)
        if refusal:
            print(f"not valid: {refusal}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
