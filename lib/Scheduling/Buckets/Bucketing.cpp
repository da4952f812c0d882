//===- Bucketing.cpp - The problem with buckets carried out -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The expansion works on a draft: nodes numbered with the surviving originals first by their own id and the buckets'
// nodes behind them. A depth-first walk then gives the final numbers, in which every edge points forward, or finds a
// cycle.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Buckets/Bucketing.h"
#include "CommSched/Scheduling/Buckets/BucketShape.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

/// Pinned nodes and members of units are left as they are.
static bool mayVanish(const Node &node) { return !node.pinned && node.unit == kNone; }

llvm::StringRef commsched::stringify(BucketForm form) { return form == BucketForm::Packed ? "packed" : "coalesced"; }

bool commsched::isMergeable(const Problem &problem, NodeId start) {
  const Node &node = problem.nodes[start];
  if (node.kind != NodeKind::Start || node.mergeKey == kNone || !mayVanish(node) || node.workspace != 0)
    return false;
  const MergeMember &member = problem.members[start];
  if (member.wait == kNone || member.output == kNone || member.output == member.input)
    return false;
  const Node &wait = problem.nodes[member.wait];
  if (wait.kind != NodeKind::Wait || wait.start != start || !mayVanish(wait) || wait.workspace != 0)
    return false;
  if (problem.preds[member.wait] != llvm::ArrayRef<NodeId>(start) || problem.buffers[member.output].def != start)
    return false;
  auto isOwn = [&](BufferId buffer) { return buffer == member.input || buffer == member.output; };
  return llvm::all_of(problem.touches[start], isOwn) && llvm::all_of(problem.touches[member.wait], isOwn);
}

NodeId commsched::fusedCast(const Problem &problem, NodeId start) {
  const MergeMember &member = problem.members[start];
  if (member.cast == kNone || member.input == kNone || !mayVanish(problem.nodes[member.cast]))
    return kNone;
  const Buffer &result = problem.buffers[member.input];
  bool onlyForStart =
      result.def == member.cast && !result.liveOut && problem.succs[member.cast] == llvm::ArrayRef<NodeId>(start) &&
      llvm::all_of(problem.users[member.input],
                   [&](NodeId user) { return user == member.cast || user == start || user == member.wait; });
  return onlyForStart ? member.cast : kNone;
}

namespace {

/// Builds the draft of an expanded problem. Draft node ids: originals keep theirs, the buckets' nodes follow.
class Expansion {
public:
  Expansion(const Problem &problem, llvm::ArrayRef<Bucket> buckets) : problem(problem), buckets(buckets) {}

  llvm::Expected<ExpandedProblem> run();

private:
  std::string checkMembers();
  NodeId addNode(const Node &node, int32_t bucket);
  BufferId addBuffer(Bytes bytes, NodeId def, bool liveOut);
  void dropBuffer(BufferId buffer) { result.problem.buffers[buffer] = Buffer(); }
  void expand(int32_t index);
  void expandCoalesced(int32_t index, const BucketShape &shape);
  NodeId addWork(Node node, const Demand &demand, int32_t bucket);
  NodeId addPack(int32_t index, const BucketShape &shape);
  void addUnpacks(int32_t index, const BucketShape &shape, BufferId gathered);
  void mergeOutputs(int32_t index, BufferId merged, NodeId view);
  void replaceMember(NodeId start, NodeId byStart, NodeId byWait);
  void connect();
  bool number();
  bool visit(NodeId root, std::vector<uint8_t> &state);
  void renumber();

  const Problem &problem;
  llvm::ArrayRef<Bucket> buckets;
  ExpandedProblem result;
  /// Of each draft node: whether it is part of the result.
  std::vector<bool> alive;
  /// Of each draft node: what must come before it, and the buffers it touches.
  std::vector<std::vector<NodeId>> preds;
  std::vector<std::vector<BufferId>> touches;
  /// Of each original node: the draft node that has its dependences (a member's pack or start), and the one that has
  /// its users (its start or unpack).
  std::vector<NodeId> before, after;
  /// Of each original buffer: the one that stands for it.
  std::vector<BufferId> bufferImage;
  /// Draft nodes in their final order.
  std::vector<NodeId> finalOrder;
};

std::string Expansion::checkMembers() {
  std::vector<bool> taken(problem.size(), false);
  for (auto [index, bucket] : llvm::enumerate(buckets)) {
    std::string where = "bucket " + std::to_string(index) + ": ";
    if (bucket.members.size() < 2)
      return where + "fewer than two members";
    if (bucket.form == BucketForm::Packed && !problem.copyCost)
      return where + "packed, and no kernel packs";
    for (NodeId member : bucket.members) {
      if (member < 0 || member >= problem.size() || !isMergeable(problem, member))
        return where + "node " + std::to_string(member) + " cannot be merged";
      if (problem.nodes[member].mergeKey != problem.nodes[bucket.members.front()].mergeKey)
        return where + "members of different keys";
      if (taken[member])
        return where + "node " + std::to_string(member) + " is merged twice";
      taken[member] = true;
    }
  }
  return {};
}

NodeId Expansion::addNode(const Node &node, int32_t bucket) {
  result.problem.nodes.push_back(node);
  result.bucketOf.push_back(bucket);
  result.origin.push_back(kNone);
  alive.push_back(true);
  preds.emplace_back();
  touches.emplace_back();
  return static_cast<NodeId>(alive.size()) - 1;
}

BufferId Expansion::addBuffer(Bytes bytes, NodeId def, bool liveOut) {
  result.problem.buffers.push_back({bytes, def, liveOut});
  return static_cast<BufferId>(result.problem.buffers.size()) - 1;
}

/// Takes a member's start and wait out of the draft.
void Expansion::replaceMember(NodeId start, NodeId byStart, NodeId byWait) {
  NodeId wait = problem.members[start].wait;
  alive[start] = alive[wait] = false;
  after[start] = byStart;
  after[wait] = byWait;
}

/// Adds a kernel or a collective of a bucket.
NodeId Expansion::addWork(Node node, const Demand &demand, int32_t bucket) {
  if (result.problem.hasContention())
    result.problem.setDemand(node, demand);
  return addNode(node, bucket);
}

/// Adds the kernel that fills a bucket's buffer; the dependences of the members and their fused casts become its own.
NodeId Expansion::addPack(int32_t index, const BucketShape &shape) {
  Node node;
  node.cost = shape.packCost;
  NodeId pack = addWork(node, problem.copyDemand, index);
  touches[pack].assign(shape.touches.begin(), shape.touches.end());
  for (NodeId member : buckets[index].members)
    before[member] = pack;
  for (NodeId cast : shape.casts) {
    alive[cast] = false;
    before[cast] = after[cast] = pack;
  }
  for (BufferId buffer : shape.castResults)
    dropBuffer(buffer);
  return pack;
}

/// Adds the kernels that copy a packed all-gather's result to the members' outputs.
void Expansion::addUnpacks(int32_t index, const BucketShape &shape, BufferId gathered) {
  const Bucket &bucket = buckets[index];
  BucketNodes &names = result.buckets[index];
  names.unpacks.assign(bucket.members.size(), kNone);
  for (const BucketShape::Unpack &copies : shape.unpacks) {
    Node node;
    node.cost = copies.cost;
    NodeId unpack = addWork(node, problem.copyDemand, index);
    preds[unpack].push_back(names.wait);
    touches[unpack].push_back(gathered);
    for (int32_t place : copies.members) {
      NodeId member = bucket.members[place];
      BufferId output = problem.members[member].output;
      result.problem.buffers[output].def = unpack;
      touches[unpack].push_back(output);
      names.unpacks[place] = unpack;
      replaceMember(member, names.start, unpack);
    }
  }
}

/// Makes the members' outputs views of `merged`.
void Expansion::mergeOutputs(int32_t index, BufferId merged, NodeId view) {
  for (NodeId member : buckets[index].members) {
    BufferId output = problem.members[member].output;
    bufferImage[output] = merged;
    result.problem.buffers[merged].liveOut |= problem.buffers[output].liveOut;
    dropBuffer(output);
    replaceMember(member, result.buckets[index].start, view);
  }
}

void Expansion::expandCoalesced(int32_t index, const BucketShape &shape) {
  const BucketNodes &names = result.buckets[index];
  for (NodeId node : {names.start, names.wait})
    touches[node].assign(shape.touches.begin(), shape.touches.end());
  for (NodeId member : buckets[index].members) {
    result.problem.buffers[problem.members[member].output].def = names.start;
    before[member] = names.start;
    replaceMember(member, names.start, names.wait);
  }
}

void Expansion::expand(int32_t index) {
  BucketShape shape = describeBucket(problem, buckets[index]);
  BucketNodes &names = result.buckets[index];
  if (shape.packs)
    names.pack = addPack(index, shape);
  names.start = addWork(shape.start, shape.demand, index);
  Node wait = problem.nodes[problem.members[buckets[index].members.front()].wait];
  wait.start = names.start;
  names.wait = addNode(wait, index);
  preds[names.wait].push_back(names.start);
  if (!shape.packs)
    return expandCoalesced(index, shape);

  preds[names.start].push_back(names.pack);
  BufferId packed = addBuffer(shape.packedBytes, names.pack, /*liveOut=*/false);
  touches[names.pack].push_back(packed);
  touches[names.start].push_back(packed);
  touches[names.wait].push_back(packed);
  if (shape.unpacksOutputs)
    return addUnpacks(index, shape, packed);

  BufferId merged = packed;
  if (shape.definesMerged) {
    merged = addBuffer(shape.mergedBytes, names.start, /*liveOut=*/false);
    touches[names.start].push_back(merged);
    touches[names.wait].push_back(merged);
  }
  names.view = addNode(Node(), index);
  preds[names.view].push_back(names.wait);
  touches[names.view].push_back(merged);
  mergeOutputs(index, merged, names.view);
}

/// Carries the original edges and touches over to the draft, which has those of the buckets already. What a bucket
/// reads may be the output of another bucket: such a buffer is part of the other bucket's buffer.
void Expansion::connect() {
  auto imageOf = [&](BufferId buffer) {
    return buffer < static_cast<BufferId>(bufferImage.size()) ? bufferImage[buffer] : buffer;
  };
  for (std::vector<BufferId> &list : touches)
    llvm::transform(list, list.begin(), imageOf);
  for (NodeId node = 0; node < problem.size(); ++node) {
    NodeId target = before[node];
    for (NodeId pred : problem.preds[node]) {
      NodeId source = after[pred];
      // Edges inside of a bucket: a member's cast to its start, its start to its wait.
      bool isOwnWait = target == node && !alive[node];
      // From start to start: an order of issues, and no business of a pack.
      bool ordersIssues = problem.nodes[node].kind == NodeKind::Start && problem.nodes[pred].kind == NodeKind::Start;
      NodeId to = ordersIssues ? after[node] : target;
      if (!isOwnWait && source != to)
        preds[to].push_back(source);
    }
    if (alive[node])
      for (BufferId buffer : problem.touches[node])
        touches[node].push_back(bufferImage[buffer]);
  }
}

/// Appends `root` to the final order, behind what it needs. Returns false on a cycle.
bool Expansion::visit(NodeId root, std::vector<uint8_t> &state) {
  enum : uint8_t { New, Open, Done };
  llvm::SmallVector<std::pair<NodeId, size_t>, 16> stack;
  auto open = [&](NodeId node) {
    state[node] = Open;
    stack.push_back({node, 0});
  };
  if (state[root] == New)
    open(root);
  while (!stack.empty()) {
    auto &[node, next] = stack.back();
    if (next == preds[node].size()) {
      state[node] = Done;
      finalOrder.push_back(node);
      stack.pop_back();
      continue;
    }
    NodeId pred = preds[node][next++];
    if (state[pred] == Open)
      return false;
    if (state[pred] == New)
      open(pred);
  }
  return true;
}

/// Numbers the nodes by a walk of the given order, with a bucket's nodes where its members stood.
bool Expansion::number() {
  std::vector<uint8_t> state(alive.size(), 0);
  for (NodeId node = 0; node < problem.size(); ++node) {
    NodeId root = alive[node] ? node : after[node];
    if (!visit(root, state))
      return false;
  }
  return true;
}

/// Moves the draft to its final numbers.
void Expansion::renumber() {
  std::vector<NodeId> rank(alive.size(), kNone);
  for (auto [position, node] : llvm::enumerate(finalOrder))
    rank[node] = static_cast<NodeId>(position);

  ExpandedProblem draft = std::move(result);
  result = ExpandedProblem();
  Problem &target = result.problem;
  target.buffers = std::move(draft.problem.buffers);
  for (Buffer &buffer : target.buffers)
    if (buffer.def != kNone)
      buffer.def = rank[buffer.def];
  auto sortedUnique = [](auto &list) {
    llvm::sort(list);
    list.erase(std::unique(list.begin(), list.end()), list.end());
  };
  for (NodeId node : finalOrder) {
    Node copy = draft.problem.nodes[node];
    copy.mergeKey = copy.variants = kNone;
    if (copy.start != kNone)
      copy.start = rank[copy.start];
    target.nodes.push_back(copy);
    for (NodeId &pred : preds[node])
      pred = rank[pred];
    sortedUnique(preds[node]);
    sortedUnique(touches[node]);
    target.preds.append(preds[node]);
    target.touches.append(touches[node]);
    result.origin.push_back(node < problem.size() ? node : kNone);
    result.bucketOf.push_back(draft.bucketOf[node]);
  }
  for (NodeId node = 0; node < problem.size(); ++node)
    result.image.push_back(rank[after[node]]);
  result.buckets = std::move(draft.buckets);
  for (BucketNodes &names : result.buckets) {
    for (NodeId *name : {&names.pack, &names.start, &names.wait, &names.view})
      *name = *name == kNone ? kNone : rank[*name];
    for (NodeId &unpack : names.unpacks)
      unpack = rank[unpack];
  }
  target.laneNames = problem.laneNames;
  target.demands = std::move(draft.problem.demands);
  target.copyDemand = problem.copyDemand;
  target.busyUntil = problem.busyUntil;
  target.joinsAtEnd = problem.joinsAtEnd;
  target.regions = problem.regions;
  for (RegionWork &region : target.regions)
    for (NodeId &start : region.starts)
      start = rank[after[start]];
  target.argumentBytes = problem.argumentBytes;
  target.copyCost = problem.copyCost;
  target.finalize();
}

llvm::Expected<ExpandedProblem> Expansion::run() {
  if (std::string why = checkMembers(); !why.empty())
    return llvm::createStringError(why);
  result.problem.nodes = problem.nodes;
  result.problem.buffers = problem.buffers;
  result.problem.demands = problem.demands;
  result.bucketOf.assign(problem.size(), kNone);
  result.buckets.resize(buckets.size());
  alive.assign(problem.size(), true);
  preds.resize(problem.size());
  touches.resize(problem.size());
  before = after = identityOrder(problem);
  bufferImage.resize(problem.buffers.size());
  for (auto [index, image] : llvm::enumerate(bufferImage))
    image = static_cast<BufferId>(index);

  for (int32_t index = 0; index < static_cast<int32_t>(buckets.size()); ++index)
    expand(index);
  connect();
  if (!number())
    return llvm::createStringError("a bucket depends on itself");
  renumber();
  return std::move(result);
}

} // namespace

/// What an Expansion without buckets gives, in a third of the time and without its lists of lists: the given numbers.
static ExpandedProblem expandNothing(const Problem &problem) {
  ExpandedProblem result;
  Problem &target = result.problem;
  target.nodes = problem.nodes;
  for (Node &node : target.nodes)
    node.mergeKey = node.variants = kNone;
  target.buffers = problem.buffers;
  target.preds = problem.preds;
  target.succs = problem.succs;
  target.users = problem.users;
  target.touches.reserve(problem.size(), problem.touches.numValues());
  llvm::SmallVector<BufferId, 8> touches;
  for (NodeId node = 0; node < problem.size(); ++node) {
    touches.assign(problem.touches[node].begin(), problem.touches[node].end());
    llvm::sort(touches);
    target.touches.append(touches);
  }
  target.laneNames = problem.laneNames;
  target.demands = problem.demands;
  target.copyDemand = problem.copyDemand;
  target.busyUntil = problem.busyUntil;
  target.joinsAtEnd = problem.joinsAtEnd;
  target.regions = problem.regions;
  target.argumentBytes = problem.argumentBytes;
  target.copyCost = problem.copyCost;
  result.origin = result.image = identityOrder(problem);
  result.bucketOf.assign(problem.size(), kNone);
  return result;
}

llvm::Expected<ExpandedProblem> commsched::expandBuckets(const Problem &problem, llvm::ArrayRef<Bucket> buckets) {
  if (buckets.empty())
    return expandNothing(problem);
  return Expansion(problem, buckets).run();
}
