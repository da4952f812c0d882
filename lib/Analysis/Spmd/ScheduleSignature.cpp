//===- ScheduleSignature.cpp - Signature of the sequence of collectives -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/ScheduleSignature.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

/// Appends " <element type> <bytes>".
static void describeType(Type type, llvm::raw_ostream &os) {
  auto shaped = cast<ShapedType>(type);
  os << " " << shaped.getElementType() << " ";
  if (std::optional<int64_t> bytes = getStaticBytes(type))
    os << *bytes;
  else
    os << "?";
}

static std::string describe(CollectiveOpInterface start) {
  std::string line;
  llvm::raw_string_ostream os(line);
  os << stringify(start.getCollectiveKind()) << " @" << start.getGroupAttr().getValue();
  if (std::optional<ReductionKind> reduction = start.getCollectiveReduction())
    os << " " << stringifyReductionKind(*reduction);
  for (Value input : start.getCollectiveInputs())
    describeType(input.getType(), os);
  if (auto variant = start->getAttrOfType<StringAttr>(CommDialect::kVariantAttrName))
    os << " " << variant.getValue();
  return line;
}

std::string commsched::describeCollective(Operation *op) {
  auto start = dyn_cast<CollectiveOpInterface>(op);
  if (start && !start.isPointToPoint())
    return describe(start);
  if (auto hybrid = op->getAttrOfType<FlatSymbolRefAttr>(CommDialect::kHybridAttrName))
    return (op->getName().getStringRef() + " @" + hybrid.getValue()).str();
  return {};
}

std::vector<std::string> commsched::describeCollectives(Operation *root) {
  std::vector<std::string> lines;
  root->walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (std::string line = describeCollective(op); !line.empty())
      lines.push_back(std::move(line));
  });
  return lines;
}

/// The hash of lines of text.
static std::string hashLines(ArrayRef<std::string> lines) {
  llvm::SHA256 hash;
  for (const std::string &line : lines) {
    hash.update(line);
    hash.update("\n");
  }
  return llvm::toHex(hash.final(), /*LowerCase=*/true).substr(0, 16);
}

std::string commsched::scheduleSignature(Operation *root) { return hashLines(describeCollectives(root)); }

/// Sets the signature of one function.
static void stampFunction(FunctionOpInterface function) {
  std::vector<std::string> lines = describeCollectives(function);
  if (lines.empty())
    function->removeAttr(CommDialect::kSignatureAttrName);
  else
    function->setAttr(CommDialect::kSignatureAttrName, StringAttr::get(function->getContext(), hashLines(lines)));
}

void commsched::stampSignature(Operation *root) {
  if (auto function = dyn_cast<FunctionOpInterface>(root))
    return stampFunction(function);
  root->walk(stampFunction);
}
