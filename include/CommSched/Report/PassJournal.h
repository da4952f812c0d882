//===- PassJournal.h - What each pass did to each collective ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A report says what a whole run was worth. The journal says the same of every scheduling pass in it: which collectives
// moved, past what and with what, how much computation hides each of them, and what stopped it. Passes write into the
// journal of their context while a report collects it, and otherwise write nothing.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_REPORT_PASSJOURNAL_H
#define COMMSCHED_REPORT_PASSJOURNAL_H

#include "CommSched/Scheduling/Solver/SearchObserver.h"
#include "CommSched/Support/Units.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace commsched {

/// Some operations: how many, and the names of the first few.
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

/// What one pass did to one start or wait.
struct PassRow {
  /// As in CollectiveRow.
  std::vector<std::string> locations;
  /// "all_gather" of a start, "wait" of a wait.
  std::string kind;
  /// How long the collective takes, ns.
  Ns cost = 0;
  /// Computation between the start and its first wait, ns: what can hide it.
  BeforeAfter compute;
  /// How long the compute lane stands still for it, ns.
  BeforeAfter exposed;
  /// By how many places it moved in its pass's direction; negative where it gave way to others.
  int64_t moves = 0;
  NamedOperations takenAlong, passed, hiddenBy;
  /// What stopped it, in words.
  std::string limitingFactor;
  /// Why compute waits for the collective, in words, as the report says it; "already hidden" if it does not.
  std::string exposedBecause;

  /// By how much the computation is longer than the collective, ns; negative: it cannot hide all of it.
  Ns slack() const { return compute.after - cost; }
};

/// What one pass did to one block.
struct PassRecord {
  std::string pass;
  /// The block's name as reports have it: the function's, with ".N" for its Nth inner block.
  std::string block;
  /// ns, ns, bytes.
  BeforeAfter makespan, exposed, peak;
  std::vector<PassRow> rows;
  /// What the search tried, for comm-schedule.
  std::optional<SearchStatistics> search;
  /// The log of the search (SearchLog), if the journal asks for it.
  std::string searchLog;

  /// How many starts and waits moved.
  int64_t moved() const;
};

/// Collects records from several threads.
class PassJournal {
public:
  /// `logsSearch`: whether passes write PassRecord::searchLog.
  explicit PassJournal(bool logsSearch = false) : logsSearch(logsSearch) {}

  const bool logsSearch;

  void add(PassRecord record) {
    std::lock_guard<std::mutex> lock(mutex);
    records.push_back(std::move(record));
  }
  /// The records so far: those of one block in the order of its passes. The journal is empty then.
  std::vector<PassRecord> take();

private:
  std::mutex mutex;
  std::vector<PassRecord> records;
};

/// The array "passes" of a report.
llvm::json::Array toJSON(llvm::ArrayRef<PassRecord> passes);

/// One line per pass and block, if there are several passes, and the collectives that moved most.
void printPasses(llvm::ArrayRef<PassRecord> passes, llvm::raw_ostream &os);

/// What a search did, in one line: "412 tried, 17 kept, 3 times shorter; last by climb; 2000000 steps".
std::string describeSearch(const SearchStatistics &search);

} // namespace commsched

#endif // COMMSCHED_REPORT_PASSJOURNAL_H
