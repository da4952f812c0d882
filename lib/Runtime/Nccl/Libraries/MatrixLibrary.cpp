//===- MatrixLibrary.cpp - Matrix products by cuBLASLt ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// cuBLASLt thinks in columns: a dense row of ours is a dense column of the transposed matrix. With result = left *
// right by rows it computes transposed(result) = transposed(right) * transposed(left), without moving anything.
//
//===------------------------------------------------------------------------------------------===//

#include "MatrixLibrary.h"
#include "SymbolTable.h"
#include <algorithm>
#include <cstdlib>

using namespace commsched::runtime;

namespace {
enum DataType { r32f = 0, r64f = 1, r16f = 2, r16bf = 14 }; ///< cudaDataType
enum ComputeType { compute32f = 68, compute64f = 70 };      ///< cublasComputeType_t
constexpr int transposeA = 3, transposeB = 4;               ///< cublasLtMatmulDescAttributes_t
constexpr int batchCount = 5, batchOffset = 6;              ///< cublasLtMatrixLayoutAttribute_t
/// cublasLtMatmulPreferenceAttributes_t; the alignments of b, c and d follow.
constexpr int maxWorkspaceBytes = 1, minAlignmentA = 5;
constexpr int notSupported = 15; ///< CUBLAS_STATUS_NOT_SUPPORTED
/// What NVIDIA recommends for Hopper (cuBLAS documentation, cublasSetWorkspace).
constexpr uint64_t workspaceLimit = uint64_t(32) << 20;
constexpr uint32_t bestAlignment = 256;
/// More calls than this for one product are a case for a kernel.
constexpr int64_t mostCalls = 256;

/// A matrix as columns: `distance` from one column to the next; `isTransposed`: the columns are those of the
/// transposed.
struct Columns {
  int64_t rows, columns, distance;
  bool isTransposed;
};
} // namespace

struct commsched::runtime::MatrixPlan {
  const CublasLtApi &api;
  void *desc = nullptr, *layouts[3] = {};
  CublasLtAlgorithm algorithm = {};
  size_t workspaceBytes = 0;
  bool isDouble = false, accumulates = false;

  explicit MatrixPlan(const CublasLtApi &api) : api(api) {}
  ~MatrixPlan() {
    for (void *layout : layouts)
      if (layout)
        api.layoutDestroy(layout);
    if (desc)
      api.matmulDescDestroy(desc);
  }
};

//===- The library ---------------------------------------------------------------------------===//

MatrixLibrary::MatrixLibrary() = default;

MatrixLibrary::~MatrixLibrary() {
  plans.clear();
  if (handle)
    api.destroy(handle);
}

bool MatrixLibrary::open(bool isEmulated, std::string &why) {
  const char *given = std::getenv("COMMRT_CUBLASLT_LIBRARY");
  if (!wasOpened) {
    wasOpened = true;
    SymbolLibrary what = {"cuBLASLt",
                          "COMMRT_CUBLASLT_LIBRARY",
                          {"libcublasLt.so.13", "libcublasLt.so.12"},
                          {{"cublasLtGetStatusString", slotOf(api.getStatusString)},
                           {"cublasLtCreate", slotOf(api.create)},
                           {"cublasLtDestroy", slotOf(api.destroy)},
                           {"cublasLtMatmulDescCreate", slotOf(api.matmulDescCreate)},
                           {"cublasLtMatmulDescDestroy", slotOf(api.matmulDescDestroy)},
                           {"cublasLtMatmulDescSetAttribute", slotOf(api.matmulDescSetAttribute)},
                           {"cublasLtMatrixLayoutCreate", slotOf(api.layoutCreate)},
                           {"cublasLtMatrixLayoutDestroy", slotOf(api.layoutDestroy)},
                           {"cublasLtMatrixLayoutSetAttribute", slotOf(api.layoutSetAttribute)},
                           {"cublasLtMatmulPreferenceCreate", slotOf(api.preferenceCreate)},
                           {"cublasLtMatmulPreferenceDestroy", slotOf(api.preferenceDestroy)},
                           {"cublasLtMatmulPreferenceSetAttribute", slotOf(api.preferenceSetAttribute)},
                           {"cublasLtMatmulAlgoGetHeuristic", slotOf(api.algoGetHeuristic)},
                           {"cublasLtMatmul", slotOf(api.matmul)}}};
    if (isEmulated && !given)
      reason = "the real cuBLASLt cannot be used with an emulated CUDA runtime";
    else
      reason = loadSymbols(what, &library);
    if (reason.empty())
      if (int status = api.create(&handle)) {
        reason = std::string("cublasLtCreate failed: ") + api.getStatusString(status);
        handle = nullptr;
      }
  }
  why = reason;
  return handle;
}

//===- Shapes --------------------------------------------------------------------------------===//

/// cuBLASLt's number of a type; -1 for others.
static int typeOf(int32_t dtype) {
  switch (dtype) {
  case COMMRT_F16:
    return r16f;
  case COMMRT_BF16:
    return r16bf;
  case COMMRT_F32:
    return r32f;
  case COMMRT_F64:
    return r64f;
  default:
    return -1;
  }
}

/// False if neither the rows nor the columns are dense and apart.
static bool asColumns(int64_t rows, int64_t columns, int64_t rowStride, int64_t columnStride, Columns &result) {
  if ((rowStride == 1 || rows == 1) && (columnStride >= rows || columns == 1)) {
    result = {rows, columns, columns == 1 ? rows : columnStride, false};
    return true;
  }
  if ((columnStride == 1 || columns == 1) && (rowStride >= columns || rows == 1)) {
    result = {columns, rows, rows == 1 ? columns : rowStride, true};
    return true;
  }
  return false;
}

/// The largest power of two, up to `bestAlignment`, that divides an address and what is added to it.
static int64_t alignmentOf(const void *data, int64_t step, int32_t dtype) {
  uint64_t bits =
      reinterpret_cast<uintptr_t>(data) | static_cast<uint64_t>(step * commrt_dtype_size(dtype)) | bestAlignment;
  return static_cast<int64_t>(bits & -bits);
}

//===- Plans ---------------------------------------------------------------------------------===//

namespace {
/// What a plan depends on, in the order of a key.
enum Key { inType, outType, batches, accumulates, matrices, alignments = matrices + 3 * 5, keySize = alignments + 3 };
} // namespace

/// The plan of a key, made at the first call; null if cuBLASLt has no algorithm, or with an error.
MatrixPlan *MatrixLibrary::findPlan(const std::vector<int64_t> &key, std::string &error) {
  auto [entry, isNew] = plans.try_emplace(key);
  if (!isNew)
    return entry->second.get();
  auto plan = std::make_unique<MatrixPlan>(api);
  plan->isDouble = key[inType] == r64f;
  plan->accumulates = key[accumulates];
  int status =
      api.matmulDescCreate(&plan->desc, plan->isDouble ? compute64f : compute32f, plan->isDouble ? r64f : r32f);
  auto call = [&](auto function, auto... arguments) {
    if (!status)
      status = function(arguments...);
  };
  for (int i = 0; i < 3; ++i) {
    const int64_t *matrix = &key[matrices + i * 5]; // rows, columns, distance, whether transposed, batch offset
    auto count = static_cast<int32_t>(key[batches]), operation = static_cast<int32_t>(matrix[3]);
    if (i < 2)
      call(api.matmulDescSetAttribute, plan->desc, i == 0 ? transposeA : transposeB, &operation, sizeof(operation));
    call(api.layoutCreate, &plan->layouts[i], static_cast<int>(key[i < 2 ? inType : outType]),
         static_cast<uint64_t>(matrix[0]), static_cast<uint64_t>(matrix[1]), matrix[2]);
    call(api.layoutSetAttribute, plan->layouts[i], batchCount, &count, sizeof(count));
    call(api.layoutSetAttribute, plan->layouts[i], batchOffset, &matrix[4], sizeof(matrix[4]));
  }
  void *preference = nullptr;
  call(api.preferenceCreate, &preference);
  call(api.preferenceSetAttribute, preference, maxWorkspaceBytes, &workspaceLimit, sizeof(workspaceLimit));
  for (int i = 0; i < 4; ++i) { // a, b, c, d, of which the last two are the same
    auto alignment = static_cast<uint32_t>(key[alignments + std::min(i, 2)]);
    call(api.preferenceSetAttribute, preference, minAlignmentA + i, &alignment, sizeof(alignment));
  }
  CublasLtHeuristic found = {};
  int count = 0;
  call(api.algoGetHeuristic, handle, plan->desc, plan->layouts[0], plan->layouts[1], plan->layouts[2], plan->layouts[2],
       preference, 1, &found, &count);
  if (preference)
    api.preferenceDestroy(preference);
  if (status && status != notSupported)
    error = std::string("cuBLASLt finds no algorithm: ") + api.getStatusString(status);
  if (status || count == 0 || found.state)
    return nullptr;
  plan->algorithm = found.algorithm;
  plan->workspaceBytes = found.workspaceBytes;
  entry->second = std::move(plan);
  return entry->second.get();
}

//===- Products ------------------------------------------------------------------------------===//

int32_t MatrixLibrary::run(const WorkspaceMemory &memory, MatrixPlan &plan, const commrt_product &product,
                           bool isSwapped, const int64_t (&offsets)[3], cudaStream *stream, std::string &error) {
  auto at = [&](const void *data, int64_t offset, int32_t dtype) {
    return static_cast<const char *>(data) + offset * commrt_dtype_size(dtype);
  };
  const void *factors[2] = {at(product.left, offsets[0], product.left_type),
                            at(product.right, offsets[1], product.right_type)};
  void *result = const_cast<char *>(at(product.result, offsets[2], product.result_type));
  const float one = 1, zero = 0;
  const double oneDouble = 1, zeroDouble = 0;
  const void *alpha = plan.isDouble ? static_cast<const void *>(&oneDouble) : &one;
  const void *none = plan.isDouble ? static_cast<const void *>(&zeroDouble) : &zero;
  auto bytes = static_cast<int64_t>(plan.workspaceBytes);
  void *workspace = bytes > 0 ? memory.take(bytes) : nullptr;
  if (bytes > 0 && !workspace) {
    error = "no memory for " + std::to_string(bytes) + " bytes of cuBLASLt's workspace";
    return COMMRT_ERR_MEMORY;
  }
  int status = api.matmul(handle, plan.desc, alpha, factors[isSwapped], plan.layouts[0], factors[!isSwapped],
                          plan.layouts[1], plan.accumulates ? alpha : none, result, plan.layouts[2], result,
                          plan.layouts[2], &plan.algorithm, workspace, plan.workspaceBytes, stream);
  if (workspace)
    memory.release(workspace, bytes);
  if (!status)
    return COMMRT_OK;
  error = std::string("cublasLtMatmul failed: ") + api.getStatusString(status);
  return COMMRT_ERR_BACKEND;
}

/// Whether the inner batch dimension is the only one, or the others are few.
static bool countCalls(const commrt_product &product, int64_t &calls) {
  calls = 1;
  for (int32_t dim = 0; dim + 1 < product.batch_rank; ++dim)
    if (__builtin_mul_overflow(calls, product.batch_sizes[dim], &calls) || calls > mostCalls)
      return false;
  return true;
}

int32_t MatrixLibrary::multiply(const WorkspaceMemory &memory, const commrt_product &product, cudaStream *stream,
                                std::string &error) {
  const commrt_product &p = product;
  int in = typeOf(p.left_type), out = typeOf(p.result_type);
  bool isNarrow = in == r16f || in == r16bf;
  int64_t calls = 0;
  if (in < 0 || out < 0 || p.left_type != p.right_type || (in != out && !(isNarrow && out == r32f)) || p.m < 1 ||
      p.n < 1 || p.k < 1 || !countCalls(p, calls))
    return COMMRT_ERR_UNSUPPORTED;
  Columns left, right, result;
  if (!asColumns(p.m, p.n, p.result_strides[0], p.result_strides[1], result))
    return COMMRT_ERR_UNSUPPORTED;
  // Where the result lies by rows, its transposed is computed from the transposed factors, in the other order.
  bool isSwapped = result.isTransposed;
  auto factor = [&](int64_t rows, int64_t columns, const int64_t *strides, Columns &to) {
    return isSwapped ? asColumns(columns, rows, strides[1], strides[0], to)
                     : asColumns(rows, columns, strides[0], strides[1], to);
  };
  if (!factor(p.m, p.k, p.left_strides, left) || !factor(p.k, p.n, p.right_strides, right))
    return COMMRT_ERR_UNSUPPORTED;
  int32_t inner = p.batch_rank - 1;
  std::vector<int64_t> key(keySize);
  key[inType] = in;
  key[outType] = out;
  key[batches] = inner < 0 ? 1 : p.batch_sizes[inner];
  key[accumulates] = p.accumulates != 0;
  const Columns *order[3] = {isSwapped ? &right : &left, isSwapped ? &left : &right, &result};
  const void *data[3] = {p.left, p.right, p.result};
  const int32_t types[3] = {p.left_type, p.right_type, p.result_type};
  for (int i = 0; i < 3; ++i) {
    int operand = i < 2 && isSwapped ? 1 - i : i;
    int64_t offset = inner < 0 ? 0 : p.batch_strides[operand][inner], steps = offset;
    for (int32_t dim = 0; dim < inner; ++dim)
      steps |= p.batch_strides[operand][dim];
    const Columns &matrix = *order[i];
    const int64_t values[] = {matrix.rows, matrix.columns, matrix.distance, i < 2 && matrix.isTransposed, offset};
    std::copy(std::begin(values), std::end(values), &key[matrices + i * 5]);
    key[alignments + i] = alignmentOf(data[operand], steps, types[operand]);
  }
  MatrixPlan *plan = findPlan(key, error);
  if (!plan)
    return error.empty() ? COMMRT_ERR_UNSUPPORTED : COMMRT_ERR_BACKEND;
  for (int64_t call = 0; call < calls; ++call) {
    int64_t offsets[3] = {0, 0, 0}, rest = call;
    for (int32_t dim = inner - 1; dim >= 0; rest /= p.batch_sizes[dim--])
      for (int i = 0; i < 3; ++i)
        offsets[i] += rest % p.batch_sizes[dim] * p.batch_strides[i][dim];
    if (int32_t status = run(memory, *plan, product, isSwapped, offsets, stream, error))
      return status;
  }
  return COMMRT_OK;
}
