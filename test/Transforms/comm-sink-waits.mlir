// RUN: comm-opt %s --comm-sink-waits | FileCheck %s
// RUN: comm-opt %s --comm-sink-waits --comm-sink-waits | FileCheck %s
// RUN: comm-opt %s --comm-reorder-compute-for-overlap --split-input-file | FileCheck %s --check-prefix=FILL

comm.group @dp #comm.iota<[1, 4]>

// Tests that the wait goes between the two matrix multiplications: the first one does not need it, the second one does.
// CHECK-LABEL: func @between
// CHECK: comm.all_reduce
// CHECK-NEXT: compute "mm1"
// CHECK-NEXT: comm.wait
// CHECK-NEXT: compute "mm2"
func.func @between(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %f = comm.all_reduce sum %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  %a = comm.compute "mm1"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %b = comm.compute "mm2"(%r) : (tensor<8xf32>) -> tensor<8xf32>
  return %a, %b : tensor<8xf32>, tensor<8xf32>
}

// Tests that a wait sinks past other starts, and that each wait is there once.
// CHECK-LABEL: func @past_starts
// CHECK: comm.all_reduce sum
// CHECK-NEXT: comm.all_reduce max
// CHECK-NEXT: compute "free"
// CHECK-NEXT: comm.wait
// CHECK-NEXT: comm.wait
// CHECK-NEXT: return
func.func @past_starts(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %f = comm.all_reduce sum %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  %g = comm.all_reduce max %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %s = comm.wait %g : !comm.future<tensor<8xf32>>
  %q = comm.compute "free"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  return %q, %r, %s : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}

// Tests that a wait for a future that came in as an argument sinks too.
// CHECK-LABEL: func @argument
// CHECK: compute "free"
// CHECK-NEXT: comm.wait
func.func @argument(%f: !comm.future<tensor<8xf32>>, %x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  %q = comm.compute "free"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  return %q, %r : tensor<8xf32>, tensor<8xf32>
}

// Tests the three kinds of compute between two all-reduces: first what the second one needs and the first one does not
// make, then what is free, until the first one's 300 ns are covered; what depends on the first one comes after its wait.
// FILL-LABEL: func @three_kinds
// FILL: comm.all_reduce sum
// FILL-NEXT: compute "needed"
// FILL-NEXT: compute "free"
// FILL-NEXT: comm.wait
// FILL-NEXT: compute "dependent"
// FILL-NEXT: compute "both"
// FILL-NEXT: comm.all_reduce max
func.func @three_kinds(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %f = comm.all_reduce sum %x on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  %d = comm.compute "dependent"(%r) {comm.cost = #comm.cost<time = 100>} : (tensor<8xf32>) -> tensor<8xf32>
  %q = comm.compute "free"(%x) {comm.cost = #comm.cost<time = 200>} : (tensor<8xf32>) -> tensor<8xf32>
  %n = comm.compute "needed"(%x) {comm.cost = #comm.cost<time = 100>} : (tensor<8xf32>) -> tensor<8xf32>
  %b = comm.compute "both"(%d, %n) {comm.cost = #comm.cost<time = 100>} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %g = comm.all_reduce max %b on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %s = comm.wait %g : !comm.future<tensor<8xf32>>
  return %q, %s : tensor<8xf32>, tensor<8xf32>
}
