//===- RunTool.cpp - Frame of the command-line tools ------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// See RunTool.h.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Support/RunTool.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <csignal>
#include <cstdlib>

using namespace llvm;

static_assert(commsched::kClosedOutput == 128 + SIGPIPE);

/// Forgets that a reader went away. The streams' destructors report every error that is left, and abort.
static void forgetClosedReaders() {
  for (raw_fd_ostream *os : {&outs(), &errs()}) {
    os->flush();
    if (os->error() == std::errc::broken_pipe)
      os->clear_error();
  }
}

bool commsched::asksForShortHelp(int argc, char **argv) {
  return llvm::any_of(llvm::make_range(argv + 1, argv + argc),
                      [](StringRef arg) { return arg == "--help" || arg == "-help" || arg == "-h"; });
}

void commsched::hideInheritedOptions() {
  for (auto &[name, option] : cl::getRegisteredOptions())
    if (name != "help" && name != "version" && option->getOptionHiddenFlag() == cl::NotHidden)
      option->setHiddenFlag(cl::Hidden);
}

commsched::OwnOptions::OwnOptions(cl::OptionCategory &category,
                                  std::initializer_list<std::reference_wrapper<cl::Option>> positional)
    : category(category) {
  for (cl::Option &option : positional)
    options.push_back(&option);
  for (auto &[name, option] : cl::getRegisteredOptions())
    if (is_contained(option->Categories, &category))
      options.push_back(option);
  for (cl::Option *option : options)
    option->removeArgument();
}

void commsched::OwnOptions::offer() {
  for (cl::Option *option : options)
    option->addArgument();
  cl::HideUnrelatedOptions(category);
}

int commsched::runTool(int argc, char **argv, function_ref<int(int, char **)> work) {
  // LLVM's own handler of SIGPIPE ends the process.
  InitLLVM init(argc, argv, /*InstallPipeSignalExitHandler=*/false);
  // A handler, since children would inherit that the signal is ignored. A write then fails with EPIPE.
  std::signal(SIGPIPE, [](int) {});
  // The streams exist from here on, so the function runs before their destructors, also if `work` calls exit().
  outs();
  errs();
  cl::SetVersionPrinter([tool = sys::path::filename(argv[0]).str()](raw_ostream &os) {
    os << tool << ", CommSched " << COMMSCHED_VERSION << ", LLVM/MLIR " << LLVM_VERSION_STRING << "\n";
  });
  std::atexit(forgetClosedReaders);

  int code = work(argc, argv);
  outs().flush();
  return code == EXIT_SUCCESS && outs().error() == std::errc::broken_pipe ? kClosedOutput : code;
}
