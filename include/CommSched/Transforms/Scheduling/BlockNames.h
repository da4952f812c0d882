//===- BlockNames.h - The blocks that reports describe, and their names -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A report compares each block before some passes with the same block after them. Passes may change the order of the
// blocks, so the place of a block does not identify it. While a report is collected, the terminator of each block that
// it describes therefore carries the name of the block in a discardable attribute. A terminator moves with its block.
// A block whose terminator a pass builds anew, or whose copy a pass makes, is a new block in the report.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TRANSFORMS_SCHEDULING_BLOCKNAMES_H
#define COMMSCHED_TRANSFORMS_SCHEDULING_BLOCKNAMES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include <string>
#include <vector>

namespace commsched {

/// On terminators and functions while a report is collected: the name of the block, or of the function, in reports.
inline constexpr llvm::StringLiteral kReportedNameAttrName = "commsched_reported_name";

/// A block that a report describes.
struct ReportedBlock {
  mlir::FunctionOpInterface function;
  mlir::Block *block = nullptr;
  std::string name;
};

/// The blocks of a module that reports describe, in the order of the module. These are the blocks that contain
/// collectives, and those that nameReportedBlocks() has named. The body of the function "f" has the name "f", or
/// "inner::f" in a module "inner", or "f#2" if that name is taken. A block inside of it has the name that
/// nameReportedBlocks() gave it. If no report is being collected, its name is "f.N" for the Nth such block of the
/// function, and if one is, "f.newN" for the Nth block without a name. O(operations).
std::vector<ReportedBlock> findReportedBlocks(mlir::ModuleOp module);

/// The name of the function of a block, without the block's own part of it.
llvm::StringRef functionNameOf(const ReportedBlock &reported);

/// The name of one block, as findReportedBlocks() has it. Reads and changes nothing outside of the function of the
/// block. O(operations of the function).
std::string reportNameOf(mlir::Block &block);

/// Gives each block of findReportedBlocks() its name, so that the block keeps the name when it moves.
void nameReportedBlocks(mlir::ModuleOp module);

/// Removes the names again. O(operations).
void dropReportedNames(mlir::ModuleOp module);

} // namespace commsched

#endif // COMMSCHED_TRANSFORMS_SCHEDULING_BLOCKNAMES_H
