//===- KinetoCollectives.cpp - Collectives in the traces of PyTorch's profiler ------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "KinetoCollectives.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

using namespace commsched;

namespace json = llvm::json;

//===-----------------------------------------------------------------------------------------===//
// Groups
//===-----------------------------------------------------------------------------------------===//

void ProcessGroups::read(const json::Object &info) {
  const json::Array *all = info.getArray("pg_config");
  if (!all)
    return;
  for (const json::Value &value : *all) {
    const json::Object *group = value.getAsObject();
    const json::Array *members = group ? group->getArray("ranks") : nullptr;
    if (!members)
      continue;
    std::vector<int64_t> list;
    for (const json::Value &member : *members)
      list.push_back(member.getAsInteger().value_or(-1));
    if (list.empty() || llvm::any_of(list, [](int64_t member) { return member < 0; }))
      continue;
    llvm::sort(list);
    ranks[group->getString("pg_name").value_or("").str()] = std::move(list);
  }
}

const std::vector<int64_t> *ProcessGroups::find(llvm::StringRef name) const {
  auto found = ranks.find(name.str());
  return found == ranks.end() ? nullptr : &found->second;
}

const std::vector<int64_t> *ProcessGroups::findOnly(std::optional<int64_t> size) const {
  const std::vector<int64_t> *only = nullptr;
  for (const auto &[name, members] : ranks) {
    if (size && static_cast<int64_t>(members.size()) != *size)
      continue;
    if (only && *only != members)
      return nullptr;
    only = &members;
  }
  return only;
}

//===-----------------------------------------------------------------------------------------===//
// Kinds and types
//===-----------------------------------------------------------------------------------------===//

/// The kind of a collective by its name in PyTorch: that of a functional collective, of a call of c10d, or of a
/// process group's record.
static std::optional<CollectiveKind> kindOf(llvm::StringRef name) {
  using Kind = std::optional<CollectiveKind>;
  return llvm::StringSwitch<Kind>(name)
      .Cases({"all_gather_into_tensor", "all_gather_into_tensor_out", "_allgather_base", "all_gather", "allgather",
              "allgather_into_tensor_coalesced"},
             CollectiveKind::AllGather)
      .Cases({"reduce_scatter_tensor", "reduce_scatter_tensor_out", "_reduce_scatter_base", "reduce_scatter",
              "reduce_scatter_tensor_coalesced"},
             CollectiveKind::ReduceScatter)
      .Cases({"all_reduce", "all_reduce_", "allreduce", "allreduce_coalesced"}, CollectiveKind::AllReduce)
      .Cases({"all_to_all_single", "all_to_all", "all_to_allv", "alltoall", "alltoall_base"}, CollectiveKind::AllToAll)
      .Cases({"broadcast", "broadcast_"}, CollectiveKind::Broadcast)
      .Case("reduce", CollectiveKind::Reduce)
      .Case("gather", CollectiveKind::Gather)
      .Case("scatter", CollectiveKind::Scatter)
      .Default(std::nullopt);
}

namespace {
/// An element type by its name in PyTorch ("BFloat16") or in MLIR ("bf16"), and its size.
struct ElementSize {
  llvm::StringLiteral torch, mlir;
  ElementType type;
  Bytes bytes;
};
} // namespace

static constexpr ElementSize kElementSizes[] = {
    {"Double", "f64", ElementType::F64, 8},
    {"Float", "f32", ElementType::F32, 4},
    {"BFloat16", "bf16", ElementType::BF16, 2},
    {"Half", "f16", ElementType::F16, 2},
    {"Float8_e4m3fn", "f8E4M3FN", ElementType::F8, 1},
    {"Float8_e5m2", "f8E5M2", ElementType::F8, 1},
    {"Long", "i64", ElementType::I64, 8},
    {"Int", "i32", ElementType::I32, 4},
    {"Short", "i16", ElementType::I16, 2},
    {"Char", "i8", ElementType::I8, 1},
    {"Byte", "ui8", ElementType::I8, 1},
    {"Bool", "si8", ElementType::I8, 1},
};

static const ElementSize *findElement(llvm::StringRef name) {
  const auto *found =
      llvm::find_if(kElementSizes, [&](const ElementSize &size) { return size.torch == name || size.mlir == name; });
  return found == std::end(kElementSizes) ? nullptr : found;
}

//===-----------------------------------------------------------------------------------------===//
// Devices
//===-----------------------------------------------------------------------------------------===//

/// The ranks in a text as "[0, 1, 2]"; empty if it is none, or was cut ("[0, 1, ...]").
static std::vector<int64_t> parseRanks(llvm::StringRef text) {
  std::vector<int64_t> ranks;
  if (!text.consume_front("[") || !text.consume_back("]"))
    return ranks;
  for (llvm::StringRef part : llvm::split(text, ',')) {
    int64_t rank = 0;
    if (part.trim().getAsInteger(10, rank) || rank < 0)
      return {};
    ranks.push_back(rank);
  }
  llvm::sort(ranks);
  return ranks;
}

std::optional<TracedCollective> commsched::readKernelCollective(const json::Object &arguments,
                                                                const ProcessGroups &groups, std::string &why) {
  std::optional<CollectiveKind> kind = kindOf(arguments.getString("Collective name").value_or(""));
  const ElementSize *element = findElement(arguments.getString("dtype").value_or(""));
  std::optional<int64_t> in = arguments.getInteger("In msg nelems"), out = arguments.getInteger("Out msg nelems");
  if (!kind || !element || !in || !out || *in < 0 || *out < 0) {
    why = "a collective whose kind, element type or size is not known";
    return std::nullopt;
  }
  std::vector<int64_t> ranks = parseRanks(arguments.getString("Process Group Ranks").value_or(""));
  if (ranks.empty())
    if (const std::vector<int64_t> *named = groups.find(arguments.getString("Process Group Name").value_or("")))
      ranks = *named;
  if (ranks.empty() || arguments.getInteger("Group size") != static_cast<int64_t>(ranks.size())) {
    why = "the trace does not tell the ranks of its group";
    return std::nullopt;
  }
  bool gathers = *kind == CollectiveKind::AllGather || *kind == CollectiveKind::Gather;
  constexpr int64_t most = int64_t(1) << 50;
  return TracedCollective{*kind, element->type, std::min(gathers ? *out : *in, most) * element->bytes,
                          std::move(ranks)};
}

void commsched::addDeviceCollectives(llvm::ArrayRef<HostEvent> events, const std::map<int64_t, size_t> &byId,
                                     std::vector<DeviceEvent> &kernels, TracedRank &rank, TraceSamples &samples) {
  llvm::stable_sort(kernels, [](const DeviceEvent &a, const DeviceEvent &b) { return a.begin < b.begin; });
  // One call that communicates several tensors is not what one collective of their bytes is.
  auto isCoalesced = [&](const DeviceEvent &kernel) {
    auto found = kernel.id ? byId.find(*kernel.id) : byId.end();
    for (size_t index = found == byId.end() ? HostEvent::kNone : found->second; index != HostEvent::kNone;
         index = events[index].parent) {
      llvm::StringRef name = events[index].name;
      if (name.starts_with("_c10d_functional::") && name.ends_with("_coalesced"))
        return true;
    }
    return false;
  };
  for (const DeviceEvent &kernel : kernels) {
    if (!kernel.collective && kernel.why.empty())
      continue;
    if (!kernel.collective)
      samples.addUnmatched(kernel.name, kernel.why, kernel.duration);
    else if (isCoalesced(kernel))
      samples.addUnmatched(kernel.name, "one call with several collectives", kernel.duration);
    else if (kernel.duration == 0)
      samples.addUnmatched(kernel.name, "it took no time", 0);
    else
      rank.calls[*kernel.collective].push_back(kernel.duration);
  }
}

//===-----------------------------------------------------------------------------------------===//
// Hosts
//===-----------------------------------------------------------------------------------------===//

/// What gloo calls a collective of this kind: it sums up everything to scatter it.
static llvm::StringRef glooName(CollectiveKind kind) {
  switch (kind) {
  case CollectiveKind::AllGather:
    return "gloo:all_gather";
  case CollectiveKind::AllReduce:
  case CollectiveKind::ReduceScatter:
    return "gloo:all_reduce";
  case CollectiveKind::AllToAll:
    return "gloo:all_to_all";
  case CollectiveKind::Broadcast:
    return "gloo:broadcast";
  default:
    return "";
  }
}

/// The bytes of a tensor as "64x256xf32".
static std::optional<std::pair<ElementType, Bytes>> bytesOf(llvm::StringRef operand) {
  auto [dims, name] = operand.rsplit('x');
  const ElementSize *element = findElement(name);
  if (!element)
    return std::nullopt;
  Wide bytes = element->bytes;
  for (llvm::StringRef dim : llvm::split(dims, 'x')) {
    int64_t size = 0;
    if (dim.getAsInteger(10, size) || size < 0)
      return std::nullopt;
    bytes = std::min<Wide>(bytes * size, kMaxNs);
  }
  return std::pair(element->type, static_cast<Bytes>(bytes));
}

/// The ranks of the group of a start. Gathers and scatters have its size among their numbers.
static const std::vector<int64_t> *groupOf(const HostEvent &start, CollectiveKind kind, const ProcessGroups &groups) {
  std::optional<int64_t> size;
  if (kind == CollectiveKind::AllGather || kind == CollectiveKind::ReduceScatter)
    for (llvm::StringRef text : start.concrete)
      if (int64_t number = 0; !text.getAsInteger(10, number))
        size = number;
  return groups.findOnly(size);
}

namespace {
/// The starts and the events of gloo with one operand, each in the order of their times.
struct HostCalls {
  std::vector<const HostEvent *> starts, runs;
};
} // namespace

static llvm::StringRef functionalName(const HostEvent &event) {
  llvm::StringRef name = event.name;
  return name.consume_front("_c10d_functional::") ? name : llvm::StringRef();
}

/// Adds the calls with one operand. Without a start for each event, nobody knows which is which.
static void addCalls(const std::string &operand, const HostCalls &calls, const ProcessGroups &groups, TracedRank &rank,
                     TraceSamples &samples) {
  std::string why;
  if (calls.starts.size() != calls.runs.size())
    why = std::to_string(calls.starts.size()) + " calls of compiled graphs start " + std::to_string(calls.runs.size()) +
          " of them";
  for (auto [index, run] : llvm::enumerate(calls.runs)) {
    if (!why.empty()) {
      samples.addUnmatched(run->name + " of " + operand, why, run->duration);
      continue;
    }
    const HostEvent &start = *calls.starts[index];
    std::optional<CollectiveKind> kind = kindOf(functionalName(start));
    std::optional<std::pair<ElementType, Bytes>> input = bytesOf(operand);
    const std::vector<int64_t> *ranks = kind ? groupOf(start, *kind, groups) : nullptr;
    if (!kind || glooName(*kind) != run->name)
      samples.addUnmatched(run->name + " of " + operand, "it is not what " + start.name + " starts", run->duration);
    else if (!ranks || !input)
      samples.addUnmatched(run->name + " of " + operand, "the trace does not tell its group or element type",
                           run->duration);
    else if (run->duration == 0)
      samples.addUnmatched(run->name + " of " + operand, "it took no time", 0);
    else {
      auto size = static_cast<int64_t>(ranks->size());
      Bytes bytes = *kind == CollectiveKind::AllGather ? input->second * size : input->second;
      rank.calls[{*kind, input->first, bytes, *ranks}].push_back(run->duration);
    }
  }
}

void commsched::addHostCollectives(llvm::ArrayRef<HostEvent> events, const ProcessGroups &groups, TracedRank &rank,
                                   TraceSamples &samples) {
  std::vector<const HostEvent *> ordered;
  for (const HostEvent &event : events)
    ordered.push_back(&event);
  llvm::stable_sort(ordered, [](const HostEvent *a, const HostEvent *b) { return a->begin < b->begin; });
  std::map<std::string, HostCalls> byOperand;
  for (const HostEvent *event : ordered) {
    llvm::StringRef name = event->name, functional = functionalName(*event);
    bool isRun = name.starts_with("gloo:"), isStart = !functional.empty() && functional != "wait_tensor";
    if (!isRun && !isStart)
      continue;
    if (event->operands.size() != 1) {
      if (isRun)
        samples.addUnmatched(event->name, "it communicates several tensors, or the trace has no operand of it",
                             event->duration);
      continue;
    }
    HostCalls &calls = byOperand[event->operands.front()];
    (isRun ? calls.runs : calls.starts).push_back(event);
  }
  for (const auto &[operand, calls] : byOperand)
    addCalls(operand, calls, groups, rank, samples);
}
