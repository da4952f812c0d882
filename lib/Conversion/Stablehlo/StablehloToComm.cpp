//===- StablehloToComm.cpp - Collectives of StableHLO -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Each collective becomes a start and its wait, one after the other; later passes move them apart. What is known of the
// other operations, by their names, is in Effects.cpp and StablehloCosts.cpp.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Conversion/Passes.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "ControlFlow.h"
#include "ManualComputation.h"
#include "StablehloNames.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Pass/Pass.h"
#include "llvm/ADT/StringSwitch.h"

namespace commsched {
#define GEN_PASS_DEF_CONVERTSTABLEHLOTOCOMM
#include "CommSched/Conversion/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;
using namespace commsched::stablehlo;

/// The processes that the module's attributes count. A program that was lowered for a mesh without devices
/// (jax.sharding.AbstractMesh) counts one partition; it has as many as the mesh has places.
static Processes readProcesses(ModuleOp module, const MeshAxes &mesh) {
  Processes processes;
  int64_t places = 1;
  for (int64_t size : mesh.sizes)
    places *= size;
  if (auto partitions = module->getAttrOfType<IntegerAttr>("mhlo.num_partitions"))
    processes.partitions = partitions.getInt();
  if (auto replicas = module->getAttrOfType<IntegerAttr>("mhlo.num_replicas"))
    processes.replicas = replicas.getInt();
  if (processes.ranks() == 1)
    processes.partitions = places;
  return processes;
}

/// The reduction that a region of two numbers computes. Fails with a diagnostic.
static FailureOr<ReductionKindAttr> readReduction(Operation *op) {
  auto refuse = [&](const Twine &got) -> LogicalResult {
    return op->emitOpError() << "expected a reduction that is one stablehlo.add, multiply, minimum or maximum of its "
                                "arguments, or one stablehlo.and or or of bits; got "
                             << got;
  };
  if (op->getNumRegions() != 1 || !op->getRegion(0).hasOneBlock())
    return refuse("no block");
  Block &body = op->getRegion(0).front();
  if (!llvm::hasNItems(body, 2))
    return refuse(Twine(body.getOperations().size()) + " operations");
  Operation *combine = &body.front(), *end = &body.back();
  bool isBit = getElementTypeOrSelf(op->getOperand(0).getType()).isInteger(1);
  auto kind = llvm::StringSwitch<std::optional<ReductionKind>>(combine->getName().getStringRef())
                  .Case("stablehlo.add", isBit ? std::nullopt : std::optional(ReductionKind::sum))
                  .Case("stablehlo.multiply", isBit ? std::nullopt : std::optional(ReductionKind::product))
                  .Case("stablehlo.minimum", ReductionKind::min)
                  .Case("stablehlo.maximum", ReductionKind::max)
                  .Case("stablehlo.and", isBit ? std::optional(ReductionKind::min) : std::nullopt)
                  .Case("stablehlo.or", isBit ? std::optional(ReductionKind::max) : std::nullopt)
                  .Default(std::nullopt);
  auto reads = [&](unsigned argument) {
    return llvm::is_contained(combine->getOperands(), Value(body.getArgument(argument)));
  };
  bool isPlain = combine->getNumOperands() == 2 && body.getNumArguments() == 2 && reads(0) && reads(1) &&
                 end->getNumOperands() == 1 && end->getOperand(0).getDefiningOp() == combine;
  if (!kind || !isPlain)
    return refuse("'" + combine->getName().getStringRef() + "' of " +
                  textOf(TypeAttr::get(op->getOperand(0).getType())));
  return ReductionKindAttr::get(op->getContext(), *kind);
}

namespace {
class StablehloConversion {
public:
  StablehloConversion(ModuleOp module, const MeshAxes &mesh)
      : module(module), processes(readProcesses(module, mesh)), groups(module, mesh) {}

  LogicalResult run() {
    SmallVector<Operation *> operations;
    module.walk([&](Operation *op) { operations.push_back(op); });
    for (Operation *op : operations)
      if (failed(convert(op)))
        return failure();
    return success();
  }

private:
  LogicalResult convert(Operation *op) {
    if (isNamed(op, {"all_gather", "all_reduce", "reduce_scatter", "all_to_all", "collective_broadcast"}))
      return convertCollective(op);
    if (isNamed(op, {"collective_permute"}))
      return convertPermute(op);
    if (isNamed(op, {"send", "recv", "infeed", "outfeed", "async_start", "async_done"}))
      return op->emitOpError() << "has no conversion to the comm dialect";
    return success();
  }

  LogicalResult convertCollective(Operation *op) {
    for (Type type : op->getOperandTypes())
      if (!isa<RankedTensorType>(type))
        return op->emitOpError() << "expected ranked tensors, got " << type;
    FailureOr<Groups> members = readGroups(op, processes);
    if (failed(members))
      return failure();
    ImplicitLocOpBuilder builder(op->getLoc(), op);
    auto future = FutureType::get(op->getContext(), llvm::to_vector(op->getResultTypes()));
    FlatSymbolRefAttr group = groups.groupOf(*members);
    ValueRange inputs = op->getOperands();
    auto dimension = [&](StringRef name) -> FailureOr<IntegerAttr> {
      FailureOr<int64_t> number = readInteger(op, name);
      if (failed(number))
        return failure();
      return builder.getI64IntegerAttr(*number);
    };
    if (isNamed(op, {"all_gather"})) {
      FailureOr<IntegerAttr> dim = dimension("all_gather_dim");
      return failed(dim) ? failure()
                         : finish(builder, op, AllGatherOp::create(builder, future, inputs, ValueRange(), group, *dim));
    }
    if (isNamed(op, {"collective_broadcast"}))
      return finish(builder, op,
                    BroadcastOp::create(builder, future, inputs, ValueRange(), group, builder.getI64IntegerAttr(0)));
    if (isNamed(op, {"all_to_all"}))
      return convertAllToAll(builder, op, future, group, static_cast<int64_t>(members->front().size()));
    FailureOr<ReductionKindAttr> reduction = readReduction(op);
    if (failed(reduction))
      return failure();
    if (isNamed(op, {"all_reduce"}))
      return finish(builder, op,
                    AllReduceOp::create(builder, future, inputs, ValueRange(), group, *reduction, FloatAttr()));
    FailureOr<IntegerAttr> dim = dimension("scatter_dimension");
    return failed(dim) ? failure()
                       : finish(builder, op,
                                ReduceScatterOp::create(builder, future, inputs, ValueRange(), group, *reduction,
                                                        FloatAttr(), *dim));
  }

  LogicalResult convertAllToAll(ImplicitLocOpBuilder &builder, Operation *op, FutureType future,
                                FlatSymbolRefAttr group, int64_t ranks) {
    FailureOr<int64_t> split = readInteger(op, "split_dimension"), concat = readInteger(op, "concat_dimension"),
                       count = readInteger(op, "split_count");
    if (failed(split) || failed(concat) || failed(count))
      return failure();
    if (*count != ranks)
      return op->emitOpError() << "expected 'split_count' to be the size of the groups (" << ranks << "), got "
                               << *count;
    return finish(builder, op,
                  AllToAllOp::create(builder, future, op->getOperands(), ValueRange(), group, ValueRange(),
                                     ValueRange(), builder.getI64IntegerAttr(*split),
                                     builder.getI64IntegerAttr(*concat), DenseI64ArrayAttr(), DenseI64ArrayAttr()));
  }

  LogicalResult convertPermute(Operation *op) {
    FailureOr<std::vector<int64_t>> pairs = readPairs(op, processes);
    if (failed(pairs))
      return failure();
    ImplicitLocOpBuilder builder(op->getLoc(), op);
    FlatSymbolRefAttr group = groups.localizePairs(*pairs, processes);
    auto future = FutureType::get(op->getContext(), llvm::to_vector(op->getResultTypes()));
    return finish(builder, op,
                  PermuteOp::create(builder, future, op->getOperands(), ValueRange(), group,
                                    builder.getDenseI64ArrayAttr(*pairs)));
  }

  /// Inserts the wait, and replaces the operation by its values.
  template <typename Start> LogicalResult finish(ImplicitLocOpBuilder &builder, Operation *op, Start start) {
    auto wait = WaitOp::create(builder, op->getResultTypes(), start.getFuture(), ValueRange());
    op->replaceAllUsesWith(wait);
    op->erase();
    return success();
  }

  ModuleOp module;
  Processes processes;
  GroupTable groups;
};

struct ConvertStablehloToCommPass : public commsched::impl::ConvertStablehloToCommBase<ConvertStablehloToCommPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    MeshAxes mesh = readMesh(module);
    if (failed(inlineManualComputations(module)) || failed(convertControlFlow(module)) ||
        failed(StablehloConversion(module, mesh).run()))
      return signalPassFailure();
    warnOfShardings(module);
  }

private:
  /// A program with shardings and without collectives has yet to be partitioned.
  static void warnOfShardings(ModuleOp module) {
    bool communicates = module.walk([](CollectiveOpInterface) { return WalkResult::interrupt(); }).wasInterrupted();
    if (communicates)
      return;
    module.walk([](Operation *op) {
      for (NamedAttribute attribute : op->getDiscardableAttrs())
        if (attribute.getName() == "sdy.sharding" || attribute.getName() == "mhlo.sharding") {
          op->emitWarning() << "the program has shardings and no collectives: XLA's partitioner makes them, later. Use "
                               "jax.shard_map, or schedule what XLA compiles (docs/guide/Jax.md)";
          return WalkResult::interrupt();
        }
      return WalkResult::advance();
    });
  }
};
} // namespace
