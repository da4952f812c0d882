//===- SymmetricMemory.cpp - Put buffers into symmetric memory --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Collects all values that refer to an allocation, and changes their types only if all of them can change.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Transforms/Rewrites/SymmetricMemory.h"
#include "CommSched/Analysis/Storage.h"
#include "RewriteRemarks.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

/// The allocation that a buffer is a view of, or null.
static memref::AllocOp findAllocation(Value buffer) {
  while (Operation *def = buffer.getDefiningOp()) {
    if (auto alloc = dyn_cast<memref::AllocOp>(def))
      return alloc;
    unsigned index = cast<OpResult>(buffer).getResultNumber();
    if (auto wait = dyn_cast<WaitOp>(def)) {
      auto start = wait.getFuture().getDefiningOp<CollectiveOpInterface>();
      if (!start || start.getCollectiveDests().empty())
        return {};
      buffer = start.getCollectiveDests()[index];
    } else if (auto storage = dyn_cast<StorageOpInterface>(def)) {
      std::optional<unsigned> operand = storage.getAliasedOperand(index);
      if (!operand)
        return {};
      buffer = def->getOperand(*operand);
    } else if (isa<ViewLikeOpInterface, memref::ExtractStridedMetadataOp>(def) && index == 0) {
      buffer = def->getOperand(0);
    } else {
      return {};
    }
  }
  return {};
}

namespace {

/// All values that refer to one allocation.
class Referrers {
public:
  explicit Referrers(memref::AllocOp alloc) {
    values.insert(alloc.getResult());
    for (size_t next = 0; next < values.size() && obstacle.empty(); ++next)
      for (OpOperand &use : values[next].getUses())
        if (!follow(use))
          obstacle = "the buffer reaches " + use.getOwner()->getName().getStringRef().str();
  }

  llvm::SetVector<Value> values;
  std::string obstacle;

private:
  /// Collects the values that `use` derives from the storage. Returns false if a type cannot change.
  bool follow(OpOperand &use) {
    Operation *user = use.getOwner();
    if (auto start = dyn_cast<CollectiveOpInterface>(user))
      return followStart(start, use);
    if (isa<WaitOp>(user))
      return true;
    if (auto storage = dyn_cast<StorageOpInterface>(user)) {
      for (OpResult result : user->getResults())
        if (storage.getAliasedOperand(result.getResultNumber()) == use.getOperandNumber())
          values.insert(result);
      return true;
    }
    if (isa<ViewLikeOpInterface, memref::ExtractStridedMetadataOp>(user)) {
      if (use.getOperandNumber() == 0)
        values.insert(user->getResult(0));
      return true;
    }
    // In a buffer of buffers, the type of the elements has the memory space.
    if (auto store = dyn_cast<memref::StoreOp>(user); store && use.get() == store.getValue())
      return false;
    // These operations take any memory space.
    return isa<memref::LoadOp, memref::StoreOp, memref::CopyOp, memref::DeallocOp, memref::DimOp>(user) ||
           (isa<linalg::LinalgOp>(user) && user->getNumResults() == 0);
  }

  bool followStart(CollectiveOpInterface start, OpOperand &use) {
    for (auto [index, dest] : llvm::enumerate(start.getCollectiveDests())) {
      if (dest != use.get())
        continue;
      for (Operation *wait : start.getCollectiveFuture().getUsers()) {
        if (!isa<WaitOp>(wait))
          return false;
        values.insert(wait->getResult(index));
      }
    }
    return true;
  }
};

} // namespace

/// The types of the future are those of the destinations.
static void updateFuture(CollectiveOpInterface start) {
  if (!start.getCollectiveDests().empty())
    start.getCollectiveFuture().setType(
        FutureType::get(start.getContext(), llvm::to_vector(start.getCollectiveDests().getTypes())));
}

std::string commsched::makeSymmetric(Value buffer, FlatSymbolRefAttr group) {
  memref::AllocOp alloc = findAllocation(buffer);
  if (!alloc)
    return "its allocation is not in this function";
  auto space = SymmetricAttr::get(group.getContext(), group);
  Attribute present = alloc.getType().getMemorySpace();
  if (present == space)
    return "";
  if (auto other = dyn_cast_or_null<SymmetricAttr>(present))
    return "the buffer is planned for @" + other.getGroup().getValue().str() + " already";
  if (present)
    return "the buffer is in another memory space";
  Referrers referrers(alloc);
  if (!referrers.obstacle.empty())
    return referrers.obstacle;
  for (Value value : referrers.values) {
    auto type = cast<MemRefType>(value.getType());
    value.setType(MemRefType::get(type.getShape(), type.getElementType(), type.getLayout(), space));
  }
  for (Value value : referrers.values)
    for (Operation *user : value.getUsers())
      if (auto start = dyn_cast<CollectiveOpInterface>(user))
        updateFuture(start);
  return "";
}

/// Returns true if an input is the rank's slice of a buffer that the collective does not gather into. The place of the
/// slice depends on the rank, and symmetric memory is used at one offset on all ranks. Bufferization parts the two
/// where it copies before every write.
static bool isSliceOfAnotherBuffer(CollectiveOpInterface start, unsigned input) {
  Value value = start.getCollectiveInputs()[input];
  for (Value view = value; view && view.getDefiningOp(); view = getAliasedValue(cast<OpResult>(view)))
    if (auto copyIn = view.getDefiningOp<FsdpAllGatherCopyInOp>(); copyIn && copyIn.getSlice() == view)
      return input >= start.getCollectiveDests().size() ||
             findAllocation(value) != findAllocation(start.getCollectiveDests()[input]);
  return false;
}

void commsched::applySymmetricMarks(Operation *root, StringRef pass) {
  root->walk([&](CollectiveOpInterface start) {
    auto marks = start->getAttrOfType<DenseBoolArrayAttr>(CommDialect::kSymmetricAttrName);
    if (!marks)
      return;
    start->removeAttr(CommDialect::kSymmetricAttrName);
    SmallVector<Value> buffers(start.getCollectiveInputs());
    llvm::append_range(buffers, start.getCollectiveDests());
    for (auto [index, mark, buffer] : llvm::enumerate(marks.asArrayRef(), buffers)) {
      if (!mark)
        continue;
      std::string obstacle = "it is a slice of a buffer that is not gathered into";
      if (index >= start.getCollectiveInputs().size() || !isSliceOfAnotherBuffer(start, index))
        obstacle = makeSymmetric(buffer, start.getGroupAttr());
      if (!obstacle.empty())
        remarkMissed(start, pass, "no symmetric memory: " + obstacle);
    }
  });
}
