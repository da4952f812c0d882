// RUN: comm-opt %s --comm-bucket --remarks-filter=comm-bucket --verify-diagnostics --split-input-file | FileCheck %s

// Tests a packed all-gather: casts are fused, small outputs are unpacked together, another group and a second dimension stay.
comm.group @dp #comm.iota<[1, 4]>
comm.group @tp #comm.iota<[2, 2]>
// CHECK-LABEL: func @all_gather
// CHECK-SAME: (%[[A:.*]]: tensor<2x2xf32>, %[[B:.*]]: tensor<6xbf16>
// expected-remark @+1 {{BytesAfter=176, BytesBefore=176, CollectivesAfter=3, CollectivesBefore=4}}
func.func @all_gather(%a: tensor<2x2xf32>, %b: tensor<6xbf16>, %c: tensor<4x2xbf16>) -> (tensor<8x2xbf16>, tensor<24xbf16>, tensor<4x4xbf16>, tensor<4x8xbf16>) {
  // CHECK-DAG: comm.all_gather %{{.*}} on @tp dim 1
  // CHECK-DAG: comm.all_gather %{{.*}} on @dp dim 1
  // CHECK-DAG: %[[S:.*]], %[[G:.*]] = comm.fsdp.all_gather_copy_in %[[A]], %[[B]] on @dp : (tensor<2x2xf32>, tensor<6xbf16>) -> (tensor<10xbf16>, tensor<40xbf16>)
  // CHECK-DAG: %[[F:.*]] = comm.all_gather %[[S]] into %[[G]] on @dp
  // CHECK-DAG: %[[W:.*]] = comm.wait %[[F]]
  // CHECK-DAG: %[[P:.*]]:2 = comm.fsdp.split_with_sizes_copy %[[W]] sizes [4, 6] : (tensor<40xbf16>) -> (tensor<8x2xbf16>, tensor<24xbf16>)
  // CHECK-NOT: truncf
  %h = arith.truncf %a : tensor<2x2xf32> to tensor<2x2xbf16>
  // expected-remark @+1 {{Bytes=80, Kind=all_gather, LimitingFactor=none, Remark="2 collectives merged into one, packed"}}
  %f0 = comm.all_gather %h on @dp : (tensor<2x2xbf16>) -> !comm.future<tensor<8x2xbf16>>
  %w0 = comm.wait %f0 : !comm.future<tensor<8x2xbf16>>
  %f1 = comm.all_gather %b on @dp : (tensor<6xbf16>) -> !comm.future<tensor<24xbf16>>
  %w1 = comm.wait %f1 : !comm.future<tensor<24xbf16>>
  // expected-remark @+1 {{LimitingFactor="it runs along a dimension other than the first"}}
  %f2 = comm.all_gather %c on @tp dim 1 : (tensor<4x2xbf16>) -> !comm.future<tensor<4x4xbf16>>
  %w2 = comm.wait %f2 : !comm.future<tensor<4x4xbf16>>
  // expected-remark @+1 {{LimitingFactor="it runs along a dimension other than the first"}}
  %f3 = comm.all_gather %c on @dp dim 1 : (tensor<4x2xbf16>) -> !comm.future<tensor<4x8xbf16>>
  %w3 = comm.wait %f3 : !comm.future<tensor<4x8xbf16>>
  // CHECK: return %[[P]]#0, %[[P]]#1
  return %w0, %w1, %w2, %w3 : tensor<8x2xbf16>, tensor<24xbf16>, tensor<4x4xbf16>, tensor<4x8xbf16>
}

// -----

// Tests a packed reduce-scatter and all-reduce; another reduction, another element type and another group stay alone.
comm.group @dp #comm.iota<[1, 4]>
comm.group @other #comm.iota<[1, 4]>
// CHECK-LABEL: func @reductions
// expected-remark @+1 {{CollectivesAfter=5, CollectivesBefore=7}}
func.func @reductions(%a: tensor<8xf32>, %b: tensor<4x3xf32>, %c: tensor<8xf64>) -> (tensor<2xf32>, tensor<1x3xf32>, tensor<2xf32>, tensor<2xf64>, tensor<2xf32>, tensor<8xf32>, tensor<4x3xf32>) {
  // CHECK-DAG: %[[C0:.*]] = comm.fsdp.chunk_cat %arg0, %arg1 chunks 4 : (tensor<8xf32>, tensor<4x3xf32>) -> tensor<20xf32>
  // CHECK-DAG: %[[F0:.*]] = comm.reduce_scatter sum %[[C0]] on @dp : (tensor<20xf32>) -> !comm.future<tensor<5xf32>>
  // CHECK-DAG: %[[W0:.*]] = comm.wait %[[F0]]
  // CHECK-DAG: %[[V0:.*]]:2 = comm.fsdp.split_with_sizes %[[W0]] sizes [2, 3] : (tensor<5xf32>) -> (tensor<2xf32>, tensor<1x3xf32>)
  // expected-remark @+1 {{Bytes=80, Kind=reduce_scatter, LimitingFactor=none, Remark="2 collectives merged into one, packed"}}
  %f0 = comm.reduce_scatter sum %a on @dp : (tensor<8xf32>) -> !comm.future<tensor<2xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<2xf32>>
  %f1 = comm.reduce_scatter sum %b on @dp : (tensor<4x3xf32>) -> !comm.future<tensor<1x3xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<1x3xf32>>
  // CHECK-DAG: comm.reduce_scatter avg %arg0 on @dp
  // expected-remark @+1 {{LimitingFactor="no other collective of its kind, group, element type and reduction fits in its bucket"}}
  %f2 = comm.reduce_scatter avg %a on @dp : (tensor<8xf32>) -> !comm.future<tensor<2xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<2xf32>>
  // CHECK-DAG: comm.reduce_scatter sum %arg2 on @dp
  // expected-remark @+1 {{LimitingFactor="no other collective of its kind}}
  %f3 = comm.reduce_scatter sum %c on @dp : (tensor<8xf64>) -> !comm.future<tensor<2xf64>>
  %w3 = comm.wait %f3 : !comm.future<tensor<2xf64>>
  // CHECK-DAG: comm.reduce_scatter sum %arg0 on @other
  // expected-remark @+1 {{LimitingFactor="no other collective of its kind}}
  %f4 = comm.reduce_scatter sum %a on @other : (tensor<8xf32>) -> !comm.future<tensor<2xf32>>
  %w4 = comm.wait %f4 : !comm.future<tensor<2xf32>>
  // CHECK-DAG: %[[C1:.*]] = comm.fsdp.chunk_cat %arg0, %arg1 chunks 1 : (tensor<8xf32>, tensor<4x3xf32>) -> tensor<20xf32>
  // CHECK-DAG: %[[F1:.*]] = comm.all_reduce sum %[[C1]] into %[[C1]] on @dp
  // CHECK-DAG: %[[W1:.*]] = comm.wait %[[F1]]
  // CHECK-DAG: %[[V1:.*]]:2 = comm.fsdp.split_with_sizes %[[W1]] sizes [8, 12] : (tensor<20xf32>) -> (tensor<8xf32>, tensor<4x3xf32>)
  // expected-remark @+1 {{Bytes=80, Kind=all_reduce, LimitingFactor=none, Remark="2 collectives merged into one, packed"}}
  %f5 = comm.all_reduce sum %a on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %w5 = comm.wait %f5 : !comm.future<tensor<8xf32>>
  %f6 = comm.all_reduce sum %b on @dp : (tensor<4x3xf32>) -> !comm.future<tensor<4x3xf32>>
  %w6 = comm.wait %f6 : !comm.future<tensor<4x3xf32>>
  // CHECK: return %[[V0]]#0, %[[V0]]#1, %{{.*}}, %{{.*}}, %{{.*}}, %[[V1]]#0, %[[V1]]#1
  return %w0, %w1, %w2, %w3, %w4, %w5, %w6 : tensor<2xf32>, tensor<1x3xf32>, tensor<2xf32>, tensor<2xf64>, tensor<2xf32>, tensor<8xf32>, tensor<4x3xf32>
}

// -----

// Tests that a gather that depends on another one, at any distance, is not merged with it, and that the third joins the first.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @dependence
// expected-remark @+1 {{CollectivesAfter=2, CollectivesBefore=3}}
func.func @dependence(%a: tensor<4xf32>, %b: tensor<4xf32>) -> (tensor<16xf32>, tensor<16xf32>) {
  // CHECK: comm.fsdp.all_gather_copy_in %arg0, %arg1 on @dp
  // CHECK: %[[SUM:.*]] = comm.compute "sum"
  // CHECK: comm.all_gather %[[SUM]] on @dp
  // expected-remark @+1 {{2 collectives merged into one}}
  %f0 = comm.all_gather %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<16xf32>>
  %c = comm.compute "sum"(%w0) : (tensor<16xf32>) -> tensor<4xf32>
  // expected-remark @+1 {{LimitingFactor="no other collective of its kind}}
  %f1 = comm.all_gather %c on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<16xf32>>
  %f2 = comm.all_gather %b on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<16xf32>>
  return %w1, %w2 : tensor<16xf32>, tensor<16xf32>
}

// -----

// Tests that buckets of different keys do not come to depend on each other: merging both pairs would be a cycle.
comm.group @dp #comm.iota<[1, 4]>
comm.group @tp #comm.iota<[1, 4]>
// CHECK-LABEL: func @crossing
// expected-remark @+1 {{CollectivesAfter=3, CollectivesBefore=4}}
func.func @crossing(%a: tensor<4xf32>, %b: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  // expected-remark @+1 {{LimitingFactor="no other collective of its kind}}
  %f0 = comm.all_reduce sum %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<4xf32>>
  // expected-remark @+1 {{2 collectives merged into one}}
  %f1 = comm.all_reduce sum %w0 on @tp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<4xf32>>
  %f2 = comm.all_reduce sum %b on @tp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<4xf32>>
  // expected-remark @+1 {{LimitingFactor="no other collective of its kind}}
  %f3 = comm.all_reduce sum %w2 on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w3 = comm.wait %f3 : !comm.future<tensor<4xf32>>
  // CHECK: comm.all_reduce sum %arg0 on @dp
  // CHECK: comm.fsdp.chunk_cat
  // CHECK: comm.all_reduce sum %{{.*}} into %{{.*}} on @tp
  // CHECK: comm.all_reduce sum %{{.*}} on @dp
  return %w1, %w3 : tensor<4xf32>, tensor<4xf32>
}

// -----

// Tests what looks like a member of a bucket but is none, and what is said of it.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @forms
func.func @forms(%a: tensor<4xf32>, %d: tensor<?xf32>, %m: memref<4xf32>, %s: tensor<4xi1>, %i: tensor<4xf32>, %c: i1) -> (!comm.future<tensor<4xf32>>, tensor<4xf32>) {
  // CHECK-NOT: comm.fsdp
  // expected-remark @+1 {{LimitingFactor="its size is dynamic or exceeds 64 bits"}}
  %f0 = comm.all_reduce sum %d on @dp : (tensor<?xf32>) -> !comm.future<tensor<?xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<?xf32>>
  // expected-remark @+1 {{LimitingFactor="its future has more than one use"}}
  %f1 = comm.all_reduce sum %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<4xf32>>
  %w2 = comm.wait %f1 : !comm.future<tensor<4xf32>>
  // expected-remark @+1 {{LimitingFactor="it has several inputs"}}
  %f3 = comm.all_reduce sum %a, %a on @dp : (tensor<4xf32>, tensor<4xf32>) -> !comm.future<tensor<4xf32>, tensor<4xf32>>
  %w3:2 = comm.wait %f3 : !comm.future<tensor<4xf32>, tensor<4xf32>>
  // expected-remark @+1 {{LimitingFactor="it is on memrefs; buckets exist on tensors only, before bufferization"}}
  %f4 = comm.all_reduce sum %m into %m on @dp : (memref<4xf32>) -> !comm.future<memref<4xf32>>
  %w4 = comm.wait %f4 keeping (%m : memref<4xf32>) : !comm.future<memref<4xf32>>
  // expected-remark @+1 {{LimitingFactor="the start or its wait is pinned"}}
  %f5 = comm.all_reduce sum %a on @dp {comm.pinned} : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w5 = comm.wait %f5 : !comm.future<tensor<4xf32>>
  // expected-remark @+1 {{LimitingFactor="the option kinds excludes its kind"}}
  %f6 = comm.broadcast %a on @dp root 0 : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w6 = comm.wait %f6 : !comm.future<tensor<4xf32>>
  // expected-remark @+1 {{LimitingFactor="its future has more than one use"}}
  %f7 = comm.all_reduce sum %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  // expected-remark @+1 {{LimitingFactor="it has a destination, and a bucket has its own"}}
  %f8 = comm.all_reduce sum %a into %i on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w8 = comm.wait %f8 : !comm.future<tensor<4xf32>>
  // expected-remark @+1 {{LimitingFactor="it is a one-shot all-reduce"}}
  %f9 = comm.all_reduce sum %a on @dp one_shot : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w9 = comm.wait %f9 : !comm.future<tensor<4xf32>>
  // expected-remark @+1 {{LimitingFactor="its elements are not whole bytes"}}
  %f10 = comm.all_gather %s on @dp : (tensor<4xi1>) -> !comm.future<tensor<16xi1>>
  %w10 = comm.wait %f10 : !comm.future<tensor<16xi1>>
  // expected-remark @+1 {{LimitingFactor="its wait is in another block"}}
  %f11 = comm.all_reduce sum %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  scf.if %c {
    %w11 = comm.wait %f11 : !comm.future<tensor<4xf32>>
  }
  // expected-remark @+1 {{LimitingFactor="its wait depends on more than its start"}}
  %f12 = comm.all_reduce sum %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  comm.compute "print"() side_effects : () -> ()
  %w12 = comm.wait %f12 : !comm.future<tensor<4xf32>>
  // expected-remark @+1 {{LimitingFactor="it has no wait"}}
  %f13 = comm.all_reduce sum %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return %f7, %w12 : !comm.future<tensor<4xf32>>, tensor<4xf32>
}

// -----

// Tests that a result that may be one of several buffers is left alone.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @several_buffers
func.func @several_buffers(%a: tensor<4xf32>, %b: tensor<4xf32>, %c: i1) -> tensor<4xf32> {
  %z = comm.compute "a"() : () -> tensor<4xf32>
  %y = comm.compute "b"() : () -> tensor<4xf32>
  %x = arith.select %c, %z, %y : tensor<4xf32>
  // CHECK: comm.all_reduce sum %{{.*}} on @dp
  // expected-remark @+1 {{LimitingFactor="its input or its result may be one of several buffers"}}
  %f0 = comm.all_reduce sum %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<4xf32>>
  return %w0 : tensor<4xf32>
}

// -----

// Tests that an input that was written in place before is no obstacle: its wait touches it, but so does its start.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @written_before
// expected-remark @+1 {{CollectivesAfter=1, CollectivesBefore=2}}
func.func @written_before(%a: tensor<4xf32>, %b: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %z = comm.compute "zeros"() : () -> tensor<4xf32>
  comm.compute "add_"(%z, %a) mutates [0] : (tensor<4xf32>, tensor<4xf32>) -> ()
  // CHECK: comm.fsdp.chunk_cat %{{.*}}, %arg1
  // expected-remark @+1 {{2 collectives merged into one}}
  %f0 = comm.all_reduce sum %z on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<4xf32>>
  %f1 = comm.all_reduce sum %b on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<4xf32>>
  return %w0, %w1 : tensor<4xf32>, tensor<4xf32>
}

// -----

// Tests that an input that is written while the collective is in flight, in program order, keeps the bucket in front of the write.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @written_after
// expected-remark @+1 {{CollectivesAfter=1, CollectivesBefore=2}}
func.func @written_after(%a: tensor<4xf32>, %b: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %z = comm.compute "zeros"() : () -> tensor<4xf32>
  // CHECK: comm.wait
  // CHECK: comm.compute "add_"
  // expected-remark @+1 {{2 collectives merged into one}}
  %f0 = comm.all_reduce sum %z on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<4xf32>>
  comm.compute "add_"(%z, %a) mutates [0] : (tensor<4xf32>, tensor<4xf32>) -> ()
  %f1 = comm.all_reduce sum %b on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<4xf32>>
  return %w0, %w1 : tensor<4xf32>, tensor<4xf32>
}
