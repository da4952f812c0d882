//===- SpmdCheck.cpp - Comparison of the programs of several ranks ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The collectives of one communicator are compared entry by entry. What all members agree on becomes one node of a
// graph whose edges are the ranks' program orders: a cycle in it is a set of communicators that wait for each other.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/SpmdCheck.h"
#include "CommSched/Analysis/Locations.h"
#include "CommSched/Analysis/ScheduleSignature.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/Support/Format.h"
#include <numeric>
#include <set>

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

namespace {

/// One replica group of a group symbol.
using Communicator = std::pair<std::string, int64_t>;

/// A collective as the members of its communicator see it.
struct Entry {
  std::string text, where;
};

/// What one rank does in one function.
struct RankSequence {
  int64_t rank;
  std::map<Communicator, std::vector<Entry>> entries;
  /// In program order: communicator and place within it.
  std::vector<std::pair<Communicator, size_t>> order;
};

/// The group of a collective or a hybrid; null for other operations.
FlatSymbolRefAttr groupOf(Operation *op) {
  if (auto start = dyn_cast<CollectiveOpInterface>(op))
    return start.getGroupAttr();
  return op->getAttrOfType<FlatSymbolRefAttr>(CommDialect::kHybridAttrName);
}

/// "scf.for > scf.if else > " for an operation inside of these.
std::string describeNesting(Operation *op, Operation *function) {
  std::string path;
  for (Region *region = op->getParentRegion(); region->getParentOp() != function;
       region = region->getParentOp()->getParentRegion()) {
    std::string name = region->getParentOp()->getName().getStringRef().str();
    if (region->getRegionNumber() > 0)
      name += "#" + std::to_string(region->getRegionNumber());
    path = name + " > " + path;
  }
  return path;
}

/// The replica group of `rank`, or -1 if the group leaves it out.
int64_t replicaGroupOf(GroupOp group, int64_t rank) {
  ReplicaGroupsInterface groups = group.getGroups();
  for (int64_t index = 0; index < groups.getNumGroups(); ++index)
    for (int64_t place = 0; place < groups.getGroupSize(); ++place)
      if (groups.getRank(index, place) == rank)
        return index;
  return -1;
}

class SpmdChecker {
public:
  SpmdChecker(ArrayRef<RankProgram> programs, llvm::raw_ostream &os) : programs(programs), os(os) {}

  FailureOr<SpmdSummary> run() {
    std::map<std::string, std::vector<std::pair<int64_t, FunctionOpInterface>>> functions;
    for (RankProgram program : programs) {
      compareGroups(program);
      program.module.walk([&](FunctionOpInterface function) {
        if (!describeCollectives(function).empty())
          functions[function.getName().str()].push_back({program.rank, function});
      });
    }
    for (auto &[name, copies] : functions)
      compareFunction(name, copies);
    if (agree)
      return summary;
    return failure();
  }

private:
  /// Groups of one name are one partition.
  void compareGroups(RankProgram program) {
    program.module.walk([&](GroupOp group) {
      auto [known, isNew] = partitions.try_emplace(group.getSymName().str(), program.rank, group);
      if (isNew || known->second.second.getReplicaGroups() == group.getReplicaGroups())
        return;
      agree = false;
      os << "group @" << group.getSymName() << " has other ranks: " << known->second.second.getReplicaGroups()
         << " on rank " << known->second.first << " (" << locationText(known->second.second.getLoc()) << "), "
         << group.getReplicaGroups() << " on rank " << program.rank << " (" << locationText(group.getLoc()) << ")\n";
    });
  }

  RankSequence readSequence(int64_t rank, FunctionOpInterface function) {
    RankSequence sequence;
    sequence.rank = rank;
    function->walk<WalkOrder::PreOrder>([&](Operation *op) {
      FlatSymbolRefAttr group = groupOf(op);
      std::string text = group ? describeCollective(op) : "";
      if (text.empty())
        return;
      auto partition = partitions.find(group.getValue().str());
      int64_t index = partition == partitions.end() ? 0 : replicaGroupOf(partition->second.second, rank);
      if (index < 0) {
        agree = false;
        os << "rank " << rank << " issues a collective on @" << group.getValue() << ", which leaves it out ("
           << locationText(op->getLoc()) << ")\n";
      }
      Communicator communicator(group.getValue().str(), index);
      std::vector<Entry> &entries = sequence.entries[communicator];
      sequence.order.push_back({communicator, entries.size()});
      entries.push_back({describeNesting(op, function) + text, locationText(op->getLoc())});
    });
    return sequence;
  }

  void compareFunction(const std::string &name, ArrayRef<std::pair<int64_t, FunctionOpInterface>> copies) {
    std::vector<RankSequence> ranks;
    for (auto [rank, function] : copies)
      ranks.push_back(readSequence(rank, function));
    ++summary.functions;
    bool same = true;
    std::map<Communicator, const RankSequence *> first;
    for (const RankSequence &sequence : ranks)
      for (const auto &[communicator, entries] : sequence.entries) {
        auto [known, isNew] = first.try_emplace(communicator, &sequence);
        summary.groups += isNew;
        summary.collectives += isNew ? entries.size() : 0;
      }
    // A member that issues nothing at all disagrees, too.
    for (const auto &[communicator, reference] : first)
      for (const RankSequence &sequence : ranks)
        if (&sequence != reference && isMember(communicator, sequence.rank))
          same &= compareEntries(name, communicator, *reference, sequence);
    agree &= same && checkOrders(name, ranks);
  }

  bool isMember(const Communicator &communicator, int64_t rank) {
    auto partition = partitions.find(communicator.first);
    return partition == partitions.end() || replicaGroupOf(partition->second.second, rank) == communicator.second;
  }

  /// Prints the first difference with two entries before and behind it.
  bool compareEntries(StringRef function, const Communicator &communicator, const RankSequence &left,
                      const RankSequence &right) {
    static const std::vector<Entry> nothing;
    auto entriesOf = [&](const RankSequence &sequence) -> const std::vector<Entry> & {
      auto found = sequence.entries.find(communicator);
      return found == sequence.entries.end() ? nothing : found->second;
    };
    const std::vector<Entry> &a = entriesOf(left), &b = entriesOf(right);
    size_t at = 0;
    while (at < std::min(a.size(), b.size()) && a[at].text == b[at].text)
      ++at;
    if (at == a.size() && at == b.size())
      return true;
    os << "'" << function << "': ranks " << left.rank << " and " << right.rank << " disagree on @" << communicator.first
       << " from its collective " << at + 1 << " on\n";
    auto textOf = [](const std::vector<Entry> &entries, size_t index) {
      return index < entries.size() ? entries[index].text : std::string("nothing");
    };
    auto whereOf = [](const std::vector<Entry> &entries, size_t index) {
      return index < entries.size() ? entries[index].where : std::string();
    };
    size_t from = at < 2 ? 0 : at - 2, to = std::min(std::max(a.size(), b.size()), at + 3), width = 8;
    for (size_t index = from; index < to; ++index)
      width = std::max({width, textOf(a, index).size(), whereOf(a, index).size()});
    auto line = [&](std::string number, std::string one, const std::string &two) {
      one.resize(width, ' ');
      os << llvm::right_justify(number, 8) << "  " << one << "  " << two << "\n";
    };
    line("", "rank " + std::to_string(left.rank), "rank " + std::to_string(right.rank));
    for (size_t index = from; index < to; ++index) {
      bool differ = textOf(a, index) != textOf(b, index);
      line((differ ? "> " : "") + std::to_string(index + 1), textOf(a, index), textOf(b, index));
      if (differ)
        line("", whereOf(a, index), whereOf(b, index));
    }
    return false;
  }

  /// Plays all ranks: a collective is over once all members that are here have come to it. Prints where they stand if
  /// that ends too early.
  bool checkOrders(StringRef function, ArrayRef<RankSequence> ranks) {
    std::map<std::pair<Communicator, size_t>, size_t> members;
    std::map<std::pair<Communicator, size_t>, SmallVector<size_t>> arrived;
    for (const RankSequence &sequence : ranks)
      for (const auto &step : sequence.order)
        ++members[step];
    std::vector<size_t> next(ranks.size(), 0), running(ranks.size());
    std::iota(running.begin(), running.end(), 0);
    while (!running.empty()) {
      size_t rank = running.back();
      running.pop_back();
      if (next[rank] == ranks[rank].order.size())
        continue;
      const auto &step = ranks[rank].order[next[rank]];
      SmallVector<size_t> &there = arrived[step];
      there.push_back(rank);
      if (there.size() < members[step])
        continue;
      for (size_t member : there) {
        ++next[member];
        running.push_back(member);
      }
    }
    bool done = true;
    for (auto [rank, place] : llvm::zip_equal(ranks, next)) {
      if (place == rank.order.size())
        continue;
      if (done)
        os << "'" << function << "': communicators wait for each other, since ranks issue them in different orders\n";
      done = false;
      const auto &[communicator, index] = rank.order[place];
      const Entry &entry = rank.entries.find(communicator)->second[index];
      os << "  rank " << rank.rank << " waits in " << entry.text << ", number " << index + 1 << " of its group ("
         << entry.where << ")\n";
    }
    return done;
  }

  ArrayRef<RankProgram> programs;
  llvm::raw_ostream &os;
  /// By name: the first rank that has the group, and the group.
  std::map<std::string, std::pair<int64_t, GroupOp>> partitions;
  SpmdSummary summary;
  bool agree = true;
};

} // namespace

FailureOr<SpmdSummary> commsched::checkSpmd(ArrayRef<RankProgram> programs, llvm::raw_ostream &os) {
  return SpmdChecker(programs, os).run();
}

std::vector<CollectiveNote> commsched::noteCollectives(const BlockNodes &nodes) {
  std::vector<CollectiveNote> notes;
  for (NodeId id = 0; id < nodes.size(); ++id) {
    std::set<std::string> inside;
    nodes[id]->walk<WalkOrder::PreOrder>([&](Operation *op) {
      FlatSymbolRefAttr group = groupOf(op);
      std::string what = group ? describeCollective(op) : "";
      if (what.empty())
        return;
      std::string name = group.getValue().str();
      if (op != nodes[id]) {
        if (!inside.insert(name).second)
          return;
        what = nodes[id]->getName().getStringRef().str() + " with collectives on @" + name;
      }
      notes.push_back({id, name, what, locationText(nodes[id]->getLoc())});
    });
  }
  return notes;
}

std::map<std::string, std::vector<std::vector<int64_t>>> commsched::ranksOfGroups(ModuleOp module) {
  std::map<std::string, std::vector<std::vector<int64_t>>> result;
  module.walk([&](GroupOp group) {
    ReplicaGroupsInterface partition = group.getGroups();
    std::vector<std::vector<int64_t>> &groups = result[group.getSymName().str()];
    groups.assign(partition.getNumGroups(), {});
    for (int64_t index = 0; index < partition.getNumGroups(); ++index) {
      std::vector<int64_t> &runs = groups[index];
      for (int64_t place = 0; place < partition.getGroupSize(); ++place) {
        int64_t rank = partition.getRank(index, place);
        int64_t *run = runs.empty() ? nullptr : &runs[runs.size() - 3];
        if (run && run[2] == 1 && rank > run[0])
          run[1] = rank - run[0], run[2] = 2;
        else if (run && run[2] > 1 && rank == run[0] + run[1] * run[2])
          ++run[2];
        else
          runs.insert(runs.end(), {rank, 1, 1});
      }
    }
  });
  return result;
}
