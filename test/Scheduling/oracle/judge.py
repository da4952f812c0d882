# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a report of comm-opt says of a program, compared with the oracle."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from .block import Block, Play, load, play
from .prices import Prices
from .programs import Program, random_problem
from .search import Budget, GaveUpError, Optimum, Scale, least_makespan

# Bounds at these scales of the times of collectives are compared, one for each program.
SCALES = (750, 1250, 1500, 2000)
# The rule of objective=robust (Scheduler.md, "Other costs"). At none of these scales may an answer take longer than the
# given order by more than LOSS_PERMILLE. As planned, it may be longer than the fastest one by TOLERANCE_PERMILLE.
ROBUST_SCALES = (750, 1000, 1250, 1500, 2000)
LOSS_PERMILLE = 10
TOLERANCE_PERMILLE = 1
# Longer than any program here takes.
NEVER = 1 << 60


@dataclass
class Problem:
    """The program of a seed, its machine, the limit (None: the input's peak), and the largest bucket in bytes."""

    seed: int
    program: Program
    machine: dict[str, Any]
    block: Block
    given: Play
    limit: int | None
    cap: int | None
    prices: Prices

    @property
    def most_bytes(self) -> int:
        return self.given.peak if self.limit is None else self.limit

    def at_most(self, given: Play) -> int:
        """The makespan of the given order, if it is within the limit: no optimum is above it."""
        return given.makespan if given.peak <= self.most_bytes else NEVER


def problem_of(seed: int, collectives: int) -> Problem:
    """The problem of a seed. A fifth has a limit below the peak of the input, a quarter one above it."""
    program, machine = random_problem(seed, collectives)
    prices = Prices(machine, program.groups)
    block = load(program, prices)
    given = play(block, list(block.nodes))
    rng = random.Random(f"limit {seed}")
    draw, limit = rng.random(), None
    if draw < 0.2:
        limit = given.peak - int(given.peak * rng.uniform(0.01, 0.3))
    elif draw < 0.45:
        limit = int(given.peak * rng.choice([1.1, 1.5, 4]))
    cap = rng.randint(1, sum(m.size for m in block.members)) if rng.random() < 0.15 else None
    return Problem(seed, program, machine, block, given, limit, cap, prices)


def optimum_of(problem: Problem, budget: Budget) -> Optimum:
    at_most = problem.at_most(problem.given)
    return least_makespan(problem.block, problem.prices, problem.most_bytes, at_most, budget, problem.cap)


@dataclass
class Verdict:
    """What was found of one problem. Shares are (makespan - optimum) / optimum, by objective.

    The optimum of the objective robust is that of its rule (`compare_robust`).
    If the oracle gave up, the shortest answer stands for the optimum.
    """

    seed: int
    wrong: list[str] = field(default_factory=list)
    gave_up: str = ""
    above: dict[str, float] = field(default_factory=dict)
    # Whether an order within the limit exists that comm-opt did not find.
    is_missed: bool = False
    is_merged: bool = False
    # Numbers of bounds that were compared, and of those that are the optimum.
    bounds: int = 0
    tight: int = 0
    prefixes: int = 0


def judge(problem: Problem, reports: dict[str, Any], prefixes: int) -> Verdict:
    """Compares the reports, by objective, with the optimum. In place of a report there may be what comm-opt said."""
    verdict = Verdict(problem.seed)
    budget = Budget(prefixes)
    compare_inputs(problem, reports, verdict)
    try:
        compare(problem, reports, verdict, budget)
    except GaveUpError as error:
        verdict.gave_up = str(error)
        compare_with_each_other(reports, verdict)
    if problem.prices.is_doubtful:
        verdict.gave_up = "a price is too close to a half to know how it is rounded"
        verdict.wrong, verdict.above = [], {}
    verdict.prefixes = prefixes - budget.left
    return verdict


def compare_inputs(problem: Problem, reports: dict[str, Any], verdict: Verdict) -> None:
    for objective, report in reports.items():
        if not isinstance(report, str):
            compare_input(problem, report, objective, verdict)


def compare_with_each_other(reports: dict[str, Any], verdict: Verdict) -> None:
    """Without an optimum: an answer is above it at least if another one is shorter."""
    answers = {
        objective: report["functions"][0]["makespan_ns"]["after"]
        for objective, report in reports.items()
        if not isinstance(report, str)
    }
    least = min(answers.values(), default=0)
    verdict.above = {objective: (after - least) / least if least else 0.0 for objective, after in answers.items()}


def compare(problem: Problem, reports: dict[str, Any], verdict: Verdict, budget: Budget) -> None:
    optimum = optimum_of(problem, budget)
    verdict.is_merged = bool(optimum.buckets)
    for objective, report in reports.items():
        if isinstance(report, str):
            compare_refusal(report, optimum.makespan, verdict)
        elif optimum.makespan is None:
            verdict.wrong.append(
                f"{objective}: an answer, but no order is within the limit of {problem.most_bytes} bytes"
            )
        else:
            compare_answer(problem, report, optimum.makespan, objective, verdict, budget)
            compare_bounds(problem, report, optimum.makespan, objective, verdict, budget)


def compare_refusal(said: str, optimum: int | None, verdict: Verdict) -> None:
    if "peak" not in said:
        verdict.wrong.append(f"comm-opt fails: {said.strip().splitlines()[0] if said.strip() else 'silently'}")
    elif optimum is not None:
        verdict.is_missed = True


def compare_input(problem: Problem, report: dict[str, Any], objective: str, verdict: Verdict) -> None:
    """The oracle's clock and memory, on the order that is given."""
    entry = report["functions"][0]
    given = problem.given
    for name, own in (("makespan_ns", given.makespan), ("exposed_ns", given.exposed), ("peak_bytes", given.peak)):
        if entry[name]["before"] != own:
            verdict.wrong.append(f"{objective}: {name} of the input is {entry[name]['before']}, by the oracle {own}")
    if entry["peak_bytes"].get("limit") != problem.most_bytes:
        verdict.wrong.append(
            f"{objective}: the limit is {entry['peak_bytes'].get('limit')}, by the oracle {problem.most_bytes}"
        )


def compare_answer(
    problem: Problem, report: dict[str, Any], optimum: int, objective: str, verdict: Verdict, budget: Budget
) -> None:
    entry = report["functions"][0]
    after, peak = entry["makespan_ns"]["after"], entry["peak_bytes"]["after"]
    if after < optimum:
        verdict.wrong.append(f"{objective}: the makespan of {after} is below the optimum of {optimum}")
    if peak > problem.most_bytes:
        verdict.wrong.append(f"{objective}: the peak of {peak} is above the limit of {problem.most_bytes}")
    if objective == "robust":
        optimum = compare_robust(problem, report, optimum, verdict, budget)
    verdict.above[objective] = (after - optimum) / optimum if optimum else float(after > 0)


def compare_robust(problem: Problem, report: dict[str, Any], optimum: int, verdict: Verdict, budget: Budget) -> int:
    """The rule of objective=robust. Returns the makespan to compare the answer with.

    The fastest answer as planned may lose to the given order at another scale. Then it is none, and the optimum is that
    of the orders that do not lose.
    """
    after = report["functions"][0]["makespan_ns"]["after"]
    if problem.given.peak > problem.most_bytes:
        return after if is_tolerated(after, optimum) else optimum
    for entry in report["passes"][-1].get("scales", []):
        times, scale = entry["makespan_ns"], entry["collectives_permille"]
        if scale in ROBUST_SCALES and times["after"] * 1000 > times["before"] * (1000 + LOSS_PERMILLE):
            than = f"than the given order with {times['before']} at {scale} permille"
            verdict.wrong.append(f"robust: {times['after']} is over 1 % longer {than}")
    if after > problem.given.makespan:
        verdict.wrong.append(f"robust: {after} is longer than the given order, {problem.given.makespan}")
    if not is_tolerated(after, optimum):
        found = optimum_that_does_not_lose(problem, budget)
        if found is not None:
            optimum = found
    return after if is_tolerated(after, optimum) else optimum


def is_tolerated(after: int, optimum: int) -> bool:
    return optimum <= after and after * 1000 <= optimum * (1000 + TOLERANCE_PERMILLE)


def optimum_that_does_not_lose(problem: Problem, budget: Budget) -> int | None:
    """The optimum of the orders that take at most 1 % longer than the given one at all scales."""
    scales = []
    for scale in ROBUST_SCALES:
        prices = Prices(problem.machine, problem.program.groups, scale)
        block = load(problem.program, prices)
        most = play(block, list(block.nodes)).makespan * (1000 + LOSS_PERMILLE) // 1000
        scales.append(Scale(block, prices, most))
    at_most = problem.given.makespan
    return least_makespan(
        problem.block, problem.prices, problem.most_bytes, at_most, budget, problem.cap, scales
    ).makespan


def compare_bounds(
    problem: Problem, report: dict[str, Any], optimum: int, objective: str, verdict: Verdict, budget: Budget
) -> None:
    """No bound may be above the optimum that it is about, and what is said of all orders has to be exact."""
    makespan, step = report["functions"][0]["makespan_ns"], report["passes"][-1]
    below = [(name, makespan[name], optimum) for name in ("lower_bound", "limit_lower_bound") if name in makespan]
    exact = []
    if "all_schedules_lower_bound_ns" in step:
        exact.append(("all_schedules_lower_bound_ns", step["all_schedules_lower_bound_ns"], optimum))
    unmerged = unmerged_optimum(problem, budget) if "order_lower_bound" in makespan else None
    if unmerged is not None:
        below.append(("order_lower_bound", makespan["order_lower_bound"], unmerged))
        if "all_orders_lower_bound_ns" in step:
            exact.append(("all_orders_lower_bound_ns", step["all_orders_lower_bound_ns"], unmerged))
    below += bounds_at_scale(problem, step, objective, verdict, budget)
    for name, bound, least in below:
        verdict.bounds += 1
        verdict.tight += bound == least
        if bound > least:
            verdict.wrong.append(f"{objective}: {name} of {bound} is above the optimum of {least}")
    for name, bound, least in exact:
        verdict.bounds += 1
        verdict.tight += bound == least
        if bound != least:
            verdict.wrong.append(f"{objective}: {name} is {bound}, but the optimum is {least}")


def unmerged_optimum(problem: Problem, budget: Budget) -> int | None:
    at_most = problem.at_most(problem.given)
    return least_makespan(problem.block, problem.prices, problem.most_bytes, at_most, budget, cap=0).makespan


def bounds_at_scale(
    problem: Problem, step: dict[str, Any], objective: str, verdict: Verdict, budget: Budget
) -> list[tuple[str, int, int]]:
    """The bound at one other scale of the times of collectives, if the report has it."""
    scale = SCALES[problem.seed % len(SCALES)]
    entry = next((entry for entry in step.get("scales", []) if entry["collectives_permille"] == scale), None)
    if entry is None:
        return []
    prices = Prices(problem.machine, problem.program.groups, scale)
    block = load(problem.program, prices)
    given = play(block, list(block.nodes))
    if entry["makespan_ns"]["before"] != given.makespan:
        said = entry["makespan_ns"]["before"]
        verdict.wrong.append(f"{objective}: the input takes {said} at {scale} permille, by the oracle {given.makespan}")
    if "lower_bound_ns" not in entry:
        return []
    least = least_makespan(block, prices, problem.most_bytes, problem.at_most(given), budget, problem.cap).makespan
    if least is None:
        return []
    if entry["makespan_ns"]["after"] < least:
        after = entry["makespan_ns"]["after"]
        verdict.wrong.append(
            f"{objective}: the makespan of {after} at {scale} permille is below the optimum of {least}"
        )
    return [(f"lower_bound_ns at {scale} permille", entry["lower_bound_ns"], least)]
