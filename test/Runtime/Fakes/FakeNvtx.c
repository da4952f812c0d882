/*===- FakeNvtx.c - A profiler that writes down the ranges it is told of --------------------------===
 *
 * Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
 * See LICENSE for licence information.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * The library that NVTX_INJECTION64_PATH names. Where NVIDIA's headers are, it is compiled with their types.
 *
 *===--------------------------------------------------------------------------------------------===*/

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef FAKE_HAS_NVTX_HEADERS
#include <nvtx3/nvToolsExt.h>
#else
typedef void (*NvtxFunctionPointer)(void);
typedef NvtxFunctionPointer **NvtxFunctionTable;
typedef const void *(*NvtxGetExportTableFunc_t)(uint32_t table);
typedef struct {
  size_t struct_size;
  int (*GetModuleFunctionTable)(int module, NvtxFunctionTable *table, unsigned *size);
} NvtxExportTableCallbacks;
typedef struct {
  uint16_t version, size;
  uint32_t category;
  int32_t colorType;
  uint32_t color;
  int32_t payloadType, reserved0;
  uint64_t payload;
  int32_t messageType;
  union {
    const char *ascii;
  } message;
} nvtxEventAttributes_t;
typedef void *nvtxDomainHandle_t;
enum {
  NVTX_VERSION = 3,
  NVTX_MESSAGE_TYPE_ASCII = 1,
  NVTX_ETID_CALLBACKS = 1,
  NVTX_CB_MODULE_CORE2 = 5,
  NVTX_CBID_CORE2_DomainRangePushEx = 4,
  NVTX_CBID_CORE2_DomainRangePop = 5,
  NVTX_CBID_CORE2_DomainCreateA = 12,
  NVTX_CBID_CORE2_SIZE = 16
};
#endif

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char log_text[1 << 16];
static char domain_name[64];
static _Thread_local int depth;

static void add(const char *what, const char *text) {
  pthread_mutex_lock(&mutex);
  size_t used = strlen(log_text);
  snprintf(log_text + used, sizeof(log_text) - used, "%d %s %s\n", depth, what, text);
  pthread_mutex_unlock(&mutex);
}

static nvtxDomainHandle_t create(const char *name) {
  snprintf(domain_name, sizeof(domain_name), "%s", name);
  add("domain", name);
  return (nvtxDomainHandle_t)domain_name;
}

static int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes) {
  if ((char *)domain != domain_name || attributes->version != NVTX_VERSION || attributes->size != sizeof(*attributes) ||
      attributes->messageType != NVTX_MESSAGE_TYPE_ASCII)
    add("bad", "attributes");
  else
    add("push", attributes->message.ascii);
  return depth++;
}

static int pop(nvtxDomainHandle_t domain) {
  --depth;
  add("pop", (char *)domain == domain_name ? "" : "of another domain");
  return depth;
}

/* What was written down, for the test. */
__attribute__((visibility("default"))) const char *fakeNvtxLog(void) { return log_text; }

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get) {
  const NvtxExportTableCallbacks *callbacks = get(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable table = NULL;
  unsigned size = 0;
  if (!callbacks || callbacks->struct_size < sizeof(*callbacks) || get(1000) ||
      !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) || size < NVTX_CBID_CORE2_SIZE)
    return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create;
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
  *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
  return 1;
}
