// Tests that a collective overwrites the result of an earlier one in the same storage whether or not somebody reads the
// storage under its first name, since other passes remove a read whose result nobody needs.

// RUN: comm-run %s --print | FileCheck %s
// RUN: comm-opt %s --canonicalize -o %t.without.mlir
// RUN: FileCheck %s --check-prefix=WITHOUT --input-file=%t.without.mlir
// RUN: comm-run %t.without.mlir --print | FileCheck %s
// RUN: comm-opt %s --canonicalize --reorder-comm-overlap -o %t.scheduled.mlir
// RUN: comm-run %t.without.mlir --compare %t.scheduled.mlir

comm.group @world #comm.iota<[1, 2]>

// WITHOUT: bufferization.alloc_tensor
// WITHOUT-NOT: comm.compute "add"

// CHECK: rank 0 result 0: [20, 20]
// CHECK-NEXT: rank 0 result 1: [2, 2]
func.func @main() -> (tensor<2xf32>, tensor<2xf32>) {
  %one = arith.constant dense<1.0> : tensor<2xf32>
  %ten = arith.constant dense<10.0> : tensor<2xf32>
  %place = bufferization.alloc_tensor() : tensor<2xf32>
  %f0 = comm.all_reduce sum %one into %place on @world : (tensor<2xf32>) -> !comm.future<tensor<2xf32>>
  %sum = comm.wait %f0 : !comm.future<tensor<2xf32>>
  %before = comm.compute "copy"(%sum) : (tensor<2xf32>) -> tensor<2xf32>
  %unused = comm.compute "add"(%place, %place) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %f1 = comm.all_reduce sum %ten into %place on @world : (tensor<2xf32>) -> !comm.future<tensor<2xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<2xf32>>
  %after = comm.compute "copy"(%sum) : (tensor<2xf32>) -> tensor<2xf32>
  return %after, %before : tensor<2xf32>, tensor<2xf32>
}
