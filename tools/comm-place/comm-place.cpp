//===- comm-place.cpp - Comparison of orders of mesh axes on a machine ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Reads the programs of one step, finds the mesh that their groups are made of, and compares the orders of its axes. It
// is a tool of its own and not a mode of comm-opt, which maps one program to one program: here several programs share
// one mesh, and the answer is a table. Exit code 0: there is a table; 1: there is none.
//
//===------------------------------------------------------------------------------------------===//

#include "../Mains.h"
#include "CommSched/InitAll.h"
#include "CommSched/Support/ByteCount.h"
#include "CommSched/Support/OutputFile.h"
#include "CommSched/Support/RunTool.h"
#include "CommSched/Transforms/Scheduling/Placement.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/WithColor.h"

using namespace llvm;
using namespace commsched;

static cl::OptionCategory category("comm-place options");
static cl::list<std::string> paths(cl::Positional, cl::OneOrMore,
                                   cl::desc("<programs that run one after the other>..."), cl::cat(category));
static cl::list<std::string>
    outputs("o", cl::desc("Write the program with the groups of the best order; once for each program"),
            cl::value_desc("file"), cl::cat(category));
static cl::opt<std::string> jsonPath("json", cl::desc("Write the table as JSON"), cl::value_desc("file.json"),
                                     cl::cat(category));
static cl::opt<std::string> machine("machine", cl::desc("Machine profile: a name or a path (default: h100-sxm)"),
                                    cl::value_desc("profile"), cl::cat(category));
static cl::opt<double> budgetRatio("memory-budget-ratio",
                                   cl::desc("How far the peak may rise above that of the given order (default: 0)"),
                                   cl::value_desc("R"), cl::init(0), cl::cat(category));
static cl::opt<ByteCount> memoryLimit("memory-limit-bytes",
                                      cl::desc("Hard limit on the peak of every function (default: none)"),
                                      cl::value_desc("bytes"), cl::init(-1), cl::cat(category));
static cl::opt<CollectiveOrder>
    collectiveOrder("collective-order", cl::desc("Collectives that keep their relative order (default: free)"),
                    cl::init(CollectiveOrder::Free),
                    cl::values(clEnumValN(CollectiveOrder::Free, "free", "none; only dependences hold"),
                               clEnumValN(CollectiveOrder::Group, "group", "the collectives of each group"),
                               clEnumValN(CollectiveOrder::Program, "program", "all collectives")),
                    cl::cat(category));
static cl::opt<bool> bucketing("bucketing", cl::desc("Merge collectives (default: true)"), cl::init(true),
                               cl::cat(category));
static cl::opt<int64_t> effort("effort", cl::desc("Steps of one search (default: by the size of the program)"),
                               cl::value_desc("N"), cl::init(-1), cl::cat(category));
static OwnOptions ownOptions(category, {paths});

static int fail(const Twine &message) {
  WithColor::error(errs(), "comm-place") << message << "\n";
  return 1;
}

static PlacementOptions placementOptions() {
  PlacementOptions options;
  options.machine = machine;
  options.memoryBudgetRatio = budgetRatio;
  options.memoryLimitBytes = memoryLimit;
  options.collectiveOrder = collectiveOrder;
  options.bucketing = bucketing;
  options.effort = effort;
  return options;
}

/// Writes what was asked for.
static Error write(ArrayRef<mlir::ModuleOp> programs, const PlacementTable &table) {
  if (!jsonPath.empty())
    if (Error error = writeWhole(jsonPath, [&](raw_ostream &os) {
          os << formatv("{0:2}\n", table.toJSON());
          return Error::success();
        }))
      return error;
  for (auto [program, path] : zip(programs, outputs)) {
    applyPlacement(program, table.mesh, table.best().orders.front());
    if (Error error = writeWhole(path, [program = program](raw_ostream &os) mutable {
          program.print(os, mlir::OpPrintingFlags().enableDebugInfo());
          os << "\n";
          return Error::success();
        }))
      return error;
  }
  return Error::success();
}

static int placeMain(int argc, char **argv) {
  ownOptions.offer();
  cl::ParseCommandLineOptions(argc, argv,
                              "Compares the orders of a program's mesh axes on a machine\n\n"
                              "EXAMPLE: comm-place forward.mlir backward.mlir --machine=h100-sxm\n");
  if (!outputs.empty() && outputs.size() != paths.size())
    return fail("-o: expected one file for each of the " + Twine(paths.size()) + " programs, got " +
                Twine(outputs.size()));
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  commsched::registerAllDialects(registry);
  commsched::registerAllExtensions(registry);
  mlir::MLIRContext context(registry);
  context.printOpOnDiagnostic(false);
  SmallVector<mlir::OwningOpRef<mlir::ModuleOp>> owned;
  SmallVector<mlir::ModuleOp> programs;
  SourceMgr sources;
  mlir::SourceMgrDiagnosticHandler diagnostics(sources, &context);
  for (const std::string &path : paths) {
    owned.push_back(mlir::parseSourceFile<mlir::ModuleOp>(path, &context));
    if (!owned.back())
      return fail("cannot read '" + path + "'");
    programs.push_back(*owned.back());
  }
  mlir::FailureOr<PlacementTable> table = comparePlacements(programs, placementOptions());
  if (mlir::failed(table))
    return 1;
  if (!is_contained(outputs, "-") && jsonPath != "-")
    table->print(outs());
  if (Error error = write(programs, *table))
    return fail(toString(std::move(error)));
  return 0;
}

int commschedPlaceMain(int argc, char **argv) { return runTool(argc, argv, placeMain); }
