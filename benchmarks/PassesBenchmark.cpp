//===- PassesBenchmark.cpp - Benchmarks of the reordering passes on IR ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Each pass as a user runs it: load the block, solve, verify, apply. The program is a fully sharded training step of
// one function, with about 10,000 and 100,000 operations of which one in twenty is a collective. What is asked of each
// pass: 100,000 operations in less than a second, and less than 15 times the time of 10,000.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/InitAll.h"
#include "CommSched/Transforms/Passes.h"
#include "benchmark/benchmark.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"
#include <map>

using namespace mlir;
using namespace commsched;

namespace {

constexpr int64_t kComputes = 70;
constexpr int64_t kParameters = 3;
/// Per layer: forward and backward computes; a cast, a copy-in, a start, a wait and a copy-out per gather, two gathers
/// per parameter; a copy-in, a start and a wait per scatter.
constexpr int64_t kOpsPerLayer = 2 * kComputes + kParameters * (2 * 5 + 3);

/// Writes the training step, layer by layer.
class Writer {
public:
  explicit Writer(int64_t layers) : layers(layers), os(text) {}

  std::string run() {
    os << "comm.group @dp #comm.iota<[1, 64]>\nfunc.func @step(%x0: " << kActivation;
    for (int64_t parameter = 0; parameter < layers * kParameters; ++parameter)
      os << ", %p" << parameter << ": " << kShard;
    os << ") -> (";
    for (int64_t parameter = 0; parameter < layers * kParameters; ++parameter)
      os << kShard << ", ";
    os << kActivation << ") {\n";
    for (int64_t layer = 0; layer < layers; ++layer)
      emitLayer(layer, /*backward=*/false);
    for (int64_t layer = layers - 1; layer >= 0; --layer)
      emitLayer(layer, /*backward=*/true);
    os << "return ";
    for (int64_t parameter = 0; parameter < layers * kParameters; ++parameter)
      os << "%s" << parameter << ", ";
    os << "%x" << states << " : ";
    for (int64_t parameter = 0; parameter < layers * kParameters; ++parameter)
      os << kShard << ", ";
    os << kActivation << "\n}\n";
    return text;
  }

private:
  static constexpr llvm::StringLiteral kShard = "tensor<4096xf32>";
  static constexpr llvm::StringLiteral kCast = "tensor<4096xbf16>";
  static constexpr llvm::StringLiteral kFull = "tensor<262144xbf16>";
  static constexpr llvm::StringLiteral kActivation = "tensor<262144xf32>";

  void emitLayer(int64_t layer, bool backward) {
    llvm::StringRef half = backward ? "b" : "f";
    for (int64_t index = 0; index < kParameters; ++index) {
      int64_t p = layer * kParameters + index;
      os << llvm::formatv("%c{0}{1} = comm.compute \"cast\"(%p{1}) : ({2}) -> {3}\n", half, p, kShard, kCast)
         << llvm::formatv("%i{0}{1}, %g{0}{1} = comm.fsdp.all_gather_copy_in %c{0}{1} on @dp : ({2}) -> ({2}, {3})\n",
                          half, p, kCast, kFull)
         << llvm::formatv("%a{0}{1} = comm.all_gather %i{0}{1} into %g{0}{1} on @dp : ({2}) -> !comm.future<{3}>\n",
                          half, p, kCast, kFull)
         << llvm::formatv("%w{0}{1} = comm.wait %a{0}{1} : !comm.future<{2}>\n", half, p, kFull)
         << llvm::formatv("%o{0}{1} = comm.fsdp.split_with_sizes_copy %w{0}{1} sizes [4096] : ({2}) -> {2}\n", half, p,
                          kFull);
    }
    for (int64_t index = 0; index < kComputes; ++index, ++states)
      os << llvm::formatv("%x{0} = comm.compute \"aten.mm\"(%x{1}, %o{2}{3}) {{comm.cost = #comm.cost<time = {4}>} : "
                          "({5}, {6}) -> {5}\n",
                          states + 1, states, half, layer * kParameters + index % kParameters,
                          20000 + (states * 7919) % 380000, kActivation, kFull);
    for (int64_t index = 0; backward && index < kParameters; ++index) {
      int64_t p = layer * kParameters + index;
      os << llvm::formatv("%k{0} = comm.fsdp.chunk_cat %x{1} chunks 64 : ({2}) -> {2}\n", p, states, kActivation)
         << llvm::formatv("%r{0} = comm.reduce_scatter sum %k{0} on @dp : ({1}) -> !comm.future<{2}>\n", p, kActivation,
                          kShard)
         << llvm::formatv("%s{0} = comm.wait %r{0} : !comm.future<{1}>\n", p, kShard);
    }
  }

  int64_t layers, states = 0;
  std::string text;
  llvm::raw_string_ostream os;
};

/// The program of about so many operations, made once.
ModuleOp programOf(int64_t operations) {
  static MLIRContext *context = [] {
    DialectRegistry registry;
    registry.insert<func::FuncDialect>();
    commsched::registerAllDialects(registry);
    commsched::registerAllExtensions(registry);
    commsched::registerAllPasses();
    // One thread, so that its CPU time is all there is.
    return new MLIRContext(registry, MLIRContext::Threading::DISABLED);
  }();
  static std::map<int64_t, OwningOpRef<ModuleOp>> made;
  OwningOpRef<ModuleOp> &module = made[operations];
  if (!module)
    module = parseSourceString<ModuleOp>(Writer(operations / kOpsPerLayer).run(), context);
  return *module;
}

void runPass(benchmark::State &state, llvm::StringRef pipeline) {
  ModuleOp program = programOf(state.range(0));
  if (!program)
    return state.SkipWithError("the program does not parse");
  for (auto _ : state) {
    state.PauseTiming();
    OwningOpRef<ModuleOp> module(program.clone());
    PassManager manager(program.getContext());
    if (failed(parsePassPipeline(pipeline, manager)))
      return state.SkipWithError("no such pass");
    state.ResumeTiming();
    if (failed(manager.run(*module)))
      state.SkipWithError("the pass failed");
    state.PauseTiming();
    module = nullptr;
    state.ResumeTiming();
  }
  int64_t operations = 0, collectives = 0;
  program.walk([&](Operation *op) { ++operations, collectives += isa<comm::CollectiveOpInterface>(op); });
  state.counters["operations"] = static_cast<double>(operations);
  state.counters["collectives"] = static_cast<double>(collectives);
}

void sizes(benchmark::internal::Benchmark *benchmark) {
  benchmark->Arg(10000)->Arg(100000)->Unit(benchmark::kMillisecond);
}

BENCHMARK_CAPTURE(runPass, raise, "comm-raise")->Apply(sizes);
BENCHMARK_CAPTURE(runPass, sinkWaits, "comm-sink-waits")->Apply(sizes);
BENCHMARK_CAPTURE(runPass, reorderCompute, "comm-reorder-compute-for-overlap")->Apply(sizes);
BENCHMARK_CAPTURE(runPass, reorderPreservingPeak, "comm-reorder-preserving-peak-memory")->Apply(sizes);
BENCHMARK_CAPTURE(runPass, reorderPreservingPeakEstimates,
                  "comm-reorder-preserving-peak-memory{use-runtime-estimates=true}")
    ->Apply(sizes);
BENCHMARK_CAPTURE(runPass, sinkWaitsPreservingPeak, "comm-sink-waits-preserving-peak-memory")->Apply(sizes);
BENCHMARK_CAPTURE(runPass, sinkWaitsPreservingPeakEstimates,
                  "comm-sink-waits-preserving-peak-memory{use-runtime-estimates=true swap-with-collectives=true}")
    ->Apply(sizes);
BENCHMARK_CAPTURE(runPass, sinkAfterReorderCompute,
                  "comm-reorder-compute-for-overlap,comm-sink-waits-preserving-peak-memory{use-runtime-estimates=true}")
    ->Apply(sizes);
BENCHMARK_CAPTURE(runPass, orderCollectives, "comm-order-collectives")->Apply(sizes);
BENCHMARK_CAPTURE(runPass, orderFsdp, "comm-order-fsdp")->Apply(sizes);
BENCHMARK_CAPTURE(runPass, alignCosts, "comm-align-costs{profiles=h100-sxm,a100-sxm,b200-sxm}")->Apply(sizes);
BENCHMARK_CAPTURE(
    runPass, seedPipeline,
    "reorder-comm-overlap{passes=comm-reorder-preserving-peak-memory,comm-sink-waits-preserving-peak-memory}")
    ->Apply(sizes);

} // namespace
