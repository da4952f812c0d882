//===- HloClonesTest.cpp - Values of XLA's programs that are made again -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The oracle is a number for what each instruction computes, from its fields and the numbers of its operands, through
// the bodies of fusions; a barrier's element has that of the tuple's operand. A module that computes the same has the
// same number at its root, however often it computes it.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Frontends/Hlo/Pjrt/PjrtTransform.h"
#include "Hlo/Schedule/HloMemoryPlan.h"
#include "Hlo/Write/CloneInstructions.h"
#include "HloTestSupport.h"
#include "ModuleBuilder.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/xxhash.h"
#include "gtest/gtest.h"
#include <set>

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;
using namespace commsched::hlo::test;

namespace {

//===- What a module computes -----------------------------------------------------------------===//

using Number = uint64_t;

Number numberOf(const HloModule &module, const HloComputation &computation);

/// The number of one instruction, given those of its operands.
Number numberOf(const HloModule &module, const HloInstruction &instruction, ArrayRef<Number> operands) {
  std::string text;
  WireReader reader(instruction.bytes);
  WireField field;
  // Not names, ids, neighbours, channels and estimates.
  while (reader.next(field))
    if (!is_contained({1u, 7u, 26u, 35u, 36u, 37u, 38u, 43u, 68u}, field.number))
      text += field.whole;
  for (Number operand : operands)
    text += "," + std::to_string(operand);
  for (int32_t called : instruction.called)
    text += ";" + std::to_string(numberOf(module, module.computations[called]));
  return xxh3_64bits(text);
}

/// The number of the root. A barrier over a tuple is the tuple, and its element the tuple's operand.
Number numberOf(const HloModule &module, const HloComputation &computation) {
  std::vector<Number> numbers(computation.instructions.size());
  std::vector<int32_t> order = computation.sequence;
  if (order.empty())
    for (size_t at = 0; at < computation.instructions.size(); ++at)
      order.push_back(static_cast<int32_t>(at));
  for (int32_t at : order) {
    const HloInstruction &instruction = computation.instructions[at];
    SmallVector<Number, 4> operands;
    for (int32_t operand : instruction.operands)
      operands.push_back(numbers[operand]);
    const HloInstruction *from = operands.empty() ? nullptr : &computation.instructions[instruction.operands[0]];
    if (from && from->is("opt-barrier"))
      from = &computation.instructions[from->operands[0]];
    if (instruction.is("get-tuple-element") && from->is("tuple"))
      numbers[at] = numbers[from->operands[instruction.tupleIndex]];
    else
      numbers[at] = numberOf(module, instruction, operands);
  }
  return numbers[computation.root];
}

/// Expects what XLA's verifier does: unique names, ids and channels, and one caller for the body of a fusion.
void expectWellFormed(const HloModule &module) {
  std::set<StringRef> names;
  std::set<int64_t> channels;
  std::vector<int> fusions(module.computations.size(), 0);
  for (const HloComputation &computation : module.computations) {
    EXPECT_TRUE(names.insert(computation.name).second) << computation.name.str();
    for (const HloInstruction &instruction : computation.instructions) {
      EXPECT_TRUE(names.insert(instruction.name).second) << instruction.name.str();
      if (instruction.channel > 0)
        EXPECT_TRUE(channels.insert(instruction.channel).second) << instruction.name.str();
      if (instruction.is("fusion"))
        for (int32_t called : instruction.called)
          EXPECT_EQ(++fusions[called], 1) << module.computations[called].name.str();
    }
  }
}

//===- Programs -------------------------------------------------------------------------------===//

constexpr int64_t kElements = 1 << 22;
/// Bytes of one activation of the programs.
constexpr Bytes kActivation = 4 * kElements;

std::string channel(int64_t number) {
  std::string field;
  writeInteger(instruction_field::kChannel, number, field);
  return field;
}

/// A forward part that makes `activations` arrays of their own parameters, each read at once, and a backward part that
/// reads them again. `producer` adds what makes one of them.
template <typename Producer> std::string forwardAndBackward(int activations, Producer producer) {
  ModuleBuilder builder;
  std::vector<int64_t> bodies;
  for (int i = 0; i < activations; ++i) {
    bodies.push_back(builder.begin(formatv("body{0}", i).str(), /*isFused=*/true));
    int64_t p = builder.parameter(formatv("p{0}", i).str(), f32({kElements}), 0);
    builder.add(formatv("exp{0}", i).str(), "exponential", f32({kElements}), {p});
  }
  builder.begin("main");
  std::vector<int64_t> made, results;
  for (int i = 0; i < activations; ++i) {
    int64_t x = builder.parameter(formatv("x{0}", i).str(), f32({kElements}), i);
    made.push_back(producer(builder, i, x, bodies[i]));
  }
  // Each is read at once, and everything is put together, so that no order can make one of them late.
  std::vector<int64_t> parts;
  for (int i = 0; i < activations; ++i)
    parts.push_back(builder.add(formatv("part{0}", i).str(), "slice", f32({1024}), {made[i]}));
  int64_t whole = builder.add("whole", "concatenate", f32({1024 * activations}), parts);
  for (int i = activations - 1; i >= 0; --i)
    results.push_back(builder.add(formatv("late{0}", i).str(), "dot", f32({1024}), {made[i], whole}));
  std::vector<std::string> shapes(activations, f32({1024}));
  builder.add("root", "tuple", tuple(shapes), results);
  return builder.serialize();
}

int64_t fusionOf(ModuleBuilder &builder, int index, int64_t x, int64_t body) {
  return builder.add(formatv("made{0}", index).str(), "fusion", f32({kElements}), {x}, called({body}));
}

PlannedModule planOrFail(const std::string &bytes, Bytes limit) {
  HloModule module = cantFail(readModule(bytes));
  std::optional<PlannedModule> planned = cantFail(planEntry(module, h100(), limit));
  return planned ? std::move(*planned) : PlannedModule();
}

Bytes peakOf(const HloModule &module) {
  HloOptions measure;
  measure.measureOnly = true;
  return cantFail(scheduleModule(module, h100(), measure)).entry().peakAfter;
}

//===- Tests ----------------------------------------------------------------------------------===//

// Tests that kernels are repeated in front of their late readers, until the peak is within the limit, and no more.
TEST(HloClones, RepeatsKernelsUntilThePeakIsWithinTheLimit) {
  const std::string bytes = forwardAndBackward(4, fusionOf);
  HloModule given = cantFail(readModule(bytes));
  ASSERT_GE(peakOf(given), 4 * kActivation);
  for (int32_t kept : {3, 2, 1}) {
    PlannedModule planned = planOrFail(bytes, kept * kActivation + (kActivation / 8));
    ASSERT_FALSE(planned.bytes.empty()) << kept;
    EXPECT_EQ(planned.again, 4 - kept);
    EXPECT_EQ(planned.againBytes, (4 - kept) * kActivation);
    EXPECT_EQ(planned.gathers, 0);
    HloModule module = cantFail(readModule(planned.bytes));
    EXPECT_LE(peakOf(module), kept * kActivation + kActivation / 8);
    EXPECT_EQ(numberOf(given, given.entryComputation()), numberOf(module, module.entryComputation()));
    expectWellFormed(module);
  }
  EXPECT_TRUE(planOrFail(bytes, kActivation / 2).bytes.empty());
}

// Tests that an all-gather is issued again, with a channel of its own.
TEST(HloClones, RepeatsGathers) {
  const std::string bytes = forwardAndBackward(3, [](ModuleBuilder &builder, int index, int64_t x, int64_t) {
    int64_t shard = builder.add(formatv("shard{0}", index).str(), "bitcast", f32({kElements}), {x});
    std::string fields = dimensions({0}) + group({0, 1, 2, 3, 4, 5, 6, 7}) + channel(index + 1);
    return builder.add(formatv("made{0}", index).str(), "all-gather", f32({kElements}), {shard}, fields);
  });
  PlannedModule planned = planOrFail(bytes, 2 * kActivation + (kActivation / 8));
  EXPECT_EQ(planned.again, 1);
  EXPECT_EQ(planned.gathers, 1);
  HloModule given = cantFail(readModule(bytes)), module = cantFail(readModule(planned.bytes));
  EXPECT_EQ(numberOf(given, given.entryComputation()), numberOf(module, module.entryComputation()));
  expectWellFormed(module);
}

// Tests that nothing is repeated that may compute something else the second time, or that does something else.
TEST(HloClones, RepeatsNothingElse) {
  auto planWith = [](StringRef opcode, const std::string &fields) {
    const std::string bytes = forwardAndBackward(3, [&](ModuleBuilder &builder, int index, int64_t x, int64_t) {
      return builder.add(formatv("made{0}", index).str(), opcode, f32({kElements}), {x}, fields);
    });
    return planOrFail(bytes, 2 * kActivation + (kActivation / 8)).again;
  };
  EXPECT_EQ(planWith("exponential", ""), 1);
  EXPECT_EQ(planWith("custom-call", target("__cublas$gemm")), 1);
  EXPECT_EQ(planWith("custom-call", target("user_kernel")), 0);
  std::string effect;
  writeInteger(instruction_field::kHasSideEffect, 1, effect);
  EXPECT_EQ(planWith("custom-call", target("__cublas$gemm") + effect), 0);
  EXPECT_EQ(planWith("rng-bit-generator", ""), 0);
  EXPECT_EQ(planWith("scatter", ""), 0);
  EXPECT_EQ(planWith("all-reduce", group({0, 1}) + channel(1)), 0);
}

// Tests that a kernel is not repeated behind an update in place of what it reads.
TEST(HloClones, RepeatsNothingOfWhatHasBeenOverwritten) {
  auto planWith = [](bool isOverwritten) {
    const std::string bytes = forwardAndBackward(3, [&](ModuleBuilder &builder, int index, int64_t x, int64_t) {
      std::string name = formatv("made{0}", index).str();
      int64_t source = builder.add("copy." + name, "copy", f32({kElements}), {x});
      int64_t made = builder.add(name, "exponential", f32({kElements}), {source});
      if (isOverwritten)
        builder.add("update." + name, "dynamic-update-slice", f32({kElements}), {source, source});
      return made;
    });
    return planOrFail(bytes, 2 * kActivation + (kActivation / 8)).again;
  };
  EXPECT_GT(planWith(false), 0);
  EXPECT_EQ(planWith(true), 0);
}

// Tests that barriers over tuples of the computation are taken away, and others are not.
TEST(HloClones, TakesBarriersAway) {
  for (bool isReadAsAWhole : {false, true}) {
    ModuleBuilder builder;
    builder.begin("main");
    int64_t x = builder.parameter("x", f32({1024}), 0);
    int64_t a = builder.add("a", "exponential", f32({1024}), {x});
    const std::string pair = tuple({f32({1024}), f32({1024})});
    int64_t both = builder.add("both", "tuple", pair, {a, x});
    int64_t barrier = builder.add("barrier", "opt-barrier", pair, {both});
    std::string second;
    writeInteger(instruction_field::kTupleIndex, 1, second);
    int64_t element = builder.add("element", "get-tuple-element", f32({1024}), {barrier}, second);
    int64_t result = builder.add("result", "negate", f32({1024}), {element});
    if (isReadAsAWhole)
      builder.add("root", "tuple", tuple({f32({1024}), pair}), {result, barrier});
    else
      builder.add("root", "tuple", tuple({f32({1024})}), {result});
    const std::string bytes = builder.serialize();
    HloModule given = cantFail(readModule(bytes));
    const std::string written = withoutBarriers(given, given.entry);
    HloModule module = cantFail(readModule(written));
    auto isBarrier = [](const HloInstruction &instruction) { return instruction.is("opt-barrier"); };
    EXPECT_EQ(any_of(module.entryComputation().instructions, isBarrier), isReadAsAWhole);
    EXPECT_EQ(numberOf(given, given.entryComputation()), numberOf(module, module.entryComputation()));
  }
}

class HloClonesOfXla : public testing::TestWithParam<const char *> {};

// Tests that XLA's own modules compute the same with values made again, within limits that no order reaches; and that a
// limit that an order reaches, or none, makes nothing again.
TEST_P(HloClonesOfXla, ComputeTheSame) {
  const std::string bytes = readInput(GetParam());
  HloModule given = cantFail(readModule(bytes));
  TransformOptions options = cantFail(parseTransformOptions(R"({"buckets": false, "effort": 10000})"));
  EXPECT_EQ(transformModule(bytes, options).report.get("made_again"), nullptr);
  int found = 0;
  for (int64_t ppm : {-100'000, -200'000, -300'000}) {
    options.schedule.memory.ppm = ppm;
    TransformResult result = transformModule(bytes, options);
    if (!result.report.get("made_again"))
      continue;
    ++found;
    HloModule module = cantFail(readModule(result.module));
    EXPECT_EQ(numberOf(given, given.entryComputation()), numberOf(module, module.entryComputation()));
    const json::Object *peak = result.report.getObject("peak_bytes");
    EXPECT_LE(peak->getInteger("after"), peak->getInteger("limit"));
    EXPECT_EQ(peakOf(module), *peak->getInteger("after"));
    EXPECT_EQ(peak->getInteger("before"), peakOf(given));
    EXPECT_EQ(transformModule(bytes, options).module, result.module);
  }
  EXPECT_GT(found, 0);
}

INSTANTIATE_TEST_SUITE_P(Modules, HloClonesOfXla, testing::Values("small-fsdp.pb", "small-moe.pb"));

} // namespace
