//===- PassJournal.h - Journal of what passes did to collectives ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A report describes a whole run. The journal describes each scheduling pass of the run: which collectives moved, past
// which operations and with which, how much computation hides each, and what stopped it. Passes write into the journal
// of their context while a report collects it.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_REPORT_PASSJOURNAL_H
#define COMMSCHED_REPORT_PASSJOURNAL_H

#include "CommSched/Report/CertifiedLoop.h"
#include "CommSched/Scheduling/Answer/BothCosts.h"
#include "CommSched/Scheduling/Answer/CostScale.h"
#include "CommSched/Scheduling/Solver/SearchObserver.h"
#include "CommSched/Support/Objective.h"
#include "CommSched/Support/Units.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace commsched {

/// A set of operations: their number, and the names of the first few.
struct NamedOperations {
  static constexpr size_t kMostNames = 4;

  int64_t count = 0;
  std::vector<std::string> names;
};

/// A number before and after a pass.
struct BeforeAfter {
  int64_t before = 0, after = 0;
  int64_t gain() const { return before - after; }
};

/// The effect of one pass on one start or wait.
struct PassRow {
  /// As in CollectiveRow.
  std::vector<std::string> locations;
  /// The collective's kind ("all_gather") for a start, "wait" for a wait.
  std::string kind;
  /// Duration of the collective, ns.
  Ns cost = 0;
  /// Computation between the start and its first wait, which can hide the collective, ns.
  BeforeAfter compute;
  /// Time for which the compute lane waits for it, ns.
  BeforeAfter exposed;
  /// Positions that it moved in the direction of its pass; negative if it moved the other way.
  int64_t moves = 0;
  NamedOperations takenAlong, passed, hiddenBy;
  /// What stopped it, in words.
  std::string limitingFactor;
  /// Why compute waits for the collective, in words, as the report says it; "already hidden" if it does not.
  std::string exposedBecause;

  /// Computation minus the duration of the collective, ns. If negative, computation cannot hide all of it.
  Ns slack() const { return compute.after - cost; }
};

/// The effect of one pass on one block.
struct PassRecord {
  std::string pass;
  /// The block's name as reports have it: the function's, with ".N" for its Nth inner block.
  std::string block;
  /// ns, ns, bytes.
  BeforeAfter makespan, exposed, peak;
  std::vector<PassRow> rows;
  /// Counts of the search's trials, for comm-schedule.
  std::optional<SearchStatistics> search;
  /// What the pass minimized in this block.
  Objective objective = Objective::Makespan;
  /// The log of the search (SearchLog), if the journal asks for it.
  std::string searchLog;
  /// The least makespan of all orders of the block that merge nothing, and of all orders and buckets, if the search
  /// enumerated all of them, ns.
  std::optional<Ns> leastOrder, leastSchedule;
  /// The certificate of the answer (Certificate.h), if the journal asks for it.
  std::string certificate;
  /// The makespan of which the certificate is, and the bound that it proves, ns.
  std::optional<Ns> certifiedMakespan, certifiedBound;
  /// The answer if collectives take other times, and regretPpm() of that; none if the pass did not look.
  std::vector<ScaledTimes> scales;
  std::optional<int64_t> regretPpm;
  /// What a second opinion changed; none if there was none.
  std::optional<OpinionOutcome> opinion;
  /// The regret that the certificate proves, in millionths.
  std::optional<int64_t> certifiedRegretPpm;

  /// Number of starts and waits that moved.
  int64_t moved() const;
};

/// Collects records from several threads.
class PassJournal {
public:
  /// `logsSearch`: whether passes write PassRecord::searchLog; `certifies`: whether comm-schedule writes
  /// PassRecord::certificate.
  explicit PassJournal(bool logsSearch = false, bool certifies = false)
      : logsSearch(logsSearch), certifies(certifies) {}

  const bool logsSearch, certifies;

  void add(PassRecord record) {
    std::lock_guard<std::mutex> lock(mutex);
    records.push_back(std::move(record));
  }
  /// Says that a pass of another project runs, which may change more than order and buckets.
  void noteOtherPass() { otherPasses = true; }
  bool hasOtherPasses() const { return otherPasses; }
  /// Notes what is proven of the loop whose body has this name in reports. The certificate of the body will say so.
  void noteLoop(llvm::StringRef body, CertifiedLoop loop) {
    std::lock_guard<std::mutex> lock(mutex);
    loops.insert_or_assign(body.str(), std::move(loop));
  }
  /// What noteLoop() noted; null if nothing. Valid until the same name is noted again.
  const CertifiedLoop *loopOf(llvm::StringRef body) {
    std::lock_guard<std::mutex> lock(mutex);
    auto known = loops.find(body.str());
    return known == loops.end() ? nullptr : &known->second;
  }
  /// Returns the records so far, those of one block in the order of its passes, and empties the journal.
  std::vector<PassRecord> take();

private:
  std::mutex mutex;
  std::vector<PassRecord> records;
  /// By name of the body.
  std::map<std::string, CertifiedLoop> loops;
  bool otherPasses = false;
};

/// The array "passes" of a report.
llvm::json::Array toJSON(llvm::ArrayRef<PassRecord> passes);

/// One line per pass and block, if there are several passes, and the collectives that moved most.
void printPasses(llvm::ArrayRef<PassRecord> passes, llvm::raw_ostream &os);

/// What a search did, in one line: "412 tried, 3 shorter than all before, the last by moves; 2000000 steps".
std::string describeSearch(const SearchStatistics &search);

} // namespace commsched

#endif // COMMSCHED_REPORT_PASSJOURNAL_H
