//===- AnswerVerifierTest.cpp - Tests of the check of whole answers ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Good answers of the solver over random problems pass; answers that are corrupted in one way each do not.
//
//===------------------------------------------------------------------------------------------===//

#include "Check/AnswerVerifier.h"
#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "RandomProblem.h"
#include "llvm/ADT/STLExtras.h"
#include "gtest/gtest.h"
#include <algorithm>

using namespace commsched;
using namespace commsched::test;

namespace {

/// An answer in the form that the verifier takes.
struct Answer {
  Problem given;
  std::vector<Bucket> buckets;
  std::vector<AnswerEvent> events;
  ScheduleRequirements requirements;
  ScheduleClaims claims;

  std::string verify() const { return verifyAnswer(given, buckets, {}, events, requirements, claims); }
};

Answer solved(uint64_t seed) {
  Random random(seed);
  RandomOptions shape;
  shape.nodes = static_cast<int32_t>(random.between(20, 80));
  shape.commLanes = static_cast<int32_t>(random.between(1, 2));
  shape.chanceOfStart = static_cast<int32_t>(random.between(30, 70));
  shape.chanceOfMergeable = 95;
  shape.maxCost = 400;
  shape.chanceOfPinned = random.percent(80) ? 0 : 15;
  shape.collectiveOrder = static_cast<CollectiveOrder>(random.below(3));
  Answer answer;
  answer.given = randomProblem(seed, shape);
  ScheduleOptions options;
  options.effort = 3000;
  options.collectiveOrder = shape.collectiveOrder;
  options.memory.ppm = random.percent(50) ? 0 : 1000000;
  Schedule result = schedule(answer.given, options);
  EXPECT_EQ(result.defect, "") << "seed " << seed;
  answer.buckets = result.buckets;
  answer.events = eventsOf(result);
  answer.requirements.peakLimit = result.limit;
  answer.requirements.collectiveOrder = shape.collectiveOrder;
  answer.claims = {makespanOf(result.expanded.problem, result.order), peakOf(result.expanded.problem, result.order)};
  return answer;
}

TEST(AnswerVerifier, GoodAnswersPass) {
  int64_t packed = 0, coalesced = 0;
  for (uint64_t seed = 0; seed < portion(1200u); ++seed) {
    Answer answer = solved(seed);
    ASSERT_EQ(answer.verify(), "") << "seed " << seed;
    for (const Bucket &bucket : answer.buckets)
      ++(bucket.form == BucketForm::Packed ? packed : coalesced);
  }
  EXPECT_GT(packed, leastOf(20));
  EXPECT_GT(coalesced, leastOf(20));
}

/// The event that is the node's own, or kNone.
int32_t eventOf(const Answer &answer, NodeId node) {
  for (auto [at, event] : llvm::enumerate(answer.events))
    if (event.kind == AnswerEvent::Run && event.node == node)
      return static_cast<int32_t>(at);
  return kNone;
}

TEST(AnswerVerifier, NoEdgeMayBeTurned) {
  int64_t turned = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Answer answer = solved(seed);
    Random random(seed);
    for (NodeId node = 0; node < answer.given.size(); ++node)
      for (NodeId pred : answer.given.preds[node]) {
        int32_t from = eventOf(answer, pred), to = eventOf(answer, node);
        if (from == kNone || to == kNone || !random.percent(20))
          continue;
        Answer bad = answer;
        // The predecessor comes right behind its successor.
        std::rotate(bad.events.begin() + from, bad.events.begin() + from + 1, bad.events.begin() + to + 1);
        ASSERT_NE(bad.verify(), "") << "seed " << seed << ": " << pred << " behind " << node;
        ++turned;
      }
  }
  EXPECT_GT(turned, 200);
}

/// Corrupts a copy of an answer; returns false where there is nothing to corrupt.
using Corruption = bool (*)(Answer &answer, Random &random);

bool dropEvent(Answer &answer, Random &random) {
  answer.events.erase(answer.events.begin() + random.below(static_cast<int64_t>(answer.events.size())));
  return true;
}

bool repeatEvent(Answer &answer, Random &random) {
  answer.events.push_back(answer.events[random.below(static_cast<int64_t>(answer.events.size()))]);
  return true;
}

/// Moves an event of one kind to the place of another of the same bucket.
bool swapInBucket(Answer &answer, AnswerEvent::Kind first, AnswerEvent::Kind second) {
  for (auto [at, event] : llvm::enumerate(answer.events))
    if (event.kind == first)
      for (auto [other, later] : llvm::enumerate(answer.events))
        if (later.kind == second && later.bucket == event.bucket) {
          std::swap(answer.events[at], answer.events[other]);
          return true;
        }
  return false;
}

bool packBehindStart(Answer &answer, Random &) { return swapInBucket(answer, AnswerEvent::Pack, AnswerEvent::Start); }
bool unpackBeforeWait(Answer &answer, Random &) { return swapInBucket(answer, AnswerEvent::Wait, AnswerEvent::Unpack); }
bool viewBeforeWait(Answer &answer, Random &) { return swapInBucket(answer, AnswerEvent::Wait, AnswerEvent::View); }

bool changeForm(Answer &answer, Random &) {
  if (answer.buckets.empty())
    return false;
  BucketForm &form = answer.buckets.front().form;
  form = form == BucketForm::Packed ? BucketForm::Coalesced : BucketForm::Packed;
  return true;
}

bool loseMember(Answer &answer, Random &) {
  if (answer.buckets.empty())
    return false;
  answer.buckets.front().members.pop_back();
  return true;
}

bool repeatMember(Answer &answer, Random &) {
  if (answer.buckets.empty())
    return false;
  answer.buckets.front().members.back() = answer.buckets.front().members.front();
  return true;
}

bool claimTime(Answer &answer, Random &) { return --answer.claims.makespan >= 0; }
bool claimPeak(Answer &answer, Random &) { return --answer.claims.peak >= 0; }
bool lowerLimit(Answer &answer, Random &) {
  answer.requirements.peakLimit = answer.claims.peak - 1;
  return answer.claims.peak > 0;
}

TEST(AnswerVerifier, NoCorruptionPasses) {
  constexpr Corruption corruptions[] = {dropEvent,      repeatEvent, packBehindStart, unpackBeforeWait,
                                        viewBeforeWait, changeForm,  loseMember,      repeatMember,
                                        claimTime,      claimPeak,   lowerLimit};
  std::vector<int64_t> tried(std::size(corruptions), 0);
  for (uint64_t seed = 0; seed < portion(2500u); ++seed) {
    Answer answer = solved(seed);
    Random random(seed);
    for (auto [index, corrupt] : llvm::enumerate(corruptions)) {
      Answer bad = answer;
      if (!corrupt(bad, random))
        continue;
      ASSERT_NE(bad.verify(), "") << "seed " << seed << ", corruption " << index;
      ++tried[index];
    }
  }
  for (auto [index, count] : llvm::enumerate(tried))
    EXPECT_GT(count, 5) << "corruption " << index << " was hardly tried";
}

/// Two all-reduces in a chain, on two lanes, and a receive behind a send.
Problem twoOfEach(CollectiveKind first, CollectiveKind second) {
  Problem problem;
  problem.laneNames = {"compute", "a", "b"};
  for (auto [index, kind] : llvm::enumerate(std::vector<CollectiveKind>{first, second})) {
    Node node;
    node.kind = NodeKind::Start;
    node.lane = static_cast<LaneId>(index) + 1;
    node.group = static_cast<int32_t>(index);
    node.collective = kind;
    node.cost = 10;
    problem.nodes.push_back(node);
    // No edges: the expansion has lost them.
    problem.preds.append({});
    problem.touches.append({});
  }
  problem.finalize();
  return problem;
}

std::string verifyTurned(const Problem &problem, CollectiveOrder mode) {
  std::vector<AnswerEvent> events(2);
  events[0].node = 1, events[1].node = 0;
  ScheduleRequirements requirements;
  requirements.collectiveOrder = mode;
  return verifyAnswer(problem, {}, {}, events, requirements, ScheduleClaims{10, 0});
}

TEST(AnswerVerifier, OrdersDoNotNeedEdges) {
  Problem reductions = twoOfEach(CollectiveKind::AllReduce, CollectiveKind::AllReduce);
  EXPECT_EQ(verifyTurned(reductions, CollectiveOrder::Free), "");
  EXPECT_EQ(verifyTurned(reductions, CollectiveOrder::Group), "");
  EXPECT_NE(verifyTurned(reductions, CollectiveOrder::Program), "");
  reductions.nodes[1].group = 0;
  EXPECT_NE(verifyTurned(reductions, CollectiveOrder::Group), "");
  Problem messages = twoOfEach(CollectiveKind::Send, CollectiveKind::Recv);
  EXPECT_NE(verifyTurned(messages, CollectiveOrder::Free), "");
  reductions.nodes[0].pinned = reductions.nodes[1].pinned = true;
  EXPECT_NE(verifyTurned(reductions, CollectiveOrder::Free), "");
}

} // namespace
