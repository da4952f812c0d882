//===- comm-calibrate.cpp - Measures what collectives cost on a machine -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Times the collectives of given programs, or a grid of sizes, on all ranks of a job, and writes a machine profile in
// which the measurements stand in the place of the model. Measurements are kept for later runs.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Calibration/Cache.h"
#include "CommSched/Calibration/Profile.h"
#include "CommSched/Calibration/RuntimeBench.h"
#include "CommSched/Support/OutputFile.h"
#include "CommSched/Support/RankThreads.h"
#include "FromTimeline.h"
#include "Questions.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/WithColor.h"
#include "llvm/TargetParser/Host.h"
#include <thread>

using namespace llvm;
using namespace commsched;

static cl::OptionCategory category("comm-calibrate options");
static cl::list<std::string> programs("program",
                                      cl::desc("Measure what this program's collectives need; may be repeated"),
                                      cl::value_desc("step.mlir"), cl::cat(category));
static cl::opt<std::string> backend("backend", cl::desc("threads, mpi or another (default: mpi under mpirun)"),
                                    cl::value_desc("name"), cl::cat(category));
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
static cl::list<std::string> elements("elements", cl::CommaSeparated,
                                      cl::desc("Element types to measure apart (default: f32, for all types)"),
                                      cl::value_desc("type,..."), cl::cat(category));
static cl::opt<int64_t> minBytes("min-bytes", cl::desc("Smallest size of the grid (default 1024)"), cl::value_desc("N"),
                                 cl::init(1024), cl::cat(category));
static cl::opt<int64_t> maxBytes("max-bytes", cl::desc("Largest size of the grid (default 67108864)"),
                                 cl::value_desc("N"), cl::init(64 << 20), cl::cat(category));
static cl::opt<double>
    budget("budget-seconds",
           cl::desc("Begin no further point after this time (default: no limit); a later run goes on "
                    "where this one ended"),
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
static cl::opt<bool> quiet("quiet", cl::desc("Print no progress"), cl::cat(category));

/// Exit codes.
static constexpr int failedCode = 1, inaccurateCode = 2;
/// What belongs to the fingerprint of a measurement: a change of what is measured, or how, has to change it.
static constexpr int cacheVersion = 2;
/// The longest wait for another process that writes the cache.
static constexpr std::chrono::seconds lockDeadline(30);

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

static Error open(LocalRanks &local) {
  std::string name = backend;
  if (name.empty())
    name = std::getenv("OMPI_COMM_WORLD_SIZE") || std::getenv("PMI_SIZE") ? "mpi" : "threads";
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

/// A text that rank 0 has, on all ranks. Collective.
static Expected<std::string> broadcast(Bench &bench, const std::string &text) {
  auto bytes = static_cast<int64_t>(bench.rank() == 0 ? text.size() : 0);
  Expected<std::vector<std::vector<int64_t>>> sizes = bench.gather(bytes);
  if (!sizes)
    return sizes.takeError();
  size_t size = (*sizes)[0][0];
  std::vector<int64_t> words((size + 7) / 8);
  if (words.empty())
    return std::string();
  if (bench.rank() == 0)
    std::memcpy(words.data(), text.data(), size);
  Expected<std::vector<std::vector<int64_t>>> all = bench.gather(words);
  if (!all)
    return all.takeError();
  return std::string(reinterpret_cast<const char *>((*all)[0].data()), size);
}

//===- Measuring ------------------------------------------------------------------------------===//

/// Everything that decides what a number means: if it changes, old numbers are not read.
static std::string fingerprintOf(const LocalRanks &local, const MachineModel &base) {
  return formatv("comm-calibrate {0}; backend {1}; ranks {2}; ranks per node {3}; processor {4} x {5}; recipe {6}",
                 cacheVersion, commrt_job_backend(local.job), commrt_job_ranks(local.job), base.ranksPerNode,
                 sys::getHostCPUName(), std::thread::hardware_concurrency(), seedRecipe ? "seed" : "median")
      .str();
}

/// The curves that rank 0 has in its cache, on all ranks.
static Expected<std::vector<CalibratedCurve>> loadKnown(Bench &bench, const CalibrationCache *cache,
                                                        StringRef fingerprint) {
  std::string text;
  if (cache && !fresh && bench.rank() == 0)
    text = cache->load().value_or("");
  Expected<std::string> shared = broadcast(bench, text);
  if (!shared)
    return shared.takeError();
  if (shared->empty())
    return std::vector<CalibratedCurve>();
  Expected<std::vector<CalibratedCurve>> curves = parseCacheText(*shared, fingerprint);
  if (curves)
    return curves;
  if (bench.rank() == 0) {
    WithColor::warning(errs(), "comm-calibrate")
        << "'" << cache->path() << "' is set aside and measured anew: " << toString(curves.takeError()) << "\n";
    cache->setAside();
  } else {
    consumeError(curves.takeError());
  }
  return std::vector<CalibratedCurve>();
}

static bool isSameQuestion(const CollectiveProbe &a, const CollectiveProbe &b) {
  return a.kind == b.kind && a.shape == b.shape && a.element == b.element;
}

/// Adds the points of `newer` to those of `curves`; of equal sizes the one with more samples stays.
static void mergeInto(std::vector<CalibratedCurve> &curves, const CalibratedCurve &newer) {
  auto at = find_if(curves, [&](const CalibratedCurve &curve) { return isSameQuestion(curve.probe, newer.probe); });
  if (at == curves.end()) {
    curves.push_back(newer);
    return;
  }
  for (const CalibratedPoint &point : newer.points) {
    auto place = lower_bound(at->points, point.bytes,
                             [](const CalibratedPoint &known, Bytes bytes) { return known.bytes < bytes; });
    if (place == at->points.end() || place->bytes != point.bytes)
      at->points.insert(place, point);
    else if (place->time.n <= point.time.n)
      *place = point;
  }
}

/// Stores what was measured beside what other processes have stored meanwhile.
static void store(const CalibrationCache &cache, StringRef fingerprint, ArrayRef<CalibratedCurve> curves) {
  Error error = cache.update(
      [&](std::optional<std::string> text) {
        std::vector<CalibratedCurve> all;
        if (text) {
          if (Expected<std::vector<CalibratedCurve>> stored = parseCacheText(*text, fingerprint))
            all = std::move(*stored);
          else
            consumeError(stored.takeError());
        }
        for (const CalibratedCurve &curve : curves)
          mergeInto(all, curve);
        return toCacheText(all, fingerprint);
      },
      lockDeadline);
  if (error)
    WithColor::warning(errs(), "comm-calibrate") << "nothing is kept: " << toString(std::move(error)) << "\n";
}

/// Measures all questions. Collective; the same result on every rank.
static Expected<std::vector<CalibratedCurve>> measureAll(Bench &bench, ArrayRef<Question> questions,
                                                         const CalibrationCache *cache, StringRef fingerprint) {
  Expected<std::vector<CalibratedCurve>> known = loadKnown(bench, cache, fingerprint);
  if (!known)
    return known;
  CalibratorOptions options;
  options.seedRecipe = seedRecipe;
  options.budget = static_cast<Ns>(budget * 1e9);
  auto progress = [&](const std::string &line) {
    if (!quiet && bench.rank() == 0)
      errs() << line << "\n";
  };
  Calibrator calibrator(bench, options, progress);
  std::vector<CalibratedCurve> curves;
  for (const Question &question : questions) {
    if (question.probe.shape.ranks > bench.ranks()) {
      curves.push_back({question.probe,
                        {},
                        formatv("it needs {0} ranks, the job has {1}", question.probe.shape.ranks, bench.ranks())});
      continue;
    }
    std::vector<CalibratedPoint> points;
    for (const CalibratedCurve &curve : *known)
      if (isSameQuestion(curve.probe, question.probe))
        points = curve.points;
    Expected<CalibratedCurve> curve =
        question.sizes.empty() ? calibrator.measureCurve(question.probe, minBytes, maxBytes, std::move(points))
                               : calibrator.measureSizes(question.probe, question.sizes, std::move(points));
    if (!curve)
      return curve.takeError();
    if (cache && bench.rank() == 0)
      store(*cache, fingerprint, *curve);
    curves.push_back(std::move(*curve));
  }
  return curves;
}

//===- The result -----------------------------------------------------------------------------===//

static void printSummary(const Calibration &calibration) {
  for (const CalibratedCurve &curve : calibration.curves) {
    errs() << stringify(curve.probe.kind) << " on " << curve.probe.shape.ranks << " ranks, "
           << stringify(curve.probe.element) << ": " << curve.points.size() << " points";
    if (std::vector<int64_t> misses = interpolationErrors(curve); !misses.empty())
      errs() << formatv(", interpolation misses by {0:F1} % (median), {1:F1} % (95 %)",
                        misses[misses.size() / 2] / 10.0, misses[misses.size() * 95 / 100] / 10.0);
    if (!curve.skipped.empty())
      errs() << (curve.points.empty() ? "; not measured: " : "; incomplete: ") << curve.skipped;
    errs() << "\n";
  }
}

static int write(const MachineModel &base, const Calibration &calibration) {
  StringRef name = outputPath == "-" ? StringRef("calibrated") : sys::path::stem(outputPath);
  Expected<MachineModel> machine = mergeCalibration(base, calibration, name);
  if (!machine)
    return report(machine.takeError());
  if (Error error = writeWhole(outputPath, [&](raw_ostream &os) {
        os << machine->toJSON();
        return Error::success();
      }))
    return report(std::move(error));
  if (!quiet)
    printSummary(calibration);
  if (maxError > 0)
    for (const CalibratedCurve &curve : calibration.curves)
      if (std::vector<int64_t> misses = interpolationErrors(curve);
          !misses.empty() && static_cast<double>(misses[misses.size() * 95 / 100]) > 10 * maxError)
        return inaccurateCode;
  return EXIT_SUCCESS;
}

static int calibrate(const MachineModel &base, const QuestionOptions &wanted) {
  LocalRanks local;
  if (Error error = open(local))
    return report(std::move(error));
  Expected<std::vector<Question>> questions = makeQuestions(wanted, base, commrt_job_ranks(local.job));
  if (!questions)
    return report(questions.takeError());
  std::string fingerprint = fingerprintOf(local, base);
  std::string folder = cacheFolder.empty() ? CalibrationCache::defaultFolder() : cacheFolder.getValue();
  std::optional<CalibrationCache> cache;
  if (folder != "none" && !folder.empty())
    cache.emplace(folder, fingerprint);

  std::vector<std::optional<std::vector<CalibratedCurve>>> curves(local.contexts.size());
  std::vector<std::string> errors(local.contexts.size());
  auto measureRank = [&](size_t index) {
    RuntimeBench bench(local.contexts[index]);
    if (Expected<std::vector<CalibratedCurve>> result =
            measureAll(bench, *questions, cache ? &*cache : nullptr, fingerprint))
      curves[index] = std::move(*result);
    else
      errors[index] = toString(result.takeError());
  };
  if (Error error = runOnThreads(local.contexts.size(), measureRank))
    return report(std::move(error));
  for (const std::string &error : errors)
    if (!error.empty())
      return report(error);
  if (commrt_rank(local.contexts.front()) != 0)
    return EXIT_SUCCESS;
  Calibration calibration{std::move(*curves.front()), {}};
  calibration.facts = {{"tool", "comm-calibrate"},
                       {"base", base.name},
                       {"fingerprint", fingerprint},
                       {"clock", RuntimeBench(local.contexts.front()).clockName()}};
  return write(base, calibration);
}

int main(int argc, char **argv) {
  InitLLVM init(argc, argv);
  cl::HideUnrelatedOptions(category);
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
    return report("--min-bytes and --max-bytes: expected 1 <= min <= max <= 1 TiB, got " + Twine(minBytes) + " and " +
                  Twine(maxBytes));
  Expected<MachineModel> base = MachineModel::load(basePath);
  if (!base)
    return report(base.takeError());
  if (!fromTimelines.empty()) {
    if (!programs.empty() || !kinds.empty() || !elements.empty())
      return report("--from-timeline: expected no --program, --kinds or --elements, since nothing is measured");
    Expected<bool> isAccurate = refineFromTimelines(fromTimelines, *base, outputPath, quiet);
    if (!isAccurate)
      return report(isAccurate.takeError());
    return *isAccurate ? EXIT_SUCCESS : inaccurateCode;
  }
  return calibrate(*base, {programs, kinds, elements});
}
