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

// -----

// Tests that what a collective returned is new storage in a region behind it, too: its input may be written there.
comm.group @dp #comm.iota<[1, 2]>

// VERIFY-LABEL: func.func @captured_result
func.func @captured_result(%in: tensor<4xf32>, %c: i1) {
  %f = comm.all_reduce sum %in on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %a = comm.wait %f : !comm.future<tensor<4xf32>>
  scf.if %c {
    %g = comm.all_reduce sum %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
    comm.compute "update"(%in) mutates [0] : (tensor<4xf32>) -> ()
    %b = comm.wait %g : !comm.future<tensor<4xf32>>
  }
  return
}

// -----

// Tests that parts of one buffer are apart if their offsets and sizes are constants.
comm.group @dp #comm.iota<[1, 2]>

// VERIFY-LABEL: func.func @parts
func.func @parts(%in: memref<1x1xf32>, %arena: memref<64xi8>) {
  %c8 = arith.constant 8 : index
  %whole = memref.view %arena[%c8][] : memref<64xi8> to memref<2x1xf32>
  %top = memref.subview %whole[0, 0] [1, 1] [1, 1] : memref<2x1xf32> to memref<1x1xf32, strided<[1, 1]>>
  %end = memref.subview %whole[1, 0] [1, 1] [1, 1] : memref<2x1xf32> to memref<1x1xf32, strided<[1, 1], offset: 1>>
  %f = comm.all_reduce sum %in into %top on @dp : (memref<1x1xf32>) -> !comm.future<memref<1x1xf32, strided<[1, 1]>>>
  %g = comm.all_reduce sum %in into %end on @dp : (memref<1x1xf32>) -> !comm.future<memref<1x1xf32, strided<[1, 1], offset: 1>>>
  %v = comm.wait %f keeping (%in, %top : memref<1x1xf32>, memref<1x1xf32, strided<[1, 1]>>) : !comm.future<memref<1x1xf32, strided<[1, 1]>>>
  %w = comm.wait %g keeping (%in, %end : memref<1x1xf32>, memref<1x1xf32, strided<[1, 1], offset: 1>>) : !comm.future<memref<1x1xf32, strided<[1, 1], offset: 1>>>
  return
}
