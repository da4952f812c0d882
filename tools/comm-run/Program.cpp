//===- Program.cpp - A module compiled for this process ------------------------------------------===//
//
// Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
//
// The JIT uses the small code model and little optimization: with MLIR's default, functions with ten thousand calls
// take minutes to compile.
//
//===--------------------------------------------------------------------------------------------===//

#include "Program.h"
#include "CommSched/Conversion/Passes.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/ExecutionEngine/CRunnerUtils.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
#include <cstring>

using namespace llvm;
using namespace commsched;
using mlir::ModuleOp;

Expected<std::unique_ptr<Program>> Program::load(mlir::MLIRContext &context, StringRef path, StringRef entry) {
  auto program = std::make_unique<Program>();
  program->sourcePath = path.str();
  mlir::ParserConfig config(&context);
  mlir::OwningOpRef<ModuleOp> module = mlir::parseSourceFile<ModuleOp>(path, config);
  if (!module)
    return createStringError("'" + path + "' cannot be read");
  if (Error error = program->readEntry(*module, entry))
    return error;
  mlir::PassManager pm(&context);
  buildLowerToRuntimePipeline(pm);
  if (failed(pm.run(*module)))
    return createStringError("'" + path + "' cannot be lowered to the runtime");
  if (Error error = program->compile(*module))
    return error;
  return program;
}

Error Program::readEntry(ModuleOp module, StringRef entry) {
  SmallVector<mlir::func::FuncOp> candidates;
  for (auto function : module.getOps<mlir::func::FuncOp>())
    if (!function.isDeclaration() && (entry.empty() ? function.isPublic() : function.getName() == entry))
      candidates.push_back(function);
  if (entry.empty() && candidates.size() > 1)
    erase_if(candidates, [](mlir::func::FuncOp function) { return function.getName() != "main"; });
  if (candidates.size() != 1)
    return createStringError(Twine("'") + sourcePath + "': " +
                             (entry.empty() ? "choose the function to run by --entry" : "no function @" + entry));
  mlir::func::FuncOp function = candidates.front();
  entryName = function.getName().str();
  auto addAll = [&](mlir::TypeRange types, std::vector<HostValue> &values, StringRef what) -> Error {
    for (auto [index, type] : llvm::enumerate(types)) {
      Expected<HostValue> value = HostValue::zeros(type);
      if (!value)
        return createStringError("@" + entryName + ", " + what + " " + Twine(index) + ": " +
                                 toString(value.takeError()));
      values.push_back(std::move(*value));
    }
    return Error::success();
  };
  if (Error error = addAll(function.getArgumentTypes(), argumentValues, "argument"))
    return error;
  if (Error error = addAll(function.getResultTypes(), resultValues, "result"))
    return error;
  for (mlir::BlockArgument argument : function.getArguments())
    emptied.push_back(any_of(argument.getUsers(), [](mlir::Operation *user) {
      auto resize = dyn_cast<comm::ResizeStorageOp>(user);
      return resize && resize.getBytes() == 0;
    }));
  for (auto group : module.getOps<comm::GroupOp>())
    worldSize = std::max(worldSize, group.getGroups().getWorldSize());
  function->setAttr(mlir::LLVM::LLVMDialect::getEmitCWrapperAttrName(), mlir::UnitAttr::get(module.getContext()));
  return Error::success();
}

static Expected<std::unique_ptr<TargetMachine>> makeTargetMachine() {
  Triple triple(sys::getProcessTriple());
  std::string error;
  const Target *target = TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return createStringError(error);
  // No features of this very machine: results must not depend on where a program is run.
  return std::unique_ptr<TargetMachine>(target->createTargetMachine(triple, "", "", TargetOptions(), Reloc::PIC_,
                                                                    CodeModel::Small, CodeGenOptLevel::None,
                                                                    /*JIT=*/true));
}

/// What upstream's lowering of memref.copy calls where a side is not contiguous.
static void copyStrided(int64_t elementBytes, ::UnrankedMemRefType<char> *source, ::UnrankedMemRefType<char> *target) {
  DynamicMemRefType<char> from(*source), to(*target);
  int64_t rank = from.rank;
  for (int64_t dim = 0; dim < rank; ++dim)
    if (from.sizes[dim] == 0)
      return;
  std::vector<int64_t> index(rank, 0);
  const char *read = from.data + from.offset * elementBytes;
  char *write = to.data + to.offset * elementBytes;
  while (true) {
    std::memcpy(write, read, elementBytes);
    int64_t dim = rank - 1;
    for (; dim >= 0; --dim) {
      read += from.strides[dim] * elementBytes;
      write += to.strides[dim] * elementBytes;
      if (++index[dim] < from.sizes[dim])
        break;
      read -= from.sizes[dim] * from.strides[dim] * elementBytes;
      write -= to.sizes[dim] * to.strides[dim] * elementBytes;
      index[dim] = 0;
    }
    if (dim < 0)
      return;
  }
}

/// What compiled code calls to round to bf16; older compiler libraries lack it. The bits are returned where a bf16
/// would be: the low half of a floating-point register.
static float truncateToBF16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  bits = (bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16) | 0x40 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  std::memcpy(&value, &bits, sizeof(bits));
  return value;
}

Error Program::compile(ModuleOp module) {
  Expected<std::unique_ptr<TargetMachine>> machine = makeTargetMachine();
  if (!machine)
    return machine.takeError();
  mlir::ExecutionEngineOptions options;
  options.enableGDBNotificationListener = false;
  options.enablePerfNotificationListener = false;
  Expected<std::unique_ptr<mlir::ExecutionEngine>> made =
      mlir::ExecutionEngine::create(module, options, std::move(*machine));
  if (!made)
    return made.takeError();
  engine = std::move(*made);
  engine->registerSymbols([](orc::MangleAndInterner interner) {
    orc::SymbolMap symbols;
    symbols[interner("memrefCopy")] = {orc::ExecutorAddr::fromPtr(&copyStrided), JITSymbolFlags::Exported};
    symbols[interner("__truncsfbf2")] = {orc::ExecutorAddr::fromPtr(&truncateToBF16), JITSymbolFlags::Exported};
    return symbols;
  });
  auto entry = engine->lookupPacked("_mlir_ciface_" + entryName);
  if (!entry)
    return entry.takeError();
  entryFunction = *entry;
  auto begin = engine->lookup("commrt_module_begin");
  if (!begin)
    return begin.takeError();
  beginFunction = reinterpret_cast<int32_t (*)(commrt_context *)>(*begin);
  return Error::success();
}

int32_t Program::begin(commrt_context *context) const { return beginFunction(context); }

/// Words of a ranked memref descriptor: two pointers, offset, sizes, strides.
static std::vector<int64_t> describeBuffer(HostValue &value) {
  std::vector<int64_t> words(3 + 2 * value.shape.size());
  words[0] = words[1] = reinterpret_cast<int64_t>(value.bytes.data());
  int64_t stride = 1;
  for (size_t dim = value.shape.size(); dim-- > 0;) {
    words[3 + dim] = value.shape[dim];
    words[3 + value.shape.size() + dim] = stride;
    stride *= value.shape[dim];
  }
  return words;
}

void Program::run(std::vector<HostValue> &arguments, std::vector<HostValue> &results, int64_t iterations) const {
  std::vector<std::vector<int64_t>> descriptors(arguments.size());
  std::vector<void *> pointers(arguments.size()), packed;
  // Where the results go: one struct, each member naturally aligned.
  size_t size = 0;
  std::vector<size_t> offsets;
  for (const HostValue &result : resultValues) {
    size_t alignment = result.isScalar ? result.elementBytes() : 8;
    size = alignTo(size, alignment);
    offsets.push_back(size);
    size += result.isScalar ? result.elementBytes() : 8 * (3 + 2 * result.shape.size());
  }
  std::vector<int64_t> storage(size / 8 + 1);
  void *resultPointer = storage.data();
  bool returnsByValue = resultValues.size() == 1 && resultValues[0].isScalar;
  if (!resultValues.empty() && !returnsByValue)
    packed.push_back(&resultPointer);
  for (size_t i = 0; i < arguments.size(); ++i) {
    descriptors[i] = describeBuffer(arguments[i]);
    pointers[i] = descriptors[i].data();
    packed.push_back(arguments[i].isScalar ? static_cast<void *>(arguments[i].bytes.data()) : &pointers[i]);
  }
  if (returnsByValue)
    packed.push_back(resultPointer);
  for (int64_t iteration = 0; iteration < iterations; ++iteration)
    entryFunction(packed.data());
  results = resultValues;
  for (size_t i = 0; i < results.size(); ++i) {
    const char *at = reinterpret_cast<const char *>(storage.data()) + offsets[i];
    const char *data = at;
    if (!results[i].isScalar) {
      int64_t words[3];
      std::memcpy(words, at, sizeof(words));
      data = reinterpret_cast<const char *>(words[1]) + words[2] * results[i].elementBytes();
    }
    if (!results[i].bytes.empty())
      std::memcpy(results[i].bytes.data(), data, results[i].bytes.size());
  }
}
