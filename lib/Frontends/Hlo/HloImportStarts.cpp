//===- HloImportStarts.cpp - Asynchronous instructions of XLA as starts and waits -------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A collective is a start and a wait. So is a message, which is a permutation once it has been sent and received, and a
// copy, which is a permutation in groups of one device. Orders that no data says are tokens: values without memory.
//
//===------------------------------------------------------------------------------------------===//

#include "HloImporter.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

/// The type of tokens.
static constexpr StringLiteral kToken = "tensor<0xi1>";
/// The operation that makes tokens, and that waits for them.
static constexpr StringLiteral kControl = "control";

//===- Order that no data says ----------------------------------------------------------------===//

/// Finds control predecessors. A wait takes no tokens: it is pinned, and so are its predecessors.
void Importer::findOrder(Scope &scope) {
  for (auto [at, instruction] : enumerate(scope.computation.instructions))
    for (int32_t before : instruction.controlPredecessors) {
      scope.tokens.try_emplace(before);
      if (isDone(instruction))
        scope.pinned.insert({static_cast<int32_t>(at), before});
    }
}

/// Makes the token of a control predecessor that has run.
void Importer::makeToken(int32_t at, Scope &scope) {
  auto token = scope.tokens.find(at);
  if (token == scope.tokens.end())
    return;
  Values given;
  if (auto started = scope.inFlight.find(at);
      started != scope.inFlight.end() && isStart(scope.computation.instructions[at]))
    given = {started->second.future};
  for (const Value &value : scope.values[at])
    if (given.empty() && !value.name.empty())
      given = {value};
  if (given.empty())
    return;
  token->second = {"%v" + std::to_string(numValues++), kToken.str()};
  compute(kControl, given, {token->second}, "", 0, scope.computation.instructions[at].name);
}

/// The operands behind the control predecessors: the first one becomes a view that is there when they are done.
Values Importer::afterPredecessors(int32_t at, Values operands, Scope &scope) {
  const HloInstruction &instruction = scope.computation.instructions[at];
  Values tokens;
  for (int32_t before : instruction.controlPredecessors)
    if (const Value &token = scope.tokens[before]; !token.name.empty())
      tokens.push_back(token);
  if (tokens.empty())
    return operands;
  if (operands.empty())
    return tokens;
  Values view = {{"%v" + std::to_string(numValues++), operands[0].type}};
  tokens.insert(tokens.begin(), operands[0]);
  compute(kControl, tokens, view, "aliases [0]", 0, instruction.name);
  operands[0] = view[0];
  return operands;
}

/// Pairs sends with receives of their channel. A pair is a message if both are done here, and after both have begun.
void Importer::findMessages(Scope &scope) {
  const std::vector<HloInstruction> &instructions = scope.computation.instructions;
  std::map<int64_t, SmallVector<int32_t, 2>> sends, receives;
  // By start: how many dones it has.
  std::map<int32_t, int> dones;
  // Indexed by instruction: its place in the order.
  std::vector<size_t> place(instructions.size(), 0);
  for (auto [i, at] : enumerate(scope.computation.sequence)) {
    place[at] = i;
    if (instructions[at].is("send"))
      sends[instructions[at].channel].push_back(at);
    if (instructions[at].is("recv"))
      receives[instructions[at].channel].push_back(at);
  }
  for (auto &[channel, list] : sends) {
    auto other = receives.find(channel);
    if (list.size() != 1 || other == receives.end() || other->second.size() != 1)
      continue;
    Message message{list[0], other->second[0], {}};
    const HloInstruction &send = instructions[message.send], &recv = instructions[message.recv];
    std::optional<std::vector<int64_t>> pairs = pairsOf(send);
    if (!pairs || pairs != pairsOf(recv) || send.operands.empty() || recv.shape.elements.empty() ||
        typeOf(instructions[send.operands[0]].shape) != typeOf(recv.shape.elements[0]) ||
        recv.shape.elements[0].isTuple())
      continue;
    size_t begun = std::max(place[message.send], place[message.recv]);
    bool endsHere = true;
    int ends = 0;
    for (const HloInstruction &done : instructions)
      if (isDone(done) && !done.operands.empty() &&
          (done.operands[0] == message.send || done.operands[0] == message.recv)) {
        endsHere &= place[&done - instructions.data()] > begun;
        ++ends;
      }
    message.pairs = *pairs;
    if (endsHere && ends == 2)
      scope.messages[message.send] = scope.messages[message.recv] = message;
  }
}

//===- Starts ---------------------------------------------------------------------------------===//

void Importer::start(int32_t at, Scope &scope, const CommForm &form, Values operands, const Leaves &results, Ns time) {
  StringRef name = scope.computation.instructions[at].name;
  InFlight started;
  started.fit = form.fit;
  SmallVector<std::string, 2> types;
  for (const HloShape *leaf : results)
    types.push_back(typeOf(*leaf));
  if (form.fit == CommForm::Fit::Packed) {
    HloShape packed = *results[0];
    packed.dimensions.insert(packed.dimensions.begin(), static_cast<int64_t>(results.size()));
    operands = compute("concatenate", operands, makeValues({&packed}), "", 0, name);
    types = {operands[0].type};
  } else if (form.fit == CommForm::Fit::Ragged) {
    started.others.append(operands.begin() + 1, operands.end());
    operands.resize(1);
    types = {operands[0].type};
  }
  started.arrives = types[0];
  started.future = {"%f" + std::to_string(numValues++), "!comm.future<" + join(types, ", ") + ">"};
  body << started.future.name << " = " << form.prefix << " ";
  printList(operands);
  body << " on @";
  groupPlaces.push_back({text.size(), form.group});
  body << form.suffix << " {comm.cost = #comm.cost<time = " << time << ">"
       << (scope.pinned.count(at) ? ", comm.pinned" : "") << "} : (";
  printTypes(operands);
  body << ") -> " << started.future.type;
  printLocation(name);
  scope.inFlight[at] = std::move(started);
}

Error Importer::importStart(int32_t at, Scope &scope) {
  const HloInstruction &instruction = scope.computation.instructions[at];
  if (scope.messages.count(at))
    return importMessage(at, scope);
  if (instruction.is("copy-start")) {
    importCopy(at, scope);
    return Error::success();
  }
  Expected<std::optional<CollectiveCost>> cost = costs.ofCollective(instruction, scope.computation);
  if (!cost)
    return cost.takeError();
  if (!*cost && !isStart(instruction))
    return Error::success(); // A kernel.
  Values operands = operandsOf(at, scope);
  // What a start reads is the first part of its result; nothing else of it is used before the end.
  scope.values[at] = operands;
  scope.values[at].resize(scope.graph.numLeaves(at), {"", ""});
  if (!*cost)
    return Error::success();
  Expected<std::optional<CommForm>> form = formOf(instruction, scope);
  if (!form)
    return form.takeError();
  if (!*form)
    return Error::success();
  start(at, scope, **form, operands, resultLeavesOf(instruction), (**cost).time);
  if (!isStart(instruction))
    scope.values[at] = end(at, at, scope);
  return Error::success();
}

/// The later one of a send and its recv starts the permutation.
Error Importer::importMessage(int32_t at, Scope &scope) {
  const Message &message = scope.messages[at];
  int32_t other = at == message.send ? message.recv : message.send;
  if (scope.values[other].empty()) {
    scope.values[at] = valuesOf(at, scope);
    scope.values[at].resize(scope.graph.numLeaves(at), {"", ""});
    return Error::success();
  }
  Ns time = 0;
  for (int32_t part : {message.send, message.recv}) {
    Expected<std::optional<CollectiveCost>> cost =
        costs.ofCollective(scope.computation.instructions[part], scope.computation);
    if (!cost)
      return cost.takeError();
    time = std::max(time, *cost ? (**cost).time : 0);
  }
  scope.values[at].resize(scope.graph.numLeaves(at), {"", ""});
  // The data, and the tokens of both.
  Values operands = operandsOf(message.send, scope);
  append_range(operands, operandsOf(message.recv, scope));
  StringRef name = scope.computation.instructions[at].name;
  Values data = {{"%v" + std::to_string(numValues++), operands[0].type}};
  compute(kControl, operands, data, "aliases [0]", 0, name);
  start(at, scope, *permutation(message.pairs), data, {&scope.computation.instructions[message.recv].shape.elements[0]},
        time);
  scope.inFlight[other] = scope.inFlight[at];
  return Error::success();
}

void Importer::importCopy(int32_t at, Scope &scope) {
  const HloInstruction &copy = scope.computation.instructions[at];
  Values operands = operandsOf(at, scope);
  scope.values[at] = Values(scope.graph.numLeaves(at), {"", ""});
  if (operands.size() != 1 || copy.shape.elements.empty() || typeOf(copy.shape.elements[0]) != operands[0].type) {
    scope.values[at] = operands;
    scope.values[at].resize(scope.graph.numLeaves(at), {"", ""});
    return;
  }
  CommForm form = {"comm.permute", groupOfEach(module.devices), " pairs [0, 0]", CommForm::Fit::Exact};
  start(at, scope, form, operands, {&copy.shape.elements[0]}, costs.ofCopy(copy.shape.bytes() / 2).time);
}

//===- Ends -----------------------------------------------------------------------------------===//

Values Importer::wait(int32_t at, const InFlight &started, const Values &results, Scope &scope) {
  printResults(results);
  body << "comm.wait " << started.future.name << (scope.pinned.count(at) ? " {comm.pinned}" : "") << " : "
       << started.future.type;
  printLocation(scope.computation.instructions[at].name);
  return results;
}

/// Waits for what `start` has begun, and makes the results of `at`.
Values Importer::end(int32_t at, int32_t start, Scope &scope) {
  const InFlight &started = scope.inFlight[start];
  const HloInstruction &instruction = scope.computation.instructions[at],
                       &begun = scope.computation.instructions[start];
  if (begun.is("send") || begun.is("recv")) {
    // The data of a recv, and the token of either.
    const HloShape &shape = scope.computation.instructions[scope.messages[start].recv].shape.elements[0];
    Values arrived = wait(at, started, makeValues({&shape}), scope),
           token = {{"%v" + std::to_string(numValues++), kToken.str()}};
    compute(kControl, arrived, token, "", 0, instruction.name);
    Values results;
    for (const HloShape *leaf : leavesOf(instruction.shape))
      results.push_back(typeOf(*leaf) == kToken ? token[0] : arrived[0]);
    return results;
  }
  Leaves leaves = leavesOf(instruction.shape);
  if (started.fit == CommForm::Fit::Exact)
    return wait(at, started, makeValues(leaves), scope);
  Values arrived = wait(at, started, {{"%v" + std::to_string(numValues++), started.arrives}}, scope);
  if (started.fit == CommForm::Fit::Packed)
    return compute("slice", arrived, makeValues(leaves), "", 0, instruction.name);
  // What does not travel begins with the array that is written in place.
  append_range(arrived, started.others);
  std::swap(arrived[0], arrived[1]);
  return compute("ragged-all-to-all", arrived, makeValues(leaves), "aliases [0] mutates [0]", 0, instruction.name);
}

/// A wait; if the dialect does not have what was started, the whole of it, on the stream of kernels.
void Importer::importDone(int32_t at, Scope &scope) {
  int32_t start = at;
  while (!scope.computation.instructions[start].operands.empty() &&
         (start == at || scope.computation.instructions[start].is("async-update")))
    start = scope.computation.instructions[start].operands[0];
  if (scope.inFlight.count(start)) {
    scope.values[at] = end(at, start, scope);
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
