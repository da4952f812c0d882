//===- Launcher.cpp - Rank and size from the launcher's environment --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One table of variables per launcher. Sources: PyTorch's documentation of torchrun, Open MPI's list of variables for
// applications, the PMI variables of MPICH's Hydra and of Cray, the output variables of Slurm's srun(1).
//
//===------------------------------------------------------------------------------------------===//

#include "Core/Launcher.h"
#include "CommSched/Runtime/Runtime.h"
#include "Core/Support/Text.h"
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <utility>

using namespace commsched::runtime;

/// The most ranks of a job, as in Job.cpp.
static constexpr int64_t kMostRanks = 1 << 20;
/// A secret is sent in a field of this many bytes.
static constexpr size_t kLongestSecret = 256;
static constexpr size_t kLongestJob = 128;
static constexpr size_t kLongestHost = 1024;
static constexpr int64_t kLargestPort = 65535;
/// A day.
static constexpr int64_t kLongestMs = 24 * 3600 * 1000;

Environment commsched::runtime::processEnvironment() {
  return [](const char *name) -> const char * { return std::getenv(name); };
}

namespace {
/// The variables of one launcher. Of several names for one value the first that is set counts.
struct Names {
  const char *launcher;
  const char *rank;
  std::initializer_list<const char *> size, localRank, localSize;
  /// The launcher counts only if one of these is set, too; none: always.
  std::initializer_list<const char *> needs;
};
} // namespace

/// In the order in which they are asked.
static const Names kLaunchers[] = {
    {"COMMRT_RANK", "COMMRT_RANK", {"COMMRT_SIZE"}, {"COMMRT_LOCAL_RANK"}, {}, {}},
    {"torchrun", "RANK", {"WORLD_SIZE"}, {"LOCAL_RANK"}, {"LOCAL_WORLD_SIZE"}, {}},
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK",
     {"OMPI_COMM_WORLD_SIZE"},
     {"OMPI_COMM_WORLD_LOCAL_RANK"},
     {"OMPI_COMM_WORLD_LOCAL_SIZE"},
     {}},
    // PMIx has no variable for the size; srun --mpi=pmix says it by Slurm's.
    {"PMIx", "PMIX_RANK", {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, {"SLURM_LOCALID"}, {}, {}},
    {"PMI", "PMI_RANK", {"PMI_SIZE"}, {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"}, {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}, {}},
    // A batch script has SLURM_PROCID and SLURM_NTASKS, too, but is one process: only a step has a number.
    {"Slurm",
     "SLURM_PROCID",
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     {"SLURM_LOCALID"},
     {},
     {"SLURM_STEP_ID", "SLURM_STEPID"}},
};

static const char *findSet(const Environment &environment, std::initializer_list<const char *> names) {
  for (const char *name : names)
    if (environment(name))
      return name;
  return nullptr;
}

/// Reads a whole number from `least` to `most`. Returns an empty text, or what is wrong.
static std::string readNumber(const Environment &environment, const char *name, int64_t least, int64_t most,
                              int64_t &value) {
  const char *text = environment(name), *end = text + std::strlen(text);
  auto [stopped, error] = std::from_chars(text, end, value);
  if (text != end && error == std::errc() && stopped == end && value >= least && value <= most)
    return "";
  constexpr size_t shown = 40;
  std::string cut = std::string(text).substr(0, shown);
  return std::string(name) + " is '" + cut + (end - text > static_cast<std::ptrdiff_t>(shown) ? "..." : "") +
         "', expected a number from " + std::to_string(least) + " to " + std::to_string(most);
}

static std::string readOne(const Environment &environment, const Names &names, Launch &launch) {
  const char *sizeName = findSet(environment, names.size);
  if (!sizeName)
    return std::string(names.rank) + " is set, but " + *names.size.begin() +
           " is not; set COMMRT_RANK and COMMRT_SIZE if the launcher does not say the number of ranks";
  int64_t ranks = 0, rank = 0, localRank = -1, localRanks = 0;
  if (std::string error = readNumber(environment, sizeName, 1, kMostRanks, ranks); !error.empty())
    return error;
  if (std::string error = readNumber(environment, names.rank, 0, kMostRanks - 1, rank); !error.empty())
    return error;
  if (rank >= ranks)
    return std::string(names.rank) + " is " + std::to_string(rank) + ", but " + sizeName + " is " +
           std::to_string(ranks) + ": ranks are counted from 0";
  if (const char *localName = findSet(environment, names.localRank)) {
    if (std::string error = readNumber(environment, localName, 0, kMostRanks - 1, localRank); !error.empty())
      return error;
    if (localRank >= ranks)
      return std::string(localName) + " is " + std::to_string(localRank) + ", but " + sizeName + " is " +
             std::to_string(ranks);
  }
  if (const char *localSize = findSet(environment, names.localSize))
    if (std::string error = readNumber(environment, localSize, 1, ranks, localRanks); !error.empty())
      return error;
  launch = {names.launcher, static_cast<int32_t>(rank), static_cast<int32_t>(ranks), static_cast<int32_t>(localRank),
            static_cast<int32_t>(localRanks)};
  return "";
}

std::string commsched::runtime::readLaunch(const Environment &environment, Launch &launch) {
  launch = {};
  if (!environment("COMMRT_RANK"))
    if (const char *alone = findSet(environment, {"COMMRT_SIZE", "COMMRT_LOCAL_RANK"}))
      return std::string(alone) + " is set, but COMMRT_RANK is not";
  for (const Names &names : kLaunchers)
    if (environment(names.rank) && (names.needs.size() == 0 || findSet(environment, names.needs)))
      return readOne(environment, names, launch);
  return "";
}

const char *commsched::runtime::backendFor(const Launch &launch) {
  const std::string &launcher = launch.launcher;
  if (launcher == "Open MPI" || launcher == "PMIx" || launcher == "PMI")
    return "mpi";
  // An interactive step of Slurm is one task, in which threads are what is meant.
  bool isAlone = launcher == "Slurm" && launch.ranks == 1;
  return launcher.empty() || isAlone ? "threads" : "nccl";
}

/// The launcher's name for as long as the library is loaded.
static const char *lastingName(const std::string &launcher) {
  for (const Names &names : kLaunchers)
    if (launcher == names.launcher)
      return names.launcher;
  return "";
}

int32_t commrt_launch_read(commrt_launch *launch, char *message, size_t size) {
  copyText("", message, size);
  if (!launch || launch->struct_size < offsetof(commrt_launch, rank)) {
    copyText("launch is NULL or has no size", message, size);
    return COMMRT_ERR_INVALID;
  }
  Launch read;
  std::string error = readLaunch(processEnvironment(), read);
  uint32_t known = std::min<uint32_t>(launch->struct_size, sizeof(commrt_launch));
  const char *backend = error.empty() ? backendFor(read) : "";
  commrt_launch result = {launch->struct_size,        read.rank, read.ranks, read.localRank,
                          lastingName(read.launcher), backend};
  std::memcpy(static_cast<void *>(launch), &result, known);
  copyText(error, message, size);
  return error.empty() ? COMMRT_OK : COMMRT_ERR_INVALID;
}

/// The launcher's name for the job, with the number of the attempt where it starts a job again.
static std::string readJob(const Environment &environment) {
  std::string job;
  if (const char *name = findSet(environment, {"COMMRT_JOB", "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "SLURM_JOB_ID"}))
    job = environment(name);
  for (const char *part : {"TORCHELASTIC_RESTART_COUNT", "SLURM_STEP_ID"})
    if (const char *text = environment(part))
      job += std::string(".") + text;
  return job.substr(0, kLongestJob);
}

static std::string readPort(const Environment &environment, uint16_t &port) {
  const char *name = findSet(environment, {"COMMRT_PORT", "MASTER_PORT"});
  if (!name)
    return "MASTER_PORT is not set: rank 0 listens at MASTER_ADDR:MASTER_PORT";
  int64_t value = 0;
  if (std::string error = readNumber(environment, name, 1, kLargestPort, value); !error.empty())
    return error;
  const char *agent = environment("TORCHELASTIC_USE_AGENT_STORE");
  if (std::strcmp(name, "MASTER_PORT") == 0 && agent && std::strcmp(agent, "True") == 0) {
    if (value == kLargestPort)
      return "torchrun's agent listens at MASTER_PORT 65535, and there is no port after it; set COMMRT_PORT";
    ++value;
  }
  port = static_cast<uint16_t>(value);
  return "";
}

std::string commsched::runtime::readMeetingPoint(const Environment &environment, MeetingPoint &point) {
  point = {};
  const char *name = findSet(environment, {"COMMRT_ADDR", "MASTER_ADDR"});
  if (!name)
    return "MASTER_ADDR is not set: rank 0 listens at MASTER_ADDR:MASTER_PORT";
  point.host = environment(name);
  if (point.host.size() > 2 && point.host.front() == '[' && point.host.back() == ']')
    point.host = point.host.substr(1, point.host.size() - 2);
  if (point.host.empty() || point.host.size() > kLongestHost)
    return std::string(name) + " is " + (point.host.empty() ? "empty" : "too long") + ", expected a name or an address";
  if (std::string error = readPort(environment, point.port); !error.empty())
    return error;
  // mpirun of Open MPI 4 gives the processes of a job a random key for networks that want one.
  if (const char *secret = findSet(environment, {"COMMRT_SECRET", "OMPI_MCA_orte_precondition_transports"}))
    point.secret = environment(secret);
  if (point.secret.size() > kLongestSecret)
    return "COMMRT_SECRET has " + std::to_string(point.secret.size()) + " bytes, expected at most " +
           std::to_string(kLongestSecret);
  point.job = readJob(environment);
  using Time = std::pair<const char *, int64_t &>;
  for (auto [variable, value] :
       {Time("COMMRT_SILENCE_MS", point.silenceMs), Time("COMMRT_START_TIMEOUT_MS", point.startMs)})
    if (environment(variable))
      if (std::string error = readNumber(environment, variable, 1, kLongestMs, value); !error.empty())
        return error;
  return "";
}
