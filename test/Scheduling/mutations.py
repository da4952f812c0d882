#!/usr/bin/env python3
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Breaks the scheduler in known ways, one at a time, and prints which test notices each.

    mutations.py check              every mutation still applies to the sources, exactly once; needs no build
    mutations.py run --build DIR    compiles, links and tests every mutation; DIR is a configured build folder in
                                    which SchedulingTests and comm-opt are up to date
        --only 13,21                these alone
        --jobs 2                    so many at a time
        --first                     names the first test that fails alone, which is several times faster
        --filter 'Bounds*'          these tests alone, as gtest's filter has it

A mutation is a list of textual edits of one source file. The source tree and the build folder stay as they are: the
mutated copy is compiled with the command of the original, and its object is linked in front of the library, so that the
linker does not take the original from there. SchedulingTests run first; a mutation that survives them is linked into
comm-opt, and the gaps on the training graphs (test/Graphs/schedule.test) are looked at. `run` returns 1 if any mutation
survives.

All of 0 to 32 were killed on one build, each by the first of these tests that fails (--first, in parts with filters):

    0            Decoder.DecodesAgreeWithTheModels
    1-5, 16      AnswerVerifier.GoodAnswersPass
    6            SearchTest.RefusesAnOrderAgainstADependence
    7            SearchTest.RefusesClocksThatAreWrong
    8            Scheduler.KeepsThePinnedInOrder
    9            Scheduler.TakesTheMemoryBudget
    10, 12, 13   Graphs/schedule.test: gaps of 0.87 % (expected at most 0.72), 0.84 % (0.66) and 14.0 % (0.2)
    11           SearchObserver.SeesEveryTrialAndChangesNothing
    14           Decodes.KeepToThePrefetchBudget
    15, 32       Graphs/schedule.test: gaps of 0.50 % (expected at most 0.44) and 0.19 % (0.02)
    17           ManyLanes.FullMemoryCostsNoMoreThanFewLanes
    18           Bounds.NoOrderIsBelowAnyWindow
    19, 20       Bounds.NoOrderIsBelow
    21           Bounds.NoOrderWithinALimitIsBelow
    22           Bounds.WhatIsPutOffCosts
    23           Bounds.NoBucketingIsBelowTheJointBound
    24, 25       RandomSchedules.AreOptimalWhereSmall
    26           ScheduleVerifier.WantsTheCollectivesInOrder
    27           ScheduleVerifier.AgreesWithTheModelsOnRandomProblems
    28           ScheduleVerifier.WantsEveryEdge
    29           Scheduler.SaysThatMemoryIsFull
    30           PeakReducer.ComesDownOnRandomProblems
    31           ScheduleFacts.FeedersAreLightAndFeedOneStart

These were tried with those tests alone that concern them, and otherwise with the graphs:

    13           ManyLanes.BoundsHold, Decodes.StartWhatIsDueFirst
    33           AnswerVerifier.GoodAnswersPass
    34           Bounds.CastsOfNothing
    35           Decoder.CutoffsKnowThatPacksDoCasts
    36-38, 43    Graphs/schedule.test: gaps of 0.49 % (expected at most 0.45), 6.6 % (0.66), 13.8 % (0.72) and 0.05 % (0.02)
    41, 42, 48   Graphs/schedule.test: gaps of 0.03 %, 0.07 % and 0.19 % (expected at most 0.02)
    39, 40       BucketedOrder.SearchShortensAndHolds
    44           RandomSchedules.KeepTheirPromises
    45, 46       BucketedOrder.AgreesWithTheExpansion
    47           Scheduler.IsNeverSlowerWithBuckets
    49           ArenaLimit.HoldsOnRandomPrograms
    50           Bounds.LargeCollectives
    51           Bounds.BucketsWaitForTheirMembers
    52           Bounds.NoOrderWithinALimitIsBelow
    53           AnswerVerifier.NoEdgeMayBeTurned
    54, 55       AnswerVerifier.NoCorruptionPasses
    56           AnswerVerifier.OrdersDoNotNeedEdges
    57           Portfolio.SmallBucketsAreAPartOfTheLimit
    63           Portfolio.SampledPoliciesAreDecoded
    64           Search.MovesMayLengthenWithBuckets
    65           LocalMoves.LengthenOnlyWithSlack
    66           BucketedOrder.AgreesWithTheExpansion
    67           Decoder.PacksGoAheadOfDryLanes
    68           LocalMoves.PutOffSeveralProductsAtOnce
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = "lib/libCommSchedScheduling.a"
GRAPHS = ROOT / "test/Graphs"
GAPS = "Tests that schedules stay as close to their bounds"
# What a run may take, in seconds, before it counts as one that does not end. Far more than the tests take.
ENDLESS = 1200


@dataclass(frozen=True)
class Mutation:
    """One fault: edits of one file of lib/Scheduling, each from a text that occurs exactly once to another one."""

    name: str
    file: str
    edits: tuple[tuple[str, str], ...]


def mutation(name: str, file: str, *edits: tuple[str, str]) -> Mutation:
    return Mutation(name, file, edits)


MUTATIONS = [
    # Legality: what a decode and the expansion of buckets keep.
    mutation(
        "a wait keeps its inputs after a pack",
        "Solver/MemoryAdmission.cpp",
        ("        save(touches[index].buffer);\n        unlink(index);\n      });\n    }\n", "      });\n    }\n"),
    ),
    mutation(
        "a buffer's last use is one position early",
        "Solver/MemoryAdmission.cpp",
        ("positions[touches[buffer.tail].node] + 1;", "positions[touches[buffer.tail].node];"),
    ),
    mutation(
        "a decode never frees",
        "Solver/MemoryAdmission.cpp",
        ("  buffer.live = false;\n  liveBytes -= buffer.bytes;", "  buffer.live = false;"),
    ),
    mutation(
        "the expansion drops the order of issues",
        "Model/Bucketing.cpp",
        ("if (!isOwnWait && source != to)", "if (!isOwnWait && source != to && !ordersIssues)"),
    ),
    mutation(
        "the expansion drops the edges into a pack",
        "Model/Bucketing.cpp",
        ("    before[member] = pack;\n", ""),
    ),
    mutation(
        "a coalesced start forgets its inputs",
        "Model/BucketShape.cpp",
        (
            "        shape.touches.push_back(info.input);\n      shape.touches",
            "        (void)info;\n      shape.touches",
        ),
    ),
    # The gate in front of an incumbent.
    mutation(
        "no decode is verified",
        "Solver/Search.cpp",
        (
            "if (std::string why = verify(facts.problem, candidate, requirements); !why.empty())",
            "if (std::string why; !why.empty())",
        ),
    ),
    mutation(
        "a decode's clocks are believed",
        "Solver/Search.cpp",
        ("candidate.claims = {decoded.makespan, ", "candidate.claims = {makespanOf(carried, candidate.order), "),
        ("if (makespanOf(carried, candidate.order) != decoded.makespan)", "if (false)"),
    ),
    mutation(
        "pinned nodes get no edges",
        "Solver/Scheduler.cpp",
        ("if (lastPinned != kNone && !llvm::is_contained(preds, lastPinned))", "if (false)"),
    ),
    mutation(
        "the memory budget is ignored",
        "Solver/Scheduler.cpp",
        ("options.memory.limitFor(result.inputPeak)", "result.inputPeak"),
    ),
    # Quality.
    mutation(
        "a portfolio of one policy",
        "Solver/Search.cpp",
        ("policies = portfolio(facts, limit);", "policies(1, portfolio(facts, limit).front());"),
    ),
    mutation(
        "no sweep and no climb",
        "Solver/Search.cpp",
        ("  sweep(best);\n", ""),
        ("    climb();\n", ""),
    ),
    mutation(
        "lanes are not fed ahead",
        "Solver/Decoder.cpp",
        (
            "issueReadyCollectives(schedule.clock.now() + duration,",
            "issueReadyCollectives(schedule.clock.now() + 0 * duration,",
        ),
    ),
    mutation(
        "the largest due time starts first",
        "Solver/LaneQueues.cpp",
        ("due[a] < due[b] : a < b", "due[a] > due[b] : a < b"),
    ),
    mutation(
        "the prefetch budget is ignored",
        "Solver/CollectiveIssuer.cpp",
        ("return candidate.terminal || prefetched == 0 ||", "return true || candidate.terminal || prefetched == 0 ||"),
    ),
    mutation(
        "collectives are merged whether it pays or not",
        "Solver/BucketCandidates.cpp",
        ("if (!mayPayLater && priceOf(", "if (false && priceOf("),
        ("if (price >= thousandths(apart))", "if (false)"),
    ),
    mutation(
        "a bucket's issue costs nothing",
        "Solver/IssueMoves.cpp",
        ("  clock.spend(shape.start.issue);\n", ""),
    ),
    mutation(
        "all dry lanes are looked at before each compute",
        "Solver/CollectiveIssuer.cpp",
        ("refused += issued ? 0 : 1;", "refused += 0;"),
    ),
    # Bounds.
    mutation(
        "marks of older summary nodes stay valid",
        "Bounds/HeadsAndTails.cpp",
        ("reachedBy[id] == summaryNode; }", "reachedBy[id] != kNone; }"),
    ),
    mutation(
        "heads are one nanosecond too late",
        "Bounds/HeadsAndTails.cpp",
        ("return result.head[id] = head;", "return result.head[id] = head + 1;"),
    ),
    mutation(
        "the one-machine bound without heads",
        "Bounds/Bounds.cpp",
        ("now = std::max(now, jobs[next].head);", "now = std::max<Ns>(now, 0);"),
        ("jobs[next].head <= now; ++next)", "true; ++next)"),
    ),
    mutation(
        "half of the room under a limit",
        "Bounds/MemoryLimitedBound.cpp",
        ("return std::max<Bytes>(room, 0);", "return std::max<Bytes>(room, 0) / 2;"),
    ),
    mutation(
        "no deferral bound",
        "Bounds/Bounds.cpp",
        ("  raise(deferral.withLatencies.makespan, BoundArgument::OneMachine, deferral.withLatencies.lane);\n", ""),
    ),
    mutation(
        "shares are rounded up",
        "Bounds/BucketShares.cpp",
        ("return mulDiv(cost, part, bytes); }", "return mulDiv(cost, part, bytes) + 1; }"),
    ),
    # Oracles and explanations.
    mutation(
        "the exact search ignores workspace",
        "Solver/ExactSearch.cpp",
        (
            "state.live + allocates[node] + problem.nodes[node].workspace <= limit",
            "state.live + allocates[node] <= limit",
        ),
    ),
    mutation(
        "the exact search gives up",
        "Solver/ExactSearch.cpp",
        ("  if (bound(state) < cutoff)\n    extend(state);\n", ""),
    ),
    mutation(
        "the verifier takes the lane for the group",
        "Model/OrderVerifier.cpp",
        (
            "follows(node.group != kNone ? 2 * int64_t(node.group) + 1 : 2 * int64_t(node.lane), id);",
            "follows(2 * int64_t(node.lane), id);",
        ),
    ),
    mutation(
        "the verifier counts a donated argument from its first use",
        "Model/OrderVerifier.cpp",
        ("change[buffer.def == kNone ? 0 : first[index]]", "change[first[index]]"),
    ),
    mutation(
        "the verifier checks no edge",
        "Model/OrderVerifier.cpp",
        ("if (place[pred] > place[id])", "if (place[pred] < 0)"),
    ),
    mutation(
        "memory is never the reason",
        "Model/Explain.cpp",
        ("if (reached > limit)", "if (reached < 0)"),
    ),
    mutation(
        "the peak reducer does nothing",
        "Solver/PeakReducer.cpp",
        ("while (evaluator.peak() > limit && steps > 0 && piece > 0)", "while (false)"),
    ),
    mutation(
        "any compute of a start is its feeder",
        "Solver/ScheduleFacts.cpp",
        ("if (feedsOnlyIt && isLight && (argumentFed[node] || fused[start] == node))", "if (feedsOnlyIt)"),
    ),
    mutation(
        "no moves of single nodes",
        "Solver/Search.cpp",
        ("  if (units)\n    return;\n", "  return;\n"),
    ),
    # The description of a bucket, and what carries it out.
    mutation(
        "the result of a merged reduction is freed although it is returned",
        "Solver/MemoryAdmission.cpp",
        ("    buffers[merged].liveOut |= buffers[output].liveOut;\n", ""),
    ),
    mutation(
        "each small output has an unpack of its own",
        "Model/BucketShape.cpp",
        ("if (isSmall && shared < shape.unpacks.size())", "if (false)"),
    ),
    mutation(
        "an unpack is not part of the work that is left",
        "Solver/IssueMoves.cpp",
        ("    clock.addUnpack(join.cost);\n", ""),
    ),
    mutation(
        "a bucket may make its first member late",
        "Solver/BucketCandidates.cpp",
        ("if (!candidate.terminal && begin + merged.lane > deadline && bytes > policy.freeNeeded)", "if (false)"),
    ),
    mutation(
        "terminal starts do not yield",
        "Solver/LaneQueues.cpp",
        ("[reference.position[node]] + yielding", "[reference.position[node]] + 0 * yielding"),
    ),
    mutation(
        "what memory refused once is refused for ever",
        "Solver/MemoryAdmission.cpp",
        ("if (there > limit)\n      return false;", "return false;"),
    ),
    # Moves.
    mutation(
        "a trial forgets what is behind its window",
        "Solver/IncrementalTimeline.cpp",
        ("std::max(result, lanesNow[lane] + after[lane])", "std::max(result, lanesNow[lane])"),
    ),
    mutation(
        "a trial forgets what is in flight",
        "Solver/IncrementalTimeline.cpp",
        ("if (waitedIn[start] != trial)", "if (false)"),
    ),
    mutation(
        "moves know no exposed waits",
        "Solver/LocalMoves.cpp",
        ("    if (order.isExposed(at))\n", "    if (false)\n"),
    ),
    mutation(
        "moves know no critical path",
        "Solver/LocalMoves.cpp",
        ("    if (order.isCritical(at))\n", "    if (false)\n"),
    ),
    mutation(
        "moves join no buckets",
        "Solver/BucketMoves.cpp",
        ("return merges ? join(start, other, change)", "return merges ? false"),
        ("return kind < 3   ? join(start, other, change)", "return kind < 3   ? false"),
    ),
    mutation(
        "moves ignore caps",
        "Solver/BucketMoves.cpp",
        ("return cap < 0 || bytes <= cap;", "return true;"),
    ),
    mutation(
        "a change of buckets ignores the limit",
        "Solver/BucketChanges.cpp",
        ("if (memory->peak() > limit)", "if (false)"),
    ),
    mutation(
        "a change of buckets ignores dependences",
        "Solver/BucketChanges.cpp",
        ("return numShifts < kMaxShifts && llvm::all_of(", "return numShifts < kMaxShifts || llvm::all_of("),
    ),
    # The search around them.
    mutation(
        "the search with buckets begins from nothing",
        "Solver/Scheduler.cpp",
        ("    joint->adopt(std::move(*alone));\n", ""),
    ),
    mutation(
        "a search ends at two percent",
        "Solver/Scheduler.cpp",
        ("kCloseEnoughPpm = 200;", "kCloseEnoughPpm = 20000;"),
    ),
    mutation(
        "an arena may be too large",
        "Arena/ArenaLimit.cpp",
        ("bool fits = bytes <= limit, isBetter = fits != (arena <= limit) ?", "bool fits = true, isBetter = false ?"),
    ),
    # More bounds, and the verifier of answers.
    mutation(
        "a lane needs one bucket more",
        "Bounds/BatchBound.cpp",
        ("  int64_t number = 0;\n", "  int64_t number = 1;\n"),
    ),
    mutation(
        "no bound by the number of buckets",
        "Bounds/Bounds.cpp",
        ("    raise(batches.makespan, BoundArgument::OneMachine, batches.lane);\n", ""),
    ),
    mutation(
        "no bound by the memory limit",
        "Bounds/Bounds.cpp",
        ("if (options.limit < kUnlimited) {", "if (false) {"),
    ),
    mutation(
        "answers are verified without edges",
        "Model/AnswerVerifier.cpp",
        ("      if (!kept)\n", "      if (false)\n"),
    ),
    mutation(
        "answers are verified without the peak",
        "Model/AnswerVerifier.cpp",
        ("if (claims && peak != claims->peak)", "if (false)"),
    ),
    mutation(
        "answers are verified without the makespan",
        "Model/AnswerVerifier.cpp",
        ("if (makespan != claims->makespan)", "if (false)"),
    ),
    mutation(
        "answers are verified without the order of collectives",
        "Model/AnswerVerifier.cpp",
        ("if (!isFirst && issues[entry->second] > issues[node])", "if (false)"),
    ),
    mutation(
        "small buckets are not tried",
        "Solver/Search.cpp",
        ("        trySmallBuckets();\n", "        spent += 0;\n"),
    ),
    # Copies and latencies in bounds.
    mutation(
        "what is put off has two latencies",
        "Bounds/DeferralBound.cpp",
        ("Ns sum = -key->latency();", "Ns sum = -2 * key->latency();"),
    ),
    mutation(
        "what is put off has no latency",
        "Bounds/DeferralBound.cpp",
        ("Ns sum = -key->latency();", "Ns sum = 0;"),
    ),
    mutation(
        "copies count twice",
        "Bounds/BucketShares.cpp",
        ("shares.copies[id] += share;", "shares.copies[id] += share + share;"),
    ),
    mutation(
        "copies have no price",
        "Bounds/BatchBound.cpp",
        ("return all > floor;", "return false;"),
    ),
    mutation(
        "each member pays for all of a coalesced bucket",
        "Bounds/BatchBound.cpp",
        ("(group.cost - each.latency - each.costUp(group.bytes)) / group.members", "group.cost"),
    ),
    # Samples and annealing.
    mutation(
        "sampled policies are not decoded",
        "Solver/Search.cpp",
        ("        trySamples();\n", "        spent += 0;\n"),
    ),
    mutation(
        "moves never lengthen an order",
        "Solver/Search.cpp",
        ("Ns slack = anneals ? slackAfter(spentBefore - begin, budget - begin) : 0;", "Ns slack = 0; (void)anneals;"),
    ),
    mutation(
        "the slack of moves is not used",
        "Solver/LocalMoves.cpp",
        ("order.makespan() + (slack > 0 ? random.below(slack + 1) : 0);", "order.makespan();"),
    ),
    mutation(
        "the price of a bucket forgets the casts that its pack does",
        "Solver/BucketedOrder.cpp",
        (" - (cast == kNone ? 0 : given.nodes[cast].cost);", ";"),
    ),
    mutation(
        "lanes are not served ahead for packs",
        "Solver/IssueMoves.cpp",
        ("= mulDiv(shape.packCost, thePolicy.packAhead, kPermille);", "= 0;"),
    ),
    mutation(
        "nothing is put off behind exposed waits",
        "Solver/LocalMoves.cpp",
        (
            "bool putsOff = mayMerge && !exposed.empty() && random.below(perPutOff) == 0;",
            "bool putsOff = false; (void)mayMerge; (void)perPutOff;",
        ),
    ),
]


def mutated(change: Mutation) -> str:
    """The text of the mutated file. Exits if an edit does not apply exactly once."""
    text = (ROOT / "lib/Scheduling" / change.file).read_text()
    for old, new in change.edits:
        if (count := text.count(old)) != 1:
            raise SystemExit(
                f"mutation '{change.name}': expected one place in lib/Scheduling/{change.file}, got {count}:\n{old}"
            )
        text = text.replace(old, new)
    return text


class Workshop:
    """Makes and tries mutants beside a build folder."""

    def __init__(self, build: pathlib.Path, scratch: pathlib.Path, options: list[str]) -> None:
        self.build, self.scratch, self.options = build, scratch, options
        entries = json.loads((build / "compile_commands.json").read_text())
        self.commands = {entry["file"]: entry["command"] for entry in entries}
        self.links = {target: self.link_command(target) for target in ("SchedulingTests", "comm-opt")}

    def link_command(self, target: str) -> str:
        done = subprocess.run(
            ["ninja", "-C", self.build, "-t", "commands", target], capture_output=True, text=True, check=True
        )
        return done.stdout.strip().splitlines()[-1].removeprefix(": && ").removesuffix(" && :")

    def compile(self, index: int, change: Mutation) -> pathlib.Path | str:
        """The object of the mutated file, or what the compiler said."""
        original = ROOT / "lib/Scheduling" / change.file
        source = self.scratch / f"{index}" / original.name
        source.parent.mkdir()
        source.write_text(mutated(change))
        words = shlex.split(self.commands[str(original)])
        target = source.with_suffix(".o")
        words[words.index("-o") + 1] = str(target)
        words[words.index(str(original))] = str(source)
        # Headers beside the original, and warnings about what the fault leaves unused.
        words += ["-I", str(original.parent), "-w"]
        done = subprocess.run(words, cwd=self.build, capture_output=True, text=True)
        return target if done.returncode == 0 else done.stderr

    def link(self, program: str, target: pathlib.Path) -> pathlib.Path:
        words = shlex.split(self.links[program])
        words.insert(words.index(LIBRARY), str(target))
        result = target.parent / program
        words[words.index("-o") + 1] = str(result)
        # The rules that follow the link, such as the run path of the build tree, are not needed.
        words = words[: words.index("&&")] if "&&" in words else words
        words.append(f"-Wl,-rpath,{self.build / 'lib'}")
        subprocess.run(words, cwd=self.build, check=True, capture_output=True)
        return result

    def tests_that_fail(self, program: pathlib.Path) -> list[str]:
        """The tests that fail, the one that runs when the program dies included."""
        try:
            command = [program, *self.options]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=ENDLESS)
        except subprocess.TimeoutExpired as expired:
            output = expired.stdout or b""
            text = output if isinstance(output, str) else output.decode(errors="replace")
            return [re.findall(r"^\[ RUN      \] (\S+)", text, re.M)[-1] + " (does not end)"]
        failed = re.findall(r"^\[  FAILED  \] (\w+\.\w+)", done.stdout, re.M)
        if done.returncode not in (0, 1):
            failed.append(re.findall(r"^\[ RUN      \] (\S+)", done.stdout, re.M)[-1] + " (dies)")
        return list(dict.fromkeys(failed))

    def graphs_that_fail(self, program: pathlib.Path) -> list[str]:
        """Runs the lines of schedule.test about gaps."""
        text = (GRAPHS / "schedule.test").read_text()
        block = text[text.index(GAPS) :].split("\n\n")[0]
        failed = []
        graph = ""
        for line in re.findall(r"^RUN: (.*)$", block, re.M):
            words = line.replace("%S", str(GRAPHS)).replace("%t", str(program.parent / "report"))
            command = shlex.split(words.replace("%python", sys.executable))
            if command[0] == "comm-opt":
                command[0] = str(program)
                graph = pathlib.Path(command[1]).stem
            done = subprocess.run(command, capture_output=True, text=True, timeout=ENDLESS)
            if done.returncode != 0:
                last = (done.stderr.strip().splitlines() or ["no message"])[-1]
                failed.append(f"Graphs/schedule.test ({graph}: {last.removeprefix('AssertionError: ')})")
        return failed

    def verdict(self, index: int) -> str:
        """One line about a mutation."""
        change = MUTATIONS[index]
        target = self.compile(index, change)
        if isinstance(target, str):
            raise SystemExit(f"mutation '{change.name}' does not compile:\n{target}")
        failed = self.tests_that_fail(self.link("SchedulingTests", target))
        if not failed:
            failed = self.graphs_that_fail(self.link("comm-opt", target))
        more = f" and {len(failed) - 4} more" if len(failed) > 4 else ""
        killers = ", ".join(failed[:4]) + more
        for leftover in target.parent.iterdir():
            leftover.unlink()
        return f"{index:2} {change.name}: " + (f"killed by {killers}" if failed else "SURVIVES")


def run(build: pathlib.Path, chosen: list[int], jobs: int, options: list[str]) -> int:
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(jobs) as pool:
        workshop = Workshop(build.resolve(), pathlib.Path(scratch), options)
        lines = []
        for line in pool.map(workshop.verdict, chosen):
            print(line, flush=True)
            lines.append(line)
    survivors = sum(line.endswith("SURVIVES") for line in lines)
    print(f"{len(lines) - survivors} of {len(lines)} mutations are killed")
    return 1 if survivors else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check")
    runs = commands.add_parser("run")
    runs.add_argument("--build", type=pathlib.Path, required=True)
    runs.add_argument("--only", default=",".join(map(str, range(len(MUTATIONS)))))
    runs.add_argument("--jobs", type=int, default=1)
    runs.add_argument("--first", action="store_true")
    runs.add_argument("--filter", default="*")
    arguments = parser.parse_args()
    for change in MUTATIONS:
        mutated(change)
    if arguments.command == "check":
        print(f"{len(MUTATIONS)} mutations apply")
        return 0
    options = [f"--gtest_filter={arguments.filter}"] + (["--gtest_fail_fast"] if arguments.first else [])
    return run(arguments.build, [int(index) for index in arguments.only.split(",")], arguments.jobs, options)


if __name__ == "__main__":
    sys.exit(main())
