// Tests that an exchange along other dimensions gives the same bits as its decomposition; three dimensions, coalesced, uneven.

// RUN: comm-opt %s --comm-decompose-all-to-all -o %t.mlir
// RUN: FileCheck %s --input-file=%t.mlir
// RUN: comm-run %t.mlir --ranks 2 --compare %s
// RUN: sed -e 's/\[1, 2\]/[2, 2]/' %s > %t.four.mlir
// RUN: comm-opt %t.four.mlir --comm-decompose-all-to-all -o %t.four.decomposed.mlir
// RUN: comm-run %t.four.decomposed.mlir --ranks 4 --compare %t.four.mlir

// CHECK-NOT: split {{[0-9]}}
// CHECK-NOT: concat {{[0-9]}}
comm.group @ep #comm.iota<[1, 2]>
func.func @main(%x: tensor<4x6x8xf32>, %y: tensor<4x6x8xbf16>, %z: tensor<3x6xi32>) -> (tensor<4x3x16xf32>, tensor<2x6x16xf32>, tensor<8x6x4xbf16>, tensor<4x6x8xbf16>, tensor<3x6xi32>) {
  %f0 = comm.all_to_all %x on @ep split 1 concat 2 : (tensor<4x6x8xf32>) -> !comm.future<tensor<4x3x16xf32>>
  %f1 = comm.all_to_all %x on @ep split 0 concat 2 : (tensor<4x6x8xf32>) -> !comm.future<tensor<2x6x16xf32>>
  %f2 = comm.all_to_all %y on @ep split 2 concat 0 : (tensor<4x6x8xbf16>) -> !comm.future<tensor<8x6x4xbf16>>
  %f3 = comm.all_to_all %y on @ep split 1 concat 1 : (tensor<4x6x8xbf16>) -> !comm.future<tensor<4x6x8xbf16>>
  %f4 = comm.all_to_all %z on @ep split 1 concat 1 input_splits [3, 3] output_splits [3, 3] : (tensor<3x6xi32>) -> !comm.future<tensor<3x6xi32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<4x3x16xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<2x6x16xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<8x6x4xbf16>>
  %w3 = comm.wait %f3 : !comm.future<tensor<4x6x8xbf16>>
  %w4 = comm.wait %f4 : !comm.future<tensor<3x6xi32>>
  return %w0, %w1, %w2, %w3, %w4 : tensor<4x3x16xf32>, tensor<2x6x16xf32>, tensor<8x6x4xbf16>, tensor<4x6x8xbf16>, tensor<3x6xi32>
}
