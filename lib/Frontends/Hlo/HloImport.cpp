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
#include "HloCosts.h"
#include "HloGraph.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"
#include <map>

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

namespace {

/// A value: how it is written, and its type.
struct Value {
  std::string name, type;
};
using Values = SmallVector<Value, 2>;

/// A collective as the dialect has it.
struct CommForm {
  /// "comm.all_reduce sum", the group's symbol without its sign, and " dim 1".
  std::string prefix, group, suffix;
};

std::string elementName(int32_t type) {
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

/// Tokens and the like are a bit without memory.
std::string typeOf(const HloShape &shape) {
  if (bitsOf(shape.elementType) == 0)
    return "i1";
  std::string text = "tensor<";
  for (int64_t size : shape.dimensions)
    text += std::to_string(size) + "x";
  return text + elementName(shape.elementType) + ">";
}

class Importer {
public:
  Importer(const HloModule &module, const CostModel &model)
      : module(module), costs(module, model), carried(module.computations.size()), body(text) {}

  Expected<std::string> run();

private:
  struct Scope {
    const HloComputation &computation;
    HloGraph graph;
    /// Indexed by instruction: the values of its leaves.
    std::vector<Values> values;
    /// Indexed by start: the future and its type, or nothing if the dialect does not have the collective.
    std::map<int32_t, Value> futures;
  };

  Error importBlock(int32_t index, Scope &scope, unsigned depth);
  Error importInstruction(int32_t at, Scope &scope, unsigned depth);
  Error importLoop(int32_t at, Scope &scope, unsigned depth);
  Error importStart(int32_t at, Scope &scope);
  void importDone(int32_t at, Scope &scope);
  void importKernel(int32_t at, Scope &scope, const Values &operands, Ns time);
  Expected<std::optional<CommForm>> formOf(const HloInstruction &start, const Scope &scope);
  SmallVector<const HloShape *, 4> resultLeavesOf(const HloInstruction &start) const;
  std::optional<std::string> reductionOf(const HloInstruction &collective) const;
  std::optional<std::string> groupOf(const std::vector<std::vector<int64_t>> &groups);
  Values operandsOf(int32_t at, const Scope &scope) const;
  Values makeValues(ArrayRef<const HloShape *> leaves);
  Values wait(const Value &future, ArrayRef<const HloShape *> leaves, StringRef name);
  void printList(const Values &values);
  void printTypes(const Values &values);
  void printResults(const Values &values);
  void printLocation(StringRef name);

  const HloModule &module;
  HloCosts costs;
  /// Indexed by computation.
  std::vector<Carried> carried;
  std::string text;
  raw_string_ostream body;
  /// The groups' attributes by symbol, and the other way round.
  std::map<std::string, std::string> groupSymbols;
  int64_t numValues = 0, numLoops = 0;
};

SmallVector<const HloShape *, 4> leavesOf(const HloShape &shape) {
  SmallVector<const HloShape *, 4> leaves;
  shape.appendLeaves(leaves);
  return leaves;
}

} // namespace

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

Values Importer::operandsOf(int32_t at, const Scope &scope) const {
  Values operands;
  for (int32_t operand : scope.computation.instructions[at].operands)
    append_range(operands, scope.values[operand]);
  return operands;
}

//===- Collectives ----------------------------------------------------------------------------===//

/// The dialect's name of what a collective does with two elements; none if it has none.
std::optional<std::string> Importer::reductionOf(const HloInstruction &collective) const {
  if (collective.called.size() != 1)
    return std::nullopt;
  const HloComputation &reduction = module.computations[collective.called[0]];
  StringRef opcode = reduction.instructions[reduction.root].opcode;
  if (opcode == "add")
    return "sum";
  if (opcode == "maximum")
    return "max";
  if (opcode == "minimum")
    return "min";
  return std::nullopt;
}

/// The symbol of a group. None if the groups do not cover all ranks from 0 on, or differ in size.
std::optional<std::string> Importer::groupOf(const std::vector<std::vector<int64_t>> &groups) {
  std::vector<bool> seen;
  std::string attribute = "#comm.ranks<[";
  int64_t count = 0;
  for (const std::vector<int64_t> &group : groups)
    count += static_cast<int64_t>(group.size());
  seen.assign(count, false);
  for (const std::vector<int64_t> &group : groups) {
    if (group.size() != groups.front().size())
      return std::nullopt;
    attribute += attribute.back() == '[' ? "[" : ", [";
    for (auto [i, rank] : enumerate(group)) {
      if (rank >= count || seen[rank])
        return std::nullopt;
      seen[rank] = true;
      attribute += (i == 0 ? "" : ", ") + std::to_string(rank);
    }
    attribute += "]";
  }
  attribute += "]>";
  return groupSymbols.try_emplace(attribute, "g" + std::to_string(groupSymbols.size())).first->second;
}

/// Whether `result` is `given` with a dimension multiplied by `factor`.
static bool isMultiplied(const HloShape &given, const HloShape &result, int64_t dim, int64_t factor) {
  if (dim < 0 || dim >= static_cast<int64_t>(given.dimensions.size()) ||
      result.dimensions.size() != given.dimensions.size())
    return false;
  SmallVector<int64_t, 4> expected(given.dimensions);
  expected[dim] *= factor;
  return ArrayRef<int64_t>(expected) == ArrayRef<int64_t>(result.dimensions);
}

/// What a collective makes: its shape, but for pairs whose shape is (what they read, what they make, ...).
SmallVector<const HloShape *, 4> Importer::resultLeavesOf(const HloInstruction &start) const {
  const HloInstruction &wrapped = *costs.wrappedBy(&start);
  bool isPair = &wrapped == &start && isStart(start) && !start.is("all-reduce-start");
  return leavesOf(isPair && wrapped.shape.elements.size() > 1 ? wrapped.shape.elements[1] : wrapped.shape);
}

/// The dialect's form of a collective; none if it does not have one for these shapes.
Expected<std::optional<CommForm>> Importer::formOf(const HloInstruction &start, const Scope &scope) {
  const HloInstruction &wrapped = *costs.wrappedBy(&start);
  Expected<std::vector<std::vector<int64_t>>> groups = groupsOf(module, wrapped.groups);
  if (!groups)
    return createStringError("'" + start.name + "': " + toString(groups.takeError()));
  StringRef kind = wrapped.opcode;
  kind.consume_back("-start");
  int64_t ranks = static_cast<int64_t>(groups->front().size());
  int64_t dim = wrapped.dimensions.empty() ? 0 : wrapped.dimensions[0];
  SmallVector<const HloShape *, 4> given, results;
  for (int32_t operand : start.operands)
    append_range(given, leavesOf(scope.computation.instructions[operand].shape));
  results = resultLeavesOf(start);
  if (given.empty() || given.size() != results.size())
    return std::nullopt;
  auto all = [&](auto fits) {
    return llvm::all_of(zip(given, results), [&](auto pair) { return fits(*std::get<0>(pair), *std::get<1>(pair)); });
  };
  std::optional<std::string> group = groupOf(*groups), reduction = reductionOf(wrapped);
  std::string along = " dim " + std::to_string(dim);
  if (kind == "all-gather" && group && all([&](auto &a, auto &b) { return isMultiplied(a, b, dim, ranks); }))
    return CommForm{"comm.all_gather", *group, along};
  if (kind == "reduce-scatter" && group && reduction &&
      all([&](auto &a, auto &b) { return isMultiplied(b, a, dim, ranks); }))
    return CommForm{"comm.reduce_scatter " + *reduction, *group, along};
  if (kind == "all-reduce" && group && reduction && all([](auto &a, auto &b) { return a.dimensions == b.dimensions; }))
    return CommForm{"comm.all_reduce " + *reduction, *group, ""};
  if (kind == "all-to-all" && group && given.size() == 1 && isMultiplied(*given[0], *results[0], dim, 1) &&
      given[0]->dimensions[dim] % ranks == 0) {
    std::string at = std::to_string(dim);
    return CommForm{"comm.all_to_all", *group, " split " + at + " concat " + at};
  }
  return std::nullopt;
}

Error Importer::importStart(int32_t at, Scope &scope) {
  const HloInstruction &start = scope.computation.instructions[at];
  Values operands = operandsOf(at, scope);
  // What a start reads is the first part of its result; nothing else of it is used before the end.
  scope.values[at] = operands;
  scope.values[at].resize(scope.graph.numLeaves(at), {"", ""});
  Expected<std::optional<CollectiveCost>> cost = costs.ofCollective(start, scope.computation);
  if (!cost)
    return cost.takeError();
  if (!*cost)
    return Error::success();
  Expected<std::optional<CommForm>> form = formOf(start, scope);
  if (!form)
    return form.takeError();
  if (!*form)
    return Error::success();
  SmallVector<const HloShape *, 4> results = resultLeavesOf(start);
  Value future = {"%f" + std::to_string(numValues++), "!comm.future<"};
  future.type += join(map_range(results, [](const HloShape *leaf) { return typeOf(*leaf); }), ", ") + ">";
  body << future.name << " = " << (*form)->prefix << " ";
  printList(operands);
  body << " on @" << (*form)->group << (*form)->suffix << " {comm.cost = #comm.cost<time = " << (**cost).time
       << ">} : (";
  printTypes(operands);
  body << ") -> " << future.type;
  printLocation(start.name);
  scope.futures[at] = future;
  if (!isStart(start))
    scope.values[at] = wait(future, results, start.name);
  return Error::success();
}

Values Importer::wait(const Value &future, ArrayRef<const HloShape *> leaves, StringRef name) {
  Values results = makeValues(leaves);
  printResults(results);
  body << "comm.wait " << future.name << " : " << future.type;
  printLocation(name);
  return results;
}

/// A wait; if the dialect does not have what was started, the whole of it, on the stream of kernels.
void Importer::importDone(int32_t at, Scope &scope) {
  const HloInstruction &done = scope.computation.instructions[at];
  int32_t start = at;
  while (!scope.computation.instructions[start].operands.empty() &&
         (start == at || scope.computation.instructions[start].is("async-update")))
    start = scope.computation.instructions[start].operands[0];
  if (auto future = scope.futures.find(start); future != scope.futures.end()) {
    scope.values[at] = wait(future->second, leavesOf(done.shape), done.name);
    return;
  }
  const HloInstruction &started = scope.computation.instructions[start];
  Ns time = 0;
  if (isStart(started)) {
    Expected<std::optional<CollectiveCost>> cost = costs.ofCollective(started, scope.computation);
    if (!cost)
      consumeError(cost.takeError()); // The start has said so.
    else
      time = *cost                      ? (**cost).time
             : started.is("copy-start") ? costs.ofCopy(started.shape.bytes() / 2).time
                                        : costs.ofAsyncKernel(started).time;
  }
  Values operands;
  copy_if(scope.values[start], std::back_inserter(operands), [](const Value &value) { return !value.name.empty(); });
  importKernel(at, scope, operands, time);
}

//===- Computations ---------------------------------------------------------------------------===//

void Importer::importKernel(int32_t at, Scope &scope, const Values &operands, Ns time) {
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
  scope.values[at] = makeValues(leavesOf(instruction.shape));
  printResults(scope.values[at]);
  body << "comm.compute \"";
  printEscapedString(instruction.opcode.empty() ? "unknown" : instruction.opcode, body);
  body << "\"(";
  printList(operands);
  body << ")";
  if (aliases.find_first_not_of("-1, ") != std::string::npos || aliases.find('0') != std::string::npos ||
      !mutates.empty() || isView)
    body << " aliases [" << aliases << "]";
  if (!mutates.empty())
    body << " mutates [" << mutates << "]";
  if (instruction.hasSideEffect)
    body << " side_effects";
  body << " {comm.cost = #comm.cost<time = " << time << ">} : (";
  printTypes(operands);
  body << ") -> ";
  if (scope.values[at].size() != 1)
    body << "(";
  printTypes(scope.values[at]);
  if (scope.values[at].size() != 1)
    body << ")";
  printLocation(instruction.name);
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
  Scope inner{module.computations[*inside], HloGraph(module, *inside, carried), {}, {}};
  inner.values.resize(inner.computation.instructions.size());
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
  body << "}";
  printLocation(loop.name);
  scope.values[at] = results;
  return Error::success();
}

Error Importer::importInstruction(int32_t at, Scope &scope, unsigned depth) {
  const HloInstruction &instruction = scope.computation.instructions[at];
  if (!instruction.controlPredecessors.empty())
    return createStringError("'" + instruction.name + "' has control predecessors, which comm IR does not have");
  if (instruction.is("parameter"))
    return Error::success();
  if (instruction.is("tuple") || instruction.is("async-update") || instruction.is("get-tuple-element")) {
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
  if (isDone(instruction)) {
    importDone(at, scope);
    return Error::success();
  }
  if (instruction.is("while"))
    return importLoop(at, scope, depth);
  if (isStart(instruction))
    return importStart(at, scope);
  if (Error error = importStart(at, scope)) // A collective without a done.
    return error;
  if (scope.futures.count(at) == 0)
    importKernel(at, scope, operandsOf(at, scope), costs.ofKernel(instruction, scope.computation).time);
  return Error::success();
}

Error Importer::importBlock(int32_t index, Scope &scope, unsigned depth) {
  if (depth > kMaxNesting)
    return createStringError("'" + module.computations[index].name + "' is nested more than " + Twine(kMaxNesting) +
                             " loops deep");
  for (int32_t at : scope.computation.sequence)
    if (Error error = importInstruction(at, scope, depth))
      return error;
  return Error::success();
}

Expected<std::string> Importer::run() {
  for (int32_t index : module.calleesFirst)
    if (!module.computations[index].sequence.empty())
      carried[index] = HloGraph(module, index, carried).carriedOver;
  Scope entry{module.entryComputation(), HloGraph(module, module.entry, carried), {}, {}};
  entry.values.resize(entry.computation.instructions.size());
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
  for (const auto &[attribute, symbol] : groupSymbols)
    os << "comm.group @" << symbol << " " << attribute << "\n";
  os << "func.func @main(";
  interleaveComma(arguments, os, [&](const Value &value) { os << value.name << ": " << value.type; });
  os << ") -> (";
  const Values &results = entry.values[entry.computation.root];
  interleaveComma(results, os, [&](const Value &value) { os << value.type; });
  os << ") {\n%zero = arith.constant 0 : index\n%one = arith.constant 1 : index\n" << text << "return";
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
