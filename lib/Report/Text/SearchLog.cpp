//===- SearchLog.cpp - The log of a search as JSON lines --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Writes the fields of an event in a fixed order. Numbers that do not exist (no limit, no makespan of a trial that was
// cut off) are left out.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Report/SearchLog.h"
#include "llvm/Support/JSON.h"

using namespace llvm;
using namespace commsched;

/// Limits of at least this many bytes mean that there is no limit.
static constexpr Bytes kNoLimit = INT64_MAX / 4;

/// What a search may decide.
static StringRef scopeOf(bool bucketing) { return bucketing ? "order and buckets" : "order"; }

void SearchLog::begin(const SearchStart &start) {
  bucketing = start.bucketing;
  trials = 0;
  json::OStream line(os);
  line.object([&] {
    line.attribute("event", "begin");
    line.attribute("function", block);
    line.attribute("search", scopeOf(bucketing));
    line.attribute("nodes", start.nodes);
    line.attribute("effort_steps", start.effort);
    if (start.limit < kNoLimit)
      line.attribute("limit_bytes", start.limit);
    line.attribute("makespan_ns", start.makespan);
    line.attribute("target_ns", start.target);
  });
  os << "\n";
}

void SearchLog::observe(const SearchTrial &trial) {
  json::OStream line(os);
  line.object([&] {
    line.attribute("event", "trial");
    line.attribute("function", block);
    line.attribute("search", scopeOf(bucketing));
    line.attribute("trial", ++trials);
    line.attribute("phase", trial.phase);
    if (trial.isDecode) {
      line.attributeObject("policy", [&] {
        for (const PolicyValue &value : trial.policy)
          line.attribute(value.name, value.value);
      });
      line.attribute("reference", stringify(trial.reference));
    }
    if (trial.makespan > 0) {
      line.attribute("makespan_ns", trial.makespan);
      line.attribute("peak_bytes", trial.peak);
      line.attribute("buckets", trial.buckets);
    }
    line.attribute("steps", trial.steps);
    line.attribute("steps_so_far", trial.stepsSoFar);
    line.attribute("best_ns", trial.best);
    line.attribute("verdict", stringify(trial.verdict));
    line.attribute("why", describeVerdict(trial));
  });
  os << "\n";
}

void SearchLog::end(const SearchEnd &end) {
  json::OStream line(os);
  line.object([&] {
    line.attribute("event", "end");
    line.attribute("function", block);
    line.attribute("search", scopeOf(bucketing));
    line.attribute("trials", trials);
    line.attribute("makespan_ns", end.makespan);
    line.attribute("peak_bytes", end.peak);
    line.attribute("buckets", end.buckets);
    line.attribute("steps", end.steps);
  });
  os << "\n";
}
