// RUN: comm-opt %s --comm-schedule="bucketing=false" | FileCheck %s
// RUN: comm-opt %s --comm-schedule="bucketing=false collective-order=program" | FileCheck %s --check-prefix=PROGRAM
// RUN: comm-opt %s --comm-schedule="bucketing=false" | comm-opt --comm-schedule="bucketing=false" | FileCheck %s

comm.group @dp #comm.iota<[1, 4]>
comm.group @ep #comm.iota<[1, 4]>

// Tests that the gather starts before the compute that can hide it, and that its wait stands at its consumer.
// CHECK-LABEL: func.func @prefetch
// CHECK: comm.all_gather
// CHECK-NEXT: comm.compute "a"
// CHECK-NEXT: comm.wait
// CHECK-NEXT: comm.compute "b"
func.func @prefetch(%x: tensor<64xf32>, %w: tensor<16xf32>) -> tensor<64xf32> {
  %a = comm.compute "a"(%x) {comm.cost = #comm.cost<time = 5000>} : (tensor<64xf32>) -> tensor<64xf32>
  %f = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 4000>} : (tensor<16xf32>) -> !comm.future<tensor<64xf32>>
  %g = comm.wait %f : !comm.future<tensor<64xf32>>
  %b = comm.compute "b"(%a, %g) {comm.cost = #comm.cost<time = 100>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %b : tensor<64xf32>
}

// Tests that the limit holds: beside the two temporaries of "big" there is no room for the gathered 256 bytes, so the
// gather stays behind it.
// CHECK-LABEL: func.func @no_room
// CHECK: comm.compute "big"
// CHECK: comm.compute "small"
// CHECK: comm.all_gather
func.func @no_room(%x: tensor<64xf32>, %w: tensor<16xf32>) -> tensor<64xf32> {
  %t = comm.compute "big"(%x) {comm.cost = #comm.cost<time = 5000, workspace = 512>} : (tensor<64xf32>) -> tensor<1xf32>
  %s = comm.compute "small"(%t) {comm.cost = #comm.cost<time = 10, workspace = 512>} : (tensor<1xf32>) -> tensor<1xf32>
  %f = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 4000>} : (tensor<16xf32>) -> !comm.future<tensor<64xf32>>
  %g = comm.wait %f : !comm.future<tensor<64xf32>>
  %b = comm.compute "b"(%s, %g) {comm.cost = #comm.cost<time = 100>} : (tensor<1xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %b : tensor<64xf32>
}

// Tests that collectives of different groups overlap where only dependences hold, and keep their order under
// collective-order=program: the second one is ready first.
// CHECK-LABEL: func.func @order
// CHECK: comm.all_reduce sum %{{.*}} on @ep
// CHECK: comm.all_gather
// PROGRAM-LABEL: func.func @order
// PROGRAM: comm.all_gather
// PROGRAM: comm.all_reduce sum %{{.*}} on @ep
func.func @order(%x: tensor<64xf32>, %w: tensor<16xf32>) -> tensor<64xf32> {
  %s = comm.compute "slow"(%w) {comm.cost = #comm.cost<time = 5000>} : (tensor<16xf32>) -> tensor<16xf32>
  %f = comm.all_gather %s on @dp {comm.cost = #comm.cost<time = 4000>} : (tensor<16xf32>) -> !comm.future<tensor<64xf32>>
  %r = comm.all_reduce sum %x on @ep {comm.cost = #comm.cost<time = 6000>} : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
  %g = comm.wait %f : !comm.future<tensor<64xf32>>
  %h = comm.wait %r : !comm.future<tensor<64xf32>>
  %b = comm.compute "b"(%h, %g) {comm.cost = #comm.cost<time = 100>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %b : tensor<64xf32>
}

// Tests that loop bodies are scheduled too.
// CHECK-LABEL: func.func @loop
// CHECK: scf.for
// CHECK-NEXT: comm.all_gather
// CHECK-NEXT: comm.compute "a"
func.func @loop(%x: tensor<64xf32>, %w: tensor<16xf32>, %n: index) -> tensor<64xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %r = scf.for %i = %zero to %n step %one iter_args(%v = %x) -> tensor<64xf32> {
    %a = comm.compute "a"(%v) {comm.cost = #comm.cost<time = 5000>} : (tensor<64xf32>) -> tensor<64xf32>
    %f = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 4000>} : (tensor<16xf32>) -> !comm.future<tensor<64xf32>>
    %g = comm.wait %f : !comm.future<tensor<64xf32>>
    %b = comm.compute "b"(%a, %g) {comm.cost = #comm.cost<time = 100>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    scf.yield %b : tensor<64xf32>
  }
  return %r : tensor<64xf32>
}

// Tests that a block without collectives, and an empty one, are left alone.
// CHECK-LABEL: func.func @nothing
// CHECK-NEXT: return
func.func @nothing() {
  return
}
