/*===- FakeNvrtc.c - A library with NVRTC's symbols --------------------------------------------===
 *
 * Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
 * See LICENSE for licence information.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Stands in for libnvrtc: the code is the options. It knows the architectures 80 and 90. With FAKE_NVRTC_FAILS in the
 * environment nothing compiles.
 *
 *===--------------------------------------------------------------------------------------------===*/

#include <stdlib.h>
#include <string.h>

static char code[1024];
static const char failure[] = "a warning\nKernels.h(1): error: it fails\n1 error\n";

int nvrtcVersion(int *major, int *minor) {
  *major = 13;
  *minor = 0;
  return 0;
}
const char *nvrtcGetErrorString(int result) { return result == 6 ? "NVRTC_ERROR_COMPILATION" : "NVRTC_SUCCESS"; }
int nvrtcGetNumSupportedArchs(int *count) {
  *count = 2;
  return 0;
}
int nvrtcGetSupportedArchs(int *archs) {
  archs[0] = 80;
  archs[1] = 90;
  return 0;
}
int nvrtcCreateProgram(void **program, const char *source, const char *name, int headers, const char *const *texts,
                       const char *const *names) {
  *program = code;
  return 0;
}
int nvrtcDestroyProgram(void **program) { return 0; }
int nvrtcCompileProgram(void *program, int count, const char *const *options) {
  code[0] = 0;
  for (int i = 0; i < count; ++i)
    strncat(strncat(code, options[i], 200), " ", 2);
  return getenv("FAKE_NVRTC_FAILS") ? 6 : 0;
}
int nvrtcGetPTXSize(void *program, size_t *size) {
  *size = strlen(code) + 1;
  return 0;
}
int nvrtcGetPTX(void *program, char *text) {
  strcpy(text, code);
  return 0;
}
int nvrtcGetCUBINSize(void *program, size_t *size) {
  *size = strlen(code);
  return 0;
}
int nvrtcGetCUBIN(void *program, char *text) {
  memcpy(text, code, strlen(code));
  return 0;
}
int nvrtcGetProgramLogSize(void *program, size_t *size) {
  *size = sizeof(failure);
  return 0;
}
int nvrtcGetProgramLog(void *program, char *log) {
  memcpy(log, failure, sizeof(failure));
  return 0;
}
