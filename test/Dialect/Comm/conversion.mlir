// RUN: comm-opt %s --convert-scf-to-cf | FileCheck %s --check-prefix=CF
// RUN: comm-opt %s --finalize-memref-to-llvm | FileCheck %s --check-prefix=LLVM

// Tests that conversions of other dialects carry futures through control flow and leave collectives in place.
comm.group @dp #comm.iota<[1, 4]>

// CF-LABEL: func @loop
// LLVM-LABEL: func @loop
func.func @loop(%n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  // LLVM: %[[X:.*]] = builtin.unrealized_conversion_cast %{{.*}} to memref<4xf32>
  %x = memref.alloc() : memref<4xf32>
  // CF: %[[F0:.*]] = comm.all_reduce
  // LLVM: comm.all_reduce sum %[[X]] into %[[X]] on @dp
  %f0 = comm.all_reduce sum %x into %x on @dp : (memref<4xf32>) -> !comm.future<memref<4xf32>>
  // CF: cf.br ^bb1(%{{.*}}, %[[F0]] : index, !comm.future<memref<4xf32>>)
  // CF: ^bb1(%{{.*}}: index, %[[F:.*]]: !comm.future<memref<4xf32>>):
  %last = scf.for %i = %c0 to %n step %c1 iter_args(%f = %f0) -> (!comm.future<memref<4xf32>>) {
    // CF: comm.wait %[[F]] keeping
    // LLVM: comm.wait %{{.*}} keeping (%[[X]] : memref<4xf32>)
    %w = comm.wait %f keeping (%x : memref<4xf32>) : !comm.future<memref<4xf32>>
    %g = comm.all_reduce sum %w into %w on @dp : (memref<4xf32>) -> !comm.future<memref<4xf32>>
    scf.yield %g : !comm.future<memref<4xf32>>
  }
  %w = comm.wait %last keeping (%x : memref<4xf32>) : !comm.future<memref<4xf32>>
  return
}
