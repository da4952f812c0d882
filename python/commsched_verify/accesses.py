# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Whether accesses to one memory keep their order, whatever the dependences say.

The scheduler derives twice what each operation accesses: once for the dependences, and once more by other code for this
list. Two accesses that may touch one object, one of them a write, stay in the order of the program.
"""

from __future__ import annotations

from collections.abc import Sequence

from .core import Answer, Numbers, require

Access = tuple[int, bool]  # a node, and whether it writes


def decode(answer: Answer, codes: Numbers) -> list[Access]:
    """The accesses of a list, in the order of the program: of node n, 2n is a read and 2n + 1 a write."""
    accesses = [(code // 2, code % 2 == 1) for code in codes]
    nodes = [node for node, _ in accesses]
    require(nodes == sorted(set(nodes)), "accesses are not in the order of the program")
    require(all(node < answer.problem.size for node in nodes), "a node that is not there accesses memory")
    return accesses


class History:
    """The accesses so far. `latest` has the one that is over last: among all of them, and among writes."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.latest = answer, {False: (-1, -1), True: (-1, -1)}

    def require_over(self, access: Access) -> None:
        """A read comes after the writes so far, a write after everything."""
        node, writes = access
        over, other = self.latest[not writes]
        begin = self.answer.begin[node]
        why = f"both access the same memory: node {other} is over at event {over}, and node {node} begins at {begin}"
        require(over < begin, why)

    def add(self, access: Access) -> None:
        node, writes = access
        for kind in {False, writes}:
            self.latest[kind] = max(self.latest[kind], (self.answer.done[node], node))


def check(answer: Answer, objects: Sequence[Numbers], exposed: Numbers = (), anywhere: Numbers = ()) -> str:
    """Checks the order; returns what is proven. `anywhere` are accesses that may touch every exposed object."""
    lists, reaching = [decode(answer, codes) for codes in objects], decode(answer, anywhere)
    for accesses in lists:
        history = History(answer)
        for access in accesses:
            history.require_over(access)
            history.add(access)
    named, anything = History(answer), History(answer)
    # By node: its accesses, each with the histories that it has to come after, and the one that it becomes a part of.
    here: dict[int, list[tuple[Access, list[History], History]]] = {}
    for index in set(exposed):
        for access in lists[index]:
            here.setdefault(access[0], []).append((access, [anything], named))
    for access in reaching:
        here.setdefault(access[0], []).append((access, [named, anything], anything))
    for node in sorted(here):
        for access, earlier, _ in here[node]:
            for history in earlier:
                history.require_over(access)
        for access, _, history in here[node]:
            history.add(access)
    count = sum(map(len, lists)) + len(reaching)
    if not count:
        return "no memory that is written is accessed twice;\n  "
    return f"{count} accesses to {len(lists)} places in memory keep their order;\n  "
