//===- HloImportForms.cpp - Collectives of XLA as those of the dialect ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Finds the operation, the group and the attributes of a collective, if the dialect has it for these shapes.
//
//===------------------------------------------------------------------------------------------===//

#include "HloImporter.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <numeric>

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

Leaves commsched::hlo::leavesOf(const HloShape &shape) {
  Leaves leaves;
  shape.appendLeaves(leaves);
  return leaves;
}

/// The dialect's name of what a collective does with two elements; none if it has none.
std::optional<std::string> Importer::reductionOf(const HloInstruction &collective) const {
  if (collective.called.size() != 1)
    return std::nullopt;
  const HloComputation &reduction = module.computations[collective.called[0]];
  StringRef opcode = reduction.instructions[reduction.root].opcode;
  if (opcode == "add")
    return "sum";
  if (opcode == "maximum")
    return "max";
  if (opcode == "minimum")
    return "min";
  return std::nullopt;
}

/// The attribute of a group. None if the groups do not cover all ranks from 0 on, or differ in size.
std::optional<std::string> Importer::groupOf(const DeviceGroups &groups) {
  std::vector<bool> seen;
  std::string attribute = "#comm.ranks<[";
  int64_t count = 0;
  for (const std::vector<int64_t> &group : groups)
    count += static_cast<int64_t>(group.size());
  seen.assign(count, false);
  for (const std::vector<int64_t> &group : groups) {
    if (group.size() != groups.front().size())
      return std::nullopt;
    attribute += attribute.back() == '[' ? "[" : ", [";
    for (auto [i, rank] : enumerate(group)) {
      if (rank >= count || seen[rank])
        return std::nullopt;
      seen[rank] = true;
      attribute += (i == 0 ? "" : ", ") + std::to_string(rank);
    }
    attribute += "]";
  }
  return attribute + "]>";
}

std::string Importer::groupOfAll(int64_t devices) {
  std::vector<int64_t> all(devices);
  std::iota(all.begin(), all.end(), 0);
  return *groupOf({all});
}

std::string Importer::groupOfEach(int64_t devices) {
  DeviceGroups groups;
  for (int64_t device = 0; device < devices; ++device)
    groups.push_back({device});
  return *groupOf(groups);
}

/// Whether `result` is `given` with a dimension multiplied by `factor`.
static bool isMultiplied(const HloShape &given, const HloShape &result, int64_t dim, int64_t factor) {
  if (dim < 0 || dim >= static_cast<int64_t>(given.dimensions.size()) ||
      result.dimensions.size() != given.dimensions.size())
    return false;
  SmallVector<int64_t, 4> expected(given.dimensions);
  expected[dim] *= factor;
  return ArrayRef<int64_t>(expected) == ArrayRef<int64_t>(result.dimensions);
}

/// What a collective makes: its shape, but for pairs whose shape is (what they read, what they make, ...).
Leaves Importer::resultLeavesOf(const HloInstruction &start) const {
  const HloInstruction &wrapped = *costs.wrappedBy(&start);
  bool isPair = &wrapped == &start && isStart(start) && !start.is("all-reduce-start");
  return leavesOf(isPair && wrapped.shape.elements.size() > 1 ? wrapped.shape.elements[1] : wrapped.shape);
}

/// The numbers of "{{0,1},{1,2}}".
static std::vector<int64_t> numbersIn(StringRef text) {
  std::vector<int64_t> numbers;
  while (!text.empty()) {
    text = text.drop_until([](char c) { return isDigit(c); });
    int64_t number = 0;
    if (text.consumeInteger(10, number))
      break;
    numbers.push_back(number);
  }
  return numbers;
}

std::optional<std::vector<int64_t>> commsched::hlo::pairsOf(const HloInstruction &instruction) {
  Expected<std::vector<int64_t>> read = readPairs(instruction.groups);
  if (!read) {
    consumeError(read.takeError());
    return std::nullopt;
  }
  std::vector<int64_t> pairs = std::move(*read);
  // A message says them as a user's attribute: "_xla_send_recv_source_target_pairs", then "{{0,1},{1,2}}".
  if (pairs.empty()) {
    StringRef attribute = instruction.frontendAttributes.split("_xla_send_recv_source_target_pairs").second;
    StringRef list = attribute.substr(attribute.find("{{"));
    pairs = numbersIn(list.take_front(list.find("}}")));
  }
  std::set<int64_t> sources, targets;
  for (size_t i = 0; i + 1 < pairs.size(); i += 2)
    if (!sources.insert(pairs[i]).second || !targets.insert(pairs[i + 1]).second)
      return std::nullopt;
  if (pairs.empty() || pairs.size() % 2 != 0 || any_of(pairs, [](int64_t id) { return id < 0 || id >= kMaxDevices; }))
    return std::nullopt;
  return pairs;
}

std::optional<CommForm> Importer::permutation(ArrayRef<int64_t> pairs) {
  int64_t last = *std::max_element(pairs.begin(), pairs.end());
  std::string suffix = " pairs [";
  for (auto [i, place] : enumerate(pairs))
    suffix += (i == 0 ? "" : ", ") + std::to_string(place);
  return CommForm{"comm.permute", groupOfAll(std::max(module.devices, last + 1)), suffix + "]", CommForm::Fit::Exact};
}

/// The dialect's form of a collective; none if it does not have one for these shapes.
Expected<std::optional<CommForm>> Importer::formOf(const HloInstruction &start, const Scope &scope) {
  const HloInstruction &wrapped = *costs.wrappedBy(&start);
  Expected<DeviceGroups> groups = groupsOf(module, wrapped.groups);
  if (!groups)
    return createStringError("'" + start.name + "': " + toString(groups.takeError()));
  StringRef kind = wrapped.opcode;
  kind.consume_back("-start");
  int64_t ranks = static_cast<int64_t>(groups->front().size());
  int64_t dim = wrapped.dimensions.empty() ? 0 : wrapped.dimensions[0];
  Leaves given, results;
  for (int32_t operand : start.operands)
    append_range(given, leavesOf(scope.computation.instructions[operand].shape));
  results = resultLeavesOf(start);
  std::optional<std::string> group = kind == "collective-permute" ? std::nullopt : groupOf(*groups);
  // Only the first operand travels, in equal parts, and the others say where its rows arrive.
  if (kind == "ragged-all-to-all" && group && given.size() == 6 && results.size() == 1 &&
      isMultiplied(*given[1], *results[0], 0, 1) && !given[0]->dimensions.empty() &&
      given[0]->dimensions[0] % ranks == 0)
    return CommForm{"comm.all_to_all", *group, "", CommForm::Fit::Ragged};
  if (given.empty() || given.size() != results.size())
    return std::nullopt;
  auto all = [&](auto fits) {
    return llvm::all_of(zip(given, results), [&](auto pair) { return fits(*std::get<0>(pair), *std::get<1>(pair)); });
  };
  auto isSame = [](const HloShape &a, const HloShape &b) {
    return a.dimensions == b.dimensions && a.elementType == b.elementType;
  };
  if (std::optional<std::vector<int64_t>> pairs = pairsOf(wrapped);
      kind == "collective-permute" && pairs && all(isSame))
    return permutation(*pairs);
  if (!group)
    return std::nullopt;
  std::optional<std::string> reduction = reductionOf(wrapped);
  std::string along = " dim " + std::to_string(dim);
  auto exact = [&](const std::string &prefix, const std::string &suffix) {
    return CommForm{prefix, *group, suffix, CommForm::Fit::Exact};
  };
  if (kind == "all-gather" && all([&](auto &a, auto &b) { return isMultiplied(a, b, dim, ranks); }))
    return exact("comm.all_gather", along);
  if (kind == "reduce-scatter" && reduction && all([&](auto &a, auto &b) { return isMultiplied(b, a, dim, ranks); }))
    return exact("comm.reduce_scatter " + *reduction, along);
  if (kind == "all-reduce" && reduction && all([](auto &a, auto &b) { return a.dimensions == b.dimensions; }))
    return exact("comm.all_reduce " + *reduction, "");
  if (kind == "collective-broadcast" && all(isSame))
    return exact("comm.broadcast", " root 0");
  if (kind != "all-to-all")
    return std::nullopt;
  if (given.size() == 1 && isMultiplied(*given[0], *results[0], dim, 1) && given[0]->dimensions[dim] % ranks == 0) {
    std::string at = std::to_string(dim);
    return exact("comm.all_to_all", " split " + at + " concat " + at);
  }
  // Of a tuple, each operand is the piece for one rank.
  if (static_cast<int64_t>(given.size()) == ranks && all(isSame) &&
      llvm::all_of(given, [&](const HloShape *shape) { return isSame(*shape, *given[0]); }))
    return CommForm{"comm.all_to_all", *group, " split 0 concat 0", CommForm::Fit::Packed};
  return std::nullopt;
}
