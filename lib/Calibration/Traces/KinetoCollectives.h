//===- KinetoCollectives.h - Collectives in the traces of PyTorch's profiler --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Kernels of NCCL say themselves what they are. The events of gloo have a name and an operand only, so the calls that
// started them tell the rest.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_CALIBRATION_TRACES_KINETOCOLLECTIVES_H
#define COMMSCHED_LIB_CALIBRATION_TRACES_KINETOCOLLECTIVES_H

#include "TraceReader.h"
#include "llvm/Support/JSON.h"

namespace commsched {

/// An event on a thread of the host.
struct HostEvent {
  /// As `parent`: there is none.
  static constexpr size_t kNone = ~size_t(0);

  std::string name;
  /// Process and thread.
  std::pair<int64_t, int64_t> thread;
  /// In us, from an origin that only the profiler knows.
  double begin = 0;
  /// Of itself, and of the kernels that it and the operators in it launched, ns.
  Ns duration = 0, deviceTime = 0;
  /// Its operands that have dimensions ("64x256xf32", or "64x256" of unknown type), and the texts of numbers.
  std::vector<std::string> operands, concrete;
  std::optional<int64_t> id;
  size_t parent = kNone;
  bool isOperator = false, isCompiledGraph = false, hasOperands = false;

  double end() const { return begin + static_cast<double>(duration) / 1000; }
};

/// An event on a device.
struct DeviceEvent {
  std::string name;
  double begin = 0;
  Ns duration = 0;
  /// That of the operator that launched it.
  std::optional<int64_t> id;
  /// What it communicates; none for other kernels, and if the trace does not tell. Then `why` is not empty.
  std::optional<TracedCollective> collective;
  std::string why;
};

/// The ranks of process groups.
class ProcessGroups {
public:
  /// Reads `distributedInfo` of a trace.
  void read(const llvm::json::Object &info);
  /// The ranks of the group with this name; null if the trace has none.
  const std::vector<int64_t> *find(llvm::StringRef name) const;
  /// The ranks of the only group of `size` ranks, or of the only group if no size is given; null if there are several.
  const std::vector<int64_t> *findOnly(std::optional<int64_t> size) const;

private:
  /// Indexed by name.
  std::map<std::string, std::vector<int64_t>> ranks;
};

/// What a kernel of NCCL communicates by its arguments; none, with the reason in `why`, if they do not tell.
std::optional<TracedCollective> readKernelCollective(const llvm::json::Object &arguments, const ProcessGroups &groups,
                                                     std::string &why);

/// Adds the collectives of a trace with kernels. `byId` has the index of each operator of the host.
void addDeviceCollectives(llvm::ArrayRef<HostEvent> events, const std::map<int64_t, size_t> &byId,
                          std::vector<DeviceEvent> &kernels, TracedRank &rank, TraceSamples &samples);

/// Adds those of a trace without. The n-th event of gloo with an operand belongs to the n-th start with that operand.
void addHostCollectives(llvm::ArrayRef<HostEvent> events, const ProcessGroups &groups, TracedRank &rank,
                        TraceSamples &samples);

} // namespace commsched

#endif // COMMSCHED_LIB_CALIBRATION_TRACES_KINETOCOLLECTIVES_H
