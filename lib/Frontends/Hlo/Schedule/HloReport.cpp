//===- HloReport.cpp - Report of a scheduled module of XLA ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The report of a module as JSON. Its words are those of the reports of comm-opt.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Frontends/Hlo/Schedule/HloScheduler.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/xxhash.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

static json::Object pair(int64_t before, int64_t after) { return json::Object{{"before", before}, {"after", after}}; }

static json::Object describe(const HloModule &module, const ComputationResult &one) {
  json::Object peak = pair(one.peakBefore, one.peakAfter);
  peak["limit"] = one.limit;
  peak["lower_bound"] = one.leastPeak;
  json::Array starts;
  for (const StartReport &start : one.starts) {
    json::Object described{{"name", json::fixUTF8(start.name)},
                           {"cost_ns", start.cost},
                           {"exposed_ns", pair(start.exposedBefore, start.exposedAfter)},
                           {"reason", json::fixUTF8(start.reason)}};
    if (start.kind) {
      described["kind"] = stringify(*start.kind);
      described["bytes"] = start.bytes;
      described["ranks"] = start.shape.ranks;
      described["nodes"] = start.shape.nodes;
    }
    starts.push_back(std::move(described));
  }
  json::Array untimed;
  for (StringRef name : one.untimed)
    untimed.push_back(json::fixUTF8(name));
  json::Object result{{"name", json::fixUTF8(module.computations[one.computation].name)},
                      {"instructions", static_cast<int64_t>(module.computations[one.computation].instructions.size())},
                      {"nodes", one.nodes},
                      {"collectives", one.collectives},
                      {"makespan_ns", pair(one.makespanBefore, one.makespanAfter)},
                      {"exposed_ns", pair(one.exposedBefore, one.exposedAfter)},
                      {"lower_bound_ns", one.bound},
                      {"lower_bound_within_limit_ns", one.boundWithinLimit},
                      {"lower_bound_argument", one.boundArgument},
                      {"peak_bytes", std::move(peak)},
                      {"kept_because", json::fixUTF8(one.keepReason)},
                      {"unknown_kernels", one.unknownKernels},
                      {"unknown_loops", one.unknownLoops},
                      {"starts", std::move(starts)}};
  if (!one.untimed.empty())
    result["untimed"] = std::move(untimed);
  return result;
}

json::Object commsched::hlo::describe(const HloModule &module, const HloResult &result) {
  json::Array computations;
  for (const ComputationResult &one : result.computations)
    computations.push_back(::describe(module, one));
  const ComputationResult &entry = result.entry();
  json::Object peak = pair(entry.peakBefore, entry.peakAfter);
  peak["limit"] = entry.limit;
  peak["lower_bound"] = entry.leastPeak;
  return json::Object{{"module", json::fixUTF8(module.name)},
                      {"changed", result.isChanged},
                      {"signature", signatureOf(module, result)},
                      {"makespan_ns", pair(entry.makespanBefore, entry.makespanAfter)},
                      {"exposed_ns", pair(entry.exposedBefore, entry.exposedAfter)},
                      {"lower_bound_ns", entry.bound},
                      {"lower_bound_within_limit_ns", entry.boundWithinLimit},
                      {"peak_bytes", std::move(peak)},
                      {"cost_times_ns", result.costTimes.toJSON()},
                      {"computations", std::move(computations)}};
}

json::Array commsched::hlo::describe(ArrayRef<PipelinedLoop> loops) {
  json::Array list;
  for (const PipelinedLoop &loop : loops) {
    json::Array names, barred;
    for (StringRef name : loop.collectives)
      names.push_back(json::fixUTF8(name));
    for (StringRef name : loop.barred)
      barred.push_back(json::fixUTF8(name));
    list.push_back(json::Object{{"body", json::fixUTF8(loop.body)},
                                {"collectives", std::move(names)},
                                {"behind_barriers", std::move(barred)},
                                {"iterations", loop.runs},
                                {"iteration_ns", json::Object{{"now", loop.iteration}, {"pipelined", loop.pipelined}}},
                                {"copies_ns", loop.copies},
                                {"gain_ns", loop.gain},
                                {"carried_bytes", loop.carried}});
  }
  return list;
}

std::string commsched::hlo::signatureOf(const HloModule &module, const HloResult &result) {
  // Names and orders, and nothing that may differ between processes.
  std::string text;
  for (const ComputationResult &one : result.computations) {
    const HloComputation &computation = module.computations[one.computation];
    text += (computation.name + "\n").str();
    for (int32_t at : one.sequence.empty() ? computation.sequence : one.sequence)
      text += (computation.instructions[at].name + "\n").str();
  }
  return utohexstr(xxh3_64bits(text), /*LowerCase=*/true);
}
