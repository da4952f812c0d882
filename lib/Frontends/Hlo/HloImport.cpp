//===- HloImport.cpp - A module of XLA as comm IR ---------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The IR is printed as text, as the importer of FX graphs does: this library has no MLIR, and MLIR's parser verifies
// what it reads. Every array of an instruction's result is a value of its own; tuples disappear.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Frontends/Hlo/HloImport.h"
#include "CommSched/Frontends/Hlo/HloScheduler.h"
#include "HloImporter.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

static std::string elementName(int32_t type) {
  int64_t bits = bitsOf(type);
  switch (elementTypeOf(type)) {
  case ElementType::F64:
    return "f64";
  case ElementType::F32:
    return "f32";
  case ElementType::BF16:
    return "bf16";
  case ElementType::F16:
    return "f16";
  default:
    return "i" + std::to_string(std::max<int64_t>(bits, 1));
  }
}

std::string commsched::hlo::typeOf(const HloShape &shape) {
  if (bitsOf(shape.elementType) == 0)
    return "tensor<0xi1>";
  std::string text = "tensor<";
  for (int64_t size : shape.dimensions)
    text += std::to_string(size) + "x";
  return text + elementName(shape.elementType) + ">";
}

//===- Printing -------------------------------------------------------------------------------===//

void Importer::printList(const Values &values) {
  interleaveComma(values, body, [&](const Value &value) { body << value.name; });
}

void Importer::printTypes(const Values &values) {
  interleaveComma(values, body, [&](const Value &value) { body << value.type; });
}

void Importer::printResults(const Values &values) {
  if (values.empty())
    return;
  StringRef first = values.front().name;
  body << first.split('#').first;
  if (values.size() > 1)
    body << ":" << values.size();
  body << " = ";
}

void Importer::printLocation(StringRef name) {
  body << " loc(\"";
  printEscapedString(name, body);
  body << "\")\n";
}

Values Importer::makeValues(ArrayRef<const HloShape *> leaves) {
  Values values;
  std::string name = "%v" + std::to_string(numValues++);
  for (auto [i, leaf] : enumerate(leaves))
    values.push_back({leaves.size() == 1 ? name : name + "#" + std::to_string(i), typeOf(*leaf)});
  return values;
}

/// The values of an instruction's operands, as they are.
Values Importer::valuesOf(int32_t at, const Scope &scope) const {
  Values operands;
  for (int32_t operand : scope.computation.instructions[at].operands)
    append_range(operands, scope.values[operand]);
  return operands;
}

/// The values of an instruction's operands, there when its control predecessors are done.
Values Importer::operandsOf(int32_t at, Scope &scope) { return afterPredecessors(at, valuesOf(at, scope), scope); }

/// Prints a comm.compute, and returns its results.
Values Importer::compute(StringRef name, const Values &operands, const Values &results, StringRef attributes, Ns time,
                         StringRef location, bool isPinned, Bytes workspace) {
  printResults(results);
  body << "comm.compute \"";
  printEscapedString(name.empty() ? "unknown" : name, body);
  body << "\"(";
  printList(operands);
  body << ")" << (attributes.empty() ? "" : " ") << attributes << " {comm.cost = #comm.cost<time = " << time
       << (workspace > 0 ? ", workspace = " + std::to_string(workspace) : "") << ">"
       << (isPinned ? ", comm.pinned" : "") << "} : (";
  printTypes(operands);
  body << ") -> " << (results.size() == 1 ? "" : "(");
  printTypes(results);
  body << (results.size() == 1 ? "" : ")");
  printLocation(location);
  return results;
}

//===- Computations ---------------------------------------------------------------------------===//

void Importer::importKernel(int32_t at, Scope &scope, const Values &operands, Ns time, Bytes workspace) {
  const HloInstruction &instruction = scope.computation.instructions[at];
  // The storages of the operands, by leaf, as far as these are the instruction's own.
  SmallVector<StorageIndex, 8> storages;
  for (int32_t operand : instruction.operands)
    for (int64_t leaf = 0; leaf < scope.graph.numLeaves(operand); ++leaf)
      storages.push_back(scope.graph.storageAt(operand, leaf));
  bool ownOperands = storages.size() == operands.size();
  bool isView = instruction.is("bitcast") || instruction.is("opt-barrier");
  std::string aliases, mutates;
  for (int64_t leaf = 0; leaf < scope.graph.numLeaves(at); ++leaf) {
    auto found = ownOperands ? find(storages, scope.graph.storageAt(at, leaf)) : storages.end();
    bool shares = found != storages.end();
    std::string place = shares ? std::to_string(found - storages.begin()) : "-1";
    aliases += (aliases.empty() ? "" : ", ") + place;
    if (!shares || isView)
      continue;
    mutates += (mutates.empty() ? "" : ", ") + place;
    *found = kNone; // Nothing is written twice.
  }
  std::string attributes;
  if (aliases.find_first_not_of("-1, ") != std::string::npos || aliases.find('0') != std::string::npos ||
      !mutates.empty() || isView)
    attributes = "aliases [" + aliases + "]";
  if (!mutates.empty())
    attributes += " mutates [" + mutates + "]";
  if (instruction.hasSideEffect)
    attributes += attributes.empty() ? "side_effects" : " side_effects";
  scope.values[at] = compute(instruction.opcode, operands, makeValues(leavesOf(instruction.shape)), attributes, time,
                             instruction.name, scope.pinned.count(at) != 0, workspace);
}

/// Finds times and peaks of what branches and calls run, if there are any.
Error Importer::measureCallees() {
  auto isCall = [](const HloInstruction &instruction) {
    return runsComputations(instruction) && !instruction.is("while");
  };
  if (none_of(module.computations, [&](const HloComputation &one) { return any_of(one.instructions, isCall); }))
    return Error::success();
  HloOptions options;
  options.measureOnly = true;
  Expected<HloResult> result = scheduleModule(module, model, options);
  if (!result)
    return result.takeError();
  for (const ComputationResult &one : result->computations)
    measured[one.computation] = {one.makespanBefore, one.peakBefore};
  return Error::success();
}

/// A branch or a call with all that it runs, collectives included, is one kernel: the dialect has neither.
void Importer::importCall(int32_t at, Scope &scope) {
  const HloInstruction &instruction = scope.computation.instructions[at];
  Ns time = 0;
  Bytes workspace = 0;
  for (int32_t called : instruction.called) {
    auto [once, peak] = measured[called];
    time = instruction.is("conditional") ? std::max(time, once) : time + once;
    workspace = std::max(workspace, peak);
  }
  importKernel(at, scope, operandsOf(at, scope), time, workspace);
}

Error Importer::importLoop(int32_t at, Scope &scope, unsigned depth) {
  const HloInstruction &loop = scope.computation.instructions[at];
  Values given = operandsOf(at, scope);
  // The body is the callee whose result is what the loop carries.
  auto inside = find_if(loop.called, [&](int32_t callee) { return !carried[callee].isUnchanged.empty(); });
  if (inside == loop.called.end() || carried[*inside].isUnchanged.size() != given.size())
    return createStringError("'" + loop.name + "' is a loop without a body");
  std::string number = std::to_string(numLoops++);
  Values results = makeValues(leavesOf(loop.shape));
  if (results.size() != given.size())
    return createStringError("'" + loop.name + "' does not return what it carries");
  Values arguments = given;
  for (auto [i, argument] : enumerate(arguments))
    argument.name = "%l" + number + "_" + std::to_string(i);
  std::string end = "%end" + number;
  body << end << " = arith.constant " << tripCountOf(loop).value_or(1) << " : index\n";
  printResults(results);
  body << "scf.for %i" << number << " = %zero to " << end << " step %one";
  if (!given.empty()) {
    body << " iter_args(";
    interleaveComma(zip(arguments, given), body,
                    [&](auto pair) { body << std::get<0>(pair).name << " = " << std::get<1>(pair).name; });
    body << ") -> (";
    printTypes(given);
    body << ")";
  }
  body << " {\n";
  Scope inner(module, *inside, carried);
  for (auto [i, instruction] : enumerate(inner.computation.instructions))
    if (instruction.is("parameter"))
      inner.values[i] = arguments;
  if (Error error = importBlock(*inside, inner, depth + 1))
    return error;
  const Values &returned = inner.values[inner.computation.root];
  if (!returned.empty()) {
    body << "scf.yield ";
    printList(returned);
    body << " : ";
    printTypes(returned);
    body << "\n";
  }
  body << "}" << (scope.pinned.count(at) ? " {comm.pinned}" : "");
  printLocation(loop.name);
  scope.values[at] = results;
  return Error::success();
}

/// A tuple, an element of one, or the like: other names for values.
Error Importer::importNames(int32_t at, Scope &scope) {
  const HloInstruction &instruction = scope.computation.instructions[at];
  Values operands = operandsOf(at, scope);
  int64_t first = 0;
  if (instruction.is("get-tuple-element") && !instruction.operands.empty())
    first = std::max<int64_t>(
        scope.computation.instructions[instruction.operands[0]].shape.leafAt({instruction.tupleIndex}), 0);
  int64_t count = scope.graph.numLeaves(at);
  if (first + count > static_cast<int64_t>(operands.size()))
    return createStringError("'" + instruction.name + "' has another shape than what it names");
  scope.values[at].append(operands.begin() + first, operands.begin() + first + count);
  return Error::success();
}

Error Importer::importValue(int32_t at, Scope &scope, unsigned depth) {
  const HloInstruction &instruction = scope.computation.instructions[at];
  if (instruction.is("parameter"))
    return Error::success();
  if (instruction.is("tuple") || instruction.is("async-update") || instruction.is("get-tuple-element"))
    return importNames(at, scope);
  if (isDone(instruction)) {
    importDone(at, scope);
    return Error::success();
  }
  if (instruction.is("while"))
    return importLoop(at, scope, depth);
  if (runsComputations(instruction)) {
    importCall(at, scope);
    return Error::success();
  }
  if (Error error = importStart(at, scope)) // Or a collective without a done.
    return error;
  if (!isStart(instruction) && scope.inFlight.count(at) == 0)
    importKernel(at, scope, operandsOf(at, scope), costs.ofKernel(instruction, scope.computation).time);
  return Error::success();
}

Error Importer::importInstruction(int32_t at, Scope &scope, unsigned depth) {
  if (Error error = importValue(at, scope, depth))
    return error;
  makeToken(at, scope);
  return Error::success();
}

Error Importer::importBlock(int32_t index, Scope &scope, unsigned depth) {
  if (depth > kMaxNesting)
    return createStringError("'" + module.computations[index].name + "' is nested more than " + Twine(kMaxNesting) +
                             " loops deep");
  findOrder(scope);
  findMessages(scope);
  for (int32_t at : scope.computation.sequence)
    if (Error error = importInstruction(at, scope, depth))
      return error;
  return Error::success();
}

Expected<std::string> Importer::run() {
  if (Error error = measureCallees())
    return std::move(error);
  for (int32_t index : module.calleesFirst)
    if (!module.computations[index].sequence.empty())
      carried[index] = HloGraph(module, index, carried).carriedOver;
  Scope entry(module, module.entry, carried);
  Values arguments;
  const std::vector<HloInstruction> &instructions = entry.computation.instructions;
  std::vector<int32_t> parameters;
  for (auto [at, instruction] : enumerate(instructions))
    if (instruction.is("parameter"))
      parameters.push_back(static_cast<int32_t>(at));
  stable_sort(parameters,
              [&](int32_t a, int32_t b) { return instructions[a].parameterNumber < instructions[b].parameterNumber; });
  for (int32_t at : parameters) {
    for (const HloShape *leaf : leavesOf(instructions[at].shape)) {
      entry.values[at].push_back({"%p" + std::to_string(arguments.size()), typeOf(*leaf)});
      arguments.push_back(entry.values[at].back());
    }
  }
  if (Error error = importBlock(module.entry, entry, 0))
    return std::move(error);
  std::string whole;
  raw_string_ostream os(whole);
  std::map<StringRef, std::string> symbols;
  for (const auto &[place, attribute] : groupPlaces)
    symbols[attribute];
  for (auto [index, group] : enumerate(symbols)) {
    group.second = "g" + std::to_string(index);
    os << "comm.group @" << group.second << " " << group.first << "\n";
  }
  os << "func.func @main(";
  interleaveComma(arguments, os, [&](const Value &value) { os << value.name << ": " << value.type; });
  os << ") -> (";
  const Values &results = entry.values[entry.computation.root];
  interleaveComma(results, os, [&](const Value &value) { os << value.type; });
  os << ") {\n%zero = arith.constant 0 : index\n%one = arith.constant 1 : index\n";
  size_t printed = 0;
  for (const auto &[place, attribute] : groupPlaces) {
    os << StringRef(text).slice(printed, place) << symbols[attribute];
    printed = place;
  }
  os << StringRef(text).substr(printed) << "return";
  if (!results.empty())
    os << " ";
  interleaveComma(results, os, [&](const Value &value) { os << value.name; });
  if (!results.empty())
    os << " : ";
  interleaveComma(results, os, [&](const Value &value) { os << value.type; });
  os << "\n}\n";
  return whole;
}

Expected<std::string> commsched::hlo::importAsComm(const HloModule &module, const CostModel &model) {
  return Importer(module, model).run();
}
