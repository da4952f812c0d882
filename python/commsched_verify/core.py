# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Checks certificates of schedules: `python3 core.py FILE...`, or `python3 -m commsched_verify FILE...`.

This file is the core, and complete by itself: dependences, memory, the timeline, and bounds by paths and sums of work.
The modules beside it check what else a certificate may claim. What would need a missing one is not checked, and named.
Certificate.md has the format and the list of modules, Bounds.md the lemmas.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

UNLIMITED, WHOLE = 1 << 62, 1_000_000  # no limit, and a whole resource
Numbers = Sequence[int]
NOTHING = (0,) * 10  # the demand of an activity that disturbs nobody: share and weight of each resource
PARTLY, NOTHING_PROVEN = "valid in part", "not valid: it certifies no block, so it proves nothing"
MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)  # of a wrong part


class Invalid(Exception):
    """The first violated statement, in words."""


def require(holds: bool, message: str) -> None:
    if not holds:
        raise Invalid(message)


def natural(text: str) -> int:
    """Reads a number of a certificate: none is negative, a fraction, or beyond all sums."""
    require(text.isdecimal() and int(text) <= UNLIMITED, f"{text} is not a number of a certificate")
    return int(text)


def table(flat: Numbers, size: int) -> list[list[int]]:
    """By index: the values of the pairs of an index and a value."""
    rows: list[list[int]] = [[] for _ in range(size)]
    for index, value in zip(flat[::2], flat[1::2]):
        rows[index].append(value)
    return rows


def column(flat: Numbers, size: int) -> list[int]:
    """The same with one value for each index, 0 if there is none."""
    return [row[-1] if row else 0 for row in table(flat, size)]


@dataclass
class Problem:
    """Nodes are numbers, in the order of the program. The fields are those of the format."""

    lanes: Sequence[str]  # lane 0 computes
    cost_ns: Numbers  # by node
    starts: Numbers  # the nodes that start a collective
    edges: Sequence[Numbers]  # by node: how far before it those nodes stand that it depends on
    buffers: Sequence[Numbers]  # the bytes of each, and the nodes that need it, the one that makes it first
    busy_until_ns: Numbers = ()  # pairs of lanes
    on_lanes: Numbers = ()  # pairs: the other lanes that a node occupies
    awaits: Numbers = ()  # pairs: the starts that a node waits for
    issue_ns: Numbers = ()  # pairs
    ready_ns: Numbers = ()  # pairs: when data is there that came in
    workspace_bytes: Numbers = ()  # pairs
    units: Sequence[Numbers] = ()  # nodes that stay together
    live_in: Numbers = ()  # buffers
    live_out: Numbers = ()  # buffers
    demands: Sequence[Numbers] = ()  # of each resource the share, in millionths, and its weight
    demand: Numbers = ()  # pairs: what a node needs; 1 is the first one
    copy_demand: int = 0
    keys: Sequence[Any] = ()  # what may be merged
    copy_samples: Sequence[Numbers] = ()  # of the cost of a pack or unpack: bytes read, bytes written, ns
    reasons: str = ""  # a letter for each edge
    reason_names: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.unchecked, self.facts = list[str](), dict[str, Any]()
        self.size = size = len(self.cost_ns)
        self.issue, self.ready = column(self.issue_ns, size), column(self.ready_ns, size)
        self.workspace = column(self.workspace_bytes, size)
        self.busy_until = column(self.busy_until_ns, len(self.lanes))
        self.demand_of = [NOTHING, *(tuple(row) for row in self.demands)]
        require(all(max(row) <= WHOLE and min(row[1::2]) > 0 for row in self.demands), "a demand is not of parts")
        self.needs = [self.demand_of[index] for index in column(self.demand, size)]
        self.occupied = [sorted(set(lanes)) for lanes in table(self.on_lanes, size)]
        self.awaited, starts = table(self.awaits, size), set(self.starts)
        self.is_start = [node in starts for node in range(size)]
        self.preds = [[node - distance for distance in row] for node, row in enumerate(self.edges)]
        for node, preds in enumerate(self.preds):
            lanes, awaited = self.occupied[node], self.awaited[node]
            require(all(0 < lane < len(self.lanes) for lane in lanes), f"node {node} is on no such lanes: {lanes}")
            require(len(lanes) == 1 or not self.is_start[node], f"start {node} is not on one lane")
            require(all(0 <= pred < node for pred in preds + awaited), f"node {node} depends on a later one")
            require(all(self.is_start[start] for start in awaited), f"node {node} waits for no start")
        require(len(self.reasons) in (0, sum(map(len, self.preds))), "the reasons are not of all dependences")
        names = iter(words := [self.reason_names[letter] for letter in self.reasons])
        self.why, self.words = [dict(zip(row, names)) for row in self.preds], Counter(words)

    def extension(self, name: str, what: str) -> Any:
        """The module that checks `what`; None if it is not there, and `what` is then not checked."""
        try:
            return importlib.import_module(f".{name}", __package__ or "no package")
        except ImportError:
            self.unchecked.append(f"{what} (the module {name} is not there)")
            return None


@dataclass
class Step:
    """What one event of the answer does."""

    cost: int
    lanes: Numbers = ()  # that it occupies, without lane 0
    awaits: Numbers = ()  # starts
    is_start: bool = False
    issue: int = 0  # how long a start keeps lane 0, ns
    ready: int = 0  # not before this time, ns
    workspace: int = 0
    demand: Numbers = NOTHING


class Answer:
    """The schedule as events. A number is a node that runs; everything else happens to a bucket."""

    def __init__(self, problem: Problem, buckets: list[Any], events: list[Any], chosen: Any = None) -> None:
        self.problem, self.has_choice = problem, chosen is not None
        # Where there was a choice, the problem has the least cost and demand, and the answer has its own.
        self.costs = dict(enumerate(zip(problem.cost_ns, problem.needs)))
        for node, cost, number in chosen or ():
            (least, needs), demand = self.costs[node], problem.demand_of[number]
            enough = cost >= least and all(map(int.__ge__, demand[::2], needs[::2]))
            require(enough, f"node {node} is carried out with less than the least cost or demand")
            self.costs[node] = cost, demand
        # By node: the event before which all that it depends on is done, and the one at which it is done itself.
        self.begin, self.done, self.steps, self.end = dict[int, int](), dict[int, int](), list[Step](), list[int]()
        self.merged: Any = None  # what is known of the buckets
        if buckets and (module := problem.extension("buckets", "the answer, which merges collectives")):
            self.merged = module.Merged(self, buckets)
        if self.merged or not buckets:
            for event in events:
                self.steps.append(self.run(event) if isinstance(event, int) else self.merged.step(event))
            self.check_order()

    def run(self, node: int) -> Step:
        problem, (cost, demand) = self.problem, self.costs[node]
        require(self.merged is None or node not in self.merged.bucket_of, f"node {node} runs, but is merged")
        self.happen(node, self.begin, self.done)
        lanes, awaits, is_start = problem.occupied[node], problem.awaited[node], problem.is_start[node]
        issue, ready, workspace = problem.issue[node], problem.ready[node], problem.workspace[node]
        return Step(cost, lanes, awaits, is_start, issue, ready, workspace, demand)

    def happen(self, node: int, *tables: dict[int, int]) -> None:
        for begin_or_done in tables:
            require(node not in begin_or_done, f"event {len(self.steps)}: node {node} runs twice")
            begin_or_done[node] = len(self.steps)

    def check_order(self) -> None:
        """Every node happens once, every dependence is kept, and every unit stays together."""
        problem, starts = self.problem, self.problem.is_start
        for node in range(problem.size):
            require(node in self.begin and node in self.done, f"node {node} never happens")
            require(self.begin[node] <= self.done[node], f"node {node} ends before it begins")
        for node, preds in enumerate(problem.preds):
            for pred in preds + problem.awaited[node]:
                # Starts are ordered by when they are issued. Nodes of a bucket may share an event.
                begin = self.done[node] if starts[node] and starts[pred] else self.begin[node]
                if self.done[pred] > begin:
                    late = f"{pred}, done at event {self.done[pred]} ({problem.why[node].get(pred, 'dependence')})"
                    raise Invalid(f"node {node} at event {begin} depends on node {late}")
        for unit in problem.units:
            for first, second in zip(unit, unit[1:]):
                require(self.begin[second] == self.done[first] + 1, f"nodes {first} and {second}, a unit, are apart")

    def makespan(self) -> int | None:
        """Plays the steps, in ns. None if that cannot be checked."""
        if self.problem.demands:
            module = self.problem.extension("contention", "the makespan, at which activities share resources")
            return module.makespan(self.problem, self.steps, self.done) if module else None
        free, self.end = list(self.problem.busy_until), (end := [0] * len(self.steps))  # by lane, by step
        for at, step in enumerate(self.steps):
            if step.is_start:
                free[step.lanes[0]] = end[at] = max(free[step.lanes[0]], free[0]) + step.cost
                free[0] += step.issue
            else:
                awaited = [end[self.done[start]] for start in step.awaits] + [free[lane] for lane in step.lanes]
                free[0] = end[at] = max([free[0], step.ready, *awaited]) + step.cost
        return max(free)

    def buffers(self) -> Iterator[tuple[int, list[int], bool, bool]]:
        """Of each buffer: bytes, the events that need it, whether it is there at the beginning, and kept at the end."""
        live_in, live_out = set(self.problem.live_in), set(self.problem.live_out)
        for buffer, (size, *users) in enumerate(self.problem.buffers):
            yield size, [self.begin[user] for user in users], buffer in live_in, buffer in live_out

    def peak(self) -> int:
        """The most bytes that are live at one event."""
        change = [0] * (len(self.steps) + 1)
        for size, events, is_in, is_out in self.merged.buffers() if self.merged else self.buffers():
            if events:
                change[0 if is_in else min(events)] += size
                change[-1 if is_out else max(events) + 1] -= size
        return max((live + step.workspace for step, live in zip(self.steps, accumulate(change))), default=0)


class Charges:
    """By node: what it does to its lanes at least, ns. `buckets` lowers this for what may be merged."""

    def __init__(self, problem: Problem) -> None:
        starts = problem.is_start
        self.compute = [problem.issue[node] if starts[node] else cost for node, cost in enumerate(problem.cost_ns)]
        self.lane, self.path = list(problem.cost_ns), list(problem.cost_ns)
        self.needs = [demand[::2] for demand in problem.needs]
        self.floating: list[tuple[int, int, int]] = []  # work between two nodes (Lemma 7a)
        self.replaceable: set[int | None] = set()  # nodes that need not run
        self.released: dict[int, int] = {}  # by wait that may be merged: the only buffer that it must hold


@dataclass
class Moment:
    """A start has three moments: its turn, its collective, and its issue; every other node has one."""

    before: list[int] = field(default_factory=list)  # moments that are over when this one begins
    after: list[int] = field(default_factory=list)
    lanes: Numbers = ()  # that its work occupies
    load: int = 0  # how long, ns
    path: int = 0  # the same on paths (Lemma 8)
    needs: Numbers = NOTHING[::2]
    ready: int = 0  # the earliest time for reasons outside of the block
    head: int = 0  # how long after the beginning the moment begins, at least
    tail: int = 0  # how long before the end it is over, at least


class Bound:
    """Heads and tails of all moments, and the arguments that rest on them."""

    def __init__(self, problem: Problem, charges: Charges, heads: Sequence[Numbers], tails: Sequence[Numbers]) -> None:
        self.problem, self.charges, self.moments = problem, charges, list[Moment]()
        self.first, self.last = list[int](), list[int]()  # by node: its first and its last moment
        for node in range(problem.size):
            self.add_moments(node)
        for at, moment in enumerate(self.moments):
            for other in moment.before:
                self.moments[other].after.append(at)
        levels = problem.extension("levels", "levels of the bound") if heads or tails else None
        for step, rows in ((1, heads), (-1, tails)):
            rows = [(self.first[node] + part, lane, least, value) for node, part, lane, least, value in rows]
            time, leave = self.sweep(step, {at: value for at, _, _, value in rows} if levels else {})
            if levels:
                levels.check(self, step, rows, time, leave)
            for moment, earliest in zip(self.moments, time):
                moment.head, moment.tail = (earliest, 0) if step > 0 else (moment.head, earliest)
            if step > 0:
                self.exit = [leave[last] for last in self.last]

    def add_moments(self, node: int) -> None:
        problem, charges, turn = self.problem, self.charges, len(self.moments)
        before = [self.last[pred] for pred in problem.preds[node]]
        before += [self.first[start] + 1 for start in problem.awaited[node]]
        lanes, compute, needs = problem.occupied[node], charges.compute[node], charges.needs[node]
        ready = max([problem.ready[node], *(problem.busy_until[lane] for lane in lanes)])
        if problem.is_start[node]:
            collective = Moment([turn], [], lanes, charges.lane[node], charges.path[node], needs, ready)
            self.moments += [Moment(before), collective, Moment([turn], [], [0], compute, compute)]
        else:
            self.moments.append(Moment(before, [], [0, *lanes], compute, compute, needs, ready))
        self.first.append(turn)
        self.last.append(len(self.moments) - 1)

    def sweep(self, step: int, levels: dict[int, int]) -> tuple[list[int], list[int]]:
        """The earliest begin and end of each moment (Lemma 2), from the beginning (step 1) or the end (-1)."""
        time, leave = [0] * (size := len(self.moments)), [0] * size
        for at in range(size)[::step]:
            moment = self.moments[at]
            base = max((leave[other] for other in (moment.before, moment.after)[step < 0]), default=0)
            # A level raises the begin; the module of that name proves it.
            time[at] = max(base, levels.get(at, 0), moment.ready if step > 0 else 0)
            leave[at] = max(base + moment.path, time[at] + moment.load)
        for start in self.problem.starts:  # The issue begins at the turn, so what follows the turn follows the issue.
            turn = self.first[start]
            time[turn + 2] = max(time[turn + 2], leave[turn] - self.moments[turn + 2].load)
        return time, leave

    def through_node(self, node: int) -> int:
        """What comes before a node, the node, and what comes after it (Lemmas 2 to 4)."""
        return max(m.head + m.load + m.tail for m in self.moments[self.first[node] : self.last[node] + 1])

    def one_machine(self, head_ns: int, tail_ns: int, lane: int = UNLIMITED, resource: int = UNLIMITED) -> int:
        """The work on a lane (Lemmas 1 and 5) or a resource (Lemmas 13 and 14) with such heads and tails."""
        moments, parts = list(self.moments), 0
        for cast, wait, rest in self.charges.floating:
            head, tail = moments[self.first[cast]].head, moments[self.last[wait]].tail
            moments.append(Moment(lanes=[0], load=rest, head=head, tail=tail))
        for moment in moments:
            if moment.head >= head_ns and moment.tail >= tail_ns:
                share = moment.needs[resource] if resource < UNLIMITED else WHOLE * (lane in moment.lanes)
                parts += moment.load * share
        return head_ns - -parts // WHOLE + tail_ns if parts else 0


def prove(answer: Answer, limit: int, argument: str, heads: Any = (), tails: Any = (), **at: Any) -> tuple[int, str]:
    """The bound that an argument of a certificate proves of the answer's problem, in ns, and what cannot beat it."""
    problem, charges, freedom = answer.problem, Charges(answer.problem), "order"
    if problem.keys and (shares := problem.extension("shares", "the bound with bucketing")):
        shares.charge(problem, charges, answer.merged)
        freedom += " and bucketing"
    bound, value = Bound(problem, charges, heads, tails), 0
    if argument == "through-node":
        value = bound.through_node(**at)
    elif argument == "one-machine":
        value = bound.one_machine(**at)
    elif lemmas := problem.extension("lemmas", f"the argument {argument}"):
        value = lemmas.prove(bound, limit, argument, **at)
    if problem.unchecked:  # What remains to be said without a module: the computations, and the longest path.
        value = max([value, bound.one_machine(0, 0, 0), *map(bound.through_node, range(problem.size))])
    return value, freedom


def check(name: str, problem: Any, answer: Any, claims: Any, bound: Any, **more: Any) -> tuple[str, dict[str, Any]]:
    """Checks one block; returns what is proven, what is not checked, and what is believed, in words and in numbers."""
    require({*more} <= {"accesses", "blocks", "collectives", "loop", "loops", "scales"}, f"unknown fields: {[*more]}")
    given, limit, proven, gap = Problem(**problem), claims.get("limit_bytes", UNLIMITED), "", ""
    makespan, peak, least = claims["makespan_ns"], claims["peak_bytes"], claims["bound_ns"]
    found, time, freely = Answer(given, **answer), None, "chosen" in answer or "demands" in problem
    facts = given.facts = {"nodes": given.size, "dependences": sum(map(len, given.preds)), "reasons": given.words}
    if len(found.done) == given.size:
        time = found.makespan()
        require(time in (makespan, None), f"the makespan is {time} ns, not {makespan}")
        require(found.peak() == peak, f"the peak is {found.peak()} bytes, not {peak}")
        require(peak <= limit, f"the peak of {peak} bytes is above the limit of {limit}")
        facts |= {"makespan_ns": time, "peak_bytes": peak}
        proven = f"the answer keeps {facts['dependences']} dependences of {given.size} nodes;\n  its makespan is "
        proven += f"{'not checked' if time is None else f'{time} ns'} and its peak {peak} bytes"
        proven += f", within the limit of {limit};\n  " if limit < UNLIMITED else ";\n  "
        if "accesses" in more and (module := given.extension("accesses", "the order of accesses to memory")):
            proven += module.check(found, **more["accesses"])
    value, freedom = prove(found, limit, **bound)
    if value < least:
        require(bool(given.unchecked), f"the argument proves a bound of {value} ns, not {least}")
        given.unchecked.append(f"the bound of {least} ns")
        least = value
    if time is not None:
        require(time >= least, "the answer is faster than the bound")
        facts["gap_percent"] = percent = -(-10000 * (time - least) // max(least, 1)) / 100
        gap = f", so it is at most {percent:.2f} % from optimal"
    if "scales" in more and (module := given.extension("scales", "the regret")):
        gap += module.check(given, answer, (time, least), limit, **more["scales"])
    if more.keys() & {"loop", "loops"} and (module := given.extension("loops", "what is said of loops")):
        gap += module.check(given, time, **more)
    freedom, missing = freedom + " and choice" * found.has_choice, list(dict.fromkeys(given.unchecked))
    facts |= {"bound_ns": least, "freedom": freedom, "not_checked": missing}
    why = f" ({', '.join(f'{word}: {count}' for word, count in given.words.items())})" if given.words else ""
    return (
        f"{name}: proven: {proven}no {freedom} is faster than {least} ns{gap}\n"
        + "".join(f"{name}: NOT CHECKED: {what}\n" for what in missing)
        + f"{name}: believed: costs{' and demands' * bool(given.demands)} of nodes{', buckets' * freely} and samples; "
        f"that cost functions are monotone;\n  sizes and aliases; that these are all dependences{why}"
    ), facts


def verify(lines: Iterable[str], facts: list[dict[str, Any]] | None = None) -> str:
    """Checks all blocks of a certificate; returns what is to be said of them. Raises Invalid."""
    try:
        head, *blocks = [json.loads(line, parse_int=natural, parse_float=natural) for line in lines]
        require(head.get("format") == "commsched-certificate", "this is no certificate")
        require(head.get("version") == 3, f"version {head.get('version')} of the format is unknown")
        require(len(blocks) == (says := head["blocks"]), f"the file has {len(blocks)} blocks, its header says {says}")
        which = f"{head['output_sha256']}, made of {head['input_sha256']}; results: {head.get('numerics', 'exact')}"
        said, numbers = zip(*(check(**block, blocks=blocks) for block in blocks)) if blocks else ((), ())
        verdict = PARTLY if any(row["not_checked"] for row in numbers) else "valid" if blocks else NOTHING_PROVEN
        ([] if facts is None else facts).extend(numbers)
        return "\n".join([f"{verdict}; blocks: {len(blocks)}", *said, f"believed: the module has the SHA-256 {which}"])
    except MALFORMED as error:
        raise Invalid(f"a part is missing, unknown or malformed ({type(error).__name__}: {error})") from error


def verify_files(files: Sequence[str]) -> int:
    """Prints what is to be said of each file. 0: all is proven; 1: something is false; 2: some, or all, is not."""
    status = 0
    for file in files:
        try:
            with open(file, encoding="utf-8") as lines:
                said = verify(lines)
        except (Invalid, OSError) as error:
            print(f"{file}: not valid: {error}", file=sys.stderr)
            status = 1
            continue
        print(f"{file}: {said}")
        status = status or 2 * (not said.startswith("valid;"))
    return status


if __name__ == "__main__":
    sys.exit(verify_files(sys.argv[1:]))
