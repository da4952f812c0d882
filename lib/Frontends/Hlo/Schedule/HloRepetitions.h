//===- HloRepetitions.h - Values of a computation of XLA that can be made again ---------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// What Repetitions.h of lib/Transforms/MemoryPlan does with operations of MLIR, for instructions of XLA: every value
// that may be made again is made again in front of its late readers, and a plan leaves out what it keeps.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_FRONTENDS_HLO_SCHEDULE_HLOREPETITIONS_H
#define COMMSCHED_LIB_FRONTENDS_HLO_SCHEDULE_HLOREPETITIONS_H

#include "Hlo/Graph/HloGraph.h"
#include "Hlo/Write/CloneInstructions.h"
#include "llvm/ADT/BitVector.h"

namespace commsched::hlo {

/// A value that is made again: by a kernel or by an all-gather, which may have a done.
struct RepeatedValue {
  /// The instruction that makes it, and the done of a start or kNone.
  int32_t base = 0, done = kNone;
  bool isGather = false;
  /// The node in front of which it is made again.
  NodeId at = kNone;
  Bytes bytes = 0;
  /// What reads the clone: an instruction, and the number of its operand.
  std::vector<std::pair<int32_t, int32_t>> readers;
};

/// The values of a computation that may be made again, by ascending `base` in its order.
struct RepeatedValues {
  std::vector<RepeatedValue> values;
  /// Indexed by instruction: the value that it makes or names, or kNone.
  std::vector<int32_t> valueOf;

  /// The clones of all values but those in `leftOut`, which is indexed as `values`. Two clones for each value, those of
  /// its base and of its done, come first, so their numbers do not depend on `leftOut`: baseClone() and doneClone().
  CloneEdit edit(const HloModule &module, int32_t computation, const llvm::BitVector &leftOut) const;
  static int32_t baseClone(int32_t value) { return 2 * value; }
  static int32_t doneClone(int32_t value) { return 2 * value + 1; }

  /// The order of the computation with the clones of all values in their places.
  std::vector<OrderedInstruction> order(const HloGraph &graph) const;
};

/// Finds them. A value is made again at most once, in front of the reader behind the widest gap between two readers.
/// `problem` has the nodes of `graph`, which is computation `computation` of the module. Only kernels without side
/// effects that compute the same from the same operands are made again, and all-gathers.
/// O(N log N) for N instructions and operands.
RepeatedValues findRepeatedValues(const HloModule &module, int32_t computation, const HloGraph &graph,
                                  const Problem &problem);

/// Whether carrying out an instruction again, with equal operands, gives an equal result and does nothing else.
bool isRepeatable(const HloModule &module, const HloInstruction &instruction);

} // namespace commsched::hlo

#endif // COMMSCHED_LIB_FRONTENDS_HLO_SCHEDULE_HLOREPETITIONS_H
