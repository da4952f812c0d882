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

/* Calls by the thread that asks. */
static _Thread_local long fakeCalls;
long fakeCallsOfThread(void) { return fakeCalls; }

int cudaRuntimeGetVersion(int *version) {
  ++fakeCalls;
#ifdef FAKE_VERSION
  *version = FAKE_VERSION;
#else
  *version = 13000;
#endif
  return 0;
}
int cudaGetDeviceCount(int *count) {
  ++fakeCalls;
  *count = FAKE_DEVICES < 0 ? 0 : FAKE_DEVICES;
  return FAKE_DEVICES < 0 ? 35 : 0;
}
const char *cudaGetErrorString(int error) {
  return error == 35 ? "CUDA driver version is insufficient for CUDA runtime version" : "no error";
}
int cudaSetDevice(int device) {
  ++fakeCalls;
  return device < FAKE_DEVICES ? 0 : 101;
}
int cudaMalloc(void **pointer, size_t bytes) {
  ++fakeCalls;
  *pointer = malloc(bytes);
  return *pointer ? 0 : 2;
}
int cudaFree(void *pointer) {
  ++fakeCalls;
  free(pointer);
  return 0;
}
int cudaGetLastError(void) {
  ++fakeCalls;
  return 0;
}
int cudaMallocAsync(void **pointer, size_t bytes, void *stream) {
  ++fakeCalls;
  return cudaMalloc(pointer, bytes);
}
int cudaFreeAsync(void *pointer, void *stream) {
  ++fakeCalls;
  return cudaFree(pointer);
}
int cudaHostAlloc(void **pointer, size_t bytes, unsigned flags) {
  ++fakeCalls;
  return cudaMalloc(pointer, bytes);
}
int cudaFreeHost(void *pointer) {
  ++fakeCalls;
  return cudaFree(pointer);
}
int cudaMemcpy2DAsync(void *to, size_t toPitch, const void *from, size_t fromPitch, size_t width, size_t height,
                      int kind, void *stream) {
  ++fakeCalls;
  return 0;
}
int cudaMemsetAsync(void *to, int value, size_t bytes, void *stream) {
  ++fakeCalls;
  return 0;
}
int cudaLaunchHostFunc(void *stream, void (*function)(void *), void *argument) {
  ++fakeCalls;
  return 0;
}
int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  ++fakeCalls;
  *least = *greatest = 0;
  return 0;
}
int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
  ++fakeCalls;
  return 0;
}
int cudaStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
  ++fakeCalls;
#ifdef FAKE_NOTHING
  static char some;
  *stream = &some;
#endif
  return 0;
}
int cudaStreamDestroy(void *stream) {
  ++fakeCalls;
  return 0;
}
int cudaStreamWaitEvent(void *stream, void *event, unsigned flags) {
  ++fakeCalls;
  return 0;
}
int cudaEventCreateWithFlags(void **event, unsigned flags) {
  ++fakeCalls;
#ifdef FAKE_NOTHING
  static char some;
  *event = &some;
#endif
  return 0;
}
int cudaEventRecord(void *event, void *stream) {
  ++fakeCalls;
  return 0;
}
#ifdef FAKE_NOTHING
int cudaEventQuery(void *event) {
  ++fakeCalls;
  return 0;
}
#else
int cudaEventQuery(void *event) {
  ++fakeCalls;
  return 600;
}
#endif
int cudaEventElapsedTime(float *milliseconds, void *begin, void *end) {
  ++fakeCalls;
  *milliseconds = 0;
  return 0;
}
int cudaEventDestroy(void *event) {
  ++fakeCalls;
  return 0;
}
