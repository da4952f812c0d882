//===- AnswerVerifier.cpp - Independent checker of answers ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Every node of the given problem gets two places among the events: where it begins to need what it depends on, and
// where what depends on it may follow. Of a node that runs by itself both are its own event.
//
//===------------------------------------------------------------------------------------------===//

#include "AnswerVerifier.h"
#include "AnswerClock.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <map>

using namespace commsched;
using std::to_string;

namespace {

/// Where the events of a bucket stand, and its buffers.
struct BucketPlaces {
  int32_t pack = kNone, start = kNone, wait = kNone, view = kNone;
  /// The buffer that is packed into, and the one that holds a reduce-scatter's result, in bytes.
  Bytes packed = 0, merged = 0;
  /// What the pack reads and writes, in bytes.
  Bytes read = 0, written = 0;
  bool gathers = false, scatters = false, isPacked = false;
};

class AnswerVerifier {
public:
  AnswerVerifier(const Problem &given, llvm::ArrayRef<Bucket> buckets, llvm::ArrayRef<VariantChoice> variants,
                 llvm::ArrayRef<AnswerEvent> events, const ScheduleRequirements &requirements,
                 const std::optional<ScheduleClaims> &claims)
      : given(given), buckets(buckets), variants(variants), events(events), requirements(requirements), claims(claims),
        places(buckets.size()), bucketOf(given.size(), kNone), begins(given.size(), kNone), ends(given.size(), kNone),
        issues(given.size(), kNone) {}

  std::string run() {
    using Check = std::string (AnswerVerifier::*)();
    for (Check check : {&AnswerVerifier::checkBuckets, &AnswerVerifier::checkVariants, &AnswerVerifier::placeEvents,
                        &AnswerVerifier::placeMembers, &AnswerVerifier::checkEdges, &AnswerVerifier::checkOrders,
                        &AnswerVerifier::checkPeak, &AnswerVerifier::checkMakespan})
      if (std::string wrong = (this->*check)(); !wrong.empty())
        return wrong;
    return {};
  }

private:
  std::string checkBuckets();
  std::string checkVariants();
  std::string placeEvents();
  std::string placeBucketEvent(const AnswerEvent &event, int32_t at);
  std::string placeMembers();
  std::string checkEdges();
  std::string checkOrders();
  std::string checkPeak();
  std::string checkMakespan();
  Ns durationOf(const AnswerEvent &event) const;
  Bytes bytesOf(const Bucket &bucket) const;
  Demand demandOf(const AnswerEvent &event, Ns duration) const;
  Ns undisturbedMakespan() const;
  Ns contendedMakespan() const;

  /// The cast that a packed bucket has taken over from a member: one that no event runs.
  NodeId vanishedCast(NodeId start) const {
    NodeId cast = given.members[start].cast;
    bool isGone = bucketOf[start] != kNone && places[bucketOf[start]].isPacked && cast != kNone && !ran[cast];
    return isGone ? cast : kNone;
  }

  const Problem &given;
  llvm::ArrayRef<Bucket> buckets;
  llvm::ArrayRef<VariantChoice> variants;
  llvm::ArrayRef<AnswerEvent> events;
  const ScheduleRequirements &requirements;
  const std::optional<ScheduleClaims> &claims;
  std::vector<BucketPlaces> places;
  /// By node of the given problem: its bucket, of a member's start and wait.
  std::vector<int32_t> bucketOf;
  /// By node of the given problem: where what it depends on has to have happened, where what depends on it may happen,
  /// and, of a start, where it is issued.
  std::vector<int32_t> begins, ends, issues;
  /// By node of the given problem: whether an event runs it.
  std::vector<char> ran;
  /// By start of the given problem, and by bucket: the variant that was chosen; those without a choice have none.
  std::map<NodeId, const StartVariant *> startVariant;
  std::map<int32_t, const KeyVariant *> bucketVariant;
};

std::string AnswerVerifier::checkBuckets() {
  for (auto [index, bucket] : llvm::enumerate(buckets)) {
    std::string where = "bucket " + to_string(index) + ": ";
    BucketPlaces &place = places[index];
    if (bucket.members.size() < 2)
      return where + "fewer than two members";
    if (bucket.form == BucketForm::Packed && !given.copyCost)
      return where + "packed, and no kernel packs";
    int32_t key = given.nodes[bucket.members.front()].mergeKey;
    Bytes total = 0;
    for (NodeId member : bucket.members) {
      if (member < 0 || member >= given.size() || given.nodes[member].kind != NodeKind::Start || key == kNone ||
          given.nodes[member].mergeKey != key)
        return where + "node " + to_string(member) + " has another merge key, or none";
      NodeId wait = given.members[member].wait;
      if (wait == kNone || given.nodes[wait].start != member || given.nodes[member].pinned || given.nodes[wait].pinned)
        return where + "node " + to_string(member) + " has no wait of its own, or is pinned";
      if (bucketOf[member] != kNone)
        return where + "node " + to_string(member) + " is merged twice";
      bucketOf[member] = bucketOf[wait] = static_cast<int32_t>(index);
      total += given.nodes[member].bytes;
    }
    const MergeKey &merge = given.mergeKeys[key];
    if (merge.cap >= 0 && total > merge.cap)
      return where + to_string(total) + " bytes, the cap is " + to_string(merge.cap);
    place.isPacked = bucket.form == BucketForm::Packed;
    place.gathers = merge.kind == CollectiveKind::AllGather;
    place.scatters = merge.kind == CollectiveKind::ReduceScatter;
  }
  return {};
}

std::string AnswerVerifier::checkVariants() {
  for (auto [start, name] : variants) {
    std::string where = "the variant of node " + to_string(start) + ": ";
    if (start < 0 || start >= given.size() || given.nodes[start].kind != NodeKind::Start)
      return where + "it is not a start";
    int32_t bucket = bucketOf[start];
    if (startVariant.count(start) || (bucket != kNone && bucketVariant.count(bucket)))
      return where + "there are two";
    auto isAsked = [chosen = name](const auto &variant) { return variant.name == chosen; };
    auto offers = [&](NodeId node) {
      return given.nodes[node].variants != kNone &&
             llvm::any_of(given.startVariants[given.nodes[node].variants], isAsked);
    };
    if (bucket == kNone) {
      if (!offers(start))
        return where + "the start does not have it";
      startVariant[start] = &*llvm::find_if(given.startVariants[given.nodes[start].variants], isAsked);
      continue;
    }
    if (buckets[bucket].members.front() != start)
      return where + "it is not the first member of its bucket";
    const std::vector<KeyVariant> &ofKey = given.mergeKeys[given.nodes[start].mergeKey].variants;
    auto found = llvm::find_if(ofKey, isAsked);
    if (found == ofKey.end() || !llvm::all_of(buckets[bucket].members, offers))
      return where + "the bucket or a member of it does not have it";
    bucketVariant[bucket] = &*found;
  }
  return {};
}

std::string AnswerVerifier::placeEvents() {
  ran.assign(given.size(), 0);
  for (int32_t at = 0; at < static_cast<int32_t>(events.size()); ++at) {
    const AnswerEvent &event = events[at];
    if (event.kind != AnswerEvent::Run) {
      if (std::string wrong = placeBucketEvent(event, at); !wrong.empty())
        return wrong;
      continue;
    }
    if (event.node < 0 || event.node >= given.size() || ran[event.node] || bucketOf[event.node] != kNone)
      return "event " + to_string(at) + " runs node " + to_string(event.node) +
             ", which is in a bucket, runs twice or is unknown";
    ran[event.node] = 1;
    begins[event.node] = ends[event.node] = issues[event.node] = at;
  }
  return {};
}

std::string AnswerVerifier::placeBucketEvent(const AnswerEvent &event, int32_t at) {
  std::string where = "event " + to_string(at) + ": ";
  if (event.bucket < 0 || event.bucket >= static_cast<int32_t>(buckets.size()))
    return where + "of no bucket";
  BucketPlaces &place = places[event.bucket];
  if (event.kind == AnswerEvent::Unpack) {
    if (!place.isPacked || !place.gathers || place.wait == kNone || event.members.empty())
      return where + "an unpack before the wait, or of a bucket that has none";
    bool isShared = event.members.size() > 1;
    for (NodeId member : event.members) {
      if (bucketOf[member] != event.bucket || ends[given.members[member].wait] != kNone)
        return where + "unpacks node " + to_string(member) + ", which is of another bucket, or was unpacked before";
      if (isShared && given.members[member].outputBytes > kSmallUnpackBytes)
        return where + "node " + to_string(member) + " is too large to share an unpack";
      ends[given.members[member].wait] = at;
    }
    return {};
  }
  int32_t &own = event.kind == AnswerEvent::Pack    ? place.pack
                 : event.kind == AnswerEvent::Start ? place.start
                 : event.kind == AnswerEvent::Wait  ? place.wait
                                                    : place.view;
  bool needsPacking = event.kind == AnswerEvent::Pack || event.kind == AnswerEvent::View;
  if (own != kNone || (needsPacking && !place.isPacked) || (event.kind == AnswerEvent::View && place.gathers))
    return where + "a second one of its kind, or one that the bucket's form does not have";
  own = at;
  return {};
}

/// Gives the members of buckets, and the casts that went into packs, their places.
std::string AnswerVerifier::placeMembers() {
  for (auto [index, bucket] : llvm::enumerate(buckets)) {
    BucketPlaces &place = places[index];
    std::string where = "bucket " + to_string(index) + ": ";
    bool complete = place.start != kNone && place.wait > place.start &&
                    (!place.isPacked || (place.pack != kNone && place.pack < place.start)) &&
                    (!place.isPacked || place.gathers || place.view > place.wait);
    if (!complete)
      return where + "an event is missing, or they are in the wrong order";
    for (NodeId member : bucket.members) {
      const MergeMember &info = given.members[member];
      begins[member] = place.isPacked ? place.pack : place.start;
      issues[member] = ends[member] = place.start;
      begins[info.wait] = place.wait;
      if (place.isPacked && place.gathers) {
        if (ends[info.wait] == kNone)
          return where + "node " + to_string(member) + " is not unpacked";
      } else {
        ends[info.wait] = place.isPacked ? place.view : place.wait;
      }
      NodeId cast = vanishedCast(member);
      if (cast != kNone) {
        const Buffer &result = given.buffers[info.input];
        if (given.nodes[cast].pinned || result.def != cast || result.liveOut ||
            given.succs[cast] != llvm::ArrayRef<NodeId>(member))
          return where + "node " + to_string(cast) + " is used by others and cannot vanish in the pack";
        begins[cast] = ends[cast] = place.pack;
      }
      place.read += cast == kNone ? info.inputBytes : info.castInputBytes;
      place.written += info.inputBytes;
      place.packed += place.gathers ? info.outputBytes : info.inputBytes;
      place.merged += info.outputBytes;
    }
  }
  for (NodeId node = 0; node < given.size(); ++node)
    if (begins[node] == kNone)
      return "node " + to_string(node) + " never happens";
  return {};
}

std::string AnswerVerifier::checkEdges() {
  for (NodeId node = 0; node < given.size(); ++node)
    for (NodeId pred : given.preds[node]) {
      bool issuesOnly = given.nodes[node].kind == NodeKind::Start && given.nodes[pred].kind == NodeKind::Start;
      bool together = bucketOf[node] != kNone && bucketOf[node] == bucketOf[pred];
      bool fused = begins[pred] == begins[node] && given.nodes[node].kind == NodeKind::Start && !ran[pred];
      bool kept = issuesOnly && together ? true
                  : issuesOnly           ? issues[pred] < issues[node]
                  : fused                ? true
                                         : ends[pred] < begins[node];
      if (!kept)
        return "node " + to_string(node) + " at event " + to_string(begins[node]) + " depends on node " +
               to_string(pred) + ", which is done at event " + to_string(ends[pred]);
    }
  return {};
}

/// Collectives, messages and pinned nodes: along the given order their events may not go back.
std::string AnswerVerifier::checkOrders() {
  std::map<int64_t, NodeId> latest;
  auto follow = [&](int64_t chain, NodeId node) -> std::string {
    auto [entry, isFirst] = latest.try_emplace(chain, node);
    if (!isFirst && issues[entry->second] > issues[node])
      return "node " + to_string(node) + " is issued before node " + to_string(entry->second) +
             ", which comes before it";
    entry->second = node;
    return {};
  };
  enum : int64_t { Pinned = -1, Messages = -2, All = -3 };
  for (NodeId id = 0; id < given.size(); ++id) {
    const Node &node = given.nodes[id];
    const RegionWork *region = node.region == kNone ? nullptr : &given.regions[node.region];
    bool communicates = node.kind == NodeKind::Start || node.kind == NodeKind::Hybrid;
    bool sends = region ? region->pointToPoint : node.kind == NodeKind::Start && isPointToPoint(node.collective);
    std::vector<int64_t> chains;
    if (node.pinned)
      chains.push_back(Pinned);
    if (sends)
      chains.push_back(Messages);
    if (communicates && requirements.collectiveOrder == CollectiveOrder::Program)
      chains.push_back(All);
    if (communicates && requirements.collectiveOrder == CollectiveOrder::Group) {
      if (region)
        chains.insert(chains.end(), region->groups.begin(), region->groups.end());
      else
        chains.push_back(node.group != kNone ? node.group : (int64_t(1) << 32) + node.lane);
    }
    for (int64_t chain : chains)
      if (std::string wrong = follow(chain, id); !wrong.empty())
        return wrong;
  }
  return {};
}

/// Counts what lives from where to where, each buffer as the interval of the events that touch it.
std::string AnswerVerifier::checkPeak() {
  struct Life {
    Bytes bytes = 0;
    int32_t first = INT32_MAX, last = kNone;
    bool fromBeginning = false, toEnd = false;
  };
  size_t numOwn = given.buffers.size();
  std::vector<Life> lives(numOwn + 2 * buckets.size());
  auto touch = [&](size_t index, int32_t at) {
    lives[index].first = std::min(lives[index].first, at);
    lives[index].last = std::max(lives[index].last, at);
  };
  for (size_t index = 0; index < numOwn; ++index)
    lives[index] = {given.buffers[index].bytes, INT32_MAX, kNone, given.buffers[index].def == kNone,
                    given.buffers[index].liveOut};
  // What a pack makes stands in place of its members' outputs, and of the results of the casts that vanish.
  std::vector<size_t> standsFor(numOwn);
  for (size_t index = 0; index < numOwn; ++index)
    standsFor[index] = index;
  for (auto [index, bucket] : llvm::enumerate(buckets)) {
    const BucketPlaces &place = places[index];
    size_t packed = numOwn + 2 * index, merged = place.scatters ? packed + 1 : packed;
    if (!place.isPacked)
      continue;
    lives[packed].bytes = place.packed;
    lives[packed + 1].bytes = place.merged;
    for (int32_t at : {place.pack, place.start, place.wait})
      touch(packed, at);
    if (place.scatters)
      for (int32_t at : {place.start, place.wait})
        touch(merged, at);
    if (!place.gathers)
      touch(merged, place.view);
    for (NodeId member : bucket.members) {
      const MergeMember &info = given.members[member];
      if (!place.gathers) {
        standsFor[info.output] = merged;
        lives[merged].toEnd |= given.buffers[info.output].liveOut;
      } else {
        touch(packed, ends[info.wait]);
        touch(info.output, ends[info.wait]);
      }
    }
  }
  for (NodeId node = 0; node < given.size(); ++node) {
    bool inPack = bucketOf[node] != kNone && places[bucketOf[node]].isPacked;
    bool isStart = given.nodes[node].kind == NodeKind::Start;
    if (inPack && !isStart)
      continue; // a packed wait holds the pack's buffers alone
    for (BufferId buffer : given.touches[node]) {
      bool isOutput = inPack && buffer == given.members[node].output;
      bool vanishes = inPack && vanishedCast(node) != kNone && buffer == given.members[node].input;
      bool isCasts = !ran[node] && bucketOf[node] == kNone && given.buffers[buffer].def == node;
      if (!isOutput && !vanishes && !isCasts)
        touch(standsFor[buffer], begins[node]);
    }
  }
  std::vector<Bytes> change(events.size() + 1, 0);
  for (const Life &life : lives) {
    if (life.last == kNone)
      continue;
    change[life.fromBeginning ? 0 : life.first] += life.bytes;
    change[life.toEnd ? events.size() : life.last + 1] -= life.bytes;
  }
  Bytes live = 0, peak = 0;
  for (size_t at = 0; at < events.size(); ++at) {
    live += change[at];
    peak = std::max(peak, live + (events[at].kind == AnswerEvent::Run ? given.nodes[events[at].node].workspace : 0));
  }
  if (claims && peak != claims->peak)
    return "the peak is " + to_string(peak) + " bytes, the claim " + to_string(claims->peak);
  if (requirements.peakLimit < kUnlimited && peak > requirements.peakLimit)
    return "the peak is " + to_string(peak) + " bytes, the limit " + to_string(requirements.peakLimit);
  return {};
}

Bytes AnswerVerifier::bytesOf(const Bucket &bucket) const {
  Bytes bytes = 0;
  for (NodeId member : bucket.members)
    bytes += given.nodes[member].bytes;
  return bytes;
}

/// How long the event of a bucket holds compute, or, of a start, its lane.
Ns AnswerVerifier::durationOf(const AnswerEvent &event) const {
  const BucketPlaces &place = places[event.bucket];
  const Bucket &bucket = buckets[event.bucket];
  Bytes bytes = 0;
  switch (event.kind) {
  case AnswerEvent::Pack:
    return given.copyCost(place.read, place.written);
  case AnswerEvent::Unpack:
    for (NodeId member : event.members)
      bytes += given.members[member].outputBytes;
    return given.copyCost(bytes, bytes);
  case AnswerEvent::Start: {
    const MergeKey &key = given.mergeKeys[given.nodes[bucket.members.front()].mergeKey];
    auto members = static_cast<int32_t>(bucket.members.size());
    bytes = bytesOf(bucket);
    if (auto chosen = bucketVariant.find(event.bucket); chosen != bucketVariant.end())
      return chosen->second->cost(bytes, place.isPacked ? 1 : members);
    return place.isPacked ? key.cost(bytes) : key.coalescedCost(bytes, members);
  }
  default:
    return 0;
  }
}

/// What the event of a bucket needs.
Demand AnswerVerifier::demandOf(const AnswerEvent &event, Ns duration) const {
  if (event.kind != AnswerEvent::Start)
    return given.copyDemand;
  const MergeKey &key = given.mergeKeys[given.nodes[buckets[event.bucket].members.front()].mergeKey];
  Bytes bytes = bytesOf(buckets[event.bucket]);
  if (auto chosen = bucketVariant.find(event.bucket); chosen != bucketVariant.end())
    return chosen->second->demand ? chosen->second->demand(bytes, duration) : Demand();
  return key.demandOf(bytes, duration);
}

/// The makespan of activities that share resources.
Ns AnswerVerifier::contendedMakespan() const {
  AnswerClock clock(given.numLanes(), kMaxTotalNs);
  for (size_t lane = 0; lane < given.busyUntil.size(); ++lane)
    if (given.busyUntil[lane] > 0)
      clock.put(static_cast<int32_t>(lane), given.busyUntil[lane], Demand());
  clock.passUntilEmpty(kComputeLane);
  // The numbers of works, by start of the given problem and by bucket.
  std::vector<size_t> work(given.size(), 0), bucketWork(buckets.size(), 0);
  for (const AnswerEvent &event : events) {
    if (event.kind == AnswerEvent::Start) {
      const Bucket &bucket = buckets[event.bucket];
      Ns duration = durationOf(event), issue = 0;
      bucketWork[event.bucket] =
          clock.put(given.nodes[bucket.members.front()].lane, duration, demandOf(event, duration));
      for (NodeId member : bucket.members)
        issue = std::max(issue, given.nodes[member].issue);
      clock.passUntil(clock.now() + issue);
      continue;
    }
    if (event.kind == AnswerEvent::Wait) {
      clock.passUntilDone(bucketWork[event.bucket]);
      continue;
    }
    if (event.kind != AnswerEvent::Run) {
      Ns duration = durationOf(event);
      if (duration > 0)
        clock.compute(duration, demandOf(event, duration));
      continue;
    }
    const Node &node = given.nodes[event.node];
    auto chosen = startVariant.find(event.node);
    int32_t needs = chosen == startVariant.end() ? node.demand : chosen->second->demand;
    Demand demand = needs == kNone ? Demand() : given.demands[needs];
    if (node.kind == NodeKind::Start) {
      Ns cost = chosen == startVariant.end() ? node.cost : chosen->second->cost;
      work[event.node] = clock.put(node.lane, cost, demand);
      clock.passUntil(clock.now() + node.issue);
      continue;
    }
    if (node.lane != kComputeLane)
      clock.passUntilEmpty(node.lane);
    if (node.region != kNone) {
      for (LaneId lane : given.regions[node.region].lanes)
        clock.passUntilEmpty(lane);
      for (NodeId start : given.regions[node.region].starts)
        clock.passUntilDone(work[start]);
    }
    if (node.start == kNone)
      clock.passUntil(node.ready);
    else
      clock.passUntilDone(work[node.start]);
    if (node.cost > 0)
      clock.compute(node.cost, demand);
  }
  clock.passUntilAllEmpty();
  return clock.now();
}

std::string AnswerVerifier::checkMakespan() {
  if (!claims)
    return {};
  Ns makespan = given.demands.empty() ? undisturbedMakespan() : contendedMakespan();
  if (makespan != claims->makespan)
    return "the makespan is " + to_string(makespan) + " ns, the claim " + to_string(claims->makespan);
  return {};
}

Ns AnswerVerifier::undisturbedMakespan() const {
  std::vector<Ns> clock = given.busyUntil;
  clock.resize(given.numLanes(), 0);
  std::vector<Ns> done(given.size(), 0);
  std::vector<Ns> bucketDone(buckets.size(), 0);
  Ns &compute = clock[kComputeLane];
  for (const AnswerEvent &event : events) {
    if (event.kind == AnswerEvent::Start) {
      const Bucket &bucket = buckets[event.bucket];
      Ns &lane = clock[given.nodes[bucket.members.front()].lane];
      Ns issue = 0;
      bucketDone[event.bucket] = lane = std::max(lane, compute) + durationOf(event);
      for (NodeId member : bucket.members)
        issue = std::max(issue, given.nodes[member].issue);
      compute += issue;
      continue;
    }
    if (event.kind == AnswerEvent::Wait) {
      compute = std::max(compute, bucketDone[event.bucket]);
      continue;
    }
    if (event.kind != AnswerEvent::Run) {
      compute += durationOf(event);
      continue;
    }
    const Node &node = given.nodes[event.node];
    llvm::SmallVector<LaneId, 4> lanes;
    if (node.lane != kComputeLane)
      lanes.push_back(node.lane);
    Ns begin = compute;
    if (node.region != kNone) {
      const RegionWork &work = given.regions[node.region];
      lanes.append(work.lanes.begin(), work.lanes.end());
      for (NodeId start : work.starts)
        begin = std::max(begin, done[start]);
    }
    if (node.start == kNone)
      begin = std::max(begin, node.ready);
    else
      begin = std::max(begin, done[node.start]);
    for (LaneId lane : lanes)
      begin = std::max(begin, clock[lane]);
    auto chosen = startVariant.find(event.node);
    done[event.node] = begin + (chosen == startVariant.end() ? node.cost : chosen->second->cost);
    compute = node.kind == NodeKind::Start ? compute + node.issue : done[event.node];
    for (LaneId lane : lanes)
      clock[lane] = done[event.node];
  }
  return *std::max_element(clock.begin(), clock.end());
}

} // namespace

std::string commsched::verifyAnswer(const Problem &given, llvm::ArrayRef<Bucket> buckets,
                                    llvm::ArrayRef<VariantChoice> variants, llvm::ArrayRef<AnswerEvent> events,
                                    const ScheduleRequirements &requirements,
                                    const std::optional<ScheduleClaims> &claims) {
  return AnswerVerifier(given, buckets, variants, events, requirements, claims).run();
}
