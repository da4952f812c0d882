// Tests collectives and computations whose destination is a part of a buffer that is not contiguous: they write that part, and
// nothing beside it. Each function computes the same twice, in place and out of place.

// RUN: comm-run %s --entry in_place --ranks 2 --output %t/in_place
// RUN: comm-run %s --entry out_of_place --ranks 2 --output %t/out_of_place
// RUN: diff -r %t/in_place %t/out_of_place
// RUN: not comm-run %s --entry in_place --ranks 2 --fault error@0 2>&1 | FileCheck %s --check-prefix=ERROR
// ERROR: injected fault

// RUN: not comm-opt %S/Inputs/strided-two-waits.mlir --comm-lower-to-runtime 2>&1 | FileCheck %s
// CHECK: strided-two-waits.mlir:5:{{[0-9]+}}: error: 'comm.all_reduce' op expected a contiguous destination, or exactly one wait in the block of the start, got {{.*}} and another use of the future
comm.group @dp #comm.iota<[1, 2]>

func.func @in_place(%x: memref<4x6xf32>, %y: memref<4x3xf32>) -> (memref<4x6xf32>, memref<4x6xf32>) {
  %a = memref.alloc() : memref<4x6xf32>
  memref.copy %x, %a : memref<4x6xf32> to memref<4x6xf32>
  %s = memref.subview %a[0, 1] [4, 3] [1, 1] : memref<4x6xf32> to memref<4x3xf32, strided<[6, 1], offset: 1>>
  %f = comm.all_reduce sum %s into %s on @dp : (memref<4x3xf32, strided<[6, 1], offset: 1>>) -> !comm.future<memref<4x3xf32, strided<[6, 1], offset: 1>>>
  %w = comm.wait %f keeping (%s : memref<4x3xf32, strided<[6, 1], offset: 1>>) : !comm.future<memref<4x3xf32, strided<[6, 1], offset: 1>>>
  // What comes before and after in the buffer is the program's meanwhile and afterwards.
  comm.compute "add"(%w, %y, %w) mutates [2] {outputs = 1 : i64} : (memref<4x3xf32, strided<[6, 1], offset: 1>>, memref<4x3xf32>, memref<4x3xf32, strided<[6, 1], offset: 1>>) -> ()
  // Only the root's result is defined: the others keep what the destination held.
  %b = memref.alloc() : memref<4x6xf32>
  memref.copy %x, %b : memref<4x6xf32> to memref<4x6xf32>
  %t = memref.subview %b[0, 0] [4, 3] [1, 2] : memref<4x6xf32> to memref<4x3xf32, strided<[6, 2]>>
  %g = comm.reduce max %y into %t on @dp root 1 : (memref<4x3xf32>) -> !comm.future<memref<4x3xf32, strided<[6, 2]>>>
  %v = comm.wait %g keeping (%y, %t : memref<4x3xf32>, memref<4x3xf32, strided<[6, 2]>>) : !comm.future<memref<4x3xf32, strided<[6, 2]>>>
  return %a, %b : memref<4x6xf32>, memref<4x6xf32>
}

func.func @out_of_place(%x: memref<4x6xf32>, %y: memref<4x3xf32>) -> (memref<4x6xf32>, memref<4x6xf32>) {
  %a = memref.alloc() : memref<4x6xf32>
  memref.copy %x, %a : memref<4x6xf32> to memref<4x6xf32>
  %s = memref.subview %a[0, 1] [4, 3] [1, 1] : memref<4x6xf32> to memref<4x3xf32, strided<[6, 1], offset: 1>>
  %d = memref.alloc() : memref<4x3xf32>
  memref.copy %s, %d : memref<4x3xf32, strided<[6, 1], offset: 1>> to memref<4x3xf32>
  %f = comm.all_reduce sum %d into %d on @dp : (memref<4x3xf32>) -> !comm.future<memref<4x3xf32>>
  %w = comm.wait %f keeping (%d : memref<4x3xf32>) : !comm.future<memref<4x3xf32>>
  %e = memref.alloc() : memref<4x3xf32>
  comm.compute "add"(%w, %y, %e) mutates [2] {outputs = 1 : i64} : (memref<4x3xf32>, memref<4x3xf32>, memref<4x3xf32>) -> ()
  memref.copy %e, %s : memref<4x3xf32> to memref<4x3xf32, strided<[6, 1], offset: 1>>
  %b = memref.alloc() : memref<4x6xf32>
  memref.copy %x, %b : memref<4x6xf32> to memref<4x6xf32>
  %t = memref.subview %b[0, 0] [4, 3] [1, 2] : memref<4x6xf32> to memref<4x3xf32, strided<[6, 2]>>
  %h = memref.alloc() : memref<4x3xf32>
  memref.copy %t, %h : memref<4x3xf32, strided<[6, 2]>> to memref<4x3xf32>
  %g = comm.reduce max %y into %h on @dp root 1 : (memref<4x3xf32>) -> !comm.future<memref<4x3xf32>>
  %v = comm.wait %g keeping (%y, %h : memref<4x3xf32>, memref<4x3xf32>) : !comm.future<memref<4x3xf32>>
  memref.copy %v, %t : memref<4x3xf32> to memref<4x3xf32, strided<[6, 2]>>
  return %a, %b : memref<4x6xf32>, memref<4x6xf32>
}

// The same on tensors, where bufferization makes the part.
func.func @tensors(%x: tensor<4x4xf32>) -> tensor<4x2xf32> {
  %a = comm.compute "relu"(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = tensor.extract_slice %a[0, 0] [4, 2] [1, 1] : tensor<4x4xf32> to tensor<4x2xf32>
  %f = comm.all_reduce sum %s into %s on @dp : (tensor<4x2xf32>) -> !comm.future<tensor<4x2xf32>>
  %w = comm.wait %f : !comm.future<tensor<4x2xf32>>
  return %w : tensor<4x2xf32>
}
func.func @tensors_apart(%x: tensor<4x4xf32>) -> tensor<4x2xf32> {
  %a = comm.compute "relu"(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = tensor.extract_slice %a[0, 0] [4, 2] [1, 1] : tensor<4x4xf32> to tensor<4x2xf32>
  %f = comm.all_reduce sum %s on @dp : (tensor<4x2xf32>) -> !comm.future<tensor<4x2xf32>>
  %w = comm.wait %f : !comm.future<tensor<4x2xf32>>
  return %w : tensor<4x2xf32>
}
// RUN: comm-run %s --entry tensors --ranks 2 --output %t/tensors
// RUN: comm-run %s --entry tensors_apart --ranks 2 --output %t/tensors_apart
// RUN: diff -r %t/tensors %t/tensors_apart
