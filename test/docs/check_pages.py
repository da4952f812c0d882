#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that links between pages resolve, that pages named in code exist, and that a newcomer reads few words.

    check_pages.py [--root DIR]

- A relative link of a Markdown page leads to a file or a folder, and its anchor to a heading of that page.
- A page that a source file names (`Bounds.md`, `docs/guide/Jax.md`) exists. Every page of docs has a name of its own,
  so code names it without its folder.
- README.md has at most MAX_WORDS words, code included, up to the end of the section FIRST, which is the reader's first
  own schedule.

Exit code 1, with one line for each fault.
"""

import argparse
import re
import sys
from pathlib import Path

# The limit on the number of words that a newcomer reads before the first schedule of an own program.
MAX_WORDS = 800
FIRST = "## Your first schedule"

SOURCES = {".cpp", ".h", ".c", ".td", ".py", ".sh", ".mlir", ".test", ".cmake", ".txt", ".js"}
FOLDERS = ["include", "lib", "tools", "python", "test", "scripts", "benchmarks", "cmake", "docs"]
LINK = re.compile(r"\]\(([^)\s]+)\)")
PAGE = re.compile(r"(?<![\w./}-])((?:docs/[\w/-]*)?[A-Z][a-z]\w*\.md)\b")


def prose_of(text: str) -> str:
    """The text without fenced blocks, with as many lines."""
    fenced, lines = False, []
    for line in text.splitlines():
        fence = line.lstrip().startswith("```")
        lines.append("" if fence or fenced else line)
        fenced ^= fence
    return "\n".join(lines)


def anchors_of(text: str) -> set[str]:
    """The anchors that GitHub makes of the headings."""
    anchors: dict[str, int] = {}
    result = set()
    for heading in re.findall(r"^#+ +(.*?) *$", prose_of(text), re.MULTILINE):
        slug = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", slug).replace(" ", "-")
        count = anchors.get(slug, 0)
        anchors[slug] = count + 1
        result.add(f"{slug}-{count}" if count else slug)
    return result


def link_faults(root: Path, pages: list[Path]) -> list[str]:
    faults = []
    for page in pages:
        for number, line in enumerate(prose_of(page.read_text()).splitlines(), 1):
            for target in LINK.findall(re.sub(r"`[^`]*`", "", line)):
                if re.match(r"[a-z]+:", target):
                    continue
                path, _, anchor = target.partition("#")
                found = (page.parent / path) if path else page
                place = f"{page.relative_to(root)}:{number}"
                if not found.exists():
                    faults.append(f"{place}: the link leads nowhere: {target}")
                elif anchor and found.suffix == ".md" and anchor not in anchors_of(found.read_text()):
                    faults.append(f"{place}: the page has no such heading: {target}")
    return faults


def name_faults(root: Path, pages: list[Path]) -> list[str]:
    names = {page.name for page in pages}
    places: dict[str, Path] = {}
    faults = []
    for page in (page for page in pages if page.is_relative_to(root / "docs") and page.name != "README.md"):
        if page.name[0].isupper() and page.name in places:
            faults.append(f"{page.relative_to(root)}: {places[page.name].relative_to(root)} has the same name")
        places[page.name] = page
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in SOURCES or not path.is_file() or path == Path(__file__).resolve():
                continue
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                for page in PAGE.findall(line):
                    if not ((root / page).exists() if "/" in page else page in names):
                        faults.append(f"{path.relative_to(root)}:{number}: there is no page {page}")
    return faults


def word_faults(root: Path) -> list[str]:
    text = (root / "README.md").read_text()
    if f"\n{FIRST}\n" not in text:
        return [f"README.md: there is no section '{FIRST}'"]
    before, _, section = text.partition(f"\n{FIRST}\n")
    section = re.split(r"\n## ", section)[0]
    words = len((before + section).split())
    print(f"README.md has {words} words up to the first own schedule; at most {MAX_WORDS} are allowed")
    return [f"README.md: {words} words up to the first own schedule"] if words > MAX_WORDS else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    root = parser.parse_args().root
    pages = [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md")), *sorted((root / "test").rglob("*.md"))]
    pages += sorted((root / "benchmarks").rglob("*.md"))
    faults = link_faults(root, pages) + name_faults(root, pages) + word_faults(root)
    print("\n".join(faults))
    print(f"{len(pages)} pages, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
