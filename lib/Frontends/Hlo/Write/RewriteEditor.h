//===- RewriteEditor.h - New instructions in a module of XLA ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Collects instructions and computations that are added, replaced and removed, and writes the module with them. What is
// not touched is copied byte for byte.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_FRONTENDS_HLO_WRITE_REWRITEEDITOR_H
#define COMMSCHED_LIB_FRONTENDS_HLO_WRITE_REWRITEEDITOR_H

#include "CommSched/Frontends/Hlo/Reader/HloModule.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringSet.h"

namespace commsched::hlo {

/// A serialized shape of a tuple of serialized shapes.
std::string writeTupleShape(llvm::ArrayRef<llvm::StringRef> elements);
/// The serialized shapes in a serialized shape of a tuple.
llvm::SmallVector<llvm::StringRef, 4> elementsOfShape(llvm::StringRef shape);

/// An edited module. Ids are those of XLA, not indices.
class RewriteEditor {
public:
  /// The module has to outlive the editor.
  explicit RewriteEditor(const HloModule &module);

  /// An id that no instruction of the computation has, and one that no computation has.
  int64_t newInstructionId(int32_t computation);
  int64_t newComputationId();
  /// A name that nothing in the module has.
  std::string newName(llvm::StringRef base);

  /// Adds an instruction, written without name, operands and id.
  void add(int32_t computation, llvm::StringRef fields, llvm::StringRef name, int64_t id,
           llvm::ArrayRef<int64_t> operands);
  /// Puts another instruction in the place of one, with its name and its id.
  void replace(int32_t computation, int32_t at, llvm::StringRef fields, llvm::ArrayRef<int64_t> operands);
  void remove(int32_t computation, int32_t at);
  /// The order of a computation: ids of instructions. Those that are not in it come right before their first user, or
  /// at the end.
  void setOrder(int32_t computation, std::vector<int64_t> ids);

  /// Adds a serialized computation that only `caller` calls, with the order of its instructions; an empty one for the
  /// body of a fusion, which has none.
  void addComputation(int32_t caller, std::string bytes, llvm::ArrayRef<int64_t> order);
  void removeComputation(int32_t computation);

  bool isChanged() const { return !edits.empty() || !added.empty(); }
  /// The module. Its instructions lie with operands first. O(size).
  std::string write() const;

private:
  struct Instruction {
    int64_t id = 0;
    std::string bytes;
    /// Instructions that come before it: operands, and control predecessors of one that takes another's place.
    llvm::SmallVector<int64_t, 4> before;
  };
  struct Edit {
    std::vector<Instruction> added;
    llvm::DenseSet<int32_t> removed;
    std::vector<int64_t> order;
    int64_t lastId = 0;
  };
  struct Computation {
    int32_t caller = 0;
    std::string bytes;
    /// Its entry in the module's schedule; empty if it has none.
    std::string order;
  };

  std::vector<int64_t> withOperandsFirst(int32_t computation, llvm::ArrayRef<int64_t> anchors) const;
  std::string writeComputation(int32_t computation) const;
  std::string writeSchedule(llvm::StringRef schedule) const;
  Edit &editOf(int32_t computation);

  const HloModule &module;
  /// By computation.
  llvm::DenseMap<int32_t, Edit> edits;
  std::vector<Computation> added;
  llvm::DenseSet<int64_t> removedIds;
  llvm::StringSet<> names;
  llvm::DenseMap<int64_t, int32_t> computationOfId;
  int64_t lastComputationId = 0;
};

} // namespace commsched::hlo

#endif // COMMSCHED_LIB_FRONTENDS_HLO_WRITE_REWRITEEDITOR_H
