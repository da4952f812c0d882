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

/// One number of a policy.
struct PolicyNumber {
  /// The member's name.
  llvm::StringLiteral name;
  int64_t (*get)(const Policy &policy);
};

template <auto Field> int64_t getField(const Policy &policy) { return static_cast<int64_t>(policy.*Field); }

template <auto Field> constexpr PolicyNumber number(llvm::StringLiteral name) { return {name, getField<Field>}; }

constexpr PolicyNumber kNumbers[] = {
    number<&Policy::tailShare>("tailShare"),         number<&Policy::window>("window"),
    number<&Policy::terminalDelay>("terminalDelay"), number<&Policy::producerDelay>("producerDelay"),
    number<&Policy::producersFrom>("producersFrom"), number<&Policy::horizon>("horizon"),
    number<&Policy::maxNeeded>("maxNeeded"),         number<&Policy::maxTerminal>("maxTerminal"),
    number<&Policy::packAhead>("packAhead"),         number<&Policy::patience>("patience"),
    number<&Policy::compared>("compared"),
};

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

void commsched::describePolicy(const Policy &policy, llvm::SmallVectorImpl<PolicyValue> &values) {
  static const Policy defaults;
  for (const PolicyNumber &number : kNumbers)
    if (int64_t value = number.get(policy); value != number.get(defaults))
      values.push_back({number.name, value});
}
