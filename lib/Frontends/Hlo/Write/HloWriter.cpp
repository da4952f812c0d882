//===- HloWriter.cpp - From another order back to bytes ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Copies the module's fields as they lie. Only an order that changes is written anew.
//
//===------------------------------------------------------------------------------------------===//

#include "HloWriter.h"
#include "Hlo/Reader/HloFields.h"
#include "Hlo/Reader/WireFormat.h"
#include "llvm/ADT/DenseMap.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

/// The message of one computation's order, with the same fields as `entry` and other ids.
static std::string writeEntry(StringRef entry, const HloComputation &computation, ArrayRef<int32_t> order) {
  std::string ids, value, result;
  for (int32_t at : order)
    writeVarint(static_cast<uint64_t>(computation.instructions[at].id), ids);
  writeBytes(sequence_field::kInstructionIds, ids, value);
  WireReader reader(entry);
  WireField field;
  while (reader.next(field))
    if (field.number == sequence_field::kValue)
      writeBytes(sequence_field::kValue, value, result);
    else
      result += field.whole;
  return result;
}

static int64_t keyOf(StringRef entry) {
  WireReader reader(entry);
  WireField field;
  int64_t key = 0;
  while (reader.next(field))
    if (field.number == sequence_field::kKey)
      key = field.integer();
  return key;
}

Expected<std::string> commsched::hlo::writeModule(const HloModule &module, ArrayRef<std::vector<int32_t>> sequences) {
  DenseMap<int64_t, int32_t> changed;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const HloComputation &computation = module.computations[i];
    if (sequences[i].empty() || sequences[i] == computation.sequence)
      continue;
    if (std::string why = findOrderFault(computation, sequences[i]); !why.empty())
      return createStringError("the new order of '" + computation.name + "' does not hold: " + why);
    changed[computation.id] = static_cast<int32_t>(i);
  }
  if (changed.empty())
    return module.bytes.str();
  std::string result;
  result.reserve(module.bytes.size());
  WireReader reader(module.bytes);
  WireField field, entry;
  while (reader.next(field)) {
    if (field.number != module_field::kSchedule) {
      result += field.whole;
      continue;
    }
    std::string schedule;
    WireReader entries(field.bytes);
    while (entries.next(entry)) {
      auto known = entry.number == schedule_field::kSequences ? changed.find(keyOf(entry.bytes)) : changed.end();
      if (known == changed.end()) {
        schedule += entry.whole;
        continue;
      }
      int32_t index = known->second;
      writeBytes(schedule_field::kSequences, writeEntry(entry.bytes, module.computations[index], sequences[index]),
                 schedule);
    }
    writeBytes(module_field::kSchedule, schedule, result);
  }
  return result;
}
