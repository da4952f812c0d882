//===- PjrtCompile.cpp - Compile a scheduled module with its donations ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// See PjrtCompile.h. The wrapper replaces two entries of the plugin's table of functions, which jax calls through. XLA
// runs the passes of a compilation, and so the callback, on the thread that asked for it: what the two have to tell
// each other is in a variable of the thread. Nothing is compiled inside of the callback, where XLA may hold locks.
//
//===------------------------------------------------------------------------------------------===//

#include "PjrtCompile.h"
#include "Hlo/Reader/HloFields.h"
#include "Hlo/Reader/WireFormat.h"
#include "Hlo/Schedule/HloTemporaries.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include <mutex>

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

namespace {

/// CompileOptionsProto of xla/pjrt/proto/compile_options.proto, and ExecutableBuildOptionsProto in it.
namespace options_field {
enum : uint32_t { kArgumentLayouts = 1, kBuildOptions = 3, kOverrides = 7 };
} // namespace options_field
/// An entry of the map from flags to values, and a value that is true or false.
namespace override_field {
enum : uint32_t { kFlag = 1, kValue = 2, kBoolean = 2 };
} // namespace override_field
namespace build_field {
enum : uint32_t { kResultLayout = 2, kRunBackendOnly = 11 };
} // namespace build_field

/// The module in an HloModuleProtoWithConfig.
constexpr uint32_t kModuleOfConfig = 1;
constexpr char kHloFormat[] = "hlo";

/// The plugin whose compilations are wrapped, and its own functions. Written once, before they are.
struct Plugin {
  PjrtApi *api = nullptr;
  PjrtFunction clientCompile = nullptr;
  PjrtFunction compile = nullptr;
  CompilationSink sink = nullptr;
};
Plugin plugin;

thread_local PjrtCompilation *current = nullptr;

/// Makes a compilation the current one of this thread.
class Scope {
public:
  explicit Scope(PjrtCompilation &compilation) : outer(std::exchange(current, &compilation)) {}
  ~Scope() { current = outer; }
  Scope(const Scope &) = delete;
  Scope &operator=(const Scope &) = delete;

private:
  PjrtCompilation *outer;
};

void *call(PjrtIndex function, void *arguments) { return plugin.api->functions[function](arguments); }

void destroy(PjrtIndex function, void *object) {
  DestroyArguments arguments = {sizeof(DestroyArguments), nullptr, object};
  // PJRT_Error_Destroy returns nothing, and what else it cannot destroy stays where it is.
  call(function, &arguments);
}

/// The text of an error, which is destroyed.
std::string takeMessage(void *error) {
  ErrorMessageArguments arguments = {sizeof(ErrorMessageArguments), nullptr, error, {nullptr, 0}};
  call(kErrorMessage, &arguments);
  std::string text(arguments.message.data, arguments.message.size);
  destroy(kErrorDestroy, error);
  return StringRef(text).split('\n').first.str();
}

/// The module that an executable was compiled from, after all passes. Fails with XLA's message.
Expected<std::string> readOptimized(void *executable) {
  PjrtProgram program = {sizeof(PjrtProgram), nullptr, nullptr, 0, {nullptr, 0}};
  OptimizedProgramArguments arguments = {sizeof(OptimizedProgramArguments), nullptr, executable, &program};
  if (void *error = call(kExecutableOptimizedProgram, &arguments))
    return createStringError(takeMessage(error));
  std::string code(program.codeSize, 0);
  program.code = code.data();
  if (void *error = call(kExecutableOptimizedProgram, &arguments))
    return createStringError(takeMessage(error));
  return fieldOf(code, kModuleOfConfig).str();
}

Expected<std::string> optimizedModule(const CompileArguments &arguments) { return readOptimized(arguments.executable); }

Expected<std::string> optimizedModule(const ClientCompileArguments &arguments) {
  GetExecutableArguments get = {sizeof(GetExecutableArguments), nullptr, arguments.executable, nullptr};
  if (void *error = call(kLoadedExecutableGetExecutable, &get))
    return createStringError(takeMessage(error));
  Expected<std::string> module = readOptimized(get.executable);
  destroy(kExecutableDestroy, get.executable);
  return module;
}

/// Bytes of temporaries that XLA needs for an executable; none if the plugin does not say.
std::optional<int64_t> readTemporaries(void *executable) {
  MemoryStatsArguments arguments = {};
  arguments.structSize = sizeof(MemoryStatsArguments);
  arguments.executable = executable;
  if (void *error = call(kExecutableMemoryStats, &arguments)) {
    destroy(kErrorDestroy, error);
    return std::nullopt;
  }
  return arguments.temporaries;
}

std::optional<int64_t> temporariesOf(const CompileArguments &arguments) {
  return readTemporaries(arguments.executable);
}

std::optional<int64_t> temporariesOf(const ClientCompileArguments &arguments) {
  GetExecutableArguments get = {sizeof(GetExecutableArguments), nullptr, arguments.executable, nullptr};
  if (void *error = call(kLoadedExecutableGetExecutable, &get)) {
    destroy(kErrorDestroy, error);
    return std::nullopt;
  }
  std::optional<int64_t> temporaries = readTemporaries(get.executable);
  destroy(kExecutableDestroy, get.executable);
  return temporaries;
}

constexpr PjrtIndex destroyerOf(const CompileArguments &) { return kExecutableDestroy; }
constexpr PjrtIndex destroyerOf(const ClientCompileArguments &) { return kLoadedExecutableDestroy; }

/// Compiles a scheduled module for what `arguments` ask for. Returns why it could not; empty for success, with the
/// executable in `arguments`.
template <typename Arguments>
std::string compileBackend(Arguments &arguments, PjrtFunction original, std::string &module) {
  std::string options = backendOptions(StringRef(arguments.options.data, arguments.options.size), module);
  PjrtProgram program = {
      sizeof(PjrtProgram), nullptr, module.data(), module.size(), {kHloFormat, sizeof(kHloFormat) - 1}};
  Arguments again = arguments;
  again.structSize = sizeof(Arguments);
  again.program = &program;
  again.options = {options.data(), options.size()};
  again.executable = nullptr;
  if (void *error = original(&again))
    return takeMessage(error);
  Expected<std::string> compiled = optimizedModule(again);
  std::string lost = compiled ? findLoss(module, *compiled) : toString(compiled.takeError());
  if (lost.empty())
    arguments.executable = again.executable;
  else
    destroy(destroyerOf(arguments), again.executable);
  return lost;
}

/// Runs XLA's passes once for each way to compile loops. The callback ends every one of these compilations, with an
/// answer. A way that this version of XLA does not know has none.
template <typename Arguments>
void tryLoops(const Arguments &arguments, PjrtFunction original, PjrtCompilation &compilation) {
  compilation.mayPipeline = false;
  StringRef given(arguments.options.data, arguments.options.size);
  for (auto [way, flags] : enumerate(loopFlags())) {
    compilation.way = static_cast<int32_t>(way);
    std::string options = withFlags(given, flags);
    Arguments again = arguments;
    again.structSize = sizeof(Arguments);
    again.options = {options.data(), options.size()};
    again.executable = nullptr;
    if (void *error = original(&again))
      destroy(kErrorDestroy, error);
    else
      destroy(destroyerOf(arguments), again.executable);
  }
}

/// Makes the fastest answer that is left the module that the backend compiles.
void takeFastest(PjrtCompilation &compilation) {
  auto fastest = min_element(compilation.answers, [](const LoopAnswer &a, const LoopAnswer &b) {
    return std::tuple(a.makespan, a.way) < std::tuple(b.makespan, b.way);
  });
  compilation.module = std::move(fastest->module);
  compilation.report = std::move(fastest->report);
  compilation.answers.erase(fastest);
}

/// Compiles the module of a compilation that has been ended. If that fails, the program stays as it is, with the
/// reason. Returns XLA's error.
template <typename Arguments>
void *compileDecided(Arguments &arguments, PjrtFunction original, PjrtCompilation &compilation) {
  std::string lost = compileBackend(arguments, original, compilation.module);
  if (lost.empty())
    return nullptr;
  compilation.keepReason = "XLA's backend could not compile it by itself: " + lost;
  return original(&arguments);
}

/// Compiles a program, and its scheduled module by the backend if the callback asks for that. Returns XLA's error.
template <typename Arguments>
void *compileOnce(Arguments &arguments, PjrtFunction original, PjrtCompilation &compilation) {
  void *error = original(&arguments);
  if (!compilation.answers.empty()) {
    if (error)
      tryLoops(arguments, original, compilation);
    takeFastest(compilation);
  }
  if (compilation.module.empty())
    return error;
  compilation.isDecided = true;
  if (!error) {
    compilation.keepReason = "XLA did not stop the compilation when it was asked to";
    return nullptr;
  }
  destroy(kErrorDestroy, error);
  return compileDecided(arguments, original, compilation);
}

std::string describeExcess(const PjrtCompilation &compilation) {
  return formatv("XLA needs {0} bytes for the temporaries of a faster order, and {1} for those of one with less "
                 "memory; the limit is {2}",
                 compilation.temporaries[0], compilation.temporaries[1], *compilation.limit);
}

/// Returns true if an order with less memory than the limit may be found: the limit did not bind, so nobody has looked
/// for one yet.
bool maySqueeze(const PjrtCompilation &compilation) {
  const json::Object *peak = compilation.report.getObject("peak_bytes");
  return compilation.temporaries.size() < 2 && peak &&
         peak->getInteger("before").value_or(0) <= peak->getInteger("limit").value_or(0);
}

/// Compiles again while XLA needs more for temporaries than the user's limit: once with less memory for the search, and
/// then in XLA's own order. Returns XLA's error.
template <typename Arguments>
void *keepLimit(Arguments &arguments, PjrtFunction original, PjrtCompilation &compilation) {
  while (compilation.limit && compilation.keepReason.empty()) {
    std::optional<int64_t> needed = temporariesOf(arguments);
    if (!needed)
      return nullptr;
    if (*needed > *compilation.limit && !compilation.answers.empty()) {
      // Another way to compile the loops may need less.
      destroy(destroyerOf(arguments), std::exchange(arguments.executable, nullptr));
      takeFastest(compilation);
      if (void *error = compileDecided(arguments, original, compilation))
        return error;
      continue;
    }
    compilation.temporaries.push_back(*needed);
    if (*needed <= *compilation.limit)
      return nullptr;
    if (compilation.isOwnOrder && !maySqueeze(compilation)) {
      compilation.keepReason =
          formatv("{0}; XLA's own needs {1} bytes for temporaries, and the limit is {2}",
                  compilation.report.getString("kept_because").value_or(""), *needed, *compilation.limit);
      return nullptr;
    }
    destroy(destroyerOf(arguments), std::exchange(arguments.executable, nullptr));
    if (compilation.temporaries.size() == 2) {
      compilation.isDecided = true;
      compilation.keepReason = describeExcess(compilation);
      void *error = original(&arguments);
      if (std::optional<int64_t> own = error ? std::nullopt : temporariesOf(arguments))
        compilation.keepReason += formatv("; XLA's own order needs {0}", *own);
      return error;
    }
    PjrtCompilation again;
    again.mayPipeline = false;
    again.temporaries = compilation.temporaries;
    again.squeezePpm = squeezeFor(*needed - *compilation.limit, *compilation.limit);
    compilation = std::move(again);
    if (void *error = compileOnce(arguments, original, compilation))
      return error;
  }
  return nullptr;
}

template <typename Arguments> void *compile(void *opaque, PjrtFunction original) {
  auto &arguments = *static_cast<Arguments *>(opaque);
  if (arguments.structSize < sizeof(Arguments))
    return original(opaque);
  PjrtCompilation compilation;
  Scope scope(compilation);
  void *error = compileOnce(arguments, original, compilation);
  if (!error)
    error = keepLimit(arguments, original, compilation);
  if (!compilation.report.empty())
    plugin.sink(std::move(compilation));
  return error;
}

void *wrappedClientCompile(void *arguments) { return compile<ClientCompileArguments>(arguments, plugin.clientCompile); }

void *wrappedCompile(void *arguments) { return compile<CompileArguments>(arguments, plugin.compile); }

/// Returns true if this process may write `size` bytes at `begin`: the table may lie in memory that is read only.
bool isWritable(const void *begin, size_t size) {
  ErrorOr<std::unique_ptr<MemoryBuffer>> maps = MemoryBuffer::getFileAsStream("/proc/self/maps");
  if (!maps)
    return false;
  uint64_t first = reinterpret_cast<uintptr_t>(begin), end = first + size;
  SmallVector<StringRef, 0> lines;
  (*maps)->getBuffer().split(lines, '\n', -1, false);
  for (StringRef line : lines) {
    uint64_t low = 0, high = 0;
    if (line.consumeInteger(16, low) || !line.consume_front("-") || line.consumeInteger(16, high))
      continue;
    if (low <= first && end <= high)
      return line.starts_with(" rw");
  }
  return false;
}

/// Replaces an entry of the table while other threads may read it.
PjrtFunction exchange(PjrtFunction &entry, PjrtFunction function) {
  return __atomic_exchange_n(&entry, function, __ATOMIC_ACQ_REL);
}

} // namespace

PjrtCompilation *commsched::hlo::currentCompilation() { return current; }

bool commsched::hlo::canWrap(const PjrtApi *api) {
  return api->structSize >= sizeof(PjrtApi) && api->version.major == 0 && isWritable(api, sizeof(PjrtApi));
}

bool commsched::hlo::wrapCompilations(PjrtApi *api, CompilationSink sink) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  if (plugin.api)
    return plugin.api == api;
  if (!canWrap(api))
    return false;
  plugin = {api, api->functions[kClientCompile], api->functions[kCompile], sink};
  exchange(api->functions[kClientCompile], wrappedClientCompile);
  exchange(api->functions[kCompile], wrappedCompile);
  return true;
}

ArrayRef<std::vector<StringRef>> commsched::hlo::loopFlags() {
  constexpr StringLiteral kGathers = "xla_gpu_enable_pipelined_all_gather";
  constexpr StringLiteral kScatters = "xla_gpu_enable_pipelined_reduce_scatter";
  constexpr StringLiteral kReductions = "xla_gpu_enable_pipelined_all_reduce";
  constexpr StringLiteral kDoubling = "xla_gpu_enable_while_loop_double_buffering";
  static const std::vector<StringRef> ways[] = {{kGathers, kScatters, kReductions},
                                                {kGathers, kScatters, kReductions, kDoubling}};
  return ways;
}

std::string commsched::hlo::withFlags(StringRef options, ArrayRef<StringRef> flags) {
  std::string result = options.str();
  for (StringRef flag : flags) {
    std::string value, entry;
    writeInteger(override_field::kBoolean, 1, value);
    writeBytes(override_field::kFlag, flag, entry);
    writeBytes(override_field::kValue, value, entry);
    writeBytes(options_field::kOverrides, entry, result);
  }
  return result;
}

std::string commsched::hlo::backendOptions(StringRef options, StringRef module) {
  StringRef program = fieldOf(module, module_field::kHostProgramShape);
  std::string build = withoutFields(fieldOf(options, options_field::kBuildOptions),
                                    {build_field::kResultLayout, build_field::kRunBackendOnly});
  if (!program.empty())
    writeBytes(build_field::kResultLayout, fieldOf(program, program_field::kResult), build);
  writeInteger(build_field::kRunBackendOnly, 1, build);
  std::string result = withoutFields(options, {options_field::kArgumentLayouts, options_field::kBuildOptions});
  WireReader reader(program);
  WireField field;
  while (reader.next(field))
    if (field.number == program_field::kParameters)
      writeBytes(options_field::kArgumentLayouts, field.bytes, result);
  writeBytes(options_field::kBuildOptions, build, result);
  return result;
}

std::string commsched::hlo::findLoss(StringRef module, StringRef compiled) {
  if (fieldOf(module, module_field::kInputOutputAlias) != fieldOf(compiled, module_field::kInputOutputAlias) ||
      fieldOf(module, module_field::kBufferDonor) != fieldOf(compiled, module_field::kBufferDonor))
    return "XLA did not keep its donations";
  auto shapesOf = [](StringRef bytes) {
    return withoutFields(fieldOf(bytes, module_field::kHostProgramShape), {program_field::kParameterNames});
  };
  if (shapesOf(module) != shapesOf(compiled))
    return "XLA did not keep the layouts of its parameters and results";
  return "";
}
