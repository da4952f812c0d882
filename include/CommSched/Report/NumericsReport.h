//===- NumericsReport.h - Bounds on differences of a function's results -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Passes that change results write it down at the function, in the attribute comm.numerics.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_REPORT_NUMERICSREPORT_H
#define COMMSCHED_REPORT_NUMERICSREPORT_H

#include "CommSched/Support/Numerics.h"
#include "mlir/IR/Operation.h"
#include "llvm/Support/JSON.h"
#include <string>

namespace commsched {

/// How far results may differ from those of the program that the user wrote.
struct NumericsReport {
  Numerics numerics = Numerics::Exact;
  /// Collectives that sum in fewer bits than the program did.
  int64_t collectives = 0;
  /// The largest bound for the error of such a sum, as a fraction of the sum of the magnitudes of its terms. None if
  /// one of them has no bound.
  std::optional<double> error = 0;
  /// Gathers that carry 8 bits per element. The bound for the error of an element is a GatherErrorBound.
  int64_t gathers = 0;

  /// The members, as reports have them.
  llvm::json::Value toJSON() const;
  /// In words; empty if results are equal.
  std::string toText() const;
};

/// What passes wrote down on a function.
NumericsReport numericsOf(mlir::Operation *function);

/// Adds to what passes wrote down on a function.
void addNumerics(mlir::Operation *function, const NumericsReport &more);

} // namespace commsched

#endif // COMMSCHED_REPORT_NUMERICSREPORT_H
