//===- HloTest.cpp - Modules of XLA, read, scheduled and written ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The modules are XLA's own: benchmarks/jax_overlap.py --small wrote them with jax 0.10.2 for an H100. Their numbers of
// temporaries, in Inputs/temporaries.json, are those of XLA's buffer assignment.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Frontends/Hlo/Graph/HloPrices.h"
#include "CommSched/Frontends/Hlo/Schedule/HloScheduler.h"
#include "Hlo/Graph/HloCosts.h"
#include "Hlo/Reader/WireFormat.h"
#include "Hlo/Write/HloWriter.h"
#include "HloTestSupport.h"
#include "llvm/Support/FormatVariadic.h"
#include "gtest/gtest.h"
#include <random>

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;
using namespace commsched::hlo::test;

namespace {

/// The fields of a message but for one number, one after the other.
std::string without(StringRef message, uint32_t number) {
  std::string result;
  WireReader reader(message);
  WireField field;
  while (reader.next(field))
    if (field.number != number)
      result += field.whole;
  EXPECT_FALSE(reader.isMalformed());
  return result;
}

std::string textOf(Error error) { return toString(std::move(error)); }

/// A message of one packed list in field `number`.
std::string listField(uint32_t number, ArrayRef<int64_t> values) {
  std::string packed, result;
  for (int64_t value : values)
    writeVarint(value, packed);
  writeBytes(number, packed, result);
  return result;
}

std::string varintField(uint32_t number, uint64_t value) {
  std::string result;
  writeVarint(number << 3, result);
  writeVarint(value, result);
  return result;
}

using Groups = std::vector<std::vector<int64_t>>;

Groups groupsOrNone(const SerializedGroups &groups, int64_t devices = 8) {
  HloModule module;
  module.devices = devices;
  Expected<Groups> read = groupsOf(module, groups);
  if (read)
    return *read;
  consumeError(read.takeError());
  return {};
}

class HloModules : public testing::TestWithParam<const char *> {};

} // namespace

// Tests that varints at the ends of their range are read and written, and that broken ones are refused.
TEST(WireFormat, Varints) {
  for (uint64_t value : {uint64_t(0), uint64_t(127), uint64_t(128), uint64_t(UINT32_MAX), UINT64_MAX}) {
    std::string message = varintField(5, value);
    WireReader reader(message);
    WireField field;
    ASSERT_TRUE(reader.next(field));
    EXPECT_EQ(field.number, 5u);
    EXPECT_EQ(field.value, value);
    EXPECT_EQ(field.whole, message);
    EXPECT_FALSE(reader.next(field));
    EXPECT_FALSE(reader.isMalformed());
  }
  for (StringRef broken : {StringRef("\x28", 1), StringRef("\x28\xff", 2),
                           StringRef("\x2a\x05"
                                     "ab",
                                     4),
                           StringRef("\x2b", 1), StringRef("\x00\x00", 2),
                           StringRef("\x28\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12)}) {
    WireReader reader(broken);
    WireField field;
    EXPECT_FALSE(reader.next(field));
    EXPECT_TRUE(reader.isMalformed());
  }
}

// Tests that lists of ids are groups, that a single list may be unpacked, and that no list means all devices.
TEST(ReplicaGroups, Lists) {
  std::string first = listField(1, {0, 2}), second = varintField(1, 1) + varintField(1, 3);
  SerializedGroups groups;
  groups.lists = {first, second};
  EXPECT_EQ(groupsOrNone(groups), (Groups{{0, 2}, {1, 3}}));
  EXPECT_EQ(groupsOrNone({}, 3), (Groups{{0, 1, 2}}));
}

// Tests iota lists. [4,2]<=[8] and [2,4]<=[4,2]T(1,0) are the examples of XLA's documentation of replica groups.
TEST(ReplicaGroups, Iota) {
  std::string plain = varintField(1, 4) + varintField(2, 2) + listField(3, {8}) + listField(4, {0});
  SerializedGroups groups;
  groups.iota = plain;
  EXPECT_EQ(groupsOrNone(groups), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  std::string transposed = varintField(1, 2) + varintField(2, 4) + listField(3, {4, 2}) + listField(4, {1, 0});
  groups.iota = transposed;
  EXPECT_EQ(groupsOrNone(groups), (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  std::string wrong = varintField(1, 2) + varintField(2, 4) + listField(3, {4, 3}) + listField(4, {1, 0});
  groups.iota = wrong;
  EXPECT_EQ(groupsOrNone(groups), Groups{});
}

// Tests axes of a mesh of 2 x 4 devices: each axis, both, a part of one, and one that does not exist.
TEST(ReplicaGroups, Mesh) {
  std::string mesh, axis, result;
  for (int64_t size : {2, 4}) {
    std::string part;
    writeBytes(1, varintField(2, size), part);
    mesh += part;
  }
  auto groupsOfAxes = [&](std::vector<std::string> axes) {
    std::string message;
    writeBytes(1, mesh, message);
    for (const std::string &one : axes)
      writeBytes(2, one, message);
    SerializedGroups groups;
    groups.mesh = message;
    return groupsOrNone(groups);
  };
  EXPECT_EQ(groupsOfAxes({varintField(1, 0)}), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(groupsOfAxes({varintField(1, 1)}), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(groupsOfAxes({varintField(1, 1), varintField(1, 0)}), (Groups{{0, 4, 1, 5, 2, 6, 3, 7}}));
  // The part of axis 1 that begins after 2 of its devices and has 2: neighbours.
  std::string sub;
  writeBytes(2, varintField(1, 2) + varintField(2, 2), sub);
  EXPECT_EQ(groupsOfAxes({varintField(1, 1) + sub}), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(groupsOfAxes({varintField(1, 2)}), Groups{});
}

// Tests that the devices of a permutation are one group.
TEST(ReplicaGroups, Pairs) {
  std::string first = varintField(2, 1), second = varintField(1, 1);
  SerializedGroups groups;
  groups.pairs = {first, second};
  EXPECT_EQ(groupsOrNone(groups), (Groups{{0, 1}}));
  EXPECT_EQ(cantFail(readPairs(groups)), (std::vector<int64_t>{0, 1, 1, 0}));
  std::string tooLarge = varintField(1, int64_t(1) << 40);
  groups.pairs = {first, tooLarge};
  EXPECT_EQ(groupsOrNone(groups), Groups{});
  groups.pairs = {first, "\x08"};
  EXPECT_EQ(groupsOrNone(groups), Groups{});
  EXPECT_EQ(toString(readPairs(groups).takeError()), "expected groups of devices, got a malformed pair");
}

// Tests that a module that keeps its order comes back byte for byte, and one with another order but for the schedule.
TEST_P(HloModules, RoundTrip) {
  std::string bytes = readInput(GetParam() + std::string(".pb"));
  ASSERT_FALSE(bytes.empty());
  HloModule module = cantFail(readModule(bytes));
  std::vector<std::vector<int32_t>> sequences(module.computations.size());
  EXPECT_EQ(cantFail(writeModule(module, sequences)), bytes);
  HloResult result = cantFail(scheduleModule(module, h100(), {}));
  EXPECT_EQ(result.module.size(), bytes.size());
  constexpr uint32_t kSchedule = 7;
  EXPECT_EQ(without(result.module, kSchedule), without(bytes, kSchedule));
  EXPECT_EQ(result.module != bytes, result.isChanged);
  // What is written is a module again, with the orders that the result names.
  HloModule again = cantFail(readModule(result.module));
  for (const ComputationResult &one : result.computations)
    EXPECT_EQ(again.computations[one.computation].sequence,
              one.sequence.empty() ? module.computations[one.computation].sequence : one.sequence);
}

// Tests that an order in which an operand comes late, or an instruction twice, is refused.
TEST_P(HloModules, WrongOrders) {
  std::string bytes = readInput(GetParam() + std::string(".pb"));
  HloModule module = cantFail(readModule(bytes));
  std::vector<std::vector<int32_t>> sequences(module.computations.size());
  std::vector<int32_t> &sequence = sequences[module.entry];
  sequence.assign(module.entryComputation().sequence.rbegin(), module.entryComputation().sequence.rend());
  Expected<std::string> reversed = writeModule(module, sequences);
  ASSERT_FALSE(reversed);
  EXPECT_NE(textOf(reversed.takeError()).find("which it needs"), std::string::npos);
  sequence = module.entryComputation().sequence;
  sequence.back() = sequence.front();
  Expected<std::string> twice = writeModule(module, sequences);
  ASSERT_FALSE(twice);
  consumeError(twice.takeError());
}

// Tests that no computation becomes slower or needs more memory, and that the bound holds.
TEST_P(HloModules, NeverWorse) {
  std::string bytes = readInput(GetParam() + std::string(".pb"));
  HloModule module = cantFail(readModule(bytes));
  HloResult result = cantFail(scheduleModule(module, h100(), {}));
  EXPECT_GT(result.entry().collectives, 0);
  for (const ComputationResult &one : result.computations) {
    EXPECT_LE(one.makespanAfter, one.makespanBefore);
    EXPECT_LE(one.peakAfter, one.peakBefore);
    EXPECT_LE(one.bound, one.makespanAfter);
    EXPECT_LE(one.bound, one.boundWithinLimit);
    EXPECT_EQ(one.keepReason.empty(), !one.sequence.empty());
  }
  // A second time: nothing is left to gain, or at least nothing is lost.
  HloModule again = cantFail(readModule(result.module));
  HloResult second = cantFail(scheduleModule(again, h100(), {}));
  EXPECT_EQ(second.entry().makespanBefore, result.entry().makespanAfter);
  EXPECT_LE(second.entry().makespanAfter, result.entry().makespanAfter);
}

// Tests that the peak of the given order is what XLA's buffer assignment needs for temporaries, to 3 %.
// The exposed time of a computation is that of its own collectives, and that of the loops that it runs, each iteration
// of theirs included. (No module here has branches that communicate.)
TEST_P(HloModules, ExposedTimeCountsIterations) {
  std::string bytes = readInput(GetParam() + std::string(".pb"));
  HloModule module = cantFail(readModule(bytes));
  HloResult result = cantFail(scheduleModule(module, h100(), {}));
  DenseMap<int32_t, const ComputationResult *> results;
  bool anyLoop = false;
  for (const ComputationResult &one : result.computations) {
    results[one.computation] = &one;
    Ns before = 0, after = 0;
    for (const StartReport &start : one.starts) {
      before += start.exposedBefore;
      after += start.exposedAfter;
    }
    for (const HloInstruction &instruction : module.computations[one.computation].instructions)
      for (int32_t called : instruction.called)
        if (auto callee = results.find(called); callee != results.end()) {
          const int64_t trips = instruction.is("while") ? tripCountOf(instruction).value_or(1) : 1;
          anyLoop |= trips > 1 && callee->second->exposedBefore > 0;
          before += trips * callee->second->exposedBefore;
          after += trips * callee->second->exposedAfter;
        }
    EXPECT_EQ(one.exposedBefore, before) << module.computations[one.computation].name.str();
    EXPECT_EQ(one.exposedAfter, after) << module.computations[one.computation].name.str();
  }
  EXPECT_EQ(anyLoop, GetParam() == StringRef("small-scan"));
}

TEST_P(HloModules, PeakIsThatOfXla) {
  std::string bytes = readInput(GetParam() + std::string(".pb"));
  HloModule module = cantFail(readModule(bytes));
  HloResult result = cantFail(scheduleModule(module, h100(), {}));
  json::Value known = cantFail(json::parse(readInput("temporaries.json")));
  std::optional<int64_t> temporaries = known.getAsObject()->getInteger(GetParam());
  ASSERT_TRUE(temporaries);
  double ratio = static_cast<double>(result.entry().peakBefore) / static_cast<double>(*temporaries);
  EXPECT_NEAR(ratio, 1.0, 0.03) << result.entry().peakBefore << " against XLA's " << *temporaries;
}

// Tests that times by name take the place of the model's: with the model's own times nothing changes, a slower kernel
// holds the program, and the instructions that have no time by name are listed.
TEST_P(HloModules, MeasuredWithOtherTimes) {
  std::string bytes = readInput(GetParam() + std::string(".pb"));
  HloModule module = cantFail(readModule(bytes));
  HloOptions options;
  options.measureOnly = true;
  HloResult given = cantFail(scheduleModule(module, h100(), options));
  EXPECT_TRUE(given.entry().untimed.empty());
  std::string slow;
  for (const PricedInstruction &priced : cantFail(priceInstructions(module, h100()))) {
    options.times[priced.name] = priced.time;
    if (!priced.isCollective && is_contained(map_range(module.entryComputation().instructions,
                                                       [](const HloInstruction &one) { return one.name; }),
                                             priced.name))
      slow = priced.name;
  }
  HloResult same = cantFail(scheduleModule(module, h100(), options));
  EXPECT_EQ(same.entry().makespanAfter, given.entry().makespanAfter);
  EXPECT_EQ(same.module, bytes);
  EXPECT_TRUE(same.entry().untimed.empty());
  ASSERT_FALSE(slow.empty());
  const Ns known = options.times[slow], longer = given.entry().makespanAfter;
  options.times[slow] += longer;
  Ns held = cantFail(scheduleModule(module, h100(), options)).entry().makespanAfter;
  EXPECT_GT(held, longer + known);
  EXPECT_LE(held, longer + longer);
  options.times.erase(slow);
  EXPECT_EQ(cantFail(scheduleModule(module, h100(), options)).entry().untimed, std::vector{slow});
}

// Tests that random legal orders are orders, differ from each other, and have the bound below them.
TEST_P(HloModules, Shuffled) {
  std::string bytes = readInput(GetParam() + std::string(".pb"));
  HloModule module = cantFail(readModule(bytes));
  HloOptions options;
  std::string last;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    options.shuffle = seed;
    HloResult result = cantFail(scheduleModule(module, h100(), options));
    EXPECT_NE(result.module, last);
    EXPECT_GE(result.entry().makespanAfter, result.entry().bound);
    cantFail(readModule(result.module).takeError());
    last = result.module;
  }
}

// Tests that equal modules get equal schedules, and that a signature tells orders apart.
TEST_P(HloModules, Deterministic) {
  std::string bytes = readInput(GetParam() + std::string(".pb"));
  HloModule module = cantFail(readModule(bytes));
  HloResult one = cantFail(scheduleModule(module, h100(), {})), other = cantFail(scheduleModule(module, h100(), {}));
  EXPECT_EQ(one.module, other.module);
  EXPECT_EQ(signatureOf(module, one), signatureOf(module, other));
  HloResult given;
  given.computations.push_back(ComputationResult());
  given.computations.back().computation = module.entry;
  HloResult moved = given;
  moved.computations.back().sequence.assign(module.entryComputation().sequence.rbegin(),
                                            module.entryComputation().sequence.rend());
  EXPECT_NE(signatureOf(module, given), signatureOf(module, moved));
}

// Tests that damaged modules are refused or scheduled to a valid module: bytes changed, cut out, doubled or cut off.
TEST_P(HloModules, Mutations) {
  std::string bytes = readInput(GetParam() + std::string(".pb"));
  std::mt19937_64 random(7);
  HloOptions options;
  options.effort = 1000; // The search is not what is tested.
  int refused = 0;
  constexpr int kMutations = 400;
  for (int i = 0; i < kMutations; ++i) {
    std::string mutated = bytes;
    // Damage near the end hits the schedule and the entry, damage anywhere mostly fused computations.
    for (uint64_t change = 0, changes = 1 + random() % 4; change < changes; ++change) {
      size_t at = random() % mutated.size(), length = 1 + random() % 16;
      switch (random() % 5) {
      case 0:
        mutated[at] = static_cast<char>(random());
        break;
      case 1:
        mutated[at] = static_cast<char>(mutated[at] ^ (1 << random() % 8));
        break;
      case 2:
        mutated.erase(at, length);
        break;
      case 3:
        mutated.insert(at, mutated.substr(at, length));
        break;
      default:
        if (random() % 8 == 0)
          mutated.resize(at);
        else
          mutated[at] = static_cast<char>(mutated[at] + 1);
      }
      if (mutated.empty())
        break;
    }
    Expected<HloModule> module = readModule(mutated);
    if (!module) {
      EXPECT_FALSE(textOf(module.takeError()).empty());
      ++refused;
      continue;
    }
    Expected<HloResult> result = scheduleModule(*module, h100(), options);
    if (!result) {
      EXPECT_FALSE(textOf(result.takeError()).empty());
      ++refused;
      continue;
    }
    EXPECT_FALSE(formatv("{0}", json::Value(describe(*module, *result))).str().empty());
    Expected<HloModule> again = readModule(result->module);
    EXPECT_TRUE(static_cast<bool>(again)) << textOf(again.takeError());
  }
  EXPECT_GT(refused, kMutations / 10);
  EXPECT_LT(refused, kMutations);
}

INSTANTIATE_TEST_SUITE_P(Xla, HloModules, testing::ValuesIn(kModules), [](const auto &info) {
  std::string name = info.param;
  name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
  return name;
});
