//===- NcclOptions.cpp - Options of communicators from the environment -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// COMMRT_NCCL_GROUPS="dp:min=2,max=8;tp:policy=efficiency;*:max=16": groups by name, "*" for all others.
//
//===------------------------------------------------------------------------------------------===//

#include "NcclOptions.h"
#include "Nccl/Libraries/NcclSymbols.h"
#include <algorithm>
#include <cstdlib>
#include <iterator>

using namespace commsched::runtime;

/// NCCL's MAXCHANNELS: no communicator has more thread blocks.
static constexpr int mostCtas = 64;
/// The policy was new in 2.27, the one without thread blocks in 2.28.
static constexpr int policyVersion = 22700, zeroPolicyVersion = 22800;
/// From here on the order of launches within a graph can be left to the program.
static constexpr int graphOrderVersion = 23005;
static constexpr const char *policies[] = {"default", "efficiency", "zero"};
static constexpr int policyZero = 2;

std::string CtaOptions::text() const {
  std::string result;
  if (least != ncclUndefined && most != ncclUndefined)
    result = std::to_string(least) + " to " + std::to_string(most) + " CTAs";
  else if (most != ncclUndefined)
    result = "at most " + std::to_string(most) + " CTAs";
  else if (least != ncclUndefined)
    result = "at least " + std::to_string(least) + " CTAs";
  if (policy != ncclUndefined)
    result += (result.empty() ? "policy " : ", policy ") + std::string(policies[policy]);
  return result;
}

/// The parts between separators.
static std::vector<std::string> divide(const std::string &text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// A number from `least` to `most`; -1 for any other text.
static int64_t readNumber(const std::string &text, int64_t most, int64_t least = 1) {
  char *end = nullptr;
  long long value = std::strtoll(text.c_str(), &end, 10);
  return !text.empty() && !*end && value >= least && value <= most ? value : -1;
}

/// "max=8"; an error text if it is none.
static std::string readOption(const std::string &option, int version, CtaOptions &options) {
  size_t equals = option.find('=');
  std::string key = option.substr(0, equals), value = equals == std::string::npos ? "" : option.substr(equals + 1);
  if (key == "policy") {
    const auto *found = std::find(std::begin(policies), std::end(policies), value);
    if (found == std::end(policies))
      return "expected policy=default, efficiency or zero, got '" + option + "'";
    options.policy = static_cast<int>(found - std::begin(policies));
    int needed = options.policy == policyZero ? zeroPolicyVersion : policyVersion;
    if (version < needed)
      return "'" + option + "' needs NCCL " + ncclVersionText(needed) + ", and this is " + ncclVersionText(version);
    return "";
  }
  int64_t number = readNumber(value, mostCtas);
  if ((key != "min" && key != "max") || number < 0)
    return "expected min=N, max=N (1 to " + std::to_string(mostCtas) + ") or policy=NAME, got '" + option + "'";
  (key == "min" ? options.least : options.most) = static_cast<int>(number);
  return "";
}

std::string NcclOptions::read(int version) {
  auto refuse = [&](const std::string &text) { return "COMMRT_NCCL_GROUPS: " + text; };
  const char *given = std::getenv("COMMRT_NCCL_GROUPS");
  groups = given ? given : "";
  for (const std::string &entry : divide(groups, ';')) {
    if (entry.empty())
      continue;
    size_t colon = entry.find(':');
    if (colon == std::string::npos || colon == 0)
      return refuse("expected GROUP:OPTION,..., got '" + entry + "'");
    CtaOptions options;
    for (const std::string &option : divide(entry.substr(colon + 1), ','))
      if (std::string error = readOption(option, version, options); !error.empty())
        return refuse(error);
    if (options.least != ncclUndefined && options.most != ncclUndefined && options.least > options.most)
      return refuse("'" + entry + "' has a least number of CTAs above its greatest");
    ctas.emplace_back(entry.substr(0, colon), options);
  }
  for (auto [name, slot] :
       {std::pair("COMMRT_NCCL_RANKS_OF_ONE_ID", &ranksOfOneId), std::pair("COMMRT_NCCL_RANKS_PER_ID", &ranksPerId)})
    if (const char *text = std::getenv(name); text && *text) {
      *slot = readNumber(text, INT32_MAX);
      if (*slot < 0)
        return std::string(name) + " is '" + text + "', expected a number from 1";
    }
  if (const char *text = std::getenv("COMMRT_CHECK"); text && *text) {
    checkEvery = readNumber(text, INT32_MAX, 0);
    if (checkEvery < 0)
      return std::string("COMMRT_CHECK is '") + text + "', expected a number of starts, or 0";
  }
  const char *overlap = std::getenv("COMMRT_NCCL_GRAPH_OVERLAP");
  graphOverlap = overlap && *overlap && std::string(overlap) != "0";
  if (graphOverlap && version < graphOrderVersion)
    return "COMMRT_NCCL_GRAPH_OVERLAP needs NCCL " + ncclVersionText(graphOrderVersion) + ", and this is " +
           ncclVersionText(version);
  return "";
}

CtaOptions NcclOptions::ctasOf(const std::string &group) const {
  CtaOptions others;
  for (const auto &[name, options] : ctas) {
    if (name == group)
      return options;
    if (name == "*")
      others = options;
  }
  return others;
}

int32_t NcclOptions::identifiers(int32_t ranks) const {
  if (ranks <= ranksOfOneId)
    return 1;
  return static_cast<int32_t>((ranks + ranksPerId - 1) / ranksPerId);
}

int32_t commsched::runtime::makerOf(int32_t index, int32_t ranks, int32_t identifiers) {
  // NCCL deals ranks out in order, the first identifiers one more (rootIdFromRank in init.cc).
  int32_t each = ranks / identifiers, more = ranks % identifiers;
  return index * each + std::min(index, more);
}
