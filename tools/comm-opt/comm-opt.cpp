//===- comm-opt.cpp - The project's optimizer driver ------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// mlir-opt with the comm dialect and the project's passes. All of upstream's dialects, extensions and passes are
// registered too, so that one run can bring a program from any of them and lower it to any of them.
//
//===------------------------------------------------------------------------------------------===//

#include "../Mains.h"
#include "CommSched/Conversion/Stablehlo.h"
#include "CommSched/InitAll.h"
#include "CommSched/Support/OutputFile.h"
#include "CommSched/Support/RunTool.h"
#include "PassArguments.h"
#include "ReportFlags.h"
#include "SearchTerminal.h"
#include "ToolOptions.h"

#include "mlir/Bytecode/BytecodeReader.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/WithColor.h"

using namespace llvm;

static constexpr StringLiteral kOverview =
    "CommSched's MLIR optimizer driver: hides collectives behind computation\n\n"
    "EXAMPLE: comm-opt in.mlir --reorder-comm-overlap --comm-machine=h100-sxm --comm-report=report.json -o out.mlir\n";

/// Reads the whole input, so that the output may replace it, and rejects input that cannot be a program.
static Expected<std::unique_ptr<MemoryBuffer>> readInput(StringRef path) {
  auto buffer = MemoryBuffer::getFileOrSTDIN(path, /*IsText=*/false, /*RequiresNullTerminator=*/true, std::nullopt);
  if (std::error_code code = buffer.getError())
    return createFileError(path, code);
  StringRef content = (*buffer)->getBuffer();
  if (content.empty())
    return createStringError("'" + path + "': expected a program, got an empty file");
  auto ref = (*buffer)->getMemBufferRef();
  if (!mlir::isBytecode(ref) && content.take_front(4096).contains('\0'))
    return createStringError("'" + path + "': expected MLIR text or MLIR bytecode");
  return MemoryBuffer::getMemBufferCopy(content, (*buffer)->getBufferIdentifier());
}

static Error run(StringRef input, StringRef output, mlir::DialectRegistry &registry,
                 const mlir::MlirOptMainConfig &config) {
  Expected<std::unique_ptr<MemoryBuffer>> buffer = readInput(input);
  if (!buffer)
    return buffer.takeError();
  return commsched::writeWhole(output, [&](raw_ostream &os) -> Error {
    // The diagnostics have been printed at this point, so the error has no text.
    if (failed(mlir::MlirOptMain(os, std::move(*buffer), registry, config)))
      return make_error<StringError>("", inconvertibleErrorCode());
    return Error::success();
  });
}

static int optMain(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  commsched::registerAllDialects(registry);
  commsched::registerAllExtensions(registry);
  commsched::registerStablehloNames(registry);
  if (!commsched::asksForShortHelp(argc, argv))
    mlir::registerAllPasses();
  commsched::registerAllPasses();

  mlir::registerCLIOptions("CommSched's MLIR optimizer driver", registry);
  commsched::hideUncommonOptions();
  commsched::ReportFlags reportFlags(argc, argv);
  std::vector<char *> &arguments = reportFlags.arguments();
  // What the user wrote: ReportFlags adds options to pipelines.
  for (const char *argument : ArrayRef(argv, argc).drop_front())
    if (std::string wrong = commsched::checkPassArgument(argument); !wrong.empty()) {
      WithColor::error(errs(), "comm-opt") << wrong << "\n";
      return EXIT_FAILURE;
    }
  auto [input, output] = mlir::parseCLIOptions(arguments.size() - 1, arguments.data(), kOverview);

  if (Error error = joinErrors(reportFlags.readValues(), reportFlags.setMachine(registry))) {
    WithColor::error(errs(), "comm-opt") << toString(std::move(error)) << "\n";
    return EXIT_FAILURE;
  }

  mlir::MlirOptMainConfig config = mlir::MlirOptMainConfig::createFromCLOptions();
  reportFlags.apply(config);
  commsched::watchSearches(registry);
  if (config.shouldShowDialects() || config.shouldListPasses())
    return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, input, output, registry));

  int status = EXIT_SUCCESS;
  handleAllErrors(run(input, output, registry, config), [&](const ErrorInfoBase &error) {
    status = EXIT_FAILURE;
    if (std::string message = error.message(); !message.empty())
      WithColor::error(errs(), "comm-opt") << message << "\n";
  });
  return status;
}

int commschedOptMain(int argc, char **argv) { return commsched::runTool(argc, argv, optMain); }
