//===- RewriteEditor.cpp - New instructions in a module of XLA --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// XLA reads the instructions of a computation in the order in which they lie, and wants operands first. So does this
// file write them: in their given order, with the operands that are new pulled in front of their first users.
//
//===------------------------------------------------------------------------------------------===//

#include "RewriteEditor.h"
#include "Hlo/Reader/HloFields.h"
#include "Hlo/Reader/WireFormat.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

/// xla::PrimitiveType TUPLE.
static constexpr int64_t kTupleElementType = 13;

std::string commsched::hlo::writeTupleShape(ArrayRef<StringRef> elements) {
  std::string shape;
  writeInteger(shape_field::kElementType, kTupleElementType, shape);
  for (StringRef element : elements)
    writeBytes(shape_field::kTupleShapes, element, shape);
  return shape;
}

SmallVector<StringRef, 4> commsched::hlo::elementsOfShape(StringRef shape) {
  SmallVector<StringRef, 4> elements;
  WireReader reader(shape);
  WireField field;
  while (reader.next(field))
    if (field.number == shape_field::kTupleShapes)
      elements.push_back(field.bytes);
  return elements;
}

RewriteEditor::RewriteEditor(const HloModule &module) : module(module) {
  for (auto [index, computation] : enumerate(module.computations)) {
    computationOfId[computation.id] = static_cast<int32_t>(index);
    lastComputationId = std::max(lastComputationId, computation.id);
    names.insert(computation.name);
    for (const HloInstruction &instruction : computation.instructions)
      names.insert(instruction.name);
  }
}

RewriteEditor::Edit &RewriteEditor::editOf(int32_t computation) {
  auto [edit, isNew] = edits.try_emplace(computation);
  if (isNew)
    for (const HloInstruction &instruction : module.computations[computation].instructions)
      edit->second.lastId = std::max(edit->second.lastId, instruction.id);
  return edit->second;
}

int64_t RewriteEditor::newInstructionId(int32_t computation) { return ++editOf(computation).lastId; }

int64_t RewriteEditor::newComputationId() { return ++lastComputationId; }

std::string RewriteEditor::newName(StringRef base) {
  std::string name;
  for (int64_t number = 0; name.empty() || !names.insert(name).second; ++number)
    name = (base + ".commsched" + (number > 0 ? "." + Twine(number) : Twine())).str();
  return name;
}

void RewriteEditor::add(int32_t computation, StringRef fields, StringRef name, int64_t id, ArrayRef<int64_t> operands) {
  std::string bytes;
  writeBytes(instruction_field::kName, name, bytes);
  bytes += fields;
  writeInteger(instruction_field::kId, id, bytes);
  if (!operands.empty())
    writeIntegers(instruction_field::kOperands, operands, bytes);
  editOf(computation).added.push_back({id, std::move(bytes), SmallVector<int64_t, 4>(operands)});
}

void RewriteEditor::replace(int32_t computation, int32_t at, StringRef fields, ArrayRef<int64_t> operands) {
  const HloInstruction &instruction = module.computations[computation].instructions[at];
  remove(computation, at);
  add(computation, fields, instruction.name, instruction.id, operands);
  for (int32_t other : instruction.controlPredecessors)
    editOf(computation).added.back().before.push_back(module.computations[computation].instructions[other].id);
}

void RewriteEditor::remove(int32_t computation, int32_t at) { editOf(computation).removed.insert(at); }

void RewriteEditor::setOrder(int32_t computation, std::vector<int64_t> ids) {
  editOf(computation).order = std::move(ids);
}

/// The entry of the module's schedule for one computation.
static std::string sequenceOf(int64_t computation, ArrayRef<int64_t> ids) {
  std::string sequence, entry;
  writeIntegers(sequence_field::kInstructionIds, ids, sequence);
  writeInteger(sequence_field::kKey, computation, entry);
  writeBytes(sequence_field::kValue, sequence, entry);
  return entry;
}

void RewriteEditor::addComputation(int32_t caller, std::string bytes, ArrayRef<int64_t> order) {
  int64_t id = 0;
  WireReader reader(bytes);
  WireField field;
  while (reader.next(field))
    if (field.number == computation_field::kId)
      id = field.integer();
  added.push_back({caller, std::move(bytes), order.empty() ? "" : sequenceOf(id, order)});
}

void RewriteEditor::removeComputation(int32_t computation) { removedIds.insert(module.computations[computation].id); }

/// All instructions of an edited computation, in an order in which those in `anchors` come as there, and all others
/// right before their first user, or at the end.
std::vector<int64_t> RewriteEditor::withOperandsFirst(int32_t computation, ArrayRef<int64_t> anchors) const {
  const HloComputation &given = module.computations[computation];
  const Edit &edit = edits.find(computation)->second;
  std::vector<int64_t> ids;
  DenseMap<int64_t, SmallVector<int64_t, 4>> before;
  for (auto [at, instruction] : enumerate(given.instructions)) {
    if (edit.removed.contains(static_cast<int32_t>(at)))
      continue;
    ids.push_back(instruction.id);
    SmallVector<int64_t, 4> &list = before[instruction.id];
    for (int32_t operand : instruction.operands)
      list.push_back(given.instructions[operand].id);
    for (int32_t other : instruction.controlPredecessors)
      list.push_back(given.instructions[other].id);
  }
  for (const Instruction &instruction : edit.added) {
    ids.push_back(instruction.id);
    before[instruction.id] = instruction.before;
  }
  std::vector<int64_t> result;
  DenseSet<int64_t> done;
  // Instruction, and the next of what comes before it to look at.
  SmallVector<std::pair<int64_t, unsigned>, 16> stack;
  auto write = [&](int64_t first) {
    if (!done.contains(first))
      stack.emplace_back(first, 0);
    while (!stack.empty()) {
      auto [id, next] = stack.back();
      ArrayRef<int64_t> list = before.find(id)->second;
      if (done.contains(id) || next == list.size()) {
        if (done.insert(id).second)
          result.push_back(id);
        stack.pop_back();
        continue;
      }
      ++stack.back().second;
      if (before.contains(list[next]) && !done.contains(list[next]))
        stack.emplace_back(list[next], 0);
    }
  };
  llvm::for_each(anchors, write);
  llvm::for_each(ids, write);
  return result;
}

std::string RewriteEditor::writeComputation(int32_t computation) const {
  const HloComputation &given = module.computations[computation];
  const Edit &edit = edits.find(computation)->second;
  DenseMap<int64_t, StringRef> bytesOf;
  std::vector<int64_t> kept;
  for (auto [at, instruction] : enumerate(given.instructions))
    if (!edit.removed.contains(static_cast<int32_t>(at))) {
      bytesOf[instruction.id] = instruction.bytes;
      kept.push_back(instruction.id);
    }
  for (const Instruction &instruction : edit.added)
    bytesOf[instruction.id] = instruction.bytes;
  std::string result;
  bool isWritten = false;
  WireReader reader(given.bytes);
  WireField field;
  while (reader.next(field)) {
    if (field.number != computation_field::kInstructions) {
      result += field.whole;
      continue;
    }
    if (!isWritten)
      for (int64_t id : withOperandsFirst(computation, kept))
        writeBytes(computation_field::kInstructions, bytesOf[id], result);
    isWritten = true;
  }
  return result;
}

std::string RewriteEditor::writeSchedule(StringRef schedule) const {
  std::string result;
  WireReader entries(schedule);
  WireField entry, part;
  while (entries.next(entry)) {
    if (entry.number != schedule_field::kSequences) {
      result += entry.whole;
      continue;
    }
    int64_t id = 0;
    WireReader parts(entry.bytes);
    while (parts.next(part))
      if (part.number == sequence_field::kKey)
        id = part.integer();
    if (removedIds.contains(id))
      continue;
    auto known = computationOfId.find(id);
    auto edit = known == computationOfId.end() ? edits.end() : edits.find(known->second);
    if (edit == edits.end()) {
      result += entry.whole;
      continue;
    }
    writeBytes(schedule_field::kSequences, sequenceOf(id, withOperandsFirst(known->second, edit->second.order)),
               result);
  }
  for (const Computation &computation : added)
    if (!computation.order.empty())
      writeBytes(schedule_field::kSequences, computation.order, result);
  return result;
}

std::string RewriteEditor::write() const {
  if (!isChanged())
    return module.bytes.str();
  std::string result;
  // Computations lie with callees first, so new ones come right before their caller.
  int32_t index = 0;
  WireReader reader(module.bytes);
  WireField field;
  while (reader.next(field)) {
    if (field.number == module_field::kSchedule) {
      writeBytes(module_field::kSchedule, writeSchedule(field.bytes), result);
      continue;
    }
    if (field.number != module_field::kComputations) {
      result += field.whole;
      continue;
    }
    int32_t at = index++;
    for (const Computation &computation : added)
      if (computation.caller == at)
        writeBytes(module_field::kComputations, computation.bytes, result);
    if (removedIds.contains(module.computations[at].id))
      continue;
    if (edits.contains(at))
      writeBytes(module_field::kComputations, writeComputation(at), result);
    else
      result += field.whole;
  }
  return result;
}
