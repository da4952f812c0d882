// Tests that a function that is not known may keep a tensor that it was given outside of a block, for another call inside.

// RUN: comm-opt %s --split-input-file --comm-sink-waits | FileCheck %s
// RUN: comm-opt %s --split-input-file --comm-schedule --comm-sink-waits | FileCheck %s

// Tests that a read stays behind a call of a function that was given the tensor in front of the loop.
comm.group @dp #comm.iota<[1, 2]>
func.func private @keeps(tensor<4xi32>)
// CHECK-LABEL: @kept_outside
func.func @kept_outside(%a: tensor<4xi32>, %b: tensor<4xi32>, %n: index) -> tensor<4xi32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %t = comm.compute "make"(%a) : (tensor<4xi32>) -> tensor<4xi32>
  %view = comm.compute "view"(%t) aliases [0] : (tensor<4xi32>) -> tensor<4xi32>
  func.call @keeps(%view) : (tensor<4xi32>) -> ()
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%p = %b) -> tensor<4xi32> {
    // CHECK: scf.for
    // CHECK: func.call @keeps
    // CHECK-NEXT: comm.compute "read"
    %f = comm.all_reduce sum %b on @dp {comm.cost = #comm.cost<time = 90000>} : (tensor<4xi32>) -> !comm.future<tensor<4xi32>>
    %x = comm.wait %f : !comm.future<tensor<4xi32>>
    func.call @keeps(%b) : (tensor<4xi32>) -> ()
    %y = comm.compute "read"(%t, %t) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
    %z = comm.compute "add"(%x, %y) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
    scf.yield %z : tensor<4xi32>
  }
  return %r : tensor<4xi32>
}

// -----

// Tests the same of what a wait outside of the loop received, and of what an earlier iteration made.
comm.group @dp #comm.iota<[1, 2]>
func.func private @keeps(tensor<4xi32>)
// CHECK-LABEL: @received_and_kept
func.func @received_and_kept(%a: tensor<4xi32>, %b: tensor<4xi32>, %n: index) -> (tensor<4xi32>, tensor<4xi32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %g = comm.all_reduce sum %a on @dp : (tensor<4xi32>) -> !comm.future<tensor<4xi32>>
  %t = comm.wait %g : !comm.future<tensor<4xi32>>
  func.call @keeps(%t) : (tensor<4xi32>) -> ()
  %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%p = %b, %q = %b) -> (tensor<4xi32>, tensor<4xi32>) {
    // CHECK: scf.for
    // CHECK: func.call @keeps
    // CHECK: comm.compute "make"
    // CHECK: func.call @keeps
    // CHECK: comm.compute "read"
    %f = comm.all_reduce sum %b on @dp {comm.cost = #comm.cost<time = 90000>} : (tensor<4xi32>) -> !comm.future<tensor<4xi32>>
    %x = comm.wait %f : !comm.future<tensor<4xi32>>
    func.call @keeps(%b) : (tensor<4xi32>) -> ()
    %m = comm.compute "make"(%t, %p) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
    func.call @keeps(%m) : (tensor<4xi32>) -> ()
    %y = comm.compute "read"(%t, %t) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
    %z = comm.compute "add"(%x, %y) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
    scf.yield %m, %z : tensor<4xi32>, tensor<4xi32>
  }
  return %r#0, %r#1 : tensor<4xi32>, tensor<4xi32>
}
