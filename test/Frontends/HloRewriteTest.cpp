//===- HloRewriteTest.cpp - Collectives of XLA, merged and taken apart ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The oracle is value numbering that shares no code with the rewriter: every array of a module gets a number that says
// which operations made it from which parameters, and an element of a merged collective gets that of the collective
// over this operand alone. A module that computes the same has the same numbers.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Frontends/Hlo/Pjrt/PjrtTransform.h"
#include "CommSched/Frontends/Hlo/Schedule/HloRewriter.h"
#include "Hlo/Reader/HloFields.h"
#include "Hlo/Reader/WireFormat.h"
#include "Hlo/Write/RewriteCollectives.h"
#include "HloTestSupport.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/xxhash.h"
#include "gtest/gtest.h"
#include <map>
#include <random>
#include <set>

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;
using namespace commsched::hlo::test;

namespace {

Expected<RewrittenModule> rewrite(const HloModule &module, const RewriteOptions &rewrite = {}) {
  HloResult plain = cantFail(scheduleModule(module, h100(), {}));
  return rewriteModule(module, h100(), {}, rewrite, plain);
}

//===- Value numbering ------------------------------------------------------------------------===//

using Number = uint64_t;

/// Fields that name an instruction and do not say what it does.
bool isNaming(uint32_t field) {
  return is_contained({1u, 7u, 26u, 35u, 36u, 38u, 43u, 49u, 68u, 82u, 87u, 92u, 93u}, field);
}

/// The meaning of an instruction apart from its operands; for collectives, without shapes.
std::string meaningOf(const HloModule &module, const HloInstruction &instruction, bool isCollective) {
  std::string text;
  WireReader reader(instruction.bytes);
  WireField field;
  while (reader.next(field))
    if (!isNaming(field.number) && !(isCollective && (field.number == 2 || field.number == 3)))
      text += field.whole;
  if (isCollective) {
    StringRef opcode = instruction.opcode;
    opcode.consume_back("-start");
    text += opcode;
    for (const std::vector<int64_t> &group : cantFail(groupsOf(module, instruction.groups)))
      for (int64_t device : group)
        text += std::to_string(device) + (device == group.back() ? ";" : ",");
    for (int32_t called : instruction.called) {
      const HloComputation &reduction = module.computations[called];
      text += reduction.instructions[reduction.root].opcode;
    }
  } else {
    for (int32_t called : instruction.called)
      text += module.computations[called].name;
  }
  return text;
}

Number numberOf(StringRef meaning, ArrayRef<Number> operands) {
  std::string text = meaning.str();
  for (Number operand : operands)
    text += "," + std::to_string(operand);
  return xxh3_64bits(text);
}

/// The numbers of one computation.
struct Numbers {
  std::vector<Number> root;
  /// Of everything but collectives and elements of tuples.
  std::multiset<Number> others;
  /// One per operand of a collective.
  std::multiset<Number> parts;
};

Numbers numbersOf(const HloModule &module, const HloComputation &computation) {
  Numbers result;
  // Indexed by instruction: one number, or those of the parts of a collective.
  std::vector<std::vector<Number>> numbers(computation.instructions.size());
  for (int32_t at : computation.sequence) {
    const HloInstruction &instruction = computation.instructions[at];
    const HloInstruction *collective = &instruction;
    if (instruction.is("async-start"))
      collective =
          &module.computations[instruction.called[0]].instructions[module.computations[instruction.called[0]].root];
    std::vector<Number> operands;
    for (int32_t operand : instruction.operands)
      append_range(operands, numbers[operand]);
    bool isMerged = collective->opcode.starts_with("all-gather") || collective->opcode.starts_with("all-reduce") ||
                    collective->opcode.starts_with("reduce-scatter");
    if (instruction.opcode.ends_with("-start") && isMerged) {
      for (Number operand : operands) {
        numbers[at].push_back(numberOf(meaningOf(module, *collective, true), operand));
        result.parts.insert(numbers[at].back());
      }
    } else if (instruction.opcode.ends_with("-done")) {
      numbers[at] = operands;
    } else if (instruction.is("get-tuple-element") && numbers[instruction.operands[0]].size() > 1) {
      numbers[at] = {operands[instruction.tupleIndex]};
    } else {
      numbers[at] = {numberOf(meaningOf(module, instruction, false), operands)};
      if (!instruction.is("get-tuple-element"))
        result.others.insert(numbers[at].front());
    }
  }
  result.root = numbers[computation.root];
  return result;
}

/// Expects that two modules compute the same, computation by computation.
void expectSame(const HloModule &one, const HloModule &other) {
  std::map<StringRef, const HloComputation *> byName;
  for (const HloComputation &computation : other.computations)
    byName[computation.name] = &computation;
  int compared = 0;
  for (const HloComputation &computation : one.computations) {
    if (computation.sequence.empty() || computation.name.starts_with("async_computation"))
      continue;
    ASSERT_TRUE(byName.count(computation.name)) << computation.name.str();
    Numbers given = numbersOf(one, computation), found = numbersOf(other, *byName[computation.name]);
    EXPECT_EQ(given.root, found.root) << computation.name.str();
    EXPECT_EQ(given.others, found.others) << computation.name.str();
    EXPECT_EQ(given.parts, found.parts) << computation.name.str();
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

int32_t operandsOf(const HloModule &module, StringRef opcode) {
  int32_t most = 0;
  for (const HloComputation &computation : module.computations)
    for (const HloInstruction &instruction : computation.instructions)
      if (instruction.is(opcode))
        most = std::max(most, static_cast<int32_t>(instruction.operands.size()));
  return most;
}

/// The module with this configuration of all starts and dones.
std::string withConfig(const HloModule &module, StringRef from, StringRef to) {
  RewriteEditor editor(module);
  for (auto [index, computation] : enumerate(module.computations)) {
    std::vector<int64_t> order;
    for (int32_t at : computation.sequence) {
      const HloInstruction &instruction = computation.instructions[at];
      order.push_back(instruction.id);
      size_t found = instruction.backendConfig.find(from);
      if (found == StringRef::npos)
        continue;
      std::string config = instruction.backendConfig.str();
      config.replace(found, from.size(), to.str());
      std::string fields = withoutFields(instruction.bytes, {1, 35, 36, 43});
      writeBytes(instruction_field::kBackendConfig, config, fields);
      SmallVector<int64_t, 4> operands;
      for (int32_t operand : instruction.operands)
        operands.push_back(computation.instructions[operand].id);
      editor.replace(static_cast<int32_t>(index), at, fields, operands);
    }
    if (!order.empty())
      editor.setOrder(static_cast<int32_t>(index), order);
  }
  return editor.write();
}

class HloRewrites : public testing::TestWithParam<const char *> {
protected:
  void SetUp() override {
    bytes = readInput(GetParam() + std::string(".pb"));
    module = cantFail(readModule(bytes));
  }
  std::string bytes;
  HloModule module;
};

} // namespace

// Tests that collectives taken apart compute the same, have one operand each, and take the place of the merged one.
TEST_P(HloRewrites, Split) {
  int32_t count = 0;
  std::string text = splitCollectives(module, true, false, count);
  HloModule split = cantFail(readModule(text));
  expectSame(module, split);
  EXPECT_GT(count, 0);
  for (StringRef opcode : {"all-gather-start", "all-reduce-start", "async-start"})
    EXPECT_LE(operandsOf(split, opcode), 1) << opcode.str();
  EXPECT_EQ(cantFail(scheduleModule(module, h100(), {})).entry().peakBefore,
            cantFail(scheduleModule(split, h100(), {})).entry().peakBefore);
  // A second time, there is nothing to do, and the bytes are those given.
  EXPECT_EQ(splitCollectives(split, true, false, count), text);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(splitCollectives(module, false, false, count), bytes);
}

// Tests that the given buckets can be put together again from their parts, and that every bucket of one key computes
// the same: at random, and all members at once.
TEST_P(HloRewrites, Merge) {
  int32_t count = 0;
  std::string text = splitCollectives(module, true, false, count);
  HloModule split = cantFail(readModule(text));
  std::vector<std::vector<CollectivePair>> pairs = findPairs(split);
  std::mt19937_64 random(3);
  int merged = 0;
  for (int trial = 0; trial < 8; ++trial) {
    std::vector<MergedOrder> orders;
    for (auto [index, list] : enumerate(pairs)) {
      // Merged are neighbours: no start is between the first start and the last one, and no done.
      MergedOrder order;
      order.computation = static_cast<int32_t>(index);
      const HloComputation &computation = split.computations[index];
      std::map<int32_t, std::pair<int32_t, bool>> places;
      for (size_t first = 0; first < list.size();) {
        std::string key = cantFail(mergeKeyOf(split, order.computation, list[first]));
        size_t end = first + 1;
        while (end < list.size() && (trial == 0 || random() % 3) &&
               cantFail(mergeKeyOf(split, order.computation, list[end])) == key && !key.empty() &&
               is_contained(
                   ArrayRef(computation.sequence)
                       .slice(llvm::find(computation.sequence, list[end - 1].start) - computation.sequence.begin())
                       .take_front(2),
                   list[end].start))
          ++end;
        if (end - first > 1) {
          std::vector<CollectivePair> members(list.begin() + first, list.begin() + end);
          auto bucket = static_cast<int32_t>(order.buckets.size());
          for (const CollectivePair &pair : members) {
            places[pair.start] = {pair.start == members.back().start ? bucket : -2, false};
            places[pair.done] = {pair.done == members.front().done ? bucket : -2, true};
          }
          order.buckets.push_back(std::move(members));
        }
        first = end;
      }
      for (int32_t at : computation.sequence)
        if (auto place = places.find(at); place == places.end())
          order.order.push_back({at, -1, false});
        else if (place->second.first >= 0)
          order.order.push_back({-1, place->second.first, place->second.second});
      merged += static_cast<int>(order.buckets.size());
      if (!order.buckets.empty())
        orders.push_back(std::move(order));
    }
    std::string again = mergeCollectives(split, orders);
    Expected<HloModule> read = readModule(again);
    ASSERT_TRUE(static_cast<bool>(read)) << toString(read.takeError());
    expectSame(module, *read);
  }
  EXPECT_GT(merged, 0);
}

// Tests that a rewritten module computes the same, is faster than another order alone, and stays within the limits.
TEST_P(HloRewrites, Rewrite) {
  HloResult plain = cantFail(scheduleModule(module, h100(), {}));
  Expected<RewrittenModule> rewritten = rewriteModule(module, h100(), {}, {}, plain);
  ASSERT_TRUE(static_cast<bool>(rewritten)) << toString(rewritten.takeError());
  HloModule read = cantFail(readModule(rewritten->bytes));
  expectSame(module, read);
  EXPECT_LT(rewritten->result.entry().makespanAfter, plain.entry().makespanAfter);
  EXPECT_EQ(rewritten->result.entry().makespanBefore, plain.entry().makespanBefore);
  EXPECT_LE(rewritten->result.entry().bound, rewritten->result.entry().makespanAfter);
  for (const ComputationResult &one : rewritten->result.computations)
    EXPECT_LE(one.peakAfter, one.limit);
  EXPECT_GT(*rewritten->report.getInteger("taken_apart"), 0);
  // Equal modules get equal answers, and a signature of what was written.
  Expected<RewrittenModule> other = rewrite(module);
  EXPECT_EQ(other->bytes, rewritten->bytes);
  EXPECT_EQ(rewritten->report.getString("signature"), other->report.getString("signature"));
  EXPECT_NE(*rewritten->report.getString("signature"), signatureOf(module, plain));
}

// Tests that instructions that are not part of a collective come back byte for byte, with everything around them.
TEST_P(HloRewrites, ByteForByte) {
  RewrittenModule rewritten = cantFail(rewrite(module));
  std::set<StringRef> given;
  for (const HloComputation &computation : module.computations)
    for (const HloInstruction &instruction : computation.instructions)
      given.insert(instruction.bytes);
  HloModule read = cantFail(readModule(rewritten.bytes));
  for (const HloComputation &computation : read.computations)
    for (const HloInstruction &instruction : computation.instructions)
      if (!instruction.name.contains("commsched") && !instruction.is("get-tuple-element") &&
          !instruction.opcode.ends_with("-done")) {
        EXPECT_TRUE(given.count(instruction.bytes)) << instruction.name.str();
      }
  auto rest = [](StringRef message) {
    return withoutFields(message, {module_field::kComputations, module_field::kSchedule});
  };
  EXPECT_EQ(rest(bytes), rest(rewritten.bytes));
}

// Tests that a start that was told to be synchronous holds the kernels, hides nothing, and becomes asynchronous if the
// user says so.
TEST_P(HloRewrites, Asynchronous) {
  std::string text = withConfig(module, R"("is_sync":false)", R"("is_sync":true)");
  HloModule synchronous = cantFail(readModule(text));
  HloResult plain = cantFail(scheduleModule(synchronous, h100(), {}));
  HloResult asynchronous = cantFail(scheduleModule(module, h100(), {}));
  EXPECT_GE(plain.entry().makespanBefore, asynchronous.entry().makespanBefore);
  EXPECT_FALSE(plain.isChanged);
  Expected<RewrittenModule> made = rewriteModule(synchronous, h100(), {}, {false, true}, plain);
  ASSERT_TRUE(static_cast<bool>(made)) << toString(made.takeError());
  EXPECT_EQ(StringRef(made->bytes).count(R"("is_sync":true)"), 0u);
  EXPECT_EQ(StringRef(made->bytes).count(R"("is_sync":false)"), StringRef(bytes).count(R"("is_sync":false)"));
  expectSame(module, cantFail(readModule(made->bytes)));
  EXPECT_EQ(made->result.entry().makespanAfter, asynchronous.entry().makespanAfter);
}

// Tests that collectives for which XLA has chosen a kernel of its own stay as they are.
TEST_P(HloRewrites, OtherKernels) {
  std::string text = withConfig(module, "KERNEL_STRATEGY_DEFAULT", "KERNEL_STRATEGY_TRITON_ONE_SHOT");
  HloModule other = cantFail(readModule(text));
  for (auto [index, list] : enumerate(findPairs(other)))
    for (const CollectivePair &pair : list)
      if (pair.elements.empty()) {
        EXPECT_EQ(cantFail(mergeKeyOf(other, static_cast<int32_t>(index), pair)), "");
      }
  int32_t count = 0;
  EXPECT_EQ(splitCollectives(other, true, false, count), text);
  EXPECT_EQ(count, 0);
}

// Tests that damaged modules are refused, or rewritten to a module.
TEST_P(HloRewrites, Mutations) {
  std::mt19937_64 random(11);
  TransformOptions options = cantFail(parseTransformOptions(R"({"donation": "drop", "effort": 1000})"));
  int kept = 0;
  constexpr int kMutations = 150;
  for (int i = 0; i < kMutations; ++i) {
    std::string mutated = bytes;
    // One or two bits: most of these are modules still.
    for (uint64_t change = 0, changes = 1 + random() % 2; change < changes; ++change) {
      size_t at = mutated.size() / 2 + random() % (mutated.size() / 2);
      mutated[at] = static_cast<char>(mutated[at] ^ (1 << random() % 8));
    }
    TransformResult result = transformModule(mutated, options);
    if (result.module.empty()) {
      ++kept;
      continue;
    }
    Expected<HloModule> read = readModule(result.module);
    EXPECT_TRUE(static_cast<bool>(read)) << toString(read.takeError());
  }
  EXPECT_LT(kept, kMutations);
}

INSTANTIATE_TEST_SUITE_P(Xla, HloRewrites, testing::ValuesIn(kModules), [](const auto &info) {
  std::string name = info.param;
  name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
  return name;
});
