//===- Program.cpp - A module compiled for this process ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The JIT uses the small code model and, unless the program has loops over many elements, no optimization. With MLIR's
// default, functions with ten thousand calls take minutes to compile. Optimization changes no bit, because the code
// does not allow LLVM to reorder or fuse floating-point operations.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Execution/Program.h"
#include "CommSched/Analysis/Costs/OperationCosts.h"
#include "CommSched/Analysis/Environment.h"
#include "CommSched/Conversion/Passes.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Machine/CostModel.h"
#include "DeviceMemory.h"
#include "ProgramCall.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/ExecutionEngine/CRunnerUtils.h"
#include "mlir/ExecutionEngine/OptUtils.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
#include <atomic>
#include <cstring>

using namespace llvm;
using namespace commsched;
using mlir::ModuleOp;

Expected<std::vector<Source>> commsched::readSources(StringRef path, bool split) {
  ErrorOr<std::unique_ptr<MemoryBuffer>> buffer = MemoryBuffer::getFileOrSTDIN(path, /*IsText=*/true);
  if (!buffer)
    return createFileError(path, buffer.getError());
  StringRef rest = (*buffer)->getBuffer();
  std::vector<Source> sources(1, {path.str(), ""});
  if (!split) {
    sources[0].text = rest.str();
    return sources;
  }
  int64_t line = 0;
  while (!rest.empty()) {
    auto [first, others] = rest.split('\n');
    ++line;
    if (first.starts_with("// -----"))
      sources.push_back({path.str(), std::string(line, '\n')});
    else
      sources.back().text += (first + "\n").str();
    rest = others;
  }
  // A marker at the very beginning or end starts no part.
  erase_if(sources, [](const Source &source) { return StringRef(source.text).trim().empty(); });
  if (sources.empty())
    return createStringError("'" + path + "': expected a program, got an empty file");
  return sources;
}

/// Number of elements from which compiled loops are worth optimizing.
static constexpr int64_t kManyElements = 1 << 14;
/// Number of operations of the LLVM dialect up to which optimization takes at most seconds.
static constexpr int64_t kMostOptimized = 50'000;

static bool isLarge(mlir::Type type) {
  auto shaped = dyn_cast<mlir::ShapedType>(type);
  if (!shaped)
    return false;
  int64_t elements = 1;
  if (shaped.hasStaticShape() && !is_contained(shaped.getShape(), 0))
    for (int64_t size : shaped.getShape())
      if (MulOverflow(elements, size, elements))
        return true;
  return !shaped.hasStaticShape() || elements >= kManyElements;
}

/// Returns true unless the loops around an access to an element are known to run few times in total.
static bool isInLongLoops(mlir::Operation *access) {
  int64_t total = 1;
  bool isInLoop = false;
  for (auto loop = access->getParentOfType<mlir::LoopLikeOpInterface>(); loop;
       loop = loop->getParentOfType<mlir::LoopLikeOpInterface>()) {
    isInLoop = true;
    std::optional<APInt> trips = loop.getStaticTripCount();
    if (!trips || trips->getActiveBits() > 62 || MulOverflow(total, static_cast<int64_t>(trips->getZExtValue()), total))
      return true;
  }
  return isInLoop && total >= kManyElements;
}

bool commsched::hasLongLoops(ModuleOp module) {
  auto found = module.walk([](mlir::Operation *op) {
    bool isLong =
        op->getName().getDialectNamespace() == "linalg"
            ? any_of(op->getOperandTypes(), isLarge)
            : isa<mlir::memref::LoadOp, mlir::memref::StoreOp, mlir::tensor::ExtractOp, mlir::tensor::InsertOp>(op) &&
                  isInLongLoops(op);
    return isLong ? mlir::WalkResult::interrupt() : mlir::WalkResult::advance();
  });
  return found.wasInterrupted();
}

/// Emits an error at each element that the host reads: what it decides by one would hold for every launch.
static LogicalResult checkCapturable(ModuleOp module) {
  bool isGood = true;
  module.walk<mlir::WalkOrder::PreOrder>([&](mlir::Operation *op) {
    if (isa<mlir::linalg::LinalgOp>(op))
      return mlir::WalkResult::skip();
    if (isa<mlir::tensor::ExtractOp, mlir::memref::LoadOp>(op)) {
      mlir::emitError(op->getLoc(), "cannot be captured into a graph: the host reads an element");
      isGood = false;
    }
    return mlir::WalkResult::advance();
  });
  return mlir::success(isGood);
}

Expected<std::unique_ptr<Program>> Program::load(mlir::MLIRContext &context, const Source &source,
                                                 const ProgramOptions &options) {
  auto program = std::make_unique<Program>();
  program->sourceName = source.name;
  program->onDevice = options.device;
  auto failed = [&](const Twine &step) { return createStringError("'" + source.name + "' cannot be " + step); };
  mlir::ParserConfig config(&context);
  SourceMgr sources;
  sources.AddNewSourceBuffer(MemoryBuffer::getMemBufferCopy(source.text, source.name), SMLoc());
  // Ranks share the standard error, so that everything goes there in one write.
  std::string said;
  raw_string_ostream saidStream(said);
  auto print = scope_exit([&] { errs() << said; });
  mlir::SourceMgrDiagnosticHandler diagnostics(sources, &context,
                                               options.diagnostics ? *options.diagnostics : saidStream);
  mlir::OwningOpRef<ModuleOp> module = mlir::parseSourceFile<ModuleOp>(sources, config);
  if (!module)
    return failed("read");
  if (Error error = runPasses(*module, options.passes))
    return createStringError("'" + source.name + "': " + toString(std::move(error)));
  if (Error error = program->readEntry(*module, options))
    return error;
  program->groupVariants.add(*module);
  program->captures = options.graph;
  if (options.graph && mlir::failed(checkCapturable(*module)))
    return failed("captured into a graph");
  if (!options.machine.empty())
    if (Error error = program->predict(*module, options.machine))
      return error;
  bool hasLoops = options.optimize.value_or(hasLongLoops(*module));
  mlir::PassManager pm(&context);
  // The parser verified the input, and LLVM verifies the output.
  pm.enableVerifier(false);
  LowerToRuntimeOptions lowering;
  lowering.device = options.device;
  lowering.ptx = options.ptx;
  // A context may run several programs.
  static std::atomic<int64_t> number = 0;
  lowering.imageName = "program " + std::to_string(number++);
  buildLowerToRuntimePipeline(pm, lowering);
  if (mlir::failed(pm.run(*module)))
    return failed("lowered to the runtime");
  if (Error error = program->compile(*module, hasLoops))
    return error;
  return program;
}

Error Program::runPasses(ModuleOp module, StringRef passes) {
  if (passes.empty())
    return Error::success();
  mlir::PassManager pm(module.getContext());
  std::string message;
  raw_string_ostream os(message);
  if (mlir::failed(mlir::parsePassPipeline(passes, pm, os)))
    return createStringError("pass pipeline '" + passes + "': " + StringRef(message).trim());
  if (mlir::failed(pm.run(module)))
    return createStringError("the passes '" + passes + "' failed");
  return Error::success();
}

Error Program::readEntry(ModuleOp module, const ProgramOptions &options) {
  SmallVector<mlir::func::FuncOp> candidates;
  for (auto function : module.getOps<mlir::func::FuncOp>())
    if (!function.isDeclaration() &&
        (options.entry.empty() ? function.isPublic() : function.getName() == options.entry))
      candidates.push_back(function);
  if (options.entry.empty() && candidates.size() > 1)
    erase_if(candidates, [](mlir::func::FuncOp function) { return function.getName() != "main"; });
  if (candidates.size() != 1)
    return createStringError("'" + sourceName + "': " +
                             (options.entry.empty()
                                  ? "expected @main or exactly one public function; choose one with --entry"
                                  : "expected a function @" + options.entry + ", got none"));
  mlir::func::FuncOp function = candidates.front();
  entryName = function.getName().str();
  auto add = [&](mlir::Location loc, mlir::Type type, std::vector<HostValue> &values) {
    Expected<HostValue> value = HostValue::ofType(type, options.dynamicSize);
    if (!value)
      return mlir::LogicalResult(mlir::emitError(loc) << toString(value.takeError()));
    values.push_back(std::move(*value));
    return mlir::success();
  };
  for (mlir::BlockArgument argument : function.getArguments())
    if (mlir::failed(add(argument.getLoc(), argument.getType(), argumentValues)))
      return createStringError("'" + sourceName + "': cannot call @" + entryName + " because of argument " +
                               Twine(argument.getArgNumber()));
  for (auto [index, type] : llvm::enumerate(function.getResultTypes()))
    if (mlir::failed(add(function.getLoc(), type, resultValues)))
      return createStringError("'" + sourceName + "': cannot call @" + entryName + " because of result " +
                               Twine(index));
  freedArguments.resize(argumentValues.size());
  for (auto resize : function.getBody().front().getOps<comm::ResizeStorageOp>())
    if (auto argument = dyn_cast<mlir::BlockArgument>(resize.getValue()))
      freedArguments[argument.getArgNumber()] = resize.getBytes() == 0;
  for (auto group : module.getOps<comm::GroupOp>()) {
    worldSize = std::max(worldSize, group.getGroups().getWorldSize());
    raw_string_ostream(groupTexts[group.getSymName()]) << group->getAttrDictionary();
  }
  function->setAttr(mlir::LLVM::LLVMDialect::getEmitCWrapperAttrName(), mlir::UnitAttr::get(module.getContext()));
  return Error::success();
}

Error Program::predict(ModuleOp module, StringRef machine) {
  Expected<MachineModel> loaded = loadMachine(module.getContext(), machine);
  if (!loaded)
    return loaded.takeError();
  CostModel model(*loaded);
  OperationCosts costs(model);
  MeasureOptions options;
  options.bounds = false;
  options.timeline = true;
  ErrorBars errorBars(costs, module);
  options.errorBars = &errorBars;
  auto function = module.lookupSymbol<mlir::func::FuncOp>(entryName);
  prediction = measureBlock(function.getBody().front(), costs, options);
  return Error::success();
}

static Expected<std::unique_ptr<TargetMachine>> makeTargetMachine(CodeGenOptLevel level) {
  Triple triple(sys::getProcessTriple());
  std::string error;
  const Target *target = TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return createStringError(error);
  // No features of this particular machine: results must not depend on the machine that runs the program.
  return std::unique_ptr<TargetMachine>(target->createTargetMachine(triple, "", "", TargetOptions(), Reloc::PIC_,
                                                                    CodeModel::Small, level,
                                                                    /*JIT=*/true));
}

/// The function that upstream's lowering of memref.copy calls if a side is not contiguous.
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

/// The function that compiled code calls to round to bf16, which older compiler libraries lack. It returns the bits
/// where the ABI expects a bf16: in the low half of a floating-point register.
static float truncateToBF16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  bits = (bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16) | 0x40 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  std::memcpy(&value, &bits, sizeof(bits));
  return value;
}

Error Program::compile(ModuleOp module, bool optimize) {
  int64_t operations = 0;
  module.walk([&](mlir::Operation *) { ++operations; });
  optimize &= operations <= kMostOptimized;
  Expected<std::unique_ptr<TargetMachine>> machine =
      makeTargetMachine(optimize ? CodeGenOptLevel::Default : CodeGenOptLevel::None);
  if (!machine)
    return machine.takeError();
  mlir::ExecutionEngineOptions options;
  auto transformer = mlir::makeOptimizingTransformer(/*optLevel=*/2, /*sizeLevel=*/0, machine->get());
  if (optimize)
    options.transformer = transformer; // a reference
  options.enableGDBNotificationListener = false;
  options.enablePerfNotificationListener = false;
  memory = std::make_unique<JitMemory>();
  options.sectionMemoryMapper = memory.get();
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

int32_t Program::run(commrt_context *context, std::vector<HostValue> &arguments, std::vector<HostValue> &results,
                     int64_t iterations, std::vector<int64_t> &marks) const {
  ProgramCall call(*this, context, arguments);
  if (int32_t status = call.create())
    return status;
  int64_t mark = commrt_mark(context);
  marks = {commrt_clock_ns(context)};
  commrt_trace_mark(context);
  commrt_graph *graph = nullptr;
  auto destroyGraph = scope_exit([&] { commrt_graph_destroy(graph); });
  for (int64_t iteration = 0; iteration < iterations; ++iteration) {
    if (!graph) {
      // The results of the previous call.
      commrt_release_since(context, mark, nullptr, 0);
      bool isCaptured = captures && iteration > 0;
      if (isCaptured && commrt_graph_begin(context) != COMMRT_OK)
        return commrt_last_error(context, nullptr, 0);
      call.invoke();
      if (isCaptured && commrt_graph_end(context, &graph) != COMMRT_OK)
        return commrt_last_error(context, nullptr, 0);
    }
    if (graph)
      commrt_graph_launch(graph);
    commrt_trace_mark(context);
    if (int32_t status = commrt_last_error(context, nullptr, 0))
      return status;
    if (int32_t status = awaitDevice(context))
      return status;
    marks.push_back(commrt_clock_ns(context));
  }
  if (Error error = call.readResults(results)) {
    commrt_abort(context, COMMRT_ERR_MEMORY, toString(std::move(error)).c_str());
    return commrt_last_error(context, nullptr, 0);
  }
  if (int32_t status = call.fetchArguments())
    return status;
  return commrt_release_since(context, mark, nullptr, 0);
}
