//===- Placement.cpp - Assignment of mesh axes to links ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Orders that put every group on the same links have the same costs, and are one placement. Placements are scheduled in
// the order of their bounds, so that the best time is known early and the rest is only compared with it.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Transforms/Scheduling/Placement.h"
#include "CommSched/Analysis/Environment.h"
#include "CommSched/Analysis/ProblemLoader.h"
#include "CommSched/Report/PassJournal.h"
#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Transforms/Passes.h"
#include "CommSched/Transforms/Scheduling/BlockNames.h"
#include "CommSched/Transforms/SchedulingOptions.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/StringSet.h"
#include <map>

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

void commsched::applyPlacement(ModuleOp program, const Mesh &mesh, ArrayRef<int64_t> order) {
  for (GroupOp group : program.getOps<GroupOp>())
    group.setReplicaGroupsAttr(placeGroups(program.getContext(), mesh, axesOf(group, mesh), order));
}

//===-----------------------------------------------------------------------------------------===//
// Functions
//===-----------------------------------------------------------------------------------------===//

/// The bodies of the functions that nobody in the program calls. Fails after an error at one of several blocks.
static FailureOr<SmallVector<Block *>> findEntries(ModuleOp program) {
  llvm::StringSet<> called;
  program.walk([&](CallOpInterface call) {
    if (auto callee = dyn_cast_if_present<SymbolRefAttr>(call.getCallableForCallee()))
      called.insert(callee.getLeafReference());
  });
  SmallVector<Block *> entries;
  for (auto function : program.getOps<FunctionOpInterface>()) {
    if (function.isExternal() || called.contains(function.getName()))
      continue;
    if (!function.getFunctionBody().hasOneBlock())
      return function.emitError() << "expected a function of one block, got "
                                  << function.getFunctionBody().getBlocks().size();
    entries.push_back(&function.getFunctionBody().front());
  }
  return entries;
}

/// Whether all collectives of a function are in its own block, so that the block's problem is the whole function.
static bool hasOneProblem(Block &entry) {
  Operation *function = entry.getParentOp();
  if (llvm::any_of(findSchedulableBlocks(function), [&](Block *block) { return block != &entry; }))
    return false;
  return !function->walk([](CallOpInterface) { return WalkResult::interrupt(); }).wasInterrupted();
}

//===-----------------------------------------------------------------------------------------===//
// The search
//===-----------------------------------------------------------------------------------------===//

namespace {

/// Compares the placements of some programs.
class PlacementSearch {
public:
  PlacementSearch(ArrayRef<ModuleOp> programs, const PlacementOptions &options)
      : programs(programs), options(options) {}

  FailureOr<PlacementTable> run() {
    if (failed(prepare()) || failed(enumerate()))
      return failure();
    for (Placement &placement : table.placements)
      if (isFlat)
        bound(placement);
    if (failed(schedule()))
      return failure();
    return std::move(table);
  }

private:
  LogicalResult prepare();
  LogicalResult checkRanks();
  LogicalResult checkTables();
  LogicalResult enumerate();
  void add(const AxisList &order);
  void bound(Placement &placement);
  LogicalResult schedule();
  LogicalResult scheduleWith(Placement &placement);
  LogicalResult runSchedule(ModuleOp program, const std::shared_ptr<PassJournal> &journal);
  void raiseBounds(Placement &placement, ArrayRef<Block *> entries, size_t first, ArrayRef<PassRecord> records);

  ArrayRef<ModuleOp> programs;
  PlacementOptions options;
  std::shared_ptr<const CostModel> model;
  MemoryBudget memory;
  /// One group of each name, and the axes of each.
  SmallVector<GroupOp> groups;
  std::vector<AxisList> axesOfGroups;
  /// The groups of each program as they were given.
  llvm::DenseMap<Operation *, SmallVector<std::pair<GroupOp, Attribute>>> given;
  /// The index in PlacementTable::placements of what is known by its shapes.
  std::map<std::vector<GroupShape>, size_t> known;
  /// Whether every function is one problem. Otherwise there are no bounds.
  bool isFlat = true;
  PlacementTable table;
};

} // namespace

LogicalResult PlacementSearch::prepare() {
  ModuleOp first = programs.front();
  MLIRContext *context = first.getContext();
  model = loadCostModel(context, options.machine);
  if (!model)
    return failure();
  FailureOr<MemoryBudget> budget = parseMemoryBudget(context, options.memoryBudgetRatio, options.memoryLimitBytes);
  if (failed(budget))
    return failure();
  memory = *budget;
  SmallVector<GroupOp> all;
  for (ModuleOp program : programs) {
    FailureOr<SmallVector<Block *>> entries = findEntries(program);
    if (failed(entries))
      return failure();
    isFlat &= llvm::all_of(*entries, [](Block *entry) { return hasOneProblem(*entry); });
    for (GroupOp group : program.getOps<GroupOp>()) {
      all.push_back(group);
      given[program].push_back({group, group.getReplicaGroups()});
    }
  }
  if (all.empty())
    return first.emitError() << "expected a program with groups, got none";
  FailureOr<Mesh> mesh = findMesh(all);
  if (failed(mesh))
    return failure();
  table.mesh = std::move(*mesh);
  table.machine = model->machine().name;
  table.levels = {{"node", model->machine().ranksPerNode}};
  for (const OuterLevel &level : model->machine().levels)
    table.levels.emplace_back(level.name, level.ranks);
  llvm::StringSet<> seen;
  for (GroupOp group : all)
    if (seen.insert(group.getSymName()).second) {
      groups.push_back(group);
      table.groups.push_back(group.getSymName().str());
      axesOfGroups.push_back(axesOf(group, table.mesh));
    }
  for (ModuleOp program : programs)
    program.walk([&](CollectiveOpInterface start) {
      auto cost = start->getAttrOfType<CostAttr>(CommDialect::kCostAttrName);
      table.givenTimes += cost && cost.getTime();
    });
  if (!model->machine().resources)
    table.assumption = model->machine().lanes == LaneSharing::PerGroup
                           ? "the profile names no resources: every group is assumed to have its links for itself"
                           : "the profile names no resources: groups on the same links are assumed to communicate one "
                             "after the other";
  return success(succeeded(checkRanks()) && succeeded(checkTables()));
}

/// A mesh has to fill whole units of each level, or to fit into one.
LogicalResult PlacementSearch::checkRanks() {
  int64_t ranks = table.mesh.numRanks();
  if (table.mesh.axes.size() > kMostAxes)
    return groups.front().emitError() << "expected a mesh of at most " << kMostAxes << " axes, got "
                                      << table.mesh.axes.size();
  for (const auto &[name, size] : table.levels)
    if (ranks > size && ranks % size != 0)
      return groups.front().emitError() << "the mesh of " << ranks << " ranks does not fit machine '" << table.machine
                                        << "': expected whole " << name << "s of " << size << " ranks";
  return success();
}

/// A time that was measured for a group by its name says nothing of the same group on other links.
LogicalResult PlacementSearch::checkTables() {
  for (const CollectiveTable &measured : model->machine().collectives)
    for (GroupOp group : groups)
      if (measured.group == group.getSymName())
        return group.emitError() << "machine '" << table.machine << "' has times of " << stringify(measured.kind)
                                 << " that were measured for group '@" << group.getSymName()
                                 << "' where it is; expected times by ranks and nodes";
  return success();
}

/// Adds an order to the placement with the same shapes of all groups.
void PlacementSearch::add(const AxisList &order) {
  std::vector<std::vector<int64_t>> inside;
  for (const auto &[name, size] : table.levels) {
    std::optional<SmallVector<int64_t>> parts = axesInside(table.mesh, order, size);
    if (!parts) {
      ++table.unfit;
      return;
    }
    inside.emplace_back(parts->begin(), parts->end());
  }
  std::vector<GroupShape> shapes;
  for (const AxisList &axes : axesOfGroups) {
    GroupShape shape{1, 1, 1};
    for (int64_t axis : axes) {
      shape.ranks *= table.mesh.axes[axis].size;
      shape.ranksPerNode *= inside.front()[axis];
    }
    shape.nodes = shape.ranks / shape.ranksPerNode;
    for (auto [units, parts] : llvm::zip(shape.units, ArrayRef(inside).drop_front())) {
      units = shape.ranks;
      for (int64_t axis : axes)
        units /= parts[axis];
    }
    shapes.push_back(shape);
  }
  auto [it, isNew] = known.try_emplace(shapes, table.placements.size());
  if (isNew) {
    Placement &placement = table.placements.emplace_back();
    placement.inside = std::move(inside);
    placement.shapes = std::move(shapes);
  }
  table.placements[it->second].orders.push_back(order);
}

/// All orders, that of the program first.
LogicalResult PlacementSearch::enumerate() {
  AxisList order = llvm::to_vector<4>(llvm::seq<int64_t>(0, static_cast<int64_t>(table.mesh.axes.size())));
  do {
    add(order);
  } while (std::next_permutation(order.begin(), order.end()));
  if (table.placements.empty() || !llvm::is_sorted(table.placements.front().orders.front()))
    for (const auto &[name, size] : table.levels)
      if (AxisList own = llvm::to_vector<4>(llvm::seq<int64_t>(0, static_cast<int64_t>(table.mesh.axes.size())));
          !axesInside(table.mesh, own, size))
        return groups.front().emitError() << "the mesh does not fit machine '" << table.machine << "': " << name
                                          << "s of " << size << " ranks hold different parts of its axes";
  return success();
}

/// Sums the bounds of all functions up.
static void addBounds(Placement &placement) {
  placement.bound = 0;
  for (Ns bound : placement.bounds)
    *placement.bound += bound;
}

/// Computes the bound of a placement. The groups are changed meanwhile.
void PlacementSearch::bound(Placement &placement) {
  for (ModuleOp program : programs) {
    applyPlacement(program, table.mesh, placement.orders.front());
    OperationCosts costs(*model);
    FailureOr<SmallVector<Block *>> entries = findEntries(program);
    for (Block *entry : *entries) {
      SolverOptions solver(options.collectiveOrder, options.bucketing, /*bucketCap=*/-1, options.effort);
      LoadedBlock loaded = loadBlock(*entry, costs, solver.load);
      const Problem &problem = loaded.problem;
      BoundOptions limited;
      limited.limit = memory.limitFor(peakOf(problem, identityOrder(problem)));
      LowerBound lower = options.bucketing ? jointLowerBound(problem, limited) : lowerBound(problem, limited);
      placement.bounds.push_back(lower.withLimit);
      placement.boundBy.push_back(lower.describeWithLimit(problem));
    }
    for (auto [group, attr] : given[program])
      group.setReplicaGroupsAttr(attr);
  }
  addBounds(placement);
}

/// Raises the bounds of the functions of which the search enumerated all answers. `first` is the number of the
/// program's first function.
void PlacementSearch::raiseBounds(Placement &placement, ArrayRef<Block *> entries, size_t first,
                                  ArrayRef<PassRecord> records) {
  for (auto [index, entry] : llvm::enumerate(entries))
    for (const PassRecord &record : records) {
      std::optional<Ns> least = options.bucketing ? record.leastSchedule : record.leastOrder;
      if (!least || record.block != reportNameOf(*entry) || *least <= placement.bounds[first + index])
        continue;
      placement.bounds[first + index] = *least;
      placement.boundBy[first + index] = "all answers";
    }
}

/// Schedules copies of the programs.
LogicalResult PlacementSearch::scheduleWith(Placement &placement) {
  Ns sum = 0;
  size_t first = 0;
  for (ModuleOp program : programs) {
    OwningOpRef<ModuleOp> copy = program.clone();
    applyPlacement(*copy, table.mesh, placement.orders.front());
    auto journal = std::make_shared<PassJournal>();
    if (failed(runSchedule(*copy, journal)))
      return failure();
    SmallVector<Block *> entries = *findEntries(*copy);
    if (isFlat)
      raiseBounds(placement, entries, first, journal->take());
    first += entries.size();
    OperationCosts costs(*model);
    for (Block *entry : entries) {
      LoadedBlock loaded = loadBlock(*entry, costs, {options.collectiveOrder});
      Order order = identityOrder(loaded.problem);
      sum += makespanOf(loaded.problem, order);
      placement.peak = std::max(placement.peak, peakOf(loaded.problem, order));
    }
  }
  if (isFlat)
    addBounds(placement);
  placement.makespan = sum;
  return success();
}

/// Runs comm-schedule on a program, with a journal of what it found out.
LogicalResult PlacementSearch::runSchedule(ModuleOp program, const std::shared_ptr<PassJournal> &journal) {
  CommScheduleOptions scheduling;
  scheduling.machine = options.machine;
  scheduling.memoryBudgetRatio = options.memoryBudgetRatio;
  scheduling.memoryLimitBytes = options.memoryLimitBytes;
  scheduling.collectiveOrder = options.collectiveOrder;
  scheduling.bucketing = options.bucketing;
  scheduling.effort = options.effort;
  PassManager manager(program.getContext());
  manager.addPass(createCommSchedule(scheduling));
  Environment *environment = Environment::of(program.getContext());
  std::shared_ptr<PassJournal> before = std::exchange(environment->journal, journal);
  LogicalResult result = manager.run(program);
  environment->journal = before;
  return result;
}

/// Schedules the program's own placement, and then the others by their bounds, and sorts them.
LogicalResult PlacementSearch::schedule() {
  std::vector<Placement> &placements = table.placements;
  const AxisList own = placements.front().orders.front();
  auto byBound = [](const Placement &a, const Placement &b) { return a.bound.value_or(0) < b.bound.value_or(0); };
  std::stable_sort(placements.begin() + 1, placements.end(), byBound);
  Ns best = kLargestAmount;
  for (Placement &placement : placements) {
    if (placement.bound && *placement.bound > best)
      continue;
    if (failed(scheduleWith(placement)))
      return failure();
    best = std::min(best, *placement.makespan);
  }
  std::stable_sort(placements.begin(), placements.end(), [](const Placement &a, const Placement &b) {
    auto rank = [](const Placement &one) {
      return std::pair(!one.makespan, one.makespan ? *one.makespan : *one.bound);
    };
    return rank(a) < rank(b);
  });
  auto isOwn = [&](const Placement &placement) { return placement.orders.front() == own; };
  table.asGiven = llvm::find_if(placements, isOwn) - placements.begin();
  return success();
}

FailureOr<PlacementTable> commsched::comparePlacements(ArrayRef<ModuleOp> programs, const PlacementOptions &options) {
  return PlacementSearch(programs, options).run();
}
