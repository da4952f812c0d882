//===- NcclPlan.h - Stream operations of one work --------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A work is pieces on its lane's stream (copies, host functions) and calls of NCCL, in phases: the pieces of a phase,
// then its calls in one group of NCCL, then the next phase. So works of a coalesced list share groups.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_NCCL_COLLECTIVES_NCCLPLAN_H
#define COMMSCHED_LIB_RUNTIME_NCCL_COLLECTIVES_NCCLPLAN_H

#include "Nccl/NcclJob.h"
#include <utility>

namespace commsched::runtime {
/// Puts something on a stream; gives 0 or the vendor's error.
using Piece = std::function<int()>;

struct Phase {
  std::vector<Piece> pieces; ///< CUDA's
  std::vector<Piece> calls;  ///< NCCL's
};

/// The phases of one work. Memory for them is put on the stream at once.
struct Plan {
  NcclFlight &flight;
  NcclGroup &group;
  commrt_work &work;
  std::vector<Phase> phases = std::vector<Phase>(1);
  std::string error; ///< why there is no plan
  int32_t status = COMMRT_OK;

  Plan(NcclFlight &flight, NcclGroup &group, commrt_work &work)
      : flight(flight), group(group), work(work), lane(*flight.lane), peer(*flight.peer), n(group.size()),
        me(group.index), size(commrt_dtype_size(work.dtype)), type(ncclTypeOf(work.dtype)) {}
  /// Fills the phases, for all works but messages.
  void make();
  /// Releases the memory of a plan that is not carried out.
  void drop();
  /// Keeps the memory of the plan until NCCL can no longer use it.
  void moveScratchesToFlight();
  /// A message to another member.
  void makeMessage();
  /// What the rank sends to itself.
  void makeSelfMessage(const commrt_work &receive);

private:
  NcclLane &lane;
  NcclPeer &peer;
  int64_t n, me, size; ///< members, the own place, bytes of an element
  NcclType type;
  std::vector<std::pair<void *, int64_t>> scratches; ///< with their bytes

  const CudaApi &cuda() const { return peer.job->cuda(); }
  const NcclApi &nccl() const { return peer.job->nccl(); }
  const char *in() const { return static_cast<const char *>(work.in); }
  char *out() const { return static_cast<char *>(work.out); }
  size_t units(int64_t elements) const { return static_cast<size_t>(elements) * type.perElement; }
  Phase &phase(size_t index);
  void fail(int32_t with, const std::string &text);
  void failCuda(const char *what, int result);

  /// Device memory until the end of the work.
  char *scratch(int64_t bytes);
  PinnedBlock pinned(int64_t bytes);
  void copy(Phase &in, void *to, const void *from, int64_t bytes, int kind = 3);
  void zero(Phase &in, void *to, int64_t bytes);
  /// Rows of `width` bytes at two distances.
  void copyRows(Phase &in, char *to, int64_t toPitch, const char *from, int64_t fromPitch, int64_t width, int64_t rows);
  /// Puts a kernel of the runtime into the phase; false if the device has none.
  bool addKernel(Phase &in, const char *name, const void *arguments, size_t bytes, int64_t elements);
  /// to[outer][blocks][inner bytes], dense, from blocks at two distances.
  void copyBlocks(Phase &in, char *to, const char *from, int64_t outer, int64_t outerPitch, int64_t blocks,
                  int64_t blockPitch, int64_t inner);
  void send(Phase &in, const char *from, int64_t elements, int64_t member);
  void receive(Phase &in, char *to, int64_t elements, int64_t member);

  /// [outer][blocks][inner] to [blocks][outer][inner], and back.
  const char *packed(int64_t outer, int64_t blocks, int64_t blockBytes, bool always);
  void unpack(Phase &in, const char *from, int64_t outer, int64_t blocks, int64_t blockBytes);

  void makeAlone();
  void makeAllGather();
  void makeReduction();
  void makeAllToAll();
  void makeUneven();
  void makeRooted();
  void makePermute();
  void makeBarrier();
  /// NCCL's operation; -1 where NCCL has none that reduces as the definition says.
  int operation();
  /// Exchanges the inputs and reduces them in the order of the members.
  void reduceInOrder(const char *from);
  /// By a kernel of the device; false if there is none.
  bool reduceByKernel(Phase &in, const char *gathered, char *to, int64_t elements);
  void reduceOnHost(Phase &in, const char *gathered, char *to, int64_t elements);
  void shareShards(Phase &in);
  int64_t shardBegin(int64_t member) const { return work.count / n * member + std::min(work.count % n, member); }
};

/// Whether a product with `scale` has no rounding in the type.
bool isExactScale(double scale, int32_t dtype);
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_NCCL_COLLECTIVES_NCCLPLAN_H
