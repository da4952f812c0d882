"""Checks the runtime's headers against their library: each function says which threads may call it, each that is declared is
exported, each that is exported is declared.

    abi_check.py LIBRARY HEADER...
"""

import pathlib
import re
import subprocess
import sys

RULES = ("any thread", "own thread", "own thread, blocks", "own thread, all ranks", "own thread, start")


def declared(header):
    """(name, rule) of each function; a declaration without a comment of its own has the rule of the one right above."""
    rule, comment, found = None, [], []
    for line in header.read_text().splitlines():
        if line.startswith("///"):
            comment.append(line)
            continue
        name = re.match(r"COMMRT_API .*?\b(commrt_\w+)\(", line)
        if name and comment:
            match = re.match(r"/// \[([a-z, ]+)\]", comment[0])
            rule = match.group(1) if match else None
        if name:
            found.append((name.group(1), rule))
        elif not line.startswith(" "):  # not the rest of a declaration
            rule = None
        comment = []
    return found


def main():
    library, *headers = (pathlib.Path(argument) for argument in sys.argv[1:])
    functions = [function for header in headers for function in declared(header)]
    bad = [f"{name}: says not which threads may call it" for name, rule in functions if rule not in RULES]
    names = {name for name, _ in functions}
    lines = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True).stdout
    symbols = {fields[-1] for fields in map(str.split, lines.splitlines())}
    exported = {name for name in symbols if name.startswith("commrt_")}
    bad += [f"{name}: exported, and not of the ABI" for name in sorted(symbols - exported)]
    bad += [f"{name}: declared, not exported" for name in sorted(names - exported)]
    bad += [f"{name}: exported, not declared" for name in sorted(exported - names)]
    print("\n".join(bad) if bad else f"{len(names)} functions")
    return 1 if bad or len(names) < 50 else 0


if __name__ == "__main__":
    sys.exit(main())
