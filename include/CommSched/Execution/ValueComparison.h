//===- ValueComparison.h - Difference between two values of a run -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Values are compared bit for bit. Where sums may run in any order, the difference is measured in roundings.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_EXECUTION_VALUECOMPARISON_H
#define COMMSCHED_EXECUTION_VALUECOMPARISON_H

#include "CommSched/Execution/HostValue.h"

namespace commsched {

/// The difference of two values of one type and shape.
struct ValueDifference {
  int64_t count = 0;    ///< elements whose bits differ
  int64_t first = -1;   ///< the first of them; -1 if none
  int64_t worst = -1;   ///< the element with the largest difference; -1 if no bits differ
  double roundings = 0; ///< that difference in roundings; infinity if a number is compared with something else

  bool isEqual() const { return count == 0; }
};

/// Compares `a` and `b`, which have the same element type and shape. A rounding is the distance between 1 and the next
/// number of the element type, times the largest finite magnitude in the two values: the error that one addition makes
/// in a sum whose terms are as large as that. Elements that are not floating-point numbers have no roundings: any
/// difference is infinite. So is one between a finite number and another, and between infinities of different signs;
/// two NaN do not differ. O(n).
ValueDifference compareElements(const HostValue &a, const HostValue &b);

} // namespace commsched

#endif // COMMSCHED_EXECUTION_VALUECOMPARISON_H
