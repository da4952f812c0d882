// Tests that a tensor which a loop passes on may be the tensor that it was given: an order of accesses to one keeps the order
// of accesses to the other, in the block of the loop, in its body, and in blocks inside.

// RUN: comm-opt %s --split-input-file --comm-sink-waits | FileCheck %s
// RUN: comm-opt %s --split-input-file --comm-raise | FileCheck %s
// RUN: comm-opt %s --split-input-file --reorder-comm-overlap | FileCheck %s
// RUN: comm-opt %s --split-input-file --loop-invariant-code-motion --comm-schedule --comm-verify | FileCheck %s

// Tests a place that a loop returns: it is read before it is written under its old name.
comm.group @dp #comm.iota<[1, 2]>
// CHECK-LABEL: @returned_place
func.func @returned_place(%a: tensor<8xf32>, %n: index) -> tensor<8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %v = comm.compute "make"(%a) : (tensor<8xf32>) -> tensor<8xf32>
  %r = scf.for %k = %c0 to %n step %c1 iter_args(%x = %a) -> tensor<8xf32> {
    scf.yield %v : tensor<8xf32>
  }
  %f = comm.all_reduce sum %a on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %s = comm.wait %f : !comm.future<tensor<8xf32>>
  // CHECK: comm.compute "use"
  // CHECK: comm.compute "mutate"
  %e = comm.compute "use"(%r, %s) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  comm.compute "mutate"(%v) mutates [0] : (tensor<8xf32>) -> ()
  return %e : tensor<8xf32>
}

// -----

// Tests a destination that a loop returns: no view of the result passes the collective.
comm.group @dp #comm.iota<[1, 2]>
// CHECK-LABEL: @returned_destination
func.func @returned_destination(%a: tensor<8xf32>, %n: index) -> (tensor<8xf32>, tensor<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %v = tensor.empty() : tensor<8xf32>
  %d = linalg.exp ins(%a : tensor<8xf32>) outs(%v : tensor<8xf32>) -> tensor<8xf32>
  %i = linalg.negf ins(%a : tensor<8xf32>) outs(%v : tensor<8xf32>) -> tensor<8xf32>
  %r = scf.for %k = %c0 to %n step %c1 iter_args(%x = %i) -> tensor<8xf32> {
    scf.yield %d : tensor<8xf32>
  }
  // CHECK: comm.all_reduce
  // CHECK: comm.wait
  // CHECK: tensor.extract_slice
  %f = comm.all_reduce sum %r into %d on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %s = comm.wait %f : !comm.future<tensor<8xf32>>
  %e = tensor.extract_slice %r[2] [4] [1] : tensor<8xf32> to tensor<4xf32>
  %o = tensor.empty() : tensor<4xf32>
  %g = linalg.exp ins(%e : tensor<4xf32>) outs(%o : tensor<4xf32>) -> tensor<4xf32>
  return %s, %g : tensor<8xf32>, tensor<4xf32>
}

// -----

// Tests two tensors that a loop exchanges: each may be the one that the body writes under its name from outside.
comm.group @dp #comm.iota<[1, 2]>
// CHECK-LABEL: @exchanged
func.func @exchanged(%a: tensor<8xf32>, %n: index, %c: i1, %m: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %v = comm.compute "make"(%a) : (tensor<8xf32>) -> tensor<8xf32>
  %w = comm.compute "make2"(%a) : (tensor<8xf32>) -> tensor<8xf32>
  %r:2 = scf.for %k = %c0 to %n step %c1 iter_args(%x = %v, %y = %w) -> (tensor<8xf32>, tensor<8xf32>) {
    // CHECK: scf.if
    scf.if %c {
      // CHECK: comm.all_reduce
      // CHECK: comm.wait
      // CHECK: tensor.extract_slice
      %f = comm.all_reduce sum %a into %w on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
      %s = comm.wait %f : !comm.future<tensor<8xf32>>
      %e = tensor.extract_slice %x[2] [4] [1] : tensor<8xf32> to tensor<4xf32>
      %o = tensor.empty() : tensor<4xf32>
      %g = linalg.exp ins(%e : tensor<4xf32>) outs(%o : tensor<4xf32>) -> tensor<4xf32>
      bufferization.materialize_in_destination %g in writable %m : (tensor<4xf32>, memref<4xf32>) -> ()
    }
    scf.yield %y, %x : tensor<8xf32>, tensor<8xf32>
  }
  return
}

// -----

// Tests a future that a loop carries, and that the body knows under its name from outside, too: what one wait returns is not
// read before the other one, which may be the first.
comm.group @dp #comm.iota<[1, 2]>
// CHECK-LABEL: @carried_future
func.func @carried_future(%a: tensor<8xf32>, %n: index) -> (tensor<8xf32>, tensor<8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %v = comm.compute "make"(%a) : (tensor<8xf32>) -> tensor<8xf32>
  %f0 = comm.all_reduce sum %a into %v on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %r:2 = scf.while (%i = %n, %f = %f0) : (index, !comm.future<tensor<8xf32>>) -> (index, !comm.future<tensor<8xf32>>) {
    %c = arith.cmpi ugt, %i, %c0 : index
    scf.condition(%c) %i, %f : index, !comm.future<tensor<8xf32>>
  } do {
  // CHECK: ^bb0(%{{.*}}: index, %[[CARRIED:.*]]: !comm.future
  ^bb0(%i: index, %f: !comm.future<tensor<8xf32>>):
    // CHECK: %[[HERE:.*]] = comm.wait
    // CHECK: comm.wait %[[CARRIED]]
    // CHECK: tensor.extract_slice %[[HERE]]
    %w0 = comm.wait %f0 : !comm.future<tensor<8xf32>>
    %w = comm.wait %f : !comm.future<tensor<8xf32>>
    %x = comm.compute "x"(%w) : (tensor<8xf32>) -> tensor<8xf32>
    %g = comm.all_reduce sum %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
    %h = tensor.extract_slice %w0[2] [4] [1] : tensor<8xf32> to tensor<4xf32>
    %z = comm.compute "z"(%h) : (tensor<4xf32>) -> tensor<8xf32>
    %j = arith.subi %i, %c1 : index
    scf.yield %j, %g : index, !comm.future<tensor<8xf32>>
  }
  %s = comm.wait %r#1 : !comm.future<tensor<8xf32>>
  %s0 = comm.wait %f0 : !comm.future<tensor<8xf32>>
  return %s, %s0 : tensor<8xf32>, tensor<8xf32>
}
