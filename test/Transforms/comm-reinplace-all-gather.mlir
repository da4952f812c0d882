// RUN: comm-opt %s --comm-reinplace-all-gather --split-input-file --remarks-filter=comm-reinplace-all-gather --verify-diagnostics | FileCheck %s

// Tests that an all-gather of a copy-in's slice writes the copy-in's buffer.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @pattern
func.func @pattern(%a: tensor<2x2xf32>, %b: tensor<6xf32>) -> tensor<40xf32> {
  // CHECK: %[[SLICE:.*]], %[[BUFFER:.*]] = comm.fsdp.all_gather_copy_in
  %slice, %buffer = comm.fsdp.all_gather_copy_in %a, %b on @dp : (tensor<2x2xf32>, tensor<6xf32>) -> (tensor<10xf32>, tensor<40xf32>)
  // CHECK: comm.all_gather %[[SLICE]] into %[[BUFFER]] on @dp
  // expected-remark @+1 {{Bytes=160, Kind=all_gather, LimitingFactor=none, Remark="the all-gather writes the buffer of its copy-in"}}
  %f = comm.all_gather %slice on @dp : (tensor<10xf32>) -> !comm.future<tensor<40xf32>>
  %w = comm.wait %f : !comm.future<tensor<40xf32>>
  return %w : tensor<40xf32>
}

// -----

// Tests that a cast between the two is done by the copy-in.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @cast
func.func @cast(%a: tensor<2x2xf32>) -> tensor<16xbf16> {
  // CHECK: %[[SLICE:.*]], %[[BUFFER:.*]] = comm.fsdp.all_gather_copy_in %{{.*}} on @dp : (tensor<2x2xf32>) -> (tensor<4xbf16>, tensor<16xbf16>)
  // CHECK-NOT: truncf
  %slice, %buffer = comm.fsdp.all_gather_copy_in %a on @dp : (tensor<2x2xf32>) -> (tensor<4xf32>, tensor<16xf32>)
  %c = arith.truncf %slice : tensor<4xf32> to tensor<4xbf16>
  // CHECK: comm.all_gather %[[SLICE]] into %[[BUFFER]] on @dp
  // expected-remark @+1 {{Bytes=64}}
  %f = comm.all_gather %c on @dp : (tensor<4xbf16>) -> !comm.future<tensor<16xbf16>>
  %w = comm.wait %f : !comm.future<tensor<16xbf16>>
  return %w : tensor<16xbf16>
}

// -----

// Tests the coalesced form.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @coalesced
func.func @coalesced(%a: tensor<2x2xf32>, %b: tensor<6xf32>) -> (tensor<16xf32>, tensor<24xf32>) {
  // CHECK: %[[S0:.*]], %[[B0:.*]] = comm.fsdp.all_gather_copy_in
  %s0, %b0 = comm.fsdp.all_gather_copy_in %a on @dp : (tensor<2x2xf32>) -> (tensor<4xf32>, tensor<16xf32>)
  // CHECK: %[[S1:.*]], %[[B1:.*]] = comm.fsdp.all_gather_copy_in
  %s1, %b1 = comm.fsdp.all_gather_copy_in %b on @dp : (tensor<6xf32>) -> (tensor<6xf32>, tensor<24xf32>)
  // CHECK: comm.all_gather %[[S0]], %[[S1]] into %[[B0]], %[[B1]] on @dp
  // expected-remark @+1 {{Bytes=160}}
  %f = comm.all_gather %s0, %s1 on @dp : (tensor<4xf32>, tensor<6xf32>) -> !comm.future<tensor<16xf32>, tensor<24xf32>>
  %w:2 = comm.wait %f : !comm.future<tensor<16xf32>, tensor<24xf32>>
  return %w#0, %w#1 : tensor<16xf32>, tensor<24xf32>
}

// -----

// Tests what is left alone without a word: all-gathers of something else, and those in place.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @others
func.func @others(%a: tensor<4xf32>) -> (tensor<16xf32>, tensor<16xf32>) {
  // CHECK: comm.all_gather %{{.*}} on @dp
  %f0 = comm.all_gather %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<16xf32>>
  // CHECK: %[[S:.*]], %[[B:.*]] = comm.fsdp.all_gather_copy_in
  %s, %b = comm.fsdp.all_gather_copy_in %a on @dp : (tensor<4xf32>) -> (tensor<4xf32>, tensor<16xf32>)
  // CHECK: comm.all_gather %[[S]] into %[[B]] on @dp
  %f1 = comm.all_gather %s into %b on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<16xf32>>
  return %w0, %w1 : tensor<16xf32>, tensor<16xf32>
}

// -----

comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @buffer_used
func.func @buffer_used(%a: tensor<4xf32>) -> (tensor<16xf32>, tensor<16xf32>) {
  %s, %b = comm.fsdp.all_gather_copy_in %a on @dp : (tensor<4xf32>) -> (tensor<4xf32>, tensor<16xf32>)
  // CHECK: comm.all_gather %{{.*}} on @dp
  // expected-remark @+1 {{LimitingFactor="the buffer of the copy-in has other users"}}
  %f = comm.all_gather %s on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w = comm.wait %f : !comm.future<tensor<16xf32>>
  return %w, %b : tensor<16xf32>, tensor<16xf32>
}

// -----

comm.group @dp #comm.iota<[1, 4]>
comm.group @other #comm.iota<[1, 4]>
// CHECK-LABEL: func @other_group
func.func @other_group(%a: tensor<4xf32>) -> tensor<16xf32> {
  %s, %b = comm.fsdp.all_gather_copy_in %a on @dp : (tensor<4xf32>) -> (tensor<4xf32>, tensor<16xf32>)
  // CHECK: comm.all_gather %{{.*}} on @other
  // expected-remark @+1 {{LimitingFactor="the copy-in is for another group"}}
  %f = comm.all_gather %s on @other : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w = comm.wait %f : !comm.future<tensor<16xf32>>
  return %w : tensor<16xf32>
}

// -----

// Tests that a buffer made outside of a loop is not written by every iteration.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @other_block
func.func @other_block(%a: tensor<4xf32>, %p: i1, %z: tensor<16xf32>) -> tensor<16xf32> {
  %s, %b = comm.fsdp.all_gather_copy_in %a on @dp : (tensor<4xf32>) -> (tensor<4xf32>, tensor<16xf32>)
  %r = scf.if %p -> tensor<16xf32> {
    // CHECK: comm.all_gather %{{.*}} on @dp
    // expected-remark @+1 {{LimitingFactor="the copy-in is in another block"}}
    %f = comm.all_gather %s on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
    %w = comm.wait %f : !comm.future<tensor<16xf32>>
    scf.yield %w : tensor<16xf32>
  } else {
    scf.yield %z : tensor<16xf32>
  }
  return %r : tensor<16xf32>
}

// -----

comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @refused
func.func @refused(%a: tensor<4xf32>, %h: tensor<4xbf16>, %d: tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<4xbf16>, tensor<16xbf16>, tensor<16xf32>) {
  %s0, %b0 = comm.fsdp.all_gather_copy_in %a on @dp : (tensor<4xf32>) -> (tensor<4xf32>, tensor<16xf32>)
  // CHECK: comm.all_gather %{{.*}} into %arg2 on @dp
  // expected-remark @+1 {{LimitingFactor="the all-gather has another destination"}}
  %f0 = comm.all_gather %s0 into %d on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<16xf32>>
  // CHECK: comm.all_gather %{{.*}}, %arg0 on @dp
  // expected-remark @+1 {{LimitingFactor="an input of the all-gather is not the slice of a copy-in"}}
  %f1 = comm.all_gather %s0, %a on @dp : (tensor<4xf32>, tensor<4xf32>) -> !comm.future<tensor<16xf32>, tensor<16xf32>>
  %w1:2 = comm.wait %f1 : !comm.future<tensor<16xf32>, tensor<16xf32>>
  %s2, %b2 = comm.fsdp.all_gather_copy_in %a on @dp : (tensor<4xf32>) -> (tensor<4xf32>, tensor<16xf32>)
  %c2 = arith.truncf %s2 : tensor<4xf32> to tensor<4xbf16>
  // CHECK: comm.all_gather %{{.*}} on @dp
  // expected-remark @+1 {{LimitingFactor="the slice or its cast has other users"}}
  %f2 = comm.all_gather %c2 on @dp : (tensor<4xbf16>) -> !comm.future<tensor<16xbf16>>
  %w2 = comm.wait %f2 : !comm.future<tensor<16xbf16>>
  %s3, %b3 = comm.fsdp.all_gather_copy_in %h on @dp : (tensor<4xbf16>) -> (tensor<4xf64>, tensor<16xf64>)
  %c3 = arith.truncf %s3 : tensor<4xf64> to tensor<4xf32>
  // CHECK: comm.all_gather %{{.*}} on @dp
  // expected-remark @+1 {{LimitingFactor="the copy-in already converts, to another type than the cast"}}
  %f3 = comm.all_gather %c3 on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w3 = comm.wait %f3 : !comm.future<tensor<16xf32>>
  return %w0, %w1#0, %w1#1, %c2, %w2, %w3 : tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<4xbf16>, tensor<16xbf16>, tensor<16xf32>
}

// -----

// Tests that on memrefs, where every all-gather has a destination, the right one is left alone without a word and another one is
// kept: what reads it may not know of the wait's result.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @memrefs
func.func @memrefs(%a: memref<4xf32>, %b: memref<16xf32>, %c: memref<16xf32>, %other: memref<16xf32>) {
  %s0, %b0 = comm.fsdp.all_gather_copy_in %a into %b : memref<16xf32> on @dp : (memref<4xf32>) -> (memref<4xf32>, memref<16xf32>)
  // CHECK: comm.all_gather %{{.*}} into %{{.*}} on @dp
  %f0 = comm.all_gather %s0 into %b0 on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  %w0 = comm.wait %f0 keeping (%s0, %b0 : memref<4xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
  %s1, %b1 = comm.fsdp.all_gather_copy_in %a into %c : memref<16xf32> on @dp : (memref<4xf32>) -> (memref<4xf32>, memref<16xf32>)
  // CHECK: comm.all_gather %{{.*}} into %arg3 on @dp
  // expected-remark @+1 {{LimitingFactor="the all-gather has another destination"}}
  %f1 = comm.all_gather %s1 into %other on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  %w1 = comm.wait %f1 keeping (%s1, %other : memref<4xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
  return
}

// -----

// Tests that a slice of something else, and the buffer itself, are no slice of a copy-in.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @looks_like_it
func.func @looks_like_it(%a: tensor<4xf32>) -> (tensor<64xf32>, tensor<8xf32>) {
  %s, %b = comm.fsdp.all_gather_copy_in %a on @dp : (tensor<4xf32>) -> (tensor<4xf32>, tensor<16xf32>)
  // CHECK: comm.all_gather %buffer on @dp
  %f0 = comm.all_gather %b on @dp : (tensor<16xf32>) -> !comm.future<tensor<64xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<64xf32>>
  %part = tensor.extract_slice %s[0] [2] [1] : tensor<4xf32> to tensor<2xf32>
  // CHECK: comm.all_gather %extracted_slice on @dp
  %f1 = comm.all_gather %part on @dp : (tensor<2xf32>) -> !comm.future<tensor<8xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<8xf32>>
  return %w0, %w1 : tensor<64xf32>, tensor<8xf32>
}

// -----

// Tests that bytes of several types are written in place too, and that they are no cast's.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @bytes
func.func @bytes(%a: tensor<4xf32>, %b: tensor<3xbf16>) -> tensor<88xi8> {
  // CHECK: comm.fsdp.all_gather_copy_in %arg0, %arg1 on @dp as [f32, bf16]
  %s, %g = comm.fsdp.all_gather_copy_in %a, %b on @dp as [f32, bf16] : (tensor<4xf32>, tensor<3xbf16>) -> (tensor<22xi8>, tensor<88xi8>)
  // CHECK: comm.all_gather %slice into %buffer on @dp
  // expected-remark @+1 {{Bytes=88}}
  %f = comm.all_gather %s on @dp : (tensor<22xi8>) -> !comm.future<tensor<88xi8>>
  %w = comm.wait %f : !comm.future<tensor<88xi8>>
  return %w : tensor<88xi8>
}

// -----

// Tests that two casts, which round twice, are not made one.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @two_casts
func.func @two_casts(%a: tensor<4xf64>) -> tensor<16xbf16> {
  %s, %b = comm.fsdp.all_gather_copy_in %a on @dp : (tensor<4xf64>) -> (tensor<4xf64>, tensor<16xf64>)
  // CHECK-COUNT-2: arith.truncf
  %c = arith.truncf %s : tensor<4xf64> to tensor<4xf32>
  %h = arith.truncf %c : tensor<4xf32> to tensor<4xbf16>
  // CHECK: comm.all_gather %{{.*}} on @dp
  // expected-remark @+1 {{LimitingFactor="consecutive casts round more than once, but the copy-in rounds once"}}
  %f = comm.all_gather %h on @dp : (tensor<4xbf16>) -> !comm.future<tensor<16xbf16>>
  %w = comm.wait %f : !comm.future<tensor<16xbf16>>
  return %w : tensor<16xbf16>
}
