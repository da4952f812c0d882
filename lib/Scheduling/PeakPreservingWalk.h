//===- PeakPreservingWalk.h - What the two peak-preserving passes share -----------------------===//
//
// Costs as the options scale them, how much compute hides a collective, and the loop over the collectives with its
// guard on the makespan. Private to lib/Scheduling.
//
//===-----------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_PEAKPRESERVINGWALK_H
#define COMMSCHED_LIB_SCHEDULING_PEAKPRESERVINGWALK_H

#include "CommSched/Scheduling/GroupWalk.h"
#include "CommSched/Scheduling/PeakPreserving.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace commsched::peakwalk {

enum Tag : uint8_t { kTagStart = 1, kTagHybrid = 2, kTagWait = 4 };

/// Costs in thousandths of an ns: cost x the options' permille.
class ScaledCosts {
public:
  ScaledCosts(const Problem &problem, const PeakPreservingOptions &options);

  /// What a node adds to the compute lane: 0 of starts and waits.
  llvm::ArrayRef<int64_t> work() const { return workOf; }
  llvm::ArrayRef<uint8_t> tags() const { return tagOf; }
  /// The time of the collective behind a start or a wait.
  int64_t collective(NodeId node) const;
  /// Compute beyond this much hides a collective.
  int64_t hiddenAbove(int64_t collectiveTime) const;
  llvm::ArrayRef<int32_t> waitsOf(NodeId start) const { return waits[start]; }

private:
  const Problem &problem;
  int64_t commPermille, extraPermille;
  Ns mostNs = 0;
  std::vector<int64_t> workOf;
  std::vector<uint8_t> tagOf;
  IndexLists waits;
};

/// How much work hides a collective, and where that ends.
struct Hiding {
  int64_t work = 0;
  /// Position of the node that ends it: the first wait, or a node at which the collective has ended anyway.
  int32_t end = 0;
};

/// Work between a start and its first wait, a wait for a later start on its lane, or a hybrid on its lane, whichever
/// comes first. Looks no further once the work exceeds `enough`.
Hiding hidingOfStart(const Problem &problem, const ScaledCosts &costs, const OrderTree &tree, NodeId start,
                     int64_t enough = INT64_MAX / 4);

/// Whether this wait is the one that the compute lane may stand still in: the first of its collective.
bool isFirstWait(const Problem &problem, const ScaledCosts &costs, const OrderTree &tree, NodeId wait);

/// The same for the collective behind a wait; work from the block's beginning where it came in as an argument.
Hiding hidingOfWait(const Problem &problem, const ScaledCosts &costs, const OrderTree &tree, NodeId wait,
                    int64_t enough = INT64_MAX / 4);

/// The part of a time that work does not cover.
inline int64_t exposedPart(int64_t time, int64_t work) { return time > work ? time - work : 0; }

bool isGemm(const PeakPreservingOptions &options, NodeId node);

/// Runs `moveOne` for each mover in turn on one walk. With estimates, the makespan is compared with the given order's
/// at the end; while it is larger, the first mover that raised it is found by bisection and left out, a few times over,
/// and at last everything from the next such mover on.
ReorderResult moveAll(const Problem &problem, llvm::ArrayRef<NodeId> order, const PeakPreservingOptions &options,
                      WalkDirection direction, const ScaledCosts &costs, llvm::ArrayRef<NodeId> movers,
                      llvm::function_ref<CollectiveRecord(GroupWalk &, NodeId, Bytes)> moveOne);

} // namespace commsched::peakwalk

#endif // COMMSCHED_LIB_SCHEDULING_PEAKPRESERVINGWALK_H
