//===- CommQuantiseGathers.cpp - The pass comm-quantise-gathers -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// An all-gather of floating-point numbers becomes one of bytes, between a kernel that packs the shard and one that
// unpacks what has been gathered. Elements and scales are in one tensor: a second gather for the scales would cost
// another latency.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Costs/OperationCosts.h"
#include "CommSched/Analysis/Streams.h"
#include "CommSched/Analysis/TensorPlaces.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Report/NumericsReport.h"
#include "CommSched/Transforms/Passes.h"
#include "PassBase/MachinePass.h"
#include "QuantiseKernels.h"
#include "RewriteRemarks.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/Support/FormatVariadic.h"

namespace commsched {
#define GEN_PASS_DEF_COMMQUANTISEGATHERS
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

namespace {

/// Notes the operations that a builder inserts into one block, those inside of others excluded.
struct InsertedOperations : OpBuilder::Listener {
  explicit InsertedOperations(Block *block) : block(block) {}

  void notifyOperationInserted(Operation *op, OpBuilder::InsertPoint) final {
    if (op->getBlock() == block)
      ops.push_back(op);
  }

  Block *block;
  SmallVector<Operation *> ops;
};

/// The bytes of all tensors of static shape together.
int64_t bytesOfAll(TypeRange types) {
  int64_t bytes = 0;
  for (Type type : types)
    bytes += getStaticBytes(type).value_or(0);
  return bytes;
}

SmallVector<Type> packedTypesOf(AllGatherOp start) {
  return llvm::map_to_vector(start.getInputs().getTypes(),
                             [](Type type) -> Type { return packedTypeOf(cast<RankedTensorType>(type)); });
}

/// Returns why a tensor cannot be packed, or an empty string.
std::string findObstacle(Type given) {
  auto type = dyn_cast<RankedTensorType>(given);
  if (!type)
    return "the gather is on buffers";
  if (!type.hasStaticShape())
    return "a size is dynamic";
  Type element = type.getElementType();
  if (element.isIntOrFloat() && element.getIntOrFloatBitWidth() <= 8)
    return "the gather carries elements of at most 8 bits already";
  if (!isQuantisable(element))
    return llvm::formatv("elements of {0} are not quantised, only those of f32, f16 and bf16", element);
  return type.getEncoding() ? "a type has an encoding" : "";
}

/// Returns why nobody but one wait in the block of the start knows the future, or an empty string.
std::string findObstacle(Value future, Block *block) {
  for (Operation *user : future.getUsers())
    if (!isa<WaitOp>(user))
      return llvm::formatv("'{0}' uses the future, which only a wait may do", user->getName());
  if (!future.hasOneUse())
    return future.use_empty() ? "the future has no wait" : "the future has several waits";
  return future.user_begin()->getBlock() == block ? "" : "the wait is in another block";
}

class GatherRewriter {
public:
  GatherRewriter(FunctionOpInterface function, const CostModel &model, int64_t minBytes, StringRef pass)
      : function(function), costs(model), places(function), minBytes(minBytes), pass(pass) {}

  void run() {
    SmallVector<AllGatherOp> starts;
    function->walk([&](AllGatherOp start) { starts.push_back(start); });
    for (AllGatherOp start : starts)
      visit(start);
    addNumerics(function, changed);
  }

private:
  void visit(AllGatherOp start) {
    if (std::string obstacle = findObstacle(start); !obstacle.empty())
      return remarkMissed(start, pass, obstacle);
    const Location loc = start.getLoc();
    const std::string kind = remarkKind(start);
    auto future = cast<FutureType>(start.getFuture().getType());
    const int64_t before = bytesOfAll(start.getInputs().getTypes()), after = bytesOfAll(packedTypesOf(start));
    const int64_t ranks = bytesOfAll(future.getTypes()) / before;
    if (!rewriteIfFaster(start, ranks))
      return remarkMissed(start, pass, "the kernels would take longer than the gather saves");
    changed.numerics = Numerics::QuantisedGathers;
    ++changed.gathers;
    remarkPassed(loc, kind, pass,
                 llvm::formatv("carries {0} in place of {1} bytes: numbers of 8 bits, in blocks of {2}; {3}",
                               after * ranks, before * ranks, kQuantisedBlock, GatherErrorBound().toText()),
                 (before - after) * ranks);
  }

  /// Returns why a gather has to stay, or an empty string.
  std::string findObstacle(AllGatherOp start) {
    for (Type type : start.getInputs().getTypes())
      if (std::string obstacle = ::findObstacle(type); !obstacle.empty())
        return obstacle;
    if (!start.getDests().empty())
      return "the gather has a destination";
    if (start->hasAttr(CommDialect::kCostAttrName))
      return "the cost of the gather is given, and holds for its bytes as they are";
    if (std::string obstacle = ::findObstacle(start.getFuture(), start->getBlock()); !obstacle.empty())
      return obstacle;
    auto wait = cast<WaitOp>(*start.getFuture().user_begin());
    if (start->hasAttr(CommDialect::kUnitAttrName) || wait->hasAttr(CommDialect::kUnitAttrName))
      return "the gather is part of a unit, whose operations are consecutive";
    auto isPlace = [&](Value tensor) { return places.isPlace(tensor); };
    if (llvm::any_of(start.getInputs(), isPlace) || llvm::any_of(wait.getValues(), isPlace))
      return "the program writes the storage of an input or of a gathered value";
    auto [known, isNew] = hasStreams.try_emplace(start->getBlock(), false);
    if (isNew)
      known->second = usesStreams(*start->getBlock());
    if (known->second)
      return "operations of the block are on several streams; choose streams last";
    if (const int64_t bytes = bytesOfAll(start.getFuture().getType().getTypes()); bytes < minBytes)
      return llvm::formatv("{0} gathered bytes are fewer than min-bytes, {1}", bytes, minBytes);
    if (bytesOfAll(packedTypesOf(start)) >= bytesOfAll(start.getInputs().getTypes()))
      return "the gather is too small to save bytes";
    return "";
  }

  /// Builds the gather of bytes beside the gather, and erases the slower of both.
  bool rewriteIfFaster(AllGatherOp start, int64_t ranks) {
    InsertedOperations inserted(start->getBlock());
    OpBuilder builder(start, &inserted);
    const Location loc = start.getLoc();
    auto wait = cast<WaitOp>(*start.getFuture().user_begin());

    SmallVector<Value> packed;
    SmallVector<Type> types;
    for (Value input : start.getInputs()) {
      packed.push_back(buildPacking(builder, loc, input));
      auto type = cast<RankedTensorType>(packed.back().getType());
      types.push_back(type.clone({type.getDimSize(0) * ranks, type.getDimSize(1)}));
    }
    auto bytes = cast<AllGatherOp>(builder.clone(*start));
    bytes.getInputsMutable().assign(packed);
    bytes.setDim(0);
    bytes.getFuture().setType(FutureType::get(builder.getContext(), types));

    builder.setInsertionPoint(wait);
    auto arrived = WaitOp::create(builder, wait.getLoc(), bytes.getFuture(), ValueRange());
    arrived->setDiscardableAttrs(wait->getDiscardableAttrDictionary());
    SmallVector<Value> values;
    for (auto [value, input] : llvm::zip_equal(arrived.getValues(), start.getInputs()))
      values.push_back(buildUnpacking(builder, wait.getLoc(), value, cast<RankedTensorType>(input.getType()), ranks,
                                      static_cast<int64_t>(start.getDim())));

    Ns time = 0;
    for (Operation *op : inserted.ops)
      time += costs.costOf(op).time;
    if (time >= costs.costOf(start).time) {
      for (Operation *op : llvm::reverse(inserted.ops))
        op->erase();
      return false;
    }
    wait.replaceAllUsesWith(values);
    wait->erase();
    start->erase();
    return true;
  }

  FunctionOpInterface function;
  OperationCosts costs;
  TensorPlaces places;
  int64_t minBytes;
  StringRef pass;
  /// Indexed by block of a gather: whether streams have been chosen for it.
  llvm::DenseMap<Block *, bool> hasStreams;
  NumericsReport changed;
};

struct CommQuantiseGathersPass : public MachinePass<commsched::impl::CommQuantiseGathersBase<CommQuantiseGathersPass>> {
  using MachinePass::MachinePass;

  void runWithModel() final {
    getOperation()->walk([&](FunctionOpInterface function) {
      if (!function.isExternal())
        GatherRewriter(function, *model, minBytes, getArgument()).run();
    });
  }
};

} // namespace
