//===- Bufferization.h - The comm dialect on buffers ------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Turns programs on tensors into programs on memrefs, in which a start names its destinations.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_CONVERSION_BUFFERIZATION_H
#define COMMSCHED_CONVERSION_BUFFERIZATION_H

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace commsched {

/// Attaches upstream's BufferizableOpInterface to the dialect's operations.
void registerBufferizableOpInterfaceModels(mlir::DialectRegistry &registry);

} // namespace commsched

#endif // COMMSCHED_CONVERSION_BUFFERIZATION_H
