//===- RuntimeCalls.h - Calls of the runtime's C ABI in the LLVM dialect ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The signatures of Runtime.h as the lowering sees them, and the constants that calls need. Each function is declared,
// each string and array stored, once per module.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_CONVERSION_RUNTIMECALLS_H
#define COMMSCHED_LIB_CONVERSION_RUNTIMECALLS_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"
#include <map>
#include <vector>

namespace commsched {

/// One function of the ABI: the letters are p (pointer), l (i64), i (i32), d (f64); the result comes first. s is an i32
/// that is a status, after which compiled code is left if it is an error.
struct RuntimeSignature {
  const char *name;
  const char *types;

  bool returnsStatus() const { return types[0] == 's'; }
};
/// Everything that lowered programs call. A test compares it with the header.
llvm::ArrayRef<RuntimeSignature> getRuntimeSignatures();

class RuntimeCalls {
public:
  /// Constants are called PREFIX_string_N and PREFIX_integers_N.
  explicit RuntimeCalls(mlir::ModuleOp module, llvm::StringRef prefix = "commrt") : module(module), prefix(prefix) {}

  mlir::Type pointerType() { return mlir::LLVM::LLVMPointerType::get(module.getContext()); }
  mlir::Value call(mlir::OpBuilder &builder, mlir::Location loc, llvm::StringRef name, mlir::ValueRange arguments);
  mlir::Value integer(mlir::OpBuilder &builder, mlir::Location loc, int64_t value, unsigned width = 64);
  mlir::Value real(mlir::OpBuilder &builder, mlir::Location loc, double value);
  mlir::Value null(mlir::OpBuilder &builder, mlir::Location loc);
  /// Pointers to constant data.
  mlir::Value string(mlir::OpBuilder &builder, mlir::Location loc, llvm::StringRef text);
  mlir::Value integers(mlir::OpBuilder &builder, mlir::Location loc, llvm::ArrayRef<int64_t> values);
  /// The data itself. Equal data is stored once; of no integers there is none.
  mlir::LLVM::GlobalOp stringGlobal(llvm::StringRef text);
  mlir::LLVM::GlobalOp integersGlobal(llvm::ArrayRef<int64_t> values);
  mlir::Value address(mlir::OpBuilder &builder, mlir::Location loc, mlir::LLVM::GlobalOp global);
  /// Room on the stack for `count` elements; to be asked for in an entry block.
  mlir::Value stackSlot(mlir::OpBuilder &builder, mlir::Location loc, mlir::Type type, int64_t count);

private:
  mlir::LLVM::LLVMFuncOp declare(llvm::StringRef name);

  mlir::ModuleOp module;
  std::string prefix;
  llvm::StringMap<mlir::LLVM::LLVMFuncOp> functions;
  llvm::StringMap<mlir::LLVM::GlobalOp> strings;
  std::map<std::vector<int64_t>, mlir::LLVM::GlobalOp> arrays;
};

} // namespace commsched

#endif // COMMSCHED_LIB_CONVERSION_RUNTIMECALLS_H
