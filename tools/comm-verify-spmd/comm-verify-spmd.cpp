//===- comm-verify-spmd.cpp - Do the programs of several ranks agree? ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Reads one program for each rank and compares their collectives before anything runs. Exit code 0: they agree; 1: they
// do not, or a program cannot be read.
//
//===------------------------------------------------------------------------------------------===//

#include "../Mains.h"
#include "CommSched/Analysis/SpmdCheck.h"
#include "CommSched/InitAll.h"
#include "CommSched/Support/OutputFile.h"
#include "CommSched/Support/RunTool.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/WithColor.h"

using namespace llvm;
using namespace commsched;

static cl::OptionCategory category("comm-verify-spmd options");
static cl::list<std::string> paths(cl::Positional, cl::OneOrMore, cl::desc("<program of each rank>..."),
                                   cl::cat(category));
static cl::list<int64_t> ranks("ranks", cl::CommaSeparated, cl::value_desc("N,..."),
                               cl::desc("The ranks of the programs (default: 0, 1, ... in their order)"),
                               cl::cat(category));
static cl::opt<std::string> jsonPath("json", cl::value_desc("file.json"),
                                     cl::desc("Write what was compared, and each difference, as JSON"),
                                     cl::cat(category));
static OwnOptions ownOptions(category, {paths});

static int fail(const Twine &message) {
  WithColor::error(errs(), "comm-verify-spmd") << message << "\n";
  return 1;
}

/// Writes the result to --json, if it was given. A line of `differences` is one that is printed.
static Error writeJson(ArrayRef<RankProgram> programs, const SpmdSummary *summary, StringRef differences) {
  if (jsonPath.empty())
    return Error::success();
  json::Array ranksHere, lines;
  for (const RankProgram &program : programs)
    ranksHere.push_back(program.rank);
  SmallVector<StringRef> parts;
  differences.split(parts, '\n', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (StringRef part : parts)
    lines.push_back(json::fixUTF8(part));
  json::Object document{{"schema_version", 1}, {"ranks", std::move(ranksHere)}, {"agree", summary != nullptr}};
  if (summary) {
    document["functions"] = summary->functions;
    document["communicators"] = summary->groups;
    document["collectives"] = summary->collectives;
  } else {
    document["differences"] = std::move(lines);
  }
  return writeWhole(jsonPath, [&](raw_ostream &os) {
    os << formatv("{0:2}\n", json::Value(std::move(document)));
    return Error::success();
  });
}

static int verifyMain(int argc, char **argv) {
  ownOptions.offer();
  cl::ParseCommandLineOptions(argc, argv,
                              "Compares the collectives of the programs of several ranks\n\n"
                              "EXAMPLE: comm-verify-spmd rank0.mlir rank1.mlir\n");
  if (!ranks.empty() && ranks.size() != paths.size())
    return fail("--ranks names " + Twine(ranks.size()) + " ranks for " + Twine(paths.size()) + " programs");
  SmallVector<int64_t> sorted(ranks.begin(), ranks.end());
  llvm::sort(sorted);
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end() || (!sorted.empty() && sorted.front() < 0))
    return fail("--ranks: expected ranks that are different and not negative");
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  commsched::registerAllDialects(registry);
  commsched::registerAllExtensions(registry);
  mlir::MLIRContext context(registry);
  SmallVector<mlir::OwningOpRef<mlir::ModuleOp>> modules;
  SmallVector<RankProgram> programs;
  SourceMgr sources;
  mlir::SourceMgrDiagnosticHandler diagnostics(sources, &context);
  for (auto [index, path] : enumerate(paths)) {
    modules.push_back(mlir::parseSourceFile<mlir::ModuleOp>(path, &context));
    if (!modules.back())
      return fail("cannot read '" + path + "'");
    programs.push_back({ranks.empty() ? static_cast<int64_t>(index) : ranks[index], *modules.back()});
  }
  std::string differences;
  raw_string_ostream printed(differences);
  mlir::FailureOr<SpmdSummary> summary = checkSpmd(programs, printed);
  errs() << differences;
  if (Error error = writeJson(programs, mlir::succeeded(summary) ? &*summary : nullptr, differences))
    return fail(toString(std::move(error)));
  if (mlir::failed(summary))
    return fail("the programs do not agree");
  if (jsonPath == "-")
    return 0;
  outs() << "the programs agree; functions: " << summary->functions << ", communicators: " << summary->groups
         << ", collectives: " << summary->collectives << "\n";
  return 0;
}

int commschedVerifySpmdMain(int argc, char **argv) { return runTool(argc, argv, verifyMain); }
