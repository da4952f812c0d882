#===- scope.py - What a random program may use at one place -------------------------------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#
#
# Knows which storage a value may be, and what is in flight. Storage has numbers (bases); a value has the set of those
# that it may be. These rules are the generator's own: they share no code with the compiler's analyses.
#
#===---------------------------------------------------------------------------------------------------------------===#


class Value:
    """`written`: a tensor whose storage operations write. No pure operation reads it (Rationale.md). `level`: the
    depth of the block that defines it."""

    def __init__(self, name, type_, bases, level, written=False, is_writable=True, is_owned=False):
        self.name, self.type, self.bases, self.level = name, type_, frozenset(bases), level
        self.written, self.is_writable, self.is_owned = written, is_writable, is_owned

    def renamed(self, name, type_=None, level=None):
        """A view: another name of the same storage."""
        return Value(name, type_ or self.type, self.bases, self.level if level is None else level, self.written,
                     self.is_writable)


class Flight:
    """A future that is not yet waited for. `results`: values that its wait gives, without names."""

    def __init__(self, future, results, reads, writes, keep, level, is_single=False):
        self.future, self.results, self.keep, self.level = future, results, keep, level
        self.reads, self.writes = frozenset(reads), frozenset(writes)


class Scope:
    """The values and flights that are visible, innermost last."""

    def __init__(self, first_base=0):
        self.values, self.flights, self.level, self.bases = [], [], 0, first_base

    def base(self):
        self.bases += 1
        return self.bases

    def add(self, value):
        self.values.append(value)
        return value

    def may_read(self, value):
        return not any(value.bases & flight.writes for flight in self.flights)

    def may_write(self, value):
        if not value.is_writable or not (value.written or value.type.memory):
            return False
        return not any(value.bases & (flight.writes | flight.reads) for flight in self.flights)

    def forget(self, bases):
        """The storage is gone, or holds no value of the program any more."""
        self.values = [value for value in self.values if not value.bases & bases]

    def enter(self):
        self.level += 1
        return len(self.values)

    def leave(self, outer):
        """Ends a block; `outer`: the values before it. Returns those of the block."""
        inner = self.values
        self.level -= 1
        kept = {value.name for value in inner}
        # What was forgotten inside stays so.
        self.values = [value for value in outer if value.name in kept]
        return inner
