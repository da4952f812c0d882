#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Checks that every class of the project's headers has a name of its own.

Two classes with one qualified name in one program are undefined behaviour, and no compiler sees more than one of them.
Headers have no unnamed namespaces, so what they define at the beginning of a line belongs to the namespace around it.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEFINITION = re.compile(r"^(?:class|struct|union|enum class|enum)\s+(?:[A-Z_]+(?:\([^)]*\)+)?\s+)*([\w:]+)[^;()]*\{")
NAMESPACE = re.compile(r"^(?:inline )?namespace ([\w:]+) \{")
CLOSED = re.compile(r"^\} // namespace ([\w:]+)")


def definitions(text):
    """The qualified names of the classes that a header defines."""
    scopes = []
    for line in text.splitlines():
        if found := NAMESPACE.match(line):
            scopes.append(found[1])
        elif CLOSED.match(line) and scopes:
            scopes.pop()
        elif found := DEFINITION.match(line):
            yield "::".join([*scopes, found[1]])


def main():
    places = {}
    for folder in ("include", "lib"):
        for path in sorted((ROOT / folder).rglob("*.h")):
            for name in definitions(path.read_text()):
                places.setdefault(name, []).append(path.relative_to(ROOT))
    wrong = {name: paths for name, paths in places.items() if len(paths) > 1}
    for name, paths in wrong.items():
        print(f"{name} is defined in {' and in '.join(map(str, paths))}")
    print(f"{len(places)} classes of headers")
    return bool(wrong) or len(places) < 300


if __name__ == "__main__":
    sys.exit(main())
