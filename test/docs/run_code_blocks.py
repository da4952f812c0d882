#!/usr/bin/env python3
"""Runs the code blocks of README.md and docs/, so that what they show is true.

A block's first word says what is done with it; words after it change that:

  mlir             goes through comm-opt, which has to accept it. A fragment is completed first: it becomes the body of a
                   function whose arguments are the values it uses and does not define (their types are learnt from
                   comm-opt's diagnostics), beside the groups of PRELUDE.
  mlir opts="..."  the same with these options.
  mlir rejected    has to be refused with a diagnostic.
  sh               runs in the root of the source tree with build/bin first in PATH, and has to succeed.
  sh output        its output is compared with the block that follows, see `text`.
  text             is the output of the `sh output` block before it: every line has to occur in it, in order. Numbers may
                   differ, and so may the width of blanks; a line "..." stands for any lines.
  python           runs with build/venv's Python, in a process of its own.
  json             has to parse.
  X file=PATH      every line of the block has to occur in PATH, in order: a quotation of code that another test runs.
  X no-run: WHY    is left out, and the reason is printed.

A block without a first word is not code.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

PRELUDE = """comm.group @dp #comm.iota<[1, 4]>
comm.group @tp #comm.iota<[1, 2]>
comm.group @ep #comm.iota<[1, 4]>
comm.group @pp #comm.iota<[1, 4]>
"""
FENCE = re.compile(r"^(\s*)```(.*)$")
WRONG_TYPE = re.compile(r"use of value '%(\w+)' expects different type than prior uses: '(.*)' vs")
TIMEOUT_S = 300


@dataclass
class Block:
    path: Path
    line: int
    info: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"

    @property
    def language(self) -> str:
        return self.info.split()[0] if self.info.split() else ""

    def option(self, pattern: str):
        match = re.search(pattern, self.info)
        return match.group(1) if match else None


def blocks_of(path: Path) -> list[Block]:
    """The fenced blocks of a Markdown file, without the indentation of their fences."""
    blocks, current, indent = [], None, ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fence = FENCE.match(line)
        if fence and current is None:
            indent, current = fence.group(1), Block(path, number, fence.group(2).strip(), "")
        elif fence and not fence.group(2).strip():
            blocks.append(current)
            current = None
        elif current is not None:
            current.text += line.removeprefix(indent) + "\n"
    if current is not None:
        raise SystemExit(f"{current.place}: the block is not closed")
    return blocks


class Failure(Exception):
    pass


class Runner:
    def __init__(self, source: Path, build: Path):
        self.source, self.build = source, build
        self.last_output = None
        self.environment = dict(os.environ, PATH=f"{build}/bin:{build}/venv/bin:{os.environ['PATH']}")

    def run(self, command, **keywords):
        return subprocess.run(command, cwd=self.source, env=self.environment, capture_output=True, text=True,
                              timeout=TIMEOUT_S, **keywords)

    def comm_opt(self, text: str, options: list[str]):
        return self.run([f"{self.build}/bin/comm-opt", "-", *options], input=text)

    # -- one function per language; each returns why the block was left out, or None ------------------------------------

    def mlir(self, block: Block):
        options = (block.option(r'opts="([^"]*)"') or "").split()
        text = block.text
        if not re.search(r"^\s*(module|func\.func|comm\.group|llvm\.func|\"?builtin)", text, re.MULTILINE):
            text = self.complete(text)
        result = self.comm_opt(text, options)
        if "rejected" in block.info.split():
            if result.returncode == 0:
                raise Failure("comm-opt accepted it")
        elif result.returncode != 0:
            raise Failure(result.stderr)

    def complete(self, fragment: str) -> str:
        """`fragment` as a function's body, with arguments for the values that it does not define."""
        uncommented = re.sub(r"//.*", "", fragment)
        defined = {name for line in re.findall(r"^\s*(%[^=\n]*)=", uncommented, re.MULTILINE) for name in re.findall(r"%(\w+)", line)}
        types = {name: "i1" for name in re.findall(r"%(\w+)", uncommented) if name not in defined}
        while True:
            arguments = ", ".join(f"%{name}: {kind}" for name, kind in types.items())
            text = f"{PRELUDE}func.func @fragment({arguments}) {{\n{fragment}\nreturn\n}}\n"
            wrong = WRONG_TYPE.search(self.comm_opt(text, []).stderr)
            if not wrong or wrong.group(1) not in types or types[wrong.group(1)] == wrong.group(2):
                return text
            types[wrong.group(1)] = wrong.group(2)

    def sh(self, block: Block):
        result = self.run(["bash", "-euo", "pipefail", "-c", block.text])
        if result.returncode != 0:
            raise Failure(f"exit code {result.returncode}\n{result.stdout}{result.stderr}")
        if "output" in block.info.split():
            self.last_output = result.stdout + result.stderr

    def text(self, block: Block):
        if self.last_output is None:
            return "no 'sh output' block stands before it"
        self.expect_lines(block.text, self.last_output, normalise=lambda s: re.sub(r"\s+", " ", re.sub(r"[\d.,]+", "N", s)).strip())
        self.last_output = None

    def python(self, block: Block):
        interpreter = self.build / "venv/bin/python"
        if not interpreter.exists():
            return "scripts/setup.sh has not made build/venv"
        with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
            script.write(block.text)
            script.flush()
            result = self.run([str(interpreter), script.name])
        if result.returncode != 0:
            raise Failure(result.stdout + result.stderr)

    def json(self, block: Block):
        try:
            json.loads(block.text)
        except ValueError as error:
            raise Failure(str(error))

    def expect_lines(self, wanted: str, found: str, normalise):
        lines = iter([normalise(line) for line in found.splitlines()])
        for line in filter(str.strip, wanted.splitlines()):
            if line.strip() != "..." and not any(candidate == normalise(line) for candidate in lines):
                raise Failure(f"this line does not occur, or not in this order:\n  {line}\nin\n{found}")

    def check(self, block: Block):
        reason = block.option(r"no-run:\s*(.*)")
        if reason:
            return reason
        quoted = block.option(r"file=(\S+)")
        if quoted:
            return self.expect_lines(block.text, (self.source / quoted).read_text(), normalise=str.strip)
        return {"mlir": self.mlir, "sh": self.sh, "text": self.text, "python": self.python, "json": self.json}[block.language](block)


# What may stand in a page without being run, and why.
NOT_RUN = {"c++": "declarations, from the headers", "": "not code"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("files", nargs="*", type=Path, help="default: README.md and docs/**/*.md")
    arguments = parser.parse_args()
    source = Path(__file__).resolve().parents[2]
    pages = arguments.files or [source / "README.md", *sorted((source / "docs").rglob("*.md"))]

    runner = Runner(source, arguments.build.resolve())
    ran = failed = 0
    left_out: dict[str, int] = {}
    for page in pages:
        for block in blocks_of(page):
            reason, error = NOT_RUN.get(block.language), None
            if reason is None:
                try:
                    reason = runner.check(block)
                except KeyError:
                    error = f"no rule for blocks of '{block.language}'; see {Path(__file__).name} --help"
                except (Failure, OSError, subprocess.TimeoutExpired) as failure:
                    error = str(failure)
            if error:
                failed += 1
                print(f"{block.place}: {block.language} block: {error}\n")
            elif reason:
                left_out[f"{block.language or 'plain'}: {reason}"] = left_out.get(f"{block.language or 'plain'}: {reason}", 0) + 1
            else:
                ran += 1
    for reason, count in left_out.items():
        print(f"left out {count}: {reason}")
    print(f"{ran} blocks of {len(pages)} pages are as they say, {failed} are not")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
