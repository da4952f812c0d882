//===- PlaceCheck.h - Operations that cannot know places --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_VERIFY_PLACECHECK_H
#define COMMSCHED_LIB_TRANSFORMS_VERIFY_PLACECHECK_H

#include "mlir/Pass/Pass.h"

namespace commsched {

/// Reports operations without memory effects that read a place or make it (TensorPlaces.h). O(operations + operands).
llvm::LogicalResult checkPlaces(mlir::Operation *root);

/// A pass of modules that runs checkPlaces(), and tells the journal that another pass follows. It is in front of passes
/// of other projects, which move, merge and fold operations without memory effects. With `isBefore` false it is behind
/// such a pass, and reports destinations that were values before it and are places now. O(operations + operands).
std::unique_ptr<mlir::Pass> createPlaceCheckPass(bool isBefore);

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_VERIFY_PLACECHECK_H
