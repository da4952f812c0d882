//===- RuntimeBench.h - Collectives timed through the runtime ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A Bench over a context of the runtime: threads of this process, MPI, or any other backend whose ranks are real. Times
// are those of the runtime's clock around the start and the wait.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_CALIBRATION_RUNTIMEBENCH_H
#define COMMSCHED_CALIBRATION_RUNTIMEBENCH_H

#include "CommSched/Calibration/Bench.h"
#include "CommSched/Runtime/Runtime.h"
#include <map>

namespace commsched {

class RuntimeBench : public Bench {
public:
  /// `context` is the rank's own and outlives this.
  explicit RuntimeBench(commrt_context *context);
  ~RuntimeBench() override;

  int32_t rank() const override;
  int32_t ranks() const override;
  Bytes feasibleBytes(const CollectiveProbe &probe) const override;
  llvm::Error prepare(const CollectiveProbe &probe) override;
  llvm::Expected<ProbeTime> run() override;
  llvm::Expected<std::vector<std::vector<int64_t>>> gather(llvm::ArrayRef<int64_t> own) override;
  Ns now() const override;

private:
  int32_t start(commrt_token **token);
  llvm::Expected<commrt_group *> groupOfFirst(int64_t members);
  llvm::Error lastError() const;
  void release();

  commrt_context *context;
  std::map<int64_t, commrt_group *> groups;
  /// The prepared collective: elements per block, and its buffers.
  CollectiveProbe probe;
  commrt_group *group = nullptr;
  int64_t count = 0;
  int32_t dtype = COMMRT_F32;
  void *input = nullptr, *output = nullptr;
};

/// The runtime's element type with the same size and arithmetic; none where the runtime has none.
std::optional<int32_t> runtimeType(ElementType element);

} // namespace commsched

#endif // COMMSCHED_CALIBRATION_RUNTIMEBENCH_H
