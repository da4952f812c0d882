//===- MutationTest.cpp - Looks for crashes on damaged programs ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------===//
//
// MutationTest COUNT WORKDIR FOLDER...: takes the .mlir files under the folders, and does to each of COUNT mutations,
// spread over the programs in them, what comm-opt does: parse, verify, run passes, print. A mutation that is refused
// with a diagnostic is fine, and so is one that passes; a crash, a sanitizer's report, a hang, or a failure without a
// diagnostic is not. The work is done in a child process, which the parent restarts behind a mutation that killed it,
// after writing that one to WORKDIR.
//
//===------------------------------------------------------------------------------------===//

#include "CommSched/InitAll.h"
#include "Mutator.h"

#include "mlir/Bytecode/BytecodeWriter.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include <csignal>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace mlir;

namespace {

/// A hang is a fault too.
constexpr unsigned secondsPerMutation = 30;
/// A context keeps every type and attribute that it has seen; a fresh one now and then keeps memory flat.
constexpr size_t mutationsPerContext = 100;

/// What runs over a mutation that parses. Each alone, so that one that fails does not hide the next.
constexpr StringRef pipelines[] = {
    "canonicalize",
    "cse,symbol-dce",
    "comm-verify",
    "reorder-comm-overlap{effort=0}",
    "comm-remove-unsharded-param-usage,comm-reinplace-all-gather,comm-bucket{mixed-types}",
    "comm-bucket{form=coalesced fsdp-only}"};

/// What the child tells the parent, in shared memory.
struct Progress {
  size_t next = 0;
  size_t parsed = 0;
  /// Diagnostics by which a pass says that it is wrong itself.
  size_t defects = 0;
  size_t silent = 0; // Failures without a diagnostic.
};

struct Program {
  std::string name;
  std::string text;
};

/// The programs of every .mlir file below `folder`, split where -split-input-file splits, in the order of their paths.
void collect(StringRef folder, std::vector<Program> &programs) {
  std::vector<std::string> paths;
  std::error_code code;
  for (llvm::sys::fs::recursive_directory_iterator it(folder, code), end; it != end && !code; it.increment(code))
    if (llvm::sys::path::extension(it->path()) == ".mlir")
      paths.push_back(it->path());
  llvm::sort(paths);
  for (const std::string &path : paths) {
    auto buffer = llvm::MemoryBuffer::getFile(path);
    if (!buffer || (*buffer)->getBufferSize() > (1 << 16))
      continue;
    SmallVector<StringRef> parts;
    (*buffer)->getBuffer().split(parts, "// -----");
    for (auto [i, part] : llvm::enumerate(parts))
      if (!part.trim().empty())
        programs.push_back({(path + "#" + Twine(i)).str(), part.str()});
  }
}

/// Every eighth mutation cuts short the bytecode of a program instead of damaging its text, if it parses.
std::string makeMutation(const std::vector<Program> &programs, MLIRContext *context, size_t index) {
  const Program &program = programs[index % programs.size()];
  size_t round = index / programs.size();
  if (context && index % 8 == 7) {
    ScopedDiagnosticHandler quiet(context, [](Diagnostic &) { return success(); });
    ParserConfig config(context);
    if (OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(program.text, config)) {
      std::string bytes;
      llvm::raw_string_ostream os(bytes);
      if (succeeded(writeBytecodeToFile(*module, os)))
        return commsched::test::truncateBytes(bytes, round * 7919 + index);
    }
  }
  return commsched::test::mutateText(program.text, round * 7919 + index);
}

/// What comm-opt would do with `input`.
void tryOne(MLIRContext &context, StringRef input, Progress &progress) {
  bool diagnosed = false;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    diagnosed |= diagnostic.getSeverity() == DiagnosticSeverity::Error;
    std::string text = diagnostic.str();
    if (StringRef(text).contains("please report this")) {
      ++progress.defects;
      llvm::outs() << "mutation " << progress.next << ": " << text << "\n";
      llvm::outs().flush();
    }
    return success();
  });
  ParserConfig config(&context);
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(input, config);
  if (!module) {
    progress.silent += !diagnosed;
    return;
  }
  ++progress.parsed;
  for (StringRef pipeline : pipelines) {
    diagnosed = false;
    OwningOpRef<ModuleOp> copy = module->clone();
    PassManager manager(&context);
    if (failed(parsePassPipeline(pipeline, manager, llvm::nulls())))
      std::_Exit(EXIT_FAILURE);
    if (failed(manager.run(*copy)))
      progress.silent += !diagnosed;
    std::string text;
    llvm::raw_string_ostream os(text);
    copy->print(os);
  }
}

void runChild(const std::vector<Program> &programs, const DialectRegistry &registry, size_t count, Progress &progress) {
  while (progress.next < count) {
    MLIRContext context(registry, MLIRContext::Threading::DISABLED);
    for (size_t i = 0; i < mutationsPerContext && progress.next < count; ++i, ++progress.next) {
      std::string input = makeMutation(programs, &context, progress.next);
      alarm(secondsPerMutation);
      tryOne(context, input, progress);
      alarm(0);
    }
  }
}

/// Writes the mutation that killed the child, for a person to look at.
void report(const std::vector<Program> &programs, const DialectRegistry &registry, size_t index, int status,
            StringRef folder) {
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  std::string path = (folder + "/crash-" + Twine(index) + ".mlir").str();
  std::error_code code;
  llvm::raw_fd_ostream(path, code) << makeMutation(programs, &context, index);
  llvm::outs() << "mutation " << index << " of " << programs[index % programs.size()].name << ": "
               << (WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "died") << "; see " << path << "\n";
}

} // namespace

int main(int argc, char **argv) {
  size_t count = 0;
  if (argc < 4 || StringRef(argv[1]).getAsInteger(10, count)) {
    llvm::errs() << "usage: MutationTest COUNT WORKDIR FOLDER...\n";
    return EXIT_FAILURE;
  }
  std::vector<Program> programs;
  for (int i = 3; i < argc; ++i)
    collect(argv[i], programs);
  if (programs.empty()) {
    llvm::errs() << "no .mlir files found\n";
    return EXIT_FAILURE;
  }

  DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  commsched::registerAllDialects(registry);
  commsched::registerAllExtensions(registry);
  mlir::registerTransformsPasses();
  commsched::registerAllPasses();

  auto *progress =
      new (mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Progress;
  size_t crashes = 0;
  while (progress->next < count) {
    llvm::outs().flush();
    pid_t child = fork();
    if (child == 0) {
      runChild(programs, registry, count, *progress);
      _exit(EXIT_SUCCESS);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS)
      break;
    ++crashes;
    report(programs, registry, progress->next++, status, argv[2]);
  }
  llvm::outs() << count << " mutations of " << programs.size() << " programs: " << progress->parsed << " still parsed, "
               << crashes << " crashes, " << progress->silent << " failures without a diagnostic, " << progress->defects
               << " results that a pass itself finds wrong\n";
  return crashes || progress->silent || progress->defects ? EXIT_FAILURE : EXIT_SUCCESS;
}
