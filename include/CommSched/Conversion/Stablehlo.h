//===- Stablehlo.h - The names of StableHLO and Shardy ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Lets a tool without StableHLO read its programs in MLIR's generic form.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_CONVERSION_STABLEHLO_H
#define COMMSCHED_CONVERSION_STABLEHLO_H

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace commsched {

/// Registers dialects without operations under the names `stablehlo`, `chlo` and `sdy`, in which every operation,
/// attribute and type is allowed and has no meaning. A body of such an operation may then call the functions of the
/// module, which MLIR refuses in operations of unknown dialects, because these could be symbol tables. Not for
/// registries that have the real dialects: MLIR ends the program if two dialects have one name.
void registerStablehloNames(mlir::DialectRegistry &registry);

} // namespace commsched

#endif // COMMSCHED_CONVERSION_STABLEHLO_H
