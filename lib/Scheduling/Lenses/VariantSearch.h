//===- VariantSearch.h - Choose how collectives are carried out ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A search plans with one way to carry out each collective. This search looks at its answer and chooses other ways for
// single collectives, such as one that is slower and takes fewer compute units from the products beside it, and then
// looks for a better order with these ways. Buckets stay as they are. Private to the lenses.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_LENSES_VARIANTSEARCH_H
#define COMMSCHED_LIB_SCHEDULING_LENSES_VARIANTSEARCH_H

#include "CommSched/Scheduling/Answer/Variants.h"
#include "Lens.h"

namespace commsched {

/// Improves a finished answer by variants.
class VariantSearch {
public:
  /// `answer` is an answer for `problem` without a choice, expanded, with a peak of at most `limit`, bytes. The search
  /// takes from `options` the collective order and the executor, and orders from `inner`. Keeps references to
  /// `problem`, `options` and what `inner` refers to. O(N + E + variants).
  VariantSearch(const Problem &problem, const ScheduleOptions &options, Bytes limit, Schedule answer,
                InnerSolver inner);

  /// Spends about `effort` steps. Equal arguments give equal answers on every machine and any number of threads.
  void run(int64_t effort);

  /// The answer given, or a shorter one that the verifier agrees with.
  const Schedule &best() const { return answer; }
  int64_t steps() const { return spent; }
  /// Why an answer was dropped that this library contradicts itself about; empty if none was.
  const std::string &defect() const { return firstDefect; }

private:
  /// A collective with a choice.
  struct Site {
    /// Its start in the problem that is carried out, and in the given problem (VariantChoice::start).
    NodeId node, start;
    /// What it costs and needs (an index of the demand) in each way; the first one is without a choice.
    struct Way {
      int32_t name;
      Ns cost;
      int32_t demand;
    };
    llvm::SmallVector<Way, 4> ways;
    /// Index into `ways`.
    size_t chosen = 0;
  };

  void findSites();
  void choose(Site &site, size_t way);
  void chooseAll(llvm::ArrayRef<size_t> ways);
  std::vector<size_t> chosen() const;
  void chooseCheapest();
  void chooseContended(int64_t budget);
  void chooseEverywhere(int32_t name);
  void tryEverywhere(int32_t name);
  bool descend(int64_t budget);
  void improveOrder(int64_t effort);
  void improve(int64_t budget);
  void offer();

  const Problem &problem;
  const ScheduleOptions &options;
  Bytes limit;
  InnerSolver inner;
  Schedule answer;
  /// The answer's problem with the choices that are tried carried out, and the order that is tried.
  Problem carried;
  Order order;
  std::vector<Site> sites;
  int64_t spent = 0;
  std::string firstDefect;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_LENSES_VARIANTSEARCH_H
