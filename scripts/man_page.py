#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Writes the manual page of a tool from what the tool prints for --help.

  man_page.py TOOL --version 0.2.0 -o TOOL.1 -- COMMAND...

COMMAND is how the tool is started, without --help. The build and the wheel make all pages in this way, so that none can
differ from its tool. help2man does not know the form of LLVM's command line, which has headings inside of its lists.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

#: An option or one of its values: the indentation, the term, and what it means. LLVM pads terms, with a dash behind.
ENTRY = re.compile(r"^( +)(-[^ ]+?(?: <[^>]+>)?|=[^ ]*?)(?:\s+-|-)\s+(.*)$")
#: The same as argparse writes it: two blanks between, or nothing behind the term.
PLAIN_ENTRY = re.compile(r"^( {2})(\S.*?)(?: {2,}(.*))?$")
#: The parts of a help that become sections of their own.
OVERVIEW, USAGE = re.compile(r"^OVERVIEW: (.*)$"), re.compile(r"^(?:USAGE|usage): (.*)$")
#: How far the page indents a meaning, and so the values of an option, below its term: as .TP does.
STEP = 7


def escape(text: str) -> str:
    """Text of a help as roff: no character of it is a command."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("^", "\\(ha").replace("~", "\\(ti")
    text = text.replace("`", "\\(ga").replace("'", "\\(aq").replace('"', "\\(dq")
    return f"\\&{text}" if text.startswith(".") else text


def heading(level: str, text: str) -> list[str]:
    return [f'.{level} "{escape(text)}"']


def entry(indent: int, term: str, meaning: str) -> list[str]:
    """A term with its meaning, indented as in the help."""
    lines = [f".RS {indent}"] if indent else []
    lines += [".TP", f"\\fB{escape(term)}\\fR", escape(meaning) or "\\&"]
    return lines + ([".RE"] if indent else [])


class Page:
    """The parts of a help: what the tool does, how it is called, and its options."""

    def __init__(self, text: str) -> None:
        self.name = self.usage = ""
        self.description, self.options = list[str](), list[str]()
        lines = iter(text.expandtabs().splitlines())
        is_llvm = text.startswith("OVERVIEW:")
        self.read_front(lines, is_llvm)
        self.read_options(lines, ENTRY if is_llvm else PLAIN_ENTRY)

    def read_front(self, lines: Iterator[str], is_llvm: bool) -> None:
        """What stands before the options: LLVM has the overview first, and argparse the usage."""
        end, above = "OPTIONS:" if is_llvm else "positional arguments:", ""
        for line in lines:
            if line == end:
                self.options += [] if is_llvm else heading("SS", line.rstrip(":"))
                return
            if found := OVERVIEW.match(line):
                self.name = found[1]
            elif found := USAGE.match(line):
                self.usage = found[1].partition(" ")[2]  # without the name of the file that was started
            elif line.strip() and not self.name:
                self.name = line.strip().rstrip(".")
            elif line.strip():
                self.description += [".br" if self.description and above else ".PP", escape(line.strip())]
            above = line.strip()

    def read_options(self, lines: Iterator[str], form: re.Pattern[str]) -> None:
        above = 0  # the indentation of the option that values belong to
        for line in lines:
            found = form.match(line)
            if found and found[2].startswith("="):  # LLVM puts all values at one place, however deep their option is.
                self.options += entry(above + STEP, found[2][1:], found[3] or "")
            elif found:
                above = len(found[1]) - 2
                self.options += entry(above, found[2], found[3] or "")
            elif line.endswith(":") and line.strip():
                self.options += heading("SS", line.strip().rstrip(":"))
            elif line.startswith(" ") and self.options[-1:] == ["\\&"]:  # argparse, behind a long term
                self.options[-1] = escape(line.strip())
            elif line.strip() and form is PLAIN_ENTRY:  # argparse has the end of the description there
                self.description += [".PP", escape(line.strip())]
            elif line.strip():
                self.options += [".PP", escape(line.strip())]

    def roff(self, tool: str, version: str) -> str:
        lines = [f'.TH {tool.upper().replace("-", chr(92) + "-")} 1 "" "CommSched {version}" "CommSched"']
        lines += ['.\\" Made by scripts/man_page.py from the help of the tool.', ".nh", ".ad l"]
        lines += [*heading("SH", "NAME"), f"{escape(tool)} \\- {escape(self.name)}"]
        lines += [*heading("SH", "SYNOPSIS"), f"\\fB{escape(tool)}\\fR {escape(self.usage)}"]
        if self.description:
            lines += [*heading("SH", "DESCRIPTION"), *self.description]
        lines += [*heading("SH", "OPTIONS"), *self.options]
        return "\n".join(lines) + "\n"


def help_of(command: list[str]) -> str:
    """What the tool prints for --help, without breaks of lines. Raises CalledProcessError."""
    environment = {**os.environ, "COLUMNS": "10000", "LC_ALL": "C"}
    return subprocess.run([*command, "--help"], check=True, capture_output=True, text=True, env=environment).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tool", help="the name of the page")
    parser.add_argument("command", nargs="+", help="how the tool is started")
    parser.add_argument("--version", required=True, help="of the project")
    parser.add_argument("-o", dest="output", type=pathlib.Path, required=True, help="the page")
    given = parser.parse_args()
    try:
        page = Page(help_of(given.command)).roff(given.tool, given.version)
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(page, encoding="utf-8")
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"man_page.py: error: {given.tool}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
