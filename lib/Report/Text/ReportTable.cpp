//===- ReportTable.cpp - The report as a table for people -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Report/Report.h"
#include "CommSched/Support/Count.h"
#include "ContentionReport.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/WithColor.h"

using namespace llvm;
using namespace commsched;

/// Rows of the table of exposed collectives.
static constexpr size_t kMaxTableRows = 10;
/// Longest name that is shown whole.
static constexpr size_t kMaxName = 36;

/// "-31.2 %" of `after` against `before`; empty where there is nothing to compare.
static std::string change(int64_t before, int64_t after) {
  if (before <= 0 || before == after)
    return "";
  double percent = 100.0 * static_cast<double>(after - before) / static_cast<double>(before);
  // What is left is not nothing.
  return formatv("{0:f1} %", after > 0 ? std::max(percent, -99.9) : percent).str();
}

static void printLine(raw_ostream &os, StringRef name, StringRef before, StringRef after, StringRef remark) {
  os << formatv("  {0,-14}{1,12}{2,12}  {3}", name, before, after, remark).str() << "\n";
}

/// Traffic of one kind on one group.
struct Traffic {
  int64_t before = 0, after = 0;
  Bytes bytesBefore = 0, bytesAfter = 0;
};

static void printTraffic(const BlockReport &block, raw_ostream &os) {
  std::map<std::string, Traffic> traffic;
  auto nameOf = [](const CollectiveRow &row) { return (stringify(row.kind) + " " + row.group).str(); };
  for (const CollectiveRow &row : block.before.rows) {
    ++traffic[nameOf(row)].before;
    traffic[nameOf(row)].bytesBefore += row.bytes;
  }
  for (const CollectiveRow &row : block.after.rows) {
    ++traffic[nameOf(row)].after;
    traffic[nameOf(row)].bytesAfter += row.bytes;
  }
  for (const auto &[name, entry] : traffic)
    printLine(os, name.size() > 26 ? name.substr(0, 26) : name, std::to_string(entry.before),
              std::to_string(entry.after), formatBytes(entry.bytesAfter));
}

static std::string shorten(const CollectiveRow &row) {
  std::string name = row.locations.empty() ? "?" : row.locations.front();
  if (name.size() > kMaxName)
    name = "..." + name.substr(name.size() - kMaxName + 3);
  if (row.locations.size() > 1)
    name += " +" + std::to_string(row.locations.size() - 1);
  return name;
}

static void printExposed(const BlockReport &block, raw_ostream &os) {
  std::vector<const CollectiveRow *> rows;
  for (const CollectiveRow &row : block.after.rows)
    if (row.exposed > 0)
      rows.push_back(&row);
  if (rows.empty())
    return;
  stable_sort(rows, [](const CollectiveRow *a, const CollectiveRow *b) { return a->exposed > b->exposed; });
  size_t shown = std::min(rows.size(), kMaxTableRows);
  WithColor(os, raw_ostream::SAVEDCOLOR, /*Bold=*/true)
      << "  exposed collectives, worst " << shown << " of " << rows.size() << "\n";
  os << formatv("  {0,-42}{1,-16}{2,10}{3,10}{4,10}  {5}\n", "where", "kind", "bytes", "takes", "exposed",
                "what limits it");
  for (const CollectiveRow *row : ArrayRef(rows).take_front(shown))
    os << formatv("  {0,-42}{1,-16}{2,10}{3,10}{4,10}  {5}\n", shorten(*row), stringify(row->kind),
                  formatBytes(row->bytes), formatNs(row->cost), formatNs(row->exposed), row->limitingFactor);
}

/// " (this, that, ...)", or nothing.
static std::string namesOf(const BlockSnapshot &snapshot) {
  if (snapshot.unknownValues.empty())
    return "";
  bool isAll = static_cast<int64_t>(snapshot.unknownValues.size()) == snapshot.unknownSizes;
  return " (" + join(snapshot.unknownValues, ", ") + (isAll ? ")" : ", ...)");
}

/// "950 ms to 990 ms", of one side.
static std::string describeInterval(Ns lo, Ns hi) { return formatNs(lo) + " to " + formatNs(hi); }

/// What error bars say, if there are any.
static void printErrorBars(const BlockReport &block, raw_ostream &os) {
  const std::optional<BlockErrorBars> &before = block.before.errorBars, &after = block.after.errorBars;
  if (!before && !after)
    return;
  auto describe = [](const std::optional<BlockErrorBars> &bars, Ns makespan) {
    return bars ? describeInterval(bars->makespan.lo, bars->makespan.hi) : formatNs(makespan);
  };
  auto isWide = [](const std::optional<BlockErrorBars> &bars) { return bars && bars->makespan.lo < bars->makespan.hi; };
  if (isWide(before) || isWide(after)) {
    TimeInterval gain = block.gain();
    os << "  error bars    before " << describe(before, block.before.makespan) << ", after "
       << describe(after, block.after.makespan) << "\n";
    os << "                gain " << formatNs(gain.value) << ", " << describeInterval(gain.lo, gain.hi)
       << " when both orders cost alike\n";
  }
  const CostCounts &counts = (after ? after : before)->counts;
  std::vector<std::string> sources;
  for (unsigned origin = 0; origin < kNumCostOrigins; ++origin)
    sources.push_back(formatv("{0} {1}", counts.byOrigin[origin], stringify(static_cast<CostOrigin>(origin))).str());
  os << "  costs         " << join(sources, ", ") << "; " << counts.withErrorBar << " with error bars\n";
  for (const auto &[flag, count] : counts.flagged)
    os << "                " << formatCount(count, "collective", " is", " are") << " priced by a table with the flag '"
       << flag << "'\n";
}

/// Which share of the time is known from what, if anything was measured.
static void printCostTimes(const CostTimes &times, raw_ostream &os) {
  if (times.of(CostKnowledge::Measured) + times.of(CostKnowledge::Curve) > 0)
    os << "  known from    " << times.describe() << "\n";
}

/// Makespans in scenarios, if there are any.
static void printScenarios(const Report &report, const BlockReport &block, raw_ostream &os) {
  const std::optional<SampledMakespan> &before = block.before.sampled, &after = block.after.sampled;
  if (!before || !after)
    return;
  std::string count = std::to_string(report.noise.scenarios);
  std::string spread = formatv("; spread of collectives {0} permille, of the rest {1}",
                               report.noise.collectiveSpreadPermille, report.noise.computeSpreadPermille);
  printLine(os, "mean of " + count, formatNs(before->mean), formatNs(after->mean),
            change(before->mean, after->mean) + spread);
  printLine(os, "p95 of " + count, formatNs(before->p95), formatNs(after->p95), change(before->p95, after->p95));
  auto printBound = [&](StringRef name, const std::optional<SampledMakespan> &bound, StringRef what) {
    if (bound && bound->mean > 0)
      printLine(os, name, "", formatNs(bound->mean),
                formatv("{0}; the mean is at most {1} from optimal", what,
                        formatAtMost(static_cast<double>(after->mean - bound->mean) / static_cast<double>(bound->mean)))
                    .str());
  };
  const std::optional<SampledMakespan> &any = block.before.sampledBound, &order = block.before.sampledOrderBound;
  printBound("mean of bounds", any, "of all scenarios");
  if (order && !(order == any))
    printBound("same, unmerged", order, "without merging");
}

/// What a block's figures rest on without being told: sizes that count as nothing, and guessed costs. Empty if there is
/// neither.
static std::string describeGuesses(const BlockSnapshot &snapshot) {
  std::string sizes, costs;
  if (snapshot.unknownSizes)
    sizes = formatv("{0} of unknown size {1} as 0 bytes{2}", formatCount(snapshot.unknownSizes, "value"),
                    snapshot.unknownSizes == 1 ? "counts" : "count", namesOf(snapshot))
                .str();
  if (snapshot.unknownCosts)
    costs = formatv("{0} of unknown cost {1} guessed from the operands",
                    formatCount(snapshot.unknownCosts, "operation"), snapshot.unknownCosts == 1 ? "is" : "are")
                .str();
  if (snapshot.costTimes.isMostlyUnknown())
    costs += formatv("{0}{1:F1} % of all time is unknown", costs.empty() ? "" : ": ",
                     static_cast<double>(snapshot.costTimes.permilleOf(CostKnowledge::Unknown)) / 10)
                 .str();
  return sizes + (sizes.empty() || costs.empty() ? "" : "; ") + costs;
}

/// What is known of the answer if collectives take other times than planned: in the whole interval of scales, or at the
/// played ones alone.
static void printOtherCosts(const PassRecord &pass, raw_ostream &os) {
  double worst = 0;
  for (const ScaledTimes &at : pass.scales) {
    if (at.bound <= 0)
      return;
    worst = std::max(worst, static_cast<double>(at.makespan - at.bound) / static_cast<double>(at.bound));
  }
  if (pass.scales.empty())
    return;
  auto times = [](const ScaledTimes &at) { return static_cast<double>(at.scale) / kPermille; };
  auto atMost = [](int64_t ppm) { return formatAtMost(static_cast<double>(ppm) / kMillion); };
  std::string played = formatv("{0} at the {1} scales that were played", formatAtMost(worst), pass.scales.size()).str();
  std::string all = pass.regretPpm ? atMost(*pass.regretPpm) + " from optimal" : played;
  std::string proof = pass.certifiedRegretPpm ? "proven by the certificate: at most " + atMost(*pass.certifiedRegretPpm)
                                              : "no certificate";
  os << formatv("  other costs   at most {0} if collectives take {1} to {2} times as long{3}; {4}\n", all,
                times(pass.scales.front()), times(pass.scales.back()), pass.regretPpm ? ", " + played : "", proof);
}

/// What the passes prove of the block as they got it, beside the bound of the report: the gaps differ, because each
/// argument counts something else. A merged answer may be faster than all orders.
static void printProofs(const Report &report, const BlockReport &block, raw_ostream &os) {
  for (const PassRecord &pass : report.passes) {
    if (pass.block != block.name)
      continue;
    auto print = [&](StringRef name, std::optional<Ns> bound, Ns makespan, StringRef what) {
      if (!bound || *bound <= 0)
        return;
      std::string gap = formatAtMost(static_cast<double>(makespan - *bound) / static_cast<double>(*bound));
      printLine(os, name, "", formatNs(*bound),
                makespan < *bound ? what.str() : formatv("{0}; at most {1} from optimal", what, gap).str());
    };
    print("all schedules", pass.leastSchedule, pass.makespan.after, "every order of all buckets was searched");
    print("all orders", pass.leastOrder, pass.makespan.after, "every order that merges nothing was searched");
    print("certificate", pass.certifiedBound, pass.certifiedMakespan.value_or(0), "proven by the certificate");
    printOtherCosts(pass, os);
  }
}

static void printBlock(const Report &report, const BlockReport &block, raw_ostream &os) {
  const BlockSnapshot &before = block.before, &after = block.after;
  WithColor(os, raw_ostream::CYAN, /*Bold=*/true) << block.name;
  os << ": " << formatCount(after.ops, "operation") << ", " << formatCount(after.collectives, "collective") << "\n";
  printLine(os, "", "before", "after", "");
  printLine(os, "makespan", formatNs(before.makespan), formatNs(after.makespan),
            change(before.makespan, after.makespan));
  printErrorBars(block, os);
  printScenarios(report, block, os);
  printContention(block, os);
  printLine(os, "exposed", formatNs(before.exposed), formatNs(after.exposed), change(before.exposed, after.exposed));
  printLine(os, "peak", formatBytes(before.peak), formatBytes(after.peak),
            (after.peak > block.limit ? "above the limit of " : "limit ") + formatBytes(block.limit) + ", arguments " +
                formatBytes(after.arguments) + " not included");
  printLine(os, "buffer plan", formatBytes(before.arena), formatBytes(after.arena),
            "one arena; " + formatBytes(after.arenaBound) + " live at most");
  if (std::string text = block.numerics.toText(); !text.empty())
    printLine(os, "numerics", "", stringify(block.numerics.numerics).str(), text);
  if (before.jointBound > 0 || after.makespan == 0)
    printLine(os, "lower bound", "", formatNs(before.jointBound),
              formatv("{0}; at most {1} from optimal", before.jointBoundBy, formatAtMost(block.gap())).str());
  else
    printLine(os, "lower bound", "", "", before.jointBoundBy);
  if (after.splitBound > 0) {
    Ns best = std::min(after.makespan, after.unsplit);
    printLine(os, "any split", "", formatNs(after.splitBound),
              formatv("{0}; at most {1:f2} % from optimal", after.splitBoundBy,
                      100.0 * static_cast<double>(best - after.splitBound) / static_cast<double>(after.splitBound))
                  .str());
    if (after.breakEvenPermille >= 0)
      printLine(os, "break-even", "", formatv("{0:f1} %", static_cast<double>(after.breakEvenPermille) / 10).str(),
                "slower strands would take as long as the unsplit program");
  }
  if (before.limitBound > before.jointBound)
    printLine(os, "within the limit", "", formatNs(before.limitBound), before.limitBoundBy);
  if (before.orderBound != before.jointBound)
    printLine(os, "without merging", "", formatNs(before.orderBound), before.orderBoundBy);
  printProofs(report, block, os);
  for (auto [lane, load] : zip(after.lanes, after.laneLoads))
    printLine(os, "load " + lane, "", formatNs(load), "");
  printTraffic(block, os);
  for (const PassRecord &pass : report.passes)
    if (pass.block == block.name && pass.search)
      os << "  search        " << describeSearch(*pass.search) << "\n";
  printCostTimes(after.costTimes, os);
  if (std::string guesses = describeGuesses(after); !guesses.empty())
    WithColor(os, raw_ostream::YELLOW) << "  " << guesses << "\n";
  if (after.cutValues > 0)
    WithColor(os, raw_ostream::YELLOW) << formatv("  {0} times or sizes are too large to be added up and were cut\n",
                                                  after.cutValues);
  if (after.unknownLanes > 0)
    WithColor(os, raw_ostream::YELLOW) << formatv("  {0} futures that came in occupy no lane until they are ready: "
                                                  "their groups are not known\n",
                                                  after.unknownLanes);
  printExposed(block, os);
}

void commsched::printTable(const Report &report, raw_ostream &os) {
  os << "machine " << report.machine << "\n";
  if (report.blocks.empty() && report.lostBlocks.empty() && report.newBlocks.empty())
    os << "no collectives: nothing to hide\n";
  for (const BlockReport &block : report.blocks)
    printBlock(report, block, os);
  for (const std::string &name : report.lostBlocks)
    os << name << ": a pass has removed or rebuilt this block; it is not compared\n";
  for (const std::string &name : report.newBlocks)
    os << name << ": a pass has made this block; it is not compared\n";
  for (const RebuiltFunction &whole : report.rebuilt)
    os << formatv("{0} as a whole: makespan {1} -> {2}, peak {3} -> {4}", whole.name, formatNs(whole.makespan.before),
                  formatNs(whole.makespan.after), formatBytes(whole.peak.before), formatBytes(whole.peak.after))
       << (whole.limit < kUnlimited ? ", limit " + formatBytes(whole.limit) : "") << "\n";
  // Of a single pass everything is said by now.
  if (llvm::any_of(report.passes, [&](const PassRecord &record) { return record.pass != report.passes.front().pass; }))
    printPasses(report.passes, os);
}
