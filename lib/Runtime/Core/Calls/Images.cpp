//===- Images.cpp - Kernels that compiled programs carry --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Images belong to a context and have names, because compiled code that several ranks of a process run has no place of
// its own for a handle. Launches are checked here, so that each backend gets what every device can carry out.
//
//===------------------------------------------------------------------------------------------===//

#include "Core/Core.h"
#include "Core/Trace/Ranges.h"
#include <algorithm>

using namespace commsched::runtime;

/// CUDA's limits, for every device since compute capability 3.0 (CUDA C++ Programming Guide, technical specifications).
static constexpr int64_t mostBlocks[3] = {INT32_MAX, 65535, 65535}, mostThreads[3] = {1024, 1024, 64};
static constexpr int64_t mostThreadsOfBlock = 1024;

/// The device's functions for images, or null.
static const commrt_device_ops *imageOps(const commrt_job *job) {
  const commrt_device_ops *device = job->device;
  bool hasImages = device && COMMRT_REACHES(device, commrt_device_ops, launch) && device->image_load &&
                   device->image_unload && device->launch;
  return hasImages ? device : nullptr;
}

//===- Load ----------------------------------------------------------------------------------===//

/// An error text if the image cannot be one.
static std::string checkInfo(const commrt_image_info &info) {
  if (!COMMRT_REACHES(&info, commrt_image_info, num_kernels) || !info.name)
    return "the structure is too small, or has no name";
  std::string what = std::string("image '") + info.name + "': ";
  if (info.code_bytes < 0 || (info.code ? info.code_bytes == 0 : info.code_bytes > 0))
    return what + "the size of its code is " + std::to_string(info.code_bytes) + " bytes";
  if (info.num_kernels < 0 || (info.num_kernels > 0 && !info.kernels))
    return what + "it has " + std::to_string(info.num_kernels) + " kernels and no list of them";
  std::unordered_set<std::string> names;
  for (int64_t i = 0; i < info.num_kernels; ++i) {
    const commrt_image_kernel &kernel = info.kernels[i];
    if (!kernel.name || kernel.num_arguments < 0 || (kernel.num_arguments > 0 && !kernel.argument_bytes))
      return what + "kernel " + std::to_string(i) + " has no name, or no list of its arguments";
    for (int64_t k = 0; k < kernel.num_arguments; ++k)
      if (kernel.argument_bytes[k] <= 0)
        return what + "argument " + std::to_string(k) + " of '" + kernel.name + "' has " +
               std::to_string(kernel.argument_bytes[k]) + " bytes";
    if (!names.insert(kernel.name).second)
      return what + "two kernels have the name '" + kernel.name + "'";
  }
  return "";
}

static int32_t loadOnDevice(commrt_image &image, const commrt_image_info &info) {
  commrt_context *context = image.context;
  const commrt_device_ops *device = imageOps(context->job);
  if (!device)
    return fail(context, COMMRT_ERR_UNSUPPORTED,
                std::string("backend '") + context->job->backend->name + "' loads no images of kernels");
  char text[2048] = "";
  int32_t status = device->image_load(context->peer, &info, &image.state, text, sizeof(text));
  return status ? fail(context, status, "image '" + image.name + "': " + text) : COMMRT_OK;
}

int32_t commrt_image_load(commrt_context *context, const commrt_image_info *info, commrt_image **result) {
  if (!context || !info || !result)
    return COMMRT_ERR_INVALID;
  *result = nullptr;
  if (int32_t status = latched(context))
    return status;
  if (std::string error = checkInfo(*info); !error.empty())
    return fail(context, COMMRT_ERR_INVALID, "commrt_image_load: " + error);
  if (auto found = context->images.find(info->name); found != context->images.end()) {
    const commrt_image &image = *found->second;
    if (image.code != info->code || image.codeBytes != info->code_bytes || image.kernels != info->kernels)
      return fail(context, COMMRT_ERR_INVALID, "commrt_image_load: another image has the name '" + image.name + "'");
    *result = found->second.get();
    return COMMRT_OK;
  }
  auto image = std::make_unique<commrt_image>();
  image->context = context;
  image->name = info->name;
  image->code = info->code;
  image->codeBytes = info->code_bytes;
  image->kernels = info->kernels;
  for (int64_t i = 0; i < info->num_kernels; ++i)
    image->hostKernels.emplace(info->kernels[i].name, info->kernels[i].host);
  if (context->job->device)
    if (int32_t status = loadOnDevice(*image, *info))
      return status;
  *result = image.get();
  context->images.emplace(image->name, std::move(image));
  return COMMRT_OK;
}

int32_t commrt_image_find(commrt_context *context, const char *name, commrt_image **image) {
  if (!context || !name || !image)
    return COMMRT_ERR_INVALID;
  auto found = context->images.find(name);
  *image = found == context->images.end() ? nullptr : found->second.get();
  return *image ? latched(context)
                : fail(context, COMMRT_ERR_INVALID, std::string("no image '") + name + "' was loaded");
}

int32_t commrt_image_unload(commrt_image *image) {
  if (!image)
    return COMMRT_OK;
  commrt_context *context = image->context;
  int32_t status = context->job->device ? waitStreams(context) : latched(context);
  if (image->state)
    context->job->device->image_unload(context->peer, image->state, status == COMMRT_OK);
  context->images.erase(std::string(image->name));
  return status;
}

void commsched::runtime::dropImages(commrt_context *context) {
  for (auto &[name, image] : context->images)
    if (image->state)
      context->job->device->image_unload(context->peer, image->state, 0);
  context->images.clear();
}

//===- Launch --------------------------------------------------------------------------------===//

/// An error text unless each size fits its limit.
static std::string checkShape(const int64_t (&grid)[3], const int64_t (&block)[3], int64_t sharedBytes) {
  auto text = [](const int64_t (&sizes)[3]) {
    return std::to_string(sizes[0]) + " x " + std::to_string(sizes[1]) + " x " + std::to_string(sizes[2]);
  };
  int64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    if (grid[i] < 0 || grid[i] > mostBlocks[i])
      return "a grid of " + text(grid) + " blocks, expected at most " + text(mostBlocks);
    bool isBlock = block[i] >= 1 && block[i] <= mostThreads[i];
    threads *= isBlock ? block[i] : 0;
    if (!isBlock || threads > mostThreadsOfBlock)
      return "blocks of " + text(block) + " threads, expected 1 to " + text(mostThreads) + ", and at most " +
             std::to_string(mostThreadsOfBlock) + " together";
  }
  if (sharedBytes < 0 || sharedBytes > INT32_MAX)
    return std::to_string(sharedBytes) + " bytes of shared memory";
  return "";
}

/// On backends without a device the caller does the stream's work.
static int32_t launchOnHost(const commrt_image &image, const commrt_kernel_call &call) {
  commrt_context *context = image.context;
  auto found = image.hostKernels.find(call.kernel);
  if (found == image.hostKernels.end() || !found->second)
    return fail(context, COMMRT_ERR_UNSUPPORTED,
                "kernel '" + std::string(call.kernel) + "' of image '" + image.name +
                    "' has no host build, which backend '" + context->job->backend->name + "' needs");
  int64_t begin = contextNs(context);
  found->second(call.arguments, call.grid, call.block);
  return commrt_trace_compute(context, call.kernel, begin, contextNs(context));
}

int32_t commrt_kernel_launch(commrt_image *image, const char *kernel, int64_t gridX, int64_t gridY, int64_t gridZ,
                             int64_t blockX, int64_t blockY, int64_t blockZ, int64_t sharedBytes,
                             void *const *arguments, commrt_stream *stream) {
  if (!image || (stream && stream->context != image->context))
    return COMMRT_ERR_INVALID;
  commrt_context *context = image->context;
  if (int32_t status = latched(context))
    return status;
  if (!kernel)
    return fail(context, COMMRT_ERR_INVALID, "commrt_kernel_launch: the kernel's name is NULL");
  auto what = [&] { return "kernel '" + std::string(kernel) + "' of image '" + image->name + "': "; };
  const int64_t grid[3] = {gridX, gridY, gridZ}, block[3] = {blockX, blockY, blockZ};
  if (std::string error = checkShape(grid, block, sharedBytes); !error.empty())
    return fail(context, COMMRT_ERR_INVALID, what() + error);
  commrt_stream *on = stream ? stream : context->stream;
  if (on->kind != COMMRT_STREAM_COMPUTE)
    return fail(context, COMMRT_ERR_INVALID, what() + "a launch on a stream of communication");
  if (gridX == 0 || gridY == 0 || gridZ == 0)
    return COMMRT_OK;
  Range range([&] { return std::string(kernel); });
  commrt_kernel_call call = {};
  call.struct_size = sizeof(call);
  call.kernel = kernel;
  for (int i = 0; i < 3; ++i) {
    call.grid[i] = static_cast<uint32_t>(grid[i]);
    call.block[i] = static_cast<uint32_t>(block[i]);
  }
  call.shared_bytes = sharedBytes;
  call.arguments = arguments;
  if (!context->job->device)
    return launchOnHost(*image, call);
  char text[1024] = "";
  void *begun = traceEvent(context, on);
  int32_t status = context->job->device->launch(context->peer, image->state, &call, on->handle, text, sizeof(text));
  traceComputation(context, kernel, begun, on);
  if (int32_t earlier = latched(context))
    return earlier;
  return status ? fail(context, status, what() + text) : COMMRT_OK;
}
