//===- Questions.cpp - Questions that comm-calibrate can measure ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Reads programs and collects what they consist of; a collective whose size
// only the run time knows is passed over with a warning.
//
//===------------------------------------------------------------------------------------------===//

#include "Questions.h"
#include "CommSched/Analysis/Costs/OperationCosts.h"
#include "CommSched/Analysis/Locations.h"
#include "CommSched/Dialect/Comm/CommSizes.h"
#include "ProgramComputations.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/WithColor.h"
#include <map>
#include <set>

using namespace commsched;

using namespace mlir;
using namespace commsched::comm;

namespace {
/// Kind, ranks, nodes, ranks per node, element type.
using CurveKey = std::tuple<CollectiveKind, GroupShape, ElementType>;
} // namespace

/// Why a group's collectives cannot be measured in a job of `ranks` ranks; "" if they can.
static std::string whyNot(const GroupShape &shape, int64_t ranks) {
  return shape.ranks <= ranks
             ? ""
             : "it needs " + std::to_string(shape.ranks) + " ranks, the job has " + std::to_string(ranks);
}

static std::vector<CalibrationQuestion> toQuestions(const std::map<CurveKey, std::set<Bytes>> &sizes, int64_t ranks) {
  std::vector<CalibrationQuestion> questions;
  for (const auto &[key, bytes] : sizes) {
    CalibrationQuestion question;
    question.probe = {std::get<0>(key), std::get<1>(key), std::get<2>(key), 0};
    question.sizes.assign(bytes.begin(), bytes.end());
    question.skipped = whyNot(question.probe.shape, ranks);
    questions.push_back(std::move(question));
  }
  return questions;
}

/// Adds the collectives of one program.
static void collect(ModuleOp module, const OperationCosts &costs, std::map<CurveKey, std::set<Bytes>> &sizes) {
  module.walk([&](CollectiveOpInterface start) {
    GroupShape shape = costs.shapeOf(start);
    if (shape.ranks < 2)
      return;
    if (!hasKnownBytes(start)) {
      llvm::WithColor::warning(llvm::errs(), "comm-calibrate")
          << locationText(start.getLoc()) << ": passed over, since only the run time knows its size\n";
      return;
    }
    sizes[{start.getCollectiveKind(), shape, costs.elementOf(start)}].insert(getCollectiveBytes(start));
  });
}

static llvm::Expected<Questions> readPrograms(llvm::ArrayRef<std::string> paths, const MachineModel &machine,
                                              int64_t ranks, const DialectRegistry &registry,
                                              OperationCompiler &compiler) {
  MLIRContext context(registry);
  // Kernels that are taken out of a program become functions.
  context.loadDialect<func::FuncDialect>();
  CostModel model(machine);
  std::map<CurveKey, std::set<Bytes>> sizes;
  std::set<std::string> seen;
  Questions questions;
  for (const std::string &path : paths) {
    OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(path, &context);
    if (!module)
      return llvm::createStringError("cannot read '" + path + "'");
    OperationCosts costs(model);
    collect(*module, costs, sizes);
    collectComputations(*module, costs, compiler, seen, questions);
  }
  questions.collectives = toQuestions(sizes, ranks);
  return questions;
}

/// The shapes of the groups of both axes of a mesh, each once: those of the faster axis follow each other. Without a
/// mesh, all ranks.
static llvm::Expected<std::vector<GroupShape>> shapesOf(const std::string &mesh, int64_t ranks, int64_t ranksPerNode) {
  int64_t slow = 1, fast = ranks;
  if (auto [first, second] = llvm::StringRef(mesh).split('x');
      !mesh.empty() &&
      (first.getAsInteger(10, slow) || second.getAsInteger(10, fast) || slow < 2 || fast < 2 || slow * fast != ranks))
    return llvm::createStringError("--mesh: expected two axes of at least 2 ranks, of all " + llvm::Twine(ranks) +
                                   " ranks of the job together, as '2x" + llvm::Twine(std::max<int64_t>(2, ranks / 2)) +
                                   "', got '" + mesh + "'");
  std::vector<GroupShape> shapes;
  for (int64_t axis : {0, 1}) {
    std::vector<int64_t> members;
    for (int64_t place = 0; place < (axis == 0 ? fast : slow); ++place)
      members.push_back(axis == 0 ? place : place * fast);
    GroupShape shape = shapeOfRanks(members, ranksPerNode);
    if (shape.ranks > 1 && !llvm::is_contained(shapes, shape))
      shapes.push_back(shape);
  }
  return shapes;
}

static llvm::Expected<Questions> makeGrid(const QuestionOptions &options, const MachineModel &machine, int64_t ranks) {
  llvm::Expected<std::vector<GroupShape>> shapes = shapesOf(options.mesh, ranks, machine.ranksPerNode);
  if (!shapes)
    return shapes.takeError();
  std::vector<std::string> kinds = options.kinds, elements = options.elements;
  if (kinds.empty())
    kinds = {"all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast", "permute"};
  if (elements.empty())
    elements = {"f32"};
  Questions questions;
  for (const std::string &name : kinds)
    for (const std::string &type : elements) {
      std::optional<CollectiveKind> kind = parseCollectiveKind(name);
      std::optional<ElementType> element = parseElementType(type);
      if (!kind)
        return llvm::createStringError("--kinds: expected kinds of collectives as 'all_gather', got '" + name + "'");
      if (!element)
        return llvm::createStringError("--elements: expected element types as 'bf16', got '" + type + "'");
      for (const GroupShape &shape : *shapes)
        questions.collectives.push_back({{*kind, shape, *element, 0}, {}, options.least, options.most, ""});
      questions.products.insert(*element);
    }
  return questions;
}

llvm::Expected<Questions> commsched::makeQuestions(const QuestionOptions &options, const MachineModel &machine,
                                                   int64_t ranks, const DialectRegistry &registry,
                                                   OperationCompiler &compiler) {
  if (!options.programs.empty() && !options.mesh.empty())
    return llvm::createStringError("--mesh: expected no --program, whose groups say what is measured");
  if (!options.programs.empty())
    return readPrograms(options.programs, machine, ranks, registry, compiler);
  if (ranks < 2)
    return llvm::createStringError("expected a job of at least 2 ranks, got 1: one rank has no collectives to time; "
                                   "with --program, it times the kernels of a program");
  return makeGrid(options, machine, ranks);
}
