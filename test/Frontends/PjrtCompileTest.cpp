//===- PjrtCompileTest.cpp - Compile a scheduled module with its donations --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A plugin of our own stands in for XLA's. It calls back once per compilation, forgets the donations of a module that
// comes back, keeps those of a module that it is given, and can be told to fail. The layouts and the positions in the
// table of functions are written here a second time, from PJRT's header.
//
//===------------------------------------------------------------------------------------------===//

#include "Hlo/Pjrt/PjrtCompile.h"
#include "CommSched/Frontends/Hlo/Pjrt/PjrtTransform.h"
#include "FakePjrt.h"
#include "Hlo/Reader/HloFields.h"
#include "Hlo/Reader/WireFormat.h"
#include "HloTestSupport.h"
#include "llvm/Support/FormatVariadic.h"
#include "gtest/gtest.h"
#include <memory>
#include <thread>

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;
using namespace commsched::hlo::test;

namespace {

//===- A plugin -------------------------------------------------------------------------------===//

extern "C" {
struct FakeProgram {
  size_t struct_size;
  void *extension_start;
  char *code;
  size_t code_size;
  PjrtText format;
};
struct FakeClientCompile {
  size_t struct_size;
  void *extension_start;
  void *client;
  const FakeProgram *program;
  PjrtText options;
  void *executable;
};
struct FakeCompile {
  size_t struct_size;
  void *extension_start;
  const void *topology;
  const FakeProgram *program;
  PjrtText options;
  void *client;
  void *executable;
};
struct FakeObject {
  size_t struct_size;
  void *extension_start;
  void *object;
  PjrtText message;
};
struct FakeGetExecutable {
  size_t struct_size;
  void *extension_start;
  void *loaded;
  void *executable;
};
struct FakeMemoryStats {
  size_t struct_size;
  void *extension_start;
  void *executable;
  int64_t generated_code_size_in_bytes;
  int64_t argument_size_in_bytes;
  int64_t output_size_in_bytes;
  int64_t alias_size_in_bytes;
  int64_t temp_size_in_bytes;
  int64_t host[5];
  int64_t peak_memory_in_bytes;
  int64_t total_size_in_bytes;
};
struct FakeOptimized {
  size_t struct_size;
  void *extension_start;
  void *executable;
  FakeProgram *program;
};
struct FakeApi {
  size_t struct_size;
  PjrtTransformExtension *extension_start;
  size_t version_size;
  void *version_extension;
  int major, minor;
  void *(*functions[138])(void *);
};
}

/// The result of a compilation: the module as XLA optimized it.
struct Executable {
  std::string module;
  std::string options;
};

/// Instructions for the plugin, and its observations.
struct Behaviour {
  bool isBackendBroken = false;
  bool backendForgets = false;
  bool callsFromAnotherThread = false;
  bool goesOn = false;
  /// What XLA's passes make of a program if they pipeline loops; empty: they do not know the flags.
  std::string pipelined;
  /// By call: bytes of temporaries. An error once it is empty.
  std::vector<int64_t> temporaries;
  std::vector<std::string> formats;
  int errors = 0, executables = 0, loaded = 0;
} behaviour;

PjrtTransformCallbacks *callbacks = nullptr;

void *fail(StringRef message) {
  ++behaviour.errors;
  return new std::string(message);
}

void *errorDestroy(void *opaque) {
  --behaviour.errors;
  delete static_cast<std::string *>(static_cast<FakeObject *>(opaque)->object);
  return nullptr;
}

void *errorMessage(void *opaque) {
  auto *arguments = static_cast<FakeObject *>(opaque);
  auto *text = static_cast<std::string *>(arguments->object);
  arguments->message = {text->data(), text->size()};
  return nullptr;
}

/// Returns true if the options set a flag of XLA's.
bool hasFlags(StringRef options) { return !fieldOf(options, 7).empty(); }

/// XLA's passes and its backend. Returns an error; otherwise the executable is in `executable`.
void *runXla(const FakeProgram &program, PjrtText options, void *&executable) {
  StringRef format(program.format.data, program.format.size);
  behaviour.formats.push_back(format.str());
  bool backendOnly = format == "hlo";
  EXPECT_EQ(fieldOf(fieldOf(StringRef(options.data, options.size), 3), 11).empty(), true);
  std::string code(program.code, program.code_size);
  if (hasFlags(StringRef(options.data, options.size))) {
    if (behaviour.pipelined.empty())
      return fail("INVALID_ARGUMENT: No such compile option");
    code = behaviour.pipelined;
  }
  if (backendOnly && behaviour.isBackendBroken)
    return fail("RESOURCE_EXHAUSTED: no registers\nand a second line");
  PjrtTransformArguments arguments = {};
  arguments.struct_size = 89;
  arguments.api_version = 1;
  arguments.hlo_module = {code.data(), code.size()};
  auto callBack = [&] { callbacks->transform_hlo_module(callbacks, &arguments); };
  if (behaviour.callsFromAnotherThread)
    std::thread(callBack).join();
  else
    callBack();
  if (arguments.has_error && !behaviour.goesOn)
    return fail(StringRef(arguments.error_msg.data, arguments.error_msg.size));
  std::string module = code;
  if (arguments.changed)
    module =
        withoutFields(StringRef(arguments.transformed_hlo_module.data, arguments.transformed_hlo_module.size), {8, 18});
  else if (backendOnly && behaviour.backendForgets)
    module = withoutFields(module, {8});
  if (arguments.cleanup_fn)
    arguments.cleanup_fn(arguments.data);
  executable = new Executable{module, std::string(options.data, options.size)};
  return nullptr;
}

void *clientCompile(void *opaque) {
  auto *arguments = static_cast<FakeClientCompile *>(opaque);
  void *error = runXla(*arguments->program, arguments->options, arguments->executable);
  behaviour.loaded += !error;
  return error;
}

void *compileOnly(void *opaque) {
  auto *arguments = static_cast<FakeCompile *>(opaque);
  void *error = runXla(*arguments->program, arguments->options, arguments->executable);
  behaviour.executables += !error;
  return error;
}

void *executableDestroy(void *opaque) {
  --behaviour.executables;
  delete static_cast<Executable *>(static_cast<FakeObject *>(opaque)->object);
  return nullptr;
}

void *loadedDestroy(void *opaque) {
  --behaviour.loaded;
  delete static_cast<Executable *>(static_cast<FakeObject *>(opaque)->object);
  return nullptr;
}

void *getExecutable(void *opaque) {
  auto *arguments = static_cast<FakeGetExecutable *>(opaque);
  ++behaviour.executables;
  arguments->executable = new Executable(*static_cast<Executable *>(arguments->loaded));
  return nullptr;
}

void *optimizedProgram(void *opaque) {
  auto *arguments = static_cast<FakeOptimized *>(opaque);
  std::string code;
  writeBytes(1, static_cast<Executable *>(arguments->executable)->module, code);
  if (arguments->program->code)
    memcpy(arguments->program->code, code.data(), code.size());
  arguments->program->code_size = code.size();
  return nullptr;
}

void *memoryStats(void *opaque) {
  auto *arguments = static_cast<FakeMemoryStats *>(opaque);
  EXPECT_GE(arguments->struct_size, sizeof(FakeMemoryStats));
  if (behaviour.temporaries.empty())
    return fail("UNIMPLEMENTED");
  arguments->temp_size_in_bytes = behaviour.temporaries.front();
  behaviour.temporaries.erase(behaviour.temporaries.begin());
  return nullptr;
}

void *takeRegistration(void *opaque) {
  callbacks = static_cast<PjrtTransformRegistration *>(opaque)->callbacks;
  return nullptr;
}

PjrtTransformExtension extension = {sizeof(PjrtTransformExtension), kPjrtTransformExtension, nullptr, takeRegistration,
                                    nullptr};

/// The plugin's table, with CommSched installed. One per process, as in XLA's plugin.
FakeApi &api() {
  static FakeApi *table = [] {
    auto *made = new FakeApi{sizeof(FakeApi), &extension, 24, nullptr, 0, 112, {}};
    made->functions[0] = errorDestroy;
    made->functions[1] = errorMessage;
    made->functions[20] = clientCompile;
    made->functions[40] = executableDestroy;
    made->functions[48] = optimizedProgram;
    made->functions[50] = loadedDestroy;
    made->functions[51] = getExecutable;
    made->functions[89] = compileOnly;
    made->functions[96] = memoryStats;
    cantFail(installTransform(made));
    return made;
  }();
  return *table;
}

//===- A program that uses it -----------------------------------------------------------------===//

/// Compiles a module as jax does, and destroys what it got.
template <typename Arguments> Executable compileAs(size_t function, size_t destroyer, std::string module) {
  FakeProgram program = {sizeof(FakeProgram), nullptr, module.data(), module.size(), {"mlir", 4}};
  std::string options;
  writeInteger(2, 1, options);
  Arguments arguments = {};
  arguments.struct_size = sizeof(Arguments);
  arguments.program = &program;
  arguments.options = {options.data(), options.size()};
  if (void *error = api().functions[function](&arguments)) {
    ADD_FAILURE() << *static_cast<std::string *>(error);
    FakeObject object = {sizeof(FakeObject), nullptr, error, {}};
    errorDestroy(&object);
    return {};
  }
  Executable result = *static_cast<Executable *>(arguments.executable);
  FakeObject object = {24, nullptr, arguments.executable, {}};
  api().functions[destroyer](&object);
  return result;
}

Executable compile(const std::string &module) { return compileAs<FakeCompile>(89, 40, module); }
Executable compileForClient(const std::string &module) { return compileAs<FakeClientCompile>(20, 50, module); }

/// Sets options and behaviour; checks in the end that nothing is left over.
class PjrtCompile : public ::testing::Test {
protected:
  void SetUp() override {
    behaviour = {};
    api();
    takeTransformReports();
    setTransformOptions(cantFail(parseTransformOptions("{}")));
  }
  void TearDown() override {
    setTransformOptions(std::nullopt);
    EXPECT_EQ(behaviour.errors, 0);
    EXPECT_EQ(behaviour.executables, 0);
    EXPECT_EQ(behaviour.loaded, 0);
  }
  /// The only report since the last call.
  static json::Object takeReport() {
    std::vector<json::Object> reports = takeTransformReports();
    EXPECT_EQ(reports.size(), 1u);
    return reports.empty() ? json::Object() : std::move(reports[0]);
  }
  std::string module = test::readInput("small-moe.pb");
  /// The same with the shapes of its program (field 4): parameters, the result, and names.
  std::string shaped = [&] {
    std::string program, whole = module;
    for (StringRef parameter : {"first", "second"})
      writeBytes(1, parameter, program);
    writeBytes(2, "result", program);
    writeBytes(3, "name", program);
    writeBytes(4, program, whole);
    return whole;
  }();
  std::string scheduled = transformModule(module, cantFail(parseTransformOptions("{}"))).module;
};

using Formats = std::vector<std::string>;

} // namespace

// Tests that the caller gets the scheduled module with its donations, compiled by the backend, for paper and for
// devices.
TEST_F(PjrtCompile, KeepsDonations) {
  ASSERT_FALSE(scheduled.empty());
  for (auto run : {compile, compileForClient}) {
    behaviour.formats.clear();
    Executable executable = run(module);
    EXPECT_TRUE(executable.module == scheduled);
    EXPECT_FALSE(fieldOf(executable.module, module_field::kInputOutputAlias).empty());
    EXPECT_EQ(executable.options, backendOptions(StringRef("\x10\x01", 2), scheduled));
    EXPECT_EQ(behaviour.formats, (Formats{"mlir", "hlo"}));
    json::Object report = takeReport();
    EXPECT_EQ(report.getBoolean("changed"), true);
    EXPECT_EQ(report.getBoolean("donations_kept"), true);
    EXPECT_GT(report.getInteger("donated_bytes"), 0);
  }
}

// Tests that the program is compiled as the caller asked if the backend fails or forgets donations, with the reason.
TEST_F(PjrtCompile, FallsBack) {
  for (auto run : {compile, compileForClient})
    for (auto [broken, reason] :
         {std::pair(true, "RESOURCE_EXHAUSTED: no registers"), std::pair(false, "XLA did not keep its donations")}) {
      behaviour.isBackendBroken = broken;
      behaviour.backendForgets = !broken;
      behaviour.formats.clear();
      EXPECT_TRUE(run(module).module == module);
      EXPECT_EQ(behaviour.formats, (Formats{"mlir", "hlo", "mlir"}));
      json::Object report = takeReport();
      EXPECT_EQ(report.getBoolean("changed"), false);
      EXPECT_EQ(report.getString("kept_because")->str(),
                std::string("XLA's backend could not compile it by itself: ") + reason);
    }
}

// Tests that what XLA compiled is used if XLA does not stop when the callback says so.
TEST_F(PjrtCompile, XlaGoesOn) {
  behaviour.goesOn = true;
  EXPECT_TRUE(compile(module).module == module);
  EXPECT_EQ(behaviour.formats, Formats{"mlir"});
  EXPECT_TRUE(
      takeReport().getString("kept_because")->ends_with("XLA did not stop the compilation when it was asked to"));
}

// Tests that a module stays as it is if XLA calls back on a thread that compiles nothing.
TEST_F(PjrtCompile, AnotherThread) {
  behaviour.callsFromAnotherThread = true;
  EXPECT_TRUE(compile(module).module == module);
  EXPECT_EQ(behaviour.formats, Formats{"mlir"});
  EXPECT_TRUE(takeReport().getString("kept_because")->contains("forget that parameters are donated"));
}

static json::Array temporariesIn(const json::Object &report) {
  const json::Array *found = report.getArray("temporaries_bytes");
  return found ? *found : json::Array();
}

/// Settings that pipeline loops, within a limit on temporaries if there is one.
static TransformOptions pipelining(std::optional<int64_t> limit = std::nullopt) {
  json::Object options{{"loops", "pipeline"}, {"buckets", false}, {"effort", 2000}};
  if (limit)
    options["memory_limit_bytes"] = *limit;
  return cantFail(parseTransformOptions(formatv("{0}", json::Value(std::move(options))).str()));
}

// Tests that a program whose loops would gain is compiled in several ways, that the caller gets the fastest one with
// its own options, and that the report says which flags it has.
TEST_F(PjrtCompile, PipelinesLoops) {
  const std::string scan = test::readInput("small-scan.pb");
  behaviour.pipelined = test::readInput("small-scan-pipelined.pb");
  setTransformOptions(pipelining());
  TransformResult plain = transformModule(scan, pipelining()),
                  fast = transformModule(behaviour.pipelined, pipelining());
  ASSERT_LT(fast.makespan, plain.makespan);
  for (auto run : {compile, compileForClient}) {
    behaviour.formats.clear();
    Executable executable = run(scan);
    EXPECT_TRUE(executable.module == fast.module);
    EXPECT_FALSE(hasFlags(executable.options));
    EXPECT_EQ(behaviour.formats, (Formats{"mlir", "mlir", "mlir", "hlo"}));
    json::Object report = takeReport();
    EXPECT_EQ(report.getArray("xla_flags")->size(), 3u);
    EXPECT_EQ(report.getInteger("makespan_without_flags_ns"), plain.makespan);
    EXPECT_EQ(report.getObject("makespan_ns")->getInteger("after"), fast.makespan);
    EXPECT_EQ(report.getBoolean("changed"), true);
    EXPECT_EQ(report.getBoolean("donations_kept"), true);
  }
}

// Tests that the program is compiled in one way if XLA does not know the flags, if no loop would gain, and if nobody
// asks for it.
TEST_F(PjrtCompile, LeavesLoopsAlone) {
  const std::string scan = test::readInput("small-scan.pb");
  setTransformOptions(pipelining());
  TransformResult plain = transformModule(scan, pipelining());
  EXPECT_TRUE(compile(scan).module == plain.module);
  EXPECT_EQ(behaviour.formats, (Formats{"mlir", "mlir", "mlir", "hlo"}));
  json::Object report = takeReport();
  EXPECT_FALSE(report.get("xla_flags"));
  EXPECT_FALSE(report.getArray("loops")->empty());

  behaviour.formats.clear();
  EXPECT_TRUE(compile(module).module == transformModule(module, pipelining()).module);
  EXPECT_EQ(behaviour.formats, (Formats{"mlir", "hlo"}));
  EXPECT_TRUE(takeReport().getArray("loops")->empty());

  behaviour.formats.clear();
  behaviour.pipelined = test::readInput("small-scan-pipelined.pb");
  setTransformOptions(cantFail(parseTransformOptions(R"({"buckets": false, "effort": 2000})")));
  EXPECT_TRUE(compile(scan).module == plain.module);
  EXPECT_EQ(behaviour.formats, (Formats{"mlir", "hlo"}));
  EXPECT_FALSE(takeReport().getArray("loops")->empty());
}

// Tests that the user's limit on temporaries decides among the ways, by XLA's own count, and that less memory for the
// search comes after them.
TEST_F(PjrtCompile, PipelinesLoopsWithinTheLimit) {
  constexpr int64_t kLimit = 1 << 30;
  const std::string scan = test::readInput("small-scan.pb");
  behaviour.pipelined = test::readInput("small-scan-pipelined.pb");
  setTransformOptions(pipelining(kLimit));
  TransformResult plain = transformModule(scan, pipelining(kLimit));
  for (auto run : {compile, compileForClient}) {
    behaviour.formats.clear();
    // Both ways with flags need too much.
    behaviour.temporaries = {kLimit + 2, kLimit + 1, kLimit};
    EXPECT_TRUE(run(scan).module == plain.module);
    EXPECT_EQ(behaviour.formats, (Formats{"mlir", "mlir", "mlir", "hlo", "hlo", "hlo"}));
    json::Object report = takeReport();
    EXPECT_FALSE(report.get("xla_flags"));
    EXPECT_EQ(temporariesIn(report), json::Array({kLimit}));
    // All of them do.
    behaviour.formats.clear();
    behaviour.temporaries = {kLimit + 2, kLimit + 2, kLimit + 2, kLimit + 1};
    EXPECT_TRUE(run(scan).module == scan);
    EXPECT_EQ(behaviour.formats, (Formats{"mlir", "mlir", "mlir", "hlo", "hlo", "hlo", "mlir", "hlo", "mlir"}));
    EXPECT_EQ(takeReport().getBoolean("changed"), false);
  }
}

// Tests that a program keeps its own loops if the backend cannot compile the answer.
TEST_F(PjrtCompile, PipelinedLoopsFallBack) {
  const std::string scan = test::readInput("small-scan.pb");
  behaviour.pipelined = test::readInput("small-scan-pipelined.pb");
  behaviour.isBackendBroken = true;
  setTransformOptions(pipelining());
  EXPECT_TRUE(compile(scan).module == scan);
  EXPECT_EQ(takeReport().getBoolean("changed"), false);
}

/// Settings with a limit that binds nowhere but in what the plugin says.
static TransformOptions limitedTo(int64_t bytes, StringRef donation) {
  return cantFail(parseTransformOptions(
      formatv(R"({"memory_limit_bytes": {0}, "donation": "{1}", "buckets": false})", bytes, donation).str()));
}

// Tests that a program whose temporaries are within the user's limit by XLA's own count is compiled once, that one
// above it is compiled again with less memory, and that one that is still above it gets XLA's own order, with the
// reason.
TEST_F(PjrtCompile, KeepsTheLimitOnTemporaries) {
  constexpr int64_t kLimit = 1 << 30;
  for (auto run : {compile, compileForClient})
    for (StringRef donation : {"keep", "drop"}) {
      setTransformOptions(limitedTo(kLimit, donation));
      Formats once = donation == "keep" ? Formats{"mlir", "hlo"} : Formats{"mlir"};
      auto compileWith = [&](std::vector<int64_t> temporaries) {
        behaviour.formats.clear();
        behaviour.temporaries = std::move(temporaries);
        bool isOwn = run(module).module == module;
        EXPECT_TRUE(behaviour.temporaries.empty());
        return isOwn;
      };
      EXPECT_FALSE(compileWith({kLimit}));
      EXPECT_EQ(behaviour.formats, once);
      json::Object within = takeReport();
      EXPECT_EQ(within.getBoolean("changed"), true);
      EXPECT_EQ(within.getBoolean("donations_kept"), donation == "keep");
      EXPECT_EQ(temporariesIn(within), json::Array({kLimit}));

      EXPECT_FALSE(compileWith({kLimit + 1, kLimit - 1}));
      Formats twice = once;
      append_range(twice, once);
      EXPECT_EQ(behaviour.formats, twice);
      json::Object again = takeReport();
      EXPECT_EQ(again.getBoolean("changed"), true);
      EXPECT_EQ(temporariesIn(again), json::Array({kLimit + 1, kLimit - 1}));

      EXPECT_TRUE(compileWith({kLimit + 2, kLimit + 1}));
      Formats thrice = twice;
      thrice.push_back("mlir");
      EXPECT_EQ(behaviour.formats, thrice);
      json::Object own = takeReport();
      EXPECT_EQ(own.getBoolean("changed"), false);
      EXPECT_EQ(
          own.getString("kept_because")->str(),
          "XLA needs 1073741826 bytes for the temporaries of a faster order, and 1073741825 for those of one with "
          "less memory; the limit is 1073741824");
    }
}

// Tests that XLA's own order is checked, too, if no faster one was found: a search with less memory follows, and then a
// message with XLA's number.
TEST_F(PjrtCompile, SaysThatXlasOrderIsAboveTheLimit) {
  constexpr int64_t kLimit = 1 << 30;
  const TransformOptions options = limitedTo(kLimit, "keep");
  const std::string best = transformModule(test::readInput("small-scan.pb"), options).module;
  ASSERT_TRUE(transformModule(best, options).module.empty());
  setTransformOptions(options);
  for (auto run : {compile, compileForClient}) {
    behaviour.formats.clear();
    behaviour.temporaries = {kLimit + 2, kLimit + 2};
    EXPECT_TRUE(run(best).module == best);
    EXPECT_EQ(behaviour.formats, (Formats{"mlir", "mlir"}));
    json::Object report = takeReport();
    EXPECT_EQ(
        report.getString("kept_because")->str(),
        "no faster order was found; XLA's own needs 1073741826 bytes for temporaries, and the limit is 1073741824");
    EXPECT_TRUE(report.get("makespan_ns"));
    behaviour.temporaries = {kLimit};
    run(best);
    EXPECT_EQ(takeReport().getString("kept_because")->str(), "no faster order was found");
  }
}

// Tests that the second search has less memory: the more XLA's temporaries are above the limit, the less.
TEST_F(PjrtCompile, TriesAgainWithLessMemory) {
  auto peakOf = [](const json::Object &report) { return *report.getObject("peak_bytes")->getInteger("after"); };
  const std::string scan = test::readInput("small-scan.pb");
  const Bytes peak = peakOf(transformModule(scan, limitedTo(kUnlimited, "drop")).report);
  const Bytes limit = mulDiv(peak, 105, 100);
  int32_t lower = 0;
  for (int64_t percent = 1; percent <= 10; ++percent) {
    setTransformOptions(limitedTo(limit, "drop"));
    behaviour.temporaries = {limit + mulDiv(limit, percent, 100), 0};
    compile(scan);
    behaviour.temporaries.clear();
    json::Object report = takeReport();
    EXPECT_EQ(temporariesIn(report)[0], json::Value(limit + mulDiv(limit, percent, 100)));
    if (!*report.getBoolean("changed"))
      continue;
    EXPECT_LE(peakOf(report), limit - mulDiv(limit, percent, 100));
    lower += peakOf(report) < peak;
  }
  EXPECT_GT(lower, 0);
}

// Tests that nothing is asked and nothing refused without a limit, and if the plugin does not say what it needs.
TEST_F(PjrtCompile, HasNoLimitOnTemporariesUnlessTheUserSetsOne) {
  behaviour.temporaries = {1};
  compile(module);
  EXPECT_EQ(behaviour.temporaries.size(), 1u);
  EXPECT_TRUE(temporariesIn(takeReport()).empty());
  behaviour.temporaries.clear();
  setTransformOptions(limitedTo(1 << 30, "keep"));
  EXPECT_FALSE(compile(module).module == module);
  EXPECT_TRUE(temporariesIn(takeReport()).empty());
}

// Tests that nothing is compiled twice if donations are given up, if there are none, or if CommSched is switched off.
TEST_F(PjrtCompile, Once) {
  setTransformOptions(cantFail(parseTransformOptions(R"({"donation": "drop"})")));
  EXPECT_TRUE(compile(module).module == withoutFields(scheduled, {8, 18}));
  EXPECT_EQ(takeReport().getBoolean("donations_kept"), false);
  setTransformOptions(cantFail(parseTransformOptions("{}")));
  std::string undonated = withoutFields(module, {8, 18});
  EXPECT_TRUE(compile(undonated).module == transformModule(undonated, cantFail(parseTransformOptions("{}"))).module);
  EXPECT_EQ(takeReport().getBoolean("changed"), true);
  EXPECT_EQ(compile("no module").module, "no module");
  EXPECT_EQ(takeReport().getBoolean("changed"), false);
  setTransformOptions(std::nullopt);
  EXPECT_TRUE(compileForClient(module).module == module);
  EXPECT_TRUE(takeTransformReports().empty());
  EXPECT_EQ(behaviour.formats, (Formats{"mlir", "mlir", "mlir", "mlir"}));
}

// Tests that the backend's options have the module's layouts and nothing twice, and keep all others.
TEST_F(PjrtCompile, Options) {
  std::string given;
  writeBytes(1, "a layout of before", given);
  std::string build;
  writeBytes(2, "a result of before", build);
  writeInteger(4, 8, build);
  writeBytes(3, build, given);
  writeInteger(5, 7, given);
  std::string made = backendOptions(given, shaped);
  std::vector<std::string> layouts;
  WireReader reader(made);
  WireField field;
  while (reader.next(field))
    if (field.number == 1)
      layouts.push_back(field.bytes.str());
  EXPECT_FALSE(reader.isMalformed());
  EXPECT_EQ(layouts, (std::vector<std::string>{"first", "second"}));
  std::string rest;
  writeInteger(4, 8, rest);
  writeBytes(2, "result", rest);
  writeInteger(11, 1, rest);
  EXPECT_EQ(fieldOf(made, 3), rest);
  EXPECT_EQ(withoutFields(made, {1, 3}), withoutFields(given, {1, 3}));
}

// Tests that lost donations and other layouts are noticed, and that names of parameters do not matter.
TEST_F(PjrtCompile, Loss) {
  EXPECT_EQ(findLoss(shaped, shaped), "");
  EXPECT_EQ(findLoss(shaped, withoutFields(shaped, {8})), "XLA did not keep its donations");
  std::string donors = shaped;
  writeBytes(18, "x", donors);
  EXPECT_EQ(findLoss(donors, shaped), "XLA did not keep its donations");
  std::string others = withoutFields(shaped, {4});
  writeBytes(4, withoutFields(fieldOf(shaped, 4), {3}), others);
  EXPECT_EQ(findLoss(shaped, others), "");
  writeBytes(4, withoutFields(fieldOf(shaped, 4), {2}), others);
  EXPECT_EQ(findLoss(shaped, others), "XLA did not keep the layouts of its parameters and results");
}

// Tests that a table of functions is left alone if it is shorter, of another version, read only, or a second one.
TEST(PjrtCompileTable, LeftAlone) {
  FakeApi copy = api();
  auto isKnown = [&] { return canWrap(reinterpret_cast<PjrtApi *>(&copy)); };
  EXPECT_TRUE(isKnown());
  copy.struct_size = 40 + 96 * sizeof(void *);
  EXPECT_FALSE(isKnown());
  copy.struct_size = sizeof(FakeApi);
  copy.major = 1;
  EXPECT_FALSE(isKnown());
  // Constant data without relocations lies in pages that are read only.
  static const FakeApi constant = {sizeof(FakeApi), nullptr, 24, nullptr, 0, 112, {}};
  EXPECT_FALSE(canWrap(reinterpret_cast<const PjrtApi *>(&constant)));

  copy.major = 0;
  copy.functions[20] = clientCompile;
  auto sink = [](PjrtCompilation) {};
  EXPECT_FALSE(wrapCompilations(reinterpret_cast<PjrtApi *>(&copy), sink));
  EXPECT_EQ(copy.functions[20], clientCompile);
  EXPECT_TRUE(wrapCompilations(reinterpret_cast<PjrtApi *>(&api()), sink));
  EXPECT_NE(api().functions[20], clientCompile);
}
