// Tests sizes that are only known at run time: of arguments, buffers, collectives, computations and results.

// RUN: comm-run %s --ranks 2 --entry tensors --dynamic-size 3 --print | FileCheck %s --check-prefix=TENSORS
// RUN: comm-run %s --ranks 2 --entry buffers --dynamic-size 5 --print | FileCheck %s --check-prefix=BUFFERS
// RUN: comm-run %s --ranks 2 --entry buffers --dynamic-size 0 --print | FileCheck %s --check-prefix=EMPTY
// A file says how many there are.
// RUN: comm-run %s --ranks 2 --entry buffers --dynamic-size 5 --output %t.out
// RUN: comm-run %s --ranks 2 --entry buffers --input 0=%t.out/rank%r_result0.npy --print | FileCheck %s --check-prefix=BUFFERS
// RUN: not comm-run %s --ranks 2 --entry tensors --input 0=%t.out/rank%r_result0.npy 2>&1 | FileCheck %s --check-prefix=BAD
comm.group @world #comm.iota<[1, 2]>

// TENSORS: rank 1 result 0: [{{([^,]*, ){11}[^,]*}}]
// BAD: comm-run: error: '{{.*}}rank0_result0.npy': expected shape (8, 2)
func.func @tensors(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %f = comm.all_gather %x on @world : (tensor<?x2xf32>) -> !comm.future<tensor<?x2xf32>>
  %y = comm.wait %f : !comm.future<tensor<?x2xf32>>
  return %y : tensor<?x2xf32>
}

// The maximum with itself of what both ranks agreed on: 0 or more, and not opaque.
// BUFFERS: rank 0 result 0: {{\[}}[[FIVE:[0-9.]+(, [0-9.]+){4}]]{{\]}}
// BUFFERS: rank 1 result 0: {{\[}}[[FIVE]]{{\]}}
// EMPTY: rank 0 result 0: []
func.func @buffers(%x: memref<?xf32>) -> memref<?xf32> {
  %c0 = arith.constant 0 : index
  %n = memref.dim %x, %c0 : memref<?xf32>
  %y = memref.alloc(%n) : memref<?xf32>
  comm.compute "relu"(%x, %y) mutates [1] {outputs = 1} : (memref<?xf32>, memref<?xf32>) -> ()
  %z = memref.alloc(%n) : memref<?xf32>
  %f = comm.all_reduce max %y into %z on @world : (memref<?xf32>) -> !comm.future<memref<?xf32>>
  %w = comm.wait %f keeping (%y, %z : memref<?xf32>, memref<?xf32>) : !comm.future<memref<?xf32>>
  memref.dealloc %y : memref<?xf32>
  return %w : memref<?xf32>
}
