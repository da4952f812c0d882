//===- Trace.h - Times of operations from the profilers of frameworks ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// PyTorch and XLA write what each operation of a step took. These times become `ops` of a machine profile and points of
// its tables of collectives: no other part of the project knows of traces. Calibration.md describes what is read.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_CALIBRATION_TRACE_H
#define COMMSCHED_CALIBRATION_TRACE_H

#include "CommSched/Calibration/RunTimeline.h"

namespace commsched {

/// What a trace says of one operator on operands of one shape, or of one instruction of XLA.
struct TracedOp {
  /// As in OpTime: PyTorch's operator without its overload ("aten.mm"), or the instruction ("loop_fusion.3").
  std::string name;
  /// As in OpTime, but without operands that have no dimensions; empty for an instruction.
  std::vector<std::string> shapes;
  /// Over all calls in all traces, ns.
  Estimate time;
  /// True if other operators made all calls of it.
  bool isPart = false;
};

/// Events of a trace with one name that say nothing about the cost of an operation.
struct UnmatchedEvents {
  std::string name, why;
  /// Number of events, and their time in total, ns.
  int64_t calls = 0;
  Ns time = 0;
};

/// What the traces of one program say.
struct TraceTimes {
  /// Ordered by name and shapes.
  std::vector<TracedOp> ops;
  /// Ordered as readRunTimelines orders them.
  std::vector<RunPoint> points;
  /// Ordered by time, the longest first.
  std::vector<UnmatchedEvents> unmatched;
  /// The names of the devices ("NVIDIA H100 80GB HBM3"); empty if the operators ran on the host.
  std::vector<std::string> devices;
  /// What wrote the traces: "Kineto", "PGLE" or "XLA's estimates".
  std::string writer;
  /// True if a trace has graphs that Inductor compiled. If not, operators ran one by one, and the time of one that is
  /// going to be a part of a fused kernel is not that of its part.
  bool hasCompiledGraphs = false;

  /// Returns true if names are those of XLA's instructions.
  bool areInstructions() const { return writer != "Kineto"; }
};

/// Reads traces of one writer, in three forms that their contents tell apart:
///
/// 1. Kineto's JSON (torch.profiler with record_shapes), one per rank. An operator takes the time of its kernels on the
///    device, or without a device its own. Of the compiled graphs in a trace, if there are any, only operators inside
///    count. A collective is known by kind, ranks of the group, element type and bytes. Its n-th call on one rank is
///    the n-th call on all others, and counts with the time of the rank that waits least.
/// 2. XLA's profile for its scheduler (PGLE, ProfiledInstructionsProto as text or serialized).
/// 3. The log of XLA's own estimates (TF_CPP_VMODULE=sol_latency_estimator=10).
///
/// `ranksPerNode` gives the nodes of groups. The error names the file and the place in it: text that ends early, a
/// negative time, nothing that can be used, two traces of one rank, or ranks of one group whose collectives differ.
/// O(events log events).
llvm::Expected<TraceTimes> readTraces(llvm::ArrayRef<TimelineText> traces, int64_t ranksPerNode);

/// A trace, and the machine that it was recorded on.
struct TracedMachine {
  /// Without the times.
  MachineModel base;
  TraceTimes times;
};

/// Reads the traces in files. Without a name of a profile in `base`, the devices decide: the shipped profile of their
/// kind, or cpu-mpi if the operators ran on the host. The error, apart from those of readTraces, names the device or
/// the writer that leaves it open.
llvm::Expected<TracedMachine> loadTraces(llvm::ArrayRef<std::string> paths, llvm::StringRef base);

/// `base` with the times in its tables; entries of `ops` replace those of the same name and shapes.
/// `calibration.trace` lists what was not matched. The error names a field of the base that is no profile's.
llvm::Expected<MachineModel> addTrace(const MachineModel &base, const TraceTimes &times, llvm::StringRef name);

} // namespace commsched

#endif // COMMSCHED_CALIBRATION_TRACE_H
