//===- EnvironmentTest.cpp - Tests of an embedder's environment -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Environment.h"
#include "CommSched/Analysis/Costs/OperationCosts.h"
#include "CommSched/InitAll.h"
#include "CommSched/Transforms/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/Support/Error.h"
#include "gtest/gtest.h"
#include <atomic>

using namespace mlir;
using namespace commsched;

namespace {

constexpr llvm::StringLiteral kProgram = R"(
comm.group @dp #comm.iota<[1, 4]>
func.func @f(%x: tensor<64x64xf32>, %s: tensor<16xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>, tensor<64xf32>) {
  %f = comm.all_gather %s on @dp : (tensor<16xf32>) -> !comm.future<tensor<64xf32>>
  %e = tensor.empty() : tensor<64x64xf32>
  %m = linalg.matmul ins(%x, %x : tensor<64x64xf32>, tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %k = comm.compute "known"(%x) {comm.cost = #comm.cost<time = 30>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %w = comm.wait %f : !comm.future<tensor<64xf32>>
  return %m, %k, %w : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64xf32>
}
)";

class EnvironmentTest : public ::testing::Test {
protected:
  EnvironmentTest() {
    DialectRegistry registry;
    registry.insert<arith::ArithDialect, func::FuncDialect, linalg::LinalgDialect, scf::SCFDialect,
                    tensor::TensorDialect>();
    registerAllDialects(registry);
    registerAllExtensions(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    module = parseSourceString<ModuleOp>(kProgram, &context);
  }

  /// The time of the first operation of this type.
  template <typename Op> Ns timeOf() {
    CostModel model(llvm::cantFail(MachineModel::load("h100-sxm")));
    Ns time = -1;
    module->walk([&](Op op) { time = OperationCosts(model).costOf(op).time; });
    return time;
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
};

// The estimate is asked for operations of every dialect and for collectives; what it leaves open is the models', and a
// time in comm.cost comes first. Absurd answers are cut.
TEST_F(EnvironmentTest, EstimatesReachTheCosts) {
  Ns product = timeOf<linalg::MatmulOp>(), gather = timeOf<comm::AllGatherOp>();
  Environment *environment = Environment::of(&context);
  ASSERT_TRUE(environment);
  environment->estimate = [&](Operation *op) -> std::optional<Ns> {
    EXPECT_FALSE(isa<comm::ComputeOp>(op)) << "has a time";
    return isa<linalg::MatmulOp>(op) ? std::optional<Ns>(12345) : std::nullopt;
  };
  EXPECT_EQ(timeOf<linalg::MatmulOp>(), 12345);
  EXPECT_NE(product, 12345);
  EXPECT_EQ(timeOf<comm::AllGatherOp>(), gather);
  EXPECT_EQ(timeOf<comm::ComputeOp>(), 30);
  environment->estimate = [](Operation *op) -> std::optional<Ns> { return isa<comm::AllGatherOp>(op) ? 777 : -5; };
  EXPECT_EQ(timeOf<comm::AllGatherOp>(), 777);
  EXPECT_EQ(timeOf<linalg::MatmulOp>(), 0);
  environment->estimate = [](Operation *) { return std::optional<Ns>(INT64_MAX); };
  EXPECT_GT(timeOf<linalg::MatmulOp>(), 1000000);
  EXPECT_LT(timeOf<linalg::MatmulOp>(), INT64_MAX / 8);
}

// An estimated curve comes before the tables of the machine that passes load, also of one that names the group.
TEST_F(EnvironmentTest, CurvesReachTheMachine) {
  Environment *environment = Environment::of(&context);
  environment->curves = {{CollectiveKind::AllGather, "dp", 0, 0, ElementType::F32, {{64, 1000}, {256, 4321}}, {}}};
  CostModel model(llvm::cantFail(loadMachine(&context, "h100-sxm")));
  GroupShape shape{4, 1, 4};
  EXPECT_EQ(model.costOfCollective(CollectiveKind::AllGather, 256, shape, ElementType::F32, "dp"), 4321);
  CostModel own(llvm::cantFail(MachineModel::load("h100-sxm")));
  for (llvm::StringRef group : {"dp", "tp"})
    EXPECT_EQ(model.costOfCollective(CollectiveKind::AllReduce, 256, shape, ElementType::F32, group),
              own.costOfCollective(CollectiveKind::AllReduce, 256, shape, ElementType::F32, group));
}

// comm-align-costs from text gathers through the environment, linalg's products included, and needs no profiles then.
TEST_F(EnvironmentTest, AlignsThroughTheGather) {
  commsched::registerAllPasses();
  std::atomic<int> calls = 0;
  Environment::of(&context)->gather = [&](ArrayRef<Ns> own) {
    // The first call compares programs.
    if (++calls == 1)
      return std::vector<std::vector<Ns>>(3, own.vec());
    EXPECT_EQ(own.size(), 1u);
    return std::vector<std::vector<Ns>>{own.vec(), {999999}, {888888}};
  };
  PassManager manager(&context);
  std::string message;
  llvm::raw_string_ostream os(message);
  ASSERT_TRUE(succeeded(
      parsePassPipeline("reorder-comm-overlap{passes=comm-align-costs{operations=products},comm-raise}", manager, os)))
      << message;
  ASSERT_TRUE(succeeded(manager.run(*module)));
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(timeOf<linalg::MatmulOp>(), 888888);
}

// The machine of the environment is that of passes that are given none.
TEST_F(EnvironmentTest, NamesTheMachine) {
  EXPECT_EQ(machineName(&context, ""), "h100-sxm");
  Environment::of(&context)->machine = "cpu-mpi";
  EXPECT_EQ(machineName(&context, ""), "cpu-mpi");
  EXPECT_EQ(machineName(&context, "a100-sxm"), "a100-sxm");
  MLIRContext bare;
  EXPECT_EQ(Environment::of(&bare), nullptr);
  EXPECT_EQ(machineName(&bare, ""), "h100-sxm");
}

// A loop becomes a pipeline if its gather takes longer than what hides it already. Which machine decides that has to be
// the one that ranks agreed on, for a rank with another one would keep the loop.
TEST_F(EnvironmentTest, LoopsArePipelinedByTheAgreedMachine) {
  constexpr llvm::StringLiteral program = R"(
comm.group @dp #comm.iota<[1, 4]>
func.func @f(%shard: tensor<1048576xf32>, %x: tensor<64xf32>) -> tensor<64xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %r = scf.for %i = %c0 to %c4 step %c1 iter_args(%h = %x) -> (tensor<64xf32>) {
    %f = comm.all_gather %shard on @dp : (tensor<1048576xf32>) -> !comm.future<tensor<4194304xf32>>
    %a = comm.compute "hides"(%h) {comm.cost = #comm.cost<time = 500000>} : (tensor<64xf32>) -> tensor<64xf32>
    %w = comm.wait %f : !comm.future<tensor<4194304xf32>>
    %y = comm.compute "layer"(%a, %w) {comm.cost = #comm.cost<time = 2000000>} : (tensor<64xf32>, tensor<4194304xf32>) -> tensor<64xf32>
    scf.yield %y : tensor<64xf32>
  }
  return %r : tensor<64xf32>
}
)";
  auto isPipelined = [&](std::string machine) {
    OwningOpRef<ModuleOp> parsed = parseSourceString<ModuleOp>(program, &context);
    CommPipelineLoopsOptions options;
    options.machine = std::move(machine);
    options.memoryBudgetRatio = 4;
    PassManager manager(&context);
    manager.addPass(createCommPipelineLoops(options));
    EXPECT_TRUE(parsed && succeeded(manager.run(*parsed)));
    size_t gathers = 0;
    parsed->walk([&](comm::AllGatherOp) { ++gathers; });
    return gathers > 1;
  };
  EXPECT_FALSE(isPipelined("h100-sxm"));
  EXPECT_TRUE(isPipelined("cpu-mpi"));
  Environment::of(&context)->agreedMachines["h100-sxm"] =
      std::make_shared<const CostModel>(llvm::cantFail(MachineModel::load("cpu-mpi")));
  EXPECT_TRUE(isPipelined("h100-sxm"));
}

} // namespace
