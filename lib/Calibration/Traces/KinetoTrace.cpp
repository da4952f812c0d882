//===- KinetoTrace.cpp - Times of operators from PyTorch's profiler -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Reads the JSON of torch.profiler. Events of the host nest by time on their thread. A kernel of a device names the
// operator that launched it by an external id. Names of fields are those of PyTorch 2.13 (Kineto's output_json.cpp and
// torch/csrc/profiler/util.h).
//
//===------------------------------------------------------------------------------------------===//

#include "FieldReader.h"
#include "KinetoCollectives.h"
#include "TraceReader.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

using namespace commsched;

namespace json = llvm::json;

/// MLIR's name of an element type of PyTorch, as the importer of graphs writes it; empty for other types.
static llvm::StringRef elementName(llvm::StringRef type) {
  return llvm::StringSwitch<llvm::StringRef>(type)
      .Case("float", "f32")
      .Case("double", "f64")
      .Case("c10::Half", "f16")
      .Case("c10::BFloat16", "bf16")
      .Cases({"long int", "long"}, "i64")
      .Case("int", "i32")
      .Cases({"short int", "short"}, "i16")
      .Case("signed char", "i8")
      .Case("unsigned char", "ui8")
      .Case("bool", "si8")
      .Case("c10::complex<float>", "complex<f32>")
      .Case("c10::complex<double>", "complex<f64>")
      .Case("c10::Float8_e4m3fn", "f8E4M3FN")
      .Case("c10::Float8_e5m2", "f8E5M2")
      .Default("");
}

namespace {

/// Reads one file.
class KinetoReader {
public:
  KinetoReader(const TimelineText &trace, TraceSamples &samples) : samples(samples) { rank.file = trace.name; }

  /// Returns the text of an error, or an empty string.
  std::string read(const json::Object &root);

private:
  void readHeader(const json::Object &root);
  void readEvent(const json::Object &object, const std::string &path);
  void nest();
  void addKernelTimes();
  void addOperators();
  void addOperator(const HostEvent &event);
  bool isInside(const HostEvent &event, llvm::function_ref<bool(const HostEvent &)> is) const;

  TraceSamples &samples;
  TracedRank rank;
  ProcessGroups groups;
  std::vector<HostEvent> events;
  std::vector<DeviceEvent> kernels;
  /// Indexed by external id: the index of the event of the host.
  std::map<int64_t, size_t> byId;
  bool hasCompiledGraphs = false, hasShapes = false;
  std::string error;
};

} // namespace

void KinetoReader::readHeader(const json::Object &root) {
  if (const json::Array *devices = root.getArray("deviceProperties"))
    for (const json::Value &device : *devices)
      if (const json::Object *object = device.getAsObject())
        if (std::optional<llvm::StringRef> name = object->getString("name"))
          samples.devices.insert(name->str());
  const json::Object *info = root.getObject("distributedInfo");
  if (!info)
    return;
  rank.rank = info->getInteger("rank");
  groups.read(*info);
}

/// Adds an operand with these dimensions to both lists. Numbers and tensors without dimensions are left out.
static void addOperand(const json::Array &sizes, llvm::StringRef element, std::vector<std::string> &typed,
                       std::vector<std::string> &untyped) {
  if (sizes.empty())
    return;
  std::string text;
  for (const json::Value &size : sizes)
    text += (text.empty() ? "" : "x") + std::to_string(size.getAsInteger().value_or(0));
  untyped.push_back(text);
  if (!element.empty())
    typed.push_back(text + "x" + element.str());
}

/// The operands: with their element types, or without if one of them is not known, as in a list of tensors.
static void readOperands(const json::Object &arguments, HostEvent &event) {
  const json::Array *types = arguments.getArray("Input type"), *dims = arguments.getArray("Input Dims");
  if (const json::Array *concrete = arguments.getArray("Concrete Inputs"))
    for (const json::Value &value : *concrete)
      event.concrete.push_back(value.getAsString().value_or("").str());
  if (!types || !dims || types->size() != dims->size())
    return;
  event.hasOperands = true;
  std::vector<std::string> typed, untyped;
  for (auto [type, sizes] : llvm::zip_equal(*types, *dims)) {
    llvm::StringRef element = elementName(type.getAsString().value_or(""));
    const json::Array *shape = sizes.getAsArray();
    if (!shape || shape->empty())
      continue;
    if (!shape->front().getAsArray()) {
      addOperand(*shape, element, typed, untyped);
      continue;
    }
    for (const json::Value &member : *shape)
      if (const json::Array *list = member.getAsArray())
        addOperand(*list, "", typed, untyped);
  }
  event.operands = typed.size() == untyped.size() ? typed : untyped;
}

void KinetoReader::readEvent(const json::Object &object, const std::string &path) {
  llvm::StringRef category = object.getString("cat").value_or("");
  bool isHost = category == "cpu_op" || category == "user_annotation";
  bool isDevice = category == "kernel" || category == "gpu_memcpy" || category == "gpu_memset";
  if (object.getString("ph") != "X" || (!isHost && !isDevice))
    return;
  FieldReader reader(object, path, error);
  std::optional<double> begin = object.getNumber("ts");
  if (!begin)
    return reader.fail("ts", "expected a time in microseconds");
  Ns duration = reader.time("dur");
  const json::Object *arguments = object.getObject("args");
  std::optional<int64_t> id = arguments ? arguments->getInteger("External id") : std::nullopt;
  std::string name = reader.string("name");
  if (isDevice) {
    DeviceEvent kernel{name, *begin, duration, id, std::nullopt, ""};
    if (arguments && arguments->get("Collective name"))
      kernel.collective = readKernelCollective(*arguments, groups, kernel.why);
    kernels.push_back(std::move(kernel));
    return;
  }
  HostEvent event;
  event.name = name;
  event.thread = {object.getInteger("pid").value_or(0), object.getInteger("tid").value_or(0)};
  event.begin = *begin;
  event.duration = duration;
  event.isOperator = category == "cpu_op";
  event.isCompiledGraph = !event.isOperator && llvm::StringRef(name).contains("Call CompiledFxGraph");
  hasCompiledGraphs |= event.isCompiledGraph;
  if (arguments)
    readOperands(*arguments, event);
  hasShapes |= event.hasOperands;
  event.id = id;
  events.push_back(std::move(event));
}

/// Finds the parent of each event: the shortest one on its thread that contains it.
void KinetoReader::nest() {
  llvm::stable_sort(events, [](const HostEvent &a, const HostEvent &b) {
    return std::tuple(a.thread, a.begin, -a.duration) < std::tuple(b.thread, b.begin, -b.duration);
  });
  std::vector<size_t> open;
  for (auto [index, event] : llvm::enumerate(events)) {
    while (!open.empty() && (events[open.back()].thread != event.thread || events[open.back()].end() <= event.begin))
      open.pop_back();
    event.parent = open.empty() ? HostEvent::kNone : open.back();
    open.push_back(index);
    if (event.id && event.isOperator)
      byId[*event.id] = index;
  }
}

/// An operator takes the time of its kernels and of those of the operators that it calls.
void KinetoReader::addKernelTimes() {
  for (const DeviceEvent &kernel : kernels) {
    auto found = kernel.id ? byId.find(*kernel.id) : byId.end();
    if (found == byId.end()) {
      if (!kernel.collective)
        samples.addUnmatched(kernel.name, "the trace does not tell which operator launched it", kernel.duration);
      continue;
    }
    for (size_t index = found->second; index != HostEvent::kNone; index = events[index].parent)
      events[index].deviceTime += kernel.duration;
  }
}

bool KinetoReader::isInside(const HostEvent &event, llvm::function_ref<bool(const HostEvent &)> is) const {
  for (size_t index = event.parent; index != HostEvent::kNone; index = events[index].parent)
    if (is(events[index]))
      return true;
  return false;
}

static bool isCollective(llvm::StringRef name) {
  return name.starts_with("c10d::") || name.starts_with("_c10d_functional");
}

/// Returns true if `name` is an operator that graphs consist of, apart from collectives: "aten::mm".
static bool isGraphOperator(llvm::StringRef name) {
  return name.contains("::") && !isCollective(name) && !name.starts_with("autograd::") &&
         !name.starts_with("torch::autograd");
}

void KinetoReader::addOperator(const HostEvent &event) {
  Ns time = kernels.empty() ? event.duration : event.deviceTime;
  bool isOutermost =
      !isInside(event, [](const HostEvent &outer) { return isGraphOperator(outer.name) || isCollective(outer.name); });
  auto skip = [&](const char *why) {
    // What an operator calls is a part of it.
    if (isOutermost && time > 0)
      samples.addUnmatched(event.name, why, time);
  };
  if (hasCompiledGraphs && !isInside(event, [](const HostEvent &outer) { return outer.isCompiledGraph; }))
    return skip("it ran outside of the compiled graphs");
  if (event.operands.empty())
    return skip("the trace has no operands of it");
  if (time == 0)
    return samples.addUnmatched(event.name, "it took no time", 0);
  std::string name = event.name;
  size_t colons = name.find("::");
  name.replace(colons, 2, ".");
  samples.addOp(name, event.operands, time, !isOutermost);
}

/// Kernels that Inductor fuses run under their own names; everything else that is no operator has no cost in a graph.
void KinetoReader::addOperators() {
  for (const HostEvent &event : events) {
    if (!event.isOperator)
      continue;
    llvm::StringRef name = event.name;
    if (isGraphOperator(name))
      addOperator(event);
    else if (name.starts_with("triton_") || name.starts_with("cpp_fused"))
      samples.addUnmatched(event.name, "a kernel that Inductor fused, whose parts the model prices",
                           kernels.empty() ? event.duration : event.deviceTime);
  }
}

std::string KinetoReader::read(const json::Object &root) {
  readHeader(root);
  const json::Array *all = root.getArray("traceEvents");
  if (!all)
    return "expected an object with 'traceEvents', as torch.profiler writes it";
  for (auto [index, value] : llvm::enumerate(*all)) {
    std::string path = "traceEvents[" + std::to_string(index) + "]";
    const json::Object *object = value.getAsObject();
    if (!object)
      return "field '" + path + "': expected an object";
    readEvent(*object, path + ".");
    if (!error.empty())
      return error;
  }
  if (!hasShapes)
    return "expected shapes of operands, got none: record the trace with torch.profiler.profile(record_shapes=True)";
  nest();
  addKernelTimes();
  addOperators();
  if (!kernels.empty())
    addDeviceCollectives(events, byId, kernels, rank, samples);
  else
    addHostCollectives(events, groups, rank, samples);
  samples.hasCompiledGraphs |= hasCompiledGraphs;
  samples.ranks.push_back(std::move(rank));
  return "";
}

std::string commsched::readKineto(const TimelineText &trace, TraceSamples &samples) {
  llvm::Expected<json::Value> document = json::parse(trace.text);
  if (!document)
    return llvm::toString(document.takeError());
  const json::Object *root = document->getAsObject();
  if (!root)
    return "expected an object with 'traceEvents', as torch.profiler writes it";
  return KinetoReader(trace, samples).read(*root);
}
