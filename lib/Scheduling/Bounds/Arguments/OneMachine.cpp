//===- OneMachine.cpp - Preemptive bound for the work of one lane -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Jackson's rule always runs the available job with the longest tail.
//
//===------------------------------------------------------------------------------------------===//

#include "OneMachine.h"
#include "llvm/ADT/STLExtras.h"
#include <queue>

using namespace commsched;

static bool isEarlier(const Job &a, const Job &b) { return a.head < b.head; }

void commsched::sortByHead(std::vector<Job> &jobs) {
  if (!llvm::is_sorted(jobs, isEarlier))
    llvm::stable_sort(jobs, isEarlier);
}

/// The moment from which the machine is never idle among the jobs with a tail of at least `tail`: where the last idle
/// time among them ends, ns.
static Ns beginOfCritical(llvm::ArrayRef<Job> jobs, Ns tail) {
  Ns now = 0, begin = 0;
  for (const Job &job : jobs) {
    if (job.tail < tail)
      continue;
    if (now < job.head)
      now = begin = job.head;
    now += job.duration;
  }
  return begin;
}

OneMachineBound commsched::oneMachine(llvm::ArrayRef<Job> jobs) {
  std::priority_queue<std::pair<Ns, Ns>> ready;
  OneMachineBound bound;
  Ns now = 0;
  size_t next = 0;
  while (next < jobs.size() || !ready.empty()) {
    if (ready.empty())
      now = std::max(now, jobs[next].head);
    for (; next < jobs.size() && jobs[next].head <= now; ++next)
      ready.push({jobs[next].tail, jobs[next].duration});
    auto [tail, left] = ready.top();
    ready.pop();
    if (next == jobs.size() || now + left <= jobs[next].head) {
      now += left;
      if (now + tail > bound.makespan) {
        bound.makespan = now + tail;
        bound.tail = tail;
      }
    } else {
      ready.push({tail, left - (jobs[next].head - now)});
      now = jobs[next].head;
    }
  }
  bound.head = beginOfCritical(jobs, bound.tail);
  return bound;
}
