//===- RuntimeCalls.h - Calls of the runtime's C ABI in the LLVM dialect ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The signatures of Runtime.h for the lowering, and the constants that calls need. Each function is declared once per
// module, and each string and array is stored once.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_CONVERSION_RUNTIMECALLS_RUNTIMECALLS_H
#define COMMSCHED_LIB_CONVERSION_RUNTIMECALLS_RUNTIMECALLS_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"
#include <map>
#include <vector>

namespace commsched {

/// One function of the ABI. The letters are p (pointer), l (i64), i (i32), d (f64), and s (an i32 status; compiled code
/// returns after an error status). The result comes first.
struct RuntimeSignature {
  const char *name;
  const char *types;

  bool returnsStatus() const { return types[0] == 's'; }
};
/// All functions that lowered programs call. A test compares the table with the header.
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
  /// The data itself. Equal data is stored once. An empty array has no data.
  mlir::LLVM::GlobalOp stringGlobal(llvm::StringRef text);
  mlir::LLVM::GlobalOp integersGlobal(llvm::ArrayRef<int64_t> values);
  mlir::Value address(mlir::OpBuilder &builder, mlir::Location loc, mlir::LLVM::GlobalOp global);
  /// Stack memory for `count` elements. Call it in an entry block only.
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

#endif // COMMSCHED_LIB_CONVERSION_RUNTIMECALLS_RUNTIMECALLS_H
