# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""One decision for ranks whose first graphs of a program differ: the rank that decides first decides for all.

Ranks with equal graphs decide alike by themselves. Ranks with other sizes, or one on which scheduling fails, may not.
So every decision is left in the store of the process groups before it is carried out. Nobody waits there: a rank
leaves its decision, or takes over the one that is there. If both are equal, the rank carries out its own schedule, so
that what ranks with equal graphs run does not depend on which of them came first. A rank that finds its code in a cache
does neither. `comparison` checks the result.
"""

from __future__ import annotations

import json
from typing import Any

from .channel import job_store

# A decision: the starts in order, each as the numbers of the collectives that it does the work of, and whether they are
# packed into one buffer. The numbers count PyTorch's order.
Decision = tuple[tuple[tuple[int, ...], bool], ...]


class Disagreed(Exception):
    """Another rank has decided before. Attributes: decision."""

    def __init__(self, decision: Decision):
        super().__init__("another rank has decided otherwise about this program")
        self.decision = decision


def settled(program: str, own: Decision) -> Decision:
    """The decision of the first rank that had one, which is `own` if there was none before.

    Args:
        program: what graphs of one program have in common on all ranks: a hash without names of groups.
    """
    return tuple((tuple(members), packed) for members, packed in first_of(f"decided/{program}", own))


def first_of(question: str, own: Any) -> Any:
    """The answer of the first rank that had one, as JSON reads it: `own` if there was none before. None if there is
    none.
    """
    store, key = job_store(), f"commsched/{question}"
    if store is None:
        return own
    if store.check([key]):
        return json.loads(store.get(key))
    return None if own is None else json.loads(store.compare_set(key, "", json.dumps(own)))
