//===- BucketShares.h - What a collective costs its lane in any bucket -----------------------===//
//
// Internal to Bounds.cpp.
//
//===-----------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_BUCKETSHARES_H
#define COMMSCHED_LIB_SCHEDULING_BUCKETSHARES_H

#include "CommSched/Scheduling/Problem.h"

namespace commsched {

/// Of each node: what it adds at least to its lane's load, alone or in any bucket, ns; kNone where it cannot be merged.
///
/// Any bucket of total size S that a collective of b bytes can be in has b <= S <= min(cap, bytes of its key), and
/// costs f(S) = sum over its members of b_i f(S)/S. So b min f(S)/S is a share that no bucket undercuts, and the shares
/// of a bucket's members never exceed its cost. f is only known to be monotone: on a cell [x, y] of sizes f(S)/S >=
/// f(x)/y, and cells are halved until that is within kShareTolerance of a value that is taken, or kMaxShareSamples are
/// spent.
std::vector<Ns> bucketShares(const Problem &problem);

/// 1 / 1024 of the cost, and that many evaluations of a key's cost function.
inline constexpr int64_t kShareTolerance = 1024;
inline constexpr int32_t kMaxShareSamples = 8192;

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_BUCKETSHARES_H
