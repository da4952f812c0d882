//===- Rematerialization.cpp - Problems in which values are made twice ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// First each node and each buffer that is left out gets the one that stands in for it. Then all lists are written anew.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Lenses/Rematerialization.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

using namespace commsched;

std::vector<BufferId> commsched::allocatedBy(const Problem &problem, llvm::ArrayRef<NodeId> nodes) {
  std::vector<BufferId> buffers;
  for (NodeId node : nodes)
    for (BufferId buffer : problem.touches[node])
      if (problem.buffers[buffer].def == node)
        buffers.push_back(buffer);
  llvm::sort(buffers);
  return buffers;
}

static std::string checkRepetition(const Problem &problem, const Repetition &repetition, llvm::BitVector &seen) {
  if (repetition.again.empty() || repetition.first.size() != repetition.again.size())
    return "its two lists have different lengths";
  if (!llvm::is_sorted(repetition.first) || !llvm::is_sorted(repetition.again))
    return "its nodes are not ascending";
  if (repetition.first.front() < 0 || repetition.again.back() >= problem.size() ||
      repetition.first.back() >= repetition.again.front())
    return "a node is out of range or comes too early";
  for (auto [first, again] : llvm::zip_equal(repetition.first, repetition.again)) {
    if (problem.nodes[first].kind != problem.nodes[again].kind)
      return "node " + std::to_string(again) + " is of another kind";
    if (problem.nodes[first].lane != problem.nodes[again].lane)
      return "node " + std::to_string(again) + " is on another lane";
    if (seen.test(again))
      return "node " + std::to_string(again) + " is in two repetitions";
    seen.set(again);
  }
  auto isEqual = [&](BufferId a, BufferId b) { return problem.buffers[a].bytes == problem.buffers[b].bytes; };
  std::vector<BufferId> buffers = allocatedBy(problem, repetition.again);
  if (buffers.empty() || !llvm::equal(allocatedBy(problem, repetition.first), buffers, isEqual))
    return "it allocates other buffers";
  return {};
}

std::string commsched::validate(const Problem &problem, llvm::ArrayRef<Repetition> repetitions) {
  llvm::BitVector seen(problem.size());
  for (auto [index, repetition] : llvm::enumerate(repetitions))
    if (std::string wrong = checkRepetition(problem, repetition, seen); !wrong.empty())
      return "repetition " + std::to_string(index) + ": " + wrong;
  return {};
}

namespace {

/// Counts who reads what each repetition makes.
class ReaderCounts {
public:
  ReaderCounts(const Problem &problem, llvm::ArrayRef<Repetition> repetitions)
      : problem(problem), repetitions(repetitions), ownerOf(problem.buffers.size(), kNone),
        sourceOf(repetitions.size(), kNone), counts(repetitions.size(), 0) {
    for (auto [index, repetition] : llvm::enumerate(repetitions))
      for (BufferId buffer : allocatedBy(problem, repetition.again))
        ownerOf[buffer] = static_cast<int32_t>(index);
    for (auto [index, repetition] : llvm::enumerate(repetitions)) {
      sourceOf[index] = ownerOf[allocatedBy(problem, repetition.first).front()];
      for (BufferId buffer : allocatedBy(problem, repetition.again)) {
        counts[index] += problem.buffers[buffer].liveOut;
        for (NodeId user : problem.users[buffer])
          counts[index] += !llvm::binary_search(repetition.again, user);
      }
    }
  }

  /// Leaves a repetition out. Its readers turn to what was made first.
  void keep(int32_t index) {
    if (sourceOf[index] != kNone)
      ++counts[sourceOf[index]];
    releaseInputs(index);
  }

  /// The repetitions that nobody reads and that are not in `kept`, of which each was kept before.
  std::vector<int32_t> takeUnread(const llvm::BitVector &kept) {
    std::vector<int32_t> unread, queue;
    for (int32_t index = 0; index < static_cast<int32_t>(counts.size()); ++index)
      if (counts[index] == 0)
        queue.push_back(index);
    isDraining = true;
    while (!queue.empty()) {
      int32_t index = queue.back();
      queue.pop_back();
      released.clear();
      if (!kept.test(index)) {
        unread.push_back(index);
        releaseInputs(index);
      } else if (sourceOf[index] != kNone) {
        release(sourceOf[index]);
      }
      llvm::append_range(queue, released);
    }
    return unread;
  }

private:
  void release(int32_t index) {
    if (--counts[index] == 0 && isDraining)
      released.push_back(index);
  }

  void releaseInputs(int32_t index) {
    for (NodeId node : repetitions[index].again)
      for (BufferId buffer : problem.touches[node])
        if (int32_t owner = ownerOf[buffer]; owner != kNone && owner != index)
          release(owner);
  }

  const Problem &problem;
  llvm::ArrayRef<Repetition> repetitions;
  /// Indexed by buffer: the repetition that allocates it.
  std::vector<int32_t> ownerOf;
  /// Indexed by repetition: the repetition that makes what it repeats, and the number of its readers.
  std::vector<int32_t> sourceOf, counts;
  bool isDraining = false;
  std::vector<int32_t> released;
};

/// Makes one ReducedProblem.
class Reduction {
public:
  Reduction(const Problem &whole, llvm::ArrayRef<Repetition> repetitions)
      : whole(whole), repetitions(repetitions), nodeFor(whole.size(), kNone), bufferFor(whole.buffers.size(), kNone) {}

  ReducedProblem run(const llvm::BitVector &kept) {
    ReaderCounts readers(whole, repetitions);
    for (int index : kept.set_bits()) {
      leaveOut(repetitions[index]);
      readers.keep(index);
    }
    for (int32_t index : readers.takeUnread(kept))
      leaveOut(repetitions[index]);
    resolve();
    result.problem = copyWithoutLists();
    writeNodes();
    writeBuffers();
    writeMembers();
    result.problem.finalize();
    return std::move(result);
  }

private:
  bool isLeftOut(NodeId node) const { return nodeFor[node] != kNone; }

  /// Lets what was made first stand in for what is made again.
  void leaveOut(const Repetition &repetition) {
    for (auto [first, again] : llvm::zip_equal(repetition.first, repetition.again))
      nodeFor[again] = first;
    std::vector<BufferId> second = allocatedBy(whole, repetition.again);
    for (auto [buffer, other] : llvm::zip_equal(allocatedBy(whole, repetition.first), second))
      bufferFor[other] = buffer;
  }

  /// What stands in may be left out itself. It has a smaller number and is resolved by then.
  void resolve() {
    for (NodeId node = 0; node < whole.size(); ++node)
      if (isLeftOut(node) && isLeftOut(nodeFor[node]))
        nodeFor[node] = nodeFor[nodeFor[node]];
    // A buffer that stands in was allocated earlier, and a loader or a test may have numbered it later.
    for (BufferId &buffer : bufferFor)
      while (buffer != kNone && bufferFor[buffer] != kNone)
        buffer = bufferFor[buffer];
    result.image.assign(whole.size(), kNone);
    for (NodeId node = 0; node < whole.size(); ++node)
      if (!isLeftOut(node)) {
        result.image[node] = static_cast<NodeId>(result.origin.size());
        result.origin.push_back(node);
      }
  }

  Problem copyWithoutLists() const {
    Problem problem;
    problem.laneNames = whole.laneNames;
    problem.streams = whole.streams;
    problem.regions = whole.regions;
    problem.busyUntil = whole.busyUntil;
    problem.joinsAtEnd = whole.joinsAtEnd;
    problem.mergeKeys = whole.mergeKeys;
    problem.copyCost = whole.copyCost;
    problem.demands = whole.demands;
    problem.copyDemand = whole.copyDemand;
    problem.variantNames = whole.variantNames;
    problem.startVariants = whole.startVariants;
    problem.argumentBytes = whole.argumentBytes;
    for (RegionWork &region : problem.regions) {
      for (NodeId &start : region.starts)
        start = imageOf(start);
      llvm::sort(region.starts);
    }
    return problem;
  }

  /// The node that does the work of `node`.
  NodeId imageOf(NodeId node) const { return result.image[isLeftOut(node) ? nodeFor[node] : node]; }

  bool communicates(NodeId node) const { return whole.nodes[node].lane != kComputeLane; }

  /// Adds the images of the predecessors of `node`. An edge between two collectives may be there for their order alone.
  /// So the collectives before one that is left out come before what follows it.
  void addPreds(NodeId node, llvm::SmallVectorImpl<NodeId> &preds) const {
    llvm::SmallVector<NodeId> orderedBy;
    for (NodeId pred : whole.preds[node]) {
      preds.push_back(imageOf(pred));
      if (communicates(node) && communicates(pred) && isLeftOut(pred))
        orderedBy.push_back(pred);
    }
    llvm::SmallDenseSet<NodeId> seen(orderedBy.begin(), orderedBy.end());
    while (!orderedBy.empty())
      for (NodeId pred : whole.preds[orderedBy.pop_back_val()])
        if (communicates(pred) && seen.insert(pred).second) {
          preds.push_back(imageOf(pred));
          if (isLeftOut(pred))
            orderedBy.push_back(pred);
        }
  }

  void writeNodes() {
    Problem &problem = result.problem;
    llvm::SmallVector<NodeId> preds;
    for (NodeId origin : result.origin) {
      Node node = whole.nodes[origin];
      if (node.start != kNone)
        node.start = imageOf(node.start);
      if (node.event != kNone)
        node.event = imageOf(node.event);
      problem.nodes.push_back(node);
      preds.clear();
      addPreds(origin, preds);
      llvm::sort(preds);
      preds.erase(llvm::unique(preds), preds.end());
      problem.preds.append(preds);
    }
  }

  void writeBuffers() {
    Problem &problem = result.problem;
    // Indexed by buffer of the whole problem: its number here, or that of what stands in for it.
    std::vector<BufferId> numbers(whole.buffers.size(), kNone);
    for (auto [index, buffer] : llvm::enumerate(whole.buffers))
      if (bufferFor[index] == kNone) {
        numbers[index] = static_cast<BufferId>(problem.buffers.size());
        problem.buffers.push_back(buffer);
        if (buffer.def != kNone)
          problem.buffers.back().def = result.image[buffer.def];
      }
    for (auto [index, buffer] : llvm::enumerate(whole.buffers))
      if (bufferFor[index] != kNone) {
        numbers[index] = numbers[bufferFor[index]];
        problem.buffers[numbers[index]].liveOut |= buffer.liveOut;
      }
    bufferFor = std::move(numbers);
    llvm::SmallVector<BufferId> touches;
    for (NodeId origin : result.origin) {
      touches.clear();
      for (BufferId buffer : whole.touches[origin])
        touches.push_back(bufferFor[buffer]);
      llvm::sort(touches);
      touches.erase(llvm::unique(touches), touches.end());
      problem.touches.append(touches);
    }
  }

  /// A cast that is kept for a second reader is no longer part of a pack.
  void writeMembers() {
    if (whole.members.empty())
      return;
    llvm::BitVector isShared(whole.size());
    for (NodeId node = 0; node < whole.size(); ++node)
      if (isLeftOut(node) && !isUnusedCast(node)) {
        isShared.set(node);
        isShared.set(nodeFor[node]);
      }
    for (NodeId origin : result.origin) {
      MergeMember member = whole.members[origin];
      if (member.wait != kNone)
        member.wait = imageOf(member.wait);
      if (member.input != kNone)
        member.input = bufferFor[member.input];
      if (member.output != kNone)
        member.output = bufferFor[member.output];
      if (member.cast != kNone && isShared.test(member.cast)) {
        member.cast = kNone;
        member.castInputBytes = 0;
      }
      if (member.cast != kNone)
        member.cast = imageOf(member.cast);
      result.problem.members.push_back(member);
    }
  }

  /// Whether all readers of what `node` made are left out, too. Then what stands in for it has no further reader.
  bool isUnusedCast(NodeId node) const {
    return llvm::all_of(whole.touches[node], [&](BufferId buffer) {
      return whole.buffers[buffer].def != node ||
             llvm::all_of(whole.users[buffer], [&](NodeId user) { return isLeftOut(user); });
    });
  }

  const Problem &whole;
  llvm::ArrayRef<Repetition> repetitions;
  /// Indexed by node, and by buffer: what stands in for it; kNone if it stays. In the end `bufferFor` is indexed by
  /// buffer: its number in the reduced problem.
  std::vector<NodeId> nodeFor;
  std::vector<BufferId> bufferFor;
  ReducedProblem result;
};

} // namespace

ReducedProblem commsched::keepValues(const Problem &problem, llvm::ArrayRef<Repetition> repetitions,
                                     const llvm::BitVector &kept) {
  return Reduction(problem, repetitions).run(kept);
}

void commsched::makeLate(ReducedProblem &reduced, llvm::ArrayRef<Repetition> repetitions) {
  const Problem &problem = reduced.problem;
  llvm::BitVector isAgain(problem.size());
  for (const Repetition &repetition : repetitions)
    for (NodeId node : repetition.again)
      if (reduced.image[node] != kNone)
        isAgain.set(reduced.image[node]);
  // Indexed by node: the node in front of which it comes, or itself.
  std::vector<NodeId> place = identityOrder(problem);
  for (NodeId node = problem.size() - 1; node >= 0; --node)
    if (isAgain.test(node) && !problem.succs[node].empty())
      place[node] = place[*std::min_element(problem.succs[node].begin(), problem.succs[node].end(),
                                            [&](NodeId a, NodeId b) { return place[a] < place[b]; })];
  Order order = identityOrder(problem);
  llvm::sort(order, [&](NodeId a, NodeId b) { return std::pair(place[a], a) < std::pair(place[b], b); });
  reduced.problem = inOrder(problem, order);
  for (NodeId &origin : order)
    origin = reduced.origin[origin];
  reduced.origin = std::move(order);
  for (auto [node, origin] : llvm::enumerate(reduced.origin))
    reduced.image[origin] = static_cast<NodeId>(node);
}
