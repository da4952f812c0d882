//===- Memory.cpp - Device memory, pinned memory, and who uses it -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One sparse file in memory is mapped twice: without rights at the addresses that the program sees, and readable and
// writable where operations reach it.
//
//===------------------------------------------------------------------------------------------===//

#include "Memory.h"
#include "SharedFile.h"
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace emulator {
/// Addresses of one device, in bytes; its memory is less (CUDA_EMU_MEMORY_MB).
constexpr size_t deviceSpan = size_t(64) << 30;
/// CUDA promises at least 256.
constexpr size_t alignment = 512, pageBytes = 4096;
/// New memory is filled with this, up to this many bytes, so that nobody relies on zeros.
constexpr int poison = 0xA5;
constexpr size_t poisonLimit = size_t(16) << 20;

namespace {
struct Memory {
  int file = -1;
  char *seen = nullptr;    ///< what the program sees
  char *reached = nullptr; ///< the same pages for operations
  size_t span = 0;
  std::vector<size_t> next; ///< by device: the first offset never used
  std::map<uintptr_t, AllocationRef> live, dead;
  std::deque<uintptr_t> deadOrder;
  size_t limit = 0; ///< bytes of one device
  struct sigaction before = {};
};
} // namespace

static Memory *memory = nullptr;

std::string describe(const Allocation &allocation) {
  static const char *const names[] = {"device memory", "pinned memory", "registered memory"};
  char text[160];
  snprintf(text, sizeof(text), "%s 0x%zx (%zu bytes, device %d)", names[int(allocation.kind)], size_t(allocation.base),
           allocation.bytes, allocation.device);
  return text;
}

static void onFault(int signal, siginfo_t *info, void *context) {
  auto *address = static_cast<char *>(info->si_addr);
  if (memory && address >= memory->seen && address < memory->seen + memory->span) {
    char text[128];
    int length = snprintf(text, sizeof(text), "emulator: the host touched device memory at %p (device %zu)\n",
                          static_cast<void *>(address), size_t(address - memory->seen) / deviceSpan);
    if (write(STDERR_FILENO, text, length) >= 0)
      _exit(reportedStatus);
    _exit(reportedStatus + 1);
  }
  sigaction(signal, &memory->before, nullptr); // the same access faults again, for whoever handled it before
}

static Memory &theMemory() {
  if (memory)
    return *memory;
  auto *made = new Memory;
  made->span = deviceSpan * machine().devices.size();
  Mapping mapping = mapMemory(made->span);
  made->file = mapping.file;
  made->seen = mapping.seen;
  made->reached = mapping.reached;
  made->next.assign(machine().devices.size(), 0);
  made->limit = size_t(option("CUDA_EMU_MEMORY_MB", 16384)) << 20;
  struct sigaction action = {};
  action.sa_sigaction = onFault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, &made->before);
  memory = made;
  return *memory;
}

void prepareMemory() { theMemory(); }

bool isDeviceAddress(const void *pointer) {
  auto *address = static_cast<const char *>(pointer);
  return memory && address >= memory->seen && address < memory->seen + memory->span;
}

void *reach(const void *pointer) {
  auto *address = static_cast<const char *>(pointer);
  return isDeviceAddress(pointer) ? memory->reached + (address - memory->seen) : const_cast<char *>(address);
}

static uintptr_t addressOf(const void *pointer) { return reinterpret_cast<uintptr_t>(pointer); }

/// An offset in the device's addresses, never one that was used before unless all were.
static size_t place(Memory &m, int device, size_t bytes) {
  size_t step = bytes >= pageBytes ? pageBytes : alignment;
  size_t begin = deviceSpan * device, offset = (m.next[device] + step - 1) / step * step;
  if (offset + bytes <= deviceSpan) {
    m.next[device] = offset + bytes;
    return begin + offset;
  }
  size_t at = begin;
  for (auto i = m.live.lower_bound(addressOf(m.seen + begin)); i != m.live.end(); ++i) {
    size_t other = i->first - addressOf(m.seen);
    if (other >= begin + deviceSpan || at + bytes <= other)
      break;
    at = (other + i->second->bytes + step - 1) / step * step;
  }
  if (at + bytes > begin + deviceSpan)
    report("the device's addresses are used up");
  m.dead.erase(m.dead.lower_bound(addressOf(m.seen + at)), m.dead.upper_bound(addressOf(m.seen + at + bytes)));
  return at;
}

AllocationRef allocate(Allocation::Kind kind, size_t bytes, int device) {
  Memory &m = theMemory();
  auto made = std::make_shared<Allocation>();
  made->kind = kind;
  made->bytes = bytes;
  made->device = device;
  claim(device);
  if (kind == Allocation::Kind::Device) {
    Device &owner = machine().devices[device];
    if (bytes > m.limit || size_t(owner.usedBytes) + bytes > m.limit)
      return nullptr;
    owner.usedBytes += int64_t(bytes);
    owner.peakBytes = std::max(owner.peakBytes, owner.usedBytes);
    made->base = addressOf(m.seen + place(m, device, bytes));
    memset(reach(reinterpret_cast<void *>(made->base)), poison, std::min(bytes, poisonLimit));
  } else if (isShared()) {
    made->base = addressOf(m.reached + place(m, device, bytes));
  } else {
    void *pointer = aligned_alloc(pageBytes, (bytes + pageBytes - 1) / pageBytes * pageBytes);
    if (!pointer)
      return nullptr;
    made->base = addressOf(pointer);
    m.dead.erase(m.dead.lower_bound(made->base), m.dead.upper_bound(made->base + bytes));
  }
  m.live[made->base] = made;
  return made;
}

AllocationRef registerHost(void *pointer, size_t bytes, int device) {
  auto made = std::make_shared<Allocation>();
  made->kind = Allocation::Kind::Registered;
  made->base = addressOf(pointer);
  made->bytes = bytes;
  made->device = device;
  theMemory().live[made->base] = made;
  return made;
}

void releaseStorage(Allocation &allocation) {
  Memory &m = theMemory();
  auto at = m.live.find(allocation.base);
  if (at == m.live.end() || at->second.get() != &allocation)
    return;
  allocation.isFreed = allocation.isReleased = true;
  if (allocation.kind == Allocation::Kind::Device) {
    machine().devices[allocation.device].usedBytes -= int64_t(allocation.bytes);
    m.dead[allocation.base] = at->second;
    m.deadOrder.push_back(allocation.base);
    constexpr size_t tombstones = 10000;
    if (m.deadOrder.size() > tombstones) {
      m.dead.erase(m.deadOrder.front());
      m.deadOrder.pop_front();
    }
    size_t begin = allocation.base - addressOf(m.seen), end = begin + allocation.bytes;
    begin = (begin + pageBytes - 1) / pageBytes * pageBytes, end = end / pageBytes * pageBytes;
    if (begin < end)
      fallocate(m.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(begin), off_t(end - begin));
  } else {
    auto isWithin = [&](const void *word) {
      return addressOf(word) >= allocation.base && addressOf(word) < allocation.base + allocation.bytes;
    };
    Machine &all = machine();
    for (auto i = all.wordClocks.begin(); i != all.wordClocks.end();)
      i = isWithin(i->first) ? all.wordClocks.erase(i) : std::next(i);
    for (auto i = all.wordNs.begin(); i != all.wordNs.end();)
      i = isWithin(i->first) ? all.wordNs.erase(i) : std::next(i);
    for (auto i = all.wordWriters.begin(); i != all.wordWriters.end();)
      i = isWithin(i->first) ? all.wordWriters.erase(i) : std::next(i);
    if (allocation.kind == Allocation::Kind::Pinned && !isShared())
      free(reinterpret_cast<void *>(allocation.base));
  }
  m.live.erase(at);
}

static AllocationRef lookUp(const std::map<uintptr_t, AllocationRef> &map, uintptr_t address) {
  auto after = map.upper_bound(address);
  if (after == map.begin())
    return nullptr;
  const AllocationRef &found = std::prev(after)->second;
  return address < found->base + std::max<size_t>(found->bytes, 1) ? found : nullptr;
}

AllocationRef findBase(const void *pointer) {
  if (!memory)
    return nullptr;
  auto at = memory->live.find(addressOf(pointer));
  return at == memory->live.end() ? nullptr : at->second;
}

AllocationRef find(const void *pointer, size_t bytes) {
  if (!memory)
    return nullptr;
  uintptr_t address = addressOf(pointer);
  AllocationRef found = lookUp(memory->live, address);
  auto text = [&] {
    char result[64];
    snprintf(result, sizeof(result), "%zu bytes at %p: ", bytes, pointer);
    return std::string(result);
  };
  if (!found) {
    if (!isDeviceAddress(pointer) || isForeign(int((address - addressOf(memory->seen)) / deviceSpan)))
      return nullptr;
    if (AllocationRef dead = lookUp(memory->dead, address))
      report("use after free: " + text() + "in " + describe(*dead));
    report("not allocated: " + text() + "device memory that nothing was allocated in");
  }
  if (address + bytes > found->base + found->bytes)
    report("out of bounds: " + text() + "beyond the end of " + describe(*found));
  return found;
}

bool isPageable(const void *pointer) {
  return !isDeviceAddress(pointer) && !isCommon(pointer) && !(memory && lookUp(memory->live, addressOf(pointer)));
}

int reportLeaks() {
  if (!memory)
    return 0;
  int count = 0;
  for (const auto &entry : memory->live) {
    if (count++ < 10)
      fprintf(stderr, "emulator: leak: %s was not freed\n", describe(*entry.second).c_str());
  }
  return count;
}
} // namespace emulator
