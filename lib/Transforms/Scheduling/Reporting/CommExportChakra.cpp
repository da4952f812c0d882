//===- CommExportChakra.cpp - The pass comm-export-chakra -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Makes the traces of all functions, and only then the first file. If a file cannot be written, those of this run go.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/ProblemLoader.h"
#include "CommSched/Report/ChakraTrace.h"
#include "CommSched/Support/OutputFile.h"
#include "CommSched/Transforms/Passes.h"
#include "CommSched/Transforms/Scheduling/BlockNames.h"
#include "PassBase/MachinePass.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

namespace commsched {
#define GEN_PASS_DEF_COMMEXPORTCHAKRA
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;

namespace {

/// The traces of one function, and the first part of the names of their files.
struct ExportedFunction {
  Location loc;
  std::string stem;
  ChakraTrace trace;
};

struct CommExportChakraPass : MachinePass<commsched::impl::CommExportChakraBase<CommExportChakraPass>> {
  using MachinePass::MachinePass;

  LogicalResult checkOptions(MLIRContext *context) final {
    auto error = [&] { return emitError(UnknownLoc::get(context)); };
    if (directory.empty())
      return error() << "comm-export-chakra: expected the option 'directory', got none";
    if (rank < -1)
      return error() << "comm-export-chakra: expected a rank of at least 0, or -1 for all ranks, got rank="
                     << rank.getValue();
    return success();
  }

  void runWithModel() final {
    markAllAnalysesPreserved();
    std::vector<ExportedFunction> exported;
    if (failed(collect(exported)) || failed(write(exported)))
      signalPassFailure();
  }

private:
  /// Makes the traces of all functions with collectives.
  LogicalResult collect(std::vector<ExportedFunction> &exported) {
    OperationCosts costs(*model);
    ChakraOptions options = {machineName(&getContext(), machine), {}, orderAsData};
    if (rank >= 0)
      options.rank = rank;
    llvm::StringMap<FunctionOpInterface> stems;
    FunctionOpInterface last;
    for (ReportedBlock &reported : findReportedBlocks(getOperation())) {
      FunctionOpInterface function = reported.function;
      if (function == last)
        continue;
      last = function;
      FailureOr<ChakraTrace> trace = ChakraTrace::of(function, costs, options);
      if (failed(trace))
        return failure();
      std::string stem = stemOf(reportNameOf(function.getFunctionBody().front()));
      auto [known, isNew] = stems.try_emplace(stem, function);
      if (!isNew) {
        InFlightDiagnostic diagnostic = emitError(function.getLoc())
                                        << "expected functions with different names of files, got '" << stem
                                        << "' for two";
        diagnostic.attachNote(known->second.getLoc()) << "the other function is here";
        return diagnostic;
      }
      exported.push_back({function.getLoc(), std::move(stem), std::move(*trace)});
    }
    if (exported.empty())
      return emitError(getOperation().getLoc()) << "comm-export-chakra: expected a function with collectives, got none";
    return success();
  }

  /// The name of a function as part of the name of a file.
  static std::string stemOf(StringRef name) {
    std::string stem = name.str();
    for (char &c : stem)
      if (!llvm::isAlnum(c) && !StringRef("_-.").contains(c))
        c = '_';
    return stem;
  }

  LogicalResult write(ArrayRef<ExportedFunction> exported) {
    if (std::error_code code = llvm::sys::fs::create_directories(directory))
      return emitError(getOperation().getLoc())
             << "cannot make the directory '" << directory << "': " << code.message();
    std::vector<std::string> written;
    for (const ExportedFunction &entry : exported)
      if (failed(writeFiles(entry, written))) {
        for (const std::string &path : written)
          if (std::error_code code = llvm::sys::fs::remove(path))
            emitWarning(entry.loc) << "cannot remove '" << path << "' again: " << code.message();
        return failure();
      }
    return success();
  }

  /// Writes the files of one function, and appends their paths to `written`.
  LogicalResult writeFiles(const ExportedFunction &entry, std::vector<std::string> &written) {
    auto writeOne = [&](const Twine &name, llvm::function_ref<void(llvm::raw_ostream &)> print) -> LogicalResult {
      SmallString<128> path(directory.getValue());
      llvm::sys::path::append(path, name);
      llvm::Error error = writeWhole(path, [&](llvm::raw_ostream &os) {
        print(os);
        return llvm::Error::success();
      });
      if (error)
        return emitError(entry.loc) << "cannot write '" << path << "': " << llvm::toString(std::move(error));
      written.push_back(path.str().str());
      return success();
    };
    for (int64_t one = std::max<int64_t>(rank, 0), last = rank < 0 ? entry.trace.ranks() - 1 : rank; one <= last; ++one)
      if (failed(writeOne(entry.stem + "." + Twine(one) + ".et",
                          [&](llvm::raw_ostream &os) { entry.trace.write(one, os); })))
        return failure();
    return writeOne(entry.stem + ".groups.json", [&](llvm::raw_ostream &os) { entry.trace.writeGroups(os); });
  }
};

} // namespace
