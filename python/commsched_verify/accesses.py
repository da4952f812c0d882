# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Checks that accesses to one memory keep their order, whatever the dependences say.

The scheduler derives twice what each operation accesses: once for the dependences, and once more by other code for this
list. Two accesses that may touch one object, one of them a write, stay in the order of the program. Only two waits need
no order: if their collectives are in flight at one time, nothing that both touch is written, and otherwise a start
stands between them.
"""

from __future__ import annotations

from collections.abc import Sequence

from .core import Answer, Numbers, require

Access = tuple[int, bool, bool]  # a node, whether it writes, and whether it is a wait


def decode(answer: Answer, codes: Numbers) -> list[Access]:
    """The accesses of a list in program order: 4 times the node, 1 more if it writes, 2 more if it is a wait."""
    accesses = [(code // 4, code % 2 == 1, code % 4 > 1) for code in codes]
    nodes = [node for node, _, _ in accesses]
    require(nodes == sorted(set(nodes)), "accesses are not in the order of the program")
    require(all(node < answer.problem.size for node in nodes), "a node that is not there accesses memory")
    return accesses


class History:
    """The accesses so far. `latest` has the one that is over last: of all or of writes, and with waits or without."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.latest = {(kind, waits): (-1, -1) for kind in (False, True) for waits in (False, True)}

    def require_over(self, access: Access) -> None:
        """A read comes after the writes so far, a write after everything."""
        node, writes, waits = access
        over, other = self.latest[not writes, not waits]
        begin = self.answer.begin[node]
        why = f"both access the same memory: node {other} is over at event {over}, and node {node} begins at {begin}"
        require(over < begin, why)

    def add(self, access: Access) -> None:
        node, writes, waits = access
        for kind in {False, writes}:
            for with_waits in {True, waits}:
                key = kind, with_waits
                self.latest[key] = max(self.latest[key], (self.answer.done[node], node))


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
    answer.problem.facts["accesses"] = count
    if not count:
        return "no memory that is written is accessed twice;\n  "
    return f"{count} accesses to {len(lists)} places in memory keep their order;\n  "
