//===- comm-run.cpp - Runner for programs with collectives ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Compiles a module and runs it on N ranks: threads of this process, or processes under a launcher. With --compare it
// runs further programs on the same inputs and compares their results, bit for bit or within a tolerance.
//
//===------------------------------------------------------------------------------------------===//

#include "../Mains.h"
#include "CommSched/Analysis/Environment.h"
#include "CommSched/Conversion/Stablehlo.h"
#include "CommSched/Execution/MeasuredTimeline.h"
#include "CommSched/Execution/PredictionTable.h"
#include "CommSched/Execution/Session.h"
#include "CommSched/Execution/ValueComparison.h"
#include "CommSched/InitAll.h"
#include "CommSched/Support/Count.h"
#include "CommSched/Support/OutputFile.h"
#include "CommSched/Support/RunTool.h"
#include "mlir/Dialect/Shard/Transforms/Passes.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/WithColor.h"

using namespace llvm;
using namespace commsched;

static cl::OptionCategory category("comm-run options");
static cl::opt<std::string> inputPath(cl::Positional, cl::desc("<program.mlir>"), cl::Required, cl::cat(category));
static cl::opt<int> ranks("ranks", cl::desc("Number of ranks (default: as many as the program's groups require)"),
                          cl::value_desc("N"), cl::init(0), cl::cat(category));
static cl::opt<std::string> backend(
    "backend",
    cl::desc("Backend (threads, sim, mpi, nccl, ...), or several with commas, of which the first that opens is used "
             "(default: mpi under mpirun, nccl under torchrun, otherwise threads)"),
    cl::value_desc("name"), cl::cat(category));
static cl::opt<std::string> entry("entry", cl::desc("Function to run (default: main, or the only public one)"),
                                  cl::value_desc("name"), cl::cat(category));
static cl::opt<unsigned long long> seed("seed", cl::desc("Seed of the inputs"), cl::value_desc("N"), cl::init(0),
                                        cl::cat(category));
static cl::list<std::string> inputs("input",
                                    cl::desc("Read an argument from a numpy file; %r in the name stands for the rank"),
                                    cl::value_desc("INDEX=FILE.npy"), cl::cat(category));
static cl::opt<int64_t> dynamicSize("dynamic-size", cl::desc("Size of the arguments' dynamic dimensions (default 8)"),
                                    cl::value_desc("N"), cl::init(8), cl::cat(category));
static cl::opt<std::string> outputFolder("output", cl::desc("Write the results to this folder, as rankR_resultI.npy"),
                                         cl::value_desc("folder"), cl::cat(category));
static cl::opt<bool> printResults("print", cl::desc("Print the results"), cl::cat(category));
static cl::opt<bool> printSummary("summary", cl::desc("Print time and memory of each rank"), cl::cat(category));
static cl::opt<std::string> jsonPath("json", cl::desc("Write the figures of --summary as JSON"),
                                     cl::value_desc("file.json"), cl::cat(category));
static cl::list<std::string> comparePaths("compare", cl::desc("Also run this program and compare bit for bit"),
                                          cl::value_desc("other.mlir"), cl::cat(category));
static cl::opt<std::string> compareBackend("compare-backend",
                                           cl::desc("Also run the first program on this backend, with ranks in this "
                                                    "process, and compare"),
                                           cl::value_desc("name"), cl::cat(category));
static cl::opt<double> tolerance("tolerance",
                                 cl::desc("Largest difference of floating-point elements that --compare accepts, in "
                                          "roundings of the largest element of the value (default: none)"),
                                 cl::value_desc("ROUNDINGS"), cl::init(-1), cl::cat(category));
static cl::opt<bool> splitInput("split-input-file",
                                cl::desc("Split the files into several programs at lines '// -----'"),
                                cl::cat(category));
static cl::opt<std::string> timelinePath("timeline",
                                         cl::desc("Write the measured and the predicted timeline: FILE.html is a page "
                                                  "with the last call, anything else Chrome/Perfetto JSON"),
                                         cl::value_desc("file"), cl::cat(category));
static cl::opt<bool> againstPrediction("against-prediction",
                                       cl::desc("Print the measured times against the prediction for --machine; use "
                                                "at least 20 --iterations"),
                                       cl::cat(category));
static cl::opt<std::string> predictionPath("prediction-json",
                                           cl::desc("Write what --against-prediction prints to a file, too"),
                                           cl::value_desc("file"), cl::cat(category));
static cl::opt<std::string> machine("machine", cl::desc("Machine profile of the prediction (default: cpu-mpi)"),
                                    cl::value_desc("profile"), cl::init("cpu-mpi"), cl::cat(category));
static cl::opt<std::string> fault("fault",
                                  cl::desc("Inject a fault at start N of a rank; docs/guide/Runtime.md lists kinds"),
                                  cl::value_desc("KIND@N[:rank=R][:ms=T]"), cl::cat(category));
static cl::opt<int64_t> timeoutMs("timeout-ms", cl::desc("Longest wait in milliseconds (default 60000)"),
                                  cl::value_desc("N"), cl::init(60000), cl::cat(category));
static cl::opt<int64_t> iterations("iterations", cl::desc("Number of calls of the function (default 1)"),
                                   cl::value_desc("K"), cl::init(1), cl::cat(category));
static cl::opt<std::string> passes("passes",
                                   cl::desc("Run these passes on the programs first, for --machine; comm-align-costs "
                                            "gathers the costs of all ranks"),
                                   cl::value_desc("pipeline"), cl::cat(category));
static cl::opt<cl::boolOrDefault> emitPtx("emit-ptx",
                                          cl::desc("Compile kernels of programs for GPUs (default: unless the CUDA "
                                                   "runtime is an emulated one)"),
                                          cl::cat(category));
static cl::opt<bool> graph("graph",
                           cl::desc("Capture the second call into a CUDA graph, and launch that instead of further "
                                    "calls; needs at least 2 --iterations"),
                           cl::cat(category));
static cl::opt<std::string> ncclGroups("nccl-groups",
                                       cl::desc("Thread blocks (CTAs) of groups on nccl: 'dp:min=2,max=8;*:max=16' "
                                                "(default: COMMRT_NCCL_GROUPS)"),
                                       cl::value_desc("OPTIONS"), cl::cat(category));
static cl::opt<bool> emulate("emulate-costs", cl::desc("Let opaque computations take the time of their comm.cost"),
                             cl::cat(category));

static OwnOptions ownOptions(category, {inputPath});

/// Collectives that --against-prediction names.
static constexpr size_t kWorstSites = 10;
/// Exit codes.
static constexpr int failedCode = 1, differentCode = 2;

/// Prints an error in one write, since the ranks of a job share the standard error.
static int report(const Twine &message, int code = failedCode) {
  errs().SetBuffered();
  WithColor::error(errs(), "comm-run") << message << "\n";
  errs().SetUnbuffered();
  return code;
}

static int report(Error error) {
  handleAllErrors(std::move(error), [](const ErrorInfoBase &info) { report(Twine(info.message())); });
  return failedCode;
}

static Error fillArguments(const Program &program, int32_t rank, std::vector<HostValue> &arguments) {
  for (auto [i, argument] : enumerate(program.arguments())) {
    arguments.push_back(argument.like());
    if (Error error = arguments.back().allocate())
      return createStringError("argument " + Twine(i) + " of rank " + Twine(rank) + ": " + toString(std::move(error)));
    arguments.back().fill(seed, rank, i);
  }
  for (const std::string &input : inputs) {
    auto [index, path] = StringRef(input).split('=');
    size_t number;
    if (index.getAsInteger(10, number) || number >= arguments.size() || path.empty())
      return createStringError("--input=" + input + ": expected INDEX=FILE.npy with an index below " +
                               Twine(arguments.size()));
    std::string name = path.str();
    for (size_t at; (at = name.find("%r")) != std::string::npos;)
      name.replace(at, 2, std::to_string(rank));
    if (Error error = readNpy(name, arguments[number]))
      return error;
  }
  return Error::success();
}

/// The largest difference that was accepted.
struct Accepted {
  double roundings = 0;
  std::string where;
};
static Accepted accepted;

static std::string formatRoundings(double roundings) { return formatv("{0:f2}", roundings).str(); }

/// Reports a difference of two values that is not accepted; true if there is none.
static bool compareValues(const HostValue &a, const HostValue &b, const Twine &what) {
  if (a.elementType != b.elementType || a.shape != b.shape) {
    report(what + ": the types differ");
    return false;
  }
  ValueDifference difference = compareElements(a, b);
  if (difference.isEqual())
    return true;
  auto values = [&](int64_t element) {
    return (Twine(element) + ": " + a.elementText(element) + " against " + b.elementText(element)).str();
  };
  if (difference.roundings <= tolerance) {
    if (difference.roundings > accepted.roundings)
      accepted = {difference.roundings, (what + ", element " + values(difference.worst)).str()};
    return true;
  }
  std::string largest;
  if (tolerance >= 0)
    largest = ", largest difference " + formatRoundings(difference.roundings) + " roundings at element " +
              values(difference.worst);
  report(what + ": " + Twine(difference.count) + " of " + Twine(a.elements()) + " elements differ, first element " +
         values(difference.first) + largest);
  return false;
}

static bool compareRuns(const Program &program, const RankRun &a, const RankRun &b, int32_t rank, StringRef other) {
  std::string where = (other + ": rank " + Twine(rank)).str();
  if (a.results.size() != b.results.size()) {
    report(where + ": " + Twine(b.results.size()) + " results against " + Twine(a.results.size()));
    return false;
  }
  bool equal = true;
  for (size_t i = 0; i < a.results.size(); ++i)
    equal &= compareValues(a.results[i], b.results[i], where + ", result " + Twine(i));
  for (size_t i = 0; i < a.arguments.size(); ++i)
    equal &= program.freesArgument(i) ||
             compareValues(a.arguments[i], b.arguments[i], where + ", argument " + Twine(i) + " after the run");
  return equal;
}

static Error writeResults(const Rank &rank) {
  const RankRun &run = rank.runs[0];
  if (printSummary && jsonPath != "-")
    outs() << "rank " << rank.number << ": " << formatNs(run.endNs - run.beginNs) << ", peak "
           << commrt_peak_bytes(rank.context) << " bytes, " << run.leftBytes << " bytes left\n";
  for (auto [index, result] : enumerate(run.results)) {
    if (printResults)
      outs() << "rank " << rank.number << " result " << index << ": " << result.text() << "\n";
    if (outputFolder.empty())
      continue;
    if (std::error_code code = sys::fs::create_directories(outputFolder))
      return createFileError(outputFolder, code);
    std::string name = (Twine(outputFolder) + "/rank" + Twine(rank.number) + "_result" + Twine(index) + ".npy").str();
    if (Error error = writeNpy(name, result))
      return error;
  }
  return Error::success();
}

/// Writes the figures of --summary to --json. Under mpirun each rank writes FILE.RANK, as for the timeline.
static Error writeJson(const Session &session) {
  json::Array rows;
  for (const Rank &rank : session.local())
    rows.push_back(json::Object{{"rank", rank.number},
                                {"ns", rank.runs[0].endNs - rank.runs[0].beginNs},
                                {"peak_bytes", commrt_peak_bytes(rank.context)},
                                {"left_bytes", rank.runs[0].leftBytes}});
  json::Value document = json::Object{{"schema_version", 1},
                                      {"backend", session.backend()},
                                      {"ranks", session.ranks()},
                                      {"iterations", iterations.getValue()},
                                      {"summary", std::move(rows)}};
  std::string path = jsonPath;
  if (session.isShared() && path != "-")
    path += "." + std::to_string(session.local()[0].number);
  return writeWhole(path, [&](raw_ostream &os) {
    os << formatv("{0:2}\n", document);
    return Error::success();
  });
}

/// A page with the last call on each rank below its prediction. Under mpirun each rank writes FILE.RANK.html.
static Error writePage(const Session &session, ArrayRef<std::unique_ptr<Program>> programs) {
  Report page;
  page.machine = machine;
  page.sides[0] = "predicted";
  page.sides[1] = "measured";
  for (auto [index, program] : enumerate(programs))
    for (const Rank &rank : session.local()) {
      ArrayRef<int64_t> marks = rank.runs[index].marks;
      if (marks.size() < 2) // The run failed, which is said elsewhere. It has no page.
        return Error::success();
      std::optional<BlockSnapshot> measured =
          program->predicted()
              ? measuredSnapshot(readTrace(rank.context, marks.take_back(2).vec()), *program->predicted())
              : std::nullopt;
      if (!measured)
        return createStringError("'" + program->name() + "': expected a program without loops and conditions for a " +
                                 "page; --timeline=FILE.json takes any");
      BlockReport &block = page.blocks.emplace_back();
      block.name = program->name() + ", rank " + std::to_string(rank.number);
      block.before = *program->predicted();
      block.before.jointBound = block.before.limitBound = 0; // It bounds the model's makespan, not the measured one.
      block.after = std::move(*measured);
    }
  SmallString<128> path(timelinePath);
  if (session.isShared())
    sys::path::replace_extension(path, std::to_string(session.local()[0].number) + ".html");
  return writeWhole(path, [&](raw_ostream &os) {
    writeHtml(page, os);
    return Error::success();
  });
}

/// One trace process per program and rank, after one per prediction. Under mpirun each rank writes FILE.RANK.
static Error writeTimelines(const Session &session, ArrayRef<std::unique_ptr<Program>> programs) {
  if (sys::path::extension(timelinePath) == ".html")
    return writePage(session, programs);
  json::Array events;
  int64_t process = 0;
  for (auto [index, program] : enumerate(programs)) {
    if (program->predicted())
      addPredicted(program->name() + ", predicted for " + machine, process++, *program->predicted(), events);
    for (const Rank &rank : session.local())
      addMeasured({program->name() + ", rank " + std::to_string(rank.number), rank.context, rank.runs[index].beginNs,
                   rank.runs[index].endNs, rank.runs[index].originNs},
                  process++, program->predicted(), events);
  }
  std::string path = timelinePath;
  if (session.isShared())
    path += "." + std::to_string(session.local()[0].number);
  return writeTrace(path, std::move(events));
}

/// Prints a table for each program, and writes all of them to --prediction-json. Under mpirun rank 0 has its own times.
static Error printComparisons(const Session &session, ArrayRef<std::unique_ptr<Program>> programs) {
  if (session.local().front().number != 0)
    return Error::success();
  json::Array described;
  for (auto [index, program] : enumerate(programs)) {
    std::vector<RankTrace> traces;
    for (const Rank &rank : session.local())
      traces.push_back(readTrace(rank.context, rank.runs[index].marks));
    Expected<PredictionComparison> comparison = compareWithPrediction(*program->predicted(), traces);
    if (!comparison)
      return createStringError("'" + program->name() + "': " + toString(comparison.takeError()));
    outs() << program->name() << " on " << formatCount(session.ranks(), "rank") << ", model " << machine << "\n";
    printComparison(*comparison, *program->predicted(), kWorstSites, outs());
    json::Object entry = describeComparison(*comparison, *program->predicted(), kWorstSites);
    entry["program"] = program->name();
    described.push_back(std::move(entry));
  }
  if (predictionPath.empty())
    return Error::success();
  json::Value document = json::Object{{"machine", machine.getValue()},
                                      {"backend", session.backend()},
                                      {"ranks", session.ranks()},
                                      {"programs", std::move(described)}};
  return writeWhole(predictionPath, [&](raw_ostream &os) {
    os << formatv("{0:2}", document) << "\n";
    return Error::success();
  });
}

/// Runs the programs on the session and prints, stores or compares their results.
static int runAll(Session &session, ArrayRef<std::unique_ptr<Program>> programs) {
  bool isCompared = programs.size() > 1 || !compareBackend.empty();
  if (isCompared && tolerance < 0 && !session.isRankOrdered())
    return report("--compare: sums of backend '" + session.backend() +
                  "' do not run in the order of ranks, so that bits may differ: expected --tolerance=ROUNDINGS" +
                  (session.isOnDevice() ? ", or COMMRT_NCCL_EXACT=1 in the environment" : ""));
  Error error = session.run(programs, fillArguments);
  bool failed = static_cast<bool>(error);
  if (failed)
    report(std::move(error));
  if (!timelinePath.empty())
    if (Error unwritten = writeTimelines(session, programs))
      return report(std::move(unwritten));
  if (failed)
    return failedCode;
  if (againstPrediction)
    if (Error incomparable = printComparisons(session, programs))
      return report(std::move(incomparable));
  if (!jsonPath.empty())
    if (Error unwritten = writeJson(session))
      return report(std::move(unwritten));
  int code = EXIT_SUCCESS;
  for (const Rank &rank : session.local()) {
    if (Error unwritten = writeResults(rank))
      return report(std::move(unwritten));
    for (size_t i = 1; i < programs.size(); ++i)
      if (!compareRuns(*programs[0], rank.runs[0], rank.runs[i], rank.number, programs[i]->name()))
        code = differentCode;
  }
  return code;
}

/// Groups the first parts of all files, then the second parts, and so on.
static Expected<std::vector<std::vector<Source>>> readAll() {
  std::vector<std::string> paths = {inputPath};
  paths.insert(paths.end(), comparePaths.begin(), comparePaths.end());
  std::vector<std::vector<Source>> parts;
  for (const std::string &path : paths) {
    Expected<std::vector<Source>> sources = readSources(path, splitInput);
    if (!sources)
      return sources.takeError();
    if (parts.empty())
      parts.resize(sources->size());
    if (sources->size() != parts.size())
      return createStringError("'" + path + "': expected as many programs as in '" + inputPath + "' (" +
                               Twine(parts.size()) + "), got " + Twine(sources->size()));
    for (auto [part, source] : zip_equal(parts, *sources))
      part.push_back(std::move(source));
  }
  return parts;
}

/// Whether the programs are predicted for --machine and traced.
static bool isPredicted() { return againstPrediction || !timelinePath.empty(); }

static Expected<Programs> loadAll(mlir::MLIRContext &context, ArrayRef<Source> sources, bool isForDevice) {
  ProgramOptions options = {
      entry,  dynamicSize, isPredicted() ? machine.getValue() : std::string(),
      passes, isForDevice, emitPtx == cl::BOU_UNSET ? !isDeviceEmulated() : emitPtx == cl::BOU_TRUE,
      graph};
  Programs programs;
  StringSet<> seen;
  for (const Source &source : sources) {
    // Equal texts compute equal results.
    if (!seen.insert(StringRef(source.text).trim()).second)
      continue;
    Expected<std::unique_ptr<Program>> program = Program::load(context, source, options);
    if (!program)
      return program.takeError();
    programs.push_back(std::move(*program));
    if (programs.back()->arguments().size() != programs[0]->arguments().size())
      return createStringError("'" + source.name + "': expected as many arguments as in '" + sources[0].name + "' (" +
                               Twine(programs[0]->arguments().size()) + "), got " +
                               Twine(programs.back()->arguments().size()));
  }
  return programs;
}

/// Lets passes use --machine and the costs of all ranks. If other processes have ranks, the job is opened before any
/// program is read. `session` outlives the context's passes.
static Error prepareForPasses(mlir::MLIRContext &context, const SessionOptions &options,
                              std::unique_ptr<Session> &session) {
  if (Session::mayBeShared(options)) {
    Expected<std::unique_ptr<Session>> opened = Session::open(options, 1);
    if (!opened)
      return opened.takeError();
    if ((*opened)->isShared())
      session = std::move(*opened);
  }
  context.loadDialect<comm::CommDialect>();
  Environment *environment = Environment::of(&context);
  environment->machine = machine;
  environment->gather = [&session](ArrayRef<Ns> own) -> std::vector<std::vector<Ns>> {
    // A process that has all ranks decides for all of them.
    if (!session || !session->isShared())
      return {own.vec()};
    Expected<std::vector<std::vector<int64_t>>> rows = session->gather(own);
    if (rows)
      return std::move(*rows);
    report(rows.takeError());
    return {};
  };
  return Error::success();
}

/// What --compare found, if it found no difference that it does not accept.
static void printEqual(const Session &session, size_t parts) {
  if (splitInput)
    outs() << parts << " programs: ";
  outs() << "equal" << (accepted.roundings > 0 ? "" : ", bit for bit,");
  if (accepted.roundings > 0)
    outs() << " within " << formatRoundings(tolerance) << " roundings";
  outs() << " on " << formatCount(session.ranks(), "rank") << "\n";
  if (accepted.roundings > 0)
    outs() << "largest difference: " << formatRoundings(accepted.roundings) << " roundings, " << accepted.where << "\n";
}

/// Runs the first program on --compare-backend, with as many ranks as `session`, and compares.
static int runOnOther(mlir::MLIRContext &context, const Session &session, const Program &first,
                      const SessionOptions &given, const Source &source) {
  SessionOptions options = given;
  options.backend = compareBackend;
  options.ranks = session.ranks();
  Expected<std::unique_ptr<Session>> other = session.isShared()
                                                 ? createStringError("expected --compare-backend without a launcher")
                                                 : Session::open(options, options.ranks);
  if (!other)
    return report(other.takeError());
  if ((*other)->isShared() || (*other)->ranks() != session.ranks())
    return report("--compare-backend: expected a backend whose ranks live in this process, got '" +
                  (*other)->backend() + "'");
  Expected<Programs> programs = loadAll(context, source, (*other)->isOnDevice());
  if (!programs)
    return report(programs.takeError());
  if (Error error = (*other)->run(*programs, fillArguments))
    return report(std::move(error));
  int code = EXIT_SUCCESS;
  for (auto [mine, theirs] : zip_equal(session.local(), (*other)->local()))
    if (!compareRuns(first, mine.runs[0], theirs.runs[0], mine.number, source.name + " on " + (*other)->backend()))
      code = differentCode;
  return code;
}

/// Lets NCCL carry out collectives as `comm.variant` asks for, unless the user says how groups do it. All programs of a
/// job share its communicators.
static void obeyVariants(ArrayRef<std::unique_ptr<Program>> programs) {
  static constexpr const char *variable = "COMMRT_NCCL_GROUPS";
  static const bool isGiven = !ncclGroups.empty() || getenv(variable);
  if (isGiven)
    return;
  GroupVariants variants;
  for (const std::unique_ptr<Program> &program : programs)
    variants.add(program->variants());
  errs().SetBuffered();
  for (const std::string &line : variants.refused())
    WithColor::warning(errs(), "comm-run") << line << "\n";
  errs().SetUnbuffered();
  if (std::string options = variants.options(); options.empty())
    unsetenv(variable);
  else
    setenv(variable, options.c_str(), 1);
}

static int runParts(mlir::MLIRContext &context, ArrayRef<std::vector<Source>> parts) {
  if (!ncclGroups.empty())
    setenv("COMMRT_NCCL_GROUPS", ncclGroups.c_str(), 1);
  SessionOptions options = {ranks,
                            backend,
                            fault,
                            timeoutMs,
                            iterations,
                            isPredicted(),
                            /*poison=*/!comparePaths.empty() || !compareBackend.empty(),
                            emulate};
  if (options.backend.empty()) {
    Expected<std::string> launched = Session::launchedBackend();
    if (!launched)
      return report(launched.takeError());
    options.backend = *launched;
  }
  std::unique_ptr<Session> session;
  if (!passes.empty())
    if (Error error = prepareForPasses(context, options, session))
      return report(std::move(error));
  bool isForDevice = isDeviceBackend(options.backend);
  int code = EXIT_SUCCESS;
  for (auto [index, part] : enumerate(parts)) {
    int partCode = EXIT_SUCCESS;
    Expected<Programs> programs = loadAll(context, part, isForDevice);
    if (!programs) {
      partCode = report(programs.takeError());
    } else {
      if (isForDevice)
        obeyVariants(*programs);
      int64_t wanted = 1;
      for (const std::unique_ptr<Program> &program : *programs)
        wanted = std::max(wanted, program->ranks());
      // Threads are created again for each part: a part may have another number of ranks, and an error ends a job.
      if (!session || !session->isShared()) {
        session.reset();
        Expected<std::unique_ptr<Session>> opened = Session::open(options, wanted);
        if (!opened)
          return report(opened.takeError());
        session = std::move(*opened);
      }
      // Another backend of the list than the first one opened.
      if (session->isOnDevice() != isForDevice) {
        isForDevice = session->isOnDevice();
        programs = loadAll(context, part, isForDevice);
      }
      partCode = programs ? runAll(*session, *programs) : report(programs.takeError());
      if (partCode == EXIT_SUCCESS && !compareBackend.empty())
        partCode = runOnOther(context, *session, *programs->front(), options, part.front());
    }
    if (partCode != EXIT_SUCCESS && parts.size() > 1)
      report("program " + Twine(index) + " of '" + inputPath + "' failed", partCode);
    code = std::max(code, partCode);
    if (partCode != EXIT_SUCCESS && session && session->isShared())
      return code;
  }
  bool isCompared = !comparePaths.empty() || !compareBackend.empty();
  if (code == EXIT_SUCCESS && isCompared && session && session->local()[0].number == 0)
    printEqual(*session, parts.size());
  return code;
}

static int runMain(int argc, char **argv) {
  ownOptions.offer();
  cl::ParseCommandLineOptions(
      argc, argv,
      "Runs a program of collectives on threads or under a launcher\n\n"
      "  Exit code 0: the program ran (and with --compare, all programs computed the same bits, or within\n"
      "  --tolerance);\n"
      "  1: a program could not be read or run, or a rank failed; 2: the results differ.\n");
  if (ranks < 0 || timeoutMs <= 0 || iterations < 1 || dynamicSize < 0)
    return report("expected positive --timeout-ms and --iterations, and non-negative --ranks and --dynamic-size");
  if (!predictionPath.empty() && !againstPrediction)
    return report("--prediction-json: expected --against-prediction, too");
  if (!jsonPath.empty() && splitInput)
    return report("--json: expected one program without --split-input-file, got both");
  if (graph && iterations < 2)
    return report("--graph: expected at least 2 --iterations, as the first call is not captured, got " +
                  Twine(iterations));
  if (isPredicted() && splitInput)
    return report("expected --timeline and --against-prediction without --split-input-file, got both");
  InitializeNativeTarget();
  InitializeNativeTargetAsmPrinter();

  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  mlir::registerAllToLLVMIRTranslations(registry);
  commsched::registerAllDialects(registry);
  commsched::registerAllExtensions(registry);
  commsched::registerStablehloNames(registry);
  commsched::registerAllPasses();
  mlir::registerTransformsPasses();
  mlir::shard::registerShardPasses();
  mlir::MLIRContext context(registry);

  Expected<std::vector<std::vector<Source>>> parts = readAll();
  return parts ? runParts(context, *parts) : report(parts.takeError());
}

int commschedRunMain(int argc, char **argv) { return runTool(argc, argv, runMain); }
