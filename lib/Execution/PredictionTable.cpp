//===- PredictionTable.cpp - Predicted against measured ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Medians of the trace's records, by site.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Execution/PredictionTable.h"
#include "CommSched/Support/Count.h"
#include "CommSched/Support/Format.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace llvm;
using namespace commsched;

/// Kinds of records that are no collectives (Runtime.h).
static constexpr int32_t kWaitRecord = 100;
/// A collective this close to its prediction, in permille, needs no reason.
static constexpr int64_t kClosePermille = 100;

RankTrace commsched::readTrace(commrt_context *context, std::vector<int64_t> marks) {
  RankTrace trace;
  trace.marks = std::move(marks);
  for (int64_t i = 0, n = commrt_trace_size(context); i < n; ++i) {
    commrt_trace_record record;
    if (commrt_trace_get(context, i, &record) != COMMRT_OK || trace.marks.empty() ||
        record.begin_ns < trace.marks.front() || record.begin_ns > trace.marks.back())
      continue;
    int64_t last = 0;
    bool isKnown = commrt_trace_last_begin(context, i, &last) == COMMRT_OK;
    trace.records.push_back(record);
    trace.lastBegins.push_back(isKnown ? std::optional(last) : std::nullopt);
  }
  return trace;
}

std::string SiteComparison::reason() const {
  auto isSmall = [&](Ns time) { return 1000 * time <= kClosePermille * std::max<Ns>(1, predicted); };
  Ns waiting = afterLast ? measured - *afterLast : 0;
  if (isSmall(miss()))
    return isSmall(waiting) ? "as predicted" : "as predicted, after " + formatNs(waiting) + " for the last rank";
  if (afterLast.value_or(measured) < predicted)
    return "faster than the model";
  if (!afterLast && 2 * lateness >= miss())
    return "a rank starts it " + formatNs(lateness) + " late";
  if (beside > 0)
    return "slower than the model, beside " + std::to_string(beside) + (beside == 1 ? " other" : " others");
  return "slower than the model";
}

int64_t PredictionComparison::errorPermille() const {
  return (predicted - measured.value) * 1000 / std::max<Ns>(1, measured.value);
}

namespace {
/// The samples of one site on one rank, in the order of the calls.
struct SiteSamples {
  std::vector<Ns> durations, exposed, begins, afterLast;
  std::vector<int64_t> beside;
};

/// Counts the collectives of a rank that are in flight during another one.
class FlightCounter {
public:
  explicit FlightCounter(const RankTrace &trace) {
    for (const commrt_trace_record &record : trace.records)
      if (record.site >= 0 && record.kind < kWaitRecord) {
        begins.push_back(record.begin_ns);
        ends.push_back(record.end_ns);
      }
    llvm::sort(begins);
    llvm::sort(ends);
  }

  /// Those that begin before `record` ends and end after it begins, without itself. O(log n).
  int64_t others(const commrt_trace_record &record) const {
    auto begun = llvm::lower_bound(begins, record.end_ns) - begins.begin();
    auto ended = llvm::upper_bound(ends, record.begin_ns) - ends.begin();
    return std::max<int64_t>(0, begun - ended - 1);
  }

private:
  std::vector<int64_t> begins, ends;
};
} // namespace

/// The samples of a rank by site, without those before the mark `first`.
static std::vector<SiteSamples> collectSamples(const RankTrace &trace, size_t sites, int64_t first) {
  std::vector<SiteSamples> samples(sites);
  FlightCounter flights(trace);
  for (auto [record, last] : zip_equal(trace.records, trace.lastBegins)) {
    if (record.site < 0 || record.site >= static_cast<int64_t>(sites) || record.begin_ns < first ||
        record.kind > kWaitRecord)
      continue;
    SiteSamples &site = samples[record.site];
    if (record.kind == kWaitRecord) {
      site.exposed.push_back(record.end_ns - record.begin_ns);
    } else {
      site.durations.push_back(record.end_ns - record.begin_ns);
      site.begins.push_back(record.begin_ns);
      site.beside.push_back(flights.others(record));
      if (last)
        site.afterLast.push_back(record.end_ns - *last);
    }
  }
  return samples;
}

/// The median over the calls of how long after the first rank the last one began.
static Ns latenessOf(ArrayRef<std::vector<SiteSamples>> ranks, size_t site) {
  std::vector<Ns> spreads;
  for (size_t call = 0; call < ranks.front()[site].begins.size(); ++call) {
    Ns first = INT64_MAX, last = INT64_MIN;
    for (const std::vector<SiteSamples> &rank : ranks) {
      if (call >= rank[site].begins.size())
        return 0;
      first = std::min(first, rank[site].begins[call]);
      last = std::max(last, rank[site].begins[call]);
    }
    spreads.push_back(last - first);
  }
  return medianOf(spreads);
}

static Error checkSites(const BlockSnapshot &predicted, ArrayRef<RankTrace> traces) {
  int64_t sites = 0;
  for (const RankTrace &trace : traces)
    for (const commrt_trace_record &record : trace.records)
      sites = std::max(sites, record.site + 1);
  if (sites == static_cast<int64_t>(predicted.rows.size()))
    return Error::success();
  return createStringError("expected straight-line code with a collective per site, got " + formatCount(sites, "site") +
                           " and " + formatCount(static_cast<int64_t>(predicted.rows.size()), "collective") +
                           " in the entry's body");
}

Expected<PredictionComparison> commsched::compareWithPrediction(const BlockSnapshot &predicted,
                                                                ArrayRef<RankTrace> traces) {
  if (Error error = checkSites(predicted, traces))
    return std::move(error);
  PredictionComparison result;
  result.predicted = predicted.makespan;
  if (predicted.errorBars)
    result.predictedInterval = predicted.errorBars->makespan;
  size_t calls = traces.front().marks.size() - 1, skipped = calls > 1 ? 1 : 0;
  std::vector<Ns> makespans;
  for (size_t call = skipped; call < calls; ++call) {
    Ns slowest = 0;
    for (const RankTrace &trace : traces)
      slowest = std::max(slowest, trace.marks[call + 1] - trace.marks[call]);
    makespans.push_back(slowest);
  }
  result.measured = estimateDuration(makespans);

  std::vector<std::vector<SiteSamples>> ranks;
  for (const RankTrace &trace : traces)
    ranks.push_back(collectSamples(trace, predicted.rows.size(), trace.marks[skipped]));
  for (auto [site, row] : enumerate(predicted.rows)) {
    SiteComparison entry{site, row.cost, 0, row.exposed, 0, latenessOf(ranks, site)};
    std::vector<Ns> durations, exposed, afterLast, beside;
    for (const std::vector<SiteSamples> &rank : ranks) {
      if (const std::vector<Ns> &known = rank[site].afterLast; !known.empty())
        afterLast.push_back(medianOf(known));
      durations.push_back(medianOf(rank[site].durations));
      exposed.push_back(medianOf(rank[site].exposed));
      beside.push_back(medianOf(rank[site].beside));
    }
    entry.measured = medianOf(durations);
    entry.measuredExposed = medianOf(exposed);
    entry.beside = medianOf(beside);
    if (!afterLast.empty())
      entry.afterLast = medianOf(afterLast);
    result.sites.push_back(entry);
  }
  llvm::stable_sort(result.sites, [](const SiteComparison &a, const SiteComparison &b) { return a.miss() > b.miss(); });
  return result;
}

/// The places of a collective in the program.
static std::string nameOf(const SiteComparison &site, const CollectiveRow &row) {
  return row.locations.empty() ? "site " + std::to_string(site.site) : join(row.locations, " + ");
}

json::Object commsched::describeComparison(const PredictionComparison &comparison, const BlockSnapshot &predicted,
                                           size_t most) {
  const Estimate &measured = comparison.measured;
  json::Array sites;
  for (const SiteComparison &site : ArrayRef(comparison.sites).take_front(most)) {
    const CollectiveRow &row = predicted.rows[site.site];
    json::Object entry{{"site", static_cast<int64_t>(site.site)},
                       {"location", nameOf(site, row)},
                       {"kind", stringify(row.kind)},
                       {"bytes", row.bytes},
                       {"predicted_ns", site.predicted},
                       {"measured_ns", site.measured},
                       {"predicted_exposed_ns", site.predictedExposed},
                       {"measured_exposed_ns", site.measuredExposed},
                       {"lateness_ns", site.lateness},
                       {"beside", site.beside},
                       {"reason", site.reason()}};
    if (site.afterLast)
      entry["after_last_ns"] = *site.afterLast;
    sites.push_back(std::move(entry));
  }
  json::Object result{{"predicted_ns", comparison.predicted},
                      {"measured_ns", measured.value},
                      {"measured_lo_ns", measured.lo},
                      {"measured_hi_ns", measured.hi},
                      {"calls", measured.n},
                      {"rejected", measured.rejected},
                      {"error_permille", comparison.errorPermille()},
                      {"collectives", static_cast<int64_t>(comparison.sites.size())},
                      {"sites", std::move(sites)}};
  if (const std::optional<TimeInterval> &interval = comparison.predictedInterval) {
    result["predicted_lo_ns"] = interval->lo;
    result["predicted_hi_ns"] = interval->hi;
  }
  return result;
}

void commsched::printComparison(const PredictionComparison &comparison, const BlockSnapshot &predicted, size_t most,
                                raw_ostream &os) {
  const Estimate &measured = comparison.measured;
  os << "predicted " << formatNs(comparison.predicted);
  if (const std::optional<TimeInterval> &interval = comparison.predictedInterval)
    os << " (" << formatNs(interval->lo) << " to " << formatNs(interval->hi) << " by the error bars of its costs)";
  os << ", measured " << formatNs(measured.value) << " (median of " << measured.n << " calls, " << formatNs(measured.lo)
     << " to " << formatNs(measured.hi) << "): the prediction is "
     << formatv("{0:F1} % too {1}\n", std::abs(static_cast<double>(comparison.errorPermille())) / 10,
                comparison.errorPermille() < 0 ? "low" : "high");
  if (comparison.sites.empty())
    return;
  bool knowsLast = any_of(comparison.sites, [](const SiteComparison &site) { return site.afterLast.has_value(); });
  auto row = [&](StringRef name, StringRef kind, StringRef predictedTime, StringRef inFlight, StringRef afterLast,
                 StringRef exposed, StringRef measuredExposed, StringRef why) {
    os << formatv("{0,-32} {1,-16} {2,10} {3,10}", name, kind, predictedTime, inFlight);
    if (knowsLast)
      os << formatv(" {0,10}", afterLast);
    os << formatv(" {0,10} {1,10}  {2}\n", exposed, measuredExposed, why);
  };
  row("collective", "kind", "predicted", knowsLast ? "in flight" : "measured", "after last", "exposed", "measured",
      "why");
  for (const SiteComparison &site : ArrayRef(comparison.sites).take_front(most)) {
    const CollectiveRow &collective = predicted.rows[site.site];
    std::string name = nameOf(site, collective);
    row(StringRef(name).take_back(32), stringify(collective.kind), formatNs(site.predicted), formatNs(site.measured),
        site.afterLast ? formatNs(*site.afterLast) : "", formatNs(site.predictedExposed),
        formatNs(site.measuredExposed), site.reason());
  }
}
