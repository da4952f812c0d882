//===- Launcher.h - Rank and size from the launcher's environment ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Launchers tell a process its rank and the place where ranks meet by environment variables, each by names of its own.
// This file is the only one that reads them, so that every backend understands the same launchers.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_CORE_LAUNCHER_H
#define COMMSCHED_LIB_RUNTIME_CORE_LAUNCHER_H

#include <cstdint>
#include <functional>
#include <string>

namespace commsched::runtime {
/// The value of an environment variable, or NULL. Tests give their own.
using Environment = std::function<const char *(const char *name)>;

/// The variables of this process.
Environment processEnvironment();

/// The place of this process in its job.
struct Launch {
  /// "COMMRT_RANK", "torchrun", "Open MPI", "PMIx", "PMI" or "Slurm"; empty if no launcher started this process. The
  /// first of them whose rank is set decides, so that a launcher inside another one is the one that counts.
  std::string launcher;
  int32_t rank = -1;
  int32_t ranks = 0;
  int32_t localRank = -1; ///< among the processes of this machine; -1: the launcher does not say
  int32_t localRanks = 0; ///< number of processes of this machine; 0: the launcher does not say
};

/// Reads rank, number of ranks and local rank. Returns an empty text, or one line that says which variable has which
/// wrong value. No launcher at all is not an error.
std::string readLaunch(const Environment &environment, Launch &launch);

/// The backend for a program that does not choose one: mpi where MPI's launcher started the process, nccl where another
/// one did, otherwise threads. Static storage.
const char *backendFor(const Launch &launch);

/// Where the ranks of a job meet, and how they know each other.
struct MeetingPoint {
  std::string host; ///< name or numeric address, without brackets
  uint16_t port = 0;
  std::string secret; ///< empty: none is set
  /// Equal on all ranks of a job, and another one for each job, as far as the launcher says; may be empty.
  std::string job;
  /// COMMRT_SILENCE_MS: a rank whose process gives no sign of life for this long is lost. Default 30 s.
  int64_t silenceMs = 30'000;
  /// COMMRT_START_TIMEOUT_MS: how long the first rank waits for the last one to come. 0: as long as for anything else.
  int64_t startMs = 0;
};

/// Reads COMMRT_ADDR or MASTER_ADDR, COMMRT_PORT or MASTER_PORT, and the secret. Under torchrun the agent itself
/// listens at MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE), so the port after it is taken. Returns an empty text, or one
/// line.
std::string readMeetingPoint(const Environment &environment, MeetingPoint &point);
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_CORE_LAUNCHER_H
