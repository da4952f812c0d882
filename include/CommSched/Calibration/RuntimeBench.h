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
#include "CommSched/Calibration/MeshGroups.h"
#include "CommSched/Runtime/Runtime.h"
#include <limits>
#include <map>
#include <memory>
#include <optional>

namespace commsched {

/// The bytes through which operations rotate: more than the second-level cache of current GPUs (126 MB on B200) and
/// than the caches of most processors, so that no operation finds its operands there.
inline constexpr Bytes kRotatedBytes = 128 << 20;

class RuntimeBench : public ContentionBench {
public:
  /// `context` is the rank's own and outlives this. `rotatedBytes`: of the buffers. `ranksPerNode` tells which ranks a
  /// shape means; by default, all ranks are on one node.
  explicit RuntimeBench(commrt_context *context, Bytes rotatedBytes = kRotatedBytes,
                        int64_t ranksPerNode = std::numeric_limits<int64_t>::max());
  ~RuntimeBench() override;

  int32_t rank() const override;
  int32_t ranks() const override;
  Ns sampleTime() const override;
  std::string clockName() const override;
  int64_t participants(const CollectiveProbe &probe) const override;
  std::optional<GroupShape> shapeAcross(GroupShape shape) const override;
  Bytes feasibleBytes(const CollectiveProbe &probe) const override;
  llvm::Error prepare(const CollectiveProbe &probe) override;
  llvm::Error prepare(const ComputeProbe &probe) override;
  llvm::Error prepare(const ContentionProbe &probe) override;
  llvm::Error preparePair(const CollectiveProbe &first, Bytes second, PairSides sides) override;
  llvm::Expected<BesideTime> runBeside(const ContentionPlan &plan) override;
  bool hasKernel(const std::string &name) const override;
  llvm::Expected<CallTimes> callTimes() override;
  llvm::Expected<ProbeTime> run(int64_t operations) override;
  llvm::Expected<std::vector<std::vector<int64_t>>> gather(llvm::ArrayRef<int64_t> own) override;
  Ns now() const override;

  /// The name of the groups of `ranks` ranks on `nodes` nodes whose collectives have `ctas` thread blocks, for
  /// COMMRT_NCCL_GROUPS.
  static std::string groupName(int64_t ranks, int64_t nodes, int64_t ctas);

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

  /// A collective that is prepared: elements per block, bytes of a buffer, and how many buffers the operations rotate
  /// through.
  struct Prepared {
    CollectiveProbe probe;
    commrt_group *group = nullptr;
    int64_t count = 0;
    Bytes stride = 0;
    int64_t slots = 1;
    Buffer input = {}, output = {};
  };

  llvm::Error prepareCollective(const CollectiveProbe &probe, int64_t ctas);
  llvm::Error prepareOn(commrt_group *group, const CollectiveProbe &probe, Prepared &to);
  int32_t start(const Prepared &which, int64_t operation, commrt_token **token);
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
  llvm::Expected<commrt_group *> groupNamed(const std::string &name, const RankGroups &members);
  llvm::Expected<commrt_group *> groupOfAll();
  /// All ranks that take part in the prepared collective.
  llvm::Expected<commrt_group *> groupOfTakers();
  llvm::Error lastError() const;
  void release(Buffer &buffer);

  commrt_context *context;
  Bytes rotatedBytes;
  int64_t ranksPerNode;
  bool isDevice;
  std::map<std::string, commrt_group *> groups;
  /// The collective, and the one beside it if a pair is prepared.
  Prepared collective, beside;
  bool isPair = false;
  /// Operations so far on hosts, where a sample is one operation.
  int64_t turn = 0;
  int32_t dtype = COMMRT_F32;
  Buffer gate;
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
