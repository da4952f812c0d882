//===- CublasLtTest.cpp - Tests of the emulated cuBLASLt --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A product with both factors transposed, and the rules that a caller may break.
//
//===------------------------------------------------------------------------------------------===//

#include "CublasLtApi.h"
#include "EmulatorTestSupport.h"

using namespace emulator::test;

#define CUBLASLT(call) ASSERT_EQ(call, CUBLAS_STATUS_SUCCESS)

namespace {
/// d = transposed(a) * transposed(b), with a 3 x 2, b 4 x 3 and d 2 x 4, in f32, and one thing that may be wrong.
struct Example {
  int64_t distance = 3;
  uint64_t columns = 4;
  int32_t batches = 1;
  cudaDataType type = CUDA_R_32F;
  int64_t offset = 0; ///< of d, in elements
  size_t workspaceBytes = 512;
  int device = 0;
  bool changesLayout = false;

  void run(std::vector<float> &result) const {
    std::vector<float> values(12);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = float(i + 1);
    CUDA(cudaSetDevice(0));
    OnDevice<float> a(std::vector<float>(values.begin(), values.begin() + 6)), b(values), d(64), workspace(1024);
    StreamOf stream;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t layouts[3];
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    int32_t transposed = CUBLAS_OP_T;
    uint64_t most = 1 << 20;
    CUBLASLT(cublasLtCreate(&handle));
    CUBLASLT(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    CUBLASLT(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)));
    CUBLASLT(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &transposed, sizeof(transposed)));
    CUBLASLT(cublasLtMatrixLayoutCreate(&layouts[0], CUDA_R_32F, 3, 2, distance));
    CUBLASLT(cublasLtMatrixLayoutCreate(&layouts[1], type, 4, 3, 4));
    CUBLASLT(cublasLtMatrixLayoutCreate(&layouts[2], CUDA_R_32F, 2, columns, 2));
    CUBLASLT(cublasLtMatrixLayoutSetAttribute(layouts[0], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches, 4));
    CUBLASLT(cublasLtMatmulPreferenceCreate(&preference));
    CUBLASLT(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, 8));
    CUBLASLT(cublasLtMatmulAlgoGetHeuristic(handle, desc, layouts[0], layouts[1], layouts[2], layouts[2], preference, 1,
                                            &found, &count));
    ASSERT_EQ(count, 1);
    if (changesLayout)
      CUBLASLT(cublasLtMatrixLayoutSetAttribute(layouts[2], CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &most, 8));
    CUDA(cudaSetDevice(device));
    float one = 1, zero = 0;
    float *to = d.data + offset;
    CUBLASLT(cublasLtMatmul(handle, desc, &one, a, layouts[0], b, layouts[1], &zero, to, layouts[2], to, layouts[2],
                            &found.algo, workspace, workspaceBytes, stream));
    CUDA(cudaStreamSynchronize(stream));
    result = d.read();
    CUBLASLT(cublasLtMatmulPreferenceDestroy(preference));
    for (cublasLtMatrixLayout_t layout : layouts)
      CUBLASLT(cublasLtMatrixLayoutDestroy(layout));
    CUBLASLT(cublasLtMatmulDescDestroy(desc));
    CUBLASLT(cublasLtDestroy(handle));
  }
  void run() const {
    std::vector<float> result;
    run(result);
  }
};

// Tests a product by hand: columns of a are (1 2 3), (4 5 6), those of b (1 2 3 4), (5 6 7 8), (9 10 11 12).
TEST(CublasLt, Product) {
  std::vector<float> result;
  Example().run(result);
  result.resize(8);
  EXPECT_EQ(result, (std::vector<float>{38, 83, 44, 98, 50, 113, 56, 128}));
}

// Tests that each broken rule is reported.
TEST(CublasLtDeathTest, Rules) {
  Example example;
  example.distance = 2;
  EXPECT_REPORT(example.run(), "columns of 3 elements are 2 elements apart");
  example = {};
  example.columns = 5;
  EXPECT_REPORT(example.run(), "2 x 3 times 3 x 4 is not 2 x 5");
  example = {};
  example.batches = 2;
  EXPECT_REPORT(example.run(), "batches of 2 and of 1");
  example = {};
  example.type = CUDA_R_16F;
  EXPECT_REPORT(example.run(), "these types do not go together");
  example = {};
  example.offset = 1;
  EXPECT_REPORT(example.run(), "operand 2 is not aligned to 256 bytes");
  example = {};
  example.workspaceBytes = 511;
  EXPECT_REPORT(example.run(), "wants 512 bytes of workspace, and is given 511");
  example = {};
  example.device = 1;
  EXPECT_REPORT(example.run(), "the handle is of device 0, the thread's device is 1");
  example = {};
  example.changesLayout = true;
  EXPECT_REPORT(example.run(), "the algorithm was found for other operands");
}
} // namespace
