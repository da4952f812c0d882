//===- ChakraNodes.cpp - Execution traces of Chakra, rank by rank -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// From steps to the messages of schema/protobuf/et_def.proto of mlcommons/chakra: one GlobalMetadata, then the nodes,
// each with its length in front. Attributes have the names and types that src/converter/pytorch_converter.py gives them
// and that src/feeder reads.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Report/ChakraTrace.h"
#include "ProtobufMessage.h"
#include "llvm/ADT/SmallVector.h"

using namespace llvm;
using namespace commsched;

namespace {

/// The version of the schema, as Chakra's own generator writes it (src/generator/generator.py).
constexpr StringLiteral kSchemaVersion = "0.0.4";

/// NodeType of the schema.
enum class NodeType : uint64_t { Compute = 4, Send = 5, Receive = 6, Collective = 7 };

/// Numbers of the fields of the schema's messages that are written.
namespace metadata {
constexpr unsigned kVersion = 1, kAttribute = 2;
} // namespace metadata
namespace node {
constexpr unsigned kId = 1, kName = 2, kType = 3, kControl = 4, kData = 5, kStart = 6, kDuration = 7, kAttribute = 10;
} // namespace node
namespace attribute {
constexpr unsigned kName = 1, kInt32 = 7, kInt64 = 9, kBool = 27, kString = 29;
} // namespace attribute

/// CollectiveCommType of the schema. Messages have none: they are nodes of other types.
uint64_t typeOf(CollectiveKind kind) {
  switch (kind) {
  case CollectiveKind::AllReduce:
    return 0;
  case CollectiveKind::Reduce:
    return 1;
  case CollectiveKind::AllGather:
    return 2;
  case CollectiveKind::Gather:
    return 3;
  case CollectiveKind::Scatter:
    return 4;
  case CollectiveKind::Broadcast:
    return 5;
  case CollectiveKind::AllToAll:
    return 6;
  case CollectiveKind::ReduceScatter:
    return 7;
  case CollectiveKind::Barrier:
    return 9;
  case CollectiveKind::Permute:
  case CollectiveKind::Send:
  case CollectiveKind::Recv:
    break;
  }
  llvm_unreachable("messages have no type of a collective");
}

/// The schema's unit of time, rounded. Begins and ends are rounded, not durations, so errors do not add up.
uint64_t roundToMicroseconds(Ns ns) { return static_cast<uint64_t>((ns + 500) / 1000); }

/// What one rank does in a step.
struct Part {
  NodeType type = NodeType::Compute;
  /// The other rank of a message; -1 of all else.
  int64_t other = -1;
};

class RankWriter {
public:
  RankWriter(ArrayRef<ChakraStep> steps, ArrayRef<ChakraGroup> groups, int64_t rank, bool orderAsData, raw_ostream &os)
      : steps(steps), groups(groups), rank(rank), orderAsData(orderAsData), os(os) {}

  void write(const ChakraStep &step);

private:
  SmallVector<Part, 2> partsOf(const ChakraStep &step) const;
  void addIds(ArrayRef<int32_t> before, SmallVectorImpl<uint64_t> &ids);
  void writeNode(const ChakraStep &step, uint64_t id, const Part &part, Ns begin, Ns end);

  ArrayRef<ChakraStep> steps;
  ArrayRef<ChakraGroup> groups;
  int64_t rank;
  bool orderAsData;
  raw_ostream &os;
  /// Indexed by step: when it ends, ns, and its number of nodes.
  SmallVector<Ns> ends;
  SmallVector<unsigned> counts;
};

template <class Add> void addAttribute(ProtobufMessage &to, unsigned field, StringRef name, Add add) {
  ProtobufMessage message;
  message.addString(attribute::kName, name);
  add(message);
  to.addMessage(field, message);
}

void addText(ProtobufMessage &to, unsigned field, StringRef name, StringRef text) {
  addAttribute(to, field, name, [&](ProtobufMessage &message) { message.addString(attribute::kString, text); });
}

void addNumber(ProtobufMessage &to, unsigned field, StringRef name, int64_t value, unsigned type = attribute::kInt64) {
  addAttribute(to, field, name,
               [&](ProtobufMessage &message) { message.addInteger(type, static_cast<uint64_t>(value)); });
}

} // namespace

/// What the rank does in a step: one part, or, of a permute, a send, a receive, both, or else a computation of no time.
SmallVector<Part, 2> RankWriter::partsOf(const ChakraStep &step) const {
  if (step.group < 0)
    return {Part{}};
  const ChakraGroup &group = groups[step.group];
  auto [index, place] = group.places[rank];
  auto rankAt = [&, index = index](int64_t other) { return group.partition.getRank(index, other); };
  if (step.kind == CollectiveKind::Send)
    return {{NodeType::Send, rankAt(step.peer)}};
  if (step.kind == CollectiveKind::Recv)
    return {{NodeType::Receive, rankAt(step.peer)}};
  if (step.kind != CollectiveKind::Permute)
    return {{NodeType::Collective, -1}};
  SmallVector<Part, 2> parts;
  for (size_t pair = 0; pair < step.pairs.size(); pair += 2) {
    int64_t source = step.pairs[pair], target = step.pairs[pair + 1];
    if (source == target)
      continue;
    if (source == place)
      parts.insert(parts.begin(), {NodeType::Send, rankAt(target)});
    if (target == place)
      parts.push_back({NodeType::Receive, rankAt(source)});
  }
  if (parts.empty())
    parts.push_back({});
  return parts;
}

void RankWriter::addIds(ArrayRef<int32_t> before, SmallVectorImpl<uint64_t> &ids) {
  for (int32_t step : before)
    for (unsigned part = 0; part < counts[step]; ++part)
      ids.push_back(steps[step].id + part);
}

void RankWriter::writeNode(const ChakraStep &step, uint64_t id, const Part &part, Ns begin, Ns end) {
  SmallVector<uint64_t> control, data;
  addIds(step.data, data);
  addIds(step.control, orderAsData ? data : control);
  sort(data);
  ProtobufMessage message;
  message.addInteger(node::kId, id);
  message.addString(node::kName, step.name);
  message.addInteger(node::kType, static_cast<uint64_t>(part.type));
  message.addIntegers(node::kControl, control);
  message.addIntegers(node::kData, data);
  message.addInteger(node::kStart, roundToMicroseconds(begin));
  message.addInteger(node::kDuration, roundToMicroseconds(end) - roundToMicroseconds(begin));
  addAttribute(message, node::kAttribute, "is_cpu_op",
               [](ProtobufMessage &attr) { attr.addInteger(attribute::kBool, false); });
  addText(message, node::kAttribute, "op", step.operation);
  addNumber(message, node::kAttribute, "duration_ns", end - begin);
  if (part.type != NodeType::Compute) {
    const ChakraGroup &group = groups[step.group];
    addNumber(message, node::kAttribute, "comm_size", step.bytes);
    addText(message, node::kAttribute, "pg_name", std::to_string(group.number + group.places[rank].first));
    addText(message, node::kAttribute, "pg_desc", group.name);
  }
  if (part.type == NodeType::Collective)
    addNumber(message, node::kAttribute, "comm_type", static_cast<int64_t>(typeOf(step.kind)));
  if (part.other >= 0) {
    bool sends = part.type == NodeType::Send;
    addNumber(message, node::kAttribute, "comm_src", sends ? rank : part.other, attribute::kInt32);
    addNumber(message, node::kAttribute, "comm_dst", sends ? part.other : rank, attribute::kInt32);
    addNumber(message, node::kAttribute, "comm_tag", step.tag, attribute::kInt32);
  }
  message.writeDelimited(os);
}

void RankWriter::write(const ChakraStep &step) {
  Ns begin = 0;
  for (const std::vector<int32_t> *list : {&step.data, &step.control})
    for (int32_t before : *list)
      begin = std::max(begin, ends[before]);
  SmallVector<Part, 2> parts = partsOf(step);
  bool takesPart = step.group < 0 || parts.front().type != NodeType::Compute;
  Ns end = begin + (takesPart ? step.duration : 0);
  for (auto [index, part] : enumerate(parts))
    writeNode(step, step.id + index, part, begin, end);
  ends.push_back(end);
  counts.push_back(parts.size());
}

void ChakraTrace::write(int64_t rank, raw_ostream &os) const {
  ProtobufMessage header;
  header.addString(metadata::kVersion, kSchemaVersion);
  addText(header, metadata::kAttribute, "producer", "CommSched");
  addText(header, metadata::kAttribute, "function", function);
  addText(header, metadata::kAttribute, "machine", options.machine);
  addNumber(header, metadata::kAttribute, "rank", rank);
  addNumber(header, metadata::kAttribute, "ranks", numRanks);
  addNumber(header, metadata::kAttribute, "makespan_ns", makespan);
  header.writeDelimited(os);
  RankWriter writer(steps, groups, rank, options.orderAsData, os);
  for (const ChakraStep &step : steps)
    writer.write(step);
}

void ChakraTrace::writeGroups(raw_ostream &os) const {
  json::OStream json(os, /*IndentSize=*/0);
  json.object([&] {
    for (const ChakraGroup &group : groups)
      for (int64_t index = 0; index < group.partition.getNumGroups(); ++index)
        json.attributeArray(std::to_string(group.number + index), [&] {
          for (int64_t place = 0; place < group.partition.getGroupSize(); ++place)
            json.value(group.partition.getRank(index, place));
        });
  });
  os << "\n";
}
