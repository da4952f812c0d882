//===- FunctionLowering.cpp - One function's collectives as calls -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Lowers waits, events and buffers. Has the helpers of the other lowerings: addresses, sizes, the context and the
// groups.
//
//===------------------------------------------------------------------------------------------===//

#include "FunctionLowering.h"
#include "CommSched/Analysis/Streams.h"
#include "CommSched/Runtime/Runtime.h"
#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

int64_t commsched::getElementBytes(Type type) {
  if (isa<IndexType>(type))
    return 8;
  if (auto complex = dyn_cast<ComplexType>(type))
    return 2 * getElementBytes(complex.getElementType());
  // A descriptor: two addresses, an offset, sizes and strides; without a rank, the rank and the address of one.
  if (auto memref = dyn_cast<MemRefType>(type))
    return 8 * (3 + 2 * memref.getRank());
  if (isa<UnrankedMemRefType>(type))
    return 16;
  // The innermost dimension is a vector of the machine, the others are arrays.
  if (auto vector = dyn_cast<VectorType>(type); vector && !vector.isScalable() && vector.getRank() > 0) {
    int64_t inner = vector.getShape().back();
    if (vector.getElementType().isInteger(1))
      return vector.getNumElements() / inner * llvm::PowerOf2Ceil(llvm::divideCeil(inner, 8));
    return vector.getNumElements() / inner * llvm::PowerOf2Ceil(inner * getElementBytes(vector.getElementType()));
  }
  // In memory, every element has a whole number of bytes that is a power of two.
  return type.isIntOrFloat() ? llvm::PowerOf2Ceil(llvm::divideCeil(type.getIntOrFloatBitWidth(), 8)) : 0;
}

int64_t commsched::getRuntimeDtype(Type type) {
  if (type.isF16())
    return COMMRT_F16;
  if (type.isBF16())
    return COMMRT_BF16;
  if (type.isF32())
    return COMMRT_F32;
  if (type.isF64())
    return COMMRT_F64;
  if (type.isInteger(1))
    return COMMRT_I1;
  bool isUnsigned = type.isUnsignedInteger();
  switch (getElementBytes(type)) {
  case 1:
    return isUnsigned ? COMMRT_U8 : COMMRT_I8;
  case 2:
    return isUnsigned ? COMMRT_U16 : COMMRT_I16;
  case 4:
    return isUnsigned ? COMMRT_U32 : COMMRT_I32;
  case 8:
    return isUnsigned ? COMMRT_U64 : COMMRT_I64;
  default:
    return -1;
  }
}

int64_t commsched::getCostNs(Operation *op) {
  auto cost = op->getAttrOfType<CostAttr>("comm.cost");
  return cost ? cost.getTime().value_or(0) : 0;
}

FunctionLowering::FunctionLowering(func::FuncOp function, RuntimeCalls &calls, SmallVectorImpl<Site> &sites,
                                   const ModuleFacts &facts)
    : function(function), calls(calls), sites(sites), facts(facts), builder(function.getContext()),
      entryBuilder(function.getContext()) {}

bool commsched::isInKernel(Operation *op) {
  for (op = op->getParentOp(); op && !isa<func::FuncOp>(op); op = op->getParentOp())
    if (isa<scf::ParallelOp, scf::ForallOp, gpu::LaunchOp>(op) || op->getName().getDialectNamespace() == "linalg")
      return true;
  return false;
}

static bool isHostLoad(Operation *op) { return isa<memref::LoadOp>(op) && !isInKernel(op); }

bool commsched::isOnlyLoaded(memref::GetGlobalOp op) { return llvm::all_of(op->getUsers(), isHostLoad); }

bool FunctionLowering::isOfRuntime(Operation *op) const {
  auto global = dyn_cast<memref::GetGlobalOp>(op);
  auto known = global ? facts.ofRuntime.find(global.getName()) : facts.ofRuntime.end();
  return known != facts.ofRuntime.end() && !(known->second && isOnlyLoaded(global));
}

LogicalResult FunctionLowering::run() {
  if (failed(switchStreams(function)))
    return failure();
  SmallVector<Operation *> operations;
  int64_t mostOperands = 1;
  bool hasCollectives = false, hasCalls = false;
  function.walk<WalkOrder::PreOrder>([&](Operation *op) {
    // Excludes the terminators and indices inside.
    bool isLinalg = op->getName().getDialectNamespace() == "linalg" && op->getNumRegions() > 0;
    if (isLinalg || isa<memref::AllocOp, memref::DeallocOp>(op) || isOfRuntime(op) ||
        isa_and_nonnull<CommDialect>(op->getDialect()))
      operations.push_back(op);
    hasCollectives |= isa<CollectiveOpInterface>(op);
    hasCalls |= isCall(op);
    mostOperands = std::max<int64_t>(mostOperands, op->getNumOperands() + op->getNumResults());
    // Constant splits need a slot if others in the list are operands.
    if (auto allToAll = dyn_cast<AllToAllOp>(op); allToAll && allToAll.hasSplits())
      mostOperands = std::max<int64_t>(mostOperands, 2 * allToAll.getStaticInputSplits()->size());
  });
  if (operations.empty() && !hasCalls)
    return success();
  Location loc = function.getLoc();
  entryBuilder.setInsertionPointToStart(&function.getBody().front());
  context = calls.call(entryBuilder, loc, "commrt_current", {});
  handleSlot = calls.stackSlot(entryBuilder, loc, calls.pointerType(), 1);
  operandSlots = calls.stackSlot(entryBuilder, loc, calls.pointerType(), mostOperands);
  scalarSlots = calls.stackSlot(entryBuilder, loc, entryBuilder.getI64Type(), mostOperands);
  // Later fetches in the entry block are inserted before a fixed operation, because the following operations will be
  // erased.
  entryBuilder.setInsertionPoint(calls.integer(entryBuilder, loc, 0).getDefiningOp());
  findScopes();
  function.walk([&](SwitchStreamOp op) { stream(op.getLoc(), op.getStream()); });
  for (Operation *op : operations) {
    builder.setInsertionPoint(op);
    if (op->getName().getDialectNamespace() == "linalg") {
      if (lowerContraction(op)) {
        op->erase();
        continue;
      }
      // Communication progresses between computations.
      builder.setInsertionPointAfter(op);
      if (hasCollectives && !facts.onDevice)
        call(op->getLoc(), "commrt_progress", context);
      continue;
    }
    if (failed(lower(op)))
      return failure();
    for (Value temporary : temporaries)
      call(op->getLoc(), "commrt_free", {context, temporary});
    temporaries.clear();
    op->erase();
  }
  emitScopes();
  finishBuffers();
  return success();
}

LogicalResult FunctionLowering::lower(Operation *op) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<CollectiveOpInterface>([&](auto start) { return lowerStart(start); })
      .Case<WaitOp>([&](auto wait) { return lowerWait(wait); })
      .Case<ComputeOp>([&](auto compute) { return lowerCompute(compute); })
      .Case<FsdpAllGatherCopyInOp>([&](auto copyIn) { return lowerCopyIn(copyIn); })
      .Case<FsdpSplitWithSizesCopyOp>([&](auto split) { return lowerSplitCopy(split); })
      .Case<FsdpChunkCatOp>([&](auto cat) { return lowerChunkCat(cat); })
      .Case<FsdpSplitWithSizesOp>([&](auto split) { return lowerSplit(split); })
      .Case<FsdpCopyOp>([&](auto copy) {
        memref::CopyOp::create(builder, copy.getLoc(), copy.getSource(), copy.getDest());
        return success();
      })
      // The storage of a parameter keeps its size. Storage that is resized away is not read before it is written again.
      .Case<ResizeStorageOp>([&](auto) { return success(); })
      .Case<RankOp>([&](auto rank) { return lowerRank(rank), success(); })
      .Case<SwitchStreamOp>([&](auto change) { return lowerSwitch(change), success(); })
      .Case<RecordOp>([&](auto record) { return lowerRecord(record), success(); })
      .Case<AwaitEventOp>([&](auto await) { return lowerAwait(await), success(); })
      .Case<memref::AllocOp>([&](auto alloc) { return lowerAlloc(alloc), success(); })
      .Case<memref::GetGlobalOp>([&](auto global) { return lowerGlobal(global), success(); })
      .Case<memref::DeallocOp>([&](auto dealloc) { return lowerDealloc(dealloc), success(); })
      .Default([](Operation *other) { return other->emitOpError() << "has no lowering to the runtime"; });
}

void FunctionLowering::lowerRank(RankOp op) {
  Value rank = calls.call(builder, op.getLoc(), "commrt_rank", context);
  op.replaceAllUsesWith(arith::IndexCastOp::create(builder, op.getLoc(), builder.getIndexType(), rank).getResult());
}

//===- Addresses and sizes ----------------------------------------------------------------------===//

Value FunctionLowering::pointer(Location loc, Value memref) {
  if (Value address = addresses.lookup(memref))
    return address;
  auto type = cast<MemRefType>(memref.getType());
  if (auto argument = dyn_cast<BlockArgument>(memref);
      argument && argument.getOwner() == &function.getBody().front() && type.getLayout().isIdentity()) {
    Value index = memref::ExtractAlignedPointerAsIndexOp::create(entryBuilder, loc, memref);
    Value address = arith::IndexCastOp::create(entryBuilder, loc, builder.getI64Type(), index);
    return addresses[memref] = LLVM::IntToPtrOp::create(entryBuilder, loc, calls.pointerType(), address);
  }
  Value index = memref::ExtractAlignedPointerAsIndexOp::create(builder, loc, memref);
  Value address = arith::IndexCastOp::create(builder, loc, builder.getI64Type(), index);
  auto [strides, offset] = type.getStridesAndOffset();
  if (ShapedType::isDynamic(offset)) {
    Value elements = memref::ExtractStridedMetadataOp::create(builder, loc, memref).getOffset();
    elements = arith::IndexCastOp::create(builder, loc, builder.getI64Type(), elements);
    Value bytes = LLVM::MulOp::create(builder, loc, elements, integer(loc, getElementBytes(type.getElementType())));
    address = LLVM::AddOp::create(builder, loc, address, bytes);
  } else if (offset != 0) {
    address = LLVM::AddOp::create(builder, loc, address, integer(loc, offset * getElementBytes(type.getElementType())));
  }
  return LLVM::IntToPtrOp::create(builder, loc, calls.pointerType(), address);
}

Value FunctionLowering::product(Location loc, Value memref, int64_t begin, int64_t end) {
  auto type = cast<MemRefType>(memref.getType());
  int64_t known = 1;
  Value unknown;
  for (int64_t dim = begin; dim < end; ++dim) {
    if (!type.isDynamicDim(dim)) {
      known *= type.getDimSize(dim);
      continue;
    }
    Value size = memref::DimOp::create(builder, loc, memref, dim);
    size = arith::IndexCastOp::create(builder, loc, builder.getI64Type(), size);
    unknown = unknown ? Value(LLVM::MulOp::create(builder, loc, unknown, size)) : size;
  }
  Value result = integer(loc, known);
  return unknown ? Value(LLVM::MulOp::create(builder, loc, unknown, result)) : result;
}

bool FunctionLowering::isDense(Value memref) {
  auto type = cast<MemRefType>(memref.getType());
  return type.getLayout().isIdentity() || type.areTrailingDimsContiguous(type.getRank());
}

Value FunctionLowering::dense(Location loc, Value memref) {
  if (isDense(memref))
    return memref;
  // Released at once: the runtime keeps it while the collective reads it.
  auto [copy, data] = denseCopy(loc, memref);
  temporaries.push_back(data);
  return copy;
}

std::pair<Value, Value> FunctionLowering::denseCopy(Location loc, Value memref) {
  auto type = cast<MemRefType>(memref.getType());
  auto plain = MemRefType::get(type.getShape(), type.getElementType());
  SmallVector<Value> sizes;
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    sizes.push_back(product(loc, memref, dim, dim + 1));
  call(loc, "commrt_alloc",
       {context, integer(loc, COMMRT_BUFFER_PLAIN, 32), checkedBytes(loc, plain, sizes), handleSlot});
  Value data = LLVM::LoadOp::create(builder, loc, calls.pointerType(), handleSlot);
  Value copy = bufferAt(loc, data, plain, sizes);
  memref::CopyOp::create(builder, loc, memref, copy);
  return {copy, data};
}

Value FunctionLowering::checkedBytes(Location loc, MemRefType type, ValueRange sizes) {
  int64_t known = getElementBytes(type.getElementType());
  for (int64_t size : type.getShape())
    if (!ShapedType::isDynamic(size))
      known *= size;
  Value bytes = integer(loc, known), overflows;
  auto pair = LLVM::LLVMStructType::getLiteral(builder.getContext(), {builder.getI64Type(), builder.getI1Type()});
  for (auto [dim, size] : llvm::enumerate(sizes)) {
    if (!type.isDynamicDim(dim))
      continue;
    // Unsigned: a negative size compares as larger than any valid size.
    Value result = LLVM::UMulWithOverflowOp::create(builder, loc, pair, bytes, size);
    bytes = LLVM::ExtractValueOp::create(builder, loc, result, 0);
    Value overflow = LLVM::ExtractValueOp::create(builder, loc, result, 1);
    overflows = overflows ? Value(LLVM::OrOp::create(builder, loc, overflows, overflow)) : overflow;
  }
  return overflows ? Value(LLVM::SelectOp::create(builder, loc, overflows, integer(loc, -1), bytes)) : bytes;
}

Value FunctionLowering::bufferAt(Location loc, Value data, MemRefType type, ValueRange sizes) {
  auto placeholder = UnrealizedConversionCastOp::create(builder, loc, TypeRange{type}, data);
  buffers.push_back({placeholder, type, llvm::to_vector(sizes)});
  addresses[placeholder.getResult(0)] = data;
  return placeholder.getResult(0);
}

void FunctionLowering::finishBuffers() {
  LLVMTypeConverter converter(builder.getContext());
  for (Buffer &buffer : buffers) {
    UnrealizedConversionCastOp placeholder = buffer.placeholder;
    if (placeholder->use_empty()) {
      placeholder.erase();
      continue;
    }
    Location loc = placeholder.getLoc();
    builder.setInsertionPoint(placeholder);
    auto descriptor = MemRefDescriptor::poison(builder, loc, converter.convertType(buffer.type));
    descriptor.setAllocatedPtr(builder, loc, placeholder.getOperand(0));
    descriptor.setAlignedPtr(builder, loc, placeholder.getOperand(0));
    descriptor.setOffset(builder, loc, integer(loc, 0));
    Value stride = integer(loc, 1);
    int64_t known = 1;
    for (int64_t dim = buffer.type.getRank() - 1; dim >= 0; --dim) {
      descriptor.setSize(builder, loc, dim, buffer.sizes[dim]);
      descriptor.setStride(builder, loc, dim, stride);
      known = known < 0 || buffer.type.isDynamicDim(dim) ? -1 : known * buffer.type.getDimSize(dim);
      stride = known >= 0 ? integer(loc, known) : Value(LLVM::MulOp::create(builder, loc, stride, buffer.sizes[dim]));
    }
    placeholder->setOperands(Value(descriptor));
  }
}

//===- Constants --------------------------------------------------------------------------------===//

Value FunctionLowering::integer(Location loc, int64_t value, unsigned width) {
  Value &constant = integerConstants[{value, width}];
  return constant ? constant : constant = calls.integer(entryBuilder, loc, value, width);
}

Value FunctionLowering::null(Location loc) {
  return nullPointer ? nullPointer : nullPointer = calls.null(entryBuilder, loc);
}

Value FunctionLowering::addressOf(Location loc, LLVM::GlobalOp global) {
  if (!global)
    return null(loc);
  Value &address = globalAddresses[global];
  return address ? address : address = calls.address(entryBuilder, loc, global);
}

Value FunctionLowering::string(Location loc, StringRef text) { return addressOf(loc, calls.stringGlobal(text)); }

Value FunctionLowering::integers(Location loc, ArrayRef<int64_t> values) {
  return addressOf(loc, calls.integersGlobal(values));
}

//===- Handles ----------------------------------------------------------------------------------===//

Value FunctionLowering::group(Location loc, FlatSymbolRefAttr name) {
  Value &group = groups[name];
  if (!group) {
    calls.call(entryBuilder, loc, "commrt_group_find",
               {context, calls.string(entryBuilder, loc, name.getValue()), handleSlot});
    group = LLVM::LoadOp::create(entryBuilder, loc, calls.pointerType(), handleSlot);
  }
  return group;
}

//===- Waits, events, buffers -------------------------------------------------------------------===//

LogicalResult FunctionLowering::lowerWait(WaitOp op) {
  // The future is a token at this point, so its typed accessors are no longer valid.
  Location loc = op.getLoc();
  Value token = op->getOperand(0);
  int64_t number = getStreamNumber(op);
  call(loc, "commrt_wait", {token, number == 0 ? null(loc) : stream(loc, number)});
  for (const CopyBack &back : copyBacks.lookup(token)) {
    memref::CopyOp::create(builder, loc, back.copy, back.dest);
    call(loc, "commrt_free", {context, back.address});
  }
  if (auto dests = tokenDests.find(token); dests != tokenDests.end()) {
    op->replaceAllUsesWith(dests->second);
    return success();
  }
  // The start is elsewhere. The token knows the addresses of its outputs.
  for (OpResult result : op->getResults()) {
    auto type = cast<MemRefType>(result.getType());
    if (!type.hasStaticShape() || !type.getLayout().isIdentity())
      return op.emitOpError() << "expected a value of static shape without a layout in a future from another function "
                                 "or block, got "
                              << type;
    call(loc, "commrt_token_output", {token, integer(loc, result.getResultNumber()), handleSlot});
    Value data = LLVM::LoadOp::create(builder, loc, calls.pointerType(), handleSlot);
    SmallVector<Value> sizes;
    for (int64_t size : type.getShape())
      sizes.push_back(integer(loc, size));
    result.replaceAllUsesWith(bufferAt(loc, data, type, sizes));
  }
  return success();
}

void FunctionLowering::releaseToken(Operation *start, Value token) {
  Operation *last = findLastWait(start);
  if (!last)
    return;
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointAfter(last);
  call(start->getLoc(), "commrt_token_release", token);
}

void FunctionLowering::lowerRecord(RecordOp op) {
  Location loc = op.getLoc();
  call(loc, "commrt_event_record", {context, stream(loc, op.getStream()), handleSlot});
  op->getResult(0).replaceAllUsesWith(LLVM::LoadOp::create(builder, loc, calls.pointerType(), handleSlot));
}

void FunctionLowering::lowerAwait(AwaitEventOp op) {
  call(op.getLoc(), "commrt_event_await", {context, stream(op.getLoc(), op.getStream()), op->getOperand(0)});
}

void FunctionLowering::lowerAlloc(memref::AllocOp op) {
  Location loc = op.getLoc();
  MemRefType type = op.getType();
  auto plain = MemRefType::get(type.getShape(), type.getElementType());
  SmallVector<Value> sizes;
  unsigned dynamic = 0;
  for (int64_t size : type.getShape())
    sizes.push_back(ShapedType::isDynamic(size) ? arith::IndexCastOp::create(builder, loc, builder.getI64Type(),
                                                                             op.getDynamicSizes()[dynamic++])
                                                : integer(loc, size));
  int64_t kind = isa_and_nonnull<SymmetricAttr>(type.getMemorySpace()) ? COMMRT_BUFFER_SYMMETRIC : COMMRT_BUFFER_PLAIN;
  call(loc, "commrt_alloc", {context, integer(loc, kind, 32), checkedBytes(loc, type, sizes), handleSlot});
  Value data = LLVM::LoadOp::create(builder, loc, calls.pointerType(), handleSlot);
  Value buffer = bufferAt(loc, data, plain, sizes);
  // The memory space is removed together with the handles, at the end of the pass.
  buffer.setType(type);
  op.replaceAllUsesWith(buffer);
}

void FunctionLowering::lowerGlobal(memref::GetGlobalOp op) {
  Location loc = op.getLoc();
  if (facts.ofRuntime.lookup(op.getName())) {
    auto isLoad = [](OpOperand &use) { return isHostLoad(use.getOwner()); };
    Operation *forHost = builder.clone(*op);
    op->getResult(0).replaceUsesWithIf(forHost->getResult(0), isLoad);
    if (forHost->use_empty())
      forHost->erase();
  }
  MemRefType type = op.getType();
  // The address stays until the program ends.
  Value &data = globals[op.getNameAttr()];
  if (!data) {
    calls.call(entryBuilder, loc, "commrt_arena_find", {context, string(loc, op.getName()), handleSlot});
    data = LLVM::LoadOp::create(entryBuilder, loc, calls.pointerType(), handleSlot);
  }
  SmallVector<Value> sizes;
  for (int64_t size : type.getShape())
    sizes.push_back(integer(loc, size));
  Value buffer = bufferAt(loc, data, MemRefType::get(type.getShape(), type.getElementType()), sizes);
  buffer.setType(type);
  op->getResult(0).replaceAllUsesWith(buffer);
}

void FunctionLowering::lowerDealloc(memref::DeallocOp op) {
  call(op.getLoc(), "commrt_free", {context, pointer(op.getLoc(), op.getMemref())});
}
