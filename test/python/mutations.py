#!/usr/bin/env python3
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Breaks the PyTorch front end in known ways, one at a time, and prints which test notices each.

    mutations.py check              every mutation still applies to the sources, exactly once; needs no PyTorch
    mutations.py run                tries the known killer of every mutation; needs the Python of build/venv
        --only 13,21                these mutations alone
        --quick                     only those whose killers start no process and compile no code
        --smoke                     every third of these, for each run of the tests
        --tests test_apply.py,...   all tests of these files in place of the killers, up to the first that fails

A mutation (`planted.py`) is a list of textual edits of one file of python/commsched/torch, and the test that is known
to notice it. The source tree stays as it is: a copy of the package with the edits comes first on the path of a process
of its own, and on that of the processes that the test starts. A test that does not end, or a process that crashes,
counts as noticed.

`run` returns 1 if any mutation survives, or if a killer fails without a mutation.

Each of 0 to 95 was noticed by the test named beside it. The quick ones take 150 s of one core together.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from planted import MUTATIONS, Mutation

TESTS = pathlib.Path(__file__).resolve().parent
PACKAGE = TESTS.parents[1] / "python/commsched"
# What one run of a killer may take, in seconds, before it counts as one that does not end. Far more than a test takes.
ENDLESS = 300
# Lets every Python that has it on its path take the copy: an editable installation would come before the path.
CUSTOMIZE = """import sys
sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != "ScikitBuildRedirectingFinder"]
"""


def mutated(change: Mutation) -> str:
    """The text of the file with the fault.

    Raises:
        SystemExit: an edit does not apply exactly once.
    """
    text = (PACKAGE / "torch" / change.file).read_text()
    for old, new in change.edits:
        if text.count(old) != 1:
            raise SystemExit(
                f"{change.name}: expected exactly one occurrence in {change.file}, got {text.count(old)}: {old!r}"
            )
        text = text.replace(old, new)
    compile(text, change.file, "exec")
    return text


def copy_of_package(folder: pathlib.Path, change: Mutation | None, library: pathlib.Path) -> None:
    """Writes a copy of the package with a fault. The compiled library and the machines are links to those in use."""
    package = folder / "commsched"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for installed in library.parent.iterdir():
        if not (package / installed.name).exists():
            (package / installed.name).symlink_to(installed)
    if change is not None:
        (package / "torch" / change.file).write_text(mutated(change))
    (folder / "sitecustomize.py").write_text(CUSTOMIZE)


class FirstFailure:
    """A plugin of pytest that remembers the first test that fails."""

    def __init__(self) -> None:
        self.name = ""

    def pytest_runtest_logreport(self, report) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid.split("/")[-1]


def _child(folder: pathlib.Path, tests: Sequence[str]) -> None:
    """Runs tests with the package in `folder`, and writes down the first that fails. Does not return."""
    status = 1
    try:
        os.setpgid(0, 0)
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        exec(CUSTOMIZE)
        sys.path.insert(0, str(folder))
        os.environ.update(PYTHONPATH=str(folder), PYTHONDONTWRITEBYTECODE="1")
        os.chdir(TESTS)
        import pytest

        import commsched

        assert pathlib.Path(commsched.__file__).is_relative_to(folder), commsched.__file__
        first = FirstFailure()
        status = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests], plugins=[first]))
        (folder / "failed").write_text(first.name)
    finally:
        sys.stdout.flush()
        os._exit(status)


def outcome(change: Mutation | None, tests: Sequence[str], library: pathlib.Path) -> tuple[bool, str]:
    """Whether a test notices the fault, and which one, or what else happened."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary).resolve()
        copy_of_package(folder, change, library)
        sys.stdout.flush()
        child = os.fork()
        if not child:
            _child(folder, tests)
        deadline, ended = time.monotonic() + ENDLESS, 0
        while not ended and time.monotonic() < deadline:
            ended, status = os.waitpid(child, os.WNOHANG)
            time.sleep(0.02)
        if not ended:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return True, "a test that does not end"
        code = os.waitstatus_to_exitcode(status)
        name = (folder / "failed").read_text() if (folder / "failed").exists() else ""
        if code == 0:
            return False, ""
        if code == 1 and name:
            return True, name
        if code < 0:
            return True, f"a crash with signal {-code}"
        raise SystemExit((folder / "log").read_text() + f"the tests {list(tests)} could not be run: {code}")


def run(chosen: Sequence[int], tests: Sequence[str]) -> int:
    """Tries mutations. Returns how many survive, or the killers that fail without a mutation."""
    where = "import commsched.program as p; print(p.library_file())"
    library = pathlib.Path(subprocess.check_output([sys.executable, "-c", where], text=True).strip())
    import torch._dynamo  # noqa: F401  Children are forks of a process that has imported what all of them need.
    import torch._inductor.pattern_matcher  # noqa: F401
    import torch.distributed.tensor  # noqa: F401

    killers = sorted({MUTATIONS[i].killer for i in chosen} - {""})
    if not tests and killers:
        fails, name = outcome(None, killers, library)
        if fails:
            print(f"fails without a mutation: {name}")
            return 1
    survivors = 0
    for i in chosen:
        start = time.monotonic()
        known = tests or ([MUTATIONS[i].killer] if MUTATIONS[i].killer else [])
        noticed, name = outcome(MUTATIONS[i], known, library) if known else (False, "")
        survivors += not noticed
        said = f"noticed by {name}" if noticed else "SURVIVES"
        print(f"{i:3} {MUTATIONS[i].name}: {said} ({time.monotonic() - start:.1f} s)", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} mutations are noticed")
    return survivors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check")
    runs = commands.add_parser("run")
    runs.add_argument("--only", default="")
    runs.add_argument("--quick", action="store_true")
    runs.add_argument("--smoke", action="store_true")
    runs.add_argument("--tests", default="")
    given = parser.parse_args()
    for change in MUTATIONS:
        mutated(change)
        path = TESTS / change.killer.split("::")[0]
        if change.killer and f"def {change.killer.split('::')[1].split('[')[0]}(" not in path.read_text():
            raise SystemExit(f"{change.name}: there is no test {change.killer}")
    if given.command == "check":
        print(f"{len(MUTATIONS)} mutations apply")
        return 0
    chosen = [int(i) for i in given.only.split(",")] if given.only else range(len(MUTATIONS))
    if given.quick or given.smoke:
        chosen = [i for i in chosen if MUTATIONS[i].quick]
    if given.smoke:
        chosen = chosen[::3]
    return 1 if run(chosen, [t for t in given.tests.split(",") if t]) else 0


if __name__ == "__main__":
    sys.exit(main())
