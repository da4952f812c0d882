// RUN: comm-opt %s -split-input-file --comm-verify | FileCheck %s --check-prefix=VERIFY
// RUN: comm-opt %s -split-input-file --comm-realize-buffers | FileCheck %s --check-prefix=REALIZE

// Tests that globals of two names are two buffers: one may be read while a collective fills the other.
comm.group @dp #comm.iota<[1, 2]>
memref.global "private" @arena : memref<4xf32> = uninitialized
memref.global "private" constant @constant : memref<4xf32> = dense<1.0>

// VERIFY-LABEL: func.func @globals
func.func @globals(%in: memref<4xf32>, %i: index) -> f32 {
  %arena = memref.get_global @arena : memref<4xf32>
  %constant = memref.get_global @constant : memref<4xf32>
  %f = comm.all_reduce sum %in into %arena on @dp : (memref<4xf32>) -> !comm.future<memref<4xf32>>
  %x = memref.load %constant[%i] : memref<4xf32>
  %w = comm.wait %f keeping (%in, %arena : memref<4xf32>, memref<4xf32>) : !comm.future<memref<4xf32>>
  return %x : f32
}

// -----

// Tests that an allocated tensor is new storage, though its source is in flight.
comm.group @dp #comm.iota<[1, 2]>

// VERIFY-LABEL: func.func @allocated
func.func @allocated(%in: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %v = comm.compute "copy"(%in) : (tensor<4xf32>) -> tensor<4xf32>
  %f = comm.all_reduce sum %v on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %new = bufferization.alloc_tensor() copy(%v) : tensor<4xf32>
  %g = comm.all_reduce sum %in into %new on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %a = comm.wait %f : !comm.future<tensor<4xf32>>
  %b = comm.wait %g : !comm.future<tensor<4xf32>>
  return %a, %b : tensor<4xf32>, tensor<4xf32>
}

// -----

// Tests that a buffer whose address is stored keeps its type: the elements of the other buffer have it, too.
comm.group @dp #comm.iota<[1, 2]>

// REALIZE-LABEL: func.func @stored
// REALIZE: memref.alloc() : memref<4xf32>
// REALIZE: memref.store %{{.*}} : memref<1xmemref<4xf32>>
func.func @stored(%in: memref<4xf32>, %holder: memref<1xmemref<4xf32>>) {
  %c0 = arith.constant 0 : index
  %own = memref.alloc() : memref<4xf32>
  memref.store %own, %holder[%c0] : memref<1xmemref<4xf32>>
  %f = comm.all_reduce sum %in into %own on @dp : (memref<4xf32>) -> !comm.future<memref<4xf32>>
  %w = comm.wait %f keeping (%in, %own : memref<4xf32>, memref<4xf32>) : !comm.future<memref<4xf32>>
  return
}
