// RUN: comm-opt %s --split-input-file --comm-sink-waits -o %t.sunk.mlir
// RUN: comm-opt %s --split-input-file --comm-schedule -o %t.scheduled.mlir
// RUN: comm-opt %s --split-input-file --reorder-comm-overlap -o %t.overlap.mlir
// RUN: comm-opt %s --split-input-file --comm-reorder-compute-for-overlap -o %t.computes.mlir
// RUN: comm-run --split-input-file %s --ranks 2 --compare %t.sunk.mlir --compare %t.scheduled.mlir --compare %t.overlap.mlir --compare %t.computes.mlir
// RUN: comm-opt %s --split-input-file --reorder-comm-overlap 2>/dev/null | FileCheck %s

// Tests that a read keeps its order with a call that writes what it reads, although no operation of the block itself writes it.
comm.group @world #comm.iota<[1, 2]>

func.func private @double(%p: memref<8xf32>, %by: memref<8xf32>) {
  linalg.add ins(%p, %by : memref<8xf32>, memref<8xf32>) outs(%p : memref<8xf32>)
  return
}

// CHECK-LABEL: func.func @main
// CHECK: call @double
// CHECK: linalg.copy
func.func @main(%p: memref<8xf32>, %x: memref<8xf32>) -> memref<8xf32> {
  %sum = memref.alloc() : memref<8xf32>
  %f = comm.all_reduce sum %x into %sum on @world : (memref<8xf32>) -> !comm.future<memref<8xf32>>
  %w = comm.wait %f keeping (%x, %sum : memref<8xf32>, memref<8xf32>) : !comm.future<memref<8xf32>>
  func.call @double(%p, %sum) : (memref<8xf32>, memref<8xf32>) -> ()
  %read = memref.alloc() : memref<8xf32>
  linalg.copy ins(%p : memref<8xf32>) outs(%read : memref<8xf32>)
  return %read : memref<8xf32>
}

// -----

comm.group @world #comm.iota<[1, 2]>

func.func private @add(%p: tensor<8xf32>, %x: tensor<8xf32>) {
  comm.compute "add"(%x, %x, %p) mutates [2] {outputs = 1 : i64} : (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) -> ()
  return
}

func.func @main(%x: tensor<8xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
  %p = comm.compute "neg"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %f = comm.all_reduce sum %y on @world : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %w = comm.wait %f : !comm.future<tensor<8xf32>>
  func.call @add(%p, %w) : (tensor<8xf32>, tensor<8xf32>) -> ()
  %q = comm.compute "neg"(%p) : (tensor<8xf32>) -> tensor<8xf32>
  return %q : tensor<8xf32>
}
