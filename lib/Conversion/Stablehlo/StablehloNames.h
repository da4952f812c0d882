//===- StablehloNames.h - Operations of StableHLO by name -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// StableHLO is not linked: its operations are known by their names, and their attributes by what MLIR prints of them.
// So they may be unregistered, or belong to a dialect that an embedder registers.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_CONVERSION_STABLEHLO_STABLEHLONAMES_H
#define COMMSCHED_LIB_CONVERSION_STABLEHLO_STABLEHLONAMES_H

#include "mlir/IR/Operation.h"
#include <initializer_list>
#include <string>

namespace commsched::stablehlo {

/// Returns true if an operation is one of these of StableHLO.
bool isNamed(mlir::Operation *op, std::initializer_list<llvm::StringRef> names);

/// An attribute as text; empty if there is none.
std::string textOf(mlir::Attribute attribute);

/// The handle of the channel of a collective; 0 if it has none.
int64_t readChannel(mlir::Operation *op);

/// The value of an attribute that is a whole number. Fails with a diagnostic.
llvm::FailureOr<int64_t> readInteger(mlir::Operation *op, llvm::StringRef name);

} // namespace commsched::stablehlo

#endif // COMMSCHED_LIB_CONVERSION_STABLEHLO_STABLEHLONAMES_H
