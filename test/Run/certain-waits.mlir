// RUN: comm-opt %s --split-input-file --comm-sink-waits -o %t.sunk.mlir
// RUN: comm-opt %s --split-input-file --comm-schedule -o %t.scheduled.mlir
// RUN: comm-run --split-input-file %s --ranks 2 --compare %t.sunk.mlir --compare %t.scheduled.mlir
// RUN: comm-opt %s --split-input-file --comm-sink-waits | FileCheck %s

// Tests that a read of a destination stays behind the wait that is certain to run, although a wait that may not run comes first.
comm.group @world #comm.iota<[1, 2]>
// CHECK-LABEL: func.func @main
// CHECK: scf.if
// CHECK: }
// CHECK: comm.wait
// CHECK: comm.compute "neg"
func.func @main(%x: memref<64xf32>, %y: memref<64xf32>) -> memref<64xf32> {
  %never = arith.constant false
  %sum = memref.alloc() : memref<64xf32>
  %out = memref.alloc() : memref<64xf32>
  %f = comm.all_reduce sum %x into %sum on @world : (memref<64xf32>) -> !comm.future<memref<64xf32>>
  scf.if %never {
    %early = comm.wait %f keeping (%x, %sum : memref<64xf32>, memref<64xf32>) : !comm.future<memref<64xf32>>
  }
  %w = comm.wait %f keeping (%x, %sum : memref<64xf32>, memref<64xf32>) : !comm.future<memref<64xf32>>
  comm.compute "neg"(%sum, %out) mutates [1] {outputs = 1 : i64} : (memref<64xf32>, memref<64xf32>) -> ()
  return %out : memref<64xf32>
}

// -----

// Tests that a collective that reads a destination stays behind the wait of the future that a loop carries, which names no buffers.
comm.group @world #comm.iota<[1, 2]>
// CHECK-LABEL: func.func @main
// CHECK: scf.for
// CHECK-NEXT: comm.wait
// CHECK-NEXT: comm.all_reduce
func.func @main(%x: memref<64xf32>) -> memref<64xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %three = arith.constant 3 : index
  %sum = memref.alloc() : memref<64xf32>
  %other = memref.alloc() : memref<64xf32>
  %total = memref.alloc() : memref<64xf32>
  memref.copy %x, %total : memref<64xf32> to memref<64xf32>
  %first = comm.all_reduce sum %x into %sum on @world : (memref<64xf32>) -> !comm.future<memref<64xf32>>
  %last = scf.for %i = %zero to %three step %one iter_args(%f = %first) -> (!comm.future<memref<64xf32>>) {
    %w = comm.wait %f : !comm.future<memref<64xf32>>
    %h = comm.all_reduce sum %sum into %other on @world : (memref<64xf32>) -> !comm.future<memref<64xf32>>
    %v = comm.wait %h keeping (%sum, %other : memref<64xf32>, memref<64xf32>) : !comm.future<memref<64xf32>>
    comm.compute "add"(%other, %total, %total) mutates [2] {outputs = 1 : i64} : (memref<64xf32>, memref<64xf32>, memref<64xf32>) -> ()
    %next = comm.all_reduce sum %x into %sum on @world : (memref<64xf32>) -> !comm.future<memref<64xf32>>
    scf.yield %next : !comm.future<memref<64xf32>>
  }
  %w = comm.wait %last keeping (%x, %sum : memref<64xf32>, memref<64xf32>) : !comm.future<memref<64xf32>>
  return %total : memref<64xf32>
}
