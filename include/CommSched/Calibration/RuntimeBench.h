//===- RuntimeBench.h - Collectives timed through the runtime ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A Bench over a context of the runtime: threads of this process, MPI, NCCL, or any other backend whose ranks are real.
// On CPU backends, times are those of the runtime's clock around the start and the wait. On devices they are those
// between two events on the stream on which the collectives run.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_CALIBRATION_RUNTIMEBENCH_H
#define COMMSCHED_CALIBRATION_RUNTIMEBENCH_H

#include "CommSched/Calibration/Contention.h"
#include "CommSched/Runtime/Runtime.h"
#include <map>
#include <memory>
#include <optional>

namespace commsched {

/// The bytes through which operations rotate: more than the second-level cache of current GPUs (126 MB on B200) and
/// than the caches of most processors, so that no operation finds its operands there.
inline constexpr Bytes kRotatedBytes = 128 << 20;

class RuntimeBench : public ContentionBench {
public:
  /// `context` is the rank's own and outlives this. `rotatedBytes`: of the buffers.
  explicit RuntimeBench(commrt_context *context, Bytes rotatedBytes = kRotatedBytes);
  ~RuntimeBench() override;

  int32_t rank() const override;
  int32_t ranks() const override;
  Ns sampleTime() const override;
  std::string clockName() const override;
  Bytes feasibleBytes(const CollectiveProbe &probe) const override;
  llvm::Error prepare(const CollectiveProbe &probe) override;
  llvm::Error prepare(const ComputeProbe &probe) override;
  llvm::Error prepare(const ContentionProbe &probe) override;
  llvm::Error preparePair(const CollectiveProbe &probe, bool areBoth) override;
  llvm::Expected<BesideTime> runBeside(const ContentionPlan &plan) override;
  bool hasKernel(const std::string &name) const override;
  llvm::Expected<CallTimes> callTimes() override;
  llvm::Expected<ProbeTime> run(int64_t operations) override;
  llvm::Expected<std::vector<std::vector<int64_t>>> gather(llvm::ArrayRef<int64_t> own) override;
  Ns now() const override;

  /// In place of a number of thread blocks: a second group of the same ranks.
  static constexpr int64_t kBeside = -1;
  /// The name of the group of the first `members` ranks whose collectives have `ctas` thread blocks, for
  /// COMMRT_NCCL_GROUPS.
  static std::string groupName(int64_t members, int64_t ctas);

private:
  /// A buffer that grows, and the type of the values with which it is filled.
  struct Buffer {
    void *data = nullptr;
    Bytes bytes = 0;
    int32_t dtype = -1;
  };

  /// A computation as commrt_compute takes it, or compiled code.
  struct Computation {
    std::unique_ptr<CompiledKernel> compiled;
    std::string kernel;
    std::vector<int64_t> meta;
    std::vector<Bytes> strides;
    std::vector<Buffer> buffers;
    int64_t slots = 1;
  };

  llvm::Error prepareCollective(const CollectiveProbe &probe, int64_t ctas);
  /// Starts the prepared collective, on the group beside if `isOther`.
  int32_t start(int64_t operation, commrt_token **token, bool isOther = false);
  int32_t compute(int64_t operation);
  llvm::Error startGate(commrt_token **token);
  llvm::Expected<BesideTime> runBesideOnHost(const ContentionPlan &plan);
  llvm::Expected<BesideTime> runBesideOnDevice(const ContentionPlan &plan);
  llvm::Expected<ProbeTime> computeOnHost(int64_t operations);
  llvm::Expected<ProbeTime> computeOnDevice(int64_t operations);
  llvm::Expected<ProbeTime> runOnHost(int64_t operations);
  llvm::Expected<ProbeTime> runOnDevice(int64_t operations);
  llvm::Expected<ProbeTime> runPairOnHost(int64_t operations);
  llvm::Expected<ProbeTime> runPairOnDevice(int64_t operations);
  /// All ranks of the job arrive, or all members of a group.
  llvm::Error meet();
  llvm::Error meet(commrt_group *members);
  /// The host waits until the event is complete.
  llvm::Error await(commrt_event *event);
  /// The time between two complete events, less the median time of pairs like `empty` and `begin`, with nothing between
  /// them.
  llvm::Expected<Ns> elapsedBetween(commrt_event *empty, commrt_event *begin, commrt_event *end);
  /// Makes room for `bytes` of random values.
  llvm::Error grow(Buffer &buffer, Bytes bytes, int32_t dtype);
  llvm::Expected<commrt_group *> groupOfFirst(int64_t members, int64_t ctas = 0);
  llvm::Error lastError() const;
  void release(Buffer &buffer);

  commrt_context *context;
  Bytes rotatedBytes;
  bool isDevice;
  /// By number of members and of thread blocks; kBeside in place of blocks: the group beside.
  std::map<std::pair<int64_t, int64_t>, commrt_group *> groups;
  /// The prepared collective: elements per block, bytes of a buffer, and how many buffers the operations rotate
  /// through.
  CollectiveProbe probe;
  commrt_group *group = nullptr;
  /// The group beside, with the same members, if a pair is prepared.
  commrt_group *otherGroup = nullptr;
  int64_t count = 0;
  Bytes stride = 0;
  int64_t slots = 1;
  /// Operations so far on hosts, where a sample is one operation.
  int64_t turn = 0;
  int32_t dtype = COMMRT_F32;
  Buffer input, output, otherOutput, gate;
  Computation computation;
  /// On CPU backends: where computations run beside collectives. Null until somebody asks.
  struct Side;
  struct SideDeleter {
    void operator()(Side *side) const;
  };
  std::unique_ptr<Side, SideDeleter> side;
  /// Whether a computation was prepared last, or a collective.
  bool isComputation = false;
  /// The times between two events with nothing between them, newest last.
  std::vector<Ns> emptyPairs;
};

/// The runtime's element type with the same size and arithmetic; none where the runtime has none.
std::optional<int32_t> runtimeType(ElementType element);

} // namespace commsched

#endif // COMMSCHED_CALIBRATION_RUNTIMEBENCH_H
