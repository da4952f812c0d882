//===- ProblemPrinterTest.cpp - Tests that a printed problem loads as itself ------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Prints random problems, loads the text, and compares. Gates are left out of the comparison, and dependences are
// compared as paths.
//
//===------------------------------------------------------------------------------------------===//

#include "Problem/ProblemPrinter.h"
#include "CommSched/Analysis/ProblemLoader.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "RandomProblem.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::test;

namespace {

class ProblemPrinterTest : public ::testing::Test {
protected:
  ProblemPrinterTest() {
    context.loadDialect<comm::CommDialect, func::FuncDialect>();
    MachineModel machine = llvm::cantFail(MachineModel::load("h100-sxm"));
    machine.issue = 0;
    model.emplace(machine);
  }

  /// The printed text, loaded; null if it does not parse.
  std::unique_ptr<LoadedBlock> load(const PrintedProblem &printed) {
    module = parseSourceString<ModuleOp>(printed.text, &context);
    if (!module)
      return nullptr;
    // Costs belong to one module.
    costs.emplace(*model);
    return std::make_unique<LoadedBlock>(loadBlock(module->lookupSymbol<func::FuncOp>("problem").front(), *costs));
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  std::optional<CostModel> model;
  std::optional<OperationCosts> costs;
};

/// The nodes of the loaded block that are not gates, in order.
std::vector<NodeId> withoutGates(const LoadedBlock &loaded) {
  std::vector<NodeId> nodes;
  for (NodeId node = 0; node < loaded.problem.size(); ++node) {
    auto compute = dyn_cast<comm::ComputeOp>(loaded.nodes[node]);
    if (!compute || compute.getName() != "gate")
      nodes.push_back(node);
  }
  return nodes;
}

std::vector<llvm::BitVector> ancestors(const Problem &problem) {
  std::vector<llvm::BitVector> result(problem.size(), llvm::BitVector(problem.size()));
  for (NodeId node = 0; node < problem.size(); ++node)
    for (NodeId pred : problem.preds[node]) {
      result[node] |= result[pred];
      result[node].set(pred);
    }
  return result;
}

/// A buffer in terms that do not depend on its number: bytes, definition, liveness at the end, and users.
using BufferFacts = std::tuple<Bytes, NodeId, bool, std::vector<NodeId>>;

/// Facts of all buffers with bytes and users, sorted. `number` renumbers nodes; those with kNone are left out.
std::vector<BufferFacts> buffersOf(const Problem &problem, llvm::ArrayRef<NodeId> number) {
  std::vector<BufferFacts> facts;
  for (BufferId id = 0; id < static_cast<BufferId>(problem.buffers.size()); ++id) {
    const Buffer &buffer = problem.buffers[id];
    std::vector<NodeId> users;
    for (NodeId user : problem.users[id])
      if (number[user] != kNone)
        users.push_back(number[user]);
    if (buffer.bytes > 0 && !users.empty())
      facts.push_back({buffer.bytes, buffer.def == kNone ? kNone : number[buffer.def], buffer.liveOut, users});
  }
  llvm::sort(facts);
  return facts;
}

void compare(const Problem &given, const LoadedBlock &loaded) {
  std::vector<NodeId> nodes = withoutGates(loaded);
  ASSERT_EQ(static_cast<NodeId>(nodes.size()), given.size());
  std::vector<NodeId> number(loaded.problem.size(), kNone);
  for (NodeId node = 0; node < given.size(); ++node)
    number[nodes[node]] = node;
  auto before = ancestors(given), after = ancestors(loaded.problem);
  for (NodeId node = 0; node < given.size(); ++node) {
    const Node &one = given.nodes[node], &other = loaded.problem.nodes[nodes[node]];
    ASSERT_EQ(one.kind, other.kind) << "node " << node;
    ASSERT_EQ(one.cost, other.cost) << "node " << node;
    ASSERT_EQ(one.issue, other.issue) << "node " << node;
    ASSERT_EQ(one.workspace, other.workspace) << "node " << node;
    ASSERT_EQ(one.pinned, other.pinned) << "node " << node;
    ASSERT_EQ(one.start, other.start == kNone ? kNone : number[other.start]) << "node " << node;
    if (one.kind == NodeKind::Start || one.kind == NodeKind::Hybrid) {
      ASSERT_EQ(one.collective, other.collective) << "node " << node;
      ASSERT_EQ("@" + given.laneNames[one.lane], loaded.problem.laneNames[other.lane]) << "node " << node;
    }
    for (NodeId earlier = 0; earlier < node; ++earlier)
      ASSERT_EQ(before[node].test(earlier), after[nodes[node]].test(nodes[earlier])) << earlier << " -> " << node;
  }
  std::vector<NodeId> same(given.size());
  std::iota(same.begin(), same.end(), 0);
  EXPECT_EQ(buffersOf(given, same), buffersOf(loaded.problem, number));
  EXPECT_EQ(makespanOf(given, identityOrder(given)), makespanOf(loaded.problem, identityOrder(loaded.problem)));
  EXPECT_EQ(peakOf(given, identityOrder(given)), peakOf(loaded.problem, identityOrder(loaded.problem)));
}

// Tests that a problem without losses loads as itself, and that the text of any other one is a program nevertheless.
TEST_F(ProblemPrinterTest, LoadsAsItself) {
  int32_t exact = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomOptions options;
    options.nodes = 2 + static_cast<int32_t>(seed % 30);
    options.maxIssue = 0;
    options.chanceOfRegion = 0;
    options.chanceOfArgumentFuture = 0;
    Problem problem = randomProblem(seed, options);
    PrintedProblem printed = printAsMlir(problem);
    std::unique_ptr<LoadedBlock> loaded = load(printed);
    ASSERT_TRUE(loaded) << "seed " << seed << "\n" << printed.text;
    ASSERT_EQ(loaded->defect, "") << "seed " << seed;
    if (!printed.losses.empty())
      continue;
    ++exact;
    ASSERT_NO_FATAL_FAILURE(compare(problem, *loaded)) << "seed " << seed << "\n" << printed.text;
  }
  printf("%d of 300 problems were printed without losses\n", exact);
  EXPECT_GT(exact, 100);
}

// Tests that what a program cannot express is said.
TEST_F(ProblemPrinterTest, SaysWhatIsLost) {
  Problem problem = randomProblem(3);
  problem.busyUntil = {0, 7};
  for (Node &node : problem.nodes)
    if (node.kind == NodeKind::Start)
      node.issue = 5;
  PrintedProblem printed = printAsMlir(problem);
  EXPECT_TRUE(llvm::is_contained(printed.losses, "lanes that are busy at the beginning."));
  EXPECT_NE(printed.text.find("// Not expressed: lanes that are busy at the beginning."), std::string::npos);
}

} // namespace
