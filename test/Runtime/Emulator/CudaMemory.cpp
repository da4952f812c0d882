//===- CudaMemory.cpp - Allocation of the emulated runtime ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// cudaFree does not wait here, as CUDA's may: it reports memory that an operation may still use.
//
//===------------------------------------------------------------------------------------------===//

#include "CudaApi.h"
#include "Memory.h"

using namespace emulator;

static cudaError_t allocateOn(void **pointer, size_t bytes, Allocation::Kind kind) {
  checkSafe();
  if (!pointer)
    return finish(cudaErrorInvalidValue);
  if (machine().devices.empty())
    return finish(cudaErrorNoDevice);
  *pointer = nullptr;
  if (bytes == 0)
    return cudaSuccess;
  AllocationRef made = allocate(kind, bytes, currentDevice());
  if (!made)
    return finish(cudaErrorMemoryAllocation);
  *pointer = reinterpret_cast<void *>(made->base);
  return cudaSuccess;
}

/// The allocation of this kind that begins there, or a report.
static AllocationRef allocationOf(void *pointer, Allocation::Kind kind) {
  AllocationRef found = findBase(pointer);
  if (!found)
    find(pointer, 1); // says more about addresses within an allocation or in a freed one
  if (!found || found->kind != kind || found->isFreed)
    report(found && found->isFreed ? "freed twice: " + describe(*found)
                                   : std::string("the pointer is not the beginning of an allocation of this kind"));
  return found;
}

static cudaError_t release(void *pointer, Allocation::Kind kind) {
  checkSafe();
  if (!pointer)
    return cudaSuccess;
  AllocationRef found = allocationOf(pointer, kind);
  checkUnused(*found);
  releaseStorage(*found);
  return cudaSuccess;
}

extern "C" {
cudaError_t cudaMalloc(void **pointer, size_t bytes) {
  Entry entry("cudaMalloc");
  return allocateOn(pointer, bytes, Allocation::Kind::Device);
}
cudaError_t cudaFree(void *pointer) {
  Entry entry("cudaFree");
  return release(pointer, Allocation::Kind::Device);
}
cudaError_t cudaMallocHost(void **pointer, size_t bytes) {
  Entry entry("cudaMallocHost");
  return allocateOn(pointer, bytes, Allocation::Kind::Pinned);
}
cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags) {
  Entry entry("cudaHostAlloc");
  return allocateOn(pointer, bytes, Allocation::Kind::Pinned);
}
cudaError_t cudaFreeHost(void *pointer) {
  Entry entry("cudaFreeHost");
  return release(pointer, Allocation::Kind::Pinned);
}
cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned flags) {
  Entry entry("cudaHostRegister");
  if (!pointer || bytes == 0)
    return finish(cudaErrorInvalidValue);
  if (!isPageable(pointer))
    report("the memory is pinned or registered already, or is of a device");
  registerHost(pointer, bytes, currentDevice());
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *pointer) {
  Entry entry("cudaHostUnregister");
  return release(pointer, Allocation::Kind::Registered);
}

cudaError_t cudaMallocAsync(void **pointer, size_t bytes, cudaStream_t on) {
  Entry entry("cudaMallocAsync");
  Stream *stream = streamOf(on);
  checkDevice(stream);
  if (stream->capture)
    report("allocation in a capture is not emulated");
  *pointer = nullptr;
  if (bytes == 0)
    return cudaSuccess;
  AllocationRef made = allocate(Allocation::Kind::Device, bytes, stream->device);
  if (!made)
    return finish(cudaErrorMemoryAllocation);
  made->isAsync = true;
  *pointer = reinterpret_cast<void *>(made->base);
  Work work;
  work.name = "cudaMallocAsync";
  work.allocates = std::move(made);
  submit(stream, std::move(work));
  return cudaSuccess;
}

cudaError_t cudaFreeAsync(void *pointer, cudaStream_t on) {
  Entry entry("cudaFreeAsync");
  Stream *stream = streamOf(on);
  if (stream->capture)
    report("a free in a capture is not emulated");
  if (!pointer)
    return cudaSuccess;
  Work work;
  work.name = "cudaFreeAsync";
  work.frees = allocationOf(pointer, Allocation::Kind::Device);
  submit(stream, std::move(work));
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  Entry entry("cudaMemGetInfo");
  *total = size_t(option("CUDA_EMU_MEMORY_MB", 16384)) << 20;
  *free = *total - size_t(machine().devices[size_t(currentDevice())].usedBytes);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *pointer) {
  Entry entry("cudaPointerGetAttributes");
  *attributes = {};
  auto *plain = const_cast<void *>(pointer);
  attributes->type = cudaMemoryTypeUnregistered;
  attributes->device = -2; // what CUDA gives for memory that it does not know
  attributes->hostPointer = plain;
  if (isPageable(pointer))
    return cudaSuccess;
  AllocationRef found = find(pointer, 1);
  bool isDevice = found->kind == Allocation::Kind::Device;
  attributes->type = isDevice ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  attributes->device = found->device;
  attributes->devicePointer = plain;
  attributes->hostPointer = isDevice ? nullptr : plain;
  return cudaSuccess;
}

// A pool's handle is the device's number and one.
static Device *deviceOf(cudaMemPool_t pool) {
  auto number = reinterpret_cast<uintptr_t>(pool);
  if (number == 0 || number > machine().devices.size())
    report("the memory pool is not one of a device");
  return &machine().devices[number - 1];
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
  Entry entry("cudaDeviceGetDefaultMemPool");
  if (device < 0 || device >= int(machine().devices.size()))
    return finish(cudaErrorInvalidDevice);
  *pool = reinterpret_cast<cudaMemPool_t>(uintptr_t(device) + 1);
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void *value) {
  Entry entry("cudaMemPoolSetAttribute");
  Device *device = deviceOf(pool);
  if (attribute == cudaMemPoolAttrUsedMemHigh)
    device->peakBytes = device->usedBytes;
  return cudaSuccess;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void *value) {
  Entry entry("cudaMemPoolGetAttribute");
  const Device *device = deviceOf(pool);
  if (attribute == cudaMemPoolAttrUsedMemCurrent || attribute == cudaMemPoolAttrReservedMemCurrent)
    *static_cast<uint64_t *>(value) = uint64_t(device->usedBytes);
  else if (attribute == cudaMemPoolAttrUsedMemHigh || attribute == cudaMemPoolAttrReservedMemHigh)
    *static_cast<uint64_t *>(value) = uint64_t(device->peakBytes);
  else
    return finish(cudaErrorNotSupported);
  return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes) {
  Entry entry("cudaMemPoolTrimTo");
  deviceOf(pool);
  return cudaSuccess;
}
}
