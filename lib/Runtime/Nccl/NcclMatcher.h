//===- NcclMatcher.h - Comparison of starts within one process -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// NCCL hangs, or computes something else, when ranks disagree. Where all ranks live in one process, each start is
// compared with those of the others before NCCL sees it.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_NCCL_NCCLMATCHER_H
#define COMMSCHED_LIB_RUNTIME_NCCL_NCCLMATCHER_H

#include "CommSched/Runtime/Backend.h"
#include "Core/Support/Guarded.h"
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace commsched::runtime {
/// A start without its memory, which may be described when its rank is gone.
struct WorkCopy {
  commrt_work fields = {};
  std::string group, location;

  WorkCopy() = default;
  explicit WorkCopy(const commrt_work &work)
      : fields(work), group(work.group ? work.group : ""), location(work.location ? work.location : "") {}
  /// Valid as long as this is.
  commrt_work view() const {
    commrt_work result = fields;
    result.group = group.c_str();
    result.location = location.empty() ? nullptr : location.c_str();
    return result;
  }
};

/// What a rank presented, and what it gives to and expects of each member.
struct Presented {
  WorkCopy work;
  std::vector<int64_t> sends, receives; ///< uneven all_to_all
};

/// The members of one subset.
struct Meeting {
  std::vector<int32_t> members;                             ///< ranks
  std::vector<int64_t> started;                             ///< by member: collectives so far
  std::deque<std::vector<std::unique_ptr<Presented>>> open; ///< by collective, by member
  int64_t firstOpen = 0;                                    ///< the number of the first
  struct Pair {
    std::deque<WorkCopy> sends, receives; ///< those that the other side has not presented
  };
  std::map<std::pair<int32_t, int32_t>, Pair> pairs; ///< by sending and receiving member
};

/// Why a start is refused; status COMMRT_OK: it is not.
struct Refusal {
  int32_t status = COMMRT_OK;
  int32_t rank = -1; ///< where the error began
  std::string text;
};

class Matcher {
public:
  Matcher(int32_t ranks, const commrt_host *host) : host(host), left(ranks), last(ranks), hasLast(ranks) {}

  /// The meeting of a group's subset; lives as long as the matcher.
  Meeting *meetingOf(const std::string &name, const std::vector<int32_t> &members);
  /// A start of the member, in the order in which NCCL will see it.
  Refusal present(Meeting &meeting, int32_t member, const commrt_work &work);
  /// The rank starts nothing more. Why that makes the others fail; status COMMRT_OK if it does not.
  Refusal removeRank(int32_t rank);
  /// Who has not started what the rank has: "all_reduce ... waits for rank 2 (last started ...)". Empty if nobody.
  std::string describeMissing(int32_t rank);

private:
  Refusal presentCollective(Meeting &meeting, int32_t member, const commrt_work &work) COMMRT_REQUIRES(mutex);
  Refusal presentMessage(Meeting &meeting, int32_t member, const commrt_work &work) COMMRT_REQUIRES(mutex);
  std::string describe(const commrt_work &work) const;
  std::string describe(const WorkCopy &work) const { return describe(work.view()); }
  std::string lastOf(int32_t rank) const COMMRT_REQUIRES(mutex);
  Refusal disagree(int32_t theirRank, const WorkCopy &theirs, int32_t rank, const commrt_work &mine) const;

  Mutex mutex;
  const commrt_host *const host;
  std::map<std::pair<std::string, std::vector<int32_t>>, std::unique_ptr<Meeting>> meetings COMMRT_GUARDED_BY(mutex);
  std::vector<bool> left COMMRT_GUARDED_BY(mutex);
  std::vector<WorkCopy> last COMMRT_GUARDED_BY(mutex); ///< by rank: what it started last
  std::vector<bool> hasLast COMMRT_GUARDED_BY(mutex);
};
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_NCCL_NCCLMATCHER_H
