//===- CublasLt.cpp - The emulated cuBLASLt ---------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of dense matrices by columns, in one precision, with the rules of cublasLtMatmul: shapes and batches fit, an
// algorithm is used for the operands it was found for and at the alignments that were promised, the workspace is as
// large as the algorithm wants. A broken rule is reported. Sums run in order of k after what the result holds, and are
// rounded once. With CUBLASLT_EMU_UNSUPPORTED=1 there is no algorithm for anything.
//
//===------------------------------------------------------------------------------------------===//

#include "CublasLtApi.h"
#include "CudaApi.h"
#include "Hooks.h"
#include "Report.h"
#include "ShortFloats.h"
#include <atomic>
#include <cstring>
#include <mutex>
#include <set>

struct cublasLtContext {
  int device;
};
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  int32_t transposes[2] = {CUBLAS_OP_N, CUBLAS_OP_N};
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType type;
  uint64_t rows, columns;
  int64_t distance, batchOffset = 0;
  int32_t batches = 1;
};
struct cublasLtMatmulPreferenceOpaque_t {
  uint64_t workspaceBytes = 0;
  uint32_t alignments[4] = {256, 256, 256, 256};
};

namespace emulator {
namespace {
constexpr size_t wantedWorkspace = 512;
constexpr uint64_t magic = 0x616c676f72697468; ///< marks algorithms of this library

/// One matrix for the kernel. The address is negated: the kernel reaches it by emulatorAccess, which also tells the
/// sanitizer, and so the runtime shall not find it among the arguments.
struct Matrix {
  uintptr_t negated;
  int64_t rows, columns, distance, batchOffset;
  int32_t type, isTransposed;
};
struct Product {
  Matrix a, b, d;
  uintptr_t negatedWorkspace;
  int64_t k, batches;
  int32_t isDouble, accumulates;
};
} // namespace

static std::atomic<int64_t> products{0};
static std::mutex mutex;
static std::set<const void *> &alive() {
  static auto *set = new std::set<const void *>;
  return *set;
}
template <typename T> static void add(T *object, T **result) {
  std::lock_guard<std::mutex> lock(mutex);
  alive().insert(object);
  *result = object;
}
static void check(const void *object, const char *what) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!alive().count(object))
    report(std::string("the ") + what + " does not exist, or was destroyed");
}
template <typename T> static cublasStatus_t remove(T *object, const char *what) {
  check(object, what);
  std::lock_guard<std::mutex> lock(mutex);
  alive().erase(object);
  delete object;
  return CUBLAS_STATUS_SUCCESS;
}
template <typename T> static void assign(T &member, const void *value, size_t bytes) {
  if (bytes != sizeof(T))
    report("an attribute of " + std::to_string(sizeof(T)) + " bytes is given " + std::to_string(bytes));
  memcpy(&member, value, bytes);
}

static size_t sizeOf(int32_t type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }

//===- Kernel --------------------------------------------------------------------------------===//

static double loadElement(const char *data, int32_t type, int64_t at) {
  if (type == CUDA_R_64F)
    return reinterpret_cast<const double *>(data)[at];
  if (type == CUDA_R_32F)
    return reinterpret_cast<const float *>(data)[at];
  uint16_t bits = reinterpret_cast<const uint16_t *>(data)[at];
  return type == CUDA_R_16F ? Half::load(bits) : Bfloat::load(bits);
}
static void storeElement(char *data, int32_t type, int64_t at, double value) {
  if (type == CUDA_R_64F)
    reinterpret_cast<double *>(data)[at] = value;
  else if (type == CUDA_R_32F)
    reinterpret_cast<float *>(data)[at] = float(value);
  else
    reinterpret_cast<uint16_t *>(data)[at] =
        type == CUDA_R_16F ? Half::store(float(value)) : Bfloat::store(float(value));
}

/// Columns are reported one by one: what lies between them is not touched.
static char *accessMatrix(const Matrix &matrix, int64_t batch, bool isWritten) {
  char *address = reinterpret_cast<char *>(~matrix.negated) + batch * matrix.batchOffset * int64_t(sizeOf(matrix.type));
  char *first = nullptr;
  for (int64_t column = 0; column < matrix.columns; ++column) {
    char *at = address + column * matrix.distance * int64_t(sizeOf(matrix.type));
    auto *where = static_cast<char *>(emulatorAccess(at, size_t(matrix.rows) * sizeOf(matrix.type), isWritten));
    first = first ? first : where;
  }
  return first;
}

static int64_t placeOf(const Matrix &matrix, int64_t row, int64_t column) {
  return matrix.isTransposed ? row * matrix.distance + column : column * matrix.distance + row;
}

template <typename T> static void multiply(const Product &p) {
  for (int64_t batch = 0; batch < p.batches; ++batch) {
    const char *a = accessMatrix(p.a, batch, false), *b = accessMatrix(p.b, batch, false);
    char *d = accessMatrix(p.d, batch, true);
    for (int64_t row = 0; row < p.d.rows; ++row)
      for (int64_t column = 0; column < p.d.columns; ++column) {
        T sum = p.accumulates ? T(loadElement(d, p.d.type, placeOf(p.d, row, column))) : T(0);
        for (int64_t k = 0; k < p.k; ++k)
          sum +=
              T(loadElement(a, p.a.type, placeOf(p.a, row, k))) * T(loadElement(b, p.b.type, placeOf(p.b, k, column)));
        storeElement(d, p.d.type, placeOf(p.d, row, column), double(sum));
      }
  }
}

static void runProduct(void **arguments, dim3, dim3) {
  auto &product = *static_cast<Product *>(arguments[0]);
  memset(emulatorAccess(reinterpret_cast<void *>(~product.negatedWorkspace), wantedWorkspace, 1), 0x5a,
         wantedWorkspace);
  if (product.isDouble)
    multiply<double>(product);
  else
    multiply<float>(product);
}

static cudaKernel_t kernel() {
  static const cudaKernel_t found = [] {
    const size_t bytes = sizeof(Product);
    cudaLibrary_t library = nullptr;
    cudaKernel_t kernel = nullptr;
    emulatorRegisterKernel("cublaslt_emu_product", runProduct, 1, &bytes);
    if (cudaLibraryLoadData(&library, "cublaslt_emu", nullptr, nullptr, 0, nullptr, nullptr, 0) ||
        cudaLibraryGetKernel(&kernel, library, "cublaslt_emu_product"))
      report("the kernel cannot be loaded");
    return kernel;
  }();
  return found;
}

//===- Rules ---------------------------------------------------------------------------------===//

static void mixInto(uint64_t &hash, uint64_t value) { hash = (hash ^ value) * 0x100000001b3; }

/// A hash of all that an algorithm depends on.
static uint64_t hashOf(const cublasLtMatmulDescOpaque_t &desc,
                       const cublasLtMatrixLayoutOpaque_t *const (&layouts)[4]) {
  uint64_t hash = 0xcbf29ce484222325;
  for (uint64_t value : {uint64_t(desc.compute), uint64_t(desc.transposes[0]), uint64_t(desc.transposes[1])})
    mixInto(hash, value);
  for (const auto *layout : layouts)
    for (uint64_t value : {uint64_t(layout->type), layout->rows, layout->columns, uint64_t(layout->distance),
                           uint64_t(layout->batchOffset), uint64_t(layout->batches)})
      mixInto(hash, value);
  return hash;
}

static std::string textOf(uint64_t rows, uint64_t columns) {
  return std::to_string(rows) + " x " + std::to_string(columns);
}

/// Reports what contradicts itself.
static void checkShapes(const cublasLtMatmulDescOpaque_t &desc,
                        const cublasLtMatrixLayoutOpaque_t *const (&layouts)[4]) {
  uint64_t sizes[2][2];
  for (int i = 0; i < 2; ++i) {
    bool isTransposed = desc.transposes[i] == CUBLAS_OP_T;
    sizes[i][isTransposed] = layouts[i]->rows;
    sizes[i][!isTransposed] = layouts[i]->columns;
  }
  if (sizes[0][1] != sizes[1][0] || layouts[3]->rows != sizes[0][0] || layouts[3]->columns != sizes[1][1])
    report(textOf(sizes[0][0], sizes[0][1]) + " times " + textOf(sizes[1][0], sizes[1][1]) + " is not " +
           textOf(layouts[3]->rows, layouts[3]->columns));
  if (memcmp(layouts[2], layouts[3], sizeof(*layouts[2])) != 0)
    report("c and d have different layouts");
  for (const auto *layout : layouts) {
    if (layout->distance < int64_t(layout->rows))
      report("columns of " + std::to_string(layout->rows) + " elements are " + std::to_string(layout->distance) +
             " elements apart");
    if (layout->batches != layouts[3]->batches)
      report("batches of " + std::to_string(layout->batches) + " and of " + std::to_string(layouts[3]->batches));
  }
  auto isNarrow = [](cudaDataType type) { return type == CUDA_R_16F || type == CUDA_R_16BF; };
  bool isDouble = desc.compute == CUBLAS_COMPUTE_64F;
  cudaDataType in = layouts[0]->type, out = layouts[3]->type;
  if (in != layouts[1]->type || (in != out && !(isNarrow(in) && out == CUDA_R_32F)) || isDouble != (in == CUDA_R_64F) ||
      desc.scale != (isDouble ? CUDA_R_64F : CUDA_R_32F))
    report("these types do not go together");
}

static double readScale(const cublasLtMatmulDescOpaque_t &desc, const void *value) {
  return desc.scale == CUDA_R_64F ? *static_cast<const double *>(value) : *static_cast<const float *>(value);
}
} // namespace emulator

using namespace emulator;

extern "C" {
const char *cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "the functionality requested is not supported" : "an error";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
  InFunction function("cublasLtCreate");
  auto *made = new cublasLtContext;
  if (cudaGetDevice(&made->device))
    report("there is no device");
  add(made, handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  InFunction function("cublasLtDestroy");
  return remove(handle, "handle");
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute, cudaDataType_t scale) {
  add(new cublasLtMatmulDescOpaque_t{compute, scale}, desc);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  InFunction function("cublasLtMatmulDescDestroy");
  return remove(desc, "descriptor");
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes) {
  InFunction function("cublasLtMatmulDescSetAttribute");
  check(desc, "descriptor");
  int which = attribute - CUBLASLT_MATMUL_DESC_TRANSA;
  if (which < 0 || which > 1)
    return CUBLAS_STATUS_INVALID_VALUE;
  assign(desc->transposes[which], value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t distance) {
  add(new cublasLtMatrixLayoutOpaque_t{type, rows, columns, distance}, layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  InFunction function("cublasLtMatrixLayoutDestroy");
  return remove(layout, "layout");
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                size_t bytes) {
  InFunction function("cublasLtMatrixLayoutSetAttribute");
  check(layout, "layout");
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
    assign(layout->batches, value, bytes);
  else if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
    assign(layout->batchOffset, value, bytes);
  else
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
  add(new cublasLtMatmulPreferenceOpaque_t, preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  InFunction function("cublasLtMatmulPreferenceDestroy");
  return remove(preference, "preference");
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t bytes) {
  InFunction function("cublasLtMatmulPreferenceSetAttribute");
  check(preference, "preference");
  int which = attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
    assign(preference->workspaceBytes, value, bytes);
  else if (which >= 0 && which < 4)
    assign(preference->alignments[which], value, bytes);
  else
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t *results, int *found) {
  InFunction function("cublasLtMatmulAlgoGetHeuristic");
  check(handle, "handle");
  check(desc, "descriptor");
  check(preference, "preference");
  const cublasLtMatrixLayoutOpaque_t *layouts[4] = {a, b, c, d};
  for (const auto *layout : layouts)
    check(layout, "layout");
  checkShapes(*desc, layouts);
  *found = 0;
  if (requested < 1 || preference->workspaceBytes < wantedWorkspace || option("CUBLASLT_EMU_UNSUPPORTED", 0))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  results[0] = {};
  uint64_t *algorithm = results[0].algo.data;
  algorithm[0] = magic;
  algorithm[1] = hashOf(*desc, layouts);
  for (int i = 0; i < 4; ++i)
    algorithm[2 + i] = preference->alignments[i];
  results[0].workspaceSize = wantedWorkspace;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t aLayout, const void *b, cublasLtMatrixLayout_t bLayout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t cLayout, void *d,
                              cublasLtMatrixLayout_t dLayout, const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t workspaceBytes, cudaStream_t stream) {
  InFunction function("cublasLtMatmul");
  check(handle, "handle");
  check(desc, "descriptor");
  const cublasLtMatrixLayoutOpaque_t *layouts[4] = {aLayout, bLayout, cLayout, dLayout};
  const void *data[4] = {a, b, c, d};
  for (const auto *layout : layouts)
    check(layout, "layout");
  checkShapes(*desc, layouts);
  int device = -1;
  if (cudaGetDevice(&device) || device != handle->device)
    report("the handle is of device " + std::to_string(handle->device) + ", the thread's device is " +
           std::to_string(device));
  if (!algorithm || algorithm->data[0] != magic || algorithm->data[1] != hashOf(*desc, layouts))
    report("the algorithm was found for other operands");
  for (int i = 0; i < 4; ++i)
    for (int64_t batch = 0; batch < layouts[i]->batches; ++batch) {
      uintptr_t address =
          reinterpret_cast<uintptr_t>(data[i]) + uintptr_t(batch * layouts[i]->batchOffset) * sizeOf(layouts[i]->type);
      if (address % algorithm->data[2 + i] != 0)
        report("operand " + std::to_string(i) + " is not aligned to " + std::to_string(algorithm->data[2 + i]) +
               " bytes, as was promised");
    }
  if (!workspace || workspaceBytes < wantedWorkspace)
    report("the algorithm wants " + std::to_string(wantedWorkspace) + " bytes of workspace, and is given " +
           std::to_string(workspaceBytes));
  double scale = readScale(*desc, beta);
  if (readScale(*desc, alpha) != 1 || (scale != 0 && scale != 1) || c != d)
    report("only alpha = 1, beta = 0 or 1, and c = d are emulated");
  auto matrix = [&](int i) {
    const auto &layout = *layouts[i];
    return Matrix{~reinterpret_cast<uintptr_t>(data[i]),
                  int64_t(layout.rows),
                  int64_t(layout.columns),
                  layout.distance,
                  layout.batchOffset,
                  layout.type,
                  i < 2 && desc->transposes[i] == CUBLAS_OP_T};
  };
  Product product = {matrix(0),
                     matrix(1),
                     matrix(3),
                     ~reinterpret_cast<uintptr_t>(workspace),
                     0,
                     dLayout->batches,
                     desc->compute == CUBLAS_COMPUTE_64F,
                     scale == 1};
  product.k = int64_t(desc->transposes[0] == CUBLAS_OP_T ? aLayout->rows : aLayout->columns);
  void *arguments[] = {&product};
  ++products;
  dim3 one = {1, 1, 1};
  cudaError_t error = cudaLaunchKernel(kernel(), one, one, arguments, 0, stream);
  return error ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

int64_t emulatorProducts() { return products; }
}
