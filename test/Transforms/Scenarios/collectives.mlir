// RUN: comm-opt %s --comm-raise | FileCheck %s --check-prefix=RAISE
// RUN: comm-opt %s --comm-sink-waits | FileCheck %s --check-prefix=SINK
// RUN: comm-opt %s --comm-reorder-preserving-peak-memory="use-runtime-estimates=true memory-budget-ratio=1 collective-order=group" | FileCheck %s --check-prefix=START
// RUN: comm-opt %s --comm-sink-waits-preserving-peak-memory="use-runtime-estimates=true" | FileCheck %s --check-prefix=WAIT
// RUN: comm-opt %s --comm-schedule="bucketing=false memory-budget-ratio=1" | FileCheck %s --check-prefix=SOLVE

comm.group @dp #comm.iota<[1, 4]>
comm.group @tp #comm.iota<[2, 2]>

// Tests "all-reduce, mm, mm of the all-reduce": the first mm does not need the result, so that it hides the collective;
// the second one does, so that the wait stands right before it. All rules agree.
// SINK-LABEL: func @wait_between
// SINK: comm.all_reduce
// SINK-NEXT: compute "mm1"
// SINK-NEXT: comm.wait
// SINK-NEXT: compute "mm2"
// WAIT-LABEL: func @wait_between
// WAIT: comm.all_reduce
// WAIT-NEXT: compute "mm1"
// WAIT-NEXT: comm.wait
// WAIT-NEXT: compute "mm2"
// SOLVE-LABEL: func @wait_between
// SOLVE: comm.all_reduce
// SOLVE-NEXT: compute "mm1"
// SOLVE-NEXT: comm.wait
// SOLVE-NEXT: compute "mm2"
func.func @wait_between(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %f = comm.all_reduce sum %x on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  %a = comm.compute "mm1"(%x) {comm.cost = #comm.cost<time = 1000>} : (tensor<8xf32>) -> tensor<8xf32>
  %b = comm.compute "mm2"(%r) {comm.cost = #comm.cost<time = 1000>} : (tensor<8xf32>) -> tensor<8xf32>
  return %a, %b : tensor<8xf32>, tensor<8xf32>
}

// Tests "all-reduce of an mm's output that relu reads too": in place, the all-reduce overwrites what relu reads, so that
// it rises past "free" and no further than to right behind relu.
// RAISE-LABEL: func @after_the_other_reader
// RAISE: compute "mm"
// RAISE-NEXT: compute "relu"
// RAISE-NEXT: comm.all_reduce
// RAISE-NEXT: compute "free"
// START-LABEL: func @after_the_other_reader
// START: compute "mm"
// START-NEXT: compute "relu"
// START-NEXT: comm.all_reduce
// START-NEXT: compute "free"
// SOLVE-LABEL: func @after_the_other_reader
// SOLVE: compute "mm"
// SOLVE-NEXT: compute "relu"
// SOLVE-NEXT: comm.all_reduce
// SOLVE-NEXT: compute "free"
func.func @after_the_other_reader(%a: memref<8xf32>, %t: tensor<8xf32>) -> (memref<8xf32>, tensor<8xf32>) {
  %m = memref.alloc() : memref<8xf32>
  %r = memref.alloc() : memref<8xf32>
  comm.compute "mm"(%a, %m) mutates [1] {comm.cost = #comm.cost<time = 100>} : (memref<8xf32>, memref<8xf32>) -> ()
  comm.compute "relu"(%m, %r) mutates [1] {comm.cost = #comm.cost<time = 100>} : (memref<8xf32>, memref<8xf32>) -> ()
  %q = comm.compute "free"(%t) {comm.cost = #comm.cost<time = 100>} : (tensor<8xf32>) -> tensor<8xf32>
  %f = comm.all_reduce sum %m into %m on @dp {comm.cost = #comm.cost<time = 90>} : (memref<8xf32>) -> !comm.future<memref<8xf32>>
  %w = comm.wait %f keeping (%m, %m : memref<8xf32>, memref<8xf32>) : !comm.future<memref<8xf32>>
  return %r, %q : memref<8xf32>, tensor<8xf32>
}

// Tests that nothing moves where there is nothing to gain: the start stands first, the wait last, and compute in between.
// RAISE-LABEL: func @nothing_to_gain
// RAISE-NEXT: comm.all_reduce
// RAISE-NEXT: compute "free"
// RAISE-NEXT: comm.wait
// SINK-LABEL: func @nothing_to_gain
// SINK-NEXT: comm.all_reduce
// SINK-NEXT: compute "free"
// SINK-NEXT: comm.wait
// START-LABEL: func @nothing_to_gain
// START-NEXT: comm.all_reduce
// START-NEXT: compute "free"
// START-NEXT: comm.wait
// WAIT-LABEL: func @nothing_to_gain
// WAIT-NEXT: comm.all_reduce
// WAIT-NEXT: compute "free"
// WAIT-NEXT: comm.wait
func.func @nothing_to_gain(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %f = comm.all_reduce sum %x on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %q = comm.compute "free"(%x) {comm.cost = #comm.cost<time = 100>} : (tensor<8xf32>) -> tensor<8xf32>
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  return %q, %r : tensor<8xf32>, tensor<8xf32>
}

// Tests "waits in the other order": the collectives keep the order in which they were launched, under every rule that
// does not say that it reorders them; and so do the waits where nothing is gained.
// RAISE-LABEL: func @waits_reversed
// RAISE: comm.all_reduce sum
// RAISE-NEXT: comm.all_reduce max
// RAISE: comm.wait
// SINK-LABEL: func @waits_reversed
// SINK: comm.all_reduce sum
// SINK-NEXT: comm.all_reduce max
// SINK-NEXT: compute "free"
// SINK-NEXT: comm.wait [[MAX:%[0-9]+]]
// SINK-NEXT: comm.wait
// START-LABEL: func @waits_reversed
// START: comm.all_reduce sum
// START: comm.all_reduce max
// WAIT-LABEL: func @waits_reversed
// WAIT: comm.all_reduce sum
// WAIT-NEXT: comm.all_reduce max
func.func @waits_reversed(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %f = comm.all_reduce sum %x on @dp {comm.cost = #comm.cost<time = 100>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %g = comm.all_reduce max %x on @dp {comm.cost = #comm.cost<time = 100>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %s = comm.wait %g : !comm.future<tensor<8xf32>>
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  %q = comm.compute "free"(%x) {comm.cost = #comm.cost<time = 100>} : (tensor<8xf32>) -> tensor<8xf32>
  return %q, %r, %s : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}

// Tests "dead ends": reduce-scatters whose results only the function returns are as urgent as their gradients are early.
// They do not drift to the end, where nothing would hide them.
// RAISE-LABEL: func @dead_ends
// RAISE: compute "grad2"
// RAISE-NEXT: comm.reduce_scatter
// RAISE-NEXT: compute "grad1"
// RAISE-NEXT: comm.reduce_scatter
// RAISE-NEXT: compute "grad0"
// START-LABEL: func @dead_ends
// START: compute "grad2"
// START-NEXT: comm.reduce_scatter
// START-NEXT: compute "grad1"
// START-NEXT: comm.reduce_scatter
// START-NEXT: compute "grad0"
// SOLVE-LABEL: func @dead_ends
// SOLVE: compute "grad2"
// SOLVE-NEXT: comm.reduce_scatter
// SOLVE-NEXT: compute "grad1"
// SOLVE: comm.reduce_scatter
// SOLVE-NEXT: compute "grad0"
func.func @dead_ends(%x: tensor<8xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<8xf32>) {
  %c = comm.compute "grad2"(%x) {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> tensor<8xf32>
  %b = comm.compute "grad1"(%c) {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> tensor<8xf32>
  %a = comm.compute "grad0"(%b) {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> tensor<8xf32>
  %f = comm.reduce_scatter sum %c on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> !comm.future<tensor<2xf32>>
  %r = comm.wait %f : !comm.future<tensor<2xf32>>
  %g = comm.reduce_scatter sum %b on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> !comm.future<tensor<2xf32>>
  %s = comm.wait %g : !comm.future<tensor<2xf32>>
  return %r, %s, %a : tensor<2xf32>, tensor<2xf32>, tensor<8xf32>
}

// Tests "pointwise work hides a gather": hiding asks for time, not for matrix multiplications.
// RAISE-LABEL: func @pointwise_hides
// RAISE-NEXT: comm.all_gather
// START-LABEL: func @pointwise_hides
// START-NEXT: comm.all_gather
// START-NEXT: compute "gelu"
// START-NEXT: compute "add"
// START-NEXT: comm.wait
// WAIT-LABEL: func @pointwise_hides
// SOLVE-LABEL: func @pointwise_hides
// SOLVE-NEXT: comm.all_gather
func.func @pointwise_hides(%w: tensor<8xf32>, %x: tensor<64xf32>) -> (tensor<64xf32>, tensor<32xf32>) {
  %a = comm.compute "gelu"(%x) {comm.cost = #comm.cost<time = 200>} : (tensor<64xf32>) -> tensor<64xf32>
  %b = comm.compute "add"(%a, %x) {comm.cost = #comm.cost<time = 200>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %f = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
  %r = comm.wait %f : !comm.future<tensor<32xf32>>
  return %b, %r : tensor<64xf32>, tensor<32xf32>
}
