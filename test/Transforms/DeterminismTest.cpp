//===- DeterminismTest.cpp - Equal input, equal output ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Random modules of many functions through every reordering pass, with and without threads, in contexts of their own:
// the places of operations in memory, and with them the order of hash tables, are others each time.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/InitAll.h"
#include "CommSched/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "gtest/gtest.h"
#include <random>

using namespace mlir;
using namespace commsched;

namespace {

/// A function of computes, starts and waits in a random order that respects uses.
class FunctionWriter {
public:
  explicit FunctionWriter(uint64_t seed) : random(seed), os(text) {}

  std::string run(StringRef name) {
    os << "func.func @" << name << "(%v0: " << kType << ") -> " << kType << " {\n";
    for (int step = 0; step < 40; ++step) {
      if (!flying.empty() && below(3) == 0)
        wait();
      else if (below(3) == 0)
        start();
      else
        compute();
    }
    while (!flying.empty())
      wait();
    os << "  return %v" << values << " : " << kType << "\n}\n";
    return text;
  }

private:
  static constexpr llvm::StringLiteral kType = "tensor<64xf32>";

  int below(int bound) { return static_cast<int>(random() % bound); }
  int value() { return below(values + 1); }

  void compute() {
    int a = value(), b = value();
    os << "  %v" << ++values << " = comm.compute \"" << (below(3) ? "add" : "aten.mm") << "\"(%v" << a << ", %v" << b
       << ") {comm.cost = #comm.cost<time = " << 1 + below(400) << ", workspace = " << below(3) * 256 << ">} : ("
       << kType << ", " << kType << ") -> " << kType << "\n";
  }
  void start() {
    os << "  %f" << ++futures << " = comm.all_reduce sum %v" << value() << " on @" << (below(2) ? "dp" : "tp")
       << " {comm.cost = #comm.cost<time = " << 1 + below(600) << ">} : (" << kType << ") -> !comm.future<" << kType
       << ">\n";
    flying.push_back(futures);
  }
  void wait() {
    int index = below(static_cast<int>(flying.size()));
    os << "  %v" << ++values << " = comm.wait %f" << flying[index] << " : !comm.future<" << kType << ">\n";
    flying.erase(flying.begin() + index);
  }

  std::mt19937_64 random;
  int values = 0, futures = 0;
  std::vector<int> flying;
  std::string text;
  llvm::raw_string_ostream os;
};

std::string randomModule(uint64_t seed) {
  std::string text = "comm.group @dp #comm.iota<[1, 4]>\ncomm.group @tp #comm.iota<[2, 2]>\n";
  for (uint64_t function = 0; function < 8; ++function)
    text += FunctionWriter(seed * 8 + function).run("f" + std::to_string(function));
  return text;
}

/// The module after the passes, or an empty string where they fail. The pass manager verifies after each.
std::string run(StringRef program, StringRef pipeline, bool threads) {
  DialectRegistry registry;
  registry.insert<func::FuncDialect>();
  commsched::registerAllDialects(registry);
  commsched::registerAllExtensions(registry);
  MLIRContext context(registry, threads ? MLIRContext::Threading::ENABLED : MLIRContext::Threading::DISABLED);
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(program, &context);
  EXPECT_TRUE(module);
  PassManager manager(&context);
  if (failed(parsePassPipeline(pipeline, manager)) || failed(manager.run(*module)))
    return "";
  std::string text;
  llvm::raw_string_ostream os(text);
  module->print(os);
  return text;
}

constexpr llvm::StringLiteral kPipelines[] = {
    "comm-raise",
    "comm-sink-waits",
    "comm-reorder-compute-for-overlap",
    "comm-reorder-preserving-peak-memory",
    "comm-reorder-preserving-peak-memory{use-runtime-estimates=true group-with-collectives=true}",
    "comm-sink-waits-preserving-peak-memory",
    "comm-sink-waits-preserving-peak-memory{use-runtime-estimates=true swap-with-collectives=true}",
    "comm-order-collectives",
    "comm-order-fsdp",
    "comm-align-costs{profiles=h100-sxm,a100-sxm,b200-sxm operations=compute}",
    "func.func(comm-reorder-preserving-peak-memory,comm-sink-waits-preserving-peak-memory)",
    "reorder-comm-overlap{passes=comm-reorder-preserving-peak-memory,comm-sink-waits-preserving-peak-memory}",
};

TEST(Determinism, EqualUnderThreadsAndHashes) {
  commsched::registerAllPasses();
  int changed = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    std::string program = randomModule(seed), before = run(program, "", false);
    for (StringRef pipeline : kPipelines) {
      std::string alone = run(program, pipeline, false);
      ASSERT_FALSE(alone.empty()) << pipeline.str();
      ASSERT_EQ(run(program, pipeline, true), alone) << "seed " << seed << ": " << pipeline.str();
      changed += alone != before;
    }
  }
  EXPECT_GE(changed, 100);
}

// Fixing an order that is fixed, and aligning costs that are aligned, change nothing; nor do raising and sinking twice.
TEST(Determinism, IdempotentPasses) {
  commsched::registerAllPasses();
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    std::string program = randomModule(seed);
    for (StringRef pass : {"comm-raise", "comm-sink-waits", "comm-order-collectives",
                           "comm-align-costs{profiles=h100-sxm,a100-sxm,b200-sxm}"})
      ASSERT_EQ(run(program, (pass + "," + pass).str(), false), run(program, pass, false)) << pass.str();
  }
}

} // namespace
