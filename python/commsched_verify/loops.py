# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Loops: no pipeline of a loop has a shorter iteration than a bound (Lemma 28), and a loop counts with all iterations.

A pipeline of a loop runs each operation of the body for another iteration. So the dependences inside the body bind no
longer, and what binds is the work of each lane or resource, and the recurrences: a cycle of dependences whose distances
sum to d iterations, and whose times to t, needs t / d per iteration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from .core import UNLIMITED, Bound, Charges, Numbers, Problem, require

Edge = tuple[int, int, int]  # from, to, and how many iterations later


def check(given: Problem, time: int | None, blocks: Sequence[Any], **more: Any) -> str:
    """Checks what a block says of loops; returns what is proven. `time` is its makespan, ns, if that is known."""
    said = Body(given, **more["loop"]).check(time) if "loop" in more else ""
    for loop in more.get("loops", ()):
        said += count(given, blocks, *loop)
    return said


def count(given: Problem, blocks: Sequence[Any], node: int, iterations: int, body: str) -> str:
    """Checks that the cost of a node is that of so many iterations of a body."""
    require(type(iterations) is int and type(body) is str, f"no loop: {[node, iterations, body]}")
    require(node < given.size, f"a loop is node {node}, which is not there")
    makespans = {block["claims"]["makespan_ns"] for block in blocks if block["name"] == body}
    require(bool(makespans), f"node {node} is a loop over the block {body}, which is not there")
    cost = given.cost_ns[node]
    counts = any(cost == iterations * makespan for makespan in makespans)
    require(counts, f"node {node} takes {cost} ns, and not {iterations} times what the block {body} takes")
    given.facts.setdefault("loops", []).append({"node": node, "iterations": iterations, "body": body})
    return f";\n  node {node} takes what {iterations} iterations of {body} take"


class Body:
    """The body of a loop, as it was before operations moved to other iterations."""

    def __init__(
        self,
        given: Problem,
        problem: dict[str, Any],
        edges: Sequence[Numbers],
        load_ns: int,
        recurrence_ns: int,
        bound_ns: int,
        cycle: Sequence[Numbers],
        merged: Numbers,
        lane: int = UNLIMITED,
        resource: int = UNLIMITED,
    ) -> None:
        self.given, self.problem, self.merged, self.at = given, Problem(**problem), merged, (lane, resource)
        self.load, self.recurrence, self.bound = load_ns, recurrence_ns, bound_ns
        lists, numbers = (edges, cycle, merged), (load_ns, recurrence_ns, bound_ns, lane, resource, *merged)
        well_formed = all(type(rows) is list for rows in lists) and all(type(number) is int for number in numbers)
        require(well_formed, "a field of a loop is not of its type")
        self.edges, self.cycle = [self.edge(row) for row in edges], [self.edge(row) for row in cycle]
        self.charges, self.mergeable = Charges(self.problem), set[int]()

    def edge(self, row: Numbers) -> Edge:
        before, after, iterations = row
        require(type(row) is list and all(type(number) is int for number in row), f"no dependence of a loop: {row}")
        require(max(before, after) < self.problem.size, f"a dependence of a loop is of a node that is not there: {row}")
        require(iterations > 0 or before < after, f"in one iteration, node {after} depends on a later one: {row}")
        return before, after, iterations

    def check(self, time: int | None) -> str:
        problem = self.problem
        self.check_edges()
        if problem.keys:
            shares = self.given.extension("shares", "the bound on an iteration of the loop, with bucketing")
            if shares is None:
                return ""
            shares.charge(problem, self.charges, None)
            self.mergeable = {node for key in problem.keys for row in key["members"] for node in (row[0], row[6])} - {
                None
            }
        self.check_work()
        self.check_load()
        self.check_cycle()
        require(
            self.bound == max(self.load, self.recurrence),
            f"the bound of a loop is not the larger of its two: {self.bound}",
        )
        require(
            time is None or self.bound <= time, f"an iteration takes {time} ns, less than its bound of {self.bound}"
        )
        facts = {
            "bound_ns": self.bound,
            "load_ns": self.load,
            "recurrence_ns": self.recurrence,
            "merged": len(self.merged),
        }
        self.given.facts["loop"] = {"nodes": problem.size, "dependences": len(self.edges), **facts}
        gap = ""
        if time is not None:
            percent = -(-10000 * (time - self.bound) // max(self.bound, 1)) / 100
            self.given.facts["loop"]["gap_percent"] = percent
            gap = f", so it is at most {percent:.2f} % longer than the shortest one"
        kept = f"that keeps the {len(self.edges)} dependences of its body"
        return f";\n  no pipeline of its loop {kept} has an iteration of less than {self.bound} ns{gap}"

    def check_edges(self) -> None:
        """The work is that of the body without what a pipeline may carry over iterations."""
        problem, edges = self.problem, set(self.edges)
        require(len(edges) == len(self.edges), "a dependence of a loop is listed twice")
        for node, preds in enumerate(problem.preds):
            for pred in preds + problem.awaited[node]:
                require((pred, node, 0) in edges, f"node {node} of a loop depends on node {pred}, which is not listed")

    def check_work(self) -> None:
        """The block does the work of the body. What it lacks was merged."""
        problem, merged = self.problem, list(self.merged)
        require(list(problem.lanes) == list(self.given.lanes), "a loop has other lanes than its block")
        require(merged == sorted(set(merged)), "what was merged of a loop is not in the order of the program")
        wrong = [node for node in merged if node not in self.mergeable]
        require(not wrong, f"nodes of a loop were merged that may not be: {wrong}")
        work = self.work_of(problem, set(range(problem.size)) - set(merged))
        there = self.work_of(self.given, set(range(self.given.size)))
        lacks = [what[1] for what in work - there]
        require(not lacks, f"the block lacks operations of its loop that take {lacks} ns")
        more = [what[1] for what in there - work]
        require(bool(merged) or not more, f"the block has operations that its loop has not, which take {more} ns")
        for what in self.work_of(problem, set(merged)):
            require(work[what] == there[what], f"an operation of {what[1]} ns was not merged: the block has it")

    @staticmethod
    def work_of(problem: Problem, nodes: set[int]) -> Counter[Any]:
        """What nodes with work do to their lanes, and how many do so."""
        columns = zip(problem.is_start, problem.cost_ns, problem.issue, map(tuple, problem.occupied), problem.needs)
        rows = [row for node, row in enumerate(columns) if node in nodes]
        return Counter(row for row in rows if row[1] or row[2])

    def check_load(self) -> None:
        """No lane and no resource has more work, and the one that is named has as much."""
        bound, (lane, resource) = Bound(self.problem, self.charges, (), ()), self.at
        loads = {(at, UNLIMITED): bound.one_machine(0, 0, lane=at) for at in range(len(self.problem.lanes))}
        if self.problem.demands:
            loads |= {
                (UNLIMITED, at): bound.one_machine(0, 0, resource=at) for at in range(len(self.problem.needs[0]) // 2)
            }
        most = max(loads.values())
        require(most == self.load, f"the most work of an iteration is {most} ns, not {self.load}")
        where = f"lane {lane}" if lane < UNLIMITED else f"resource {resource}"
        require(loads.get((lane, resource)) == most, f"{where} does not have the most work of an iteration")

    def time_of(self, edge: Edge) -> int:
        """The least time from the begin of a node to that of one that depends on it, ns."""
        before, after, iterations = edge
        own = self.charges.compute[before]
        is_transfer = self.problem.is_start[before] and iterations == 0 and before in self.problem.awaited[after]
        return max(own, self.charges.path[before]) if is_transfer else own

    def check_cycle(self) -> None:
        """The cycle needs what is claimed, and no cycle needs more."""
        time, iterations, edges = 0, 0, set(self.edges)
        for edge, (_, after, _) in zip(self.cycle, [*self.cycle[-1:], *self.cycle[:-1]]):
            require(edge in edges, f"the cycle has an edge that is no dependence of the loop: {list(edge)}")
            require(edge[0] == after, f"the cycle is not closed: node {edge[0]} does not follow node {after}")
            time, iterations = time + self.time_of(edge), iterations + edge[2]
        needs = -(-time // max(iterations, 1))
        require(needs == self.recurrence, f"the cycle needs {needs} ns per iteration, not {self.recurrence}")
        require(self.fits(self.recurrence), f"a cycle of the loop needs more than {self.recurrence} ns per iteration")

    def fits(self, interval: int) -> bool:
        """Whether no cycle needs more per iteration: longest paths, of which none grows for ever (Bellman and Ford)."""
        begin = [0] * self.problem.size
        rows = [
            (edge, self.time_of(edge) - interval * edge[2])
            for edge in sorted(self.edges, key=lambda e: (e[2] > 0, e[1]))
        ]
        for _ in range(self.problem.size + 1):
            grew = False
            for (before, after, _), time in rows:
                if begin[before] + time > begin[after]:
                    begin[after], grew = begin[before] + time, True
            if not grew:
                return True
        return False
