//===- Locations.h - Names of locations and operations ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// How diagnostics, remarks and reports name a place in the program.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_LOCATIONS_H
#define COMMSCHED_ANALYSIS_LOCATIONS_H

#include "mlir/IR/Location.h"
#include "mlir/IR/Operation.h"
#include <string>
#include <vector>

namespace commsched {

/// The name of a location for reports: a name, "file:line:column", or those of the parts of a fused one.
std::vector<std::string> describeLocation(mlir::Location loc);

/// The first position in a file of a location, "file:line:column", else its name, else nothing.
std::string locationText(mlir::Location loc);

/// A name for an operation in remarks and reports: the first name of its location, a compute's name, or the operation's
/// kind.
std::string nameOperation(mlir::Operation *op);

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_LOCATIONS_H
