//===- NcclMemory.cpp - Windows and reductions of the user in the emulated NCCL ---------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A symmetric window is registered by all members in one order. A call whose buffers are in a window must have them at
// the same offset on every member.
//
//===------------------------------------------------------------------------------------------===//

#include "CudaApi.h"
#include "NcclComm.h"

namespace emulator {
/// A member's handle of a window.
struct WindowOf {
  ncclComm *comm;
  size_t number;
};

static std::map<const char *, size_t> &allocations() {
  static auto *map = new std::map<const char *, size_t>;
  return *map;
}
static std::map<const WindowOf *, bool> &windows() {
  static auto *map = new std::map<const WindowOf *, bool>;
  return *map;
}

/// The window's number and the offset in it, or -1 and 0.
static std::pair<int64_t, int64_t> placeOf(const Shared &shared, int member, const void *pointer) {
  auto *address = static_cast<const char *>(pointer);
  for (size_t i = 0; i < shared.windows.size(); ++i) {
    const char *base = shared.windows[i].bases[size_t(member)];
    if (base && address >= base && address < base + shared.windows[i].bytes)
      return {int64_t(i), address - base};
  }
  return {-1, 0};
}

static std::string textOf(std::pair<int64_t, int64_t> place) {
  return place.first < 0 ? "in no window"
                         : "at offset " + std::to_string(place.second) + " of window " + std::to_string(place.first);
}

void checkWindows(const Shared &shared, const Call &first, int firstRank, const Call &second, int secondRank) {
  if (shared.windows.empty())
    return;
  auto check = [&](const char *which, const void *a, const void *b) {
    auto one = placeOf(shared, firstRank, a), other = placeOf(shared, secondRank, b);
    if (one != other)
      report(std::string(nameOf(first.kind)) + " on " + shared.name + ": the " + which + " of rank " +
             std::to_string(firstRank) + " is " + textOf(one) + ", of rank " + std::to_string(secondRank) + " " +
             textOf(other));
  };
  // In place, one buffer is the rank's part of the other, at an offset that differs by definition.
  bool isScatter = first.kind == Kind::ReduceScatter || first.kind == Kind::Scatter;
  bool isGather = first.kind == Kind::AllGather || first.kind == Kind::Gather;
  size_t bytes = first.count * sizeOf(first.type);
  auto isPart = [&](const void *part, const void *whole, int rank) {
    return part == static_cast<const char *>(whole) + size_t(rank) * bytes;
  };
  // Only the root's input is read.
  bool isFromRoot = first.kind == Kind::Broadcast || first.kind == Kind::Scatter;
  if (!isFromRoot && !(isGather && isPart(first.in, first.out, firstRank)))
    check("input", first.in, second.in);
  if (!(isScatter && isPart(first.out, first.in, firstRank)) && first.kind != Kind::Gather &&
      first.kind != Kind::Reduce)
    check("output", first.out, second.out);
}

void checkNoWindows(const ncclComm *comm) {
  for (const auto &entry : windows())
    if (entry.first->comm == comm)
      report("a window is still registered");
}

void forgetWindows(const ncclComm *comm) {
  for (auto entry = windows().begin(); entry != windows().end();)
    if (entry->first->comm == comm) {
      delete entry->first;
      entry = windows().erase(entry);
    } else {
      ++entry;
    }
}
} // namespace emulator

using namespace emulator;

extern "C" {
ncclResult_t ncclMemAlloc(void **pointer, size_t bytes) {
  InFunction function("ncclMemAlloc");
  needsVersion(21900, "ncclMemAlloc");
  constexpr size_t granularity = 4096;
  bytes = (bytes + granularity - 1) / granularity * granularity;
  if (cudaMalloc(pointer, bytes) != cudaSuccess)
    return ncclUnhandledCudaError;
  Held held;
  allocations()[static_cast<char *>(*pointer)] = bytes;
  return ncclSuccess;
}

ncclResult_t ncclMemFree(void *pointer) {
  InFunction function("ncclMemFree");
  needsVersion(21900, "ncclMemFree");
  if (!pointer)
    return ncclSuccess;
  {
    Held held;
    if (!allocations().erase(static_cast<char *>(pointer)))
      report("the pointer is not from ncclMemAlloc");
    for (const auto &entry : windows())
      if (entry.first->comm->shared->windows[entry.first->number].bases[size_t(entry.first->comm->rank)] == pointer)
        report("a window is still registered");
  }
  check(cudaFree(pointer), "cudaFree");
  return ncclSuccess;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *data, size_t bytes, ncclWindow_t *result, int flags) {
  needsVersion(22700, "ncclCommWindowRegister");
  Using use("ncclCommWindowRegister", comm);
  constexpr uintptr_t required = 4096;
  if (!data || bytes == 0 || (reinterpret_cast<uintptr_t>(data) % required != 0 && flags == NCCL_WIN_COLL_SYMMETRIC))
    return ncclInvalidArgument;
  Held held;
  auto *base = static_cast<const char *>(data);
  auto allocation = allocations().upper_bound(base);
  if (allocation == allocations().begin() ||
      base + bytes > std::prev(allocation)->first + std::prev(allocation)->second)
    report("the memory is not from ncclMemAlloc");
  Shared &shared = *comm->shared;
  for (const Shared::Window &window : shared.windows)
    if (const char *other = window.bases[size_t(comm->rank)];
        other && base < other + window.bytes && other < base + bytes)
      report("the memory is registered twice in one communicator");
  size_t number = comm->windows++;
  if (number == shared.windows.size())
    shared.windows.push_back({std::vector<const char *>(size_t(shared.size)), bytes});
  if (shared.windows[number].bytes != bytes)
    report("mismatch on " + shared.name + ": rank " + std::to_string(comm->rank) + " registers " +
           std::to_string(bytes) + " bytes, another rank " + std::to_string(shared.windows[number].bytes));
  shared.windows[number].bases[size_t(comm->rank)] = base;
  auto *window = new WindowOf{comm, number};
  windows()[window] = true;
  *result = reinterpret_cast<ncclWindow_t>(window);
  if (comm->isBlocking)
    return ncclSuccess;
  comm->polls = randomPolls();
  return comm->polls > 0 ? ncclInProgress : ncclSuccess;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t handle) {
  needsVersion(22700, "ncclCommWindowDeregister");
  Using use("ncclCommWindowDeregister", comm);
  auto *window = reinterpret_cast<WindowOf *>(handle);
  Held held;
  if (!windows().erase(window) || window->comm != comm)
    report("the window is not registered in this communicator");
  comm->shared->windows[window->number].bases[size_t(comm->rank)] = nullptr;
  delete window;
  return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  Using use("ncclRedOpCreatePreMulSum", comm);
  if (residence != ncclScalarHostImmediate)
    report("scalars in device memory are not emulated");
  Reduction made;
  made.op = ncclNumOps;
  made.scale = scalarOf(type, scalar);
  made.type = type;
  *op = ncclRedOp_t(int(ncclNumOps) + comm->madeReductions++);
  comm->reductions[int(*op)] = made;
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  Using use("ncclRedOpDestroy", comm);
  return comm->reductions.erase(int(op)) ? ncclSuccess : ncclInvalidArgument;
}
}
