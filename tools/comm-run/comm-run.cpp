//===- comm-run.cpp - Runs programs of collectives -----------------------------------------------===//
//
// Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
//
// Compiles a module and runs it on N ranks: threads of this process, or processes under mpirun. With --compare it runs
// two programs on the same inputs and compares what they compute bit for bit.
//
//===--------------------------------------------------------------------------------------------===//

#include "CommSched/InitAll.h"
#include "Program.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/WithColor.h"
#include <thread>

using namespace llvm;
using namespace commsched;

static cl::OptionCategory category("comm-run options");
static cl::opt<std::string> inputPath(cl::Positional, cl::desc("<program.mlir>"), cl::Required, cl::cat(category));
static cl::opt<int> ranks("ranks", cl::desc("Number of ranks (default: what the program's groups speak of)"),
                          cl::value_desc("N"), cl::init(0), cl::cat(category));
static cl::opt<std::string> backend(
    "backend",
    cl::desc("threads, sim, mpi or another, or several with commas: the first that opens (default: mpi under mpirun)"),
    cl::cat(category));
static cl::opt<std::string> entry("entry", cl::desc("Function to run (default: main, or the only public one)"),
                                  cl::value_desc("name"), cl::cat(category));
static cl::opt<unsigned long long> seed("seed", cl::desc("Seed of the inputs"), cl::init(0), cl::cat(category));
static cl::list<std::string> inputs("input", cl::desc("Argument from a numpy file; %r in the name is the rank"),
                                    cl::value_desc("INDEX=FILE.npy"), cl::cat(category));
static cl::opt<std::string> outputFolder("output", cl::desc("Folder for the results, rankR_resultI.npy"),
                                         cl::value_desc("folder"), cl::cat(category));
static cl::opt<bool> printResults("print", cl::desc("Print the results"), cl::cat(category));
static cl::opt<std::string> comparePath("compare", cl::desc("Also run this program and compare bit for bit"),
                                        cl::value_desc("other.mlir"), cl::cat(category));
static cl::opt<std::string> timelinePath("timeline", cl::desc("Write what was measured as Chrome/Perfetto JSON"),
                                         cl::value_desc("file"), cl::cat(category));
static cl::opt<std::string> fault("fault",
                                  cl::desc("Inject a fault at start N of a rank; docs/Runtime.md has the kinds"),
                                  cl::value_desc("KIND@N[:rank=R][:ms=T]"), cl::cat(category));
static cl::opt<int64_t> timeoutMs("timeout-ms", cl::desc("The longest wait"), cl::init(60000), cl::cat(category));
static cl::opt<int64_t> iterations("iterations", cl::desc("Calls of the function"), cl::init(1), cl::cat(category));
static cl::opt<bool> emulate("emulate-costs", cl::desc("Opaque computations take the time of their comm.cost"),
                             cl::cat(category));

namespace {
/// What one rank computed with one program.
struct RankRun {
  std::vector<HostValue> arguments, results;
  int64_t elapsedNs = 0;
};

struct Rank {
  commrt_context *context = nullptr;
  std::vector<RankRun> runs; ///< by program
  int32_t status = COMMRT_OK;
  std::string message;
};
} // namespace

static int report(const Twine &message) {
  WithColor::error(errs(), "comm-run") << message << "\n";
  return EXIT_FAILURE;
}

static Error fillArguments(const Program &program, int32_t rank, std::vector<HostValue> &arguments) {
  arguments = program.arguments();
  for (size_t i = 0; i < arguments.size(); ++i)
    arguments[i].fill(seed, rank, i);
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

/// Runs the programs one after the other on one rank.
static void runRank(Rank &rank, ArrayRef<std::unique_ptr<Program>> programs) {
  commrt_make_current(rank.context);
  commrt_emulate_costs(rank.context, emulate);
  for (auto [run, program] : zip_equal(rank.runs, programs)) {
    if (program->begin(rank.context) != COMMRT_OK)
      break;
    int64_t begin = commrt_clock_ns(rank.context);
    program->run(run.arguments, run.results, iterations);
    if (commrt_program_end(rank.context) != COMMRT_OK)
      break;
    run.elapsedNs = commrt_clock_ns(rank.context) - begin;
  }
  std::vector<char> message(1 << 14);
  rank.status = commrt_last_error(rank.context, message.data(), message.size());
  rank.message = message.data();
}

static Error writeTimeline(MutableArrayRef<Rank> local) {
  json::Array events;
  for (Rank &rank : local)
    for (int64_t i = 0, n = commrt_trace_size(rank.context); i < n; ++i) {
      commrt_trace_record record;
      commrt_trace_get(rank.context, i, &record);
      bool isCollective = record.kind < 100;
      events.push_back(json::Object{{"ph", "X"},
                                    {"pid", commrt_rank(rank.context)},
                                    {"tid", isCollective ? std::string("@") + record.name : "compute"},
                                    {"name", isCollective         ? commrt_kind_name(record.kind)
                                             : record.kind == 100 ? "wait"
                                                                  : record.name},
                                    {"ts", double(record.begin_ns) / 1000},
                                    {"dur", double(record.end_ns - record.begin_ns) / 1000},
                                    {"args", json::Object{{"site", record.site}}}});
    }
  std::error_code code;
  raw_fd_ostream file(timelinePath, code);
  if (code)
    return createFileError(timelinePath, code);
  file << json::Value(json::Object{{"traceEvents", std::move(events)}}) << "\n";
  return Error::success();
}

/// Reports the first difference of two values; true if they are equal.
static bool compareValues(const HostValue &a, const HostValue &b, const Twine &what) {
  if (a.elementType != b.elementType || a.shape != b.shape) {
    report(what + ": the types differ");
    return false;
  }
  if (a.bytes == b.bytes)
    return true;
  size_t at = std::mismatch(a.bytes.begin(), a.bytes.end(), b.bytes.begin()).first - a.bytes.begin();
  int64_t element = at / a.elementBytes(), different = 0;
  for (int64_t i = 0; i < a.elements(); ++i)
    different += std::memcmp(&a.bytes[i * a.elementBytes()], &b.bytes[i * a.elementBytes()], a.elementBytes()) != 0;
  report(what + ": " + Twine(different) + " of " + Twine(a.elements()) + " elements differ, first element " +
         Twine(element) + ": " + a.elementText(element) + " against " + b.elementText(element));
  return false;
}

static bool compareRuns(const Rank &rank, int32_t number, ArrayRef<std::unique_ptr<Program>> programs) {
  const RankRun &a = rank.runs[0], &b = rank.runs[1];
  if (a.results.size() != b.results.size()) {
    report("the programs have " + Twine(a.results.size()) + " and " + Twine(b.results.size()) + " results");
    return false;
  }
  bool equal = true;
  for (size_t i = 0; i < a.results.size(); ++i)
    equal &= compareValues(a.results[i], b.results[i], "rank " + Twine(number) + ", result " + Twine(i));
  for (size_t i = 0; i < std::min(a.arguments.size(), b.arguments.size()); ++i)
    if (none_of(programs, [&](const std::unique_ptr<Program> &program) { return program->losesContents(i); }))
      equal &= compareValues(a.arguments[i], b.arguments[i],
                             "rank " + Twine(number) + ", argument " + Twine(i) + " after the run");
  return equal;
}

static Error writeResults(const Rank &rank, int32_t number) {
  const RankRun &run = rank.runs[0];
  for (auto [index, result] : enumerate(run.results)) {
    if (printResults)
      outs() << "rank " << number << " result " << index << ": " << result.text() << "\n";
    if (outputFolder.empty())
      continue;
    if (std::error_code code = sys::fs::create_directories(outputFolder))
      return createFileError(outputFolder, code);
    if (Error error =
            writeNpy((Twine(outputFolder) + "/rank" + Twine(number) + "_result" + Twine(index) + ".npy").str(), result))
      return error;
  }
  return Error::success();
}

static Expected<commrt_job *> openJob(int64_t wanted) {
  commrt_options options;
  commrt_options_init(&options);
  std::string name = backend;
  if (name.empty())
    name = std::getenv("OMPI_COMM_WORLD_SIZE") || std::getenv("PMI_SIZE") ? "mpi" : "threads";
  options.backend = name.c_str();
  options.ranks = name == "mpi" ? ranks : static_cast<int32_t>(ranks > 0 ? int64_t(ranks) : wanted);
  options.timeout_ns = timeoutMs * 1'000'000;
  options.trace = !timelinePath.empty();
  if (!fault.empty())
    options.fault = fault.c_str();
  commrt_job *job = nullptr;
  char message[2048];
  if (commrt_job_create(&options, &job, message, sizeof(message)) != COMMRT_OK)
    return createStringError(message);
  return job;
}

/// Runs all ranks of this process and deals with what they computed.
static int runAll(commrt_job *job, ArrayRef<std::unique_ptr<Program>> programs) {
  int32_t first = std::max(0, commrt_job_local_rank(job));
  std::vector<Rank> local(commrt_job_local_rank(job) < 0 ? commrt_job_ranks(job) : 1);
  for (auto [index, rank] : enumerate(local)) {
    if (commrt_context_create(job, first + index, &rank.context) != COMMRT_OK)
      return report("cannot create a context");
    rank.runs.resize(programs.size());
    for (auto [run, program] : zip_equal(rank.runs, programs))
      if (Error error = fillArguments(*program, first + index, run.arguments))
        return report(toString(std::move(error)));
  }
  std::vector<std::thread> threads;
  for (Rank &rank : local)
    threads.emplace_back([&rank, programs] { runRank(rank, programs); });
  for (std::thread &thread : threads)
    thread.join();
  int status = EXIT_SUCCESS;
  auto check = [&](Error error) {
    if (error)
      status = report(toString(std::move(error)));
  };
  // Ranks of one process often fail with one message: say it once.
  llvm::StringSet<> said;
  for (Rank &rank : local)
    if (rank.status != COMMRT_OK) {
      status = EXIT_FAILURE;
      if (said.insert(rank.message).second)
        report(Twine(commrt_status_name(rank.status)) + ": " + rank.message);
    }
  if (status == EXIT_SUCCESS) {
    for (auto [index, rank] : enumerate(local)) {
      check(writeResults(rank, first + index));
      if (programs.size() == 2 && !compareRuns(rank, first + index, programs))
        status = EXIT_FAILURE;
    }
    if (programs.size() == 2 && status == EXIT_SUCCESS && first == 0)
      outs() << "equal, bit for bit, on " << commrt_job_ranks(job) << " ranks\n";
  }
  if (!timelinePath.empty())
    check(writeTimeline(local));
  for (Rank &rank : local)
    commrt_context_destroy(rank.context);
  return status;
}

int main(int argc, char **argv) {
  InitLLVM init(argc, argv);
  cl::HideUnrelatedOptions(category);
  cl::ParseCommandLineOptions(argc, argv, "Runs a program of collectives on threads or under mpirun\n");
  if (ranks < 0 || timeoutMs <= 0 || iterations < 1)
    return report("--ranks, --timeout-ms and --iterations must be positive");
  InitializeNativeTarget();
  InitializeNativeTargetAsmPrinter();

  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  mlir::registerAllToLLVMIRTranslations(registry);
  commsched::registerAllDialects(registry);
  commsched::registerAllExtensions(registry);
  mlir::MLIRContext context(registry);

  std::vector<std::unique_ptr<Program>> programs;
  int64_t wanted = 1;
  for (StringRef path : {StringRef(inputPath), StringRef(comparePath)}) {
    if (path.empty())
      continue;
    Expected<std::unique_ptr<Program>> program = Program::load(context, path, entry);
    if (!program)
      return report(toString(program.takeError()));
    wanted = std::max(wanted, (*program)->ranks());
    programs.push_back(std::move(*program));
  }
  if (programs.size() == 2 && programs[0]->arguments().size() != programs[1]->arguments().size())
    return report("the programs have different arguments");
  Expected<commrt_job *> job = openJob(wanted);
  if (!job)
    return report(toString(job.takeError()));
  int status = runAll(*job, programs);
  commrt_job_destroy(*job);
  return status;
}
