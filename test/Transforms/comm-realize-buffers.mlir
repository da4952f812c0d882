// RUN: comm-opt %s --comm-realize-buffers="one-shot-threshold-bytes=16 symmetric=false" --remarks-filter=comm-realize-buffers --verify-diagnostics --split-input-file | FileCheck %s

// Tests that small sums are done in one shot and larger ones in place.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @pattern
func.func @pattern(%x: tensor<8xf32>) -> (tensor<4xf32>, tensor<8xf32>, tensor<4xf32>, tensor<8xf32>) {
  %a = comm.compute "small"(%x) : (tensor<8xf32>) -> tensor<4xf32>
  // CHECK: comm.all_reduce sum %{{.*}} on @dp one_shot {comm.symmetric = array<i1: true, false>} :
  // expected-remark @+3 {{Bytes=16, Kind=all_reduce, LimitingFactor=none, Remark="done in one shot"}}
  // expected-remark @+2 {{LimitingFactor="no symmetric memory: the output's storage leaves the block"}}
  // expected-remark @+1 {{Bytes=16, Kind=all_reduce, LimitingFactor=none, Remark="symmetric memory"}}
  %f0 = comm.all_reduce sum %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<4xf32>>
  // CHECK: %[[B:.*]] = comm.compute "large"
  %b = comm.compute "large"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  // CHECK: comm.all_reduce sum %[[B]] into %[[B]] on @dp
  // expected-remark @+1 {{Bytes=32, Kind=all_reduce, LimitingFactor=none, Remark="written in place"}}
  %f1 = comm.all_reduce sum %b on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<8xf32>>
  // CHECK: %[[C:.*]] = comm.compute "small_max"
  %c = comm.compute "small_max"(%x) : (tensor<8xf32>) -> tensor<4xf32>
  // CHECK: comm.all_reduce max %[[C]] into %[[C]] on @dp
  // expected-remark @+1 {{Remark="written in place"}}
  %f2 = comm.all_reduce max %c on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<4xf32>>
  // CHECK: %[[D:.*]] = comm.compute "root"
  %d = comm.compute "root"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  // CHECK: comm.broadcast %[[D]] into %[[D]] on @dp
  // expected-remark @+1 {{Remark="written in place"}}
  %f3 = comm.broadcast %d on @dp root 0 : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %w3 = comm.wait %f3 : !comm.future<tensor<8xf32>>
  return %w0, %w1, %w2, %w3 : tensor<4xf32>, tensor<8xf32>, tensor<4xf32>, tensor<8xf32>
}

// -----

// Tests what is not eligible, and that inputs that are read afterwards, through a view too, stay as they are.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @refused
func.func @refused(%x: tensor<8xf32>, %y: tensor<?xf32>, %p: i1) -> tensor<8xf32> {
  // CHECK-NOT: one_shot
  // CHECK-NOT: into
  // CHECK-NOT: comm.symmetric
  // expected-remark @+1 {{LimitingFactor="the input's storage is an argument's, or is made outside of the block"}}
  %f0 = comm.all_reduce sum %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<8xf32>>
  // expected-remark @+1 {{LimitingFactor="the input has no static size"}}
  %f1 = comm.all_reduce sum %y on @dp : (tensor<?xf32>) -> !comm.future<tensor<?xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<?xf32>>
  %c = arith.constant dense<1.0> : tensor<8xf32>
  // expected-remark @+1 {{LimitingFactor="the input is a constant"}}
  %f2 = comm.all_reduce sum %c on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<8xf32>>
  %a = comm.compute "a"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  // expected-remark @+1 {{LimitingFactor="the input's storage leaves the block"}}
  %f3 = comm.all_reduce sum %a on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %w3 = comm.wait %f3 : !comm.future<tensor<8xf32>>
  %b = comm.compute "b"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %v = comm.compute "view"(%b) aliases [0] : (tensor<8xf32>) -> tensor<4x2xf32>
  // expected-remark @+1 {{LimitingFactor="the input's storage is used afterwards by comm.compute"}}
  %f4 = comm.all_reduce sum %b on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  comm.compute "use"(%v) side_effects : (tensor<4x2xf32>) -> ()
  %w4 = comm.wait %f4 : !comm.future<tensor<8xf32>>
  %d = comm.compute "d"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  // expected-remark @+1 {{LimitingFactor="two inputs share their storage"}}
  %f5 = comm.all_reduce sum %d, %d on @dp : (tensor<8xf32>, tensor<8xf32>) -> !comm.future<tensor<8xf32>, tensor<8xf32>>
  %w5:2 = comm.wait %f5 : !comm.future<tensor<8xf32>, tensor<8xf32>>
  %e = comm.compute "e"(%x) : (tensor<8xf32>) -> tensor<16xf32>
  %part = tensor.extract_slice %e[0] [8] [1] : tensor<16xf32> to tensor<8xf32>
  // expected-remark @+1 {{LimitingFactor="the input is only a part of its storage"}}
  %f6 = comm.all_reduce sum %part on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %w6 = comm.wait %f6 : !comm.future<tensor<8xf32>>
  %g = comm.compute "g"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  scf.if %p {
    // expected-remark @+1 {{LimitingFactor="the input's storage is an argument's, or is made outside of the block"}}
    %f7 = comm.all_reduce sum %g on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
    %w7 = comm.wait %f7 : !comm.future<tensor<8xf32>>
  }
  // What does not reduce or broadcast has nothing to write in place.
  %f8 = comm.all_gather %g on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
  %w8 = comm.wait %f8 : !comm.future<tensor<32xf32>>
  return %a : tensor<8xf32>
}

// -----

// Tests that a small sum that writes its input gets a result of its own, copied there: the other ranks read the input.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @small_in_place
func.func @small_in_place(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: %[[A:.*]] = comm.compute "a"
  %a = comm.compute "a"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: %[[F:.*]] = comm.all_reduce sum %[[A]] on @dp one_shot {comm.symmetric = array<i1: true, true>}
  // expected-remark @+2 {{Bytes=16, Kind=all_reduce, LimitingFactor=none, Remark="done in one shot, then copied to the input"}}
  // expected-remark @+1 {{Bytes=32, Kind=all_reduce, LimitingFactor=none, Remark="symmetric memory"}}
  %f = comm.all_reduce sum %a into %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  // CHECK: %[[W:.*]] = comm.wait %[[F]]
  // CHECK: comm.fsdp.copy %[[W]] into %[[A]] : tensor<4xf32> into tensor<4xf32>
  %w = comm.wait %f : !comm.future<tensor<4xf32>>
  // CHECK: comm.compute "b"(%[[A]], %[[A]])
  %b = comm.compute "b"(%w, %a) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  // CHECK: comm.all_reduce sum %[[B:.*]] into %[[B]] on @dp :
  // expected-remark @+1 {{LimitingFactor="not in one shot: it writes an input and does not have exactly one wait, in its block"}}
  %g = comm.all_reduce sum %b into %b on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %p = arith.constant true
  scf.if %p {
    %u = comm.wait %g : !comm.future<tensor<4xf32>>
    comm.compute "use"(%u) side_effects : (tensor<4xf32>) -> ()
  }
  %v = comm.wait %g : !comm.future<tensor<4xf32>>
  %c = comm.compute "c"(%v) : (tensor<4xf32>) -> tensor<4xf32>
  return %c : tensor<4xf32>
}

// -----

comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @small_in_place_buffers
func.func @small_in_place_buffers(%x: memref<4xf32>) {
  %a = memref.alloc() : memref<4xf32>
  memref.copy %x, %a : memref<4xf32> to memref<4xf32>
  // CHECK: comm.all_reduce sum %[[A:.*]] into %[[A]] on @dp :
  // expected-remark @+1 {{LimitingFactor="not in one shot: it writes an input, which other ranks read"}}
  %f = comm.all_reduce sum %a into %a on @dp : (memref<4xf32>) -> !comm.future<memref<4xf32>>
  %w = comm.wait %f keeping (%a : memref<4xf32>) : !comm.future<memref<4xf32>>
  memref.copy %a, %x : memref<4xf32> to memref<4xf32>
  memref.dealloc %a : memref<4xf32>
  return
}

// -----

// Tests the coalesced form: all inputs are written, or none.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @coalesced
func.func @coalesced(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  // CHECK: %[[A:.*]] = comm.compute "a"
  %a = comm.compute "a"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %b = comm.compute "b"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  // CHECK: %[[B:.*]] = comm.compute "b"
  // CHECK: comm.all_reduce sum %[[A]], %[[B]] into %[[A]], %[[B]] on @dp
  // expected-remark @+1 {{Bytes=64, Kind=all_reduce, LimitingFactor=none, Remark="written in place"}}
  %f = comm.all_reduce sum %a, %b on @dp : (tensor<8xf32>, tensor<8xf32>) -> !comm.future<tensor<8xf32>, tensor<8xf32>>
  %w:2 = comm.wait %f : !comm.future<tensor<8xf32>, tensor<8xf32>>
  %c = comm.compute "c"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %d = comm.compute "d"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  // CHECK: comm.all_reduce sum %{{.*}}, %{{.*}} on @dp
  // expected-remark @+1 {{LimitingFactor="the input's storage is used afterwards by comm.compute"}}
  %g = comm.all_reduce sum %c, %d on @dp : (tensor<8xf32>, tensor<8xf32>) -> !comm.future<tensor<8xf32>, tensor<8xf32>>
  %v:2 = comm.wait %g : !comm.future<tensor<8xf32>, tensor<8xf32>>
  comm.compute "use"(%d) side_effects : (tensor<8xf32>) -> ()
  return %w#0, %v#0 : tensor<8xf32>, tensor<8xf32>
}

// -----

// Tests that a loop may copy what it carries, so that no collective writes it, before or after the loop.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @carried
func.func @carried(%x: tensor<8xf32>, %n: index) -> (tensor<8xf32>, tensor<8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = comm.compute "a"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %l = scf.for %i = %c0 to %n step %c1 iter_args(%c = %a) -> (tensor<8xf32>) {
    %d = comm.compute "d"(%c) : (tensor<8xf32>) -> tensor<8xf32>
    scf.yield %d : tensor<8xf32>
  }
  // CHECK: comm.broadcast %{{[^ ]*}} on @dp
  // expected-remark @+1 {{LimitingFactor="a loop carries the input, and may copy it"}}
  %f = comm.broadcast %a on @dp root 0 : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %w = comm.wait %f : !comm.future<tensor<8xf32>>
  return %l, %w : tensor<8xf32>, tensor<8xf32>
}

// -----

// Tests that no such copy is made to a value: a pure operation reads its old contents behind the sum.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @small_in_place_value
func.func @small_in_place_value(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = comm.compute "a"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: comm.all_reduce sum %[[A:.*]] on @dp one_shot
  // expected-remark @+2 {{Bytes=16, Kind=all_reduce, LimitingFactor=none, Remark="done in one shot, out of place"}}
  // expected-remark @+1 {{Bytes=32, Kind=all_reduce, LimitingFactor=none, Remark="symmetric memory"}}
  %f = comm.all_reduce sum %a into %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  // CHECK: %[[W:.*]] = comm.wait
  // CHECK-NOT: comm.fsdp.copy
  %w = comm.wait %f : !comm.future<tensor<4xf32>>
  %e = tensor.empty() : tensor<4xf32>
  // CHECK: linalg.sub ins(%[[W]], %[[A]]
  %b = linalg.sub ins(%w, %a : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %b : tensor<4xf32>
}
