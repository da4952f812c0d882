// RUN: comm-opt %s --comm-bucket="mixed-types" --remarks-filter=comm-bucket --verify-diagnostics --split-input-file | FileCheck %s
// RUN: comm-opt %s --comm-bucket="mixed-types form=coalesced" --split-input-file | FileCheck %s --check-prefix=COALESCED
// RUN: comm-opt %s --comm-bucket --split-input-file | FileCheck %s --check-prefix=OFF

// Tests that all-gathers of several types go as bytes, casts included, and that what they carry is counted in bytes.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @gathers
// OFF-LABEL: func @gathers
// OFF-NOT: as [
// OFF-COUNT-3: comm.all_gather
// COALESCED-LABEL: func @gathers
// COALESCED: comm.all_gather %{{.*}}, %{{.*}}, %{{.*}} on @dp : (tensor<3xbf16>, tensor<2x2xf32>, tensor<5xi8>)
// expected-remark @+1 {{BytesAfter=108, BytesBefore=108, CollectivesAfter=1, CollectivesBefore=3}}
func.func @gathers(%a: tensor<3xf32>, %b: tensor<2x2xf32>, %c: tensor<5xi8>) -> (tensor<12xbf16>, tensor<8x2xf32>, tensor<20xi8>) {
  // CHECK-NOT: truncf
  // CHECK: %[[S:.*]], %[[B:.*]] = comm.fsdp.all_gather_copy_in %arg0, %arg1, %arg2 on @dp as [bf16, f32, i8] : (tensor<3xf32>, tensor<2x2xf32>, tensor<5xi8>) -> (tensor<27xi8>, tensor<108xi8>)
  // CHECK: %[[F:.*]] = comm.all_gather %[[S]] into %[[B]] on @dp : (tensor<27xi8>) -> !comm.future<tensor<108xi8>>
  // CHECK: %[[W:.*]] = comm.wait %[[F]]
  // CHECK: comm.fsdp.split_with_sizes_copy %[[W]] sizes [6, 16, 5] : (tensor<108xi8>) -> (tensor<12xbf16>, tensor<8x2xf32>, tensor<20xi8>)
  %h = arith.truncf %a : tensor<3xf32> to tensor<3xbf16>
  // expected-remark @+1 {{Bytes=108, Kind=all_gather, LimitingFactor=none, Remark="3 collectives merged into one, packed"}}
  %f0 = comm.all_gather %h on @dp : (tensor<3xbf16>) -> !comm.future<tensor<12xbf16>>
  %w0 = comm.wait %f0 : !comm.future<tensor<12xbf16>>
  %f1 = comm.all_gather %b on @dp : (tensor<2x2xf32>) -> !comm.future<tensor<8x2xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<8x2xf32>>
  %f2 = comm.all_gather %c on @dp : (tensor<5xi8>) -> !comm.future<tensor<20xi8>>
  %w2 = comm.wait %f2 : !comm.future<tensor<20xi8>>
  return %w0, %w1, %w2 : tensor<12xbf16>, tensor<8x2xf32>, tensor<20xi8>
}

// -----

// Tests that a bucket of one type stays one of elements, and that the cap counts bytes.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @one_type
// expected-remark @+1 {{CollectivesAfter=1, CollectivesBefore=2}}
func.func @one_type(%a: tensor<3xf32>, %b: tensor<2x2xf32>) -> (tensor<12xf32>, tensor<8x2xf32>) {
  // CHECK: comm.fsdp.all_gather_copy_in %arg0, %arg1 on @dp : (tensor<3xf32>, tensor<2x2xf32>) -> (tensor<7xf32>, tensor<28xf32>)
  // expected-remark @+1 {{2 collectives merged into one}}
  %f0 = comm.all_gather %a on @dp : (tensor<3xf32>) -> !comm.future<tensor<12xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<12xf32>>
  %f1 = comm.all_gather %b on @dp : (tensor<2x2xf32>) -> !comm.future<tensor<8x2xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<8x2xf32>>
  return %w0, %w1 : tensor<12xf32>, tensor<8x2xf32>
}

// -----

// Tests that packed reductions of several types stay apart, with the reason; coalesced ones need no common type.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @reductions
// CHECK-NOT: comm.fsdp
// CHECK-COUNT-2: comm.all_reduce
// COALESCED-LABEL: func @reductions
// COALESCED: comm.all_reduce sum %arg0, %arg1 on @dp : (tensor<3xf32>, tensor<4xbf16>)
func.func @reductions(%a: tensor<3xf32>, %b: tensor<4xbf16>) -> (tensor<3xf32>, tensor<4xbf16>) {
  // expected-remark @+1 {{a reduction computes with its elements and cannot mix types}}
  %f0 = comm.all_reduce sum %a on @dp : (tensor<3xf32>) -> !comm.future<tensor<3xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<3xf32>>
  // expected-remark @+1 {{a reduction computes with its elements and cannot mix types}}
  %f1 = comm.all_reduce sum %b on @dp : (tensor<4xbf16>) -> !comm.future<tensor<4xbf16>>
  %w1 = comm.wait %f1 : !comm.future<tensor<4xbf16>>
  return %w0, %w1 : tensor<3xf32>, tensor<4xbf16>
}
