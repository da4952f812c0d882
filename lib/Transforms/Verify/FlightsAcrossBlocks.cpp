//===- FlightsAcrossBlocks.cpp - Collectives in flight where another block begins -------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A forward analysis to a fixed point. What is in flight at the end of a block is in flight where its successors begin,
// under the names that are visible there: values that dominate the successor, and its arguments for the operands of the
// branch. A name of an earlier iteration is none in the next one, where it stands for another value.
//
//===------------------------------------------------------------------------------------------===//

#include "FlightsAcrossBlocks.h"
#include "MemoryRanges.h"
#include "mlir/IR/Dominance.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

namespace {

/// Memory in flight, by a name that is visible: a value, or constant bytes of a value whose view has no name any more.
struct NamedMemory {
  /// Null if only the bytes are known.
  Value value;
  Value root;
  std::optional<ByteRange> bytes;
  bool isWritten = false;

  bool operator==(const NamedMemory &other) const {
    return value == other.value && root == other.root && isWritten == other.isWritten &&
           bytes.has_value() == other.bytes.has_value() &&
           (!bytes || (bytes->begin == other.bytes->begin && bytes->end == other.bytes->end));
  }
};

NamedMemory nameOf(Value value, bool isWritten) { return {value, findRoot(value), findRange(value), isWritten}; }

/// The names of what a collective that began in another block has in flight.
struct Flight {
  llvm::SmallSetVector<Value, 2> futures;
  SmallVector<NamedMemory, 2> memory;
};

/// Indexed by start, in the order in which they were found.
using Flights = llvm::MapVector<Operation *, Flight>;

/// Adds what is not there. Returns whether there was something.
bool join(Flights &to, const Flights &from) {
  bool changes = false;
  for (const auto &[start, flight] : from) {
    Flight &known = to[start];
    for (Value future : flight.futures)
      changes |= known.futures.insert(future);
    for (const NamedMemory &name : flight.memory)
      if (!llvm::is_contained(known.memory, name)) {
        known.memory.push_back(name);
        changes = true;
      }
  }
  return changes;
}

/// Returns true if an access to `operand` touches memory in flight. Without constant bytes of both, only a whole memref
/// does.
bool touches(Value operand, const NamedMemory &name) {
  if (findRoot(operand) != name.root)
    return false;
  if (operand == name.value || operand == name.root || name.value == name.root)
    return true;
  std::optional<ByteRange> range = findRange(operand);
  return range && name.bytes && range->base == name.bytes->base && range->begin < name.bytes->end &&
         name.bytes->begin < range->end;
}

/// The collectives in flight while one block is visited.
class BlockFlights {
public:
  explicit BlockFlights(Flights flights) { setTracked(std::move(flights)); }

  /// Begins a collective of this block. Where in the block what it has in flight is accessed, FlightChecker says.
  void begin(CollectiveOpInterface start) { own[start.getCollectiveFuture()] = start; }

  /// Ends what a future has in flight.
  void end(Value future) {
    own.erase(future);
    for (Operation *start : byFuture.lookup(future))
      ended.insert(start);
  }

  /// Tracks the collectives of this block that futures belong to as those of other blocks.
  void track(ArrayRef<Value> futures) {
    Flights all;
    for (Value future : futures)
      if (auto known = own.find(future); known != own.end()) {
        all[known->second] = flightOf(known->second);
        own.erase(known);
      }
    if (all.empty())
      return;
    join(all, getTracked());
    setTracked(std::move(all));
  }

  /// Calls `visit` with each name of memory in flight that an access to `operand` touches.
  void forEachTouched(Value operand, llvm::function_ref<void(Operation *, const NamedMemory &)> visit) const {
    for (Operation *start : byRoot.lookup(findRoot(operand)))
      if (!ended.contains(start))
        for (const NamedMemory &name : tracked.find(start)->second.memory)
          if (touches(operand, name))
            visit(start, name);
  }

  bool hasTracked() const { return tracked.size() > ended.size(); }

  Flights getTracked() const {
    Flights result = tracked;
    result.remove_if([&](const auto &entry) { return ended.contains(entry.first); });
    return result;
  }

  void setTracked(Flights flights) {
    tracked = std::move(flights);
    ended.clear();
    byFuture.clear();
    byRoot.clear();
    for (auto &[start, flight] : tracked) {
      for (Value future : flight.futures)
        byFuture[future].insert(start);
      for (const NamedMemory &name : flight.memory)
        byRoot[name.root].insert(start);
    }
  }

  /// All that is in flight at the end of the block.
  Flights atEnd() const {
    Flights result = getTracked();
    for (auto &[future, start] : own) {
      Flights one;
      one[start] = flightOf(start);
      join(result, one);
    }
    return result;
  }

private:
  static Flight flightOf(Operation *start) {
    auto collective = cast<CollectiveOpInterface>(start);
    Flight flight;
    flight.futures.insert(collective.getCollectiveFuture());
    auto add = [&](Value value, bool isWritten) {
      if (isa<BaseMemRefType>(value.getType()))
        flight.memory.push_back(nameOf(value, isWritten));
    };
    for (Value input : collective.getCollectiveInputs())
      add(input, /*isWritten=*/false);
    for (Value dest : collective.getCollectiveDests())
      add(dest, /*isWritten=*/true);
    return flight;
  }

  /// Those of other blocks, and those of this block that an operation with regions has been given.
  Flights tracked;
  llvm::DenseSet<Operation *> ended;
  llvm::DenseMap<Value, llvm::SmallSetVector<Operation *, 1>> byFuture, byRoot;
  /// The others of this block, indexed by future.
  llvm::MapVector<Value, Operation *> own;
};

class FlightAnalysis {
public:
  explicit FlightAnalysis(FunctionOpInterface function) : dominance(function) {
    function->walk([&](Operation *inner) {
      if (!isa<CollectiveOpInterface, WaitOp>(inner))
        return;
      for (Operation *op = inner->getParentOp(); op && communicating.insert(op).second; op = op->getParentOp())
        ;
    });
  }

  LogicalResult run(Region &body) {
    Entries entries;
    entries[&body.front()];
    propagate(entries, nullptr, nullptr);
    return result;
  }

private:
  /// Indexed by block: what is in flight at its beginning.
  using Entries = llvm::MapVector<Block *, Flights>;

  /// Visits blocks until nothing changes. `around`: the operation whose regions they are, null for a function's body;
  /// `after`: gets what is in flight behind it.
  void propagate(Entries &entries, RegionBranchOpInterface around, Flights *after) {
    llvm::SetVector<Block *> worklist;
    for (auto &[block, flights] : entries)
      worklist.insert(block);
    while (!worklist.empty()) {
      Block *block = worklist.front();
      worklist.erase(worklist.begin());
      Flights end = visit(*block, entries[block]);
      auto enter = [&](Block *successor, ValueRange passed, ValueRange arguments) {
        bool isNew = !entries.contains(successor);
        if (join(entries[successor], renamed(end, passed, arguments, successor)) || isNew)
          worklist.insert(successor);
      };
      Operation *terminator = block->getTerminator();
      if (auto branch = dyn_cast<BranchOpInterface>(terminator)) {
        for (auto [index, successor] : llvm::enumerate(terminator->getSuccessors())) {
          SuccessorOperands operands = branch.getSuccessorOperands(index);
          size_t produced = operands.getProducedOperandCount();
          enter(successor, operands.getForwardedOperands(), ValueRange(successor->getArguments()).drop_front(produced));
        }
      } else if (auto leaving = dyn_cast<RegionBranchTerminatorOpInterface>(terminator); leaving && around) {
        SmallVector<RegionSuccessor> successors;
        around.getSuccessorRegions(RegionBranchPoint(leaving), successors);
        for (RegionSuccessor &successor : successors) {
          OperandRange passed = leaving.getSuccessorOperands(successor);
          if (Region *region = successor.getSuccessor())
            enter(&region->front(), passed, successor.getSuccessorInputs());
          else
            join(*after, renamed(end, passed, successor.getSuccessorInputs(), nullptr, around));
        }
      }
    }
  }

  /// What is in flight where `successor` begins, or behind the operation `around`.
  Flights renamed(const Flights &flights, ValueRange passed, ValueRange arguments, Block *successor,
                  Operation *around = nullptr) {
    auto isVisible = [&](Value value) {
      if (around)
        return !around->isAncestor(value.getParentBlock()->getParentOp());
      return value.getParentBlock() != successor && dominance.properlyDominates(value, &successor->front());
    };
    Flights result;
    for (const auto &[start, flight] : flights) {
      Flight next;
      for (Value future : flight.futures)
        if (isVisible(future))
          next.futures.insert(future);
      for (const NamedMemory &name : flight.memory)
        if (name.value && isVisible(name.value))
          next.memory.push_back(name);
        else if (name.bytes && isVisible(name.root))
          next.memory.push_back({Value(), name.root, name.bytes, name.isWritten});
      for (auto [value, argument] : llvm::zip(passed, arguments)) {
        if (flight.futures.contains(value))
          next.futures.insert(argument);
        for (const NamedMemory &name : flight.memory)
          if (name.value && (value == name.value || (name.value == name.root && findRoot(value) == name.root)))
            next.memory.push_back(nameOf(argument, name.isWritten));
      }
      if (!next.memory.empty())
        result[start] = std::move(next);
    }
    return result;
  }

  /// Returns what is in flight at the end of a block.
  Flights visit(Block &block, Flights entry) {
    BlockFlights flights(std::move(entry));
    for (Operation &op : block) {
      if (auto wait = dyn_cast<WaitOp>(op)) {
        flights.end(wait.getFuture());
        continue;
      }
      for (OpOperand &operand : op.getOpOperands())
        check(operand, flights);
      if (auto start = dyn_cast<CollectiveOpInterface>(op))
        flights.begin(start);
      else if (auto branch = dyn_cast<RegionBranchOpInterface>(op))
        visitRegions(branch, flights);
      else if (!op.hasTrait<OpTrait::IsTerminator>())
        endAll(op, flights);
    }
    return flights.atEnd();
  }

  /// Ends what an operation may wait for.
  static void endAll(Operation &op, BlockFlights &flights) {
    for (Value operand : op.getOperands())
      if (isa<FutureType>(operand.getType()))
        flights.end(operand);
    op.walk([&](WaitOp wait) { flights.end(wait.getFuture()); });
  }

  void visitRegions(RegionBranchOpInterface branch, BlockFlights &flights) {
    SmallVector<Value> futures(branch->getOperands());
    if (communicating.contains(branch))
      branch->walk([&](WaitOp wait) { futures.push_back(wait.getFuture()); });
    flights.track(futures);
    if (!communicating.contains(branch) && !flights.hasTracked())
      return;
    Entries entries;
    Flights before = flights.getTracked(), after;
    SmallVector<RegionSuccessor> successors;
    branch.getSuccessorRegions(RegionBranchPoint::parent(), successors);
    for (RegionSuccessor &successor : successors) {
      OperandRange passed = branch.getEntrySuccessorOperands(successor);
      ValueRange arguments = successor.getSuccessorInputs();
      if (Region *region = successor.getSuccessor())
        join(entries[&region->front()], renamed(before, passed, arguments, &region->front()));
      else
        join(after, renamed(before, passed, arguments, nullptr, branch));
    }
    propagate(entries, branch, &after);
    flights.setTracked(std::move(after));
  }

  void check(OpOperand &operand, const BlockFlights &flights) {
    Operation *op = operand.getOwner();
    if (!isa<BaseMemRefType>(operand.get().getType()) || isa<ViewLikeOpInterface>(op))
      return;
    MemoryAccess access = getAccess(operand);
    if (auto start = dyn_cast<CollectiveOpInterface>(op))
      access.writes |= llvm::is_contained(start.getCollectiveDests(), operand.get());
    flights.forEachTouched(operand.get(), [&](Operation *start, const NamedMemory &name) {
      bool isWrong = access.writes || (access.reads && name.isWritten);
      if (!isWrong || !reported.insert(op).second)
        return;
      result = failure();
      InFlightDiagnostic diagnostic = op->emitOpError() << (access.writes ? "writes" : "reads") << " operand #"
                                                        << operand.getOperandNumber() << ", which is in flight";
      diagnostic.attachNote(start->getLoc())
          << "the collective is started here, in another block or iteration, and has no certain wait in between";
    });
  }

  DominanceInfo dominance;
  /// The operations that have collectives or waits in their regions.
  llvm::SmallPtrSet<Operation *, 8> communicating;
  llvm::SmallPtrSet<Operation *, 4> reported;
  LogicalResult result = success();
};

} // namespace

LogicalResult commsched::checkFlightsAcrossBlocks(FunctionOpInterface function) {
  if (function.isExternal())
    return success();
  FlightAnalysis analysis(function);
  for (Region &region : function->getRegions())
    if (!region.empty() && failed(analysis.run(region)))
      return failure();
  return success();
}
