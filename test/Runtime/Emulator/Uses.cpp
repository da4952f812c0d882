//===- Uses.cpp - Memory that operations in flight use ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rules of lifetime: an operation uses memory only between its allocation and its free, in the order that streams,
// events and the host's waits make certain. What merely happened in the right order by luck is reported.
//
//===------------------------------------------------------------------------------------------===//

#include "Hooks.h"
#include "Memory.h"

namespace emulator {
void noteUses(const Op &op) {
  for (const Use &use : op.work.uses) {
    if (use.allocation->isFreed)
      report("use after free: " + describe(*use.allocation));
    use.allocation->lastUse[op.streamId] = op.number;
  }
  if (Allocation *made = op.work.allocates.get()) {
    made->allocatedStream = op.streamId;
    made->allocatedNumber = op.number;
  }
  if (Allocation *freed = op.work.frees.get()) {
    freed->isFreed = true;
    freed->freedStream = op.streamId;
    freed->freedNumber = op.number;
  }
}

/// Reports unless the stream-ordered allocation has happened before the operation, and the free has not.
static void checkOrder(const Op &op, const Allocation &used) {
  if (used.isReleased || (used.freedStream && isIn(op.clock, used.freedStream, used.freedNumber)))
    report("use after free: " + describe(used));
  if (used.allocatedStream && !isIn(op.clock, used.allocatedStream, used.allocatedNumber))
    report("used by a stream that is not ordered after cudaMallocAsync: " + describe(used));
}

void checkUses(const Op &op) {
  InFunction name(op.work.name);
  for (const Use &use : op.work.uses)
    checkOrder(op, *use.allocation);
  const Allocation *freed = op.work.frees.get();
  if (!freed)
    return;
  if (freed->allocatedStream && !isIn(op.clock, freed->allocatedStream, freed->allocatedNumber))
    report("freed by a stream that is not ordered after cudaMallocAsync: " + describe(*freed));
  for (auto [stream, number] : freed->lastUse)
    if (!isIn(op.clock, stream, number))
      report("free while in use: " + describe(*freed) + " is used by operation " + std::to_string(number) +
             " of stream " + std::to_string(stream) + ", which stream " + std::to_string(op.streamId) +
             " has not waited for");
}

void checkUnused(const Allocation &allocation) {
  for (auto [stream, number] : allocation.lastUse)
    if (!isIn(machine().hostClock, stream, number))
      report("free while in use: " + describe(allocation) + " is used by operation " + std::to_string(number) +
             " of stream " + std::to_string(stream) + ", which the host has not waited for");
}
} // namespace emulator

using namespace emulator;

extern "C" void *emulatorAccess(const void *address, size_t bytes, int write) {
  Op *op = runningOp();
  if (!op)
    report("emulatorAccess is called outside of an operation");
  {
    Held held;
    if (AllocationRef used = find(address, bytes)) {
      checkOrder(*op, *used);
      uint64_t &last = used->lastUse[op->streamId];
      last = last < op->number ? op->number : last;
    }
  }
  void *where = reach(address);
  if (write)
    Tsan::write(where, bytes);
  else
    Tsan::read(where, bytes);
  return where;
}

extern "C" void emulatorTakes(int64_t nanoseconds) {
  if (Op *op = runningOp())
    op->work.durationNs = nanoseconds;
}

extern "C" int64_t emulatorNow() {
  Op *op = runningOp();
  return op ? op->beginNs : 0;
}
