//===- XlaEstimates.cpp - Times that XLA's own estimator gave a module ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Frontends/Hlo/Graph/XlaEstimates.h"
#include "CommSched/Support/Arithmetic.h"
#include "HloCosts.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/JSON.h"
#include <cmath>

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

/// The field of a configuration with the times, as XLA writes it if there are some.
static constexpr StringLiteral kField = R"("reification_cost":[)";

/// The time of an instruction by the estimator that XLA's scheduler asks ("sol", speed of light), ns.
static std::optional<Ns> estimateOf(const HloInstruction &instruction) {
  if (!instruction.backendConfig.contains(kField))
    return std::nullopt;
  json::Value config = parseConfig(instruction.backendConfig);
  const json::Object *object = config.getAsObject();
  const json::Array *entries = object ? object->getArray("reification_cost") : nullptr;
  if (!entries)
    return std::nullopt;
  for (const json::Value &entry : *entries) {
    const json::Object *fields = entry.getAsObject();
    if (!fields || fields->getString("name") != std::optional<StringRef>("sol"))
      continue;
    const double ns = fields->getNumber("exec_time_us").value_or(-1) * 1000;
    if (ns >= 0 && ns <= static_cast<double>(kMaxNs))
      return std::llround(ns);
  }
  return std::nullopt;
}

Expected<XlaEstimates> XlaEstimates::readFrom(const HloModule &module, const CostModel &model) {
  XlaEstimates result;
  HloCosts costs(module, model);
  for (const HloComputation &computation : module.computations)
    for (const HloInstruction &instruction : computation.instructions) {
      std::optional<Ns> time = estimateOf(*costs.wrappedBy(&instruction));
      if (!time)
        continue;
      Expected<std::optional<CollectiveCost>> collective = costs.ofCollective(instruction, computation);
      if (!collective)
        return collective.takeError();
      if (!*collective) {
        result.kernels[instruction.name] = *time;
        continue;
      }
      const Sample sample = {(*collective)->bytes, *time};
      const GroupShape &shape = (*collective)->shape;
      result.collectives[instruction.name] = sample;
      result.samples[{{shape.ranks, shape.nodes}, (*collective)->kind}].push_back(sample);
    }
  result.finish();
  return std::move(result);
}

void XlaEstimates::finish() {
  for (auto &[key, list] : samples) {
    llvm::sort(list);
    for (const Sample &sample : list) {
      auto [group, isNew] = groups.try_emplace(key.first, GroupFacts{sample.time, sample});
      GroupFacts &facts = group->second;
      facts.least = std::min(facts.least, sample.time);
      if (compareProducts(sample.time, facts.fastest.bytes, facts.fastest.time, sample.bytes) < 0)
        facts.fastest = sample;
    }
  }
}

std::optional<Ns> XlaEstimates::ofKernel(StringRef name) const {
  auto found = kernels.find(name);
  return found == kernels.end() ? std::nullopt : std::optional(found->second);
}

std::optional<Ns> XlaEstimates::ofCollective(StringRef name, CollectiveKind kind, GroupShape shape, Bytes bytes) const {
  if (auto own = collectives.find(name); own != collectives.end() && own->second.bytes == bytes)
    return own->second.time;
  const Group group = {shape.ranks, shape.nodes};
  auto found = samples.find({group, kind});
  if (found == samples.end())
    return std::nullopt;
  ArrayRef<Sample> list = found->second;
  const GroupFacts &facts = groups.at(group);
  const Sample *high = llvm::lower_bound(list, Sample{bytes, 0});
  if (high == list.end())
    return list.back().time + mulDiv(bytes - list.back().bytes, facts.fastest.time, facts.fastest.bytes);
  const Sample low = high == list.begin() ? Sample{0, facts.least} : high[-1];
  return low.time + mulDiv(high->time - low.time, bytes - low.bytes, std::max<Bytes>(high->bytes - low.bytes, 1));
}

std::string commsched::hlo::withoutEstimates(StringRef backendConfig) {
  std::string text = backendConfig.str();
  // An entry has no brackets in it.
  if (const size_t begin = text.find(kField); begin != std::string::npos)
    if (const size_t end = text.find(']', begin); end != std::string::npos)
      text.erase(begin + kField.size(), end - begin - kField.size());
  return text;
}
