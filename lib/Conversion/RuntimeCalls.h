//===- RuntimeCalls.h - Calls of the runtime's C ABI in the LLVM dialect -------------------------===//
//
// Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
//
// The signatures of Runtime.h as the lowering sees them, and the constants that calls need. Each function is declared,
// each string and array stored, once per module.
//
//===--------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_CONVERSION_RUNTIMECALLS_H
#define COMMSCHED_LIB_CONVERSION_RUNTIMECALLS_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"
#include <map>
#include <vector>

namespace commsched {

/// One function of the ABI: the letters are p (pointer), l (i64), i (i32), d (f64); the result comes first, v is none.
struct RuntimeSignature {
  const char *name;
  const char *types;
};
/// Everything that lowered programs call. A test compares it with the header.
llvm::ArrayRef<RuntimeSignature> getRuntimeSignatures();

class RuntimeCalls {
public:
  explicit RuntimeCalls(mlir::ModuleOp module) : module(module) {}

  mlir::Type pointerType() { return mlir::LLVM::LLVMPointerType::get(module.getContext()); }
  mlir::Value call(mlir::OpBuilder &builder, mlir::Location loc, llvm::StringRef name, mlir::ValueRange arguments);
  mlir::Value integer(mlir::OpBuilder &builder, mlir::Location loc, int64_t value, unsigned width = 64);
  mlir::Value real(mlir::OpBuilder &builder, mlir::Location loc, double value);
  mlir::Value null(mlir::OpBuilder &builder, mlir::Location loc);
  /// Pointers to constant data.
  mlir::Value string(mlir::OpBuilder &builder, mlir::Location loc, llvm::StringRef text);
  mlir::Value integers(mlir::OpBuilder &builder, mlir::Location loc, llvm::ArrayRef<int64_t> values);
  /// Room on the stack for `count` elements; to be asked for in an entry block.
  mlir::Value stackSlot(mlir::OpBuilder &builder, mlir::Location loc, mlir::Type type, int64_t count);

private:
  mlir::LLVM::LLVMFuncOp declare(llvm::StringRef name);
  mlir::Value address(mlir::OpBuilder &builder, mlir::Location loc, mlir::LLVM::GlobalOp global);

  mlir::ModuleOp module;
  llvm::StringMap<mlir::LLVM::LLVMFuncOp> functions;
  llvm::StringMap<mlir::LLVM::GlobalOp> strings;
  std::map<std::vector<int64_t>, mlir::LLVM::GlobalOp> arrays;
};

} // namespace commsched

#endif // COMMSCHED_LIB_CONVERSION_RUNTIMECALLS_H
