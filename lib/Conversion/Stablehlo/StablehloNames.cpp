//===- StablehloNames.cpp - Operations of StableHLO by name -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// See StablehloNames.h and Stablehlo.h.
//
//===------------------------------------------------------------------------------------------===//

#include "StablehloNames.h"
#include "CommSched/Conversion/Stablehlo.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Transforms/InliningUtils.h"

using namespace mlir;

namespace {
/// Every operation computes on values, so it may be inlined.
struct NamesInlinerInterface : public DialectInlinerInterface {
  using DialectInlinerInterface::DialectInlinerInterface;
  bool isLegalToInline(Operation *, Region *, bool, IRMapping &) const final { return true; }
};

/// A dialect without operations of its own. `Name` tells the dialects apart.
template <typename Name> class NamesDialect : public Dialect {
public:
  explicit NamesDialect(MLIRContext *context)
      : Dialect(getDialectNamespace(), context, TypeID::get<NamesDialect<Name>>()) {
    allowUnknownOperations();
    allowUnknownTypes();
    addInterfaces<NamesInlinerInterface>();
  }
  static StringLiteral getDialectNamespace() { return Name::text; }

  Attribute parseAttribute(DialectAsmParser &parser, Type type) const override {
    return OpaqueAttr::get(StringAttr::get(getContext(), getDialectNamespace()), parser.getFullSymbolSpec(),
                           type ? type : NoneType::get(getContext()));
  }
  Type parseType(DialectAsmParser &parser) const override {
    return OpaqueType::get(StringAttr::get(getContext(), getDialectNamespace()), parser.getFullSymbolSpec());
  }
};

struct StablehloName {
  static constexpr StringLiteral text = "stablehlo";
};
struct ChloName {
  static constexpr StringLiteral text = "chlo";
};
struct ShardyName {
  static constexpr StringLiteral text = "sdy";
};
} // namespace

void commsched::registerStablehloNames(DialectRegistry &registry) {
  registry.insert<NamesDialect<StablehloName>, NamesDialect<ChloName>, NamesDialect<ShardyName>>();
}

bool commsched::stablehlo::isNamed(Operation *op, std::initializer_list<StringRef> names) {
  StringRef name = op->getName().getStringRef();
  return name.consume_front("stablehlo.") && llvm::is_contained(names, name);
}

std::string commsched::stablehlo::textOf(Attribute attribute) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (attribute)
    attribute.print(os);
  return text;
}

int64_t commsched::stablehlo::readChannel(Operation *op) {
  // #stablehlo.channel_handle<handle = 1, type = 1>
  std::string text = textOf(op->getAttr("channel_handle"));
  StringRef rest = StringRef(text).split("handle = ").second;
  int64_t handle = 0;
  return rest.consumeInteger(10, handle) ? 0 : handle;
}

FailureOr<int64_t> commsched::stablehlo::readInteger(Operation *op, StringRef name) {
  if (auto number = op->getAttrOfType<IntegerAttr>(name))
    return number.getInt();
  return op->emitOpError() << "expected '" << name << "' to be a whole number";
}
