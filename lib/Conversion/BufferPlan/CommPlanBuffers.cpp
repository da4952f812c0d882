//===- CommPlanBuffers.cpp - The pass comm-plan-buffers ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The life of a buffer is in the program: from `memref.alloc` to `memref.dealloc`. Inner blocks are planned first. The
// arena of a loop's body is one buffer of the enclosing block, so it is allocated once, and every iteration has its
// buffers at the same addresses.
//
//===------------------------------------------------------------------------------------------===//

#include "Bufferization/StorageLives.h"
#include "CommSched/Analysis/Remarks.h"
#include "CommSched/Analysis/Streams.h"
#include "CommSched/Conversion/Passes.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Scheduling/BufferPlan/BufferPlan.h"
#include "CommSched/Support/Format.h"
#include "CommToLLVM/FunctionLowering.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace commsched {
#define GEN_PASS_DEF_COMMPLANBUFFERS
#include "CommSched/Conversion/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

namespace {

/// An allocation in the plan: exactly one operation of its block frees it.
struct PlannedBuffer {
  memref::AllocOp alloc;
  memref::DeallocOp dealloc;
  LiveInterval life;
};

/// Indexed by function: those that it may call.
using CallEdges = llvm::DenseMap<Operation *, SmallVector<Operation *>>;

using BuffersBySpace = llvm::MapVector<Attribute, std::vector<PlannedBuffer>>;

struct CommPlanBuffersPass : public commsched::impl::CommPlanBuffersBase<CommPlanBuffersPass> {
  using CommPlanBuffersBase::CommPlanBuffersBase;

  void runOnOperation() override {
    if (alignmentBytes <= 0 || !llvm::isPowerOf2_64(alignmentBytes)) {
      emitError(getOperation()->getLoc())
          << "alignment-bytes: expected a power of two, got " << alignmentBytes.getValue().value;
      return signalPassFailure();
    }
    findRecursive();
    SmallVector<Block *> blocks;
    getOperation()->walk([&](Block *block) { // inner blocks first
      if (isa<FunctionOpInterface, scf::ForOp, scf::IfOp, scf::WhileOp>(block->getParentOp()))
        blocks.push_back(block);
    });
    for (Block *block : blocks)
      for (auto &[space, buffers] : collect(*block))
        if (failed(plan(*block, space, buffers)))
          return signalPassFailure();
  }

private:
  /// Bytes of a buffer in memory; none if the plan does not include the buffer.
  static std::optional<Bytes> bytesOf(MemRefType type) {
    Bytes element = type.getElementType().isIntOrIndexOrFloat() ? getElementBytes(type.getElementType()) : 0;
    Attribute space = type.getMemorySpace();
    std::optional<int64_t> elements = getStaticElements(type);
    if (element == 0 || !elements || !type.getLayout().isIdentity() || (space && !isa<SymmetricAttr>(space)))
      return std::nullopt;
    Bytes bytes;
    if (llvm::MulOverflow(*elements, element, bytes))
      return std::nullopt;
    return bytes;
  }

  /// The only deallocation of a buffer, if it is in the same block and the buffer is not in flight after it. The
  /// runtime keeps a buffer that is freed in flight until the collective has ended. It cannot protect a part of an
  /// arena from the next buffer in that part.
  static memref::DeallocOp findDealloc(memref::AllocOp alloc) {
    memref::DeallocOp found;
    for (Operation *user : alloc->getUsers())
      if (auto dealloc = dyn_cast<memref::DeallocOp>(user)) {
        if (found)
          return {};
        found = dealloc;
      }
    return found && findLastUse(alloc) == found ? found : memref::DeallocOp();
  }

  /// With several streams: by storage class, the position at which every stream knows that all uses of the storage have
  /// ended.
  static std::vector<int32_t> findEndsOfLives(Block &block, const StorageMap &storage) {
    BlockNodes nodes(block);
    StreamAnalysis streams(nodes, storage);
    std::vector<int32_t> ends(storage.classes().size(), 0);
    for (NodeId id = 0; id < nodes.size(); ++id) {
      int32_t known = streams.knownByAll(id);
      nodes[id]->walk([&](Operation *op) {
        for (Value operand : op->getOperands())
          for (StorageId used : storage.of(operand))
            ends[used] = std::max(ends[used], known);
      });
    }
    return ends;
  }

  static BuffersBySpace collect(Block &block) {
    llvm::DenseMap<Operation *, int32_t> positions;
    for (Operation &op : block)
      positions.try_emplace(&op, positions.size());
    BuffersBySpace result;
    std::optional<StorageMap> storage;
    std::vector<int32_t> ends;
    if (usesStreams(block))
      ends = findEndsOfLives(block, storage.emplace(block));
    for (auto alloc : block.getOps<memref::AllocOp>()) {
      std::optional<Bytes> bytes = bytesOf(alloc.getType());
      memref::DeallocOp dealloc = findDealloc(alloc);
      if (!bytes || !dealloc)
        continue;
      int32_t end = positions.lookup(dealloc);
      if (storage)
        for (StorageId id : storage->of(alloc))
          end = std::max(end, ends[id]);
      result[alloc.getType().getMemorySpace()].push_back({alloc, dealloc, {positions.lookup(alloc), end, *bytes}});
    }
    return result;
  }

  LogicalResult plan(Block &block, Attribute space, std::vector<PlannedBuffer> &buffers) {
    bool stays = canStay(block, space);
    if (buffers.size() < 2 && isa<FunctionOpInterface>(block.getParentOp()) && !stays)
      return success(); // A single buffer is its own arena.
    std::vector<LiveInterval> lives;
    for (const PlannedBuffer &buffer : buffers)
      lives.push_back(buffer.life);
    BufferPlan plan = planBuffers(lives, alignmentBytes);
    Location loc = buffers.front().alloc.getLoc();
    if (std::string mistake = verifyBufferPlan(lives, plan, alignmentBytes); !mistake.empty())
      return emitError(loc) << "the buffer plan is invalid (" << mistake << "); please report this";
    auto remark = remark::analysis(loc, remark::RemarkOpts::name("arena").category(getArgument()));
    remark << remark::metric("Buffers", static_cast<int64_t>(buffers.size())) << remark::metric("Bytes", plan.total)
           << remark::metric("LiveBytes", plan.bound);
    describeRemark(remark, "arena", kNoLimitingFactor,
                   "one arena of " + formatBytes(plan.total) + "; at most " + formatBytes(plan.bound) +
                       " are live at once");
    Value arena = stays ? makeGlobalArena(block, space, plan.total, loc) : allocateArena(block, space, plan.total, loc);
    OpBuilder builder(block.getParentOp()->getContext());
    bool hasStreams = usesStreams(block);
    for (auto [buffer, offset] : llvm::zip_equal(buffers, plan.offsets)) {
      builder.setInsertionPoint(buffer.alloc);
      Value shift = arith::ConstantIndexOp::create(builder, buffer.alloc.getLoc(), offset);
      Value view =
          memref::ViewOp::create(builder, buffer.alloc.getLoc(), buffer.alloc.getType(), arena, shift, ValueRange());
      if (hasStreams)
        view.getDefiningOp()->setAttr(kPlannedAttrName, builder.getUnitAttr());
      buffer.dealloc.erase();
      buffer.alloc.replaceAllUsesWith(view);
      buffer.alloc.erase();
    }
    return success();
  }

  /// The functions that each function may call. A call of a pointer may reach every function whose address is taken.
  static CallEdges findCalls(ModuleOp module) {
    SymbolTableCollection symbols;
    CallEdges calls;
    SmallVector<Operation *> taken;
    llvm::SetVector<Operation *> callers;
    auto lookup = [&](Operation *op, SymbolRefAttr name) -> Operation * {
      return symbols.lookupNearestSymbolFrom<FunctionOpInterface>(op, name);
    };
    module.walk([&](FunctionOpInterface function) {
      function.walk([&](Operation *op) {
        auto call = dyn_cast<CallOpInterface>(op);
        auto callee = call ? dyn_cast_if_present<SymbolRefAttr>(call.getCallableForCallee()) : SymbolRefAttr();
        if (callee && lookup(op, callee))
          calls[function].push_back(lookup(op, callee));
        else if (call)
          callers.insert(function);
        for (NamedAttribute attribute : op->getAttrs())
          attribute.getValue().walk([&](SymbolRefAttr name) {
            if (name != callee)
              if (Operation *named = lookup(op, name))
                taken.push_back(named);
          });
      });
    });
    for (Operation *caller : callers)
      llvm::append_range(calls[caller], taken);
    return calls;
  }

  /// Functions that may be called again before they return. Each such call needs memory of its own. O(functions *
  /// calls).
  void findRecursive() {
    recursive.clear();
    auto module = dyn_cast<ModuleOp>(getOperation());
    if (!module)
      return;
    const CallEdges calls = findCalls(module);
    for (const auto &entry : calls) {
      llvm::DenseSet<Operation *> reached;
      SmallVector<Operation *> worklist(entry.second);
      while (!worklist.empty()) {
        Operation *callee = worklist.pop_back_val();
        if (reached.insert(callee).second)
          llvm::append_range(worklist, calls.lookup(callee));
      }
      if (reached.contains(entry.first))
        recursive.insert(entry.first);
    }
  }

  /// Returns true if one symmetric arena serves all calls of a function, so that a library registers its memory once.
  bool canStay(Block &block, Attribute space) {
    auto function = dyn_cast<func::FuncOp>(block.getParentOp());
    return isa_and_nonnull<SymmetricAttr>(space) && isa<ModuleOp>(getOperation()) && function &&
           function->getParentOp() == getOperation() && &function.getBody().front() == &block &&
           !recursive.contains(function);
  }

  /// An arena that persists between calls: a global of the module, without initial contents.
  Value makeGlobalArena(Block &block, Attribute space, Bytes total, Location loc) {
    auto module = cast<ModuleOp>(getOperation());
    OpBuilder builder(module.getContext());
    auto type = MemRefType::get({total}, builder.getI8Type(), MemRefLayoutAttrInterface(), space);
    auto global = memref::GlobalOp::create(builder, loc, "comm_arena", builder.getStringAttr("private"), type,
                                           builder.getUnitAttr(), /*constant=*/false, /*alignment=*/IntegerAttr());
    SymbolTable(module).insert(global, module.getBody()->begin());
    builder.setInsertionPointToStart(&block);
    return memref::GetGlobalOp::create(builder, loc, type, global.getSymName());
  }

  llvm::DenseSet<Operation *> recursive;

  /// Memory for a block's buffers: around the operation of an inner block, or from the beginning to the end of the
  /// block.
  static Value allocateArena(Block &block, Attribute space, Bytes total, Location loc) {
    Operation *parent = block.getParentOp();
    bool isInner = !isa<FunctionOpInterface>(parent);
    OpBuilder builder(parent->getContext());
    if (isInner)
      builder.setInsertionPoint(parent);
    else
      builder.setInsertionPointToStart(&block);
    auto type = MemRefType::get({total}, builder.getI8Type(), MemRefLayoutAttrInterface(), space);
    auto alloc = memref::AllocOp::create(builder, loc, type);
    if (isInner)
      builder.setInsertionPointAfter(parent);
    else
      builder.setInsertionPoint(block.getTerminator());
    auto dealloc = memref::DeallocOp::create(builder, loc, alloc);
    // This pass frees the buffer, and no other pass does.
    for (Operation *op : {alloc.getOperation(), dealloc.getOperation()})
      op->setAttr(bufferization::BufferizationDialect::kManualDeallocation, builder.getUnitAttr());
    return alloc;
  }
};

} // namespace
