//===- SchedulingOptions.cpp - From options of passes to options of the solver ----------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Transforms/SchedulingOptions.h"
#include "CommSched/Analysis/Environment.h"
#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace commsched;

/// Whether a shipped profile has these links, as one that was copied and changed elsewhere has.
static bool hasLinksOfShipped(const MachineModel &model) {
  auto isSame = [](const LinkClass &a, const LinkClass &b) {
    return a.bytesPerSecond == b.bytesPerSecond && a.latency == b.latency && a.message == b.message;
  };
  return llvm::any_of(MachineModel::available(), [&](const std::string &name) {
    llvm::Expected<MachineModel> shipped = MachineModel::load(name);
    if (!shipped)
      llvm::consumeError(shipped.takeError());
    return shipped && shipped->collectiveBase == model.collectiveBase && isSame(shipped->intra, model.intra) &&
           isSame(shipped->inter, model.inter);
  });
}

/// Warns, once per context, of links of the user's own in a profile that prices most collectives by a model of NCCL:
/// whoever changes a latency there would see no change. In calibrated profiles measured times have priority anyway.
static void warnOfUnusedLinks(MLIRContext *context, StringRef option, const MachineModel &model) {
  std::string name = machineName(context, option);
  bool isFile = name.find('/') != std::string::npos || StringRef(name).ends_with(".json");
  Environment *environment = Environment::of(context);
  if (!isFile || !model.nccl || !model.collectives.empty() || !environment ||
      !environment->warnedMachines.insert(name).second || hasLinksOfShipped(model))
    return;
  emitWarning(UnknownLoc::get(context))
      << "machine '" << name
      << "': 'links' is not used for all_gather, reduce_scatter, all_reduce, broadcast and reduce, because the profile "
         "has 'nccl'";
}

std::shared_ptr<const CostModel> commsched::loadCostModel(MLIRContext *context, StringRef machine) {
  llvm::Expected<MachineModel> model = loadMachine(context, machine);
  if (!model) {
    emitError(UnknownLoc::get(context)) << llvm::toString(model.takeError());
    return nullptr;
  }
  warnOfUnusedLinks(context, machine, *model);
  return std::make_shared<const CostModel>(std::move(*model));
}

FailureOr<MemoryBudget> commsched::parseMemoryBudget(MLIRContext *context, double ratio, int64_t limitBytes) {
  llvm::Expected<MemoryBudget> budget = MemoryBudget::parse(ratio, limitBytes);
  if (budget)
    return *budget;
  return emitError(UnknownLoc::get(context)) << llvm::toString(budget.takeError());
}

SolverOptions::SolverOptions(CollectiveOrder order, bool bucketing, Bytes bucketCap, int64_t effort) {
  // Without bucketing too: the order alone is then the same problem.
  load = {order, /*bucketing=*/true, bucketCap};
  schedule.bucketing = bucketing;
  schedule.bucketCap = bucketCap;
  schedule.collectiveOrder = order;
  schedule.effort = effort;
}
