//===- PlaceCheck.cpp - Operations that cannot know places ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "PlaceCheck.h"
#include "CommSched/Analysis/TensorPlaces.h"
#include "Scheduling/JournalRecords.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"

using namespace mlir;
using namespace commsched;

static StringRef describeViolation(TensorPlaces::Violation::Kind kind) {
  using Kind = TensorPlaces::Violation::Kind;
  switch (kind) {
  case Kind::Makes:
    return "expected an operation with memory effects that makes a tensor whose storage is written, such as "
           "bufferization.alloc_tensor or comm.compute; passes may merge or fold this one";
  case Kind::Reads:
    return "expected an operation with memory effects that reads a tensor whose storage is written, such as "
           "comm.compute (it can copy the tensor first); passes may move or fold this one";
  case Kind::Passes:
    return "expected to pass no tensor whose storage is written to a function that calls itself, as each call may get "
           "a copy; pass a buffer";
  case Kind::PassesPart:
    return "expected to pass no part of a tensor whose storage is written to a function, which gets a copy of it; pass "
           "the whole tensor, or inline the call (--inline)";
  case Kind::Carries:
    return "expected to be the only user of a tensor that it carries and whose storage is written, as an iteration may "
           "get a copy; use the tensor under its name from outside, copy it first, or carry a buffer";
  }
  llvm_unreachable("unknown kind");
}

LogicalResult commsched::checkPlaces(Operation *root) {
  SmallVector<TensorPlaces::Violation> violations = TensorPlaces(root).findViolations();
  for (const TensorPlaces::Violation &violation : violations)
    (violation.op->emitOpError() << describeViolation(violation.kind)).attachNote(violation.writer->getLoc())
        << "the storage is written here";
  return success(violations.empty());
}

/// On operations in front of a pass of another project: the numbers of their destinations that are values.
static constexpr StringRef kValuesAttrName = "value_destinations";

/// Writes down which destinations are values.
static void markValues(Operation *root) {
  TensorPlaces places(root);
  root->walk([&](Operation *op) {
    SmallVector<int64_t> values;
    for (auto [index, dest] : llvm::enumerate(findDestinations(op)))
      if (!places.isPlace(dest->get()))
        values.push_back(static_cast<int64_t>(index));
    if (!values.empty())
      op->setDiscardableAttr(kValuesAttrName, DenseI64ArrayAttr::get(op->getContext(), values));
  });
}

/// Reports destinations that were values and are places now, and removes what markValues() wrote.
static LogicalResult checkMarkedValues(Operation *root) {
  TensorPlaces places(root);
  LogicalResult result = success();
  root->walk([&](Operation *op) {
    auto values = llvm::dyn_cast_if_present<DenseI64ArrayAttr>(op->removeDiscardableAttr(kValuesAttrName));
    if (!values)
      return;
    SmallVector<OpOperand *> dests = findDestinations(op);
    for (int64_t index : values.asArrayRef())
      if (static_cast<size_t>(index) < dests.size() && places.isPlace(dests[index]->get())) {
        op->emitOpError() << "expected destination #" << index
                          << " to stay a value; a pass put in its place a tensor that is read afterwards, which the "
                             "operation would overwrite";
        result = failure();
      }
  });
  return result;
}

namespace {
class PlaceCheckPass : public PassWrapper<PlaceCheckPass, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(PlaceCheckPass)
  explicit PlaceCheckPass(bool isBefore) : isBefore(isBefore) {}
  StringRef getName() const final { return "comm-place-check"; }

  void runOnOperation() final {
    markAllAnalysesPreserved();
    if (!isBefore) {
      if (failed(checkMarkedValues(getOperation())))
        signalPassFailure();
      return;
    }
    if (PassJournal *journal = journalOf(&getContext()))
      journal->noteOtherPass();
    if (failed(checkPlaces(getOperation())))
      return signalPassFailure();
    markValues(getOperation());
  }

private:
  bool isBefore;
};
} // namespace

std::unique_ptr<Pass> commsched::createPlaceCheckPass(bool isBefore) {
  return std::make_unique<PlaceCheckPass>(isBefore);
}
