//===- HloGraph.cpp - Nodes and dependences of one computation --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Dependences are those of operands and of control predecessors, and those of shared storage: what writes a storage in
// place stays after its earlier readers and before its later ones, as the given order has them.
//
//===------------------------------------------------------------------------------------------===//

#include "HloGraph.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

struct HloGraph::Access {
  StorageIndex storage = 0;
  bool isWrite = false;

  bool operator<(const Access &other) const {
    return std::pair(storage, !isWrite) < std::pair(other.storage, !other.isWrite);
  }
  bool operator==(const Access &other) const { return storage == other.storage; }
};

bool commsched::hlo::isStart(const HloInstruction &instruction) {
  return instruction.opcode.ends_with("-start") || instruction.is("send") || instruction.is("recv");
}

bool commsched::hlo::isDone(const HloInstruction &instruction) { return instruction.opcode.ends_with("-done"); }

bool commsched::hlo::isSynchronous(const HloInstruction &start) {
  return start.backendConfig.contains(R"("is_sync":true)");
}

bool commsched::hlo::runsComputations(const HloInstruction &instruction) {
  return instruction.is("while") || instruction.is("conditional") || instruction.is("call");
}

HloGraph::HloGraph(const HloModule &module, int32_t computation, ArrayRef<Carried> carried)
    : module(module), inside(module.computations[computation]), isEntry(computation == module.entry) {
  findStorages();
  findNodes();
  findDependences(carried);
}

/// Returns true if an instruction only names existing arrays, so that its place in the order does not matter.
static bool onlyNames(const HloInstruction &instruction) {
  for (StringRef name : {"parameter", "constant", "bitcast", "get-tuple-element", "tuple", "async-update", "after-all"})
    if (instruction.is(name))
      return true;
  return false;
}

void HloGraph::findNodes() {
  const std::vector<HloInstruction> &instructions = inside.instructions;
  std::vector<bool> isNode(instructions.size(), false);
  for (auto [at, instruction] : enumerate(instructions)) {
    isNode[at] = isNode[at] || !onlyNames(instruction) || !instruction.controlPredecessors.empty();
    for (int32_t before : instruction.controlPredecessors)
      isNode[before] = true;
    // An element of a tuple that is put together here needs all of the tuple's operands.
    if (instruction.is("get-tuple-element") && !instruction.operands.empty() &&
        instructions[instruction.operands.front()].is("tuple"))
      isNode[instruction.operands.front()] = true;
  }
  nodeOf.assign(instructions.size(), kNone);
  for (int32_t at : inside.sequence)
    if (isNode[at]) {
      nodeOf[at] = static_cast<NodeId>(nodes.size());
      nodes.emplace_back().instruction = at;
    }
}

/// The instruction that started what `done` ends, or kNone if another computation did.
int32_t HloGraph::startOf(int32_t done) const {
  int32_t at = done;
  do {
    if (inside.instructions[at].operands.empty())
      return kNone;
    at = inside.instructions[at].operands.front();
  } while (inside.instructions[at].is("async-update"));
  return isStart(inside.instructions[at]) ? at : kNone;
}

void HloGraph::appendReads(int32_t at, SmallVectorImpl<Access> &accesses) const {
  for (int32_t operand : inside.instructions[at].operands)
    for (int64_t leaf = 0; leaf < numLeaves(operand); ++leaf)
      accesses.push_back({storageAt(operand, leaf), false});
}

SmallVector<HloGraph::Access, 8> HloGraph::accessesOf(const GraphNode &node, ArrayRef<Carried> carried) const {
  SmallVector<Access, 8> accesses;
  const HloInstruction &instruction = inside.instructions[node.instruction];
  // A barrier, or a tuple that is a node, touches no memory.
  if (onlyNames(instruction) || instruction.is("opt-barrier") || instruction.is("domain"))
    return accesses;
  appendReads(node.instruction, accesses);
  // What is in flight is read and written until the end.
  if (node.start != kNone)
    appendReads(nodes[node.start].instruction, accesses);
  size_t read = accesses.size();
  const Carried *body = nullptr;
  if (instruction.is("while") && !instruction.called.empty())
    for (int32_t called : instruction.called)
      if (!carried[called].isUnchanged.empty())
        body = &carried[called];
  int64_t given = isStart(instruction) && !instruction.is("all-reduce-start") && !instruction.is("recv") &&
                          !instruction.is("copy-start")
                      ? std::max<int64_t>(instruction.shape.leafAt({1}), 0)
                      : 0;
  for (int64_t leaf = 0; leaf < numLeaves(node.instruction); ++leaf) {
    bool unchanged =
        leaf < given || (body && leaf < static_cast<int64_t>(body->isUnchanged.size()) && body->isUnchanged[leaf]);
    accesses.push_back({storageAt(node.instruction, leaf), !unchanged});
  }
  // The source of a copy is the second part of its result.
  if (instruction.is("copy-start") && accesses.size() > read + 1)
    accesses[read + 1].isWrite = false;
  sort(accesses); // A write comes before a read of the same storage, and implies it.
  accesses.erase(unique(accesses), accesses.end());
  return accesses;
}

void HloGraph::findDependences(ArrayRef<Carried> carried) {
  // Indexed by instruction that is not a node: the nodes that it names.
  std::vector<SmallVector<NodeId, 2>> named(inside.instructions.size());
  // Indexed by storage: its last writer, and its readers since.
  std::vector<NodeId> writer(storages.size(), kNone);
  std::vector<SmallVector<NodeId, 2>> readers(storages.size());
  for (int32_t at : inside.sequence) {
    const HloInstruction &instruction = inside.instructions[at];
    SmallVector<NodeId, 8> before;
    for (int32_t operand : instruction.operands) {
      if (nodeOf[operand] != kNone)
        before.push_back(nodeOf[operand]);
      else
        append_range(before, named[operand]);
    }
    NodeId id = nodeOf[at];
    if (id == kNone) {
      sort(before);
      before.erase(unique(before), before.end());
      named[at].assign(before.begin(), before.end());
      continue;
    }
    GraphNode &node = nodes[id];
    for (int32_t other : instruction.controlPredecessors)
      before.push_back(nodeOf[other]);
    if (isDone(instruction))
      if (int32_t start = startOf(at); start != kNone)
        node.start = nodeOf[start];
    for (const Access &access : accessesOf(node, carried)) {
      node.touches.push_back(access.storage);
      if (writer[access.storage] != kNone)
        before.push_back(writer[access.storage]);
      if (!access.isWrite) {
        readers[access.storage].push_back(id);
        continue;
      }
      node.writes.push_back(access.storage);
      append_range(before, readers[access.storage]);
      readers[access.storage].clear();
      writer[access.storage] = id;
    }
    sort(before);
    before.erase(unique(before), before.end());
    node.predecessors.assign(before.begin(), before.end());
  }
}

std::vector<int32_t> HloGraph::instructionsInOrder(ArrayRef<NodeId> order) const {
  std::vector<int32_t> result;
  result.reserve(inside.instructions.size());
  std::vector<bool> done(inside.instructions.size(), false);
  // Instruction, and the next of its operands to look at.
  SmallVector<std::pair<int32_t, unsigned>, 16> stack;
  auto write = [&](int32_t first) {
    if (!done[first])
      stack.emplace_back(first, 0);
    while (!stack.empty()) {
      auto [at, next] = stack.back();
      ArrayRef<int32_t> operands = inside.instructions[at].operands;
      if (done[at] || next == operands.size()) {
        if (!done[at])
          result.push_back(at);
        done[at] = true;
        stack.pop_back();
        continue;
      }
      ++stack.back().second;
      if (int32_t operand = operands[next]; !done[operand])
        stack.emplace_back(operand, 0);
    }
  };
  for (NodeId node : order)
    write(nodes[node].instruction);
  for (int32_t at : inside.sequence)
    write(at);
  return result;
}
