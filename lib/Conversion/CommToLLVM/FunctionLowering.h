//===- FunctionLowering.h - One function's collectives as calls -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Lowers the operations of one function. RuntimeCalls has the state that is shared in a module.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_CONVERSION_COMMTOLLVM_FUNCTIONLOWERING_H
#define COMMSCHED_LIB_CONVERSION_COMMTOLLVM_FUNCTIONLOWERING_H

#include "CommSched/Dialect/Comm/CommDialect.h"
#include "RuntimeCalls/RuntimeCalls.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"

namespace commsched {

/// One start call of the program, as commrt_program_begin compares it.
struct Site {
  int64_t kind, dtype, count;
  std::string group, location;
  int64_t costNs;
};

/// What the lowering of a function has to know about its module.
struct ModuleFacts {
  bool onDevice = false; ///< whether buffers are device memory
  /// Whether the program keeps buffers in buffers. The end of a loop, a branch or a function then tells nothing about
  /// which of them are needed, and buffers without a known last use stay until the end of the program's call.
  bool storesBuffers = false;
  /// The globals that the runtime has for each rank and finds by their names. True: it is a constant, and the compiled
  /// code has a copy of its own, which the host loads.
  llvm::StringMap<bool> ofRuntime;
};

class FunctionLowering {
public:
  FunctionLowering(mlir::func::FuncOp function, RuntimeCalls &calls, llvm::SmallVectorImpl<Site> &sites,
                   const ModuleFacts &facts);

  /// Replaces every operation of the comm dialect, and allocations, by calls.
  llvm::LogicalResult run();

  /// The last wait for `start` in its block; null if the future has other uses.
  static mlir::Operation *findLastWait(mlir::Operation *start);

  /// Returns true for calls of the program's functions, which may leave buffers to their caller.
  static bool isCall(mlir::Operation *op);

private:
  // FunctionLowering.cpp
  llvm::LogicalResult lower(mlir::Operation *op);
  llvm::LogicalResult lowerWait(comm::WaitOp op);
  void lowerRank(comm::RankOp op);
  void lowerRecord(comm::RecordOp op);
  void lowerAwait(comm::AwaitEventOp op);
  void lowerAlloc(mlir::memref::AllocOp op);
  /// Returns true for an address that the runtime knows by the global's name: of an arena, of a global that may be
  /// written, and, on devices, of a constant that not only the host loads.
  bool isOfRuntime(mlir::Operation *op) const;
  void lowerGlobal(mlir::memref::GetGlobalOp op);
  void lowerDealloc(mlir::memref::DeallocOp op);
  /// The point after the last wait, if all uses are waits that this block reaches.
  void releaseToken(mlir::Operation *start, mlir::Value token);

  // ScopeLowering.cpp
  /// A loop or a branch, or the whole function if `op` is null, with the operations that end an iteration, a branch or
  /// the function.
  struct Scope {
    mlir::Operation *op;
    llvm::SmallVector<mlir::Operation *> ends;
  };
  void findScopes();
  void emitScopes();
  mlir::Value keptAddress(mlir::Location loc, mlir::Value value);

  // StreamLowering.cpp
  void lowerSwitch(comm::SwitchStreamOp op);
  mlir::Value stream(mlir::Location loc, int64_t number);

  // StartLowering.cpp
  llvm::LogicalResult lowerStart(comm::CollectiveOpInterface start);
  llvm::LogicalResult emitStart(comm::CollectiveOpInterface start, mlir::Value in, mlir::Value out, mlir::Value token);
  llvm::LogicalResult emitUneven(comm::AllToAllOp op, mlir::Value in, mlir::Value out, mlir::Value token);
  mlir::Value splitArray(mlir::Location loc, llvm::ArrayRef<mlir::OpFoldResult> splits, int64_t firstSlot);
  mlir::Value concatRows(mlir::Location loc, comm::AllToAllOp op, mlir::Value in, int64_t groupSize);
  int64_t addSite(comm::CollectiveOpInterface start, mlir::Value in, mlir::Value out);

  // ComputeLowering.cpp
  llvm::LogicalResult lowerCompute(comm::ComputeOp op);
  llvm::LogicalResult lowerCopyIn(comm::FsdpAllGatherCopyInOp op);
  llvm::LogicalResult lowerSplitCopy(comm::FsdpSplitWithSizesCopyOp op);
  mlir::LogicalResult lowerSplit(comm::FsdpSplitWithSizesOp op);
  llvm::LogicalResult lowerChunkCat(comm::FsdpChunkCatOp op);
  llvm::LogicalResult emitCompute(mlir::Operation *op, llvm::StringRef name, mlir::ValueRange operands,
                                  llvm::ArrayRef<int64_t> flags, llvm::ArrayRef<int64_t> extra, int64_t costNs);
  mlir::Value metaData(mlir::Location loc, llvm::ArrayRef<int64_t> meta,
                       llvm::ArrayRef<std::pair<int64_t, mlir::Value>> dynamic);
  /// A view of `elements` elements of a contiguous buffer from `offset` on, of memref type `type`.
  mlir::Value viewAs(mlir::Location loc, mlir::Value source, mlir::Value offset, mlir::MemRefType type);

  // ContractionLowering.cpp
  /// Replaces a matrix product by a call if the runtime's kernel computes it. Returns false and changes nothing
  /// otherwise.
  bool lowerContraction(mlir::Operation *op);
  /// The size and the stride, in elements, of a dimension: a constant or a value (i64).
  mlir::OpFoldResult sizeOf(mlir::Location loc, mlir::Value memref, int64_t dim);
  mlir::OpFoldResult strideOf(mlir::Location loc, mlir::Value memref, int64_t dim);

  // Helpers
  /// Returns true if the elements are in row-major order without gaps.
  static bool isDense(mlir::Value memref);
  /// The operand, or a dense copy of it that is released after the current operation.
  mlir::Value dense(mlir::Location loc, mlir::Value memref);
  /// A dense copy and its address; the caller releases it.
  std::pair<mlir::Value, mlir::Value> denseCopy(mlir::Location loc, mlir::Value memref);
  /// The bytes of a buffer with these sizes (i64), whose static sizes are already checked; negative if they exceed 64
  /// bits.
  mlir::Value checkedBytes(mlir::Location loc, mlir::MemRefType type, mlir::ValueRange sizes);
  /// Address of the first element.
  mlir::Value pointer(mlir::Location loc, mlir::Value memref);
  /// Product of the sizes [begin, end), as i64.
  mlir::Value product(mlir::Location loc, mlir::Value memref, int64_t begin, int64_t end);
  /// The memory at `data` as a dense buffer with these sizes (i64).
  mlir::Value bufferAt(mlir::Location loc, mlir::Value data, mlir::MemRefType type, mlir::ValueRange sizes);
  mlir::Value group(mlir::Location loc, mlir::FlatSymbolRefAttr name);
  /// Constants; each is created once, in the entry block.
  mlir::Value integer(mlir::Location loc, int64_t value, unsigned width = 64);
  mlir::Value string(mlir::Location loc, llvm::StringRef text);
  mlir::Value integers(mlir::Location loc, llvm::ArrayRef<int64_t> values);
  mlir::Value null(mlir::Location loc);
  mlir::Value addressOf(mlir::Location loc, mlir::LLVM::GlobalOp global);
  /// Creates descriptors for those buffers of bufferAt that have users other than calls.
  void finishBuffers();
  void call(mlir::Location loc, llvm::StringRef name, mlir::ValueRange arguments) {
    calls.call(builder, loc, name, arguments);
  }

  mlir::func::FuncOp function;
  RuntimeCalls &calls;
  llvm::SmallVectorImpl<Site> &sites;
  const ModuleFacts &facts;
  mlir::OpBuilder builder;      ///< before the current operation
  mlir::OpBuilder entryBuilder; ///< after the fetches in the entry block
  mlir::Value context, handleSlot, operandSlots, scalarSlots;
  llvm::DenseMap<mlir::Attribute, mlir::Value> groups;
  llvm::DenseMap<int64_t, mlir::Value> streams;
  llvm::DenseMap<mlir::Attribute, mlir::Value> globals; ///< indexed by symbol: the address
  llvm::SmallVector<mlir::Value> temporaries;
  llvm::SmallVector<Scope> scopes;

  /// A buffer from the runtime. Its value is a cast of its address. Most buffers are only operands of calls and never
  /// need the descriptor that upstream's lowerings use.
  struct Buffer {
    mlir::UnrealizedConversionCastOp placeholder;
    mlir::MemRefType type;
    llvm::SmallVector<mlir::Value> sizes;
  };
  llvm::SmallVector<Buffer> buffers;
  llvm::DenseMap<mlir::Value, mlir::Value> addresses; ///< addresses of buffers and of the function's arguments
  llvm::DenseMap<std::pair<int64_t, unsigned>, mlir::Value> integerConstants;
  llvm::DenseMap<mlir::Operation *, mlir::Value> globalAddresses;
  mlir::Value nullPointer;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<mlir::Value>> tokenDests; ///< destinations of starts in this function

  /// The dense stand-in that a collective writes for a destination that is not dense; the wait copies it to the
  /// destination.
  struct CopyBack {
    mlir::Value copy, dest, address;
  };
  llvm::DenseMap<mlir::Value, llvm::SmallVector<CopyBack, 1>> copyBacks; ///< indexed by token
};

/// Inserts a switch before each operation of another stream than the one before it. Blocks that have switches are
/// checked instead: an error is emitted for an operation of the comm dialect that is on another stream than its own.
llvm::LogicalResult switchStreams(mlir::Operation *root);
/// The runtime's code of an element type for moving data; -1 if there is none.
int64_t getRuntimeDtype(mlir::Type type);
/// Bytes of an element in memory.
int64_t getElementBytes(mlir::Type type);
/// Returns true if kernels of a device carry out an operation, because it is part of a computation that becomes one.
/// O(depth).
bool isInKernel(mlir::Operation *op);
/// Returns true if the host loads elements from a global, and nothing else uses this address of it.
bool isOnlyLoaded(mlir::memref::GetGlobalOp op);
/// Returns true if a copy moves consecutive bytes.
bool isWholeCopy(mlir::memref::CopyOp copy);
/// A function with this attribute accesses memory of the host only, in programs for devices; a buffer on the stack with
/// it is the host's.
constexpr llvm::StringLiteral kHostMemoryAttrName = "host_memory";
/// The time in comm.cost, ns; 0 if there is none.
int64_t getCostNs(mlir::Operation *op);

} // namespace commsched

#endif // COMMSCHED_LIB_CONVERSION_COMMTOLLVM_FUNCTIONLOWERING_H
