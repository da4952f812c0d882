//===- MpiNeighbours.h - Whether the processes of other ranks live ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Over shared memory MPI does not notice that a process is gone: what waits for it would wait for the timeout. The
// kernel can tell, for the processes of this machine. Ranks elsewhere are left to mpirun and the timeout.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_MPI_MPINEIGHBOURS_H
#define COMMSCHED_LIB_RUNTIME_MPI_MPINEIGHBOURS_H

#include <cstdint>
#include <functional>
#include <vector>

namespace commsched::runtime {
/// Where a process is: machine, pid namespace and pid.
struct MpiAddress {
  char host[256];
  char boot[40]; ///< of the kernel: hosts may share names, and the first pid namespace has one number everywhere
  int64_t pidNamespace, pid;
  static MpiAddress ofThisProcess();
};

class MpiNeighbours {
public:
  /// `all` by rank.
  MpiNeighbours(const std::vector<MpiAddress> &all, int rank);
  ~MpiNeighbours();
  MpiNeighbours(const MpiNeighbours &) = delete;
  MpiNeighbours &operator=(const MpiNeighbours &) = delete;

  /// A rank whose process has ended, or -1; not those that `isExpected` says it of. One system call for all of them.
  int32_t findDead(const std::function<bool(int32_t)> &isExpected) const;
  bool isDead(int32_t rank) const;

private:
  std::vector<int> handles; ///< by rank: a pidfd, or -1 where the process is another machine's
};
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_MPI_MPINEIGHBOURS_H
