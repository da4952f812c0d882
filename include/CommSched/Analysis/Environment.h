//===- Environment.h - Settings and callbacks of an embedder ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Passes are created from text, and text can carry neither a function nor a setting for all passes. Each MLIRContext
// therefore has one environment, which every pass in it reads: the machine to use if no option names one, the
// embedder's estimates of an operation's time and of collectives by size, and its way to gather numbers from all ranks.
// The environment is an interface of the comm dialect and lives as long as the context.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_ENVIRONMENT_H
#define COMMSCHED_ANALYSIS_ENVIRONMENT_H

#include "CommSched/Machine/CostModel.h"
#include "CommSched/Scheduling/Answer/BothCosts.h"
#include "CommSched/Support/Units.h"
#include "mlir/IR/DialectInterface.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringMap.h"
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace commsched {

class PassJournal;
class SearchObserver;

/// Returns the time of one execution of `op`, ns, or none to use the models of this project. For a collective, the time
/// runs from its start until the data has arrived. Not called for operations whose `comm.cost` has a time. Equal
/// queries must give equal answers. Several threads may call it at once.
using EstimateOp = std::function<std::optional<Ns>(mlir::Operation *op)>;

/// Gathers the rows that all ranks pass in; the result is indexed by rank. The embedder supplies it as an all-gather.
/// The rows of one call have equal lengths on all ranks. Empty on failure.
using GatherCosts = std::function<std::vector<std::vector<Ns>>(llvm::ArrayRef<Ns> own)>;

/// An order of whoever made the order that a schedule replaces, by the names of operations.
struct NamedPeerAnswer {
  BothCosts times;
  Bytes peak = 0;
  /// Names in the locations of operations, in his order; empty if it is not known (PeerAnswer::order).
  std::vector<std::string> names;
  /// Indexed like `names`: the bucket that a start is in, or -1.
  std::vector<int64_t> buckets;
};

/// Costs of whoever made the order that a schedule replaces, as a second opinion (BothCosts.h).
struct PeerCosts {
  /// Indexed by a name in the location of an operation: its time, ns. An operation with several names takes their sum.
  llvm::StringMap<Ns> times;
  /// Times of collectives by size. They price buckets.
  std::vector<CollectiveTable> curves;
  /// As SecondOpinion::others, for the one block with collectives of the module; may be empty.
  std::function<std::vector<NamedPeerAnswer>()> others;
};

/// Settings for all passes in one context. Change them only while no pass runs.
class Environment : public mlir::DialectInterface::Base<Environment> {
public:
  explicit Environment(mlir::Dialect *dialect) : Base(dialect) {}
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(Environment)

  /// Machine for passes whose option `machine` is empty: the name of a shipped profile, or a path.
  std::string machine = kDefaultMachine.str();
  /// Estimates times of operations; may be empty.
  EstimateOp estimate;
  /// The embedder's estimates of collectives by size. loadMachine() puts them before the tables of each machine, so
  /// they price buckets, which are not operations yet, and belong to the machine on which ranks agree.
  std::vector<CollectiveTable> curves;
  /// A second opinion for comm-schedule; none if there is none.
  std::optional<PeerCosts> peer;
  /// Is told of the searches of comm-schedule, by several threads at once. Not owned; may be null.
  SearchObserver *progress = nullptr;
  /// Ends the searches of comm-schedule with their best answers so far once it is set. Not owned; may be null.
  const std::atomic<bool> *stop = nullptr;
  /// Gathers costs for comm-align-costs if the pass is given no profiles; may be empty.
  GatherCosts gather;
  /// Machines on which the ranks of the job agreed, in place of their own, by the name under which passes ask for them.
  /// comm-align-costs adds them. It runs on modules, so that no other pass runs meanwhile.
  std::map<std::string, std::shared_ptr<const CostModel>> agreedMachines;
  /// The profiles whose unused fields passes have warned of, by the name under which they ask for them.
  std::set<std::string> warnedMachines;
  /// The journal that passes write for a report; null unless a report is being collected. The report sets and resets
  /// it.
  std::shared_ptr<PassJournal> journal;

  /// The environment of a context. Null if the comm dialect is not loaded, or if registerEnvironment was not called
  /// (registerAllDialects calls it).
  static Environment *of(mlir::MLIRContext *context);
};

/// Gives every context an environment when it loads the comm dialect.
void registerEnvironment(mlir::DialectRegistry &registry);

/// The name of the machine that `option` selects in `context`: `option` itself, or the environment's machine if it is
/// empty.
std::string machineName(mlir::MLIRContext *context, llvm::StringRef option);

/// The machine that `option` selects in `context`: the one on which ranks agreed (Environment::agreedMachines), or else
/// the profile of that name with the environment's curves. O(1) in the first case.
llvm::Expected<MachineModel> loadMachine(mlir::MLIRContext *context, llvm::StringRef option);

/// The model on which ranks agreed for the machine that `option` selects, or `own` if they did not. Passes load their
/// machine when they are initialized, which is before comm-align-costs runs in the same pipeline.
std::shared_ptr<const CostModel> agreedModel(mlir::MLIRContext *context, llvm::StringRef option,
                                             std::shared_ptr<const CostModel> own);

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_ENVIRONMENT_H
