# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Ranks that come late, and jobs within a job that know nothing of each other.

What ranks decide depends on who comes first. Here a rank comes to its compilation when the others are through with
theirs, and ranks take a random time before each comparison of their first run. Waiting ends after a while, so a rank
that waits in vain is only slow.
"""

from __future__ import annotations

import contextlib
import functools
import random
import time
from collections.abc import Callable, Iterator
from unittest import mock

import torch.distributed as dist

from commsched.torch.inductor.passes import GraphPass
from commsched.torch.ranks import agreement, comparison, consensus
from commsched.torch.strands import decision

PATIENCE_S = 20  # How long a late rank waits for the others: far longer than they compile a step of a few lines.
LOOK_S = 0.02
PAUSE_S = 0.3  # The longest pause before a comparison: some tenths more than a waiting rank takes between two looks.


def late_rank(seed: int, ranks: int) -> int | None:
    """Which rank compiles a step later than the others, or None. The seed decides."""
    r = random.Random(seed)
    return r.randrange(ranks) if r.random() < 0.5 else None


class Turn:
    """The order in which ranks come to one graph.

    Args:
        name: the graph, the same on all ranks.
        late: the rank that comes last, or None.
    """

    def __init__(self, name: str, rank: int, ranks: int, late: int | None):
        self.key, self.rank, self.ranks, self.late = f"commsched_steps/{name}", rank, ranks, late
        self.store = dist.distributed_c10d._get_default_store()
        self.random = random.Random(f"{name} {rank}")

    @contextlib.contextmanager
    def scheduling(self) -> Iterator[None]:
        """The graph is scheduled in here, on the late rank when the others have left."""
        self._come()
        try:
            yield
        finally:
            self._leave()

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """The graph is compiled and first run in here, on the late rank when the others have scheduled it.

        Ranks pause before they compare.
        """
        schedules, compares = GraphPass.behind_all_passes, comparison._Comparison.compare

        def behind_all_passes(*args):
            schedules(*args)
            self._leave()

        def compare(*args):
            if self.late is not None:
                time.sleep(self.random.uniform(0, PAUSE_S))
            compares(*args)

        with (
            self.scheduling(),
            mock.patch.object(GraphPass, "behind_all_passes", behind_all_passes),
            mock.patch.object(comparison._Comparison, "compare", compare),
        ):
            yield

    def _come(self) -> None:
        """Lets a late rank wait until all others have left."""
        if self.rank == self.late:
            others = [f"{self.key}/{r}" for r in range(self.ranks) if r != self.late]
            deadline = time.monotonic() + PATIENCE_S
            while not self.store.check(others) and time.monotonic() < deadline:
                time.sleep(LOOK_S)

    def _leave(self) -> None:
        self.store.set(f"{self.key}/{self.rank}", "1")


def _in_own_store(name: str, function: Callable, *args) -> dist.Store | None:
    store = function(*args)
    return None if store is None else dist.PrefixStore(name, store)


@contextlib.contextmanager
def job_of_its_own(name: str) -> Iterator[None]:
    """Ranks have decided nothing yet, as in a new job, and forget afterwards what they decide.

    Args:
        name: the same on all ranks, and never used before.
    """

    def begin(self, *args):
        begins(self, *args)
        self.store = dist.PrefixStore(name, self.store)

    begins = comparison._Comparison.__init__
    with (
        mock.patch.object(consensus, "job_store", functools.partial(_in_own_store, name, consensus.job_store)),
        mock.patch.object(comparison._Comparison, "__init__", begin),
        mock.patch.object(agreement, "_decisions", {}),
        mock.patch.object(decision, "_decided", {}),
        mock.patch.object(comparison, "_checked", set()),
        mock.patch.object(comparison, "_passed", set()),
    ):
        yield
