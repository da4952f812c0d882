// RUN: comm-opt %s -verify-diagnostics --split-input-file

// Tests that copy-ins, splits, parameter storage, streams and opaque computation that break a constraint are refused.

func.func @copy_in_c1_nothing() {
  // expected-error @+1 {{C1: expected at least one input, got none}}
  %s, %b = "comm.fsdp.all_gather_copy_in"() <{group = @dp, operandSegmentSizes = array<i32: 0, 0>}> : () -> (tensor<4xf32>, tensor<16xf32>)
  return
}

// -----

func.func @copy_in_c1_flat(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{C1: expected a one-dimensional slice, got 'tensor<2x2xf32>'}}
  %s, %b = comm.fsdp.all_gather_copy_in %x on @dp : (tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<16xf32>)
  return
}

// -----

func.func @copy_in_c1_types(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{C1: expected slice and buffer of one element type, got 'f32' and 'bf16'}}
  %s, %b = comm.fsdp.all_gather_copy_in %x on @dp : (tensor<2x2xf32>) -> (tensor<4xf32>, tensor<16xbf16>)
  return
}

// -----

func.func @copy_in_c2(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{C2: expected a slice of the inputs' 8 elements, got 4}}
  %s, %b = comm.fsdp.all_gather_copy_in %x, %x on @dp : (tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<4xf32>, tensor<16xf32>)
  return
}

// -----

// expected-note @+1 {{the group has 4 ranks}}
comm.group @dp #comm.iota<[1, 4]>
func.func @copy_in_c3(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{C3: expected a buffer of the slice's size (4) times the group's size (4), got 8}}
  %s, %b = comm.fsdp.all_gather_copy_in %x on @dp : (tensor<2x2xf32>) -> (tensor<4xf32>, tensor<8xf32>)
  return
}

// -----

func.func @copy_in_c4_missing(%x: memref<2x2xf32>) {
  // expected-error @+1 {{C4: expected a destination for a result on memrefs, got none}}
  %s, %b = comm.fsdp.all_gather_copy_in %x on @dp : (memref<2x2xf32>) -> (memref<4xf32>, memref<16xf32>)
  return
}

// -----

func.func @copy_in_c4_type(%x: tensor<2x2xf32>, %d: tensor<?xf32>) {
  // expected-error @+1 {{C4: expected a destination of type 'tensor<16xf32>', got 'tensor<?xf32>'}}
  %s, %b = comm.fsdp.all_gather_copy_in %x into %d : tensor<?xf32> on @dp : (tensor<2x2xf32>) -> (tensor<4xf32>, tensor<16xf32>)
  return
}

// -----

func.func @copy_in_c4_mixed(%x: memref<2x2xf32>) {
  // expected-error @+1 {{C4: expected only tensors or only memrefs, got both}}
  %s, %b = comm.fsdp.all_gather_copy_in %x on @dp : (memref<2x2xf32>) -> (tensor<4xf32>, tensor<16xf32>)
  return
}

// -----

func.func @copy_in_c5(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{C5: expected @dp to name a comm.group}}
  %s, %b = comm.fsdp.all_gather_copy_in %x on @dp : (tensor<2x2xf32>) -> (tensor<4xf32>, tensor<16xf32>)
  return
}

// -----

func.func @split_copy_c1_flat(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{C1: expected a one-dimensional source, got 'tensor<2x2xf32>'}}
  %p = comm.fsdp.split_with_sizes_copy %x sizes [4] : (tensor<2x2xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @split_copy_c1_negative(%x: tensor<4xf32>) {
  // expected-error @+1 {{C1: expected non-negative sizes, got -1}}
  %p:2 = comm.fsdp.split_with_sizes_copy %x sizes [5, -1] : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @split_copy_c1_overflow(%x: tensor<4xf32>) {
  // expected-error @+1 {{C1: expected sizes that add up to less than 2^63, got more}}
  %p:2 = comm.fsdp.split_with_sizes_copy %x sizes [9223372036854775807, 1] : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @split_copy_c1_multiple(%x: tensor<10xf32>) {
  // expected-error @+1 {{C1: expected the source's size to be a multiple of the sum of 'sizes' (4), got 10}}
  %p:2 = comm.fsdp.split_with_sizes_copy %x sizes [3, 1] : (tensor<10xf32>) -> (tensor<6xf32>, tensor<4xf32>)
  return
}

// -----

func.func @split_copy_c1_zero(%x: tensor<10xf32>) {
  // expected-error @+1 {{C1: expected the source's size to be a multiple of the sum of 'sizes' (0), got 10}}
  %p = comm.fsdp.split_with_sizes_copy %x sizes [0] : (tensor<10xf32>) -> tensor<0xf32>
  return
}

// -----

func.func @split_copy_c2_count(%x: tensor<8xf32>) {
  // expected-error @+1 {{C2: expected one result per piece (2), got 1}}
  %p = comm.fsdp.split_with_sizes_copy %x sizes [3, 1] : (tensor<8xf32>) -> tensor<6xf32>
  return
}

// -----

func.func @split_copy_c2_range(%x: tensor<8xf32>) {
  // expected-error @+1 {{C2: expected 'members' from 0 to 1, got 2}}
  %p = comm.fsdp.split_with_sizes_copy %x sizes [3, 1] members [2] : (tensor<8xf32>) -> tensor<6xf32>
  return
}

// -----

func.func @split_copy_c2_twice(%x: tensor<8xf32>) {
  // expected-error @+1 {{C2: piece 0 appears twice in 'members'}}
  %p:2 = comm.fsdp.split_with_sizes_copy %x sizes [3, 1] members [0, 0] : (tensor<8xf32>) -> (tensor<6xf32>, tensor<6xf32>)
  return
}

// -----

func.func @split_copy_c3_elements(%x: tensor<8xf32>) {
  // expected-error @+1 {{C3: expected result #1 to have the 2 elements of its pieces, got 4}}
  %p:2 = comm.fsdp.split_with_sizes_copy %x sizes [3, 1] : (tensor<8xf32>) -> (tensor<6xf32>, tensor<4xf32>)
  return
}

// -----

func.func @split_copy_c3_type(%x: tensor<8xf32>) {
  // expected-error @+1 {{C3: expected result #0 with the source's element type ('f32'), got 'bf16'}}
  %p = comm.fsdp.split_with_sizes_copy %x sizes [8] : (tensor<8xf32>) -> tensor<8xbf16>
  return
}

// -----

func.func @split_copy_c4_missing(%x: memref<8xf32>) {
  // expected-error @+1 {{C4: expected a destination for a result on memrefs, got none}}
  %p = comm.fsdp.split_with_sizes_copy %x sizes [8] : (memref<8xf32>) -> memref<8xf32>
  return
}

// -----

func.func @split_copy_c4_count(%x: tensor<8xf32>, %d: tensor<8xf32>) {
  // expected-error @+1 {{C4: expected one destination per result (1), got 2}}
  %p = comm.fsdp.split_with_sizes_copy %x into %d, %d : tensor<8xf32>, tensor<8xf32> sizes [8] : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @split_c1_sum(%x: tensor<8xf32>) {
  // expected-error @+1 {{C1: expected sizes that add up to the source's 8 elements, got 7}}
  %p:2 = comm.fsdp.split_with_sizes %x sizes [3, 4] : (tensor<8xf32>) -> (tensor<3xf32>, tensor<4xf32>)
  return
}

// -----

func.func @split_c2_count(%x: tensor<8xf32>) {
  // expected-error @+1 {{C2: expected one result per size (2), got 1}}
  %p = comm.fsdp.split_with_sizes %x sizes [4, 4] : (tensor<8xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @split_c2_mixed(%x: tensor<8xf32>) {
  // expected-error @+1 {{C2: expected only tensors or only memrefs, got both}}
  %p = comm.fsdp.split_with_sizes %x sizes [8] : (tensor<8xf32>) -> memref<8xf32>
  return
}

// -----

func.func @chunk_cat_c1(%x: tensor<8xf32>) {
  // expected-error @+1 {{C1: expected at least one input and at least one chunk, got 1 inputs and 0 chunks}}
  %c = comm.fsdp.chunk_cat %x chunks 0 : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @chunk_cat_c2(%x: tensor<3x2xf32>) {
  // expected-error @+1 {{C2: expected a result of the padded inputs' 8 elements, got 6}}
  %c = comm.fsdp.chunk_cat %x chunks 4 : (tensor<3x2xf32>) -> tensor<6xf32>
  return
}

// -----

func.func @chunk_cat_c3(%x: memref<8xf32>) {
  // expected-error @+1 {{C3: expected a destination for a result on memrefs, got none}}
  %c = comm.fsdp.chunk_cat %x chunks 4 : (memref<8xf32>) -> memref<8xf32>
  return
}

// -----

func.func @copy_c1_shape(%x: tensor<8xf32>, %y: tensor<4xf32>) {
  // expected-error @+1 {{C1: expected a source with the shape and element type of the destination ('tensor<4xf32>'), got 'tensor<8xf32>'}}
  comm.fsdp.copy %x into %y : tensor<8xf32> into tensor<4xf32>
  return
}

// -----

func.func @copy_c1_mixed(%x: tensor<8xf32>, %y: memref<8xf32>) {
  // expected-error @+1 {{C1: expected only tensors or only memrefs, got both}}
  comm.fsdp.copy %x into %y : tensor<8xf32> into memref<8xf32>
  return
}

// -----

func.func @resize_c1(%x: tensor<8xf32>) {
  // expected-error @+1 {{C1: expected a non-negative size, got -1}}
  comm.resize_storage %x to -1 : tensor<8xf32>
  return
}

// -----

func.func @copy_in_c6_count(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{C6: expected one type in 'as' per input (1), got 2}}
  %s, %b = comm.fsdp.all_gather_copy_in %x on @dp as [f32, f32] : (tensor<2x2xf32>) -> (tensor<16xi8>, tensor<64xi8>)
  return
}

// -----

func.func @copy_in_c6_buffer(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{C6: expected a slice of 'i8' with 'as', got 'f32'}}
  %s, %b = comm.fsdp.all_gather_copy_in %x on @dp as [f32] : (tensor<2x2xf32>) -> (tensor<16xf32>, tensor<64xf32>)
  return
}

// -----

func.func @copy_in_c6_bits(%x: tensor<2x2xi1>) {
  // expected-error @+1 {{C6: expected integers or floats of whole bytes in 'as', got 'i1'}}
  %s, %b = comm.fsdp.all_gather_copy_in %x on @dp as [i1] : (tensor<2x2xi1>) -> (tensor<4xi8>, tensor<16xi8>)
  return
}

// -----

func.func @copy_in_c2_bytes(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{C2: expected a slice of the inputs' 8 bytes, got 16}}
  %s, %b = comm.fsdp.all_gather_copy_in %x on @dp as [bf16] : (tensor<2x2xf32>) -> (tensor<16xi8>, tensor<64xi8>)
  return
}

// -----

func.func @split_copy_c3_bytes(%x: tensor<8xi8>) {
  // expected-error @+1 {{C3: expected result #0 to have the 6 bytes of its pieces, got 2 elements of 2 bytes}}
  %0:2 = comm.fsdp.split_with_sizes_copy %x sizes [3, 1] : (tensor<8xi8>) -> (tensor<2xbf16>, tensor<2xi8>)
  return
}

// -----

func.func @split_copy_c3_bits(%x: tensor<8xi8>) {
  // expected-error @+1 {{C3: expected result #0 to have elements of whole bytes, got 'i1'}}
  %0:2 = comm.fsdp.split_with_sizes_copy %x sizes [3, 1] : (tensor<8xi8>) -> (tensor<6xi1>, tensor<2xi8>)
  return
}
