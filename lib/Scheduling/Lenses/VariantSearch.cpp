//===- VariantSearch.cpp - Choose how collectives are carried out ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Without contention the cheapest way of each collective is the best one. With contention one way after the other is
// tried, first everywhere, then for single collectives, and kept if the order becomes shorter.
//
//===------------------------------------------------------------------------------------------===//

#include "VariantSearch.h"
#include "CommSched/Scheduling/Check/ScheduleVerifier.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "Solver/Moves/ContendedOrder.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

/// Choices and order are improved in turns, at most this many times from one beginning.
static constexpr int32_t kTurns = 3;
/// Share of the effort, in percent, for the search that begins without a choice.
static constexpr int64_t kFirstPercent = 60;

VariantSearch::VariantSearch(const Problem &problem, const ScheduleOptions &options, Bytes limit, Schedule given,
                             InnerSolver inner)
    : problem(problem), options(options), limit(limit), inner(inner), answer(std::move(given)),
      carried(answer.expanded.problem), order(answer.order) {
  findSites();
}

void VariantSearch::findSites() {
  std::vector<std::pair<NodeId, NodeId>> starts;
  for (NodeId start = 0; start < problem.size(); ++start)
    if (problem.nodes[start].variants != kNone) {
      int32_t bucket = answer.expanded.bucketOf[answer.imageOf(start)];
      if (bucket == kNone || answer.buckets[bucket].members.front() == start)
        starts.emplace_back(answer.imageOf(start), start);
    }
  for (auto [node, start] : starts) {
    Site site{node, start, {}, 0};
    site.ways.push_back({kNone, carried.nodes[node].cost, carried.nodes[node].demand});
    for (const VariantOption &option : variantsOf(problem, answer, node)) {
      Node with = carried.nodes[node];
      with.demand = kNone;
      if (carried.hasContention())
        carried.setDemand(with, option.demand);
      site.ways.push_back({option.name, option.cost, with.demand});
    }
    if (site.ways.size() > 1)
      sites.push_back(std::move(site));
  }
}

void VariantSearch::choose(Site &site, size_t way) {
  site.chosen = way;
  carried.nodes[site.node].cost = site.ways[way].cost;
  carried.nodes[site.node].demand = site.ways[way].demand;
}

void VariantSearch::chooseAll(llvm::ArrayRef<size_t> ways) {
  for (auto [site, way] : llvm::zip_equal(sites, ways))
    choose(site, way);
}

std::vector<size_t> VariantSearch::chosen() const {
  std::vector<size_t> ways;
  for (const Site &site : sites)
    ways.push_back(site.chosen);
  return ways;
}

void VariantSearch::chooseCheapest() {
  for (Site &site : sites)
    choose(site, std::min_element(site.ways.begin(), site.ways.end(), [](const Site::Way &a, const Site::Way &b) {
                   return a.cost < b.cost;
                 }) - site.ways.begin());
  spent += problem.size();
}

void VariantSearch::chooseEverywhere(int32_t name) {
  for (Site &site : sites)
    for (auto [index, way] : llvm::enumerate(site.ways))
      if (way.name == name)
        choose(site, index);
}

/// Chooses one way for all collectives that have it, if that makes the order shorter.
void VariantSearch::tryEverywhere(int32_t name) {
  Ns before = makespanOf(carried, order);
  std::vector<size_t> ways = chosen();
  chooseEverywhere(name);
  spent += 2 * problem.size() / kContendedPerStep;
  if (makespanOf(carried, order) >= before)
    chooseAll(ways);
}

/// Tries all ways of one collective after the other, in the order in which they are issued. Returns whether any choice
/// has changed.
bool VariantSearch::descend(int64_t budget) {
  std::vector<int32_t> position(carried.size());
  for (auto [at, node] : llvm::enumerate(order))
    position[node] = static_cast<int32_t>(at);
  std::vector<Site *> inOrder;
  for (Site &site : sites)
    inOrder.push_back(&site);
  llvm::sort(inOrder, [&](const Site *a, const Site *b) { return position[a->node] < position[b->node]; });
  ContendedOrder played(carried);
  played.place(order, 0);
  bool changed = false;
  int64_t nodes = problem.size();
  for (Site *site : inOrder) {
    if (spent + nodes / kContendedPerStep >= budget)
      break;
    size_t given = site->chosen, best = given;
    Ns shortest = played.makespan();
    int32_t at = position[site->node];
    for (size_t way = 0; way < site->ways.size(); ++way) {
      if (way == given)
        continue;
      choose(*site, way);
      Ns found = played.play(at, at + 1, [&](int32_t place) { return order[place]; }, shortest, nodes, site->node);
      if (found < shortest) {
        shortest = found;
        best = way;
      }
    }
    choose(*site, best);
    if (best == given)
      continue;
    changed = true;
    played.place(order, at);
    nodes += problem.size() - at;
  }
  spent += nodes / kContendedPerStep;
  return changed;
}

void VariantSearch::chooseContended(int64_t budget) {
  while (spent < budget && descend(budget))
    ;
}

/// Searches for a shorter order of the collectives as they are chosen.
void VariantSearch::improveOrder(int64_t effort) {
  ScheduleOptions silent = options;
  silent.observers = {};
  silent.bucketing = false;
  silent.memory = {0, limit};
  silent.effort = effort;
  Schedule current;
  current.order = order;
  silent.known = {&current};
  Schedule found = inner(carried, silent);
  spent += found.steps;
  if (firstDefect.empty())
    firstDefect = std::move(found.defect);
  order = std::move(found.order);
}

/// Makes what is tried the answer if it is shorter and the verifier agrees.
void VariantSearch::offer() {
  Schedule tried = answer;
  tried.order = order;
  tried.makespan = makespanOf(carried, order);
  if (tried.makespan >= answer.makespan)
    return;
  tried.peak = peakOf(carried, order);
  tried.claims = {makespanOf(carried, order), tried.peak};
  tried.variants.clear();
  for (const Site &site : sites)
    if (site.chosen > 0)
      tried.variants.push_back({site.start, site.ways[site.chosen].name});
  llvm::Expected<ExpandedProblem> expanded = expandBuckets(problem, tried.buckets);
  ScheduleRequirements requirements;
  requirements.peakLimit = limit;
  requirements.collectiveOrder = options.collectiveOrder;
  std::string why;
  if (!expanded) {
    why = llvm::toString(expanded.takeError());
  } else {
    tried.expanded = std::move(*expanded);
    carryOutVariants(problem, tried);
    why = verify(problem, tried, requirements);
  }
  spent += problem.size();
  if (why.empty())
    answer = std::move(tried);
  else if (firstDefect.empty())
    firstDefect = std::move(why);
}

/// Improves choices and order in turns until nothing changes or about `budget` steps are spent in all.
void VariantSearch::improve(int64_t budget) {
  for (int32_t turn = 0; turn < kTurns && spent < budget; ++turn) {
    std::vector<size_t> before = chosen();
    if (carried.hasContention())
      chooseContended(spent + (budget - spent) / 2);
    else
      chooseCheapest();
    offer();
    bool isNone = llvm::all_of(sites, [](const Site &site) { return site.chosen == 0; });
    if (chosen() == before && (turn > 0 || isNone))
      return;
    improveOrder((budget - spent) / 2);
    offer();
  }
}

void VariantSearch::run(int64_t effort) {
  if (sites.empty())
    return;
  std::vector<size_t> none = chosen();
  auto names = static_cast<int32_t>(problem.variantNames.size());
  if (carried.hasContention())
    for (int32_t name = 0; name < names; ++name)
      tryEverywhere(name);
  if (effort == 0) {
    if (!carried.hasContention())
      chooseCheapest();
    return offer();
  }
  improve(mulDiv(effort, kFirstPercent, 100));
  // With contention there are valleys: a collective that leaves its resources to others makes another choice pay.
  for (int32_t name = 0; carried.hasContention() && name < names; ++name) {
    chooseAll(none);
    order = answer.order;
    chooseEverywhere(name);
    improve(spent + (effort - spent) / (names - name));
  }
}
