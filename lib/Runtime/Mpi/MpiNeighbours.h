//===- MpiNeighbours.h - Liveness of the processes of other ranks ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Over shared memory MPI does not notice that a process has died, so that an operation that needs it would wait for the
// timeout. The kernel knows which processes of this machine are alive. Deaths on other machines are noticed by mpirun
// or by the timeout.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_MPI_MPINEIGHBOURS_H
#define COMMSCHED_LIB_RUNTIME_MPI_MPINEIGHBOURS_H

#include <cstdint>
#include <functional>
#include <vector>

namespace commsched::runtime {
/// Identifies a process: machine, pid namespace and pid.
struct MpiAddress {
  char host[256];
  char boot[40]; ///< the kernel's boot id, since hosts may share names, and initial pid namespaces share one number
  int64_t pidNamespace, pid;
  static MpiAddress ofThisProcess();
};

class MpiNeighbours {
public:
  /// `all` is indexed by rank.
  MpiNeighbours(const std::vector<MpiAddress> &all, int rank);
  ~MpiNeighbours();
  MpiNeighbours(const MpiNeighbours &) = delete;
  MpiNeighbours &operator=(const MpiNeighbours &) = delete;

  /// Returns a rank whose process has ended, or -1. Ranks for which `isExpected` returns true are skipped. One system
  /// call in all.
  int32_t findDead(const std::function<bool(int32_t)> &isExpected) const;
  bool isDead(int32_t rank) const;

private:
  std::vector<int> handles; ///< indexed by rank: a pidfd, or -1 for a process of another machine
};
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_MPI_MPINEIGHBOURS_H
