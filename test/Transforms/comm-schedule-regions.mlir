// Tests what regions, calls and carried futures cost: the report is never below what the program takes in any order.

// RUN: comm-opt %s --reorder-comm-overlap -o /dev/null 2>&1 | FileCheck %s
// RUN: comm-opt %s --reorder-comm-overlap --comm-machine=cpu-mpi -o /dev/null 2>&1 | FileCheck %s --check-prefix=ONE

comm.group @dp #comm.iota<[1, 4]>

// Tests a wait in a region for a collective outside: 100 us of gather, then 50 us of compute.
// CHECK-LABEL: nestwait: 3 operations
// CHECK: makespan {{ *}}150 us 150 us
// CHECK-NEXT: exposed {{ *}}100 us 100 us
// CHECK: lower bound {{ *}}150 us
func.func @nestwait(%w: tensor<16xf32>, %c: i1, %x: tensor<64xf32>) -> tensor<64xf32> {
  %f = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 100000>} : (tensor<16xf32>) -> !comm.future<tensor<64xf32>>
  %g = scf.if %c -> tensor<64xf32> {
    %h = comm.wait %f : !comm.future<tensor<64xf32>>
    scf.yield %h : tensor<64xf32>
  } else {
    %h = comm.wait %f : !comm.future<tensor<64xf32>>
    scf.yield %h : tensor<64xf32>
  }
  %b = comm.compute "b"(%g) {comm.cost = #comm.cost<time = 50000>} : (tensor<64xf32>) -> tensor<64xf32>
  return %b : tensor<64xf32>
}

// Tests that a collective in a region occupies its lane: 4 us and 6 us on one communicator are 10 us.
// CHECK-LABEL: nested: 3 operations
// CHECK: makespan 10.0 us 10.0 us
// CHECK: lower bound 10.0 us
func.func @nested(%x: tensor<64xf32>, %w: tensor<64xf32>, %c: i1) -> (tensor<64xf32>, tensor<64xf32>) {
  %l = scf.if %c -> tensor<64xf32> {
    %f = comm.all_reduce sum %x on @dp {comm.cost = #comm.cost<time = 4000>} : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
    %g = comm.wait %f : !comm.future<tensor<64xf32>>
    scf.yield %g : tensor<64xf32>
  } else {
    scf.yield %x : tensor<64xf32>
  }
  %r = comm.all_reduce sum %w on @dp {comm.cost = #comm.cost<time = 6000>} : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
  %s = comm.wait %r : !comm.future<tensor<64xf32>>
  return %l, %s : tensor<64xf32>, tensor<64xf32>
}

// Tests a future that a loop carries: eleven gathers of 100 us on one lane, and 50 us behind the last.
// CHECK-LABEL: carried.0: 3 operations
// CHECK: makespan 100 us 100 us
// CHECK-NEXT: exposed 90.0 us 90.0 us
// CHECK-LABEL: carried: 7 operations
// CHECK: makespan 1.15 ms 1.15 ms
func.func @carried(%w: tensor<16xf32>, %x: tensor<64xf32>) -> tensor<64xf32> {
  %lo = arith.constant 0 : index
  %n = arith.constant 10 : index
  %one = arith.constant 1 : index
  %f0 = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 100000>} : (tensor<16xf32>) -> !comm.future<tensor<64xf32>>
  %r:2 = scf.for %i = %lo to %n step %one iter_args(%acc = %x, %fut = %f0) -> (tensor<64xf32>, !comm.future<tensor<64xf32>>) {
    %f1 = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 100000>} : (tensor<16xf32>) -> !comm.future<tensor<64xf32>>
    %h = comm.wait %fut : !comm.future<tensor<64xf32>>
    %b = comm.compute "b"(%acc, %h) {comm.cost = #comm.cost<time = 10000>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    scf.yield %b, %f1 : tensor<64xf32>, !comm.future<tensor<64xf32>>
  }
  %last = comm.wait %r#1 : !comm.future<tensor<64xf32>>
  %z = comm.compute "z"(%r#0, %last) {comm.cost = #comm.cost<time = 50000>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %z : tensor<64xf32>
}

func.func private @layer(%x: tensor<64xf32>) -> tensor<64xf32> {
  %t = comm.compute "big"(%x) {comm.cost = #comm.cost<time = 1000>} : (tensor<64xf32>) -> tensor<1048576xf32>
  %f = comm.all_reduce sum %t on @dp {comm.cost = #comm.cost<time = 7000>} : (tensor<1048576xf32>) -> !comm.future<tensor<1048576xf32>>
  %g = comm.wait %f : !comm.future<tensor<1048576xf32>>
  %r = comm.compute "red"(%g) {comm.cost = #comm.cost<time = 1000>} : (tensor<1048576xf32>) -> tensor<64xf32>
  return %r : tensor<64xf32>
}

// Tests a call: it occupies the lane of its callee's all-reduce, and its peak counts.
// CHECK-LABEL: calls: 3 operations
// CHECK: makespan 18.0 us 18.0 us
// CHECK: peak 8.00 MiB 8.00 MiB
func.func @calls(%x: tensor<64xf32>, %w: tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %f = comm.all_reduce sum %w on @dp {comm.cost = #comm.cost<time = 9000>} : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
  %a = func.call @layer(%x) : (tensor<64xf32>) -> tensor<64xf32>
  %g = comm.wait %f : !comm.future<tensor<64xf32>>
  return %a, %g : tensor<64xf32>, tensor<64xf32>
}

// Tests that a future that came in occupies the lane that all groups share, and that it is said where it does not.
// CHECK-LABEL: late: 2 operations
// CHECK: makespan 10.0 us 10.0 us
// CHECK: 1 futures that came in occupy no lane until they are ready: their groups are not known
// ONE-LABEL: late: 2 operations
// ONE: makespan 100 us 100 us
// ONE-NOT: futures that came in
func.func @late(%in: !comm.future<tensor<64xf32>> {comm.ready_ns = 90000 : i64}, %w: tensor<64xf32>) -> (!comm.future<tensor<64xf32>>, tensor<64xf32>) {
  %f = comm.all_reduce sum %w on @dp {comm.cost = #comm.cost<time = 10000>} : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
  %g = comm.wait %f : !comm.future<tensor<64xf32>>
  return %in, %g : !comm.future<tensor<64xf32>>, tensor<64xf32>
}
