// RUN: comm-opt %s --inline | FileCheck %s

// Tests that functions that start, wait for and pass on futures are inlined.
comm.group @dp #comm.iota<[1, 4]>

func.func private @start(%x: tensor<4xf32>) -> !comm.future<tensor<16xf32>> {
  %f = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  return %f : !comm.future<tensor<16xf32>>
}

func.func private @finish(%f: !comm.future<tensor<16xf32>>) -> tensor<16xf32> {
  %w = comm.wait %f : !comm.future<tensor<16xf32>>
  %e = comm.record on 0 : !comm.event
  comm.await_event %e on 1 : !comm.event
  %c = comm.compute "relu"(%w) : (tensor<16xf32>) -> tensor<16xf32>
  return %c : tensor<16xf32>
}

// CHECK-LABEL: func @caller
func.func @caller(%x: tensor<4xf32>, %p: i1) -> tensor<16xf32> {
  // CHECK-NOT: call
  // CHECK: %[[F:.*]] = comm.all_gather
  %f = call @start(%x) : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  // CHECK: scf.if
  %r = scf.if %p -> tensor<16xf32> {
    // CHECK: %[[W:.*]] = comm.wait %[[F]]
    // CHECK: comm.record
    // CHECK: comm.await_event
    // CHECK: comm.compute "relu"(%[[W]])
    %y = func.call @finish(%f) : (!comm.future<tensor<16xf32>>) -> tensor<16xf32>
    scf.yield %y : tensor<16xf32>
  } else {
    %w = comm.wait %f : !comm.future<tensor<16xf32>>
    scf.yield %w : tensor<16xf32>
  }
  return %r : tensor<16xf32>
}
