//===- CloneInstructions.h - Instructions of XLA that are carried out again -------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Writes a module in which some values are made a second time, for those who read them later.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_FRONTENDS_HLO_WRITE_CLONEINSTRUCTIONS_H
#define COMMSCHED_LIB_FRONTENDS_HLO_WRITE_CLONEINSTRUCTIONS_H

#include "CommSched/Frontends/Hlo/Reader/HloModule.h"

namespace commsched::hlo {

/// An instruction of a computation that is carried out again.
struct Clone {
  int32_t instruction = 0;
  /// Indexed by operand: the clone that takes its place, or -1.
  llvm::SmallVector<int32_t, 4> operands;
  /// False for a clone that is left out; nothing may read it. It still has an id, so that ids do not depend on the
  /// choice.
  bool isWritten = true;
};

/// An operand of an instruction that is read from a clone.
struct ClonedOperand {
  int32_t instruction = 0;
  int32_t operand = 0;
  int32_t clone = 0;
};

/// What changes in one computation.
struct CloneEdit {
  int32_t computation = 0;
  std::vector<Clone> clones;
  std::vector<ClonedOperand> readers;
  /// Instructions that nobody reads any more.
  std::vector<int32_t> removed;
};

/// An instruction in an order: one that is there, or a clone, by its index.
struct OrderedInstruction {
  int32_t index = 0;
  bool isClone = false;
};

/// The module with the clones, and with this order of the computation, in which clones that are left out and what is
/// removed do not count; what is not in it comes right before its first
/// user. A clone has the fields of its original but for name, id and operands; that of a fusion has a body of its own,
/// and that of a collective a channel of its own. O(size).
std::string cloneInstructions(const HloModule &module, const CloneEdit &edit, llvm::ArrayRef<OrderedInstruction> order);

/// The module without the optimization barriers of a computation that pass tuples put together there on to readers of
/// their elements, as jax.checkpoint writes them. A barrier keeps XLA's passes from merging what is computed twice;
/// after the last of these passes, all it does is to keep what it names alive until its place in the order. O(size).
std::string withoutBarriers(const HloModule &module, int32_t computation);

/// The id that the first clone in a computation gets; the others count on from it.
int64_t firstCloneId(const HloComputation &computation);

} // namespace commsched::hlo

#endif // COMMSCHED_LIB_FRONTENDS_HLO_WRITE_CLONEINSTRUCTIONS_H
