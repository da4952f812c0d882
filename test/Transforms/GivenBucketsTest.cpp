//===- GivenBucketsTest.cpp - Tests that buckets from elsewhere are carried out ---------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The way of an embedder who decides buckets: load, expand, apply. What the expansion says is what the block then is.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/BlockNoise.h"
#include "CommSched/Scheduling/Check/ScheduleVerifier.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Transforms/Rewrites/BucketWriter.h"
#include "CommSched/Transforms/Rewrites/TrafficCheck.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace commsched;

namespace {

constexpr StringLiteral kFourGathers = R"(
comm.group @dp #comm.iota<[1, 4]>
func.func @f(%a: tensor<4xf32>, %b: tensor<4xf32>, %c: tensor<4xf32>, %h: tensor<4xbf16>) -> (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xbf16>) {
  %f0 = comm.all_gather %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<16xf32>>
  %f1 = comm.all_gather %b on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<16xf32>>
  %s = comm.compute "sum"(%w1) : (tensor<16xf32>) -> tensor<4xf32>
  %f2 = comm.all_gather %s on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<16xf32>>
  %f3 = comm.all_gather %h on @dp : (tensor<4xbf16>) -> !comm.future<tensor<16xbf16>>
  %w3 = comm.wait %f3 : !comm.future<tensor<16xbf16>>
  return %w0, %w1, %w2, %w3 : tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xbf16>
}
)";

class GivenBucketsTest : public ::testing::Test {
protected:
  GivenBucketsTest() : model(llvm::cantFail(MachineModel::load("h100-sxm"))) {
    context.loadDialect<comm::CommDialect, func::FuncDialect>();
    module = parseSourceString<ModuleOp>(kFourGathers, &context);
    costs.emplace(model);
    block = &module->lookupSymbol<func::FuncOp>("f").front();
  }

  LoadedBlock load(MixedTypes mixed = MixedTypes::None) {
    LoadOptions options;
    options.bucketing = true;
    options.mixedTypes = mixed;
    return loadBlock(*block, *costs, options);
  }

  /// The gathers in program order.
  std::vector<NodeId> starts(const LoadedBlock &loaded) {
    std::vector<NodeId> result;
    for (auto start : block->getOps<comm::AllGatherOp>())
      result.push_back(loaded.nodes.find(start));
    return result;
  }

  /// Carries out `buckets` and compares the block with what was expected of it.
  void apply(LoadedBlock &loaded, ArrayRef<Bucket> buckets) {
    llvm::Expected<Schedule> schedule = mergeInOrder(loaded.problem, buckets);
    ASSERT_TRUE(static_cast<bool>(schedule)) << llvm::toString(schedule.takeError());
    measure(loaded.problem, *schedule);
    EXPECT_EQ(commsched::verify(loaded.problem, *schedule, {}), "");
    NoiseOptions varies{/*scenarios=*/8, /*collectiveSpreadPermille=*/300, /*computeSpreadPermille=*/200};
    Noise noise = noiseOf(loaded, *costs, varies);
    std::vector<Ns> expected = ScenarioSampler(loaded.problem, noise).play(*schedule);
    TrafficCheck before(*block);
    applySchedule(loaded, *schedule);
    EXPECT_TRUE(succeeded(verify(*module)));
    EXPECT_TRUE(succeeded(before.compare(TrafficCheck(*block), module->getLoc(), "given")));
    LoadedBlock applied = load();
    EXPECT_EQ(makespanOf(applied.problem, identityOrder(applied.problem)), schedule->makespan);
    EXPECT_EQ(peakOf(applied.problem, identityOrder(applied.problem)), schedule->peak);
    // Operations have the durations that the search has seen, in every scenario.
    Noise afterwards = noiseOf(applied, *costs, varies);
    ScenarioSampler sampler(applied.problem, afterwards);
    EXPECT_EQ(sampler.play(keepOrder(applied.problem)), expected);
  }

  std::string refusal(ArrayRef<Bucket> buckets) {
    LoadedBlock loaded = load();
    llvm::Expected<ExpandedProblem> expanded = expandBuckets(loaded.problem, buckets);
    return expanded ? "" : llvm::toString(expanded.takeError());
  }

  int64_t gathers() {
    auto ops = block->getOps<comm::AllGatherOp>();
    return std::distance(ops.begin(), ops.end());
  }

  MLIRContext context;
  CostModel model;
  OwningOpRef<ModuleOp> module;
  std::optional<OperationCosts> costs;
  Block *block = nullptr;
};

// Tests that the given buckets are carried out, and no others: the third gather could join neither rule's.
TEST_F(GivenBucketsTest, Packed) {
  LoadedBlock loaded = load();
  std::vector<NodeId> all = starts(loaded);
  apply(loaded, {{{all[0], all[2]}, BucketForm::Packed}});
  EXPECT_EQ(gathers(), 3);
}

TEST_F(GivenBucketsTest, Coalesced) {
  LoadedBlock loaded = load();
  std::vector<NodeId> all = starts(loaded);
  apply(loaded, {{{all[1], all[0]}, BucketForm::Coalesced}});
  EXPECT_EQ(gathers(), 3);
}

// Tests a bucket of two element types next to one of one.
TEST_F(GivenBucketsTest, Mixed) {
  LoadedBlock loaded = load(MixedTypes::Gathers);
  std::vector<NodeId> all = starts(loaded);
  std::vector<Bucket> buckets = {{{all[0], all[1]}, BucketForm::Packed}, {{all[2], all[3]}, BucketForm::Packed}};
  priceBuckets(loaded, buckets, *costs);
  apply(loaded, buckets);
  EXPECT_EQ(gathers(), 2);
}

// Tests that what cannot be carried out is refused in words, and nothing happens.
TEST_F(GivenBucketsTest, Refused) {
  LoadedBlock loaded = load();
  std::vector<NodeId> all = starts(loaded);
  EXPECT_EQ(refusal({{{all[1], all[2]}, BucketForm::Packed}}), "a bucket depends on itself");
  EXPECT_EQ(refusal({{{all[0]}, BucketForm::Packed}}), "bucket 0: fewer than two members");
  EXPECT_EQ(refusal({{{all[0], all[3]}, BucketForm::Packed}}), "bucket 0: members of different keys");
  EXPECT_NE(refusal({{{all[0], all[1]}, BucketForm::Packed}, {{all[1], all[2]}, BucketForm::Packed}}), "");
  EXPECT_NE(refusal({{{all[0], NodeId(1)}, BucketForm::Packed}}), "");
  EXPECT_EQ(gathers(), 4);
}

} // namespace
