// RUN: comm-opt %s --comm-to-llvm --split-input-file --verify-diagnostics

// Tests that the pieces of a buffer, and the slice of a buffer for a gather, are views of elements that lie beside each other.
func.func @pieces(%x: memref<4xf32, strided<[2]>>, %a: memref<2xf32>) {
  // expected-error@+1 {{'comm.fsdp.split_with_sizes' op expected a contiguous buffer to view as its pieces, got 'memref<4xf32, strided<[2]>>'}}
  %p, %q = comm.fsdp.split_with_sizes %x sizes [2, 2] : (memref<4xf32, strided<[2]>>) -> (memref<2xf32, strided<[1], offset: ?>>, memref<2xf32, strided<[1], offset: ?>>)
  memref.copy %q, %a : memref<2xf32, strided<[1], offset: ?>> to memref<2xf32>
  return
}

// -----

comm.group @w #comm.iota<[1, 2]>
func.func @slice(%x: memref<2xf32>, %all: memref<4xf32, strided<[2]>>) {
  // expected-error@+1 {{'comm.fsdp.all_gather_copy_in' op expected a contiguous buffer of which the slice is a view, got 'memref<4xf32, strided<[2]>>'}}
  %s, %b = comm.fsdp.all_gather_copy_in %x into %all : memref<4xf32, strided<[2]>> on @w : (memref<2xf32>) -> (memref<2xf32, strided<[1], offset: ?>>, memref<4xf32, strided<[2]>>)
  return
}
