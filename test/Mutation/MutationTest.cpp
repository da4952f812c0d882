//===- MutationTest.cpp - Looks for crashes on damaged programs -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// MutationTest COUNT WORKDIR FOLDER...: takes the .mlir files under the folders, and does to each of COUNT mutations,
// spread over the programs in them, what comm-opt does: parse, verify, run passes, print. A mutation that is refused
// with a diagnostic is fine, and so is one that passes; a crash, a sanitizer's report, a hang, or a failure without a
// diagnostic is not. Some are also compiled as comm-run does, and each comes with a damaged .npy file and fault
// specification, which comm-run reads. The work is done in a child process, which the parent restarts behind a mutation
// that killed it, after writing that one to WORKDIR.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Execution/HostValue.h"
#include "CommSched/Execution/Program.h"
#include "CommSched/InitAll.h"
#include "CommSched/Runtime/Runtime.h"
#include "Mutator.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Bytecode/BytecodeWriter.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Regex.h"
#include "llvm/Support/TargetSelect.h"
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

/// comm-run compiles every so manieth mutation that parses: that takes longer than all passes.
constexpr size_t mutationsPerCompilation = 16;
/// A fault specification as comm-run takes it, to be damaged.
constexpr StringRef faultText = "delay@3:rank=1:ms=5";

/// What runs over a mutation that parses. Each alone, so that one that fails does not hide the next.
constexpr StringRef pipelines[] = {
    "canonicalize",
    "cse,symbol-dce",
    "comm-verify",
    "reorder-comm-overlap{effort=0}",
    "comm-remove-unsharded-param-usage,comm-reinplace-all-gather,comm-bucket{mixed-types}",
    "comm-bucket{form=coalesced fsdp-only}",
    "comm-lower-to-runtime"};

/// What the child tells the parent, in shared memory.
struct Progress {
  size_t next = 0;
  size_t parsed = 0;
  /// Diagnostics by which a pass says that it is wrong itself.
  size_t defects = 0;
  size_t silent = 0; // Failures without a diagnostic.
  /// Mutations that only MLIR itself would see, and not survive.
  size_t passedOver = 0;
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

/// Whether MLIR's own parser or printer (22) dies of `input`. The parser of linalg's reduce, broadcast and transpose
/// takes a list of dimensions that cannot be read for one that is there, and that of dense arrays asks `index` for its
/// width. A list of sizes holds the least number for each one that a value gives, and the printer takes any for such.
bool killsMlir(StringRef input) {
  static const llvm::Regex arrayOfIndex("array *< *index"), leastInList("\\[[^]]*-9223372036854775808");
  if (arrayOfIndex.match(input) || leastInList.match(input))
    return true;
  static const llvm::Regex list("^(array<|\\[ *(-?[0-9]+ *(, *-?[0-9]+ *)*)?\\])");
  for (StringRef name : {"dimensions", "permutation"})
    for (size_t at = input.find(name); at != StringRef::npos; at = input.find(name, at + 1)) {
      StringRef rest = input.drop_front(at + name.size()).ltrim();
      if (rest.consume_front("=") && !list.match(rest.ltrim()))
        return true;
    }
  return false;
}

/// What comm-opt would do with `input`.
void tryOne(MLIRContext &context, StringRef input, Progress &progress) {
  if (killsMlir(input)) {
    ++progress.passedOver;
    return;
  }
  bool diagnosed = false;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    diagnosed |= diagnostic.getSeverity() == DiagnosticSeverity::Error;
    std::string text = diagnostic.str();
    if (StringRef(text).contains("please report this")) {
      ++progress.defects;
      llvm::outs() << "mutation " << progress.next << ": " << text << "; the program:\n" << input << "\n";
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

/// What comm-run would do with `input`, short of calling it: that is native code, which may do anything.
void compileOne(MLIRContext &context, StringRef input) {
  // Its diagnostics are printed; nobody wants to read them.
  ScopedDiagnosticHandler quiet(&context, [](Diagnostic &) { return success(); });
  llvm::consumeError(commsched::Program::load(context, {"mutation", input.str()}, {}).takeError());
}

/// A damaged .npy file for a value of some type and size; the value is read whole or not at all.
void readDamagedFile(MLIRContext &context, StringRef path, uint64_t seed) {
  static constexpr StringRef types[] = {"tensor<?x3xf32>", "memref<2x?xi8>", "tensor<4xbf16>",  "tensor<i64>",     "i1",
                                        "tensor<4xi128>",  "vector<4xf32>",  "tensor<0x?xf16>", "memref<3xf32, 1>"};
  static constexpr int64_t sizes[] = {0, 1, 5, 4294967296, 9223372036854775807};
  std::mt19937_64 random(seed);
  Type type = parseType(types[random() % std::size(types)], &context);
  llvm::Expected<commsched::HostValue> value = commsched::HostValue::ofType(type, sizes[random() % std::size(sizes)]);
  if (!value)
    return llvm::consumeError(value.takeError());
  commsched::HostValue small = value->like();
  for (auto [size, isDynamic] : llvm::zip_equal(small.shape, small.isDynamic))
    size = isDynamic ? 2 : size;
  llvm::cantFail(small.allocate());
  small.fill(seed, 0, 0);
  llvm::cantFail(commsched::writeNpy(path, small));
  auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  std::string bytes = (*file)->getBuffer().str();
  if (random() % 4 == 0)
    bytes.resize(random() % bytes.size());
  static constexpr char characters[] = "0123456789(), :\xff\0'{}<>";
  for (size_t i = 0, count = random() % 4; i < count && !bytes.empty(); ++i)
    bytes[random() % std::min<size_t>(bytes.size(), 128)] = characters[random() % (sizeof(characters) - 1)];
  std::error_code code;
  llvm::raw_fd_ostream(path, code) << bytes;
  if (llvm::Error error = readNpy(path, *value))
    return llvm::consumeError(std::move(error));
  if (value->bytes.size() != value->byteSize())
    std::abort();
  for (int64_t i = 0; i < std::min<int64_t>(4, value->elements()); ++i)
    (void)value->elementText(i);
}

void openDamagedJob(uint64_t seed) {
  std::string fault = commsched::test::mutateText(faultText, seed);
  std::mt19937_64 random(seed);
  commrt_options options;
  commrt_options_init(&options);
  options.ranks = static_cast<int32_t>(random() % 4) - 1;
  options.timeout_ns = static_cast<int64_t>(random());
  options.fault = fault.c_str();
  commrt_job *job = nullptr;
  char message[256];
  if (commrt_job_create(&options, &job, message, sizeof(message)) == COMMRT_OK)
    commrt_job_destroy(job);
}

void runChild(const std::vector<Program> &programs, const DialectRegistry &registry, size_t count, StringRef folder,
              Progress &progress) {
  std::string damaged = (folder + "/mutation.npy").str();
  while (progress.next < count) {
    MLIRContext context(registry, MLIRContext::Threading::DISABLED);
    for (size_t i = 0; i < mutationsPerContext && progress.next < count; ++i, ++progress.next) {
      std::string input = makeMutation(programs, &context, progress.next);
      alarm(secondsPerMutation);
      size_t parsed = progress.parsed;
      tryOne(context, input, progress);
      if (progress.parsed > parsed && progress.parsed % mutationsPerCompilation == 0)
        compileOne(context, input);
      readDamagedFile(context, damaged, progress.next);
      openDamagedJob(progress.next);
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
  mlir::registerAllToLLVMIRTranslations(registry);
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  mlir::registerTransformsPasses();
  commsched::registerAllPasses();

  auto *progress =
      new (mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Progress;
  size_t crashes = 0;
  while (progress->next < count) {
    llvm::outs().flush();
    pid_t child = fork();
    if (child == 0) {
      runChild(programs, registry, count, argv[2], *progress);
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
               << " results that a pass itself finds wrong; " << progress->passedOver
               << " left out, of which MLIR itself dies\n";
  return crashes || progress->silent || progress->defects ? EXIT_FAILURE : EXIT_SUCCESS;
}
