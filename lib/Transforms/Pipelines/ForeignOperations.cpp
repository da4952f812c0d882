//===- ForeignOperations.cpp - Operations of other dialects in a pipeline ---------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// See ForeignOperations.h.
//
//===------------------------------------------------------------------------------------------===//

#include "ForeignOperations.h"
#include "CommSched/Dialect/Comm/Effects.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"

using namespace mlir;
using namespace commsched;

namespace {
/// A dialect with collectives that a pass converts.
struct ForeignDialect {
  StringLiteral prefix, conversion;
  /// Their names, between blanks.
  StringLiteral collectives;
};
} // namespace

static constexpr ForeignDialect kForeignDialects[] = {
    {"shard.", "--convert-shard-to-comm",
     " all_gather all_reduce all_to_all broadcast gather recv reduce reduce_scatter scatter send shift update_halo "},
    {"stablehlo.", "--convert-stablehlo-to-comm",
     " all_gather all_reduce all_to_all collective_broadcast collective_permute reduce_scatter "}};

static bool isCollectiveOf(const ForeignDialect &dialect, Operation *op) {
  StringRef name = op->getName().getStringRef();
  return name.consume_front(dialect.prefix) && dialect.collectives.contains((" " + name + " ").str());
}

/// One warning for each dialect.
static void warnOfCollectives(ModuleOp module) {
  for (const ForeignDialect &dialect : kForeignDialects) {
    Operation *first = nullptr;
    int64_t count = 0;
    module.walk<WalkOrder::PreOrder>([&](Operation *op) {
      if (!isCollectiveOf(dialect, op))
        return;
      first = first ? first : op;
      ++count;
    });
    if (first)
      first->emitWarning() << count << (count == 1 ? " collective" : " collectives") << " of the dialect '"
                           << dialect.prefix.drop_back() << "' " << (count == 1 ? "is" : "are")
                           << " not scheduled; run " << dialect.conversion << " first";
  }
}

namespace {
class ForeignOperationsPass : public PassWrapper<ForeignOperationsPass, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ForeignOperationsPass)
  explicit ForeignOperationsPass(ArrayRef<std::string> names) : names(names.vec()) {}
  StringRef getName() const final { return "comm-foreign-operations"; }

  void runOnOperation() final {
    markAllAnalysesPreserved();
    ModuleOp module = getOperation();
    warnOfCollectives(module);
    if (names.empty())
      return;
    SmallVector<Attribute> all;
    Attribute known = module->getDiscardableAttr(comm::kNoEffectsAttrName);
    if (auto list = dyn_cast_if_present<ArrayAttr>(known))
      all.append(list.begin(), list.end());
    for (const std::string &name : names)
      if (auto text = StringAttr::get(&getContext(), name); !llvm::is_contained(all, text))
        all.push_back(text);
    module->setDiscardableAttr(comm::kNoEffectsAttrName, ArrayAttr::get(&getContext(), all));
  }

private:
  std::vector<std::string> names;
};
} // namespace

std::unique_ptr<Pass> commsched::createForeignOperationsPass(ArrayRef<std::string> assumedPure) {
  return std::make_unique<ForeignOperationsPass>(assumedPure);
}
