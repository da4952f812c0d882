//===- SecondOpinion.cpp - Schedules that XLA's own costs do not contradict -------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "SecondOpinion.h"
#include "Hlo/Schedule/BothCosts.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

namespace {

class Chooser {
public:
  Chooser(const HloModule &module, const TransformOptions &options, const XlaEstimates &estimates)
      : module(module), options(options), estimates(estimates) {}

  Expected<TransformResult> run(TransformResult first, ScheduleModule schedule) {
    Expected<BothCosts> times = playWithBothCosts(module, *options.model, estimates);
    if (!times)
      return times.takeError();
    given = std::move(*times);
    if (first.module.empty())
      return describe(std::move(first), given);
    Expected<std::optional<TransformResult>> taken = offer(std::move(first));
    for (const TransformOptions &other : otherSettings()) {
      if (!taken || *taken)
        break;
      if (TransformResult answer = schedule(other); !answer.module.empty())
        taken = offer(std::move(answer));
    }
    if (!taken)
      return taken.takeError();
    if (*taken)
      return std::move(**taken);
    TransformOptions kept = options;
    kept.rewrite = {false, false};
    kept.schedule.keepReason = "every faster order that was found is slower than the given one by XLA's costs";
    return describe(schedule(kept), given);
  }

private:
  /// Describes an answer if it is nowhere slower than the given module; returns none if it is.
  Expected<std::optional<TransformResult>> offer(TransformResult answer) {
    Expected<HloModule> read = readModule(answer.module);
    if (!read)
      return read.takeError();
    Expected<BothCosts> times = playWithBothCosts(*read, *options.model, estimates);
    if (!times)
      return times.takeError();
    if (times->isSlowerThan(given))
      return std::nullopt;
    return describe(std::move(answer), *times);
  }

  std::vector<TransformOptions> otherSettings() const {
    std::vector<TransformOptions> settings;
    auto add = [&](PeerShare share) -> TransformOptions & {
      TransformOptions &other = settings.emplace_back(options);
      other.schedule.estimates = &estimates;
      other.schedule.plannedBy = {share};
      return other;
    };
    for (PeerShare share : kSearchedAgainBy)
      add(share);
    // The first answer was the one by the model, which may have other collectives.
    if (options.rewrite.buckets || options.rewrite.asynchronous)
      for (PeerShare share : {kByBoth, kByPeer, kByModel})
        add(share).rewrite = {false, false};
    return settings;
  }

  TransformResult describe(TransformResult answer, const BothCosts &times) const {
    answer.report["makespan_by_xla_ns"] =
        json::Object{{"before", given.asPeerPlanned()}, {"after", times.asPeerPlanned()}};
    return answer;
  }

  const HloModule &module;
  const TransformOptions &options;
  const XlaEstimates &estimates;
  BothCosts given;
};

} // namespace

Expected<TransformResult> commsched::hlo::replaceIfXlaDisagrees(const HloModule &module,
                                                                const TransformOptions &options,
                                                                const XlaEstimates &estimates, TransformResult first,
                                                                ScheduleModule schedule) {
  return Chooser(module, options, estimates).run(std::move(first), schedule);
}
