//===- CommTypes.cpp - Futures and events -----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Dialect/Comm/CommDialect.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace commsched::comm;

#define GET_TYPEDEF_CLASSES
#include "CommSched/Dialect/Comm/CommTypes.cpp.inc"

void CommDialect::registerTypes() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "CommSched/Dialect/Comm/CommTypes.cpp.inc"
      >();
}

Type FutureType::parse(AsmParser &parser) {
  SmallVector<Type> types;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess())
    return {};
  if (failed(parser.parseOptionalGreater())) {
    if (parser.parseCommaSeparatedList([&] { return parser.parseType(types.emplace_back()); }) || parser.parseGreater())
      return {};
  }
  return FutureType::getChecked([&] { return parser.emitError(loc); }, parser.getContext(), types);
}

void FutureType::print(AsmPrinter &printer) const {
  printer << "<";
  llvm::interleaveComma(getTypes(), printer, [&](Type type) { printer << type; });
  printer << ">";
}

LogicalResult FutureType::verify(function_ref<InFlightDiagnostic()> emitError, ArrayRef<Type> types) {
  for (Type type : types)
    if (!isa<RankedTensorType, MemRefType>(type))
      return emitError() << "C1: expected ranked tensors and memrefs in a future, got " << type;
  return success();
}
