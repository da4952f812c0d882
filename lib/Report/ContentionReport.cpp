//===- ContentionReport.cpp - Contention in a report ------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The slow-down of an order is its makespan less what it would take if nothing disturbed anything else.
//
//===------------------------------------------------------------------------------------------===//

#include "ContentionReport.h"
#include "llvm/Support/FormatVariadic.h"

using namespace commsched;

std::optional<BlockContention> commsched::measureContention(const Problem &problem, const Timeline &timeline) {
  if (!problem.hasContention())
    return std::nullopt;
  BlockContention result;
  result.undisturbed = undisturbedMakespanOf(problem, identityOrder(problem));
  result.uses = timeline.uses;
  for (unsigned resource = 0; resource < kNumResources; ++resource) {
    Wide used = 0;
    for (size_t at = 0; at + 1 < result.uses.size(); ++at)
      used += static_cast<Wide>(result.uses[at].share[resource]) * (result.uses[at + 1].begin - result.uses[at].begin);
    if (timeline.makespan > 0)
      result.average[resource] = static_cast<int32_t>(used / timeline.makespan);
  }
  return result;
}

/// What is said of a side without contention.
static BlockContention contentionOf(const BlockSnapshot &side) {
  BlockContention none;
  none.undisturbed = side.makespan;
  return side.contention.value_or(none);
}

llvm::json::Object commsched::contentionToJSON(const BlockReport &block) {
  BlockContention before = contentionOf(block.before), after = contentionOf(block.after);
  auto sides = [](int64_t first, int64_t second) { return llvm::json::Object{{"before", first}, {"after", second}}; };
  llvm::json::Object use;
  for (unsigned resource = 0; resource < kNumResources; ++resource)
    if (int32_t first = before.average[resource], second = after.average[resource]; first > 0 || second > 0)
      use[stringify(static_cast<Resource>(resource))] =
          sides(first / (kWhole / kPermille), second / (kWhole / kPermille));
  return llvm::json::Object{
      {"slowdown_ns", sides(block.before.makespan - before.undisturbed, block.after.makespan - after.undisturbed)},
      {"undisturbed_ns", sides(before.undisturbed, after.undisturbed)},
      {"use_permille", std::move(use)}};
}

void commsched::printContention(const BlockReport &block, llvm::raw_ostream &os) {
  if (!block.before.contention && !block.after.contention)
    return;
  BlockContention before = contentionOf(block.before), after = contentionOf(block.after);
  auto describe = [](const BlockSnapshot &side, const BlockContention &contention) {
    Ns slowdown = side.makespan - contention.undisturbed;
    double percent = side.makespan > 0 ? 100.0 * static_cast<double>(slowdown) / static_cast<double>(side.makespan) : 0;
    return llvm::formatv("{0} ({1:f1} %)", formatNs(slowdown), percent).str();
  };
  os << "  contention    before " << describe(block.before, before) << ", after " << describe(block.after, after)
     << " of the makespan is slow-down\n";
  os << "  in use       ";
  for (unsigned resource = 0; resource < kNumResources; ++resource)
    if (int32_t first = before.average[resource], second = after.average[resource]; first > 0 || second > 0)
      os << llvm::formatv(" {0} {1:f0} % -> {2:f0} %", stringify(static_cast<Resource>(resource)), first / 1e4,
                          second / 1e4);
  os << "\n";
}
