//===- Certificate.cpp - A schedule with all that proves it ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One JSON object for each block, in one line. What most entries have in common is left out: a list of pairs, each an
// index and a value, holds the others.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Report/Certificate.h"
#include "CertificateParts.h"
#include "CommSched/Scheduling/Bounds/RegretProof.h"
#include "CommSched/Scheduling/Buckets/BucketShape.h"
#include "CommSched/Scheduling/Check/AnswerEvents.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/JSON.h"
#include <array>
#include <cassert>
#include <map>
#include <set>

using namespace llvm;
using namespace commsched;

namespace {

class CertificateWriter {
public:
  CertificateWriter(const Problem &problem, const Schedule &answer, const CertificateOptions &options, raw_ostream &os)
      : problem(options.least ? *options.least : problem), answer(answer), carriedOut(answer.carriedOut(problem)),
        options(options), witness(prove(this->problem, answer, options)), regret(proveOtherScales()),
        events(eventsOf(answer)), os(os) {
    assert(answer.claims && "an answer without claims has no certificate");
    numberDemands();
    sampleBuckets();
  }

  /// Of a problem without an answer, for writeProblem().
  CertificateWriter(const Problem &problem, BoundWitness witness, const Schedule &nothing,
                    const CertificateOptions &options, raw_ostream &os)
      : problem(problem), answer(nothing), carriedOut(problem), options(options), witness(std::move(witness)),
        regret(std::nullopt), events({}), os(os) {
    numberDemands();
    sampleBuckets();
  }

  void write(StringRef block) {
    if (options.loop && (options.loop->bucketing || !options.bucketing))
      match = matchLoop(*options.loop, problem, answer.claims->makespan);
    json::OStream json(os);
    json.object([&] {
      json.attribute("name", block);
      json.attributeObject("problem", [&] { writeProblem(json); });
      json.attributeObject("answer", [&] { writeAnswer(json); });
      json.attributeObject("claims", [&] {
        json.attribute("makespan_ns", answer.claims->makespan);
        json.attribute("peak_bytes", answer.claims->peak);
        if (answer.limit < kUnlimited)
          json.attribute("limit_bytes", answer.limit);
        json.attribute("bound_ns", witness.makespan);
      });
      json.attributeObject("bound", [&] { writeBound(json, witness); });
      writeScales(json);
      writeCollectives(json);
      writeAccesses(json);
      if (match)
        json.attributeObject("loop", [&] { writeLoop(json, *match); });
      writeCountedLoops(json);
    });
    os << "\n";
  }

  CertifiedClaims claims() const {
    return {witness.makespan, regret ? std::optional(regret->regretPpm) : std::nullopt, match.has_value()};
  }

  void writeProblem(json::OStream &json) const {
    json.attributeArray("lanes",
                        [&] { for_each(problem.laneNames, [&](const std::string &name) { json.value(name); }); });
    pairs(json, "busy_until_ns", problem.busyUntil.size(), 0, [&](int32_t lane) { return problem.busyUntil[lane]; });
    writeNodes(json);
    // How far each node is behind those that it depends on.
    json.attributeArray("edges", [&] {
      for (NodeId id = 0; id < problem.size(); ++id)
        json.array([&] { for_each(problem.preds[id], [&](NodeId pred) { json.value(id - pred); }); });
    });
    json.attributeArray("buffers", [&] {
      for (auto [id, buffer] : enumerate(problem.buffers))
        json.array([&, id = static_cast<BufferId>(id), bytes = buffer.bytes] {
          json.value(bytes);
          for_each(problem.users[id], [&](NodeId user) { json.value(user); });
        });
    });
    buffersThat(json, "live_in", [](const Buffer &buffer) { return buffer.def == kNone; });
    buffersThat(json, "live_out", [](const Buffer &buffer) { return buffer.liveOut; });
    writeDemands(json);
    writeSamples(json, "copy_samples", copySamples);
    if (options.bucketing && !problem.mergeKeys.empty())
      json.attributeArray("keys", [&] {
        for (int32_t key = 0; key < static_cast<int32_t>(problem.mergeKeys.size()); ++key)
          json.object([&] { writeKey(json, key); });
      });
    writeReasons(json);
  }

private:
  static BoundWitness prove(const Problem &problem, const Schedule &answer, const CertificateOptions &options) {
    BoundOptions boundOptions;
    boundOptions.limit = answer.limit;
    return proveBound(problem, boundOptions, options.bucketing);
  }

  std::optional<RegretProof> proveOtherScales() const {
    if (options.scales.empty())
      return std::nullopt;
    RegretQuestion question = {problem, carriedOut, answer.order, witness.makespan, {}, options.bucketing};
    question.bound.limit = answer.limit;
    return proveRegret(question, options.scales);
  }

  template <class Range> static void list(json::OStream &json, StringRef name, const Range &values) {
    json.attributeArray(name, [&] { for_each(values, [&](int64_t value) { json.value(value); }); });
  }

  /// The same, if there is anything to say.
  template <class Range> static void listAny(json::OStream &json, StringRef name, const Range &values) {
    if (!values.empty())
      list(json, name, values);
  }

  /// Pairs of an index and its value, for the indices whose value differs from `usual`.
  static void pairs(json::OStream &json, StringRef name, size_t count, int64_t usual,
                    function_ref<int64_t(int32_t)> valueOf) {
    SmallVector<int64_t> flat;
    for (int32_t id = 0; id < static_cast<int32_t>(count); ++id)
      if (int64_t value = valueOf(id); value != usual)
        flat.append({id, value});
    listAny(json, name, flat);
  }

  /// The buffers of which something is true.
  void buffersThat(json::OStream &json, StringRef name, function_ref<bool(const Buffer &)> holds) const {
    SmallVector<int64_t> ids;
    for (auto [id, buffer] : enumerate(problem.buffers))
      if (holds(buffer))
        ids.push_back(static_cast<int64_t>(id));
    listAny(json, name, ids);
  }

  /// What other ranks must issue too: for each collective its node, group, description and location.
  void writeCollectives(json::OStream &json) const {
    if (options.collectives.empty())
      return;
    json.attributeArray("collectives", [&] {
      for (const CollectiveNote &note : options.collectives)
        json.array([&] {
          json.value(note.node);
          for (StringRef text : {StringRef(note.group), StringRef(note.what), StringRef(note.where)})
            json.value(text);
        });
    });
  }

  /// The loops among the nodes: node, number of iterations, and the name of the body.
  void writeCountedLoops(json::OStream &json) const {
    if (options.loops.empty())
      return;
    json.attributeArray("loops", [&] {
      for (const CountedLoop &loop : options.loops)
        json.array([&] {
          json.value(loop.node);
          json.value(loop.iterations);
          json.value(loop.body);
        });
    });
  }

  /// What may be accessed by several nodes and is written by one of them.
  void writeAccesses(json::OStream &json) const {
    if (!options.accesses)
      return;
    const BlockAccesses &accesses = *options.accesses;
    auto write = [&](const std::vector<ObjectAccess> &list) {
      for (ObjectAccess access : list)
        json.value(4 * int64_t(access.node) + (access.waits ? 2 : 0) + (access.writes ? 1 : 0));
    };
    SmallVector<int64_t> exposed;
    json.attributeObject("accesses", [&] {
      json.attributeArray("objects", [&] {
        int64_t written = 0;
        for (auto [object, list] : enumerate(accesses.objects)) {
          bool isReached = accesses.exposed[object] && !accesses.anywhere.empty();
          if (!isReached && (list.size() < 2 || none_of(list, [](ObjectAccess access) { return access.writes; })))
            continue;
          json.array([&, &list = list] { write(list); });
          if (isReached)
            exposed.push_back(written);
          ++written;
        }
      });
      listAny(json, "exposed", exposed);
      if (!accesses.anywhere.empty())
        json.attributeArray("anywhere", [&] { write(accesses.anywhere); });
    });
  }

  /// One letter for each edge, and what the letters mean.
  void writeReasons(json::OStream &json) const {
    if (options.reasons.empty())
      return;
    auto letterOf = [](DependenceReason reason) { return static_cast<char>('a' + static_cast<int>(reason)); };
    std::string letters;
    std::map<char, StringRef> names;
    for (DependenceReason reason : options.reasons) {
      letters += letterOf(reason);
      names[letterOf(reason)] = stringify(reason);
    }
    json.attribute("reasons", letters);
    json.attributeObject("reason_names", [&] {
      for (auto [letter, name] : names)
        json.attribute(StringRef(&letter, 1), name);
    });
  }

  void writeNodes(json::OStream &json) const {
    auto field = [&](StringRef name, auto member, int64_t usual) {
      pairs(json, name, problem.nodes.size(), usual, [&](int32_t id) -> int64_t { return problem.nodes[id].*member; });
    };
    SmallVector<int64_t> starts, onLanes, awaits;
    std::map<int32_t, std::vector<NodeId>> units;
    for (NodeId id = 0; id < problem.size(); ++id) {
      const Node &node = problem.nodes[id];
      if (node.kind == NodeKind::Start)
        starts.push_back(id);
      if (node.unit != kNone)
        units[node.unit].push_back(id);
      if (node.start != kNone)
        awaits.append({id, node.start});
      if (node.region == kNone) {
        if (node.lane != kComputeLane)
          onLanes.append({id, node.lane});
        continue;
      }
      for (LaneId lane : problem.regions[node.region].lanes)
        onLanes.append({id, lane});
      for (NodeId start : problem.regions[node.region].starts)
        awaits.append({id, start});
    }
    json.attributeArray("cost_ns", [&] { for_each(problem.nodes, [&](const Node &node) { json.value(node.cost); }); });
    list(json, "starts", starts);
    listAny(json, "on_lanes", onLanes);
    listAny(json, "awaits", awaits);
    field("issue_ns", &Node::issue, 0);
    field("ready_ns", &Node::ready, 0);
    field("workspace_bytes", &Node::workspace, 0);
    if (units.empty())
      return;
    json.attributeArray("units", [&] {
      for (const auto &unit : units)
        json.array([&] { for_each(unit.second, [&](NodeId id) { json.value(id); }); });
    });
  }

  /// What activities need, each different demand once. Number 0 is nothing.
  void writeDemands(json::OStream &json) const {
    if (!problem.hasContention())
      return;
    json.attributeArray("demands", [&] {
      for (const Demand &demand : demands)
        json.array([&] {
          for (unsigned resource = 0; resource < kNumResources; ++resource) {
            json.value(demand.share[resource]);
            json.value(demand.weight[resource]);
          }
        });
    });
    pairs(json, "demand", problem.nodes.size(), 0, [&](int32_t id) { return nodeDemands[id]; });
    json.attribute("copy_demand", copyDemand);
  }

  int64_t numberOf(const Demand &demand) {
    if (!demand.any())
      return 0;
    auto [entry, isNew] = demandNumbers.try_emplace({demand.share, demand.weight}, demands.size() + 1);
    if (isNew)
      demands.push_back(demand);
    return entry->second;
  }

  void numberDemands() {
    for (const Node &node : problem.nodes)
      nodeDemands.push_back(numberOf(problem.demandOf(node)));
    copyDemand = numberOf(problem.copyDemand);
    bucketDemands.resize(answer.buckets.size());
    for (auto [event, node] : zip_equal(events, answer.order)) {
      eventDemands.push_back(numberOf(carriedOut.demandOf(carriedOut.nodes[node])));
      if (event.kind == AnswerEvent::Start)
        bucketDemands[event.bucket] = eventDemands.back();
    }
  }

  /// A size or two, and what a cost function says of it.
  using Sample = std::array<int64_t, 3>;

  /// Evaluates the cost functions where the buckets of the answer need them, so that a reader can check what each event
  /// of a bucket takes.
  void sampleBuckets() {
    packedSamples.resize(problem.mergeKeys.size());
    coalescedSamples.resize(problem.mergeKeys.size());
    for (const Bucket &bucket : answer.buckets) {
      int32_t index = problem.nodes[bucket.members.front()].mergeKey;
      const MergeKey &key = problem.mergeKeys[index];
      Bytes bytes = 0;
      for (NodeId member : bucket.members)
        bytes += problem.nodes[member].bytes;
      auto members = static_cast<int32_t>(bucket.members.size());
      if (bucket.form == BucketForm::Packed) {
        packedSamples[index].push_back({bytes, std::max<Ns>(key.cost(bytes), 0)});
        sampleCopies(bucket);
      } else {
        coalescedSamples[index].insert({bytes, members, std::max<Ns>(key.coalescedCost(bytes, members), 0)});
      }
    }
  }

  /// The same of the pack and the unpacks of a packed bucket.
  void sampleCopies(const Bucket &bucket) {
    auto add = [&](Bytes read, Bytes written) {
      copySamples.insert({read, written, std::max<Ns>(problem.copyCost(read, written), 0)});
    };
    BucketCopies copies;
    for (NodeId member : bucket.members)
      copies.add(problem, member, fusedCast(problem, member));
    add(copies.read, copies.written);
    for (const BucketShape::Unpack &unpack : describeBucket(problem, bucket).unpacks) {
      Bytes bytes = 0;
      for (int32_t member : unpack.members)
        bytes += problem.members[bucket.members[member]].outputBytes;
      add(bytes, bytes);
    }
  }

  static void writeSamples(json::OStream &json, StringRef name, const std::set<Sample> &samples) {
    if (samples.empty())
      return;
    json.attributeArray(name, [&] {
      for (const Sample &sample : samples)
        json.array([&] { for_each(sample, [&](int64_t value) { json.value(value); }); });
    });
  }

  /// The samples of one cost function, each size once: those of the witness, `others`, and the sizes at which the
  /// witnesses of other scales have samples. `cost`: the function.
  std::vector<CostSample> samplesOf(int32_t index, std::vector<CostSample> KeySamples::*list,
                                    ArrayRef<CostSample> others, function_ref<Ns(Bytes)> cost) const {
    std::map<Bytes, Ns> all;
    for (ArrayRef<CostSample> samples : {ArrayRef<CostSample>(witness.samples[index].*list), others})
      for (const CostSample &sample : samples)
        all.try_emplace(sample.bytes, sample.cost);
    for (const ScaleProof &proof : regret ? ArrayRef<ScaleProof>(regret->scales) : ArrayRef<ScaleProof>())
      for (const CostSample &sample : proof.witness.samples[index].*list)
        if (!all.count(sample.bytes))
          all[sample.bytes] = std::max<Ns>(cost(sample.bytes), 0);
    std::vector<CostSample> samples;
    for (auto [bytes, ns] : all)
      samples.push_back({bytes, ns});
    return samples;
  }

  /// What may be merged: only starts that every bucket rule accepts are members.
  void writeKey(json::OStream &json, int32_t index) const {
    const MergeKey &key = problem.mergeKeys[index];
    json.attribute("collective", stringify(key.kind));
    json.attributeArray("members", [&] {
      for (NodeId start = 0; start < problem.size(); ++start) {
        const Node &node = problem.nodes[start];
        if (node.mergeKey != index || !isMergeable(problem, start))
          continue;
        const MergeMember &member = problem.members[start];
        NodeId cast = fusedCast(problem, start);
        json.array([&] {
          for (int64_t value :
               {static_cast<int64_t>(start), node.bytes, member.inputBytes, member.outputBytes,
                cast == kNone ? member.inputBytes : member.castInputBytes, std::max<Ns>(key.cost(node.bytes), 0)})
            json.value(value);
          cast == kNone ? json.value(nullptr) : json.value(cast);
        });
      }
    });
    if (key.cap >= 0)
      json.attribute("cap_bytes", key.cap);
    if (problem.hasContention()) {
      list(json, "least_demand", key.leastDemand);
      list(json, "least_use", key.leastUse);
    }
    if (witness.samples.empty())
      return;
    const KeySamples &samples = witness.samples[index];
    auto write = [&](StringRef name, ArrayRef<CostSample> of) {
      SmallVector<int64_t> flat;
      for (const CostSample &sample : of)
        flat.append({sample.bytes, sample.cost});
      listAny(json, name, flat);
    };
    auto packCost = [&](Bytes bytes) { return problem.copyCost(mulDiv(bytes, samples.read, samples.wrote), bytes); };
    auto unpackCost = [&](Bytes bytes) { return problem.copyCost(bytes, bytes); };
    write("samples", samplesOf(index, &KeySamples::lane, packedSamples[index], key.cost));
    write("pack_samples", samplesOf(index, &KeySamples::pack, {}, packCost));
    write("small_unpack_samples", samplesOf(index, &KeySamples::smallUnpacks, {}, unpackCost));
    write("large_unpack_samples", samples.largeUnpacks);
    if (!samples.pack.empty())
      list(json, "pack_reads_for_writes", ArrayRef<int64_t>{samples.read, samples.wrote});
    writeSamples(json, "coalesced_samples", coalescedSamples[index]);
  }

  void writeAnswer(json::OStream &json) const {
    json.attributeArray("buckets", [&] {
      for (auto [index, bucket] : enumerate(answer.buckets))
        json.object([&, index = index, &bucket = bucket] {
          json.attribute("form", stringify(bucket.form));
          list(json, "members", bucket.members);
          if (problem.hasContention())
            json.attribute("demand", bucketDemands[index]);
        });
    });
    writeChoices(json);
    // A node that runs by itself is its number; an event of a bucket has its own duration.
    json.attributeArray("events", [&] {
      static constexpr StringRef names[] = {"run", "pack", "start", "wait", "unpack", "view"};
      for (auto [event, node] : zip_equal(events, answer.order)) {
        if (event.kind == AnswerEvent::Run) {
          json.value(event.node);
          continue;
        }
        json.array([&, &event = event, node = node] {
          json.value(names[event.kind]);
          json.value(event.bucket);
          json.value(carriedOut.nodes[node].cost);
          for_each(event.members, [&](NodeId member) { json.value(member); });
        });
      }
    });
  }

  /// Nodes that run with another cost or demand than the problem's, which are then the least that they can have.
  void writeChoices(json::OStream &json) const {
    SmallVector<std::array<int64_t, 3>> rows;
    for (auto [event, id, demand] : zip_equal(events, answer.order, eventDemands))
      if (Ns cost = carriedOut.nodes[id].cost;
          event.kind == AnswerEvent::Run &&
          (cost != problem.nodes[event.node].cost || demand != nodeDemands[event.node]))
        rows.push_back({event.node, cost, demand});
    // Even without rows, this says that the samples of buckets are those of the cheapest way.
    if (rows.empty() && !options.least)
      return;
    json.attributeArray("chosen", [&] {
      for_each(rows,
               [&](const auto &row) { json.array([&] { for_each(row, [&](int64_t value) { json.value(value); }); }); });
    });
  }

  /// The proof of the regret: of each scale but the planned one the makespan, and a bound with its witness.
  void writeScales(json::OStream &json) const {
    if (!regret)
      return;
    json.attributeObject("scales", [&] {
      json.attribute("regret_ppm", regret->regretPpm);
      json.attributeArray("at", [&] {
        for (const ScaleProof &proof : regret->scales)
          json.object([&] {
            json.attribute("permille", proof.scale);
            json.attribute("makespan_ps", proof.makespanPs);
            json.attribute("bound_ps", proof.witness.makespan);
            json.attributeObject("bound", [&] { writeBound(json, proof.witness); });
          });
      });
    });
  }

  void writeBound(json::OStream &json, const BoundWitness &witness) const {
    json.attribute("argument", stringify(witness.argument));
    switch (witness.argument) {
    case BoundWitness::ThroughNode:
      json.attribute("node", witness.node);
      break;
    case BoundWitness::OneMachine:
      if (witness.lane != kNone)
        json.attribute("lane", witness.lane);
      else
        json.attribute("resource", static_cast<int64_t>(witness.resource));
      json.attribute("head_ns", witness.head);
      json.attribute("tail_ns", witness.tail);
      break;
    case BoundWitness::Deferral:
      list(json, "starts", witness.starts);
      break;
    case BoundWitness::MemoryLimit:
      json.attribute("node", witness.node);
      json.attribute("lane", witness.lane);
      break;
    }
    // Lemma 29 needs no heads and tails, and sums of all work none either.
    bool needsTimes = witness.argument != BoundWitness::Deferral &&
                      (witness.argument != BoundWitness::OneMachine || witness.head + witness.tail > 0);
    if (!needsTimes || witness.levels.empty())
      return;
    for (StringRef name : {"heads", "tails"})
      json.attributeArray(name, [&] {
        for (const LevelReason &level : witness.levels)
          if ((level.of == LevelReason::Tail || level.of == LevelReason::LaneTail) == (name == "tails"))
            json.array([&] {
              for (int64_t value :
                   {int64_t(level.node), int64_t(momentOf(level)), int64_t(level.lane), level.from, level.value})
                json.value(value);
            });
      });
  }

  /// A start has three moments: its turn, its collective, and its issue. Other nodes have one.
  int32_t momentOf(const LevelReason &level) const {
    if (problem.nodes[level.node].kind != NodeKind::Start)
      return 0;
    switch (level.of) {
    case LevelReason::Head:
      return 0;
    case LevelReason::Begin:
    case LevelReason::LaneTail:
      return 1;
    case LevelReason::Exit:
    case LevelReason::Tail:
      return 2;
    }
    llvm_unreachable("unknown time");
  }

  const Problem &problem;
  const Schedule &answer;
  /// The problem whose nodes the answer's order names.
  const Problem &carriedOut;
  const CertificateOptions &options;
  const BoundWitness witness;
  const std::optional<RegretProof> regret;
  std::optional<LoopMatch> match;
  const std::vector<AnswerEvent> events;
  /// The different demands, and their numbers, which begin at 1.
  std::vector<Demand> demands;
  std::map<std::pair<Shares, Shares>, int64_t> demandNumbers;
  /// The numbers of demands, by node, by bucket, by event, and of packs and unpacks.
  std::vector<int64_t> nodeDemands, bucketDemands, eventDemands;
  int64_t copyDemand = 0;
  /// Of packs and unpacks: bytes read, bytes written, ns.
  std::set<Sample> copySamples;
  /// Indexed by merge key: of packed starts.
  std::vector<std::vector<CostSample>> packedSamples;
  /// Indexed by merge key: bytes, members and ns of coalesced starts.
  std::vector<std::set<Sample>> coalescedSamples;
  raw_ostream &os;
};

} // namespace

void commsched::writeCertifiedProblem(json::OStream &json, const Problem &problem, const BoundWitness &witness) {
  const Schedule nothing;
  const CertificateOptions options = {/*bucketing=*/true};
  CertificateWriter(problem, witness, nothing, options, nulls()).writeProblem(json);
}

CertifiedClaims commsched::writeCertificate(StringRef block, const Problem &problem, const Schedule &answer,
                                            const CertificateOptions &options, raw_ostream &os) {
  CertificateWriter writer(problem, answer, options, os);
  writer.write(block);
  return writer.claims();
}

void commsched::writeCertificateHeader(int64_t blocks, StringRef inputHash, StringRef outputHash, Numerics numerics,
                                       const std::map<std::string, std::vector<std::vector<int64_t>>> &groups,
                                       raw_ostream &os) {
  json::OStream json(os);
  json.object([&] {
    json.attribute("format", "commsched-certificate");
    json.attribute("version", kCertificateVersion);
    json.attribute("blocks", blocks);
    json.attribute("input_sha256", inputHash);
    json.attribute("output_sha256", outputHash);
    if (numerics != Numerics::Exact)
      json.attribute("numerics", stringify(numerics));
    json.attributeObject("groups", [&] {
      for (const auto &group : groups)
        json.attributeArray(group.first, [&] {
          for (const std::vector<int64_t> &runs : group.second)
            json.array([&] { for_each(runs, [&](int64_t value) { json.value(value); }); });
        });
    });
  });
  os << "\n";
}
