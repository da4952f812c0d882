# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the workflows of GitHub Actions call and rely on: the notes of a release, the issue of a weekly job, what
changed, and the locks of the Python packages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHANGELOG = """# Changelog

## Unreleased

- Something new.

## 1.2.3 - 2026-01-31

### Added

- This.

## 1.2 - not released yet

- That.

## 1.1 - 2025-12-31

Nothing.
"""


def release_notes(root: Path, tag: str, version: str) -> subprocess.CompletedProcess[str]:
    (root / "CMakeLists.txt").write_text(f"project(CommSched VERSION {version} LANGUAGES C)\n")
    (root / "CHANGELOG.md").write_text(CHANGELOG)
    script = ROOT / "scripts" / "release_notes.py"
    return subprocess.run([sys.executable, script, tag, "--root", root], capture_output=True, text=True)


# Tests that the notes of a release are its section of the changelog, and nothing of its neighbours.
def test_notes_are_the_section(tmp_path: Path) -> None:
    done = release_notes(tmp_path, "v1.2.3", "1.2.3")
    assert (done.returncode, done.stdout, done.stderr) == (0, "### Added\n\n- This.\n", "")


# Tests that a tag of another version, and a section that is absent, has no date or is empty, is refused in one line.
@pytest.mark.parametrize(
    ("tag", "version", "error"),
    [
        ("v1.2.4", "1.2.3", "expected the tag v1.2.3, which is the version in CMakeLists.txt, got v1.2.4"),
        ("1.2.3", "1.2.3", "expected the tag v1.2.3, which is the version in CMakeLists.txt, got 1.2.3"),
        ("v1.2", "1.2", "CHANGELOG.md: expected a date in '## 1.2 - not released yet'"),
        ("v1.1", "1.1", "CHANGELOG.md: expected at least one entry below '## 1.1 - 2025-12-31'"),
        (
            "v1.0",
            "1.0",
            "CHANGELOG.md: expected a section '## 1.0 - DATE', got Unreleased, 1.2.3 - 2026-01-31, "
            "1.2 - not released yet, 1.1 - 2025-12-31",
        ),
    ],
)
def test_notes_are_refused(tmp_path: Path, tag: str, version: str, error: str) -> None:
    done = release_notes(tmp_path, tag, version)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"error: {error}\n")


# Tests that this tree could be released: its changelog has a dated section of the version in CMakeLists.txt.
def test_this_tree_has_notes() -> None:
    version = re.search(r"project\(CommSched VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert version is not None
    script = ROOT / "scripts" / "release_notes.py"
    done = subprocess.run([sys.executable, script, f"v{version[1]}"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\n- " in done.stdout


# A stand-in for gh: it lists the issue that the file `open` names, and writes down every other call.
GH = """#!/usr/bin/env bash
if [ "$1 $2" = "issue list" ]; then
  [ "$TITLE" = "LLVM main" ] || exit 1
  cat "$CALLS/open"
else
  echo "$1 $2 $3" >>"$CALLS/calls"
fi
"""


# Tests that a failure opens an issue or comments on it, that a success closes it, and that the rest leaves it.
@pytest.mark.parametrize(
    ("open_issue", "result", "call"),
    [
        ("", "failure", "issue create --title"),
        ("7\n", "failure", "issue comment 7"),
        ("7\n", "success", "issue close 7"),
        ("", "success", None),
        ("7\n", "cancelled", "issue comment 7"),
        ("7\n", "skipped", None),
        ("", "skipped", None),
    ],
)
def test_issue_of_a_weekly_job(tmp_path: Path, open_issue: str, result: str, call: str | None) -> None:
    (tmp_path / "gh").write_text(GH)
    (tmp_path / "gh").chmod(0o755)
    (tmp_path / "open").write_text(open_issue)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "CALLS": str(tmp_path)}
    subprocess.run([ROOT / ".ci" / "report.sh", "LLVM main", result, "a page"], check=True, env=environment)
    calls = tmp_path / "calls"
    assert (calls.read_text() if calls.exists() else None) == (None if call is None else f"{call}\n")


# Tests that pages and pictures of the documentation are no change of the code, and that everything else is.
def test_what_changed(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
        done = subprocess.run(
            ["git", "-C", tmp_path, *identity, *arguments], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(name: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        git("add", "-A")
        git("commit", "-q", "-m", name)
        return git("rev-parse", "HEAD")

    def changed(base: str) -> str:
        done = subprocess.run([tmp_path / ".ci" / "changed.sh", base], check=True, capture_output=True, text=True)
        return done.stdout

    git("init", "-q")
    first = commit("README.md")
    script = tmp_path / ".ci" / "changed.sh"
    script.parent.mkdir()
    script.write_text((ROOT / ".ci" / "changed.sh").read_text())
    script.chmod(0o755)
    second = commit("lib/File.cpp")
    commit("docs/guide/page.md")
    commit("docs/img/picture.svg")
    assert changed(first) == "code=true\n"
    assert changed(second) == "code=false\n"
    assert changed("0" * 40) == "code=true\n"
    commit("docs/examples/program.mlir")
    assert changed(second) == "code=true\n"


def requirements(path: Path) -> dict[str, str]:
    """The packages that a list or a lock names, each with its exact version, or with nothing."""
    lines = [line.strip() for line in path.read_text().splitlines()]
    found = [
        re.fullmatch(r"([A-Za-z0-9._-]+)(?:==(\S+))?", line) for line in lines if line and not line.startswith("#")
    ]
    assert all(found), f"{path.name}: expected NAME or NAME==VERSION in each line"
    return {re.sub(r"[-_.]+", "-", match[1]).lower(): match[2] or "" for match in found if match}


# Tests that a lock has an exact version of each package of its lists, which is the one that a list asks for.
@pytest.mark.parametrize(
    ("lock", "lists"),
    [
        ("lock.txt", ["", "-style", "-jax", "-cuda", "-wheel"]),
        ("lock-torchtitan.txt", ["", "-torchtitan"]),
    ],
)
def test_locks_have_what_the_lists_name(lock: str, lists: list[str]) -> None:
    locked = requirements(ROOT / "python" / lock)
    assert all(locked.values())
    for name in lists:
        for package, version in requirements(ROOT / "python" / f"requirements{name}.txt").items():
            assert package in locked, f"{package}: scripts/update-requirements.sh --keep adds it to python/{lock}"
            assert version in ("", locked[package]), (
                f"{package}: scripts/update-requirements.sh --keep changes it in python/{lock}"
            )
