// Tests that values from outside of a loop that are one tensor keep their reads and writes in order inside of it.

// RUN: comm-opt %s --comm-schedule | FileCheck %s
// RUN: comm-opt %s --comm-raise | FileCheck %s

comm.group @w #comm.iota<[1, 2]>

// CHECK-LABEL: func @view
func.func @view(%x: tensor<8xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %v = comm.compute "view"(%x) aliases [0] : (tensor<8xf32>) -> tensor<8xf32>
  // CHECK: scf.for
  // CHECK: "read"
  // CHECK: "update"
  // CHECK: comm.all_reduce
  %r = scf.for %i = %c0 to %c1 step %c1 iter_args(%a = %y) -> tensor<8xf32> {
    %q = comm.compute "read"(%v) : (tensor<8xf32>) -> tensor<8xf32>
    comm.compute "update"(%x, %y) mutates [0] : (tensor<8xf32>, tensor<8xf32>) -> ()
    %f = comm.all_reduce sum %x on @w : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
    %p = comm.wait %f : !comm.future<tensor<8xf32>>
    %s = comm.compute "add"(%p, %q) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    scf.yield %s : tensor<8xf32>
  }
  return %r : tensor<8xf32>
}

// The result of a collective is in its destination.
// CHECK-LABEL: func @destination
func.func @destination(%x: tensor<8xf32>, %y: tensor<8xf32>, %c: i1) {
  %d = bufferization.alloc_tensor() : tensor<8xf32>
  %f = comm.all_reduce sum %x into %d on @w : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %w = comm.wait %f : !comm.future<tensor<8xf32>>
  // CHECK: scf.if
  // CHECK: "read"
  // CHECK: comm.all_reduce
  scf.if %c {
    %q = comm.compute "read"(%d) : (tensor<8xf32>) -> tensor<8xf32>
    %g = comm.all_reduce sum %y into %w on @w : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
    %p = comm.wait %g : !comm.future<tensor<8xf32>>
    comm.compute "use"(%p, %q) side_effects : (tensor<8xf32>, tensor<8xf32>) -> ()
  }
  return
}

// What a future from outside reads is in flight until its wait inside.
// CHECK-LABEL: func @in_flight
func.func @in_flight(%x: tensor<8xf32>, %y: tensor<8xf32>, %c: i1) {
  %f = comm.all_reduce sum %x on @w : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  // CHECK: scf.if
  // CHECK: comm.wait
  // CHECK: "update"
  // CHECK: comm.all_reduce
  scf.if %c {
    %p = comm.wait %f : !comm.future<tensor<8xf32>>
    comm.compute "update"(%x, %y) mutates [0] : (tensor<8xf32>, tensor<8xf32>) -> ()
    %g = comm.all_reduce sum %x on @w : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
    %q = comm.wait %g : !comm.future<tensor<8xf32>>
    comm.compute "use"(%p, %q) side_effects : (tensor<8xf32>, tensor<8xf32>) -> ()
  } else {
    %p = comm.wait %f : !comm.future<tensor<8xf32>>
  }
  return
}
