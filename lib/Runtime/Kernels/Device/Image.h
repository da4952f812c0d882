//===- Image.h - The kernels as text and as host builds ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A backend over CUDA compiles the text for its device; the emulated CUDA runtime runs the host builds.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_RUNTIME_KERNELS_DEVICE_IMAGE_H
#define COMMSCHED_LIB_RUNTIME_KERNELS_DEVICE_IMAGE_H

#include "CommSched/Runtime/Runtime.h"

namespace commsched::runtime::device {
/// Every kernel of Kernels.h, without code.
commrt_image_info hostImage();

/// A file of the text. Kernels.h includes the others by their names.
struct SourceFile {
  const char *name, *text;
};
/// The files, Kernels.h first, and their number.
extern const SourceFile sourceFiles[];
extern const int numSourceFiles;

/// The clock of the emulated device, for the host builds: the time at which the running kernel began, ns, and how long
/// it takes. Null where there is none: kernels then take no time.
struct EmulatedClock {
  int64_t (*now)();
  void (*takes)(int64_t ns);
};
void setEmulatedClock(const EmulatedClock &clock);
} // namespace commsched::runtime::device

#endif // COMMSCHED_LIB_RUNTIME_KERNELS_DEVICE_IMAGE_H
