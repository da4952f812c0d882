/*===- FakeCudart.c - A library with the CUDA runtime's symbols ----------------------------------===
 *
 * Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
 * See LICENSE for licence information.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Stands in for libcudart where there is none. FAKE_DEVICES devices; below 0, what a machine without a driver answers.
 * FAKE_VERSION: of the runtime. FAKE_NOTHING: events are done at once.
 *
 *===--------------------------------------------------------------------------------------------===*/

#include <stddef.h>
#include <stdlib.h>

#ifndef FAKE_DEVICES
#define FAKE_DEVICES 2
#endif

int cudaRuntimeGetVersion(int *version) {
#ifdef FAKE_VERSION
  *version = FAKE_VERSION;
#else
  *version = 13000;
#endif
  return 0;
}
int cudaGetDeviceCount(int *count) {
  *count = FAKE_DEVICES < 0 ? 0 : FAKE_DEVICES;
  return FAKE_DEVICES < 0 ? 35 : 0;
}
const char *cudaGetErrorString(int error) {
  return error == 35 ? "CUDA driver version is insufficient for CUDA runtime version" : "no error";
}
int cudaSetDevice(int device) { return device < FAKE_DEVICES ? 0 : 101; }
int cudaMalloc(void **pointer, size_t bytes) {
  *pointer = malloc(bytes);
  return *pointer ? 0 : 2;
}
int cudaFree(void *pointer) {
  free(pointer);
  return 0;
}
int cudaGetLastError(void) { return 0; }
int cudaMallocAsync(void **pointer, size_t bytes, void *stream) { return cudaMalloc(pointer, bytes); }
int cudaFreeAsync(void *pointer, void *stream) { return cudaFree(pointer); }
int cudaHostAlloc(void **pointer, size_t bytes, unsigned flags) { return cudaMalloc(pointer, bytes); }
int cudaFreeHost(void *pointer) { return cudaFree(pointer); }
int cudaMemcpy2DAsync(void *to, size_t toPitch, const void *from, size_t fromPitch, size_t width, size_t height,
                      int kind, void *stream) {
  return 0;
}
int cudaMemsetAsync(void *to, int value, size_t bytes, void *stream) { return 0; }
int cudaLaunchHostFunc(void *stream, void (*function)(void *), void *argument) { return 0; }
int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = *greatest = 0;
  return 0;
}
int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) { return 0; }
int cudaStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
#ifdef FAKE_NOTHING
  static char some;
  *stream = &some;
#endif
  return 0;
}
int cudaStreamDestroy(void *stream) { return 0; }
int cudaStreamWaitEvent(void *stream, void *event, unsigned flags) { return 0; }
int cudaEventCreateWithFlags(void **event, unsigned flags) {
#ifdef FAKE_NOTHING
  static char some;
  *event = &some;
#endif
  return 0;
}
int cudaEventRecord(void *event, void *stream) { return 0; }
#ifdef FAKE_NOTHING
int cudaEventQuery(void *event) { return 0; }
#else
int cudaEventQuery(void *event) { return 600; }
#endif
int cudaEventElapsedTime(float *milliseconds, void *begin, void *end) {
  *milliseconds = 0;
  return 0;
}
int cudaEventDestroy(void *event) { return 0; }
