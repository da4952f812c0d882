//===- HloStorages.cpp - Arrays of a computation that share memory ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The rules are those of XLA's HloDataflowAnalysis and HloAliasAnalysis: what names an operand (a bitcast, a tuple),
// what must be in its place (a loop, an update of a slice), and the results in flight of asynchronous instructions.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Support/Arithmetic.h"
#include "HloGraph.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

/// The alignment of XLA:GPU's buffers, bytes (kXlaAllocatedBufferAlignBytes).
static constexpr Bytes kAlignment = 256;

void HloGraph::setShared(int32_t at, int64_t leaf, int32_t operand, int64_t operandLeaf) {
  if (leaf < numLeaves(at) && operandLeaf < numLeaves(operand))
    storageOfLeaf[firstLeaf[at] + leaf] = storageOfLeaf[firstLeaf[operand] + operandLeaf];
}

/// The leaf at which an element of a tuple begins; 0 if there is no such element. Programs take every element of the
/// tuples of loops, so the sums are kept.
int64_t HloGraph::leafOfElement(int32_t tuple, int64_t element) {
  const std::vector<HloShape> &elements = inside.instructions[tuple].shape.elements;
  SmallVector<int64_t, 8> &leaves = leavesOfTuple[tuple];
  if (leaves.empty()) {
    int64_t leaf = 0;
    for (const HloShape &shape : elements) {
      leaves.push_back(leaf);
      leaf += shape.numLeaves();
    }
  }
  return element >= 0 && element < static_cast<int64_t>(leaves.size()) ? leaves[element] : 0;
}

/// Shares leaves that an instruction only names: those of tuples, elements, bitcasts, and of asynchronous pairs.
void HloGraph::shareWithOperands(int32_t at) {
  const HloInstruction &instruction = inside.instructions[at];
  ArrayRef<int32_t> operands = instruction.operands;
  // Takes the leaves from `from` on of the first operand.
  auto shareFirst = [&](int64_t from) {
    for (int64_t leaf = 0; leaf < numLeaves(at); ++leaf)
      setShared(at, leaf, operands[0], from + leaf);
  };
  auto shareAll = [&](int64_t leaf) {
    for (int32_t operand : operands)
      for (int64_t i = 0; i < numLeaves(operand); ++i)
        setShared(at, leaf++, operand, i);
  };
  if (operands.empty())
    return;
  const HloShape &first = inside.instructions[operands[0]].shape;
  if (instruction.is("get-tuple-element"))
    return shareFirst(leafOfElement(operands[0], instruction.tupleIndex));
  if (instruction.is("tuple"))
    return shareAll(0);
  for (StringRef name : {"bitcast", "opt-barrier", "domain", "add-dependency", "async-update", "while",
                         "dynamic-update-slice", "all-reduce-done"})
    if (instruction.is(name))
      return shareFirst(0);
  // The result of a start is (what it reads, what it makes, ...), that of a copy (what it makes, what it reads, ...).
  if (instruction.is("copy-start"))
    return setShared(at, 1, operands[0], 0);
  if (instruction.is("copy-done") || instruction.is("recv-done"))
    return shareFirst(0);
  if (isDone(instruction) && !instruction.is("send-done"))
    return shareFirst(std::max<int64_t>(first.leafAt({1}), 0));
  if (isStart(instruction) && !instruction.is("all-reduce-start") && !instruction.is("recv")) {
    int64_t made = std::max<int64_t>(instruction.shape.leafAt({1}), 0), leaf = 0;
    for (int32_t operand : operands)
      for (int64_t i = 0; i < numLeaves(operand) && leaf < made; ++i)
        setShared(at, leaf++, operand, i);
  }
}

/// Shares outputs of a fusion whose root updates a slice of a parameter.
void HloGraph::shareFusionInPlace(int32_t at) {
  const HloInstruction &fusion = inside.instructions[at];
  if (fusion.called.size() != 1)
    return;
  const std::vector<HloInstruction> &body = module.computations[fusion.called[0]].instructions;
  auto skipBitcasts = [&](int32_t i) {
    while (body[i].is("bitcast") && !body[i].operands.empty())
      i = body[i].operands[0];
    return i;
  };
  int32_t root = module.computations[fusion.called[0]].root;
  SmallVector<int32_t, 4> outputs = {root};
  if (body[root].is("tuple"))
    outputs.assign(body[root].operands.begin(), body[root].operands.end());
  for (auto [leaf, output] : enumerate(outputs)) {
    const HloInstruction &update = body[skipBitcasts(output)];
    if (!update.is("dynamic-update-slice") || update.operands.empty())
      continue;
    const HloInstruction &source = body[skipBitcasts(update.operands[0])];
    int64_t operand = source.parameterNumber;
    if (source.is("parameter") && operand >= 0 && operand < static_cast<int64_t>(fusion.operands.size()))
      setShared(at, leaf, fusion.operands[operand], 0);
  }
}

void HloGraph::shareInPlace(int32_t at) {
  const HloInstruction &instruction = inside.instructions[at];
  if (instruction.is("fusion"))
    shareFusionInPlace(at);
  for (const OperandAlias &alias : instruction.aliases) {
    int64_t leaf = instruction.shape.leafAt(alias.output);
    if (leaf < 0 || alias.operand < 0 || alias.operand >= static_cast<int64_t>(instruction.operands.size()))
      continue;
    int32_t operand = instruction.operands[alias.operand];
    int64_t operandLeaf = inside.instructions[operand].shape.leafAt(alias.operandIndex);
    if (operandLeaf >= 0)
      setShared(at, leaf, operand, operandLeaf);
  }
}

/// Results are in memory of the caller: that of a parameter for what a loop carries or what the user donated.
void HloGraph::shareResults() {
  auto rootOf = [&](StorageIndex storage) {
    while (representative[storage] != storage)
      storage = representative[storage];
    return storage;
  };
  // Indexed by parameter number.
  SmallVector<int32_t, 8> parameters;
  for (auto [at, instruction] : enumerate(inside.instructions)) {
    if (instruction.is("parameter") && instruction.parameterNumber >= 0 &&
        instruction.parameterNumber < static_cast<int64_t>(inside.instructions.size())) {
      parameters.resize(std::max<size_t>(parameters.size(), instruction.parameterNumber + 1), kNone);
      parameters[instruction.parameterNumber] = static_cast<int32_t>(at);
    }
    if (!instruction.is("parameter") && !instruction.is("constant"))
      continue;
    for (int64_t leaf = 0; leaf < numLeaves(at); ++leaf)
      storages[storageOfLeaf[firstLeaf[at] + leaf]].isOutside = true;
  }
  int32_t root = inside.root;
  auto merge = [&](int64_t leaf, int32_t parameter, int64_t parameterLeaf) {
    StorageIndex from = rootOf(storageOfLeaf[firstLeaf[root] + leaf]);
    StorageIndex to = rootOf(storageOfLeaf[firstLeaf[parameter] + parameterLeaf]);
    representative[from] = to;
    storages[to].bytes = std::max(storages[to].bytes, storages[from].bytes);
  };
  for (int64_t leaf = 0; leaf < numLeaves(root); ++leaf)
    storages[storageOfLeaf[firstLeaf[root] + leaf]].isOutside = true;
  if (isEntry) {
    for (const ParameterAlias &alias : module.aliases) {
      bool known = alias.parameter >= 0 && alias.parameter < static_cast<int64_t>(parameters.size()) &&
                   parameters[alias.parameter] != kNone;
      int64_t leaf = inside.instructions[root].shape.leafAt(alias.output);
      int64_t from = known ? inside.instructions[parameters[alias.parameter]].shape.leafAt(alias.parameterIndex) : -1;
      if (leaf >= 0 && leaf < numLeaves(root) && from >= 0 && from < numLeaves(parameters[alias.parameter]))
        merge(leaf, parameters[alias.parameter], from);
    }
  } else if (parameters.size() == 1 && parameters[0] != kNone && numLeaves(parameters[0]) == numLeaves(root)) {
    for (int64_t leaf = 0; leaf < numLeaves(root); ++leaf) {
      carriedOver.isUnchanged.push_back(rootOf(storageOfLeaf[firstLeaf[root] + leaf]) ==
                                        rootOf(storageOfLeaf[firstLeaf[parameters[0]] + leaf]));
      merge(leaf, parameters[0], leaf);
    }
  }
  for (StorageIndex storage = 0; storage < static_cast<StorageIndex>(storages.size()); ++storage) {
    StorageIndex to = rootOf(storage);
    storages[to].isOutside |= storages[storage].isOutside;
    representative[storage] = to;
  }
}

void HloGraph::findStorages() {
  firstLeaf.reserve(inside.instructions.size() + 1);
  firstLeaf.push_back(0);
  for (const HloInstruction &instruction : inside.instructions)
    firstLeaf.push_back(firstLeaf.back() + instruction.shape.numLeaves());
  storageOfLeaf.assign(firstLeaf.back(), kNone);
  SmallVector<const HloShape *, 8> leaves;
  for (int32_t at : inside.sequence) {
    shareWithOperands(at);
    shareInPlace(at);
    leaves.clear();
    inside.instructions[at].shape.appendLeaves(leaves);
    for (auto [leaf, shape] : enumerate(leaves)) {
      StorageIndex &storage = storageOfLeaf[firstLeaf[at] + leaf];
      if (storage != kNone)
        continue;
      storage = static_cast<StorageIndex>(storages.size());
      representative.push_back(storage);
      storages.push_back({mulDivUp(shape->bytes(), 1, kAlignment) * kAlignment, false});
    }
  }
  shareResults();
}
