// RUN: comm-opt %s --comm-plan-memory="force=again bucketing=false" | FileCheck %s --check-prefixes=CHECK,AGAIN
// RUN: comm-opt %s --comm-plan-memory="force=keep bucketing=false" | FileCheck %s --check-prefixes=CHECK,KEEP
// RUN: comm-opt %s --comm-plan-memory="force=mixed bucketing=false" | FileCheck %s

comm.group @dp #comm.iota<[1, 4]>

// Tests that a clone reads the clone of what it needs, with the views in between, and that the early readers read what
// was made first.
// CHECK-LABEL: func.func @closure
// AGAIN: %[[A:.*]] = comm.compute "first"
// AGAIN: %[[B:.*]] = comm.compute "second"(%[[A]])
// AGAIN: %[[V:.*]] = comm.compute "view"(%[[B]])
// AGAIN: comm.compute "early"(%[[V]])
// AGAIN: %[[A2:.*]] = comm.compute "first"
// AGAIN: %[[B2:.*]] = comm.compute "second"(%[[A2]])
// AGAIN: %[[V2:.*]] = comm.compute "view"(%[[B2]])
// AGAIN: comm.compute "late"({{.*}}, %[[V2]])
// KEEP: comm.compute "first"
// KEEP-NOT: comm.compute "first"
// CHECK: return
func.func @closure(%x: tensor<256xf32>) -> tensor<1xf32> {
  %v = comm.compute "first"(%x) {comm.cost = #comm.cost<time = 100>} : (tensor<256xf32>) -> tensor<256xf32>
  %w = comm.compute "second"(%v) {comm.cost = #comm.cost<time = 100>} : (tensor<256xf32>) -> tensor<256xf32>
  %u = comm.compute "view"(%w) aliases [0] : (tensor<256xf32>) -> tensor<16x16xf32>
  %a = comm.compute "early"(%u) {comm.cost = #comm.cost<time = 100>} : (tensor<16x16xf32>) -> tensor<1xf32>
  %b = comm.compute "long"(%a) {comm.cost = #comm.cost<time = 1000>} : (tensor<1xf32>) -> tensor<1xf32>
  %f = comm.all_reduce sum %b on @dp : (tensor<1xf32>) -> !comm.future<tensor<1xf32>>
  %g = comm.wait %f : !comm.future<tensor<1xf32>>
  %c = comm.compute "late"(%g, %u) {comm.cost = #comm.cost<time = 100>} : (tensor<1xf32>, tensor<16x16xf32>) -> tensor<1xf32>
  return %c : tensor<1xf32>
}

// Tests that a gather is repeated with its wait.
// CHECK-LABEL: func.func @gather
// AGAIN-COUNT-2: comm.all_gather
// KEEP: comm.all_gather
// KEEP-NOT: comm.all_gather
// CHECK: return
func.func @gather(%w: tensor<64xf32>) -> tensor<1xf32> {
  %f = comm.all_gather %w on @dp : (tensor<64xf32>) -> !comm.future<tensor<256xf32>>
  %g = comm.wait %f : !comm.future<tensor<256xf32>>
  %a = comm.compute "early"(%g) {comm.cost = #comm.cost<time = 100>} : (tensor<256xf32>) -> tensor<1xf32>
  %b = comm.compute "long"(%a) {comm.cost = #comm.cost<time = 1000>} : (tensor<1xf32>) -> tensor<1xf32>
  %c = comm.compute "late"(%b, %g) {comm.cost = #comm.cost<time = 100>} : (tensor<1xf32>, tensor<256xf32>) -> tensor<1xf32>
  return %c : tensor<1xf32>
}

// Tests that what is returned is kept.
// CHECK-LABEL: func.func @returned
// CHECK: comm.compute "returned"
// CHECK-NOT: comm.compute "returned"
// CHECK: return
func.func @returned(%x: tensor<256xf32>) -> (tensor<1xf32>, tensor<256xf32>) {
  %r = comm.compute "returned"(%x) {comm.cost = #comm.cost<time = 100>} : (tensor<256xf32>) -> tensor<256xf32>
  %a = comm.compute "early"(%r) {comm.cost = #comm.cost<time = 100>} : (tensor<256xf32>) -> tensor<1xf32>
  %b = comm.compute "long"(%a) {comm.cost = #comm.cost<time = 1000>} : (tensor<1xf32>) -> tensor<1xf32>
  %f = comm.all_reduce sum %b on @dp : (tensor<1xf32>) -> !comm.future<tensor<1xf32>>
  %g = comm.wait %f : !comm.future<tensor<1xf32>>
  %c = comm.compute "late"(%g, %r) {comm.cost = #comm.cost<time = 100>} : (tensor<1xf32>, tensor<256xf32>) -> tensor<1xf32>
  return %c, %r : tensor<1xf32>, tensor<256xf32>
}

// Tests that operations that draw random numbers (comm.pinned), have side effects or write an operand, and what has a
// place on a stream or in a unit, are not repeated.
// CHECK-LABEL: func.func @not_repeatable
// CHECK-COUNT-1: comm.compute "random"
// CHECK-NOT: comm.compute "random"
// CHECK: return
func.func @not_repeatable(%x: tensor<256xf32>) -> tensor<1xf32> {
  %v = comm.compute "random"(%x) {comm.pinned, comm.cost = #comm.cost<time = 100>} : (tensor<256xf32>) -> tensor<256xf32>
  %e = comm.compute "random_effects"(%x) side_effects {comm.cost = #comm.cost<time = 100>} : (tensor<256xf32>) -> tensor<256xf32>
  %u = comm.compute "random_unit"(%x) {comm.unit = 1, comm.cost = #comm.cost<time = 100>} : (tensor<256xf32>) -> tensor<256xf32>
  %a = comm.compute "early"(%v, %e, %u) {comm.cost = #comm.cost<time = 100>} : (tensor<256xf32>, tensor<256xf32>, tensor<256xf32>) -> tensor<1xf32>
  %b = comm.compute "long"(%a) {comm.cost = #comm.cost<time = 1000>} : (tensor<1xf32>) -> tensor<1xf32>
  %f = comm.all_reduce sum %b on @dp : (tensor<1xf32>) -> !comm.future<tensor<1xf32>>
  %g = comm.wait %f : !comm.future<tensor<1xf32>>
  %c = comm.compute "late"(%g, %v, %e, %u) {comm.cost = #comm.cost<time = 100>} : (tensor<1xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>) -> tensor<1xf32>
  return %c : tensor<1xf32>
}

// Tests that two gathers of one shard are two things if the shard is written in between, and that nothing is made again
// from what was written.
// CHECK-LABEL: func.func @written
// CHECK: comm.all_gather
// CHECK: comm.compute "update"
// CHECK: comm.all_gather
// CHECK-NOT: comm.all_gather
// CHECK: return
func.func @written(%w: tensor<64xf32>, %x: tensor<256xf32>) -> tensor<1xf32> {
  %f = comm.all_gather %w on @dp : (tensor<64xf32>) -> !comm.future<tensor<256xf32>>
  %g = comm.wait %f : !comm.future<tensor<256xf32>>
  %a = comm.compute "early"(%g) {comm.cost = #comm.cost<time = 100>} : (tensor<256xf32>) -> tensor<1xf32>
  %b = comm.compute "update"(%w, %a) aliases [0] mutates [0] {comm.cost = #comm.cost<time = 1000>} : (tensor<64xf32>, tensor<1xf32>) -> tensor<64xf32>
  %f2 = comm.all_gather %w on @dp : (tensor<64xf32>) -> !comm.future<tensor<256xf32>>
  %g2 = comm.wait %f2 : !comm.future<tensor<256xf32>>
  %c = comm.compute "late"(%a, %g, %g2) {comm.cost = #comm.cost<time = 100>} : (tensor<1xf32>, tensor<256xf32>, tensor<256xf32>) -> tensor<1xf32>
  return %c : tensor<1xf32>
}

// Tests that bodies of loops are planned, too, and that operations with regions are not repeated.
// CHECK-LABEL: func.func @nested
// CHECK: scf.for
// AGAIN: comm.compute "make"
// AGAIN: comm.compute "make"
// AGAIN: scf.yield
// KEEP: comm.compute "make"
// KEEP-NOT: comm.compute "make"
// KEEP: scf.yield
func.func @nested(%x: tensor<256xf32>, %s: tensor<1xf32>, %n: index) -> tensor<1xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %r = scf.for %i = %zero to %n step %one iter_args(%t = %s) -> tensor<1xf32> {
    %v = comm.compute "make"(%x) {comm.cost = #comm.cost<time = 100>} : (tensor<256xf32>) -> tensor<256xf32>
    %a = comm.compute "early"(%v, %t) {comm.cost = #comm.cost<time = 100>} : (tensor<256xf32>, tensor<1xf32>) -> tensor<1xf32>
    %f = comm.all_reduce sum %a on @dp : (tensor<1xf32>) -> !comm.future<tensor<1xf32>>
    %g = comm.wait %f : !comm.future<tensor<1xf32>>
    %b = comm.compute "long"(%g) {comm.cost = #comm.cost<time = 1000>} : (tensor<1xf32>) -> tensor<1xf32>
    %c = comm.compute "late"(%b, %v) {comm.cost = #comm.cost<time = 100>} : (tensor<1xf32>, tensor<256xf32>) -> tensor<1xf32>
    scf.yield %c : tensor<1xf32>
  }
  return %r : tensor<1xf32>
}

// Tests that values of dynamic size, which count as 0 bytes, are kept.
// CHECK-LABEL: func.func @dynamic
// CHECK: comm.compute "make"
// CHECK-NOT: comm.compute "make"
// CHECK: return
func.func @dynamic(%x: tensor<?xf32>) -> tensor<1xf32> {
  %v = comm.compute "make"(%x) {comm.cost = #comm.cost<time = 100>} : (tensor<?xf32>) -> tensor<?xf32>
  %a = comm.compute "early"(%v) {comm.cost = #comm.cost<time = 100>} : (tensor<?xf32>) -> tensor<1xf32>
  %b = comm.compute "long"(%a) {comm.cost = #comm.cost<time = 1000>} : (tensor<1xf32>) -> tensor<1xf32>
  %f = comm.all_reduce sum %b on @dp : (tensor<1xf32>) -> !comm.future<tensor<1xf32>>
  %g = comm.wait %f : !comm.future<tensor<1xf32>>
  %c = comm.compute "late"(%g, %v) {comm.cost = #comm.cost<time = 100>} : (tensor<1xf32>, tensor<?xf32>) -> tensor<1xf32>
  return %c : tensor<1xf32>
}
