//===- Locations.cpp - Names of locations and operations --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Names, file positions and the parts of fused locations.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Locations.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

std::vector<std::string> commsched::describeLocation(Location loc) {
  if (auto name = dyn_cast<NameLoc>(loc))
    return {name.getName().str()};
  if (auto file = dyn_cast<FileLineColLoc>(loc))
    return {llvm::formatv("{0}:{1}:{2}", file.getFilename().getValue(), file.getLine(), file.getColumn()).str()};
  std::vector<std::string> result;
  if (auto fused = dyn_cast<FusedLoc>(loc))
    for (Location part : fused.getLocations())
      llvm::append_range(result, describeLocation(part));
  else if (auto call = dyn_cast<CallSiteLoc>(loc))
    return describeLocation(call.getCallee());
  return result;
}

std::string commsched::nameOperation(Operation *op) {
  std::vector<std::string> names = describeLocation(op->getLoc());
  if (!names.empty())
    return names.front();
  auto compute = dyn_cast<ComputeOp>(op);
  return compute ? compute.getName().str() : op->getName().getStringRef().str();
}

std::string commsched::locationText(Location loc) {
  if (auto file = loc->findInstanceOf<FileLineColLoc>())
    return file.getFilename().str() + ":" + std::to_string(file.getLine()) + ":" + std::to_string(file.getColumn());
  if (auto name = loc->findInstanceOf<NameLoc>())
    return name.getName().str();
  return "";
}
