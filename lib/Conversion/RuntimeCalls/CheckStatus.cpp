//===- CheckStatus.cpp - Return from compiled code at the first error -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The runtime latches the first error, and every later call returns it at once. So code that continues is safe, but it
// computes and loops in vain. This pass runs on the LLVM dialect, where any block can return from the function.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Conversion/Passes.h"
#include "RuntimeCalls.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "llvm/ADT/StringSet.h"

namespace commsched {
#define GEN_PASS_DEF_COMMCHECKSTATUS
#include "CommSched/Conversion/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;

namespace {
class StatusChecks {
public:
  explicit StatusChecks(ModuleOp module) : calls(module, "commrt_check") {
    for (const RuntimeSignature &signature : getRuntimeSignatures())
      if (signature.returnsStatus())
        fallible.insert(signature.name);
  }

  /// A function that calls a fallible function can fail, too. Linear in the calls.
  void findFallible(ModuleOp module);
  void addTo(LLVM::LLVMFuncOp function);

private:
  Block *makeExit(LLVM::LLVMFuncOp function, OpBuilder &builder);
  Value statusOf(LLVM::CallOp call, OpBuilder &builder);

  RuntimeCalls calls;
  llvm::StringSet<> fallible;
};
} // namespace

void StatusChecks::findFallible(ModuleOp module) {
  llvm::StringMap<SmallVector<StringRef>> callers;
  SmallVector<StringRef> found;
  for (auto function : module.getOps<LLVM::LLVMFuncOp>())
    function.walk([&](LLVM::CallOp call) {
      if (std::optional<StringRef> callee = call.getCallee()) {
        callers[*callee].push_back(function.getName());
        if (fallible.contains(*callee) && fallible.insert(function.getName()).second)
          found.push_back(function.getName());
      }
    });
  while (!found.empty())
    for (StringRef caller : callers.lookup(found.pop_back_val()))
      if (fallible.insert(caller).second)
        found.push_back(caller);
}

/// The status of a call: its result, or the latched status after a call of a function of the program.
Value StatusChecks::statusOf(LLVM::CallOp call, OpBuilder &builder) {
  if (call.getCallee()->starts_with("commrt_"))
    return call.getResult();
  Location loc = call.getLoc();
  Value context = calls.call(builder, loc, "commrt_current", {});
  return calls.call(builder, loc, "commrt_last_error",
                    {context, calls.null(builder, loc), calls.integer(builder, loc, 0)});
}

/// The block that returns from the function; its argument is the status. The returned values are zero and are never
/// read.
Block *StatusChecks::makeExit(LLVM::LLVMFuncOp function, OpBuilder &builder) {
  Location loc = function.getLoc();
  Block *exit = builder.createBlock(&function.getBody(), function.getBody().end(), {builder.getI32Type()}, {loc});
  Value status = exit->getArgument(0), context = calls.call(builder, loc, "commrt_current", {});
  // An error that no context has latched (a null handle, for example) becomes an error of the job.
  std::string text = "a call of the runtime failed in @" + function.getName().str();
  calls.call(builder, loc, "commrt_abort", {context, status, calls.string(builder, loc, text)});
  Type result = function.getFunctionType().getReturnType();
  if (isa<LLVM::LLVMVoidType>(result))
    LLVM::ReturnOp::create(builder, loc, ValueRange());
  else if (function.getName() == "commrt_module_begin")
    LLVM::ReturnOp::create(builder, loc, status);
  else
    LLVM::ReturnOp::create(builder, loc, LLVM::ZeroOp::create(builder, loc, result).getResult());
  return exit;
}

void StatusChecks::addTo(LLVM::LLVMFuncOp function) {
  SmallVector<LLVM::CallOp> checked;
  function.walk([&](LLVM::CallOp call) {
    if (std::optional<StringRef> callee = call.getCallee(); callee && fallible.contains(*callee))
      checked.push_back(call);
  });
  if (checked.empty())
    return;
  OpBuilder builder(function.getContext());
  Block *exit = makeExit(function, builder);
  // Visits the calls back to front, so that each split moves only the operations between two calls.
  for (LLVM::CallOp call : llvm::reverse(checked)) {
    Location loc = call.getLoc();
    builder.setInsertionPointAfter(call);
    Value status = statusOf(call, builder);
    Value good =
        LLVM::ICmpOp::create(builder, loc, LLVM::ICmpPredicate::eq, status, calls.integer(builder, loc, 0, 32));
    Block *rest = call->getBlock()->splitBlock(builder.getInsertionPoint());
    builder.setInsertionPointToEnd(call->getBlock());
    LLVM::CondBrOp::create(builder, loc, good, rest, ValueRange(), exit, status);
  }
}

namespace {
struct CommCheckStatusPass : public commsched::impl::CommCheckStatusBase<CommCheckStatusPass> {
  void runOnOperation() override {
    StatusChecks checks(getOperation());
    checks.findFallible(getOperation());
    for (auto function : llvm::make_early_inc_range(getOperation().getOps<LLVM::LLVMFuncOp>()))
      if (!function.isExternal())
        checks.addTo(function);
  }
};
} // namespace
