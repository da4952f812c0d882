//===- HloGraph.h - Dependences and storages of one computation -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The storage of every array of a computation, the instructions that are scheduled, and the dependences between them.
// Instructions that only name what is there (parameters, constants, bitcasts, elements of tuples) are not scheduled:
// they are written right before their first user.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_FRONTENDS_HLO_GRAPH_HLOGRAPH_H
#define COMMSCHED_LIB_FRONTENDS_HLO_GRAPH_HLOGRAPH_H

#include "CommSched/Frontends/Hlo/Reader/HloModule.h"
#include "CommSched/Scheduling/Problem/Problem.h"
#include "llvm/ADT/DenseMap.h"

namespace commsched::hlo {

/// Index of a storage: an alias class of arrays.
using StorageIndex = int32_t;

/// One storage. Bytes are rounded up to XLA's alignment.
struct Storage {
  Bytes bytes = 0;
  /// True for parameters, constants and results, whose memory outlives the computation. XLA counts it apart from
  /// temporaries.
  bool isOutside = false;
};

/// An instruction that is scheduled.
struct GraphNode {
  int32_t instruction = 0;
  /// The node of the start that a done ends; kNone for all other instructions.
  NodeId start = kNone;
  /// Storages that it reads or writes, ascending.
  llvm::SmallVector<StorageIndex, 8> touches;
  /// Those of `touches` that it writes, ascending.
  llvm::SmallVector<StorageIndex, 2> writes;
  /// Nodes that must come before it, ascending.
  llvm::SmallVector<NodeId, 4> predecessors;
};

/// Parameters of a computation that come back unchanged; its callers read this.
struct Carried {
  /// Indexed by leaf of the parameter: true if the result is the parameter's own array, unchanged.
  std::vector<bool> isUnchanged;
};

/// One computation as a graph.
class HloGraph {
public:
  /// `carried` is indexed by computation, and has the bodies that this one calls. The graph refers to the module.
  /// O(instructions + leaves of operands, log).
  HloGraph(const HloModule &module, int32_t computation, llvm::ArrayRef<Carried> carried);

  const HloComputation &computation() const { return inside; }
  const HloInstruction &instructionOf(NodeId node) const { return inside.instructions[nodes[node].instruction]; }

  std::vector<GraphNode> nodes;
  std::vector<Storage> storages;
  /// For the callers of this computation, if it is the body of a loop.
  Carried carriedOver;

  /// The storage of a leaf of an instruction's result.
  StorageIndex storageAt(int32_t at, int64_t leaf) const { return representative[storageOfLeaf[firstLeaf[at] + leaf]]; }
  int64_t numLeaves(int32_t at) const { return firstLeaf[at + 1] - firstLeaf[at]; }

  /// The order of all instructions in which the nodes come in the order `order`. O(instructions + operands).
  std::vector<int32_t> instructionsInOrder(llvm::ArrayRef<NodeId> order) const;

private:
  struct Access;

  void findStorages();
  void shareWithOperands(int32_t at);
  void shareInPlace(int32_t at);
  void shareFusionInPlace(int32_t at);
  void shareResults();
  void setShared(int32_t at, int64_t leaf, int32_t operand, int64_t operandLeaf);
  void findNodes();
  void findDependences(llvm::ArrayRef<Carried> carried);
  llvm::SmallVector<Access, 8> accessesOf(const GraphNode &node, llvm::ArrayRef<Carried> carried) const;
  void appendReads(int32_t at, llvm::SmallVectorImpl<Access> &accesses) const;
  int32_t startOf(int32_t done) const;
  int64_t leafOfElement(int32_t tuple, int64_t element);

  const HloModule &module;
  const HloComputation &inside;
  bool isEntry;
  /// Indexed by instruction: its first leaf; one more at the end.
  std::vector<int64_t> firstLeaf;
  /// The first leaf of each element of a tuple, for tuples of which an element is taken.
  llvm::DenseMap<int32_t, llvm::SmallVector<int64_t, 8>> leavesOfTuple;
  /// Indexed by leaf.
  std::vector<StorageIndex> storageOfLeaf;
  /// Indexed by storage: the storage that it was merged with, or itself.
  std::vector<StorageIndex> representative;
  /// Indexed by instruction: its node, or kNone.
  std::vector<NodeId> nodeOf;
};

/// Returns true if the instruction begins work that runs beside the computation until its done ("all-gather-start").
bool isStart(const HloInstruction &instruction);
/// Returns true if the instruction waits for the end of such work.
bool isDone(const HloInstruction &instruction);
/// Returns true if XLA carries out a start at its place and holds the stream of kernels until it has ended.
bool isSynchronous(const HloInstruction &start);
/// Returns true if the instruction runs computations that have an order of their own: a loop, branches, or a call.
bool runsComputations(const HloInstruction &instruction);

} // namespace commsched::hlo

#endif // COMMSCHED_LIB_FRONTENDS_HLO_GRAPH_HLOGRAPH_H
