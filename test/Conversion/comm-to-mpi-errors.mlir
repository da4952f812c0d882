// Tests that convert-comm-to-mpi refuses what the mpi dialect of LLVM 22 cannot say, with the list of what it can.

// RUN: comm-opt %s --convert-comm-to-mpi --split-input-file --verify-diagnostics

comm.group @g #comm.iota<[1, 4]>
func.func @reduce_scatter(%x: memref<8xf32>, %y: memref<2xf32>) {
  // expected-error@+1 {{has no counterpart in the mpi dialect of LLVM 22; converted are send, recv, barrier, all_reduce with sum, product, min or max, all_gather and all_to_all along dimension 0, and permute in which every place is a source and a target}}
  %f = comm.reduce_scatter sum %x into %y on @g : (memref<8xf32>) -> !comm.future<memref<2xf32>>
  %v = comm.wait %f keeping (%x, %y : memref<8xf32>, memref<2xf32>) : !comm.future<memref<2xf32>>
  return
}

// -----

comm.group @g #comm.iota<[1, 4]>
func.func @average(%x: memref<8xf32>) {
  // expected-error@+1 {{has no counterpart in the mpi dialect of LLVM 22}}
  %f = comm.all_reduce avg %x into %x on @g : (memref<8xf32>) -> !comm.future<memref<8xf32>>
  %v = comm.wait %f keeping (%x : memref<8xf32>) : !comm.future<memref<8xf32>>
  return
}

// -----

comm.group @g #comm.iota<[1, 4]>
func.func @partial_permute(%x: memref<8xf32>, %y: memref<8xf32>) {
  // expected-error@+1 {{has no counterpart in the mpi dialect of LLVM 22}}
  %f = comm.permute %x into %y on @g pairs [0, 1] : (memref<8xf32>) -> !comm.future<memref<8xf32>>
  %v = comm.wait %f keeping (%x, %y : memref<8xf32>, memref<8xf32>) : !comm.future<memref<8xf32>>
  return
}

// -----

comm.group @g #comm.iota<[1, 4]>
func.func @tensors(%x: tensor<8xf32>) -> tensor<8xf32> {
  // expected-error@+1 {{expected buffers, got tensors; run comm-bufferize first}}
  %f = comm.all_reduce sum %x on @g : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %v = comm.wait %f : !comm.future<tensor<8xf32>>
  return %v : tensor<8xf32>
}

// -----

comm.group @g #comm.iota<[1, 4]>
func.func @strided(%x: memref<8xf32, strided<[2]>>, %y: memref<32xf32>) {
  // expected-error@+1 {{expected contiguous buffers of a static shape, got 'memref<8xf32, strided<[2]>>'}}
  %f = comm.all_gather %x into %y on @g : (memref<8xf32, strided<[2]>>) -> !comm.future<memref<32xf32>>
  %v = comm.wait %f keeping (%x, %y : memref<8xf32, strided<[2]>>, memref<32xf32>) : !comm.future<memref<32xf32>>
  return
}

// -----

comm.group @g #comm.iota<[1, 4]>
func.func @two_waits(%x: memref<8xf32>) {
  // expected-error@+1 {{expected exactly one wait, and no other use of the future}}
  %f = comm.all_reduce sum %x into %x on @g : (memref<8xf32>) -> !comm.future<memref<8xf32>>
  %v = comm.wait %f keeping (%x : memref<8xf32>) : !comm.future<memref<8xf32>>
  %w = comm.wait %f keeping (%x : memref<8xf32>) : !comm.future<memref<8xf32>>
  return
}

// -----

comm.group @g #comm.iota<[1, 4]>
func.func @large_tag(%x: memref<8xf32>) {
  // expected-error@+1 {{expected a tag below 16384, got 20000}}
  %f = comm.send %x on @g peer 1 tag 20000 : (memref<8xf32>) -> !comm.future<>
  comm.wait %f keeping (%x : memref<8xf32>) : !comm.future<>
  return
}
