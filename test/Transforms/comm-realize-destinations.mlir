// RUN: comm-opt %s --comm-realize-buffers="one-shot-threshold-bytes=0 symmetric=false" --remarks-filter=comm-realize-buffers --verify-diagnostics --split-input-file | FileCheck %s

// Tests that a result that is only copied into a parameter is written there.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @copied
func.func @copied(%shard: tensor<8xf32>, %p: tensor<32xf32>) -> tensor<32xf32> {
  comm.resize_storage %p to 128 : tensor<32xf32>
  // CHECK: comm.all_gather %arg0 into %arg1 on @dp
  // expected-remark @+1 {{Bytes=128, Kind=all_gather, LimitingFactor=none, Remark="the result is written directly to the destination of its copy"}}
  %f = comm.all_gather %shard on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
  %other = comm.compute "other"(%shard) : (tensor<8xf32>) -> tensor<32xf32>
  // CHECK: comm.wait
  %w = comm.wait %f : !comm.future<tensor<32xf32>>
  // CHECK-NOT: comm.fsdp.copy
  comm.fsdp.copy %w into %p : tensor<32xf32> into tensor<32xf32>
  %r = comm.compute "use"(%p, %other) : (tensor<32xf32>, tensor<32xf32>) -> tensor<32xf32>
  return %r : tensor<32xf32>
}

// -----

// Tests what looks like it but is not.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @not_only_copied
// CHECK-NOT: into %{{.*}} on @dp
func.func @not_only_copied(%shard: tensor<8xf32>, %p: tensor<32xf32>, %q: tensor<?xf32>, %r: tensor<32xf32>, %in: tensor<32xf32>) {
  // The result has another use: nothing is said, for nothing was to be had.
  %f0 = comm.all_gather %shard on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<32xf32>>
  comm.fsdp.copy %w0 into %p : tensor<32xf32> into tensor<32xf32>
  comm.compute "use"(%w0) side_effects : (tensor<32xf32>) -> ()
  // The parameter is read before the copy.
  // expected-remark @+1 {{LimitingFactor="the destination of the copy is used before the copy by comm.compute"}}
  %f1 = comm.all_gather %shard on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
  comm.compute "use"(%p) side_effects : (tensor<32xf32>) -> ()
  %w1 = comm.wait %f1 : !comm.future<tensor<32xf32>>
  comm.fsdp.copy %w1 into %p : tensor<32xf32> into tensor<32xf32>
  // The parameter has no storage at the start.
  // expected-remark @+1 {{LimitingFactor="the destination of the copy is used before the copy by comm.resize_storage"}}
  %f2 = comm.all_gather %shard on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<32xf32>>
  comm.resize_storage %r to 128 : tensor<32xf32>
  comm.fsdp.copy %w2 into %r : tensor<32xf32> into tensor<32xf32>
  // expected-remark @+1 {{LimitingFactor="the result is copied to a value of another type"}}
  %f3 = comm.all_gather %shard on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
  %w3 = comm.wait %f3 : !comm.future<tensor<32xf32>>
  comm.fsdp.copy %w3 into %q : tensor<32xf32> into tensor<?xf32>
  // expected-remark @+1 {{LimitingFactor="the destination of the copy is made after the start, by comm.compute"}}
  %f4 = comm.all_gather %shard on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
  %late = comm.compute "late"(%shard) : (tensor<8xf32>) -> tensor<32xf32>
  %w4 = comm.wait %f4 : !comm.future<tensor<32xf32>>
  comm.fsdp.copy %w4 into %late : tensor<32xf32> into tensor<32xf32>
  // expected-remark @+2 {{LimitingFactor="the result is copied to the storage of an input"}}
  // expected-remark @+1 {{LimitingFactor="the input's storage is an argument's, or is made outside of the block"}}
  %f5 = comm.all_reduce sum %in on @dp : (tensor<32xf32>) -> !comm.future<tensor<32xf32>>
  %w5 = comm.wait %f5 : !comm.future<tensor<32xf32>>
  comm.fsdp.copy %w5 into %in : tensor<32xf32> into tensor<32xf32>
  return
}

// -----

// Tests that of two collectives whose results are copied to one place only one is made to write there, and that a place that
// may be one of two is left alone.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @one_place
func.func @one_place(%shard: tensor<8xf32>, %p: tensor<32xf32>, %q: tensor<32xf32>, %c: i1) {
  // expected-remark @+1 {{Remark="the result is written directly to the destination of its copy"}}
  %f0 = comm.all_gather %shard on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<32xf32>>
  comm.fsdp.copy %w0 into %p : tensor<32xf32> into tensor<32xf32>
  // expected-remark @+1 {{LimitingFactor="another collective already writes this destination"}}
  %f1 = comm.all_gather %shard on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<32xf32>>
  comm.fsdp.copy %w1 into %p : tensor<32xf32> into tensor<32xf32>
  %either = arith.select %c, %p, %q : tensor<32xf32>
  // expected-remark @+1 {{LimitingFactor="the destination of the copy may have one of several storages"}}
  %f2 = comm.all_gather %shard on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<32xf32>>
  comm.fsdp.copy %w2 into %either : tensor<32xf32> into tensor<32xf32>
  return
}

// -----

// Tests that a wait for what was waited for goes, also where the later one stands in a region; and that waits that do not see
// each other stay.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @waits
func.func @waits(%shard: tensor<8xf32>, %c: i1) -> (tensor<32xf32>, tensor<32xf32>) {
  %f = comm.all_gather %shard on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
  // CHECK: %[[W:.*]] = comm.wait
  %w0 = comm.wait %f : !comm.future<tensor<32xf32>>
  // CHECK-NOT: comm.wait
  // expected-remark @+1 {{Remark="wait removed: an earlier wait returns the same values"}}
  %w1 = comm.wait %f : !comm.future<tensor<32xf32>>
  scf.if %c {
    // expected-remark @+1 {{Remark="wait removed: an earlier wait returns the same values"}}
    %w2 = comm.wait %f : !comm.future<tensor<32xf32>>
    // CHECK: comm.compute "use"(%[[W]])
    comm.compute "use"(%w2) side_effects : (tensor<32xf32>) -> ()
  }
  // CHECK: return %[[W]], %[[W]]
  return %w0, %w1 : tensor<32xf32>, tensor<32xf32>
}
// CHECK-LABEL: func @separate_waits
func.func @separate_waits(%shard: tensor<8xf32>, %c: i1) {
  %f = comm.all_gather %shard on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
  scf.if %c {
    // CHECK: comm.wait
    %w0 = comm.wait %f : !comm.future<tensor<32xf32>>
  }
  // CHECK: comm.wait
  %w1 = comm.wait %f : !comm.future<tensor<32xf32>>
  return
}
// CHECK-LABEL: func @keeps_more
func.func @keeps_more(%x: memref<8xf32>, %y: memref<32xf32>) {
  %f = comm.all_gather %x into %y on @dp : (memref<8xf32>) -> !comm.future<memref<32xf32>>
  // CHECK-COUNT-2: comm.wait
  %w0 = comm.wait %f keeping (%y : memref<32xf32>) : !comm.future<memref<32xf32>>
  // expected-remark @+1 {{LimitingFactor="the wait keeps a buffer that the earlier one does not"}}
  %w1 = comm.wait %f keeping (%x, %y : memref<8xf32>, memref<32xf32>) : !comm.future<memref<32xf32>>
  return
}
