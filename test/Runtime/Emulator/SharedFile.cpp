//===- SharedFile.cpp - Ranks that are processes ----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A sparse file, mapped at addresses that no library is loaded at. Its end has the owners of the devices and a
// directory of named blocks.
//
//===------------------------------------------------------------------------------------------===//

#include "SharedFile.h"
#include "Hooks.h"
#include "Report.h"
#include "Sync.h"
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

namespace emulator {
/// Where all processes map the file; far below where the loader puts libraries and stacks.
constexpr uintptr_t seenAt = uintptr_t(0x20) << 40, reachedAt = uintptr_t(0x30) << 40;
constexpr int mostDevices = 64, mostBlocks = 2048;
/// Memory that processes find by name, in bytes.
constexpr size_t commonBytes = size_t(64) << 20, blockAlignment = 64;

namespace {
struct Block {
  char name[176];
  size_t offset, bytes;
};
/// At the beginning of the common memory; zero at first.
struct Common {
  std::atomic<int> lock; ///< the process that changes the directory
  std::atomic<int> owners[mostDevices];
  int count;
  size_t used;
  Block blocks[mostBlocks];
};
} // namespace

static Common *common = nullptr;

bool isShared() {
  static const bool is = !optionText("CUDA_EMU_SHARED", "").empty();
  return is;
}

static void *mapAt(uintptr_t address, size_t bytes, int rights, int file) {
  int flags = MAP_SHARED | MAP_NORESERVE | (address ? MAP_FIXED_NOREPLACE : 0);
  void *mapped = mmap(reinterpret_cast<void *>(address), bytes, rights, flags, file, 0);
  if (mapped == MAP_FAILED)
    report(std::string("cannot map device memory: ") + strerror(errno));
  return mapped;
}

Mapping mapMemory(size_t span) {
  Mapping made;
  std::string name = optionText("CUDA_EMU_SHARED", "");
  size_t bytes = span + (isShared() ? commonBytes : 0);
  made.file =
      isShared() ? open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600) : memfd_create("cudart_emu", MFD_CLOEXEC);
  if (made.file < 0 || ftruncate(made.file, off_t(bytes)) != 0)
    report("cannot make device memory: " + name + ": " + strerror(errno));
  made.seen = static_cast<char *>(mapAt(isShared() ? seenAt : 0, bytes, PROT_NONE, made.file));
  made.reached = static_cast<char *>(mapAt(isShared() ? reachedAt : 0, bytes, PROT_READ | PROT_WRITE, made.file));
  if (isShared())
    common = reinterpret_cast<Common *>(made.reached + span);
  return made;
}

static bool isAlive(int process) { return process != 0 && (kill(process, 0) == 0 || errno != ESRCH); }

void claim(int device) {
  if (!isShared())
    return;
  std::atomic<int> &owner = common->owners[device];
  int self = getpid(), seen = owner.load();
  while (seen != self) {
    if (isAlive(seen))
      report("device " + std::to_string(device) + " belongs to process " + std::to_string(seen));
    if (owner.compare_exchange_weak(seen, self))
      return;
  }
}

bool isForeign(int device) { return isShared() && common->owners[device].load() != getpid(); }

bool isCommon(const void *pointer) {
  auto *address = static_cast<const char *>(pointer), *begin = reinterpret_cast<const char *>(common);
  return common && address >= begin && address < begin + commonBytes;
}

/// The block of this name; made at the first call of all processes.
static void *findBlock(const std::string &name, size_t bytes) {
  if (name.size() >= sizeof(Block::name))
    report("the name of a block is too long: " + name);
  for (int i = 0; i < common->count; ++i) {
    Block &block = common->blocks[i];
    if (name != block.name)
      continue;
    if (block.bytes != bytes)
      report("processes disagree on " + name + ": expected " + std::to_string(block.bytes) + " bytes, got " +
             std::to_string(bytes));
    return reinterpret_cast<char *>(common) + block.offset;
  }
  size_t offset = common->used ? common->used : sizeof(Common);
  offset = (offset + blockAlignment - 1) / blockAlignment * blockAlignment;
  if (common->count == mostBlocks || offset + bytes > commonBytes)
    report("the common memory is used up");
  Block &block = common->blocks[common->count];
  memcpy(block.name, name.c_str(), name.size() + 1);
  block.offset = offset;
  block.bytes = bytes;
  common->used = offset + bytes;
  ++common->count;
  return reinterpret_cast<char *>(common) + offset;
}
} // namespace emulator

using namespace emulator;

extern "C" void *emulatorSharedMemory(const char *name, size_t bytes) {
  if (!isShared())
    return nullptr;
  Held held;
  prepareMemory();
  int self = getpid(), holder = 0;
  while (!common->lock.compare_exchange_weak(holder, self)) {
    if (holder != 0 && !isAlive(holder)) // it was killed in here
      common->lock.compare_exchange_strong(holder, 0);
    holder = 0;
    sched_yield();
  }
  void *found = findBlock(name, bytes);
  common->lock = 0;
  return found;
}
