//===- OperationKernel.cpp - One operation as a program of its own ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Arguments hold small values of no meaning. So an operation is refused if they could lead it out of a buffer, make it
// run for ever or divide by zero.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Execution/OperationKernel.h"
#include "CommSched/Analysis/Costs/OperationForm.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "ProgramCall.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "llvm/ADT/DenseSet.h"

using namespace llvm;
using namespace commsched;

//===----------------------------------------------------------------------===//
// What may run by itself
//===----------------------------------------------------------------------===//

static bool isTensorOrBuffer(mlir::Type type) { return isa<mlir::TensorType, mlir::BaseMemRefType>(type); }

/// Finds a reason in one operation why the values of tensors must not be made up; empty if there is none. `isData` has
/// the values that depend on elements of tensors.
static StringRef findDanger(mlir::Operation *op, const DenseSet<mlir::Value> &isData) {
  auto dependsOnData = [&](mlir::ValueRange values) {
    return any_of(values, [&](mlir::Value value) { return isData.contains(value); });
  };
  if (isa<mlir::CallOpInterface, comm::CollectiveOpInterface, comm::WaitOp>(op))
    return "it contains a call or a collective";
  if (isa<mlir::scf::WhileOp>(op))
    return "its operands decide how long it takes";
  if (auto loop = dyn_cast<mlir::scf::ForOp>(op);
      loop && dependsOnData({loop.getLowerBound(), loop.getUpperBound(), loop.getStep()}))
    return "its operands decide how long it takes";
  if (isa<mlir::arith::DivSIOp, mlir::arith::DivUIOp, mlir::arith::RemSIOp, mlir::arith::RemUIOp,
          mlir::arith::CeilDivSIOp, mlir::arith::CeilDivUIOp, mlir::arith::FloorDivSIOp>(op) &&
      dependsOnData(op->getOperands().drop_front()))
    return "it divides by an integer of its operands";
  // Whatever has an index that depends on an element accesses something there.
  for (mlir::Value operand : op->getOperands())
    if (isData.contains(operand) && operand.getType().isIndex() && any_of(op->getOperandTypes(), isTensorOrBuffer))
      return "its operands decide where it reads";
  return "";
}

/// Adds the values that `op` makes of elements of tensors.
static void addData(mlir::Operation *op, DenseSet<mlir::Value> &isData) {
  bool reads = any_of(op->getOperandTypes(), isTensorOrBuffer) && op->getNumRegions() == 0 &&
               !isa<mlir::tensor::DimOp, mlir::memref::DimOp>(op);
  bool depends = any_of(op->getOperands(), [&](mlir::Value value) { return isData.contains(value); });
  for (mlir::Value result : op->getResults())
    if (!isTensorOrBuffer(result.getType()) && (reads || depends || op->getNumRegions() > 0))
      isData.insert(result);
  bool isLoop = isa<mlir::scf::ForOp, mlir::scf::ForallOp, mlir::scf::ParallelOp>(op);
  for (mlir::Region &region : op->getRegions())
    for (mlir::Block &block : region)
      for (mlir::BlockArgument argument : block.getArguments()) {
        // Indices of loops are no data; what a loop carries may be, and what linalg passes to a body is.
        bool isInduction =
            isLoop && argument.getType().isIndex() && (!isa<mlir::scf::ForOp>(op) || argument.getArgNumber() == 0);
        if (!isTensorOrBuffer(argument.getType()) && !isInduction && !isa<mlir::tensor::PadOp>(op))
          isData.insert(argument);
      }
}

static std::string findObstacle(mlir::Operation *op) {
  for (mlir::Type type : op->getOperandTypes())
    if (auto shaped = dyn_cast<mlir::ShapedType>(type); shaped && (!shaped.hasRank() || !shaped.hasStaticShape()))
      return "only the run time knows a size";
  DenseSet<mlir::Value> isData;
  std::string reason;
  op->walk<mlir::WalkOrder::PreOrder>([&](mlir::Operation *inner) {
    reason = findDanger(inner, isData).str();
    addData(inner, isData);
    return reason.empty() ? mlir::WalkResult::advance() : mlir::WalkResult::interrupt();
  });
  return reason;
}

Expected<std::string> commsched::isolateOperation(mlir::Operation *op) {
  if (std::string obstacle = findObstacle(op); !obstacle.empty())
    return createStringError(obstacle);
  mlir::Location loc = mlir::UnknownLoc::get(op->getContext());
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(loc);
  mlir::OpBuilder builder = mlir::OpBuilder::atBlockBegin(module->getBody());
  auto function = mlir::func::FuncOp::create(builder, loc, "main", builder.getFunctionType({}, op->getResultTypes()));
  mlir::Block *body = function.addEntryBlock();
  builder.setInsertionPointToStart(body);
  std::string obstacle;
  mlir::Operation *copy = cloneAlone(op, builder, [&](mlir::Value value) -> mlir::Value {
    if (value.getType().isIndex() || value.getType().isInteger())
      obstacle = "only the run time knows a number";
    return body->addArgument(value.getType(), loc);
  });
  if (!obstacle.empty())
    return createStringError(obstacle);
  mlir::func::ReturnOp::create(builder, loc, copy->getResults());
  function.setFunctionType(builder.getFunctionType(body->getArgumentTypes(), op->getResultTypes()));
  std::string text;
  raw_string_ostream os(text);
  module->print(os, mlir::OpPrintingFlags().useLocalScope().assumeVerified());
  return text;
}

//===----------------------------------------------------------------------===//
// Compiling and running
//===----------------------------------------------------------------------===//

namespace {
/// A program and what it is called with on one rank.
class OperationKernel : public CompiledKernel {
public:
  OperationKernel(std::shared_ptr<const Program> program, commrt_context *context)
      : program(std::move(program)), context(context) {}
  ~OperationKernel() override {
    call.reset();
    commrt_make_current(previous);
  }

  Error create() {
    for (auto [index, argument] : enumerate(program->arguments())) {
      arguments.push_back(argument.like());
      if (Error error = arguments.back().allocate())
        return error;
      arguments.back().fill(/*seed=*/1, commrt_rank(context), static_cast<int64_t>(index));
    }
    commrt_make_current(context);
    call.emplace(*program, context, arguments);
    // There are no groups and no collectives to present to other ranks, so the program is not begun.
    return call->create() == COMMRT_OK ? Error::success() : createStringError("there is no memory for its operands");
  }

  int32_t run() override {
    int64_t mark = commrt_mark(context);
    call->invoke();
    if (int32_t status = commrt_last_error(context, nullptr, 0))
      return status;
    return commrt_release_since(context, mark, nullptr, 0);
  }

private:
  std::shared_ptr<const Program> program;
  commrt_context *context, *previous = commrt_current();
  std::vector<HostValue> arguments;
  std::optional<ProgramCall> call;
};
} // namespace

OperationCompiler::OperationCompiler(const mlir::DialectRegistry &registry)
    : context(std::make_unique<mlir::MLIRContext>(registry, mlir::MLIRContext::Threading::DISABLED)) {}

OperationCompiler::~OperationCompiler() = default;

Expected<std::shared_ptr<const Program>> OperationCompiler::compile(const std::string &text, bool optimize) {
  std::lock_guard<std::mutex> guard(mutex);
  std::string key = (optimize ? "-O2\n" : "-O0\n") + text;
  if (key == lastText) {
    if (!lastError.empty())
      return createStringError(lastError);
    if (std::shared_ptr<const Program> known = last.lock())
      return known;
  }
  lastText = std::move(key);
  lastError.clear();
  std::string diagnostics;
  raw_string_ostream os(diagnostics);
  ProgramOptions options;
  options.optimize = optimize;
  options.diagnostics = &os;
  Expected<std::unique_ptr<Program>> program = Program::load(*context, {"operation", text}, options);
  if (!program) {
    lastError = toString(program.takeError());
    // The first error says the most: "operation:2:8: error: cannot be bufferized".
    StringRef first = StringRef(diagnostics).split('\n').first;
    if (size_t at = first.find("error: "); at != StringRef::npos)
      lastError = "it cannot be compiled by itself: " + first.drop_front(at + StringRef("error: ").size()).str();
    return createStringError(lastError);
  }
  std::shared_ptr<const Program> shared = std::move(*program);
  last = shared;
  return shared;
}

Expected<std::unique_ptr<CompiledKernel>> OperationCompiler::make(commrt_context *rank, const std::string &text,
                                                                  bool optimize) {
  if (commrt_context_is_device(rank))
    return createStringError("it is compiled into the program, which is measured on CPU backends only");
  Expected<std::shared_ptr<const Program>> program = compile(text, optimize);
  if (!program)
    return program.takeError();
  auto kernel = std::make_unique<OperationKernel>(std::move(*program), rank);
  if (Error error = kernel->create())
    return std::move(error);
  return kernel;
}
