//===- PlanRelief.cpp - Make values again until a plan fits -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Lives are those in the order of the reduced problem. A value that is made again lives from the place of its late
// reader on, and what is read for that lives until this place, or is made again, too.
//
//===------------------------------------------------------------------------------------------===//

#include "PlanRelief.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Support/Arithmetic.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include <limits>

using namespace commsched;

namespace {

constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

class Relief {
public:
  Relief(const Problem &problem, llvm::ArrayRef<Repetition> repetitions, const ReducedProblem &reduced,
         const llvm::BitVector &kept)
      : problem(problem), repetitions(repetitions), kept(kept), position(problem.size(), kNone),
        lastUse(problem.buffers.size(), kNone), standIn(problem.buffers.size(), kNone),
        ownerOf(problem.buffers.size(), kNone), lives(repetitions.size()) {
    peakAt = memoryProfile(reduced.problem, identityOrder(reduced.problem)).peakPosition;
    for (auto [place, origin] : llvm::enumerate(reduced.origin))
      position[origin] = static_cast<int32_t>(place);
    findStandIns();
    findLives();
  }

  /// The values that relieve the peak, those that take the least time for each byte first. Ties go to the first one.
  std::vector<llvm::SmallVector<int32_t, 8>> run(size_t most) {
    struct Candidate {
      Closure closure;
      Bytes gain;
    };
    std::vector<Candidate> candidates;
    for (int32_t index = 0; index < static_cast<int32_t>(repetitions.size()); ++index) {
      const Life &life = lives[index];
      if (!kept.test(index) || life.lastEarly >= peakAt || life.firstLate <= peakAt || life.firstLate == kNever)
        continue;
      Closure closure;
      close(index, closure);
      const Bytes gain = life.bytes - closure.longer;
      if (!closure.isTooLong && gain > 0)
        candidates.push_back({std::move(closure), gain});
    }
    llvm::stable_sort(candidates, [](const Candidate &a, const Candidate &b) {
      return static_cast<Wide>(a.closure.time) * b.gain < static_cast<Wide>(b.closure.time) * a.gain;
    });
    std::vector<llvm::SmallVector<int32_t, 8>> result;
    for (Candidate &candidate : candidates)
      if (result.size() < most)
        result.push_back(std::move(candidate.closure.members));
    return result;
  }

private:
  /// A value that is kept: its size, its last reader among those that would read what was made first, and its first
  /// reader among the others.
  struct Life {
    Bytes bytes = 0;
    int32_t lastEarly = kNone, firstLate = kNever;
  };
  /// What it takes to make a value again.
  struct Closure {
    llvm::SmallVector<int32_t, 8> members;
    Ns time = 0;
    int32_t nodes = 0;
    /// Bytes at the peak for what is kept longer.
    Bytes longer = 0;
    bool isTooLong = false;
  };

  bool isPresent(NodeId node) const { return position[node] != kNone; }

  void findStandIns() {
    for (auto [index, repetition] : llvm::enumerate(repetitions)) {
      std::vector<BufferId> first = allocatedBy(problem, repetition.first);
      std::vector<BufferId> again = allocatedBy(problem, repetition.again);
      for (auto [buffer, other] : llvm::zip_equal(first, again)) {
        ownerOf[other] = static_cast<int32_t>(index);
        lives[index].bytes += problem.buffers[buffer].bytes;
        if (!isPresent(repetition.again.front()))
          standIn[other] = buffer;
      }
    }
  }

  BufferId present(BufferId buffer) const {
    while (standIn[buffer] != kNone)
      buffer = standIn[buffer];
    return buffer;
  }

  void findLives() {
    for (BufferId buffer = 0; buffer < static_cast<BufferId>(problem.buffers.size()); ++buffer) {
      int32_t &last = lastUse[present(buffer)];
      for (NodeId user : problem.users[buffer])
        last = std::max(last, position[user]);
      if (problem.buffers[buffer].liveOut)
        last = kNever;
    }
    for (auto [index, repetition] : llvm::enumerate(repetitions)) {
      Life &life = lives[index];
      for (BufferId buffer : allocatedBy(problem, repetition.first))
        for (NodeId user : problem.users[buffer])
          life.lastEarly = std::max(life.lastEarly, position[user]);
      for (BufferId buffer : allocatedBy(problem, repetition.again))
        for (NodeId user : problem.users[buffer])
          if (isPresent(user))
            life.firstLate = std::min(life.firstLate, position[user]);
    }
  }

  /// Adds a value to a closure.
  void close(int32_t index, Closure &closure) const {
    if (closure.isTooLong || llvm::is_contained(closure.members, index))
      return;
    closure.members.push_back(index);
    closure.nodes += static_cast<int32_t>(repetitions[index].again.size());
    closure.isTooLong = closure.nodes > kLongestClosure;
    for (NodeId node : repetitions[index].again) {
      closure.time += problem.nodes[node].cost;
      for (BufferId buffer : problem.touches[node])
        if (problem.buffers[buffer].def != node && ownerOf[buffer] != index)
          closeInput(buffer, closure);
    }
  }

  /// What a second making reads is still there, or is made again, or is kept over the peak.
  void closeInput(BufferId buffer, Closure &closure) const {
    const int32_t owner = ownerOf[buffer];
    const bool isMadeBehind = owner != kNone && lives[owner].firstLate > peakAt;
    if ((isMadeBehind && !kept.test(owner)) || lastUse[present(buffer)] >= peakAt)
      return;
    // A second making in front of the peak would have to be kept over it.
    if (isMadeBehind)
      return close(owner, closure);
    closure.longer += problem.buffers[buffer].bytes;
  }

  const Problem &problem;
  llvm::ArrayRef<Repetition> repetitions;
  const llvm::BitVector &kept;
  /// Indexed by node: its position; kNone if it is left out.
  std::vector<int32_t> position;
  /// Indexed by buffer: the position of its last user, those of what it stands in for included; the buffer that stands
  /// in for it, or kNone; the repetition that allocates it, or kNone.
  std::vector<int32_t> lastUse;
  std::vector<BufferId> standIn;
  std::vector<int32_t> ownerOf;
  /// Indexed by repetition.
  std::vector<Life> lives;
  int32_t peakAt = kNone;
};

} // namespace

std::vector<llvm::SmallVector<int32_t, 8>> commsched::findReliefs(const Problem &problem,
                                                                  llvm::ArrayRef<Repetition> repetitions,
                                                                  const ReducedProblem &reduced,
                                                                  const llvm::BitVector &kept, size_t most) {
  return Relief(problem, repetitions, reduced, kept).run(most);
}
