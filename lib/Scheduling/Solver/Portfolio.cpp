//===- Portfolio.cpp - Policies that a search decodes -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The policies come from measurements on the graphs that Search.md lists.
//
//===------------------------------------------------------------------------------------------===//

#include "Portfolio.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

namespace {

constexpr int32_t kEverything = INT32_MAX / 2;
/// A delay that is longer than any block: terminal starts come last.
constexpr int64_t kLast = int64_t(1) << 40;
constexpr Bytes kMiB = Bytes(1) << 20, kGiB = Bytes(1) << 30;

/// One number of a policy.
struct PolicyNumber {
  /// The member's name.
  llvm::StringLiteral name;
  int64_t (*get)(const Policy &policy);
};

template <auto Field> int64_t getField(const Policy &policy) { return static_cast<int64_t>(policy.*Field); }

template <auto Field> constexpr PolicyNumber number(llvm::StringLiteral name) { return {name, getField<Field>}; }

constexpr PolicyNumber kNumbers[] = {
    number<&Policy::tailShare>("tailShare"),
    number<&Policy::window>("window"),
    number<&Policy::terminalDelay>("terminalDelay"),
    number<&Policy::producerDelay>("producerDelay"),
    number<&Policy::producersFrom>("producersFrom"),
    number<&Policy::leastGain>("leastGain"),
    number<&Policy::prefetch>("prefetch"),
    number<&Policy::tries>("tries"),
    number<&Policy::terminalSlack>("terminalSlack"),
    number<&Policy::horizon>("horizon"),
    number<&Policy::form>("form"),
    number<&Policy::maxNeeded>("maxNeeded"),
    number<&Policy::freeShare>("freeShare"),
    number<&Policy::maxTerminal>("maxTerminal"),
    number<&Policy::freeNeeded>("freeNeeded"),
    number<&Policy::minTerminal>("minTerminal"),
    number<&Policy::copyWeight>("copyWeight"),
    number<&Policy::idleShare>("idleShare"),
    number<&Policy::packAhead>("packAhead"),
    number<&Policy::patience>("patience"),
    number<&Policy::compared>("compared"),
};

/// The numbers of one of the sampledPolicies(), as they are in Policy, but for these: `estimate` is the estimate of the
/// makespan from which deadlines follow, as a share of the known one; `maxNeeded` may be kPartOfLimit; `prefetch` is in
/// permille of the limit, or -1.
struct Sample {
  int32_t window, tailShare;
  int64_t producerDelay;
  int32_t producersFrom;
  int64_t leastGain, terminalDelay, terminalSlack, estimate, copyWeight;
  int32_t idleShare;
  Bytes maxNeeded;
  int32_t freeShare;
  Bytes maxTerminal, minTerminal, freeNeeded;
  int64_t prefetch;
  int32_t tries;
  FormChoice form;
};
constexpr Bytes kPartOfLimit = -1;

/// The policies that together did best in a sample (Search.md).
constexpr Sample kSamples[] = {
    {kEverything, 0, 1000, 300, 1000, kLast, -1, 940, 500, 0, 512 * kMiB, 60, 2 * kGiB, 0, 8 * kMiB, 100, 60,
     FormChoice::Packed},
    {100, 0, 0, 950, 1000, kLast, -1, 970, 0, 0, 512 * kMiB, 125, 2 * kGiB, 128 * kMiB, 0, 400, 6, FormChoice::Packed},
    {kEverything, 100, 1000, 0, 1000, kLast, -1, 990, 100000, 0, 512 * kMiB, 0, 4 * kGiB, 0, 8 * kMiB, 400, 6,
     FormChoice::Packed},
    {kEverything, 0, 1000, 0, 1000, kLast, -1, 980, 1000, 0, 256 * kMiB, 0, 2 * kGiB, 0, 0, 400, 6,
     FormChoice::Cheaper},
    {100, 0, 0, 0, 1000, 10000, -1, 950, 0, 0, kGiB, 500, 2 * kGiB, 0, 32 * kMiB, -1, 6, FormChoice::Cheaper},
    {1500, 200, 1000, 300, 1000, 2500, 0, 940, 3000, 0, 256 * kMiB, 250, 4 * kGiB, 0, 32 * kMiB, 400, 24,
     FormChoice::Cheaper},
    {kEverything, 0, 1000, 500, 4000, kLast, -1, 940, 1600, 600, 0, 500, kGiB, 64 * kMiB, 8 * kMiB, -1, 6,
     FormChoice::Packed},
    {100, 300, 100, 0, 1000, 10000, -1, 950, 1000, 0, kPartOfLimit, 0, kGiB, 0, 32 * kMiB, -1, 24, FormChoice::Packed},
    {100, 0, 0, 500, 16000, kLast, 300, 835, 0, 300, kGiB, 1000, 4 * kGiB, 256 * kMiB, 0, -1, 6, FormChoice::Packed},
    {100, 100, 1000, 700, 2000, 2500, -1, 930, 1600, 0, 512 * kMiB, 500, 2 * kGiB, 64 * kMiB, 8 * kMiB, -1, 24,
     FormChoice::Packed},
    {kEverything, 0, 1000, 0, 1000, kLast, -1, 990, 100000, 0, 512 * kMiB, 0, 4 * kGiB, 0, 8 * kMiB, 400, 6,
     FormChoice::Packed},
    {1500, 0, 1000, 300, 16000, kLast, -1, 980, 100000, 0, 128 * kMiB, 0, 4 * kGiB, 256 * kMiB, 32 * kMiB, 400, 6,
     FormChoice::Packed},
};

/// The cap that kPartOfLimit stands for, as a part of the limit.
constexpr Bytes kPartsOfLimit = 64;

Policy ordering(int32_t tailShare, int32_t window, int64_t terminalDelay) {
  Policy policy;
  policy.tailShare = tailShare;
  policy.window = window;
  policy.terminalDelay = terminalDelay;
  return policy;
}

/// A policy that puts off what only terminal starts need.
Policy puttingOff(int32_t tailShare, int64_t terminalDelay, int32_t producersFrom = 0) {
  Policy policy = ordering(tailShare, kEverything, terminalDelay);
  policy.producerDelay = 1000;
  policy.producersFrom = producersFrom;
  return policy;
}

/// Policies with buckets, in the order in which the bottleneck wants them.
std::vector<Policy> bucketings(const ScheduleFacts &facts) {
  Policy merging = ordering(0, kEverything, 10000), alone = merging, putsOff = puttingOff(100, 10000);
  alone.maxNeeded = alone.maxTerminal = 0;
  Policy late = putsOff, ample = ordering(0, kEverything, kLast);
  late.packAhead = 0;
  ample.horizon = 1120;
  const bool lanesBind = facts.load[kComputeLane] < facts.busiestLoad;
  return {lanesBind ? merging : alone, lanesBind ? alone : merging, putsOff, late, ample};
}

/// With contention, all policies but every fourth choose beside which computes a collective flies: by holding back
/// starts, and some of them also by the order of computes.
void chooseNeighbours(std::vector<Policy> &policies) {
  constexpr int32_t kFew = 12, kPatience = 600;
  for (size_t index = 0; index < policies.size(); ++index) {
    policies[index].compared = index % 4 == 3 ? kFew : 0;
    policies[index].patience = index % 4 == 1 ? 0 : index % 4 == 2 ? kPatience / 2 : kPatience;
  }
}

} // namespace

std::vector<Policy> commsched::portfolio(const ScheduleFacts &facts) {
  std::vector<Policy> result = {ordering(0, kEverything, 10000),
                                puttingOff(100, 10000),
                                puttingOff(100, kLast),
                                puttingOff(0, kLast),
                                puttingOff(0, 10000, /*producersFrom=*/800),
                                ordering(0, 100, 10000),
                                ordering(300, kEverything, 10000)};
  if (facts.bucketing)
    result = bucketings(facts);
  if (facts.problem.hasContention())
    chooseNeighbours(result);
  return result;
}

Policy commsched::deadlinePolicy() { return ordering(0, 400, 10000); }

std::vector<Policy> commsched::sampledPolicies(const ScheduleFacts &facts, Bytes limit, Ns makespan) {
  std::vector<Policy> result;
  for (const Sample &sample : kSamples) {
    Policy policy = ordering(sample.tailShare, sample.window, sample.terminalDelay);
    policy.producerDelay = sample.producerDelay;
    policy.producersFrom = sample.producersFrom;
    policy.leastGain = sample.leastGain;
    policy.terminalSlack = sample.terminalSlack;
    policy.horizon = mulDiv(mulDiv(makespan, sample.estimate, kPermille), kPermille, facts.horizonBase());
    policy.copyWeight = sample.copyWeight;
    policy.idleShare = sample.idleShare;
    policy.maxNeeded =
        sample.maxNeeded == kPartOfLimit ? std::min(Policy().maxNeeded, limit / kPartsOfLimit) : sample.maxNeeded;
    policy.freeShare = sample.freeShare;
    policy.maxTerminal = sample.maxTerminal;
    policy.minTerminal = sample.minTerminal;
    policy.freeNeeded = sample.freeNeeded;
    policy.prefetch = sample.prefetch < 0 ? kUnlimited : mulDiv(limit, sample.prefetch, kPermille);
    policy.tries = sample.tries;
    policy.form = sample.form;
    result.push_back(policy);
  }
  return result;
}

void commsched::describePolicy(const Policy &policy, llvm::SmallVectorImpl<PolicyValue> &values) {
  static const Policy defaults;
  for (const PolicyNumber &number : kNumbers)
    if (int64_t value = number.get(policy); value != number.get(defaults))
      values.push_back({number.name, value});
}
