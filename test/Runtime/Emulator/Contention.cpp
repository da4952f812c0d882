//===- Contention.cpp - Operations that slow each other down ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A collective and a kernel that run on one device at the same time each progress at a lower rate, as the environment
// says (README.md). Which operations run at the same time is known only when all of them have run, as their threads
// keep no order. So operations are written down, and when somebody asks for a time, those that have run until then are
// simulated from event to event on the virtual clock. Asking while others still run gives times that miss these.
//
//===------------------------------------------------------------------------------------------===//

#include "Hooks.h"
#include "Machine.h"
#include <algorithm>
#include <cmath>
#include <queue>

namespace emulator {
namespace {
/// An operation that has run and whose times are not final.
struct Timed {
  OpRef op;
  std::vector<OpRef> after;
  int64_t floorNs = 0, durationNs = 0;
  int device = 0, ctas = 0;
  Contends contends = Contends::Nothing;

  // Of the simulation.
  std::vector<size_t> next;
  size_t pending = 0;
  double startNs = 0, updatedNs = 0, left = 0, rate = 1;
  uint64_t version = 0;
};

struct Slowdowns {
  int64_t matrix = option("CUDA_EMU_MATRIX_SLOW_PERMILLE", 0), memory = option("CUDA_EMU_MEMORY_SLOW_PERMILLE", 0);
  int64_t matrixPerCta = option("CUDA_EMU_MATRIX_SLOW_PER_CTA_PERMILLE", 0),
          memoryPerCta = option("CUDA_EMU_MEMORY_SLOW_PER_CTA_PERMILLE", 0);
  int64_t byMatrix = option("NCCL_EMU_SLOW_BY_MATRIX_PERMILLE", 0),
          byMemory = option("NCCL_EMU_SLOW_BY_MEMORY_PERMILLE", 0),
          byCollective = option("NCCL_EMU_SLOW_BY_COLLECTIVE_PERMILLE", 0);

  bool any() const { return matrix || memory || matrixPerCta || memoryPerCta || byMatrix || byMemory || byCollective; }
  /// By how much `one` is slower beside `other`, permille.
  int64_t of(const Timed &one, const Timed &other) const {
    if (one.contends == Contends::Collective)
      return other.contends == Contends::Matrix       ? byMatrix
             : other.contends == Contends::Memory     ? byMemory
             : other.contends == Contends::Collective ? byCollective
                                                      : 0;
    if (other.contends != Contends::Collective)
      return 0;
    return one.contends == Contends::Matrix ? matrix + matrixPerCta * other.ctas : memory + memoryPerCta * other.ctas;
  }
};

/// One event of the simulation: an operation begins, or ends unless its rate has changed since.
struct Moment {
  double ns;
  bool isBegin;
  size_t entry;
  uint64_t version;
  bool operator<(const Moment &other) const {
    return ns != other.ns ? ns > other.ns : isBegin != other.isBegin ? isBegin : entry > other.entry;
  }
};

class Simulation {
public:
  Simulation(std::vector<Timed> &log, const Slowdowns &slowdowns) : log(log), slowdowns(slowdowns) {}

  void run() {
    std::unordered_map<const Op *, size_t> places;
    for (size_t i = 0; i < log.size(); ++i) {
      Timed &entry = log[i];
      entry.startNs = double(entry.floorNs);
      for (const OpRef &before : entry.after)
        if (auto found = places.find(before.get()); found != places.end()) {
          log[found->second].next.push_back(i);
          ++entry.pending;
        } else {
          entry.startNs = std::max(entry.startNs, double(before->endNs));
        }
      places[entry.op.get()] = i;
    }
    for (size_t i = 0; i < log.size(); ++i)
      if (log[i].pending == 0)
        moments.push({log[i].startNs, true, i, 0});
    while (!moments.empty()) {
      Moment moment = moments.top();
      moments.pop();
      if (moment.isBegin)
        begin(moment.entry, moment.ns);
      else if (moment.version == log[moment.entry].version)
        end(moment.entry, moment.ns);
    }
  }

private:
  void begin(size_t i, double now) {
    Timed &entry = log[i];
    entry.op->beginNs = std::llround(now);
    entry.left = double(entry.durationNs);
    entry.updatedNs = now;
    running[entry.device].push_back(i);
    change(entry.device, now);
  }

  void end(size_t i, double now) {
    Timed &entry = log[i];
    entry.op->endNs = std::llround(now);
    auto &here = running[entry.device];
    here.erase(std::find(here.begin(), here.end(), i));
    change(entry.device, now);
    for (size_t next : entry.next) {
      log[next].startNs = std::max(log[next].startNs, now);
      if (--log[next].pending == 0)
        moments.push({log[next].startNs, true, next, 0});
    }
  }

  /// What runs on the device has changed: everything there goes on at a new rate.
  void change(int device, double now) {
    const auto &here = running[device];
    for (size_t i : here) {
      Timed &entry = log[i];
      entry.left = std::max(0.0, entry.left - (now - entry.updatedNs) * entry.rate);
      entry.updatedNs = now;
      int64_t slower = 0;
      for (size_t other : here)
        if (other != i)
          slower = std::max(slower, slowdowns.of(entry, log[other]));
      entry.rate = 1000.0 / double(1000 + slower);
      moments.push({now + entry.left / entry.rate, false, i, ++entry.version});
    }
  }

  std::vector<Timed> &log;
  const Slowdowns &slowdowns;
  std::map<int, std::vector<size_t>> running;
  std::priority_queue<Moment> moments;
};

const Slowdowns &slowdowns() {
  static const Slowdowns made;
  return made;
}
std::vector<Timed> &unsettled() {
  static auto *made = new std::vector<Timed>;
  return *made;
}
} // namespace

bool hasContention() { return slowdowns().any(); }

void noteTimes(const OpRef &op, std::vector<OpRef> after, int64_t durationNs) {
  Timed entry;
  entry.op = op;
  entry.after = std::move(after);
  entry.floorNs = op->readyNs;
  entry.durationNs = durationNs;
  entry.device = op->stream->device;
  entry.contends = op->work.contends;
  entry.ctas = op->work.ctas;
  unsettled().push_back(std::move(entry));
}

void settleTimes() {
  if (!hasContention() || unsettled().empty())
    return;
  Simulation(unsettled(), slowdowns()).run();
  unsettled().clear();
}
} // namespace emulator

extern "C" void emulatorContends(int how, int ctas) {
  if (emulator::Op *op = emulator::runningOp()) {
    op->work.contends = static_cast<emulator::Contends>(how);
    op->work.ctas = ctas;
  }
}
