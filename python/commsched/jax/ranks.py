# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""One schedule for all processes of a program: they compare what XLA compiled before anything of it runs.

Ranks that run collectives in different orders wait for each other for ever. Every process decides alone, so it tells
the others the signature of its schedule, through the key-value store of jax.distributed. One decision is made for all,
and who writes it first writes it for good: either all keep their schedules, or all compile again without CommSched.

The comparison takes place in Python after compilation. XLA's callback, in which the schedule is made, waits for nobody.
"""

from __future__ import annotations

import collections
import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

# What to do if the schedules differ: run XLA's own order with a warning, raise an error on all ranks, or not compare.
CHOICES = ("compare", "strict", "off")
ALIKE = "alike"
# The schedule of an executable that jax took from its cache, and of a process that could not compile.
CACHED, FAILED = "from jax's cache", "the compilation failed"


class Store(Protocol):
    """The part of jax.distributed's client that is needed. Times are in milliseconds."""

    def key_value_set(self, key: str, value: str) -> None:
        """Writes a value. Raises if the key exists."""

    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str:
        """Waits for a value. Raises if there is none in time."""


def signature_of(reports: list[dict]) -> str:
    """What has to be equal on all ranks: of each module that was handed over, its new order, or that it has none."""
    return "; ".join(sorted(str(r.get("signature")) if r["changed"] else "XLA's own" for r in reports)) or CACHED


def decide(store: Store, key: str, processes: list[int], me: int, mine: str, timeout: float) -> str:
    """ALIKE if all processes have the same signature, and otherwise why not. All processes get the same answer.

    Args:
        key: names this compilation, alike on all processes.
        processes: those that take part, ascending. The first one collects the signatures.
        timeout: how many seconds to wait for another process.

    Returns:
        After at most 3 * `timeout`, whatever the others do.

    Raises:
        RuntimeError: the store has no decision and takes none.
    """
    milliseconds = int(timeout * 1000)
    store.key_value_set(f"{key}/{me}", mine)
    decision = f"process {processes[0]} did not answer within {timeout:g} s"
    if me == processes[0]:
        decision = _compare(store, key, processes, milliseconds)
    else:
        # The first process may itself wait for the slowest one.
        try:
            return store.blocking_key_value_get(f"{key}/decision", 2 * milliseconds)
        except Exception:  # jaxlib's own type of error
            pass
    try:
        store.key_value_set(f"{key}/decision", decision)
        return decision
    except Exception:  # It exists: another process was faster.
        try:
            return store.blocking_key_value_get(f"{key}/decision", milliseconds)
        except Exception as error:
            raise RuntimeError(f"CommSched: processes cannot agree about schedules: {error}") from error


def _compare(store: Store, key: str, processes: list[int], milliseconds: int) -> str:
    signatures: dict[str, list[int]] = {}
    deadline = time.monotonic() + milliseconds / 1000
    for process in processes:
        left = max(1, int((deadline - time.monotonic()) * 1000))
        try:
            signature = store.blocking_key_value_get(f"{key}/{process}", left)
        except Exception:  # jaxlib's own type of error
            return f"process {process} did not answer within {milliseconds / 1000:g} s"
        signatures.setdefault(signature, []).append(process)
    if len(signatures) == 1 and FAILED not in signatures:
        return ALIKE
    return "; ".join(f"{_named(who)}: {what}" for what, who in signatures.items())


def _named(processes: list[int]) -> str:
    shown = ", ".join(map(str, processes[:4])) + (", ..." if len(processes) > 4 else "")
    return f"process{'es' if len(processes) > 1 else ''} {shown}"


class Comparison:
    """Compares the schedules of everything that jax compiles for devices of several processes.

    Args:
        switched_off: a context in which XLA compiles without CommSched.
        warn: takes a warning.
    """

    def __init__(self, switched_off: Callable[[], Any], warn: Callable[[str], None]) -> None:
        self._switched_off = switched_off
        self._warn = warn
        self._lock = threading.Lock()
        # How many programs of a name these processes have compiled.
        self._counts: collections.Counter[str] = collections.Counter()
        self._watching: list[tuple[str, list[dict]]] = []

    def take(self, reports: list[dict]) -> None:
        """Hears of new reports of the library."""
        with self._lock:
            for name, seen in self._watching:
                seen.extend(r for r in reports if r.get("module") == name)

    @contextmanager
    def _watch(self, name: str) -> Iterator[list[dict]]:
        entry: tuple[str, list[dict]] = (name, [])
        with self._lock:
            self._watching.append(entry)
        try:
            yield entry[1]
        finally:
            with self._lock:
                self._watching = [other for other in self._watching if other is not entry]

    def compile(
        self,
        name: str,
        processes: list[int],
        me: int,
        store: Store,
        compile_once: Callable[[], Any],
        compile_uncached: Callable[[], Any],
        collect: Callable[[], None],
        choice: str,
        timeout: float,
    ) -> Any:
        """Compiles a program, and again without CommSched if not all processes have the same schedule.

        Raises:
            RuntimeError: the schedules differ, and `choice` is "strict".
        """
        with self._lock:
            who = hashlib.sha256(repr(processes).encode()).hexdigest()[:16]
            program = f"commsched/{who}/{name}"
            self._counts[program] += 1
            key = f"{program}/{self._counts[program]}"
        with self._watch(name) as seen:
            try:
                executable = compile_once()
            except BaseException:
                with suppress(Exception):  # The others need not wait. What counts is the reason.
                    store.key_value_set(f"{key}/{me}", FAILED)
                raise
            collect()
            mine = signature_of(seen)
        decision = decide(store, key, processes, me, mine, timeout)
        if decision == ALIKE:
            return executable
        text = f"the processes do not agree about the schedule of {name} ({decision})"
        if choice == "strict":
            raise RuntimeError(f"CommSched: {text}")
        self._warn(f"{text}: all of them run it in XLA's own order")
        for report in seen:
            report |= {"changed": False, "kept_because": text}
        del executable
        with self._switched_off():
            return compile_uncached()
