//===- OperationForm.h - Hash of all that an operation consists of ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Two operations of one name with operands of equal types may compute different things: `linalg.generic` computes what
// its body says. The form of an operation is a hash of everything that it consists of, so that a measured time counts
// for operations of the same form alone.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_COSTS_OPERATIONFORM_H
#define COMMSCHED_ANALYSIS_COSTS_OPERATIONFORM_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <string>

namespace commsched {

/// Clones `op` where `builder` is, without the attributes that other dialects have put on it. Scalar constants that it
/// reads are cloned, too. For each other operand, and then for each other value that its regions use, `provide` makes a
/// value of the same type. O(nested operations).
mlir::Operation *cloneAlone(mlir::Operation *op, mlir::OpBuilder &builder,
                            llvm::function_ref<mlir::Value(mlir::Value)> provide);

/// 16 hexadecimal digits for what `op` is: its attributes, types, regions and scalar constants, but not its name's
/// spelling in any file or its location. Equal in all processes of one release of MLIR. Empty if its name and the types
/// of its operands say everything: a `comm.compute`, and products, fills and copies of linalg in their usual form.
/// O(nested operations).
std::string getTableForm(mlir::Operation *op);

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_COSTS_OPERATIONFORM_H
