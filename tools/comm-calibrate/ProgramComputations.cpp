//===- ProgramComputations.cpp - The computations of a program --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Named computations, matrix products and the copies of FSDP become calls of commrt_compute with the operands that the
// lowering to LLVM gives them, from the types of tensors. Everything else that is a kernel is compiled by itself.
//
//===------------------------------------------------------------------------------------------===//

#include "ProgramComputations.h"
#include "CommSched/Analysis/Costs/OperationForm.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Runtime/Runtime.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

using namespace commsched;
using namespace mlir;
using namespace commsched::comm;

static constexpr int64_t kMutated = COMMRT_OPERAND_WRITTEN;
static constexpr int64_t kOutput = COMMRT_OPERAND_WRITTEN | COMMRT_OPERAND_OUTPUT;

/// The runtime's type of elements, or -1.
static int32_t getDtype(Type element) {
  if (element.isF16())
    return COMMRT_F16;
  if (element.isBF16())
    return COMMRT_BF16;
  if (element.isF32())
    return COMMRT_F32;
  if (element.isF64())
    return COMMRT_F64;
  if (!element.isInteger())
    return -1;
  switch (element.getIntOrFloatBitWidth()) {
  case 1:
    return COMMRT_I1;
  case 8:
    return COMMRT_I8;
  case 16:
    return COMMRT_I16;
  case 32:
    return COMMRT_I32;
  case 64:
    return COMMRT_I64;
  default:
    return -1;
  }
}

namespace {
/// A probe while it is put together, and the first reason why it cannot be one.
struct ProbeBuilder {
  ComputeProbe probe;
  std::string reason;

  void refuse(const Twine &why) {
    if (reason.empty())
      reason = why.str();
  }
  void add(Type type, int64_t flags) {
    auto tensor = dyn_cast<ShapedType>(type);
    if (!tensor || !tensor.hasRank())
      return refuse("an operand is no ranked tensor");
    if (!tensor.hasStaticShape())
      return refuse("only the run time knows a size");
    int32_t dtype = getDtype(tensor.getElementType());
    if (dtype < 0)
      return refuse("the runtime has no such element type");
    probe.operands.push_back({dtype, tensor.getShape().vec(), flags});
  }
};
} // namespace

/// Returns true if the body is `out + left * right` with only widening in between, of floating types.
static bool isProduct(linalg::LinalgOp op) {
  return op.getNumDpsInputs() == 2 && op.getNumDpsInits() == 1 && linalg::isaContractionOpInterface(op) &&
         llvm::all_of(*op.getBlock(),
                      [](Operation &inner) {
                        return isa<arith::MulFOp, arith::AddFOp, arith::ExtFOp, linalg::YieldOp>(inner);
                      }) &&
         llvm::all_of(op->getOperandTypes(), [](Type type) {
           Type element = getElementTypeOrSelf(type);
           return element.isF16() || element.isBF16() || element.isF32() || element.isF64();
         });
}

/// A product of dense operands, as ContractionLowering makes it of a loop nest over memrefs. Returns false if the
/// runtime has no kernel of it, and it is compiled.
static bool buildContraction(linalg::LinalgOp op, ProbeBuilder &builder) {
  if (!isProduct(op))
    return false;
  FailureOr<linalg::ContractionDimensions> found = linalg::inferContractionDims(op);
  if (failed(found) || found->k.size() != 1 || found->m.empty() || found->n.empty())
    return false;
  SmallVector<unsigned> batch(found->batch.begin(), found->batch.end());
  llvm::append_range(batch, ArrayRef(found->m).drop_back());
  llvm::append_range(batch, ArrayRef(found->n).drop_back());
  unsigned m = found->m.back(), n = found->n.back(), k = found->k.front();
  if (batch.size() + 3 != op.getNumLoops())
    return false;
  for (auto [index, type] : llvm::enumerate(op->getOperandTypes()))
    builder.add(type, index == 2 ? kMutated : 0);
  if (!builder.reason.empty())
    return true;
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  SmallVector<int64_t> sizes = op.getStaticLoopRanges();
  builder.probe.kernel = "comm.contract";
  builder.probe.isFlat = true;
  std::vector<int64_t> &extra = builder.probe.extra;
  extra.push_back(static_cast<int64_t>(batch.size()));
  for (unsigned dim : batch)
    extra.push_back(sizes[dim]);
  llvm::append_values(extra, sizes[m], sizes[n], sizes[k]);
  std::pair<unsigned, unsigned> matrixDims[] = {{m, k}, {k, n}, {m, n}};
  for (auto [operand, dims] : llvm::enumerate(matrixDims)) {
    auto stride = [&, operand = operand](unsigned dim) -> int64_t {
      std::optional<unsigned> position = maps[operand].getResultPosition(getAffineDimExpr(dim, op->getContext()));
      if (!position)
        return 0;
      int64_t result = 1;
      for (int64_t size : ArrayRef(builder.probe.operands[operand].sizes).drop_front(*position + 1))
        result *= size;
      return result;
    };
    for (unsigned dim : batch)
      extra.push_back(stride(dim));
    extra.push_back(stride(dims.first));
    extra.push_back(stride(dims.second));
  }
  return true;
}

static void buildCompute(ComputeOp op, ProbeBuilder &builder) {
  builder.probe.kernel = op.getName().str();
  if (commrt_has_kernel(builder.probe.kernel.c_str()) == 0)
    return builder.refuse("the runtime has no kernel of this name");
  SmallVector<int64_t> flags(op->getNumOperands(), 0);
  for (int64_t operand : op.getMutates().value_or(ArrayRef<int64_t>()))
    flags[operand] = kMutated;
  for (auto [type, flag] : llvm::zip_equal(op->getOperandTypes(), flags))
    builder.add(type, flag);
  for (Type type : op->getResultTypes())
    builder.add(type, kOutput);
}

static void buildCopyIn(FsdpAllGatherCopyInOp op, ProbeBuilder &builder) {
  builder.probe.kernel = "comm.pack";
  for (Type type : op.getInputs().getTypes())
    builder.add(type, 0);
  builder.add(op.getSlice().getType(), kOutput);
  if (std::optional<ArrayAttr> as = op.getAs())
    for (Type type : as->getAsValueRange<TypeAttr>())
      builder.probe.extra.push_back(getDtype(type));
}

static void buildSplitCopy(FsdpSplitWithSizesCopyOp op, ProbeBuilder &builder) {
  builder.probe.kernel = "comm.split_copy";
  builder.add(op.getSource().getType(), 0);
  for (Type type : op.getPieces().getTypes())
    builder.add(type, kOutput);
  builder.probe.extra.push_back(static_cast<int64_t>(op.getSizes().size()));
  llvm::append_range(builder.probe.extra, op.getSizes());
  if (op.getMembers())
    llvm::append_range(builder.probe.extra, *op.getMembers());
  else
    llvm::append_range(builder.probe.extra, llvm::seq<int64_t>(0, op.getSizes().size()));
}

static void buildChunkCat(FsdpChunkCatOp op, ProbeBuilder &builder) {
  builder.probe.kernel = "comm.chunk_cat";
  for (Type type : op.getInputs().getTypes())
    builder.add(type, 0);
  builder.add(op.getResult().getType(), kOutput);
  builder.probe.extra.push_back(static_cast<int64_t>(op.getChunks()));
}

/// What the program compiles itself, as a program of its own.
static void buildCompiled(Operation *op, OperationCompiler &compiler, bool optimize, ProbeBuilder &builder) {
  llvm::Expected<std::string> text = isolateOperation(op);
  if (!text)
    return builder.refuse(llvm::toString(text.takeError()));
  auto digest = llvm::SHA256::hash(llvm::arrayRefFromStringRef(*text));
  builder.probe.kernel = (optimize ? "compiled -O2 " : "compiled -O0 ") + llvm::toHex(digest, /*LowerCase=*/true);
  builder.probe.compile = [&compiler, optimize, text = std::move(*text)](commrt_context *context) {
    return compiler.make(context, text, optimize);
  };
}

/// Whether a loop computes on numbers and vectors alone, so that all of it is one kernel.
static bool isLoopKernel(Operation *op) {
  if (!isa<scf::ForOp, scf::ForallOp, scf::ParallelOp>(op))
    return false;
  return !op->walk([&](Operation *inner) {
              bool isAccess = isa<memref::LoadOp, memref::StoreOp, tensor::ExtractOp, tensor::InsertOp>(inner);
              StringRef dialect = inner->getName().getDialectNamespace();
              bool isControl = dialect == "scf" || dialect == "vector";
              bool isNumber = (dialect == "arith" || dialect == "math" || dialect == "affine") &&
                              llvm::none_of(inner->getOperandTypes(), llvm::IsaPred<TensorType>);
              return isAccess || isControl || isNumber ? WalkResult::advance() : WalkResult::interrupt();
            }).wasInterrupted();
}

/// Whether the operation is a kernel whose time the model computes. Regions of others are looked at by themselves.
static bool isKernel(Operation *op, const OperationCosts &costs) {
  if (op->getNumRegions() > 0 && !isa<linalg::LinalgOp, tensor::PadOp, tensor::GenerateOp>(op) && !isLoopKernel(op))
    return false;
  if (isa<CollectiveOpInterface, CallOpInterface>(op))
    return false;
  OpCostSource source = costs.costOf(op).source;
  return source == OpCostSource::Roofline || source == OpCostSource::Table || source == OpCostSource::Guess;
}

/// The probe of a kernel, or the reason why there is none.
static ProbeBuilder buildProbe(Operation *op, OperationCompiler &compiler, bool optimize) {
  ProbeBuilder builder;
  builder.probe.name = getTableName(op).str();
  builder.probe.shapes = getTableShapes(op);
  builder.probe.form = getTableForm(op);
  if (auto compute = dyn_cast<ComputeOp>(op))
    buildCompute(compute, builder);
  else if (auto copyIn = dyn_cast<FsdpAllGatherCopyInOp>(op))
    buildCopyIn(copyIn, builder);
  else if (auto split = dyn_cast<FsdpSplitWithSizesCopyOp>(op))
    buildSplitCopy(split, builder);
  else if (auto cat = dyn_cast<FsdpChunkCatOp>(op))
    buildChunkCat(cat, builder);
  else if (auto product = dyn_cast<linalg::LinalgOp>(op); !product || !buildContraction(product, builder))
    buildCompiled(op, compiler, optimize, builder);
  return builder;
}

void commsched::collectComputations(ModuleOp module, const OperationCosts &costs, OperationCompiler &compiler,
                                    std::set<std::string> &seen, Questions &questions) {
  bool optimize = hasLongLoops(module);
  module.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (!isKernel(op, costs))
      return WalkResult::advance();
    ProbeBuilder builder = buildProbe(op, compiler, optimize);
    std::string what = builder.probe.name + " (" + llvm::join(builder.probe.shapes, ", ") + ")";
    if (!seen.insert(what + builder.probe.form).second)
      return WalkResult::skip();
    if (!builder.reason.empty()) {
      questions.skipped.emplace_back(what, builder.reason);
      return WalkResult::skip();
    }
    if (isa<linalg::LinalgOp>(op) && !builder.probe.compile)
      questions.products.insert(elementTypeOf(op->getOperand(0).getType()));
    questions.computations.push_back(std::move(builder.probe));
    return WalkResult::skip();
  });
}
