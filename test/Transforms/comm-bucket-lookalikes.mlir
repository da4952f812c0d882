// RUN: comm-opt %s --comm-bucket --remarks-filter=comm-bucket --verify-diagnostics --split-input-file | FileCheck %s

// Pairs that look as if they could be one, and cannot.

// Tests that sums with different scales stay apart.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @scales
// CHECK-NOT: comm.fsdp
func.func @scales(%a: tensor<4xf32>, %b: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  // expected-remark @+1 {{LimitingFactor="no other collective of its kind}}
  %f0 = comm.all_reduce scaled_sum scale 5.0e-01 %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<4xf32>>
  // expected-remark @+1 {{LimitingFactor="no other collective of its kind}}
  %f1 = comm.all_reduce scaled_sum scale 2.5e-01 %b on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<4xf32>>
  return %w0, %w1 : tensor<4xf32>, tensor<4xf32>
}

// -----

// Tests a dependence through memory alone: the second reduces what was written after the first was waited for.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @through_memory
// CHECK-NOT: comm.fsdp
func.func @through_memory(%a: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %z = comm.compute "zeros"() : () -> tensor<4xf32>
  // expected-remark @+1 {{LimitingFactor="no other collective of its kind}}
  %f0 = comm.all_reduce sum %z on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<4xf32>>
  comm.compute "add_"(%z, %a) mutates [0] : (tensor<4xf32>, tensor<4xf32>) -> ()
  // expected-remark @+1 {{LimitingFactor="no other collective of its kind}}
  %f1 = comm.all_reduce sum %z on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<4xf32>>
  return %w0, %w1 : tensor<4xf32>, tensor<4xf32>
}

// -----

// Tests that what is in a loop merges with each other and not with what is in front of it.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @loop
func.func @loop(%a: tensor<4xf32>, %b: tensor<4xf32>, %n: index) -> tensor<4xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  // CHECK: comm.all_reduce sum %arg0 on @dp
  // expected-remark @+1 {{LimitingFactor="no other collective of its kind}}
  %f0 = comm.all_reduce sum %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<4xf32>>
  // CHECK: scf.for
  // CHECK: comm.fsdp.chunk_cat
  // expected-remark @+1 {{CollectivesAfter=1, CollectivesBefore=2}}
  %r = scf.for %i = %zero to %n step %one iter_args(%x = %w0) -> tensor<4xf32> {
    // expected-remark @+1 {{2 collectives merged into one}}
    %f1 = comm.all_reduce sum %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
    %w1 = comm.wait %f1 : !comm.future<tensor<4xf32>>
    %f2 = comm.all_reduce sum %b on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
    %w2 = comm.wait %f2 : !comm.future<tensor<4xf32>>
    %s = comm.compute "add"(%w1, %w2) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    scf.yield %s : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

// Tests what is an element type cast by its look alone: a cast with a second user, and one that changes more than elements, are
// not done by the pack.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @casts
// expected-remark @+1 {{CollectivesAfter=1, CollectivesBefore=3}}
func.func @casts(%a: tensor<4xf32>, %b: tensor<4xf32>, %c: tensor<2x2xf32>) -> (tensor<16xbf16>, tensor<16xbf16>, tensor<16xbf16>, tensor<4xbf16>) {
  // CHECK: %[[SHARED:.*]] = arith.truncf
  // CHECK: %[[FLAT:.*]] = comm.compute "cast"
  // CHECK: comm.fsdp.all_gather_copy_in %[[SHARED]], %arg1, %[[FLAT]] on @dp : (tensor<4xbf16>, tensor<4xf32>, tensor<4xbf16>)
  %h = arith.truncf %a : tensor<4xf32> to tensor<4xbf16>
  // expected-remark @+1 {{3 collectives merged into one}}
  %f0 = comm.all_gather %h on @dp : (tensor<4xbf16>) -> !comm.future<tensor<16xbf16>>
  %w0 = comm.wait %f0 : !comm.future<tensor<16xbf16>>
  %i = arith.truncf %b : tensor<4xf32> to tensor<4xbf16>
  %f1 = comm.all_gather %i on @dp : (tensor<4xbf16>) -> !comm.future<tensor<16xbf16>>
  %w1 = comm.wait %f1 : !comm.future<tensor<16xbf16>>
  %j = comm.compute "cast"(%c) : (tensor<2x2xf32>) -> tensor<4xbf16>
  %f2 = comm.all_gather %j on @dp : (tensor<4xbf16>) -> !comm.future<tensor<16xbf16>>
  %w2 = comm.wait %f2 : !comm.future<tensor<16xbf16>>
  return %w0, %w1, %w2, %h : tensor<16xbf16>, tensor<16xbf16>, tensor<16xbf16>, tensor<4xbf16>
}
