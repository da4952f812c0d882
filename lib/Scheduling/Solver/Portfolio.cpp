//===- Portfolio.cpp - Start policies of a search, and changes to a policy --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The table of knobs, and the portfolio. The values come from measurements on the graphs that docs/Scheduler.md lists.
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

/// The cap of smallBucketPolicy(), as a part of the limit.
constexpr Bytes kPartsOfLimit = 64;

/// The values that the search tries for each knob. Sizes are in bytes, except those in permille of the limit.
constexpr int64_t kTailShares[] = {0, 100, 200, 300, 500, 700, 1000};
constexpr int64_t kWindows[] = {30, 100, 400, 1500, kEverything};
constexpr int64_t kTerminalDelays[] = {0, 600, 2500, 10000, 40000, kLast};
constexpr int64_t kProducerDelays[] = {0, 30, 100, 300, 1000};
constexpr int64_t kProducersFrom[] = {0, 800, 900, 950, 970, 980, 985, 990, 995};
constexpr int64_t kLeastGains[] = {1000, 2000, 4000, 16000, 64000};
constexpr int64_t kLimitShares[] = {1000, 950, 900, 800};
constexpr int64_t kPrefetchPermille[] = {-1, 10, 25, 50, 100, 200, 400};
constexpr int64_t kTries[] = {1, 6, 24, 60};
constexpr int64_t kTerminalSlacks[] = {-1, 0, 300, 1000, 3000, 10000};
constexpr int64_t kHorizons[] = {1000, 1020, 1050, 1080, 1120, 1200, 1300, 1400, 1600, 1800, 2200};
constexpr int64_t kSlacks[] = {0, 2000000, 10000000, 40000000};
constexpr int64_t kForms[] = {0, 1, 2};
constexpr int64_t kMaxNeeded[] = {0,          32 * kMiB, 64 * kMiB, 128 * kMiB, 256 * kMiB,
                                  512 * kMiB, kGiB,      2 * kGiB,  4 * kGiB};
constexpr int64_t kMaxTerminals[] = {0, 64 * kMiB, 128 * kMiB, 256 * kMiB, 512 * kMiB, kGiB, 2 * kGiB, 4 * kGiB};
constexpr int64_t kFreeShares[] = {0, 60, 125, 250, 500, 1000};
constexpr int64_t kIdleShares[] = {0, 300, 600, 800};
constexpr int64_t kFreeNeeded[] = {0, 8 * kMiB, 32 * kMiB, 128 * kMiB, 512 * kMiB};
constexpr int64_t kMinTerminals[] = {0, 32 * kMiB, 64 * kMiB, 128 * kMiB, 256 * kMiB, 512 * kMiB, kGiB};
constexpr int64_t kPackAheads[] = {0, 1000};
constexpr int64_t kCompared[] = {0, 4, 12, 40};
constexpr int64_t kPatiences[] = {0, 200, 400, 600, 750, 900};
constexpr int64_t kCopyWeights[] = {0, 500, 1000, 1600, 3000, 6000, 20000, 100000};

/// One number of a policy that the search may change.
struct Knob {
  /// The member's name.
  llvm::StringLiteral name;
  /// The values that the search tries.
  llvm::ArrayRef<int64_t> values;
  void (*set)(Policy &policy, int64_t value, Bytes limit);
  int64_t (*get)(const Policy &policy);
  /// Whether the number matters only if collectives may be merged, and whether only with contention.
  bool forBuckets;
  bool forContention = false;
};

template <auto Field> void setField(Policy &policy, int64_t value, Bytes) {
  policy.*Field = static_cast<std::remove_reference_t<decltype(policy.*Field)>>(value);
}
template <auto Field> int64_t getField(const Policy &policy) { return static_cast<int64_t>(policy.*Field); }

void setPrefetch(Policy &policy, int64_t permille, Bytes limit) {
  policy.prefetch = permille < 0 ? kUnlimited : mulDiv(limit, permille, 1000);
}

template <auto Field>
constexpr Knob knob(llvm::StringLiteral name, llvm::ArrayRef<int64_t> values, bool forBuckets = false) {
  return {name, values, setField<Field>, getField<Field>, forBuckets};
}

/// All knobs. A search draws knobs by their index, so their order is part of what makes it repeatable.
const Knob kKnobs[] = {
    knob<&Policy::tailShare>("tailShare", kTailShares),
    knob<&Policy::window>("window", kWindows),
    knob<&Policy::terminalDelay>("terminalDelay", kTerminalDelays),
    knob<&Policy::producerDelay>("producerDelay", kProducerDelays),
    knob<&Policy::producersFrom>("producersFrom", kProducersFrom),
    knob<&Policy::leastGain>("leastGain", kLeastGains),
    knob<&Policy::limitShare>("limitShare", kLimitShares),
    {"prefetch", kPrefetchPermille, setPrefetch, getField<&Policy::prefetch>, /*forBuckets=*/false},
    knob<&Policy::tries>("tries", kTries),
    knob<&Policy::terminalSlack>("terminalSlack", kTerminalSlacks),
    knob<&Policy::horizon>("horizon", kHorizons),
    knob<&Policy::slack>("slack", kSlacks),
    knob<&Policy::form>("form", kForms, /*forBuckets=*/true),
    knob<&Policy::maxNeeded>("maxNeeded", kMaxNeeded, /*forBuckets=*/true),
    knob<&Policy::freeShare>("freeShare", kFreeShares, /*forBuckets=*/true),
    knob<&Policy::maxTerminal>("maxTerminal", kMaxTerminals, /*forBuckets=*/true),
    knob<&Policy::freeNeeded>("freeNeeded", kFreeNeeded, /*forBuckets=*/true),
    knob<&Policy::minTerminal>("minTerminal", kMinTerminals, /*forBuckets=*/true),
    knob<&Policy::copyWeight>("copyWeight", kCopyWeights, /*forBuckets=*/true),
    knob<&Policy::idleShare>("idleShare", kIdleShares, /*forBuckets=*/true),
    knob<&Policy::packAhead>("packAhead", kPackAheads, /*forBuckets=*/true),
    {"patience", kPatiences, setField<&Policy::patience>, getField<&Policy::patience>, /*forBuckets=*/false,
     /*forContention=*/true},
    {"compared", kCompared, setField<&Policy::compared>, getField<&Policy::compared>, /*forBuckets=*/false,
     /*forContention=*/true},
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

/// The policies that together did best in a sample (docs/Scheduler.md).
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

/// The values that tunings() has of one knob, as they are in the table of the knob.
struct TunedKnob {
  llvm::StringLiteral name;
  llvm::SmallVector<int64_t, 4> values;
};

/// The index of a value of a knob that has it.
KnobValue settingOf(llvm::StringRef name, int64_t value) {
  const Knob *knob = llvm::find_if(kKnobs, [&](const Knob &candidate) { return candidate.name == name; });
  return {static_cast<int32_t>(knob - kKnobs),
          static_cast<int32_t>(llvm::find(knob->values, value) - knob->values.begin())};
}

/// The indices of the knobs that matter.
std::vector<int32_t> indicesOfKnobs(bool bucketing, bool contention) {
  std::vector<int32_t> result;
  for (auto [index, knob] : llvm::enumerate(kKnobs))
    if ((bucketing || !knob.forBuckets) && (contention || !knob.forContention))
      result.push_back(static_cast<int32_t>(index));
  return result;
}

Policy ordering(int32_t tailShare, int32_t window, int64_t terminalDelay, int32_t limitShare = 1000) {
  Policy policy;
  policy.tailShare = tailShare;
  policy.window = window;
  policy.terminalDelay = terminalDelay;
  policy.limitShare = limitShare;
  return policy;
}

/// A policy that puts off what only terminal starts need.
Policy puttingOff() {
  Policy policy = ordering(100, kEverything, 10000);
  policy.producerDelay = 1000;
  return policy;
}

/// Start policies for the order alone. The bottleneck decides which comes first.
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

/// Start policies with buckets: first those for ample memory, then those for a tight limit.
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

/// With contention, all policies but every fourth choose beside which computes a collective flies: by holding back
/// starts, and some of them also by the order of computes.
static std::vector<Policy> withContention(const ScheduleFacts &facts, std::vector<Policy> policies) {
  constexpr int32_t kFew = 12, kPatience = 600;
  for (size_t index = 0; facts.problem.hasContention() && index < policies.size(); ++index) {
    policies[index].compared = index % 4 == 3 ? kFew : 0;
    policies[index].patience = index % 4 == 1 ? 0 : index % 4 == 2 ? kPatience / 2 : kPatience;
  }
  return policies;
}

std::vector<Policy> commsched::portfolio(const ScheduleFacts &facts, Bytes limit) {
  std::vector<Policy> first = orderings(facts, limit);
  if (!facts.bucketing)
    return withContention(facts, std::move(first));
  // Without buckets first, where the lanes are not what binds.
  Policy alone = first.front();
  alone.maxNeeded = alone.maxTerminal = 0;
  std::vector<Policy> result = {alone, first.front()}, second = bucketings(facts, limit);
  if (facts.load[kComputeLane] < facts.busiestLoad)
    std::swap(result[0], result[1]);
  Policy putsOff = puttingOff();
  result.push_back(putsOff);
  putsOff.packAhead = 0;
  result.push_back(putsOff);
  for (size_t index = 0; index < second.size(); ++index) {
    result.push_back(second[index]);
    if (index + 1 < first.size())
      result.push_back(first[index + 1]);
  }
  return withContention(facts, std::move(result));
}

Policy commsched::nudged(Policy policy, SplitMix64 &random) {
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
    policy.maxNeeded = sample.maxNeeded == kPartOfLimit ? smallBucketPolicy(limit).maxNeeded : sample.maxNeeded;
    policy.freeShare = sample.freeShare;
    policy.maxTerminal = sample.maxTerminal;
    policy.minTerminal = sample.minTerminal;
    policy.freeNeeded = sample.freeNeeded;
    setPrefetch(policy, sample.prefetch, limit);
    policy.tries = sample.tries;
    policy.form = sample.form;
    result.push_back(policy);
  }
  return result;
}

Policy commsched::smallBucketPolicy(Bytes limit) {
  Policy policy = puttingOff();
  policy.maxNeeded = std::min(policy.maxNeeded, limit / kPartsOfLimit);
  return policy;
}

llvm::ArrayRef<int32_t> commsched::knobsOf(const ScheduleFacts &facts) {
  static const std::vector<int32_t> all[2][2] = {
      {indicesOfKnobs(/*bucketing=*/false, /*contention=*/false), indicesOfKnobs(/*bucketing=*/false, true)},
      {indicesOfKnobs(/*bucketing=*/true, /*contention=*/false), indicesOfKnobs(/*bucketing=*/true, true)}};
  return all[facts.bucketing][facts.problem.hasContention()];
}

llvm::ArrayRef<KnobValue> commsched::tunings() {
  static const std::vector<KnobValue> all = [] {
    const TunedKnob tuned[] = {{"copyWeight", {0, 3000, 100000}},
                               {"maxNeeded", {32 * kMiB, 128 * kMiB, 256 * kMiB, 4 * kGiB}},
                               {"freeShare", {125, 500}},
                               {"maxTerminal", {kGiB, 512 * kMiB, 64 * kMiB}},
                               {"form", {1, 2}},
                               {"freeNeeded", {8 * kMiB}},
                               {"producerDelay", {30, 1000}},
                               {"producersFrom", {0, 800}},
                               {"minTerminal", {32 * kMiB, 64 * kMiB, 256 * kMiB}},
                               {"prefetch", {100, 50}},
                               {"terminalSlack", {1000, 10000}},
                               {"tailShare", {100, 300}},
                               {"window", {30, 400}},
                               {"terminalDelay", {2500, 40000, kLast}},
                               {"horizon", {1000}},
                               {"tries", {6, 60}}};
    std::vector<KnobValue> result;
    for (const TunedKnob &knob : tuned)
      for (int64_t value : knob.values)
        result.push_back(settingOf(knob.name, value));
    return result;
  }();
  return all;
}

int32_t commsched::numValues(int32_t knob) { return static_cast<int32_t>(kKnobs[knob].values.size()); }

Policy commsched::withKnob(Policy policy, int32_t knob, int32_t value, Bytes limit) {
  kKnobs[knob].set(policy, kKnobs[knob].values[value], limit);
  return policy;
}

bool commsched::areEqual(const Policy &a, const Policy &b) {
  return llvm::all_of(kKnobs, [&](const Knob &knob) { return knob.get(a) == knob.get(b); });
}

void commsched::describePolicy(const Policy &policy, llvm::SmallVectorImpl<PolicyValue> &values) {
  static const Policy defaults;
  for (const Knob &knob : kKnobs)
    if (int64_t value = knob.get(policy); value != knob.get(defaults))
      values.push_back({knob.name, value});
}
