//===- MpiNeighbours.h - Whether the processes of other ranks live -------------------------------===//
//
// Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
//
// Over shared memory MPI does not notice that a process is gone: what waits for it would wait for the timeout. The
// kernel can tell, for the processes of this machine. Ranks elsewhere are left to mpirun and the timeout.
//
//===--------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_MPINEIGHBOURS_H
#define COMMSCHED_LIB_RUNTIME_MPINEIGHBOURS_H

#include <cstdint>
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <vector>

namespace commsched::runtime {
class MpiNeighbours {
public:
  /// Collective over `comm`; blocks until all ranks are there.
  MpiNeighbours(MPI_Comm comm, int rank, int ranks);
  ~MpiNeighbours();
  MpiNeighbours(const MpiNeighbours &) = delete;
  MpiNeighbours &operator=(const MpiNeighbours &) = delete;

  /// A rank whose process has ended, or -1. One system call for all of them.
  int32_t findDead() const;
  bool isDead(int32_t rank) const;

private:
  std::vector<int> handles; ///< by rank: a pidfd, or -1 where the process is another machine's
};
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_MPINEIGHBOURS_H
