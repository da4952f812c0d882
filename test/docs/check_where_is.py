#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that docs/guide/WhereIs.md has a row for each name of where_is_names.txt, and that what the rows name exists.

    check_where_is.py [--root DIR]

- Each name of the list has exactly one row, in the table of its program, and each row is of one name of the list.
- Each word in the second column occurs in the sources: the name of a pass, an option, a function, a class or a file.
- Each row says what differs, unless its operation has the same name.
- The table of effects has each row once, and each row names tests that exist.

Exit code 1, with one line for each fault.
"""

import argparse
import re
import sys
from pathlib import Path

PAGE, NAMES = "docs/guide/WhereIs.md", "test/docs/where_is_names.txt"
FOLDERS = ["include", "lib", "tools", "python/commsched", "cmake"]
SOURCES = {".cpp", ".h", ".td", ".py", ".txt", ".cmake"}
# The heading of the table of effects, and its rows: those of the programs (A to E), and those of CommSched itself (K).
EFFECTS = "What shows it"
ROWS = [f"{letter}{n}" for letter, count in zip("ABCDEK", (5, 15, 6, 5, 4, 9)) for n in range(1, count + 1)]
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
        if program != EFFECTS:
            rows[program] = cells_of(body)
    return rows


def cells_of(body: str) -> list[list[str]]:
    """The rows of a section's table, each with its cells."""
    lines = [line for line in body.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def missing_test(root: Path, name: str) -> bool:
    """Whether a test does not exist: a file, or FILE::NAME, a function of Python or the second argument of a TEST."""
    path, _, function = name.partition("::")
    if not path.startswith("test/") or not (root / path).is_file():
        return True
    text = (root / path).read_text()
    return bool(function) and not re.search(rf"(?m)^def {function}\(|^TEST\w*\([\w()]+, {function}\)", text)


def effect_faults(root: Path, text: str) -> list[str]:
    _, _, body = text.partition(f"\n## {EFFECTS}\n")
    rows = cells_of(body)
    listed = [row[0] for row in rows]
    found = [
        f"{PAGE}: expected 1 row {row} of {EFFECTS!r}, got {count}" for row in ROWS if (count := listed.count(row)) != 1
    ]
    found += [f"{PAGE}: {row} is not a row of {EFFECTS!r}" for row in listed if row not in ROWS]
    for row in rows:
        if len(row) != 4 or not all(row):
            found.append(f"{PAGE}: expected 4 cells with text in row {row[0]}, got {row[1:]}")
            continue
        tests = re.findall(r"`([^`]*)`", row[2])
        found += [f"{PAGE}: {test}, for {row[0]}, does not exist" for test in tests if missing_test(root, test)]
        if not tests:
            found.append(f"{PAGE}: {row[0]} has no test")
    return found


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
    return sorted(found + effect_faults(root, (root / PAGE).read_text()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    found = faults(parser.parse_args().root)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
