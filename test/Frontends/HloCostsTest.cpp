//===- HloCostsTest.cpp - Costs of XLA's instructions -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Frontends/Hlo/Schedule/HloScheduler.h"
#include "HloTestSupport.h"
#include "ModuleBuilder.h"
#include "gtest/gtest.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;
using namespace commsched::hlo::test;

namespace {

/// The three tensors of a convolution of 16 x 56 x 56 x 256 with 3 x 3 x 256 x 64.
const std::string kInput = bf16({16, 56, 56, 256}), kKernel = bf16({3, 3, 256, 64}), kOutput = bf16({16, 56, 56, 64});

/// The time of a call of cuDNN with two of these tensors as operands, ns, and the number of kernels of unknown cost.
std::pair<Ns, int32_t> timeOf(StringRef opcode, ArrayRef<std::string> operands, const std::string &result,
                              const std::string &fields) {
  ModuleBuilder builder;
  builder.begin("main");
  int64_t first = builder.parameter("a", operands[0], 0), second = builder.parameter("b", operands[1], 1);
  builder.add("c", opcode, result, {first, second}, fields);
  std::string bytes = builder.serialize();
  HloModule module = cantFail(readModule(bytes));
  HloResult scheduled = cantFail(scheduleModule(module, h100(), {}));
  return {scheduled.entry().makespanBefore, scheduled.entry().unknownKernels};
}

/// The result of a call of cuDNN, with its workspace.
std::string withWorkspace(const std::string &result) { return tuple({result, u8({0})}); }

} // namespace

// Tests that a convolution and its gradients, as XLA hands them to cuDNN, are priced by their operations, which are
// equal: 14.8e9, which take longer than their bytes, and that a call without dimensions is unknown.
TEST(HloCosts, ConvolutionsCountTheirOperations) {
  const std::string features = kernelOutputFeature(3);
  const auto forward = timeOf("custom-call", {kInput, kKernel}, withWorkspace(kOutput),
                              features + target("__cudnn$convForward")),
             input = timeOf("custom-call", {kOutput, kKernel}, withWorkspace(kInput),
                            features + target("__cudnn$convBackwardInput")),
             filter = timeOf("custom-call", {kInput, kOutput}, withWorkspace(kKernel),
                             features + target("__cudnn$convBackwardFilter")),
             plain = timeOf("convolution", {kInput, kKernel}, kOutput, features),
             unknown = timeOf("custom-call", {kInput, kKernel}, withWorkspace(kOutput), target("__cudnn$convForward"));
  const int64_t operations = int64_t(2) * 16 * 56 * 56 * 64 * 3 * 3 * 256;
  EXPECT_EQ(forward.first, h100().costOfKernel(operations, 0, ElementType::BF16, ComputeUnits::Matrix));
  for (const auto &one : {input, filter, plain})
    EXPECT_EQ(one.first, forward.first);
  for (const auto &one : {forward, input, filter, plain})
    EXPECT_EQ(one.second, 0);
  EXPECT_EQ(unknown.second, 1);
  EXPECT_LT(unknown.first, forward.first);
}

// Tests the kind, the widest group and the bytes of each form of collective in forms.txt, counted by hand.
TEST(HloCosts, Forms) {
  std::string bytes = readInput("forms.pb");
  HloModule module = cantFail(readModule(bytes));
  HloOptions options;
  options.measureOnly = true;
  HloResult result = cantFail(scheduleModule(module, h100(), options));
  std::vector<std::string> found;
  for (const ComputationResult &one : result.computations)
    for (const StartReport &start : one.starts)
      found.push_back(start.name + ": " +
                      (start.kind ? stringify(*start.kind).str() + " of " + std::to_string(start.bytes) + " bytes on " +
                                        std::to_string(start.shape.ranks)
                                  : "no collective"));
  // An array has 8 x 16 floats. Callees come first, here the body of the loop.
  EXPECT_EQ(found, (std::vector<std::string>{
                       "reduce-start.1: all_reduce of 512 bytes on 2",
                       "permute-start: permute of 512 bytes on 4",
                       "recv: recv of 516 bytes on 4", // with a context of 4 bytes
                       "send: send of 512 bytes on 4",
                       "copy-start: no collective",
                       "exchange-start: all_to_all of 512 bytes on 4",
                       "scatter-start: reduce_scatter of 512 bytes on 2",
                       "gather-start: all_gather of 512 bytes on 2",
                       "ragged-start: all_to_all of 512 bytes on 4",
                       "root-start: broadcast of 512 bytes on 2",
                   }));
  EXPECT_EQ(module.devices, 4);
}
