//===- CloneInstructions.cpp - Instructions of XLA that are carried out again -----------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// XLA's verifier wants a body of its own for every fusion; bodies of reductions may have several callers.
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

/// The fields of an instruction that its clone has of its own.
constexpr uint32_t kOwnOfClone[] = {instruction_field::kName, instruction_field::kId, instruction_field::kOperands};

class CloneWriter {
public:
  CloneWriter(const HloModule &module, const CloneEdit &edit) : module(module), edit(edit), editor(module) {
    for (const HloComputation &computation : module.computations)
      for (const HloInstruction &instruction : computation.instructions)
        lastChannel = std::max(lastChannel, instruction.channel);
  }

  std::string run(ArrayRef<OrderedInstruction> order);

private:
  const HloComputation &inside() const { return module.computations[edit.computation]; }
  int64_t idOf(int32_t clone) const { return ids[clone]; }
  void writeClone(const Clone &clone, int64_t id);
  void redirectReaders();
  std::string cloneFields(const HloInstruction &instruction);
  int64_t cloneBody(int32_t body);
  std::string cloneOfBody(const HloComputation &body, int64_t id);

  const HloModule &module;
  const CloneEdit &edit;
  RewriteEditor editor;
  /// Indexed by clone.
  std::vector<int64_t> ids;
  int64_t lastChannel = 0;
};

} // namespace

/// All fields of a clone but name, id and operands.
std::string CloneWriter::cloneFields(const HloInstruction &instruction) {
  std::string fields = withoutFields(instruction.bytes, kOwnOfClone);
  if (instruction.channel > 0) {
    fields = withoutFields(fields, {instruction_field::kChannel});
    writeInteger(instruction_field::kChannel, ++lastChannel, fields);
  }
  if (instruction.is("fusion")) {
    SmallVector<int64_t, 1> bodies;
    for (int32_t body : instruction.called)
      bodies.push_back(cloneBody(body));
    fields = withoutFields(fields, {instruction_field::kCalledComputations});
    writeIntegers(instruction_field::kCalledComputations, bodies, fields);
  }
  return fields;
}

/// Adds a copy of the body of a fusion, and of the fusions in it. Returns its id.
int64_t CloneWriter::cloneBody(int32_t index) {
  const HloComputation &body = module.computations[index];
  int64_t id = editor.newComputationId();
  std::string bytes = cloneOfBody(body, id);
  editor.addComputation(edit.computation, std::move(bytes), {});
  return id;
}

std::string CloneWriter::cloneOfBody(const HloComputation &body, int64_t id) {
  // Ids of instructions are unique in a module: XLA has the computation's in the upper half.
  auto idAt = [&](int32_t at) { return (id << 32) + at; };
  std::string bytes = withoutFields(body.bytes, {computation_field::kName, computation_field::kInstructions,
                                                 computation_field::kId, computation_field::kRootId});
  writeBytes(computation_field::kName, editor.newName(body.name), bytes);
  for (auto [at, instruction] : enumerate(body.instructions)) {
    std::string fields;
    writeBytes(instruction_field::kName, editor.newName(instruction.name), fields);
    fields += withoutFields(cloneFields(instruction), {instruction_field::kControlPredecessors});
    writeInteger(instruction_field::kId, idAt(static_cast<int32_t>(at)), fields);
    SmallVector<int64_t, 4> operands, controls;
    transform(instruction.operands, std::back_inserter(operands), idAt);
    transform(instruction.controlPredecessors, std::back_inserter(controls), idAt);
    writeIntegers(instruction_field::kOperands, operands, fields);
    writeIntegers(instruction_field::kControlPredecessors, controls, fields);
    writeBytes(computation_field::kInstructions, fields, bytes);
  }
  writeInteger(computation_field::kId, id, bytes);
  writeInteger(computation_field::kRootId, idAt(body.root), bytes);
  return bytes;
}

void CloneWriter::writeClone(const Clone &clone, int64_t id) {
  const HloInstruction &original = inside().instructions[clone.instruction];
  SmallVector<int64_t, 4> operands;
  for (auto [operand, other] : zip_equal(original.operands, clone.operands))
    operands.push_back(other < 0 ? inside().instructions[operand].id : idOf(other));
  editor.add(edit.computation, cloneFields(original), editor.newName(original.name), id, operands);
}

void CloneWriter::redirectReaders() {
  std::vector<ClonedOperand> readers = edit.readers;
  llvm::sort(readers, [](const ClonedOperand &a, const ClonedOperand &b) {
    return std::pair(a.instruction, a.operand) < std::pair(b.instruction, b.operand);
  });
  for (size_t begin = 0, end = 0; begin < readers.size(); begin = end) {
    const int32_t at = readers[begin].instruction;
    const HloInstruction &reader = inside().instructions[at];
    SmallVector<int64_t, 4> operands;
    for (int32_t operand : reader.operands)
      operands.push_back(inside().instructions[operand].id);
    for (; end < readers.size() && readers[end].instruction == at; ++end)
      operands[readers[end].operand] = idOf(readers[end].clone);
    editor.replace(edit.computation, at, withoutFields(reader.bytes, kOwnOfClone), operands);
  }
}

int64_t commsched::hlo::firstCloneId(const HloComputation &computation) {
  int64_t last = 0;
  for (const HloInstruction &instruction : computation.instructions)
    last = std::max(last, instruction.id);
  return last + 1;
}

std::string CloneWriter::run(ArrayRef<OrderedInstruction> order) {
  for (size_t index = 0; index < edit.clones.size(); ++index)
    ids.push_back(editor.newInstructionId(edit.computation));
  for (auto [clone, id] : zip_equal(edit.clones, ids))
    if (clone.isWritten)
      writeClone(clone, id);
  redirectReaders();
  DenseSet<int32_t> removed(edit.removed.begin(), edit.removed.end());
  for (int32_t at : edit.removed)
    editor.remove(edit.computation, at);
  std::vector<int64_t> sequence;
  for (const OrderedInstruction &one : order)
    if (one.isClone ? edit.clones[one.index].isWritten : !removed.contains(one.index))
      sequence.push_back(one.isClone ? idOf(one.index) : inside().instructions[one.index].id);
  editor.setOrder(edit.computation, std::move(sequence));
  return editor.write();
}

std::string commsched::hlo::cloneInstructions(const HloModule &module, const CloneEdit &edit,
                                              ArrayRef<OrderedInstruction> order) {
  return CloneWriter(module, edit).run(order);
}
