//===- MpiRequests.h - The requests of all operations in flight -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// MPI tells nobody that a request is complete: somebody has to ask. Each question also makes MPI move data, and, where
// ranks outnumber cores, gives the core away. So all requests stand in one array, and one call asks for many of them.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_MPI_MPIREQUESTS_H
#define COMMSCHED_LIB_RUNTIME_MPI_MPIREQUESTS_H

#include <cstddef>
#include <cstdint>
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <string>
#include <vector>

namespace commsched::runtime {
class MpiOperation;

/// MPI's own words for an error code.
std::string mpiErrorText(int code);

class MpiRequests {
public:
  struct Done {
    MpiOperation *operation; ///< null: the request belongs to no operation
    size_t transfer;
    MPI_Status status; ///< MPI_ERROR is always set
  };

  void add(MPI_Request request, MpiOperation *operation, size_t transfer);
  /// Replaces `done` with the requests that have completed. Looks at the oldest ones, and at a piece of the others
  /// which moves on from call to call: each request is looked at within (requests / 1024) calls. A call takes bounded
  /// time, apart from removing what is complete. Returns MPI's code.
  int test(std::vector<Done> &done);
  /// Takes all requests out. Receives that nothing has arrived for are cancelled. Returns the operations whose memory
  /// MPI may still use, in no order, perhaps several times.
  std::vector<MpiOperation *> abandon();

private:
  struct Owner {
    MpiOperation *operation;
    size_t transfer;
  };
  int testRange(size_t begin, size_t count, std::vector<Done> &done);
  void compact();

  // Indexed alike, in the order of posting; completed ones are MPI_REQUEST_NULL until the next compaction.
  std::vector<MPI_Request> requests;
  std::vector<Owner> owners;
  size_t numNull = 0;
  size_t cursor = 0; ///< where the next piece begins
  std::vector<int> indices;
  std::vector<MPI_Status> statuses;
};
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_MPI_MPIREQUESTS_H
