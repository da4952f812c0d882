//===- OrderFsdpTest.cpp - Groups of fully sharded collectives against their rule -------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Inductor/OrderFsdp.h"
#include "CommSched/Scheduling/Check/ScheduleVerifier.h"
#include "RandomProblem.h"
#include "llvm/ADT/STLExtras.h"
#include "gtest/gtest.h"
#include <set>

using namespace commsched;
using namespace commsched::test;

namespace {

using Roles = std::vector<FsdpRole>;

/// An answer of the rule.
struct FsdpAnswer {
  Schedule schedule;
  std::vector<FsdpGroups> groups;
  /// Launches and waits that could not be kept together or in turn.
  int32_t dissolved = 0;
};

FsdpAnswer solve(const Problem &problem, const Order &order, const Roles &roles) {
  FsdpAnswer answer;
  answer.schedule = orderFsdp(problem, order, roles, answer.groups);
  for (const FsdpGroups &groups : answer.groups) {
    answer.dissolved += !groups.launchTogether + !groups.waitTogether;
    EXPECT_EQ(groups.together, groups.launchTogether && groups.waitTogether);
  }
  return answer;
}

/// The rule, word for word: sets grown until they stay, and the first unit that is ready, over and over.
class FsdpOracle {
public:
  FsdpOracle(const Problem &problem, const Order &order, const Roles &roles)
      : problem(problem), given(order), roles(roles) {}

  FsdpAnswer run() {
    for (NodeId id : given) {
      if (isStart(id, CollectiveKind::AllGather))
        gather(id);
      if (roles[id] == FsdpRole::ChunkCat && !taken.count(id))
        scatter(id);
    }
    while (!trySchedule())
      ;
    return std::move(result);
  }

private:
  using Set = std::set<NodeId>;

  bool isStart(NodeId id, CollectiveKind kind) const {
    return problem.nodes[id].kind == NodeKind::Start && problem.nodes[id].collective == kind;
  }
  bool isCompute(NodeId id) const { return problem.nodes[id].kind == NodeKind::Compute; }

  /// Nodes that nobody has taken, reached from `from` against or along the dependences.
  template <typename Enter> std::vector<NodeId> reach(NodeId from, bool backward, Enter enter) {
    Set found = {from};
    for (size_t before = 0; before != found.size();) {
      before = found.size();
      for (NodeId id = 0; id < problem.size(); ++id)
        if (!found.count(id) && !taken.count(id) && enter(id))
          for (NodeId other : backward ? problem.succs[id] : problem.preds[id])
            if (found.count(other)) {
              found.insert(id);
              break;
            }
    }
    std::vector<NodeId> ordered;
    llvm::copy_if(given, std::back_inserter(ordered), [&](NodeId id) { return found.count(id) != 0; });
    return ordered;
  }

  void gather(NodeId start) {
    std::vector<NodeId> launch =
        reach(start, true, [&](NodeId id) { return isCompute(id) && roles[id] != FsdpRole::CopyOut; });
    if (llvm::none_of(launch, [&](NodeId id) { return roles[id] == FsdpRole::CopyIn; }))
      return;
    auto isView = [&](NodeId id) { return isCompute(id) && problem.nodes[id].cost == 0; };
    auto isCopyOut = [&](NodeId id) { return roles[id] == FsdpRole::CopyOut; };
    auto isWait = [&](NodeId id) { return problem.nodes[id].kind == NodeKind::Wait; };
    auto ofStart = [&](NodeId id) { return isWait(id) && problem.nodes[id].start == start; };
    // Waits and views first; then each copy-out that one of them leads to, and views of what these copy.
    std::vector<NodeId> near =
        reach(start, false, [&](NodeId id) { return ofStart(id) || (isView(id) && !isCopyOut(id)); });
    Set all(near.begin(), near.end());
    for (NodeId id = 0; id < problem.size(); ++id)
      if (isCopyOut(id) && !taken.count(id) &&
          llvm::any_of(problem.preds[id], [&](NodeId pred) { return llvm::is_contained(near, pred); }))
        for (NodeId view : reach(id, false, [&](NodeId other) { return isView(other) && !isCopyOut(other); }))
          all.insert(view);
    std::vector<NodeId> wait;
    for (NodeId id : given)
      if (all.count(id) && (!wait.empty() || isWait(id)))
        wait.push_back(id);
    take(start, launch, wait, 0);
  }

  void scatter(NodeId chunkCat) {
    // The first reduce-scatter that the copy-in leads to.
    std::vector<NodeId> copies =
        reach(chunkCat, false, [&](NodeId id) { return isCompute(id) && roles[id] == FsdpRole::None; });
    NodeId start = kNone;
    for (NodeId id : given)
      if (isStart(id, CollectiveKind::ReduceScatter) && !taken.count(id) && start == kNone &&
          llvm::any_of(problem.preds[id], [&](NodeId pred) { return llvm::is_contained(copies, pred); }))
        start = id;
    if (start == kNone)
      return;
    std::vector<NodeId> related = reach(chunkCat, false, [&](NodeId id) {
      if (problem.nodes[id].kind == NodeKind::Wait)
        return problem.nodes[id].start == start;
      return id == start || (isCompute(id) && roles[id] == FsdpRole::None);
    });
    auto firstWait = llvm::find_if(related, [&](NodeId id) { return problem.nodes[id].kind == NodeKind::Wait; });
    take(start, {related.begin(), firstWait}, {firstWait, related.end()}, 1);
  }

  void take(NodeId start, std::vector<NodeId> launch, std::vector<NodeId> wait, int kind) {
    if (wait.empty())
      return;
    taken.insert(launch.begin(), launch.end());
    taken.insert(wait.begin(), wait.end());
    kinds.push_back(kind);
    result.groups.push_back({start, launch, wait});
    units.push_back(launch);
    units.push_back(wait);
  }

  /// Emits the unit that stands first among those whose dependences, and turn, are met. Dissolves what never is.
  bool trySchedule() {
    Set done;
    Order order;
    auto unitOf = [&](NodeId id) -> std::vector<NodeId> {
      for (const std::vector<NodeId> &unit : units)
        if (llvm::is_contained(unit, id))
          return unit;
      return {id};
    };
    auto inTurn = [&](const std::vector<NodeId> &unit) {
      for (size_t index = 0; index < kinds.size(); ++index) {
        if (units[2 * index] != unit)
          continue;
        for (size_t before = index; before-- > 0;)
          if (kinds[before] == kinds[index])
            return units[2 * before + 1].empty() || done.count(units[2 * before + 1].front()) != 0;
      }
      return true;
    };
    auto ready = [&](const std::vector<NodeId> &unit) {
      for (NodeId id : unit)
        for (NodeId pred : problem.preds[id])
          if (!done.count(pred) && !llvm::is_contained(unit, pred))
            return false;
      return inTurn(unit);
    };
    for (bool progress = true; progress;) {
      progress = false;
      for (NodeId id : given) {
        std::vector<NodeId> unit = unitOf(id);
        if (done.count(id) || unit.front() != id || !ready(unit))
          continue;
        order.insert(order.end(), unit.begin(), unit.end());
        done.insert(unit.begin(), unit.end());
        progress = true;
        break;
      }
    }
    result.schedule.order = order;
    if (static_cast<int32_t>(order.size()) == problem.size())
      return true;
    for (size_t index : onCycles()) {
      units[index].clear();
      ++result.dissolved;
      result.groups[index / 2].together = false;
    }
    return false;
  }

  /// The groups that lead to themselves through another unit, by the transitive closure of what comes before what.
  std::vector<size_t> onCycles() const {
    // Unit u < units.size() is a group, units.size() + id a node on its own.
    size_t groups = units.size(), all = groups + problem.size();
    std::vector<size_t> unitOf(problem.size());
    for (NodeId id = 0; id < problem.size(); ++id)
      unitOf[id] = groups + id;
    for (size_t group = 0; group < groups; ++group)
      for (NodeId id : units[group])
        unitOf[id] = group;
    std::vector<std::vector<bool>> before(all, std::vector<bool>(all));
    auto add = [&](size_t from, size_t to) {
      if (from != to)
        before[from][to] = true;
    };
    for (NodeId id = 0; id < problem.size(); ++id)
      for (NodeId pred : problem.preds[id])
        add(unitOf[pred], unitOf[id]);
    for (int kind : {0, 1}) {
      size_t previous = kinds.size();
      for (size_t index = 0; index < kinds.size(); ++index) {
        if (kinds[index] != kind)
          continue;
        if (previous != kinds.size() && !units[2 * previous + 1].empty() && !units[2 * index].empty())
          add(2 * previous + 1, 2 * index);
        previous = index;
      }
    }
    for (size_t via = 0; via < all; ++via)
      for (size_t from = 0; from < all; ++from)
        if (before[from][via])
          for (size_t to = 0; to < all; ++to)
            if (before[via][to])
              before[from][to] = true;
    std::vector<size_t> found;
    for (size_t group = 0; group < groups; ++group)
      if (!units[group].empty() && before[group][group])
        found.push_back(group);
    return found;
  }

  const Problem &problem;
  const Order &given;
  const Roles &roles;
  Set taken;
  std::vector<int> kinds;
  /// Launch and wait of each group; empty once dissolved.
  std::vector<std::vector<NodeId>> units;
  FsdpAnswer result;
};

RandomOptions shapeOf(Random &random) {
  RandomOptions shape;
  shape.nodes = static_cast<int32_t>(random.between(6, 40));
  shape.commLanes = static_cast<int32_t>(random.between(1, 2));
  shape.chanceOfStart = static_cast<int32_t>(random.between(20, 50));
  shape.chanceOfMergeable = 90;
  shape.mergeKinds = 2;
  shape.collectiveOrder = static_cast<CollectiveOrder>(random.below(3));
  return shape;
}

/// What stands right before and after collectives gets a role, most of the time.
Roles randomRoles(const Problem &problem, Random &random) {
  Roles roles(problem.size(), FsdpRole::None);
  auto give = [&](NodeId id, FsdpRole role) {
    if (problem.nodes[id].kind == NodeKind::Compute && random.percent(80))
      roles[id] = role;
  };
  for (NodeId id = 0; id < problem.size(); ++id) {
    const Node &node = problem.nodes[id];
    if (node.kind == NodeKind::Start)
      for (NodeId pred : problem.preds[id])
        give(pred, node.collective == CollectiveKind::AllGather ? FsdpRole::CopyIn : FsdpRole::ChunkCat);
    if (node.kind == NodeKind::Wait && node.start != kNone &&
        problem.nodes[node.start].collective == CollectiveKind::AllGather)
      for (NodeId succ : problem.succs[id])
        give(succ, FsdpRole::CopyOut);
  }
  return roles;
}

bool isContiguous(const std::vector<NodeId> &group, const std::vector<int32_t> &position) {
  for (size_t at = 1; at < group.size(); ++at)
    if (position[group[at]] != position[group[0]] + static_cast<int32_t>(at))
      return false;
  return true;
}

/// Neighbours of one kind, both of which hold together, take turns; nobody else has to. Returns how many do.
int checkTurns(const Problem &problem, const FsdpAnswer &order, const std::vector<int32_t> &position, uint64_t seed) {
  int inTurn = 0;
  int32_t previous[2] = {kNone, kNone};
  for (auto [index, group] : llvm::enumerate(order.groups)) {
    int32_t &before = previous[problem.nodes[group.start].collective == CollectiveKind::ReduceScatter];
    bool both = before != kNone && order.groups[before].waitTogether && group.launchTogether;
    EXPECT_EQ(group.after, both ? before : kNone) << "seed " << seed;
    if (both) {
      EXPECT_LT(position[order.groups[before].wait.back()], position[group.launch.front()]) << "seed " << seed;
      ++inTurn;
    }
    before = static_cast<int32_t>(index);
  }
  return inTurn;
}

// The groups and the order are those of the rule; the order is legal; groups that hold together are contiguous and take
// turns, each after the wait of the one before it of its kind.
TEST(OrderFsdp, IsTheRuleOnRandomPrograms) {
  int groups = 0, moved = 0, dissolved = 0, inTurn = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    Random random(seed);
    Problem problem = randomProblem(seed, shapeOf(random));
    Order order = random.percent(70) ? identityOrder(problem) : randomOrder(problem, random);
    Roles roles = randomRoles(problem, random);
    FsdpAnswer fast = solve(problem, order, roles), oracle = FsdpOracle(problem, order, roles).run();
    ASSERT_EQ(fast.groups.size(), oracle.groups.size()) << "seed " << seed;
    for (auto [a, b] : llvm::zip(fast.groups, oracle.groups)) {
      ASSERT_EQ(a.start, b.start) << "seed " << seed;
      ASSERT_EQ(a.launch, b.launch) << "seed " << seed;
      ASSERT_EQ(a.wait, b.wait) << "seed " << seed;
      ASSERT_EQ(a.together, b.together) << "seed " << seed;
    }
    ASSERT_EQ(fast.schedule.order, oracle.schedule.order) << "seed " << seed;
    ASSERT_EQ(fast.dissolved, oracle.dissolved) << "seed " << seed;
    ASSERT_EQ(verify(problem, fast.schedule, {}), "") << "seed " << seed;

    std::vector<int32_t> position(problem.size());
    for (auto [at, id] : llvm::enumerate(fast.schedule.order))
      position[id] = static_cast<int32_t>(at);
    for (const FsdpGroups &group : fast.groups) {
      ASSERT_EQ(group.together, group.launchTogether && group.waitTogether) << "seed " << seed;
      dissolved += !group.together;
      ASSERT_TRUE(!group.launchTogether || isContiguous(group.launch, position)) << "seed " << seed;
      ASSERT_TRUE(!group.waitTogether || isContiguous(group.wait, position)) << "seed " << seed;
    }
    inTurn += checkTurns(problem, fast, position, seed);
    groups += static_cast<int>(fast.groups.size());
    moved += fast.schedule.order != order;
  }
  EXPECT_GE(groups, 3000);
  EXPECT_GE(moved, 500);
  EXPECT_GE(dissolved, 50);
  EXPECT_GE(inTurn, 500);
}

/// Six gathers with copy-ins and copy-outs, one after the other. The first one also waits for an all-reduce of what its
/// copy-in makes: its launch leads out and back.
Problem sixGathers(Roles &roles) {
  Problem problem;
  problem.laneNames = {"compute", "dp"};
  auto add = [&](NodeKind kind, CollectiveKind collective, std::vector<NodeId> preds, FsdpRole role) {
    Node node;
    node.kind = kind;
    node.collective = collective;
    node.lane = kind == NodeKind::Start ? 1 : kComputeLane;
    node.cost = kind == NodeKind::Wait ? 0 : 10;
    node.start = kind == NodeKind::Wait ? preds.front() : kNone;
    problem.nodes.push_back(node);
    problem.preds.append(preds);
    problem.touches.append({});
    roles.push_back(role);
    return problem.size() - 1;
  };
  for (int index = 0; index < 6; ++index) {
    std::vector<NodeId> inputs = {add(NodeKind::Compute, CollectiveKind::Barrier, {}, FsdpRole::CopyIn)};
    if (index == 0) {
      NodeId reduce = add(NodeKind::Start, CollectiveKind::AllReduce, inputs, FsdpRole::None);
      inputs.push_back(add(NodeKind::Wait, CollectiveKind::AllReduce, {reduce}, FsdpRole::None));
    }
    NodeId gather = add(NodeKind::Start, CollectiveKind::AllGather, inputs, FsdpRole::None);
    NodeId wait = add(NodeKind::Wait, CollectiveKind::AllGather, {gather}, FsdpRole::None);
    NodeId copied = add(NodeKind::Compute, CollectiveKind::Barrier, {wait}, FsdpRole::CopyOut);
    add(NodeKind::Compute, CollectiveKind::Barrier, {copied}, FsdpRole::None);
  }
  problem.finalize();
  return problem;
}

// A launch on a cycle is dissolved, and no other group: the healthy ones behind it, and its own wait, hold together and
// take turns.
TEST(OrderFsdp, DissolvesOnlyWhatIsOnACycle) {
  Roles roles;
  Problem problem = sixGathers(roles);
  ASSERT_EQ(problem.validate(), "");
  FsdpAnswer order = solve(problem, identityOrder(problem), roles);
  EXPECT_EQ(verify(problem, order.schedule, {}), "");
  ASSERT_EQ(order.groups.size(), 6u);
  EXPECT_EQ(order.dissolved, 1);
  EXPECT_FALSE(order.groups[0].launchTogether);
  EXPECT_TRUE(order.groups[0].waitTogether);
  for (int32_t index = 1; index < 6; ++index) {
    EXPECT_TRUE(order.groups[index].together);
    EXPECT_EQ(order.groups[index].after, index - 1);
  }
}

// What is in order stays: nothing moves the second time where every group holds together and is found again. (In the
// new order another one may be the first to ask for a node.)
TEST(OrderFsdp, IsIdempotent) {
  int tried = 0;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    Random random(seed);
    Problem problem = randomProblem(seed, shapeOf(random));
    Roles roles = randomRoles(problem, random);
    FsdpAnswer once = solve(problem, identityOrder(problem), roles);
    if (once.dissolved > 0 || once.groups.empty())
      continue;
    FsdpAnswer twice = solve(problem, once.schedule.order, roles);
    auto same = [](const FsdpGroups &a, const FsdpGroups &b) {
      return a.start == b.start && a.launch == b.launch && a.wait == b.wait;
    };
    if (!std::equal(once.groups.begin(), once.groups.end(), twice.groups.begin(), twice.groups.end(), same))
      continue;
    ++tried;
    ASSERT_EQ(twice.schedule.order, once.schedule.order) << "seed " << seed;
  }
  EXPECT_GE(tried, 300);
}

} // namespace
