//===- Portfolio.cpp - Policies to begin a search with, and steps away from one ---------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "Portfolio.h"
#include <algorithm>
#include <iterator>

using namespace commsched;

namespace {

constexpr int32_t kEverything = INT32_MAX / 2;
/// A sink delay that no block is long enough for: sinks come last.
constexpr int64_t kLast = int64_t(1) << 40;
constexpr Bytes kMiB = Bytes(1) << 20, kGiB = Bytes(1) << 30;

/// Values that a knob tries. Those of sizes are bytes, or where they say so, permille of the limit.
constexpr int64_t kTailShares[] = {0, 100, 200, 300, 500, 700, 1000};
constexpr int64_t kWindows[] = {30, 100, 400, 1500, kEverything};
constexpr int64_t kSinkDelays[] = {0, 600, 2500, 10000, 40000, kLast};
constexpr int64_t kWorkDelays[] = {0, 30, 100, 300, 1000};
constexpr int64_t kWorkFroms[] = {0, 800, 900, 950, 970, 980, 985, 990, 995};
constexpr int64_t kLimitShares[] = {1000, 950, 900, 800};
constexpr int64_t kPrefetchPermille[] = {-1, 10, 25, 50, 100, 200, 400};
constexpr int64_t kTries[] = {1, 6, 24, 60};
constexpr int64_t kSinkSlacks[] = {-1, 0, 300, 1000, 3000, 10000};
constexpr int64_t kHorizons[] = {1000, 1020, 1050, 1080, 1120, 1200, 1300, 1400, 1600, 1800, 2200};
constexpr int64_t kSlacks[] = {0, 2000000, 10000000, 40000000};
constexpr int64_t kForms[] = {0, 1, 2};
constexpr int64_t kMaxNeeded[] = {0,          32 * kMiB, 64 * kMiB, 128 * kMiB, 256 * kMiB,
                                  512 * kMiB, kGiB,      2 * kGiB,  4 * kGiB};
constexpr int64_t kMaxSinks[] = {0, 64 * kMiB, 128 * kMiB, 256 * kMiB, 512 * kMiB, kGiB, 2 * kGiB, 4 * kGiB};
constexpr int64_t kFreeNeeded[] = {0, 8 * kMiB, 32 * kMiB, 128 * kMiB, 512 * kMiB};
constexpr int64_t kMinSinks[] = {0, 32 * kMiB, 64 * kMiB, 128 * kMiB, 256 * kMiB, 512 * kMiB, kGiB};
constexpr int64_t kPackAheads[] = {0, 1000};
constexpr int64_t kCopyWeights[] = {0, 500, 1000, 1600, 3000, 6000};

struct Knob {
  llvm::ArrayRef<int64_t> values;
  void (*set)(Policy &policy, int64_t value, Bytes limit);
};

template <auto Field> void setField(Policy &policy, int64_t value, Bytes) {
  policy.*Field = static_cast<std::remove_reference_t<decltype(policy.*Field)>>(value);
}

void setPrefetch(Policy &policy, int64_t permille, Bytes limit) {
  policy.prefetch = permille < 0 ? kUnlimited : mulDiv(limit, permille, 1000);
}

const Knob kKnobs[] = {
    {kTailShares, setField<&Policy::tailShare>},
    {kWindows, setField<&Policy::window>},
    {kSinkDelays, setField<&Policy::terminalDelay>},
    {kWorkDelays, setField<&Policy::producerDelay>},
    {kWorkFroms, setField<&Policy::producersFrom>},
    {kLimitShares, setField<&Policy::limitShare>},
    {kPrefetchPermille, setPrefetch},
    {kTries, setField<&Policy::tries>},
    {kSinkSlacks, setField<&Policy::terminalSlack>},
    {kHorizons, setField<&Policy::horizon>},
    {kSlacks, setField<&Policy::slack>},
    // Of buckets:
    {kForms, setField<&Policy::form>},
    {kMaxNeeded, setField<&Policy::maxNeeded>},
    {kMaxSinks, setField<&Policy::maxTerminal>},
    {kFreeNeeded, setField<&Policy::freeNeeded>},
    {kMinSinks, setField<&Policy::minTerminal>},
    {kCopyWeights, setField<&Policy::copyWeight>},
    {kPackAheads, setField<&Policy::packAhead>},
};
constexpr int32_t kBucketKnobs = 7;

Policy ordering(int32_t tailShare, int32_t window, int64_t terminalDelay, int32_t limitShare = 1000) {
  Policy policy;
  policy.tailShare = tailShare;
  policy.window = window;
  policy.terminalDelay = terminalDelay;
  policy.limitShare = limitShare;
  return policy;
}

/// Starting points of order alone: what binds decides which comes first.
std::vector<Policy> orderings(const ScheduleFacts &facts, Bytes limit) {
  Policy forLanes = ordering(0, 100, 10000), forCompute = ordering(300, kEverything, 10000);
  bool computeBinds = facts.load[kComputeLane] > facts.busiestLoad;
  std::vector<Policy> result = {
      ordering(0, kEverything, 10000), computeBinds ? forCompute : forLanes, computeBinds ? forLanes : forCompute,
      ordering(0, kEverything, kLast), ordering(0, 100, 2500, 900),          ordering(0, 400, 10000, 900),
      ordering(100, 100, kLast),       ordering(300, kEverything, kLast)};
  for (Policy putsOff :
       {ordering(0, kEverything, kLast), ordering(100, kEverything, kLast), ordering(100, kEverything, 10000)}) {
    putsOff.producerDelay = 1000;
    result.insert(result.begin() + 1, putsOff);
  }
  Policy putsOffLate = ordering(0, kEverything, 10000);
  putsOffLate.producerDelay = 1000;
  for (int32_t from : {970, 985}) {
    putsOffLate.producersFrom = from;
    result.insert(result.begin() + 4, putsOffLate);
  }
  Policy cautious = ordering(0, 100, 600);
  cautious.prefetch = std::min<Bytes>(kGiB / 4, mulDiv(limit, 50, 1000));
  result.push_back(cautious);
  return result;
}

/// Starting points with buckets: memory-rich ones, then those for a tight limit.
std::vector<Policy> bucketings(const ScheduleFacts &facts, Bytes limit) {
  std::vector<Policy> result;
  for (int64_t horizon : {1120, 1020})
    for (Policy policy :
         {ordering(0, kEverything, kLast), ordering(300, kEverything, kLast), ordering(0, 400, 10000)}) {
      policy.horizon = horizon;
      policy.terminalSlack = horizon == 1020 ? 1000 : -1;
      result.push_back(policy);
    }
  for (int32_t tailShare : {0, 200})
    for (Bytes minTerminal : {Bytes(0), 128 * kMiB})
      for (Bytes maxTerminal : {64 * kMiB, 512 * kMiB}) {
        Policy policy = ordering(tailShare, 400, kLast);
        policy.horizon = 1150;
        policy.slack = 10000000;
        policy.terminalSlack = 1000;
        policy.minTerminal = minTerminal;
        policy.maxTerminal = std::max(minTerminal, maxTerminal);
        policy.prefetch = policy.freeNeeded = policy.maxNeeded =
            std::max<Bytes>(128 * kMiB, mulDiv(std::min(limit, 64 * kGiB), 50, 1000));
        result.push_back(policy);
      }
  return result;
}

} // namespace

std::vector<Policy> commsched::portfolio(const ScheduleFacts &facts, Bytes limit) {
  std::vector<Policy> first = orderings(facts, limit);
  if (!facts.bucketing)
    return first;
  // Without buckets first, where the lanes are not what binds.
  Policy alone = first.front();
  alone.maxNeeded = alone.maxTerminal = 0;
  std::vector<Policy> result = {alone, first.front()}, second = bucketings(facts, limit);
  if (facts.load[kComputeLane] < facts.busiestLoad)
    std::swap(result[0], result[1]);
  Policy putsOff = ordering(100, kEverything, 10000);
  putsOff.producerDelay = 1000;
  result.push_back(putsOff);
  putsOff.packAhead = 0;
  result.push_back(putsOff);
  for (size_t index = 0; index < second.size(); ++index) {
    result.push_back(second[index]);
    if (index + 1 < first.size())
      result.push_back(first[index + 1]);
  }
  return result;
}

Policy commsched::nudged(Policy policy, Generator &random) {
  switch (random.below(5)) {
  case 0:
  case 1:
    policy.horizon = mulDiv(policy.horizon, 970 + random.below(61), 1000);
    break;
  case 2:
    policy.maxNeeded = mulDiv(policy.maxNeeded, 600 + random.below(1001), 1000);
    break;
  case 3:
    policy.maxTerminal = mulDiv(policy.maxTerminal, 600 + random.below(1001), 1000);
    break;
  default:
    policy.freeNeeded = mulDiv(policy.freeNeeded, 500 + random.below(1501), 1000);
    break;
  }
  return policy;
}

Policy commsched::deadlinePolicy() { return ordering(0, 400, 10000); }

int32_t commsched::numKnobs(const ScheduleFacts &facts) {
  int32_t all = static_cast<int32_t>(std::size(kKnobs));
  return facts.bucketing ? all : all - kBucketKnobs;
}

int32_t commsched::numValues(int32_t knob) { return static_cast<int32_t>(kKnobs[knob].values.size()); }

Policy commsched::turned(Policy policy, int32_t knob, int32_t value, Bytes limit) {
  kKnobs[knob].set(policy, kKnobs[knob].values[value], limit);
  return policy;
}
