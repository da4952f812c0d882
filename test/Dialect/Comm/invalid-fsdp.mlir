// RUN: comm-opt %s -verify-diagnostics --split-input-file

// Tests that copy-ins, splits, parameter storage, streams and opaque computation that break a constraint are refused.

func.func @copy_in_c1_nothing() {
  // expected-error @+1 {{C1: nothing to pack}}
  %s, %b = "comm.fsdp.all_gather_copy_in"() <{group = @dp, operandSegmentSizes = array<i32: 0, 0>}> : () -> (tensor<4xf32>, tensor<16xf32>)
  return
}

// -----

func.func @copy_in_c1_flat(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{C1: the slice must be one-dimensional, not 'tensor<2x2xf32>'}}
  %s, %b = comm.fsdp.all_gather_copy_in %x on @dp : (tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<16xf32>)
  return
}

// -----

func.func @copy_in_c1_types(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{C1: slice and buffer have different element types}}
  %s, %b = comm.fsdp.all_gather_copy_in %x on @dp : (tensor<2x2xf32>) -> (tensor<4xf32>, tensor<16xbf16>)
  return
}

// -----

func.func @copy_in_c2(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{C2: the inputs have 8 elements, the slice 4}}
  %s, %b = comm.fsdp.all_gather_copy_in %x, %x on @dp : (tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<4xf32>, tensor<16xf32>)
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>
func.func @copy_in_c3(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{C3: a slice of 4 over 4 ranks does not make a buffer of 8}}
  %s, %b = comm.fsdp.all_gather_copy_in %x on @dp : (tensor<2x2xf32>) -> (tensor<4xf32>, tensor<8xf32>)
  return
}

// -----

func.func @copy_in_c4_missing(%x: memref<2x2xf32>) {
  // expected-error @+1 {{C4: on memrefs a destination is needed}}
  %s, %b = comm.fsdp.all_gather_copy_in %x on @dp : (memref<2x2xf32>) -> (memref<4xf32>, memref<16xf32>)
  return
}

// -----

func.func @copy_in_c4_type(%x: tensor<2x2xf32>, %d: tensor<?xf32>) {
  // expected-error @+1 {{C4: a destination of type 'tensor<?xf32>' for a result of type 'tensor<16xf32>'}}
  %s, %b = comm.fsdp.all_gather_copy_in %x into %d : tensor<?xf32> on @dp : (tensor<2x2xf32>) -> (tensor<4xf32>, tensor<16xf32>)
  return
}

// -----

func.func @copy_in_c4_mixed(%x: memref<2x2xf32>) {
  // expected-error @+1 {{C4: tensors and memrefs are mixed}}
  %s, %b = comm.fsdp.all_gather_copy_in %x on @dp : (memref<2x2xf32>) -> (tensor<4xf32>, tensor<16xf32>)
  return
}

// -----

func.func @copy_in_c5(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{C5: no comm.group @dp}}
  %s, %b = comm.fsdp.all_gather_copy_in %x on @dp : (tensor<2x2xf32>) -> (tensor<4xf32>, tensor<16xf32>)
  return
}

// -----

func.func @split_copy_c1_flat(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{C1: the source must be one-dimensional, not 'tensor<2x2xf32>'}}
  %p = comm.fsdp.split_with_sizes_copy %x sizes [4] : (tensor<2x2xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @split_copy_c1_negative(%x: tensor<4xf32>) {
  // expected-error @+1 {{C1: a size of -1 is negative or too large}}
  %p:2 = comm.fsdp.split_with_sizes_copy %x sizes [5, -1] : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @split_copy_c1_overflow(%x: tensor<4xf32>) {
  // expected-error @+1 {{C1: a size of 1 is negative or too large}}
  %p:2 = comm.fsdp.split_with_sizes_copy %x sizes [9223372036854775807, 1] : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @split_copy_c1_multiple(%x: tensor<10xf32>) {
  // expected-error @+1 {{C1: a source of 10 elements is no multiple of pieces of 4}}
  %p:2 = comm.fsdp.split_with_sizes_copy %x sizes [3, 1] : (tensor<10xf32>) -> (tensor<6xf32>, tensor<4xf32>)
  return
}

// -----

func.func @split_copy_c1_zero(%x: tensor<10xf32>) {
  // expected-error @+1 {{C1: a source of 10 elements is no multiple of pieces of 0}}
  %p = comm.fsdp.split_with_sizes_copy %x sizes [0] : (tensor<10xf32>) -> tensor<0xf32>
  return
}

// -----

func.func @split_copy_c2_count(%x: tensor<8xf32>) {
  // expected-error @+1 {{C2: 1 results for 2 pieces}}
  %p = comm.fsdp.split_with_sizes_copy %x sizes [3, 1] : (tensor<8xf32>) -> tensor<6xf32>
  return
}

// -----

func.func @split_copy_c2_range(%x: tensor<8xf32>) {
  // expected-error @+1 {{C2: piece 2 does not exist or is listed twice}}
  %p = comm.fsdp.split_with_sizes_copy %x sizes [3, 1] members [2] : (tensor<8xf32>) -> tensor<6xf32>
  return
}

// -----

func.func @split_copy_c2_twice(%x: tensor<8xf32>) {
  // expected-error @+1 {{C2: piece 0 does not exist or is listed twice}}
  %p:2 = comm.fsdp.split_with_sizes_copy %x sizes [3, 1] members [0, 0] : (tensor<8xf32>) -> (tensor<6xf32>, tensor<6xf32>)
  return
}

// -----

func.func @split_copy_c3_elements(%x: tensor<8xf32>) {
  // expected-error @+1 {{C3: result #1 has 4 elements, its pieces have 2}}
  %p:2 = comm.fsdp.split_with_sizes_copy %x sizes [3, 1] : (tensor<8xf32>) -> (tensor<6xf32>, tensor<4xf32>)
  return
}

// -----

func.func @split_copy_c3_type(%x: tensor<8xf32>) {
  // expected-error @+1 {{C3: result #0 of 'bf16' from a source of 'f32'}}
  %p = comm.fsdp.split_with_sizes_copy %x sizes [8] : (tensor<8xf32>) -> tensor<8xbf16>
  return
}

// -----

func.func @split_copy_c4_missing(%x: memref<8xf32>) {
  // expected-error @+1 {{C4: on memrefs a destination is needed}}
  %p = comm.fsdp.split_with_sizes_copy %x sizes [8] : (memref<8xf32>) -> memref<8xf32>
  return
}

// -----

func.func @split_copy_c4_count(%x: tensor<8xf32>, %d: tensor<8xf32>) {
  // expected-error @+1 {{C4: 2 destinations for 1 results}}
  %p = comm.fsdp.split_with_sizes_copy %x into %d, %d : tensor<8xf32>, tensor<8xf32> sizes [8] : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @split_c1_sum(%x: tensor<8xf32>) {
  // expected-error @+1 {{C1: sizes add up to 7, the source has 8 elements}}
  %p:2 = comm.fsdp.split_with_sizes %x sizes [3, 4] : (tensor<8xf32>) -> (tensor<3xf32>, tensor<4xf32>)
  return
}

// -----

func.func @split_c2_count(%x: tensor<8xf32>) {
  // expected-error @+1 {{C2: 1 results for 2 sizes}}
  %p = comm.fsdp.split_with_sizes %x sizes [4, 4] : (tensor<8xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @split_c2_mixed(%x: tensor<8xf32>) {
  // expected-error @+1 {{C2: tensors and memrefs are mixed}}
  %p = comm.fsdp.split_with_sizes %x sizes [8] : (tensor<8xf32>) -> memref<8xf32>
  return
}

// -----

func.func @chunk_cat_c1(%x: tensor<8xf32>) {
  // expected-error @+1 {{C1: needs at least one input and at least one chunk}}
  %c = comm.fsdp.chunk_cat %x chunks 0 : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @chunk_cat_c2(%x: tensor<3x2xf32>) {
  // expected-error @+1 {{C2: the padded inputs have 8 elements, the result 6}}
  %c = comm.fsdp.chunk_cat %x chunks 4 : (tensor<3x2xf32>) -> tensor<6xf32>
  return
}

// -----

func.func @chunk_cat_c3(%x: memref<8xf32>) {
  // expected-error @+1 {{C3: on memrefs a destination is needed}}
  %c = comm.fsdp.chunk_cat %x chunks 4 : (memref<8xf32>) -> memref<8xf32>
  return
}

// -----

func.func @copy_c1_shape(%x: tensor<8xf32>, %y: tensor<4xf32>) {
  // expected-error @+1 {{C1: cannot copy 'tensor<8xf32>' into 'tensor<4xf32>'}}
  comm.fsdp.copy %x into %y : tensor<8xf32> into tensor<4xf32>
  return
}

// -----

func.func @copy_c1_mixed(%x: tensor<8xf32>, %y: memref<8xf32>) {
  // expected-error @+1 {{C1: tensors and memrefs are mixed}}
  comm.fsdp.copy %x into %y : tensor<8xf32> into memref<8xf32>
  return
}

// -----

func.func @resize_c1(%x: tensor<8xf32>) {
  // expected-error @+1 {{C1: a negative size}}
  comm.resize_storage %x to -1 : tensor<8xf32>
  return
}

// -----

func.func @copy_in_c6_count(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{C6: 2 types for 1 inputs}}
  %s, %b = comm.fsdp.all_gather_copy_in %x on @dp as [f32, f32] : (tensor<2x2xf32>) -> (tensor<16xi8>, tensor<64xi8>)
  return
}

// -----

func.func @copy_in_c6_buffer(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{C6: bytes are packed into i8, not 'f32'}}
  %s, %b = comm.fsdp.all_gather_copy_in %x on @dp as [f32] : (tensor<2x2xf32>) -> (tensor<16xf32>, tensor<64xf32>)
  return
}

// -----

func.func @copy_in_c6_bits(%x: tensor<2x2xi1>) {
  // expected-error @+1 {{C6: 'i1' is no integer or float of whole bytes}}
  %s, %b = comm.fsdp.all_gather_copy_in %x on @dp as [i1] : (tensor<2x2xi1>) -> (tensor<4xi8>, tensor<16xi8>)
  return
}

// -----

func.func @copy_in_c2_bytes(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{C2: the inputs have 8 bytes, the slice 16}}
  %s, %b = comm.fsdp.all_gather_copy_in %x on @dp as [bf16] : (tensor<2x2xf32>) -> (tensor<16xi8>, tensor<64xi8>)
  return
}

// -----

func.func @split_copy_c3_bytes(%x: tensor<8xi8>) {
  // expected-error @+1 {{C3: result #0 has 2 elements of 2 bytes, its pieces have 6 bytes}}
  %0:2 = comm.fsdp.split_with_sizes_copy %x sizes [3, 1] : (tensor<8xi8>) -> (tensor<2xbf16>, tensor<2xi8>)
  return
}

// -----

func.func @split_copy_c3_bits(%x: tensor<8xi8>) {
  // expected-error @+1 {{C3: result #0 of 'i1' from bytes}}
  %0:2 = comm.fsdp.split_with_sizes_copy %x sizes [3, 1] : (tensor<8xi8>) -> (tensor<6xi1>, tensor<2xi8>)
  return
}
