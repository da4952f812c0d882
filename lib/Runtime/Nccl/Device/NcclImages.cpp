//===- NcclImages.cpp - Kernels of images on CUDA devices -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Images are loaded by the CUDA runtime's library functions (12.8), so that libcuda is not needed. Over the emulated
// CUDA runtime, which shows itself by a symbol that the real one lacks, a launch runs the host build of a kernel: one
// function is registered for each kernel, and the host build is an argument in front of the kernel's own.
//
//===------------------------------------------------------------------------------------------===//

#include "Kernels/Device/Image.h"
#include "Nccl/Libraries/KernelCompiler.h"
#include "Nccl/NcclJob.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>
#include <unordered_map>

using namespace commsched::runtime;

struct commsched::runtime::LoadedKernel {
  cudaKernel *handle = nullptr; ///< null until the first launch
  std::vector<size_t> argumentBytes;
  commrt_host_kernel host = nullptr;
  int64_t mostShared = 48 << 10; ///< bytes of dynamic shared memory that may be asked for; CUDA's default
};

struct commsched::runtime::NcclImage {
  std::string name;
  std::string code; ///< PTX with its terminating zero, or machine code
  cudaLibrary *library = nullptr;
  std::unordered_map<std::string, LoadedKernel> kernels;
};

NcclPeer::NcclPeer() = default;
NcclPeer::~NcclPeer() = default;

static bool isEmulated(const NcclPeer &peer) { return peer.job->cuda().emulatorRegisterKernel; }

//===- Load ----------------------------------------------------------------------------------===//

int32_t commsched::runtime::loadImage(NcclPeer &peer, const commrt_image_info &info, NcclImage **result,
                                      std::string &error) {
  const CudaApi &cuda = peer.job->cuda();
  if (!cuda.libraryLoadData || !cuda.libraryUnload || !cuda.libraryGetKernel || !cuda.launchKernel) {
    error = "the CUDA runtime lacks cudaLibraryLoadData, which appeared in 12.8";
    return COMMRT_ERR_UNSUPPORTED;
  }
  if (!info.code && !isEmulated(peer)) {
    error = "it has no code for a GPU";
    return COMMRT_ERR_UNSUPPORTED;
  }
  auto image = std::make_unique<NcclImage>();
  image->name = info.name;
  if (info.code) // the string's own zero ends PTX
    image->code.assign(static_cast<const char *>(info.code), info.code_bytes);
  for (int64_t i = 0; i < info.num_kernels; ++i) {
    const commrt_image_kernel &kernel = info.kernels[i];
    LoadedKernel &loaded = image->kernels[kernel.name];
    loaded.argumentBytes.assign(kernel.argument_bytes, kernel.argument_bytes + kernel.num_arguments);
    loaded.host = kernel.host;
  }
  if (int status =
          cuda.libraryLoadData(&image->library, image->code.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0)) {
    cuda.getLastError();
    error = peer.cudaError("cudaLibraryLoadData", status);
    return COMMRT_ERR_BACKEND;
  }
  *result = image.get();
  peer.images.push_back(std::move(image));
  return COMMRT_OK;
}

void commsched::runtime::unloadImage(NcclPeer &peer, NcclImage *image, bool isIdle) {
  if (!isIdle)
    return;
  peer.job->cuda().libraryUnload(image->library);
  auto found = std::find_if(peer.images.begin(), peer.images.end(), [&](auto &each) { return each.get() == image; });
  peer.images.erase(found);
}

int32_t commsched::runtime::multiplyByLibrary(NcclPeer &peer, const commrt_product &product, cudaStream *stream,
                                              std::string &error) {
  if (!peer.products)
    peer.products = std::make_unique<MatrixLibrary>();
  if (!peer.products->open(isEmulated(peer), error))
    return COMMRT_ERR_UNSUPPORTED;
  WorkspaceMemory memory;
  memory.take = [&](int64_t bytes) {
    void *pointer = nullptr;
    if (takeScratch(peer, stream, bytes, &pointer)) {
      peer.job->cuda().getLastError();
      pointer = nullptr;
    }
    return pointer;
  };
  memory.release = [&](void *pointer, int64_t bytes) { releaseScratch(peer, stream, bytes, pointer); };
  return peer.products->multiply(memory, product, stream, error);
}

void commsched::runtime::freeImages(NcclPeer &peer) {
  peer.products.reset();
  for (auto &image : peer.images)
    peer.job->cuda().libraryUnload(image->library);
  peer.images.clear();
}

/// The code of the runtime's kernels for the rank's device; an error text.
static std::string compileForDevice(const NcclPeer &peer, std::string &code) {
  constexpr int major = 75, minor = 76; ///< cudaDevAttrComputeCapabilityMajor, Minor
  const CudaApi &cuda = peer.job->cuda();
  int version[2] = {0, 0};
  if (!cuda.deviceGetAttribute || cuda.deviceGetAttribute(&version[0], major, peer.device) ||
      cuda.deviceGetAttribute(&version[1], minor, peer.device))
    return "the CUDA runtime does not tell the device's compute capability";
  return compileKernels(version[0] * 10 + version[1], code);
}

int32_t commsched::runtime::findKernels(NcclPeer &peer, NcclImage **image, std::string &error) {
  *image = peer.kernels;
  if (peer.kernels)
    return COMMRT_OK;
  const CudaApi &cuda = peer.job->cuda();
  const char *mode = std::getenv("COMMRT_DEVICE_KERNELS");
  if (mode && std::strcmp(mode, "off") == 0) {
    error = "COMMRT_DEVICE_KERNELS is off";
    return COMMRT_ERR_UNSUPPORTED;
  }
  if (peer.noKernels.empty()) {
    commrt_image_info info = device::hostImage();
    std::string code;
    if (isEmulated(peer))
      device::setEmulatedClock({cuda.emulatorNow, cuda.emulatorTakes});
    else
      peer.noKernels = compileForDevice(peer, code);
    info.code = code.empty() ? nullptr : code.data();
    info.code_bytes = static_cast<int64_t>(code.size());
    if (peer.noKernels.empty() && loadImage(peer, info, &peer.kernels, peer.noKernels) == COMMRT_OK) {
      *image = peer.kernels;
      return COMMRT_OK;
    }
  }
  error = peer.noKernels;
  return COMMRT_ERR_UNSUPPORTED;
}

//===- Launch --------------------------------------------------------------------------------===//

/// What the emulated runtime calls: the first argument is the host build.
static void runHostBuild(void **arguments, CudaDim3 grid, CudaDim3 block) {
  auto host = *static_cast<commrt_host_kernel *>(arguments[0]);
  const uint32_t blocks[3] = {grid.x, grid.y, grid.z}, threads[3] = {block.x, block.y, block.z};
  host(arguments + 1, blocks, threads);
}

/// Makes the emulated runtime know the kernel, once per process, and gives the name under which it does: "scale(8,4)".
static std::string registerEmulated(const CudaApi &cuda, const std::string &name, const LoadedKernel &kernel) {
  std::string known = name + "(";
  for (size_t bytes : kernel.argumentBytes)
    known += (known.back() == '(' ? "" : ",") + std::to_string(bytes);
  known += ")";
  static Mutex mutex;
  static std::set<std::string> registered COMMRT_GUARDED_BY(mutex);
  Lock lock(mutex);
  if (!registered.insert(known).second)
    return known;
  std::vector<size_t> sizes = {sizeof(commrt_host_kernel)};
  sizes.insert(sizes.end(), kernel.argumentBytes.begin(), kernel.argumentBytes.end());
  cuda.emulatorRegisterKernel(known.c_str(), runHostBuild, static_cast<int>(sizes.size()), sizes.data());
  return known;
}

/// Finds the kernel in the image, the first time in its code.
static int32_t findKernel(NcclPeer &peer, NcclImage &image, const char *name, LoadedKernel **result,
                          std::string &error) {
  auto found = image.kernels.find(name);
  if (found != image.kernels.end() && found->second.handle) {
    *result = &found->second;
    return COMMRT_OK;
  }
  bool isListed = found != image.kernels.end() && found->second.host;
  if (isEmulated(peer) && !isListed) {
    error = "it has no host build, which the emulated CUDA runtime needs";
    return COMMRT_ERR_UNSUPPORTED;
  }
  const CudaApi &cuda = peer.job->cuda();
  LoadedKernel &kernel = image.kernels[name];
  std::string known = isEmulated(peer) ? registerEmulated(cuda, name, kernel) : name;
  if (int status = cuda.libraryGetKernel(&kernel.handle, image.library, known.c_str())) {
    cuda.getLastError();
    kernel.handle = nullptr;
    error = peer.cudaError("cudaLibraryGetKernel", status);
    return COMMRT_ERR_BACKEND;
  }
  *result = &kernel;
  return COMMRT_OK;
}

/// More dynamic shared memory than CUDA's default has to be asked for.
static int32_t allowShared(NcclPeer &peer, LoadedKernel &kernel, int64_t bytes, std::string &error) {
  constexpr int maxDynamicSharedMemorySize = 8; ///< cudaFuncAttributeMaxDynamicSharedMemorySize
  const CudaApi &cuda = peer.job->cuda();
  if (bytes <= kernel.mostShared || !cuda.funcSetAttribute)
    return COMMRT_OK;
  if (int status = cuda.funcSetAttribute(kernel.handle, maxDynamicSharedMemorySize, static_cast<int>(bytes))) {
    cuda.getLastError();
    error = peer.cudaError("cudaFuncSetAttribute", status) + " (" + std::to_string(bytes) + " bytes of shared memory)";
    return COMMRT_ERR_BACKEND;
  }
  kernel.mostShared = bytes;
  return COMMRT_OK;
}

int32_t commsched::runtime::prepareKernel(NcclPeer &peer, NcclImage &image, const char *name, int64_t sharedBytes,
                                          LoadedKernel **kernel, std::string &error) {
  int32_t status = findKernel(peer, image, name, kernel, error);
  return status ? status : allowShared(peer, **kernel, sharedBytes, error);
}

int commsched::runtime::launchPrepared(NcclPeer &peer, LoadedKernel &kernel, const commrt_kernel_call &call,
                                       cudaStream *stream) {
  CudaDim3 grid = {call.grid[0], call.grid[1], call.grid[2]}, block = {call.block[0], call.block[1], call.block[2]};
  void **arguments = const_cast<void **>(call.arguments); // CUDA reads them only
  std::vector<void *> withHost;
  if (isEmulated(peer)) {
    withHost.push_back(static_cast<void *>(&kernel.host));
    withHost.insert(withHost.end(), arguments, arguments + kernel.argumentBytes.size());
    arguments = withHost.data();
  }
  int result = peer.job->cuda().launchKernel(kernel.handle, grid, block, arguments, call.shared_bytes, stream);
  if (result)
    peer.job->cuda().getLastError();
  return result;
}

int32_t commsched::runtime::launchKernel(NcclPeer &peer, NcclImage &image, const commrt_kernel_call &call,
                                         cudaStream *stream, std::string &error) {
  LoadedKernel *kernel = nullptr;
  if (int32_t status = prepareKernel(peer, image, call.kernel, call.shared_bytes, &kernel, error))
    return status;
  int result = launchPrepared(peer, *kernel, call, stream);
  if (result)
    error = peer.cudaError("cudaLaunchKernel", result);
  return result ? COMMRT_ERR_BACKEND : COMMRT_OK;
}
