//===- Calibration.cpp - Measuring collectives from plain C -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// See CommSched-c/Calibration.h. The caller's functions become a Bench, and the request becomes questions.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched-c/Calibration.h"
#include "Buffers.h"
#include "CommSched/Calibration/Profile.h"
#include "CommSched/Calibration/Session.h"
#include "CommSched/Calibration/Trace.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"
#include <cstring>

using namespace commsched;

namespace json = llvm::json;

namespace {

/// The caller's functions.
class CallerBench : public Bench {
public:
  explicit CallerBench(const CommSchedBench &caller) : caller(caller) {}

  int32_t rank() const override { return caller.rank; }
  int32_t ranks() const override { return caller.ranks; }
  Ns now() const override { return caller.now(caller.data); }
  /// The caller names its clock among the facts.
  std::string clockName() const override { return "the caller's"; }
  /// All ranks take part: each in a group of its own.
  int64_t participants(const CollectiveProbe &) const override { return caller.ranks; }

  Bytes feasibleBytes(const CollectiveProbe &probe) const override {
    Bytes unit = bytesOf(probe.element) * (isSplit(probe.kind) ? probe.shape.ranks : 1);
    return std::max<Bytes>(1, (probe.bytes + unit / 2) / unit) * unit;
  }

  llvm::Error prepare(const CollectiveProbe &wanted) override {
    std::string kind = stringify(wanted.kind).str(), element = stringify(wanted.element).str();
    CommSchedProbe probe{kind.c_str(), element.c_str(), wanted.shape.ranks, wanted.shape.nodes, wanted.bytes};
    return caller.prepare(&probe, caller.data) ? failure() : llvm::Error::success();
  }

  /// The caller's clock resolves a single run (sampleTime is 0), so there is never more than one.
  llvm::Expected<ProbeTime> run(int64_t) override {
    ProbeTime time;
    if (caller.run(&time.total, &time.issue, caller.data))
      return failure();
    return time;
  }

  llvm::Expected<std::vector<std::vector<int64_t>>> gather(llvm::ArrayRef<int64_t> own) override {
    std::vector<int64_t> all(own.size() * caller.ranks);
    if (caller.gather(own.data(), own.size(), all.data(), caller.data))
      return failure();
    std::vector<std::vector<int64_t>> byRank;
    for (int32_t rank = 0; rank < caller.ranks; ++rank)
      byRank.emplace_back(all.begin() + rank * own.size(), all.begin() + (rank + 1) * own.size());
    return byRank;
  }

private:
  llvm::Error failure() const { return llvm::createStringError(llvm::Twine(caller.reason(caller.data))); }

  /// Whether a rank's buffer consists of one block per rank.
  static bool isSplit(CollectiveKind kind) {
    return kind == CollectiveKind::AllGather || kind == CollectiveKind::Gather ||
           kind == CollectiveKind::ReduceScatter || kind == CollectiveKind::Scatter || kind == CollectiveKind::AllToAll;
  }

  static Bytes bytesOf(ElementType element) {
    switch (element) {
    case ElementType::F64:
    case ElementType::I64:
      return 8;
    case ElementType::BF16:
    case ElementType::F16:
    case ElementType::I16:
      return 2;
    case ElementType::F8:
    case ElementType::F4:
    case ElementType::I8:
      return 1;
    default:
      return 4;
    }
  }

  CommSchedBench caller;
};

/// A request, read.
struct Request {
  MachineModel base;
  std::string name, folder;
  CalibrationSessionOptions options;
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<CalibrationQuestion> questions;
};

} // namespace

static llvm::Error refuse(const llvm::Twine &what) { return llvm::createStringError("calibration request: " + what); }

static llvm::Expected<CalibrationQuestion> readQuestion(const json::Value &value) {
  const json::Object *object = value.getAsObject();
  if (!object)
    return refuse("expected an object in 'curves'");
  std::optional<CollectiveKind> kind = parseCollectiveKind(object->getString("kind").value_or(""));
  std::optional<ElementType> element = parseElementType(object->getString("element").value_or(""));
  std::optional<int64_t> ranks = object->getInteger("ranks"), nodes = object->getInteger("nodes"),
                         perNode = object->getInteger("ranks_per_node");
  if (!kind)
    return refuse("expected a kind of collective such as 'all_gather', got '" +
                  object->getString("kind").value_or("nothing") + "'");
  if (!element)
    return refuse("expected an element type such as 'bf16', got '" + object->getString("element").value_or("nothing") +
                  "'");
  if (!ranks || *ranks < 1 || !nodes || *nodes < 1 || *nodes > *ranks || !perNode || *perNode < 1)
    return refuse("expected positive 'ranks', 'nodes' and 'ranks_per_node'");
  CalibrationQuestion question;
  question.probe = {*kind, {*ranks, *nodes, *perNode}, *element, 0};
  if (const json::Array *sizes = object->getArray("sizes"))
    for (const json::Value &size : *sizes)
      question.sizes.push_back(size.getAsInteger().value_or(0));
  question.least = object->getInteger("least").value_or(question.least);
  question.most = object->getInteger("most").value_or(question.most);
  question.skipped = object->getString("skipped").value_or("").str();
  if (question.least < 1 || question.most < question.least ||
      llvm::any_of(question.sizes, [](Bytes b) { return b < 1; }))
    return refuse("expected sizes of at least 1 byte, and 'most' to be at least 'least'");
  return question;
}

static llvm::Expected<Request> readRequest(llvm::StringRef text) {
  llvm::Expected<json::Value> document = json::parse(text);
  if (!document)
    return refuse(llvm::toString(document.takeError()));
  const json::Object *root = document->getAsObject();
  if (!root || !root->getArray("curves"))
    return refuse("expected an object with 'curves'");
  llvm::Expected<MachineModel> base = MachineModel::load(root->getString("base").value_or("h100-sxm"));
  if (!base)
    return base.takeError();
  Request request{std::move(*base),
                  root->getString("name").value_or("calibrated").str(),
                  root->getString("cache").value_or("").str(),
                  {},
                  {},
                  {}};
  llvm::StringRef recipe = root->getString("recipe").value_or("median");
  if (recipe != "median" && recipe != "seed")
    return refuse("expected recipe 'median' or 'seed', got '" + recipe + "'");
  request.options.calibrator.seedRecipe = recipe == "seed";
  request.options.calibrator.budget = root->getInteger("budget_ns").value_or(0);
  request.options.fresh = root->getBoolean("fresh").value_or(false);
  request.options.fingerprint = root->getString("fingerprint").value_or("").str();
  request.options.known = root->getString("known").value_or("").str();
  if (const json::Object *facts = root->getObject("facts"))
    for (const auto &[key, value] : *facts)
      request.facts.emplace_back(key.str(), value.getAsString().value_or("").str());
  llvm::sort(request.facts);
  for (const json::Value &value : *root->getArray("curves")) {
    llvm::Expected<CalibrationQuestion> question = readQuestion(value);
    if (!question)
      return question.takeError();
    request.questions.push_back(std::move(*question));
  }
  return request;
}

/// The result as JSON.
static llvm::Expected<std::string> calibrate(const CommSchedBench &caller, llvm::StringRef text) {
  llvm::Expected<Request> request = readRequest(text);
  if (!request)
    return request.takeError();
  std::optional<CalibrationCache> cache;
  if (!request->folder.empty())
    cache.emplace(request->folder, request->options.fingerprint);
  request->options.cache = cache ? &*cache : nullptr;
  CallerBench bench(caller);
  auto progress = [&](const std::string &line) {
    if (caller.progress)
      caller.progress(line.c_str(), caller.data);
  };
  llvm::Expected<CalibrationAnswers> answers = runCalibration(bench, request->questions, request->options, progress);
  if (!answers)
    return answers.takeError();
  int64_t points = 0;
  for (const CalibratedCurve &curve : answers->curves)
    points += static_cast<int64_t>(curve.points.size());
  Calibration calibration{std::move(answers->curves), std::move(request->facts)};
  llvm::Expected<MachineModel> machine = mergeCalibration(request->base, calibration, request->name);
  if (!machine)
    return machine.takeError();
  llvm::Expected<json::Value> profile = json::parse(machine->toJSON());
  if (!profile)
    return profile.takeError();
  json::Object result{{"profile", std::move(*profile)},
                      {"known", std::move(answers->known)},
                      {"measured", answers->measured},
                      {"points", points},
                      {"warnings", json::Array(answers->warnings)}};
  std::string output;
  llvm::raw_string_ostream(output) << json::Value(std::move(result));
  return output;
}

int commschedCalibrate(const CommSchedBench *bench, const char *request, CommSchedBuffer *result) {
  llvm::Expected<std::string> text = calibrate(*bench, request);
  *result = toBuffer(text ? *text : llvm::toString(text.takeError()));
  return text ? 0 : 1;
}

/// The profile as JSON.
static llvm::Expected<std::string> profileFromTraces(llvm::StringRef text) {
  llvm::Expected<json::Value> document = json::parse(text);
  if (!document)
    return refuse(llvm::toString(document.takeError()));
  const json::Object *root = document->getAsObject();
  const json::Array *list = root ? root->getArray("traces") : nullptr;
  if (!list || list->empty())
    return refuse("expected an object with 'traces'");
  std::vector<std::string> paths;
  for (const json::Value &path : *list)
    paths.push_back(path.getAsString().value_or("").str());
  llvm::Expected<TracedMachine> traced = loadTraces(paths, root->getString("base").value_or(""));
  if (!traced)
    return traced.takeError();
  llvm::Expected<MachineModel> machine =
      addTrace(traced->base, traced->times, root->getString("name").value_or("traced"));
  if (!machine)
    return machine.takeError();
  return machine->toJSON();
}

int commschedProfileFromTraces(const char *request, CommSchedBuffer *result) {
  llvm::Expected<std::string> text = profileFromTraces(request);
  *result = toBuffer(text ? *text : llvm::toString(text.takeError()));
  return text ? 0 : 1;
}

CommSchedBuffer commschedCalibrationFolder(void) { return toBuffer(CalibrationCache::defaultFolder()); }
