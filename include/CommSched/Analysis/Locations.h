//===- Locations.h - Names of locations and operations ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The names of places in the program, for diagnostics, remarks and reports.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_LOCATIONS_H
#define COMMSCHED_ANALYSIS_LOCATIONS_H

#include "mlir/IR/Location.h"
#include "mlir/IR/Operation.h"
#include <string>
#include <vector>

namespace commsched {

/// The name of a location for reports: a name, "file:line:column", or the names of the parts of a fused location.
std::vector<std::string> describeLocation(mlir::Location loc);

/// The first file position of a location, "file:line:column"; or else its name; or else an empty string.
std::string locationText(mlir::Location loc);

/// The name of an operation in remarks and reports: the first name of its location, or else the name of a compute, or
/// else the operation's name.
std::string nameOperation(mlir::Operation *op);

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_LOCATIONS_H
