//===- CudaDevices.cpp - Devices, versions and errors of the emulated runtime -----------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The machine is made at the first call: CUDA_EMU_DEVICES devices, and the schedule that CUDA_EMU_SCHEDULE names.
//
//===------------------------------------------------------------------------------------------===//

#include "CudaApi.h"
#include "Hooks.h"
#include "Memory.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace emulator {
static thread_local cudaError_t lastError = cudaSuccess;
static thread_local int device = 0;

static Machine *made = nullptr;

static Machine *make() {
  auto *m = new Machine;
  int64_t devices = option("CUDA_EMU_DEVICES", 8);
  if (devices < 0 || devices > 64)
    report("expected 0 to 64 in CUDA_EMU_DEVICES, got " + std::to_string(devices));
  m->devices.resize(size_t(devices));
  std::string schedule = optionText("CUDA_EMU_SCHEDULE", "threads");
  if (schedule != "threads" && schedule != "random")
    report("expected 'threads' or 'random' in CUDA_EMU_SCHEDULE, got '" + schedule + "'");
  int64_t seed = option("CUDA_EMU_SEED", 0);
  m->schedule = schedule == "random" ? Schedule::Random : Schedule::Threads;
  m->policy = int(seed % 3);
  m->random.seed(uint64_t(seed));
  return m;
}

Machine &machine() {
  if (!made)
    made = make();
  return *made;
}

int &currentDevice() { return device; }

Entry::Entry(const char *name) : function(name) {
  if (runningOp())
    report("called from a kernel or a host function");
}

cudaError_t finish(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady)
    lastError = error;
  return error;
}

namespace {
/// Looks for leaks when the process ends in the ordinary way.
struct AtExit {
  ~AtExit() {
    if (!made || option("CUDA_EMU_LEAKS", 1) == 0)
      return;
    int leaks = reportLeaks();
    for (const Stream *stream : made->streams)
      if (!stream->isDefault)
        ++leaks,
            fprintf(stderr, "emulator: leak: stream %u of device %d was not destroyed\n", stream->id, stream->device);
    if (!made->events.empty())
      leaks += int(made->events.size()),
          fprintf(stderr, "emulator: leak: %zu events were not destroyed\n", made->events.size());
    size_t graphs = made->graphs.size() + made->execs.size();
    if (graphs > 0)
      leaks += int(graphs), fprintf(stderr, "emulator: leak: %zu graphs were not destroyed\n", graphs);
    if (leaks > 0) {
      fflush(nullptr);
      _Exit(reportedStatus);
    }
  }
} atExit;
} // namespace
} // namespace emulator

using namespace emulator;

/// Multiprocessors, clocks and the like of a device that looks like an H100; nothing is computed from them.
static int attributeOf(cudaDeviceAttr attribute, int device) {
  switch (attribute) {
  case cudaDevAttrMaxThreadsPerBlock:
    return 1024;
  case cudaDevAttrClockRate:
    return 1980000;
  case cudaDevAttrMultiProcessorCount:
    return 132;
  case cudaDevAttrPciBusId:
    return 16 + device;
  case cudaDevAttrMemoryClockRate:
    return 2619000;
  case cudaDevAttrGlobalMemoryBusWidth:
    return 5120;
  case cudaDevAttrL2CacheSize:
    return 50 << 20;
  case cudaDevAttrUnifiedAddressing:
  case cudaDevAttrMemoryPoolsSupported:
    return 1;
  case cudaDevAttrComputeCapabilityMajor:
    return 9;
  default:
    return 0;
  }
}

/// What stands in cudaGetErrorName and cudaGetErrorString.
static const char *nameOf(cudaError_t error) {
#define EMULATOR_CASE(name, value)                                                                                     \
  case name:                                                                                                           \
    return #name;
  switch (error) { EMULATOR_CUDA_ERRORS(EMULATOR_CASE) }
#undef EMULATOR_CASE
  return "unrecognized error code";
}

extern "C" {
cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = int(option("CUDA_EMU_RUNTIME_VERSION", 13000));
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version) {
  *version = int(option("CUDA_EMU_DRIVER_VERSION", 13000));
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
  Entry entry("cudaGetDeviceCount");
  *count = int(machine().devices.size());
  return finish(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
  Entry entry("cudaSetDevice");
  if (device < 0 || device >= int(machine().devices.size()))
    return finish(cudaErrorInvalidDevice);
  currentDevice() = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
  *device = currentDevice();
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
  Entry entry("cudaDeviceGetAttribute");
  if (device < 0 || device >= int(machine().devices.size()))
    return finish(cudaErrorInvalidDevice);
  *value = attributeOf(attribute, device);
  return cudaSuccess;
}

/// Only the name, with which the structure begins in every version.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device) {
  Entry entry("cudaGetDeviceProperties");
  if (device < 0 || device >= int(machine().devices.size()))
    return finish(cudaErrorInvalidDevice);
  constexpr char name[] = "Emulated H100";
  memcpy(static_cast<void *>(properties), name, sizeof(name));
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device) {
  Entry entry("cudaDeviceGetPCIBusId");
  if (device < 0 || device >= int(machine().devices.size()) || length < 13)
    return finish(cudaErrorInvalidValue);
  snprintf(text, size_t(length), "0000:%02X:00.0", 16 + device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  *can = device != peer;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  Entry entry("cudaDeviceEnablePeerAccess");
  Machine &m = machine();
  if (peer < 0 || peer >= int(m.devices.size()) || peer == currentDevice())
    return finish(cudaErrorInvalidDevice);
  return finish(m.devices[size_t(currentDevice())].peers.insert(peer).second ? cudaSuccess
                                                                             : cudaErrorPeerAccessAlreadyEnabled);
}

const char *cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : nameOf(error); }
const char *cudaGetErrorName(cudaError_t error) { return nameOf(error); }

cudaError_t cudaGetLastError() {
  cudaError_t result = emulator::lastError;
  emulator::lastError = cudaSuccess;
  return result;
}
cudaError_t cudaPeekAtLastError() { return emulator::lastError; }

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags, cudaDriverEntryPointQueryResult *status) {
  Entry entry("cudaGetDriverEntryPointByVersion");
  *function = nullptr; // no function of the driver is emulated
  if (status)
    *status = cudaDriverEntryPointSymbolNotFound;
  return finish(status ? cudaSuccess : cudaErrorSymbolNotFound);
}
}
