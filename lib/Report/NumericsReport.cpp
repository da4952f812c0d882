//===- NumericsReport.cpp - Bounds on differences of a function's results ---------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The attribute comm.numerics has the keys of the JSON, but for the bound of gathers, which is always the same. Without
// the key "error", a sum has no bound.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Report/NumericsReport.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Support/Count.h"
#include "mlir/IR/Builders.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace commsched;

static constexpr llvm::StringLiteral kClass = "class", kCollectives = "collectives", kError = "error",
                                     kGathers = "gathers", kGatherError = "gather_error";

NumericsReport commsched::numericsOf(Operation *function) {
  NumericsReport report;
  auto noted = function->getAttrOfType<DictionaryAttr>(comm::CommDialect::kNumericsAttrName);
  auto name = noted ? noted.getAs<StringAttr>(kClass) : StringAttr();
  for (Numerics numerics : {Numerics::Reassociated, Numerics::ReducedPrecisionSums, Numerics::QuantisedGathers})
    if (name && name == stringify(numerics))
      report.numerics = numerics;
  if (report.numerics < Numerics::ReducedPrecisionSums)
    return report;
  auto numberOf = [&](StringRef key) {
    auto number = noted.getAs<IntegerAttr>(key);
    return number ? number.getInt() : 0;
  };
  report.collectives = numberOf(kCollectives);
  report.gathers = numberOf(kGathers);
  auto error = noted.getAs<FloatAttr>(kError);
  if (report.collectives > 0)
    report.error = error ? std::optional(error.getValueAsDouble()) : std::nullopt;
  return report;
}

void commsched::addNumerics(Operation *function, const NumericsReport &more) {
  if (more.numerics == Numerics::Exact)
    return;
  NumericsReport all = numericsOf(function);
  all.numerics = std::max(all.numerics, more.numerics);
  all.collectives += more.collectives;
  all.error = all.error && more.error ? std::optional(std::max(*all.error, *more.error)) : std::nullopt;
  all.gathers += more.gathers;
  Builder builder(function->getContext());
  SmallVector<NamedAttribute> entries = {builder.getNamedAttr(kClass, builder.getStringAttr(stringify(all.numerics)))};
  if (all.collectives > 0) {
    entries.push_back(builder.getNamedAttr(kCollectives, builder.getI64IntegerAttr(all.collectives)));
    if (all.error)
      entries.push_back(builder.getNamedAttr(kError, builder.getF64FloatAttr(*all.error)));
  }
  if (all.gathers > 0)
    entries.push_back(builder.getNamedAttr(kGathers, builder.getI64IntegerAttr(all.gathers)));
  function->setAttr(comm::CommDialect::kNumericsAttrName, builder.getDictionaryAttr(entries));
}

llvm::json::Value NumericsReport::toJSON() const {
  llvm::json::Object object{{kClass, stringify(numerics)}};
  if (collectives > 0) {
    object[kCollectives] = collectives;
    object[kError] = error ? llvm::json::Value(*error) : llvm::json::Value(nullptr);
  }
  if (gathers > 0) {
    GatherErrorBound bound;
    object[kGathers] = gathers;
    object[kGatherError] =
        llvm::json::Object{{"of_element", bound.ofElement}, {"of_block", bound.ofBlock}, {"absolute", bound.absolute}};
  }
  return object;
}

std::string NumericsReport::toText() const {
  if (numerics == Numerics::Reassociated)
    return "terms of sums are added in another order";
  std::string text;
  if (collectives > 0)
    text =
        formatCount(collectives, "sum") + " in fewer bits; " +
        (error ? llvm::formatv("an element differs by at most {0:F4} of the sum of its terms' magnitudes", *error).str()
               : std::string("the error of an element has no bound"));
  if (gathers > 0)
    text += (text.empty() ? "" : "; ") + formatCount(gathers, "gather") + " in 8 bits; " + GatherErrorBound().toText();
  return text;
}
