//===- HloReader.cpp - From bytes to a module -------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Reads fields first, with ids as they are. Then resolves ids to indices, and checks everything that the rest of this
// library takes for granted: bytes from outside may be anything.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Frontends/Hlo/Reader/HloModule.h"
#include "HloFields.h"
#include "WireFormat.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/Twine.h"
#include <algorithm>

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

/// Returns true if a number may be the id of an instruction or of a computation. XLA counts ids up from 0. The reader
/// and the passes over a module keep ids in DenseMaps, which reserve the extreme numbers.
static bool isId(int64_t id) { return id >= 0 && id < INT64_MAX - 1; }

namespace {

/// Tuples in tuples that a shape may have. XLA's programs have three or four levels; the limit bounds recursion.
constexpr unsigned kMaxShapeDepth = 64;
/// The ids of an instruction's neighbours, as they are serialized.
struct InstructionIds {
  SmallVector<int64_t, 4> operands, controlPredecessors, called;
};

class Reader {
public:
  explicit Reader(StringRef bytes) { module.bytes = bytes; }

  Error read();
  HloModule module;

private:
  Error readComputation(StringRef bytes);
  Error readInstruction(StringRef bytes, HloInstruction &instruction, InstructionIds &ids);
  bool readShape(StringRef bytes, HloShape &shape, unsigned depth);
  bool readOperandAlias(StringRef bytes, OperandAlias &alias);
  bool readParameterAliases(StringRef bytes);
  bool readDevices(StringRef bytes);
  Error readSequence(StringRef entry);
  Error resolveComputation(HloComputation &computation, ArrayRef<InstructionIds> ids);
  Error checkOrder(const HloComputation &computation) const;
  Error orderCalls();

  /// Indexed by computation, then by instruction.
  std::vector<std::vector<InstructionIds>> neighbours;
  DenseMap<int64_t, int32_t> computationOfId;
  SmallVector<StringRef, 1> schedules;
  int64_t entryId = 0; // What is not written is 0.
};

/// "expected a module of XLA, got ...": every fault of this file.
Error fault(const Twine &what) { return createStringError("expected a module of XLA, " + what); }

/// Calls `visit` for each field. Returns false if the bytes are not a message, or if `visit` does.
template <typename Visit> bool forFields(StringRef bytes, Visit visit) {
  WireReader reader(bytes);
  WireField field;
  while (reader.next(field))
    if (!visit(field))
      return false;
  return !reader.isMalformed();
}

} // namespace

bool Reader::readShape(StringRef bytes, HloShape &shape, unsigned depth) {
  if (depth == kMaxShapeDepth)
    return false;
  return forFields(bytes, [&](const WireField &field) {
    switch (field.number) {
    case shape_field::kElementType:
      shape.elementType = static_cast<int32_t>(field.value);
      return true;
    case shape_field::kDimensions: {
      SmallVector<int64_t, 4> values;
      bool whole = appendIntegers(field, values);
      for (int64_t value : values)
        shape.dimensions.push_back(std::max<int64_t>(value, 0));
      return whole;
    }
    case shape_field::kTupleShapes:
      return readShape(field.bytes, shape.elements.emplace_back(), depth + 1);
    case shape_field::kLayout:
      return forFields(field.bytes, [&](const WireField &part) {
        if (part.number == layout_field::kMemorySpace)
          shape.memorySpace = part.integer();
        return true;
      });
    default:
      return true;
    }
  });
}

bool Reader::readOperandAlias(StringRef bytes, OperandAlias &alias) {
  return forFields(bytes, [&](const WireField &field) {
    if (field.number == alias_field::kOutputIndex)
      return appendIntegers(field, alias.output);
    if (field.number == alias_field::kOperand)
      alias.operand = field.integer();
    return field.number != alias_field::kOperandIndex || appendIntegers(field, alias.operandIndex);
  });
}

bool Reader::readParameterAliases(StringRef bytes) {
  return forFields(bytes, [&](const WireField &entry) {
    if (entry.number != 1)
      return true;
    OperandAlias alias; // The fields are those of an alias of an operand.
    if (!readOperandAlias(entry.bytes, alias))
      return false;
    module.aliases.push_back({alias.output, alias.operand, alias.operandIndex});
    return true;
  });
}

bool Reader::readDevices(StringRef bytes) {
  int64_t replicas = 1, partitions = 1;
  bool whole = forFields(bytes, [&](const WireField &field) {
    if (field.number == device_assignment_field::kReplicas)
      replicas = field.integer();
    if (field.number == device_assignment_field::kComputations)
      partitions = field.integer();
    return true;
  });
  if (replicas > 0 && partitions > 0 && replicas <= kMaxDevices && partitions <= kMaxDevices)
    module.devices = std::min(replicas * partitions, kMaxDevices);
  return whole;
}

/// Returns whether frontend attributes name the group of a user's schedule.
static bool hasSchedulingGroup(StringRef bytes) { return bytes.contains("_scheduling_group_id"); }

Error Reader::readInstruction(StringRef bytes, HloInstruction &instruction, InstructionIds &ids) {
  instruction.bytes = bytes;
  bool whole = forFields(bytes, [&](const WireField &field) {
    switch (field.number) {
    case instruction_field::kName:
      instruction.name = field.bytes;
      return true;
    case instruction_field::kOpcode:
      instruction.opcode = field.bytes;
      return true;
    case instruction_field::kShape:
      instruction.shape = HloShape();
      return readShape(field.bytes, instruction.shape, 0);
    case instruction_field::kParameterNumber:
      instruction.parameterNumber = field.integer();
      return true;
    case instruction_field::kTupleIndex:
      instruction.tupleIndex = field.integer();
      return true;
    case instruction_field::kDimensions:
      return appendIntegers(field, instruction.dimensions);
    case instruction_field::kChannel:
      instruction.channel = field.integer();
      return true;
    case instruction_field::kCustomCallTarget:
      instruction.customCallTarget = field.bytes;
      return true;
    case instruction_field::kDotDimensions:
      return forFields(field.bytes, [&](const WireField &part) {
        return part.number != 1 || appendIntegers(part, instruction.contractedOfLhs);
      });
    case instruction_field::kConvolutionDimensions:
      instruction.kernelOutputFeature = 0; // what is not written is 0
      return forFields(field.bytes, [&](const WireField &part) {
        if (part.number == convolution_field::kKernelOutputFeature)
          instruction.kernelOutputFeature = part.integer();
        return true;
      });
    case instruction_field::kId:
      instruction.id = field.integer();
      return true;
    case instruction_field::kOperands:
      return appendIntegers(field, ids.operands);
    case instruction_field::kControlPredecessors:
      return appendIntegers(field, ids.controlPredecessors);
    case instruction_field::kCalledComputations:
      return appendIntegers(field, ids.called);
    case instruction_field::kBackendConfig:
      instruction.backendConfig = field.bytes;
      return true;
    case instruction_field::kReplicaGroups:
      instruction.groups.lists.push_back(field.bytes);
      return true;
    case instruction_field::kDeviceList:
      return forFields(field.bytes, [&](const WireField &part) {
        if (part.number == 1)
          instruction.groups.lists.push_back(part.bytes);
        return true;
      });
    case instruction_field::kIotaDeviceList:
      instruction.groups.iota = field.bytes;
      return true;
    case instruction_field::kMeshGroups:
      instruction.groups.mesh = field.bytes;
      return true;
    case instruction_field::kSourceTargetPairs:
      instruction.groups.pairs.push_back(field.bytes);
      return true;
    case instruction_field::kHasSideEffect:
      instruction.hasSideEffect = field.value != 0;
      return true;
    case instruction_field::kFrontendAttributes:
      instruction.isAnnotated = hasSchedulingGroup(field.bytes);
      return true;
    case instruction_field::kOutputOperandAliasing:
      return readOperandAlias(field.bytes, instruction.aliases.emplace_back());
    default:
      return true;
    }
  });
  if (whole && !isId(instruction.id))
    return fault("got the instruction '" + instruction.name + "' with the id " + Twine(instruction.id));
  return whole ? Error::success() : fault("got a malformed instruction '" + instruction.name + "'");
}

Error Reader::readComputation(StringRef bytes) {
  HloComputation &computation = module.computations.emplace_back();
  computation.bytes = bytes;
  std::vector<InstructionIds> &ids = neighbours.emplace_back();
  int64_t rootId = 0;
  Error error = Error::success();
  bool whole = forFields(bytes, [&](const WireField &field) {
    switch (field.number) {
    case computation_field::kName:
      computation.name = field.bytes;
      return true;
    case computation_field::kInstructions:
      error = joinErrors(std::move(error),
                         readInstruction(field.bytes, computation.instructions.emplace_back(), ids.emplace_back()));
      return !error;
    case computation_field::kId:
      computation.id = field.integer();
      return true;
    case computation_field::kRootId:
      rootId = field.integer();
      return true;
    default:
      return true;
    }
  });
  if (error)
    return error;
  if (!whole)
    return fault("got a malformed computation '" + computation.name + "'");
  auto root = find_if(computation.instructions, [&](const HloInstruction &i) { return i.id == rootId; });
  if (root == computation.instructions.end())
    return fault("got the computation '" + computation.name + "' without its root " + Twine(rootId));
  computation.root = static_cast<int32_t>(root - computation.instructions.begin());
  if (!isId(computation.id))
    return fault("got the computation '" + computation.name + "' with the id " + Twine(computation.id));
  if (!computationOfId.try_emplace(computation.id, module.computations.size() - 1).second)
    return fault("got two computations with the id " + Twine(computation.id));
  return Error::success();
}

Error Reader::resolveComputation(HloComputation &computation, ArrayRef<InstructionIds> ids) {
  DenseMap<int64_t, int32_t> indexOf;
  for (size_t i = 0; i < ids.size(); ++i)
    if (!indexOf.try_emplace(computation.instructions[i].id, i).second)
      return fault("got two instructions with the id " + Twine(computation.instructions[i].id) + " in '" +
                   computation.name + "'");
  auto resolve = [](const DenseMap<int64_t, int32_t> &map, ArrayRef<int64_t> from, SmallVectorImpl<int32_t> &to) {
    for (int64_t id : from) {
      auto known = isId(id) ? map.find(id) : map.end();
      if (known == map.end())
        return false;
      to.push_back(known->second);
    }
    return true;
  };
  for (size_t i = 0; i < ids.size(); ++i) {
    HloInstruction &instruction = computation.instructions[i];
    if (!resolve(indexOf, ids[i].operands, instruction.operands) ||
        !resolve(indexOf, ids[i].controlPredecessors, instruction.controlPredecessors) ||
        !resolve(computationOfId, ids[i].called, instruction.called))
      return fault("got '" + instruction.name + "' with an operand, a predecessor or a callee that is not there");
  }
  return Error::success();
}

Error Reader::readSequence(StringRef entry) {
  int64_t id = 0;
  SmallVector<int64_t, 0> ids;
  bool whole = forFields(entry, [&](const WireField &field) {
    if (field.number == sequence_field::kKey)
      id = field.integer();
    return field.number != sequence_field::kValue || forFields(field.bytes, [&](const WireField &part) {
             return part.number != sequence_field::kInstructionIds || appendIntegers(part, ids);
           });
  });
  auto known = isId(id) ? computationOfId.find(id) : computationOfId.end();
  if (!whole || known == computationOfId.end())
    return fault("got a malformed order of the computation " + Twine(id));
  HloComputation &computation = module.computations[known->second];
  DenseMap<int64_t, int32_t> indexOf;
  for (size_t i = 0; i < computation.instructions.size(); ++i)
    indexOf[computation.instructions[i].id] = static_cast<int32_t>(i);
  if (ids.size() != computation.instructions.size() || !computation.sequence.empty())
    return fault("got an order of '" + computation.name + "' with " + Twine(ids.size()) + " of its " +
                 Twine(computation.instructions.size()) + " instructions");
  for (int64_t instruction : ids) {
    auto found = isId(instruction) ? indexOf.find(instruction) : indexOf.end();
    if (found == indexOf.end())
      return fault("got an order of '" + computation.name + "' with the unknown instruction " + Twine(instruction));
    computation.sequence.push_back(found->second);
  }
  return Error::success();
}

Error Reader::checkOrder(const HloComputation &computation) const {
  std::string why = findOrderFault(computation, computation.sequence);
  return why.empty() ? Error::success() : fault("got an order of '" + computation.name + "' in which " + why);
}

Error Reader::orderCalls() {
  // Depth-first, with a stack of its own: the chain of calls may be as long as the module.
  enum class Visit : uint8_t { None, Open, Done };
  std::vector<Visit> visits(module.computations.size(), Visit::None);
  std::vector<std::pair<int32_t, size_t>> stack;
  // Indexed by computation: the computations that its instructions call, in the order in which these run. So the result
  // does not depend on the order in which a module happens to list its computations.
  std::vector<SmallVector<int32_t, 4>> callees(module.computations.size());
  for (size_t i = 0; i < callees.size(); ++i) {
    const HloComputation &computation = module.computations[i];
    for (size_t k = 0; k < computation.instructions.size(); ++k) {
      const HloInstruction &instruction =
          computation.instructions[computation.sequence.empty() ? k : computation.sequence[k]];
      callees[i].append(instruction.called.begin(), instruction.called.end());
    }
  }
  std::vector<int32_t> roots = {module.entry};
  append_range(roots, seq<int32_t>(0, static_cast<int32_t>(visits.size())));
  for (int32_t first : roots) {
    if (visits[first] == Visit::None)
      stack.emplace_back(first, 0);
    while (!stack.empty()) {
      auto &[at, next] = stack.back();
      visits[at] = Visit::Open;
      if (next == callees[at].size()) {
        visits[at] = Visit::Done;
        module.calleesFirst.push_back(at);
        stack.pop_back();
        continue;
      }
      int32_t callee = callees[at][next++];
      if (visits[callee] == Visit::Open)
        return fault("got the computation '" + module.computations[callee].name + "', which calls itself");
      if (visits[callee] == Visit::None)
        stack.emplace_back(callee, 0);
    }
  }
  return Error::success();
}

Error Reader::read() {
  Error error = Error::success();
  bool whole = forFields(module.bytes, [&](const WireField &field) {
    switch (field.number) {
    case module_field::kName:
      module.name = field.bytes;
      return true;
    case module_field::kComputations:
      error = joinErrors(std::move(error), readComputation(field.bytes));
      return !error;
    case module_field::kEntryId:
      entryId = field.integer();
      return true;
    case module_field::kSchedule:
      schedules.push_back(field.bytes);
      return true;
    case module_field::kInputOutputAlias:
      return readParameterAliases(field.bytes);
    case module_field::kDeviceAssignment:
      return readDevices(field.bytes);
    default:
      return true;
    }
  });
  if (error)
    return error;
  if (!whole)
    return fault("got bytes that are not a message");
  auto entry = isId(entryId) ? computationOfId.find(entryId) : computationOfId.end();
  if (entry == computationOfId.end())
    return fault("got one without its entry computation");
  module.entry = entry->second;
  for (size_t i = 0; i < neighbours.size(); ++i)
    if (Error unresolved = resolveComputation(module.computations[i], neighbours[i]))
      return unresolved;
  for (StringRef schedule : schedules) {
    bool read = forFields(schedule, [&](const WireField &field) {
      if (field.number == schedule_field::kSequences)
        error = joinErrors(std::move(error), readSequence(field.bytes));
      return !error;
    });
    if (error)
      return error;
    if (!read)
      return fault("got a malformed schedule");
  }
  if (module.entryComputation().sequence.empty())
    return fault("got one without a schedule");
  for (const HloComputation &computation : module.computations)
    if (!computation.sequence.empty())
      if (Error invalid = checkOrder(computation))
        return invalid;
  return orderCalls();
}

std::string commsched::hlo::findOrderFault(const HloComputation &computation, ArrayRef<int32_t> order) {
  const std::vector<HloInstruction> &instructions = computation.instructions;
  if (order.size() != instructions.size())
    return "there are " + std::to_string(order.size()) + " instructions, not " + std::to_string(instructions.size());
  std::vector<bool> done(instructions.size(), false);
  for (int32_t at : order) {
    if (at < 0 || at >= static_cast<int32_t>(instructions.size()) || done[at])
      return "an instruction comes twice, or does not exist";
    const HloInstruction &instruction = instructions[at];
    for (ArrayRef<int32_t> before :
         {ArrayRef<int32_t>(instruction.operands), ArrayRef<int32_t>(instruction.controlPredecessors)})
      for (int32_t other : before)
        if (!done[other])
          return ("'" + instruction.name + "' comes before '" + instructions[other].name + "', which it needs").str();
    done[at] = true;
  }
  return "";
}

Expected<HloModule> commsched::hlo::readModule(StringRef bytes) {
  Reader reader(bytes);
  if (Error error = reader.read())
    return std::move(error);
  return std::move(reader.module);
}
