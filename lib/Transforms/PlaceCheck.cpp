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

namespace {
class PlaceCheckPass : public PassWrapper<PlaceCheckPass, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(PlaceCheckPass)
  StringRef getName() const final { return "comm-place-check"; }

  void runOnOperation() final {
    markAllAnalysesPreserved();
    if (PassJournal *journal = journalOf(&getContext()))
      journal->noteOtherPass();
    if (failed(checkPlaces(getOperation())))
      signalPassFailure();
  }
};
} // namespace

std::unique_ptr<Pass> commsched::createPlaceCheckPass() { return std::make_unique<PlaceCheckPass>(); }
