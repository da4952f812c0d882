//===- HloTextTest.cpp - Modules of XLA as text -----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Every text in Inputs has its module beside it. XLA (jaxlib 0.10.2) made one of the other: it printed the small
// modules, and it parsed forms.txt, which has each form of text that this front end reads.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Frontends/Hlo/HloText.h"
#include "Hlo/WireFormat.h"
#include "HloTestSupport.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "gtest/gtest.h"
#include <random>

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;
using namespace commsched::hlo::test;

namespace {

constexpr const char *kTexts[] = {"small-fsdp", "small-scan", "small-moe", "forms"};

/// The report of a schedule, or why there is none.
std::string reportOf(const HloModule &module, const HloOptions &options = {}) {
  Expected<HloResult> result = scheduleModule(module, h100(), options);
  return result ? formatv("{0:2}", json::Value(describe(module, *result))).str() : toString(result.takeError());
}

std::vector<std::string> sortedLines(StringRef text) {
  std::vector<std::string> lines;
  for (StringRef line : split(text, '\n'))
    lines.push_back(line.str());
  sort(lines);
  return lines;
}

/// The message for a text that cannot be read; empty if it can.
std::string faultOf(StringRef text) {
  Expected<std::unique_ptr<HloFile>> file = HloFile::read(text, "x.txt");
  return file ? "" : toString(file.takeError());
}

class HloTexts : public testing::TestWithParam<const char *> {};

} // namespace

// Tests that text and message are the same module: same schedule, same order, same problem.
TEST_P(HloTexts, SameAsTheMessage) {
  std::string bytes = readInput(GetParam() + Twine(".pb")), text = readInput(GetParam() + Twine(".txt"));
  HloModule module = cantFail(readModule(bytes));
  std::unique_ptr<HloFile> file = cantFail(HloFile::read(text, "x.txt"));
  EXPECT_EQ(reportOf(module), reportOf(file->module()));
  EXPECT_EQ(module.name, file->module().name);
  EXPECT_EQ(module.aliases.size(), file->module().aliases.size());
}

// Tests that computations and what they run have the same parts, one by one, in their order.
TEST_P(HloTexts, SameInstructions) {
  std::string bytes = readInput(GetParam() + Twine(".pb")), text = readInput(GetParam() + Twine(".txt"));
  HloModule given = cantFail(readModule(bytes));
  std::unique_ptr<HloFile> file = cantFail(HloFile::read(text, "x.txt"));
  std::map<StringRef, const HloComputation *> named;
  for (const HloComputation &computation : file->module().computations)
    named[computation.name] = &computation;
  int compared = 0;
  for (const HloComputation &one : given.computations) {
    auto found = named.find(one.name);
    if (found == named.end()) // Text does not name what a short form wraps.
      continue;
    const HloComputation &other = *found->second;
    EXPECT_EQ(one.sequence.empty(), other.sequence.empty()) << one.name.str();
    ASSERT_EQ(one.instructions.size(), other.instructions.size()) << one.name.str();
    for (size_t i = 0; i < one.sequence.size(); ++i) {
      const HloInstruction &a = one.instructions[one.sequence[i]], &b = other.instructions[other.sequence[i]];
      std::string name = a.name.str();
      EXPECT_EQ(a.name, b.name);
      EXPECT_EQ(a.opcode, b.opcode) << name;
      EXPECT_EQ(a.shape.bytes(), b.shape.bytes()) << name;
      EXPECT_EQ(a.shape.numLeaves(), b.shape.numLeaves()) << name;
      EXPECT_EQ(a.operands.size(), b.operands.size()) << name;
      EXPECT_EQ(a.controlPredecessors.size(), b.controlPredecessors.size()) << name;
      EXPECT_EQ(a.called.size(), b.called.size()) << name;
      EXPECT_EQ(a.backendConfig, b.backendConfig) << name;
      EXPECT_EQ(a.customCallTarget, b.customCallTarget) << name;
      EXPECT_EQ(a.hasSideEffect, b.hasSideEffect) << name;
      EXPECT_EQ(a.aliases.size(), b.aliases.size()) << name;
      EXPECT_EQ(a.contractedOfLhs, b.contractedOfLhs) << name;
      if (a.is("parameter")) {
        EXPECT_EQ(a.parameterNumber, b.parameterNumber) << name;
      }
      if (a.opcode.starts_with("all-") || a.opcode.starts_with("collective-")) {
        EXPECT_EQ(a.dimensions, b.dimensions) << name;
        EXPECT_EQ(a.channel, b.channel) << name;
        EXPECT_EQ(cantFail(groupsOf(given, a.groups)), cantFail(groupsOf(file->module(), b.groups))) << name;
      }
    }
    ++compared;
  }
  EXPECT_GE(compared, 5);
}

// Tests that another order is written as the same lines in that order, and that XLA's order comes back byte for byte.
TEST_P(HloTexts, WrittenBack) {
  std::string text = readInput(GetParam() + Twine(".txt"));
  std::unique_ptr<HloFile> file = cantFail(HloFile::read(text, "x.txt"));
  HloResult kept;
  EXPECT_EQ(cantFail(file->write(kept)), text);
  HloOptions options;
  options.shuffle = 5;
  HloResult result = cantFail(scheduleModule(file->module(), h100(), options));
  std::string written = cantFail(file->write(result));
  EXPECT_NE(written, text);
  EXPECT_EQ(sortedLines(written), sortedLines(text));
  std::unique_ptr<HloFile> again = cantFail(HloFile::read(written, "y.txt"));
  HloModule message = cantFail(readModule(result.module));
  auto namesOf = [](const HloModule &module, const Twine &name) {
    std::vector<StringRef> names;
    for (const HloComputation &computation : module.computations)
      if (computation.name == name.str())
        for (int32_t at : computation.sequence)
          names.push_back(computation.instructions[at].name);
    return names;
  };
  for (const ComputationResult &one : result.computations) {
    StringRef name = message.computations[one.computation].name;
    EXPECT_EQ(namesOf(message, name), namesOf(again->module(), name));
    EXPECT_FALSE(namesOf(message, name).empty());
  }
}

// Tests that XLA's dump of a message is read, and that another order leaves the rest of it as it was.
TEST_P(HloTexts, Dumps) {
  std::string bytes = readInput(GetParam() + Twine(".pb")), dump, written;
  writeBytes(1, bytes, dump);
  writeBytes(3, "a buffer assignment", dump);
  std::unique_ptr<HloFile> file = cantFail(HloFile::read(dump, "x.hlo.pb"));
  HloModule module = cantFail(readModule(bytes));
  EXPECT_EQ(reportOf(module), reportOf(file->module()));
  HloOptions options;
  options.shuffle = 3;
  HloResult result = cantFail(scheduleModule(file->module(), h100(), options));
  EXPECT_NE(result.module, bytes);
  writeBytes(1, result.module, written);
  writeBytes(3, "a buffer assignment", written);
  EXPECT_EQ(cantFail(file->write(result)), written);
}

// Tests that damaged texts are refused with a place, or scheduled: 250 of each module.
TEST_P(HloTexts, Mutations) {
  std::string text = readInput(GetParam() + Twine(".txt"));
  std::mt19937_64 random(11);
  HloOptions options;
  options.effort = 100; // The search is not what is tested.
  int refused = 0;
  constexpr int kMutations = 250;
  for (int i = 0; i < kMutations; ++i) {
    std::string mutated = text;
    for (uint64_t change = 0, changes = 1 + random() % 3; change < changes && !mutated.empty(); ++change) {
      size_t at = random() % mutated.size(), length = 1 + random() % 24;
      constexpr StringLiteral kSigns = "(){}[]<>,=%\"/*-:\n0 ";
      switch (random() % 6) {
      case 0:
        mutated[at] = static_cast<char>(random());
        break;
      case 1:
        mutated[at] = kSigns[random() % kSigns.size()];
        break;
      case 2:
        mutated.erase(at, length);
        break;
      case 3:
        mutated.insert(at, mutated.substr(random() % mutated.size(), length));
        break;
      case 4: // A digit more.
        at = mutated.find_first_of("0123456789", at);
        mutated.insert(at == std::string::npos ? 0 : at, "9");
        break;
      default:
        if (random() % 8 == 0)
          mutated.resize(at);
      }
    }
    Expected<std::unique_ptr<HloFile>> file = HloFile::read(mutated, "x.txt");
    if (!file) {
      EXPECT_TRUE(StringRef(toString(file.takeError())).contains("expected"));
      ++refused;
      continue;
    }
    EXPECT_FALSE(reportOf((*file)->module(), options).empty());
  }
  EXPECT_GT(refused, kMutations / 10);
  EXPECT_LT(refused, kMutations);
}

// Tests that faults name file, line and column, what was expected, and what is there.
TEST(HloTextFaults, Places) {
  const std::string module = "HloModule m, is_scheduled=true\n\n"
                             "ENTRY %main (x: f32[8]) -> f32[8] {\n"
                             "  %x = f32[8]{0} parameter(0)\n"
                             "  %start = f32[8]{0} all-reduce-start(%x), replica_groups={{0,1}}, to_apply=%main.1\n"
                             "  ROOT %done = f32[8]{0} all-reduce-done(%start)\n"
                             "}\n";
  auto changed = [&](StringRef from, StringRef to) {
    std::string text = StringRef(module).contains(", to_apply=%main.1") && from != ", to_apply=%main.1"
                           ? module.substr(0, module.find(", to_apply")) + module.substr(module.find("main.1") + 6)
                           : module;
    size_t at = text.find(from.str());
    return at == std::string::npos ? "" : text.replace(at, from.size(), to.str());
  };
  EXPECT_EQ(faultOf(changed("", "")), "");
  EXPECT_EQ(faultOf(module), "x.txt:5:78: expected a computation that comes before, got 'main.1'");
  EXPECT_EQ(faultOf(changed("HloModule", "hloModule")), "x.txt:1:1: expected 'HloModule', got 'hloModule'");
  EXPECT_EQ(faultOf(changed("is_scheduled=true", "x=1")),
            "x.txt:1:11: expected a module with a schedule, got 'm' without is_scheduled=true");
  EXPECT_EQ(faultOf(changed("ENTRY ", "")), "x.txt:8:1: expected a computation with the mark ENTRY, got none");
  EXPECT_EQ(faultOf(changed("(%x)", "(%y)")), "x.txt:5:40: expected an instruction that comes before 'start', got 'y'");
  EXPECT_EQ(faultOf(changed("= f32[8]{0} all", "= f33[8]{0} all")), "x.txt:5:12: expected a shape, got 'f33[8]{0}'");
  EXPECT_EQ(faultOf(changed("{{0,1}}", "{{0,a}}")), "x.txt:5:63: expected a number, got 'a}}'");
  EXPECT_EQ(faultOf(changed("{{0,1}}", "{{0,1}")), "x.txt:6:3: expected '}', got 'ROOT'");
  EXPECT_EQ(faultOf(module.substr(0, module.find(": f32"))),
            "x.txt:3:13: expected the end of this bracket, got the end of the text");
  EXPECT_EQ(faultOf(changed("parameter(0)", "constant(\"0)")),
            "x.txt:4:27: expected the end of this string, got the end of the text");
  EXPECT_EQ(faultOf(changed("%done =", "%x =")), "x.txt:6:9: expected instructions of different names, got 'x' twice");
  EXPECT_EQ(faultOf(changed("parameter(0)", "parameter()")), "x.txt:4:28: expected a number, got ')'");
  EXPECT_EQ(faultOf(changed("parameter(0)", "parameter(99999999999999999999)")),
            "x.txt:4:28: expected a number, got '99999999999999999999)'");
  EXPECT_EQ(faultOf(changed("  %start", "  ROOT %start")), "x.txt:6:9: expected one ROOT, got a second one");
  EXPECT_EQ(faultOf(changed("all-reduce-start(%x)", "reduce-scatter-start(%x)")),
            "x.txt:5:22: expected the shape ((operands), result, ...) of 'reduce-scatter-start' for 1 operands");
  EXPECT_EQ(faultOf(""), "x.txt:1:1: expected 'HloModule', got its end");
}

// Tests that a callee may be written as a list or with a comment, and that a fused one has no order either way.
TEST(HloTextForms, FusedCallees) {
  const std::string module = "HloModule m, is_scheduled=true\n"
                             "%f {\n  ROOT %p = f32[8] parameter(0)\n}\n"
                             "ENTRY %main {\n  %x = f32[8] parameter(0)\n"
                             "  ROOT %y = f32[8] fusion(%x), kind=kLoop, calls=CALLEE\n}\n";
  for (StringRef callee : {"%f", "f", "{%f}", "{ %f }", "/*fused*/%f", "% f"}) {
    std::string text = module;
    text.replace(text.find("CALLEE"), 6, callee.str());
    Expected<std::unique_ptr<HloFile>> file = HloFile::read(text, "x.txt");
    if (callee == "% f") {
      EXPECT_EQ(toString(file.takeError()), "x.txt:7:50: expected a computation, got '%'");
      continue;
    }
    ASSERT_TRUE(static_cast<bool>(file)) << toString(file.takeError());
    const std::vector<HloComputation> &computations = (*file)->module().computations;
    ASSERT_EQ(computations.size(), 2u);
    EXPECT_TRUE(computations[0].sequence.empty()) << callee.str();
    EXPECT_EQ(computations[1].sequence.size(), 2u);
  }
}

/// What one convolution of 16 x 56 x 56 x 256 with 3 x 3 x 256 x 64 takes, ns; the number of kernels of unknown cost.
static std::pair<Ns, int32_t> convolution(StringRef call) {
  std::string text = ("HloModule m, is_scheduled=true\n"
                      "ENTRY %main {\n"
                      "  %x = bf16[16,56,56,256] parameter(0)\n"
                      "  %w = bf16[3,3,256,64] parameter(1)\n"
                      "  %dy = bf16[16,56,56,64] parameter(2)\n"
                      "  ROOT %c = " +
                      call + "\n}\n")
                         .str();
  std::unique_ptr<HloFile> file = cantFail(HloFile::read(text, "x.txt"));
  HloResult result = cantFail(scheduleModule(file->module(), h100(), {}));
  return {result.entry().makespanBefore, result.entry().unknownKernels};
}

// Tests that a convolution and its gradients, as XLA hands them to cuDNN, are priced by their operations, which are
// equal: 14.8e9, which take longer than their bytes, and that a call without dimensions is unknown.
TEST(HloTextForms, ConvolutionsCountTheirOperations) {
  const std::string labels =
      ", window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, custom_call_target=\"__cudnn$conv";
  const auto forward = convolution("(bf16[16,56,56,64], u8[0]) custom-call(%x, %w)" + labels + "Forward\""),
             input = convolution("(bf16[16,56,56,256], u8[0]) custom-call(%dy, %w)" + labels + "BackwardInput\""),
             filter = convolution("(bf16[3,3,256,64], u8[0]) custom-call(%x, %dy)" + labels + "BackwardFilter\""),
             plain = convolution("bf16[16,56,56,64] convolution(%x, %w), window={size=3x3 pad=1_1x1_1}, "
                                 "dim_labels=b01f_01io->b01f"),
             unknown = convolution(
                 "(bf16[16,56,56,64], u8[0]) custom-call(%x, %w), custom_call_target=\"__cudnn$convForward\"");
  const int64_t operations = int64_t(2) * 16 * 56 * 56 * 64 * 3 * 3 * 256;
  EXPECT_EQ(forward.first, h100().costOfKernel(operations, 0, ElementType::BF16, ComputeUnits::Matrix));
  for (const auto &one : {input, filter, plain})
    EXPECT_EQ(one.first, forward.first);
  for (const auto &one : {forward, input, filter, plain})
    EXPECT_EQ(one.second, 0);
  EXPECT_EQ(unknown.second, 1);
  EXPECT_LT(unknown.first, forward.first);
}

INSTANTIATE_TEST_SUITE_P(Xla, HloTexts, testing::ValuesIn(kTexts), [](const auto &info) {
  std::string name = info.param;
  name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
  return name;
});
