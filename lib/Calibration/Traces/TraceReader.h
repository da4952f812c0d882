//===- TraceReader.h - Helpers shared by the readers of traces --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Readers collect samples; what they become is decided in one place.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_CALIBRATION_TRACES_TRACEREADER_H
#define COMMSCHED_LIB_CALIBRATION_TRACES_TRACEREADER_H

#include "CommSched/Calibration/Trace.h"
#include <map>
#include <set>
#include <tuple>

namespace commsched {

/// A collective as a trace names it.
struct TracedCollective {
  CollectiveKind kind = CollectiveKind::AllReduce;
  ElementType element = ElementType::Other;
  /// As in CollectiveCurve.
  Bytes bytes = 0;
  /// The ranks of its group.
  std::vector<int64_t> ranks;

  bool operator<(const TracedCollective &other) const {
    return std::tie(kind, element, bytes, ranks) < std::tie(other.kind, other.element, other.bytes, other.ranks);
  }
};

/// The collectives of one rank: how long each call took, in the order of the calls.
struct TracedRank {
  /// The name of the file, and the rank; none if the file does not tell.
  std::string file;
  std::optional<int64_t> rank;
  std::map<TracedCollective, std::vector<Ns>> calls;
};

/// The samples of all traces.
class TraceSamples {
public:
  /// `isPart`: another operator called this one.
  void addOp(const std::string &name, const std::vector<std::string> &shapes, Ns time, bool isPart) {
    auto [op, isNew] = ops.try_emplace({name, shapes}, std::vector<Ns>(), isPart);
    op->second.first.push_back(time);
    op->second.second &= isPart;
  }
  void addUnmatched(const std::string &name, const std::string &why, Ns time) {
    UnmatchedEvents &events = unmatched[{name, why}];
    events.name = name;
    events.why = why;
    ++events.calls;
    events.time += time;
  }

  std::vector<TracedRank> ranks;
  std::set<std::string> devices;
  bool hasCompiledGraphs = false;

  /// Everything together. The error says which ranks differ, or that there is nothing.
  llvm::Expected<TraceTimes> finish(int64_t ranksPerNode);

private:
  /// Indexed by name and shapes: the times of the calls, and whether all of them are parts of other operators.
  std::map<std::pair<std::string, std::vector<std::string>>, std::pair<std::vector<Ns>, bool>> ops;
  std::map<std::pair<std::string, std::string>, UnmatchedEvents> unmatched;
};

/// Returns true for XLA's profile for its scheduler, as text or serialized.
bool isPgle(llvm::StringRef text);

/// Each adds the samples of one file. Returns the text of an error, or an empty string.
std::string readKineto(const TimelineText &trace, TraceSamples &samples);
std::string readPgle(const TimelineText &trace, TraceSamples &samples);
std::string readXlaLog(const TimelineText &trace, TraceSamples &samples);

} // namespace commsched

#endif // COMMSCHED_LIB_CALIBRATION_TRACES_TRACEREADER_H
