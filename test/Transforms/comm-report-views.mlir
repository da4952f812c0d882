// Tests destinations that are views of what lives on: the result is a buffer of its own, and the readers of the viewed
// tensor are not ordered behind a write that does not happen.

// RUN: comm-opt %s --reorder-comm-overlap -o /dev/null 2>&1 | FileCheck %s

comm.group @dp #comm.iota<[1, 4]>

// CHECK-LABEL: slice: 7 operations
// CHECK: peak 10.0 KiB 10.0 KiB
func.func @slice(%x: tensor<1024xf32>, %w: tensor<512xf32>) -> (tensor<1024xf32>, tensor<512xf32>) {
  %a = comm.compute "a"(%x) {comm.cost = #comm.cost<time = 1000>} : (tensor<1024xf32>) -> tensor<1024xf32>
  %s = tensor.extract_slice %a[0][512][1] : tensor<1024xf32> to tensor<512xf32>
  %c = arith.constant 0.0 : f32
  %r = linalg.fill ins(%c : f32) outs(%s : tensor<512xf32>) -> tensor<512xf32>
  %f = comm.all_reduce sum %w on @dp {comm.cost = #comm.cost<time = 1000>} : (tensor<512xf32>) -> !comm.future<tensor<512xf32>>
  %g = comm.wait %f : !comm.future<tensor<512xf32>>
  %t = comm.compute "t"(%r, %g) {comm.cost = #comm.cost<time = 1000>} : (tensor<512xf32>, tensor<512xf32>) -> tensor<512xf32>
  return %a, %t : tensor<1024xf32>, tensor<512xf32>
}

// Tests a slice of an argument, which is the caller's.
// CHECK-LABEL: slice_of_argument: 6 operations
// CHECK: peak 6.00 KiB 6.00 KiB
func.func @slice_of_argument(%a: tensor<1024xf32>, %w: tensor<512xf32>) -> tensor<512xf32> {
  %s = tensor.extract_slice %a[0][512][1] : tensor<1024xf32> to tensor<512xf32>
  %c = arith.constant 0.0 : f32
  %r = linalg.fill ins(%c : f32) outs(%s : tensor<512xf32>) -> tensor<512xf32>
  %f = comm.all_reduce sum %w on @dp {comm.cost = #comm.cost<time = 1000>} : (tensor<512xf32>) -> !comm.future<tensor<512xf32>>
  %g = comm.wait %f : !comm.future<tensor<512xf32>>
  %t = comm.compute "t"(%r, %g) {comm.cost = #comm.cost<time = 1000>} : (tensor<512xf32>, tensor<512xf32>) -> tensor<512xf32>
  return %t : tensor<512xf32>
}
