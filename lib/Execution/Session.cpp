//===- Session.cpp - Ranks that run programs --------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One thread per rank of this process.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Execution/Session.h"
#include "CommSched/Calibration/RuntimeBench.h"
#include "CommSched/Runtime/Backend.h"
#include "CommSched/Support/RankThreads.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/DynamicLibrary.h"

using namespace llvm;
using namespace commsched;

/// What the launcher of this process says.
static Expected<commrt_launch> readLaunch() {
  commrt_launch launch = {};
  launch.struct_size = sizeof(launch);
  char message[2048];
  if (commrt_launch_read(&launch, message, sizeof(message)) != COMMRT_OK)
    return createStringError(message);
  return launch;
}

Expected<std::string> Session::launchedBackend() {
  Expected<commrt_launch> launch = readLaunch();
  if (!launch)
    return launch.takeError();
  return std::string(launch->backend);
}

/// Whether the ranks of a backend are processes that something else has started.
static Expected<bool> isLaunchedBackend(StringRef name) {
  if (name != "nccl")
    return name == "mpi";
  Expected<commrt_launch> launch = readLaunch();
  if (!launch)
    return launch.takeError();
  return launch->rank >= 0;
}

Session::Session(const SessionOptions &options) : options(options) {}

bool Session::mayBeShared(const SessionOptions &options) {
  SmallVector<StringRef> parts;
  StringRef(options.backend).split(parts, ',');
  return any_of(parts, [](StringRef part) { return part != "threads" && part != "sim"; });
}

bool commsched::isDeviceBackend(StringRef backends) {
  std::string first = backends.split(',').first.str();
  const commrt_backend *table = nullptr;
  // An unknown backend is an error when the session is opened.
  return !first.empty() && commrt_backend_find(first.c_str(), &table, nullptr, 0) == COMMRT_OK &&
         (table->flags & COMMRT_BACKEND_DEVICE) != 0;
}

bool commsched::isDeviceEmulated() {
  const char *path = std::getenv("COMMRT_CUDART_LIBRARY");
  // The symbol by which the nccl backend, too, knows the emulated CUDA runtime.
  return path && sys::DynamicLibrary::getPermanentLibrary(path).getAddressOfSymbol("emulatorRegisterKernel");
}

Expected<std::unique_ptr<Session>> Session::open(const SessionOptions &sessionOptions, int64_t wanted) {
  std::unique_ptr<Session> session(new Session(sessionOptions));
  char message[2048];
  commrt_options options;
  commrt_options_init(&options);
  options.backend = sessionOptions.backend.c_str();
  options.ranks = sessionOptions.ranks;
  Expected<bool> isLaunched = isLaunchedBackend(sessionOptions.backend);
  if (!isLaunched)
    return isLaunched.takeError();
  if (options.ranks == 0 && !*isLaunched)
    options.ranks = static_cast<int32_t>(wanted);
  options.timeout_ns = sessionOptions.timeoutMs * 1'000'000;
  options.trace = sessionOptions.trace;
  options.poison = sessionOptions.poison;
  if (!sessionOptions.fault.empty())
    options.fault = sessionOptions.fault.c_str();
  if (commrt_job_create(&options, &session->job, message, sizeof(message)) != COMMRT_OK)
    return createStringError(message);
  int32_t first = std::max(0, commrt_job_local_rank(session->job));
  session->localRanks.resize(session->isShared() ? 1 : session->ranks());
  for (auto [index, rank] : enumerate(session->localRanks)) {
    rank.number = first + static_cast<int32_t>(index);
    if (commrt_context_create(session->job, rank.number, &rank.context) != COMMRT_OK)
      return createStringError("cannot create the context of rank " + Twine(rank.number));
    commrt_emulate_costs(rank.context, sessionOptions.emulateCosts);
  }
  return session;
}

Session::~Session() {
  bench.reset();
  for (Rank &rank : localRanks)
    commrt_context_destroy(rank.context);
  commrt_job_destroy(job);
}

Expected<std::vector<std::vector<int64_t>>> Session::gather(ArrayRef<int64_t> own) {
  if (!isShared())
    return std::vector<std::vector<int64_t>>(localRanks.size(), own.vec());
  if (!bench)
    bench = std::make_unique<RuntimeBench>(localRanks.front().context);
  return bench->gather(own);
}

Error Session::checkGroups(ArrayRef<std::unique_ptr<Program>> programs) {
  for (const std::unique_ptr<Program> &program : programs)
    for (const auto &group : program->groups()) {
      auto [known, isNew] = groups.try_emplace(group.getKey(), group.getValue());
      if (!isNew && known->second != group.getValue())
        return createStringError("'" + program->name() + "': expected group @" + group.getKey() +
                                 " as in the previous program (" + known->second + "), got " + group.getValue());
    }
  return Error::success();
}

/// Takes the times of the calls from the device, where they are in the trace from record `first` on.
static void useDeviceTimes(commrt_context *context, int64_t first, RankRun &run) {
  constexpr int32_t markRecord = 102;
  std::vector<int64_t> marks;
  for (int64_t i = first, n = commrt_trace_size(context); i < n; ++i) {
    commrt_trace_record record;
    if (commrt_trace_get(context, i, &record) == COMMRT_OK && record.kind == markRecord)
      marks.push_back(record.begin_ns);
  }
  if (marks.size() != run.marks.size())
    return;
  run.marks = std::move(marks);
  run.beginNs = run.marks.front();
  run.endNs = run.marks.back();
}

Error Session::alignRuns(size_t programs) {
  for (Rank &rank : localRanks)
    for (RankRun &run : rank.runs)
      run.originNs = run.beginNs;
  // Only the clocks of devices are compared.
  if (!options.trace || !commrt_context_is_device(localRanks.front().context))
    return Error::success();
  for (size_t program = 0; program < programs; ++program) {
    Expected<std::vector<std::vector<int64_t>>> all = gather({localRanks.front().runs[program].beginNs});
    if (!all)
      return all.takeError();
    int64_t origin = INT64_MAX;
    for (const std::vector<int64_t> &begin : *all)
      origin = std::min(origin, begin.front());
    for (Rank &rank : localRanks)
      origin = std::min(origin, rank.runs[program].beginNs);
    for (Rank &rank : localRanks)
      rank.runs[program].originNs = origin;
  }
  return Error::success();
}

void Session::runRank(Rank &rank, ArrayRef<std::unique_ptr<Program>> programs) {
  commrt_make_current(rank.context);
  for (auto [run, program] : zip_equal(rank.runs, programs)) {
    if (program->begin(rank.context) != COMMRT_OK)
      break;
    run.beginNs = commrt_clock_ns(rank.context);
    int64_t traced = commrt_trace_size(rank.context);
    if (program->run(rank.context, run.arguments, run.results, options.iterations, run.marks) != COMMRT_OK ||
        commrt_program_end(rank.context) != COMMRT_OK)
      break;
    run.endNs = commrt_clock_ns(rank.context);
    if (options.trace && commrt_context_is_device(rank.context))
      useDeviceTimes(rank.context, traced, run);
    run.leftBytes = commrt_allocated_bytes(rank.context);
  }
  std::vector<char> message(1 << 14);
  rank.status = commrt_last_error(rank.context, message.data(), message.size());
  rank.message = message.data();
}

Error Session::run(ArrayRef<std::unique_ptr<Program>> programs,
                   function_ref<Error(const Program &, int32_t, std::vector<HostValue> &)> fill) {
  if (Error error = checkGroups(programs))
    return error;
  for (Rank &rank : localRanks) {
    rank.runs = std::vector<RankRun>(programs.size());
    for (auto [run, program] : zip_equal(rank.runs, programs))
      if (Error error = fill(*program, rank.number, run.arguments))
        return error;
  }
  if (Error error = runOnThreads(localRanks.size(), [&](size_t index) { runRank(localRanks[index], programs); }))
    return error;
  // Ranks of one process often fail with the same message, or meet the same fault at once: print it once.
  auto withoutRank = [](StringRef message) {
    StringRef rest = message;
    return rest.consume_front("rank ") && !rest.take_while(isDigit).empty() && rest.contains(": ")
               ? rest.drop_while(isDigit)
               : message;
  };
  StringSet<> said;
  Error errors = Error::success();
  for (Rank &rank : localRanks)
    if (rank.status != COMMRT_OK && said.insert(withoutRank(rank.message)).second)
      errors = joinErrors(std::move(errors),
                          createStringError(Twine(commrt_status_name(rank.status)) + ": " + rank.message));
  return errors ? std::move(errors) : alignRuns(programs.size());
}
