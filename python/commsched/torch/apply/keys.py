# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Names for operations and values that are equal in two modules, before and after a pass."""

from __future__ import annotations

from ...program import Dataflow, DataflowOperation

# An operation: its name, the names in its location, and its number among equal ones.
Key = tuple[str, tuple[str, ...], int]
# A value: an operation or "argument", and the number of its result.
Value = tuple["Key | str", int]
STARTS = ("comm.all_gather", "comm.reduce_scatter", "comm.all_reduce", "comm.all_to_all", "comm.broadcast")


class Keys:
    """Names for the operations and values of one module that are equal in another one."""

    def __init__(self, flow: Dataflow):
        self.operation: dict[Key, DataflowOperation] = {}
        self._values: dict[int, Value] = {i: ("argument", i) for i in range(len(flow.arguments))}
        count: dict[tuple[str, tuple[str, ...]], int] = {}
        for op in flow.operations:
            plain = op.opcode, op.names
            key = (*plain, count.setdefault(plain, 0))
            count[plain] += 1
            self.operation[key] = op
            self._values.update({number: (key, i) for i, number in enumerate(op.results)})
        self.number = {value: number for number, value in self._values.items()}

    def of(self, number: int) -> Value:
        return self._values[number]
