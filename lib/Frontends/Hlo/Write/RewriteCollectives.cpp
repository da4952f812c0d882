//===- RewriteCollectives.cpp - Merge and split collectives of a module of XLA ----------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A collective over one operand and the same over several differ in shapes:
//
//   all-gather-start      (in, out)         ((in, ...), (out, ...))
//   all-reduce-start      out               (out, ...)
//   async-start           ((in), out)       ((in, ...), (out, ...))
//   the dones of all      out               (out, ...)
//
// An async-start calls a computation of its own with the parameters and the reduce-scatter. When a collective is taken
// apart, the dones of the parts get the names and ids of the tuple's elements, and the other way round, so no user
// changes.
//
//===------------------------------------------------------------------------------------------===//

#include "RewriteCollectives.h"
#include "CommSched/Frontends/Hlo/Graph/XlaEstimates.h"
#include "Hlo/Graph/HloGraph.h"
#include "Hlo/Reader/HloFields.h"
#include "Hlo/Reader/WireFormat.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

namespace {

/// Finds the pairs of one computation.
class PairFinder {
public:
  /// `callers` is indexed by computation: number of instructions of the module that call it.
  PairFinder(const HloModule &module, int32_t computation, ArrayRef<int32_t> callers);
  std::optional<CollectivePair> pairAt(int32_t start) const;

private:
  bool isPlain(int32_t at) const;
  bool wrapsPlainly(const HloInstruction &start, int32_t body) const;
  bool findElements(CollectivePair &pair) const;

  const HloModule &module;
  const HloComputation &inside;
  /// Indexed by instruction: its users, with repetitions, and whether a control dependence names it.
  std::vector<SmallVector<int32_t, 2>> users;
  std::vector<bool> isControlled;
  ArrayRef<int32_t> callers;
};

PairFinder::PairFinder(const HloModule &module, int32_t computation, ArrayRef<int32_t> callers)
    : module(module), inside(module.computations[computation]), users(inside.instructions.size()),
      isControlled(inside.instructions.size(), false), callers(callers) {
  for (auto [at, instruction] : enumerate(inside.instructions)) {
    for (int32_t operand : instruction.operands)
      users[operand].push_back(static_cast<int32_t>(at));
    for (int32_t other : instruction.controlPredecessors)
      isControlled[at] = isControlled[other] = true;
  }
}

/// Returns true if only operands and users constrain the place of an instruction.
bool PairFinder::isPlain(int32_t at) const {
  const HloInstruction &instruction = inside.instructions[at];
  return !isControlled[at] && !instruction.isAnnotated && instruction.aliases.empty();
}

/// Returns true if a computation consists of parameters and a reduce-scatter of them, in order.
bool PairFinder::wrapsPlainly(const HloInstruction &start, int32_t body) const {
  const HloComputation &wrapped = module.computations[body];
  const HloInstruction &root = wrapped.instructions[wrapped.root];
  if (!root.is("reduce-scatter") || callers[body] != 1 || root.operands.size() != start.operands.size() ||
      wrapped.instructions.size() != root.operands.size() + 1 || !root.controlPredecessors.empty())
    return false;
  for (auto [position, operand] : enumerate(root.operands)) {
    const HloInstruction &parameter = wrapped.instructions[operand];
    if (!parameter.is("parameter") || parameter.parameterNumber != static_cast<int64_t>(position))
      return false;
  }
  return true;
}

/// Finds the only element of each result of a collective with several operands.
bool PairFinder::findElements(CollectivePair &pair) const {
  size_t parts = inside.instructions[pair.start].operands.size();
  pair.elements.assign(parts, -1);
  if (users[pair.done].size() != parts || pair.done == inside.root)
    return false;
  for (int32_t user : users[pair.done]) {
    const HloInstruction &element = inside.instructions[user];
    int64_t index = element.tupleIndex;
    if (!element.is("get-tuple-element") || !isPlain(user) || index < 0 || index >= static_cast<int64_t>(parts) ||
        pair.elements[index] >= 0)
      return false;
    pair.elements[index] = user;
  }
  return true;
}

std::optional<CollectivePair> PairFinder::pairAt(int32_t at) const {
  const HloInstruction &start = inside.instructions[at];
  CollectivePair pair;
  pair.start = at;
  StringRef end = start.is("all-gather-start")   ? "all-gather-done"
                  : start.is("all-reduce-start") ? "all-reduce-done"
                  : start.is("async-start")      ? "async-done"
                                                 : "";
  if (end.empty() || start.operands.empty() || !isPlain(at) || users[at].size() != 1)
    return std::nullopt;
  pair.done = users[at].front();
  if (!inside.instructions[pair.done].is(end) || !isPlain(pair.done))
    return std::nullopt;
  if (start.is("async-start")) {
    if (start.called.size() != 1 || !wrapsPlainly(start, start.called.front()))
      return std::nullopt;
    pair.body = start.called.front();
  }
  size_t parts = start.operands.size();
  const HloShape &result = inside.instructions[pair.done].shape;
  if (parts == 1)
    return result.isTuple() ? std::nullopt : std::optional(pair);
  if (!result.isTuple() || result.elements.size() != parts || !findElements(pair))
    return std::nullopt;
  return pair;
}

/// The instruction that says what a pair does: the wrapped one of an async-start.
const HloInstruction &collectiveOf(const HloModule &module, int32_t computation, const CollectivePair &pair) {
  if (pair.body < 0)
    return module.computations[computation].instructions[pair.start];
  const HloComputation &body = module.computations[pair.body];
  return body.instructions[body.root];
}

/// Returns true if XLA has chosen a kernel of its own for a start instead of NCCL's.
bool hasOwnKernel(const HloInstruction &start) {
  return start.backendConfig.contains("kernel_strategy") && !start.backendConfig.contains("KERNEL_STRATEGY_DEFAULT");
}

/// The fields of an instruction that its neighbours determine.
constexpr uint32_t kOwnFields[] = {instruction_field::kName, instruction_field::kShape, instruction_field::kId,
                                   instruction_field::kOperands};

/// The fields of an instruction that others like it share, with another shape. XLA's estimate of its time is not
/// theirs.
std::string withShape(StringRef instruction, StringRef shape) {
  std::string fields = withoutFields(instruction, kOwnFields);
  writeBytes(instruction_field::kShape, shape, fields);
  StringRef config = fieldOf(instruction, instruction_field::kBackendConfig);
  if (std::string kept = withoutEstimates(config); kept != config) {
    fields = withoutFields(fields, {instruction_field::kBackendConfig});
    writeBytes(instruction_field::kBackendConfig, kept, fields);
  }
  return fields;
}

StringRef shapeOf(const HloInstruction &instruction) { return fieldOf(instruction.bytes, instruction_field::kShape); }

/// Says in the configuration of a start or a done that it is asynchronous.
std::string madeAsynchronous(StringRef fields) {
  std::string config = fieldOf(fields, instruction_field::kBackendConfig).str();
  if (size_t at = config.find(R"("is_sync":true)"); at != std::string::npos)
    config.replace(at, StringRef(R"("is_sync":true)").size(), R"("is_sync":false)");
  std::string result = withoutFields(fields, {instruction_field::kBackendConfig});
  writeBytes(instruction_field::kBackendConfig, config, result);
  return result;
}

/// Writes pairs of one computation anew.
class PairWriter {
public:
  PairWriter(const HloModule &module, int32_t computation, RewriteEditor &editor)
      : module(module), index(computation), inside(module.computations[computation]), editor(editor) {}

  void makeAsynchronous(int32_t start);
  /// Returns the ids of the new starts; the dones have those of the elements.
  SmallVector<int64_t, 4> split(const CollectivePair &pair, bool asynchronous);
  /// Returns the ids of the new start and of the new done.
  std::pair<int64_t, int64_t> merge(ArrayRef<CollectivePair> pairs);

private:
  int64_t addStart(const CollectivePair &like, StringRef fields, ArrayRef<StringRef> inputs,
                   ArrayRef<StringRef> outputs, ArrayRef<int64_t> operands);
  int64_t addBody(int32_t like, ArrayRef<StringRef> inputs, ArrayRef<StringRef> outputs);

  const HloModule &module;
  int32_t index;
  const HloComputation &inside;
  RewriteEditor &editor;
};

/// Adds a computation with a reduce-scatter of these shapes. Returns its id.
int64_t PairWriter::addBody(int32_t like, ArrayRef<StringRef> inputs, ArrayRef<StringRef> outputs) {
  const HloComputation &body = module.computations[like];
  const HloInstruction &root = body.instructions[body.root];
  const HloInstruction &parameter = body.instructions[root.operands.front()];
  int64_t id = editor.newComputationId();
  // Ids of instructions are unique in a module: XLA has the computation's in the upper half.
  int64_t nextId = id << 32;
  SmallVector<int64_t, 8> operands;
  std::string bytes =
      withoutFields(body.bytes, {computation_field::kName, computation_field::kInstructions,
                                 computation_field::kProgramShape, computation_field::kId, computation_field::kRootId});
  std::string program, names;
  writeBytes(computation_field::kName, editor.newName(body.name), bytes);
  auto addInstruction = [&](std::string fields, StringRef name) {
    writeBytes(instruction_field::kName, name, fields);
    writeInteger(instruction_field::kId, nextId, fields);
    writeBytes(computation_field::kInstructions, fields, bytes);
    return nextId++;
  };
  for (auto [number, shape] : enumerate(inputs)) {
    std::string fields = withoutFields(withShape(parameter.bytes, shape), {instruction_field::kParameterNumber});
    writeInteger(instruction_field::kParameterNumber, static_cast<int64_t>(number), fields);
    std::string name = editor.newName("param_" + std::to_string(number));
    operands.push_back(addInstruction(std::move(fields), name));
    writeBytes(program_field::kParameters, shape, program);
    writeBytes(program_field::kParameterNames, name, names);
  }
  std::string result = outputs.size() == 1 ? outputs.front().str() : writeTupleShape(outputs);
  std::string fields = withShape(root.bytes, result);
  writeIntegers(instruction_field::kOperands, operands, fields);
  int64_t rootId = addInstruction(std::move(fields), editor.newName(root.name));
  writeBytes(program_field::kResult, result, program);
  writeBytes(computation_field::kProgramShape, program + names, bytes);
  writeInteger(computation_field::kId, id, bytes);
  writeInteger(computation_field::kRootId, rootId, bytes);
  operands.push_back(rootId);
  editor.addComputation(index, std::move(bytes), operands);
  return id;
}

/// Adds a start like that of a pair, over these operands. Returns its id.
int64_t PairWriter::addStart(const CollectivePair &like, StringRef given, ArrayRef<StringRef> inputs,
                             ArrayRef<StringRef> outputs, ArrayRef<int64_t> operands) {
  const HloInstruction &start = inside.instructions[like.start];
  bool single = operands.size() == 1;
  std::string in = writeTupleShape(inputs), out = single ? outputs.front().str() : writeTupleShape(outputs);
  std::string shape;
  if (start.is("all-reduce-start"))
    shape = out;
  else if (single && like.body < 0)
    shape = writeTupleShape({inputs.front(), outputs.front()});
  else
    shape = writeTupleShape({in, out});
  std::string fields = withShape(given, shape);
  if (like.body >= 0) {
    fields = withoutFields(fields, {instruction_field::kCalledComputations});
    writeIntegers(instruction_field::kCalledComputations, {addBody(like.body, inputs, outputs)}, fields);
  }
  int64_t id = editor.newInstructionId(index);
  editor.add(index, fields, editor.newName(start.name), id, operands);
  return id;
}

/// Makes a start or a done asynchronous.
void PairWriter::makeAsynchronous(int32_t at) {
  const HloInstruction &start = inside.instructions[at];
  SmallVector<int64_t, 4> operands;
  for (int32_t operand : start.operands)
    operands.push_back(inside.instructions[operand].id);
  std::string fields = withoutFields(madeAsynchronous(start.bytes),
                                     {instruction_field::kName, instruction_field::kId, instruction_field::kOperands});
  editor.replace(index, at, fields, operands);
}

SmallVector<int64_t, 4> PairWriter::split(const CollectivePair &pair, bool asynchronous) {
  const HloInstruction &start = inside.instructions[pair.start], &done = inside.instructions[pair.done];
  std::string fields = asynchronous ? madeAsynchronous(start.bytes) : start.bytes.str();
  std::string end = asynchronous && isSynchronous(done) ? madeAsynchronous(done.bytes) : done.bytes.str();
  SmallVector<int64_t, 4> ids;
  for (auto [operand, element] : zip_equal(start.operands, pair.elements)) {
    const HloInstruction &input = inside.instructions[operand];
    StringRef output = shapeOf(inside.instructions[element]);
    ids.push_back(addStart(pair, fields, {shapeOf(input)}, {output}, {input.id}));
    editor.replace(index, element, withShape(end, output), {ids.back()});
  }
  editor.remove(index, pair.start);
  editor.remove(index, pair.done);
  if (pair.body >= 0)
    editor.removeComputation(pair.body);
  return ids;
}

std::pair<int64_t, int64_t> PairWriter::merge(ArrayRef<CollectivePair> pairs) {
  const CollectivePair &first = pairs.front();
  SmallVector<StringRef, 8> inputs, outputs;
  SmallVector<int64_t, 8> operands;
  for (const CollectivePair &pair : pairs) {
    const HloInstruction &input = inside.instructions[inside.instructions[pair.start].operands.front()];
    inputs.push_back(shapeOf(input));
    outputs.push_back(shapeOf(inside.instructions[pair.done]));
    operands.push_back(input.id);
  }
  int64_t start = addStart(first, inside.instructions[first.start].bytes, inputs, outputs, operands);
  const HloInstruction &done = inside.instructions[first.done];
  int64_t end = editor.newInstructionId(index);
  editor.add(index, withShape(done.bytes, writeTupleShape(outputs)), editor.newName(done.name), end, {start});
  for (auto [number, pair] : enumerate(pairs)) {
    const HloInstruction &old = inside.instructions[pair.done];
    std::string element;
    writeBytes(instruction_field::kOpcode, "get-tuple-element", element);
    writeBytes(instruction_field::kShape, outputs[number], element);
    writeBytes(instruction_field::kMetadata, fieldOf(old.bytes, instruction_field::kMetadata), element);
    writeInteger(instruction_field::kTupleIndex, static_cast<int64_t>(number), element);
    editor.replace(index, pair.done, element, {end});
    editor.remove(index, pair.start);
    if (pair.body >= 0)
      editor.removeComputation(pair.body);
  }
  return {start, end};
}

/// A text that says which values of which type a reduction combines, and how; empty if that is not plain.
std::string reductionOf(const HloComputation &reduction) {
  const HloInstruction &root = reduction.instructions[reduction.root];
  if (reduction.instructions.size() != 3 || root.operands.size() != 2 || !root.called.empty())
    return "";
  std::string text = root.opcode.str();
  for (int32_t operand : root.operands) {
    const HloInstruction &parameter = reduction.instructions[operand];
    if (!parameter.is("parameter"))
      return "";
    text += " " + std::to_string(parameter.shape.elementType) + ":" + std::to_string(parameter.parameterNumber);
  }
  return text + " " + std::to_string(root.shape.elementType);
}

} // namespace

std::vector<std::vector<CollectivePair>> commsched::hlo::findPairs(const HloModule &module) {
  std::vector<int32_t> callers(module.computations.size(), 0);
  for (const HloComputation &computation : module.computations)
    for (const HloInstruction &instruction : computation.instructions)
      for (int32_t called : instruction.called)
        ++callers[called];
  std::vector<std::vector<CollectivePair>> pairs(module.computations.size());
  for (auto [index, inside] : enumerate(module.computations)) {
    PairFinder finder(module, static_cast<int32_t>(index), callers);
    for (int32_t at : inside.sequence)
      if (isStart(inside.instructions[at]))
        if (std::optional<CollectivePair> pair = finder.pairAt(at))
          pairs[index].push_back(*pair);
  }
  return pairs;
}

Expected<std::string> commsched::hlo::mergeKeyOf(const HloModule &module, int32_t computation,
                                                 const CollectivePair &pair) {
  const HloInstruction &start = module.computations[computation].instructions[pair.start];
  const HloInstruction &collective = collectiveOf(module, computation, pair);
  Expected<std::vector<std::vector<int64_t>>> groups = groupsOf(module, collective.groups);
  if (!groups)
    return groups.takeError();
  if (hasOwnKernel(start))
    return "";
  std::string key = (start.opcode + "|" + collective.opcode + "|").str() + withoutEstimates(start.backendConfig) + "|" +
                    withoutEstimates(collective.backendConfig) + "|";
  key += std::to_string(module.computations[computation].instructions[start.operands.front()].shape.elementType);
  key += collective.channel > 0 ? "|channel|" : "|";
  for (ArrayRef<int64_t> group : *groups) {
    for (int64_t device : group)
      key += std::to_string(device) + ",";
    key += ";";
  }
  for (int32_t called : collective.called) {
    std::string reduction = reductionOf(module.computations[called]);
    key += "|" + (reduction.empty() ? "#" + std::to_string(called) : reduction);
  }
  // Everything else has to be equal to the byte, the wrapped instruction's and the start's.
  constexpr uint32_t kCompared[] = {instruction_field::kName,
                                    instruction_field::kShape,
                                    instruction_field::kMetadata,
                                    instruction_field::kChannel,
                                    instruction_field::kId,
                                    instruction_field::kOperands,
                                    instruction_field::kCalledComputations,
                                    instruction_field::kReplicaGroups,
                                    instruction_field::kDeviceList,
                                    instruction_field::kIotaDeviceList,
                                    instruction_field::kMeshGroups,
                                    instruction_field::kBackendConfig};
  key += "|" + withoutFields(collective.bytes, kCompared);
  if (pair.body >= 0)
    key += "|" + withoutFields(start.bytes, kCompared);
  return key;
}

std::string commsched::hlo::splitCollectives(const HloModule &module, bool splits, bool asynchronous, int32_t &count) {
  RewriteEditor editor(module);
  count = 0;
  std::vector<std::vector<CollectivePair>> pairs = findPairs(module);
  for (auto [index, computation] : enumerate(module.computations)) {
    if (computation.sequence.empty())
      continue;
    auto at = static_cast<int32_t>(index);
    PairWriter writer(module, at, editor);
    // By instruction: the ids that are in its place in the order.
    DenseMap<int32_t, SmallVector<int64_t, 4>> places;
    DenseSet<int32_t> moved;
    for (const CollectivePair &pair : pairs[index]) {
      if (!splits || pair.elements.empty() || hasOwnKernel(computation.instructions[pair.start]))
        continue;
      places[pair.start] = writer.split(pair, asynchronous);
      for (int32_t element : pair.elements) {
        places[pair.done].push_back(computation.instructions[element].id);
        moved.insert(element);
      }
    }
    if (asynchronous)
      for (auto [other, instruction] : enumerate(computation.instructions))
        if ((isStart(instruction) || isDone(instruction)) && isSynchronous(instruction) &&
            !places.contains(static_cast<int32_t>(other))) {
          writer.makeAsynchronous(static_cast<int32_t>(other));
          places[static_cast<int32_t>(other)] = {instruction.id};
        }
    if (places.empty())
      continue;
    std::vector<int64_t> order;
    for (int32_t other : computation.sequence) {
      auto place = places.find(other);
      if (place != places.end())
        append_range(order, place->second);
      else if (!moved.contains(other))
        order.push_back(computation.instructions[other].id);
      count += place != places.end() && isStart(computation.instructions[other]);
    }
    editor.setOrder(at, std::move(order));
  }
  return editor.write();
}

std::string commsched::hlo::mergeCollectives(const HloModule &module, ArrayRef<MergedOrder> orders) {
  RewriteEditor editor(module);
  for (const MergedOrder &merged : orders) {
    PairWriter writer(module, merged.computation, editor);
    std::vector<std::pair<int64_t, int64_t>> ids;
    for (const std::vector<CollectivePair> &bucket : merged.buckets)
      ids.push_back(writer.merge(bucket));
    std::vector<int64_t> order;
    for (const PlacedInstruction &placed : merged.order) {
      if (placed.bucket < 0)
        order.push_back(module.computations[merged.computation].instructions[placed.instruction].id);
      else
        order.push_back(placed.isDone ? ids[placed.bucket].second : ids[placed.bucket].first);
    }
    editor.setOrder(merged.computation, std::move(order));
  }
  return editor.write();
}
