#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that docs/guide/WhereIs.md has a row for each name of where_is_names.txt, and that what the rows name exists.

    check_where_is.py [--root DIR]

- Each name of the list has exactly one row, in the table of its program, and each row is of one name of the list.
- Each word in the second column occurs in the sources: the name of a pass, an option, a function, a class or a file.
- Each row says what differs, unless its operation has the same name.

Exit code 1, with one line for each fault.
"""

import argparse
import re
import sys
from pathlib import Path

PAGE, NAMES = "docs/guide/WhereIs.md", "test/docs/where_is_names.txt"
FOLDERS = ["include", "lib", "tools", "python/commsched", "cmake"]
SOURCES = {".cpp", ".h", ".td", ".py", ".txt", ".cmake"}
# What a quoted piece of the second column is made of.
WORD = re.compile(r"[A-Za-z_][\w./-]*(?:::\w+)?")


def names_of(text: str) -> dict[str, list[str]]:
    """Indexed by program: its names."""
    names: dict[str, list[str]] = {}
    program = ""
    for line in text.splitlines():
        if header := re.fullmatch(r"\[(.*)\]", line):
            program = header[1]
            names[program] = []
        elif line and not line.startswith("#"):
            names[program].append(line)
    return names


def rows_of(text: str) -> dict[str, list[list[str]]]:
    """Indexed by program: the rows of its table, each with its cells."""
    rows: dict[str, list[list[str]]] = {}
    for section in re.split(r"(?m)^## ", text)[1:]:
        heading, _, body = section.partition("\n")
        program = heading.rpartition(": ")[2]
        lines = [line for line in body.splitlines() if line.startswith("|")][2:]
        rows[program] = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return rows


def sources_of(root: Path) -> str:
    """The texts of all sources, and the paths of all files there."""
    files = [f for folder in FOLDERS for f in sorted((root / folder).rglob("*")) if f.suffix in SOURCES]
    return "\n".join([*map(str, files), *(f.read_text() for f in files)])


def missing_words(cell: str, sources: str) -> list[str]:
    """The words of a cell's quotations that do not occur in the sources."""
    words = [w for quoted in re.findall(r"`([^`]*)`", cell) for w in WORD.findall(quoted.lstrip("-"))]
    return [w for w in words if w not in sources and not all(part in sources for part in re.split(r"::|\.", w))]


def faults(root: Path) -> list[str]:
    names, rows = names_of((root / NAMES).read_text()), rows_of((root / PAGE).read_text())
    sources = sources_of(root)
    found = [f"{PAGE}: no table for {program}" for program in names if program not in rows]
    found += [f"{PAGE}: a table for {program}, which is not in {NAMES}" for program in rows if program not in names]
    for program in names.keys() & rows.keys():
        listed = [re.sub(r"`", "", row[0]) for row in rows[program]]
        for name in names[program]:
            if (count := listed.count(name)) != 1:
                found.append(f"{PAGE}: expected 1 row for {name} in the table of {program}, got {count}")
        found += [f"{PAGE}: {name} is not a name of {program} in {NAMES}" for name in set(listed) - {*names[program]}]
        for row in rows[program]:
            if len(row) != 3:
                found.append(f"{PAGE}: expected 3 cells in the row of {row[0]}, got {len(row)}")
                continue
            found += [f"{PAGE}: {word}, for {row[0]}, is not in the sources" for word in missing_words(row[1], sources)]
            if not row[1]:
                found.append(f"{PAGE}: {row[0]} has no place here")
            alike = row[1].strip("`").rpartition(".")[2] in row[0]
            if not row[2] and not alike:
                found.append(f"{PAGE}: {row[0]} does not say what differs")
    return sorted(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    found = faults(parser.parse_args().root)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
