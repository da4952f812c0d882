//===- PassJournal.cpp - Journal of what passes did to collectives ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Report/PassJournal.h"
#include "CommSched/Report/Report.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/WithColor.h"

using namespace llvm;
using namespace commsched;

/// Rows of the table of one pass.
static constexpr size_t kMaxPassRows = 5;

int64_t PassRecord::moved() const {
  return count_if(rows, [](const PassRow &row) { return row.moves != 0; });
}

std::vector<PassRecord> PassJournal::take() {
  std::lock_guard<std::mutex> lock(mutex);
  return std::exchange(records, {});
}

static json::Object toJSON(const BeforeAfter &value) {
  return json::Object{{"before", value.before}, {"after", value.after}};
}

static json::Object toJSON(const NamedOperations &operations) {
  return json::Object{{"count", operations.count}, {"names", json::Array(operations.names)}};
}

static json::Object toJSON(const PassRow &row) {
  return json::Object{{"loc", join(row.locations, " + ")},
                      {"kind", row.kind},
                      {"cost_ns", row.cost},
                      {"compute_ns", toJSON(row.compute)},
                      {"slack_ns", row.slack()},
                      {"exposed_ns", toJSON(row.exposed)},
                      {"exposed_because", row.exposedBecause},
                      {"improvement_ns", row.exposed.gain()},
                      {"moves", row.moves},
                      {"taken_along", toJSON(row.takenAlong)},
                      {"passed", toJSON(row.passed)},
                      {"hidden_by", toJSON(row.hiddenBy)},
                      {"limiting_factor", row.limitingFactor}};
}

/// The counts of all phases that made a trial.
static json::Object toJSON(const SearchStatistics &search) {
  auto counts = [](const SearchStatistics::Phase &phase) {
    return json::Object{{"trials", phase.trials}, {"incumbents", phase.incumbents}, {"steps", phase.steps}};
  };
  json::Object phases;
  for (const auto &[name, phase] : search.phases)
    phases[name] = counts(phase);
  json::Object result = counts(search.total());
  result["searches"] = search.searches;
  result["phases"] = std::move(phases);
  if (!search.lastImprovement.empty())
    result["last_improvement_by"] = search.lastImprovement;
  return result;
}

std::string commsched::describeSearch(const SearchStatistics &search) {
  SearchStatistics::Phase total = search.total();
  std::string text = formatv("{0} tried, {1} shorter than all before", total.trials, total.incumbents);
  if (!search.lastImprovement.empty())
    text += formatv(", the last by {0}", search.lastImprovement).str();
  return text + formatv("; {0} steps", total.steps).str();
}

/// The answer of a block at several scales of the times of collectives.
static json::Array toJSON(ArrayRef<ScaledTimes> scales) {
  json::Array result;
  for (const ScaledTimes &at : scales) {
    json::Object entry{{"collectives_permille", at.scale},
                       {"makespan_ns", json::Object{{"before", at.given}, {"after", at.makespan}}}};
    if (at.bound > 0)
      entry["lower_bound_ns"] = at.bound;
    result.push_back(std::move(entry));
  }
  return result;
}

/// What an answer takes by somebody else's costs, and how much slower it is than what it replaces.
static json::Object toJSON(const OpinionOutcome &opinion) {
  json::Array scales;
  for (auto [at, scale] : llvm::enumerate(kPlayedScales))
    scales.push_back(json::Object{
        {"collectives_permille", scale},
        {"makespan_ns", json::Object{{"before", opinion.given.byPeer[at]}, {"after", opinion.answer.byPeer[at]}}}});
  return json::Object{{"incumbents", opinion.incumbents},
                      {"replaced", opinion.isReplaced},
                      {"loss_ppm", json::Object{{"before", opinion.firstLossPpm}, {"after", opinion.lossPpm}}},
                      {"scales", std::move(scales)}};
}

json::Array commsched::toJSON(ArrayRef<PassRecord> passes) {
  json::Array result;
  for (const PassRecord &record : passes) {
    json::Array rows;
    for (const PassRow &row : record.rows)
      rows.push_back(::toJSON(row));
    json::Object object{{"pass", record.pass},
                        {"function", record.block},
                        {"makespan_ns", ::toJSON(record.makespan)},
                        {"exposed_ns", ::toJSON(record.exposed)},
                        {"improvement_ns", record.exposed.gain()},
                        {"peak_bytes", ::toJSON(record.peak)},
                        {"moved", record.moved()},
                        {"per_collective", std::move(rows)}};
    if (record.search)
      object["search"] = ::toJSON(*record.search);
    if (record.search)
      object["objective"] = stringify(record.objective);
    if (!record.scales.empty())
      object["scales"] = ::toJSON(record.scales);
    if (record.regretPpm)
      object["regret_ppm"] = *record.regretPpm;
    if (record.opinion)
      object["second_opinion"] = ::toJSON(*record.opinion);
    if (record.leastOrder)
      object["all_orders_lower_bound_ns"] = *record.leastOrder;
    if (record.leastSchedule)
      object["all_schedules_lower_bound_ns"] = *record.leastSchedule;
    if (record.certifiedBound)
      object["certified_lower_bound_ns"] = *record.certifiedBound;
    if (record.certifiedRegretPpm)
      object["certified_regret_ppm"] = *record.certifiedRegretPpm;
    result.push_back(std::move(object));
  }
  return result;
}

/// The collectives of one pass, those first that it improved most.
static void printRows(const PassRecord &record, raw_ostream &os) {
  std::vector<const PassRow *> rows;
  for (const PassRow &row : record.rows)
    if (row.moves != 0 || row.exposed.gain() != 0)
      rows.push_back(&row);
  stable_sort(rows, [](const PassRow *a, const PassRow *b) { return a->exposed.gain() > b->exposed.gain(); });
  if (rows.empty())
    return;
  os << formatv("    {0,-32}{1,8}{2,10}{3,10}{4,10}  {5}\n", "where", "moved", "takes", "compute", "exposed",
                "what stopped it");
  for (const PassRow *row : ArrayRef(rows).take_front(kMaxPassRows)) {
    StringRef where = row->locations.empty() ? StringRef("?") : StringRef(row->locations.front());
    os << formatv("    {0,-32}{1,8}{2,10}{3,10}{4,10}  {5}\n", where.take_back(30), row->moves, formatNs(row->cost),
                  formatNs(row->compute.after), formatNs(row->exposed.after), row->limitingFactor);
  }
  if (rows.size() > kMaxPassRows)
    os << formatv("    and {0} more\n", rows.size() - kMaxPassRows);
}

void commsched::printPasses(ArrayRef<PassRecord> passes, raw_ostream &os) {
  for (const PassRecord &record : passes) {
    WithColor(os, raw_ostream::SAVEDCOLOR, /*Bold=*/true) << "  " << record.pass;
    os << formatv(" of {0}: moved {1} of {2}, exposed {3} -> {4}, makespan {5} -> {6}, peak {7} -> {8}\n", record.block,
                  record.moved(), record.rows.size(), formatNs(record.exposed.before), formatNs(record.exposed.after),
                  formatNs(record.makespan.before), formatNs(record.makespan.after), formatBytes(record.peak.before),
                  formatBytes(record.peak.after));
    printRows(record, os);
  }
}
