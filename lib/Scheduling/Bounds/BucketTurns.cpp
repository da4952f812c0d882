//===- BucketTurns.cpp - How often the buckets of two keys take turns -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Lemma 22 of Bounds.md. A table over the bytes that have been gathered and those that have been reduced holds,
// for each number of buckets, how far the computations can have come. Bytes are counted in cells; where members do not
// fit the cells, all is rounded in favour of few buckets.
//
//===------------------------------------------------------------------------------------------===//

#include "BucketTurns.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <numeric>

using namespace commsched;

/// Limit on the cells of one key: a table then has less than ten thousand entries.
static constexpr Bytes kTurnCells = 96;
/// Limit on the words that the sets of members take: a tenth of a second. Larger problems go without the lemma.
static constexpr int64_t kMaxWords = int64_t(1) << 21;
/// Idle time is rounded up to this part of a latency.
static constexpr Ns kGrains = 8;
/// Limit on the tables that are filled, each in about ten milliseconds: then more idle time stands for less.
static constexpr size_t kMaxTables = 32;
/// Idle time of more latencies than these is not looked at: then a lane has time for many buckets.
static constexpr int64_t kMostIdle = 256;
/// A state that cannot be.
static constexpr Ns kNever = INT64_MIN / 2;

namespace {

/// For each member, the compute work that the member makes necessary; and as much of it as no other one does, ns.
struct MemberLoads {
  std::vector<Ns> all, own;
};

/// What precedes the starts of members on the compute lane, or what follows their waits.
MemberLoads loadsOf(const Problem &problem, const BoundCosts &costs, llvm::ArrayRef<NodeId> members, bool precede) {
  const size_t words = (members.size() + 63) / 64;
  std::vector<uint64_t> rows(words * problem.nodes.size(), 0);
  auto row = [&](NodeId id) { return llvm::MutableArrayRef<uint64_t>(rows).slice(words * id, words); };
  for (auto [index, id] : llvm::enumerate(members))
    row(precede ? id : problem.members[id].wait)[index / 64] |= uint64_t(1) << (index % 64);
  MemberLoads loads = {std::vector<Ns>(members.size(), 0), std::vector<Ns>(members.size(), 0)};
  for (NodeId position = 0; position < problem.size(); ++position) {
    NodeId id = precede ? problem.size() - 1 - position : position;
    llvm::MutableArrayRef<uint64_t> mine = row(id);
    for (NodeId next : precede ? problem.succs[id] : problem.preds[id])
      for (size_t word = 0; word < words; ++word)
        mine[word] |= row(next)[word];
    if (costs.compute[id] == 0)
      continue;
    size_t users = 0, last = 0;
    for (size_t word = 0; word < words; ++word)
      for (uint64_t bits = mine[word]; bits != 0; bits &= bits - 1) {
        last = word * 64 + llvm::countr_zero(bits);
        loads.all[last] += costs.compute[id];
        ++users;
      }
    if (users == 1)
      loads.own[last] += costs.compute[id];
  }
  return loads;
}

/// The least compute work that any members of so many bytes make necessary together.
class LeastLoad {
public:
  LeastLoad(const Problem &problem, llvm::ArrayRef<NodeId> members, const MemberLoads &loads) {
    for (auto [index, id] : llvm::enumerate(members)) {
      Bytes bytes = problem.nodes[id].bytes;
      shared.push_back({loads.all[index] - loads.own[index], bytes});
      owned.push_back({loads.own[index], bytes});
    }
    llvm::sort(shared);
    llvm::sort(owned, [](const Part &a, const Part &b) {
      int rates = compareProducts(a.first, b.second, b.first, a.second);
      return rates != 0 ? rates < 0 : a < b;
    });
  }

  /// One of the members has at least this load beside its own one; the own ones make a fractional knapsack.
  Ns of(Bytes bytes) const {
    Ns result = 0;
    Bytes covered = 0;
    for (auto [load, size] : shared) {
      if (covered >= bytes)
        break;
      covered += size;
      result = load;
    }
    for (auto [load, size] : owned) {
      Bytes part = std::min(size, bytes);
      bytes -= part;
      result += mulDiv(load, part, size);
    }
    return result;
  }

private:
  using Part = std::pair<Ns, Bytes>;
  std::vector<Part> shared, owned;
};

Bytes bytesOf(const Problem &problem, llvm::ArrayRef<NodeId> members) {
  Bytes total = 0;
  for (NodeId id : members)
    total += problem.nodes[id].bytes;
  return total;
}

} // namespace

BucketTurns::Cells BucketTurns::cellsOf(const TurnKey &key, Side side) const {
  Cells cells;
  const Bytes total = bytesOf(problem, key.members);
  Bytes common = 0;
  for (NodeId id : key.members)
    common = std::gcd(common, problem.nodes[id].bytes);
  cells.isExact = common > 0 && total / common <= kTurnCells;
  if (total > 0) {
    cells.unit = cells.isExact ? common : (total + kTurnCells - 1) / kTurnCells;
    cells.count = static_cast<int32_t>((total + cells.unit - 1) / cells.unit);
  }
  LeastLoad load(problem, key.members, loadsOf(problem, costs, key.members, side == Side::Sinks));
  for (int32_t count = 0; count <= cells.count; ++count) {
    // Of all numbers of bytes that fill so many cells, the last one in part: the most and the fewest.
    Bytes most = std::min(total, count * cells.unit);
    Bytes fewest = cells.isExact || count == 0 ? most : (count - 1) * cells.unit + 1;
    cells.least.push_back(mulDiv(fewest, key.cost, key.bytes));
    cells.most.push_back(mulDivUp(most, key.cost, key.bytes));
    cells.computed.push_back(side == Side::Sinks ? load.of(fewest) : allCompute - load.of(total - most));
  }
  return cells;
}

void BucketTurns::prepare() {
  isPrepared = true;
  const size_t words = (sources.members.size() + 63) / 64 + (sinks.members.size() + 63) / 64;
  isTooLarge = latency <= 0 || Wide(words) * problem.size() > kMaxWords;
  if (isTooLarge)
    return;
  for (Ns cost : costs.compute)
    allCompute += cost;
  in = cellsOf(sources, Side::Sources);
  out = cellsOf(sinks, Side::Sinks);
  // More than these cells cannot be full before `head`. Exact cells have whole members.
  firstCell = static_cast<int32_t>(std::min<Bytes>(in.count, (in.isExact ? before : before + in.unit - 1) / in.unit));
  work = std::max<Ns>(in.least.back() - in.most[firstCell], 0) + out.least.back();
}

/// One more bucket. An entry of a table is by how much the work of the compute lane may exceed that of the lane of
/// collectives, with latencies, apart from `idle`.
void BucketTurns::step(int64_t number, Ns idle, const std::vector<Ns> &from, std::vector<Ns> &to) const {
  const int32_t columns = out.count + 1;
  llvm::fill(to, kNever);
  for (int32_t ended = 0; ended <= in.count; ++ended) {
    const Ns *state = &from[size_t(ended) * columns];
    if (std::all_of(state, state + columns, [](Ns value) { return value == kNever; }))
      continue;
    // A bucket of sources: until its end, nothing more can have been computed.
    for (int32_t next = ended + 1; next <= in.count; ++next) {
      Ns *result = &to[size_t(next) * columns];
      const Ns latest = in.computed[ended] - in.least[next] - number * latency;
      for (int32_t reduced = 0; reduced < columns; ++reduced)
        result[reduced] = std::max(result[reduced], std::min(state[reduced], latest - out.least[reduced]));
    }
    // A bucket of sinks: when it begins, all that it needs has been computed.
    Ns *result = &to[size_t(ended) * columns];
    for (int32_t reduced = 0; reduced < out.count; ++reduced) {
      if (state[reduced] == kNever)
        continue;
      const Ns clock = state[reduced] + in.most[ended] + out.most[reduced] + (number - 1) * latency + idle;
      const Ns computed = std::min(in.computed[ended], clock);
      for (int32_t next = reduced + 1; next <= out.count && out.computed[next] <= computed; ++next)
        result[next] = std::max(result[next], state[reduced]);
    }
  }
}

/// The fewest buckets if the lane is not busy with them, between the first beginning and the last end, for `idle`.
int64_t BucketTurns::fewestWithin(Ns idle) {
  auto next = known.lower_bound(idle);
  if (next != known.end() && (next->first == idle || known.size() >= kMaxTables))
    return next->second;
  // What is known of less idle time says nothing.
  if (known.size() >= kMaxTables)
    return 0;
  return known[idle] = fewestByTable(idle);
}

int64_t BucketTurns::fewestByTable(Ns idle) const {
  const size_t size = size_t(in.count + 1) * (out.count + 1);
  std::vector<Ns> states(size, kNever), next(size);
  // No more than `head` has been computed before.
  states[size_t(firstCell) * (out.count + 1)] = head - in.least[firstCell];
  for (int64_t number = 1; number <= kMaxTurns; ++number) {
    step(number, idle, states, next);
    std::swap(states, next);
    // At the end, all has been computed.
    Ns last = states.back();
    if (last != kNever && Wide(last) + in.most.back() + out.most.back() + number * latency + idle + tail >= allCompute)
      return number;
  }
  return kMaxTurns + 1;
}

int64_t BucketTurns::fewest(Ns makespan) {
  if (!isPrepared)
    prepare();
  if (isTooLarge)
    return 0;
  const Ns grain = std::max<Ns>(1, latency / kGrains);
  int64_t number = firstCell < in.count || out.count > 0 ? 1 : 0;
  while (number > 0 && number <= kMaxTurns) {
    Wide idle = Wide(makespan) - head - tail - work - Wide(number) * latency;
    if (idle < 0 || idle > Wide(kMostIdle) * latency)
      break;
    int64_t found = fewestWithin(static_cast<Ns>((idle + grain - 1) / grain) * grain);
    if (found <= number)
      break;
    number = found;
  }
  return number;
}
