//===- comm-calibrate.cpp - Measures what collectives cost on a machine -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Times the collectives and computations of given programs, or grids of sizes, on all ranks of a job, and writes a
// machine profile in which the measurements stand in the place of the model. Measurements are kept for later runs.
//
//===------------------------------------------------------------------------------------------===//

#include "../Mains.h"
#include "CommSched/Calibration/Profile.h"
#include "CommSched/Calibration/RuntimeBench.h"
#include "CommSched/Execution/OperationKernel.h"
#include "CommSched/InitAll.h"
#include "CommSched/Support/ByteCount.h"
#include "CommSched/Support/Format.h"
#include "CommSched/Support/OutputFile.h"
#include "CommSched/Support/RankThreads.h"
#include "CommSched/Support/RunTool.h"
#include "FromTimeline.h"
#include "FromTrace.h"
#include "Questions.h"
#include "Summary.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/WithColor.h"
#include "llvm/TargetParser/Host.h"
#include <thread>
#include <unistd.h>

using namespace llvm;
using namespace commsched;

static cl::OptionCategory category("comm-calibrate options");
static cl::list<std::string> programs("program",
                                      cl::desc("Measure what this program's collectives need; may be repeated"),
                                      cl::value_desc("step.mlir"), cl::cat(category));
static cl::list<std::string> backends(
    "backend", cl::CommaSeparated,
    cl::desc("threads, mpi, nccl or another (default: mpi under mpirun, otherwise threads). Each of several gets "
             "a profile of its own, FILE.BACKEND.json"),
    cl::value_desc("name,..."), cl::cat(category));
static cl::list<std::string>
    measured("measure", cl::CommaSeparated,
             cl::desc("collectives, computations, contention, pairs (default: the first two); contention "
                      "contains pairs, which are collectives beside collectives"),
             cl::value_desc("what,..."), cl::cat(category));
static cl::list<int64_t> ctas("ctas", cl::CommaSeparated,
                              cl::desc("nccl: numbers of thread blocks of collectives for which contention is measured "
                                       "(default: NCCL's choice)"),
                              cl::value_desc("N,..."), cl::cat(category));
static cl::opt<int> ranks("ranks", cl::desc("Number of ranks (default: 2; under mpirun all)"), cl::value_desc("N"),
                          cl::init(0), cl::cat(category));
static cl::opt<std::string> basePath("base", cl::desc("Profile that is completed (default: cpu-mpi)"),
                                     cl::value_desc("profile"), cl::init("cpu-mpi"), cl::cat(category));
static cl::opt<std::string> outputPath("o", cl::desc("The profile that is written (default: standard output)"),
                                       cl::value_desc("file.json"), cl::init("-"), cl::cat(category));
static cl::list<std::string> kinds("kinds", cl::CommaSeparated,
                                   cl::desc("Kinds to measure (default: all_gather, reduce_scatter, all_reduce, "
                                            "all_to_all, broadcast, permute)"),
                                   cl::value_desc("kind,..."), cl::cat(category));
static cl::opt<std::string>
    mesh("mesh", cl::desc("Measure along the axes of a mesh of all ranks, the faster axis last (default: all ranks)"),
         cl::value_desc("AxB"), cl::cat(category));
static cl::list<std::string> elements("elements", cl::CommaSeparated,
                                      cl::desc("Element types to measure apart (default: f32, for all types)"),
                                      cl::value_desc("type,..."), cl::cat(category));
static cl::opt<ByteCount> minBytes("min-bytes", cl::desc("Smallest size of the grid (default 1024)"),
                                   cl::value_desc("N"), cl::init(1024), cl::cat(category));
static cl::opt<ByteCount> maxBytes("max-bytes", cl::desc("Largest size of the grid (default 67108864)"),
                                   cl::value_desc("N"), cl::init(64 << 20), cl::cat(category));
static cl::opt<double>
    budget("budget-seconds",
           cl::desc("Time that everything may take (default: no limit); a later run goes on where this one ended"),
           cl::value_desc("S"), cl::init(0), cl::cat(category));
static cl::opt<std::string> cacheFolder("cache", cl::desc("Folder of measurements that are kept ('none': keep none)"),
                                        cl::value_desc("folder"), cl::cat(category));
static cl::opt<bool> fresh("fresh", cl::desc("Measure anew what the cache has"), cl::cat(category));
static cl::opt<bool> seedRecipe("seed-recipe",
                                cl::desc("PyTorch's recipe: one run to warm up, the mean of two (default: medians)"),
                                cl::cat(category));
static cl::opt<double> maxError("max-error-percent",
                                cl::desc("Exit with code 2 if interpolation misses one point in twenty by more"),
                                cl::value_desc("P"), cl::init(0), cl::cat(category));
static cl::opt<int64_t> timeoutMs("timeout-ms", cl::desc("The longest wait (default 60000)"), cl::value_desc("N"),
                                  cl::init(60000), cl::cat(category));
static cl::list<std::string> fromTimelines(
    "from-timeline",
    cl::desc("Measure nothing, but refine --base by what comm-run --timeline wrote; once per file of a run"),
    cl::value_desc("run.json"), cl::cat(category));
static cl::list<std::string> fromTraces(
    "from-trace",
    cl::desc("Measure nothing, but put the times of a trace into --base (default: by the device in the trace): of "
             "torch.profiler (once per rank), XLA's profile (PGLE), or the log of XLA's estimates. With --program, "
             "list what does not match"),
    cl::value_desc("file"), cl::cat(category));
static cl::opt<bool> quiet("quiet", cl::desc("Print no progress"), cl::cat(category));
static cl::opt<std::string> jsonPath("json", cl::desc("Write the figures of the summary as JSON"),
                                     cl::value_desc("file.json"), cl::cat(category));
static OwnOptions ownOptions(category);

/// Exit codes.
static constexpr int failedCode = 1, inaccurateCode = 2;
/// What belongs to the fingerprint of a measurement: a change of what is measured, or how, has to change it.
static constexpr int cacheVersion = 5;

static int report(const Twine &message) {
  WithColor::error(errs(), "comm-calibrate") << message << "\n";
  return failedCode;
}

static int report(Error error) {
  handleAllErrors(std::move(error), [](const ErrorInfoBase &info) { report(Twine(info.message())); });
  return failedCode;
}

//===- The job --------------------------------------------------------------------------------===//

namespace {
/// A job and the contexts of the ranks in this process.
struct LocalRanks {
  ~LocalRanks() {
    for (commrt_context *context : contexts)
      commrt_context_destroy(context);
    commrt_job_destroy(job);
  }

  commrt_job *job = nullptr;
  std::vector<commrt_context *> contexts;
};
} // namespace

static Error open(const std::string &name, LocalRanks &local) {
  if (StringRef(name).split(',').first == "sim")
    return createStringError(
        "--backend=sim: expected a backend that moves data; sim would measure its own predictions");
  commrt_options options;
  commrt_options_init(&options);
  options.backend = name.c_str();
  options.ranks = ranks == 0 && name != "mpi" ? 2 : ranks.getValue();
  options.timeout_ns = timeoutMs * 1'000'000;
  char message[2048];
  if (commrt_job_create(&options, &local.job, message, sizeof(message)) != COMMRT_OK)
    return createStringError(message);
  int32_t own = commrt_job_local_rank(local.job), all = commrt_job_ranks(local.job);
  for (int32_t rank = own < 0 ? 0 : own; rank < (own < 0 ? all : own + 1); ++rank) {
    local.contexts.push_back(nullptr);
    if (commrt_context_create(local.job, rank, &local.contexts.back()) != COMMRT_OK)
      return createStringError("cannot create the context of rank " + Twine(rank));
  }
  return Error::success();
}

//===- Measuring ------------------------------------------------------------------------------===//

/// Variables that decide how fast libraries are: those of NCCL, UCX, Open MPI's transport and this runtime, sorted.
/// What launchers set anew for each job is not among them.
static std::string readEnvironment() {
  static constexpr StringLiteral prefixes[] = {
      "NCCL_",        "UCX_",         "OMPI_MCA_btl",           "OMPI_MCA_pml",          "OMPI_MCA_coll",
      "OMPI_MCA_mtl", "COMMRT_NCCL_", "COMMRT_PROGRESS_THREAD", "COMMRT_DEVICE_KERNELS", "CUDA_VISIBLE_DEVICES"};
  std::vector<std::string> all;
  for (char **entry = environ; *entry; ++entry)
    if (any_of(prefixes, [&](StringRef prefix) { return StringRef(*entry).starts_with(prefix); }))
      all.push_back(*entry);
  llvm::sort(all);
  return join(all, " ");
}

/// The same as it was at the first call.
static const std::string &describeEnvironment() {
  static const std::string text = readEnvironment();
  return text;
}

/// The model of the processors and their number, and what instructions LLVM knows them by.
static std::string describeProcessors() {
  std::string model;
  // Not a regular file: its size is not known before it is read.
  if (ErrorOr<std::unique_ptr<MemoryBuffer>> info = MemoryBuffer::getFileAsStream("/proc/cpuinfo"))
    for (StringRef line : split((*info)->getBuffer(), '\n'))
      if (auto [key, value] = line.split(':'); key.trim() == "model name") {
        model = value.trim().str() + ", ";
        break;
      }
  return formatv("{0}{1} x {2}", model, sys::getHostCPUName(), std::thread::hardware_concurrency()).str();
}

/// Everything that decides what a number means: if it changes, old numbers are not read.
static std::string fingerprintOf(const LocalRanks &local, const MachineModel &base) {
  char libraries[1024];
  commrt_job_identify(local.job, libraries, sizeof(libraries));
  return formatv("comm-calibrate {0}; backend {1} ({2}); ranks {3}; ranks per node {4}; processor {5}; recipe {6}; "
                 "environment {7}",
                 cacheVersion, commrt_job_backend(local.job), libraries, commrt_job_ranks(local.job), base.ranksPerNode,
                 describeProcessors(), seedRecipe ? "seed" : "median", describeEnvironment())
      .str();
}

static bool isMeasured(StringRef what) {
  return measured.empty() ? what == "collectives" || what == "computations" : is_contained(measured, what);
}

namespace {
/// The measurements of one rank, in the order collectives, computations, contention.
class RankCalibration {
public:
  RankCalibration(commrt_context *context, const Questions &questions, int64_t ranksPerNode, std::string fingerprint,
                  std::string folder)
      : bench(context, kRotatedBytes, ranksPerNode), questions(questions), fingerprint(std::move(fingerprint)),
        folder(std::move(folder)), begin(bench.now()) {}

  Error run();
  Calibration result;

private:
  Expected<CalibratorOptions> optionsOfStage();
  Error measureCollectives();
  Error measureComputations(EstimateStore &store);
  Error measureContention(EstimateStore &store);
  void say(const std::string &line);

  RuntimeBench bench;
  const Questions &questions;
  std::string fingerprint, folder;
  std::optional<CalibrationCache> curveCache, estimateCache;
  Ns begin;
};
} // namespace

/// A line of progress: the time that has passed, and of how much.
void RankCalibration::say(const std::string &line) {
  if (quiet || bench.rank() != 0)
    return;
  errs() << formatv("[{0:F1}", static_cast<double>(bench.now() - begin) * 1e-9);
  if (budget > 0)
    errs() << formatv(" of {0:F1}", budget.getValue());
  errs() << " s] " << line << "\n";
}

/// The options of a calibrator that begins now: what is left of the budget is its own.
Expected<CalibratorOptions> RankCalibration::optionsOfStage() {
  CalibratorOptions options;
  options.seedRecipe = seedRecipe;
  if (budget <= 0)
    return options;
  Expected<std::vector<std::vector<int64_t>>> used = bench.gather(bench.now() - begin);
  if (!used)
    return used.takeError();
  Ns most = 0;
  for (const std::vector<int64_t> &rank : *used)
    most = std::max(most, rank.front());
  options.budget = std::max<Ns>(1, static_cast<Ns>(budget * 1e9) - most);
  return options;
}

static void warn(ArrayRef<std::string> warnings) {
  for (const std::string &warning : warnings)
    WithColor::warning(errs(), "comm-calibrate") << warning << "\n";
}

Error RankCalibration::measureCollectives() {
  Expected<CalibratorOptions> stage = optionsOfStage();
  if (!stage)
    return stage.takeError();
  CalibrationSessionOptions options;
  options.calibrator = *stage;
  options.cache = curveCache ? &*curveCache : nullptr;
  options.fresh = fresh;
  options.fingerprint = fingerprint;
  Expected<CalibrationAnswers> answers =
      runCalibration(bench, questions.collectives, options, [&](const std::string &line) { say(line); });
  if (!answers)
    return answers.takeError();
  warn(answers->warnings);
  result.curves = std::move(answers->curves);
  return Error::success();
}

Error RankCalibration::measureComputations(EstimateStore &store) {
  Expected<CalibratorOptions> options = optionsOfStage();
  if (!options)
    return options.takeError();
  Sampler sampler(bench, *options);
  auto progress = [&](const std::string &line) { say(line); };
  ComputeCalibrator calibrator(bench, sampler, store, progress);
  for (const ComputeProbe &probe : questions.computations) {
    sampler.beginSeries();
    Expected<CalibratedOp> op = calibrator.measure(probe);
    if (!op)
      return op.takeError();
    result.ops.push_back(std::move(*op));
  }
  std::vector<ElementType> elements(questions.products.begin(), questions.products.end());
  Expected<Roofline> roofline = calibrator.measureRoofline(elements);
  if (!roofline)
    return roofline.takeError();
  result.roofline = std::move(*roofline);
  result.skipped = questions.skipped;
  return Error::success();
}

/// The pairs: of each kind and shape the largest size, beside a product and a copy that take long enough, and beside
/// itself along the other axis of the mesh.
Error RankCalibration::measureContention(EstimateStore &store) {
  constexpr int64_t productSide = 256;
  constexpr Bytes copyBytes = 8 << 20;
  Expected<CalibratorOptions> options = optionsOfStage();
  if (!options)
    return options.takeError();
  Sampler sampler(bench, *options);
  auto progress = [&](const std::string &line) { say(line); };
  ContentionCalibrator calibrator(bench, sampler, store, progress);
  std::vector<int64_t> settings(ctas.begin(), ctas.end());
  if (settings.empty())
    settings = {0};
  for (const CalibrationQuestion &question : questions.collectives) {
    CollectiveProbe collective = question.probe;
    collective.bytes = question.sizes.empty() ? question.most : question.sizes.back();
    for (Against against : {Against::Matrix, Against::Memory})
      for (int64_t setting : isMeasured("contention") ? settings : std::vector<int64_t>()) {
        ContentionProbe probe{question.probe, setting, against,
                              against == Against::Matrix ? productProbe(productSide, ElementType::F32)
                                                         : copyProbe(copyBytes)};
        probe.collective.bytes = collective.bytes;
        if (!question.skipped.empty()) {
          result.contention.push_back({probe, {}, {}, {}, {}, false, question.skipped});
          continue;
        }
        Expected<ContentionPoint> point = calibrator.measure(probe);
        if (!point)
          return point.takeError();
        result.contention.push_back(std::move(*point));
      }
    bool isMessage = collective.kind == CollectiveKind::Send || collective.kind == CollectiveKind::Recv;
    if (!question.skipped.empty() || isMessage || collective.kind == CollectiveKind::Barrier)
      continue;
    // Of two axes, one pair is enough.
    if (any_of(result.pairs, [&](const PairPoint &known) {
          return known.probe.kind == collective.kind && known.probe.element == collective.element &&
                 known.beside.shape == collective.shape && known.probe.shape == bench.shapeAcross(collective.shape);
        }))
      continue;
    Expected<PairPoint> pair = calibrator.measurePair(collective);
    if (!pair)
      return pair.takeError();
    result.pairs.push_back(std::move(*pair));
  }
  return Error::success();
}

Error RankCalibration::run() {
  // Processes may have other environments; the first rank's counts for all.
  Expected<std::string> ofFirst = broadcastText(bench, fingerprint);
  if (!ofFirst)
    return ofFirst.takeError();
  fingerprint = *ofFirst;
  if (folder != "none" && !folder.empty()) {
    curveCache.emplace(folder, fingerprint);
    estimateCache.emplace(folder, fingerprint + "; estimates");
  }
  if (isMeasured("collectives"))
    if (Error error = measureCollectives())
      return error;
  EstimateStore store(bench, estimateCache ? &*estimateCache : nullptr, fingerprint);
  if (Error error = store.load(fresh))
    return error;
  if (isMeasured("computations"))
    if (Error error = measureComputations(store))
      return error;
  if (isMeasured("contention") || isMeasured("pairs"))
    if (Error error = measureContention(store))
      return error;
  warn(store.getWarnings());
  result.facts.emplace_back("clock", bench.clockName());
  return Error::success();
}

//===- The result -----------------------------------------------------------------------------===//

/// The file of a backend's profile, if there are several backends.
static std::string pathOf(StringRef name, bool hasOthers) {
  if (!hasOthers || outputPath == "-")
    return outputPath;
  SmallString<128> path(outputPath);
  sys::path::replace_extension(path, name + ".json");
  return path.str().str();
}

/// What --json has of a profile: its file, and the figures of its summary.
static void addFigures(json::Array &profiles, StringRef way, const std::string &path, json::Object figures) {
  figures["way"] = way;
  figures["file"] = json::fixUTF8(path);
  profiles.push_back(std::move(figures));
}

/// Writes --json, if it was given and this process has a profile.
static Error writeJson(json::Array profiles) {
  if (jsonPath.empty() || profiles.empty())
    return Error::success();
  return writeWhole(jsonPath, [&](raw_ostream &os) {
    os << formatv("{0:2}\n", json::Value(json::Object{{"schema_version", 1}, {"profiles", std::move(profiles)}}));
    return Error::success();
  });
}

static int write(const MachineModel &base, const Calibration &calibration, const std::string &path,
                 json::Array &profiles) {
  StringRef name = path == "-" ? StringRef("calibrated") : sys::path::stem(path);
  Expected<MachineModel> machine = mergeCalibration(base, calibration, name);
  if (!machine)
    return report(machine.takeError());
  if (Error error = writeWhole(path, [&](raw_ostream &os) {
        os << machine->toJSON();
        return Error::success();
      }))
    return report(std::move(error));
  addFigures(profiles, "measured", path, describeSummary(calibration));
  if (!quiet)
    printSummary(calibration, errs());
  if (maxError > 0)
    for (const CalibratedCurve &curve : calibration.curves)
      if (std::vector<int64_t> misses = interpolationErrors(curve);
          !misses.empty() && static_cast<double>(misses[misses.size() * 95 / 100]) > 10 * maxError)
        return inaccurateCode;
  return EXIT_SUCCESS;
}

/// An error that a rank's context has latched.
static std::string errorOf(commrt_context *context) {
  char message[4096];
  int32_t status = commrt_last_error(context, message, sizeof(message));
  return status == COMMRT_OK ? "" : std::string(commrt_status_name(status)) + ": " + message;
}

/// The thread blocks of the groups that contention is measured on, for the backend.
static void chooseThreadBlocks() {
  std::string groups;
  if (const char *given = std::getenv("COMMRT_NCCL_GROUPS"))
    groups = given;
  constexpr int64_t mostMembers = 64;
  for (int64_t setting : ctas)
    for (int64_t members = 2; members <= mostMembers; ++members)
      for (int64_t nodes = 1; nodes <= members; ++nodes)
        if (members % nodes == 0)
          groups += (groups.empty() ? "" : ";") + RuntimeBench::groupName(members, nodes, setting) +
                    formatv(":min={0},max={0}", setting).str();
  if (!ctas.empty())
    setenv("COMMRT_NCCL_GROUPS", groups.c_str(), 1);
}

/// All dialects that a program may have, and what compiles them.
static mlir::DialectRegistry makeRegistry() {
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  mlir::registerAllToLLVMIRTranslations(registry);
  commsched::registerAllDialects(registry);
  commsched::registerAllExtensions(registry);
  return registry;
}

static int calibrate(const MachineModel &base, const QuestionOptions &wanted, const std::string &backend,
                     bool hasOthers, json::Array &profiles) {
  mlir::DialectRegistry registry = makeRegistry();
  OperationCompiler compiler(registry);
  LocalRanks local;
  if (Error error = open(backend, local))
    return report(std::move(error));
  Expected<Questions> questions = makeQuestions(wanted, base, commrt_job_ranks(local.job), registry, compiler);
  if (!questions)
    return report(questions.takeError());
  std::string fingerprint = fingerprintOf(local, base);
  std::string folder = cacheFolder.empty() ? CalibrationCache::defaultFolder() : cacheFolder.getValue();
  std::vector<std::unique_ptr<RankCalibration>> ranksHere;
  for (commrt_context *context : local.contexts)
    ranksHere.push_back(std::make_unique<RankCalibration>(context, *questions, base.ranksPerNode, fingerprint, folder));
  std::vector<std::string> errors(local.contexts.size());
  if (Error error = runOnThreads(local.contexts.size(), [&](size_t index) {
        errors[index] = toString(ranksHere[index]->run());
        if (errors[index].empty())
          errors[index] = errorOf(local.contexts[index]);
      }))
    return report(std::move(error));
  for (const std::string &error : errors)
    if (!error.empty())
      return report(error);
  if (commrt_rank(local.contexts.front()) != 0)
    return EXIT_SUCCESS;
  Calibration calibration = std::move(ranksHere.front()->result);
  ranksHere.clear();
  calibration.facts.insert(calibration.facts.end(),
                           {{"tool", "comm-calibrate"}, {"base", base.name}, {"fingerprint", fingerprint}});
  return write(base, calibration, pathOf(backend, hasOthers), profiles);
}

/// The backends of the command line, or the one of the launcher.
static std::vector<std::string> chooseBackends() {
  if (!backends.empty())
    return backends;
  return {std::getenv("OMPI_COMM_WORLD_SIZE") || std::getenv("PMI_SIZE") ? "mpi" : "threads"};
}

static int calibrateMain(int argc, char **argv) {
  ownOptions.offer();
  cl::ParseCommandLineOptions(
      argc, argv,
      "Measures what collectives cost on this machine and writes a machine profile\n\n"
      "  mpirun -np 2 comm-calibrate --program step.mlir -o my.json\n"
      "  comm-opt --reorder-comm-overlap --comm-machine=./my.json step.mlir\n\n"
      "  Exit code 0: the profile is written; 1: it is not; 2: it is, but --max-error-percent was exceeded,\n"
      "  or --from-timeline missed one held-out point in twenty by more than 5 percent.\n");
  if (ranks < 0 || timeoutMs <= 0 || budget < 0 || maxError < 0)
    return report("--ranks, --timeout-ms, --budget-seconds and --max-error-percent must not be negative");
  if (minBytes < 1 || maxBytes < minBytes || maxBytes > (int64_t(1) << 40))
    return report("--min-bytes and --max-bytes: expected 1 <= min <= max <= 1 TiB, got " + Twine(minBytes.value) +
                  " and " + Twine(maxBytes.value));
  if (jsonPath == "-" && outputPath == "-")
    return report("--json=-: expected a file for the profile (-o), since both would be standard output");
  Expected<MachineModel> base = MachineModel::load(basePath);
  if (!base)
    return report(base.takeError());
  if (!fromTimelines.empty() && !fromTraces.empty())
    return report("expected one of --from-timeline and --from-trace, got both");
  if (!fromTimelines.empty()) {
    if (!programs.empty() || !kinds.empty() || !elements.empty())
      return report("--from-timeline: expected no --program, --kinds or --elements, since nothing is measured");
    json::Object figures;
    Expected<bool> isAccurate = refineFromTimelines(fromTimelines, *base, outputPath, quiet, figures);
    if (!isAccurate)
      return report(isAccurate.takeError());
    json::Array profiles;
    addFigures(profiles, "refined", outputPath, std::move(figures));
    if (Error error = writeJson(std::move(profiles)))
      return report(std::move(error));
    return *isAccurate ? EXIT_SUCCESS : inaccurateCode;
  }
  if (!fromTraces.empty()) {
    if (!kinds.empty() || !elements.empty())
      return report("--from-trace: expected no --kinds or --elements, since nothing is measured");
    json::Object figures;
    if (Error error = makeProfileFromTraces(
            {fromTraces, programs, basePath.getNumOccurrences() ? basePath.getValue() : "", outputPath, quiet},
            makeRegistry(), figures))
      return report(std::move(error));
    json::Array profiles;
    addFigures(profiles, "traced", outputPath, std::move(figures));
    if (Error error = writeJson(std::move(profiles)))
      return report(std::move(error));
    return EXIT_SUCCESS;
  }
  for (const std::string &what : measured)
    if (what != "collectives" && what != "computations" && what != "contention" && what != "pairs")
      return report("--measure: expected collectives, computations, contention or pairs, got '" + what + "'");
  if (any_of(ctas, [](int64_t setting) { return setting < 1 || setting > 64; }))
    return report("--ctas: expected numbers between 1 and 64");
  InitializeNativeTarget();
  InitializeNativeTargetAsmPrinter();
  // Before this program sets variables itself.
  describeEnvironment();
  chooseThreadBlocks();
  std::vector<std::string> names = chooseBackends();
  int worst = EXIT_SUCCESS;
  json::Array profiles;
  for (const std::string &name : names) {
    if (names.size() > 1 && !quiet)
      errs() << "backend " << name << "\n";
    int code =
        calibrate(*base, {programs, kinds, elements, mesh, minBytes, maxBytes}, name, names.size() > 1, profiles);
    worst = worst == failedCode ? worst : std::max(worst, code);
    if (code == failedCode)
      worst = failedCode;
  }
  if (Error error = writeJson(std::move(profiles)))
    return report(std::move(error));
  return worst;
}

int commschedCalibrateMain(int argc, char **argv) { return runTool(argc, argv, calibrateMain); }
