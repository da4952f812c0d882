# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Faults of the scheduler. `mutations.py` plants them and says which test notices each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """One fault: edits of one file of lib/Scheduling, each from a text that occurs exactly once to another one."""

    name: str
    file: str
    edits: tuple[tuple[str, str], ...]
    # The test that is known to notice it: SUITE.TEST, or "graph NAME" for the gaps of a graph; "" if none is known.
    killer: str


def mutation(name: str, file: str, *edits: tuple[str, str], killer: str = "") -> Mutation:
    return Mutation(name, file, edits, killer)


MUTATIONS = [
    # Legality: what a decode and the expansion of buckets keep.
    mutation(
        "a wait keeps its inputs after a pack",
        "Solver/Decode/MemoryAdmission.cpp",
        ("        save(touches[index].buffer);\n        unlink(index);\n      });\n    }\n", "      });\n    }\n"),
        killer="Decoder.DecodesAgreeWithTheModels",
    ),
    mutation(
        "a buffer's last use is one position early",
        "Solver/Decode/MemoryAdmission.cpp",
        ("positions[touches[buffer.tail].node] + 1;", "positions[touches[buffer.tail].node];"),
        killer="AnswerVerifier.GoodAnswersPass",
    ),
    mutation(
        "a decode never frees",
        "Solver/Decode/MemoryAdmission.cpp",
        ("  buffer.live = false;\n  liveBytes -= buffer.bytes;", "  buffer.live = false;"),
        killer="AnswerVerifier.GoodAnswersPass",
    ),
    mutation(
        "the expansion drops the order of issues",
        "Buckets/Bucketing.cpp",
        ("if (!isOwnWait && source != to)", "if (!isOwnWait && source != to && !ordersIssues)"),
        killer="AnswerVerifier.GoodAnswersPass",
    ),
    mutation(
        "the expansion drops the edges into a pack",
        "Buckets/Bucketing.cpp",
        ("    before[member] = pack;\n", ""),
        killer="AnswerVerifier.GoodAnswersPass",
    ),
    mutation(
        "a coalesced start forgets its inputs",
        "Buckets/BucketShape.cpp",
        (
            "        shape.touches.push_back(info.input);\n      shape.touches",
            "        (void)info;\n      shape.touches",
        ),
        killer="AnswerVerifier.GoodAnswersPass",
    ),
    # The gate in front of an incumbent.
    mutation(
        "no decode is verified",
        "Solver/SearchState.cpp",
        (
            "if (std::string why = verify(facts.problem, candidate, requirements); !why.empty())",
            "if (std::string why; !why.empty())",
        ),
        killer="SearchTest.RefusesAnOrderAgainstADependence",
    ),
    mutation(
        "a decode's clocks are believed",
        "Solver/SearchState.cpp",
        ("candidate.claims = {decoded.makespan, ", "candidate.claims = {makespanOf(merged, candidate.order), "),
        ("if (makespanOf(merged, candidate.order) != decoded.makespan)", "if (false)"),
        killer="SearchTest.RefusesClocksThatAreWrong",
    ),
    mutation(
        "pinned nodes get no edges",
        "Solver/Scheduler.cpp",
        ("if (lastPinned != kNone && !llvm::is_contained(preds, lastPinned))", "if (false)"),
        killer="Scheduler.KeepsThePinnedInOrder",
    ),
    mutation(
        "the memory budget is ignored",
        "Solver/Scheduler.cpp",
        ("options.memory.limitFor(result.inputPeak)", "result.inputPeak"),
        killer="Scheduler.TakesTheMemoryBudget",
    ),
    # Quality.
    mutation(
        "a portfolio of one policy",
        "Solver/SearchPhases.cpp",
        ("policies = portfolio(state.facts);", "policies(1, portfolio(state.facts).front());"),
        killer="graph llama3-8b-64-fsdp-bw",
    ),
    mutation(
        "lanes are not fed ahead",
        "Solver/Decode/Decoder.cpp",
        (
            "issueReadyCollectives(schedule.clock.now() + duration,",
            "issueReadyCollectives(schedule.clock.now() + 0 * duration,",
        ),
        killer="graph llama3-8b-64-fsdp-tp8-bw",
    ),
    mutation(
        "the largest due time starts first",
        "Solver/Decode/LaneQueues.cpp",
        ("due[a] < due[b] : a < b", "due[a] > due[b] : a < b"),
        killer="Decodes.StartWhatIsDueFirst",
    ),
    mutation(
        "collectives are merged whether it pays or not",
        "Solver/Decode/BucketCandidates.cpp",
        ("if (!mayPayLater && priceOf(", "if (false && priceOf("),
        ("if (price >= apart)", "if (false)"),
        killer="Decodes.MergeOnlyWhatPays",
    ),
    mutation(
        "a bucket's issue costs nothing",
        "Solver/Decode/PartialSchedule.cpp",
        ("  clock.spend(shape.start.issue);\n", ""),
        killer="AnswerVerifier.GoodAnswersPass",
    ),
    mutation(
        "all dry lanes are looked at before each compute",
        "Solver/Decode/CollectiveIssuer.cpp",
        ("refused += issued ? 0 : 1;", "refused += 0;"),
        killer="ManyLanes.FullMemoryCostsNoMoreThanFewLanes",
    ),
    # Bounds.
    mutation(
        "marks of older summary nodes stay valid",
        "Bounds/Arguments/HeadsAndTails.cpp",
        ("reachedBy[id] == summaryNode; }", "reachedBy[id] != kNone; }"),
        killer="Bounds.NoOrderIsBelowAnyWindow",
    ),
    mutation(
        "heads are one nanosecond too late",
        "Bounds/Arguments/HeadsAndTails.cpp",
        ("return result.head[id] = head;", "return result.head[id] = head + 1;"),
        killer="Bounds.NoOrderIsBelow",
    ),
    mutation(
        "the one-machine bound without heads",
        "Bounds/Arguments/OneMachine.cpp",
        ("now = std::max(now, jobs[next].head);", "now = std::max<Ns>(now, 0);"),
        ("jobs[next].head <= now; ++next)", "true; ++next)"),
        killer="Bounds.NoOrderIsBelow",
    ),
    mutation(
        "half of the room under a limit",
        "Bounds/Arguments/MemoryLimitedBound.cpp",
        ("return std::max<Bytes>(room, 0);", "return std::max<Bytes>(room, 0) / 2;"),
        killer="Bounds.NoOrderWithinALimitIsBelow",
    ),
    mutation(
        "no deferral bound",
        "Bounds/BoundArguments.cpp",
        ('      {"deferral", "29", true, boundByDeferral},\n', ""),
        killer="Bounds.WhatIsPutOffCosts",
    ),
    mutation(
        "shares are rounded up",
        "Bounds/Arguments/BucketShares.cpp",
        ("return mulDiv(cost, part, bytes); }", "return mulDiv(cost, part, bytes) + 1; }"),
        killer="Bounds.NoBucketingIsBelowTheJointBound",
    ),
    # Oracles and explanations.
    mutation(
        "the exact search ignores workspace",
        "Solver/Exact/ExactSearch.cpp",
        (
            "sets.peakAt(state.live, node) <= limit",
            "state.live + sets.allocatedBy(node) <= limit",
        ),
        killer="RandomSchedules.AreOptimalWhereSmall",
    ),
    mutation(
        "the exact search gives up",
        "Solver/Exact/ExactSearch.cpp",
        ("  if (bound(state) < cutoff)\n    extend(state);\n", ""),
        killer="RandomSchedules.AreOptimalWhereSmall",
    ),
    mutation(
        "the verifier takes the lane for the group",
        "Check/OrderVerifier.cpp",
        (
            "follows(node.group != kNone ? 2 * int64_t(node.group) + 1 : 2 * int64_t(node.lane), id);",
            "follows(2 * int64_t(node.lane), id);",
        ),
        killer="ScheduleVerifier.WantsTheCollectivesInOrder",
    ),
    mutation(
        "the verifier counts a donated argument from its first use",
        "Check/OrderVerifier.cpp",
        ("change[buffer.def == kNone ? 0 : first[index]]", "change[first[index]]"),
        killer="ScheduleVerifier.AgreesWithTheModelsOnRandomProblems",
    ),
    mutation(
        "the verifier checks no edge",
        "Check/OrderVerifier.cpp",
        ("if (place[pred] > place[id])", "if (place[pred] < 0)"),
        killer="ScheduleVerifier.WantsEveryEdge",
    ),
    mutation(
        "memory is never the reason",
        "Answer/Explain.cpp",
        ("if (reached > limit)", "if (reached < 0)"),
        killer="Scheduler.SaysThatMemoryIsFullOfALargeBlock",
    ),
    mutation(
        "the peak reducer does nothing",
        "Solver/Moves/PeakReducer.cpp",
        ("while (evaluator.peak() > limit && steps > 0 && piece > 0)", "while (false)"),
        killer="PeakReducer.ComesDownOnRandomProblems",
    ),
    mutation(
        "any compute of a start is its feeder",
        "Solver/Decode/ScheduleFacts.cpp",
        ("if (feedsOnlyIt && isLight && (argumentFed[node] || fused[start] == node))", "if (feedsOnlyIt)"),
        killer="ScheduleFacts.FeedersAreLightAndFeedOneStart",
    ),
    mutation(
        "no moves of single nodes",
        "Solver/MovePhase.cpp",
        ("  if (state.hasUnits || state.isDone())\n", "  if (true)\n"),
        killer="graph llama3-8b-64-fsdp-fw",
    ),
    # The description of a bucket, and what carries it out.
    mutation(
        "the result of a merged reduction is freed although it is returned",
        "Solver/Decode/MemoryAdmission.cpp",
        ("    buffers[merged].liveOut |= buffers[output].liveOut;\n", ""),
        killer="AnswerVerifier.GoodAnswersPass",
    ),
    mutation(
        "each small output has an unpack of its own",
        "Buckets/BucketShape.cpp",
        ("if (isSmall && shared < shape.unpacks.size())", "if (false)"),
        killer="Bounds.CastsOfNothing",
    ),
    mutation(
        "an unpack is not part of the work that is left",
        "Solver/Decode/PartialSchedule.cpp",
        ("    clock.addUnpack(join.cost);\n", ""),
        killer="Decoder.CutoffsKnowThatPacksDoCasts",
    ),
    mutation(
        "a bucket may make its first member late",
        "Solver/Decode/BucketCandidates.cpp",
        ("if (!candidate.terminal && begin + merged.lane > deadline && bytes > kFreeNeeded)", "if (false)"),
        killer="graph llama3-8b-64-fsdp-tp8-fw",
    ),
    mutation(
        "terminal starts do not yield",
        "Solver/Decode/LaneQueues.cpp",
        ("[reference.position[node]] + yielding", "[reference.position[node]] + 0 * yielding"),
        killer="graph llama3-8b-64-fsdp-tp8-bw",
    ),
    mutation(
        "what memory refused once is refused for ever",
        "Solver/Decode/MemoryAdmission.cpp",
        ("if (there > limit)\n      return false;", "return false;"),
        killer="graph llama3-8b-64-fsdp-bw",
    ),
    # Moves.
    mutation(
        "a trial forgets what is behind its window",
        "Time/IncrementalTimeline.cpp",
        ("std::max(result, lanesNow[lane] + after[lane])", "std::max(result, lanesNow[lane])"),
        killer="BucketedOrder.SearchShortensAndHolds",
    ),
    mutation(
        "a trial forgets what is in flight",
        "Time/IncrementalTimeline.cpp",
        ("if (waitedIn[start] != trial)", "if (false)"),
        killer="BucketedOrder.SearchShortensAndHolds",
    ),
    mutation(
        "a focus forgets what is in flight past it",
        "Time/IncrementalTimeline.cpp",
        ("std::max(passing, ends[start] + tailsOfWaiters[waiter])", "passing"),
        killer="IncrementalTimeline.FocusesUnderACollective",
    ),
    mutation(
        "a focus forgets futures that come in late behind it",
        "Time/IncrementalTimeline.cpp",
        ("std::max(passing, step.time + tails[at + 1])", "passing"),
        killer="IncrementalTimeline.FocusesOnSomePositions",
    ),
    mutation(
        "a focus forgets what begins in it and is awaited behind it",
        "Time/IncrementalTimeline.cpp",
        ("      crossing.push_back(start);\n", "      crossing.size();\n"),
        killer="IncrementalTimeline.FocusesOnSomePositions",
    ),
    mutation(
        "moves know no exposed waits",
        "Solver/Moves/LocalMoves.cpp",
        ("    if (order.isExposed(at))\n", "    if (false)\n"),
        killer="graph llama3-8b-64-fsdp-tp8-bw",
    ),
    mutation(
        "moves know no critical path",
        "Solver/Moves/LocalMoves.cpp",
        ("    if (order.isCritical(at))\n", "    if (false)\n"),
        killer="LocalMoves.PutOffSeveralProductsAtOnce",
    ),
    mutation(
        "moves join no buckets",
        "Solver/Moves/BucketMoves.cpp",
        ("return merges ? join(start, other, change)", "return merges ? false"),
        ("return kind < 3   ? join(start, other, change)", "return kind < 3   ? false"),
        ("return other != kNone && join(start, other, change);", "return false;"),
        killer="graph llama3-8b-64-fsdp-bw",
    ),
    mutation(
        "moves ignore caps",
        "Solver/Moves/BucketMoves.cpp",
        ("return cap < 0 || bytes <= cap;", "return true;"),
        killer="RandomSchedules.KeepTheirPromises",
    ),
    mutation(
        "a change of buckets ignores the limit",
        "Solver/Moves/BucketChanges.cpp",
        ("if (memory->peak() > limit)", "if (false)"),
        killer="BucketedOrder.AgreesWithTheExpansion",
    ),
    mutation(
        "a change of buckets ignores dependences",
        "Solver/Moves/BucketChanges.cpp",
        ("return numShifts < kMaxShifts && llvm::all_of(", "return numShifts < kMaxShifts || llvm::all_of("),
        killer="BucketedOrder.AgreesWithTheExpansion",
    ),
    # The search around them.
    mutation(
        "the search with buckets begins from nothing",
        "Solver/Scheduler.cpp",
        ("    joint->adopt(std::move(*alone));\n", ""),
        killer="Scheduler.IsNeverSlowerWithBuckets",
    ),
    mutation(
        "a search ends at two percent",
        "Solver/Scheduler.cpp",
        ("kCloseEnoughPpm = 190;", "kCloseEnoughPpm = 20000;"),
        killer="graph llama3-8b-64-fsdp-fw",
    ),
    mutation(
        "a merged problem has the edges of the last copy",
        "Lenses/MemoryPlan/MergedCopies.cpp",
        ("      row = both;\n", ""),
        killer="PlanBound.HoldsForAllPlans",
    ),
    mutation(
        "a merged copy has the largest cost",
        "Lenses/MemoryPlan/MergedCopies.cpp",
        (
            "image.cost = std::min(image.cost, problem.nodes[node].cost);",
            "image.cost = std::max(image.cost, problem.nodes[node].cost);",
        ),
        killer="PlanBound.HoldsForAllPlans",
    ),
    mutation(
        "a value is live at a node that comes before it",
        "Lenses/MemoryPlan/PlanBound.cpp",
        ("(buffer.def != kNone && !before.test(buffer.def))", "(buffer.def == kNone)"),
        killer="PlanBound.HoldsForAllPlans",
    ),
    mutation(
        "a value is live after its last reader",
        "Lenses/MemoryPlan/PlanBound.cpp",
        ("      isNeeded |= behind.test(user);", "      isNeeded = true;"),
        killer="PlanBound.HoldsForAllPlans",
    ),
    mutation(
        "a value is kept although only what is made again is read",
        "Lenses/MemoryPlan/PlanBound.cpp",
        ("isRootMade && isRootNeeded", "isRootMade && isNeeded"),
        killer="PlanBound.HoldsForAllPlans",
    ),
    mutation(
        "the price of memory is the largest one",
        "Lenses/MemoryPlan/PlanBound.cpp",
        ("    if (growing <= cut.room)\n      return;\n", ""),
        killer="PlanBound.HoldsForAllPlans",
    ),
    mutation(
        "the weights of lanes sum to more than one",
        "Lenses/MemoryPlan/PlanBound.cpp",
        (
            "  proof.weights[fullest] = kWholeWeight;",
            "  proof.weights.assign(problem.numLanes(), kWholeWeight);",
        ),
        killer="PlanBound.HoldsForAllPlans",
    ),
    mutation(
        "an arena may be too large",
        "Lenses/ArenaLimit.cpp",
        ("bool fits = bytes <= limit, isBetter = fits != (arena <= limit) ?", "bool fits = true, isBetter = false ?"),
        killer="ArenaLimit.HoldsOnRandomPrograms",
    ),
    mutation(
        "an answer with a lower peak may take any time",
        "Lenses/TimeBudget.cpp",
        ("found.makespan <= most && peak < best.peak", "peak < best.peak"),
        killer="TimeBudget.FindsTheLowestPeakWhereSmall",
    ),
    mutation(
        "peaks between two limits are never tried",
        "Lenses/TimeBudget.cpp",
        ("tryLimit(low + (best.peak - low) / 2));", "tryLimit(low + (best.peak - low) / 2) * 2);"),
        killer="TimeBudget.FindsTheLowestPeakWhereSmall",
    ),
    # More bounds, and the verifier of answers.
    mutation(
        "a lane needs one bucket more",
        "Bounds/Arguments/BatchBound.cpp",
        ("  int64_t number = 0;\n", "  int64_t number = 1;\n"),
        killer="Bounds.LargeCollectives",
    ),
    mutation(
        "no bound by the number of buckets",
        "Bounds/BoundArguments.cpp",
        ("  state.raise(batches.makespan, BoundArgument::OneMachine, batches.lane);\n", ""),
        killer="Bounds.BucketsWaitForTheirMembers",
    ),
    mutation(
        "the number of buckets counts as certified",
        "Bounds/BoundArguments.cpp",
        ('{"buckets", "17", false, boundByBuckets}', '{"buckets", "17", true, boundByBuckets}'),
        killer="JointBound.SaysWhatCertificatesCarry",
    ),
    mutation(
        "no bound by the memory limit",
        "Bounds/BoundArguments.cpp",
        ("return options.limit < kUnlimited && !problem.hasStreams();", "return false;"),
        killer="Bounds.NoOrderWithinALimitIsBelow",
    ),
    mutation(
        "the interval of a loop knows no casts that packs do",
        "Bounds/IntervalBound.cpp",
        ("      kept.push_back(cast);\n", "      (void)cast;\n"),
        killer="IntervalBound.NoMergedPipelineIsFaster",
    ),
    mutation(
        "a recurrence does not wait for transfers",
        "Bounds/IntervalBound.cpp",
        ("return isTransfer ? std::max(own, costs.path[edge.from]) : own;", "return own;"),
        killer="IntervalBound.IsTheLongestCyclePerIteration",
    ),
    mutation(
        "answers are verified without edges",
        "Check/AnswerVerifier.cpp",
        ("      if (!kept)\n", "      if (false)\n"),
        killer="AnswerVerifier.NoEdgeMayBeTurned",
    ),
    mutation(
        "answers are verified without the peak",
        "Check/AnswerVerifier.cpp",
        ("if (claims && peak != claims->peak)", "if (false)"),
        killer="AnswerVerifier.NoCorruptionPasses",
    ),
    mutation(
        "answers are verified without the makespan",
        "Check/AnswerVerifier.cpp",
        ("if (makespan != claims->makespan)", "if (false)"),
        killer="AnswerVerifier.NoCorruptionPasses",
    ),
    mutation(
        "answers are verified without the order of collectives",
        "Check/AnswerVerifier.cpp",
        ("if (!isFirst && issues[entry->second] > issues[node])", "if (false)"),
        killer="AnswerVerifier.OrdersDoNotNeedEdges",
    ),
    # Latencies in bounds.
    mutation(
        "what is put off has two latencies",
        "Bounds/Arguments/DeferralBound.cpp",
        ("Ns sum = -key->latency();", "Ns sum = -2 * key->latency();"),
        killer="Bounds.NoBucketingIsBelowTheJointBound",
    ),
    mutation(
        "what is put off has no latency",
        "Bounds/Arguments/DeferralBound.cpp",
        ("Ns sum = -key->latency();", "Ns sum = 0;"),
        killer="JointBound.WhatIsPutOffHasALatency",
    ),
    # Stages in bounds.
    mutation(
        "what is put off has no collectives",
        "Bounds/Arguments/DeferralBound.cpp",
        ("        work[node] -= costs.lane[node];\n", ""),
        killer="JointBound.StagesOfAReductionFollow",
    ),
    mutation(
        "the second stage of the last reduction need not follow",
        "Bounds/Arguments/DeferralBound.cpp",
        ("mustFollow[node] ? saved[node] : std::max<Ns>(saved[node], 0)", "std::max<Ns>(saved[node], 0)"),
        killer="JointBound.StagesOfAReductionFollow",
    ),
    mutation(
        "everything has to be put off",
        "Bounds/Arguments/DeferralBound.cpp",
        ("mustFollow[node] ? saved[node] : std::max<Ns>(saved[node], 0)", "saved[node]"),
        killer="Bounds.NoOrderIsBelow",
    ),
    # Lanes that stand still.
    mutation(
        "no start comes earlier for its lane",
        "Solver/Moves/LocalMoves.cpp",
        ("if (learns && !starved.empty() && random.below(kTriesPerAdvance) == 0)", "if (false)"),
        killer="LocalMoves.LetALaneBeginEarlier",
    ),
    mutation(
        "stages that a layer needs count as deferred",
        "Solver/Decode/ScheduleFacts.cpp",
        ("(isBetween && !isNeeded[node])", "isBetween"),
        killer="LocalMoves.LetALaneBeginEarlier",
    ),
    # Annealing.
    mutation(
        "moves never lengthen an order",
        "Solver/MovePhase.cpp",
        ("    if (!anneals || coolings >= kCoolings)\n", "    if (coolings >= 0)\n"),
        killer="Search.IsNotStuckInCrowdedPrograms",
    ),
    mutation(
        "the slack of moves is not used",
        "Solver/Moves/LocalMoves.cpp",
        ("order.makespan() + (slack > 0 ? random.below(slack + 1) : 0);", "order.makespan();"),
        killer="LocalMoves.LengthenOnlyWithSlack",
    ),
    mutation(
        "a move is made without a look at the guards",
        "Solver/Moves/BucketedOrder.cpp",
        ("> allowed || !meetsGuards(first) ||", "> allowed ||"),
        killer="GuardedMoves.ShortenAtOneScaleAndKeepTheOthers",
    ),
    mutation(
        "the clocks of the guards do not hear of a change of buckets",
        "Solver/Moves/BucketChanges.cpp",
        ("      line->timeline->setNode(slot, nodeOf(slot, *line->guard.problem));", "      (void)slot;"),
        killer="GuardedMoves.ShortenAtOneScaleAndKeepTheOthers",
    ),
    mutation(
        "a bucket takes as long for a guard as planned",
        "Solver/Moves/BucketedOrder.cpp",
        ("    if (&priced != &given)\n", "    if (false)\n"),
        killer="GuardedMoves.ShortenAtOneScaleAndKeepTheOthers",
    ),
    mutation(
        "the price of a bucket forgets the casts that its pack does",
        "Solver/Moves/BucketedOrder.cpp",
        (" - (cast == kNone ? 0 : given.nodes[cast].cost);", ";"),
        killer="BucketedOrder.AgreesWithTheExpansion",
    ),
    mutation(
        "lanes are not served ahead for packs",
        "Solver/Decode/PartialSchedule.cpp",
        ("= mulDiv(shape.packCost, thePolicy.packAhead, kPermille);", "= 0;"),
        killer="Decoder.PacksGoAheadOfDryLanes",
    ),
    mutation(
        "nothing is put off behind exposed waits",
        "Solver/Moves/LocalMoves.cpp",
        (
            "if (mayMerge && !exposed.empty() && random.below(perPutOff) == 0)",
            "if (perPutOff < 0)",
        ),
        killer="LocalMoves.PutOffSeveralProductsAtOnce",
    ),
    # Other scales of the collectives' times.
    mutation(
        "a regret looks at the played scales alone",
        "Answer/CostScale.cpp",
        ("if (lower.sgt(proportional) && b2.sgt(b1))", "if (false)"),
        killer="Robust.RegretIsThatOfTheWorstScale",
    ),
    mutation(
        "a regret counts the bound of the upper scale in full",
        "Answer/CostScale.cpp",
        ("lower.sgt(proportional) ? lower : proportional};", "b2 * k2};"),
        killer="Robust.RegretIsThatOfTheWorstScale",
    ),
    mutation(
        "issues keep their nanoseconds among picoseconds",
        "Answer/CostScale.cpp",
        ("node.issue = factors.other(node.issue);", ""),
        killer="CostScale.PicosecondsRoundNothing",
    ),
    mutation(
        "a proof takes the planned problem at every scale",
        "Bounds/RegretProof.cpp",
        ("proveBound(scaleExactly(question.problem, scale),", "proveBound(scaleExactly(question.problem, kScaleOne),"),
        killer="RegretProof.FollowsFromItsScales",
    ),
    mutation(
        "a witness keeps levels of nodes that its argument does not see",
        "Bounds/PruneLevels.cpp",
        ("  if (threshold <= 0) {", "  if (threshold < 0) {"),
        killer="Bounds.TheWitnessHasNoIdleLevels",
    ),
]
