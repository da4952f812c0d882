//===- HloImporter.h - From a module of XLA to the text of comm IR ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The state of importAsComm(). HloImport.cpp has its printing, computations and loops, HloImportStarts.cpp what is
// asynchronous, and HloImportForms.cpp what each collective is in the dialect.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_FRONTENDS_HLO_HLOIMPORTER_H
#define COMMSCHED_LIB_FRONTENDS_HLO_HLOIMPORTER_H

#include "CommSched/Frontends/Hlo/HloModule.h"
#include "HloCosts.h"
#include "HloGraph.h"
#include "llvm/Support/raw_ostream.h"
#include <map>
#include <set>

namespace commsched::hlo {

/// A value: how it is written, and its type.
struct Value {
  std::string name, type;
};
using Values = llvm::SmallVector<Value, 2>;
using Leaves = llvm::SmallVector<const HloShape *, 4>;
using DeviceGroups = std::vector<std::vector<int64_t>>;

/// A collective as the dialect has it.
struct CommForm {
  /// "comm.all_reduce sum", the group's attribute, and " dim 1".
  std::string prefix, group, suffix;
  enum class Fit : uint8_t {
    /// Its inputs and values are the instruction's operands and results.
    Exact,
    /// It exchanges the operands as pieces of one array.
    Packed,
    /// It moves the first operand, and the results are made of what arrives at the end.
    Ragged,
  };
  Fit fit = Fit::Exact;
};

/// A send and the recv of the same channel: together they are one permutation.
struct Message {
  int32_t send = kNone, recv = kNone;
  std::vector<int64_t> pairs;
};

/// What a start has begun.
struct InFlight {
  Value future;
  /// The type of what arrives, if it is one value.
  std::string arrives;
  CommForm::Fit fit = CommForm::Fit::Exact;
  /// Of Fit::Ragged: the operands that it does not move.
  Values others;
};

Leaves leavesOf(const HloShape &shape);
/// The type of an array. Tokens and the like are arrays without elements, which need no memory.
std::string typeOf(const HloShape &shape);

class Importer {
public:
  Importer(const HloModule &module, const CostModel &model)
      : module(module), model(model), costs(module, model), carried(module.computations.size()), body(text) {}

  llvm::Expected<std::string> run();

private:
  struct Scope {
    Scope(const HloModule &module, int32_t index, llvm::ArrayRef<Carried> carried)
        : computation(module.computations[index]), graph(module, index, carried),
          values(computation.instructions.size()) {}

    const HloComputation &computation;
    HloGraph graph;
    /// Indexed by instruction: the values of its leaves.
    std::vector<Values> values;
    /// By start; none if the dialect does not have what it starts.
    std::map<int32_t, InFlight> inFlight;
    /// By send and by recv.
    std::map<int32_t, Message> messages;
    /// Control predecessors: their tokens, which are empty before they have run.
    std::map<int32_t, Value> tokens;
    /// Waits with control predecessors, and these.
    std::set<int32_t> pinned;
  };

  // HloImport.cpp
  llvm::Error importBlock(int32_t index, Scope &scope, unsigned depth);
  llvm::Error importInstruction(int32_t at, Scope &scope, unsigned depth);
  llvm::Error importValue(int32_t at, Scope &scope, unsigned depth);
  llvm::Error importNames(int32_t at, Scope &scope);
  llvm::Error importLoop(int32_t at, Scope &scope, unsigned depth);
  llvm::Error measureCallees();
  void importCall(int32_t at, Scope &scope);
  void importKernel(int32_t at, Scope &scope, const Values &operands, Ns time, Bytes workspace = 0);
  Values valuesOf(int32_t at, const Scope &scope) const;
  Values operandsOf(int32_t at, Scope &scope);
  Values makeValues(llvm::ArrayRef<const HloShape *> leaves);
  Values compute(llvm::StringRef name, const Values &operands, const Values &results, llvm::StringRef attributes,
                 Ns time, llvm::StringRef location, bool isPinned = false, Bytes workspace = 0);
  void printList(const Values &values);
  void printTypes(const Values &values);
  void printResults(const Values &values);
  void printLocation(llvm::StringRef name);

  // HloImportStarts.cpp
  void findOrder(Scope &scope);
  void findMessages(Scope &scope);
  void makeToken(int32_t at, Scope &scope);
  Values afterPredecessors(int32_t at, Values operands, Scope &scope);
  llvm::Error importStart(int32_t at, Scope &scope);
  llvm::Error importMessage(int32_t at, Scope &scope);
  void importCopy(int32_t at, Scope &scope);
  void start(int32_t at, Scope &scope, const CommForm &form, Values operands, const Leaves &results, Ns time);
  Values end(int32_t at, int32_t start, Scope &scope);
  void importDone(int32_t at, Scope &scope);
  Values wait(int32_t at, const InFlight &started, const Values &results, Scope &scope);

  // HloImportForms.cpp
  llvm::Expected<std::optional<CommForm>> formOf(const HloInstruction &start, const Scope &scope);
  std::optional<CommForm> permutation(llvm::ArrayRef<int64_t> pairs);
  Leaves resultLeavesOf(const HloInstruction &start) const;
  std::optional<std::string> reductionOf(const HloInstruction &collective) const;
  std::optional<std::string> groupOf(const DeviceGroups &groups);
  /// The attribute of one group of all devices, or of one group for each device.
  std::string groupOfAll(int64_t devices);
  std::string groupOfEach(int64_t devices);

  const HloModule &module;
  const CostModel &model;
  HloCosts costs;
  /// Indexed by computation.
  std::vector<Carried> carried;
  /// By computation that runs, in its given order: ns and bytes of temporaries. Empty if nothing is called.
  std::map<int32_t, std::pair<Ns, Bytes>> measured;
  std::string text;
  llvm::raw_string_ostream body;
  /// The groups' attributes where `text` names them, ascending. Their symbols are put in last, in the order of the
  /// attributes, so that modules which differ in the order of their instructions have the same ones.
  std::vector<std::pair<size_t, std::string>> groupPlaces;
  int64_t numValues = 0, numLoops = 0;
};

/// The pairs of a permutation, or of a message by its frontend attributes: source, target, source, target, ... None if
/// they are malformed, or if a rank is a source or a target twice.
std::optional<std::vector<int64_t>> pairsOf(const HloInstruction &instruction);

} // namespace commsched::hlo

#endif // COMMSCHED_LIB_FRONTENDS_HLO_HLOIMPORTER_H
