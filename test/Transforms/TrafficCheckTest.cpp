//===- TrafficCheckTest.cpp - Tests that lost traffic is noticed ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Pairs of programs: what a rewrite may do, and each way in which one could go wrong.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Transforms/Rewrites/TrafficCheck.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace commsched;

namespace {

class TrafficCheckTest : public ::testing::Test {
protected:
  TrafficCheckTest() { context.loadDialect<comm::CommDialect, func::FuncDialect>(); }

  OwningOpRef<ModuleOp> parse(StringRef body) {
    std::string text = "comm.group @dp #comm.iota<[1, 4]>\ncomm.group @tp #comm.iota<[2, 2]>\n"
                       "func.func @f(%a: tensor<4xf32>, %b: tensor<4xf32>, %h: tensor<8xbf16>, %d: tensor<?xf32>) {\n" +
                       body.str() + "\nreturn\n}\n";
    return parseSourceString<ModuleOp>(text, &context);
  }

  /// What is said about a rewrite of `before` to `after`.
  std::vector<std::string> compare(StringRef before, StringRef after) {
    std::vector<std::string> messages;
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) { messages.push_back(diagnostic.str()); });
    OwningOpRef<ModuleOp> first = parse(before), second = parse(after);
    EXPECT_TRUE(first && second);
    LogicalResult result = TrafficCheck(*first).compare(TrafficCheck(*second), first->getLoc(), "a-pass");
    EXPECT_EQ(succeeded(result), messages.empty());
    return messages;
  }

  MLIRContext context;
};

constexpr StringLiteral kTwoReduces =
    "%f0 = comm.all_reduce sum %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>\n"
    "%f1 = comm.all_reduce sum %b on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>\n";

// Tests that merging keeps the traffic: one collective of all bytes, or of several inputs.
TEST_F(TrafficCheckTest, MergedIsEqual) {
  EXPECT_TRUE(compare(kTwoReduces, kTwoReduces).empty());
  EXPECT_TRUE(compare(kTwoReduces, "%c = comm.fsdp.chunk_cat %a, %b chunks 1 : (tensor<4xf32>, tensor<4xf32>) -> "
                                   "tensor<8xf32>\n%f = comm.all_reduce sum %c into %c on @dp : (tensor<8xf32>) -> "
                                   "!comm.future<tensor<8xf32>>")
                  .empty());
  EXPECT_TRUE(compare(kTwoReduces, "%f = comm.all_reduce sum %a, %b on @dp : (tensor<4xf32>, tensor<4xf32>) -> "
                                   "!comm.future<tensor<4xf32>, tensor<4xf32>>")
                  .empty());
}

// Tests that a byte view is no difference to an all-gather.
TEST_F(TrafficCheckTest, ByteView) {
  EXPECT_TRUE(compare("%f0 = comm.all_gather %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>\n"
                      "%f1 = comm.all_gather %h on @dp : (tensor<8xbf16>) -> !comm.future<tensor<32xbf16>>\n",
                      "%s, %g = comm.fsdp.all_gather_copy_in %a, %h on @dp as [f32, bf16] : (tensor<4xf32>, "
                      "tensor<8xbf16>) -> (tensor<32xi8>, tensor<128xi8>)\n"
                      "%f = comm.all_gather %s into %g on @dp : (tensor<32xi8>) -> !comm.future<tensor<128xi8>>\n")
                  .empty());
}

// Tests what must not pass: fewer bytes, another group, reduction, kind or (of a reduction) element type.
TEST_F(TrafficCheckTest, Differences) {
  std::vector<std::string> lost =
      compare(kTwoReduces, "%f = comm.all_reduce sum %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>");
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_NE(lost[0].find("a-pass: [\"comm.all_reduce\", @dp"), std::string::npos) << lost[0];
  EXPECT_NE(lost[0].find("carried 32 bytes and 0 values of dynamic size before, 16 and 0 after"), std::string::npos)
      << lost[0];
  StringRef one = "%f = comm.all_reduce sum %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>";
  for (StringRef other : {"%f = comm.all_reduce sum %a on @tp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>",
                          "%f = comm.all_reduce avg %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>",
                          "%f = comm.all_reduce sum %h on @dp : (tensor<8xbf16>) -> !comm.future<tensor<8xbf16>>",
                          "%f = comm.broadcast %a on @dp root 0 : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>"})
    EXPECT_EQ(compare(one, other).size(), 2u) << other.str();
  EXPECT_EQ(compare(one, kTwoReduces).size(), 1u);
  EXPECT_EQ(compare("", one).size(), 1u);
}

// Tests that values of dynamic size are counted by number.
TEST_F(TrafficCheckTest, DynamicSizes) {
  StringRef one = "%f = comm.all_reduce sum %d on @dp : (tensor<?xf32>) -> !comm.future<tensor<?xf32>>";
  EXPECT_TRUE(compare(one, one).empty());
  EXPECT_EQ(compare(one, "").size(), 1u);
}

} // namespace
