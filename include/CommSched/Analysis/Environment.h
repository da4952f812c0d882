//===- Environment.h - What an embedder tells the passes --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Passes are made from text, which can carry neither a function nor what holds for all of them. An MLIRContext has one
// environment, which every pass that runs in it asks: the machine that is meant where no option names one, the
// embedder's own estimate of an operation's time, and its way to gather numbers from all ranks. The environment is an
// interface of the comm dialect and lives as long as the context.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_ENVIRONMENT_H
#define COMMSCHED_ANALYSIS_ENVIRONMENT_H

#include "CommSched/Machine/MachineModel.h"
#include "CommSched/Support/Units.h"
#include "mlir/IR/DialectInterface.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/ArrayRef.h"
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace commsched {

class PassJournal;

/// The time of one execution of `op`, ns, or none where the models of this project are to tell it. It is asked for
/// collectives too (of a collective: from its start until the data is there), not for operations whose `comm.cost` has
/// a time. It has to give equal answers to equal questions, and is called from several threads at once.
using EstimateOp = std::function<std::optional<Ns>(mlir::Operation *op)>;

/// Gathers what every rank passes in, by rank: an all-gather that the embedder supplies. Empty where it fails.
using GatherCosts = std::function<std::vector<std::vector<Ns>>(llvm::ArrayRef<Ns> own)>;

/// What holds for everything in one context. To be changed only while no pass runs.
class Environment : public mlir::DialectInterface::Base<Environment> {
public:
  explicit Environment(mlir::Dialect *dialect) : Base(dialect) {}
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(Environment)

  /// The machine of passes whose option `machine` is empty: the name of a shipped profile, or a path.
  std::string machine = kDefaultMachine.str();
  /// Tells the times of operations; may be empty.
  EstimateOp estimate;
  /// Gathers costs for comm-align-costs where it is given no profiles; may be empty.
  GatherCosts gather;
  /// What passes write down for a report; null while none is collected. A report sets and resets it.
  std::shared_ptr<PassJournal> journal;

  /// The environment of a context in which the comm dialect is loaded; null where it is not, or was not registered with
  /// registerEnvironment (which registerAllDialects calls).
  static Environment *of(mlir::MLIRContext *context);
};

/// Gives every context an environment as soon as it loads the comm dialect.
void registerEnvironment(mlir::DialectRegistry &registry);

/// The name of the machine that `option` means in `context`: itself, or the environment's if it is empty.
std::string machineName(mlir::MLIRContext *context, llvm::StringRef option);

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_ENVIRONMENT_H
