//===- Certificate.cpp - A schedule with all that proves it ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One JSON object for each section. Columns that are mostly the same hold pairs: the index of an entry, and its value.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Report/Certificate.h"
#include "CommSched/Scheduling/Bounds/BoundWitness.h"
#include "CommSched/Scheduling/Model/AnswerEvents.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/JSON.h"

using namespace llvm;
using namespace commsched;

namespace {

class CertificateWriter {
public:
  CertificateWriter(const Problem &problem, const Schedule &answer, const CertificateOptions &options, raw_ostream &os)
      : problem(problem), answer(answer), options(options), os(os) {}

  void write(StringRef block) {
    section("block", [&](json::OStream &json) {
      json.attribute("name", block);
      json.attribute("collective_order", stringify(options.collectiveOrder));
      json.attribute("bucketing", options.bucketing);
    });
    writeLanes();
    writeNodes();
    section("edges", [&](json::OStream &json) {
      // How far each node is behind those that it depends on.
      lists(json, "distances", problem.size(), [&](int32_t id, int32_t pred) { return id - pred; }, problem.preds);
    });
    writeBuffers();
    writeMerging();
    writeAnswer();
    section("claims", [&](json::OStream &json) {
      // A certificate is about undisturbed times, as its witness is.
      json.attribute("makespan_ns", problem.hasContention()
                                        ? undisturbedMakespanOf(answer.carriedOut(problem), answer.order)
                                        : answer.claims->makespan);
      json.attribute("peak_bytes", answer.claims->peak);
      if (answer.limit < kUnlimited)
        json.attribute("limit_bytes", answer.limit);
    });
    writeBound();
  }

private:
  void section(StringRef name, function_ref<void(json::OStream &)> body) {
    json::OStream json(os);
    json.object([&] {
      json.attribute("section", name);
      body(json);
    });
    os << "\n";
  }

  static void values(json::OStream &json, ArrayRef<int64_t> list) {
    json.array([&] {
      for (int64_t value : list)
        json.value(value);
    });
  }

  /// One value for each of `count` entries.
  static void column(json::OStream &json, StringRef name, int32_t count, function_ref<int64_t(int32_t)> valueOf) {
    json.attributeArray(name, [&] {
      for (int32_t id = 0; id < count; ++id)
        json.value(valueOf(id));
    });
  }

  /// The indices and values of the entries that differ from `usual`; nothing if there are none.
  static void sparse(json::OStream &json, StringRef name, int32_t count, int64_t usual,
                     function_ref<int64_t(int32_t)> valueOf) {
    SmallVector<int64_t> pairs;
    for (int32_t id = 0; id < count; ++id)
      if (int64_t value = valueOf(id); value != usual)
        pairs.append({id, value});
    if (!pairs.empty())
      json.attributeBegin(name), values(json, pairs), json.attributeEnd();
  }

  /// A list of numbers for each of `count` rows.
  static void lists(json::OStream &json, StringRef name, int32_t count, function_ref<int32_t(int32_t, int32_t)> valueOf,
                    const IndexLists &rows) {
    json.attributeArray(name, [&] {
      for (int32_t row = 0; row < count; ++row)
        json.array([&] {
          for (int32_t value : rows[row])
            json.value(valueOf(row, value));
        });
    });
  }

  void writeLanes() {
    section("lanes", [&](json::OStream &json) {
      json.attributeArray("names", [&] {
        for (const std::string &name : problem.laneNames)
          json.value(name);
      });
      sparse(json, "busy_until_ns", static_cast<int32_t>(problem.busyUntil.size()), 0,
             [&](int32_t lane) { return problem.busyUntil[lane]; });
      if (problem.regions.empty())
        return;
      json.attributeArray("regions", [&] {
        for (const RegionWork &region : problem.regions)
          json.object([&] {
            json.attributeArray("lanes", [&] { for_each(region.lanes, [&](LaneId lane) { json.value(lane); }); });
            json.attributeArray("starts", [&] { for_each(region.starts, [&](NodeId id) { json.value(id); }); });
            json.attributeArray("groups", [&] { for_each(region.groups, [&](int32_t group) { json.value(group); }); });
            json.attribute("messages", region.pointToPoint);
          });
      });
    });
  }

  void writeNodes() {
    section("nodes", [&](json::OStream &json) {
      int32_t size = problem.size();
      std::string kinds;
      for (const Node &node : problem.nodes)
        kinds += "CSWH"[static_cast<size_t>(node.kind)];
      auto field = [&](auto member) {
        return [&, member](int32_t id) -> int64_t { return problem.nodes[id].*member; };
      };
      json.attribute("kinds", kinds);
      column(json, "cost_ns", size, field(&Node::cost));
      sparse(json, "lane", size, kComputeLane, field(&Node::lane));
      sparse(json, "issue_ns", size, 0, field(&Node::issue));
      sparse(json, "awaits", size, kNone, field(&Node::start));
      sparse(json, "ready_ns", size, 0, field(&Node::ready));
      sparse(json, "workspace_bytes", size, 0, field(&Node::workspace));
      sparse(json, "group", size, kNone, field(&Node::group));
      sparse(json, "region", size, kNone, field(&Node::region));
      sparse(json, "unit", size, kNone, field(&Node::unit));
      sparse(json, "pinned", size, 0, field(&Node::pinned));
      sparse(json, "messages", size, 0, [&](int32_t id) {
        const Node &node = problem.nodes[id];
        return node.kind == NodeKind::Start && isPointToPoint(node.collective);
      });
    });
  }

  void writeBuffers() {
    section("buffers", [&](json::OStream &json) {
      int32_t count = static_cast<int32_t>(problem.buffers.size());
      column(json, "bytes", count, [&](int32_t id) { return problem.buffers[id].bytes; });
      column(json, "defined_by", count, [&](int32_t id) { return problem.buffers[id].def; });
      sparse(json, "live_out", count, 0, [&](int32_t id) { return problem.buffers[id].liveOut; });
      lists(json, "touched_by", count, [](int32_t, int32_t node) { return node; }, problem.users);
    });
  }

  /// What may be merged: only starts that every bucket rule accepts are members.
  void writeMerging() {
    if (!options.bucketing || problem.mergeKeys.empty())
      return;
    section("merging", [&](json::OStream &json) {
      json.attributeArray("keys", [&] {
        for (const MergeKey &key : problem.mergeKeys)
          json.object([&] {
            json.attribute("collective", stringify(key.kind));
            if (key.cap >= 0)
              json.attribute("cap_bytes", key.cap);
          });
      });
      json.attributeArray("members", [&] {
        for (NodeId start = 0; start < problem.size(); ++start) {
          const Node &node = problem.nodes[start];
          if (node.mergeKey == kNone || !isMergeable(problem, start))
            continue;
          const MergeMember &member = problem.members[start];
          NodeId cast = fusedCast(problem, start);
          Ns alone = std::max<Ns>(problem.mergeKeys[node.mergeKey].cost(node.bytes), 0);
          values(json, {start, node.mergeKey, member.wait, member.input, member.output, node.bytes, member.inputBytes,
                        member.outputBytes, cast, cast == kNone ? 0 : member.castInputBytes, alone});
        }
      });
    });
  }

  void writeAnswer() {
    section("answer", [&](json::OStream &json) {
      json.attributeArray("buckets", [&] {
        for (const Bucket &bucket : answer.buckets)
          json.object([&] {
            json.attribute("form", stringify(bucket.form));
            json.attributeArray("members", [&] { for_each(bucket.members, [&](NodeId id) { json.value(id); }); });
          });
      });
      // A node that runs by itself is its number; an event of a bucket has its own duration.
      json.attributeArray("events", [&] {
        static constexpr StringRef names[] = {"run", "pack", "start", "wait", "unpack", "view"};
        const Problem &carriedOut = answer.carriedOut(problem);
        NodeId place = 0;
        for (const AnswerEvent &event : eventsOf(answer)) {
          Ns cost = carriedOut.nodes[answer.order[place++]].cost;
          if (event.kind == AnswerEvent::Run) {
            json.value(event.node);
            continue;
          }
          json.array([&] {
            json.value(names[event.kind]);
            json.value(event.bucket);
            json.value(cost);
            for_each(event.members, [&](NodeId member) { json.value(member); });
          });
        }
      });
    });
  }

  void writeBound() {
    BoundOptions boundOptions;
    boundOptions.limit = answer.limit;
    BoundWitness witness = proveBound(problem, boundOptions, options.bucketing);
    section("bound", [&](json::OStream &json) {
      json.attribute("makespan_ns", witness.makespan);
      json.attribute("argument", stringify(witness.argument));
      if (witness.argument != BoundWitness::ThroughNode)
        json.attribute("lane", witness.lane);
      if (witness.node != kNone)
        json.attribute("node", witness.node);
      if (witness.argument == BoundWitness::OneMachine) {
        json.attribute("head_ns", witness.head);
        json.attribute("tail_ns", witness.tail);
      }
      if (witness.argument == BoundWitness::Deferral)
        json.attributeArray("starts", [&] { for_each(witness.starts, [&](NodeId id) { json.value(id); }); });
    });
    writeCharges(witness);
    writeLevels(witness);
  }

  void writeCharges(const BoundWitness &witness) {
    if (none_of(witness.samples, [](const KeySamples &samples) { return !samples.lane.empty(); }))
      return;
    section("charges", [&](json::OStream &json) {
      sparse(json, "lane_ns", problem.size(), kNone, [&](int32_t id) { return witness.laneCharges[id]; });
      sparse(json, "cast_ns", problem.size(), kNone, [&](int32_t id) { return witness.castCharges[id]; });
      sparse(json, "unpack_ns", problem.size(), kNone, [&](int32_t id) { return witness.unpackCharges[id]; });
      auto pairs = [&](StringRef name, ArrayRef<CostSample> samples) {
        if (samples.empty())
          return;
        json.attributeArray(name, [&] {
          for (const CostSample &sample : samples) {
            json.value(sample.bytes);
            json.value(sample.cost);
          }
        });
      };
      json.attributeArray("keys", [&] {
        for (const KeySamples &samples : witness.samples)
          json.object([&] {
            pairs("bytes_and_ns", samples.lane);
            pairs("packed_bytes_and_ns", samples.pack);
            pairs("small_unpack_bytes_and_ns", samples.smallUnpacks);
            pairs("large_unpack_bytes_and_ns", samples.largeUnpacks);
            if (!samples.pack.empty())
              json.attributeBegin("read_for_written"), values(json, {samples.read, samples.wrote}), json.attributeEnd();
          });
      });
    });
  }

  void writeLevels(const BoundWitness &witness) {
    // A load needs no heads, and Lemma 9 none either.
    if (witness.argument == BoundWitness::LaneLoad || witness.argument == BoundWitness::Deferral)
      return;
    section("levels", [&](json::OStream &json) {
      for (LevelReason::Time time :
           {LevelReason::Head, LevelReason::Begin, LevelReason::Exit, LevelReason::Tail, LevelReason::LaneTail})
        json.attributeArray(stringify(time), [&] {
          for (const LevelReason &level : witness.levels)
            if (level.of == time)
              values(json, {level.node, level.lane, level.from, level.value});
        });
    });
  }

  const Problem &problem;
  const Schedule &answer;
  const CertificateOptions &options;
  raw_ostream &os;
};

} // namespace

void commsched::writeCertificate(StringRef block, const Problem &problem, const Schedule &answer,
                                 const CertificateOptions &options, raw_ostream &os) {
  CertificateWriter(problem, answer, options, os).write(block);
}

void commsched::writeCertificateHeader(int64_t blocks, StringRef inputHash, StringRef outputHash, raw_ostream &os) {
  json::OStream json(os);
  json.object([&] {
    json.attribute("format", "commsched-certificate");
    json.attribute("version", kCertificateVersion);
    json.attribute("blocks", blocks);
    json.attribute("input_sha256", inputHash);
    json.attribute("output_sha256", outputHash);
  });
  os << "\n";
}
