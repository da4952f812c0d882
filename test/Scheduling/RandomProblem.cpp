//===- RandomProblem.cpp - Problems for tests and benchmarks ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "RandomProblem.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <cstdlib>
#include <set>

using namespace commsched;
using namespace commsched::test;

int32_t commsched::test::testShare() {
  static const int32_t share = [] {
    const char *text = std::getenv("COMMSCHED_TEST_SHARE");
    return std::max(1, text ? std::atoi(text) : 1);
  }();
  return share;
}

namespace {

/// Something that later nodes can read: who made it, and its storage (kNone: an argument that lives throughout).
struct Value {
  NodeId maker = kNone;
  BufferId buffer = kNone;
  Bytes bytes = 0;
};

/// Appends nodes to a Problem with the edges that their reads and writes ask for: a read follows the last write, a
/// write follows the last write and all reads since.
class Builder {
public:
  explicit Builder(LaneId commLanes) {
    problem.laneNames.push_back("compute");
    for (LaneId lane = 1; lane <= commLanes; ++lane)
      problem.laneNames.push_back("comm" + std::to_string(lane));
  }

  BufferId addBuffer(Bytes bytes, NodeId def = kNone) {
    Buffer buffer;
    buffer.bytes = bytes;
    buffer.def = def;
    problem.buffers.push_back(buffer);
    access.emplace_back();
    return static_cast<BufferId>(problem.buffers.size()) - 1;
  }

  NodeId begin(Node node) {
    problem.nodes.push_back(node);
    preds.clear(), touches.clear();
    return problem.size() - 1;
  }
  void after(NodeId pred) {
    if (pred != kNone)
      preds.insert(pred);
  }
  void touch(BufferId buffer) {
    if (buffer != kNone)
      touches.insert(buffer);
  }
  void read(const Value &value) {
    after(value.maker);
    touch(value.buffer);
    if (value.buffer == kNone)
      return;
    after(access[value.buffer].writer);
    access[value.buffer].readers.push_back(problem.size() - 1);
  }
  /// A wait holds what its start reads and writes: it depends on nothing else, and a later write has to follow it.
  void hold(BufferId buffer) {
    touch(buffer);
    access[buffer].readers.push_back(problem.size() - 1);
  }
  void write(BufferId buffer) {
    touch(buffer);
    after(access[buffer].writer);
    for (NodeId reader : access[buffer].readers)
      if (reader != problem.size() - 1)
        after(reader);
    access[buffer] = {problem.size() - 1, {}};
  }
  void end() {
    problem.preds.append(std::vector<int32_t>(preds.begin(), preds.end()));
    problem.touches.append(std::vector<int32_t>(touches.begin(), touches.end()));
  }
  std::vector<int32_t> touchesOf(NodeId node) const { return problem.touches[node].vec(); }

  Problem finish() {
    if (!problem.mergeKeys.empty())
      problem.members.resize(problem.nodes.size());
    problem.finalize();
    return std::move(problem);
  }

  Problem problem;

private:
  struct Access {
    NodeId writer = kNone;
    std::vector<NodeId> readers;
  };
  std::vector<Access> access;
  std::set<int32_t> preds, touches;
};

/// A start whose wait is still to come, or that may be waited for again.
struct Pending {
  NodeId start;
  std::vector<Value> outputs;
  bool mergeable;
  /// Of a mergeable one.
  MergeMember member;
  /// Written in place: the buffers that nobody may touch until the wait.
  std::vector<BufferId> busy;
};

constexpr int32_t kGrain = 64;
constexpr CollectiveKind kMergeableKinds[] = {CollectiveKind::AllGather, CollectiveKind::ReduceScatter,
                                              CollectiveKind::AllReduce};

class Generator {
public:
  Generator(uint64_t seed, const RandomOptions &options)
      : random(seed), regionRandom(~seed), options(options), builder(options.commLanes) {
    Problem &problem = builder.problem;
    if (regionRandom.percent(10))
      problem.busyUntil = {0, regionRandom.below(2 * options.maxCost)};
    if (options.groupsOfLane > 1 && regionRandom.percent(50))
      groupsOfLane = options.groupsOfLane;
    Ns launch = random.below(3), grains = random.between(2, 8);
    problem.copyCost = [=](Bytes read, Bytes written) { return launch + (read + written) / (grains * kGrain); };
    for (LaneId lane = 1; lane <= options.commLanes; ++lane)
      for (CollectiveKind kind : llvm::ArrayRef(kMergeableKinds).take_front(options.mergeKinds)) {
        MergeKey key;
        key.kind = kind;
        key.lane = lane;
        key.ranks = random.percent(50) ? 2 : 4;
        key.cost = costCurve();
        if (key.ranks == 4)
          key.groupCost = [cost = key.cost](Bytes bytes, int32_t) { return cost(bytes) + cost(0); };
        if (random.percent(30))
          key.cap = kGrain * random.between(4, 40);
        problem.mergeKeys.push_back(key);
        groupOfKey.push_back(drawGroup(lane));
      }
    for (int32_t index = 0; index < 2; ++index)
      values.push_back({kNone, kNone, size()});
    for (int32_t index = 0; index < options.donatedArguments; ++index) {
      Value value{kNone, builder.addBuffer(size()), 0};
      value.bytes = problem.buffers[value.buffer].bytes;
      values.push_back(value);
    }
  }

  Problem run() {
    while (builder.problem.size() < options.nodes)
      emitOne();
    // What is still in flight is waited for, or leaves the block in flight.
    while (!pending.empty()) {
      if (!pending.back().mergeable && pending.back().busy.empty() && random.percent(10)) {
        for (const Value &output : pending.back().outputs)
          builder.problem.buffers[output.buffer].liveOut = true;
        pending.pop_back();
      } else {
        emitWait(pending.size() - 1);
      }
    }
    for (Buffer &buffer : builder.problem.buffers)
      buffer.liveOut |= random.percent(options.chanceOfLiveOut);
    return builder.finish();
  }

private:
  /// Monotone: affine, in steps, or with a bend to either side.
  std::function<Ns(Bytes)> costCurve() {
    Ns alpha = random.between(0, options.maxCost / 2), perGrain = random.between(0, 3);
    Bytes bend = kGrain * random.between(1, 2 * options.maxBytes / kGrain);
    switch (random.below(3)) {
    case 0:
      return [=](Bytes bytes) { return alpha + perGrain * bytes / (2 * kGrain); };
    case 1:
      return [=](Bytes bytes) { return alpha + (1 + perGrain) * (bytes / bend) * 4; };
    default:
      return [=](Bytes bytes) {
        return alpha + perGrain * std::min(bytes, bend) / kGrain + std::max<Bytes>(bytes - bend, 0) / kGrain;
      };
    }
  }

  Bytes size() { return kGrain * random.between(0, options.maxBytes / kGrain); }
  Ns cost() { return random.percent(10) ? 0 : random.between(1, options.maxCost); }

  Node node(NodeKind kind, Ns cost) {
    Node result;
    result.kind = kind;
    result.cost = cost;
    if (kind != NodeKind::Wait && random.percent(options.chanceOfWorkspace))
      result.workspace = size();
    return result;
  }

  /// The edges that the collective order and the pins ask for.
  void keepOrder(NodeId id) {
    Node &node = builder.problem.nodes[id];
    if (random.percent(options.chanceOfPinned)) {
      node.pinned = true;
      builder.after(lastPinned);
      lastPinned = id;
    }
    if (node.lane == kComputeLane)
      return;
    if (node.group == kNone)
      node.group = drawGroup(node.lane);
    if (isPointToPoint(node.collective)) {
      builder.after(lastMessage);
      lastMessage = id;
    }
    follow(id, node.group != kNone ? node.group : node.lane);
  }

  /// The edge that the collective order asks for between collectives of one group. Without groups, lanes stand for
  /// them.
  void follow(NodeId id, int32_t group) {
    if (options.collectiveOrder == CollectiveOrder::Free)
      return;
    lastCollective.resize((options.commLanes + 1) * std::max(groupsOfLane, 1), kNone);
    NodeId &last = lastCollective[options.collectiveOrder == CollectiveOrder::Program ? 0 : group];
    if (last != id)
      builder.after(last);
    last = id;
  }

  /// A group of a lane; kNone in a program without groups.
  int32_t drawGroup(LaneId lane) {
    return groupsOfLane == 0 ? kNone : static_cast<int32_t>(lane * groupsOfLane + regionRandom.below(groupsOfLane));
  }

  /// A readable value: none whose buffer a collective is writing.
  Value pick() {
    while (true) {
      // Recent values more often than old ones.
      size_t count = values.size(), back = random.below(random.percent(50) ? std::min<size_t>(count, 4) : count);
      const Value &value = values[count - 1 - back];
      if (!isBusy(value.buffer))
        return value;
    }
  }
  bool isBusy(BufferId buffer) const {
    return buffer != kNone &&
           llvm::any_of(pending, [&](const Pending &p) { return llvm::is_contained(p.busy, buffer); });
  }
  /// Whether nothing in flight reads or writes the buffer: only then may it be written.
  bool isIdle(BufferId buffer) const {
    return buffer != kNone && llvm::none_of(pending, [&](const Pending &p) {
             return llvm::is_contained(builder.problem.touches[p.start], buffer);
           });
  }

  void emitOne() {
    int64_t roll = random.below(100);
    if (!pending.empty() && random.percent(25))
      return emitWait(random.below(pending.size()));
    if ((roll -= options.chanceOfStart) < 0)
      return emitStart();
    if ((roll -= options.chanceOfHybrid) < 0)
      return emitCompute(node(NodeKind::Hybrid, cost()));
    if ((roll -= options.chanceOfView) < 0)
      return emitView();
    if ((roll -= options.chanceOfInPlace) < 0)
      return emitInPlace();
    if ((roll -= options.chanceOfArgumentFuture) < 0)
      return emitArgumentWait();
    if (!waited.empty() && random.percent(options.chanceOfSecondWait))
      return emitSecondWait();
    emitCompute(node(NodeKind::Compute, cost()));
  }

  void emitCompute(Node made) {
    if (made.kind == NodeKind::Hybrid) {
      made.lane = static_cast<LaneId>(random.between(1, options.commLanes));
      made.collective = CollectiveKind::AllReduce;
    }
    NodeId id = builder.begin(made);
    keepOrder(id);
    if (regionRandom.percent(options.chanceOfRegion))
      addRegion(id);
    for (int64_t reads = random.between(1, 3); reads > 0; --reads)
      builder.read(pick());
    for (int64_t results = random.percent(15) ? 2 : 1; results > 0; --results)
      values.push_back(define(id, size()));
    builder.end();
  }

  /// Makes a node wait for some of what is in flight, and occupy more lanes if it is a hybrid.
  void addRegion(NodeId id) {
    Problem &problem = builder.problem;
    Node &node = problem.nodes[id];
    RegionWork work;
    for (LaneId lane = 1; lane <= options.commLanes; ++lane)
      if (node.kind == NodeKind::Hybrid && (lane == node.lane || (lane > node.lane && regionRandom.percent(40))))
        work.lanes.push_back(lane);
    for (LaneId lane : work.lanes)
      if (int32_t group = lane == node.lane ? node.group : drawGroup(lane); group != kNone) {
        work.groups.push_back(group);
        follow(id, group);
      }
    if (node.kind == NodeKind::Hybrid && regionRandom.percent(options.chanceOfPointToPoint)) {
      work.pointToPoint = true;
      builder.after(lastMessage);
      lastMessage = id;
    }
    for (const Pending &start : pending)
      if (!start.mergeable && regionRandom.percent(50))
        work.starts.push_back(start.start);
    llvm::sort(work.starts);
    for (NodeId start : work.starts) {
      builder.after(start);
      for (BufferId buffer : builder.touchesOf(start))
        builder.read({kNone, buffer, 0});
    }
    node.ready = regionRandom.percent(20) ? regionRandom.below(3 * options.maxCost) : 0;
    node.region = static_cast<int32_t>(problem.regions.size());
    problem.regions.push_back(std::move(work));
  }

  Value define(NodeId id, Bytes bytes) {
    BufferId buffer = builder.addBuffer(bytes, id);
    builder.write(buffer);
    return {id, buffer, bytes};
  }

  void emitView() {
    Value source = pick();
    NodeId id = builder.begin(node(NodeKind::Compute, 0));
    builder.problem.nodes[id].workspace = 0;
    keepOrder(id);
    builder.read(source);
    builder.end();
    values.push_back({id, source.buffer, source.bytes});
  }

  void emitInPlace() {
    Value target = pick();
    if (!isIdle(target.buffer))
      return emitView();
    NodeId id = builder.begin(node(NodeKind::Compute, cost()));
    keepOrder(id);
    builder.read(pick());
    builder.after(target.maker);
    builder.write(target.buffer);
    builder.end();
    values.push_back({id, target.buffer, target.bytes});
  }

  void emitArgumentWait() {
    Node made = node(NodeKind::Wait, 0);
    made.ready = random.below(3 * options.maxCost);
    Value value{builder.begin(made), kNone, size()};
    keepOrder(value.maker);
    if (random.percent(70)) {
      value.buffer = builder.addBuffer(value.bytes);
      builder.write(value.buffer);
    }
    builder.end();
    values.push_back(value);
  }

  /// A cast of an argument that only the start reads.
  Value emitCast(MergeMember &member) {
    Value source = values[random.below(2)];
    member.cast = builder.begin(node(NodeKind::Compute, cost()));
    member.castInputBytes = source.bytes;
    builder.problem.nodes[member.cast].workspace = 0;
    keepOrder(member.cast);
    builder.read(source);
    Value result = define(member.cast, source.bytes / 2);
    builder.end();
    return result;
  }

  void emitStart() {
    if (random.percent(options.chanceOfMergeable))
      return emitMergeable();
    Node made = node(NodeKind::Start, cost());
    made.lane = static_cast<LaneId>(random.between(1, options.commLanes));
    made.issue = random.between(0, options.maxIssue);
    made.collective = random.percent(50) ? CollectiveKind::AllToAll : CollectiveKind::Broadcast;
    if (regionRandom.percent(options.chanceOfPointToPoint))
      made.collective = regionRandom.percent(50) ? CollectiveKind::Send : CollectiveKind::Recv;
    Pending start{0, {}, false, {}, {}};
    int64_t operands = random.percent(options.chanceOfCoalesced) ? random.between(2, 3) : 1;
    Value target = pick();
    bool inPlace = operands == 1 && random.percent(25) && isIdle(target.buffer);
    start.start = builder.begin(made);
    keepOrder(start.start);
    if (inPlace) {
      builder.after(target.maker);
      builder.write(target.buffer);
      start.busy.push_back(target.buffer);
      start.outputs.push_back({start.start, target.buffer, target.bytes});
    } else {
      for (; operands > 0; --operands) {
        builder.read(pick());
        start.outputs.push_back(define(start.start, size()));
      }
    }
    builder.end();
    pending.push_back(start);
  }

  void emitMergeable() {
    int32_t keyIndex = static_cast<int32_t>(random.below(builder.problem.mergeKeys.size()));
    const MergeKey key = builder.problem.mergeKeys[keyIndex];
    Pending start{0, {}, true, {}, {}};
    Value input = random.percent(options.chanceOfCast) ? emitCast(start.member) : pick();
    Node made = node(NodeKind::Start, 0);
    made.lane = key.lane;
    made.issue = random.between(0, options.maxIssue);
    made.collective = key.kind;
    made.mergeKey = keyIndex;
    made.group = groupOfKey[keyIndex];
    made.workspace = 0;
    start.member.input = input.buffer;
    start.member.inputBytes = input.bytes;
    made.bytes = key.kind == CollectiveKind::AllGather ? input.bytes * key.ranks : input.bytes;
    start.member.outputBytes = key.kind == CollectiveKind::ReduceScatter ? input.bytes / key.ranks : made.bytes;
    made.cost = key.cost(made.bytes);
    start.start = builder.begin(made);
    keepOrder(start.start);
    builder.read(input);
    start.outputs.push_back(define(start.start, start.member.outputBytes));
    start.member.output = start.outputs.front().buffer;
    builder.end();
    pending.push_back(start);
  }

  void wait(const Pending &start) {
    Node made = node(NodeKind::Wait, 0);
    made.start = start.start;
    NodeId id = builder.begin(made);
    keepOrder(id);
    builder.after(start.start);
    for (BufferId buffer : builder.touchesOf(start.start))
      builder.hold(buffer);
    builder.end();
    for (Value output : start.outputs) {
      output.maker = id;
      values.push_back(output);
    }
  }

  void emitWait(size_t index) {
    Pending start = pending[index];
    pending.erase(pending.begin() + index);
    wait(start);
    if (start.mergeable) {
      start.member.wait = builder.problem.size() - 1;
      builder.problem.members.resize(std::max<size_t>(builder.problem.members.size(), start.start + 1));
      builder.problem.members[start.start] = start.member;
    } else {
      waited.push_back(start);
    }
  }

  void emitSecondWait() { wait(waited[random.below(waited.size())]); }

  Random random;
  /// Decides on regions, groups and messages, so that they change nothing else of a program.
  Random regionRandom;
  const RandomOptions options;
  Builder builder;
  std::vector<Value> values;
  std::vector<Pending> pending, waited;
  /// 0 if groups are not named.
  int32_t groupsOfLane = 0;
  /// Indexed by merge key.
  std::vector<int32_t> groupOfKey;
  /// Indexed by group, or by lane without groups; the first entry stands for all in program order.
  std::vector<NodeId> lastCollective;
  NodeId lastPinned = kNone, lastMessage = kNone;
};

} // namespace

Problem commsched::test::randomProblem(uint64_t seed, const RandomOptions &options) {
  return Generator(seed, options).run();
}

Problem commsched::test::withOtherCosts(const Problem &problem, uint64_t seed) {
  Random random(seed);
  Problem other = problem;
  other.variantNames.clear();
  other.startVariants.clear();
  for (Node &node : other.nodes) {
    node.cost = node.cost * random.between(500, 2000) / 1000;
    node.variants = kNone;
  }
  for (MergeKey &key : other.mergeKeys) {
    key.cost = [cost = key.cost, factor = random.between(500, 2000)](Bytes bytes) {
      return cost(bytes) * factor / 1000;
    };
    key.groupCost = nullptr;
    key.variants.clear();
  }
  return other;
}

Order commsched::test::randomOrder(const Problem &problem, Random &random) {
  std::vector<int32_t> missing(problem.size());
  std::vector<NodeId> ready;
  for (NodeId id = 0; id < problem.size(); ++id) {
    missing[id] = static_cast<int32_t>(problem.preds[id].size());
    if (missing[id] == 0)
      ready.push_back(id);
  }
  Order order;
  order.reserve(problem.size());
  while (!ready.empty()) {
    std::swap(ready[random.below(ready.size())], ready.back());
    order.push_back(ready.back());
    ready.pop_back();
    for (NodeId succ : problem.succs[order.back()])
      if (--missing[succ] == 0)
        ready.push_back(succ);
  }
  return order;
}

namespace {

/// One training step, layer by layer.
class Layers {
public:
  Layers(uint64_t seed, const LayeredOptions &options)
      : random(seed), options(options), builder(options.tensorParallel ? 2 : 1) {
    // About an H100 node: collectives of 30 us + bytes at 40 GB/s over the network, copies at 2.5 TB/s.
    auto curve = [](Bytes bytes) { return Ns(30000) + bytes / 40; };
    builder.problem.copyCost = [](Bytes read, Bytes written) { return Ns(3000) + (read + written) / 2500; };
    for (CollectiveKind kind : {CollectiveKind::AllGather, CollectiveKind::ReduceScatter}) {
      MergeKey key;
      key.kind = kind;
      key.lane = 1;
      key.ranks = options.ranks;
      key.cost = curve;
      key.groupCost = [curve](Bytes bytes, int32_t) { return curve(bytes) + curve(0); };
      builder.problem.mergeKeys.push_back(key);
    }
    for (int32_t index = 0; index < options.layers * options.parameters; ++index)
      shards.push_back(random.between(1, 16) << 15);
  }

  Problem run() {
    Value state = compute({}, 1 << 20);
    std::vector<Value> saved;
    for (int32_t layer = 0; layer < options.layers; ++layer) {
      std::vector<Value> weights = gather(layer);
      for (int32_t index = 0; index < options.computes; ++index)
        state = compute({state, weights[index % weights.size()]}, random.between(1, 8) << 20);
      saved.push_back(state);
      state = reduceAcross(state);
    }
    for (int32_t layer = options.layers - 1; layer >= 0; --layer) {
      std::vector<Value> weights = gather(layer);
      std::vector<Value> gradients(weights.size());
      for (int32_t index = 0; index < options.computes; ++index) {
        size_t parameter = index % weights.size();
        Value gradient = compute({state, saved[layer]}, shards[layer * options.parameters + parameter] * options.ranks);
        if (gradients[parameter].maker != kNone)
          gradient = gradients[parameter];
        gradients[parameter] = gradient;
        state = compute({state, weights[parameter]}, random.between(1, 8) << 20);
      }
      for (size_t parameter = 0; parameter < gradients.size(); ++parameter)
        scatter(gradients[parameter].maker == kNone ? state : gradients[parameter]);
      state = reduceAcross(state);
    }
    return builder.finish();
  }

private:
  Value compute(std::vector<Value> reads, Bytes bytes, Ns cost = kNone) {
    Node node;
    node.cost = cost == kNone ? random.between(20, 400) * 1000 : cost;
    NodeId id = builder.begin(node);
    for (const Value &value : reads)
      builder.read(value);
    BufferId buffer = builder.addBuffer(bytes, id);
    builder.write(buffer);
    builder.end();
    return {id, buffer, bytes};
  }

  Value collective(CollectiveKind kind, LaneId lane, const Value &input, Bytes bytes, Bytes outputBytes,
                   MergeMember member, int32_t key) {
    Node node;
    node.kind = NodeKind::Start;
    node.lane = lane;
    node.collective = kind;
    node.bytes = bytes;
    node.cost = 30000 + bytes / (lane == 1 ? 40 : 300);
    node.mergeKey = key;
    NodeId start = builder.begin(node);
    builder.read(input);
    BufferId output = builder.addBuffer(outputBytes, start);
    builder.write(output);
    builder.end();

    Node wait;
    wait.kind = NodeKind::Wait;
    wait.start = start;
    NodeId id = builder.begin(wait);
    builder.after(start);
    for (BufferId buffer : builder.touchesOf(start))
      builder.hold(buffer);
    builder.end();
    if (key != kNone) {
      member.wait = id;
      member.input = input.buffer;
      member.output = output;
      member.inputBytes = input.bytes;
      member.outputBytes = outputBytes;
      builder.problem.members.resize(start + 1);
      builder.problem.members[start] = member;
    }
    return {id, output, outputBytes};
  }

  std::vector<Value> gather(int32_t layer) {
    std::vector<Value> weights;
    for (int32_t parameter = 0; parameter < options.parameters; ++parameter) {
      Bytes shard = shards[layer * options.parameters + parameter];
      MergeMember member;
      Value input = compute({}, shard, 2000 + 3 * shard / 2500);
      member.cast = input.maker;
      member.castInputBytes = 2 * shard;
      Bytes gathered = shard * options.ranks;
      weights.push_back(collective(CollectiveKind::AllGather, 1, input, gathered, gathered, member, 0));
    }
    return weights;
  }

  void scatter(const Value &gradient) {
    Value shard =
        collective(CollectiveKind::ReduceScatter, 1, gradient, gradient.bytes, gradient.bytes / options.ranks, {}, 1);
    builder.problem.buffers[shard.buffer].liveOut = true;
  }

  Value reduceAcross(const Value &state) {
    if (!options.tensorParallel)
      return state;
    return collective(CollectiveKind::AllReduce, 2, state, state.bytes, state.bytes, {}, kNone);
  }

  Random random;
  const LayeredOptions options;
  Builder builder;
  std::vector<Bytes> shards;
};

} // namespace

int32_t commsched::test::nodesPerLayer(const LayeredOptions &options) {
  return 3 * options.computes + 2 * 3 * options.parameters + 2 * options.parameters + (options.tensorParallel ? 4 : 0);
}

Problem commsched::test::layeredProblem(uint64_t seed, const LayeredOptions &options) {
  return Layers(seed, options).run();
}
