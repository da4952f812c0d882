// Tests a future that a loop carries: buffers and tokens of past iterations are given back.

// RUN: comm-run %s --print | FileCheck %s
// RUN: comm-opt %s --comm-raise --comm-sink-waits -o %t.seeds.mlir
// RUN: comm-opt %s --reorder-comm-overlap -o %t.pipeline.mlir
// RUN: comm-opt %s --comm-bufferize -o %t.buffers.mlir
// RUN: comm-run %s --compare %t.seeds.mlir --compare %t.pipeline.mlir --compare %t.buffers.mlir | FileCheck %s --check-prefix=EQUAL
// EQUAL: equal, bit for bit, on 4 ranks

comm.group @pairs #comm.iota<[2, 2]>

// A loop that starts the collective of the next iteration before it waits for its own: 2 to the power of 4.
// CHECK: rank 3 result 0: [16, 16]
func.func @main() -> tensor<2xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %one = arith.constant dense<1.0> : tensor<2xf32>
  %first = comm.all_reduce sum %one on @pairs : (tensor<2xf32>) -> !comm.future<tensor<2xf32>>
  %last = scf.for %i = %c0 to %c3 step %c1 iter_args(%f = %first) -> (!comm.future<tensor<2xf32>>) {
    %x = comm.wait %f : !comm.future<tensor<2xf32>>
    %next = comm.all_reduce sum %x on @pairs : (tensor<2xf32>) -> !comm.future<tensor<2xf32>>
    scf.yield %next : !comm.future<tensor<2xf32>>
  }
  %result = comm.wait %last : !comm.future<tensor<2xf32>>
  return %result : tensor<2xf32>
}
