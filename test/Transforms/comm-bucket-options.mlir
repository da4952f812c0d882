// RUN: comm-opt %s --comm-bucket="cap-bytes=128" | FileCheck %s --check-prefix=CAP
// RUN: comm-opt %s --comm-bucket="cap-bytes=64,256" | FileCheck %s --check-prefix=CAPS
// RUN: comm-opt %s --comm-bucket="cap-bytes=0" | FileCheck %s --check-prefix=NONE
// RUN: comm-opt %s --comm-bucket="cap-bytes=1" | FileCheck %s --check-prefix=NONE
// RUN: comm-opt %s --comm-bucket="cap-bytes=0 all-gather-cap-bytes=64,256" | FileCheck %s --check-prefixes=CAPS,CAPS-GATHERS
// RUN: comm-opt %s --comm-bucket="cap-bytes=0 reduce-scatter-cap-bytes=128 all-reduce-cap-bytes=-1" | FileCheck %s --check-prefixes=NONE,CAPS-OTHERS
// RUN: comm-opt %s --comm-bucket="kinds=all_reduce" | FileCheck %s --check-prefix=KINDS
// RUN: comm-opt %s --comm-bucket="form=coalesced" | FileCheck %s --check-prefix=COALESCED
// RUN: comm-opt %s --comm-bucket="fsdp-only" | FileCheck %s --check-prefix=FSDP
// RUN: not comm-opt %s --comm-bucket="kinds=broadcast" 2>&1 | FileCheck %s --check-prefix=KIND
// RUN: not comm-opt %s --comm-bucket="machine=nowhere" 2>&1 | FileCheck %s --check-prefix=MACHINE

// KIND: error: comm-bucket: kinds: expected all_gather, reduce_scatter or all_reduce, got 'broadcast'
// MACHINE: nowhere

// Tests the pass's options on gathers of 64 bytes: caps by number of the bucket, kinds, forms, and the FSDP filters.
comm.group @dp #comm.iota<[1, 4]>
// CAP-LABEL: func @gathers
// CAPS-LABEL: func @gathers
// NONE-LABEL: func @gathers
// KINDS-LABEL: func @gathers
// COALESCED-LABEL: func @gathers
// FSDP-LABEL: func @gathers
func.func @gathers(%a: tensor<4xf32>, %b: tensor<2x2xf32>, %c: tensor<4xf64>, %d: tensor<4xf32>, %e: tensor<4xf32>) -> (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) {
  // CAP: comm.fsdp.all_gather_copy_in {{.*}} -> (tensor<8xf32>, tensor<32xf32>)
  // CAP: comm.fsdp.all_gather_copy_in {{.*}} -> (tensor<8xf32>, tensor<32xf32>)
  // CAP: comm.all_gather %{{.*}} on @dp : (tensor<4xf32>)
  // CAPS: comm.all_gather %arg0 on @dp : (tensor<4xf32>)
  // CAPS: comm.fsdp.all_gather_copy_in {{.*}} -> (tensor<16xf32>, tensor<64xf32>)
  // NONE-NOT: comm.fsdp
  // NONE-COUNT-5: comm.all_gather
  // KINDS-NOT: comm.fsdp
  // COALESCED-NOT: comm.fsdp
  // COALESCED: %[[F:.*]] = comm.all_gather %arg0, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} on @dp
  // COALESCED: %[[W:.*]]:5 = comm.wait %[[F]]
  // COALESCED: return %[[W]]#0, %[[W]]#1, %[[W]]#2, %[[W]]#3, %[[W]]#4
  // The one that gathers a computed value is no parameter's.
  // FSDP-DAG: comm.fsdp.all_gather_copy_in {{.*}} -> (tensor<16xf32>, tensor<64xf32>)
  // FSDP-DAG: %[[R:.*]] = comm.compute "relu"
  // FSDP-DAG: comm.all_gather %[[R]] on @dp
  %f0 = comm.all_gather %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<16xf32>>
  %v = comm.compute "aten.view"(%b) aliases [0] : (tensor<2x2xf32>) -> tensor<4xf32>
  %f1 = comm.all_gather %v on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<16xf32>>
  %t = arith.truncf %c : tensor<4xf64> to tensor<4xf32>
  %f2 = comm.all_gather %t on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<16xf32>>
  %r = comm.compute "relu"(%d) : (tensor<4xf32>) -> tensor<4xf32>
  %f3 = comm.all_gather %r on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w3 = comm.wait %f3 : !comm.future<tensor<16xf32>>
  %f4 = comm.all_gather %e on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w4 = comm.wait %f4 : !comm.future<tensor<16xf32>>
  return %w0, %w1, %w2, %w3, %w4 : tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>
}

// FSDP-LABEL: func @scatters
// CAPS-GATHERS-LABEL: func @scatters
// CAPS-OTHERS-LABEL: func @scatters
// KINDS-LABEL: func @scatters
func.func @scatters(%a: tensor<16xf32>, %b: tensor<16xf32>, %c: tensor<16xf32>) -> (tensor<4xf32>, tensor<4xf64>, tensor<4xf32>, tensor<16xf32>, tensor<16xf32>) {
  // FSDP: comm.fsdp.chunk_cat %arg0, %arg1 chunks 4
  // FSDP: comm.reduce_scatter sum %arg2 on @dp
  // CAPS-GATHERS-NOT: comm.fsdp
  // CAPS-OTHERS: comm.fsdp.chunk_cat %{{.*}}, %{{.*}} chunks 4
  // CAPS-OTHERS: comm.reduce_scatter sum %arg2 on @dp
  // CAPS-OTHERS: comm.fsdp.chunk_cat %{{.*}}, %{{.*}} chunks 1
  // KINDS: comm.reduce_scatter sum %arg0
  // KINDS: comm.fsdp.chunk_cat %{{.*}}, %{{.*}} chunks 1
  %f0 = comm.reduce_scatter sum %a on @dp : (tensor<16xf32>) -> !comm.future<tensor<4xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<4xf32>>
  %f1 = comm.reduce_scatter sum %b on @dp : (tensor<16xf32>) -> !comm.future<tensor<4xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<4xf32>>
  %t = arith.extf %w1 : tensor<4xf32> to tensor<4xf64>
  %f2 = comm.reduce_scatter sum %c on @dp : (tensor<16xf32>) -> !comm.future<tensor<4xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<4xf32>>
  %r = comm.compute "relu"(%w2) : (tensor<4xf32>) -> tensor<4xf32>
  %f3 = comm.all_reduce sum %a on @dp : (tensor<16xf32>) -> !comm.future<tensor<16xf32>>
  %w3 = comm.wait %f3 : !comm.future<tensor<16xf32>>
  %f4 = comm.all_reduce sum %b on @dp : (tensor<16xf32>) -> !comm.future<tensor<16xf32>>
  %w4 = comm.wait %f4 : !comm.future<tensor<16xf32>>
  return %w0, %t, %r, %w3, %w4 : tensor<4xf32>, tensor<4xf64>, tensor<4xf32>, tensor<16xf32>, tensor<16xf32>
}
