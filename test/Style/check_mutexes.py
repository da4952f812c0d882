#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Checks that every mutex of the runtime is one that the compiler checks (lib/Runtime/Core/Support/Guarded.h).

Clang's thread safety analysis knows Mutex and Lock, and nothing of std::mutex and std::lock_guard. It has no notion of
a mutex that one thread may lock twice, or that is given up after a time, so those two kinds stay those of the standard
library. A std::unique_lock is for condition variables alone.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNSEEN = re.compile(
    r"\bstd::mutex\s+\w+\s*[;{=]|\bstd::lock_guard<std::mutex>|\bstd::scoped_lock\b|\bpthread_mutex_t\b"
)
GUARDED = re.compile(r"COMMRT_GUARDED_BY\(")


def faults(path, text):
    """The lines of a file with mutexes or locks that the analysis does not see."""
    for number, line in enumerate(text.splitlines(), 1):
        if UNSEEN.search(line):
            yield f"{path}:{number}: expected Mutex or Lock of Core/Support/Guarded.h: {line.strip()}"


def main():
    wrong, guarded = [], 0
    for path in sorted((ROOT / "lib/Runtime").rglob("*")):
        if path.suffix in (".h", ".cpp") and path.name != "Guarded.h":
            text = path.read_text()
            wrong += faults(path.relative_to(ROOT), text)
            guarded += len(GUARDED.findall(text))
    print(*wrong, f"{guarded} fields that a mutex guards", sep="\n")
    return bool(wrong) or guarded < 100


if __name__ == "__main__":
    sys.exit(main())
