// RUN: comm-opt %s --split-input-file --canonicalize | FileCheck %s --check-prefixes=ALL,CANON
// RUN: comm-opt %s --split-input-file --cse | FileCheck %s --check-prefixes=ALL,CSE
// RUN: comm-opt %s --split-input-file --sccp | FileCheck %s --check-prefixes=ALL
// RUN: comm-opt %s --split-input-file --loop-invariant-code-motion | FileCheck %s --check-prefixes=ALL
// RUN: comm-opt %s --split-input-file --control-flow-sink | FileCheck %s --check-prefixes=ALL
// RUN: comm-opt %s --split-input-file --remove-dead-values | FileCheck %s --check-prefixes=ALL

// Tests that generic passes neither drop, nor duplicate, nor merge, nor reorder collectives, used or not.
comm.group @dp #comm.iota<[1, 4]>
// ALL-LABEL: func @kept
func.func @kept(%x: tensor<4xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  // ALL: comm.all_gather
  %f0 = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  // ALL-NEXT: comm.all_gather
  %f1 = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  // ALL-NEXT: comm.send
  %f2 = comm.send %x on @dp peer 1 : (tensor<4xf32>) -> !comm.future<>
  // ALL-NEXT: comm.barrier
  %f3 = comm.barrier on @dp : () -> !comm.future<>
  // ALL-NEXT: comm.wait
  comm.wait %f3 : !comm.future<>
  // ALL-NEXT: comm.wait
  %w0 = comm.wait %f0 : !comm.future<tensor<16xf32>>
  // ALL-NEXT: comm.wait
  %w1 = comm.wait %f1 : !comm.future<tensor<16xf32>>
  // ALL-NEXT: comm.wait
  comm.wait %f2 : !comm.future<>
  // ALL-NEXT: scf.for
  scf.for %i = %c0 to %n step %c1 {
    // ALL-NEXT: comm.all_reduce
    %f = comm.all_reduce sum %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
    // ALL-NEXT: comm.wait
    %w = comm.wait %f : !comm.future<tensor<4xf32>>
    // ALL-NEXT: comm.record
    %e = comm.record on 0 : !comm.event
    // ALL-NEXT: comm.await_event
    comm.await_event %e on 1 : !comm.event
    // ALL-NEXT: }
  }
  // ALL-NEXT: return
  return
}

// -----

// Tests that new storage that may be written later is not merged, that readings of a parameter on both sides of a
// mutation are not, and that views are.
comm.group @dp #comm.iota<[1, 4]>
// ALL-LABEL: func @storage
func.func @storage(%x: tensor<4xf32>, %p: tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {
  // ALL: comm.fsdp.all_gather_copy_in
  %s0, %b0 = comm.fsdp.all_gather_copy_in %x on @dp : (tensor<4xf32>) -> (tensor<4xf32>, tensor<16xf32>)
  // ALL: comm.fsdp.all_gather_copy_in
  %s1, %b1 = comm.fsdp.all_gather_copy_in %x on @dp : (tensor<4xf32>) -> (tensor<4xf32>, tensor<16xf32>)
  // ALL: comm.compute "relu"
  %r0 = comm.compute "relu"(%p) : (tensor<16xf32>) -> tensor<16xf32>
  // ALL: comm.resize_storage
  comm.resize_storage %p to 64 : tensor<16xf32>
  // ALL: comm.fsdp.copy
  comm.fsdp.copy %b0 into %p : tensor<16xf32> into tensor<16xf32>
  // ALL: comm.compute "relu"
  %r1 = comm.compute "relu"(%p) : (tensor<16xf32>) -> tensor<16xf32>
  // CSE: comm.compute "view"
  %v0 = comm.compute "view"(%p) aliases [0] : (tensor<16xf32>) -> tensor<4x4xf32>
  // CSE-NOT: comm.compute "view"
  %v1 = comm.compute "view"(%p) aliases [0] : (tensor<16xf32>) -> tensor<4x4xf32>
  // ALL: return
  return %b0, %b1, %r0, %r1, %v0, %v1 : tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<4x4xf32>, tensor<4x4xf32>
}

// -----

// Tests that a load of a destination is not moved or merged across the collective that writes it.
comm.group @dp #comm.iota<[1, 4]>
// ALL-LABEL: func @loads
func.func @loads(%x: memref<4xf32>, %y: memref<16xf32>) -> (f32, f32) {
  %c0 = arith.constant 0 : index
  // ALL: %[[A:.*]] = memref.load
  %a = memref.load %y[%c0] : memref<16xf32>
  // ALL: comm.all_gather
  %f = comm.all_gather %x into %y on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  // ALL: comm.wait
  %w = comm.wait %f keeping (%x, %y : memref<4xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
  // ALL: %[[B:.*]] = memref.load
  %b = memref.load %y[%c0] : memref<16xf32>
  // ALL: return %[[A]], %[[B]]
  return %a, %b : f32, f32
}

// -----

// Tests that computation that nobody reads and that only makes new values is dropped, and one that writes is not.
// ALL-LABEL: func @dead
func.func @dead(%x: tensor<4xf32>, %y: memref<4xf32>) {
  // CANON-NOT: "relu"
  %0 = comm.compute "relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  // ALL: "zero_"
  comm.compute "zero_"(%x) mutates [0] : (tensor<4xf32>) -> ()
  // ALL: "zero_memref_"
  comm.compute "zero_memref_"(%y) mutates [0] : (memref<4xf32>) -> ()
  // ALL: "print"
  comm.compute "print"() side_effects : () -> ()
  return
}
