# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the checker says of files, in words and as JSON. It checks nothing itself: `core` and its modules do."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pathlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .core import MALFORMED, Invalid, verify
from .ranks import compare

#: Of the format of --json; verification.schema.json describes it.
SCHEMA_VERSION = 1


@dataclass
class Verdict:
    """What is said of one file. `refusal` is the first statement that does not hold, and empty if there is none."""

    file: str
    lines: list[str] = field(default_factory=list)
    said: str = ""
    refusal: str = ""
    sha256: str = ""  # of the file, if it could be read
    facts: list[dict[str, Any]] = field(default_factory=list)  # by block: the numbers of `core.check`

    @property
    def word(self) -> str:
        """valid, valid in part, nothing proven, or not valid."""
        if self.refusal:
            return "not valid"
        return self.said.split(";")[0] if self.facts else "nothing proven"

    @property
    def status(self) -> int:
        return 1 if self.refusal else 0 if self.word == "valid" else 2

    def documents(self) -> list[dict[str, Any]]:
        """The header, and the blocks. Only of a file that is not refused."""
        return [json.loads(line) for line in self.lines]

    def to_json(self) -> dict[str, Any]:
        if self.refusal:
            return {"file": self.file, "verdict": self.word, "refusal": self.refusal}
        header, *blocks = self.documents()
        modules = {name: header[name] for name in ("input_sha256", "output_sha256")}
        return {
            "file": self.file,
            "verdict": self.word,
            **modules,
            "numerics": header.get("numerics", "exact"),
            "blocks": [block_to_json(block, facts) for block, facts in zip(blocks, self.facts)],
        }


def block_to_json(block: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a block. Those that were not checked are absent, and named in `not_checked`."""
    known = {name: value for name, value in facts.items() if value is not None}
    limit = {name: value for name, value in block["claims"].items() if name == "limit_bytes" and "peak_bytes" in known}
    return {"name": str(block["name"]), **known, **limit}


def examine(file: str) -> Verdict:
    """Reads and checks one file."""
    verdict = Verdict(file)
    try:
        data = pathlib.Path(file).read_bytes()
        verdict.sha256 = hashlib.sha256(data).hexdigest()
        verdict.lines = io.StringIO(data.decode("utf-8"), newline=None).readlines()
        verdict.said = verify(verdict.lines, verdict.facts)
    except (Invalid, OSError, UnicodeDecodeError) as error:
        verdict.refusal = str(error)
    return verdict


def compare_ranks(ranks: Sequence[int], verdicts: Sequence[Verdict]) -> tuple[str, str]:
    """What the comparison of ranks says, and why it refuses: one of both is empty. All files are valid."""
    try:
        return compare(list(ranks), [verdict.lines for verdict in verdicts]), ""
    except (Invalid, *MALFORMED) as error:
        return "", str(error)


def print_verdicts(verdicts: Sequence[Verdict]) -> None:
    for verdict in verdicts:
        if verdict.refusal:
            print(f"{verdict.file}: not valid: {verdict.refusal}", file=sys.stderr)
        else:
            print(f"{verdict.file}: {verdict.said}")


def status_of(verdicts: Sequence[Verdict]) -> int:
    """The exit code. 0: all is proven; 1: something is false; 2: some, or all, is not."""
    codes = {verdict.status for verdict in verdicts}
    return 1 if 1 in codes else max(codes)


def document_of(verdicts: Sequence[Verdict], ranks: Sequence[int] = (), refusal: str | None = None) -> dict[str, Any]:
    """What --json writes. `refusal` is that of the comparison of ranks: empty if they agree, None without one."""
    document: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "files": [v.to_json() for v in verdicts]}
    if refusal is not None:
        document["ranks"] = {"ranks": list(ranks), "agree": not refusal}
        document["ranks"] |= {"refusal": refusal} if refusal else {}
    return document


def write_whole(path: str, text: str) -> None:
    """Writes a file at once, or standard output for "-". Raises OSError."""
    # A forged name may have half of a surrogate pair, which no encoding has.
    target, data = pathlib.Path(path), text.encode("utf-8", "backslashreplace")
    if path == "-":
        sys.stdout.write(text)
    elif target.exists() and not target.is_file():  # a pipe or a device, which a rename cannot replace
        target.write_bytes(data)
    else:
        target = target.resolve()  # of a symbolic link, the file and not the link
        temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
        try:
            temporary.write_bytes(data)
            temporary.replace(target)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from error
        finally:
            temporary.unlink(missing_ok=True)
