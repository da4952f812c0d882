//===- SearchLog.h - The log of a search as JSON lines ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// An observer that writes one JSON object per line for everything that a search does: its beginning, each trial, and
// its end. Report.md describes the fields. Equal events give equal bytes.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_REPORT_SEARCHLOG_H
#define COMMSCHED_REPORT_SEARCHLOG_H

#include "CommSched/Scheduling/Solver/SearchObserver.h"
#include "llvm/Support/raw_ostream.h"
#include <string>

namespace commsched {

/// Appends the lines of one block to a string.
class SearchLog : public SearchObserver {
public:
  /// `block` is the block's name in reports; `text` has to outlive the log.
  SearchLog(std::string block, std::string &text) : block(std::move(block)), os(text) {}

  void begin(const SearchStart &start) override;
  void observe(const SearchTrial &trial) override;
  void end(const SearchEnd &end) override;

private:
  std::string block;
  llvm::raw_string_ostream os;
  bool bucketing = false;
  /// Number of trials of the search that runs.
  int64_t trials = 0;
};

} // namespace commsched

#endif // COMMSCHED_REPORT_SEARCHLOG_H
