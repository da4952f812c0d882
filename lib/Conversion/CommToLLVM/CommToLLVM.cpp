//===- CommToLLVM.cpp - Lower collectives on buffers to calls of the runtime ------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Visits each function once and replaces the dialect's operations by calls. Constants (names, sizes, the table of
// sites) become globals. The context and the groups are fetched once per function.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Conversion/Passes.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Runtime/Runtime.h"
#include "FunctionLowering.h"
#include "MessageList.h"
#include "ModuleMemory.h"
#include "RuntimeCalls/RuntimeCalls.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace commsched {
#define GEN_PASS_DEF_COMMTOLLVM
#include "CommSched/Conversion/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

/// Operations on tensors cannot be lowered.
static LogicalResult checkIsOnBuffers(ModuleOp module) {
  WalkResult result = module.walk([](Operation *op) {
    if (!isa_and_nonnull<CommDialect>(op->getDialect()))
      return WalkResult::advance();
    auto isTensor = [](Type type) {
      auto future = dyn_cast<FutureType>(type);
      return isa<TensorType>(type) || (future && llvm::any_of(future.getTypes(), llvm::IsaPred<TensorType>));
    };
    if (llvm::none_of(op->getOperandTypes(), isTensor) && llvm::none_of(op->getResultTypes(), isTensor))
      return WalkResult::advance();
    op->emitOpError() << "expected buffers, got tensors; run comm-bufferize first";
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

/// Returns true if the bytes of a memref fit in 64 bits, as far as its sizes are known.
static bool isCountable(Type type) {
  auto memref = dyn_cast<MemRefType>(type);
  if (!memref)
    return true;
  int64_t bytes = std::max<int64_t>(1, getElementBytes(memref.getElementType()));
  for (int64_t size : memref.getShape())
    if (!ShapedType::isDynamic(size) && llvm::MulOverflow(bytes, std::max<int64_t>(1, size), bytes))
      return false;
  return true;
}

/// All code below uses 64-bit sizes and offsets, so types that do not fit are rejected here, once.
static LogicalResult checkSizes(ModuleOp module) {
  auto refuse = [](Location loc, Type type) {
    return emitError(loc) << "expected a buffer of less than 2^63 bytes, got " << type;
  };
  WalkResult result = module.walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      if (!isCountable(type))
        return refuse(op->getLoc(), type), WalkResult::interrupt();
    for (Region &region : op->getRegions())
      for (Block &block : region)
        for (BlockArgument argument : block.getArguments())
          if (!isCountable(argument.getType()))
            return refuse(argument.getLoc(), argument.getType()), WalkResult::interrupt();
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

/// One number for the signatures that passes set on the functions (FNV-1a over their texts).
static uint64_t hashSignatures(ModuleOp module) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (auto function : module.getOps<func::FuncOp>())
    if (auto signature = function->getAttrOfType<StringAttr>(CommDialect::kSignatureAttrName))
      for (char c : signature.getValue())
        hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

/// Makes the rank's own copies of globals, with their initial contents.
static void emitGlobals(ArrayRef<memref::GlobalOp> globals, RuntimeCalls &calls, OpBuilder &builder, Value context) {
  for (memref::GlobalOp global : globals) {
    Location loc = global.getLoc();
    MemRefType type = global.getType();
    Value data = memref::GetGlobalOp::create(builder, loc, type, global.getSymName());
    Value address = memref::ExtractAlignedPointerAsIndexOp::create(builder, loc, data);
    address = arith::IndexCastOp::create(builder, loc, builder.getI64Type(), address);
    int64_t bytes = type.getNumElements() * getElementBytes(type.getElementType());
    calls.call(builder, loc, "commrt_constant_create",
               {context, calls.string(builder, loc, global.getSymName()),
                LLVM::IntToPtrOp::create(builder, loc, calls.pointerType(), address),
                calls.integer(builder, loc, bytes)});
  }
}

/// Texts that end with a zero each, in one array; equal texts are stored once.
namespace {
class PackedStrings {
public:
  /// The offset of a text.
  int64_t add(StringRef text) {
    auto [known, isNew] = offsets.try_emplace(text, static_cast<int64_t>(texts.size()));
    if (isNew)
      texts += text.str() + '\0';
    return known->second;
  }
  StringRef get() const { return texts; }

private:
  std::string texts;
  llvm::StringMap<int64_t> offsets;
};
} // namespace

/// Announces the messages that this program is certain to start, if they are known.
static void emitMessages(ModuleOp module, RuntimeCalls &calls, OpBuilder &builder, Value context,
                         const std::optional<std::vector<MessageStep>> &messages) {
  if (!messages)
    return;
  SmallVector<int64_t> numbers;
  PackedStrings strings;
  for (const MessageStep &step : *messages)
    llvm::append_values(numbers, step.kind, step.dtype, step.count, strings.add(step.group), strings.add(step.location),
                        step.peer, step.tag, step.batch, step.stream, step.awaited);
  Location loc = module.getLoc();
  calls.call(builder, loc, "commrt_program_messages_packed",
             {context, calls.integers(builder, loc, numbers),
              calls.integer(builder, loc, static_cast<int64_t>(messages->size())),
              calls.string(builder, loc, strings.get())});
}

/// Checks the runtime's version, creates the groups, registers the schedule, and creates the arenas and globals.
static void emitModuleBegin(ModuleOp module, RuntimeCalls &calls, ArrayRef<Site> sites, uint64_t signature,
                            const std::optional<std::vector<MessageStep>> &messages,
                            ArrayRef<memref::GlobalOp> globals) {
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  Location loc = module.getLoc();
  auto function = LLVM::LLVMFuncOp::create(builder, loc, "commrt_module_begin",
                                           LLVM::LLVMFunctionType::get(builder.getI32Type(), {calls.pointerType()}));
  Block *entry = function.addEntryBlock(builder);
  builder.setInsertionPointToStart(entry);
  Value context = entry->getArgument(0), slot = calls.stackSlot(builder, loc, calls.pointerType(), 1);
  calls.call(builder, loc, "commrt_check_abi", {context, calls.integer(builder, loc, COMMRT_ABI_VERSION, 32)});
  for (auto group : module.getOps<GroupOp>()) {
    ReplicaGroupsInterface groups = group.getGroups();
    SmallVector<int64_t> offsets = {0}, ranks;
    for (int64_t subset = 0; subset < groups.getNumGroups(); ++subset) {
      for (int64_t index = 0; index < groups.getGroupSize(); ++index)
        ranks.push_back(groups.getRank(subset, index));
      offsets.push_back(ranks.size());
    }
    calls.call(builder, loc, "commrt_group_create",
               {context, calls.string(builder, loc, group.getSymName()),
                calls.integer(builder, loc, groups.getNumGroups()), calls.integers(builder, loc, offsets),
                calls.integers(builder, loc, ranks), slot});
  }
  emitMessages(module, calls, builder, context, messages);
  SmallVector<int64_t> numbers;
  PackedStrings strings;
  for (const Site &site : sites) {
    int64_t group = strings.add(site.group), location = strings.add(site.location);
    llvm::append_values(numbers, site.kind, site.dtype, site.count, group, location, site.costNs);
  }
  Value status = calls.call(
      builder, loc, "commrt_program_begin_packed",
      {context, calls.integer(builder, loc, static_cast<int64_t>(signature)), calls.integers(builder, loc, numbers),
       calls.integer(builder, loc, static_cast<int64_t>(sites.size())), calls.string(builder, loc, strings.get())});
  // After the schedules are known to agree, so that all ranks create the same arenas.
  for (memref::GlobalOp arena : getArenas(module)) {
    auto space = cast<SymmetricAttr>(arena.getType().getMemorySpace());
    calls.call(builder, loc, "commrt_group_find",
               {context, calls.string(builder, loc, space.getGroup().getValue()), slot});
    Value group = LLVM::LoadOp::create(builder, loc, calls.pointerType(), slot);
    calls.call(builder, loc, "commrt_arena_create",
               {group, calls.string(builder, loc, arena.getSymName()),
                calls.integer(builder, loc, arena.getType().getNumElements())});
  }
  emitGlobals(globals, calls, builder, context);
  LLVM::ReturnOp::create(builder, loc, status);
}

/// Futures and events have become handles.
static void replaceHandleTypes(ModuleOp module) {
  AttrTypeReplacer replacer;
  replacer.addReplacement(
      [](FutureType type) -> std::optional<Type> { return LLVM::LLVMPointerType::get(type.getContext()); });
  replacer.addReplacement(
      [](EventType type) -> std::optional<Type> { return LLVM::LLVMPointerType::get(type.getContext()); });
  // Buffers of the symmetric memory space have become ordinary memory.
  replacer.addReplacement([](MemRefType type) -> std::optional<Type> {
    if (!isa_and_nonnull<SymmetricAttr>(type.getMemorySpace()))
      return type;
    return MemRefType::get(type.getShape(), type.getElementType(), type.getLayout());
  });
  replacer.recursivelyReplaceElementsIn(module, /*replaceAttrs=*/true, /*replaceLocs=*/false, /*replaceTypes=*/true);
}

/// Splits a view that drops dimensions and has steps other than 1 into a view with the steps and one that drops.
/// Upstream finds the dropped dimensions by the strides of the source and ignores steps: it takes the wrong ones if
/// several dimensions have size 1, or dereferences what it has not found.
static void splitReducingViews(ModuleOp module) {
  module.walk([](memref::SubViewOp view) {
    auto isOne = [](OpFoldResult step) { return isConstantIntValue(step, 1); };
    if (view.getSourceType().getRank() == view.getType().getRank() || llvm::all_of(view.getMixedStrides(), isOne))
      return;
    OpBuilder builder(view);
    auto whole = memref::SubViewOp::create(builder, view.getLoc(), view.getSource(), view.getMixedOffsets(),
                                           view.getMixedSizes(), view.getMixedStrides());
    SmallVector<OpFoldResult> zeros(whole.getType().getRank(), builder.getIndexAttr(0));
    SmallVector<OpFoldResult> ones(whole.getType().getRank(), builder.getIndexAttr(1));
    auto reduced =
        memref::SubViewOp::create(builder, view.getLoc(), view.getType(), whole, zeros, view.getMixedSizes(), ones);
    view.replaceAllUsesWith(reduced.getResult());
    view.erase();
  });
}

namespace {
struct CommToLLVMPass : public commsched::impl::CommToLLVMBase<CommToLLVMPass> {
  using CommToLLVMBase::CommToLLVMBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (failed(checkIsOnBuffers(module)) || failed(checkSizes(module)))
      return signalPassFailure();
    splitReducingViews(module);
    RuntimeCalls calls(module);
    SmallVector<Site> sites;
    if (device)
      placeStackBuffers(module);
    SmallVector<memref::GlobalOp> globals = getGlobalsOfRuntime(module, device);
    ModuleFacts facts;
    facts.onDevice = device;
    facts.storesBuffers = storesBuffers(module);
    for (memref::GlobalOp arena : getArenas(module))
      facts.ofRuntime[arena.getSymName()] = false;
    for (memref::GlobalOp global : globals)
      facts.ofRuntime[global.getSymName()] = global.getConstant();
    std::optional<std::vector<MessageStep>> messages = listMessages(module);
    for (auto function : llvm::make_early_inc_range(module.getOps<func::FuncOp>()))
      if (!function.isDeclaration() && failed(FunctionLowering(function, calls, sites, facts).run()))
        return signalPassFailure();
    emitModuleBegin(module, calls, sites, hashSignatures(module), messages, globals);
    for (auto group : llvm::make_early_inc_range(module.getOps<GroupOp>()))
      group.erase();
    for (memref::GlobalOp arena : getArenas(module))
      arena.erase();
    replaceHandleTypes(module);
  }
};
} // namespace
