//===- Session.h - Ranks that run programs ----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A job of the runtime with the ranks that live in this process: all of them as threads, or one under mpirun.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_EXECUTION_SESSION_H
#define COMMSCHED_EXECUTION_SESSION_H

#include "CommSched/Execution/Program.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace commsched {

struct SessionOptions {
  int32_t ranks = 0;   ///< 0: as many as the programs' groups require
  std::string backend; ///< a name, or several with commas
  std::string fault;
  int64_t timeoutMs = 60000;
  int64_t iterations = 1;
  bool trace = false, poison = false, emulateCosts = false;
};

/// The results of one program on one rank.
struct RankRun {
  std::vector<HostValue> arguments, results;
  int64_t beginNs = 0, endNs = 0; ///< by the clock of the context
  int64_t leftBytes = 0;          ///< bytes of buffers that were not released
  int64_t originNs = 0;           ///< beginNs, or, if the ranks share a clock, the earliest of all ranks
  std::vector<int64_t> marks;     ///< times at which the calls began and ended
};

struct Rank {
  int32_t number = 0;
  commrt_context *context = nullptr;
  std::vector<RankRun> runs; ///< indexed by program
  int32_t status = COMMRT_OK;
  std::string message;
};

using Programs = std::vector<std::unique_ptr<Program>>;

class RuntimeBench;

/// Returns true if the first of the backends (as in SessionOptions) has buffers in device memory. Which of several
/// backends opens is known only when the session is open.
bool isDeviceBackend(llvm::StringRef backends);

/// Returns true if the CUDA runtime that the environment names is the emulated one, which runs the host builds of
/// kernels and needs no code for a GPU.
bool isDeviceEmulated();

class Session {
public:
  /// Opens a job of at least `wanted` ranks, unless the options or the launcher determine the number.
  static llvm::Expected<std::unique_ptr<Session>> open(const SessionOptions &options, int64_t wanted);
  ~Session();
  /// The backend for a user who names none: mpi under mpirun, nccl under another launcher, otherwise threads. The error
  /// comes from the launcher's environment.
  static llvm::Expected<std::string> launchedBackend();
  /// Whether other processes may have the other ranks.
  static bool mayBeShared(const SessionOptions &options);

  /// The numbers that each rank passes, by rank; `own` has the same length on all ranks. If this process has all ranks,
  /// it passes them for each. The error says that a rank did not take part.
  llvm::Expected<std::vector<std::vector<int64_t>>> gather(llvm::ArrayRef<int64_t> own);

  /// Runs the programs one after the other on all ranks of this process. `fill` makes the arguments of a program on a
  /// rank. The error comes from `fill`, from groups that programs define differently, or from the ranks; each message
  /// appears once.
  llvm::Error run(llvm::ArrayRef<std::unique_ptr<Program>> programs,
                  llvm::function_ref<llvm::Error(const Program &, int32_t rank, std::vector<HostValue> &)> fill);

  /// Returns true if buffers are device memory. Programs have to be lowered for that.
  bool isOnDevice() const { return commrt_context_is_device(localRanks[0].context) != 0; }
  /// Returns true if reductions run in rank order, so that their bits depend on the inputs alone.
  bool isRankOrdered() const { return commrt_job_is_rank_ordered(job) != 0; }
  /// Returns true if other processes have the other ranks. One session then serves all programs.
  bool isShared() const { return commrt_job_local_rank(job) >= 0; }
  int32_t ranks() const { return commrt_job_ranks(job); }
  std::string backend() const { return commrt_job_backend(job); }
  llvm::ArrayRef<Rank> local() const { return localRanks; }

private:
  explicit Session(const SessionOptions &options);
  llvm::Error checkGroups(llvm::ArrayRef<std::unique_ptr<Program>> programs);
  /// Sets the origins of the runs. Collective over the job on devices.
  llvm::Error alignRuns(size_t programs);
  void runRank(Rank &rank, llvm::ArrayRef<std::unique_ptr<Program>> programs);

  SessionOptions options;
  commrt_job *job = nullptr;
  std::vector<Rank> localRanks;
  llvm::StringMap<std::string> groups;
  /// Gathers numbers; made when it is first used.
  std::unique_ptr<RuntimeBench> bench;
};

} // namespace commsched

#endif // COMMSCHED_EXECUTION_SESSION_H
