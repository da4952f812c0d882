//===- DeviceLauncher.h - Launches of the runtime's own kernels -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A computation on a device puts kernels of Device/Kernels.h on the stream of commrt_set_stream.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_RUNTIME_KERNELS_DEVICELAUNCHER_H
#define COMMSCHED_LIB_RUNTIME_KERNELS_DEVICELAUNCHER_H

#include "Core/Core.h"
#include "Kernels/Kernels.h"

namespace commsched::runtime {

/// One computation on a device.
class DeviceLauncher {
public:
  explicit DeviceLauncher(commrt_context *context)
      : context(context), ops(context->job->device), stream(context->stream->handle) {}
  /// Gives the scratch memory back, in the order of the stream.
  ~DeviceLauncher();
  DeviceLauncher(const DeviceLauncher &) = delete;
  DeviceLauncher &operator=(const DeviceLauncher &) = delete;

  /// Whether the backend has kernels, or the reason why not.
  bool isPossible(std::string &reason);

  /// Puts a kernel over `elements` elements on the stream. After an error, which latches, nothing more is launched.
  template <typename Arguments> void launch(const char *kernel, const Arguments &arguments, int64_t elements) {
    static_assert(sizeof(Arguments) <= 4096, "CUDA's limit before compute capability 7.0");
    launchKernel(kernel, &arguments, elements);
  }
  /// A product by the backend's library, if it has one for these operands and the job's reductions need not run in rank
  /// order; otherwise by a kernel, which has the bits of the host.
  void multiply(const device::Product &product);
  /// Between the two, the stream takes at least `ns`: it waits on the device for what is left of it.
  void beginPace();
  void endPace(int64_t ns);
  /// Device memory until the end of the computation, filled with zeros; null after an error.
  void *scratch(int64_t bytes);
  /// `ran`, or `failed`.
  Outcome outcome() const { return status == COMMRT_OK ? Outcome::ran : Outcome::failed; }

private:
  void launchKernel(const char *kernel, const void *arguments, int64_t elements);
  void *allocate(int64_t bytes);
  void launchBlocks(const char *kernel, const void *arguments, int64_t blocks);
  void note(int32_t result, const std::string &what);

  commrt_context *context;
  const commrt_device_ops *ops;
  void *stream, *image = nullptr;
  int32_t status = COMMRT_OK;
  int64_t *begun = nullptr; ///< on the device: when the computation began
  std::vector<void *> scratches;
};

} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_KERNELS_DEVICELAUNCHER_H
