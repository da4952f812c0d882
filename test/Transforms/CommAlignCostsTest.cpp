//===- CommAlignCostsTest.cpp - Costs that an embedder's ranks gather -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The hook stands for an all-gather between ranks, which the command line cannot have.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Inductor/AlignCosts.h"
#include "CommSched/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace commsched;

namespace {

constexpr llvm::StringLiteral kProgram = R"(
comm.group @dp #comm.iota<[1, 4]>
func.func @f(%x: tensor<1024x1024xf32>) -> (tensor<1024x1024xf32>, tensor<1024x1024xf32>) {
  %f = comm.all_reduce sum %x on @dp : (tensor<1024x1024xf32>) -> !comm.future<tensor<1024x1024xf32>>
  %a = comm.compute "mm"(%x) {comm.cost = #comm.cost<flops = 1000000000000>} : (tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  %b = comm.compute "relu"(%a) : (tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  %r = comm.wait %f : !comm.future<tensor<1024x1024xf32>>
  return %b, %r : tensor<1024x1024xf32>, tensor<1024x1024xf32>
}
module @inner {
  comm.group @dp #comm.iota<[1, 4]>
  func.func @g(%x: tensor<1024x1024xf32>) -> (tensor<1024x1024xf32>, tensor<1024x1024xf32>) {
    %f = comm.all_reduce sum %x on @dp : (tensor<1024x1024xf32>) -> !comm.future<tensor<1024x1024xf32>>
    %a = comm.compute "bmm"(%x) {comm.cost = #comm.cost<flops = 2000000000000>} : (tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %r = comm.wait %f : !comm.future<tensor<1024x1024xf32>>
    return %a, %r : tensor<1024x1024xf32>, tensor<1024x1024xf32>
  }
}
)";

class AlignCosts : public ::testing::Test {
protected:
  AlignCosts() { context.loadDialect<comm::CommDialect, func::FuncDialect>(); }

  /// The program after the pass, as text; empty where the pass fails.
  std::string run(std::string machine, GatherCosts gather, bool allCompute = false) {
    OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(kProgram, &context);
    EXPECT_TRUE(module);
    PassManager manager(&context);
    manager.addPass(createCommAlignCosts(std::move(machine), std::move(gather), allCompute));
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
      diagnostics.push_back(diagnostic.str());
      return success();
    });
    if (failed(manager.run(*module)))
      return "";
    std::string text;
    llvm::raw_string_ostream os(text);
    module->print(os);
    return text;
  }

  MLIRContext context;
  std::vector<std::string> diagnostics;
};

// The hook is called once for the whole module, with this rank's own costs in program order, functions of modules
// inside included; what it gathers becomes the measured time, flops are kept, and what is no matrix multiplication is
// left alone.
TEST_F(AlignCosts, GathersOnce) {
  std::vector<std::vector<Ns>> calls;
  std::string text = run("h100-sxm", [&](ArrayRef<Ns> own) {
    calls.push_back(own.vec());
    return std::vector<std::vector<Ns>>{own.vec(), {7000, 100}, {5000, 300}};
  });
  ASSERT_EQ(calls.size(), 1u);
  ASSERT_EQ(calls[0].size(), 2u);
  EXPECT_GT(calls[0][0], 7000);
  EXPECT_NEAR(calls[0][1], 2 * calls[0][0], calls[0][0] / 10);
  EXPECT_NE(text.find("#comm.cost<flops = 1000000000000, time = 7000>"), std::string::npos) << text;
  EXPECT_NE(text.find("#comm.cost<flops = 2000000000000, time = 300>"), std::string::npos) << text;
  EXPECT_NE(text.find("\"relu\"(%1) : "), std::string::npos) << text;
}

// Ranks on different machines, each with the gathered costs of all, end with the same program.
TEST_F(AlignCosts, RanksAgree) {
  std::vector<std::string> machines = {"h100-sxm", "a100-sxm", "b200-sxm", "h200-sxm"};
  for (bool allCompute : {false, true}) {
    std::vector<std::vector<Ns>> all(machines.size());
    for (size_t rank = 0; rank < machines.size(); ++rank)
      run(
          machines[rank],
          [&](ArrayRef<Ns> own) {
            all[rank] = own.vec();
            return std::vector<std::vector<Ns>>{own.vec()};
          },
          allCompute);
    EXPECT_NE(all[0], all[1]);
    EXPECT_EQ(all[0].size(), allCompute ? 3u : 2u);
    std::string first;
    for (const std::string &machine : machines) {
      std::string text = run(machine, [&](ArrayRef<Ns>) { return all; }, allCompute);
      EXPECT_FALSE(text.empty());
      EXPECT_EQ(text, first.empty() ? text : first);
      first = text;
    }
  }
}

// A gather that failed, or rows of another length, are an error in one line, and change nothing.
TEST_F(AlignCosts, RefusesWhatIsNoTable) {
  EXPECT_EQ(run("h100-sxm", [](ArrayRef<Ns>) { return std::vector<std::vector<Ns>>{}; }), "");
  EXPECT_EQ(run("h100-sxm", [](ArrayRef<Ns> own) { return std::vector<std::vector<Ns>>{own.vec(), {1, 2, 3}}; }), "");
  EXPECT_EQ(run("no-such-machine", [](ArrayRef<Ns> own) { return std::vector<std::vector<Ns>>{own.vec()}; }), "");
  ASSERT_EQ(diagnostics.size(), 3u);
  EXPECT_EQ(diagnostics[0], "comm-align-costs: expected the costs of at least one rank, got none");
  EXPECT_EQ(diagnostics[1], "comm-align-costs: rank 1 gathered 3 costs; there are 2 to align");
  EXPECT_EQ(diagnostics[2].find("machine 'no-such-machine': expected the path of a .json file or one of "), 0u);
}

// Medians: the middle of an odd number, the lower of the two middle ones of an even number; the order of ranks does not
// matter.
TEST(LowerMedians, OddAndEven) {
  EXPECT_EQ(lowerMedians({{5, 1}, {3, 1}, {4, 9}}), (std::vector<Ns>{4, 1}));
  EXPECT_EQ(lowerMedians({{4, 9}, {5, 1}, {3, 1}}), (std::vector<Ns>{4, 1}));
  EXPECT_EQ(lowerMedians({{5, 7}, {3, 8}, {4, 9}, {1, 6}}), (std::vector<Ns>{3, 7}));
  EXPECT_EQ(lowerMedians({{5, 7}}), (std::vector<Ns>{5, 7}));
  EXPECT_EQ(lowerMedians({{}, {}}), std::vector<Ns>());
  EXPECT_EQ(lowerMedians({}), std::vector<Ns>());
}

} // namespace
