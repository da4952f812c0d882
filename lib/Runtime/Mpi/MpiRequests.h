//===- MpiRequests.h - The requests of all operations in flight -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A request's completion shows only when MPI is asked, each call also makes MPI move data, and yields the core where
// ranks outnumber cores. Therefore all requests stand in one array, and one call tests many of them.
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

/// MPI's message for an error code.
std::string mpiErrorText(int code);

class MpiRequests {
public:
  struct Done {
    MpiOperation *operation; ///< null: the request belongs to no operation
    size_t transfer;
    MPI_Status status; ///< its MPI_ERROR is always set
  };

  void add(MPI_Request request, MpiOperation *operation, size_t transfer);
  /// Replaces `done` with the requests that have completed. Each call tests the oldest requests and a window of the
  /// others, which moves on from call to call, so that every request is tested within (requests / 1024) calls. A call
  /// takes bounded time, plus the time to remove completed requests. Returns MPI's error code.
  int test(std::vector<Done> &done);
  /// Removes all requests, and cancels receives for which no message has arrived. Returns the operations whose memory
  /// MPI may still use, in no particular order and possibly more than once.
  std::vector<MpiOperation *> abandon();

private:
  struct Owner {
    MpiOperation *operation;
    size_t transfer;
  };
  int testRange(size_t begin, size_t count, std::vector<Done> &done);
  void compact();

  // These vectors have the same indices, in the order of posting. A completed request is MPI_REQUEST_NULL until the
  // next compaction.
  std::vector<MPI_Request> requests;
  std::vector<Owner> owners;
  size_t numNull = 0;
  size_t cursor = 0; ///< the beginning of the next window
  std::vector<int> indices;
  std::vector<MPI_Status> statuses;
};
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_MPI_MPIREQUESTS_H
