// RUN: comm-opt %s --comm-bufferize --split-input-file -verify-diagnostics | FileCheck %s

// Tests that a view of a part has the elements of the part.
// CHECK-LABEL: func @row
// CHECK: memref.subview {{.*}}[2, 0] [1, 6] [1, 1]
// CHECK: memref.reinterpret_cast {{.*}} to offset: [%{{.*}}], sizes: [2, 3], strides: [3, 1]
func.func @row(%x: tensor<4x6xf32>) -> tensor<2x3xf32> {
  %row = tensor.extract_slice %x[2, 0] [1, 6] [1, 1] : tensor<4x6xf32> to tensor<6xf32>
  %v = comm.compute "view"(%row) aliases [0] : (tensor<6xf32>) -> tensor<2x3xf32>
  %c = comm.compute "copy"(%v) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %c : tensor<2x3xf32>
}

// -----

// Tests that a view in another shape of elements that do not lie beside each other is refused: it would have others.
func.func @column(%x: tensor<4x6xf32>) -> tensor<2x2xf32> {
  %column = tensor.extract_slice %x[0, 2] [4, 1] [1, 1] : tensor<4x6xf32> to tensor<4xf32>
  // expected-error@+2 {{'comm.compute' op cannot be bufferized: expected a contiguous buffer to view in another shape, got 'memref<4xf32, strided<[6], offset: 2>>'; copy the tensor first}}
  // expected-error@+1 {{failed to bufferize op}}
  %v = comm.compute "view"(%column) aliases [0] : (tensor<4xf32>) -> tensor<2x2xf32>
  %c = comm.compute "copy"(%v) : (tensor<2x2xf32>) -> tensor<2x2xf32>
  return %c : tensor<2x2xf32>
}

// -----

// Tests the same of the pieces of a tensor.
func.func @pieces(%x: tensor<8xf32>) -> tensor<2xf32> {
  %every = tensor.extract_slice %x[0] [4] [2] : tensor<8xf32> to tensor<4xf32>
  // expected-error@+2 {{'comm.fsdp.split_with_sizes' op cannot be bufferized: expected a contiguous buffer to view in another shape}}
  // expected-error@+1 {{failed to bufferize op}}
  %a, %b = comm.fsdp.split_with_sizes %every sizes [2, 2] : (tensor<4xf32>) -> (tensor<2xf32>, tensor<2xf32>)
  %c = comm.compute "add"(%a, %b) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return %c : tensor<2xf32>
}
