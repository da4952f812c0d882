# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The command line of `commsched.exposed`."""

from __future__ import annotations

import argparse
import json
import sys

from .. import exposed
from . import analyse, read, table, write_page


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m commsched.exposed", description=exposed.__doc__.split("\n")[0])
    parser.add_argument("traces", nargs="+", help="traces of torch.profiler, or exports of nsys")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON, in microseconds")
    parser.add_argument("--page", metavar="FILE.html", help="also write a page with the timelines of all ranks")
    parser.add_argument("--top", type=int, default=10, metavar="N", help="rows of collectives (default 10)")
    given = parser.parse_args(arguments)
    if given.top < 0:
        parser.error(f"--top: expected at least 0, got {given.top}")
    try:
        found = analyse([read(path) for path in given.traces])
        if given.page is not None:
            write_page(found, given.page)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if given.json:
        print(json.dumps([a.to_json() for a in found], indent=2))
    else:
        print("\n\n".join(table(a, given.top) for a in found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
