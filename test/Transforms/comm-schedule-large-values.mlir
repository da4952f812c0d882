// Tests times and sizes that cannot be added up: they are cut, with a warning, and nothing overflows.

// RUN: comm-opt %s --reorder-comm-overlap -verify-diagnostics -o /dev/null 2>&1 | FileCheck %s

comm.group @dp #comm.iota<[1, 4]>

// CHECK-LABEL: workspace: 4 operations
// CHECK: makespan {{ *}}1.10 us
// CHECK: 1 times or sizes are too large to be added up and were cut
// expected-warning @+1 {{1 times or sizes are too large to be added up and were cut; no collectives are merged}}
func.func @workspace(%x: tensor<64xf32>) -> tensor<64xf32> {
  %f = comm.all_reduce sum %x on @dp {comm.cost = #comm.cost<time = 1000>} : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
  %a = comm.compute "a"(%x) {comm.cost = #comm.cost<time = 1000, workspace = 9223372036854775807>} : (tensor<64xf32>) -> tensor<64xf32>
  %g = comm.wait %f : !comm.future<tensor<64xf32>>
  %d = comm.compute "d"(%a, %g) {comm.cost = #comm.cost<time = 100>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %d : tensor<64xf32>
}

// CHECK-LABEL: ready: 4 operations
// CHECK: makespan{{ *}}1152921505 s
// CHECK: 1 times or sizes are too large to be added up and were cut
// expected-warning @+1 {{1 times or sizes}}
func.func @ready(%x: !comm.future<tensor<64xf32>> {comm.ready_ns = 9223372036854775807 : i64}, %w: tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %g = comm.wait %x : !comm.future<tensor<64xf32>>
  %d = comm.compute "d"(%g) {comm.cost = #comm.cost<time = 100>} : (tensor<64xf32>) -> tensor<64xf32>
  %f = comm.all_reduce sum %w on @dp {comm.cost = #comm.cost<time = 1000>} : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
  %h = comm.wait %f : !comm.future<tensor<64xf32>>
  return %d, %h : tensor<64xf32>, tensor<64xf32>
}

// CHECK-LABEL: {{^}}loops: 12 operations
// CHECK-NOT: -{{[1-9]}}
// CHECK: were cut
// expected-warning @+1 {{were cut}}
func.func @loops(%x: tensor<64xf32>, %w: tensor<16xf32>) -> tensor<64xf32> {
 %lo = arith.constant 0 : index
 %n = arith.constant 4611686018427387904 : index
 %one = arith.constant 1 : index
  %a0 = scf.for %i = %lo to %n step %one iter_args(%acc = %x) -> tensor<64xf32> {
    %f = comm.all_reduce sum %acc on @dp {comm.cost = #comm.cost<time = 4000>} : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
    %g = comm.wait %f : !comm.future<tensor<64xf32>>
    scf.yield %g : tensor<64xf32>
  }
  %a1 = scf.for %i = %lo to %n step %one iter_args(%acc = %a0) -> tensor<64xf32> {
    %f = comm.all_reduce sum %acc on @dp {comm.cost = #comm.cost<time = 4000>} : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
    %g = comm.wait %f : !comm.future<tensor<64xf32>>
    scf.yield %g : tensor<64xf32>
  }
  %a2 = scf.for %i = %lo to %n step %one iter_args(%acc = %a1) -> tensor<64xf32> {
    %f = comm.all_reduce sum %acc on @dp {comm.cost = #comm.cost<time = 4000>} : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
    %g = comm.wait %f : !comm.future<tensor<64xf32>>
    scf.yield %g : tensor<64xf32>
  }
  %a3 = scf.for %i = %lo to %n step %one iter_args(%acc = %a2) -> tensor<64xf32> {
    %f = comm.all_reduce sum %acc on @dp {comm.cost = #comm.cost<time = 4000>} : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
    %g = comm.wait %f : !comm.future<tensor<64xf32>>
    scf.yield %g : tensor<64xf32>
  }
  %a4 = scf.for %i = %lo to %n step %one iter_args(%acc = %a3) -> tensor<64xf32> {
    %f = comm.all_reduce sum %acc on @dp {comm.cost = #comm.cost<time = 4000>} : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
    %g = comm.wait %f : !comm.future<tensor<64xf32>>
    scf.yield %g : tensor<64xf32>
  }
  %a5 = scf.for %i = %lo to %n step %one iter_args(%acc = %a4) -> tensor<64xf32> {
    %f = comm.all_reduce sum %acc on @dp {comm.cost = #comm.cost<time = 4000>} : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
    %g = comm.wait %f : !comm.future<tensor<64xf32>>
    scf.yield %g : tensor<64xf32>
  }
  %f = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 1000>} : (tensor<16xf32>) -> !comm.future<tensor<64xf32>>
  %g = comm.wait %f : !comm.future<tensor<64xf32>>
  %b = comm.compute "b"(%a5, %g) {comm.cost = #comm.cost<time = 100>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %b : tensor<64xf32>
}
