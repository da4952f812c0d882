//===- MatrixLibrary.h - Matrix products by cuBLASLt ------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// cuBLASLt's functions as pointers that are filled at run time, and the products that it can carry out: floating point,
// one type for both factors, matrices whose rows or columns are dense.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_NCCL_LIBRARIES_MATRIXLIBRARY_H
#define COMMSCHED_LIB_RUNTIME_NCCL_LIBRARIES_MATRIXLIBRARY_H

#include "CommSched/Runtime/Backend.h"
#include "NcclSymbols.h"
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace commsched::runtime {
/// As in cublasLt.h.
struct CublasLtAlgorithm {
  uint64_t data[8];
};
struct CublasLtHeuristic {
  CublasLtAlgorithm algorithm;
  size_t workspaceBytes;
  int state; ///< 0 where the algorithm can be used
  float waves;
  int reserved[4];
};

/// cuBLASLt's functions. Types and numbers are those of cublasLt.h 13. Handles and descriptors are opaque.
struct CublasLtApi {
  const char *(*getStatusString)(int status);
  int (*create)(void **handle);
  int (*destroy)(void *handle);
  int (*matmulDescCreate)(void **desc, int computeType, int scaleType);
  int (*matmulDescDestroy)(void *desc);
  int (*matmulDescSetAttribute)(void *desc, int attribute, const void *value, size_t bytes);
  int (*layoutCreate)(void **layout, int type, uint64_t rows, uint64_t columns, int64_t distance);
  int (*layoutDestroy)(void *layout);
  int (*layoutSetAttribute)(void *layout, int attribute, const void *value, size_t bytes);
  int (*preferenceCreate)(void **preference);
  int (*preferenceDestroy)(void *preference);
  int (*preferenceSetAttribute)(void *preference, int attribute, const void *value, size_t bytes);
  int (*algoGetHeuristic)(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int requested,
                          CublasLtHeuristic *results, int *found);
  int (*matmul)(void *handle, void *desc, const void *alpha, const void *a, void *aLayout, const void *b, void *bLayout,
                const void *beta, const void *c, void *cLayout, void *d, void *dLayout,
                const CublasLtAlgorithm *algorithm, void *workspace, size_t workspaceBytes, cudaStream *stream);
};

/// Memory in the order of the product's stream. `take` gives null if there is none.
struct WorkspaceMemory {
  std::function<void *(int64_t bytes)> take;
  std::function<void(void *pointer, int64_t bytes)> release;
};

/// A product with its algorithm, which takes cuBLASLt tens of microseconds to choose.
struct MatrixPlan;

/// cuBLASLt on one device. Used by one thread at a time.
class MatrixLibrary {
public:
  MatrixLibrary();
  ~MatrixLibrary();
  /// Opens the library; `why` says why not. The same answer each time.
  bool open(bool isEmulated, std::string &why);
  /// Puts the product on the stream. COMMRT_ERR_UNSUPPORTED: not for such operands; otherwise a status with its text.
  int32_t multiply(const WorkspaceMemory &memory, const commrt_product &product, cudaStream *stream,
                   std::string &error);

private:
  MatrixPlan *findPlan(const std::vector<int64_t> &key, std::string &error);
  int32_t run(const WorkspaceMemory &memory, MatrixPlan &plan, const commrt_product &product, bool isSwapped,
              const int64_t (&offsets)[3], cudaStream *stream, std::string &error);

  CublasLtApi api = {};
  void *library = nullptr, *handle = nullptr;
  bool wasOpened = false;
  std::string reason;
  std::map<std::vector<int64_t>, std::unique_ptr<MatrixPlan>> plans; ///< null: cuBLASLt has no algorithm
};
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_NCCL_LIBRARIES_MATRIXLIBRARY_H
