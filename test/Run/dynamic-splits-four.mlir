// Tests that four ranks exchange pieces of different sizes of two tensors at once, along the second dimension, by splits
// that only the run time knows. The results are checked by hand; no pass changes a bit of them.

// RUN: comm-run %s --print | FileCheck %s
// RUN: comm-opt %s --canonicalize --comm-decompose-all-to-all --comm-realize-buffers --comm-schedule -o %t.passes.mlir
// RUN: FileCheck %s --check-prefix=PASSES --input-file=%t.passes.mlir
// RUN: comm-run %s --compare %t.passes.mlir

comm.group @world #comm.iota<[1, 4]>

// CHECK: rank 0 result 0: [0, 1, 2, 10, 11, 30, 6, 7, 8, 16, 17, 36]
// CHECK: rank 0 result 1: [0, 1, 2, 10, 11, 30]
// CHECK: rank 1 result 0: [3, 12, 13, 14, 20, 21, 9, 18, 19, 20, 26, 27]
// CHECK: rank 1 result 1: [3, 12, 13, 14, 20, 21]
// CHECK: rank 2 result 0: [15, 22, 23, 24, 31, 32, 21, 28, 29, 30, 37, 38]
// CHECK: rank 3 result 1: [4, 5, 25, 33, 34, 35]
// PASSES-LABEL: func.func @main
// PASSES: comm.all_to_all %{{.*}} on @world {{.*}}input_splits [%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}] output_splits
func.func @main() -> (tensor<2x6xf32>, tensor<1x6xi32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %counts = arith.constant dense<[[3, 1, 0, 2], [2, 3, 1, 0], [0, 2, 3, 1], [1, 0, 2, 3]]> : tensor<4x4xindex>
  %places = arith.constant dense<[0, 1, 2, 3]> : tensor<4xi32>
  %f0 = comm.scatter %places on @world root 0 : (tensor<4xi32>) -> !comm.future<tensor<1xi32>>
  %place = comm.wait %f0 : !comm.future<tensor<1xi32>>
  %number = tensor.extract %place[%c0] : tensor<1xi32>
  %r = arith.index_cast %number : i32 to index
  %s0 = tensor.extract %counts[%r, %c0] : tensor<4x4xindex>
  %s1 = tensor.extract %counts[%r, %c1] : tensor<4x4xindex>
  %s2 = tensor.extract %counts[%r, %c2] : tensor<4x4xindex>
  %s3 = tensor.extract %counts[%r, %c3] : tensor<4x4xindex>
  %r0 = tensor.extract %counts[%c0, %r] : tensor<4x4xindex>
  %r1 = tensor.extract %counts[%c1, %r] : tensor<4x4xindex>
  %r2 = tensor.extract %counts[%c2, %r] : tensor<4x4xindex>
  %r3 = tensor.extract %counts[%c3, %r] : tensor<4x4xindex>
  %ten = arith.constant dense<10> : tensor<1xi32>
  %tens = comm.compute "mul"(%place, %ten) : (tensor<1xi32>, tensor<1xi32>) -> tensor<1xi32>
  %digits = arith.constant dense<[[0, 1, 2, 3, 4, 5]]> : tensor<1x6xi32>
  %x = comm.compute "add"(%digits, %tens) : (tensor<1x6xi32>, tensor<1xi32>) -> tensor<1x6xi32>
  %floats = arith.constant dense<[[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0, 10.0, 11.0]]> : tensor<2x6xf32>
  %shift = comm.compute "cast"(%tens) : (tensor<1xi32>) -> tensor<1xf32>
  %y = comm.compute "add"(%floats, %shift) : (tensor<2x6xf32>, tensor<1xf32>) -> tensor<2x6xf32>
  %f1 = comm.all_to_all %y, %x on @world split 1 concat 1 input_splits [%s0, %s1, %s2, %s3] output_splits [%r0, %r1, %r2, %r3]
      : (tensor<2x6xf32>, tensor<1x6xi32>) -> !comm.future<tensor<2x6xf32>, tensor<1x6xi32>>
  %out:2 = comm.wait %f1 : !comm.future<tensor<2x6xf32>, tensor<1x6xi32>>
  return %out#0, %out#1 : tensor<2x6xf32>, tensor<1x6xi32>
}
