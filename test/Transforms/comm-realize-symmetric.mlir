// RUN: comm-opt %s --comm-realize-buffers="one-shot-threshold-bytes=0" --remarks-filter=comm-realize-buffers --verify-diagnostics --split-input-file | FileCheck %s

// Tests that inputs and outputs of all kinds go to symmetric memory; a slice takes its buffer along.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @kinds
func.func @kinds(%x: tensor<8xf32>) {
  %a = comm.compute "a"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  // CHECK: comm.all_gather %{{.*}} on @dp {comm.symmetric = array<i1: true, true>}
  // expected-remark @+1 {{Bytes=160, Kind=all_gather, LimitingFactor=none, Remark="symmetric memory"}}
  %f0 = comm.all_gather %a on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<32xf32>>
  // CHECK: comm.all_to_all %{{.*}} on @dp input_splits [8, 8, 8, 8] output_splits [8, 8, 8, 8] {comm.symmetric = array<i1: true, true>}
  // expected-remark @+1 {{Bytes=128, Kind=all_to_all, LimitingFactor=none, Remark="symmetric memory"}}
  %f1 = comm.all_to_all %w0 on @dp input_splits [8, 8, 8, 8] output_splits [8, 8, 8, 8] : (tensor<32xf32>) -> !comm.future<tensor<32xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<32xf32>>
  // CHECK: comm.reduce_scatter sum %{{.*}} on @dp {comm.symmetric = array<i1: true, true>}
  // expected-remark @+1 {{Bytes=32, Kind=reduce_scatter, LimitingFactor=none, Remark="symmetric memory"}}
  %f2 = comm.reduce_scatter sum %w1 on @dp : (tensor<32xf32>) -> !comm.future<tensor<8xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<8xf32>>
  // CHECK: comm.all_reduce max %[[B:.*]] into %[[B]] on @dp {comm.symmetric = array<i1: true, true>}
  // expected-remark @+2 {{Remark="written in place"}}
  // expected-remark @+1 {{Bytes=0, Kind=all_reduce, LimitingFactor=none, Remark="symmetric memory"}}
  %f3 = comm.all_reduce max %w2 on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %w3 = comm.wait %f3 : !comm.future<tensor<8xf32>>
  %slice, %buffer = comm.fsdp.all_gather_copy_in %w3 on @dp : (tensor<8xf32>) -> (tensor<8xf32>, tensor<32xf32>)
  // expected-remark @+1 {{Bytes=128, Kind=all_gather, LimitingFactor=none, Remark="symmetric memory"}}
  %f4 = comm.all_gather %slice into %buffer on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
  %w4 = comm.wait %f4 : !comm.future<tensor<32xf32>>
  comm.compute "use"(%w4) side_effects : (tensor<32xf32>) -> ()
  return
}

// -----

// Tests what is not eligible: each end of a collective is decided on by itself.
comm.group @dp #comm.iota<[1, 4]>
comm.group @tp #comm.iota<[1, 4]>
// CHECK-LABEL: func @refused
func.func @refused(%x: tensor<8xf32>, %y: tensor<?xf32>) -> tensor<32xf32> {
  // CHECK: comm.all_gather %{{.*}} on @dp :
  // expected-remark @+2 {{LimitingFactor="no symmetric memory: the input's storage is an argument's, or is made outside of the block"}}
  // expected-remark @+1 {{LimitingFactor="no symmetric memory: the output's storage leaves the block"}}
  %f0 = comm.all_gather %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<32xf32>>
  // expected-remark @+2 {{LimitingFactor="no symmetric memory: the input has no static size"}}
  // expected-remark @+1 {{LimitingFactor="no symmetric memory: the output has no static size"}}
  %f1 = comm.all_gather %y on @dp : (tensor<?xf32>) -> !comm.future<tensor<?xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<?xf32>>
  %c = arith.constant dense<1.0> : tensor<8xf32>
  // CHECK: comm.all_gather %{{.*}} on @dp {comm.symmetric = array<i1: false, true>}
  // expected-remark @+2 {{LimitingFactor="no symmetric memory: the input is a constant"}}
  // expected-remark @+1 {{Bytes=128, Kind=all_gather, LimitingFactor=none, Remark="symmetric memory"}}
  %f2 = comm.all_gather %c on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<32xf32>>
  // The storage is planned for the other group.
  // CHECK: comm.reduce_scatter sum %{{.*}} on @tp {comm.symmetric = array<i1: false, true>}
  // expected-remark @+2 {{LimitingFactor="no symmetric memory: the input is planned for @dp already"}}
  // expected-remark @+1 {{Bytes=32, Kind=reduce_scatter, LimitingFactor=none, Remark="symmetric memory"}}
  %f3 = comm.reduce_scatter sum %w2 on @tp : (tensor<32xf32>) -> !comm.future<tensor<8xf32>>
  %w3 = comm.wait %f3 : !comm.future<tensor<8xf32>>
  return %w0 : tensor<32xf32>
}

// -----

// Tests buffers: the memory space of the allocation changes, with all that is derived from it; and what may not change.
comm.group @dp #comm.iota<[1, 4]>
func.func private @other(memref<8xf32>)
// CHECK-LABEL: func @buffers
func.func @buffers(%x: memref<8xf32>) {
  // CHECK: memref.alloc() : memref<16xf32, #comm.symmetric<@dp>>
  %big = memref.alloc() : memref<16xf32>
  // CHECK: memref.subview {{.*}} to memref<8xf32, strided<[1]>, #comm.symmetric<@dp>>
  %a = memref.subview %big[0] [8] [1] : memref<16xf32> to memref<8xf32, strided<[1]>>
  %out = memref.alloc() : memref<32xf32>
  linalg.exp ins(%x : memref<8xf32>) outs(%a : memref<8xf32, strided<[1]>>)
  // CHECK: comm.all_gather {{.*}} -> !comm.future<memref<32xf32, #comm.symmetric<@dp>>>
  // expected-remark @+1 {{Bytes=192, Kind=all_gather, LimitingFactor=none, Remark="symmetric memory"}}
  %f = comm.all_gather %a into %out on @dp : (memref<8xf32, strided<[1]>>) -> !comm.future<memref<32xf32>>
  %w = comm.wait %f keeping (%a, %out : memref<8xf32, strided<[1]>>, memref<32xf32>) : !comm.future<memref<32xf32>>
  // CHECK: memref.alloc() : memref<8xf32>
  %b = memref.alloc() : memref<8xf32>
  func.call @other(%b) : (memref<8xf32>) -> ()
  // Input and output are one buffer: one remark.
  // expected-remark @+1 {{LimitingFactor="no symmetric memory: the buffer reaches func.call"}}
  %g = comm.broadcast %b into %b on @dp root 0 : (memref<8xf32>) -> !comm.future<memref<8xf32>>
  %v = comm.wait %g keeping (%b : memref<8xf32>) : !comm.future<memref<8xf32>>
  return
}

// -----

// Tests that a slice, whose offset is another one on each rank, is symmetric only where a gather completes its buffer.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @slices
func.func @slices(%x: tensor<8xf32>) {
  %slice, %buffer = comm.fsdp.all_gather_copy_in %x on @dp : (tensor<8xf32>) -> (tensor<8xf32>, tensor<32xf32>)
  // CHECK: comm.all_gather %{{.*}} on @dp {comm.symmetric = array<i1: false, true>}
  // expected-remark @+2 {{LimitingFactor="no symmetric memory: the input's storage is sent from another offset on each rank"}}
  // expected-remark @+1 {{Bytes=128, Kind=all_gather, LimitingFactor=none, Remark="symmetric memory"}}
  %f0 = comm.all_gather %slice on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<32xf32>>
  comm.compute "use"(%w0) side_effects : (tensor<32xf32>) -> ()
  // Nor where another collective sends the slice.
  %both, %whole = comm.fsdp.all_gather_copy_in %x on @dp : (tensor<8xf32>) -> (tensor<8xf32>, tensor<32xf32>)
  // CHECK: comm.all_gather %{{.*}} into %{{.*}} on @dp :
  // expected-remark @+2 {{LimitingFactor="no symmetric memory: the input's storage is sent from another offset on each rank"}}
  // expected-remark @+1 {{LimitingFactor="no symmetric memory: the output's storage is sent from another offset on each rank"}}
  %f1 = comm.all_gather %both into %whole on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<32xf32>>
  // CHECK: comm.all_reduce max %{{.*}} on @dp {comm.symmetric = array<i1: false, true>}
  // expected-remark @+3 {{LimitingFactor="the input is only a part of its storage"}}
  // expected-remark @+2 {{LimitingFactor="no symmetric memory: the input's storage is sent from another offset on each rank"}}
  // expected-remark @+1 {{Bytes=32, Kind=all_reduce, LimitingFactor=none, Remark="symmetric memory"}}
  %f2 = comm.all_reduce max %both on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<8xf32>>
  comm.compute "use"(%w1, %w2) side_effects : (tensor<32xf32>, tensor<8xf32>) -> ()
  return
}

// -----

// Tests that nothing is written in place which a collective may read until the end of the block, as its wait may not run.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @uncertain
func.func @uncertain(%x: tensor<8xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = comm.compute "a"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  // expected-remark @+1 {{Remark="symmetric memory"}}
  %f0 = comm.all_gather %a on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
  scf.for %i = %c0 to %n step %c1 {
    %w0 = comm.wait %f0 : !comm.future<tensor<32xf32>>
    comm.compute "use"(%w0) side_effects : (tensor<32xf32>) -> ()
  }
  // CHECK: comm.broadcast %{{[0-9]+}} on @dp
  // expected-remark @+2 {{LimitingFactor="the input is in flight until the end of the block"}}
  // expected-remark @+1 {{Remark="symmetric memory"}}
  %f1 = comm.broadcast %a on @dp root 0 : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<8xf32>>
  comm.compute "use"(%w1) side_effects : (tensor<8xf32>) -> ()
  return
}

// -----

// Tests that all ranks of the job make symmetric buffers in one order: only some of them may run a branch, unless all meet.
comm.group @world #comm.ranks<[[0, 1, 2, 3]]>
comm.group @pairs #comm.ranks<[[0, 1], [2, 3]]>
// CHECK-LABEL: func @branch
func.func @branch(%x: tensor<8xf32>, %c: i1) {
  scf.if %c {
    %a = comm.compute "a"(%x) : (tensor<8xf32>) -> tensor<8xf32>
    // CHECK: comm.all_gather %{{.*}} on @world {comm.symmetric = array<i1: true, true>}
    // expected-remark @+1 {{Remark="symmetric memory"}}
    %f = comm.all_gather %a on @world dim 0 : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
    %g = comm.wait %f : !comm.future<tensor<32xf32>>
    %b = comm.compute "b"(%x) : (tensor<8xf32>) -> tensor<8xf32>
    // CHECK: comm.all_gather %{{.*}} on @pairs :
    // expected-remark @+1 {{LimitingFactor="no symmetric memory: only some ranks may come here, and @pairs is not one group of all ranks"}}
    %h = comm.all_gather %b on @pairs dim 0 : (tensor<8xf32>) -> !comm.future<tensor<16xf32>>
    %i = comm.wait %h : !comm.future<tensor<16xf32>>
  }
  return
}
