# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The rule of the last gate (`gate`): which memory the collectives in flight read and fill, and who touches it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence


class Memory:
    """Names of memory. Two names that were joined are one memory."""

    def __init__(self) -> None:
        self._parent: dict[Hashable, Hashable] = {}

    def find(self, name: Hashable) -> Hashable:
        parent = self._parent
        while (above := parent.get(name, name)) != name:
            parent[name] = name = parent.get(above, above)
        return name

    def join(self, a: Hashable, b: Hashable) -> None:
        a, b = self.find(a), self.find(b)
        if a != b:
            self._parent[a] = b


class Flights:
    """The collectives in flight, and what they read and fill. Collects what touches them too early.

    A collective of a list lands element by element, but some fill all of their results again at each wait
    (`gate.lands_again`): nobody may write a result of theirs before the last wait. A collective without a wait flies
    to the end, and nobody can tell when it has landed, so it is left out.
    """

    def __init__(self, waited: set[Hashable]):
        self.waited = waited
        # Indexed by memory: the name of the collective that reads it, and of the one that fills it.
        self.reads: dict[Hashable, dict[str, int]] = {}
        self.fills: dict[Hashable, tuple[str, list[Hashable]]] = {}
        # Indexed by memory that a collective fills again: its name, and its results that nobody has waited for.
        self.again: dict[Hashable, tuple[str, set[Hashable]]] = {}
        self.races: list[str] = []

    def start(
        self, name: str, elements: Sequence[tuple[Iterable[Hashable], Iterable[Hashable]]], again: bool = False
    ) -> None:
        """A collective starts.

        Args:
            elements: indexed by element of a list: what the collective reads, and what it fills.
            again: whether each wait fills all elements again.
        """
        pieces = [(set(reads), set(fills)) for reads, fills in elements]
        for reads, fills in pieces:
            self.touch(name, reads - fills, fills)
        unwaited = {m for _, fills in pieces for m in fills & self.waited} if again else set()
        for reads, fills in pieces:
            for memory in fills:
                self.again.pop(memory, None)
                if unwaited:
                    self.again[memory] = name, unwaited
            if not fills & self.waited:
                continue
            held = list(reads - fills)
            for memory in fills:
                self.fills[memory] = name, held
            for memory in reads - fills:
                count = self.reads.setdefault(memory, {})
                count[name] = count.get(name, 0) + 1

    def wait(self, memory: Hashable) -> None:
        """The collective that fills this memory has landed."""
        self.again.get(memory, ("", set()))[1].discard(memory)
        name, reads = self.fills.pop(memory, ("", []))
        for other in [m for m, (n, r) in self.fills.items() if n == name and r is reads] if name else ():
            self.fills.pop(other)
        for read in reads:
            count = self.reads[read]
            count[name] -= 1
            if not count[name]:
                del count[name]

    def touch(self, name: str, reads: Iterable[Hashable], writes: Iterable[Hashable]) -> None:
        """Something reads and writes memory."""
        for memory in reads:
            if memory in self.fills:
                self.races.append(f"{name} reads what {self.fills[memory][0]} fills until its wait")
        for memory in writes:
            if memory in self.fills:
                self.races.append(f"{name} writes what {self.fills[memory][0]} fills until its wait")
            elif self.again.get(memory, ("", ()))[1]:
                filler = self.again[memory][0]
                self.races.append(
                    f"{name} writes what each wait for a result of {filler} fills again with this backend"
                )
            for reader in self.reads.get(memory, ()):
                self.races.append(f"{name} writes what {reader} reads until its wait")
