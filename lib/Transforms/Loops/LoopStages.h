//===- LoopStages.h - Collectives that may run in another iteration ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A loop's body as the stages of a software pipeline. A collective that needs nothing but the number of the iteration
// can run one iteration ahead of its readers: it is in an earlier stage. A collective whose result nobody in the loop
// reads, but what later iterations add to it, can run one iteration behind: it is in a later stage. Start and wait stay
// in one stage, so that a block still contains the whole transfer, and the scheduler orders it as any other block.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_LOOPS_LOOPSTAGES_H
#define COMMSCHED_LIB_TRANSFORMS_LOOPS_LOOPSTAGES_H

#include "CommSched/Analysis/AccessOrder.h"
#include "CommSched/Analysis/Dependence.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/BitVector.h"
#include <string>

namespace commsched {

/// Which collectives of a loop change the iteration in which they run.
enum class MovedCollectives : uint8_t { Ahead, Behind, Both };

/// "collectives ahead", ...
llvm::StringRef stringify(MovedCollectives moved);

/// The stage of each operation of a loop's body. Iteration i of an operation of stage s runs with iteration i - s of
/// the pipelined loop.
struct LoopStages {
  /// Indexed by node of the body.
  std::vector<unsigned> of;
  /// The starts that run ahead and behind, in program order.
  llvm::SmallVector<mlir::Operation *> ahead, behind;
  unsigned last = 0;
};

/// What may move in one loop.
class LoopBody {
public:
  /// Analyses the body of a loop in the function that `order` was derived from. `besideMessages`: the module sends or
  /// receives (sendsOrReceives), so that no start may get behind a wait that it is in front of. O(operations + operands
  /// + edges), and for each collective the operations that would move with it.
  LoopBody(mlir::scf::ForOp loop, const AccessOrder &order, bool besideMessages);

  /// Why no collective of the loop moves; empty if some may.
  const std::string &obstacle() const { return whyNone; }

  /// Returns the stages if these collectives move; nothing if none of them may. O(operations + operands + accesses) if
  /// all of them may, and that for each collective if some may not.
  std::optional<LoopStages> stages(MovedCollectives moved) const;

private:
  /// The operations that move with a collective.
  struct Group {
    NodeId start = kNone;
    llvm::BitVector nodes;
  };

  std::string findObstacle() const;
  std::optional<llvm::BitVector> aheadOf(NodeId start) const;
  std::optional<llvm::BitVector> behindOf(NodeId start) const;
  bool isMovable(const llvm::BitVector &nodes) const;
  llvm::SmallVector<NodeId> carriedInto(NodeId node) const;
  bool isCarriedInto(NodeId start, const llvm::BitVector &moved) const;
  bool staysCarriedInside(const llvm::BitVector &nodes) const;
  llvm::SmallVector<mlir::Operation *> addGroups(llvm::ArrayRef<Group> groups, bool areEarly, llvm::BitVector &early,
                                                 llvm::BitVector &late) const;
  std::string check(llvm::ArrayRef<unsigned> stageOf) const;
  std::string checkUses(llvm::ArrayRef<unsigned> stageOf) const;
  std::string checkAccesses(llvm::ArrayRef<unsigned> stageOf) const;

  mutable mlir::scf::ForOp loop;
  BlockNodes nodes;
  IndexLists preds;
  /// Indexed by node.
  std::vector<llvm::SmallVector<NodeId, 4>> succs;
  BlockAccesses accesses;
  bool besideMessages;
  std::vector<Group> ahead, behind;
  std::string whyNone;
};

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_LOOPS_LOOPSTAGES_H
