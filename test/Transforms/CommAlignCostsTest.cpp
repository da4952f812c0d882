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

#include "CommSched/Analysis/Environment.h"
#include "CommSched/Scheduling/Inductor/AlignCosts.h"
#include "CommSched/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/FileSystem.h"
#include "gtest/gtest.h"
#include <condition_variable>
#include <mutex>
#include <thread>

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

/// A hook whose ranks have the same operations as this one. What the ranks cost is `answer` of this rank's costs.
GatherCosts sameOperations(std::function<std::vector<std::vector<Ns>>(ArrayRef<Ns>)> answer, size_t ranks) {
  auto call = std::make_shared<int>(0);
  return
      [=](ArrayRef<Ns> own) { return (*call)++ == 0 ? std::vector<std::vector<Ns>>(ranks, own.vec()) : answer(own); };
}

class AlignCosts : public ::testing::Test {
protected:
  AlignCosts() { load(context); }

  static void load(MLIRContext &context) { context.loadDialect<comm::CommDialect, func::FuncDialect>(); }

  /// The program after the pass, as text; empty where the pass fails.
  static std::string run(MLIRContext &context, std::vector<std::string> &diagnostics, StringRef program,
                         std::string machine, GatherCosts gather, AlignedOperations operations) {
    OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(program, &context, "f.mlir");
    EXPECT_TRUE(module);
    PassManager manager(&context);
    manager.addPass(createCommAlignCosts(std::move(machine), std::move(gather), operations));
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
      std::string text;
      llvm::raw_string_ostream(text) << diagnostic.getLocation() << ": " << diagnostic.str();
      diagnostics.push_back(text);
      return success();
    });
    if (failed(manager.run(*module)))
      return "";
    std::string text;
    llvm::raw_string_ostream os(text);
    module->print(os);
    return text;
  }

  std::string run(std::string machine, GatherCosts gather, AlignedOperations operations = AlignedOperations::Products) {
    return run(context, diagnostics, kProgram, std::move(machine), std::move(gather), operations);
  }

  MLIRContext context;
  std::vector<std::string> diagnostics;
};

// The hook is called twice for the whole module: with the number of operations, a hash of them, a hash of the machine
// and the size of its profile, and with this rank's own costs in program order, functions of modules inside included.
// The medians become measured times, flops are kept, and with Products what is no matrix multiplication is left alone.
TEST_F(AlignCosts, GathersTwice) {
  std::vector<std::vector<Ns>> calls;
  std::string text = run("h100-sxm", [&](ArrayRef<Ns> own) {
    calls.push_back(own.vec());
    return calls.size() == 1 ? std::vector<std::vector<Ns>>(3, own.vec())
                             : std::vector<std::vector<Ns>>{own.vec(), {7000, 100}, {5000, 300}};
  });
  ASSERT_EQ(calls.size(), 2u);
  ASSERT_EQ(calls[0].size(), 4u);
  EXPECT_EQ(calls[0][0], 2);
  ASSERT_EQ(calls[1].size(), 2u);
  Ns own = calls[1][0];
  EXPECT_GT(own, 7000);
  EXPECT_NEAR(calls[1][1], 2 * own, own / 10);
  EXPECT_NE(text.find("#comm.cost<flops = 1000000000000, time = 7000, time_lo = 5000, time_hi = " +
                      std::to_string(own) + ">"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("#comm.cost<flops = 2000000000000, time = 300, time_lo = 100, time_hi = " +
                      std::to_string(calls[1][1]) + ">"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\"relu\"(%1) : "), std::string::npos) << text;
}

// Ranks on different machines, each with the gathered costs of all, end with the same program.
TEST_F(AlignCosts, RanksAgree) {
  std::vector<std::string> machines = {"h100-sxm", "a100-sxm", "b200-sxm", "h200-sxm"};
  for (auto [operations, count] : {std::pair(AlignedOperations::Products, 2), std::pair(AlignedOperations::Compute, 3),
                                   std::pair(AlignedOperations::All, 5)}) {
    std::vector<std::vector<Ns>> all(machines.size());
    for (size_t rank = 0; rank < machines.size(); ++rank)
      run(machines[rank],
          sameOperations(
              [&, rank = rank](ArrayRef<Ns> own) {
                all[rank] = own.vec();
                return std::vector<std::vector<Ns>>{own.vec()};
              },
              1),
          operations);
    EXPECT_NE(all[0], all[1]);
    EXPECT_EQ(all[0].size(), static_cast<size_t>(count));
    std::string first;
    for (const std::string &machine : machines) {
      std::string text = run(machine, sameOperations([&](ArrayRef<Ns>) { return all; }, all.size()), operations);
      EXPECT_FALSE(text.empty());
      EXPECT_EQ(text, first.empty() ? text : first);
      first = text;
    }
    EXPECT_EQ(StringRef(first).count("time = "), static_cast<size_t>(count)) << first;
  }
}

// A gather that failed, rows of another length, and costs below 0 are an error in one line, and change nothing.
TEST_F(AlignCosts, RefusesWhatIsNoTable) {
  EXPECT_EQ(run("h100-sxm", [](ArrayRef<Ns>) { return std::vector<std::vector<Ns>>{}; }), "");
  EXPECT_EQ(run("h100-sxm", [](ArrayRef<Ns> own) { return std::vector<std::vector<Ns>>{own.vec(), {1, 2, 3}}; }), "");
  EXPECT_EQ(run("h100-sxm", sameOperations([](ArrayRef<Ns>) { return std::vector<std::vector<Ns>>{}; }, 2)), "");
  EXPECT_EQ(run("h100-sxm",
                sameOperations([](ArrayRef<Ns> own) { return std::vector<std::vector<Ns>>{own.vec(), {5, -1}}; }, 2)),
            "");
  EXPECT_EQ(run("no-such-machine", [](ArrayRef<Ns> own) { return std::vector<std::vector<Ns>>{own.vec()}; }), "");
  ASSERT_EQ(diagnostics.size(), 5u);
  EXPECT_EQ(diagnostics[0], "loc(\"f.mlir\":5:8): comm-align-costs: the costs of the ranks could not be gathered");
  EXPECT_EQ(diagnostics[1], "loc(\"f.mlir\":5:8): comm-align-costs: rank 1 gathered 3 numbers; expected 4");
  EXPECT_EQ(diagnostics[2], "loc(\"f.mlir\":5:8): comm-align-costs: the costs of the ranks could not be gathered");
  EXPECT_EQ(diagnostics[3], "loc(\"f.mlir\":14:10): comm-align-costs: expected a cost of at least 0 ns from rank 1, "
                            "got -1");
  EXPECT_NE(diagnostics[4].find("machine 'no-such-machine': expected the path of a .json file or one of "),
            std::string::npos);
}

/// An all-gather among threads. A rank that nobody joins waits forever, as in a job.
class ThreadGather {
public:
  explicit ThreadGather(size_t ranks) : rows(ranks), barrier(ranks) {}

  GatherCosts of(size_t rank) {
    return [this, rank](ArrayRef<Ns> own) {
      rows[rank] = own.vec();
      barrier.arriveAndWait();
      std::vector<std::vector<Ns>> all = rows;
      barrier.arriveAndWait();
      return all;
    };
  }

private:
  struct Barrier {
    explicit Barrier(size_t count) : count(count) {}
    void arriveAndWait() {
      std::unique_lock<std::mutex> lock(mutex);
      size_t round = rounds;
      if (++arrived == count) {
        arrived = 0;
        ++rounds;
        everyone.notify_all();
      }
      everyone.wait(lock, [&] { return rounds != round; });
    }
    size_t count, arrived = 0, rounds = 0;
    std::mutex mutex;
    std::condition_variable everyone;
  };
  std::vector<std::vector<Ns>> rows;
  Barrier barrier;
};

// Ranks with different machines also price what has no time of its own, such as buckets, by one machine: the first
// rank's. Each says so. Ranks whose profiles differ in name and origin only keep their own.
TEST_F(AlignCosts, RanksAgreeOnAMachine) {
  std::string renamed = llvm::cantFail(MachineModel::load("h100-sxm")).toJSON();
  renamed.replace(renamed.find("\"name\": \"h100-sxm\""), strlen("\"name\": \"h100-sxm\""),
                  "\"calibration\": {\"host\": \"b\"}, \"name\": \"other\"");
  auto path = [](const std::string &text) {
    llvm::SmallString<128> name;
    int file;
    EXPECT_FALSE(llvm::sys::fs::createTemporaryFile("machine", "json", file, name));
    llvm::raw_fd_ostream(file, /*shouldClose=*/true) << text;
    return name.str().str();
  };
  std::string renamedPath = path(renamed);
  struct Case {
    std::vector<std::string> machines;
    /// The rank that the warning names; none if there is no warning.
    std::optional<int> other;
  };
  for (const Case &test : {Case{{"a100-sxm", "a100-sxm", "h100-sxm"}, 2}, Case{{"h100-sxm", renamedPath}, {}}}) {
    size_t ranks = test.machines.size();
    ThreadGather gather(ranks);
    std::vector<std::vector<std::string>> said(ranks);
    std::vector<std::string> agreed(ranks);
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        MLIRContext context(MLIRContext::Threading::DISABLED);
        DialectRegistry registry;
        registerEnvironment(registry);
        context.appendDialectRegistry(registry);
        load(context);
        EXPECT_NE(run(context, said[rank], kProgram, test.machines[rank], gather.of(rank), AlignedOperations::All), "");
        agreed[rank] = llvm::cantFail(loadMachine(&context, test.machines[rank])).toJSON();
        auto before = std::make_shared<const CostModel>(llvm::cantFail(MachineModel::load("b200-sxm")));
        EXPECT_EQ(agreedModel(&context, test.machines[rank], before) == before, !test.other.has_value());
        // A machine that was not aligned stays.
        EXPECT_EQ(agreedModel(&context, "b200-sxm", before), before);
      });
    for (std::thread &thread : threads)
      thread.join();
    for (size_t rank = 0; rank < ranks; ++rank) {
      std::string expected = llvm::cantFail(MachineModel::load(test.machines[test.other ? 0 : rank])).toJSON();
      EXPECT_EQ(agreed[rank], expected);
      ASSERT_EQ(said[rank].size(), test.other ? 1U : 0U);
      if (test.other)
        EXPECT_NE(said[rank][0].find("comm-align-costs: rank " + std::to_string(*test.other) +
                                     " has another machine than rank 0 ('" + test.machines[rank] +
                                     "' here); later passes use that of rank 0, 'a100-sxm', on all ranks"),
                  std::string::npos)
            << said[rank][0];
    }
  }
  llvm::sys::fs::remove(renamedPath);
}

// Ranks with different programs all get an error at their own first operation that differs, and none hangs: one
// operation more, another operation, and one that the others have in another place.
TEST_F(AlignCosts, DifferentProgramsAreAnErrorOnEveryRank) {
  auto program = [](std::vector<std::string> names) {
    std::string text = "comm.group @dp #comm.iota<[1, 4]>\n"
                       "func.func @f(%x: tensor<64xf32>) -> tensor<64xf32> {\n"
                       "  %f = comm.all_reduce sum %x on @dp : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>\n";
    for (const std::string &name : names)
      text += "  %" + name + " = comm.compute \"" + name + "\"(%x) : (tensor<64xf32>) -> tensor<64xf32>\n";
    return text + "  %r = comm.wait %f : !comm.future<tensor<64xf32>>\n  return %r : tensor<64xf32>\n}\n";
  };
  struct Case {
    std::vector<std::vector<std::string>> programs;
    std::vector<std::string> errors;
  };
  std::string start = "comm-align-costs: expected the same operations on all ranks, got ";
  for (const Case &test : {Case{{{"a", "b"}, {"a", "b"}, {"a", "b", "c"}},
                                {"loc(\"f.mlir\":5:8): " + start +
                                     "3 operations here and 4 on rank 2; rank 2 has more operations after the "
                                     "last one here",
                                 "loc(\"f.mlir\":5:8): " + start +
                                     "3 operations here and 4 on rank 2; rank 2 has more operations after the "
                                     "last one here",
                                 "loc(\"f.mlir\":6:8): " + start +
                                     "4 operations here and 3 on rank 0; operation 3 here, 'comm.compute', is "
                                     "the first that differs"}},
                           Case{{{"a", "b"}, {"b", "a"}},
                                {"loc(\"f.mlir\":4:8): " + start +
                                     "3 operations here and 3 on rank 1; operation 1 here, 'comm.compute', is "
                                     "the first that differs",
                                 "loc(\"f.mlir\":4:8): " + start +
                                     "3 operations here and 3 on rank 0; operation 1 here, 'comm.compute', is "
                                     "the first that differs"}}}) {
    size_t ranks = test.programs.size();
    ThreadGather gather(ranks);
    std::vector<std::vector<std::string>> errors(ranks);
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        MLIRContext own(MLIRContext::Threading::DISABLED);
        load(own);
        EXPECT_EQ(
            run(own, errors[rank], program(test.programs[rank]), "h100-sxm", gather.of(rank), AlignedOperations::All),
            "");
      });
    for (std::thread &thread : threads)
      thread.join();
    for (size_t rank = 0; rank < ranks; ++rank) {
      ASSERT_EQ(errors[rank].size(), 1u);
      EXPECT_EQ(errors[rank].front(), test.errors[rank]);
    }
  }
}

// The extremes and the flag: more than a tenth of the median.
TEST(AlignedCost, SkewIsMoreThanATenth) {
  std::vector<AlignedCost> costs = alignCosts({{100, 100, 7, 0}, {105, 105, 7, 0}, {110, 111, 7, 1}});
  ASSERT_EQ(costs.size(), 4u);
  EXPECT_EQ(costs[0].median, 105);
  EXPECT_EQ(costs[0].least, 100);
  EXPECT_EQ(costs[0].most, 110);
  EXPECT_FALSE(costs[0].isSkewed());
  EXPECT_TRUE(costs[1].isSkewed());
  EXPECT_FALSE(costs[2].isSkewed());
  EXPECT_TRUE(costs[2].isEqualEverywhere());
  EXPECT_TRUE(costs[3].isSkewed());
  EXPECT_TRUE(alignCosts({}).empty());
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
