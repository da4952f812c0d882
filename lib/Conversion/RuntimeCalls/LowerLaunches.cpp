//===- LowerLaunches.cpp - Launches of kernels as calls of the runtime ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Each kernel has two forms of one body: code for the device, and a host build that carries out the whole grid, with
// loops over blocks and threads. Both take their arguments in LLVM's convention for memrefs: two addresses, the offset,
// the sizes and the strides.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Conversion/Passes.h"
#include "CommSched/Runtime/Runtime.h"
#include "KernelCode.h"
#include "RuntimeCalls.h"
#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/StringMap.h"

namespace commsched {
#define GEN_PASS_DEF_COMMLOWERLAUNCHES
#include "CommSched/Conversion/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;

/// Bytes of the largest argument that is not a buffer.
static constexpr int64_t kArgumentBytes = 8;
/// The name of the module with the program's kernels.
static constexpr StringLiteral kKernelsName = "comm_kernels";

namespace {
/// One kernel of the program.
struct Kernel {
  gpu::GPUFuncOp function; ///< until the code is made
  std::string name;
  SmallVector<Type> arguments; ///< of the flat argument list
  LLVM::LLVMFuncOp host;
};

class LaunchLowering {
public:
  LaunchLowering(ModuleOp module, StringRef imageName)
      : module(module), calls(module, "commrt_launch"), imageName(imageName) {}
  /// Without `makeCode`, the image has no code for a device.
  LogicalResult run(llvm::function_ref<LogicalResult(ModuleOp)> makeCode);

private:
  LogicalResult collect();
  LogicalResult addKernel(gpu::GPUModuleOp container, gpu::GPUFuncOp function);
  LogicalResult makeHostBuild(Kernel &kernel);
  LogicalResult lowerLaunches(func::FuncOp function);
  void emitArguments(OpBuilder &builder, Location loc, ValueRange operands, SmallVectorImpl<Value> &flat);
  void emitLoad(StringRef code);
  Value member(OpBuilder &builder, Location loc, Type type, Value base, ArrayRef<LLVM::GEPArg> indices) {
    return LLVM::GEPOp::create(builder, loc, calls.pointerType(), type, base, indices);
  }

  ModuleOp module;
  RuntimeCalls calls;
  std::string imageName;
  gpu::GPUModuleOp kernelModule;
  std::vector<Kernel> kernels;
  llvm::StringMap<size_t> byText;             ///< the index of a kernel by its text without its name
  llvm::DenseMap<Attribute, size_t> bySymbol; ///< the index of a kernel by its symbol in the program
};
} // namespace

/// The types of a flat argument list; false if a type cannot be an argument.
static bool appendFlat(Type type, SmallVectorImpl<Type> &flat) {
  MLIRContext *context = type.getContext();
  Type pointer = LLVM::LLVMPointerType::get(context), word = IntegerType::get(context, 64);
  if (auto memref = dyn_cast<MemRefType>(type)) {
    llvm::append_values(flat, pointer, pointer);
    flat.append(1 + 2 * memref.getRank(), word);
    return true;
  }
  if (!type.isIntOrIndexOrFloat() || (!type.isIndex() && type.getIntOrFloatBitWidth() > 8 * kArgumentBytes))
    return false;
  flat.push_back(type.isIndex() ? word : type);
  return true;
}

//===- Kernels ----------------------------------------------------------------------------------===//

LogicalResult LaunchLowering::addKernel(gpu::GPUModuleOp container, gpu::GPUFuncOp function) {
  Attribute symbol = SymbolRefAttr::get(container.getNameAttr(), FlatSymbolRefAttr::get(function.getNameAttr()));
  std::string name = container.getName().str(), text;
  function.setName("kernel");
  llvm::raw_string_ostream stream(text);
  function->print(stream, OpPrintingFlags().useLocalScope());
  auto [known, isNew] = byText.try_emplace(text, kernels.size());
  bySymbol[symbol] = known->second;
  if (!isNew)
    return success();
  function.setName(name);
  if (!kernelModule) {
    OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
    kernelModule = gpu::GPUModuleOp::create(builder, module.getLoc(), kKernelsName);
  }
  function->moveBefore(kernelModule.getBody(), kernelModule.getBody()->end());
  Kernel kernel = {function, name, {}, {}};
  for (BlockArgument argument : function.getArguments())
    if (!appendFlat(argument.getType(), kernel.arguments))
      return emitError(function.getLoc()) << "expected numbers of at most " << 8 * kArgumentBytes
                                          << " bits from outside of a kernel, got " << argument.getType();
  kernels.push_back(std::move(kernel));
  return success();
}

LogicalResult LaunchLowering::collect() {
  for (auto container : llvm::to_vector(module.getOps<gpu::GPUModuleOp>())) {
    for (auto function : llvm::make_early_inc_range(container.getOps<gpu::GPUFuncOp>()))
      if (failed(addKernel(container, function)))
        return failure();
    container.erase();
  }
  return success();
}

/// `void name(void *const *arguments, const uint32_t *grid, const uint32_t *block)`: the body for each thread of each
/// block. Kernels of this project use the first dimension only, and their threads are independent of each other.
LogicalResult LaunchLowering::makeHostBuild(Kernel &kernel) {
  Location loc = kernel.function.getLoc();
  if (!llvm::hasSingleElement(kernel.function.getBody()))
    return emitError(loc) << "expected a kernel of one block, got several";
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  Type pointer = calls.pointerType(), word = builder.getI64Type();
  kernel.host = LLVM::LLVMFuncOp::create(
      builder, loc, kernel.name + "_host",
      LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(builder.getContext()), {pointer, pointer, pointer}),
      LLVM::Linkage::Internal);
  Block *entry = kernel.host.addEntryBlock(builder);
  builder.setInsertionPointToStart(entry);
  SmallVector<Value> flat;
  for (auto [index, type] : llvm::enumerate(kernel.arguments)) {
    Value slot = member(builder, loc, pointer, entry->getArgument(0), {static_cast<int32_t>(index)});
    flat.push_back(LLVM::LoadOp::create(builder, loc, type, LLVM::LoadOp::create(builder, loc, pointer, slot)));
  }
  LLVMTypeConverter converter(builder.getContext());
  IRMapping mapping;
  ValueRange rest = flat;
  for (BlockArgument argument : kernel.function.getArguments()) {
    Type type = argument.getType();
    auto memref = dyn_cast<MemRefType>(type);
    size_t count = memref ? 3 + 2 * memref.getRank() : 1;
    Value value = rest.front();
    if (memref)
      value = MemRefDescriptor::pack(builder, loc, converter, memref, rest.take_front(count));
    if (memref || type.isIndex())
      value = UnrealizedConversionCastOp::create(builder, loc, TypeRange{type}, value).getResult(0);
    mapping.map(argument, value);
    rest = rest.drop_front(count);
  }
  auto sizeOf = [&](unsigned argument) {
    Value size = LLVM::LoadOp::create(builder, loc, builder.getI32Type(), entry->getArgument(argument));
    size = LLVM::ZExtOp::create(builder, loc, word, size);
    return arith::IndexCastOp::create(builder, loc, builder.getIndexType(), size).getResult();
  };
  Value blocks = sizeOf(1), threads = sizeOf(2);
  Value zero = arith::ConstantIndexOp::create(builder, loc, 0), one = arith::ConstantIndexOp::create(builder, loc, 1);
  auto overBlocks = scf::ForOp::create(builder, loc, zero, blocks, one);
  LLVM::ReturnOp::create(builder, loc, ValueRange());
  builder.setInsertionPointToStart(overBlocks.getBody());
  auto overThreads = scf::ForOp::create(builder, loc, zero, threads, one);
  builder.setInsertionPointToStart(overThreads.getBody());
  auto first = [](gpu::Dimension dimension, Value inFirst, Value inOthers) {
    return dimension == gpu::Dimension::x ? inFirst : inOthers;
  };
  for (Operation &op : kernel.function.getBody().front().without_terminator()) {
    if (auto id = dyn_cast<gpu::BlockIdOp>(op))
      mapping.map(op.getResult(0), first(id.getDimension(), overBlocks.getInductionVar(), zero));
    else if (auto id = dyn_cast<gpu::ThreadIdOp>(op))
      mapping.map(op.getResult(0), first(id.getDimension(), overThreads.getInductionVar(), zero));
    else if (auto dim = dyn_cast<gpu::GridDimOp>(op))
      mapping.map(op.getResult(0), first(dim.getDimension(), blocks, one));
    else if (auto dim = dyn_cast<gpu::BlockDimOp>(op))
      mapping.map(op.getResult(0), first(dim.getDimension(), threads, one));
    else
      builder.clone(op, mapping);
  }
  return success();
}

/// Loads the image when the program begins. What the runtime is told lies on the stack, since it copies it.
void LaunchLowering::emitLoad(StringRef code) {
  auto begin = module.lookupSymbol<LLVM::LLVMFuncOp>("commrt_module_begin");
  Operation *end = begin.getBody().back().getTerminator();
  OpBuilder atEntry = OpBuilder::atBlockBegin(&begin.getBody().front());
  OpBuilder builder(end);
  Location loc = module.getLoc();
  Type pointer = calls.pointerType(), word = builder.getI64Type();
  auto count = static_cast<int64_t>(kernels.size());
  // commrt_image_kernel and commrt_image_info.
  auto kernelType = LLVM::LLVMStructType::getLiteral(builder.getContext(), {pointer, pointer, word, pointer});
  auto infoType = LLVM::LLVMStructType::getLiteral(builder.getContext(),
                                                   {builder.getI32Type(), pointer, pointer, word, pointer, word});
  static_assert(sizeof(commrt_image_kernel) == 32 && sizeof(commrt_image_info) == 48,
                "expected the runtime's structures");
  Value list = calls.stackSlot(atEntry, loc, kernelType, count);
  Value info = calls.stackSlot(atEntry, loc, infoType, 1), slot = calls.stackSlot(atEntry, loc, pointer, 1);
  auto store = [&](Type type, Value base, int32_t element, int32_t field, Value value) {
    LLVM::StoreOp::create(builder, loc, value, member(builder, loc, type, base, {element, field}));
  };
  for (auto [index, kernel] : llvm::enumerate(kernels)) {
    SmallVector<int64_t> sizes;
    for (Type type : kernel.arguments)
      sizes.push_back(isa<LLVM::LLVMPointerType>(type) ? 8 : llvm::divideCeil(type.getIntOrFloatBitWidth(), 8));
    auto at = static_cast<int32_t>(index);
    store(kernelType, list, at, 0, calls.string(builder, loc, kernel.name));
    store(kernelType, list, at, 1, calls.integers(builder, loc, sizes));
    store(kernelType, list, at, 2, calls.integer(builder, loc, static_cast<int64_t>(sizes.size())));
    store(kernelType, list, at, 3, LLVM::AddressOfOp::create(builder, loc, kernel.host));
  }
  store(infoType, info, 0, 0, calls.integer(builder, loc, sizeof(commrt_image_info), 32));
  store(infoType, info, 0, 1, calls.string(builder, loc, imageName));
  store(infoType, info, 0, 2, code.empty() ? calls.null(builder, loc) : calls.string(builder, loc, code));
  store(infoType, info, 0, 3, calls.integer(builder, loc, static_cast<int64_t>(code.size())));
  store(infoType, info, 0, 4, list);
  store(infoType, info, 0, 5, calls.integer(builder, loc, count));
  calls.call(builder, loc, "commrt_image_load", {begin.getArgument(0), info, slot});
}

//===- Launches ---------------------------------------------------------------------------------===//

/// The values of the flat argument list.
void LaunchLowering::emitArguments(OpBuilder &builder, Location loc, ValueRange operands,
                                   SmallVectorImpl<Value> &flat) {
  auto toWord = [&](Value index) {
    return arith::IndexCastOp::create(builder, loc, builder.getI64Type(), index).getResult();
  };
  for (Value operand : operands) {
    if (!isa<MemRefType>(operand.getType())) {
      flat.push_back(operand.getType().isIndex() ? toWord(operand) : operand);
      continue;
    }
    Value begin = memref::ExtractAlignedPointerAsIndexOp::create(builder, loc, operand);
    Value address = LLVM::IntToPtrOp::create(builder, loc, calls.pointerType(), toWord(begin));
    auto metadata = memref::ExtractStridedMetadataOp::create(builder, loc, operand);
    llvm::append_values(flat, address, address, toWord(metadata.getOffset()));
    for (ValueRange numbers : {metadata.getSizes(), metadata.getStrides()})
      for (Value number : numbers)
        flat.push_back(toWord(number));
  }
}

LogicalResult LaunchLowering::lowerLaunches(func::FuncOp function) {
  SmallVector<gpu::LaunchFuncOp> launches;
  size_t most = 1;
  function.walk([&](gpu::LaunchFuncOp launch) {
    launches.push_back(launch);
    most = std::max(most, kernels[bySymbol.lookup(launch.getKernel())].arguments.size());
  });
  if (launches.empty())
    return success();
  Location loc = function.getLoc();
  OpBuilder entry = OpBuilder::atBlockBegin(&function.getBody().front());
  Type pointer = calls.pointerType(), word = entry.getI64Type();
  Value slot = calls.stackSlot(entry, loc, pointer, 1);
  calls.call(entry, loc, "commrt_image_find",
             {calls.call(entry, loc, "commrt_current", {}), calls.string(entry, loc, imageName), slot});
  Value image = LLVM::LoadOp::create(entry, loc, pointer, slot);
  Value values = calls.stackSlot(entry, loc, word, static_cast<int64_t>(most));
  Value addresses = calls.stackSlot(entry, loc, pointer, static_cast<int64_t>(most));
  for (int32_t i = 0; i < static_cast<int32_t>(most); ++i)
    LLVM::StoreOp::create(entry, loc, member(entry, loc, word, values, {i}),
                          member(entry, loc, pointer, addresses, {i}));
  for (gpu::LaunchFuncOp launch : launches) {
    OpBuilder builder(launch);
    Location at = launch.getLoc();
    const Kernel &kernel = kernels[bySymbol.lookup(launch.getKernel())];
    SmallVector<Value> flat;
    emitArguments(builder, at, launch.getKernelOperands(), flat);
    for (auto [index, value] : llvm::enumerate(flat))
      LLVM::StoreOp::create(builder, at, value, member(builder, at, word, values, {static_cast<int32_t>(index)}));
    SmallVector<Value> arguments = {image, calls.string(builder, at, kernel.name)};
    gpu::KernelDim3 grid = launch.getGridSizeOperandValues(), block = launch.getBlockSizeOperandValues();
    for (Value size : {grid.x, grid.y, grid.z, block.x, block.y, block.z})
      arguments.push_back(size.getType().isIndex() ? arith::IndexCastOp::create(builder, at, word, size).getResult()
                                                   : size);
    llvm::append_values(arguments, calls.integer(builder, at, 0), addresses, calls.null(builder, at));
    calls.call(builder, at, "commrt_kernel_launch", arguments);
    launch.erase();
  }
  return success();
}

LogicalResult LaunchLowering::run(llvm::function_ref<LogicalResult(ModuleOp)> makeCode) {
  if (failed(collect()))
    return failure();
  if (kernels.empty())
    return success();
  for (auto function : module.getOps<func::FuncOp>())
    if (failed(lowerLaunches(function)))
      return failure();
  for (Kernel &kernel : kernels)
    if (failed(makeHostBuild(kernel)))
      return failure();
  std::string code;
  if (makeCode) {
    OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
    auto container = ModuleOp::create(builder, kernelModule.getLoc());
    kernelModule->moveBefore(container.getBody(), container.getBody()->end());
    if (failed(makeCode(container)))
      return failure();
    FailureOr<std::string> made = takeKernelCode(container, module.getLoc());
    container.erase();
    if (failed(made))
      return failure();
    code = std::move(*made);
  } else {
    kernelModule.erase();
  }
  emitLoad(code);
  return success();
}

namespace {
struct CommLowerLaunchesPass : public commsched::impl::CommLowerLaunchesBase<CommLowerLaunchesPass> {
  using CommLowerLaunchesBase::CommLowerLaunchesBase;

  void getDependentDialects(DialectRegistry &registry) const override {
    CommLowerLaunchesBase::getDependentDialects(registry);
    OpPassManager pm(ModuleOp::getOperationName());
    buildKernelCodePipeline(pm, chip);
    pm.getDependentDialects(registry);
  }

  void runOnOperation() override {
    OpPassManager pipeline(ModuleOp::getOperationName());
    buildKernelCodePipeline(pipeline, chip);
    auto makeCode = [&](ModuleOp kernels) { return runPipeline(pipeline, kernels); };
    LaunchLowering lowering(getOperation(), imageName);
    if (failed(ptx ? lowering.run(makeCode) : lowering.run(nullptr)))
      return signalPassFailure();
    getOperation()->removeAttr(gpu::GPUDialect::getContainerModuleAttrName());
  }
};
} // namespace
