//===- Bucketings.h - All bucketings of a small problem -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// What a bound for every bucketing is compared with.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TEST_SCHEDULING_BUCKETINGS_H
#define COMMSCHED_TEST_SCHEDULING_BUCKETINGS_H

#include "CommSched/Scheduling/Buckets/Bucketing.h"
#include <vector>

namespace commsched::test {

/// All ways to put pairwise independent mergeable starts into buckets of both forms, at most `limit` of them. Each
/// comes once if they are distinct, and otherwise as often as what stays alone may have a form.
class Bucketings {
public:
  Bucketings(const Problem &problem, size_t limit, bool isDistinct = false)
      : problem(problem), limit(limit), isDistinct(isDistinct) {
    extend(0, {});
  }
  std::vector<std::vector<Bucket>> all;

private:
  void extend(NodeId id, std::vector<Bucket> chosen) {
    if (all.size() >= limit)
      return;
    while (id < problem.size() && problem.nodes[id].mergeKey == kNone)
      ++id;
    if (id == problem.size()) {
      std::vector<Bucket> buckets;
      for (const Bucket &bucket : chosen) {
        if (bucket.members.size() > 1)
          buckets.push_back(bucket);
        // What stays alone has no form.
        else if (isDistinct && bucket.form == BucketForm::Coalesced)
          return;
      }
      if (!buckets.empty())
        all.push_back(buckets);
      return;
    }
    for (Bucket &bucket : chosen)
      if (problem.nodes[bucket.members.front()].mergeKey == problem.nodes[id].mergeKey && fits(bucket, id)) {
        bucket.members.push_back(id);
        extend(id + 1, chosen);
        bucket.members.pop_back();
      }
    for (BucketForm form : {BucketForm::Packed, BucketForm::Coalesced}) {
      chosen.push_back({{id}, form});
      extend(id + 1, chosen);
      chosen.pop_back();
    }
  }
  bool fits(const Bucket &bucket, NodeId more) const {
    Bytes bytes = problem.nodes[more].bytes, cap = problem.mergeKeys[problem.nodes[more].mergeKey].cap;
    for (NodeId member : bucket.members)
      bytes += problem.nodes[member].bytes;
    return cap < 0 || bytes <= cap;
  }

  const Problem &problem;
  size_t limit;
  bool isDistinct;
};

} // namespace commsched::test

#endif // COMMSCHED_TEST_SCHEDULING_BUCKETINGS_H
