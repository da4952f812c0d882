//===- RemoveBarriers.cpp - Modules of XLA without optimization barriers ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The readers of an element of a barrier read the operand of the tuple in its place.
//
//===------------------------------------------------------------------------------------------===//

#include "CloneInstructions.h"
#include "Hlo/Reader/HloFields.h"
#include "Hlo/Reader/WireFormat.h"
#include "RewriteEditor.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

namespace {

class BarrierRemover {
public:
  BarrierRemover(const HloModule &module, int32_t computation)
      : module(module), index(computation), inside(module.computations[computation]), editor(module),
        users(inside.instructions.size()), isControlled(inside.instructions.size(), false),
        standIn(inside.instructions.size(), -1) {
    for (auto [at, instruction] : enumerate(inside.instructions)) {
      for (int32_t operand : instruction.operands)
        users[operand].push_back(static_cast<int32_t>(at));
      for (int32_t other : instruction.controlPredecessors)
        isControlled[at] = isControlled[other] = true;
    }
  }

  std::string run() {
    for (int32_t at : inside.sequence)
      if (inside.instructions[at].is("opt-barrier") && isPlain(at))
        remove(at);
    for (auto [at, instruction] : enumerate(inside.instructions))
      if (!removed.contains(static_cast<int32_t>(at)))
        rewire(static_cast<int32_t>(at));
    if (!editor.isChanged())
      return module.bytes.str();
    std::vector<int64_t> order;
    for (int32_t at : inside.sequence)
      if (!removed.contains(at))
        order.push_back(inside.instructions[at].id);
    editor.setOrder(index, std::move(order));
    return editor.write();
  }

private:
  /// Whether a barrier's operand is a tuple, and each of its users takes an element that is not the result of the
  /// computation.
  bool isPlain(int32_t barrier) const {
    const HloInstruction &instruction = inside.instructions[barrier];
    if (instruction.operands.size() != 1 || isControlled[barrier] || barrier == inside.root)
      return false;
    const HloInstruction &tuple = inside.instructions[instruction.operands.front()];
    if (!tuple.is("tuple") || isControlled[instruction.operands.front()])
      return false;
    return all_of(users[barrier], [&](int32_t user) {
      const HloInstruction &element = inside.instructions[user];
      return element.is("get-tuple-element") && element.tupleIndex >= 0 && !isControlled[user] &&
             element.tupleIndex < static_cast<int64_t>(tuple.operands.size()) && user != inside.root;
    });
  }

  void remove(int32_t barrier) {
    const int32_t tuple = inside.instructions[barrier].operands.front();
    for (int32_t user : users[barrier]) {
      standIn[user] = inside.instructions[tuple].operands[inside.instructions[user].tupleIndex];
      removeOne(user);
    }
    removeOne(barrier);
    if (all_of(users[tuple], [&](int32_t user) { return removed.contains(user); }) && tuple != inside.root)
      removeOne(tuple);
  }

  void removeOne(int32_t at) {
    removed.insert(at);
    editor.remove(index, at);
  }

  /// Lets an instruction read what stands in for its operands.
  void rewire(int32_t at) {
    const HloInstruction &instruction = inside.instructions[at];
    if (all_of(instruction.operands, [&](int32_t operand) { return standIn[operand] < 0; }))
      return;
    SmallVector<int64_t, 4> operands;
    for (int32_t operand : instruction.operands) {
      while (standIn[operand] >= 0)
        operand = standIn[operand];
      operands.push_back(inside.instructions[operand].id);
    }
    constexpr uint32_t kOwn[] = {instruction_field::kName, instruction_field::kId, instruction_field::kOperands};
    editor.replace(index, at, withoutFields(instruction.bytes, kOwn), operands);
  }

  const HloModule &module;
  int32_t index;
  const HloComputation &inside;
  RewriteEditor editor;
  /// Indexed by instruction: its users, with repetitions, and whether a control dependence names it.
  std::vector<SmallVector<int32_t, 2>> users;
  std::vector<bool> isControlled;
  /// Indexed by instruction: what is read in the place of an element of a barrier; -1 for anything else.
  std::vector<int32_t> standIn;
  DenseSet<int32_t> removed;
};

} // namespace

std::string commsched::hlo::withoutBarriers(const HloModule &module, int32_t computation) {
  return BarrierRemover(module, computation).run();
}
