# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`machine="measure"`: the collectives of a graph are measured when it is first compiled, by all ranks together.

A collective in which one rank takes no part hangs, and ranks can be at different places, or compile other graphs. So
before anything is measured, they meet in the store of the job. The last rank that comes writes what is measured, and a
rank that has waited in vain writes why nothing is. Whatever is written first holds for all of them, also for those that
come later. If nothing is measured, all of them keep the costs of the profile that was to be completed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import time
from collections.abc import Iterable
from typing import Any

import torch.distributed as dist
import torch.fx as fx

from .. import reporting
from ..options import Options, machine_file
from ..ranks.agreement import shape_of, starts_of
from ..ranks.channel import job_store, undisturbed
from ..ranks.comparison import DEADLINE, deadline_s, gone_on
from ..semantics.operators import group_of, spec_of
from ..semantics.stale import refresh
from .job import Calibration, Rules, measured_together, obstacle
from .questions import Question, Shape, in_graphs

# Measuring the collectives of one graph begins no further point after this time, in seconds. It is a small part of what
# compiling a large graph takes, and what is left is measured by the next process.
BUDGET_SECONDS = 30.0
# A rank waits at most this long for all others to compile the same graph, in seconds. Ranks of nodes whose caches are
# empty compile for a minute longer than others.
DEADLINE_S = 120
# The number of ranks that a message names.
MOST_NAMED = 16
# Indexed by what ranks have to have in common: what is said of a rank that differs from rank 0.
COMMON = {
    "base": "completes another base profile than rank 0",
    "graph": "compiles another graph than rank 0, or with other options",
}
# Indexed by program: the profile of its first graph, and what the report says.
_programs: dict[str, tuple[str, dict]] = {}
# Counts the meetings of this process.
_meetings = itertools.count()
# Why this process measures nothing any more. "" if it does.
_lost = ""


class Unmeasured(Exception):
    """Nothing is measured, on no rank. The text says why."""


def measured_once(graph: fx.Graph, options: Options) -> tuple[Options, dict]:
    """Like `measured`, but for the first graph of each program only (`ranks.agreement`).

    The later ones have other sizes, and one rank may compile them alone. They get the profile of the first.
    """
    if not options.measures() or obstacle():
        return measured(graph, options)
    program = shape_of(graph, options).program()
    if program not in _programs:
        scheduled, said = measured(graph, options)
        _programs[program] = scheduled.base(), said["measure"]
        return scheduled, said
    profile, facts = _programs[program]
    return options.with_profile(profile), {"measure": {**facts, "measured": 0}}


def measured(graph: fx.Graph, options: Options) -> tuple[Options, dict]:
    """Measures the collectives of `graph` if the options ask for it. Collective over the job.

    Returns:
        The options with the profile to schedule by, which is equal on all ranks, and what the report says: "measure"
        with the `base`, the number of `points` of the measured curves, how many of them were `measured` now, the
        `digest` of the profile, what was `skipped`, and the `reason` if nothing is measured.
    """
    if not options.measures():
        return options, {}
    facts: dict[str, Any] = {"base": options.base(), "points": 0, "measured": 0, "digest": "", "skipped": []}
    profile, reason = options.base(), obstacle()
    if not reason and not _between_ranks(graph):
        reason = "the graph has no collective between ranks"
    if not reason:
        try:
            found = _measured(graph, options)
            profile, reason = found.path, ""
            for name in ("points", "measured", "digest", "skipped"):
                facts[name] = getattr(found, name)
        except Unmeasured as error:
            reason = str(error)
            reporting.warn_once(f"collectives keep the costs of {options.base()}, and nothing is measured: {reason}")
    return options.with_profile(profile), {"measure": {**facts, "reason": reason}}


def _measured(graph: fx.Graph, options: Options) -> Calibration:
    """Raises Unmeasured."""
    base = machine_file(options.base())
    assert base is not None, "Options has checked it"
    rules = Rules(base, budget_seconds=BUDGET_SECONDS)
    shape = shape_of(graph, options)
    post: dict[str, Any] = {
        "base": hashlib.sha256(base.read_bytes()).hexdigest(),
        "graph": shape.structure(),
        "questions": [],
        "error": "",
    }
    groups: list[dist.ProcessGroup] = []
    try:
        refresh(graph)
        questions, groups = in_graphs([graph], rules.ranks_per_node())
        post["questions"] = [dataclasses.astuple(question) for question in questions]
    except Exception as error:  # The others have to learn of it, whatever it is.
        post["error"] = f"{type(error).__name__}: {error}"
    outcome = _Meeting(shape.group).outcome(post)
    if outcome["reason"]:
        raise Unmeasured(outcome["reason"])
    asked = [_question(fields) for fields in outcome["questions"]]
    with undisturbed():
        return measured_together(groups, lambda shapes: asked, rules)


def _between_ranks(graph: fx.Graph) -> bool:
    """Whether a collective of the graph is on a group of more than one rank."""
    return any(len(group_of(start, spec_of(start))[1]) > 1 for start in starts_of(graph))


class _Meeting:
    """All ranks of the job, before they measure for one graph.

    Args:
        names: the groups of this rank's graph.
    """

    def __init__(self, names: Iterable[str]):
        self.names = set(names)
        self.store: Any = job_store()
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.key = f"commsched/measure/{next(_meetings)}"

    def outcome(self, post: dict) -> dict:
        """What all ranks do: "questions" to measure, or a "reason" to measure nothing. Equal on all ranks."""
        global _lost
        if not _lost:
            outcome = self._settled(post)
            if outcome.get("lost"):
                _lost = outcome["reason"]
            return outcome
        return {"reason": _lost}

    def _settled(self, post: dict) -> dict:
        self.store.set(f"{self.key}/{self.rank}", json.dumps(post))
        if self.store.add(f"{self.key}/arrived", 1) == self.ranks:
            posts = self.store.multi_get([f"{self.key}/{rank}" for rank in range(self.ranks)])
            return self._first(_merged([json.loads(text) for text in posts]))
        seconds = deadline_s(DEADLINE_S)
        deadline, pause = time.monotonic() + seconds, 0.005
        while not self.store.check([f"{self.key}/outcome"]):
            if gone := gone_on(self.names):
                why = f"{_named(gone)} run code already that rank {self.rank} still compiles: they do not measure it"
                return self._first(_given_up(why))
            if time.monotonic() > deadline:
                absent = [r for r in range(self.ranks) if not self.store.check([f"{self.key}/{r}"])]
                why = f"{_named(absent)} have not come to measure the same graph within {seconds:g} s"
                return self._first(_given_up(f"{why} ({DEADLINE} sets another time)"))
            time.sleep(pause)
            pause = min(0.5, pause * 1.5)
        return json.loads(self.store.get(f"{self.key}/outcome"))

    def _first(self, own: dict) -> dict:
        """The outcome that was written first: `own` if there was none."""
        return json.loads(self.store.compare_set(f"{self.key}/outcome", "", json.dumps(own)))


def _given_up(reason: str) -> dict:
    """The outcome if not all ranks have come. Their next meetings would not be the same ones: there are no more."""
    return {"reason": f"{reason}; this job measures nothing more", "lost": True}


def _named(ranks: list[int]) -> str:
    more = f" and {len(ranks) - MOST_NAMED} more" if len(ranks) > MOST_NAMED else ""
    return f"ranks {ranks[:MOST_NAMED]}{more}"


def _merged(posts: list[dict]) -> dict:
    """The outcome of a meeting of all ranks: everything that one of them asks. They may have other sizes of the batch.

    Args:
        posts: indexed by rank.
    """
    for rank, post in enumerate(posts):
        if post["error"]:
            return {"reason": f"rank {rank} cannot tell what its graph asks for: {post['error']}"}
        for what, words in COMMON.items():
            if post[what] != posts[0][what]:
                return {"reason": f"rank {rank} {words}"}
    merged: dict[tuple, Question] = {}
    for question in (_question(fields) for post in posts for fields in post["questions"]):
        key = (question.kind, question.element, question.shape, question.skipped)
        known = merged.setdefault(key, question)
        known.sizes = sorted({*known.sizes, *question.sizes})
    return {"reason": "", "questions": [dataclasses.astuple(question) for question in merged.values()]}


def _question(fields: list) -> Question:
    """A question from what JSON made of it."""
    kind, element, shape, *rest = fields
    return Question(kind, element, Shape(*shape), *rest)
