#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints what CHANGELOG.md says about a release, once it is certain that the tag names the version of this tree.

    release_notes.py TAG [--root DIR]

The tag is vX.Y.Z. Exit code 1, with one line, if CMakeLists.txt has another version, or if CHANGELOG.md has no section
of it with a date and at least one entry.
"""

import argparse
import re
import sys
from pathlib import Path


class Unready(Exception):
    """The tree is not what the tag says."""


def version_of(cmake: str) -> str:
    """The version that CMakeLists.txt gives the project."""
    match = re.search(r"^project\(CommSched VERSION ([0-9.]+)", cmake, re.MULTILINE)
    if not match:
        raise Unready("CMakeLists.txt: expected project(CommSched VERSION ...)")
    return match[1]


def section_of(changelog: str, version: str) -> str:
    """The text below the heading `## VERSION - YYYY-MM-DD`, up to the next release."""
    headings = re.findall(r"^## (.*)$", changelog, re.MULTILINE)
    sections = re.split(r"^## .*$", changelog, flags=re.MULTILINE)[1:]
    for heading, section in zip(headings, sections):
        name, _, date = heading.partition(" - ")
        if name != version:
            continue
        if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", date):
            raise Unready(f"CHANGELOG.md: expected a date in '## {heading}'")
        if not re.search(r"^- ", section, re.MULTILINE):
            raise Unready(f"CHANGELOG.md: expected at least one entry below '## {heading}'")
        return section.strip()
    raise Unready(f"CHANGELOG.md: expected a section '## {version} - DATE', got {', '.join(headings) or 'no section'}")


def notes(root: Path, tag: str) -> str:
    """The release notes of a tag."""
    version = version_of((root / "CMakeLists.txt").read_text())
    if tag != f"v{version}":
        raise Unready(f"expected the tag v{version}, which is the version in CMakeLists.txt, got {tag}")
    return section_of((root / "CHANGELOG.md").read_text(), version)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tag")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    arguments = parser.parse_args()
    try:
        print(notes(arguments.root, arguments.tag))
    except Unready as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
