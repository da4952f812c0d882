//===- CommSched.cpp - The C API of CommSched -------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// See CommSched-c/CommSched.h. Diagnostics and remarks both become entries of the context's list of messages.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched-c/CommSched.h"
#include "Buffers.h"
#include "CommSched/Analysis/Locations.h"

#include "CommSched/Analysis/Environment.h"
#include "CommSched/Analysis/SecondCosts.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/InitAll.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Transforms/Scheduling/ReportCollector.h"
#include "CommSched/Transforms/SchedulingOptions.h"

#include "mlir/Bytecode/BytecodeWriter.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Remarks.h"
#include "mlir/IR/Verifier.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/SourceMgr.h"
#include <cstring>
#include <deque>
#include <mutex>

using namespace mlir;
using commsched::toBuffer;

namespace {

/// A message, with the strings to which a CommSchedMessage points.
struct Message {
  CommSchedMessageKind kind;
  std::string location, category, name, text;
};

/// A list that only grows, so that strings already returned stay valid. Passes may add messages from several threads.
struct MessageList {
  void add(Message message) {
    std::lock_guard<std::mutex> lock(mutex);
    messages.push_back(std::move(message));
  }

  std::mutex mutex;
  std::deque<Message> messages;
};

std::string toString(Location loc) {
  if (auto fileLoc = loc->findInstanceOf<FileLineColLoc>()) {
    return (fileLoc.getFilename().getValue() + ":" + Twine(fileLoc.getLine()) + ":" + Twine(fileLoc.getColumn())).str();
  }
  return "";
}

/// Turns MLIR's remarks into messages.
class RemarkCollector : public remark::detail::MLIRRemarkStreamerBase {
public:
  explicit RemarkCollector(MessageList &messages) : messages(messages) {}

  void streamOptimizationRemark(const remark::detail::Remark &remark) override {
    std::string text;
    for (const remark::detail::Remark::Arg &arg : remark.getArgs()) {
      if (!text.empty())
        text += ", ";
      text += arg.key == "Remark" ? arg.val : arg.key + "=" + arg.val;
    }
    messages.add({kindOf(remark), toString(remark.getLocation()), remark.getCombinedCategoryName().str(),
                  remark.getRemarkName().str(), std::move(text)});
  }

private:
  static CommSchedMessageKind kindOf(const remark::detail::Remark &remark) {
    switch (remark.getRemarkType()) {
    case llvm::remarks::Type::Passed:
      return COMMSCHED_REMARK_PASSED;
    case llvm::remarks::Type::Missed:
      return COMMSCHED_REMARK_MISSED;
    case llvm::remarks::Type::Failure:
      return COMMSCHED_REMARK_FAILED;
    default:
      return COMMSCHED_REMARK_ANALYSIS;
    }
  }

  MessageList &messages;
};

CommSchedMessageKind kindOf(DiagnosticSeverity severity) {
  switch (severity) {
  case DiagnosticSeverity::Note:
    return COMMSCHED_NOTE;
  case DiagnosticSeverity::Warning:
    return COMMSCHED_WARNING;
  case DiagnosticSeverity::Remark:
    return COMMSCHED_REMARK;
  case DiagnosticSeverity::Error:
    break;
  }
  return COMMSCHED_ERROR;
}

/// Registers the passes once per process, because MLIR's registry is global.
void registerPassesOnce() {
  static const bool done = [] {
    mlir::registerAllPasses();
    commsched::registerAllPasses();
    return true;
  }();
  (void)done;
}

DialectRegistry makeRegistry() {
  DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  commsched::registerAllDialects(registry);
  commsched::registerAllExtensions(registry);
  return registry;
}

} // namespace

struct CommSchedContext {
  // Uses one thread: a caller such as Python may fork, and equal inputs must give messages in equal order.
  CommSchedContext() : context(makeRegistry(), MLIRContext::Threading::DISABLED) {
    registerPassesOnce();
    context.getDiagEngine().registerHandler([this](Diagnostic &diagnostic) {
      add(diagnostic);
      for (Diagnostic &note : diagnostic.getNotes())
        add(note);
      return success();
    });
    // MLIR enables a kind of remark only if its own filter is given, whatever `all` says.
    remark::RemarkCategories everything;
    everything.all = everything.passed = everything.missed = everything.analysis = everything.failed = ".*";
    LogicalResult enabled =
        remark::enableOptimizationRemarks(context, std::make_unique<RemarkCollector>(messages),
                                          std::make_unique<remark::RemarkEmittingPolicyAll>(), everything);
    if (failed(enabled))
      messages.add({COMMSCHED_WARNING, "", "", "", "remarks are not available"});
  }

  void add(Diagnostic &diagnostic) {
    messages.add({kindOf(diagnostic.getSeverity()), toString(diagnostic.getLocation()), "", "", diagnostic.str()});
  }

  void addError(std::string text) { messages.add({COMMSCHED_ERROR, "", "", "", std::move(text)}); }

  /// The orders that the embedder has told of (commschedContextSetPeerOrder).
  std::vector<commsched::NamedPeerAnswer> peerOrders;
  // The context is destroyed first: its remark engine may still report.
  MessageList messages;
  MLIRContext context;
};

struct CommSchedModule {
  CommSchedContext &owner;
  OwningOpRef<ModuleOp> op;
};

//===--- Contexts and their messages ----------------------------------------------------===//

const char *commschedGetVersion() { return commsched::getVersion(); }

CommSchedContext *commschedContextCreate() { return new (std::nothrow) CommSchedContext; }

void commschedContextDestroy(CommSchedContext *context) { delete context; }

void commschedContextAllowUnregisteredDialects(CommSchedContext *context, int allow) {
  context->context.allowUnregisteredDialects(allow != 0);
}

size_t commschedContextGetNumMessages(const CommSchedContext *context) { return context->messages.messages.size(); }

CommSchedMessage commschedContextGetMessage(const CommSchedContext *context, size_t index) {
  const std::deque<Message> &messages = context->messages.messages;
  if (index >= messages.size())
    return {COMMSCHED_NOTE, "", "", "", ""};
  const Message &message = messages[index];
  return {message.kind, message.location.c_str(), message.category.c_str(), message.name.c_str(), message.text.c_str()};
}

void commschedContextClearMessages(CommSchedContext *context) { context->messages.messages.clear(); }

//===--- What passes ask their context for ----------------------------------------------===//

/// The environment of the context. Loads the comm dialect for it.
static commsched::Environment &environmentOf(CommSchedContext *context) {
  context->context.loadDialect<commsched::comm::CommDialect>();
  return *commsched::Environment::of(&context->context);
}

int commschedContextSetMachine(CommSchedContext *context, const char *machine) {
  llvm::Expected<commsched::MachineModel> model = commsched::MachineModel::load(machine);
  if (!model) {
    context->addError(llvm::toString(model.takeError()));
    return 1;
  }
  environmentOf(context).machine = machine;
  return 0;
}

void commschedContextSetEstimate(CommSchedContext *context, CommSchedEstimate estimate, void *data) {
  if (!estimate) {
    environmentOf(context).estimate = nullptr;
    return;
  }
  environmentOf(context).estimate = [estimate, data](Operation *op) -> std::optional<commsched::Ns> {
    auto compute = dyn_cast<commsched::comm::ComputeOp>(op);
    std::string name = (compute ? compute.getName() : op->getName().getStringRef()).str();
    std::vector<std::string> location = commsched::describeLocation(op->getLoc());
    int64_t time = estimate(name.c_str(), location.empty() ? "" : location.front().c_str(), data);
    return time < 0 ? std::nullopt : std::optional<commsched::Ns>(time);
  };
}

/// Puts a curve into a list, in place of one for the same collectives. Returns whether it is one.
static bool addCurve(CommSchedContext *context, std::vector<commsched::CollectiveTable> &curves, const char *kind,
                     const char *group, const char *element, llvm::ArrayRef<int64_t> bytes,
                     llvm::ArrayRef<int64_t> ns) {
  std::optional<commsched::CollectiveKind> parsedKind = commsched::parseCollectiveKind(kind);
  std::optional<commsched::ElementType> parsedElement =
      element ? commsched::parseElementType(element) : std::optional<commsched::ElementType>();
  bool isAscending = !bytes.empty() && bytes[0] >= 0;
  for (size_t point = 1; point < bytes.size(); ++point)
    isAscending &= bytes[point - 1] < bytes[point];
  const bool hasTimes = llvm::none_of(ns, [](int64_t time) { return time < 0; });
  if (!parsedKind)
    context->addError("expected a kind of collective, got '" + std::string(kind) + "'");
  else if (element && !parsedElement)
    context->addError("expected an element type, got '" + std::string(element) + "'");
  else if (!*group)
    context->addError("expected the symbol of a group, got ''");
  else if (!isAscending)
    context->addError("expected at least one size, and strictly ascending sizes of at least 0 bytes");
  else if (!hasTimes)
    context->addError("expected times of at least 0 ns");
  if (!parsedKind || (element && !parsedElement) || !*group || !isAscending || !hasTimes)
    return false;
  commsched::CollectiveTable curve{*parsedKind, group, 0, 0, parsedElement, {}, {}};
  for (auto [size, time] : llvm::zip_equal(bytes, ns))
    curve.points.push_back({size, time});
  llvm::erase_if(curves, [&](const commsched::CollectiveTable &other) {
    return other.kind == curve.kind && other.group == curve.group && other.element == curve.element;
  });
  curves.push_back(std::move(curve));
  return true;
}

int commschedContextSetCurve(CommSchedContext *context, const char *kind, const char *group, const char *element,
                             size_t count, const int64_t *bytes, const int64_t *ns) {
  return addCurve(context, environmentOf(context).curves, kind, group, element, {bytes, count}, {ns, count}) ? 0 : 1;
}

int commschedContextSetPeerTimes(CommSchedContext *context, size_t count, const char *const *names, const int64_t *ns) {
  commsched::PeerCosts peer;
  for (size_t index = 0; index < count; ++index) {
    if (ns[index] < 0 || ns[index] > commsched::kMaxNs) {
      context->addError("expected a time of at least 0 and at most " + std::to_string(commsched::kMaxNs) + " ns for '" +
                        names[index] + "', got " + std::to_string(ns[index]));
      return 1;
    }
    peer.times[names[index]] = ns[index];
  }
  environmentOf(context).peer = std::move(peer);
  return 0;
}

/// The second opinion of the context; null after an error if it has none.
static commsched::PeerCosts *peerOf(CommSchedContext *context) {
  std::optional<commsched::PeerCosts> &peer = environmentOf(context).peer;
  if (!peer)
    context->addError("expected a second opinion: commschedContextSetPeerTimes was not called");
  return peer ? &*peer : nullptr;
}

int commschedContextSetPeerCurve(CommSchedContext *context, const char *kind, const char *group, const char *element,
                                 size_t count, const int64_t *bytes, const int64_t *ns) {
  commsched::PeerCosts *peer = peerOf(context);
  return peer && addCurve(context, peer->curves, kind, group, element, {bytes, count}, {ns, count}) ? 0 : 1;
}

constexpr size_t kScales = std::size(commsched::kPlayedScales);
static_assert(COMMSCHED_PLAYED == 1 + 2 * kScales);

/// The most orders that a second opinion has beside the given one.
constexpr size_t kMostAnswers = 16;

void commschedContextSetPeerAnswers(CommSchedContext *context, CommSchedPeerAnswers answers, void *data) {
  commsched::PeerCosts *peer = peerOf(context);
  if (!peer)
    return;
  if (!answers) {
    peer->others = nullptr;
    return;
  }
  peer->others = [context, answers, data] {
    std::vector<int64_t> played(kMostAnswers * COMMSCHED_PLAYED);
    context->peerOrders.clear();
    const size_t count = std::min(answers(played.data(), played.size(), data), kMostAnswers);
    context->peerOrders.resize(count);
    for (size_t index = 0; index < count; ++index) {
      const int64_t *at = &played[index * COMMSCHED_PLAYED];
      context->peerOrders[index].peak = at[0];
      context->peerOrders[index].times = {{at + 1, at + 1 + kScales}, {at + 1 + kScales, at + COMMSCHED_PLAYED}};
    }
    return std::exchange(context->peerOrders, {});
  };
}

int commschedContextSetPeerOrder(CommSchedContext *context, size_t index, size_t count, const char *const *names,
                                 const int64_t *buckets) {
  if (!peerOf(context))
    return 1;
  if (index >= kMostAnswers) {
    context->addError("expected at most " + std::to_string(kMostAnswers) + " orders, got number " +
                      std::to_string(index));
    return 1;
  }
  context->peerOrders.resize(std::max(context->peerOrders.size(), index + 1));
  context->peerOrders[index].names.assign(names, names + count);
  context->peerOrders[index].buckets.assign(buckets, buckets + count);
  return 0;
}

void commschedContextSetGather(CommSchedContext *context, size_t numRanks, CommSchedGather gather, void *data) {
  if (!gather) {
    environmentOf(context).gather = nullptr;
    return;
  }
  environmentOf(context).gather = [=](llvm::ArrayRef<commsched::Ns> own) -> std::vector<std::vector<commsched::Ns>> {
    std::vector<int64_t> all(numRanks * own.size());
    if (gather(own.data(), own.size(), all.data(), data))
      return {};
    std::vector<std::vector<commsched::Ns>> byRank;
    for (size_t rank = 0; rank < numRanks; ++rank)
      byRank.emplace_back(all.begin() + rank * own.size(), all.begin() + (rank + 1) * own.size());
    return byRank;
  };
}

//===--- Modules ------------------------------------------------------------------------===//

CommSchedModule *commschedModuleParse(CommSchedContext *context, const char *data, size_t length, const char *name) {
  if (length == 0) {
    context->addError("the input is empty");
    return nullptr;
  }
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBufferCopy(StringRef(data, length), name ? name : "<memory>"),
                             llvm::SMLoc());
  ParserConfig config(&context->context);
  OwningOpRef<ModuleOp> op = parseSourceFile<ModuleOp>(sources, config);
  return op ? new CommSchedModule{*context, std::move(op)} : nullptr;
}

void commschedModuleDestroy(CommSchedModule *module) { delete module; }

/// The passes inside `pipeline`, which may be enclosed in "builtin.module(...)".
static StringRef stripAnchor(StringRef pipeline) {
  pipeline = pipeline.trim();
  StringRef inner = pipeline;
  if (inner.consume_front("builtin.module(") && inner.consume_back(")"))
    return inner;
  return pipeline;
}

int commschedModuleRunPipeline(CommSchedModule *module, const char *pipeline) {
  PassManager manager(&module->owner.context);
  std::string error;
  llvm::raw_string_ostream os(error);
  if (failed(parsePassPipeline(stripAnchor(pipeline), manager, os))) {
    module->owner.addError("pass pipeline '" + std::string(pipeline) + "': " + StringRef(error).trim().str());
    return 1;
  }
  return failed(manager.run(*module->op)) ? 1 : 0;
}

int commschedModulePlay(CommSchedModule *module, const char *machine, int64_t played[COMMSCHED_PLAYED]) {
  CommSchedContext &context = module->owner;
  commsched::PeerCosts *peer = peerOf(&context);
  std::shared_ptr<const commsched::CostModel> model =
      commsched::loadCostModel(&context.context, machine ? machine : "");
  if (!peer || !model)
    return 1;
  SmallVector<Block *> blocks = commsched::findSchedulableBlocks(*module->op);
  if (blocks.size() != 1) {
    context.addError("expected one block with collectives, got " + std::to_string(blocks.size()));
    return 1;
  }
  const commsched::OperationCosts costs(*model);
  const commsched::LoadedBlock loaded = commsched::loadBlock(*blocks.front(), costs);
  if (!loaded.defect.empty())
    return 1;
  const commsched::BothCosts times = commsched::playWithBothCosts(
      loaded.problem, commsched::withPeerCosts(loaded, *peer, *model), commsched::keepOrder(loaded.problem));
  played[0] = commsched::peakOf(loaded.problem, commsched::identityOrder(loaded.problem));
  llvm::copy(times.byPeer, llvm::copy(times.byModel, played + 1));
  return 0;
}

int commschedModuleRunPipelineWithReport(CommSchedModule *module, const char *pipeline, const char *machine,
                                         CommSchedBuffer *report) {
  *report = {nullptr, 0};
  commsched::ReportOptions options;
  if (machine)
    options.machine = machine;
  options.table = false;
  commsched::ReportCollector collector(std::move(options));
  if (failed(collector.begin(*module->op)) || commschedModuleRunPipeline(module, pipeline) ||
      failed(collector.end(*module->op)))
    return 1;
  std::string text;
  llvm::raw_string_ostream os(text);
  os << llvm::formatv("{0:2}", collector.report().toJSON());
  *report = toBuffer(text);
  return 0;
}

int commschedModuleVerify(CommSchedModule *module) { return failed(verify(*module->op)) ? 1 : 0; }

void commschedBufferDestroy(CommSchedBuffer buffer) { std::free(buffer.data); }

CommSchedBuffer commschedModulePrint(CommSchedModule *module, int withLocations) {
  std::string text;
  llvm::raw_string_ostream os(text);
  OpPrintingFlags flags;
  if (withLocations)
    flags.enableDebugInfo();
  module->op->print(os, flags);
  os << "\n";
  return toBuffer(text);
}

CommSchedBuffer commschedModuleWriteBytecode(CommSchedModule *module) {
  std::string bytes;
  llvm::raw_string_ostream os(bytes);
  if (failed(writeBytecodeToFile(*module->op, os)))
    return {nullptr, 0};
  return toBuffer(bytes);
}

/// Appends the names of `loc`: its own, or those of the locations from which it was fused.
static void writeNames(llvm::json::OStream &json, Location loc) {
  if (auto name = dyn_cast<NameLoc>(loc)) {
    json.value(name.getName().getValue());
  } else if (auto fused = dyn_cast<FusedLoc>(loc)) {
    for (Location part : fused.getLocations())
      writeNames(json, part);
  }
}

/// The shape of a tensor, or of a future of one, of static size; none for another type.
static std::optional<ArrayRef<int64_t>> shapeOf(Type type) {
  if (auto future = dyn_cast<commsched::comm::FutureType>(type))
    type = future.getTypes().size() == 1 ? future.getTypes().front() : Type();
  auto tensor = dyn_cast_if_present<RankedTensorType>(type);
  return tensor && tensor.hasStaticShape() ? std::optional(tensor.getShape()) : std::nullopt;
}

static void writeNumbers(llvm::json::OStream &json, ArrayRef<int64_t> numbers) {
  json.array([&] {
    for (int64_t number : numbers)
      json.value(number);
  });
}

static void writeShapes(llvm::json::OStream &json, TypeRange types) {
  for (Type type : types) {
    if (std::optional<ArrayRef<int64_t>> shape = shapeOf(type))
      writeNumbers(json, *shape);
    else
      json.value(nullptr);
  }
}

/// What an operation is beside its operands and results. The numbers of operands are left out, since a rewrite that
/// gives an operation a destination changes them, and so are large constants, and what a computation does to memory:
/// that is what the analysis may know of it.
static std::string describeAttributes(Operation &op) {
  constexpr int64_t kMostElements = 16;
  std::string text;
  llvm::raw_string_ostream os(text);
  auto properties = dyn_cast_or_null<DictionaryAttr>(op.getPropertiesAsAttribute());
  if (!properties)
    return text;
  for (NamedAttribute attribute : properties) {
    auto elements = dyn_cast<ElementsAttr>(attribute.getValue());
    StringRef name = attribute.getName().getValue();
    bool isMemory = isa<commsched::comm::ComputeOp>(op) && name != "name";
    if (name.ends_with("SegmentSizes") || isMemory || (elements && elements.size() > kMostElements))
      continue;
    os << (text.empty() ? "" : ", ") << name << " = " << attribute.getValue();
  }
  return text;
}

/// Writes one operation of commschedModuleListDataflow. `numbers` has the values so far.
static void writeDataflow(llvm::json::OStream &json, Operation &op, llvm::DenseMap<Value, int64_t> &numbers) {
  auto numberOf = [&](Value value) { return numbers.try_emplace(value, numbers.size()).first->second; };
  json.array([&] {
    json.value(op.getName().getStringRef());
    json.array([&] { writeNames(json, op.getLoc()); });
    writeNumbers(json, llvm::map_to_vector(op.getOperands(), numberOf));
    writeNumbers(json, llvm::map_to_vector(op.getResults(), numberOf));
    json.array([&] { writeShapes(json, op.getResultTypes()); });
    auto slice = dyn_cast<OffsetSizeAndStrideOpInterface>(op);
    bool isConstant = slice && !ShapedType::isDynamicShape(slice.getStaticOffsets());
    writeNumbers(json, isConstant ? slice.getStaticOffsets() : ArrayRef<int64_t>());
    json.value(describeAttributes(op));
  });
}

CommSchedBuffer commschedModuleListDataflow(CommSchedModule *module) {
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::json::OStream json(os);
  auto writeFunction = [&](FunctionOpInterface function) {
    llvm::DenseMap<Value, int64_t> numbers;
    for (Value argument : function.front().getArguments())
      numbers.try_emplace(argument, numbers.size());
    json.attribute("name", function.getName());
    json.attributeArray("arguments", [&] { writeShapes(json, function.front().getArgumentTypes()); });
    json.attributeArray("ops", [&] {
      for (Operation &op : function.front())
        if (!op.hasTrait<OpTrait::IsTerminator>())
          writeDataflow(json, op, numbers);
    });
    json.attributeBegin("returned");
    writeNumbers(json, llvm::map_to_vector(function.front().getTerminator()->getOperands(),
                                           [&](Value value) { return numbers.lookup(value); }));
    json.attributeEnd();
  };
  json.object([&] {
    json.attributeArray("functions", [&] {
      for (auto function : module->op->getOps<FunctionOpInterface>())
        if (!function.isExternal())
          json.object([&] { writeFunction(function); });
    });
  });
  return toBuffer(text);
}

CommSchedBuffer commschedModuleListOperations(CommSchedModule *module) {
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::json::OStream json(os);
  auto writeFunction = [&](FunctionOpInterface function) {
    auto signature = function->getAttrOfType<StringAttr>("comm.schedule_signature");
    json.attribute("name", function.getName());
    json.attribute("signature", signature ? signature.getValue() : StringRef());
    json.attributeArray("ops", [&] {
      for (Operation &op : function.front()) {
        if (op.hasTrait<OpTrait::IsTerminator>())
          continue;
        json.array([&] {
          json.value(op.getName().getStringRef());
          json.array([&] { writeNames(json, op.getLoc()); });
        });
      }
    });
  };
  json.object([&] {
    json.attributeArray("functions", [&] {
      for (auto function : module->op->getOps<FunctionOpInterface>())
        if (!function.isExternal())
          json.object([&] { writeFunction(function); });
    });
  });
  return toBuffer(text);
}
