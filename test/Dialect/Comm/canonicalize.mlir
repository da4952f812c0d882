// RUN: comm-opt %s --canonicalize --split-input-file | FileCheck %s

// Tests that a second wait of a future in one block gives the values of the first.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @repeated_wait
func.func @repeated_wait(%f: !comm.future<tensor<4xf32>>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  // CHECK: %[[W:.*]] = comm.wait
  %a = comm.wait %f : !comm.future<tensor<4xf32>>
  // CHECK-NOT: comm.wait
  %b = comm.wait %f : !comm.future<tensor<4xf32>>
  %c = comm.wait %f : !comm.future<tensor<4xf32>>
  // CHECK: return %[[W]], %[[W]], %[[W]]
  return %a, %b, %c : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// Tests that waits in different blocks stay: either may run on a stream of its own.
// CHECK-LABEL: func @repeated_wait_nested
func.func @repeated_wait_nested(%f: !comm.future<tensor<4xf32>>, %p: i1) -> tensor<4xf32> {
  // CHECK: scf.if
  %r = scf.if %p -> tensor<4xf32> {
    // CHECK: comm.wait
    %b = comm.wait %f : !comm.future<tensor<4xf32>>
    scf.yield %b : tensor<4xf32>
  } else {
    // CHECK: comm.wait
    %b = comm.wait %f : !comm.future<tensor<4xf32>>
    %c = comm.compute "neg"(%b) : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %c : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// Tests that a second wait that keeps a buffer which the first does not is not dropped, and that one that keeps less is.
// CHECK-LABEL: func @repeated_wait_keeping
func.func @repeated_wait_keeping(%x: memref<4xf32>, %y: memref<16xf32>) {
  %f = comm.all_gather %x into %y on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  // CHECK: comm.wait %{{.*}} keeping (%{{.*}} : memref<16xf32>)
  %a = comm.wait %f keeping (%y : memref<16xf32>) : !comm.future<memref<16xf32>>
  // CHECK: comm.wait %{{.*}} keeping (%{{.*}}, %{{.*}} : memref<4xf32>, memref<16xf32>)
  %b = comm.wait %f keeping (%x, %y : memref<4xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
  // CHECK-NOT: comm.wait
  %c = comm.wait %f keeping (%y : memref<16xf32>) : !comm.future<memref<16xf32>>
  return
}

// Tests that a wait with attributes of its own stays.
// CHECK-LABEL: func @repeated_wait_pinned
func.func @repeated_wait_pinned(%f: !comm.future<>) {
  // CHECK: comm.wait %{{.*}} : !comm.future<>
  comm.wait %f : !comm.future<>
  // CHECK: comm.wait %{{.*}} {comm.pinned} : !comm.future<>
  comm.wait %f {comm.pinned} : !comm.future<>
  return
}

// -----

// Tests that collectives over groups of one rank give their inputs.
comm.group @one #comm.iota<[4, 1]>
// CHECK-LABEL: func @single_rank
// CHECK-SAME: (%[[X:.*]]: tensor<4xf32>, %[[Y:.*]]: tensor<4xf32>
func.func @single_rank(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  // CHECK-NOT: comm.
  %f0 = comm.all_gather %x, %y on @one : (tensor<4xf32>, tensor<4xf32>) -> !comm.future<tensor<4xf32>, tensor<4xf32>>
  %f1 = comm.reduce_scatter avg %x on @one : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %f2 = comm.all_reduce scaled_sum scale 1.0 %x on @one : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %f3 = comm.all_to_all %x on @one input_splits [4] output_splits [4] : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %f4 = comm.permute %y on @one pairs [0, 0] : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %f5 = comm.barrier on @one : () -> !comm.future<>
  %w0:2 = comm.wait %f0 : !comm.future<tensor<4xf32>, tensor<4xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<4xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<4xf32>>
  %w3 = comm.wait %f3 : !comm.future<tensor<4xf32>>
  %w4 = comm.wait %f4 : !comm.future<tensor<4xf32>>
  comm.wait %f5 : !comm.future<>
  // CHECK: return %[[X]], %[[Y]], %[[X]], %[[X]], %[[X]], %[[Y]]
  return %w0#0, %w0#1, %w1, %w2, %w3, %w4 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// Tests what stays over one rank: a scale, a permute that gives zeros, a send and a receive.
// CHECK-LABEL: func @single_rank_not_identity
func.func @single_rank_not_identity(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  // CHECK: comm.all_reduce scaled_sum scale 5.000000e-01
  %f0 = comm.all_reduce scaled_sum scale 0.5 %x on @one : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  // CHECK: comm.permute
  %f1 = comm.permute %x on @one pairs [] : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  // CHECK: comm.send
  %f2 = comm.send %x on @one peer 0 : (tensor<4xf32>) -> !comm.future<>
  // CHECK: comm.recv
  %f3 = comm.recv on @one peer 0 : () -> !comm.future<tensor<4xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<4xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<4xf32>>
  comm.wait %f2 : !comm.future<>
  %w3 = comm.wait %f3 : !comm.future<tensor<4xf32>>
  return %w0, %w1, %w3 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// Tests that a future that escapes is left alone.
// CHECK-LABEL: func @single_rank_escapes
func.func @single_rank_escapes(%x: tensor<4xf32>) -> (tensor<4xf32>, !comm.future<tensor<4xf32>>) {
  // CHECK: %[[F:.*]] = comm.all_reduce
  %f = comm.all_reduce sum %x on @one : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  // CHECK: comm.wait
  %w = comm.wait %f : !comm.future<tensor<4xf32>>
  // CHECK: return %{{.*}}, %[[F]]
  return %w, %f : tensor<4xf32>, !comm.future<tensor<4xf32>>
}

// Tests that a result whose storage is written, itself or through a view, keeps storage of its own.
// CHECK-LABEL: func @single_rank_mutated
func.func @single_rank_mutated(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  // CHECK: comm.all_reduce
  %f = comm.all_reduce sum %x on @one : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w = comm.wait %f : !comm.future<tensor<4xf32>>
  %v = comm.compute "view"(%w) aliases [0] : (tensor<4xf32>) -> tensor<2x2xf32>
  comm.compute "zero_"(%v) mutates [0] : (tensor<2x2xf32>) -> ()
  return %x, %w : tensor<4xf32>, tensor<4xf32>
}

// Tests that on memrefs only the form in place folds.
// CHECK-LABEL: func @single_rank_memrefs
// CHECK-SAME: (%[[X:.*]]: memref<4xf32>, %[[Y:.*]]: memref<4xf32>
func.func @single_rank_memrefs(%x: memref<4xf32>, %y: memref<4xf32>) -> (memref<4xf32>, memref<4xf32>) {
  %f0 = comm.all_reduce sum %x into %x on @one : (memref<4xf32>) -> !comm.future<memref<4xf32>>
  %w0 = comm.wait %f0 keeping (%x : memref<4xf32>) : !comm.future<memref<4xf32>>
  // CHECK: comm.all_reduce sum %[[X]] into %[[Y]]
  %f1 = comm.all_reduce sum %x into %y on @one : (memref<4xf32>) -> !comm.future<memref<4xf32>>
  // CHECK: %[[W:.*]] = comm.wait
  %w1 = comm.wait %f1 keeping (%x, %y : memref<4xf32>, memref<4xf32>) : !comm.future<memref<4xf32>>
  // CHECK: return %[[X]], %[[W]]
  return %w0, %w1 : memref<4xf32>, memref<4xf32>
}

// -----

// Tests that members of a coalesced collective that nobody reads are dropped.
comm.group @dp #comm.iota<[1, 4]>
comm.group @two #comm.iota<[2, 2]>
// CHECK-LABEL: func @unused_members
// CHECK-SAME: (%{{.*}}: tensor<4xf32>, %[[Y:.*]]: tensor<8xf32>
func.func @unused_members(%x: tensor<4xf32>, %y: tensor<8xf32>) -> tensor<32xf32> {
  // CHECK: %[[F:.*]] = comm.all_gather %[[Y]] on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
  %f = comm.all_gather %x, %y, %x on @dp : (tensor<4xf32>, tensor<8xf32>, tensor<4xf32>) -> !comm.future<tensor<16xf32>, tensor<32xf32>, tensor<16xf32>>
  // CHECK: %[[W:.*]] = comm.wait %[[F]] {comm.pinned} : !comm.future<tensor<32xf32>>
  %w:3 = comm.wait %f {comm.pinned} : !comm.future<tensor<16xf32>, tensor<32xf32>, tensor<16xf32>>
  // CHECK: return %[[W]]
  return %w#1 : tensor<32xf32>
}

// Tests that the marks of symmetric memory are those of the members that stay.
// CHECK-LABEL: func @unused_symmetric
func.func @unused_symmetric(%x: tensor<4xf32>, %y: tensor<8xf32>) -> tensor<32xf32> {
  // CHECK: comm.all_gather %{{.*}} on @dp {comm.symmetric = array<i1: false, true>}
  %f = comm.all_gather %x, %y on @dp {comm.symmetric = array<i1: true, false, false, true>} : (tensor<4xf32>, tensor<8xf32>) -> !comm.future<tensor<16xf32>, tensor<32xf32>>
  %w:2 = comm.wait %f : !comm.future<tensor<16xf32>, tensor<32xf32>>
  return %w#1 : tensor<32xf32>
}

// Tests that a collective is not dropped for not being read, nor members of a send or of a future that escapes.
// CHECK-LABEL: func @unused_stay
func.func @unused_stay(%x: tensor<4xf32>) -> !comm.future<tensor<4xf32>, tensor<4xf32>> {
  // CHECK: comm.all_reduce sum %{{.*}}, %{{.*}} on @dp
  %f0 = comm.all_reduce sum %x, %x on @dp : (tensor<4xf32>, tensor<4xf32>) -> !comm.future<tensor<4xf32>, tensor<4xf32>>
  // CHECK: comm.wait
  %w0:2 = comm.wait %f0 : !comm.future<tensor<4xf32>, tensor<4xf32>>
  // CHECK: comm.recv on @dp peer 1 : () -> !comm.future<tensor<4xf32>, tensor<4xf32>>
  %f1 = comm.recv on @dp peer 1 : () -> !comm.future<tensor<4xf32>, tensor<4xf32>>
  %w1:2 = comm.wait %f1 : !comm.future<tensor<4xf32>, tensor<4xf32>>
  // CHECK: comm.all_reduce sum %{{.*}}, %{{.*}} on @dp
  %f2 = comm.all_reduce sum %x, %x on @dp : (tensor<4xf32>, tensor<4xf32>) -> !comm.future<tensor<4xf32>, tensor<4xf32>>
  %w2:2 = comm.wait %f2 : !comm.future<tensor<4xf32>, tensor<4xf32>>
  %u = comm.compute "use"(%w2#0, %w1#0) side_effects : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %f2 : !comm.future<tensor<4xf32>, tensor<4xf32>>
}

// Tests that members without bytes become their inputs, and a collective of nothing else goes.
// CHECK-LABEL: func @zero_bytes
// CHECK-SAME: (%[[X:.*]]: tensor<0x8xf32>, %[[Y:.*]]: tensor<4xf32>
func.func @zero_bytes(%x: tensor<0x8xf32>, %y: tensor<4xf32>) -> (tensor<0x8xf32>, tensor<16xf32>, tensor<0x8xf32>) {
  // CHECK: comm.all_gather %[[Y]] on @dp : (tensor<4xf32>)
  %f0 = comm.all_gather %x, %y on @dp : (tensor<0x8xf32>, tensor<4xf32>) -> !comm.future<tensor<0x8xf32>, tensor<16xf32>>
  // CHECK: %[[W:.*]] = comm.wait %{{.*}} : !comm.future<tensor<16xf32>>
  %w0:2 = comm.wait %f0 : !comm.future<tensor<0x8xf32>, tensor<16xf32>>
  // CHECK-NOT: comm.
  %f1 = comm.all_reduce sum %x on @dp : (tensor<0x8xf32>) -> !comm.future<tensor<0x8xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<0x8xf32>>
  // CHECK: return %[[X]], %[[W]], %[[X]]
  return %w0#0, %w0#1, %w1 : tensor<0x8xf32>, tensor<16xf32>, tensor<0x8xf32>
}

// Tests that constants do not fold: those of the other ranks' modules may be others.
// CHECK-LABEL: func @splat
func.func @splat() -> tensor<16xf32> {
  %c = arith.constant dense<1.0> : tensor<4xf32>
  // CHECK: comm.all_gather
  %f = comm.all_gather %c on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w = comm.wait %f : !comm.future<tensor<16xf32>>
  return %w : tensor<16xf32>
}

// Tests that constant splits go to the static list, those of other lists beside them stay, and the verifier is never
// given a list that it refuses: negative splits and wrong sums are left to the run time.
// CHECK-LABEL: func @constant_splits
// CHECK-SAME: (%[[X:.*]]: tensor<4xf32>, %[[A:.*]]: index
func.func @constant_splits(%x: tensor<4xf32>, %a: index, %y: tensor<?xf32>) {
  %one = arith.constant 1 : index
  %three = arith.constant 3 : index
  // CHECK: %[[MINUS:.*]] = arith.constant -1 : index
  %minus = arith.constant -1 : index
  // CHECK: %[[LARGE:.*]] = arith.constant 9223372036854775807 : index
  %large = arith.constant 9223372036854775807 : index
  // CHECK: comm.all_to_all %[[X]] on @two input_splits [1, 3] output_splits [%[[A]], 3]
  %f0 = comm.all_to_all %x on @two input_splits [%one, %three] output_splits [%a, %three] : (tensor<4xf32>) -> !comm.future<tensor<?xf32>>
  comm.wait %f0 : !comm.future<tensor<?xf32>>
  // CHECK: comm.all_to_all %[[X]] on @two input_splits [%{{.*}}, %{{.*}}] output_splits [%[[MINUS]], 3]
  %f1 = comm.all_to_all %x on @two input_splits [%three, %three] output_splits [%minus, 3] : (tensor<4xf32>) -> !comm.future<tensor<?xf32>>
  comm.wait %f1 : !comm.future<tensor<?xf32>>
  // CHECK: comm.all_to_all %{{.*}} on @two input_splits [%[[LARGE]], 1] output_splits [3, 3]
  %f2 = comm.all_to_all %y on @two input_splits [%large, 1] output_splits [%three, %three] : (tensor<?xf32>) -> !comm.future<tensor<?xf32>>
  comm.wait %f2 : !comm.future<tensor<?xf32>>
  return
}

// -----

// Tests that a start and a wait on two streams stay, although they move nothing: they order the streams. On one stream
// they go. Members without bytes go from a list that stays.
comm.group @dp #comm.iota<[1, 4]>
comm.group @one #comm.iota<[4, 1]>
// CHECK-LABEL: func @order_of_streams
// CHECK-SAME: (%[[X:.*]]: tensor<0xf32>, %[[Y:.*]]: tensor<4xf32>, %[[Z:.*]]: memref<4xf32>)
func.func @order_of_streams(%x: tensor<0xf32>, %y: tensor<4xf32>, %z: memref<4xf32>) -> (tensor<0xf32>, tensor<4xf32>, tensor<0xf32>, tensor<16xf32>, tensor<0xf32>) {
  // CHECK: %[[F0:.*]] = comm.barrier on @one {comm.stream = 1 : i64}
  %f0 = comm.barrier on @one {comm.stream = 1 : i64} : () -> !comm.future<>
  // CHECK: comm.wait %[[F0]] : !comm.future<>
  comm.wait %f0 : !comm.future<>
  // CHECK: %[[F1:.*]] = comm.all_reduce sum %[[X]] on @dp : (tensor<0xf32>)
  %f1 = comm.all_reduce sum %x on @dp : (tensor<0xf32>) -> !comm.future<tensor<0xf32>>
  // CHECK: %[[W1:.*]] = comm.wait %[[F1]] {comm.stream = 2 : i64}
  %w1 = comm.wait %f1 {comm.stream = 2 : i64} : !comm.future<tensor<0xf32>>
  // CHECK: %[[F2:.*]] = comm.all_gather %[[Y]] on @one {comm.stream = 2 : i64}
  %f2 = comm.all_gather %y on @one {comm.stream = 2 : i64} : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  // CHECK: %[[W2:.*]] = comm.wait %[[F2]] {comm.stream = 1 : i64}
  %w2 = comm.wait %f2 {comm.stream = 1 : i64} : !comm.future<tensor<4xf32>>
  // CHECK: %[[F3:.*]] = comm.all_gather %[[Y]] on @dp {comm.stream = 2 : i64}
  %f3 = comm.all_gather %x, %y on @dp {comm.stream = 2 : i64} : (tensor<0xf32>, tensor<4xf32>) -> !comm.future<tensor<0xf32>, tensor<16xf32>>
  // CHECK: %[[W3:.*]] = comm.wait %[[F3]] : !comm.future<tensor<16xf32>>
  %w3:2 = comm.wait %f3 : !comm.future<tensor<0xf32>, tensor<16xf32>>
  // CHECK: %[[F4:.*]] = comm.all_reduce sum %[[Z]] into %[[Z]] on @one {comm.stream = 1 : i64}
  %f4 = comm.all_reduce sum %z into %z on @one {comm.stream = 1 : i64} : (memref<4xf32>) -> !comm.future<memref<4xf32>>
  // CHECK: comm.wait %[[F4]] : !comm.future<memref<4xf32>>
  %w4 = comm.wait %f4 : !comm.future<memref<4xf32>>
  // CHECK-NOT: comm.
  %f5 = comm.barrier on @one {comm.stream = 1 : i64} : () -> !comm.future<>
  comm.wait %f5 {comm.stream = 1 : i64} : !comm.future<>
  %f6 = comm.all_reduce sum %x on @dp {comm.stream = 3 : i64} : (tensor<0xf32>) -> !comm.future<tensor<0xf32>>
  %w6 = comm.wait %f6 {comm.stream = 3 : i64} : !comm.future<tensor<0xf32>>
  // CHECK: return %[[W1]], %[[W2]], %[[X]], %[[W3]], %[[X]]
  return %w1, %w2, %w3#0, %w3#1, %w6 : tensor<0xf32>, tensor<4xf32>, tensor<0xf32>, tensor<16xf32>, tensor<0xf32>
}
