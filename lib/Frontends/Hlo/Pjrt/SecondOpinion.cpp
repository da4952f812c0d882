//===- SecondOpinion.cpp - Schedules that XLA's own costs do not contradict -------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "SecondOpinion.h"
#include "CommSched/Support/Arithmetic.h"
#include "Hlo/Schedule/BothCosts.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

namespace {

constexpr int32_t kModel = 0, kMean = kPermille / 2, kXla = kPermille;

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
    // What the mean of both finds is usually good by either.
    const bool rewrites = options.rewrite.buckets || options.rewrite.asynchronous;
    for (bool keepsCollectives : {false, true})
      for (int32_t share : {kMean, kXla, kModel}) {
        // The first answer was the one by the model.
        if (keepsCollectives ? !rewrites : share == kModel)
          continue;
        TransformOptions &other = settings.emplace_back(options);
        other.schedule.estimates = &estimates;
        other.schedule.plannedBy = {share};
        if (keepsCollectives)
          other.rewrite = {false, false};
      }
    return settings;
  }

  TransformResult describe(TransformResult answer, const BothCosts &times) const {
    answer.report["makespan_by_xla_ns"] =
        json::Object{{"before", given.asXlaPlanned()}, {"after", times.asXlaPlanned()}};
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
